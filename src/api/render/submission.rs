//! A submission as JSON: the fields of the request with every default filled in.

use serde_json::{Map, Value, json};

use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::event::TextRoute;
use crate::ledger::machine::policy::CapabilityRules;
use crate::ledger::machine::task::deadline::first_status;
use crate::ledger::machine::task::spec::{
    AbsentAgents, Idempotence, OnWait, OrphanPolicy, Requires, RetryCause, RetryPolicy, SlowPolicy, Submission,
};
use crate::ledger::time::Timestamp;

use super::Fields;
use super::kinds::{body_ref, fingerprint, verdicts};

/// Adds what was asked.
pub(super) fn submission(s: &Submission, (at, deadline): (Timestamp, Timestamp), f: &mut Fields) {
    f.put("state", first_status(s, at).kind().name());
    f.put("capability", s.capability.as_str()).put("qos", s.qos.name());
    f.put("idempotent", s.idempotence == Idempotence::Declared).put("deadline", deadline.to_string());
    f.put_some("payload_body", s.payload.as_ref().map(body_ref));
    f.put_some("payload_ref", s.payload_ref.as_deref());
    f.put("lifetime_ms", s.lifetime.0).put_some("not_before", s.not_before.map(|at| at.to_string()));
    f.put("reach_timeout_ms", s.reach_timeout.0).put("work_timeout_ms", s.work_timeout.0);
    f.put_some("sync_wait_ms", s.sync_wait.map(|wait| wait.0));
    f.put("retry", retry(&s.retry)).put("slow_reach", slow(s.slow_reach));
    f.put(
        "orphan",
        match s.orphan {
            OrphanPolicy::Replay => "replay",
            OrphanPolicy::Hold => "hold",
        },
    );
    f.put(
        "on_wait",
        match s.on_wait {
            OnWait::Keep => "keep",
            OnWait::Fail => "fail",
            OnWait::Degrade => "degrade",
        },
    );
    f.put_some("context_path", s.context_path.as_deref());
    if !s.labels.is_empty() {
        let labels: Map<_, _> = s.labels.iter().map(|(name, value)| (name.to_string(), json!(&**value))).collect();
        f.put("labels", Value::Object(labels));
    }
    f.put_some("parent", s.parent.map(|parent| json!({"reach_id": parent.to_string()})));
    f.put("fairness_key", s.fairness_key.as_str()).put_some("cost_budget", s.cost_budget);
    f.put_some("sensitivity", s.sensitivity.as_deref());
    if *s.requires != Requires::default() {
        f.put("requires", requires(&s.requires));
    }
    if !s.schemas.accepted.is_empty() || !s.schemas.refused.is_empty() {
        f.put("schemas", verdicts(&s.schemas));
    }
    f.put_some("preferred_agent", s.preferred_agent.as_ref().map(|agent| agent.as_str()));
    f.put("wait_for_agent", s.absent_agents == AbsentAgents::Wait);
    f.put_some("callback", s.callback.as_deref().map(callback));
    f.put_some("key_fingerprint", s.idempotency.as_ref().map(|key| fingerprint(&key.fingerprint)));
    f.put_some("batch_index", s.batch.map(|(_, index)| index));
}

/// How a text found its capability.
pub(super) fn text_route(route: &TextRoute) -> Value {
    let share = |milli: u32| f64::from(milli) / 1_000.0;
    let near: Vec<_> =
        route.near.iter().map(|(name, score)| json!({"capability": name.as_str(), "score": share(*score)})).collect();
    json!({"by": &*route.by, "score": share(route.score), "threshold": share(route.threshold), "near": near})
}

fn retry(retry: &RetryPolicy) -> Value {
    let causes: Vec<_> = retry
        .retry_on
        .iter()
        .map(|cause| match cause {
            RetryCause::Reported => "reported",
            RetryCause::Ambiguous => "ambiguous",
            RetryCause::Overdue => "overdue",
        })
        .collect();
    json!({
        "max_retries": retry.max_retries,
        "base_ms": retry.base.0,
        "factor": f64::from(retry.factor_milli) / 1_000.0,
        "cap_ms": retry.cap.0,
        "retry_on": causes,
    })
}

/// Rules of a capability.
pub(crate) fn rules(rules: &CapabilityRules) -> Value {
    json!({"slow_reach": slow(rules.slow_reach), "owner": rules.owner.as_deref()})
}

fn slow(policy: SlowPolicy) -> Value {
    match policy {
        SlowPolicy::Wait => json!({"policy": "wait"}),
        SlowPolicy::HandOver { after } => json!({"policy": "hand-over", "after_ms": after.0}),
        SlowPolicy::Fail { after } => json!({"policy": "fail", "after_ms": after.0}),
    }
}

fn requires(requires: &Requires) -> Value {
    let list = |names: &[std::sync::Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "tools": list(&requires.tools),
        "context_window": requires.context_window,
        "languages": list(&requires.languages),
        "region": requires.region.as_deref(),
        "version": requires.version.as_deref(),
    })
}

/// The event's name in a submission.
pub(crate) const fn callback_event(event: CallbackEvent) -> &'static str {
    match event {
        CallbackEvent::Terminal => "terminal",
        CallbackEvent::Slow => "slow",
        CallbackEvent::Retrying => "retrying",
        CallbackEvent::Progress => "progress",
        CallbackEvent::Overdue => "overdue",
        CallbackEvent::Orphaned => "orphaned",
    }
}

/// A callback as it was asked for.
pub(super) fn callback(spec: &CallbackSpec) -> Value {
    let events: Vec<_> = spec.events.iter().copied().map(callback_event).collect();
    json!({"url": &*spec.url, "events": events, "secret_ref": &*spec.secret_ref})
}
