//! Payloads that were stored a moment ago, so that the claim that follows a submission reads no disk.
//!
//! Most tasks are handed over right after they came in. Reading their payloads back from the store would cost every
//! claim a trip to a blocking thread; kept here they are there when the answer is written. Only what is durable is put
//! in, each is given once, and the oldest go when the room is used up: whoever misses one reads the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::ledger::ids::ReachId;
use crate::ledger::store::{Body, BodyKey, BodyKind};

/// Bytes of payloads kept at most.
const ROOM: usize = 16 << 20;
/// What an entry costs beside its bytes, roughly.
const ENTRY_COST: usize = 160;

/// Fresh payloads by task; bounded, oldest first out.
#[derive(Debug, Default)]
pub(in crate::ledger) struct FreshPayloads {
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    by_task: HashMap<ReachId, (u64, Body)>,
    by_age: BTreeMap<u64, ReachId>,
    next: u64,
    bytes: usize,
}

impl FreshPayloads {
    /// Keeps the payloads among bodies that have just become durable.
    pub(in crate::ledger) fn keep(&self, bodies: &[(BodyKey, Body)]) {
        if bodies.is_empty() {
            return;
        }
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, body) in bodies {
            if let Some(task) = payload_of(key) {
                shelf.put(task, body.clone());
            }
        }
        shelf.make_room();
    }

    /// Takes what is there of these bodies: one answer a key, in order; `None` where the store must be asked.
    pub(in crate::ledger) fn take(&self, keys: &[BodyKey]) -> Vec<Option<Body>> {
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| shelf.take(payload_of(key)?)).collect()
    }
}

impl Shelf {
    fn put(&mut self, task: ReachId, body: Body) {
        drop(self.take(task));
        self.bytes += body.bytes.len() + ENTRY_COST;
        self.by_age.insert(self.next, task);
        self.by_task.insert(task, (self.next, body));
        self.next += 1;
    }

    fn take(&mut self, task: ReachId) -> Option<Body> {
        let (age, body) = self.by_task.remove(&task)?;
        self.by_age.remove(&age);
        self.bytes = self.bytes.saturating_sub(body.bytes.len() + ENTRY_COST);
        Some(body)
    }

    fn make_room(&mut self) {
        while self.bytes > ROOM
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            drop(self.take(oldest));
        }
    }
}

const fn payload_of(key: &BodyKey) -> Option<ReachId> {
    match key {
        BodyKey::Task { task, kind: BodyKind::Payload, .. } => Some(*task),
        BodyKey::Task { .. } | BodyKey::Named(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8, kind: BodyKind) -> BodyKey {
        BodyKey::Task { task: ReachId([n; 16]), kind, attempt: 0 }
    }

    fn body(len: usize) -> Body {
        Body { salt: [1; 16], bytes: vec![7; len].into() }
    }

    #[test]
    fn a_payload_is_given_once_and_nothing_else_is_kept() {
        let fresh = FreshPayloads::default();
        fresh.keep(&[(key(1, BodyKind::Payload), body(3)), (key(1, BodyKind::Result), body(4))]);
        let wanted = [key(1, BodyKind::Result), key(1, BodyKind::Payload), key(2, BodyKind::Payload)];
        assert_eq!(fresh.take(&wanted), [None, Some(body(3)), None]);
        assert_eq!(fresh.take(&wanted), [None, None, None]);
        assert_eq!(fresh.shelf.lock().map(|shelf| (shelf.bytes, shelf.by_age.len())).ok(), Some((0, 0)));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_go_first() {
        let fresh = FreshPayloads::default();
        for n in 0..40 {
            fresh.keep(&[(key(n, BodyKind::Payload), body(1 << 20))]);
        }
        let kept = fresh.shelf.lock().map(|shelf| (shelf.bytes, shelf.by_task.len())).ok();
        assert!(kept.is_some_and(|(bytes, entries)| bytes <= ROOM && entries == 15), "{kept:?}");
        let found = fresh.take(&[key(0, BodyKind::Payload), key(39, BodyKind::Payload)]);
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    }
}
