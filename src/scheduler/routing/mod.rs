//! Who could do it, who should, and why not the others.
//!
//! Why one place: an explanation that is computed apart from the decision is a second opinion. [`survey`] is what the
//! planner decides by, [`route`] is the same rules over a state, told in full (R-RTE-8).
//!
//! | where | what |
//! | --- | --- |
//! | [`candidate`] | filters: every exclusion with its one exact reason |
//! | [`strategy`] | the choice among those who remain |
//! | [`constraint`] | JSON Schemas: compiled, bounded, checked |

pub mod candidate;
pub mod constraint;
pub mod strategy;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ledger::ids::AgentId;
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Offer, Strategy};
use crate::ledger::machine::event::{Exclusion, Explanation, ScoredCandidate};
use crate::ledger::time::Timestamp;
use crate::scheduler::vitals::Vitals;

use candidate::{Grade, Reason, Seat, asks_soon, detail, exclusion, grade};
pub use candidate::{Needs, Question};
use strategy::Contender;

/// Runners-up in a stored explanation (semantics 26).
pub const RUNNERS_UP: usize = 5;
/// Agents named for each exclusion in a stored explanation (semantics 26).
pub const SAMPLES: usize = 3;
const PODIUM: usize = RUNNERS_UP + 1;

/// Exclusions counted by reason, each with a few names.
#[derive(Debug, Default)]
pub struct Tally<'a> {
    rows: Vec<(Reason, u32, Vec<&'a AgentId>)>,
}

impl<'a> Tally<'a> {
    fn add(&mut self, reason: Reason, agent: &'a AgentId) {
        let row = match self.rows.iter().position(|(other, ..)| *other == reason) {
            Some(row) => self.rows.get_mut(row),
            None => {
                self.rows.push((reason, 0, Vec::new()));
                self.rows.last_mut()
            }
        };
        if let Some((_, count, samples)) = row {
            *count += 1;
            if samples.len() < SAMPLES {
                samples.push(agent);
            }
        }
    }

    fn into_exclusions(mut self) -> Vec<Exclusion> {
        self.rows.sort_by_key(|(reason, ..)| *reason);
        let row = |(reason, count, samples): (Reason, u32, Vec<&AgentId>)| Exclusion {
            reason: reason.name().into(),
            count,
            samples: samples.into_iter().cloned().collect(),
        };
        self.rows.into_iter().map(row).collect()
    }
}

/// One provider of a capability in a survey.
#[derive(Debug, Clone, Copy)]
pub struct Provider<'a> {
    /// Its figures.
    pub seat: &'a Seat,
    /// What it offers for this capability.
    pub offer: &'a Offer,
    /// Its position in the round.
    pub position: i64,
}

/// What a survey found.
#[derive(Debug)]
pub enum Finding {
    /// This provider, by its place among those surveyed, and everyone's new position in the round.
    Serve {
        /// Which one.
        winner: usize,
        /// New positions: (place, position).
        positions: Vec<(usize, i64)>,
        /// Why, compact.
        explanation: Box<Explanation>,
    },
    /// Nobody can take it now.
    Nobody,
    /// Somebody could, but another agent that it should rather go to has a free slot and will ask soon: one without a
    /// suspect, without an overdue task of the capability, or that did not fail it last (semantics 9, R-SCH-11,
    /// R-SCH-5), or the one that works for its session (R-REC-3).
    HoldBack {
        /// When that is to be asked again at the latest.
        until: Timestamp,
        /// The place of the one agent that is waited for; `None` where it may be any.
        expected: Option<usize>,
    },
}

/// Pull agents that could take it, but for that they do not ask in this moment, and are about to.
#[derive(Default)]
struct Soon {
    /// The best grade, and the first moment at which one of them is not expected any more.
    best: Option<(Grade, Timestamp)>,
    /// The one that works for the session of the task: its place, grade and last moment.
    expected: Option<(usize, Grade, Timestamp)>,
}

impl Soon {
    fn add(&mut self, question: &Question<'_>, (place, seat): (usize, &Seat)) {
        if !asks_soon(question, seat) {
            return;
        }
        let grade = grade(question, seat);
        let (best, first) = self.best.unwrap_or((grade, seat.asks_by));
        self.best = Some((best.min(grade), first.min(seat.asks_by)));
        if question.expected == Some(&seat.key.agent_id) {
            self.expected = Some((place, grade, seat.asks_by));
        }
    }

    /// Whether a task waits for them though another could take it now, at that grade at best.
    fn hold_back(&self, open: Grade) -> Option<Finding> {
        if let Some((_, until)) = self.best.filter(|(grade, _)| *grade < open) {
            return Some(Finding::HoldBack { until, expected: None });
        }
        let (place, _, until) = self.expected.filter(|(_, grade, _)| *grade == open)?;
        Some(Finding::HoldBack { until, expected: Some(place) })
    }
}

/// Decides who serves a task, among all providers of its capability. Linear in the providers, with nothing allocated
/// for those who are excluded.
#[must_use]
pub fn survey(question: &Question<'_>, strategy: Strategy, providers: &[Provider<'_>]) -> Finding {
    let mut tally = Tally::default();
    let mut open: Vec<(usize, Grade)> = Vec::new();
    let mut soon = Soon::default();
    for (place, provider) in providers.iter().enumerate() {
        match exclusion(question.needs, provider.seat, provider.offer) {
            None => open.push((place, grade(question, provider.seat))),
            Some(reason) => {
                if reason == Reason::NoOpenClaim {
                    soon.add(question, (place, provider.seat));
                }
                tally.add(reason, &provider.seat.key.agent_id);
            }
        }
    }
    let Some(best) = open.iter().map(|(_, grade)| *grade).min() else { return Finding::Nobody };
    let is_asked_for = |place: usize| {
        providers.get(place).is_some_and(|provider| question.preferred == Some(&provider.seat.key.agent_id))
    };
    if open.iter().any(|(place, grade)| *grade == best && is_asked_for(*place)) {
        soon.expected = None;
    }
    if let Some(held_back) = soon.hold_back(best) {
        return held_back;
    }
    let mut field: Vec<(usize, Contender)> = Vec::with_capacity(open.len());
    for (place, grade) in open {
        let Some(provider) = providers.get(place) else { continue };
        match grade.reason() {
            Some(reason) if grade > best => tally.add(reason, &provider.seat.key.agent_id),
            Some(_) | None => field.push((place, Contender::of(provider.seat, provider.offer, provider.position))),
        }
    }
    decide(question, strategy, providers, Field { field, tally })
}

struct Field<'a> {
    field: Vec<(usize, Contender)>,
    tally: Tally<'a>,
}

fn decide<'a>(
    question: &Question<'_>,
    strategy: Strategy,
    providers: &[Provider<'a>],
    Field { field, tally }: Field<'a>,
) -> Finding {
    let (places, mut contenders): (Vec<usize>, Vec<Contender>) = field.into_iter().unzip();
    let id = |index: usize| places.get(index).and_then(|place| providers.get(*place)).map(|p| &p.seat.key.agent_id);
    let mut podium = strategy::best::<PODIUM>(strategy, &contenders);
    let place_of = |wanted: &AgentId| (0..places.len()).find(|index| id(*index) == Some(wanted));
    let chosen = question.choices().find_map(|(part, wanted)| Some((part, place_of(wanted)?)));
    if let Some((_, chosen)) = chosen {
        podium.retain(|index| *index != chosen);
        podium.insert(0, chosen);
        podium.truncate(PODIUM);
    }
    let Some((winner, others)) = podium.split_first() else { return Finding::Nobody };
    let score = |index: usize| -> Vec<(Arc<str>, i64)> {
        let parts = contenders.get(index).map(|contender| strategy::score(strategy, contender));
        parts.into_iter().flatten().map(|(part, amount)| (part.into(), amount)).collect()
    };
    let mut own = score(*winner);
    if let Some((part, _)) = chosen {
        own.insert(0, (part.into(), 1_000));
    }
    let runner_up =
        |index: &usize| id(*index).map(|agent| ScoredCandidate { agent: agent.clone(), score: score(*index) });
    let explanation = Explanation {
        strategy: strategy::name(strategy).into(),
        score: own,
        runners_up: others.iter().filter_map(runner_up).collect(),
        exclusions: tally.into_exclusions(),
    };
    let winner = *winner;
    strategy::advance(strategy, &mut contenders, winner);
    Finding::Serve {
        winner: places.get(winner).copied().unwrap_or(0),
        positions: places.iter().copied().zip(contenders.iter().map(|contender| contender.position)).collect(),
        explanation: Box::new(explanation),
    }
}

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
    /// Who would get it now.
    pub winner: Option<AgentId>,
    /// Every candidate that could take it now, best first; the winner is among them.
    pub candidates: Vec<Candidate>,
    /// Every other agent of the namespace that declares the capability, by name.
    pub excluded: Vec<Excluded>,
}

/// Explains a routing question in full: linear in the namespace's agents, so for explanations, not for dispatches.
/// `positions` are the places in the round that the planner keeps; agents that are not in it stand at 0.
#[must_use]
pub fn route(
    question: &Question<'_>,
    state: &State,
    vitals: &Vitals,
    positions: &BTreeMap<AgentId, i64>,
) -> RouteReport {
    let namespace = &question.needs.namespace;
    let agents = state.agents().values().filter(|agent| agent.key.namespace == *namespace);
    let seats: Vec<Seat> = agents
        .filter(|agent| agent.offer(&question.needs.capability).is_some())
        .map(|agent| Seat::counted(agent, vitals.of(&agent.key), state))
        .collect();
    let offer_of = |seat: &'_ Seat| {
        let declared = Arc::clone(&seat.declaration);
        declared.offers.iter().position(|offer| offer.capability == question.needs.capability)
    };
    let providers: Vec<Provider<'_>> = seats
        .iter()
        .filter_map(|seat| {
            let offer = seat.declaration.offers.get(offer_of(seat)?)?;
            Some(Provider { seat, offer, position: positions.get(&seat.key.agent_id).copied().unwrap_or(0) })
        })
        .collect();
    report(question, &providers)
}

fn report(question: &Question<'_>, providers: &[Provider<'_>]) -> RouteReport {
    let strategy = strategy::of_offers(providers.iter().filter(|p| p.seat.closed.is_none()).map(|p| p.offer));
    let finding = survey(question, strategy, providers);
    let winner = match finding {
        Finding::Serve { winner, .. } => providers.get(winner),
        Finding::Nobody | Finding::HoldBack { .. } => None,
    };
    let best = providers
        .iter()
        .filter(|p| exclusion(question.needs, p.seat, p.offer).is_none())
        .map(|p| grade(question, p.seat))
        .min();
    let mut open: Vec<(&Provider<'_>, Contender)> = Vec::new();
    let mut excluded = Vec::new();
    for provider in providers {
        let own = grade(question, provider.seat);
        let outgraded = if best.is_some_and(|best| own > best) || winner.is_none() { own.reason() } else { None };
        match exclusion(question.needs, provider.seat, provider.offer).or(outgraded) {
            Some(reason) => excluded.push(Excluded {
                agent: provider.seat.key.agent_id.clone(),
                reason,
                detail: detail(reason, question.needs, provider.seat, provider.offer),
            }),
            None => open.push((provider, Contender::of(provider.seat, provider.offer, provider.position))),
        }
    }
    let contenders: Vec<Contender> = open.iter().map(|(_, contender)| *contender).collect();
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    order.sort_by_key(|index| {
        let contender = contenders.get(*index).copied();
        let rank = |c: Contender| match strategy {
            Strategy::WeightedRoundRobin => (0, -(c.position + i64::from(c.weight))),
            Strategy::LeastLoaded => (c.load_milli, -(c.position + i64::from(c.weight))),
        };
        let is_winner = open.get(*index).zip(winner).is_some_and(|((p, _), w)| p.seat.key == w.seat.key);
        (!is_winner, contender.map(rank))
    });
    let candidate = |index: usize| {
        let (provider, contender) = open.get(index)?;
        let mut score = strategy::score(strategy, contender).to_vec();
        if winner.is_some_and(|winner| winner.seat.key == provider.seat.key) {
            let id = &provider.seat.key.agent_id;
            let chosen =
                question.choices().find(|(_, wanted)| open.iter().any(|(p, _)| p.seat.key.agent_id == **wanted));
            score.extend(chosen.filter(|(_, wanted)| *wanted == id).map(|(part, _)| (part, 1_000)));
        }
        Some(Candidate { agent: provider.seat.key.agent_id.clone(), score })
    };
    RouteReport {
        strategy: strategy::name(strategy),
        winner: winner.map(|provider| provider.seat.key.agent_id.clone()),
        candidates: order.into_iter().filter_map(candidate).collect(),
        excluded,
    }
}
