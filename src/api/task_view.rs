//! A task as callers see it.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::{AttemptNo, ReachId};
use crate::ledger::machine::Kin;
use crate::ledger::machine::event::HeldWhy;
use crate::ledger::machine::task::spec::{BodyRef, OrphanPolicy, Text};
use crate::ledger::machine::task::status::{Status, StatusKind};
use crate::ledger::machine::task::{OutcomeKind, ReachOutcome, Task, WorkOutcome};
use crate::ledger::store::{Body, BodyKind};

use super::anew::Anew;
use super::render;

/// A result up to here is shown inside its task.
pub(super) const INLINE_RESULT: u32 = 16 << 10;

/// A task's state, attempt, agent, outcomes and deadlines.
#[derive(Debug, serde::Serialize, ToSchema)]
#[schema(as = Task)]
pub(super) struct TaskView {
    reach_id: String,
    state: &'static str,
    capability: String,
    qos: &'static str,
    attempt: u32,
    retries_used: u32,
    interruptions: u32,
    agent_id: Option<String>,
    /// How the hand-over ended: `delivered`, `refused`, `unreachable`, `unknown`.
    reach_outcome: Option<&'static str>,
    /// What the agent made of it: `succeeded`, `failed`.
    work_outcome: Option<&'static str>,
    #[schema(value_type = Option<Object>)]
    failure: Option<serde_json::Value>,
    submitted_at: String,
    ended_at: Option<String>,
    deadline: String,
    not_before: Option<String>,
    /// What the state waits for, with its time.
    #[schema(value_type = Option<Object>)]
    waits: Option<serde_json::Value>,
    session_id: Option<String>,
    batch_id: Option<String>,
    batch_index: Option<u32>,
    parent: Option<String>,
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    labels: LabelsView,
    #[schema(value_type = Option<Object>)]
    progress: Option<serde_json::Value>,
    #[schema(value_type = Option<Object>)]
    callback: Option<serde_json::Value>,
    /// The ended task that it was made of.
    redrive_of: Option<String>,
    /// How it was made of that one: `by` whom and why, by which plan, and whether its `payload` was `kept`, `patched` or
    /// `replaced`. In answers about this one task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<Object>)]
    redrive: Option<serde_json::Value>,
    /// The task that was made of this one.
    redriven_as: Option<String>,
    /// The result, if it is small; else read `result_url`.
    #[schema(value_type = serde_json::Value)]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_url: Option<String>,
}

/// Labels as an object, in the caller's order.
#[derive(Debug)]
pub(super) struct LabelsView(pub Vec<(Text, Text)>);

impl Serialize for LabelsView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(&**name, &**value)?;
        }
        map.end()
    }
}

/// What is read beside a task for its view.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Its result's bytes.
    pub result: Option<Body>,
    /// Its failure's message.
    pub message: Option<String>,
    /// Who looks after it while it is slow.
    pub owner: Option<Text>,
    /// What it was made of, and what was made of it.
    pub kin: Kin,
    /// Why it is an orphan that waits for a word.
    pub held: Option<HeldWhy>,
    /// How it was made anew.
    pub anew: Option<Anew>,
}

/// Reads what a task's view shows beside the task itself.
///
/// # Errors
/// [`Unavailable`] when the disk does not answer.
pub(super) async fn beside(ledger: &Ledger, task: &Task) -> Result<Beside, Unavailable> {
    let held = ledger.held(std::slice::from_ref(task)).await?.pop().flatten();
    let mut beside = Beside { kin: ledger.kin(task).await?, held, ..Beside::default() };
    if task.status.kind() == StatusKind::SlowReach {
        let key = (task.namespace.clone(), task.spec.capability.clone());
        beside.owner = ledger.published().capability_rules.get(&key).and_then(|rules| rules.owner.clone());
    }
    if beside.kin.redrive_of.is_some() {
        beside.anew = Anew::of(ledger, task).await?;
    }
    if let Some(named) = task.result.as_ref().filter(|named| named.len <= INLINE_RESULT) {
        beside.result = result_body(ledger, task, named).await?;
    }
    if let Some(named) = task.failure.as_ref().and_then(|failure| failure.message.as_ref()) {
        beside.message = message(ledger, task, named).await?;
    }
    Ok(beside)
}

/// The bytes of a task's result; `None` once they are erased.
///
/// # Errors
/// [`Unavailable`] when the disk does not answer.
pub(super) async fn result_body(ledger: &Ledger, task: &Task, named: &BodyRef) -> Result<Option<Body>, Unavailable> {
    let attempt = task.outcomes.iter().rev().find(|record| record.kind == OutcomeKind::Complete);
    let attempt = attempt.map_or(task.attempt, |record| record.attempt);
    let body = ledger.body(render::body_key(task.id(), BodyKind::Result, attempt.0)).await?;
    Ok(body.filter(|body| body.digest() == named.digest))
}

/// What was said of a task's failure; `None` once it is erased.
///
/// # Errors
/// [`Unavailable`] when the disk does not answer.
pub(super) async fn message(ledger: &Ledger, task: &Task, named: &BodyRef) -> Result<Option<String>, Unavailable> {
    let reported = task.outcomes.iter().rev().filter(|record| record.kind == OutcomeKind::Fail).map(|r| r.attempt);
    // A failure of the hub's own making, such as a push that failed, has no record: its attempt is the last one.
    for attempt in std::iter::once(task.attempt).chain(reported).take(4) {
        if let Some(said) = message_of(ledger, task.id(), attempt, named).await? {
            return Ok(Some(said));
        }
    }
    Ok(None)
}

/// What was said of the failure of one attempt; `None` once it is erased.
///
/// # Errors
/// [`Unavailable`] when the disk does not answer.
pub(super) async fn message_of(
    ledger: &Ledger,
    task: ReachId,
    attempt: AttemptNo,
    named: &BodyRef,
) -> Result<Option<String>, Unavailable> {
    let body = ledger.body(render::body_key(task, BodyKind::Error, attempt.0)).await?;
    let body = body.filter(|body| body.digest() == named.digest);
    Ok(body.map(|body| String::from_utf8_lossy(&body.bytes).into_owned()))
}

/// JSON bytes as they came; what is not JSON is shown as a string.
pub(super) fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    match RawValue::from_string(text) {
        Ok(raw) => Some(raw),
        Err(_) => serde_json::value::to_raw_value(&String::from_utf8_lossy(bytes)).ok(),
    }
}

impl TaskView {
    /// The view of a task.
    pub(super) fn new(task: &Task, beside: Beside) -> Self {
        let spec = &*task.spec;
        let id = task.id().to_string();
        let large = task.result.as_ref().is_some_and(|named| named.len > INLINE_RESULT);
        Self {
            state: task.status.kind().name(),
            capability: spec.capability.to_string(),
            qos: spec.qos.name(),
            attempt: task.attempt.0,
            retries_used: task.retries_used,
            interruptions: task.interruptions,
            agent_id: task.agent.as_ref().map(ToString::to_string),
            reach_outcome: task.reach_outcome.map(reach_outcome),
            work_outcome: task.work_outcome.map(work_outcome),
            failure: task.failure.as_ref().map(|failure| render::failure(failure, beside.message)),
            submitted_at: task.submitted_at.to_string(),
            ended_at: task.ended_at.map(|at| at.to_string()),
            deadline: task.deadline.to_string(),
            not_before: spec.not_before.map(|at| at.to_string()),
            waits: waits(task, beside.held).map(|waits| owned(waits, beside.owner.as_deref())),
            session_id: spec.session.as_ref().map(ToString::to_string),
            batch_id: spec.batch.map(|(batch, _)| batch.to_string()),
            batch_index: spec.batch.map(|(_, index)| index),
            parent: spec.parent.map(|parent| parent.to_string()),
            labels: LabelsView(spec.labels.clone()),
            progress: task.progress.as_ref().map(|progress| {
                serde_json::json!({
                    "attempt": progress.attempt.0,
                    "stage": progress.stage.as_deref(),
                    "percent": progress.percent,
                    "at": progress.at.to_string(),
                })
            }),
            callback: task.callback.map(|standing| {
                serde_json::json!({
                    "callback_id": standing.id.to_string(),
                    "state": standing.state.name(),
                    "attempts": standing.attempts,
                })
            }),
            redrive_of: beside.kin.redrive_of.map(|id| id.to_string()),
            redrive: beside.anew.as_ref().map(Anew::view),
            redriven_as: beside.kin.redriven_as.map(|id| id.to_string()),
            result: beside.result.and_then(|body| raw(&body.bytes)),
            result_url: large.then(|| format!("/v1/tasks/{id}/result")),
            reach_id: id,
        }
    }
}

const fn reach_outcome(outcome: ReachOutcome) -> &'static str {
    match outcome {
        ReachOutcome::Delivered => "delivered",
        ReachOutcome::Refused => "refused",
        ReachOutcome::Unreachable => "unreachable",
        ReachOutcome::Unknown => "unknown",
    }
}

const fn work_outcome(outcome: WorkOutcome) -> &'static str {
    match outcome {
        WorkOutcome::Succeeded => "succeeded",
        WorkOutcome::Failed => "failed",
    }
}

fn owned(mut waits: serde_json::Value, owner: Option<&str>) -> serde_json::Value {
    if let (Some(fields), Some(owner)) = (waits.as_object_mut(), owner) {
        fields.insert("owner".to_owned(), owner.into());
    }
    waits
}

/// What a task waits for where it stands.
pub(super) fn waits(task: &Task, held: Option<HeldWhy>) -> Option<serde_json::Value> {
    use serde_json::json;
    match &task.status {
        Status::AwaitingApproval => Some(json!({"for": "approval"})),
        Status::Scheduled { until } => Some(json!({"for": "not-before", "until": until.to_string()})),
        Status::Queued { wait_until, .. } => {
            Some(json!({"for": "agent", "until": wait_until.map(|at| at.to_string())}))
        }
        Status::Dispatched { reach_deadline, .. } => {
            Some(json!({"for": "acknowledgement", "until": reach_deadline.to_string()}))
        }
        Status::Processing { work_deadline, .. } => Some(json!({"for": "outcome", "until": work_deadline.to_string()})),
        Status::SlowReach { cause, act_at, .. } => {
            let until = act_at.map(|at| at.to_string());
            Some(json!({"for": "late-outcome", "cause": render::slow_cause(*cause), "until": until}))
        }
        Status::Retrying { until } => Some(json!({"for": "retry", "until": until.to_string()})),
        Status::Orphaned { cause, .. } => {
            let cause = render::orphan_cause(*cause);
            match (held, task.spec.orphan) {
                (Some(HeldWhy::Superseded { by }), _) => Some(json!({
                    "for": "agent-or-operator", "cause": cause, "superseded_by": by.to_string(),
                })),
                (None, OrphanPolicy::Replay) => Some(json!({"for": "replay", "cause": cause})),
                (None, OrphanPolicy::Hold) => Some(json!({"for": "agent-or-operator", "cause": cause})),
            }
        }
        Status::Succeeded | Status::Failed | Status::DeadLetter | Status::Expired | Status::Cancelled => None,
    }
}
