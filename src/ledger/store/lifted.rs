//! Event bodies of older versions, lifted to today's shape as they are read.
//!
//! Each shape stands here as it was written, for ever; `tests/golden/events` holds bytes of every one of them.

use serde::Deserialize;

use super::codec::{CodecError, read as decode};
use crate::ledger::ids::{ReachId, ReplayId, TokenId};
use crate::ledger::machine::event::{EventBody, EventKind, TaskRedriven};
use crate::ledger::machine::task::spec::Text;

/// Version 1 did not say where a chain of redrives began.
#[derive(Deserialize)]
struct TaskRedrivenV1 {
    task: ReachId,
    successor: ReachId,
    submitter: Option<TokenId>,
    replay: Option<ReplayId>,
    reason: Option<Text>,
}

impl From<TaskRedrivenV1> for EventBody {
    fn from(old: TaskRedrivenV1) -> Self {
        let TaskRedrivenV1 { task, successor, submitter, replay, reason } = old;
        TaskRedriven { task, successor, submitter, replay, reason, origin: None }.into()
    }
}

/// The body of a kind as version 1 wrote it; the only kind that has another version is asked for.
pub(super) fn read(kind: EventKind, bytes: &[u8]) -> Result<(EventBody, &[u8]), CodecError> {
    if kind != EventKind::TaskRedriven {
        return Err(CodecError::Kind(kind.code()));
    }
    decode::<TaskRedrivenV1>(bytes).map(|(body, rest)| (body.into(), rest))
}
