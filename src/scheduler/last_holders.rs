//! Who worked for a session last, for a while after that work ended (R4).
//!
//! Why: a plan lets the next task of a session go when the former one has ended, and the sweep may find it ended as
//! well. In that moment nobody works for the session, but what it needs is still warm at the agent that did.
//!
//! Volatile: no event carries it, and after a start it is empty until somebody works for a session and ends. Bounded:
//! [`MAX_SESSIONS`], the oldest out, each for [`LIFE`] at most, and none of an agent whose process is gone or leaves.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::ids::{AgentId, AgentKey, Namespace, SessionId};
use crate::ledger::time::{Millis, Timestamp};

/// Sessions whose last agent is remembered, over all namespaces.
pub const MAX_SESSIONS: usize = 100_000;
/// How long a session's last agent is remembered after its work for it ended.
pub const LIFE: Millis = Millis::secs(600);

/// When it was remembered, and a running number: no two are the same.
type Age = (Timestamp, u64);

/// The last agents of sessions that nobody works for now.
#[derive(Debug, Default)]
pub struct LastHolders {
    sessions: BTreeMap<Namespace, BTreeMap<SessionId, (AgentId, Age)>>,
    ages: BTreeMap<Age, (Namespace, SessionId)>,
    agents: BTreeMap<AgentKey, BTreeSet<SessionId>>,
    /// Agents of which more sessions are remembered, or fewer, than when this was last asked.
    changed: BTreeSet<AgentKey>,
    next: u64,
}

impl LastHolders {
    /// Who worked for the session last, if that is remembered.
    #[must_use]
    pub fn of(&self, namespace: &Namespace, session: &SessionId) -> Option<&AgentId> {
        Some(&self.sessions.get(namespace)?.get(session)?.0)
    }

    /// Sessions that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ages.len()
    }

    /// Sessions of which the agent is remembered.
    #[must_use]
    pub fn held_by(&self, agent: &AgentKey) -> usize {
        self.agents.get(agent).map_or(0, BTreeSet::len)
    }

    /// Agents of whom [`LastHolders::held_by`] may have changed since this was last asked.
    pub fn take_changed(&mut self) -> BTreeSet<AgentKey> {
        std::mem::take(&mut self.changed)
    }

    /// Is none remembered?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    /// The agent ended its last work for the session.
    pub fn remember(&mut self, agent: &AgentKey, session: &SessionId, now: Timestamp) {
        self.forget(&agent.namespace, session);
        while self.ages.len() >= MAX_SESSIONS {
            self.forget_oldest();
        }
        self.next += 1;
        let age = (now, self.next);
        let sessions = self.sessions.entry(agent.namespace.clone()).or_default();
        sessions.insert(session.clone(), (agent.agent_id.clone(), age));
        self.ages.insert(age, (agent.namespace.clone(), session.clone()));
        self.agents.entry(agent.clone()).or_default().insert(session.clone());
        self.changed.insert(agent.clone());
    }

    /// Somebody works for the session again.
    pub fn forget(&mut self, namespace: &Namespace, session: &SessionId) {
        let Some(sessions) = self.sessions.get_mut(namespace) else { return };
        let Some((agent_id, age)) = sessions.remove(session) else { return };
        if sessions.is_empty() {
            self.sessions.remove(namespace);
        }
        self.ages.remove(&age);
        let agent = AgentKey { namespace: namespace.clone(), agent_id };
        if let Some(of_agent) = self.agents.get_mut(&agent) {
            of_agent.remove(session);
            if of_agent.is_empty() {
                self.agents.remove(&agent);
            }
        }
        self.changed.insert(agent);
    }

    /// The agent's process is gone, or is about to go.
    pub fn forget_agent(&mut self, agent: &AgentKey) {
        for session in self.agents.remove(agent).into_iter().flatten() {
            self.forget(&agent.namespace, &session);
        }
    }

    /// Forgets whatever is too old.
    pub fn expire(&mut self, now: Timestamp) {
        while self.ages.first_key_value().is_some_and(|((since, _), _)| since.after(LIFE) <= now) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, (namespace, session))) = self.ages.pop_first() {
            self.forget(&namespace, &session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentKey {
        AgentKey { namespace: namespace(), agent_id: AgentId::new(name).unwrap() }
    }

    fn namespace() -> Namespace {
        Namespace::new("n").unwrap()
    }

    fn session(n: usize) -> SessionId {
        SessionId::new(&format!("s-{n}")).unwrap()
    }

    #[test]
    fn a_sessions_last_agent_is_forgotten_after_ten_minutes() {
        let mut last = LastHolders::default();
        last.remember(&agent("a"), &session(1), Timestamp(5));
        last.remember(&agent("a"), &session(2), Timestamp(6));
        last.expire(Timestamp(LIFE.0 + 4));
        assert_eq!(last.of(&namespace(), &session(1)), Some(&agent("a").agent_id));
        last.expire(Timestamp(LIFE.0 + 5));
        assert_eq!((last.of(&namespace(), &session(1)), last.len()), (None, 1));
    }

    #[test]
    fn no_more_sessions_are_remembered_than_the_bound_and_the_oldest_goes_first() {
        let mut last = LastHolders::default();
        for n in 0..=MAX_SESSIONS {
            last.remember(&agent("a"), &session(n), Timestamp(0));
        }
        assert_eq!(last.len(), MAX_SESSIONS);
        assert_eq!(last.of(&namespace(), &session(0)), None);
        assert!(
            last.of(&namespace(), &session(1)).is_some() && last.of(&namespace(), &session(MAX_SESSIONS)).is_some()
        );
    }

    #[test]
    fn nothing_is_left_of_an_agent_that_is_gone_or_of_a_session_that_has_another() {
        let mut last = LastHolders::default();
        last.remember(&agent("a"), &session(1), Timestamp(1));
        last.remember(&agent("b"), &session(1), Timestamp(2));
        last.remember(&agent("a"), &session(2), Timestamp(3));
        last.forget_agent(&agent("a"));
        assert_eq!(last.of(&namespace(), &session(1)), Some(&agent("b").agent_id));
        last.forget(&namespace(), &session(1));
        assert!(last.is_empty() && last.sessions.is_empty() && last.agents.is_empty());
    }
}
