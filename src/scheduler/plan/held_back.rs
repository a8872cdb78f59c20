//! Lanes whose tasks wait for a better agent than those that ask now (semantics 9, R-SCH-11, R-SCH-5, R-REC-3).
//!
//! Why: a push agent is there all the while, a pull agent only while it asks. Between two of its claims every other
//! would look like the only one. So a task waits for it, for as long as it is expected and no longer.

use std::collections::BTreeMap;

use crate::ledger::machine::State;
use crate::ledger::machine::task::Task;
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::queue::{Lane, LaneNo};
use crate::scheduler::roster::{Roster, SeatNo};
use crate::scheduler::routing::bar::barred;
use crate::scheduler::routing::candidate::{Reason, Seat};

/// Until when a lane waits, and for whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold {
    pub(super) until: Timestamp,
    /// The one agent that is waited for; where it may be any, the lane is looked at anew in every cycle.
    pub(super) expected: Option<SeatNo>,
}

impl Hold {
    /// Until when there is nothing new to be found: its agent may have asked since, and is then expected for longer.
    fn goes_on(self, roster: &Roster, lane: &Lane, now: Timestamp) -> Option<Timestamp> {
        let seat = self.expected.and_then(|seat| roster.desk(seat)).map(|desk| &desk.seat);
        let is_about_to = |seat: &&Seat| seat.busy() == Some(Reason::NoOpenClaim) && seat.asks_by > now;
        seat.filter(is_about_to).filter(|seat| barred(&lane.needs.capability, seat).is_none()).map(|seat| seat.asks_by)
    }
}

/// Is the lane to be passed over?
pub(super) fn is_held(
    held_back: &BTreeMap<LaneNo, Hold>,
    (no, lane): (LaneNo, &Lane),
    (roster, now): (&Roster, Timestamp),
) -> bool {
    held_back.get(&no).is_some_and(|hold| hold.goes_on(roster, lane, now).is_some())
}

/// Does the task come back: was it handed over before, or made of one that was? Such ones of a session wait for its
/// agent; what is new would hold up its whole lane.
pub(super) fn comes_back(state: &State, task: &Task) -> bool {
    task.attempt.0 > 0 || state.kin(task.id()).redrive_of.is_some()
}

impl Scheduler {
    /// Lanes that waited are looked at again, but for those for which there is nothing new.
    pub(super) fn wake_lanes(&mut self, now: Timestamp) {
        let (held_back, roster, queue) = (&mut self.held_back, &self.roster, &self.queue);
        let dirty = &mut self.dirty_lanes;
        held_back.retain(|lane, hold| {
            let later = queue.lane(*lane).and_then(|lane| hold.goes_on(roster, lane, now));
            match later {
                // A wake-up of the past would be asked for again and again.
                Some(until) => hold.until = until,
                None => {
                    dirty.insert(*lane);
                }
            }
            later.is_some()
        });
        let due: Vec<LaneNo> = self.set_aside.iter().filter(|(_, at)| **at <= now).map(|(lane, _)| *lane).collect();
        for lane in due {
            self.set_aside.remove(&lane);
            self.dirty_lanes.insert(lane);
        }
    }

    /// When a lane that waits is to be looked at again.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        self.held_back.values().map(|hold| hold.until).min()
    }
}
