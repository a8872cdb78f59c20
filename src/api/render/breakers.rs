//! The fields of breakers: why one opened, half-opened or closed, and the attempts that opened it.

use serde_json::{Value, json};

use crate::ledger::machine::breaker::FailedAttempt;
use crate::ledger::machine::event::{ClosedWhy, EventBody, HalfOpenedWhy, OpenedWhy};

use super::Fields;

/// Adds the fields of a breaker's event.
#[expect(clippy::wildcard_enum_match_arm, reason = "kinds.rs, which is exhaustive, sends only a breaker's kinds here")]
pub(super) fn body(event: &EventBody, f: &mut Fields) {
    match event {
        EventBody::BreakerOpened(e) => {
            f.put("incarnation", e.incarnation.0).put("capability", e.capability.to_string());
            let (why, reason) = match &e.why {
                OpenedWhy::Failures => ("failures", None),
                OpenedWhy::ProbeFailed => ("probe-failed", None),
                OpenedWhy::Operator { reason } => ("operator", Some(&**reason)),
            };
            f.put("why", why).put_some("reason", reason).put_some("until", e.until.map(|until| until.to_string()));
            f.put("failures", e.failures.iter().copied().map(attempt).collect::<Vec<_>>());
        }
        EventBody::BreakerHalfOpened(e) => {
            f.put("incarnation", e.incarnation.0).put("capability", e.capability.to_string());
            let (why, reason) = match &e.why {
                HalfOpenedWhy::TimeOver => ("time-over", None),
                HalfOpenedWhy::ProbeSilent => ("probe-silent", None),
                HalfOpenedWhy::Operator { reason } => ("operator", Some(&**reason)),
            };
            f.put("why", why).put_some("reason", reason);
        }
        EventBody::BreakerClosed(e) => {
            f.put("incarnation", e.incarnation.0).put("capability", e.capability.to_string());
            let (why, reason) = match &e.why {
                ClosedWhy::ProbeSucceeded => ("probe-succeeded", None),
                ClosedWhy::ProbeAnswered => ("probe-answered", None),
                ClosedWhy::Operator { reason } => ("operator", Some(&**reason)),
                ClosedWhy::GivenBack { reason } => ("given-back", Some(&**reason)),
            };
            f.put("why", why).put_some("reason", reason);
        }
        _ => {}
    }
}

/// An attempt that failed.
pub(crate) fn attempt(failed: FailedAttempt) -> Value {
    json!({"reach_id": failed.task.to_string(), "attempt": failed.attempt.0})
}
