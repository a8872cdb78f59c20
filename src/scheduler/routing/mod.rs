//! Who could do it, who should, and why not the others.
//!
//! Why one place: an explanation that is computed apart from the decision is a second opinion. [`survey`] is what the
//! planner decides by, [`report::route`] is the same rules over a state, told in full (R-RTE-8).
//!
//! | where | what |
//! | --- | --- |
//! | [`candidate`] | filters: every exclusion with its one exact reason |
//! | [`bar`] | the filter of breakers |
//! | [`mod@grade`] | whom a task goes to gladly, and whom only if there is no other |
//! | [`way`], [`strategy`], [`rendezvous`] | the choice among those who remain |
//! | [`report`] | the same, told in full |
//! | [`constraint`] | JSON Schemas: compiled, bounded, checked |
//! | [`semantic`] | which capability a free text asks for |

pub mod bar;
pub mod candidate;
pub mod constraint;
pub mod grade;
#[cfg(test)]
mod properties;
pub mod rendezvous;
pub mod report;
pub mod semantic;
pub mod strategy;
pub mod way;

use std::sync::Arc;

use crate::ledger::ids::AgentId;
use crate::ledger::machine::agent::Offer;
use crate::ledger::machine::event::{Exclusion, Explanation, ScoredCandidate};
use crate::ledger::time::Timestamp;

pub use candidate::{Needs, Question};
use candidate::{Reason, Seat, asks_soon, exclusion};
use grade::{Grade, grade};
pub use report::RouteReport;
use strategy::Contender;
use way::Way;

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
        /// Everyone who could serve, with the grade: (place, grade).
        open: Vec<(usize, Grade)>,
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
        /// What makes that one better.
        rather: Grade,
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
    fn add(&mut self, question: &Question<'_>, (place, seat): (usize, &Seat), grade: impl FnOnce() -> Grade) {
        if !asks_soon(question, seat) {
            return;
        }
        let grade = grade();
        let (best, first) = self.best.unwrap_or((grade, seat.asks_by));
        self.best = Some((best.min(grade), first.min(seat.asks_by)));
        if question.expected == Some(&seat.key.agent_id) {
            self.expected = Some((place, grade, seat.asks_by));
        }
    }

    /// Whether a task waits for them though another could take it now, at that grade at best.
    fn hold_back(&self, open: Grade) -> Option<Finding> {
        if let Some((rather, until)) = self.best.filter(|(grade, _)| *grade < open) {
            return Some(Finding::HoldBack { until, expected: None, rather });
        }
        let (place, rather, until) = self.expected.filter(|(_, grade, _)| *grade == open)?;
        Some(Finding::HoldBack { until, expected: Some(place), rather })
    }
}

/// Decides who serves a task, among all providers of its capability. Linear in the providers, with nothing allocated
/// for those who are excluded.
#[must_use]
pub fn survey(question: &Question<'_>, way: &Way<'_>, providers: &[Provider<'_>]) -> Finding {
    let mut tally = Tally::default();
    let mut open: Vec<(usize, Grade)> = Vec::new();
    let mut soon = Soon::default();
    for (place, provider) in providers.iter().enumerate() {
        match exclusion(question.needs, provider.seat, provider.offer) {
            None => open.push((place, grade(question, way, provider))),
            Some(reason) => {
                if reason == Reason::NoOpenClaim {
                    soon.add(question, (place, provider.seat), || grade(question, way, provider));
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
    for (place, grade) in open.iter().copied() {
        let Some(provider) = providers.get(place) else { continue };
        match grade.loses_to(best) {
            Some(reason) => tally.add(reason, &provider.seat.key.agent_id),
            None => field.push((place, Contender::of(provider, question, way))),
        }
    }
    decide(question, way, providers, Field { field, tally, open })
}

struct Field<'a> {
    field: Vec<(usize, Contender)>,
    tally: Tally<'a>,
    open: Vec<(usize, Grade)>,
}

fn decide<'a>(
    question: &Question<'_>,
    way: &Way<'_>,
    providers: &[Provider<'a>],
    Field { field, tally, open }: Field<'a>,
) -> Finding {
    let strategy = way.strategy;
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
        strategy: strategy.name().into(),
        score: own,
        runners_up: others.iter().filter_map(runner_up).collect(),
        exclusions: tally.into_exclusions(),
        rules: way.version(),
    };
    let winner = *winner;
    strategy::advance(strategy, &mut contenders, winner);
    Finding::Serve {
        winner: places.get(winner).copied().unwrap_or(0),
        positions: places.iter().copied().zip(contenders.iter().map(|contender| contender.position)).collect(),
        explanation: Box::new(explanation),
        open,
    }
}
