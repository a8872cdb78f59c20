//! What a breaker keeps from its agent (R-RTE-7): the filter, and the same in words.

use std::collections::BTreeMap;

use crate::ledger::ids::{AgentKey, Capability};
use crate::ledger::machine::State;
use crate::ledger::machine::breaker::{Breaker, Stand};
use crate::ledger::time::Timestamp;
use crate::scheduler::routing::candidate::{Reason, Seat};

/// What a breaker that is not closed lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bar {
    /// Nothing.
    Open {
        /// Until then; `None` until an operator's word.
        until: Option<Timestamp>,
    },
    /// Nothing, for one tries the agent out.
    Probing,
    /// One.
    OneMay,
}

impl Bar {
    /// What a breaker lets through; `None` for all.
    #[must_use]
    pub const fn of(breaker: &Breaker) -> Option<Self> {
        match breaker.stand {
            Stand::Open { until } => Some(Self::Open { until }),
            Stand::HalfOpen { probe: Some(_) } => Some(Self::Probing),
            Stand::HalfOpen { probe: None } => Some(Self::OneMay),
            Stand::HeldClosed => None,
        }
    }

    /// Those of an agent, by capability.
    #[must_use]
    pub fn all_of(state: &State, agent: &AgentKey) -> BTreeMap<Capability, Self> {
        let bars = state.breakers_of(agent);
        bars.filter_map(|(capability, breaker)| Some((capability.clone(), Self::of(breaker)?))).collect()
    }
}

/// Does its breaker keep the capability from it (R-RTE-7)?
#[must_use]
pub fn barred(capability: &Capability, seat: &Seat) -> Option<Reason> {
    match seat.bars.get(capability)? {
        Bar::Open { .. } => Some(Reason::BreakerOpen),
        Bar::Probing => Some(Reason::BreakerProbing),
        Bar::OneMay => seat.probing.contains(capability).then_some(Reason::BreakerProbing),
    }
}

/// The exclusion in words, with its end.
#[must_use]
pub fn detail(reason: Reason, bar: Option<&Bar>) -> String {
    match (reason, bar) {
        (Reason::BreakerOpen, Some(Bar::Open { until: Some(until) })) => {
            format!("it failed this capability too often: nothing goes until {until}, then one task tries it out")
        }
        (Reason::BreakerOpen, _) => "an operator keeps this capability from it, until another word".to_owned(),
        _ => "it failed this capability too often: one task tries it out, the others wait".to_owned(),
    }
}
