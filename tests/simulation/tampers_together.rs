//! Changes of the log copy that concern who gets a session's tasks.

use std::collections::BTreeMap;

use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Entry, ends};
use crate::tampers::Tamper;

/// The changes, each with the invariants of which at least one must condemn it.
pub(crate) const TOGETHER_TAMPERS: &[(&str, Tamper, &[&str])] = &[("a session torn apart", torn_apart, &["R4"])];

/// The next task of a session, which went where the last one ended, goes to a runner-up.
#[expect(clippy::ptr_arg, reason = "every change has one shape, whether it makes the log longer or not")]
fn torn_apart(log: &mut Vec<Entry>) -> bool {
    let mut sessions = BTreeMap::new();
    let (mut last, mut with) = (BTreeMap::new(), BTreeMap::new());
    for entry in log.iter_mut() {
        if let EventBody::TaskSubmitted(body) = &entry.event.body
            && let Some(session) = &body.submission.session
        {
            sessions.insert(body.submission.reach_id, (entry.event.namespace.clone(), session.clone()));
        }
        let Some(task) = entry.event.body.task() else { continue };
        let Some(session) = sessions.get(&task) else { continue };
        if ends(&entry.event.body).is_some() {
            if let Some(agent) = with.remove(&task) {
                last.insert(session.clone(), agent);
            }
        } else if let EventBody::TaskDispatched(body) = &mut entry.event.body {
            if let Some(other) =
                body.explanation.runners_up.first_mut().filter(|_| last.get(session) == Some(&body.agent))
            {
                std::mem::swap(&mut other.agent, &mut body.agent);
                return true;
            }
            with.insert(task, body.agent.clone());
        }
    }
    false
}
