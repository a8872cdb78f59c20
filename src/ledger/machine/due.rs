//! The one timer index: (when, whose). Every unfinished task, every waiting agent and every open breaker stands in it exactly once (T3).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentKey, ReachId};
use crate::ledger::machine::breaker::BreakerKey;
use crate::ledger::time::Timestamp;

/// Whose timer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Subject {
    /// A task's state timer or deadline.
    Task(ReachId),
    /// An agent's drain grace or oldest ghost slot.
    Agent(AgentKey),
    /// An open breaker's end.
    Breaker(BreakerKey),
}

/// All timers, earliest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    order: BTreeSet<(Timestamp, Subject)>,
    when: BTreeMap<Subject, Timestamp>,
}

impl Due {
    /// Sets, moves or removes the subject's one timer.
    pub fn set(&mut self, subject: Subject, at: Option<Timestamp>) {
        if let Some(old) = self.when.get(&subject).copied() {
            if Some(old) == at {
                return;
            }
            self.order.remove(&(old, subject.clone()));
        }
        match at {
            Some(at) => {
                self.order.insert((at, subject.clone()));
                self.when.insert(subject, at);
            }
            None => {
                self.when.remove(&subject);
            }
        }
    }

    /// The earliest moment at which something is due.
    #[must_use]
    pub fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }

    /// The earliest subject that is due by `now`.
    #[must_use]
    pub fn due_by(&self, now: Timestamp) -> Option<&Subject> {
        self.order.first().filter(|(at, _)| *at <= now).map(|(_, subject)| subject)
    }

    /// When the subject is due.
    #[must_use]
    pub fn of(&self, subject: &Subject) -> Option<Timestamp> {
        self.when.get(subject).copied()
    }

    /// How many timers run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Does none run?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_timer_is_due_once_at_its_new_time() {
        let mut due = Due::default();
        let subject = Subject::Task(ReachId([1; 16]));
        due.set(subject.clone(), Some(Timestamp(50)));
        due.set(subject.clone(), Some(Timestamp(20)));
        assert_eq!(due.len(), 1);
        assert_eq!(due.due_by(Timestamp(19)), None);
        assert_eq!(due.due_by(Timestamp(20)), Some(&subject));
        due.set(subject, None);
        assert!(due.is_empty());
    }
}
