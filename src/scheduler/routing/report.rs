//! A routing question told in full: every candidate with its score, everybody else with the reason (R-RTE-8).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::ids::AgentId;
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Strategy;
use crate::scheduler::affinity::Affinity;
use crate::scheduler::routing::candidate::{Question, Reason, Seat, detail, exclusion};
use crate::scheduler::routing::grade::grade;
use crate::scheduler::routing::strategy::{self, Contender};
use crate::scheduler::routing::way::Way;
use crate::scheduler::routing::{Finding, Provider, survey};
use crate::scheduler::vitals::Vitals;

/// One candidate in a full report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Which agent.
    pub agent: AgentId,
    /// Its score by part, in thousandths where they are shares.
    pub score: Vec<(&'static str, i64)>,
}

/// One excluded agent in a full report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excluded {
    /// Which agent.
    pub agent: AgentId,
    /// The exact reason.
    pub reason: Reason,
    /// The same in words, with the figures.
    pub detail: String,
}

/// Everything about one routing question, as of one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteReport {
    /// How the choice was made.
    pub strategy: &'static str,
    /// The version of the routing rules that hold; `None` where the agents' own word does.
    pub rules: Option<u32>,
    /// Who would get it now.
    pub winner: Option<AgentId>,
    /// Every candidate that could take it now, best first; the winner is among them.
    pub candidates: Vec<Candidate>,
    /// Every other agent of the namespace that declares the capability, by name.
    pub excluded: Vec<Excluded>,
}

/// What the planner knows beside the state.
#[derive(Debug)]
pub struct Beside<'a> {
    /// How agents feel.
    pub vitals: &'a Vitals,
    /// Who works for which session.
    pub affinity: &'a Affinity,
    /// Places in the round of the capability; agents that are not in it stand at 0.
    pub positions: BTreeMap<AgentId, i64>,
}

/// Explains a routing question in full: linear in the namespace's agents, so for explanations, not for dispatches.
#[must_use]
pub fn route(question: &Question<'_>, state: &State, beside: &Beside<'_>) -> RouteReport {
    let namespace = &question.needs.namespace;
    let agents = state.agents().values().filter(|agent| agent.key.namespace == *namespace);
    let seats: Vec<Seat> = agents
        .filter(|agent| agent.offer(&question.needs.capability).is_some())
        .map(|agent| {
            let sessions = beside.affinity.sessions_of(&agent.key);
            Seat { sessions, ..Seat::counted(agent, beside.vitals.of(&agent.key), state) }
        })
        .collect();
    let offer_of = |seat: &'_ Seat| {
        let declared = Arc::clone(&seat.declaration);
        declared.offers.iter().position(|offer| offer.capability == question.needs.capability)
    };
    let providers: Vec<Provider<'_>> = seats
        .iter()
        .filter_map(|seat| {
            let offer = seat.declaration.offers.get(offer_of(seat)?)?;
            Some(Provider { seat, offer, position: beside.positions.get(&seat.key.agent_id).copied().unwrap_or(0) })
        })
        .collect();
    let entry = state.routing_of(namespace, &question.needs.capability);
    report(question, &Way::of(entry, asked_for(&providers)), &providers)
}

fn report(question: &Question<'_>, way: &Way<'_>, providers: &[Provider<'_>]) -> RouteReport {
    let strategy = way.strategy;
    let (winner, best) = match survey(question, way, providers) {
        Finding::Serve { winner, .. } => {
            let winner = providers.get(winner);
            (winner, winner.map(|winner| grade(question, way, winner)))
        }
        Finding::HoldBack { rather, .. } => (None, Some(rather)),
        Finding::Nobody => (None, None),
    };
    let mut open: Vec<(&Provider<'_>, Contender)> = Vec::new();
    let mut excluded = Vec::new();
    for provider in providers {
        let outgraded = best.and_then(|best| grade(question, way, provider).loses_to(best));
        match exclusion(question.needs, provider.seat, provider.offer).or(outgraded) {
            Some(reason) => excluded.push(Excluded {
                agent: provider.seat.key.agent_id.clone(),
                reason,
                detail: detail(reason, question.needs, provider.seat, provider.offer),
            }),
            None => open.push((provider, Contender::of(provider, question, way))),
        }
    }
    let is_winner = |provider: &Provider<'_>| winner.is_some_and(|winner| winner.seat.key == provider.seat.key);
    open.sort_by(|(a, one), (b, other)| {
        is_winner(b).cmp(&is_winner(a)).then_with(|| strategy::compare(strategy, one, other))
    });
    let is_open = |agent: &AgentId| open.iter().any(|(provider, _)| provider.seat.key.agent_id == *agent);
    let chosen = question.choices().find(|(_, wanted)| is_open(wanted));
    let candidate = |(provider, contender): &(&Provider<'_>, Contender)| {
        let agent = provider.seat.key.agent_id.clone();
        let mut score = strategy::score(strategy, contender);
        let own = chosen.filter(|(_, wanted)| is_winner(provider) && **wanted == agent);
        score.extend(own.map(|(part, _)| (part, 1_000)));
        Candidate { agent, score }
    };
    RouteReport {
        strategy: strategy.name(),
        rules: way.version(),
        winner: winner.map(|provider| provider.seat.key.agent_id.clone()),
        candidates: open.iter().map(candidate).collect(),
        excluded,
    }
}

/// What most of those ask for who take part.
fn asked_for(providers: &[Provider<'_>]) -> Strategy {
    let takes_part = |provider: &&Provider<'_>| provider.seat.closed != Some(Reason::NotRegistered);
    let asks_for = |strategy: Strategy| {
        providers.iter().filter(takes_part).filter(|provider| provider.offer.strategy == Some(strategy)).count()
    };
    strategy::of_votes(Strategy::ALL.map(asks_for))
}
