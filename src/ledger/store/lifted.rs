//! Event bodies of older versions, lifted to today's shape as they are read.
//!
//! Each shape stands here as it was written, for ever; `tests/golden/events` holds bytes of every one of them.

use std::sync::Arc;

use serde::Deserialize;

use super::codec::{CodecError, read as decode};
use crate::ledger::ids::{AgentId, AttemptNo, Incarnation, LeaseDigest, ReachId, ReplayId, Seq, TokenId};
use crate::ledger::machine::event::{
    EventBody, EventKind, Exclusion, Explanation, ReplayPlanned, ReplayResumed, ScoredCandidate, TaskDispatched,
    TaskRedriven, TaskSubmitted,
};
use crate::ledger::machine::replay::MayHaveRun;
use crate::ledger::machine::task::spec::{BodyRef, Submission, Text};
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::time::Timestamp;

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

/// Version 1 knew no patch of payloads and no key.
#[derive(Deserialize)]
struct ReplayPlannedV1 {
    replay: ReplayId,
    select: Text,
    reason: Text,
    rate: u32,
    may_have_run: MayHaveRun,
    total: u32,
    list: BodyRef,
    position: Seq,
}

impl From<ReplayPlannedV1> for EventBody {
    fn from(old: ReplayPlannedV1) -> Self {
        let ReplayPlannedV1 { replay, select, reason, rate, may_have_run, total, list, position } = old;
        let (patch, idempotency) = (None, None);
        ReplayPlanned { replay, select, reason, rate, may_have_run, total, list, position, patch, idempotency }.into()
    }
}

/// Version 1 knew no submission that names no capability.
#[derive(Deserialize)]
struct TaskSubmittedV1 {
    submission: Arc<Submission>,
    deadline: Timestamp,
}

impl From<TaskSubmittedV1> for EventBody {
    fn from(old: TaskSubmittedV1) -> Self {
        let TaskSubmittedV1 { submission, deadline } = old;
        TaskSubmitted { submission, deadline, routed: None }.into()
    }
}

/// Version 1 took no reason.
#[derive(Deserialize)]
struct ReplayResumedV1 {
    replay: ReplayId,
}

impl From<ReplayResumedV1> for EventBody {
    fn from(ReplayResumedV1 { replay }: ReplayResumedV1) -> Self {
        ReplayResumed { replay, reason: None }.into()
    }
}

/// Version 1 knew no routing rules.
#[derive(Deserialize)]
struct ExplanationV1 {
    strategy: Text,
    score: Vec<(Text, i64)>,
    runners_up: Vec<ScoredCandidate>,
    exclusions: Vec<Exclusion>,
}

/// Version 1 had an explanation of that shape.
#[derive(Deserialize)]
struct TaskDispatchedV1 {
    task: ReachId,
    attempt: AttemptNo,
    agent: AgentId,
    incarnation: Incarnation,
    lease: LeaseDigest,
    delivery: Delivery,
    reach_deadline: Timestamp,
    explanation: ExplanationV1,
}

impl From<TaskDispatchedV1> for EventBody {
    fn from(old: TaskDispatchedV1) -> Self {
        let TaskDispatchedV1 { task, attempt, agent, incarnation, lease, delivery, reach_deadline, explanation } = old;
        let ExplanationV1 { strategy, score, runners_up, exclusions } = explanation;
        let explanation = Explanation { strategy, score, runners_up, exclusions, rules: None };
        TaskDispatched { task, attempt, agent, incarnation, lease, delivery, reach_deadline, explanation }.into()
    }
}

/// The body of a kind as version 1 wrote it; only the kinds that have another version are asked for.
#[expect(clippy::wildcard_enum_match_arm, reason = "the kinds of one version are the many")]
pub(super) fn read(kind: EventKind, bytes: &[u8]) -> Result<(EventBody, &[u8]), CodecError> {
    match kind {
        EventKind::TaskRedriven => decode::<TaskRedrivenV1>(bytes).map(|(body, rest)| (body.into(), rest)),
        EventKind::ReplayPlanned => decode::<ReplayPlannedV1>(bytes).map(|(body, rest)| (body.into(), rest)),
        EventKind::TaskDispatched => decode::<TaskDispatchedV1>(bytes).map(|(body, rest)| (body.into(), rest)),
        EventKind::TaskSubmitted => decode::<TaskSubmittedV1>(bytes).map(|(body, rest)| (body.into(), rest)),
        EventKind::ReplayResumed => decode::<ReplayResumedV1>(bytes).map(|(body, rest)| (body.into(), rest)),
        _ => Err(CodecError::Kind(kind.code())),
    }
}
