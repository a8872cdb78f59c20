//! When a breaker is to open, and the one task that tries its agent out: the planner's part (R-RTE-7, semantics 15).
//!
//! Why the planner counts: the count is a guess about an agent, as its load is, and a start of the hub forgets it. What
//! follows from it is proposed, and the ledger keeps it.

use crate::ledger::ids::{AgentKey, Capability, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Health;
use crate::ledger::machine::breaker::{BreakerKey, FailedAttempt, OPENS_AFTER, Verdict, verdict};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::task::status::SlowCause;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::roster::SeatNo;
use crate::scheduler::routing::bar::Bar;

impl Scheduler {
    /// An event of a task, before its holder changes: what does it say of the agent that held it?
    ///
    /// An attempt counts once, by the first that is said against it. Not counted is what a former process of the agent
    /// left, what its loss brought (liveness judges that), what went unanswered since before this start of the hub, and
    /// anything while the breaker is not closed.
    pub(super) fn count_failure(&mut self, state: &State, event: &Event, id: ReachId) {
        let (Some(task), Some(holding)) = (state.task(id), self.spoken_of(event, id)) else { return };
        if matches!(event.body, EventBody::TaskOrphaned(_)) {
            holding.counted = true;
        }
        let Some(said) = verdict(&event.body, &task.spec) else { return };
        let capability = task.spec.capability.clone();
        match said {
            Verdict::Succeeded => {
                let agent = holding.agent.clone();
                self.begin_anew(&agent, &capability);
            }
            Verdict::Answered => {}
            Verdict::Failed => {
                let since_before = holding.dispatched_at.is_none() && is_unanswered(&event.body);
                if std::mem::replace(&mut holding.counted, true) || since_before {
                    return;
                }
                let process = holding.process;
                let key = BreakerKey { agent: holding.agent.clone(), capability };
                let Some(agent) = state.agent(&key.agent) else { return };
                if agent.incarnation != process || agent.health == Health::Lost || state.breaker(&key).is_some() {
                    return;
                }
                let failed = FailedAttempt { task: id, attempt: task.attempt };
                let streak = self.vitals.streak_grows(&key.agent, &key.capability, failed);
                if streak.len() >= OPENS_AFTER {
                    self.vitals.streak_ends(&key.agent, &key.capability);
                    self.tripped.insert(key, streak);
                }
            }
        }
    }

    /// What failed before no longer counts, also where it would open a breaker in the next cycle.
    fn begin_anew(&mut self, agent: &AgentKey, capability: &Capability) {
        self.vitals.streak_ends(agent, capability);
        self.tripped.remove(&BreakerKey { agent: agent.clone(), capability: capability.clone() });
    }

    /// Proposals to open what tripped. Each is made once: what is refused then had a stale view.
    pub(super) fn open_breakers(&mut self, state: &State, room: usize) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        while proposals.len() < room
            && let Some((key, failures)) = self.tripped.pop_first()
        {
            let Some(agent) = state.agent(&key.agent) else { continue };
            let (namespace, incarnation) = (Some(key.agent.namespace.clone()), agent.incarnation);
            let BreakerKey { agent: AgentKey { agent_id, .. }, capability } = key;
            let command = Command::OpenBreaker { agent: agent_id, incarnation, capability, failures };
            proposals.push(Proposal::by_hub(namespace, command));
        }
        proposals
    }

    /// A breaker moved, by itself or by an operator's word: what failed before has had its consequence, and lanes that
    /// waited for its agent are looked at again.
    pub(super) fn notice_breaker(&mut self, event: &Event, agent: &AgentKey) {
        let Some(capability) = moved(&event.body) else { return };
        self.begin_anew(agent, capability);
        let Some(seat) = self.roster.number(agent) else { return };
        let dirty = &mut self.dirty_lanes;
        self.held_back.retain(|lane, hold| {
            let waits_for_it = hold.expected == Some(seat);
            if waits_for_it {
                dirty.insert(*lane);
            }
            !waits_for_it
        });
    }

    /// Takes the one place that a half-open breaker gives; `None` where it is closed.
    pub(super) fn begin_probe(&mut self, seat: SeatNo, capability: &Capability) -> Option<Capability> {
        let bars = &self.roster.desk(seat)?.seat.bars;
        bars.get(capability).filter(|bar| **bar == Bar::OneMay)?;
        self.roster.adjust(seat, |desk| {
            desk.seat.probing.insert(capability.clone());
        });
        Some(capability.clone())
    }
}

/// The capability whose breaker an event moves.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the three kinds that are a breaker's")]
const fn moved(body: &EventBody) -> Option<&Capability> {
    match body {
        EventBody::BreakerOpened(body) => Some(&body.capability),
        EventBody::BreakerHalfOpened(body) => Some(&body.capability),
        EventBody::BreakerClosed(body) => Some(&body.capability),
        _ => None,
    }
}

/// Did nobody answer, as far as the hub knows? After a start that is the hub's own doing.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the two kinds that say so")]
fn is_unanswered(body: &EventBody) -> bool {
    match body {
        EventBody::TaskSlow(body) => body.cause == SlowCause::Ambiguous,
        EventBody::TaskAttemptFailed(body) => body.outcome.is_none(),
        _ => false,
    }
}
