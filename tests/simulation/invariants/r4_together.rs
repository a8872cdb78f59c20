//! R4, the other half: sessions stay together. Whoever works for a session, or did last, gets its next task while it is a
//! candidate: the dispatch itself says who else was one.
//!
//! Only what the log tells is asked: an agent that ended the session's last task not long ago and is still the same process,
//! in one run of the hub. Where several work for a session there is no one to be expected.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{AgentId, Namespace, ReachId, SessionId};
use agent_reach::ledger::machine::event::{Event, EventBody, TaskDispatched};
use agent_reach::ledger::time::{Millis, Timestamp};

use crate::model::{Evidence, Findings, Life, ends};

/// How long the last agent of a session counts.
const REMEMBERED: Millis = Millis::secs(600);

type Key<'a> = (&'a Namespace, &'a SessionId);

/// Who works for the sessions, and who did.
#[derive(Default)]
struct Sessions<'a> {
    with: BTreeMap<ReachId, AgentId>,
    holders: BTreeMap<Key<'a>, BTreeMap<ReachId, AgentId>>,
    last: BTreeMap<Key<'a>, (AgentId, Timestamp)>,
}

impl<'a> Sessions<'a> {
    /// Who is to get the session's next task.
    fn expected(&self, key: &Key<'a>, now: Timestamp) -> Option<&AgentId> {
        let Some(holders) = self.holders.get(key).filter(|holders| !holders.is_empty()) else {
            let (agent, at) = self.last.get(key)?;
            return Some(agent).filter(|_| now.since(*at) < REMEMBERED);
        };
        let all: BTreeSet<&AgentId> = holders.values().collect();
        all.first().copied().filter(|_| all.len() == 1)
    }

    fn works(&mut self, key: Key<'a>, task: ReachId) {
        if let Some(agent) = self.with.get(&task) {
            self.holders.entry(key).or_default().insert(task, agent.clone());
            self.last.remove(&key);
        }
    }

    /// It is with its agent no more; was that the last of its session?
    fn leaves(&mut self, key: Key<'a>, task: ReachId) -> Option<AgentId> {
        let holders = self.holders.get_mut(&key)?;
        holders.remove(&task).filter(|_| holders.is_empty())
    }

    fn process_gone(&mut self, namespace: &Namespace, agent: &AgentId) {
        self.last.retain(|key, (last, _)| key.0 != namespace || last != agent);
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks what changes who works for a session; the rest does not")]
pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut sessions = Sessions::default();
    let mut open: BTreeMap<(&Namespace, &AgentId), bool> = BTreeMap::new();
    for event in evidence.log.iter().map(|entry| &entry.event) {
        if let (Some(namespace), Some(agent)) = (&event.namespace, event.body.agent()) {
            match &event.body {
                EventBody::AgentRegistered(_) => {
                    open.insert((namespace, agent), true);
                    sessions.process_gone(namespace, agent);
                }
                EventBody::AgentHealthy(_) => drop(open.entry((namespace, agent)).or_insert(true)),
                EventBody::AgentLost(_)
                | EventBody::AgentDraining(_)
                | EventBody::AgentLeft(_)
                | EventBody::AgentDeregistered(_) => {
                    open.insert((namespace, agent), false);
                    sessions.process_gone(namespace, agent);
                }
                _ => {}
            }
        }
        if matches!(event.body, EventBody::HubStarted(_)) {
            sessions.last.clear();
        }
        if event.body.callback_subject().is_some() {
            continue;
        }
        let Some(life) = event.body.task().and_then(|id| evidence.tasks.get(&id)) else { continue };
        let Some(session) = &life.spec.session else { continue };
        let key = (life.namespace, session);
        match &event.body {
            EventBody::TaskDispatched(body) => {
                judge((life, event, body), sessions.expected(&key, event.at), findings);
                sessions.with.insert(life.id, body.agent.clone());
            }
            EventBody::TaskAcknowledged(_) | EventBody::TaskReclaimed(_) | EventBody::TaskProgressed(_) => {
                sessions.works(key, life.id);
            }
            EventBody::TaskOrphaned(_) => drop(sessions.leaves(key, life.id)),
            body if ends(body).is_some() || returns(body) => {
                let ended = sessions.leaves(key, life.id);
                let stays = |agent: &AgentId| open.get(&(life.namespace, agent)).copied().unwrap_or(false);
                if let Some(agent) = ended.filter(stays) {
                    sessions.last.insert(key, (agent, event.at));
                }
            }
            _ => {}
        }
    }
}

const fn returns(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::TaskQueued(_)
            | EventBody::TaskAttemptFailed(_)
            | EventBody::TaskRetryScheduled(_)
            | EventBody::TaskReleased(_)
            | EventBody::TaskReplayed(_)
    )
}

fn judge(
    (life, event, body): (&Life<'_>, &Event, &TaskDispatched),
    expected: Option<&AgentId>,
    findings: &mut Findings,
) {
    let asked_for = life.spec.preferred_agent.as_ref() == Some(&body.agent);
    let was_candidate = |agent: &&AgentId| body.explanation.runners_up.iter().any(|other| other.agent == **agent);
    if let Some(agent) = expected.filter(|agent| **agent != body.agent && !asked_for).filter(was_candidate) {
        let what = format!("{} goes to {} though {agent} has its session and could take it", life.id, body.agent);
        findings.add("R4", event.seq, what);
    }
}
