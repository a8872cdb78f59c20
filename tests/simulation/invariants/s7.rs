//! S7: no dispatch before `not_before`, at or after the deadline, while held for approval, or to an agent that is not
//! healthy, not active or of an older incarnation. Retry delays lie within [base, cap] and never under the agent's own
//! `retry_after`.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{AgentId, AgentKey, Incarnation};
use agent_reach::ledger::machine::event::{Event, EventBody, RetryWhy};
use agent_reach::ledger::machine::task::spec::{Approval, MAX_RETRY_AFTER};
use agent_reach::ledger::time::Millis;

use crate::invariants::s1::outcome_of;
use crate::model::{Evidence, Findings, Life};

/// How an agent stands, by its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) incarnation: Incarnation,
    pub(crate) healthy: bool,
    pub(crate) active: bool,
}

/// Follows the agents' standings.
#[derive(Default)]
pub(crate) struct Stands(pub(crate) BTreeMap<AgentKey, Stand>);

impl Stands {
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds change an agent's standing; the rest do not")]
    pub(crate) fn observe(&mut self, event: &Event) {
        let healthy = |stand: &mut Stand| stand.healthy = true;
        let unhealthy = |stand: &mut Stand| stand.healthy = false;
        let inactive = |stand: &mut Stand| stand.active = false;
        match &event.body {
            EventBody::AgentRegistered(body) => {
                let stand = Stand { incarnation: body.incarnation, healthy: true, active: true };
                if let Some(key) = key_of(event, &body.agent) {
                    self.0.insert(key, stand);
                }
            }
            EventBody::AgentHealthy(body) => self.change(event, &body.agent, healthy),
            EventBody::AgentUnhealthy(body) => self.change(event, &body.agent, unhealthy),
            EventBody::AgentLost(body) => self.change(event, &body.agent, unhealthy),
            EventBody::AgentDraining(body) => self.change(event, &body.agent, inactive),
            EventBody::AgentLeft(body) => self.change(event, &body.agent, inactive),
            EventBody::AgentDeregistered(body) => self.change(event, &body.agent, inactive),
            _ => {}
        }
    }

    fn change(&mut self, event: &Event, agent: &AgentId, change: impl FnOnce(&mut Stand)) {
        if let Some(stand) = key_of(event, agent).and_then(|key| self.0.get_mut(&key)) {
            change(stand);
        }
    }
}

/// The agent that an event names.
pub(crate) fn key_of(event: &Event, agent: &AgentId) -> Option<AgentKey> {
    Some(AgentKey { namespace: event.namespace.clone()?, agent_id: agent.clone() })
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut stands = Stands::default();
    for entry in evidence.log {
        let event = &entry.event;
        stands.observe(event);
        let EventBody::TaskDispatched(body) = &event.body else { continue };
        let wanted = Stand { incarnation: body.incarnation, healthy: true, active: true };
        let found = key_of(event, &body.agent).and_then(|key| stands.0.get(&key)).copied();
        if found != Some(wanted) {
            findings.add("S7", event.seq, format!("{} goes to an agent that stands {found:?}", body.task));
        }
    }
    for life in evidence.tasks.values() {
        times(life, findings);
        delays(evidence, life, findings);
    }
}

fn times(life: &Life<'_>, findings: &mut Findings) {
    let mut held = life.spec.approval == Approval::Needed;
    for event in &life.events {
        held &= !matches!(event.body, EventBody::TaskApproved(_));
        if !matches!(event.body, EventBody::TaskDispatched(_)) {
            continue;
        }
        if held {
            findings.add("S7", event.seq, format!("{}: dispatched while held for approval", life.id));
        }
        if event.at >= life.deadline {
            findings.add("S7", event.seq, format!("{}: dispatched after its deadline", life.id));
        }
        if life.spec.not_before.is_some_and(|at| event.at < at) {
            findings.add("S7", event.seq, format!("{}: dispatched before its time", life.id));
        }
    }
}

fn delays(evidence: &Evidence<'_>, life: &Life<'_>, findings: &mut Findings) {
    let mut last: Option<&Event> = None;
    let mut until = None;
    for event in &life.events {
        if let EventBody::TaskRetryScheduled(body) = &event.body {
            let delay = body.until.since(event.at);
            let said = last.and_then(|event| outcome_of(&event.body)).and_then(|d| evidence.notes.spoken.get(&d));
            let floor = said.and_then(|spoken| spoken.retry_after).unwrap_or_default().min(MAX_RETRY_AFTER);
            let policy = &life.spec.retry;
            if body.why == RetryWhy::AttemptFailed {
                let top = policy.cap.max(policy.base).max(floor);
                if delay < policy.base || delay > top {
                    findings.add("S7", event.seq, format!("{}: a retry waits {delay}", life.id));
                }
            } else if delay > floor.max(Millis::secs(60)).max(MAX_RETRY_AFTER) {
                findings.add("S7", event.seq, format!("{}: a return waits {delay}", life.id));
            }
            if delay < floor {
                findings.add("S7", event.seq, format!("{}: waits {delay}, its agent asked for {floor}", life.id));
            }
            until = Some(body.until);
        } else if matches!(event.body, EventBody::TaskQueued(_))
            && let Some(until) = until.take().filter(|until| event.at < *until)
        {
            findings.add("S7", event.seq, format!("{}: queued before its retry time {until}", life.id));
        }
        last = Some(event);
    }
}
