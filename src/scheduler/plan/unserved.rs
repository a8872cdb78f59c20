//! What waits although nobody can take it now: a fleet that is gone must not look like one that is busy.
//!
//! Why from the lanes: all tasks of a lane have the same candidates, so a lane is asked once, however many wait in it.
//! What an agent gets over by itself (no free slot, no open claim, a warm-up) does not count: such tasks are served by
//! waiting. The rules are those of the next dispatch, as with an explanation.

use std::collections::BTreeMap;

use crate::ledger::ids::{Capability, Namespace, ReachId, TokenId};
use crate::ledger::machine::State;
use crate::ledger::machine::task::status::Status;
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::roster::PoolNo;
use crate::scheduler::routing::Provider;
use crate::scheduler::routing::candidate::{Needs, Reason, exclusion};

/// Steps of one look at a namespace: capabilities, agents, lanes, callers, and agents compared with a lane. So it takes a
/// millisecond or two at most, whatever waits.
pub const LOOKED_AT: usize = 20_000;

/// Queued tasks of one capability that nobody can take now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unserved {
    /// Which.
    pub capability: Capability,
    /// How many.
    pub tasks: usize,
    /// The one that entered the queue first.
    pub oldest: ReachId,
    /// Since when that one waits.
    pub since: Timestamp,
    /// Agents that offer it, by what is against each for that one; empty when nobody offers it.
    pub agents: BTreeMap<Reason, u32>,
}

/// What was found in a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// By capability, the one that waits longest first.
    pub capabilities: Vec<Unserved>,
    /// Not all could be looked at: there may be more.
    pub is_cut: bool,
}

/// What a look may still cost.
struct Budget {
    left: usize,
    is_spent: bool,
}

impl Budget {
    /// Takes so many steps; not one of them where they are too many.
    const fn spend(&mut self, steps: usize) -> bool {
        match self.left.checked_sub(steps) {
            Some(left) if !self.is_spent => {
                self.left = left;
                true
            }
            Some(_) | None => {
                self.is_spent = true;
                false
            }
        }
    }
}

/// Does the agent get over it by itself, so that what waits for it only waits?
const fn passes(reason: Reason) -> bool {
    match reason {
        Reason::NotRegistered
        | Reason::Draining
        | Reason::Lost
        | Reason::Unhealthy
        | Reason::NotPermitted
        | Reason::SchemaRefused
        | Reason::Tools
        | Reason::ContextWindow
        | Reason::Language
        | Reason::Region
        | Reason::Version
        | Reason::BreakerOpen => false,
        Reason::SchemaUnchecked
        | Reason::BreakerProbing
        | Reason::LoadThreshold
        | Reason::NoFreeSlot
        | Reason::SlowStart
        | Reason::NoOpenClaim
        | Reason::Suspect
        | Reason::Overdue
        | Reason::Avoid
        | Reason::LowerTier => true,
    }
}

impl Scheduler {
    /// Queued tasks of a namespace that nobody can take now. Agents that do not serve `reader` are counted as such
    /// (semantics 39).
    #[must_use]
    pub fn unserved(&self, state: &State, namespace: &Namespace, reader: &TokenId) -> Found {
        let mut budget = Budget { left: LOOKED_AT, is_spent: false };
        let pending = state.counts().get(namespace).into_iter().flat_map(|count| count.pending.keys());
        let mut capabilities = Vec::new();
        for capability in pending {
            if !budget.spend(1) {
                break;
            }
            if let Some(pool) = self.roster.pool_number(namespace, capability) {
                capabilities.extend(self.unserved_in(state, (capability, pool), reader, &mut budget));
            }
        }
        capabilities.sort_by_key(|one| one.since);
        Found { capabilities, is_cut: budget.is_spent }
    }

    fn unserved_in(
        &self,
        state: &State,
        (capability, pool): (&Capability, PoolNo),
        reader: &TokenId,
        budget: &mut Budget,
    ) -> Option<Unserved> {
        let agents = self.roster.providers(pool);
        if !budget.spend(agents.len()) {
            return None;
        }
        let here: Vec<&Provider<'_>> = agents.iter().filter(|agent| agent.seat.closed.is_none()).collect();
        let mut tasks = 0;
        let mut first: Option<(u64, ReachId, &Needs)> = None;
        for lane in self.queue.lanes_of(pool).filter_map(|no| self.queue.lane(no)) {
            if !budget.spend(1) {
                break;
            }
            // Where the budget ends nothing is said: an answer that is cut must not accuse.
            let is_served = |agent: &&Provider<'_>| {
                !budget.spend(1) || exclusion(&lane.needs, agent.seat, agent.offer).is_none_or(passes)
            };
            if here.iter().any(is_served) {
                continue;
            }
            if !budget.spend(lane.callers()) {
                break;
            }
            tasks += lane.len();
            let oldest = lane.oldest().filter(|(order, _)| first.is_none_or(|(other, ..)| *order < other));
            first = oldest.map(|(order, task)| (order, task, &*lane.needs)).or(first);
        }
        let (_, oldest, needs) = first?;
        let Status::Queued { since, .. } = state.task(oldest)?.status else { return None };
        Some(Unserved { capability: capability.clone(), tasks, oldest, since, agents: against(&agents, needs, reader) })
    }
}

/// What is against each agent, counted.
fn against(agents: &[Provider<'_>], needs: &Needs, reader: &TokenId) -> BTreeMap<Reason, u32> {
    let mut counts = BTreeMap::new();
    for agent in agents {
        let reason = match agent.seat.declaration.serves(Some(reader)) {
            true => exclusion(needs, agent.seat, agent.offer),
            false => Some(Reason::NotPermitted),
        };
        if let Some(reason) = reason {
            *counts.entry(reason).or_insert(0) += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_gets_over_by_itself_is_no_reason_to_be_looked_at() {
        let lasting: Vec<&str> =
            Reason::ALL.iter().filter(|reason| !passes(**reason)).map(|reason| reason.name()).collect();
        assert_eq!(
            lasting,
            [
                "not-registered",
                "draining",
                "lost",
                "unhealthy",
                "not-permitted",
                "schema-refused",
                "tools",
                "context-window",
                "language",
                "region",
                "version",
                "breaker-open"
            ]
        );
    }

    #[test]
    fn a_budget_that_was_too_small_once_is_spent() {
        let mut budget = Budget { left: 3, is_spent: false };
        assert!(budget.spend(2));
        assert!(!budget.spend(2) && budget.is_spent);
        assert!(!budget.spend(1), "what follows would be looked at while what was left out is not");
    }
}
