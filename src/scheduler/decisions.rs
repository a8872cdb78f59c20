//! The last decisions with what they were made of, and what other rules would have made of them (R-RTE-10).
//!
//! Why kept here and not read from the ledger: an event explains one decision in a handful of names; to make it again takes
//! the figures of all who could have served. They are as the agents felt then, so nobody else can know them.
//!
//! What is weighed is the choice, one task after the other, with the round that the other rules would have had. What is not:
//! that other choices would have made other loads. For that there is no record, only a simulation.
//!
//! Volatile and bounded: [`KEPT`] of a capability, [`KEPT_IN_ALL`], [`MAX_CANDIDATES`] each. A start of the hub forgets them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::ledger::ids::{AgentId, Capability, Namespace, ReachId};
use crate::ledger::machine::agent::Strategy;
use crate::ledger::machine::routing::RoutingRules;
use crate::ledger::time::Timestamp;
use crate::scheduler::routing::grade::Grade;
use crate::scheduler::routing::rendezvous::Key;
use crate::scheduler::routing::strategy::{self, Contender, share};
use crate::scheduler::routing::way::Way;
use crate::scheduler::routing::{Provider, Question};
use crate::scheduler::tempo::Pace;

/// Decisions of one capability that are kept.
pub const KEPT: usize = 1_000;
/// Decisions that are kept, over all capabilities and namespaces.
pub const KEPT_IN_ALL: usize = 4_000;
/// Candidates of one decision that are kept; one with more is counted and not weighed.
pub const MAX_CANDIDATES: usize = 64;
/// Decisions that a report names.
pub const NAMED: usize = 10;

/// One who could have served.
#[derive(Debug, Clone)]
struct Candidate {
    agent: AgentId,
    mark: u64,
    declared: u32,
    priority: u32,
    position: i64,
    load_milli: u64,
    sessions_milli: u64,
    fails: bool,
    pace: Pace,
    grade: Grade,
}

/// One decision.
#[derive(Debug, Clone)]
pub struct Decision {
    of: (Namespace, Capability),
    task: ReachId,
    at: Timestamp,
    key: Key,
    /// The strategy that most agents asked for.
    asked: Strategy,
    winner: AgentId,
    /// Who comes before any strategy, if open: asked for by name, then for the session.
    wishes: [Option<AgentId>; 2],
    /// Those who could have served; `None` where they were too many to keep.
    candidates: Option<Vec<Candidate>>,
}

impl Decision {
    /// What was decided about a task: the providers, those of them who could serve with their grades, and the winner.
    #[must_use]
    pub fn of(
        question: &Question<'_>,
        (task, asked): (ReachId, Strategy),
        (providers, open): (&[Provider<'_>], &[(usize, Grade)]),
        winner: usize,
    ) -> Option<Self> {
        let candidate = |(place, grade): &(usize, Grade)| {
            let Provider { seat, offer, position } = *providers.get(*place)?;
            Some(Candidate {
                agent: seat.key.agent_id.clone(),
                mark: seat.mark,
                declared: offer.weight,
                priority: offer.priority,
                position,
                load_milli: seat.load_milli(),
                sessions_milli: seat.sessions_milli(),
                fails: seat.ends.fails(question.now),
                pace: seat.pace,
                grade: *grade,
            })
        };
        Some(Self {
            of: (question.needs.namespace.clone(), question.needs.capability.clone()),
            task,
            at: question.now,
            key: question.key,
            asked,
            winner: providers.get(winner)?.seat.key.agent_id.clone(),
            wishes: [question.preferred.cloned(), question.affine.cloned()],
            candidates: (open.len() <= MAX_CANDIDATES).then(|| open.iter().filter_map(candidate).collect()),
        })
    }
}

/// A decision that other rules would have made otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Otherwise {
    /// Of which task.
    pub task: ReachId,
    /// When.
    pub at: Timestamp,
    /// To whom it went.
    pub was: AgentId,
    /// To whom it would have gone.
    pub would_be: AgentId,
}

/// What other rules would have made of the last decisions of a capability.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WhatIf {
    /// Decisions that were weighed.
    pub decisions: usize,
    /// Those that had too many candidates to be kept.
    pub not_weighed: usize,
    /// Those that would have been others.
    pub changed: usize,
    /// The oldest of all.
    pub since: Option<Timestamp>,
    /// How many each agent got of those that were weighed, and how many it would have got.
    pub shares: BTreeMap<AgentId, (usize, usize)>,
    /// The newest of those that would have been others, at most [`NAMED`].
    pub newest: VecDeque<Otherwise>,
}

/// The last decisions.
#[derive(Debug, Default)]
pub struct Decisions {
    by_age: BTreeMap<u64, Arc<Decision>>,
    of: BTreeMap<(Namespace, Capability), VecDeque<u64>>,
    next: u64,
}

impl Decisions {
    /// Keeps one more, and lets the oldest go where they are too many.
    pub fn keep(&mut self, decision: Decision) {
        self.next += 1;
        let line = self.of.entry(decision.of.clone()).or_default();
        line.push_back(self.next);
        let oldest = if line.len() > KEPT { line.pop_front() } else { None };
        self.by_age.insert(self.next, Arc::new(decision));
        if let Some(oldest) = oldest {
            self.by_age.remove(&oldest);
        }
        if self.by_age.len() > KEPT_IN_ALL
            && let Some((_, gone)) = self.by_age.pop_first()
            && let Some(line) = self.of.get_mut(&gone.of)
        {
            // Each line is in the order of age, so the oldest of all is the first of its own.
            line.pop_front();
            if line.is_empty() {
                self.of.remove(&gone.of);
            }
        }
    }

    /// How many are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Is none kept?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_age.is_empty()
    }

    /// Those of one capability, oldest first, to be weighed by whoever asks: it takes a while, and planning goes on.
    #[must_use]
    pub fn of(&self, of: &(Namespace, Capability)) -> Vec<Arc<Decision>> {
        let line = self.of.get(of).into_iter().flatten();
        line.filter_map(|age| self.by_age.get(age)).map(Arc::clone).collect()
    }
}

/// What those rules would have made of decisions of one capability. `now` are the rules that hold: where they are the same,
/// the round goes on as it stood; others begin it anew, as they would.
#[must_use]
pub fn what_if(decisions: &[Arc<Decision>], rules: Option<&RoutingRules>, now: Option<&RoutingRules>) -> WhatIf {
    let mut found = WhatIf::default();
    let mut round: BTreeMap<AgentId, i64> = BTreeMap::new();
    for decision in decisions {
        found.since = found.since.or(Some(decision.at));
        let Some(candidates) = &decision.candidates else {
            found.not_weighed += 1;
            continue;
        };
        if rules == now {
            for candidate in candidates {
                round.entry(candidate.agent.clone()).or_insert(candidate.position);
            }
        }
        let way = Way::under(rules.map(|rules| (rules, 0)), decision.asked);
        let Some(winner) = decide(decision, candidates, &way, &mut round) else { continue };
        found.decisions += 1;
        found.shares.entry(decision.winner.clone()).or_default().0 += 1;
        found.shares.entry(winner.clone()).or_default().1 += 1;
        if winner != decision.winner {
            found.changed += 1;
            let (task, at, was) = (decision.task, decision.at, decision.winner.clone());
            found.newest.push_front(Otherwise { task, at, was, would_be: winner });
            found.newest.truncate(NAMED);
        }
    }
    found
}

/// Who would have served, by the rules that a dispatch goes by; the round moves on.
fn decide(
    decision: &Decision,
    candidates: &[Candidate],
    way: &Way<'_>,
    round: &mut BTreeMap<AgentId, i64>,
) -> Option<AgentId> {
    let grade = |candidate: &Candidate| candidate.grade.in_tier(way.tier_of(candidate.priority));
    let best = candidates.iter().map(grade).min()?;
    let field: Vec<&Candidate> = candidates.iter().filter(|candidate| grade(candidate) == best).collect();
    let mut contenders: Vec<Contender> = field
        .iter()
        .map(|candidate| Contender {
            share: share(way.weight(&candidate.agent, candidate.declared), candidate.pace),
            position: round.get(&candidate.agent).copied().unwrap_or(0),
            load_milli: candidate.load_milli,
            sessions_milli: candidate.sessions_milli,
            priority: candidate.priority,
            fails: candidate.fails,
            pace: candidate.pace,
            distance: match way.strategy {
                Strategy::ConsistentHash => decision.key.distance(candidate.mark),
                Strategy::WeightedRoundRobin | Strategy::LeastLoaded | Strategy::Scored => 0,
            },
        })
        .collect();
    let place_of = |wanted: &AgentId| field.iter().position(|candidate| candidate.agent == *wanted);
    let wished = decision.wishes.iter().flatten().find_map(place_of);
    let winner = wished.or_else(|| strategy::best::<1>(way.strategy, &contenders).first().copied())?;
    strategy::advance(way.strategy, &mut contenders, winner);
    for (candidate, contender) in field.iter().zip(&contenders) {
        round.insert(candidate.agent.clone(), contender.position);
    }
    Some(field.get(winner)?.agent.clone())
}
