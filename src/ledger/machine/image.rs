//! The state as plain data, for snapshots and digests: everything that is not derived.
//!
//! A snapshot is the fold cut short: [`State::from_image`] and the tail must give what the whole fold gives (D4). What
//! is derived is not written but rebuilt, so that an index can never come back wrong from a disk.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{Boot, Digest, Lineage, Namespace, ReachId, Seq};
use crate::ledger::machine::access::Access;
use crate::ledger::machine::agent::Agent;
use crate::ledger::machine::agent::apply::rebuild;
use crate::ledger::machine::batch::Batch;
use crate::ledger::machine::breaker::apply::restore;
use crate::ledger::machine::breaker::{Breaker, BreakerKey};
use crate::ledger::machine::callback::Callback;
use crate::ledger::machine::endings::Endings;
use crate::ledger::machine::event::HeldWhy;
use crate::ledger::machine::policy::{HubPolicy, Policies, RulesByCapability};
use crate::ledger::machine::replay::Replay;
use crate::ledger::machine::routing::RoutingByCapability;
use crate::ledger::machine::success::Origin;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::{Kin, State, canonical};
use crate::ledger::time::Timestamp;

/// Everything of a [`State`] that is not derived, in the order of its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateImage {
    /// The history that it folds.
    pub lineage: Lineage,
    /// The start of the hub.
    pub boot: Boot,
    /// The last event folded.
    pub seq: Seq,
    /// Its time.
    pub at: Timestamp,
    /// Wall clock minus ledger time, in milliseconds.
    pub wall_offset: i64,
    /// Tasks that are unfinished or have an open callback.
    pub tasks: Vec<Arc<Task>>,
    /// Every agent.
    pub agents: Vec<Agent>,
    /// Due callbacks.
    pub callbacks: Vec<Callback>,
    /// Batches that have not settled or have an open callback.
    pub batches: Vec<Batch>,
    /// Tokens.
    pub access: Arc<Access>,
    /// Rules.
    pub policies: Arc<Policies>,
    /// Replay plans that have not ended.
    pub replays: Vec<Arc<Replay>>,
    /// Who was made of whom, of the tasks above.
    pub kin: Vec<(ReachId, Kin)>,
    /// Rules by capability.
    pub capability_rules: Arc<RulesByCapability>,
    /// Where the chains of redrives began that the tasks above end.
    pub origins: Vec<(ReachId, Origin)>,
    /// Orphans that wait for a word although their policy is to be replayed.
    pub held: Vec<(ReachId, HeldWhy)>,
    /// The rules of the whole hub.
    pub hub_policy: HubPolicy,
    /// How tasks ended.
    pub endings: Vec<(Namespace, Endings)>,
    /// Breakers that are not simply closed.
    pub breakers: Vec<(BreakerKey, Breaker)>,
    /// Routing rules.
    pub routing_rules: Arc<RoutingByCapability>,
}

/// What version 1 of the image held, in its order.
#[derive(Serialize)]
struct First<'a> {
    lineage: Lineage,
    boot: Boot,
    seq: Seq,
    at: Timestamp,
    wall_offset: i64,
    tasks: &'a [Arc<Task>],
    agents: &'a [Agent],
    callbacks: &'a [Callback],
    batches: &'a [Batch],
    access: &'a Access,
    policies: &'a Policies,
}

impl StateImage {
    /// The digest of the state that it is of, as [`State::digest`] gives it. Where nothing of a later version is in it,
    /// it is the digest that the versions before gave.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let first = canonical::digest(&First {
            lineage: self.lineage,
            boot: self.boot,
            seq: self.seq,
            at: self.at,
            wall_offset: self.wall_offset,
            tasks: &self.tasks,
            agents: &self.agents,
            callbacks: &self.callbacks,
            batches: &self.batches,
            access: &self.access,
            policies: &self.policies,
        });
        let second = if self.replays.is_empty() && self.kin.is_empty() && self.capability_rules.is_empty() {
            first
        } else {
            Digest::of(&[&first.0, &canonical::digest(&(&self.replays, &self.kin, &self.capability_rules)).0])
        };
        let third = if self.origins.is_empty() && self.held.is_empty() {
            second
        } else {
            Digest::of(&[&second.0, &canonical::digest(&(&self.origins, &self.held)).0])
        };
        let fourth = if self.hub_policy == HubPolicy::default() && self.endings.is_empty() {
            third
        } else {
            Digest::of(&[&third.0, &canonical::digest(&(&self.hub_policy, &self.endings)).0])
        };
        let fifth = if self.breakers.is_empty() {
            fourth
        } else {
            Digest::of(&[&fourth.0, &canonical::digest(&self.breakers).0])
        };
        if self.routing_rules.is_empty() {
            return fifth;
        }
        Digest::of(&[&fifth.0, &canonical::digest(&self.routing_rules).0])
    }
}

impl State {
    /// How many things an image of it holds.
    #[must_use]
    pub fn image_len(&self) -> usize {
        let items: usize = self.replays.values().map(|replay| replay.outcomes.len()).sum();
        // An item of a plan is a byte, a task some hundred.
        self.tasks.len() + self.agents.len() + self.callbacks.len() + self.batches.len() + items / 512
    }

    /// The state as plain data. What has ended and is not yet durable is left out: it belongs to the rows.
    #[must_use]
    pub fn to_image(&self) -> StateImage {
        StateImage {
            lineage: self.lineage,
            boot: self.boot,
            seq: self.seq,
            at: self.at,
            wall_offset: self.wall_offset,
            tasks: self.tasks.values().cloned().collect(),
            agents: self.agents.values().cloned().collect(),
            callbacks: self.callbacks.values().cloned().collect(),
            batches: self.batches.values().cloned().collect(),
            access: Arc::clone(&self.access),
            policies: Arc::clone(&self.policies),
            capability_rules: Arc::clone(&self.capability_rules),
            routing_rules: Arc::clone(&self.routing_rules),
            replays: self.replays.values().cloned().collect(),
            origins: self
                .origins
                .iter()
                .filter(|(id, _)| self.tasks.contains_key(id))
                .map(|(id, o)| (*id, *o))
                .collect(),
            held: self.held.iter().map(|(id, why)| (*id, *why)).collect(),
            hub_policy: self.hub_policy,
            endings: self.endings.iter().map(|(name, endings)| (name.clone(), endings.clone())).collect(),
            breakers: self
                .breakers
                .iter()
                .flat_map(|(agent, breakers)| breakers.iter().map(move |of| (agent, of)))
                .map(|(agent, (capability, breaker))| {
                    (BreakerKey { agent: agent.clone(), capability: capability.clone() }, breaker.clone())
                })
                .collect(),
            kin: self.kin.iter().filter(|(id, _)| self.tasks.contains_key(id)).map(|(id, kin)| (*id, *kin)).collect(),
        }
    }

    /// The state of an image, with everything derived built anew.
    #[must_use]
    pub fn from_image(image: StateImage) -> Self {
        let mut state = Self {
            lineage: image.lineage,
            boot: image.boot,
            seq: image.seq,
            at: image.at,
            wall_offset: image.wall_offset,
            agents: image.agents.into_iter().map(|agent| (agent.key.clone(), agent)).collect(),
            callbacks: image.callbacks.into_iter().map(|callback| (callback.id, callback)).collect(),
            batches: image.batches.into_iter().map(|batch| (batch.id, batch)).collect(),
            access: image.access,
            policies: image.policies,
            capability_rules: image.capability_rules,
            routing_rules: image.routing_rules,
            replays: image.replays.into_iter().map(|replay| (replay.id, replay)).collect(),
            kin: image.kin.into_iter().collect(),
            origins: image.origins.into_iter().collect(),
            held: image.held.into_iter().collect(),
            hub_policy: image.hub_policy,
            endings: image.endings.into_iter().collect(),
            ..Self::default()
        };
        for task in image.tasks {
            state.restore_task(task);
        }
        let of_batches: Vec<_> = state.batches.values().map(|batch| batch.namespace.clone()).collect();
        for namespace in of_batches {
            state.count_in(&namespace, |census| census.batches = census.batches.saturating_add(1));
        }
        let of_replays: Vec<_> = state.replays.values().map(|replay| replay.namespace.clone()).collect();
        for namespace in of_replays {
            state.count_in(&namespace, |census| census.replays = census.replays.saturating_add(1));
        }
        state.callbacks_due = state.callbacks.values().map(|callback| (callback.next_at, callback.id)).collect();
        rebuild(&mut state);
        restore(&mut state, image.breakers);
        state
    }

    /// SHA-256 over a canonical encoding of everything that is not derived (D4).
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.to_image().digest()
    }
}
