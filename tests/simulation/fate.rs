//! The hub's life and death: batches become durable and their answers leave, or the process dies with them and starts
//! again from what was.

use std::sync::Arc;

use agent_reach::ledger::ids::Seq;
use agent_reach::ledger::store::Store;
use agent_reach::ledger::store::memory::Fault;
use agent_reach::ledger::time::Millis;

use crate::faults::Death;
use crate::hub::{Flight, Hub, Impossible, Input, LONGEST_SLEEP, Pending, Start};
use crate::lists::Driver;
use crate::model::{ReceiptSeen, StateSeen};
use crate::sabotage::Sabotage;
use crate::world::{Action, Answered, Outcome, World};

impl World {
    /// The saboteur answers before the fsync.
    pub(crate) fn release_early(&mut self) {
        let sabotage = self.sabotage;
        let leaves_early = |pending: &Pending| match pending {
            Pending::Work { claim: Some(_), .. } => sabotage == Sabotage::LeasesBeforeFsync,
            Pending::Work { claim: None, .. } | Pending::Read { .. } | Pending::Lists(_) => {
                sabotage == Sabotage::AnswersBeforeFsync
            }
            Pending::Effects(_) => sabotage == Sabotage::CallbacksBeforeFsync,
        };
        let Some(flight) = self.hub.as_mut().and_then(|hub| hub.flight.as_mut()) else { return };
        let (now, later): (Vec<Pending>, Vec<Pending>) =
            std::mem::take(&mut flight.pending).into_iter().partition(leaves_early);
        flight.pending = later;
        let (first, leaves) = (flight.first, flight.leaves.clone());
        for pending in now {
            self.release(pending, first, &leaves);
        }
    }

    /// The committer is done with a batch, or dies with it.
    pub(crate) fn committed(&mut self) -> Result<(), Impossible> {
        let Some(flight) = self.hub.as_mut().and_then(|hub| hub.flight.take()) else { return Ok(()) };
        let Flight { commit, first, leaves, pending, .. } = flight;
        let has_events = commit.is_some();
        if let Some(commit) = commit {
            let doom = self.doom.take_if(|_| true);
            if let Some(death) = doom
                && !self.survives(death, commit.frame.len())
            {
                return Ok(());
            }
            if self.store.append(&commit).is_err() {
                self.kill();
                return Ok(());
            }
            self.tally.commits += 1;
            if doom == Some(Death::AfterAppend) {
                self.tally.hit("crash after the append, before the answers");
                self.kill();
                return Ok(());
            }
            if let Some(hub) = &mut self.hub {
                hub.committed(&commit);
            }
        }
        for pending in pending {
            self.release(pending, first, &leaves);
        }
        let Some(hub) = &mut self.hub else { return Ok(()) };
        if !hub.is_open() {
            self.at(0, Action::Resolved);
            self.at(1, Action::Effects);
            return Ok(());
        }
        if self.senders.stopping {
            self.tally.hit("clean stop");
            self.kill();
            return Ok(());
        }
        self.cycle(vec![if has_events { Input::Effects } else { Input::Nudge }])
    }

    /// Prepares the store for the death at hand; false when the hub dies before it writes.
    fn survives(&mut self, death: Death, len: usize) -> bool {
        if self.hub.as_ref().is_some_and(|hub| !hub.is_open()) {
            self.tally.hit("crash while starting");
        }
        let fault = match death {
            Death::BeforeAppend | Death::Idle | Death::Clean => {
                self.tally.hit("crash before the append");
                self.kill();
                return false;
            }
            Death::AfterAppend => return true,
            Death::Torn => {
                self.tally.hit("append torn");
                let len = u64::try_from(len).unwrap_or(0);
                Fault::Torn { bytes: usize::try_from(self.chance.below(len + 1)).unwrap_or(0) }
            }
            Death::UnknownLost => {
                self.tally.hit("append unknown, lost");
                Fault::UnknownLost
            }
            Death::UnknownKept => {
                self.tally.hit("append unknown, kept");
                Fault::UnknownKept
            }
            Death::Refused => {
                self.tally.hit("append refused");
                Fault::Refuse
            }
        };
        self.store.fail_append(1, fault);
        true
    }

    fn release(&mut self, pending: Pending, first: Option<Seq>, leaves: &[agent_reach::ledger::ids::Digest]) {
        let durable = self.durable();
        match pending {
            Pending::Work { to, call, outcomes, claim } => {
                let hash_of = |seq: Seq| {
                    let here = first.and_then(|first| usize::try_from(seq.0.checked_sub(first.0)?).ok());
                    let stored = || self.store.event(seq).ok().flatten().map(|event| event.hash());
                    here.and_then(|index| leaves.get(index)).copied().or_else(stored)
                };
                let outcomes: Vec<Outcome> = outcomes
                    .into_iter()
                    .map(|draft| {
                        draft.map(|(answer, seq)| {
                            let receipt = seq.and_then(|seq| {
                                let hash = hash_of(seq)?;
                                Some(ReceiptSeen { seq, hash, durable })
                            });
                            (answer, receipt)
                        })
                    })
                    .collect();
                self.travel(|| {
                    let (outcomes, claim) = (outcomes.clone(), claim.clone());
                    Action::Answer(to, Box::new(Answered { call, outcomes, claim, durable }))
                });
            }
            Pending::Read { task, status, at } => {
                let status = status.map(|status| status.kind());
                self.notes.states.push(StateSeen { task, status, at, durable });
            }
            Pending::Effects(effects) => self.send(effects),
            Pending::Lists(wanted) => self.bring_lists(wanted),
        }
    }

    pub(crate) fn die(&mut self, death: Death) -> Result<(), Impossible> {
        if self.hub.is_none() {
            return Ok(());
        }
        match death {
            Death::Idle => {
                self.tally.hit("crash between batches");
                self.kill();
            }
            Death::Clean => {
                let Some(hub) = &mut self.hub else { return Ok(()) };
                if hub.flight.is_some() || !hub.is_open() {
                    self.at(1, Action::Die(death));
                } else {
                    hub.stop()?;
                    hub.hand_over();
                    self.senders.stopping = true;
                }
            }
            Death::BeforeAppend
            | Death::AfterAppend
            | Death::Torn
            | Death::UnknownLost
            | Death::UnknownKept
            | Death::Refused => self.doom = Some(death),
        }
        Ok(())
    }

    /// The process is gone: the open batch, the claims and the senders' memory with it.
    fn kill(&mut self) {
        let Some(hub) = self.hub.take() else { return };
        self.last_skew = i128::from(hub.now().0) - i128::from(self.mono());
        let in_flight = hub.state.tasks().values().any(|task| task.status.lease().is_some());
        if in_flight {
            self.tally.hit("restart with tasks in flight");
        }
        self.store = Arc::new(self.store.crash());
        self.wakes.clear();
        self.senders.forget();
        self.driver = Driver::Idle;
        let down = if self.chance.hits(300) { self.chance.between(1, 200) } else { self.chance.between(200, 20_000) };
        self.at(down, Action::Restart);
    }

    pub(crate) fn restart(&mut self) -> Result<(), Impossible> {
        if self.hub.is_some() {
            return Ok(());
        }
        if self.store.snapshots().is_ok_and(|snapshots| !snapshots.is_empty()) {
            self.tally.hit("snapshot used");
        }
        let start = Start {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            keys: self.keys.clone(),
            lineage: self.plan.lineage,
            sabotage: self.sabotage,
            full: self.plan.full,
        };
        self.hub = Some(Hub::start(start)?);
        if self.is_rough() && self.chance.hits(120) {
            let death = Death::drawn(&mut self.chance);
            self.die(death)?;
        }
        Ok(())
    }

    pub(crate) fn jump(&mut self, by: i64) {
        self.tally.hit(if by > 0 { "wall clock forward" } else { "wall clock backward" });
        self.clock.jump_wall(by);
        self.at(LONGEST_SLEEP.0, Action::Cycle);
    }

    /// Time passes, and nobody does anything in it.
    pub(crate) fn stand_still(&mut self, by: Millis) -> Result<(), Impossible> {
        let Some(hub) = self.hub.as_mut().filter(|hub| hub.is_open()) else { return Ok(()) };
        self.tally.hit("standstill");
        self.clock.advance(by);
        hub.stood_still(by)?;
        self.notes.stood.push(hub.now());
        self.cycle(Vec::new())
    }

    /// A snapshot is a boot that is written down: of what is durable.
    pub(crate) fn snapshot(&mut self) {
        if self.hub.as_ref().is_none_or(|hub| !hub.is_open()) {
            return;
        }
        if let Ok(folded) = agent_reach::ledger::boot::fold(&*self.store)
            && folded.head.seq.0 > 0
            && agent_reach::ledger::boot::write_snapshot(&*self.store, &folded.state).is_ok()
        {
            self.tally.hit("snapshot taken");
        }
    }
}
