//! How fast an agent that came back gets work again (R-REC-6, semantics 3).
//!
//! Why: it returns cold, perhaps from the very load that took it down, and everything that waited in its absence could
//! reach it at once. So in the first second it gets one task beside what it holds, then 2, 4, 8 …, until that is as many
//! as it takes anyway. The ramp of a whole restart is another: see [`crate::scheduler::ramp`].

use std::collections::BTreeMap;

use crate::ledger::ids::AgentKey;
use crate::ledger::time::{Millis, Timestamp};

/// One agent's way back.
#[derive(Debug, Clone, Copy)]
pub struct SlowStart {
    from: Timestamp,
    /// What it held when it came back.
    held: u32,
}

impl SlowStart {
    /// It came back at that moment, with so many tasks in hand.
    #[must_use]
    pub const fn starting(from: Timestamp, held: u32) -> Self {
        Self { from, held }
    }

    fn seconds(self, now: Timestamp) -> u64 {
        now.since(self.from).0 / 1_000
    }

    /// Tasks that it may have in flight at `now`.
    #[must_use]
    pub fn limit(self, now: Timestamp) -> u32 {
        let seconds = u32::try_from(self.seconds(now)).unwrap_or(u32::MAX);
        self.held.saturating_add(1_u32.checked_shl(seconds).unwrap_or(u32::MAX))
    }

    /// When it may have more.
    #[must_use]
    pub fn next_at(self, now: Timestamp) -> Timestamp {
        self.from.after(Millis((self.seconds(now) + 1) * 1_000))
    }
}

/// The agents on their way back. Nothing is done for them between their steps.
#[derive(Debug, Default)]
pub struct SlowStarts {
    agents: BTreeMap<AgentKey, SlowStart>,
    next: Option<Timestamp>,
}

impl SlowStarts {
    /// An agent came back; gives its limit.
    pub fn begin(&mut self, agent: AgentKey, start: SlowStart, now: Timestamp) -> u32 {
        self.agents.insert(agent, start);
        let at = start.next_at(now);
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
        start.limit(now)
    }

    /// The new limit of everyone whose step is due; `None` for an agent whose slots it no longer bounds. `slots` says
    /// how many an agent has, `None` if it is gone or shut again.
    pub fn steps(&mut self, now: Timestamp, slots: impl Fn(&AgentKey) -> Option<u32>) -> Vec<(AgentKey, Option<u32>)> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let mut steps = Vec::new();
        self.agents.retain(|agent, start| {
            let limit = start.limit(now);
            let bounds = slots(agent).is_some_and(|slots| limit < slots);
            steps.push((agent.clone(), bounds.then_some(limit)));
            bounds
        });
        self.next = self.agents.values().map(|start| start.next_at(now)).min();
        steps
    }

    /// When the next step is due.
    #[must_use]
    pub const fn next_at(&self) -> Option<Timestamp> {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_agent_gets_one_then_two_then_four_beside_what_it_holds() {
        let start = SlowStart::starting(Timestamp(5_000), 3);
        for (at, limit) in [(5_000, 4), (5_999, 4), (6_000, 5), (7_000, 7), (15_000, 1_027), (1_000_000, u32::MAX)] {
            assert_eq!(start.limit(Timestamp(at)), limit, "at {at}");
        }
        assert_eq!(start.next_at(Timestamp(6_400)), Timestamp(7_000));
    }
}
