//! Keys of the derived rows, and how a row longer than one value is cut.
//!
//! | keyspace | key | value |
//! | --- | --- | --- |
//! | `done` | task 16 │ 0 │ part u16 | a finished task's row |
//! | `done` | task 16 │ 1 │ seq u64 | empty: a later event of it |
//! | `by` | 'n' │ namespace │ 0 │ task 16 | empty: newest-first listing |
//! | `by` | 's' │ namespace │ 0 │ session │ 0 │ task 16 | empty |
//! | `by` | 'a' │ namespace │ 0 │ agent │ 0 │ task 16 | empty |
//! | `by` | 'b' │ namespace │ 0 │ batch 16 │ task 16 | empty |
//! | `body` | 0 │ task 16 │ kind u8 │ attempt u32 │ part u16 | salt 16 │ crc32 u32 │ bytes |
//! | `body` | 1 │ digest 32 │ part u16 | the same |
//! | `keys` | namespace │ 0 │ key │ part u16 | a binding's row |
//! | `rows` | 'b' │ batch 16 │ part u16 | a settled batch's row |
//! | `rows` | 'c' │ callback 16 │ part u16 | a settled callback's row |
//! | `rows` | 'n' │ namespace │ 0 │ callback 16 | empty: listing of those |
//! | `rows` | 's' │ namespace │ 0 │ session │ part u16 | the newest success of a session |
//! | `rows` | 'p' │ replay 16 │ part u16 | an ended plan's row |
//! | `rows` | 'q' │ namespace │ 0 │ replay 16 | empty: listing of those |
//! | `rows` | 'r' │ name | a register's value |
//! | `rows` | 'm' │ name | the store's own facts, such as the format version |
//! | `rows` | 'l' │ key of a body | seq u64: this body is gone, and its loss was accepted there |
//!
//! Text ids never hold a zero byte, so the zero after one ends it. A value in parts begins with its whole length as
//! u32, so parts left over from a longer value before are never read and need no deletion.

use super::chunk::MAX_VALUE;
use super::codec::{CodecError, array, be_u32, crc};
use super::{Body, BodyKey, BodyKind, FinishedFilter};
use crate::ledger::ids::{AgentId, BatchId, CallbackId, Namespace, ReachId, ReplayId, Seq, SessionId};
use crate::ledger::machine::task::Task;

const LENGTH_LEN: usize = 4;
const SALT_LEN: usize = 16;
/// The longest body that is read: a payload of 1 MiB and what JSON may add to it, with room.
pub(super) const MAX_BODY: usize = 64 * 1024 * 1024;

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(parts.iter().map(|part| part.len()).sum::<usize>() + 2);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

/// `done`: the final row.
pub(super) fn done(task: ReachId) -> Vec<u8> {
    joined(&[&task.0, &[0]])
}

/// `done`: where later events of a task begin.
pub(super) fn after_prefix(task: ReachId) -> Vec<u8> {
    joined(&[&task.0, &[1]])
}

/// `done`: one later event.
pub(super) fn after(task: ReachId, seq: Seq) -> Vec<u8> {
    joined(&[&task.0, &[1], &seq.0.to_be_bytes()])
}

/// `keys`: a binding.
pub(super) fn key(namespace: &Namespace, key: &str) -> Vec<u8> {
    joined(&[namespace.as_str().as_bytes(), &[0], key.as_bytes()])
}

/// `rows`: a batch.
pub(super) fn batch(batch: BatchId) -> Vec<u8> {
    joined(&[b"b", &batch.0])
}

/// `rows`: a replay plan.
pub(super) fn replay(replay: ReplayId) -> Vec<u8> {
    joined(&[b"p", &replay.0])
}

/// `rows`: where the plans of a namespace begin.
pub(super) fn replays_of(namespace: &Namespace) -> Vec<u8> {
    joined(&[b"q", namespace.as_str().as_bytes(), &[0]])
}

/// `rows`: a callback.
pub(super) fn callback(callback: CallbackId) -> Vec<u8> {
    joined(&[b"c", &callback.0])
}

/// `rows`: where the callbacks of a namespace begin.
pub(super) fn callbacks_of(namespace: &Namespace) -> Vec<u8> {
    joined(&[b"n", namespace.as_str().as_bytes(), &[0]])
}

/// `rows`: the newest success of a session.
pub(super) fn success(namespace: &Namespace, session: &SessionId) -> Vec<u8> {
    joined(&[b"s", namespace.as_str().as_bytes(), &[0], session.as_str().as_bytes()])
}

/// `rows`: a register.
pub(super) fn register(name: &str) -> Vec<u8> {
    joined(&[b"r", name.as_bytes()])
}

/// `rows`: a fact of the store's own.
pub(super) fn meta(name: &str) -> Vec<u8> {
    joined(&[b"m", name.as_bytes()])
}

/// `rows`: the mark of a body whose loss was accepted.
pub(super) fn given_up(key: &BodyKey) -> Vec<u8> {
    joined(&[b"l", &body(key)])
}

/// `body`: a body.
pub(super) fn body(key: &BodyKey) -> Vec<u8> {
    match key {
        BodyKey::Task { task, kind, attempt } => {
            let kind = match kind {
                BodyKind::Payload => 0,
                BodyKind::Result => 1,
                BodyKind::Error => 2,
                BodyKind::Progress => 3,
                BodyKind::Reason => 4,
            };
            joined(&[&[0], &task.0, &[kind], &attempt.to_be_bytes()])
        }
        BodyKey::Named(digest) => joined(&[&[1], &digest.0]),
    }
}

fn by_session(namespace: &Namespace, session: &SessionId) -> Vec<u8> {
    joined(&[b"s", namespace.as_str().as_bytes(), &[0], session.as_str().as_bytes(), &[0]])
}

fn by_agent(namespace: &Namespace, agent: &AgentId) -> Vec<u8> {
    joined(&[b"a", namespace.as_str().as_bytes(), &[0], agent.as_str().as_bytes(), &[0]])
}

fn by_batch(namespace: &Namespace, batch: BatchId) -> Vec<u8> {
    joined(&[b"b", namespace.as_str().as_bytes(), &[0], &batch.0])
}

fn by_namespace(namespace: &Namespace) -> Vec<u8> {
    joined(&[b"n", namespace.as_str().as_bytes(), &[0]])
}

/// `by`: where the narrowest index of a filter begins; task ids follow.
pub(super) fn index_for(namespace: &Namespace, filter: &FinishedFilter) -> Vec<u8> {
    match filter {
        FinishedFilter { batch: Some(batch), .. } => by_batch(namespace, *batch),
        FinishedFilter { session: Some(session), .. } => by_session(namespace, session),
        FinishedFilter { agent: Some(agent), .. } => by_agent(namespace, agent),
        FinishedFilter { batch: None, session: None, agent: None } => by_namespace(namespace),
    }
}

/// `by`: every index row of a finished task.
pub(super) fn indexes(task: &Task) -> impl Iterator<Item = Vec<u8>> {
    let namespace = &task.namespace;
    let id = task.id();
    [
        Some(by_namespace(namespace)),
        task.spec.session.as_ref().map(|session| by_session(namespace, session)),
        task.agent.as_ref().map(|agent| by_agent(namespace, agent)),
        task.spec.batch.map(|(batch, _)| by_batch(namespace, batch)),
    ]
    .into_iter()
    .flatten()
    .map(move |mut key| {
        key.extend_from_slice(&id.0);
        key
    })
}

/// The 16 bytes at the end of an index key.
pub(super) fn id_at_end(key: &[u8]) -> Result<[u8; 16], CodecError> {
    array(key, key.len().checked_sub(16).ok_or(CodecError::Truncated)?)
}

/// The key of a part.
pub(super) fn part_key(key: &[u8], part: u16) -> Vec<u8> {
    joined(&[key, &part.to_be_bytes()])
}

/// Cuts a value into parts and gives each with its key to `put`.
///
/// # Errors
/// [`CodecError::TooLong`] when it needs more parts than there are numbers.
pub(super) fn cut(key: &[u8], value: &[&[u8]], mut put: impl FnMut(Vec<u8>, &[u8])) -> Result<(), CodecError> {
    let len = value.iter().map(|piece| piece.len()).sum::<usize>();
    let too_long = CodecError::TooLong { what: "a row or body", len, max: MAX_BODY };
    if len > MAX_BODY {
        return Err(too_long);
    }
    let length = u32::try_from(len).map_err(|_| too_long)?.to_be_bytes();
    let mut part = Vec::with_capacity((len + LENGTH_LEN).min(MAX_VALUE));
    part.extend_from_slice(&length);
    let mut number = 0_u16;
    for piece in value {
        let mut rest = *piece;
        while !rest.is_empty() {
            if part.len() == MAX_VALUE {
                put(part_key(key, number), &part);
                number = number.saturating_add(1);
                part.clear();
            }
            let (fits, after) = rest.split_at(rest.len().min(MAX_VALUE - part.len()));
            part.extend_from_slice(fits);
            rest = after;
        }
    }
    put(part_key(key, number), &part);
    Ok(())
}

/// Joins the parts that [`cut`] made; `get` reads one by its key. `None` when the first is not there.
///
/// # Errors
/// [`CodecError::Truncated`] when a part is missing or short, or what `get` says.
pub(super) fn join<E: From<CodecError>, V: AsRef<[u8]>>(
    key: &[u8],
    mut get: impl FnMut(&[u8]) -> Result<Option<V>, E>,
) -> Result<Option<Vec<u8>>, E> {
    let Some(first) = get(&part_key(key, 0))? else { return Ok(None) };
    let first = first.as_ref();
    let len = usize::try_from(be_u32(first, 0)?).unwrap_or(usize::MAX);
    if len > MAX_BODY {
        return Err(CodecError::TooLong { what: "a row or body", len, max: MAX_BODY }.into());
    }
    let mut value = Vec::with_capacity(len);
    value.extend_from_slice(first.get(LENGTH_LEN..).unwrap_or_default());
    let mut number = 0_u16;
    while value.len() < len {
        number = number.checked_add(1).ok_or(CodecError::Truncated)?;
        let part = get(&part_key(key, number))?.ok_or(CodecError::Truncated)?;
        if part.as_ref().is_empty() {
            return Err(CodecError::Truncated.into());
        }
        value.extend_from_slice(part.as_ref());
    }
    match value.len() - len {
        0 => Ok(Some(value)),
        more => Err(CodecError::Trailing(more).into()),
    }
}

/// What is stored of a body before its bytes.
pub(super) fn body_head(body: &Body) -> [u8; SALT_LEN + 4] {
    let mut head = [0; SALT_LEN + 4];
    let (salt, sum) = head.split_at_mut(SALT_LEN);
    salt.copy_from_slice(&body.salt);
    sum.copy_from_slice(&crc(&[&body.salt, &body.bytes]).to_be_bytes());
    head
}

/// Reads a body back, checksum first.
///
/// # Errors
/// [`CodecError`] when it is damaged.
pub(super) fn parse_body(value: &[u8]) -> Result<Body, CodecError> {
    let (head, bytes) = value.split_at_checked(SALT_LEN + 4).ok_or(CodecError::Truncated)?;
    let salt = array(head, 0)?;
    if be_u32(head, SALT_LEN)? != crc(&[&salt, bytes]) {
        return Err(CodecError::Checksum("a body"));
    }
    Ok(Body { salt, bytes: bytes.into() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_value_of_any_length_joins_to_the_same_bytes_from_parts_of_at_most_2_kib() {
        for len in [0, 1, 2_043, 2_044, 2_045, 4_091, 4_092, 4_093, 9_999] {
            let value: Vec<u8> = (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let mut parts = BTreeMap::new();
            cut(b"k", &[&value[..len / 3], &value[len / 3..]], |key, part| {
                assert!(part.len() <= MAX_VALUE);
                parts.insert(key, part.to_vec());
            })
            .unwrap();
            let read = |key: &[u8]| Ok::<_, CodecError>(parts.get(key).cloned());
            assert_eq!(join(b"k", read).unwrap(), Some(value));
            if parts.len() > 1 {
                let missing =
                    |key: &[u8]| Ok::<_, CodecError>(parts.get(key).filter(|_| !key.ends_with(&[1])).cloned());
                assert_eq!(join(b"k", missing), Err(CodecError::Truncated));
            }
        }
    }
}
