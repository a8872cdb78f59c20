//! The fields of replay plans, and of what an operator decided on a task.

use crate::ledger::machine::event::{EventBody, HeldWhy, TaskRedriven, TaskReplayHeld};
use crate::ledger::machine::replay::{Done, Ended, MayHaveRun};

use super::Fields;
use super::kinds::{body_ref, fingerprint};

/// Adds the fields of a plan's event.
#[expect(clippy::wildcard_enum_match_arm, reason = "kinds.rs, which is exhaustive, sends only a plan's kinds here")]
pub(super) fn body(event: &EventBody, f: &mut Fields) {
    f.put_some("replay_id", event.replay().map(|id| id.to_string()));
    match event {
        EventBody::ReplayPlanned(e) => {
            f.put_some("select", serde_json::from_str::<serde_json::Value>(&e.select).ok()).put("reason", &*e.reason);
            f.put("rate_per_s", e.rate).put("include_ambiguous", e.may_have_run == MayHaveRun::Include);
            f.put("total", e.total).put("list_body", body_ref(&e.list)).put("position", e.position.0);
            f.put_some("payload_patch", e.patch.as_ref().map(body_ref));
            f.put_some("key_fingerprint", e.idempotency.as_ref().map(|key| fingerprint(&key.fingerprint)));
        }
        EventBody::ReplayItemDone(e) => {
            f.put("index", e.index).put("of_reach_id", e.task.to_string());
            match e.done {
                Done::Replayed => f.put("outcome", "replayed"),
                Done::Redriven { successor } => f.put("outcome", "redriven").put("redriven_as", successor.to_string()),
            };
        }
        EventBody::ReplayItemSkipped(e) => {
            f.put("index", e.index).put("of_reach_id", e.task.to_string()).put("skipped", e.skip.name());
        }
        EventBody::ReplayPaused(e) => {
            f.put_some("reason", e.reason.as_deref());
        }
        EventBody::ReplayResumed(e) => {
            f.put_some("reason", e.reason.as_deref());
        }
        EventBody::ReplayRateChanged(e) => {
            f.put("rate_per_s", e.rate);
        }
        EventBody::ReplayFinished(e) => {
            f.put(
                "ended",
                match e.ended {
                    Ended::Completed => "completed",
                    Ended::Cancelled => "cancelled",
                },
            );
            f.put_some("reason", e.reason.as_deref());
        }
        _ => {}
    }
}

/// Adds the fields of an orphan that waits for a word.
pub(super) fn held(e: &TaskReplayHeld, f: &mut Fields) {
    let HeldWhy::Superseded { by } = e.why;
    f.put("attempt", e.attempt.0).put("reason", e.why.name()).put("superseded_by", by.to_string());
}

/// Adds the fields of the link between an ended task and the one that was made of it: both histories show it.
pub(super) fn redriven(e: &TaskRedriven, f: &mut Fields) {
    f.put("redrive_of", e.task.to_string()).put("redriven_as", e.successor.to_string());
    f.put_some("origin", e.origin.map(|origin| origin.task.to_string()));
    f.put_some("replay_id", e.replay.map(|id| id.to_string())).put_some("reason", e.reason.as_deref());
}
