//! What an agent says about an attempt, answered in the one order of semantics 14.
//!
//! First: a task that it may not see is absent. Then: this lease already gave an outcome, which is answered as the first
//! time or conflicts. Then: the task has ended. Then: attempt or lease is not the valid one. Last: an acknowledgement
//! again.

use crate::ledger::ids::{AgentKey, Digest, Incarnation, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::decide::{current, revive};
use crate::ledger::machine::agent::{Agent, ProgressRule, Standing};
use crate::ledger::machine::command::{Proposal, Report, Retryable, Word};
use crate::ledger::machine::decision::{Answer, Coalesced, Decision, LeaseWhy, ReceiptOf, Rejection};
use crate::ledger::machine::event::{
    AgentSlotFreed, EventBody, EventKind, QueuedWhy, ReportKind, StaleWhy, Started, TaskAcknowledged,
    TaskAttemptFailed, TaskFailed, TaskProgressed, TaskReclaimed, TaskReleased, TaskStaleReportRefused, TaskSucceeded,
};
use crate::ledger::machine::task::deadline::work_deadline;
use crate::ledger::machine::task::decide::{known, terminal};
use crate::ledger::machine::task::retry::{
    Retry, Return, dead_letter, failure, retry_for, returned, returned_to, tried_again,
};
use crate::ledger::machine::task::spec::{
    Idempotence, MAX_PROGRESS_EVENTS, MAX_STALE_EVENTS, PROGRESS_SPACING, RetryCause,
};
use crate::ledger::machine::task::status::{Lease, Status, StatusKind};
use crate::ledger::machine::task::{FailureClass, OutcomeKind, Task};
use crate::ledger::time::Timestamp;

/// Decides a report.
pub(super) fn report(state: &State, proposal: &Proposal, said: &Report, now: Timestamp) -> Decision {
    let Some(task) = known(state, proposal, said.task, said.fact.as_ref()) else {
        return Decision::refuse(Rejection::TaskUnknown); // (1)
    };
    let heard = Heard { state, task, said, now };
    let mut decision = match heard.valid_lease() {
        Ok(lease) => heard.take(lease),
        Err(Refused::Repeat(receipt)) => heard.answer(ReceiptOf::Earlier(receipt)),
        Err(Refused::Stale(why, reason)) => {
            let mut events: Vec<EventBody> = heard.stale_event(why).into_iter().collect();
            events.extend(heard.freed_ghost());
            Decision { events, answer: Err(reason) }
        }
    };
    if decision.answer.is_ok() {
        decision.events.extend(heard.revival());
    }
    decision
}

/// Why a report does not reach its task.
enum Refused {
    /// It says again what was said: the first receipt.
    Repeat(Seq),
    /// It is refused, and recorded.
    Stale(StaleWhy, Rejection),
}

struct Heard<'a> {
    state: &'a State,
    task: &'a Task,
    said: &'a Report,
    now: Timestamp,
}

impl Heard<'_> {
    /// Points 2 to 4 of semantics 14.
    fn valid_lease(&self) -> Result<&Lease, Refused> {
        let (task, said) = (self.task, self.said);
        let first = task.outcomes.iter().find(|first| first.attempt == said.attempt && first.lease == said.lease);
        if let (Some(first), Some((kind, digest))) = (first, outcome_of(&said.word)) {
            if first.kind == kind && first.digest == digest {
                return Err(Refused::Repeat(first.receipt));
            }
            let conflict = Rejection::OutcomeConflict { first: first.receipt };
            return Err(Refused::Stale(StaleWhy::OutcomeConflict, conflict));
        }
        if let Some(ended) = terminal(task) {
            return Err(Refused::Stale(StaleWhy::TaskTerminal, ended));
        }
        let superseded = |why| Refused::Stale(StaleWhy::LeaseSuperseded, Rejection::LeaseSuperseded { why });
        if said.attempt != task.attempt {
            return Err(superseded(LeaseWhy::Attempt(task.attempt)));
        }
        let lease = task.status.lease().ok_or_else(|| superseded(LeaseWhy::Ended))?;
        if said.lease != lease.digest {
            return Err(superseded(LeaseWhy::Token));
        }
        // The incarnation fences only the acknowledgement (semantics 2): a late result of an older process still wins.
        let is_ack = matches!(said.word, Word::Ack);
        if is_ack && (said.agent != lease.agent || said.incarnation != self.fence(lease)) {
            return Err(superseded(LeaseWhy::Holder));
        }
        Ok(lease)
    }

    /// The only incarnation that may acknowledge: the lease's own, as long as no newer process took its place.
    fn fence(&self, lease: &Lease) -> Incarnation {
        self.agent(lease).map_or(lease.incarnation, |agent| agent.incarnation.max(lease.incarnation))
    }

    fn agent(&self, lease: &Lease) -> Option<&Agent> {
        let key = AgentKey { namespace: self.task.namespace.clone(), agent_id: lease.agent.clone() };
        self.state.agents.get(&key)
    }

    /// A report under the valid lease.
    fn take(&self, lease: &Lease) -> Decision {
        match &self.said.word {
            Word::Ack => self.ack(lease),
            Word::Progress { .. } => self.progress(lease),
            Word::Complete { .. } => self.complete(),
            Word::Fail { .. } => self.fail(),
            Word::Release { .. } => self.release(),
        }
    }

    fn is_acked(&self) -> bool {
        self.task.acked.is_some_and(|(attempt, _)| attempt == self.task.attempt)
    }

    fn acknowledged(&self) -> EventBody {
        TaskAcknowledged {
            task: self.task.id(),
            attempt: self.task.attempt,
            incarnation: self.said.incarnation,
            work_deadline: work_deadline(self.task, self.now),
        }
        .into()
    }

    /// Back from `orphaned` to its own agent, if that takes part and was not told to let go (semantics 5). An older
    /// process is not its own agent any more: what it works on takes no slot of the new one (S8).
    fn reclaimed(&self, lease: &Lease) -> Option<EventBody> {
        let is_there = self.agent(lease).is_some_and(|agent| match agent.standing {
            Standing::Active => agent.incarnation == lease.incarnation,
            Standing::Draining { .. } | Standing::Offline | Standing::Deregistered => false,
        });
        let work_deadline = work_deadline(self.task, self.now);
        is_there.then(|| TaskReclaimed { task: self.task.id(), attempt: self.task.attempt, work_deadline }.into())
    }

    fn ack(&self, lease: &Lease) -> Decision {
        if self.task.status.kind() == StatusKind::Orphaned {
            return match self.reclaimed(lease) {
                Some(reclaimed) => self.accept(vec![reclaimed], StatusKind::Processing),
                None => self.answer(self.last_receipt()),
            };
        }
        match self.task.acked {
            Some((attempt, seq)) if attempt == self.task.attempt => self.answer(ReceiptOf::Earlier(seq)), // (5)
            Some(_) | None => self.accept(vec![self.acknowledged()], StatusKind::Processing),
        }
    }

    /// An event at most once a second and 1,000 times a task, unless it moves the task (semantics 36).
    fn progress(&self, lease: &Lease) -> Decision {
        let mut events = Vec::new();
        let status = &self.task.status;
        if status.kind() == StatusKind::Orphaned {
            match self.reclaimed(lease) {
                Some(reclaimed) => events.push(reclaimed),
                None => return self.coalesced(),
            }
        } else if !self.is_acked() {
            events.push(self.acknowledged());
        }
        let leaves_slow = events.is_empty() && status.kind() == StatusKind::SlowReach;
        if leaves_slow || !self.is_too_often() {
            let moves = leaves_slow || self.extends(lease);
            events.push(self.progressed(moves.then(|| work_deadline(self.task, self.now))));
        }
        if events.is_empty() { self.coalesced() } else { self.accept(events, StatusKind::Processing) }
    }

    fn progressed(&self, work_deadline: Option<Timestamp>) -> EventBody {
        let (stage, percent, data) = match &self.said.word {
            Word::Progress { stage, percent, data } => (stage.clone(), *percent, data.clone()),
            Word::Ack | Word::Complete { .. } | Word::Fail { .. } | Word::Release { .. } => (None, None, None),
        };
        TaskProgressed { task: self.task.id(), attempt: self.task.attempt, stage, percent, data, work_deadline }.into()
    }

    fn is_too_often(&self) -> bool {
        let soon = self
            .task
            .progress
            .as_ref()
            .is_some_and(|last| last.attempt == self.task.attempt && self.now < last.at.after(PROGRESS_SPACING));
        soon || self.task.progress_events >= MAX_PROGRESS_EVENTS
    }

    fn extends(&self, lease: &Lease) -> bool {
        let rule = self.agent(lease).and_then(|agent| agent.offer(&self.task.spec.capability));
        match rule.map(|offer| offer.progress) {
            Some(ProgressRule::Extends) => true,
            Some(ProgressRule::Shows) | None => false,
        }
    }

    /// An outcome of an unacknowledged attempt is acknowledgement and outcome in one commit. An orphan's needs none:
    /// its lease may have been ambiguous, and the outcome itself says that it ran.
    fn acknowledged_first(&self) -> Vec<EventBody> {
        match self.task.status {
            Status::Dispatched { .. } | Status::SlowReach { .. } if !self.is_acked() => vec![self.acknowledged()],
            Status::Dispatched { .. }
            | Status::SlowReach { .. }
            | Status::Processing { .. }
            | Status::Orphaned { .. }
            | Status::AwaitingApproval
            | Status::Scheduled { .. }
            | Status::Queued { .. }
            | Status::Retrying { .. }
            | Status::Succeeded
            | Status::Failed
            | Status::DeadLetter
            | Status::Expired
            | Status::Cancelled => Vec::new(),
        }
    }

    fn complete(&self) -> Decision {
        let Word::Complete { result, digest, usage, already_done } = &self.said.word else { return self.coalesced() };
        let mut events = self.acknowledged_first();
        events.push(
            TaskSucceeded {
                task: self.task.id(),
                attempt: self.task.attempt,
                incarnation: self.said.incarnation,
                result: result.clone(),
                outcome: *digest,
                usage: usage.clone(),
                already_done: *already_done,
            }
            .into(),
        );
        self.accept(events, StatusKind::Succeeded)
    }

    fn fail(&self) -> Decision {
        let Word::Fail { failure: why, digest, retryable, retry_after } = &self.said.word else {
            return self.coalesced();
        };
        let mut events = self.acknowledged_first();
        let own = events.len();
        let retry = match retryable {
            Retryable::Yes => retry_for(self.task, RetryCause::Reported),
            Retryable::No => Retry::Forbidden,
        };
        let state = match retry {
            Retry::Forbidden => {
                events.push(
                    TaskFailed {
                        task: self.task.id(),
                        attempt: self.task.attempt,
                        incarnation: self.said.incarnation,
                        failure: why.clone(),
                        outcome: *digest,
                    }
                    .into(),
                );
                StatusKind::Failed
            }
            Retry::Allowed => {
                events.push(self.attempt_failed());
                events.push(tried_again(self.task, *retry_after, self.now));
                StatusKind::Retrying
            }
            Retry::Spent => {
                events.push(self.attempt_failed());
                // R-SCH-6: the whole reason is the last failure, with the hub's own code.
                let mut spent = failure(why.class, "retries-exhausted");
                spent.message.clone_from(&why.message);
                events.push(dead_letter(self.task, spent));
                StatusKind::DeadLetter
            }
        };
        self.accept_at(events, own, state)
    }

    fn attempt_failed(&self) -> EventBody {
        let (failure, outcome) = match &self.said.word {
            Word::Fail { failure, digest, .. } => (failure.clone(), Some(*digest)),
            Word::Ack | Word::Progress { .. } | Word::Complete { .. } | Word::Release { .. } => {
                (failure(FailureClass::Hub, "no-failure"), None)
            }
        };
        let (task, attempt) = (self.task.id(), self.task.attempt);
        TaskAttemptFailed { task, attempt, failure, started: Started::Maybe, outcome }.into()
    }

    /// Not started, or idempotent: it goes back (semantics 13).
    fn release(&self) -> Decision {
        let Word::Release { digest, retry_after } = &self.said.word else { return self.coalesced() };
        if self.is_acked() && self.task.spec.idempotence == Idempotence::NotDeclared {
            return Decision::refuse(Rejection::AlreadyAcknowledged);
        }
        let released = TaskReleased { task: self.task.id(), attempt: self.task.attempt, outcome: *digest };
        let how = Return::GivenBack { retry_after: *retry_after };
        let next = returned(self.task, how, QueuedWhy::Released, self.now);
        let state = returned_to(&next);
        self.accept_at(vec![released.into(), next], 0, state)
    }

    /// Accepted; the receipt is of the last event.
    fn accept(&self, events: Vec<EventBody>, state: StatusKind) -> Decision {
        let own = events.len().saturating_sub(1);
        self.accept_at(events, own, state)
    }

    /// Accepted; the receipt is of the event at `own`, the same that a repeat will be shown.
    fn accept_at(&self, events: Vec<EventBody>, own: usize, state: StatusKind) -> Decision {
        let offset = u64::try_from(own).unwrap_or(0).saturating_add(1);
        let receipt = ReceiptOf::Earlier(Seq(self.state.seq().0.saturating_add(offset)));
        Decision::accept(events, Answer::Reported { state, receipt, coalesced: Coalesced::No })
    }

    /// Taken, without an event.
    fn answer(&self, receipt: ReceiptOf) -> Decision {
        let state = self.task.status.kind();
        Decision::nothing(Answer::Reported { state, receipt, coalesced: Coalesced::No })
    }

    fn coalesced(&self) -> Decision {
        let state = self.task.status.kind();
        let receipt = self.last_receipt();
        Decision::nothing(Answer::Reported { state, receipt, coalesced: Coalesced::Yes })
    }

    /// Of the last progress, else of the acknowledgement.
    fn last_receipt(&self) -> ReceiptOf {
        let progress = self.task.progress.as_ref().map(|last| last.seq);
        let acked = self.task.acked.map(|(_, seq)| seq);
        progress.max(acked).map_or(ReceiptOf::None, ReceiptOf::Earlier)
    }

    /// R-SCH-8, bounded by semantics 36 over the task's whole life. For a task that has left memory its row tells, to
    /// which the shell adds what was recorded later; beside that stand those reports that are not yet durable. What
    /// became of its callback later is no report and does not count.
    fn stale_event(&self, why: StaleWhy) -> Option<EventBody> {
        let (id, state) = (self.task.id(), self.state);
        let is_row = !state.tasks.contains_key(&id) && !state.departed.contains_key(&id);
        let is_told = |seq: Seq| is_row && self.task.seqs.contains(&seq);
        let reports =
            state.after.iter().filter(|(task, _, kind)| *task == id && *kind == EventKind::TaskStaleReportRefused);
        let pending = reports.filter(|(_, seq, _)| !is_told(*seq)).count();
        let recorded = self.task.stale_reports.saturating_add(u32::try_from(pending).unwrap_or(u32::MAX));
        (recorded < MAX_STALE_EVENTS).then(|| {
            let (report, content) = said_what(&self.said.word);
            let (attempt, agent) = (self.said.attempt, self.said.agent.clone());
            TaskStaleReportRefused { task: id, attempt, agent, report, why, content }.into()
        })
    }

    /// The agent has spoken on the lease that kept its slot (semantics 6).
    fn freed_ghost(&self) -> Option<EventBody> {
        let key = AgentKey { namespace: self.task.namespace.clone(), agent_id: self.said.agent.clone() };
        let (task, attempt) = (self.task.id(), self.said.attempt);
        let holds = self.state.agents.get(&key)?.ghosts.contains_key(&(task, attempt));
        let is_lease = attempt == self.task.attempt && self.task.last_lease == Some(self.said.lease);
        (holds && is_lease).then(|| AgentSlotFreed { agent: key.agent_id, task, attempt }.into())
    }

    /// Any accepted call of its current process brings a silent agent back (semantics 3).
    fn revival(&self) -> Option<EventBody> {
        let key = AgentKey { namespace: self.task.namespace.clone(), agent_id: self.said.agent.clone() };
        current(self.state, &key, self.said.incarnation).ok().and_then(revive)
    }
}

/// The word's kind and digest, if it is one that ends an attempt.
fn outcome_of(word: &Word) -> Option<(OutcomeKind, Digest)> {
    match word {
        Word::Complete { digest, .. } => Some((OutcomeKind::Complete, *digest)),
        Word::Fail { digest, .. } => Some((OutcomeKind::Fail, *digest)),
        Word::Release { digest, .. } => Some((OutcomeKind::Release, *digest)),
        Word::Ack | Word::Progress { .. } => None,
    }
}

fn said_what(word: &Word) -> (ReportKind, Digest) {
    match word {
        Word::Ack => (ReportKind::Ack, Digest::of(&[b"ack"])),
        Word::Progress { stage, percent, data } => {
            let stage = stage.as_deref().unwrap_or_default();
            let data = data.as_ref().map(|body| body.digest).unwrap_or_default();
            let percent = [percent.map_or(u8::MAX, |percent| percent)];
            (ReportKind::Progress, Digest::of(&[b"progress", &data.0, &percent, stage.as_bytes()]))
        }
        Word::Complete { digest, .. } => (ReportKind::Complete, *digest),
        Word::Fail { digest, .. } => (ReportKind::Fail, *digest),
        Word::Release { digest, .. } => (ReportKind::Release, *digest),
    }
}
