//! Each kind of event's own fields.

use serde_json::{Value, json};

use crate::ledger::ids::{CallbackId, ReachId};
use crate::ledger::machine::access::{Reach, Token};
use crate::ledger::machine::agent::{Declaration, DrainMode, Transport};
use crate::ledger::machine::callback::{CallbackSpec, CallbackSubject};
use crate::ledger::machine::event::{
    AlreadyDone, CallbackAttempted, Event, EventBody, QueuedWhy, RetryWhy, StaleWhy, Started, TaskDispatched,
    TaskSucceeded, TryOutcome,
};
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::task::Failure;
use crate::ledger::machine::task::spec::{BodyRef, SchemaVerdicts, Text};
use crate::ledger::machine::task::status::{Delivery, OrphanCause, SlowCause};
use crate::ledger::store::BodyKind;

use super::submission::{callback, submission, text_route};
use super::{Bodies, Fields, body_key, breakers, replays};

/// Adds the fields of the event's own.
#[expect(clippy::too_many_lines, reason = "the index of every kind: each arm is one line or one call")]
pub(super) fn body(event: &Event, bodies: &Bodies, f: &mut Fields) {
    match &event.body {
        EventBody::LineageStarted(e) => {
            f.put("lineage", e.lineage.to_string()).put("previous", e.previous.map(|l| l.to_string()));
            f.put("at_seq", e.at_seq.0).put("chain", e.hash.to_string()).put("lost_up_to", e.lost_up_to.map(|s| s.0));
        }
        EventBody::HubStarted(e) => {
            f.put("boot", e.boot.0).put("wall_offset_ms", e.wall_offset).put("version", &*e.version);
        }
        EventBody::HubStopped(e) => {
            f.put("boot", e.boot.0);
        }
        EventBody::ClockJumped(e) => {
            f.put("wall_offset_ms", e.wall_offset).put("by_ms", e.by);
        }
        EventBody::HubStalled(e) => {
            f.put("by_ms", e.by.0);
        }
        EventBody::AgentRegistered(e) => {
            f.put("incarnation", e.incarnation.0).put_some("instance", text(e.instance.as_ref()));
            declaration(&e.declaration, f);
        }
        EventBody::AgentUpdated(e) => {
            f.put("incarnation", e.incarnation.0);
            declaration(&e.declaration, f);
        }
        EventBody::AgentDraining(e) => {
            f.put("incarnation", e.incarnation.0).put("mode", drain_mode(e.mode));
            f.put("until", e.until.to_string()).put_some("reason", text(e.reason.as_ref()));
        }
        EventBody::AgentUnhealthy(e) => {
            f.put("incarnation", e.incarnation.0).put("silent_ms", e.silent.0);
        }
        EventBody::AgentHealthy(e) => {
            f.put("incarnation", e.incarnation.0);
        }
        EventBody::AgentLost(e) => {
            f.put("incarnation", e.incarnation.0).put("silent_ms", e.silent.0);
        }
        EventBody::AgentLeft(e) => {
            f.put("incarnation", e.incarnation.0);
        }
        EventBody::AgentDeregistered(e) => {
            f.put("incarnation", e.incarnation.0);
        }
        EventBody::AgentSlotFreed(e) => {
            f.put("of_reach_id", e.task.to_string()).put("attempt", e.attempt.0);
        }
        EventBody::AgentTold(e) => {
            f.put("of_reach_id", e.task.to_string()).put("attempt", e.attempt.0);
        }
        EventBody::BreakerOpened(_) | EventBody::BreakerHalfOpened(_) | EventBody::BreakerClosed(_) => {
            breakers::body(&event.body, f);
        }
        EventBody::TaskSubmitted(e) => {
            submission(&e.submission, (event.at, e.deadline), f);
            f.put_some("routed_by_text", e.routed.as_deref().map(text_route));
        }
        EventBody::TaskQueued(e) => {
            f.put("why", queued_why(e.why));
        }
        EventBody::TaskDispatched(e) => dispatched(e, f),
        EventBody::TaskAcknowledged(e) => {
            f.put("attempt", e.attempt.0).put("incarnation", e.incarnation.0);
            f.put("work_deadline", e.work_deadline.to_string());
        }
        EventBody::TaskReclaimed(e) => {
            f.put("attempt", e.attempt.0).put("work_deadline", e.work_deadline.to_string());
        }
        EventBody::TaskOverdue(_) | EventBody::TaskExpired(_) | EventBody::TaskApproved(_) => {}
        EventBody::TaskProgressed(e) => {
            f.put("attempt", e.attempt.0).put_some("stage", text(e.stage.as_ref())).put_some("percent", e.percent);
            let key = body_key(e.task, BodyKind::Progress, e.attempt.0);
            f.put_some("data", e.data.as_ref().and_then(|named| bodies.json(&key, named)));
            f.put_some("data_body", e.data.as_ref().map(body_ref));
            f.put_some("work_deadline", e.work_deadline.map(|at| at.to_string()));
        }
        EventBody::TaskSlow(e) => {
            f.put("attempt", e.attempt.0).put("cause", slow_cause(e.cause));
            f.put_some("act_at", e.act_at.map(|at| at.to_string()));
        }
        EventBody::TaskAttemptFailed(e) => {
            f.put("attempt", e.attempt.0).put("failure", failure(&e.failure, e.task, e.attempt.0, bodies));
            f.put(
                "started",
                match e.started {
                    Started::Never => "never",
                    Started::Maybe => "maybe",
                },
            );
            f.put_some("outcome_digest", e.outcome.map(|d| d.to_string()));
        }
        EventBody::TaskRetryScheduled(e) => {
            f.put(
                "why",
                match e.why {
                    RetryWhy::AttemptFailed => "attempt-failed",
                    RetryWhy::Returned => "returned",
                },
            );
            f.put("until", e.until.to_string());
        }
        EventBody::TaskOrphaned(e) => {
            f.put("attempt", e.attempt.0).put("cause", orphan_cause(e.cause));
        }
        EventBody::TaskReplayed(e) => {
            f.put("attempt", e.attempt.0);
        }
        EventBody::TaskReplayHeld(e) => replays::held(e, f),
        EventBody::TaskReleased(e) => {
            f.put("attempt", e.attempt.0).put("outcome_digest", e.outcome.to_string());
        }
        EventBody::TaskSucceeded(e) => succeeded(e, f),
        EventBody::TaskFailed(e) => {
            f.put("attempt", e.attempt.0).put("incarnation", e.incarnation.0);
            f.put("failure", failure(&e.failure, e.task, e.attempt.0, bodies));
            f.put("outcome_digest", e.outcome.to_string());
        }
        EventBody::TaskDeadLettered(e) => {
            f.put("failure", failure(&e.failure, e.task, e.attempts, bodies)).put("attempts", e.attempts);
        }
        EventBody::TaskCancelled(e) => reason(e.task, e.reason.as_ref(), bodies, f),
        EventBody::TaskRefused(e) => reason(e.task, e.reason.as_ref(), bodies, f),
        EventBody::TaskSchemaChecked(e) => {
            f.put("schemas", verdicts(&e.verdicts));
        }
        EventBody::TaskStaleReportRefused(e) => {
            f.put("attempt", e.attempt.0).put("report", e.report.name()).put("why", stale_why(e.why));
            f.put("content_digest", e.content.to_string());
        }
        EventBody::TaskResolved(e) => {
            f.put("attempt", e.attempt.0).put("resolution", e.resolution.name()).put("reason", &*e.reason);
        }
        EventBody::TaskRedriven(e) => replays::redriven(e, f),
        EventBody::ReplayPlanned(_)
        | EventBody::ReplayStarted(_)
        | EventBody::ReplayItemDone(_)
        | EventBody::ReplayItemSkipped(_)
        | EventBody::ReplayPaused(_)
        | EventBody::ReplayResumed(_)
        | EventBody::ReplayRateChanged(_)
        | EventBody::ReplayFinished(_) => replays::body(&event.body, f),
        EventBody::CallbackDue(e) => {
            about(e.callback, e.subject, f);
            f.put("of_seq", e.seq.0).put("url", &*e.url).put("secret_ref", &*e.secret_ref);
        }
        EventBody::CallbackAttempted(e) => attempted(e, f),
        EventBody::CallbackDelivered(e) => about(e.callback, e.subject, f),
        EventBody::CallbackExhausted(e) => {
            about(e.callback, e.subject, f);
            f.put("attempts", e.attempts);
        }
        EventBody::CallbackBlocked(e) => about(e.callback, e.subject, f),
        EventBody::CallbackGone(e) => about(e.callback, e.subject, f),
        EventBody::CallbackRedriven(e) => {
            about(e.callback, e.subject, f);
            f.put("of_seq", e.seq.0).put("url", &*e.url).put("secret_ref", &*e.secret_ref);
        }
        EventBody::BatchOpened(e) => {
            f.put_some("callback", e.callback.as_ref().map(|spec: &CallbackSpec| callback(spec)));
            f.put_some("key_fingerprint", e.idempotency.as_ref().map(|key| fingerprint(&key.fingerprint)));
        }
        EventBody::BatchClosed(e) => {
            f.put("total", e.total).put("refused", e.refused);
        }
        EventBody::BatchSettled(_) => {}
        EventBody::TokenCreated(e) => token(&e.token, f),
        EventBody::TokenRotated(e) => {
            f.put("token_id", e.token.as_str()).put("overlap_until", e.overlap_until.to_string());
        }
        EventBody::TokenRevoked(e) => {
            f.put("token_id", e.token.as_str());
        }
        EventBody::CapabilityPolicyChanged(e) => {
            f.put("capability", e.capability.to_string());
            f.put("rules", e.rules.as_ref().map(super::submission::rules)).put("reason", &*e.reason);
        }
        EventBody::RoutingRulesChanged(e) => {
            f.put("capability", e.capability.to_string()).put("version", e.version);
            f.put("rules", e.rules.as_ref().map(super::routing::rules)).put_some("undoes", e.undoes);
            f.put("reason", &*e.reason);
        }
        EventBody::HubPolicyChanged(e) => {
            f.put("policy", json!({"replays_per_second": e.policy.replays_per_second})).put("reason", &*e.reason);
        }
        EventBody::PolicyChanged(e) => {
            f.put("policy", policy(&e.policy)).put("reason", &*e.reason);
        }
    }
}

fn text(text: Option<&Text>) -> Option<&str> {
    text.map(|t| &**t)
}

/// The first 8 hex digits: enough to tell two bodies apart (semantics 31).
pub(super) fn fingerprint(digest: &crate::ledger::ids::Digest) -> String {
    digest.to_string().chars().take(8).collect()
}

pub(super) fn body_ref(named: &BodyRef) -> Value {
    json!({"digest": named.digest.to_string(), "bytes": named.len})
}

pub(super) fn verdicts(verdicts: &SchemaVerdicts) -> Value {
    let list = |digests: &[crate::ledger::ids::Digest]| digests.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({"accepted": list(&verdicts.accepted), "refused": list(&verdicts.refused)})
}

fn failure(failure: &Failure, task: ReachId, attempt: u32, bodies: &Bodies) -> Value {
    let key = body_key(task, BodyKind::Error, attempt);
    super::failure(failure, failure.message.as_ref().and_then(|named| bodies.text(&key, named)))
}

fn reason(task: ReachId, named: Option<&BodyRef>, bodies: &Bodies, f: &mut Fields) {
    let key = body_key(task, BodyKind::Reason, 0);
    f.put_some("reason", named.and_then(|named| bodies.text(&key, named)));
    f.put_some("reason_body", named.map(body_ref));
}

fn declaration(declared: &Declaration, f: &mut Fields) {
    let offers: Vec<_> = declared.offers.iter().map(|offer| offer.capability.to_string()).collect();
    f.put("capabilities", offers).put_some("version", text(declared.version.as_ref()));
    f.put_some("region", text(declared.region.as_ref()));
    f.put(
        "transport",
        match declared.transport {
            Transport::Pull => "pull",
            Transport::Http { .. } => "http",
        },
    );
    f.put("heartbeat_interval_ms", declared.heartbeat_interval.0);
    f.put("max_concurrency", declared.max_concurrency).put("max_pending", declared.max_pending);
    f.put("declaration", declared.body.to_string());
}

const fn drain_mode(mode: DrainMode) -> &'static str {
    match mode {
        DrainMode::Finish => "finish",
        DrainMode::HandOver => "hand-over",
    }
}

const fn queued_why(why: QueuedWhy) -> &'static str {
    match why {
        QueuedWhy::NotBeforeReached => "not-before-reached",
        QueuedWhy::Approved => "approved",
        QueuedWhy::RetryDue => "retry-due",
        QueuedWhy::Released => "released",
        QueuedWhy::NeverStarted => "never-started",
        QueuedWhy::Replayed => "replayed",
    }
}

/// The cause's name on the wire.
pub(crate) const fn slow_cause(cause: SlowCause) -> &'static str {
    match cause {
        SlowCause::Overdue => "overdue",
        SlowCause::Ambiguous => "ambiguous",
    }
}

/// The cause's name on the wire.
pub(crate) const fn orphan_cause(cause: OrphanCause) -> &'static str {
    match cause {
        OrphanCause::AgentLost => "agent-lost",
        OrphanCause::AgentLeft => "agent-left",
        OrphanCause::AgentReplaced => "agent-replaced",
        OrphanCause::AgentDrained => "agent-drained",
        OrphanCause::LossAccepted => "loss-accepted",
    }
}

const fn stale_why(why: StaleWhy) -> &'static str {
    match why {
        StaleWhy::LeaseSuperseded => "lease-superseded",
        StaleWhy::TaskTerminal => "task-terminal",
        StaleWhy::OutcomeConflict => "outcome-conflict",
    }
}

fn dispatched(e: &TaskDispatched, f: &mut Fields) {
    f.put("attempt", e.attempt.0).put("incarnation", e.incarnation.0).put("lease_digest", e.lease.0.to_string());
    f.put(
        "delivery",
        match e.delivery {
            Delivery::Pull => "pull",
            Delivery::Push => "push",
        },
    );
    f.put("reach_deadline", e.reach_deadline.to_string()).put("explanation", super::explanation(&e.explanation));
}

fn succeeded(e: &TaskSucceeded, f: &mut Fields) {
    f.put("attempt", e.attempt.0).put("incarnation", e.incarnation.0);
    f.put_some("result_body", e.result.as_ref().map(body_ref)).put("outcome_digest", e.outcome.to_string());
    if !e.usage.is_empty() {
        f.put("usage", Value::Object(e.usage.iter().map(|(name, n)| (name.to_string(), super::amount(*n))).collect()));
    }
    match e.already_done {
        AlreadyDone::Yes => {
            f.put("already_done", true);
        }
        AlreadyDone::No => {}
    }
}

fn about(callback: CallbackId, subject: CallbackSubject, f: &mut Fields) {
    f.put("callback_id", callback.to_string());
    f.put(
        "subject",
        match subject {
            CallbackSubject::Task(_) => "task",
            CallbackSubject::Batch(_) => "batch",
        },
    );
}

fn attempted(e: &CallbackAttempted, f: &mut Fields) {
    about(e.callback, e.subject, f);
    f.put("attempt", e.attempt);
    match &e.outcome {
        TryOutcome::Delivered { status } => {
            f.put("outcome", "delivered").put("status", *status);
        }
        TryOutcome::Failed { error, retry_after } => {
            f.put("outcome", "failed").put("error", &**error).put_some("retry_after_ms", retry_after.map(|r| r.0));
        }
        TryOutcome::Gone => {
            f.put("outcome", "gone");
        }
        TryOutcome::Blocked { error } => {
            f.put("outcome", "blocked").put("error", &**error);
        }
    }
    f.put_some("next_at", e.next_at.map(|at| at.to_string()));
}

fn token(token: &Token, f: &mut Fields) {
    f.put("token_id", token.id.as_str()).put("name", &*token.name);
    f.put("scopes", token.scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>());
    f.put(
        "reach",
        match &token.reach {
            Reach::One(namespace) => namespace.to_string(),
            Reach::All => "*".to_owned(),
        },
    );
    f.put("agents", token.agents.iter().map(ToString::to_string).collect::<Vec<_>>());
    f.put("capabilities", token.capabilities.iter().map(ToString::to_string).collect::<Vec<_>>());
    f.put_some("expires_at", token.expires_at.map(|at| at.to_string()));
}

fn policy(policy: &Policy) -> Value {
    json!({
        "unhealthy_after": policy.unhealthy_after,
        "lost_after": policy.lost_after,
        "replays_per_second": policy.replays_per_second,
        "lane_bound": policy.lane_bound,
        "namespace_bound": policy.namespace_bound,
    })
}
