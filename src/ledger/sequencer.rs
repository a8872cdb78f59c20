//! The single writer: one thread that owns the state.
//!
//! ```text
//! inbox ─► decide + apply ─► due timers ─► planners ─► claims ─► hand the batch to the committer
//! ```
//!
//! One cycle takes what has come in, lets due timers fire, asks the planners what should happen next, and hands all of
//! it to the committer as one batch as soon as that is free. So a submission and its dispatch usually share one fsync,
//! and the cost of a command falls as load rises. Nothing here touches the disk but the facts that a decision needs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::ledger::claims::Claims;
use crate::ledger::committer::{Batch, Desk, Draft, Handoff, Pending, Show};
use crate::ledger::facts::{self, Brought};
use crate::ledger::handle::{Input, Intake, Phase, Published, Refusal, Release, Unavailable};
use crate::ledger::ids::Seq;
use crate::ledger::keys::Keys;
use crate::ledger::lag::{Forgiven, Lag};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::replay::ItemAction;
use crate::ledger::machine::step::step;
use crate::ledger::open_batch::OpenBatch;
use crate::ledger::planner::{Note, Planner};
use crate::ledger::store::Store;
use crate::ledger::time::{LedgerClock, Millis};

/// Inputs that wait to be taken; over it callers get 503 (semantics 22).
pub const INBOX: usize = 16_384;
/// Inputs taken in one cycle before timers and planners have their turn.
const INPUTS_A_CYCLE: usize = 512;
/// The longest sleep: a clock jump is noticed within it.
const LONGEST_SLEEP: Millis = Millis(1_000);
/// A wall-clock step of this size is recorded (semantics 23); smaller ones are the drift of a disciplined clock.
const JUMP_MS: u64 = 1_000;

/// Inputs of a cycle up to which it commits its own batch: with so few there is little to decide during the fsync.
const QUIET_INPUTS: usize = 2;
/// And events of its batch: a larger one takes long enough to write that deciding goes on meanwhile.
const QUIET_EVENTS: usize = 16;

/// Did so little come in that the sequencer commits by itself?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger) enum Quiet {
    /// Yes.
    Yes,
    /// No: the committer's thread does it while the next batch is decided.
    No,
}

/// Why the sequencer ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fate {
    /// Asked to.
    #[error("stopped")]
    Stopped,
    /// An append failed; what was in it may be there or not.
    #[error("the ledger could not be written: {0}")]
    Disk(String),
    /// A fact could not be read.
    #[error("the ledger could not be read: {0}")]
    Read(String),
    /// The core contradicted itself: a bug. Nothing of that batch was written.
    #[error("impossible: {0}")]
    Impossible(String),
}

/// The sequencer with all that it owns.
pub(in crate::ledger) struct Sequencer {
    pub(in crate::ledger) state: State,
    pub(in crate::ledger) planners: Vec<Box<dyn Planner>>,
    pub(in crate::ledger) clock: LedgerClock,
    pub(in crate::ledger) keys: Keys,
    pub(in crate::ledger) store: Arc<dyn Store>,
    pub(in crate::ledger) handoff: Arc<Handoff>,
    pub(in crate::ledger) batches: SyncSender<Batch>,
    pub(in crate::ledger) desk: Desk,
    pub(in crate::ledger) quiet: Quiet,
    pub(in crate::ledger) phase: Phase,
    pub(in crate::ledger) claims: Claims,
    pub(in crate::ledger) open: OpenBatch,
    /// The last cycle filled a batch: there is more to plan at once.
    pub(in crate::ledger) unfinished: bool,
    pub(in crate::ledger) lag: Lag,
    /// The start has not begun: nothing may be written before its first event.
    pub(in crate::ledger) waits_for_room: bool,
}

impl Sequencer {
    /// Runs until it is stopped or something fails.
    pub(in crate::ledger) fn run(mut self, inbox: &Receiver<Input>) -> (Fate, State) {
        self.open.base = self.state.seq();
        let fate = loop {
            match self.cycle(inbox) {
                Ok(None) => {}
                Ok(Some(reply)) => break self.finish(reply),
                Err(fate) => break fate,
            }
        };
        (fate, self.state)
    }

    /// One cycle; `Some` when it was asked to stop.
    fn cycle(&mut self, inbox: &Receiver<Input>) -> Result<Option<oneshot::Sender<()>>, Fate> {
        let mut inputs = VecDeque::new();
        match self.rest(inbox) {
            Ok(input) => inputs.push_back(input),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Fate::Stopped),
        }
        // Before the inputs: what is heard of agents now comes after the lag.
        self.note_lag()?;
        inputs.extend(inbox.try_iter().take(INPUTS_A_CYCLE));
        self.quiet = if inputs.len() <= QUIET_INPUTS { Quiet::Yes } else { Quiet::No };
        for input in inputs {
            if let Some(reply) = self.take(input)? {
                return Ok(Some(reply));
            }
            self.hand_over_if_full()?;
        }
        self.fire_timers()?;
        let base = self.open.base;
        self.plan()?;
        self.unfinished = self.is_full() || self.open.base != base;
        self.answer_claims();
        self.hand_over_if_free()?;
        Ok(None)
    }

    /// Sleeps until something comes in or is due. What it sleeps longer than it meant to is lag: the whole hub stood
    /// still. So is all of a start, in which nobody can call yet.
    fn rest(&mut self, inbox: &Receiver<Input>) -> Result<Input, RecvTimeoutError> {
        let (from, span) = (self.clock.now(), self.sleep());
        // Under a clock that only a test moves, a nudge ends the sleep, and no leap of time is a lag.
        let (sleep, meant) =
            if self.clock.is_real() { (span.0, span) } else { (span.0.clamp(1, 50), Millis(u64::MAX)) };
        let came = inbox.recv_timeout(Duration::from_millis(sleep));
        if self.phase != Phase::Starting {
            self.lag.rested(self.clock.now().since(from).min(meant));
        }
        came
    }

    /// Tells the planners of a lag, and records a standstill, so that no timer judges what could not be heard.
    fn note_lag(&mut self) -> Result<(), Fate> {
        if self.phase == Phase::Starting {
            self.lag.hears_nobody();
        }
        let Some(by) = self.tell_lag() else { return Ok(()) };
        // Time that a test moves stands for time in which the hub ran.
        if !self.clock.is_real() || !self.timers_run() {
            return Ok(());
        }
        drop(self.step(&Proposal::by_hub(None, Command::NoteStandstill { by }))?);
        // To move many timers takes its time, too. Were that a standstill, each would bring the next.
        self.tell_lag();
        Ok(())
    }

    /// Tells the planners of the lag since the last look; by how much the hub stood still, if it did.
    fn tell_lag(&mut self) -> Option<Millis> {
        let Forgiven { silence, standstill } = self.lag.since_last_look(self.clock.now());
        if let Some(by) = silence {
            self.note(&Note::Lagged { by });
        }
        standstill
    }

    fn sleep(&self) -> Millis {
        if self.unfinished {
            return Millis(0);
        }
        let now = self.clock.now();
        let asked = self.planners.iter().filter(|_| self.may_plan());
        let planners = asked.filter_map(|planner| planner.wake_at(&self.state, now));
        let timers = self.state.due().next().filter(|_| self.timers_run());
        let wake = planners.chain(timers).chain(self.claims.next_end()).min();
        wake.map_or(LONGEST_SLEEP, |at| at.since(now).min(LONGEST_SLEEP))
    }

    fn take(&mut self, input: Input) -> Result<Option<oneshot::Sender<()>>, Fate> {
        match input {
            Input::Work { intakes, claim, reply } => {
                let mut outcomes = Vec::with_capacity(intakes.len());
                for intake in intakes {
                    outcomes.push(self.decide(intake)?);
                    self.hand_over_if_full()?;
                }
                match claim {
                    Some((id, request)) => self.claim(id, request, outcomes, reply)?,
                    None => self.open.pending.push(Pending::Work { outcomes, claim: None, reply }),
                }
            }
            Input::Ask(question) => {
                let release: Release = question(&self.state, &self.planners);
                self.open.pending.push(Pending::Asked(release));
            }
            Input::Abandon(id) => {
                if self.claims.close(id).is_some() {
                    self.note(&Note::ClaimClosed { claim: id });
                }
            }
            Input::Note(note) => self.note(&note),
            Input::Nudge => {}
            Input::Enter(phase) => {
                // Who drains goes down: no look at the disk, taken before, opens the hub again.
                if self.phase != phase && self.phase != Phase::Draining {
                    self.phase = phase;
                    self.waits_for_room |= phase == Phase::NoRoom;
                    self.open.show = Show::Phase;
                    if phase == Phase::Draining {
                        // Nothing is planned any more: whoever waits for work would hold up the stop.
                        self.answer_every_claim();
                    }
                }
            }
            Input::Stop { reply } => return Ok(Some(reply)),
        }
        Ok(None)
    }

    /// Decides one intake: facts in, events and a draft answer out.
    fn decide(&mut self, intake: Intake) -> Result<Draft, Fate> {
        let Intake { mut proposal, mut bodies } = intake;
        if let Some(why) = self.shut_for(&proposal.command) {
            return Ok(Err(Refusal::Unavailable(why)));
        }
        let brings = facts::fill(&mut proposal, &self.state, &*self.store, &self.keys);
        bodies.extend(brings.map_err(|error| Fate::Read(error.to_string()))?);
        let first = self.state.seq().next();
        let decided = self.open.events.len();
        let answer = self.step_with(&proposal, &bodies)?;
        let last = self.state.seq();
        if let Ok(answer) = &answer {
            self.waits_for_room &= !matches!(proposal.command, Command::StartHub { .. });
            self.open.push_bodies(bodies, decided);
            if let (Answer::Registered { incarnation }, Command::RegisterAgent { agent, .. }) =
                (answer, &proposal.command)
            {
                self.dismiss_older(proposal.namespace.as_ref(), agent, *incarnation);
            }
            if let Some(beat) = facts::beat_of(&proposal, &self.state) {
                self.note(&beat);
            }
            let receipt = answer.receipt(first, last);
            return Ok(Ok((answer.clone(), receipt)));
        }
        Ok(answer.map(|answer| (answer, None)).map_err(Refusal::Rejected))
    }

    /// Decide, apply, and let the planners see it.
    pub(in crate::ledger) fn step(&mut self, proposal: &Proposal) -> Result<Result<Answer, Rejection>, Fate> {
        self.step_with(proposal, &[])
    }

    fn step_with(&mut self, proposal: &Proposal, brought: &Brought) -> Result<Result<Answer, Rejection>, Fate> {
        let done = step(&mut self.state, proposal, self.clock.now())
            .map_err(|impossible| Fate::Impossible(impossible.to_string()))?;
        for event in &done.events {
            for planner in &mut self.planners {
                planner.observe(&self.state, event);
            }
        }
        let inherited = facts::inherited(&done.events, brought, &*self.store);
        let inherited = inherited.map_err(|error| Fate::Read(error.to_string()))?;
        let decided = self.open.events.len();
        self.open.push_events(done.events);
        self.open.push_bodies(inherited, decided);
        Ok(done.answer)
    }

    pub(in crate::ledger) fn note(&mut self, note: &Note) {
        let now = self.clock.now();
        for planner in &mut self.planners {
            planner.note(&self.state, note, now);
        }
    }

    /// Why the hub takes no such command now.
    fn shut_for(&self, command: &Command) -> Option<Unavailable> {
        if self.waits_for_room && !matches!(command, Command::StartHub { .. }) {
            return Some(Unavailable::DiskFull);
        }
        let submits = matches!(
            command,
            Command::SubmitTask { .. } | Command::OpenBatch { .. } | Command::RedriveTask(_) | Command::PlanReplay(_)
        ) || matches!(command, Command::ReplayItem(item) if item.action == ItemAction::Redrive);
        let frees = matches!(
            command,
            Command::Report(_) | Command::Heartbeat { .. } | Command::Fire { .. } | Command::CancelTask { .. }
        );
        match self.phase {
            Phase::Open | Phase::Starting => None,
            Phase::Draining => submits.then_some(Unavailable::Stopping),
            Phase::DiskLow => submits.then_some(Unavailable::DiskFull),
            Phase::DiskFull => (!frees).then_some(Unavailable::DiskFull),
            // Whoever begins the start says so first.
            Phase::NoRoom => Some(Unavailable::DiskFull),
            Phase::Stopped => Some(Unavailable::Stopping),
        }
    }

    /// Lets due timers fire, cut into batches so that commands are taken between them (semantics 21).
    ///
    /// Not before the hub is open: the first event of a start is `hub-started`, and what was in flight is resolved by
    /// rule before its timers may judge it.
    fn fire_timers(&mut self) -> Result<(), Fate> {
        if !self.timers_run() {
            return Ok(());
        }
        self.note_clock_jump()?;
        // First the moment, then the lag up to it: a standstill between the two lets nothing fire.
        let now = self.clock.now();
        self.note_lag()?;
        while !self.is_full() {
            let Some(subject) = self.state.due().due_by(now).cloned() else { break };
            let namespace = match &subject {
                Subject::Task(task) => self.state.task(*task).map(|task| task.namespace.clone()),
                Subject::Agent(agent) => Some(agent.namespace.clone()),
                Subject::Breaker(breaker) => Some(breaker.agent.namespace.clone()),
            };
            let before = self.state.seq();
            let fired = self.step(&Proposal::by_hub(namespace, Command::Fire { subject: subject.clone() }))?;
            if self.state.seq() == before {
                return Err(Fate::Impossible(format!("timer of {subject:?} fired without effect: {fired:?}")));
            }
        }
        Ok(())
    }

    fn timers_run(&self) -> bool {
        self.phase != Phase::Starting && !self.waits_for_room
    }

    fn note_clock_jump(&mut self) -> Result<(), Fate> {
        let wall_offset = self.clock.wall_offset();
        let by = wall_offset.saturating_sub(self.state.wall_offset());
        if by.unsigned_abs() < JUMP_MS {
            return Ok(());
        }
        tracing::warn!(by_ms = by, "the wall clock was set; deadlines and leases follow the monotonic clock");
        self.step(&Proposal::by_hub(None, Command::NoteClockJump { wall_offset, by })).map(drop)
    }

    /// Asks the planners until they have no more, or a batch is full.
    fn plan(&mut self) -> Result<(), Fate> {
        if !self.may_plan() {
            return Ok(());
        }
        self.note_lag()?;
        let now = self.clock.now();
        let base = self.open.base;
        for index in 0..self.planners.len() {
            while !self.is_full() && self.open.base == base {
                let room = self.open.room();
                let Some(planner) = self.planners.get_mut(index) else { break };
                let proposals = planner.plan(&self.state, now, room);
                if proposals.is_empty() {
                    break;
                }
                for proposal in proposals {
                    self.carry_out(index, proposal)?;
                    // One proposal may be thousands of events: an agent is lost with all that it holds.
                    self.hand_over_if_full()?;
                }
            }
        }
        Ok(())
    }

    /// May planners propose now?
    const fn may_plan(&self) -> bool {
        match self.phase {
            Phase::Open | Phase::DiskLow => true,
            Phase::Starting | Phase::Draining | Phase::DiskFull | Phase::NoRoom | Phase::Stopped => false,
        }
    }

    fn carry_out(&mut self, index: usize, mut proposal: Proposal) -> Result<(), Fate> {
        if self.shut_for(&proposal.command).is_some() {
            if let Some(planner) = self.planners.get_mut(index) {
                planner.refused(&self.state, &proposal);
            }
            return Ok(());
        }
        let brings = facts::fill(&mut proposal, &self.state, &*self.store, &self.keys);
        let brings = brings.map_err(|error| Fate::Read(error.to_string()))?;
        let decided = self.open.events.len();
        match self.step_with(&proposal, &brings)? {
            Ok(Answer::Dispatched { attempt }) => self.hand(&proposal, attempt),
            Ok(_) => self.open.push_bodies(brings, decided),
            Err(why) => {
                if !why.is_stale_view() {
                    tracing::warn!(?why, "a planner's proposal was refused");
                }
                if let Some(planner) = self.planners.get_mut(index) {
                    planner.refused(&self.state, &proposal);
                }
            }
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.open.is_full()
    }

    fn hand_over_if_free(&mut self) -> Result<(), Fate> {
        match self.handoff.idle().map_err(Fate::Disk)? {
            Some(durable) => self.hand_over(durable),
            None if self.is_full() => self.hand_over_when_free(),
            None => Ok(()),
        }
    }

    fn hand_over_if_full(&mut self) -> Result<(), Fate> {
        if self.is_full() { self.hand_over_when_free() } else { Ok(()) }
    }

    fn hand_over_when_free(&mut self) -> Result<(), Fate> {
        let durable = self.handoff.wait_idle().map_err(Fate::Disk)?;
        self.hand_over(durable)
    }

    fn hand_over(&mut self, durable: Seq) -> Result<(), Fate> {
        self.state.forget_up_to(durable);
        if self.open.is_idle() {
            return Ok(());
        }
        let open = std::mem::take(&mut self.open);
        self.open.base = self.state.seq();
        let rows = facts::rows(&self.state, open.base);
        let batch = Batch {
            events: open.events,
            rows,
            bodies: open.bodies,
            pending: open.pending,
            published: Published::of(&self.state, self.phase),
            show: open.show,
        };
        if self.quiet == Quiet::Yes && batch.events.len() <= QUIET_EVENTS {
            let durable = self.desk.commit_here(batch).map_err(Fate::Disk)?;
            self.state.forget_up_to(durable);
            return Ok(());
        }
        self.handoff.take();
        self.batches.send(batch).map_err(|_| Fate::Disk("the committer is gone".to_owned()))
    }

    /// The clean stop: answers every waiting claim, writes the last event and waits until it is durable.
    fn finish(&mut self, reply: oneshot::Sender<()>) -> Fate {
        self.phase = Phase::Stopped;
        self.open.show = Show::Phase;
        self.answer_every_claim();
        let boot = self.state.boot();
        let stop = Proposal::by_hub(None, Command::StopHub { boot });
        // A start that never began has nothing to end.
        let stopped = if self.waits_for_room { Ok(()) } else { self.step(&stop).map(drop) };
        let ended = stopped.and_then(|()| {
            self.open.pending.push(Pending::Stopped(reply));
            self.hand_over_when_free()?;
            let durable = self.handoff.wait_idle().map_err(Fate::Disk)?;
            self.state.forget_up_to(durable);
            Ok(())
        });
        ended.err().unwrap_or(Fate::Stopped)
    }
}

#[cfg(test)]
#[path = "sequencer_tests.rs"]
mod tests;
