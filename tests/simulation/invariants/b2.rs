//! B2: nothing goes to an open breaker, one task at a time tries a half-open one out, and what opens and closes it is what
//! the rule says (R-RTE-7, semantics 15). Told from the events alone.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{AgentKey, AttemptNo, Capability, Incarnation, ReachId};
use agent_reach::ledger::machine::agent::Declaration;
use agent_reach::ledger::machine::breaker::{FailedAttempt, OPEN_FOR};
use agent_reach::ledger::machine::event::{
    ClosedWhy, Event, EventBody, HalfOpenedWhy, OpenedWhy, TaskAttemptFailed, TaskDispatched,
};
use agent_reach::ledger::machine::task::status::SlowCause;
use agent_reach::ledger::machine::task::{Failure, FailureClass};
use agent_reach::ledger::time::Timestamp;

use crate::invariants::s7::key_of;
use crate::model::{Evidence, Findings, ends};

type Pair = (AgentKey, Capability);
type Attempt = (ReachId, AttemptNo);

/// How a breaker stands, by its events; a closed one is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    Open(Option<Timestamp>),
    HalfOpen(Option<Attempt>),
    Held,
}

#[derive(Default)]
struct Picture {
    stands: BTreeMap<Pair, Stand>,
    processes: BTreeMap<AgentKey, Incarnation>,
    /// To whom each attempt went.
    given: BTreeMap<Attempt, Pair>,
    /// What spoke against its agent, since the pair's last success.
    failed: BTreeMap<Pair, BTreeSet<Attempt>>,
    succeeded: BTreeSet<Attempt>,
    /// Failures in the agent's own word, of a class that does not count.
    answered: BTreeSet<Attempt>,
    ended: BTreeSet<Attempt>,
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut picture = Picture::default();
    for entry in evidence.log {
        let event = &entry.event;
        picture.agents(event);
        picture.tasks(evidence, event, findings);
        picture.breakers(event, findings);
    }
    let last = evidence.log.last().map(|entry| entry.event.seq).unwrap_or_default();
    for ((agent, capability), stand) in &picture.stands {
        if let Stand::HalfOpen(Some(probe)) = stand
            && picture.ended.contains(probe)
        {
            let what = format!("{} waits for {}, which is over, to give it {capability}", agent.agent_id, probe.0);
            findings.add("B2", last, what);
        }
    }
}

/// What a failure says of its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Against,
    Answered,
}

/// The classes of semantics 15, said here once more.
const fn said(failure: &Failure) -> Said {
    match failure.class {
        FailureClass::Network | FailureClass::AgentOverload | FailureClass::AgentCrash | FailureClass::AgentTimeout => {
            Said::Against
        }
        FailureClass::Business
        | FailureClass::Schema
        | FailureClass::Policy
        | FailureClass::Hub
        | FailureClass::CallerCancelled => Said::Answered,
    }
}

impl Picture {
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds begin or end a process; the rest do not")]
    fn agents(&mut self, event: &Event) {
        let key = event.body.agent().and_then(|agent| key_of(event, agent));
        let Some(key) = key else { return };
        match &event.body {
            EventBody::AgentRegistered(body) => {
                let before = self.processes.insert(key.clone(), body.incarnation);
                let is_new = before.is_some_and(|before| before != body.incarnation);
                self.forget(&key, |capability| is_new || !offers(&body.declaration, capability));
            }
            EventBody::AgentUpdated(body) => self.forget(&key, |capability| !offers(&body.declaration, capability)),
            EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_) => self.forget(&key, |_| true),
            _ => {}
        }
    }

    /// An operator's word stays.
    fn forget(&mut self, key: &AgentKey, is_gone: impl Fn(&Capability) -> bool) {
        let stays = |stand: &Stand| matches!(stand, Stand::Open(None) | Stand::Held);
        self.stands.retain(|(agent, capability), stand| agent != key || stays(stand) || !is_gone(capability));
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds speak of an attempt; the rest do not")]
    fn tasks(&mut self, evidence: &Evidence<'_>, event: &Event, findings: &mut Findings) {
        if event.body.callback_subject().is_some() {
            return;
        }
        match &event.body {
            EventBody::TaskDispatched(body) => self.dispatched(evidence, (event, body), findings),
            EventBody::TaskSucceeded(body) => {
                let attempt = (body.task, body.attempt);
                self.succeeded.insert(attempt);
                if let Some(pair) = self.given.get(&attempt) {
                    self.failed.remove(pair);
                }
            }
            EventBody::TaskFailed(body) => self.failure((body.task, body.attempt), said(&body.failure)),
            EventBody::TaskAttemptFailed(TaskAttemptFailed { task, attempt, failure, outcome, .. })
                if said(failure) == Said::Against || outcome.is_some() =>
            {
                self.failure((*task, *attempt), said(failure));
            }
            EventBody::TaskSlow(body) => {
                let is_callers = evidence.tasks.get(&body.task).is_some_and(|life| life.spec.sync_wait.is_some());
                if body.cause == SlowCause::Ambiguous || !is_callers {
                    self.failure((body.task, body.attempt), Said::Against);
                }
            }
            _ => {}
        }
        if ends(&event.body).is_some()
            && let Some(task) = event.body.task()
        {
            self.ended.extend(self.given.range((task, AttemptNo(0))..=(task, AttemptNo(u32::MAX))).map(|(at, _)| *at));
        }
    }

    fn failure(&mut self, attempt: Attempt, said: Said) {
        match (said, self.given.get(&attempt)) {
            (Said::Against, Some(pair)) => {
                self.failed.entry(pair.clone()).or_default().insert(attempt);
            }
            (Said::Against, None) => {}
            (Said::Answered, _) => {
                self.answered.insert(attempt);
            }
        }
    }

    fn dispatched(
        &mut self,
        evidence: &Evidence<'_>,
        (event, body): (&Event, &TaskDispatched),
        findings: &mut Findings,
    ) {
        let Some(life) = evidence.tasks.get(&body.task) else { return };
        let Some(agent) = key_of(event, &body.agent) else { return };
        let (pair, attempt) = ((agent, life.spec.capability.clone()), (body.task, body.attempt));
        match self.stands.get_mut(&pair) {
            Some(Stand::Open(_)) => {
                findings.add("B2", event.seq, format!("{} goes to {}, whose breaker is open", body.task, body.agent));
            }
            Some(Stand::HalfOpen(Some(probe))) => {
                let what = format!("{} goes to {} beside {}, which tries it out", body.task, body.agent, probe.0);
                findings.add("B2", event.seq, what);
            }
            Some(Stand::HalfOpen(probe)) => {
                *probe = Some(attempt);
                findings.judged("B2: probes");
            }
            Some(Stand::Held) | None => {}
        }
        self.given.insert(attempt, pair);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about a breaker's own kinds")]
    fn breakers(&mut self, event: &Event, findings: &mut Findings) {
        let Some(agent) = event.body.agent().and_then(|agent| key_of(event, agent)) else { return };
        match &event.body {
            EventBody::BreakerOpened(body) => {
                let pair = (agent, body.capability.clone());
                let before = self.stands.get(&pair).copied();
                if let Some(what) =
                    self.wrong_opening(&pair, (before, body.until, event.at), (&body.why, &body.failures))
                {
                    findings.add("B2", event.seq, what);
                }
                findings.judged("B2: openings");
                self.failed.remove(&pair);
                self.stands.insert(pair, Stand::Open(body.until));
            }
            EventBody::BreakerHalfOpened(body) => {
                let pair = (agent, body.capability.clone());
                let follows = match (&body.why, self.stands.get(&pair)) {
                    (HalfOpenedWhy::TimeOver, Some(Stand::Open(Some(until)))) => *until <= event.at,
                    (HalfOpenedWhy::ProbeSilent, Some(Stand::HalfOpen(Some(_))))
                    | (HalfOpenedWhy::Operator { .. }, Some(Stand::Open(None))) => true,
                    _ => false,
                };
                if !follows {
                    let stand = self.stands.get(&pair);
                    findings.add("B2", event.seq, format!("half-opens by {:?} out of {stand:?}", body.why));
                }
                self.stands.insert(pair, Stand::HalfOpen(None));
            }
            EventBody::BreakerClosed(body) => {
                let pair = (agent, body.capability.clone());
                let before = self.stands.remove(&pair);
                let follows = match (&body.why, before) {
                    (ClosedWhy::ProbeSucceeded, Some(Stand::HalfOpen(Some(probe)))) => self.succeeded.contains(&probe),
                    (ClosedWhy::ProbeAnswered, Some(Stand::HalfOpen(Some(probe)))) => self.answered.contains(&probe),
                    (ClosedWhy::Operator { .. }, _) | (ClosedWhy::GivenBack { .. }, Some(Stand::Held)) => true,
                    _ => false,
                };
                if !follows {
                    findings.add("B2", event.seq, format!("closes by {:?} out of {before:?}", body.why));
                }
                self.failed.remove(&pair);
                if matches!(body.why, ClosedWhy::Operator { .. }) {
                    self.stands.insert(pair, Stand::Held);
                }
            }
            _ => {}
        }
    }

    fn wrong_opening(
        &self,
        pair: &Pair,
        (before, until, at): (Option<Stand>, Option<Timestamp>, Timestamp),
        (why, failures): (&OpenedWhy, &[FailedAttempt]),
    ) -> Option<String> {
        let failed =
            |one: &FailedAttempt| self.failed.get(pair).is_some_and(|all| all.contains(&(one.task, one.attempt)));
        let in_time = until == Some(at.after(OPEN_FOR));
        let (follows, is_so) = match why {
            OpenedWhy::Failures => (before.is_none() && in_time, failures.len() == 5 && failures.iter().all(failed)),
            OpenedWhy::ProbeFailed => {
                let probe = if let Some(Stand::HalfOpen(probe)) = before { probe } else { None };
                let last = failures.last().map(|last| (last.task, last.attempt));
                (probe.is_some() && in_time, probe == last && failures.last().is_some_and(failed))
            }
            OpenedWhy::Operator { .. } => (until.is_none(), failures.len() <= 5),
        };
        if follows && is_so {
            return None;
        }
        Some(format!("{} opens by {why:?} out of {before:?} until {until:?} for {failures:?}", pair.0.agent_id))
    }
}

fn offers(declaration: &Declaration, capability: &Capability) -> bool {
    declaration.offers.iter().any(|offer| offer.capability == *capability)
}
