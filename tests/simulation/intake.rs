//! What comes into the hub and what leaves it: requests with what they bring along, answers that wait for their batch, and
//! the batch itself.

use std::sync::Arc;

use agent_reach::ledger::ids::{AgentKey, Boot, Incarnation, ReachId, ReplayId, Seq};
use agent_reach::ledger::machine::command::Proposal;
use agent_reach::ledger::machine::decision::{Answer, Rejection};
use agent_reach::ledger::machine::event::Event;
use agent_reach::ledger::machine::task::status::Status;
use agent_reach::ledger::store::{Body, BodyKey, Commit};
use agent_reach::ledger::time::Millis;

use crate::facts;
use crate::model::{Handed, Party};

/// An answer whose receipt still lacks its hash.
pub(crate) type Draft = Result<(Answer, Option<Seq>), No>;

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum No {
    Rejected(Rejection),
    Stopping,
}

/// What comes in.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Work {
        to: Party,
        call: u64,
        proposals: Vec<Proposal>,
        /// What the proposals bring with them: payloads, lists of plans.
        bodies: Vec<(BodyKey, Body)>,
        claim: Option<ClaimAsk>,
    },
    /// A reader asks for a task.
    Read {
        task: ReachId,
    },
    /// The hub's own senders ask what is outstanding.
    Effects,
    /// The driver of plans asks which lists are lacking.
    Lists,
    /// It brings one, if the hub is still the one that was asked.
    Listed {
        boot: Boot,
        replay: ReplayId,
        list: Arc<[u8]>,
    },
    /// The disk is nearly full, or has room again.
    Disk(Disk),
    Nudge,
}

/// Is there room on the disk?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Roomy,
    Low,
}

/// A claim as it comes in.
#[derive(Debug, Clone)]
pub(crate) struct ClaimAsk {
    pub(crate) agent: AgentKey,
    pub(crate) incarnation: Incarnation,
    pub(crate) max: u32,
    pub(crate) wait: Millis,
}

/// What leaves when a batch is durable.
#[derive(Debug)]
pub(crate) enum Pending {
    Work { to: Party, call: u64, outcomes: Vec<Draft>, claim: Option<Result<Vec<Handed>, No>> },
    Read { task: ReachId, status: Option<Status>, at: Seq },
    Effects(facts::Effects),
    Lists(Vec<ReplayId>),
}

/// The batch that the committer has.
pub(crate) struct Flight {
    pub(crate) commit: Option<Commit>,
    pub(crate) first: Option<Seq>,
    pub(crate) leaves: Vec<agent_reach::ledger::ids::Digest>,
    pub(crate) pending: Vec<Pending>,
    /// Does the world know when its append returns?
    pub(crate) is_timed: bool,
}

#[derive(Default)]
pub(crate) struct Open {
    pub(crate) events: Vec<Event>,
    pub(crate) bodies: Vec<(BodyKey, Body)>,
    pub(crate) pending: Vec<Pending>,
    pub(crate) base: Seq,
}

impl Open {
    /// Takes the bodies that the events from the `decided`-th on bring; others are not kept (semantics 27).
    pub(crate) fn bring(&mut self, bodies: Vec<(BodyKey, Body)>, decided: usize) {
        let events = self.events.get(decided..).unwrap_or_default();
        let named = |key: &BodyKey| events.iter().any(|event| BodyKey::of_event(&event.body).as_ref() == Some(key));
        self.bodies.extend(bodies.into_iter().filter(|(key, _)| named(key)));
    }
}
