//! S6: one task per (namespace, idempotency key) in its window; the same body gets the first answer, another body never
//! a second task.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{Digest, Namespace, ReachId};
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::time::Timestamp;

use crate::model::{Evidence, Findings};

type Bound = BTreeMap<(Namespace, String), (Option<ReachId>, Digest, Timestamp)>;

#[expect(clippy::wildcard_enum_match_arm, reason = "asks what binds a key; the rest does not")]
pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut bound = Bound::new();
    for entry in evidence.log {
        let event = &entry.event;
        let (key, subject, end) = match &event.body {
            EventBody::TaskSubmitted(body) => {
                let key = body.submission.idempotency.as_deref();
                let end = key.map(|key| event.at.after(key.window).max(body.deadline));
                (key, Some(body.submission.reach_id), end)
            }
            EventBody::BatchOpened(body) => {
                let key = body.idempotency.as_ref();
                (key, None, key.map(|key| event.at.after(key.window)))
            }
            _ => continue,
        };
        let (Some(key), Some(end), Some(namespace)) = (key, end, event.namespace.clone()) else { continue };
        let fresh = (subject, key.fingerprint, end);
        if let Some((first, _, until)) = bound.insert((namespace, key.key.to_string()), fresh)
            && until > event.at
        {
            findings.add("S6", event.seq, format!("key {} is bound to {first:?} until {until}", key.key));
        }
    }
    answers(evidence, findings);
}

/// Within one window every answer names one task, and only to one body.
fn answers(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut named: BTreeMap<ReachId, Digest> = BTreeMap::new();
    for seen in &evidence.notes.keys {
        let first = *named.entry(seen.task).or_insert(seen.fingerprint);
        if first != seen.fingerprint {
            let what = format!(
                "{} of {} answers two bodies (until {}, seen {})",
                seen.key, seen.namespace, seen.until, seen.at
            );
            findings.add("S6", agent_reach::ledger::ids::Seq(0), what);
        }
    }
}
