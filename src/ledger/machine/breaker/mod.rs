//! A breaker: whether an agent is given tasks of one capability (R-RTE-7, semantics 9 and 15).
//!
//! Why the ledger keeps it and not the planner: an agent that fails everything must not be tried out by every start of
//! the hub, nor by two tasks at once. Only the *count* of failures is volatile and the planner's; an open breaker, its
//! end and the one task that tries the agent out are facts, and every dispatch is held against them here.
//!
//! ```text
//! closed ──five failures──► open ──10 s──► half-open ──its probe succeeds or answers──► closed
//!                            ▲                │ └── its probe ends without a word: the next one
//!                            └─its probe fails┘
//! ```
//!
//! A closed breaker is no entry, unless an operator holds it closed. What an operator said stays until another word;
//! everything else is of one process of the agent: the next one, a goodbye and a removal forget it.

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentKey, AttemptNo, Capability, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::event::{Actor, EventBody};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::spec::{Submission, Text};
use crate::ledger::machine::task::status::SlowCause;
use crate::ledger::time::{Millis, Timestamp};

/// Failures one after the other that open a breaker (R-RTE-7).
pub const OPENS_AFTER: usize = 5;
/// How long it stays open (R-RTE-7).
pub const OPEN_FOR: Millis = Millis::secs(10);

/// Which breaker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BreakerKey {
    /// Of which agent.
    pub agent: AgentKey,
    /// Of which of its capabilities; the others go on.
    pub capability: Capability,
}

/// An attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Of which task.
    pub task: ReachId,
    /// Which one.
    pub attempt: AttemptNo,
}

/// How a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stand {
    /// Nothing goes.
    Open {
        /// Until then; `None` until an operator's word.
        until: Option<Timestamp>,
    },
    /// One task at a time goes.
    HalfOpen {
        /// The one that tries the agent out now.
        probe: Option<FailedAttempt>,
    },
    /// All go, whatever fails: an operator's word.
    HeldClosed,
}

impl Stand {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::HalfOpen { .. } => "half-open",
            Self::HeldClosed => "closed",
        }
    }

    /// May a task go now?
    #[must_use]
    pub const fn lets_through(self) -> bool {
        match self {
            Self::Open { .. } | Self::HalfOpen { probe: Some(_) } => false,
            Self::HalfOpen { probe: None } | Self::HeldClosed => true,
        }
    }
}

/// An operator's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forced {
    /// Whose.
    pub by: Actor,
    /// Why.
    pub reason: Text,
}

/// A breaker that is not simply closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// How it stands.
    pub stand: Stand,
    /// Since when.
    pub since: Timestamp,
    /// The attempts that opened it last, oldest first, at most [`OPENS_AFTER`].
    pub failures: Vec<FailedAttempt>,
    /// The operator's word that holds it, if one does.
    pub forced: Option<Forced>,
}

impl Breaker {
    /// When it moves by itself.
    #[must_use]
    pub const fn wake_at(&self) -> Option<Timestamp> {
        match self.stand {
            Stand::Open { until } => until,
            Stand::HalfOpen { .. } | Stand::HeldClosed => None,
        }
    }
}

/// What an operator can say to a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerWord {
    /// Open until another word.
    Open,
    /// Closed, whatever fails, until another word.
    Closed,
    /// As the rule has it.
    Automatic,
}

/// What an event says of the agent that held its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It did what it should.
    Succeeded,
    /// Its failure, of a class that counts.
    Failed,
    /// It answered with a failure that is not its own: that neither counts nor resets (semantics 15).
    Answered,
}

/// Does a failure of that class count (semantics 15)?
#[must_use]
pub const fn counts(class: FailureClass) -> bool {
    match class {
        FailureClass::Network | FailureClass::AgentOverload | FailureClass::AgentCrash | FailureClass::AgentTimeout => {
            true
        }
        FailureClass::Business
        | FailureClass::Schema
        | FailureClass::Policy
        | FailureClass::Hub
        | FailureClass::CallerCancelled => false,
    }
}

/// What a task's event says of the agent that held it; `None` if nothing.
///
/// An end that the task itself brought (its deadline, a cancellation) or that the hub or an operator gave it says
/// nothing, and nor does the loss of the agent, which liveness judges. A work time that a waiting caller cut short is the
/// caller's (R-RTE-7: it trips no breaker upstream).
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the kinds that speak of an agent; the rest do not")]
pub fn verdict(body: &EventBody, spec: &Submission) -> Option<Verdict> {
    let of_class = |class| if counts(class) { Verdict::Failed } else { Verdict::Answered };
    let is_callers_time = spec.sync_wait.is_some();
    match body {
        EventBody::TaskSucceeded(_) => Some(Verdict::Succeeded),
        EventBody::TaskFailed(body) => Some(of_class(body.failure.class)),
        EventBody::TaskSlow(body) => match body.cause {
            SlowCause::Ambiguous => Some(Verdict::Failed),
            SlowCause::Overdue => (!is_callers_time).then_some(Verdict::Failed),
        },
        EventBody::TaskAttemptFailed(body) => {
            let is_agents_word = body.outcome.is_some();
            match of_class(body.failure.class) {
                Verdict::Failed if !is_agents_word && &*body.failure.code == "overdue" && is_callers_time => None,
                Verdict::Answered if !is_agents_word => None,
                verdict => Some(verdict),
            }
        }
        _ => None,
    }
}

/// Breakers that are not simply closed: by agent, then by capability.
pub type Breakers = BTreeMap<AgentKey, BTreeMap<Capability, Breaker>>;

impl State {
    /// A breaker that is not simply closed.
    #[must_use]
    pub fn breaker(&self, key: &BreakerKey) -> Option<&Breaker> {
        self.breakers.get(&key.agent)?.get(&key.capability)
    }

    /// Every breaker that is not simply closed.
    #[must_use]
    pub const fn breakers(&self) -> &Breakers {
        &self.breakers
    }

    /// Those of one agent, by capability.
    pub fn breakers_of(&self, agent: &AgentKey) -> impl Iterator<Item = (&Capability, &Breaker)> {
        self.breakers.get(agent).into_iter().flatten()
    }
}
