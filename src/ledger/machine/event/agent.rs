//! Events of agents: who takes part, who is alive.

use crate::ledger::ids::{AgentId, AttemptNo, Incarnation, ReachId};
use crate::ledger::machine::agent::{Declaration, DrainMode};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

event_structs! {
    /// A process registered under an agent id for the first time, or replaced an older one.
    AgentRegistered {
        /// Which agent.
        agent: AgentId,
        /// Its new incarnation.
        incarnation: Incarnation,
        /// What the process called itself.
        instance: Option<Text>,
        /// What it declared.
        declaration: Declaration,
    }
    /// The same process declared itself anew.
    AgentUpdated {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation, unchanged.
        incarnation: Incarnation,
        /// What it declared.
        declaration: Declaration,
    }
    /// It gets no new work and may finish what runs.
    AgentDraining {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// What happens to running work.
        mode: DrainMode,
        /// End of the grace.
        until: Timestamp,
        /// Why, in the operator's words.
        reason: Option<Text>,
    }
    /// It missed some heartbeats.
    AgentUnhealthy {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Silent for how long.
        silent: Millis,
    }
    /// It beats again.
    AgentHealthy {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
    }
    /// It missed too many heartbeats: its work is orphaned.
    AgentLost {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
        /// Silent for how long.
        silent: Millis,
    }
    /// It said goodbye.
    AgentLeft {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
    }
    /// It is out of the registry, kept for audit.
    AgentDeregistered {
        /// Which agent.
        agent: AgentId,
        /// Its incarnation.
        incarnation: Incarnation,
    }
    /// A slot kept by an ended task is free again (semantics 6).
    AgentSlotFreed {
        /// Which agent.
        agent: AgentId,
        /// Which task kept it.
        task: ReachId,
        /// Under which attempt.
        attempt: AttemptNo,
    }
    /// A heartbeat's answer told it that a task ended without its word: from now on its silence frees the slot
    /// (semantics 6).
    AgentTold {
        /// Which agent.
        agent: AgentId,
        /// Which task ended.
        task: ReachId,
        /// Under which attempt it held it.
        attempt: AttemptNo,
    }
}
