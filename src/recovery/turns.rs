//! Whose turn it is to replay: the sweep and the plans of a namespace, and the namespaces among each other.
//!
//! Why here: they share what a namespace and the hub may take (R1), so a plan over a hundred thousand tasks must not
//! hold up the orphans of a lost agent, nor one namespace another. Each proposal goes to the next namespace in the
//! round, and within it to the next source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::ids::{Namespace, ReplayId};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Actor, Event, EventBody};
use crate::ledger::time::Timestamp;
use crate::recovery::orphan::Sweep;
use crate::recovery::pace::Pace;
use crate::recovery::plans::{Fare, Plans, Room, Waiting, left_behind};

/// Who replays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Sweep,
    Plan(ReplayId),
}

/// Everything that replays.
#[derive(Debug, Default)]
pub struct Turns {
    sweep: Sweep,
    plans: Plans,
    pace: Pace,
    last: Option<Namespace>,
    /// Who had the last turn in each namespace.
    served: BTreeMap<Namespace, Source>,
}

impl Turns {
    /// Who waits for a replay.
    #[must_use]
    pub const fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// The plans that have not ended.
    #[must_use]
    pub const fn plans(&self) -> &Plans {
        &self.plans
    }

    pub(super) fn rebuild(&mut self, state: &State, now: Timestamp) {
        self.sweep.rebuild(state, now);
        self.plans.rebuild(state);
        (self.pace, self.last, self.served) =
            (Pace::starting(state.hub_policy().replays_per_second, state.at()), None, BTreeMap::new());
    }

    pub(super) fn observe(&mut self, state: &State, event: &Event) {
        if let Some((namespace, source)) = whose(event) {
            self.pace.spent_at(namespace, event.at);
            match source {
                Source::Sweep => self.sweep.spent_at(namespace, event.at),
                Source::Plan(id) => self.plans.spent_at(id, event.at),
            }
        }
        self.sweep.observe(state, event);
        self.plans.observe(state, event, self.sweep.lines());
        self.lines_moved(state);
    }

    pub(super) fn listed(&mut self, state: &State, replay: ReplayId, list: &Arc<[u8]>) {
        for task in left_behind(state, replay, list) {
            self.sweep.left_alone(state, task);
        }
        self.plans.listed(state, replay, list, self.sweep.lines());
        self.lines_moved(state);
    }

    /// Lines that a plan waits for.
    #[must_use]
    pub fn waiting(&self, state: &State, replay: ReplayId) -> Option<Waiting> {
        self.plans.waiting(state, replay, self.sweep.lines())
    }

    fn lines_moved(&mut self, state: &State) {
        let moved = self.sweep.take_moved();
        self.plans.moved(state, moved, self.sweep.lines());
    }

    pub(super) fn refused(&mut self, state: &State, proposal: &Proposal) {
        self.sweep.refused(state, proposal);
        self.plans.refused(state, proposal);
        self.lines_moved(state);
    }

    pub(super) fn plan(&mut self, state: &State, now: Timestamp, room: usize) -> Vec<Proposal> {
        self.sweep.end_graces(state, now);
        self.plans.set_now(now);
        let mut ring: Vec<Namespace> = self.names().into_iter().cloned().collect();
        self.pace.set_overall(state.hub_policy().replays_per_second, now);
        for name in &ring {
            // Live rates: whatever changed holds for the next token.
            let own = state.policies().of(name).replays_per_second;
            self.sweep.set_rate(name, own, now);
            self.pace.set_rate(name, own.max(self.plans.rate_of(name)), now);
        }
        let start = ring.partition_point(|name| self.last.as_ref().is_some_and(|last| name <= last));
        ring.rotate_left(start);
        let mut proposals = Vec::new();
        while proposals.len() < room && !ring.is_empty() {
            ring.retain(|name| {
                if proposals.len() >= room {
                    return false;
                }
                let next = self.next_of(state, name, now);
                let found = next.is_some();
                if found {
                    self.last = Some(name.clone());
                }
                proposals.extend(next);
                found
            });
        }
        self.sweep.forget_full(now);
        let needed: BTreeSet<Namespace> = self.names().into_iter().cloned().collect();
        self.pace.forget_full(now, |name| needed.contains(name));
        self.served.retain(|name, _| needed.contains(name));
        proposals
    }

    fn names(&self) -> BTreeSet<&Namespace> {
        self.sweep.names().chain(self.plans.names()).collect()
    }

    /// The next proposal of a namespace, if one waits and there is a token for it.
    fn next_of(&mut self, state: &State, name: &Namespace, now: Timestamp) -> Option<Proposal> {
        // It sends nothing back, so it takes nothing of the pace.
        if let Some(question) = self.sweep.ask(state, name, now) {
            return Some(question);
        }
        let room = if self.pace.has_token(name, now) { Room::Open } else { Room::Shut };
        let mut sources: Vec<Source> = self.plans.of(name).map(Source::Plan).collect();
        sources.insert(0, Source::Sweep);
        let last = self.served.get(name);
        let start = sources.partition_point(|source| last.is_some_and(|last| source <= last));
        sources.rotate_left(start);
        for source in sources {
            let turn = match (source, room) {
                (Source::Sweep, Room::Open) => self.sweep.take(state, name, now).map(|found| (found, Fare::Token)),
                (Source::Sweep, Room::Shut) => None,
                (Source::Plan(id), _) => self.plans.take(state, id, room, self.sweep.lines()),
            };
            if let Some((proposal, fare)) = turn {
                if let Command::ReplayItem(item) = &proposal.command
                    && let Some(line) = self.plans.line_of(item)
                {
                    // Not yet decided: nobody must overtake it in its session meanwhile.
                    self.sweep.expect(state, line, item.task);
                }
                if fare == Fare::Token {
                    self.pace.take(name, now);
                }
                self.served.insert(name.clone(), source);
                return Some(proposal);
            }
        }
        None
    }

    /// When somebody who waits has a token, or a grace ends.
    pub(super) fn next_at(&self, now: Timestamp) -> Option<Timestamp> {
        let of = |name: &Namespace| {
            let own = self.sweep.token_at(name, now).into_iter().chain(self.plans.token_at(name, now)).min();
            let own = own.map(|own| own.max(self.pace.next_at(name, now)));
            own.into_iter().chain(self.sweep.asks_at(name, now)).min()
        };
        self.names().into_iter().filter_map(of).chain(self.sweep.grace_ends_at()).min()
    }
}

/// Whose token an event tells the use of. What an operator says of a single task took none, and is paced by nobody.
fn whose(event: &Event) -> Option<(&Namespace, Source)> {
    let source = if let EventBody::ReplayItemDone(body) = &event.body {
        Source::Plan(body.replay)
    } else if matches!(event.body, EventBody::TaskReplayed(_)) && event.actor == Actor::Hub {
        Source::Sweep
    } else {
        return None;
    };
    Some((event.namespace.as_ref()?, source))
}
