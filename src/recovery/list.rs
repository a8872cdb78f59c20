//! The list of a plan's items as bytes: the body that `replay-planned` names (semantics 26).
//!
//! ```text
//! version u8 │ count u32 │ (task 16 │ action u8 │ group u32) …        numbers big-endian
//! and of version 3 behind the items:
//! length u32 │ merge patch │ count u16 │ (count u16 │ accepting 32 … │ count u16 │ refusing 32 …) … │ verdicts u16 …
//! ```
//!
//! Version 2 ends with the items. Version 3 says what becomes of payloads: the patch of all that are made anew, if it has
//! a length, and of each item which of the sets of verdicts before are its payload's, from 1; 0 for none.
//!
//! The group is the first four bytes of the SHA-256 of its session's name, 0 for none: items of one session go one at a
//! time and in the list's order, and every other way back waits for the same line (R4, [`crate::recovery::sessions`]).
//! Two sessions that share a number wait for each other, which is slower and never wrong. Version 1 numbered the
//! sessions within its plan; it can be read, and no longer be run.

use std::sync::Arc;

use crate::ledger::ids::{Digest, ReachId, SessionId};
use crate::ledger::machine::replay::ItemAction;
use crate::ledger::machine::replay::order::Amendment;
use crate::ledger::machine::task::spec::SchemaVerdicts;

const VERSION: u8 = 2;
const AMENDING: u8 = 3;
const OLD_VERSION: u8 = 1;
const HEAD: usize = 5;
const ITEM: usize = 21;

/// One item of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanItem {
    /// Which task.
    pub task: ReachId,
    /// What is to be done with it.
    pub action: ItemAction,
    /// Its session's number, from [`group_of`]; 0 for a task without one.
    pub group: u32,
}

/// The number of a session in every list and line of its namespace; 0 for none.
#[must_use]
pub fn group_of(session: Option<&SessionId>) -> u32 {
    let Some(session) = session else { return 0 };
    let Digest([a, b, c, d, ..]) = Digest::of(&[session.as_str().as_bytes()]);
    u32::from_be_bytes([a, b, c, d]).max(1)
}

/// What a list says of payloads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amendments {
    /// The merge patch of all that are made anew.
    pub patch: Option<Arc<[u8]>>,
    /// Verdicts that items share.
    pub verdicts: Vec<Arc<SchemaVerdicts>>,
    /// For each item the place of its verdicts among them, from 1; 0 for none.
    pub of_items: Vec<u16>,
}

impl Amendments {
    /// What is said of the item at a place.
    #[must_use]
    pub fn of(&self, index: u32) -> Option<Amendment> {
        let place = usize::try_from(index).ok().and_then(|index| self.of_items.get(index)).copied().unwrap_or(0);
        let verdicts = usize::from(place).checked_sub(1).and_then(|place| self.verdicts.get(place)).cloned();
        let is_said = self.patch.is_some() || verdicts.is_some();
        is_said.then(|| Amendment { patch: self.patch.clone(), schemas: verdicts.unwrap_or_default() })
    }
}

/// A list as it is kept while its plan runs: its bytes as they were read, and the items of sessions by session.
#[derive(Debug)]
pub(super) struct List {
    bytes: Arc<[u8]>,
    count: u32,
    /// Items of sessions, by session and place.
    of_sessions: Box<[u32]>,
    amendments: Amendments,
}

impl List {
    /// The list of those bytes.
    ///
    /// # Errors
    /// [`NoList`] when they are none, or of a version that can no longer be run.
    pub(super) fn of(bytes: Arc<[u8]>) -> Result<Self, NoList> {
        if !is_run(&bytes) {
            return Err(NoList);
        }
        let count = decode_each(&bytes, |_, _| {})?;
        let amendments = amendments(&bytes)?;
        let mut list = Self { bytes, count, of_sessions: Box::default(), amendments };
        let mut of_sessions: Vec<u32> = (0..count).filter(|index| list.group(*index) > 0).collect();
        of_sessions.sort_unstable_by_key(|index| (list.group(*index), *index));
        list.of_sessions = of_sessions.into();
        Ok(list)
    }

    /// Its items.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// The item at a place.
    pub(super) fn item(&self, index: u32) -> Option<PlanItem> {
        if index >= self.count {
            return None;
        }
        let start = HEAD + ITEM * usize::try_from(index).ok()?;
        item(self.bytes.get(start..start + ITEM)?).ok()
    }

    /// What it says of the payload of the item at a place.
    pub(super) fn amendment(&self, index: u32) -> Option<Amendment> {
        self.amendments.of(index)
    }

    fn group(&self, index: u32) -> u32 {
        self.item(index).map_or(0, |item| item.group)
    }

    /// Items of the same session behind this one, in order.
    pub(super) fn later_of_session(&self, index: u32, group: u32) -> impl Iterator<Item = u32> + '_ {
        let from = self.of_sessions.partition_point(|other| (self.group(*other), *other) <= (group, index));
        let rest = self.of_sessions.get(from..).unwrap_or_default().iter().copied();
        rest.take_while(move |other| self.group(*other) == group)
    }
}

/// A list that is not one: damaged, or of a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of a replay plan is damaged or of a newer version")]
pub struct NoList;

/// The list as bytes.
#[must_use]
pub fn encode(items: &[PlanItem]) -> Vec<u8> {
    encode_as(VERSION, items)
}

/// The list with what it says of payloads; as [`encode`] makes it where it says nothing.
#[must_use]
pub fn encode_amending(items: &[PlanItem], amendments: &Amendments) -> Vec<u8> {
    if *amendments == Amendments::default() {
        return encode(items);
    }
    let mut bytes = encode_as(AMENDING, items);
    let patch = amendments.patch.as_deref().unwrap_or_default();
    bytes.extend_from_slice(&u32::try_from(patch.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(patch);
    let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    bytes.extend_from_slice(&short(amendments.verdicts.len()));
    for verdicts in &amendments.verdicts {
        for schemas in [&verdicts.accepted, &verdicts.refused] {
            bytes.extend_from_slice(&short(schemas.len()));
            schemas.iter().for_each(|Digest(digest)| bytes.extend_from_slice(digest));
        }
    }
    for index in 0..items.len() {
        bytes.extend_from_slice(&amendments.of_items.get(index).copied().unwrap_or(0).to_be_bytes());
    }
    bytes
}

/// Does a list of so many items and bytes say anything of payloads?
#[must_use]
pub const fn is_amending(items: usize, bytes: usize) -> bool {
    bytes > HEAD + items * ITEM
}

fn encode_as(version: u8, items: &[PlanItem]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + items.len() * ITEM);
    bytes.push(version);
    bytes.extend_from_slice(&u32::try_from(items.len()).unwrap_or(u32::MAX).to_be_bytes());
    for item in items {
        bytes.extend_from_slice(&item.task.0);
        bytes.push(match item.action {
            ItemAction::Replay => 0,
            ItemAction::Redrive => 1,
        });
        bytes.extend_from_slice(&item.group.to_be_bytes());
    }
    bytes
}

/// The list of those bytes.
///
/// # Errors
/// [`NoList`] when they are none, or too many or too few.
pub fn decode(bytes: &[u8]) -> Result<Vec<PlanItem>, NoList> {
    let mut items = Vec::new();
    decode_each(bytes, |_, item| items.push(item))?;
    Ok(items)
}

/// Is it a list of so many items that can be run?
#[must_use]
pub fn is_list_of(bytes: &[u8], total: usize) -> bool {
    is_run(bytes) && decode_each(bytes, |_, _| {}).map(usize::try_from) == Ok(Ok(total)) && amendments(bytes).is_ok()
}

fn is_run(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(&(VERSION | AMENDING)))
}

/// What the list of those bytes says of payloads.
///
/// # Errors
/// [`NoList`] when they are none, or too many or too few.
pub fn amendments(bytes: &[u8]) -> Result<Amendments, NoList> {
    let (_, mut rest) = apart(bytes)?;
    if bytes.first() != Some(&AMENDING) {
        return Ok(Amendments::default());
    }
    let mut take = |len: usize| {
        let (taken, left) = rest.split_at_checked(len).ok_or(NoList)?;
        rest = left;
        Ok::<&[u8], NoList>(taken)
    };
    let short = |bytes: &[u8]| bytes.first_chunk().map(|bytes| usize::from(u16::from_be_bytes(*bytes))).ok_or(NoList);
    let len = take(4)?.first_chunk().map(|len| u32::from_be_bytes(*len)).ok_or(NoList)?;
    let patch = take(usize::try_from(len).map_err(|_| NoList)?)?;
    let mut verdicts = Vec::new();
    for _ in 0..short(take(2)?)? {
        let mut schemas = || -> Result<Vec<Digest>, NoList> {
            let count = short(take(2)?)?;
            let digests = take(count * 32)?.chunks_exact(32);
            digests.map(|digest| digest.first_chunk().copied().map(Digest).ok_or(NoList)).collect()
        };
        verdicts.push(Arc::new(SchemaVerdicts { accepted: schemas()?, refused: schemas()? }));
    }
    let items = rest.chunks_exact(2);
    let whole = items.remainder().is_empty() && items.len() * ITEM == apart(bytes)?.0.len();
    let of_items = items.filter_map(|place| place.first_chunk()).map(|place| u16::from_be_bytes(*place)).collect();
    let patch = (!patch.is_empty()).then(|| Arc::from(patch));
    if whole { Ok(Amendments { patch, verdicts, of_items }) } else { Err(NoList) }
}

/// The items, and what stands behind them.
fn apart(bytes: &[u8]) -> Result<(&[u8], &[u8]), NoList> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(NoList)?;
    let [version, count @ ..] = head;
    let count = usize::try_from(u32::from_be_bytes(*count)).map_err(|_| NoList)?;
    let (items, rest) = count.checked_mul(ITEM).and_then(|len| rest.split_at_checked(len)).ok_or(NoList)?;
    match *version {
        AMENDING => Ok((items, rest)),
        OLD_VERSION | VERSION if rest.is_empty() => Ok((items, rest)),
        _ => Err(NoList),
    }
}

/// Every item with its place; answers how many there are.
pub(super) fn decode_each(bytes: &[u8], mut each: impl FnMut(u32, PlanItem)) -> Result<u32, NoList> {
    let (items, _) = apart(bytes)?;
    let count = u32::try_from(items.len() / ITEM).map_err(|_| NoList)?;
    for (index, bytes) in (0_u32..).zip(items.chunks_exact(ITEM)) {
        each(index, item(bytes)?);
    }
    Ok(count)
}

fn item(bytes: &[u8]) -> Result<PlanItem, NoList> {
    let (task, rest) = bytes.split_first_chunk::<16>().ok_or(NoList)?;
    let (action, group) = rest.split_first().ok_or(NoList)?;
    let action = match action {
        0 => ItemAction::Replay,
        1 => ItemAction::Redrive,
        _ => return Err(NoList),
    };
    let group = group.first_chunk().map(|group| u32::from_be_bytes(*group)).ok_or(NoList)?;
    Ok(PlanItem { task: ReachId(*task), action, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_and_a_damaged_one_does_not() {
        let items: Vec<PlanItem> = (0..5_u8)
            .map(|n| PlanItem {
                task: ReachId([n; 16]),
                action: if n % 2 == 0 { ItemAction::Replay } else { ItemAction::Redrive },
                group: u32::from(n) * 70_000,
            })
            .collect();
        let bytes = encode(&items);
        assert_eq!(decode(&bytes), Ok(items));
        assert_eq!(decode(&encode(&[])), Ok(Vec::new()));
        for at in [0, 4, HEAD + 16] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert_eq!(decode(&bad), Err(NoList), "byte {at}");
        }
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
        let mut old = bytes.clone();
        old[0] = OLD_VERSION;
        assert_eq!(decode(&old).map(|items| items.len()), Ok(5), "an old one can be shown");
        assert!(is_list_of(&bytes, 5) && !is_list_of(&bytes, 4) && !is_list_of(&old, 5), "and not be run");
        assert_eq!(List::of(old.into()).err(), Some(NoList));
    }

    #[test]
    fn what_a_list_says_of_payloads_reads_back_and_nothing_of_a_damaged_one() {
        let item = |n: u8| PlanItem { task: ReachId([n; 16]), action: ItemAction::Redrive, group: 0 };
        let items: Vec<PlanItem> = (0..3).map(item).collect();
        let digest = |n: u8| Digest([n; 32]);
        let one = SchemaVerdicts { accepted: vec![digest(1), digest(2)], refused: Vec::new() };
        let other = SchemaVerdicts { accepted: Vec::new(), refused: vec![digest(3)] };
        let said = Amendments {
            patch: Some(Arc::from(&br#"{"a":1}"#[..])),
            verdicts: vec![Arc::new(one.clone()), Arc::new(other)],
            of_items: vec![1, 0, 2],
        };
        let bytes = encode_amending(&items, &said);
        assert_eq!((decode(&bytes), amendments(&bytes)), (Ok(items.clone()), Ok(said.clone())));
        assert!(is_list_of(&bytes, 3) && is_amending(3, bytes.len()));
        let list = List::of(bytes.clone().into()).unwrap();
        assert_eq!((list.item(2), list.item(3)), (Some(items[2]), None));
        assert_eq!(list.amendment(0).map(|said| said.schemas), Some(Arc::new(one)));
        assert_eq!(list.amendment(1).map(|said| (said.patch, said.schemas)), Some((said.patch, Arc::default())));
        assert!((0..bytes.len()).all(|end| amendments(&bytes[..end]).is_err()));
        let plain = encode_amending(&items, &Amendments::default());
        assert_eq!((&plain, is_amending(3, plain.len())), (&encode(&items), false));
        assert_eq!(
            (amendments(&plain), List::of(plain.into()).unwrap().amendment(0)),
            (Ok(Amendments::default()), None)
        );
    }

    #[test]
    fn r4_a_running_list_finds_the_later_items_of_a_session_and_every_item_by_its_place() {
        let groups = [7, 0, 9, 7, 0, 7, 9];
        let items: Vec<PlanItem> = (0_u8..)
            .zip(groups)
            .map(|(n, group)| PlanItem { task: ReachId([n; 16]), action: ItemAction::Redrive, group })
            .collect();
        let list = List::of(encode(&items).into()).unwrap();
        assert_eq!((0..list.count()).filter_map(|index| list.item(index)).collect::<Vec<_>>(), items);
        assert_eq!(list.item(7), None);
        assert_eq!(list.later_of_session(0, 7).collect::<Vec<_>>(), [3, 5]);
        assert_eq!(list.later_of_session(2, 9).collect::<Vec<_>>(), [6]);
        assert_eq!(list.later_of_session(5, 7).count(), 0);
    }

    #[test]
    fn a_session_has_the_same_number_everywhere_and_a_task_without_one_has_none() {
        let session = |name: &str| SessionId::new(name).unwrap();
        assert_eq!(group_of(None), 0);
        assert_eq!(group_of(Some(&session("s"))), group_of(Some(&session("s"))));
        assert_ne!(group_of(Some(&session("s"))), group_of(Some(&session("t"))));
    }
}
