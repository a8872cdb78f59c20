//! Events of breakers: whether an agent is given tasks of one capability (R-RTE-7).

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentId, Capability, Incarnation};
use crate::ledger::machine::breaker::FailedAttempt;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

/// Why a breaker opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OpenedWhy {
    /// So many attempts failed one after the other.
    Failures,
    /// The one that tried it out failed.
    ProbeFailed,
    /// An operator opened it: until another word.
    Operator {
        /// Why, in the operator's words.
        reason: Text,
    },
}

/// Why a breaker lets one task through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HalfOpenedWhy {
    /// Its time is over.
    TimeOver,
    /// The one that tried it out ended without a word on the agent: another may.
    ProbeSilent,
    /// An operator gave it back, and nobody knows how the agent is.
    Operator {
        /// Why, in the operator's words.
        reason: Text,
    },
}

/// Why a breaker closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClosedWhy {
    /// The one that tried it out succeeded.
    ProbeSucceeded,
    /// The one that tried it out failed for a reason of its own: its agent answers.
    ProbeAnswered,
    /// An operator holds it closed: failures do not open it until another word.
    Operator {
        /// Why, in the operator's words.
        reason: Text,
    },
    /// An operator gave it back: failures count again, from none.
    GivenBack {
        /// Why, in the operator's words.
        reason: Text,
    },
}

event_structs! {
    /// The agent gets no tasks of that capability.
    BreakerOpened {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Of which capability.
        capability: Capability,
        /// Until when; `None` until an operator's word.
        until: Option<Timestamp>,
        /// The attempts that opened it, oldest first, at most five.
        failures: Vec<FailedAttempt>,
        /// Why.
        why: OpenedWhy,
    }
    /// One task of that capability may try the agent out.
    BreakerHalfOpened {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Of which capability.
        capability: Capability,
        /// Why.
        why: HalfOpenedWhy,
    }
    /// The agent gets tasks of that capability.
    BreakerClosed {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Of which capability.
        capability: Capability,
        /// Why.
        why: ClosedWhy,
    }
}
