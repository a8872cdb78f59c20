//! An agent: its declaration, its incarnation and its standing. Its pulse (heartbeats, load) is volatile and lives in
//! the scheduler's vitals; only consequences are facts.

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod properties;
pub mod size;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentId, AgentKey, AttemptNo, Capability, Digest, Incarnation, ReachId, TokenId};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

/// The most capabilities one agent may declare.
pub const MAX_CAPABILITIES: usize = 256;
/// The most tasks one agent may work on at a time.
pub const MAX_CONCURRENCY: u32 = 10_000;
/// The most tasks that one agent may let wait for it; without its word only the lanes are bounded.
pub const MAX_PENDING: u32 = 1_000_000;
/// A ghost slot is freed after 30 s at the latest (semantics 6).
pub const GHOST_SLOT: Millis = Millis::secs(30);
/// Running work may finish for 30 s while draining (R-REG-7).
pub const DEFAULT_DRAIN_GRACE: Millis = Millis::secs(30);

/// How the hub reaches an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// The agent claims work by long-poll.
    Pull,
    /// The hub posts to the endpoint.
    Http {
        /// An absolute http or https URL that passed the egress guard.
        endpoint: Text,
    },
}

/// What a capability is behind (R-REG-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CapabilityKind {
    /// `tool`
    Tool,
    /// `service`
    Service,
    /// `subagent`
    Subagent,
    /// `skill`
    Skill,
}

/// How one agent is chosen among candidates (R-RTE-3). Variants are only ever added at the end: their order is in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Smooth weighted round-robin, the default.
    WeightedRoundRobin,
    /// In flight and reported queue depth over capacity.
    LeastLoaded,
    /// The same key goes to the same agent: the session, or another key of the task.
    ConsistentHash,
    /// Points for capability and priority, less for load and failures (R-RTE-4).
    Scored,
}

impl Strategy {
    /// Every strategy; of two that as many agents ask for the first holds.
    pub const ALL: [Self; 4] = [Self::WeightedRoundRobin, Self::LeastLoaded, Self::ConsistentHash, Self::Scored];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WeightedRoundRobin => "weighted-round-robin",
            Self::LeastLoaded => "least-loaded",
            Self::ConsistentHash => "consistent-hash",
            Self::Scored => "scored",
        }
    }
}

/// Tasks that an agent has in flight at most, unless it says so.
pub const DEFAULT_CONCURRENCY: u32 = 10;
/// The weight of an offer that names none.
pub const DEFAULT_WEIGHT: u32 = 10;
/// The priority of an agent, and of an offer, that names none.
pub const DEFAULT_PRIORITY: u32 = 100;

/// Does task progress extend the work time? The capability's word (R-SCH-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgressRule {
    /// Progress is only shown.
    Shows,
    /// Each progress starts the work time anew.
    Extends,
}

/// The part of a declared capability that rules and routing need; the whole declaration lies beside the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// `domain.task_type`
    pub capability: Capability,
    /// What is behind it.
    pub kind: CapabilityKind,
    /// Digests of the JSON Schemas that a payload must pass: input schema and constraints.
    pub schemas: Vec<Digest>,
    /// Tools it has.
    pub tools: Vec<Text>,
    /// Languages it speaks.
    pub languages: Vec<Text>,
    /// Its context window.
    pub context_window: Option<u32>,
    /// Share of work in weighted round-robin, 1 to 1,000.
    pub weight: u32,
    /// Higher is preferred in scoring, 0 to 1,000.
    pub priority: u32,
    /// Its own strategy.
    pub strategy: Option<Strategy>,
    /// Does progress extend the work time?
    pub progress: ProgressRule,
    /// Tasks of it wait for a person's word.
    pub sensitive: Sensitive,
}

/// Whether a capability's tasks wait for approval (R-SUB-9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sensitive {
    /// They wait.
    Yes,
    /// They do not.
    No,
}

/// What an agent declares about itself, as far as rules and routing need it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// The agent's version, kept apart from its id.
    pub version: Option<Text>,
    /// Where it runs.
    pub region: Option<Text>,
    /// What it offers.
    pub offers: Vec<Offer>,
    /// How it is reached.
    pub transport: Transport,
    /// Heartbeat interval, 100 ms to 1 h; default 5 s.
    pub heartbeat_interval: Millis,
    /// Never more in flight (R-SCH-3), 1 to 10,000; default 10.
    pub max_concurrency: u32,
    /// Tasks that it lets wait for it and holds, 1 to [`MAX_PENDING`], which is the default (semantics 22). A
    /// submission is refused once its capability's pending tasks reach the sum over all who offer it.
    pub max_pending: u32,
    /// Higher is preferred in scoring.
    pub priority: u32,
    /// Load above which it gets nothing, in thousandths; default 900.
    pub load_threshold_milli: u32,
    /// Tokens that may reach it; empty means all of its namespace.
    pub allowed_callers: Vec<TokenId>,
    /// Digest of the whole declaration, which lies beside the log.
    pub body: Digest,
}

impl Declaration {
    /// May this token reach the agent? One that lets nobody in by name lets everybody in; a task whose submitter is not
    /// known goes to such an agent only.
    #[must_use]
    pub fn serves(&self, token: Option<&TokenId>) -> bool {
        self.allowed_callers.is_empty() || token.is_some_and(|token| self.allowed_callers.contains(token))
    }

    /// Tasks that it may hold at a time: `max_concurrency`, and never more than its `max_pending` (semantics 22).
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.max_concurrency.min(self.max_pending)
    }
}

/// Is it alive? Judged by missed heartbeats (R-REG-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// Beating.
    Healthy,
    /// Missed some: no new work.
    Unhealthy,
    /// Missed many: its work is orphaned.
    Lost,
}

impl Health {
    /// Name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
            Self::Lost => "lost",
        }
    }
}

/// What happens to running work when an agent drains (semantics 40).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainMode {
    /// It may finish within the grace.
    Finish,
    /// It is handed over now.
    HandOver,
}

/// Does it take part?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// Yes.
    Active,
    /// No new work; deregistered when nothing is left or at `until`.
    Draining {
        /// End of the grace.
        until: Timestamp,
    },
    /// It said goodbye (R-REG-6); kept for audit, a new registration brings it back.
    Offline,
    /// Drained or deleted; kept for audit, a new registration brings it back.
    Deregistered,
}

impl Standing {
    /// Name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draining { .. } => "draining",
            Self::Offline => "offline",
            Self::Deregistered => "deregistered",
        }
    }
}

/// One agent as the fold sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Who.
    pub key: AgentKey,
    /// Its current process.
    pub incarnation: Incarnation,
    /// What its current process called itself; the same instance keeps its incarnation (semantics 2).
    pub instance: Option<Text>,
    /// What it declared.
    pub declaration: Arc<Declaration>,
    /// Is it alive?
    pub health: Health,
    /// Does it take part?
    pub standing: Standing,
    /// Tasks whose valid lease is with it, whatever incarnation took them.
    pub held: BTreeSet<ReachId>,
    /// Slots kept by tasks that ended under an acknowledged lease without its word, until then at the latest (semantics 6).
    pub ghosts: BTreeMap<(ReachId, AttemptNo), Timestamp>,
    /// Those ghosts of which a heartbeat's answer has told it (semantics 6).
    pub told: BTreeSet<(ReachId, AttemptNo)>,
    /// First registration.
    pub registered_at: Timestamp,
    /// When it last became healthy again after a loss.
    pub returned_at: Option<Timestamp>,
}

impl Agent {
    /// Slots in use: valid leases and ghosts (S8).
    #[must_use]
    pub fn slots_used(&self) -> usize {
        self.held.len() + self.ghosts.len()
    }

    /// Slots that a dispatch may still take.
    #[must_use]
    pub fn slots_free(&self) -> usize {
        let bound = usize::try_from(self.declaration.slots()).unwrap_or(usize::MAX);
        bound.saturating_sub(self.slots_used())
    }

    /// May it be given new work, as far as its own standing goes (S7)?
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.health == Health::Healthy && self.standing == Standing::Active
    }

    /// Its offer of that capability.
    #[must_use]
    pub fn offer(&self, capability: &Capability) -> Option<&Offer> {
        self.declaration.offers.iter().find(|offer| offer.capability == *capability)
    }

    /// When it must be looked at next: the drain's end or the oldest ghost's.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        let drain = match self.standing {
            Standing::Draining { until } => Some(until),
            Standing::Active | Standing::Offline | Standing::Deregistered => None,
        };
        drain.into_iter().chain(self.ghosts.values().copied()).min()
    }

    /// Its id alone.
    #[must_use]
    pub fn id(&self) -> &AgentId {
        &self.key.agent_id
    }
}
