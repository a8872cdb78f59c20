//! Who offered a capability last, when nobody offers it now: a refusal that says so is no riddle.
//!
//! Why here: the registry keeps those that left, but not when. The planner sees them go; what it saw is volatile, so of
//! those that left before the hub's last start only that is known.

use crate::ledger::ids::{AgentId, AgentKey, Capability, Namespace, TokenId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, Standing};
use crate::ledger::time::Timestamp;
use crate::scheduler::plan::Scheduler;

/// Declared capabilities looked at for one answer: a refusal stays cheap, however many have left.
const LOOKED_AT: usize = 2_000;

/// Those that offered a capability and have left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastOffer {
    /// The last of them.
    pub agent: AgentId,
    /// When it left; `None` if that was before the hub's last start.
    pub until: Option<Timestamp>,
    /// `offline` if it said goodbye, else `deregistered`.
    pub standing: Standing,
    /// How many there are, as far as was looked.
    pub agents: usize,
}

impl Scheduler {
    /// The last that offered it among those that have left and serve `reader` (semantics 39).
    #[must_use]
    pub fn last_offer(
        &self,
        state: &State,
        (namespace, capability): (&Namespace, &Capability),
        reader: &TokenId,
    ) -> Option<LastOffer> {
        let mut left = LOOKED_AT;
        let known = state.agents_of(namespace).take_while(|(_, agent)| {
            let rest = left.checked_sub(1 + agent.declaration.offers.len());
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        let has_left = |agent: &Agent| match agent.standing {
            Standing::Offline | Standing::Deregistered => true,
            Standing::Active | Standing::Draining { .. } => false,
        };
        let gone: Vec<(Option<Timestamp>, &Agent)> = known
            .map(|(_, agent)| agent)
            .filter(|agent| {
                has_left(agent) && agent.declaration.serves(Some(reader)) && agent.offer(capability).is_some()
            })
            .map(|agent| (self.left_at(&agent.key), agent))
            .collect();
        let (until, last) = gone.iter().max_by_key(|(until, _)| *until)?;
        let (agent, standing) = (last.id().clone(), last.standing);
        Some(LastOffer { agent, until: *until, standing, agents: gone.len() })
    }

    fn left_at(&self, key: &AgentKey) -> Option<Timestamp> {
        self.roster.desk(self.roster.number(key)?)?.left_at
    }
}
