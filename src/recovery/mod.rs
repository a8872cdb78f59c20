//! Floor 2: what should happen when something broke.
//!
//! Why apart from the scheduler: it acts on absence. An agent that says nothing, a task whose agent is gone, a hub that
//! was gone itself. Like every floor above the ledger it only proposes.
//!
//! - A hub crash: the log is folded, [`boot`] resolves what was in flight by rule, every agent gets a fresh grace.
//! - An agent's silence: [`liveness`] proposes `unhealthy`, then `lost`; the ledger orphans what it held; [`orphan`]
//!   proposes the replays, as fast as [`pace`] lets it.
//!
//! - An operator's word: [`select`] picks, a plan is frozen with its [`list`], and each item has its turn at the plan's
//!   rate.
//!
//! Deliberately absent: which task may be replayed. The ledger decides that for each, at the moment of its replay.

pub mod boot;
pub mod list;
pub mod liveness;
pub mod orphan;
pub mod pace;
pub mod select;

#[cfg(test)]
mod properties;

use std::any::Any;

use crate::ledger::machine::State;
use crate::ledger::machine::command::Proposal;
use crate::ledger::machine::event::Event;
use crate::ledger::planner::{Note, Planner};
use crate::ledger::time::Timestamp;

use liveness::Liveness;
use orphan::Sweep;

/// Liveness and the orphan sweep as one planner.
#[derive(Debug, Default)]
pub struct Recovery {
    liveness: Liveness,
    sweep: Sweep,
}

impl Recovery {
    /// A planner that knows nothing yet; [`Planner::rebuild`] tells it the state.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Who beat when.
    #[must_use]
    pub const fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Who waits for a replay.
    #[must_use]
    pub const fn sweep(&self) -> &Sweep {
        &self.sweep
    }
}

impl Planner for Recovery {
    fn rebuild(&mut self, state: &State, now: Timestamp) {
        self.liveness.rebuild(state, now);
        self.sweep.rebuild(state, now);
    }

    fn observe(&mut self, state: &State, event: &Event) {
        self.liveness.observe(state, event);
        self.sweep.observe(state, event);
    }

    fn note(&mut self, state: &State, note: &Note, now: Timestamp) {
        self.liveness.note(state, note, now);
    }

    fn plan(&mut self, state: &State, now: Timestamp, room: usize) -> Vec<Proposal> {
        let mut proposals = self.liveness.plan(state, now, room);
        let room = room.saturating_sub(proposals.len());
        proposals.extend(self.sweep.plan(state, now, room));
        proposals
    }

    fn refused(&mut self, state: &State, proposal: &Proposal) {
        self.sweep.refused(state, proposal);
    }

    fn wake_at(&self, _state: &State, now: Timestamp) -> Option<Timestamp> {
        self.liveness.wake_at().into_iter().chain(self.sweep.next_at(now)).min()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
