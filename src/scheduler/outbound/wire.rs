//! What an agent is handed, as JSON: one rendering for claims and pushes, so that an agent may change its transport
//! and read the same task (design 4, `claim`).

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::value::RawValue;

use crate::ledger::handle::{Handed, Ledger, Unavailable};
use crate::ledger::ids::{Digest, ReachId};
use crate::ledger::keys::LeaseToken;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::store::{BodyKey, BodyKind};

/// The bodies that go into a handed task, byte for byte as they were stored.
#[derive(Debug, Clone, Copy, Default)]
pub struct TaskBodies<'a> {
    /// The payload, if the task has one inline.
    pub payload: Option<&'a [u8]>,
    /// Data of the last reported stage, if there is any.
    pub stage_data: Option<&'a [u8]>,
}

#[derive(Serialize)]
struct Claimed<'a> {
    reach_id: String,
    attempt: u32,
    lease: &'a str,
    capability: &'a str,
    payload: Option<&'a RawValue>,
    payload_ref: Option<&'a str>,
    session_id: Option<&'a str>,
    context_path: Option<&'a str>,
    labels: Labels<'a>,
    qos: &'static str,
    deadline: String,
    reach_deadline: String,
    work_timeout_ms: u64,
    replay: Option<Replay<'a>>,
    traceparent: Option<String>,
}

#[derive(Serialize)]
struct Replay<'a> {
    stage: Option<&'a str>,
    percent: Option<u8>,
    data: Option<&'a RawValue>,
}

/// Labels as an object, in the caller's order.
pub(super) struct Labels<'a>(pub(super) &'a [(Text, Text)]);

impl Serialize for Labels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.0 {
            map.serialize_entry(&**name, &**value)?;
        }
        map.end()
    }
}

/// One handed task as JSON. Payload and stage data are embedded as they are.
///
/// # Errors
/// When a stored body is not JSON: the ledger's fault, never the agent's.
pub fn claimed_task(
    handed: &Handed,
    bodies: TaskBodies<'_>,
    lease: &LeaseToken,
) -> Result<Box<RawValue>, serde_json::Error> {
    let spec = &handed.spec;
    let replay = match &handed.replay {
        Some(progress) => Some(Replay {
            stage: progress.stage.as_deref(),
            percent: progress.percent,
            data: bodies.stage_data.map(serde_json::from_slice).transpose()?,
        }),
        None => None,
    };
    serde_json::value::to_raw_value(&Claimed {
        reach_id: spec.reach_id.to_string(),
        attempt: handed.attempt.0,
        lease: lease.expose(),
        capability: spec.capability.as_str(),
        payload: bodies.payload.map(serde_json::from_slice).transpose()?,
        payload_ref: spec.payload_ref.as_deref(),
        session_id: spec.session.as_ref().map(crate::ledger::ids::SessionId::as_str),
        context_path: spec.context_path.as_deref(),
        labels: Labels(&spec.labels),
        qos: spec.qos.name(),
        deadline: handed.deadline.to_string(),
        reach_deadline: handed.reach_deadline.to_string(),
        work_timeout_ms: handed.work_timeout.0,
        replay,
        traceparent: handed.trace.map(|trace| trace.to_string()),
    })
}

/// Where the bodies of a handed task lie: payload, then stage data.
#[must_use]
pub fn body_keys(handed: &Handed) -> [Option<BodyKey>; 2] {
    let task = handed.spec.reach_id;
    let payload = handed.spec.payload.as_ref().map(|_| BodyKey::Task { task, kind: BodyKind::Payload, attempt: 0 });
    let stage_data = handed.replay.as_ref().filter(|progress| progress.data.is_some());
    let stage_data =
        stage_data.map(|progress| BodyKey::Task { task, kind: BodyKind::Progress, attempt: progress.attempt.0 });
    [payload, stage_data]
}

/// Why a handed task could not be written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    /// The store did not answer.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// A body that the task names is not there.
    #[error("a body of {0} is missing")]
    Missing(ReachId),
    /// A body is not JSON.
    #[error("a body of {0} is not JSON")]
    Damaged(ReachId),
}

/// Reads the bodies and computes the leases of handed tasks, and writes each down: the shell around [`claimed_task`].
///
/// # Errors
/// [`HandOverError`]: the ledger's fault.
pub async fn hand_over(ledger: &Ledger, tasks: &[Handed]) -> Result<Vec<Box<RawValue>>, HandOverError> {
    let wanted: Vec<[Option<BodyKey>; 2]> = tasks.iter().map(body_keys).collect();
    let keys: Vec<BodyKey> = wanted.iter().flatten().flatten().cloned().collect();
    let mut found = if keys.is_empty() { Vec::new() } else { ledger.bodies(keys).await? }.into_iter();
    let lineage = ledger.published().lineage;
    let mut written = Vec::with_capacity(tasks.len());
    for (task, [payload, stage_data]) in tasks.iter().zip(&wanted) {
        let id = task.spec.reach_id;
        let payload = payload.as_ref().and_then(|_| found.next());
        let stage_data = stage_data.as_ref().and_then(|_| found.next()).flatten();
        // Stage data is a help to the next agent; without its payload a task can't be worked on.
        if payload == Some(None) {
            return Err(HandOverError::Missing(id));
        }
        let payload = payload.flatten();
        let bodies = TaskBodies {
            payload: payload.as_ref().map(|body| &*body.bytes),
            stage_data: stage_data.as_ref().map(|body| &*body.bytes),
        };
        let lease = ledger.keys().lease(lineage, id, task.attempt);
        written.push(claimed_task(task, bodies, &lease).map_err(|_| HandOverError::Damaged(id))?);
    }
    Ok(written)
}

/// SHA-256 of a JSON text's canonical form: what two tellings of one outcome are compared by (semantics 14). A text
/// without a canonical form stands for itself.
#[must_use]
pub fn outcome_digest(json: &[u8]) -> Digest {
    match crate::ledger::canonical::canonical(json) {
        Ok(canonical) => Digest::of(&[&canonical]),
        Err(_) => Digest::of(&[json]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::ledger::ids::{AttemptNo, Lineage, Seq};
    use crate::ledger::keys::Keys;
    use crate::ledger::machine::task::Progress;
    use crate::ledger::machine::task::spec::BodyRef;
    use crate::ledger::time::{Millis, Timestamp};

    #[test]
    fn a_handed_task_has_every_field_of_the_contract_and_its_payload_byte_for_byte() {
        let mut handed = samples::handed(ReachId([7; 16]));
        handed.replay = Some(Progress {
            attempt: AttemptNo(1),
            stage: Some("parse".into()),
            percent: Some(40),
            data: Some(BodyRef { digest: Digest::default(), len: 2 }),
            at: Timestamp(1),
            seq: Seq(1),
        });
        handed.work_timeout = Millis(5_000);
        let keys = Keys::from_master(&[1; 32]);
        let lease = keys.lease(Lineage([2; 16]), ReachId([7; 16]), handed.attempt);
        let bodies = TaskBodies { payload: Some(b"{ \"n\": 1.0e2,\"n\":2 }"), stage_data: Some(b"[1]") };
        let text = claimed_task(&handed, bodies, &lease).expect("JSON").to_string();
        let expected = format!(
            concat!(
                r#"{{"reach_id":"{}","attempt":2,"lease":"{}","capability":"weather.forecast","payload":{{ "n": 1.0e2,"n":2 }},"#,
                r#""payload_ref":null,"session_id":"trip-42","context_path":"s3://ctx/42","labels":{{"line":"travel","a":"b"}},"#,
                r#""qos":"normal","deadline":"2026-01-02T00:00:00.000Z","reach_deadline":"2026-01-01T00:00:03.000Z","#,
                r#""work_timeout_ms":5000,"replay":{{"stage":"parse","percent":40,"data":[1]}},"#,
                r#""traceparent":"00-01010101010101010101010101010101-0202020202020202-01"}}"#
            ),
            ReachId([7; 16]),
            lease.expose()
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_task_without_payload_and_progress_says_null_and_a_damaged_body_is_our_fault() {
        let mut handed = samples::handed(ReachId([7; 16]));
        handed.trace = None;
        let lease = Keys::from_master(&[1; 32]).lease(Lineage::default(), ReachId([7; 16]), handed.attempt);
        let text = claimed_task(&handed, TaskBodies::default(), &lease).expect("JSON").to_string();
        for part in [r#""payload":null"#, r#""replay":null"#, r#""traceparent":null"#] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(claimed_task(&handed, TaskBodies { payload: Some(b"{"), stage_data: None }, &lease).is_err());
    }

    #[test]
    fn semantics_14_the_digest_of_an_outcome_does_not_see_white_space_or_order() {
        assert_eq!(outcome_digest(br#"{"b":1,"a":[2]}"#), outcome_digest(b"{ \"a\": [2], \"b\": 1 }"));
        assert_ne!(outcome_digest(br#"{"a":1}"#), outcome_digest(br#"{"a":2}"#));
    }
}
