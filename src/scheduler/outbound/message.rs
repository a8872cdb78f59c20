//! A callback's body: a pure rendering of one ledger event, so that every try of one callback sends the same bytes
//! (C1). It is made from the event at the callback's seq and from what never changes of its task; where the task
//! stands now does not show.

use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::cut;
use super::wire::Labels;
use crate::ledger::ids::{AttemptNo, ReachId};
use crate::ledger::machine::batch::{Batch, BatchPhase};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::task::spec::{BodyRef, Text};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Failure, Task};
use crate::ledger::store::{BodyKey, BodyKind};

/// A result of at most 16 KiB is told inline, a longer one by its URL.
pub const MAX_INLINE: u32 = 16 * 1024;

/// What an event tells a caller about its task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The state that the event led to.
    pub state: StatusKind,
    /// The attempt that it names; `None` if it names none.
    pub attempt: Option<AttemptNo>,
    /// The result, if it tells of one.
    pub result: Option<BodyRef>,
    /// The failure, if it tells of one.
    pub failure: Option<Failure>,
    /// Stage and percentage, if it tells of them.
    pub stage: Option<(Option<Text>, Option<u8>)>,
}

impl Told {
    /// Where the inline result lies, if the event tells of a small one.
    #[must_use]
    pub fn result_key(&self, task: ReachId) -> Option<BodyKey> {
        let attempt = self.attempt?.0;
        self.result.as_ref().filter(|body| body.len <= MAX_INLINE)?;
        Some(BodyKey::Task { task, kind: BodyKind::Result, attempt })
    }

    /// Where the failure's message lies.
    #[must_use]
    pub fn message_key(&self, task: ReachId) -> Option<BodyKey> {
        let attempt = self.attempt?.0;
        self.failure.as_ref()?.message.as_ref()?;
        Some(BodyKey::Task { task, kind: BodyKind::Error, attempt })
    }
}

/// What an event tells; `None` for kinds that never call back.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the kinds that call back; a new kind is none of them")]
pub fn told(body: &EventBody) -> Option<Told> {
    let plain = |state, attempt| Told { state, attempt, result: None, failure: None, stage: None };
    Some(match body {
        EventBody::TaskSucceeded(e) => {
            Told { result: e.result.clone(), ..plain(StatusKind::Succeeded, Some(e.attempt)) }
        }
        EventBody::TaskFailed(e) => {
            Told { failure: Some(e.failure.clone()), ..plain(StatusKind::Failed, Some(e.attempt)) }
        }
        EventBody::TaskDeadLettered(e) => {
            Told { failure: Some(e.failure.clone()), ..plain(StatusKind::DeadLetter, Some(AttemptNo(e.attempts))) }
        }
        EventBody::TaskExpired(_) => plain(StatusKind::Expired, None),
        EventBody::TaskCancelled(_) => plain(StatusKind::Cancelled, None),
        EventBody::TaskSlow(e) => plain(StatusKind::SlowReach, Some(e.attempt)),
        EventBody::TaskProgressed(e) => {
            Told { stage: Some((e.stage.clone(), e.percent)), ..plain(StatusKind::Processing, Some(e.attempt)) }
        }
        EventBody::TaskOrphaned(e) => plain(StatusKind::Orphaned, Some(e.attempt)),
        EventBody::TaskRetryScheduled(_) => plain(StatusKind::Retrying, None),
        EventBody::TaskOverdue(_) => plain(StatusKind::Queued, None),
        _ => return None,
    })
}

/// The attempt that an earlier event of the same task names, for events that name none themselves.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds name an attempt that was current then")]
pub fn attempt_named(body: &EventBody) -> Option<AttemptNo> {
    match body {
        EventBody::TaskSubmitted(_) => Some(AttemptNo(0)),
        EventBody::TaskDispatched(e) => Some(e.attempt),
        EventBody::TaskAcknowledged(e) => Some(e.attempt),
        EventBody::TaskAttemptFailed(e) => Some(e.attempt),
        EventBody::TaskSlow(e) => Some(e.attempt),
        EventBody::TaskProgressed(e) => Some(e.attempt),
        EventBody::TaskReclaimed(e) => Some(e.attempt),
        EventBody::TaskOrphaned(e) => Some(e.attempt),
        EventBody::TaskReplayed(e) => Some(e.attempt),
        EventBody::TaskReleased(e) => Some(e.attempt),
        _ => None,
    }
}

#[derive(Serialize)]
struct Message<T> {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    data: T,
}

#[derive(Serialize)]
struct TaskContent<'a> {
    reach_id: String,
    state: &'static str,
    attempt: Option<u32>,
    seq: u64,
    labels: Labels<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_url: Option<String>,
    failure: Option<FailureContent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<u8>,
}

#[derive(Serialize)]
struct FailureContent<'a> {
    class: &'static str,
    code: &'a str,
    message: Option<&'a str>,
}

#[derive(Serialize)]
struct BatchContent {
    batch_id: String,
    seq: u64,
    total: u32,
    refused: u32,
    by_state: std::collections::BTreeMap<&'static str, u32>,
}

/// The bodies that a message shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct MessageBodies<'a> {
    /// The inline result.
    pub result: Option<&'a [u8]>,
    /// The failure's message.
    pub message: Option<&'a [u8]>,
}

/// The message that tells `event` of `task`.
///
/// # Errors
/// When the stored result is not JSON: the ledger's fault.
pub fn task_message(
    event: &Event,
    told: &Told,
    task: &Task,
    bodies: MessageBodies<'_>,
) -> Result<Vec<u8>, serde_json::Error> {
    let id = task.id();
    let is_long = told.result.as_ref().is_some_and(|body| body.len > MAX_INLINE);
    let (stage, percent) = told.stage.as_ref().map_or((None, None), |(stage, percent)| (stage.as_deref(), *percent));
    let content = TaskContent {
        reach_id: id.to_string(),
        state: told.state.name(),
        attempt: told.attempt.map(|attempt| attempt.0),
        seq: event.seq.0,
        labels: Labels(&task.spec.labels),
        result: bodies.result.map(serde_json::from_slice).transpose()?,
        result_url: is_long.then(|| format!("/v1/tasks/{id}/result")),
        failure: told.failure.as_ref().map(|failure| FailureContent {
            class: failure.class.name(),
            code: &failure.code,
            message: bodies.message.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(cut),
        }),
        stage,
        percent,
    };
    write(event, content)
}

/// The message that tells that a batch has settled.
///
/// # Errors
/// Never in practice: every part is text or a number.
pub fn batch_message(event: &Event, batch: &Batch) -> Result<Vec<u8>, serde_json::Error> {
    let (total, refused) = match batch.phase {
        BatchPhase::Closed { total, refused } | BatchPhase::Settled { total, refused } => (total, refused),
        BatchPhase::Open => (batch.accepted, 0),
    };
    let content = BatchContent {
        batch_id: batch.id.to_string(),
        seq: event.seq.0,
        total,
        refused,
        by_state: batch.by_state.iter().map(|(state, count)| (state.name(), *count)).collect(),
    };
    write(event, content)
}

fn write(event: &Event, data: impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    // The kind with its first hyphen as a dot (semantics 35).
    let kind = event.body.kind().name().replacen('-', ".", 1);
    serde_json::to_vec(&Message { kind, timestamp: event.at.to_string(), data })
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
