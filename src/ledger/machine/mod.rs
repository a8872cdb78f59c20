//! The state machine: a pure fold of the ledger. docs/state-machine.md is its face.
//!
//! ```text
//! Proposal ──decide(&State, &Proposal, now)──► Decision { events, answer }
//! Event ─────apply(&mut State, &Event)───────► Ok | ImpossibleTransition
//! ```
//!
//! `decide` holds every rule and changes nothing; `apply` holds every move and no rule. [`step::step`] is the two in a row
//! with the follow-ups (a callback that became due, a batch that settled); live, boot, simulation, audit and what-if
//! all use it. Here is no clock, no chance, no I/O and no `async`: tests/architecture.rs holds that.
//!
//! Every noun is a folder of the same shape: `mod.rs` the struct, `decide.rs` the rules, `apply.rs` the moves,
//! `properties.rs` the invariants. Learn one, know all.

pub mod access;
pub mod agent;
pub mod audit;
pub mod batch;
pub mod bounds;
pub mod breaker;
pub mod callback;
mod canonical;
pub mod catalog;
pub mod command;
pub mod decision;
pub mod due;
pub mod endings;
pub mod event;
pub(in crate::ledger::machine) mod hub;
pub mod image;
pub mod index;
pub mod policy;
pub mod replay;
pub mod routing;
pub mod step;
pub mod success;
pub mod task;
#[cfg(test)]
pub(in crate::ledger::machine) mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{
    AgentId, AgentKey, BatchId, Boot, CallbackId, Capability, Digest, Lineage, Namespace, ReachId, ReplayId, Seq,
    TokenId,
};
use crate::ledger::time::Timestamp;

use access::Access;
use agent::Agent;
use batch::Batch;
use bounds::Census;
use breaker::Breakers;
use callback::Callback;
use catalog::Catalog;
use due::Due;
use endings::Endings;
use event::{EventKind, HeldWhy};
use index::Departed;
use policy::{HubPolicy, Policies, RulesByCapability};
use replay::Replay;
use routing::RoutingByCapability;
use success::{Origin, Successes};
use task::spec::Text;
use task::status::StatusKind;
use task::{LaneId, Task};

/// What an idempotency key is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeySubject {
    /// A single submission.
    Task(ReachId),
    /// A batch.
    Batch(BatchId),
    /// A replay plan.
    Replay(ReplayId),
}

/// A bound idempotency key, as the store keeps it (semantics 31).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyBinding {
    /// Bound to what.
    pub bound_to: KeySubject,
    /// Fingerprint of the first body.
    pub fingerprint: Digest,
    /// Who used it.
    pub subject: TokenId,
    /// The first answer's receipt.
    pub receipt: Seq,
    /// When it is forgotten.
    pub until: Timestamp,
}

/// What a shell read from disk right before a decision (semantics 16).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// The task has ended and left memory; this is its final row.
    Finished(Arc<Task>),
}

/// What a task was made of, and what was made of it (semantics 40).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kin {
    /// The ended task that it was made of.
    pub redrive_of: Option<ReachId>,
    /// The new task that was made of it.
    pub redriven_as: Option<ReachId>,
}

/// Tasks of one namespace, by state, while they are in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceCount {
    /// By state; ended ones count while a callback of theirs is open.
    pub by_state: BTreeMap<StatusKind, u32>,
    /// Tasks by capability that wait for an agent or are with one: what the agents' `max_pending` bounds.
    pub pending: BTreeMap<Capability, u32>,
}

impl NamespaceCount {
    /// Tasks in memory: what the namespace bound counts.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.by_state.values().sum()
    }
}

/// The fold of the ledger up to [`State::seq`].
///
/// Everything unfinished is here; what has ended is in the store's rows. What was decided but is not yet durable stays
/// in the `departed_*` and `keys` areas until its commit returns, and is asked first, so there is no window in which a
/// reader or a decision misses it (semantics 16). [`State::forget_up_to`] empties them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub(in crate::ledger::machine) lineage: Lineage,
    pub(in crate::ledger::machine) boot: Boot,
    pub(in crate::ledger::machine) seq: Seq,
    pub(in crate::ledger::machine) at: Timestamp,
    pub(in crate::ledger::machine) wall_offset: i64,
    pub(in crate::ledger::machine) tasks: BTreeMap<ReachId, Arc<Task>>,
    pub(in crate::ledger::machine) agents: BTreeMap<AgentKey, Agent>,
    /// Those that are not simply closed.
    pub(in crate::ledger::machine) breakers: Breakers,
    pub(in crate::ledger::machine) callbacks: BTreeMap<CallbackId, Callback>,
    pub(in crate::ledger::machine) batches: BTreeMap<BatchId, Batch>,
    pub(in crate::ledger::machine) replays: BTreeMap<ReplayId, Arc<Replay>>,
    /// Of tasks in memory, and of those that are on their way out of it.
    pub(in crate::ledger::machine) kin: BTreeMap<ReachId, Kin>,
    /// Where the chains of redrives began that those end.
    pub(in crate::ledger::machine) origins: BTreeMap<ReachId, Origin>,
    /// Orphans that wait for a word although their policy is to be replayed.
    pub(in crate::ledger::machine) held: BTreeMap<ReachId, HeldWhy>,
    pub(in crate::ledger::machine) access: Arc<Access>,
    pub(in crate::ledger::machine) policies: Arc<Policies>,
    pub(in crate::ledger::machine) capability_rules: Arc<RulesByCapability>,
    pub(in crate::ledger::machine) routing_rules: Arc<RoutingByCapability>,
    pub(in crate::ledger::machine) hub_policy: HubPolicy,
    /// Counted once, at the end of each task; what has ended leaves memory.
    pub(in crate::ledger::machine) endings: BTreeMap<Namespace, Endings>,
    // Derived from the above; rebuilt when a snapshot is read.
    pub(in crate::ledger::machine) due: Due,
    pub(in crate::ledger::machine) catalog: Arc<Catalog>,
    pub(in crate::ledger::machine) lanes: BTreeMap<LaneId, u32>,
    pub(in crate::ledger::machine) counts: BTreeMap<Namespace, NamespaceCount>,
    pub(in crate::ledger::machine) census: BTreeMap<Namespace, Census>,
    pub(in crate::ledger::machine) pushes: BTreeSet<ReachId>,
    pub(in crate::ledger::machine) unacked: BTreeMap<AgentKey, BTreeSet<ReachId>>,
    pub(in crate::ledger::machine) orphans: BTreeSet<(Timestamp, ReachId)>,
    pub(in crate::ledger::machine) successes: Successes,
    pub(in crate::ledger::machine) callbacks_due: BTreeSet<(Timestamp, CallbackId)>,
    pub(in crate::ledger::machine) draining: BTreeSet<AgentKey>,
    // Decided, not yet durable: not part of the digest. Changed by `index.rs` only.
    pub(in crate::ledger::machine) departed: BTreeMap<ReachId, Departed<Arc<Task>>>,
    pub(in crate::ledger::machine) departed_batches: BTreeMap<BatchId, Departed<Batch>>,
    pub(in crate::ledger::machine) departed_callbacks: BTreeMap<CallbackId, Departed<Callback>>,
    pub(in crate::ledger::machine) keys: BTreeMap<(Namespace, Text), KeyBinding>,
    pub(in crate::ledger::machine) departed_replays: BTreeMap<ReplayId, Departed<Arc<Replay>>>,
    pub(in crate::ledger::machine) after: Vec<(ReachId, Seq, EventKind)>,
    pub(in crate::ledger::machine) redriven: BTreeMap<ReachId, (Seq, ReachId)>,
}

/// Reading. Nothing outside the machine can change a state but by [`step::step`] and [`step::apply`].
impl State {
    /// The history that it folds.
    #[must_use]
    pub const fn lineage(&self) -> Lineage {
        self.lineage
    }

    /// The current start of the hub.
    #[must_use]
    pub const fn boot(&self) -> Boot {
        self.boot
    }

    /// The last event folded.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// Ledger time of that event.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Wall clock minus ledger time, in milliseconds, as last recorded.
    #[must_use]
    pub const fn wall_offset(&self) -> i64 {
        self.wall_offset
    }

    /// A task in memory: unfinished, or ended with an open callback, or ended and not yet durable.
    #[must_use]
    pub fn task(&self, id: ReachId) -> Option<&Task> {
        self.tasks.get(&id).or_else(|| self.departed.get(&id).map(|gone| &gone.value)).map(Arc::as_ref)
    }

    /// Every task that is unfinished or has an open callback, by id. Shared, so that a row or an image of it costs no
    /// copy and the map moves no whole tasks.
    #[must_use]
    pub const fn tasks(&self) -> &BTreeMap<ReachId, Arc<Task>> {
        &self.tasks
    }

    /// One agent.
    #[must_use]
    pub fn agent(&self, key: &AgentKey) -> Option<&Agent> {
        self.agents.get(key)
    }

    /// Every agent ever registered.
    #[must_use]
    pub const fn agents(&self) -> &BTreeMap<AgentKey, Agent> {
        &self.agents
    }

    /// Those of one namespace, by id.
    pub fn agents_of<'a>(&'a self, namespace: &'a Namespace) -> impl Iterator<Item = (&'a AgentKey, &'a Agent)> + 'a {
        // The first character of the alphabet alone: the least id that there can be.
        let least = AgentId::new("-").ok().map(|agent_id| AgentKey { namespace: namespace.clone(), agent_id });
        let here = least.map(|least| self.agents.range(least..)).into_iter().flatten();
        here.take_while(move |(key, _)| key.namespace == *namespace)
    }

    /// Who offers what.
    #[must_use]
    pub const fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Agents that declare the capability and are neither offline nor deregistered (semantics 34).
    pub fn providers<'a>(
        &'a self,
        namespace: &'a Namespace,
        capability: &Capability,
    ) -> impl Iterator<Item = &'a Agent> + 'a {
        let names = self.catalog.of(namespace, capability).map(|entry| &entry.providers);
        names.into_iter().flatten().filter_map(move |agent_id| {
            self.agents.get(&AgentKey { namespace: namespace.clone(), agent_id: agent_id.clone() })
        })
    }

    /// A batch that has not settled, or has and is not yet durable, or has an open callback.
    #[must_use]
    pub fn batch(&self, id: BatchId) -> Option<&Batch> {
        self.batches.get(&id).or_else(|| self.departed_batches.get(&id).map(|gone| &gone.value))
    }

    /// Every such batch.
    #[must_use]
    pub const fn batches(&self) -> &BTreeMap<BatchId, Batch> {
        &self.batches
    }

    /// A replay plan that has not ended, or has and is not yet durable.
    #[must_use]
    pub fn replay(&self, id: ReplayId) -> Option<&Replay> {
        self.replays.get(&id).or_else(|| self.departed_replays.get(&id).map(|gone| &gone.value)).map(Arc::as_ref)
    }

    /// Every plan that has not ended.
    #[must_use]
    pub const fn replays(&self) -> &BTreeMap<ReplayId, Arc<Replay>> {
        &self.replays
    }

    /// What a task in memory was made of, and what was made of it.
    #[must_use]
    pub fn kin(&self, id: ReachId) -> Kin {
        self.kin.get(&id).copied().unwrap_or_default()
    }

    /// The task that was made of this one, as far as memory knows: one that left it has this in its history.
    #[must_use]
    pub fn redriven_as(&self, id: ReachId) -> Option<ReachId> {
        self.kin(id).redriven_as.or_else(|| self.redriven.get(&id).map(|(_, successor)| *successor))
    }

    /// A callback that is due, or settled and not yet durable.
    #[must_use]
    pub fn callback(&self, id: CallbackId) -> Option<&Callback> {
        self.callbacks.get(&id).or_else(|| self.departed_callbacks.get(&id).map(|gone| &gone.value))
    }

    /// Every due callback.
    #[must_use]
    pub const fn callbacks(&self) -> &BTreeMap<CallbackId, Callback> {
        &self.callbacks
    }

    /// Due callbacks by the time of their next try.
    #[must_use]
    pub const fn callbacks_due(&self) -> &BTreeSet<(Timestamp, CallbackId)> {
        &self.callbacks_due
    }

    /// Tokens that are not revoked.
    #[must_use]
    pub const fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Rules by namespace.
    #[must_use]
    pub const fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// Rules by capability.
    #[must_use]
    pub const fn capability_rules(&self) -> &Arc<RulesByCapability> {
        &self.capability_rules
    }

    /// The rules of the whole hub.
    #[must_use]
    pub const fn hub_policy(&self) -> HubPolicy {
        self.hub_policy
    }

    /// How the tasks of a namespace ended, since its first.
    #[must_use]
    pub fn endings(&self, namespace: &Namespace) -> Endings {
        self.endings.get(namespace).cloned().unwrap_or_default()
    }

    /// The one timer index.
    #[must_use]
    pub const fn due(&self) -> &Due {
        &self.due
    }

    /// How many tasks are queued in a lane.
    #[must_use]
    pub fn lane_len(&self, lane: LaneId) -> u32 {
        self.lanes.get(&lane).copied().unwrap_or(0)
    }

    /// Tasks in memory by namespace and state.
    #[must_use]
    pub const fn counts(&self) -> &BTreeMap<Namespace, NamespaceCount> {
        &self.counts
    }

    /// Pushes handed over and not acknowledged.
    #[must_use]
    pub const fn pushes(&self) -> &BTreeSet<ReachId> {
        &self.pushes
    }

    /// Tasks that a pull agent, whichever process of it, was handed and has not acknowledged.
    pub fn unacknowledged(&self, agent: &AgentKey) -> impl Iterator<Item = &Task> {
        self.unacked.get(agent).into_iter().flatten().filter_map(|id| self.task(*id))
    }

    /// Orphaned tasks, oldest first.
    #[must_use]
    pub const fn orphans(&self) -> &BTreeSet<(Timestamp, ReachId)> {
        &self.orphans
    }

    /// A key bound by a decision that is not yet durable.
    #[must_use]
    pub fn key(&self, namespace: &Namespace, key: &Text) -> Option<&KeyBinding> {
        self.keys.get(&(namespace.clone(), key.clone()))
    }
}
