//! An independent second opinion: the invariants that the ledger alone must show, checked over the events.
//!
//! It shares no code with `decide` and `apply` and keeps its own small picture of each task, so that a mistake in the
//! core does not excuse itself here. The properties, the simulation and the crash test run it. What it checks: S1 to
//! S5, S7 (as far as events tell), S10, D2 (density) and T1.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::ids::{AgentKey, AttemptNo, Incarnation, ReachId, Seq};
use crate::ledger::machine::event::{Actor, Event, EventBody, QueuedWhy, RetryWhy, Started};
use crate::ledger::machine::task::spec::{Idempotence, MAX_INTERRUPTIONS, OrphanPolicy, SlowPolicy, Submission};
use crate::ledger::machine::task::status::{Delivery, OrphanCause};
use crate::ledger::time::Timestamp;

/// An invariant that the ledger does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Its name: `S1`, `T1`, …
    pub invariant: &'static str,
    /// At which event.
    pub seq: Seq,
    /// What is wrong.
    pub what: String,
}

/// Checks a whole history, or one that goes on from an empty state.
pub fn check<'a>(events: impl Iterator<Item = &'a Event>) -> Vec<Violation> {
    let mut audit = Audit::default();
    for event in events {
        audit.observe(event);
    }
    audit.violations
}

/// Where a task stands, as far as the audit needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Held,
    Waiting,
    Queued,
    Leased,
    Orphaned,
    Ended,
}

/// The audit's own picture of one task.
struct Life {
    spec: Arc<Submission>,
    deadline: Timestamp,
    place: Place,
    attempt: AttemptNo,
    delivery: Delivery,
    /// May the current attempt have started?
    maybe_started: bool,
    /// Is it overdue or unanswered?
    slow: bool,
    /// Attempts that may have started, were not given back, and whose successor no policy allowed.
    started_epochs: u32,
    /// A wait that the next `task-queued` needs: not before.
    not_before: Option<Timestamp>,
    retries: u32,
    losses: u32,
}

/// Observes events one by one: for those who have no list.
#[derive(Default)]
pub struct Audit {
    last: Option<(Seq, Timestamp)>,
    lives: BTreeMap<ReachId, Life>,
    agents: BTreeMap<AgentKey, (Incarnation, Openness)>,
    violations: Vec<Violation>,
}

/// May an agent be given work, as the events tell it?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Openness {
    Open,
    Shut,
}

impl Audit {
    /// What was found so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Looks at the next event.
    pub fn observe(&mut self, event: &Event) {
        if let Some((seq, at)) = self.last {
            if event.seq != seq.next() {
                self.report("D2", event, format!("follows seq {seq}"));
            }
            if event.at < at {
                self.report("T1", event, format!("time falls from {at}"));
            }
        }
        self.last = Some((event.seq, event.at));
        self.observe_agent(event);
        if let EventBody::TaskSubmitted(body) = &event.body {
            let held = body.submission.approval == crate::ledger::machine::task::spec::Approval::Needed;
            let early = body.submission.not_before.is_some_and(|at| at > event.at);
            let life = Life {
                spec: Arc::clone(&body.submission),
                deadline: body.deadline,
                place: if held {
                    Place::Held
                } else if early {
                    Place::Waiting
                } else {
                    Place::Queued
                },
                attempt: AttemptNo(0),
                delivery: Delivery::Pull,
                maybe_started: false,
                slow: false,
                started_epochs: 0,
                not_before: body.submission.not_before,
                retries: 0,
                losses: 0,
            };
            if self.lives.insert(body.submission.reach_id, life).is_some() {
                self.report("S1", event, "a task is submitted twice".to_owned());
            }
            return;
        }
        let is_callback = event.body.callback_subject().is_some();
        let Some(id) = event.body.task().filter(|_| !is_callback) else { return };
        let Some(mut life) = self.lives.remove(&id) else {
            self.report("S1", event, format!("{id} was never submitted"));
            return;
        };
        let mut found = Vec::new();
        life.observe(event, &mut found);
        if let EventBody::TaskDispatched(body) = &event.body {
            let key = event.namespace.clone().map(|namespace| AgentKey { namespace, agent_id: body.agent.clone() });
            let standing = key.and_then(|key| self.agents.get(&key)).copied();
            if standing != Some((body.incarnation, Openness::Open)) {
                found.push(("S7", format!("dispatched to an agent that stands {standing:?}")));
            }
        }
        self.lives.insert(id, life);
        for (invariant, what) in found {
            self.report(invariant, event, what);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds change an agent's standing; the rest do not")]
    fn observe_agent(&mut self, event: &Event) {
        let (agent, change) = match &event.body {
            EventBody::AgentRegistered(e) => (&e.agent, Some((e.incarnation, Openness::Open))),
            EventBody::AgentDraining(e) => (&e.agent, Some((e.incarnation, Openness::Shut))),
            EventBody::AgentUnhealthy(e) => (&e.agent, Some((e.incarnation, Openness::Shut))),
            EventBody::AgentLost(e) => (&e.agent, Some((e.incarnation, Openness::Shut))),
            EventBody::AgentLeft(e) => (&e.agent, Some((e.incarnation, Openness::Shut))),
            EventBody::AgentDeregistered(e) => (&e.agent, Some((e.incarnation, Openness::Shut))),
            EventBody::AgentHealthy(e) => (&e.agent, Some((e.incarnation, Openness::Open))),
            EventBody::AgentUpdated(e) => (&e.agent, None),
            _ => return,
        };
        let Some(namespace) = event.namespace.clone() else { return };
        let key = AgentKey { namespace, agent_id: agent.clone() };
        if let Some(change) = change {
            if self.agents.get(&key).is_some_and(|(before, _)| *before > change.0) {
                self.report("S7", event, "an incarnation falls".to_owned());
            }
            self.agents.insert(key, change);
        }
    }

    fn report(&mut self, invariant: &'static str, event: &Event, what: String) {
        let what = format!("{}: {what}", event.body.kind().name());
        self.violations.push(Violation { invariant, seq: event.seq, what });
    }
}

type Found = Vec<(&'static str, String)>;

impl Life {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "an audit of the invariants, not of the table: other kinds pass"
    )]
    fn observe(&mut self, event: &Event, found: &mut Found) {
        if self.place == Place::Ended {
            if !matches!(event.body, EventBody::TaskStaleReportRefused(_) | EventBody::TaskRedriven(_)) {
                found.push(("S2", "something moves after the end".to_owned()));
            }
            return;
        }
        self.check_epoch(&event.body, found);
        match &event.body {
            EventBody::TaskQueued(body) => self.queued(event, body.why, found),
            EventBody::TaskDispatched(body) => {
                if self.place != Place::Queued {
                    found.push(("S3", format!("dispatched while {:?}", self.place)));
                }
                if body.attempt != self.attempt.next() {
                    found.push(("S4", format!("attempt {} follows {}", body.attempt.0, self.attempt.0)));
                }
                if event.at >= self.deadline {
                    found.push(("S7", "dispatched after its deadline".to_owned()));
                }
                if self.spec.not_before.is_some_and(|at| event.at < at) {
                    found.push(("S7", "dispatched before its time".to_owned()));
                }
                self.begin(body.attempt, body.delivery, found);
            }
            EventBody::TaskAcknowledged(_) | EventBody::TaskReclaimed(_) | EventBody::TaskProgressed(_) => {
                self.maybe_started = true;
                self.slow = false;
                self.place = Place::Leased;
            }
            EventBody::TaskSlow(_) => {
                self.maybe_started = true;
                self.slow = true;
            }
            EventBody::TaskAttemptFailed(body) => self.attempt_failed(event, body.started, found),
            EventBody::TaskReleased(_) => {
                self.maybe_started = false;
                self.wait(event.at);
            }
            EventBody::TaskRetryScheduled(body) => self.retry_scheduled(event, (body.why, body.until), found),
            EventBody::TaskOrphaned(body) => {
                self.losses += u32::from(body.cause == OrphanCause::AgentLost);
                if self.losses > MAX_INTERRUPTIONS {
                    found.push(("S5", format!("{} interruptions", self.losses)));
                }
                self.maybe_started = true;
                self.place = Place::Orphaned;
            }
            EventBody::TaskReplayed(_) => self.replayed(event, found),
            EventBody::TaskApproved(_) => {
                self.place = Place::Waiting;
            }
            EventBody::TaskDeadLettered(body) => self.dead_lettered(&body.failure.code, found),
            EventBody::TaskSucceeded(_)
            | EventBody::TaskFailed(_)
            | EventBody::TaskExpired(_)
            | EventBody::TaskCancelled(_) => self.place = Place::Ended,
            _ => {}
        }
        if matches!(event.body, EventBody::TaskExpired(_)) && event.at < self.deadline {
            found.push(("L1", "expired before its deadline".to_owned()));
        }
    }

    /// An operator's event, with its actor, allows the next epoch; else its recorded policy must.
    fn replayed(&mut self, event: &Event, found: &mut Found) {
        let by_word = matches!(event.actor, Actor::Token(_));
        if self.place != Place::Orphaned && !(by_word && self.slow) {
            found.push(("S9", "replayed, but no orphan".to_owned()));
        }
        if self.spec.orphan == OrphanPolicy::Hold && !by_word {
            found.push(("S10", "a held orphan is replayed".to_owned()));
        }
        self.maybe_started = false;
        self.wait(event.at);
    }

    /// S3: whatever speaks of an attempt speaks of the current one, and only under a lease.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds carry the current epoch; the rest carry none")]
    fn check_epoch(&self, body: &EventBody, found: &mut Found) {
        let attempt = match body {
            EventBody::TaskAcknowledged(e) => e.attempt,
            EventBody::TaskReclaimed(e) => e.attempt,
            EventBody::TaskProgressed(e) => e.attempt,
            EventBody::TaskSlow(e) => e.attempt,
            EventBody::TaskAttemptFailed(e) => e.attempt,
            EventBody::TaskOrphaned(e) => e.attempt,
            EventBody::TaskReleased(e) => e.attempt,
            EventBody::TaskSucceeded(e) => e.attempt,
            EventBody::TaskFailed(e) => e.attempt,
            _ => return,
        };
        if attempt != self.attempt {
            let invariant = if body.kind().name() == "task-succeeded" { "S1" } else { "S3" };
            found.push((invariant, format!("speaks of attempt {}, current is {}", attempt.0, self.attempt.0)));
        }
        if !matches!(self.place, Place::Leased | Place::Orphaned) {
            found.push(("S3", format!("no lease is valid while {:?}", self.place)));
        }
    }

    fn begin(&mut self, attempt: AttemptNo, delivery: Delivery, found: &mut Found) {
        // S10: an epoch before this one that may have started must have been allowed to be followed.
        if self.maybe_started {
            self.started_epochs += 1;
        }
        if self.started_epochs > 0 && self.spec.idempotence == Idempotence::NotDeclared {
            found.push(("S10", "a task not declared idempotent gets another epoch".to_owned()));
        }
        self.attempt = attempt;
        self.delivery = delivery;
        self.maybe_started = false;
        self.slow = false;
        self.place = Place::Leased;
    }

    fn queued(&mut self, event: &Event, why: QueuedWhy, found: &mut Found) {
        match (why, self.place) {
            (QueuedWhy::NeverStarted, Place::Leased) => {
                if self.maybe_started || self.delivery == Delivery::Push {
                    found.push(("S10", "an attempt that may have started returns as never started".to_owned()));
                }
            }
            (_, Place::Waiting) => {}
            (_, place) => found.push(("S3", format!("queued while {place:?}"))),
        }
        if self.not_before.is_some_and(|at| event.at < at) {
            found.push(("S7", "queued before its time".to_owned()));
        }
        self.place = Place::Queued;
    }

    fn attempt_failed(&mut self, event: &Event, started: Started, found: &mut Found) {
        match started {
            Started::Never => self.maybe_started = false,
            Started::Maybe => {
                self.maybe_started = true;
                if self.spec.idempotence == Idempotence::NotDeclared {
                    found.push(("S10", "an attempt that may have started is given up for another".to_owned()));
                }
            }
        }
        self.wait(event.at);
    }

    fn retry_scheduled(&mut self, event: &Event, (why, until): (RetryWhy, Timestamp), found: &mut Found) {
        match why {
            RetryWhy::AttemptFailed => {
                self.retries += 1;
                let policy = &self.spec.retry;
                if self.retries > policy.max_retries {
                    found.push(("S5", format!("{} retries of {}", self.retries, policy.max_retries)));
                }
                if until < event.at.after(policy.base) {
                    found.push(("S7", "a retry waits less than its base".to_owned()));
                }
            }
            RetryWhy::Returned if self.place == Place::Leased && self.maybe_started => {
                found.push(("S10", "an attempt that may have started returns".to_owned()));
            }
            RetryWhy::Returned => {}
        }
        self.wait(until);
    }

    fn wait(&mut self, until: Timestamp) {
        self.place = Place::Waiting;
        self.not_before = Some(self.not_before.map_or(until, |at| at.max(until)));
    }

    fn dead_lettered(&mut self, code: &str, found: &mut Found) {
        let early = match code {
            "poison-suspected" => self.losses < MAX_INTERRUPTIONS,
            // A hand-over by the slow-reach policy may find a task that allows no retry at all.
            "retries-exhausted" => {
                let hands_over = matches!(self.spec.slow_reach, SlowPolicy::HandOver { .. });
                self.retries < self.spec.retry.max_retries && !hands_over
            }
            _ => false,
        };
        if early {
            found.push(("S5", format!("{code}, but the budget is not spent")));
        }
        self.place = Place::Ended;
    }
}

#[cfg(test)]
mod tests;
