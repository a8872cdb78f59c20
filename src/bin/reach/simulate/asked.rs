//! A task as it was asked for: what `task-submitted` says of it, to be asked for again.

use std::sync::Arc;

use agent_reach::ledger::ids::{Capability, FairnessKey, Namespace, ReachId, TokenId};
use agent_reach::ledger::machine::task::spec::{
    Idempotence, OnWait, Qos, Requires, RetryCause, RetryPolicy, SlowPolicy, Submission,
};
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::scheduler::whatif::Job;
use serde_json::Value;

/// The moment in that field.
pub(super) fn moment(event: &Value, name: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text(event, name)?.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

/// The text in that field; `None` where there is none.
pub(super) fn text<'a>(event: &'a Value, name: &str) -> Option<&'a str> {
    event.get(name)?.as_str()
}

/// A list of texts.
pub(super) fn texts(list: Option<&Value>) -> Vec<Arc<str>> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

/// The task of a `task-submitted`, without its work; `None` where the event is none that can be read.
pub(super) fn job(event: &Value) -> Option<Job> {
    let (id, at) = (text(event, "reach_id")?.parse::<ReachId>().ok()?, moment(event, "at")?);
    let namespace: Namespace = text(event, "namespace")?.parse().ok()?;
    let capability: Capability = text(event, "capability")?.parse().ok()?;
    let fairness_key: FairnessKey = text(event, "fairness_key")?.parse().ok()?;
    let token = event.pointer("/actor/token_id").and_then(Value::as_str);
    let caller = token.and_then(|token| token.parse().ok()).or_else(|| TokenId::new("caller").ok())?;
    let mut job = Job::plain(id, at, (namespace, capability, caller), fairness_key);
    times(event, at, &mut job.submission);
    rules(event, &mut job.submission);
    Some(job)
}

fn times(event: &Value, at: Timestamp, spec: &mut Submission) {
    let millis = |name: &str| event.get(name).and_then(Value::as_u64).map(Millis);
    // The end of its life, however it was said.
    spec.lifetime =
        moment(event, "deadline").map(|end| end.since(at)).or_else(|| millis("lifetime_ms")).unwrap_or(spec.lifetime);
    spec.not_before = moment(event, "not_before");
    spec.reach_timeout = millis("reach_timeout_ms").unwrap_or(spec.reach_timeout);
    spec.work_timeout = millis("work_timeout_ms").unwrap_or(spec.work_timeout);
    spec.sync_wait = millis("sync_wait_ms");
}

fn rules(event: &Value, spec: &mut Submission) {
    spec.qos = Qos::ALL.into_iter().find(|qos| Some(qos.name()) == text(event, "qos")).unwrap_or(spec.qos);
    if event.get("idempotent") == Some(&Value::Bool(false)) {
        spec.idempotence = Idempotence::NotDeclared;
    }
    spec.on_wait = match text(event, "on_wait") {
        Some("fail") => OnWait::Fail,
        Some("degrade") => OnWait::Degrade,
        _ => OnWait::Keep,
    };
    let after = event.pointer("/slow_reach/after_ms").and_then(Value::as_u64).map(Millis);
    spec.slow_reach = match (event.pointer("/slow_reach/policy").and_then(Value::as_str), after) {
        (Some("hand-over"), Some(after)) => SlowPolicy::HandOver { after },
        (Some("fail"), Some(after)) => SlowPolicy::Fail { after },
        _ => SlowPolicy::Wait,
    };
    spec.retry = retry(event, &spec.retry);
    spec.session = text(event, "session_id").and_then(|session| session.parse().ok());
    spec.preferred_agent = text(event, "preferred_agent").and_then(|agent| agent.parse().ok());
    let wanted = |name: &str| event.get("requires").and_then(|wanted| wanted.get(name));
    spec.requires = Requires {
        tools: texts(wanted("tools")),
        languages: texts(wanted("languages")),
        context_window: wanted("context_window").and_then(Value::as_u64).and_then(|size| size.try_into().ok()),
        region: wanted("region").and_then(Value::as_str).map(Into::into),
        version: wanted("version").and_then(Value::as_str).map(Into::into),
    }
    .shared();
}

fn retry(event: &Value, usual: &RetryPolicy) -> RetryPolicy {
    let number = |name: &str| event.pointer(&format!("/retry/{name}")).and_then(Value::as_u64);
    let causes = event.pointer("/retry/retry_on").map(|causes| {
        let cause = |word: &Arc<str>| match &**word {
            "ambiguous" => RetryCause::Ambiguous,
            "overdue" => RetryCause::Overdue,
            _ => RetryCause::Reported,
        };
        texts(Some(causes)).iter().map(cause).collect()
    });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the hub bounds it to 1 to 100")]
    let factor = event.pointer("/retry/factor").and_then(Value::as_f64).map(|factor| (factor * 1_000.0) as u32);
    RetryPolicy {
        max_retries: number("max_retries").and_then(|count| count.try_into().ok()).unwrap_or(usual.max_retries),
        base: number("base_ms").map_or(usual.base, Millis),
        cap: number("cap_ms").map_or(usual.cap, Millis),
        factor_milli: factor.unwrap_or(usual.factor_milli),
        retry_on: causes.unwrap_or_else(|| usual.retry_on.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(more: &Value) -> Job {
        let mut event = json!({"reach_id": "reach_01h455vb4pex5vsknk084sn02q", "at": "2026-01-01T00:00:01Z",
            "namespace": "n", "capability": "a.b", "fairness_key": "team"});
        event.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        job(&event).expect("a job")
    }

    #[test]
    fn a_task_is_asked_for_again_as_it_was() {
        let job = asked(&json!({"qos": "urgent", "idempotent": false, "session_id": "s", "preferred_agent": "p",
            "lifetime_ms": 2_592_000_000_u64, "deadline": "2026-01-01T00:00:11Z", "not_before": "2026-01-01T00:00:04Z",
            "retry": {"max_retries": 7, "base_ms": 5, "cap_ms": 9, "factor": 1.5, "retry_on": ["ambiguous"]},
            "slow_reach": {"policy": "fail", "after_ms": 3}, "on_wait": "fail", "work_timeout_ms": 8,
            "requires": {"tools": ["ocr"], "context_window": 5}, "actor": {"kind": "token", "token_id": "alice"}}));
        let spec = &job.submission;
        assert_eq!((spec.qos, spec.idempotence, spec.on_wait), (Qos::Urgent, Idempotence::NotDeclared, OnWait::Fail));
        assert_eq!((spec.lifetime, spec.work_timeout), (Millis::secs(10), Millis(8)), "the deadline is its end");
        assert_eq!(spec.not_before, Some(job.at.after(Millis::secs(3))));
        let RetryPolicy { max_retries, base, factor_milli, cap, retry_on } = &spec.retry;
        assert_eq!((*max_retries, *base, *factor_milli, *cap), (7, Millis(5), 1_500, Millis(9)));
        assert_eq!(
            (&retry_on[..], spec.slow_reach),
            (&[RetryCause::Ambiguous][..], SlowPolicy::Fail { after: Millis(3) })
        );
        assert_eq!(spec.session.as_ref().map(ToString::to_string).as_deref(), Some("s"));
        assert_eq!(spec.preferred_agent.as_ref().map(ToString::to_string).as_deref(), Some("p"));
        assert_eq!((&*spec.requires.tools[0], spec.requires.context_window), ("ocr", Some(5)));
        assert_eq!((job.caller.as_str(), spec.fairness_key.as_str()), ("alice", "team"));
    }

    #[test]
    fn what_was_not_said_is_not_there() {
        let spec = asked(&json!({})).submission;
        assert_eq!((spec.session, spec.preferred_agent, spec.not_before), (None, None, None));
        assert_eq!((spec.qos, spec.retry), (Qos::Normal, RetryPolicy::default()));
    }
}
