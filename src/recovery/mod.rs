//! Floor 2: what should happen when something broke.
//!
//! Why apart from the scheduler: it acts on absence. An agent that says nothing, a task whose agent is gone, a hub that
//! was gone itself. Like every floor above the ledger it only proposes.
//!
//! - A hub crash: the log is folded, [`boot`] resolves what was in flight by rule, every agent gets a fresh grace.
//! - An agent's silence: [`liveness`] proposes `unhealthy`, then `lost`; the ledger orphans what it held; [`orphan`]
//!   proposes the replays, as fast as [`pace`] lets it.
//!
//! - An operator's word: [`select`] picks, a plan is frozen with its [`list`], [`plans`] proposes its items at the plan's
//!   rate, and [`turns`] shares what a namespace may take between them and the sweep. [`driver`], the one shell here,
//!   brings the planner the lists.
//!
//! Deliberately absent: which task may be replayed. The ledger decides that for each, at the moment of its replay.

pub mod boot;
pub mod driver;
pub mod list;
pub mod liveness;
pub mod orphan;
pub mod pace;
pub mod plans;
pub mod select;
pub mod sessions;
pub mod tally;
pub mod turns;

#[cfg(test)]
mod driver_tests;
#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod plans_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod sessions_tests;

use std::any::Any;

use crate::ledger::ids::ReplayId;
use crate::ledger::machine::State;
use crate::ledger::machine::command::Proposal;
use crate::ledger::machine::event::Event;
use crate::ledger::planner::{Note, Planner};
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::Scheduler;

use liveness::Liveness;
use orphan::Sweep;
use plans::{Plans, Waiting};
use tally::Tally;
use turns::Turns;

/// Liveness and everything that replays, as one planner.
#[derive(Debug, Default)]
pub struct Recovery {
    liveness: Liveness,
    turns: Turns,
    tally: Tally,
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
        self.turns.sweep()
    }

    /// Which plans run, and which of them wait for their list.
    #[must_use]
    pub const fn plans(&self) -> &Plans {
        self.turns.plans()
    }

    /// Lines of sessions that a running plan waits for; `None` when it waits for none.
    #[must_use]
    pub fn waiting_for(&self, state: &State, replay: ReplayId) -> Option<Waiting> {
        self.turns.waiting(state, replay)
    }

    /// What became of plans' items since this start.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// When the next replay may go, of those that wait.
    #[must_use]
    pub fn next_replay_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.turns.next_at(now)
    }
}

/// All planners of a hub, in the order of their turns: who sends work back goes before who hands it out, so that both
/// are one cycle and one commit, and nothing waits for the next wake-up.
#[must_use]
pub fn planners() -> Vec<Box<dyn Planner>> {
    vec![Box::new(Recovery::new()), Box::new(Scheduler::new())]
}

impl Planner for Recovery {
    fn rebuild(&mut self, state: &State, now: Timestamp) {
        self.liveness.rebuild(state, now);
        self.turns.rebuild(state, now);
    }

    fn observe(&mut self, state: &State, event: &Event) {
        self.liveness.observe(state, event);
        self.turns.observe(state, event);
        self.tally.observe(event);
    }

    fn note(&mut self, state: &State, note: &Note, now: Timestamp) {
        self.liveness.note(state, note, now);
        if let Note::Listed { replay, list } = note {
            self.turns.listed(state, *replay, list);
        }
    }

    fn plan(&mut self, state: &State, now: Timestamp, room: usize) -> Vec<Proposal> {
        let silent = self.liveness.plan(state, now, room);
        if !silent.is_empty() {
            // A loss makes orphans of what a plan would leave alone without a token: first the one, then the other.
            return silent;
        }
        self.turns.plan(state, now, room)
    }

    fn refused(&mut self, state: &State, proposal: &Proposal) {
        self.turns.refused(state, proposal);
    }

    fn wake_at(&self, _state: &State, now: Timestamp) -> Option<Timestamp> {
        self.liveness.wake_at().into_iter().chain(self.turns.next_at(now)).min()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
