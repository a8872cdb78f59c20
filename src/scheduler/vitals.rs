//! What agents feel like: volatile figures that no event carries (rule 7).
//!
//! Why apart from the state: load and latency change with every beat. In the ledger they would bloat it and say
//! nothing about what happened; only their consequences (a dispatch, a loss) are facts. After a restart all of this is
//! empty, which means: no open claim, no reported load, no history.
//!
//! Bounded: one [`Pulse`] an agent, of fixed size but for its open claims ([`MAX_CLAIMS`]) and five attempts for each
//! capability ([`MAX_CAPABILITIES`]) that fails. How fast it is beside how fast it was is in [`crate::scheduler::tempo`].

use std::collections::BTreeMap;

use crate::ledger::ids::{AgentKey, Capability, Incarnation};
use crate::ledger::machine::agent::MAX_CAPABILITIES;
use crate::ledger::machine::breaker::{FailedAttempt, OPENS_AFTER};
use crate::ledger::planner::{ClaimId, Load, takes_one_more};
use crate::ledger::time::{Millis, Timestamp};
use crate::scheduler::tempo::{RecentOutcomes, Tempo};

/// Open claims remembered for one agent; more are not demand until one closes.
pub const MAX_CLAIMS: usize = 10_000;
/// A reported load is believed for 30 s; after that the agent counts as having reported none.
pub const LOAD_LIFE: Millis = Millis::secs(30);

/// Buckets an octave: a figure is exact to about 12 %.
const STEPS: u64 = 8;
/// Up to 2^22 ms, more than an hour; longer ones count as that.
const OCTAVES: usize = 22;
const BUCKETS: usize = OCTAVES * 8;
/// Samples after which the past counts half, so that figures follow the present.
const HALF_LIFE: u32 = 4_096;

/// A histogram of latencies with buckets of constant relative width.
#[derive(Debug, Clone)]
pub struct Latency {
    counts: Vec<u32>,
    total: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Latency {
    /// Counts one.
    pub fn record(&mut self, span: Millis) {
        if self.total >= HALF_LIFE {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().sum();
        }
        if let Some(count) = self.counts.get_mut(bucket_of(span.0)) {
            *count += 1;
            self.total += 1;
        }
    }

    /// The latency that `percent` of the samples do not exceed, rounded up to its bucket's upper end; `None` without
    /// samples.
    #[must_use]
    pub fn percentile(&self, percent: u32) -> Option<Millis> {
        if self.total == 0 {
            return None;
        }
        let wanted = u64::from(self.total).saturating_mul(u64::from(percent.min(100))).div_ceil(100).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted {
                return Some(Millis(upper_end(index)));
            }
        }
        None
    }

    /// Samples that count now.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.total
    }
}

/// Values below 8 have a bucket each; above, every power of two is cut in 8.
fn bucket_of(value: u64) -> usize {
    if value < STEPS {
        return usize::try_from(value).unwrap_or(0);
    }
    let exponent = u64::from(value.ilog2());
    let step = (value >> (exponent - 3)) & (STEPS - 1);
    usize::try_from((exponent - 2) * STEPS + step).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

fn upper_end(index: usize) -> u64 {
    let index = u64::try_from(index).unwrap_or(0);
    if index < STEPS {
        return index;
    }
    let exponent = index / STEPS + 2;
    (((STEPS + index % STEPS + 1) << (exponent - 3)) - 1).max(1)
}

/// How outcomes were of late: old ones count half after 1,000.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcomes {
    succeeded: u32,
    failed: u32,
}

impl Outcomes {
    /// One more.
    pub const fn note(&mut self, outcome: Outcome) {
        if self.succeeded + self.failed >= 1_000 {
            self.succeeded /= 2;
            self.failed /= 2;
        }
        match outcome {
            Outcome::Succeeded => self.succeeded += 1,
            Outcome::Failed => self.failed += 1,
        }
    }

    /// How many count.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.succeeded + self.failed
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { succeeded: self.succeeded + other.succeeded, failed: self.failed + other.failed }
    }

    /// Failed attempts in a thousand; `None` before the first outcome.
    #[must_use]
    pub fn failure_milli(&self) -> Option<u32> {
        (self.failed * 1_000).checked_div(self.succeeded + self.failed)
    }
}

/// How one attempt ended at its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It reported success.
    Succeeded,
    /// It failed, crashed or went silent.
    Failed,
}

/// One waiting claim.
#[derive(Debug, Clone, Copy)]
struct Claim {
    incarnation: Incarnation,
    left: u32,
    /// What its tasks weigh so far.
    bytes: u64,
}

impl Claim {
    /// Tasks that it still takes: none once its answer is large enough.
    const fn demand(&self) -> u32 {
        if takes_one_more(self.bytes) { self.left } else { 0 }
    }
}

/// Demand that was taken for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// From this claim.
    pub claim: ClaimId,
    /// Of this weight.
    pub bytes: u64,
    /// What demand fell by: by more than one where the claim's answer is large enough now.
    pub demand: u32,
}

/// What is known of one agent.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    load: Option<(Load, Timestamp)>,
    foreign: u32,
    limit: Option<u32>,
    asked_at: Option<Timestamp>,
    claims: BTreeMap<ClaimId, Claim>,
    /// From dispatch to acknowledgement.
    pub ack: Latency,
    /// From acknowledgement to outcome.
    pub work: Latency,
    /// Successes and failures of late.
    pub outcomes: Outcomes,
    /// Those of the last minutes.
    pub recent: RecentOutcomes,
    /// How fast it works, beside how fast it always did.
    pub tempo: Tempo,
    /// Attempts that failed one after the other, by capability; a success ends them (semantics 15).
    streaks: BTreeMap<Capability, Vec<FailedAttempt>>,
}

impl Pulse {
    /// What the agent reported last, and when.
    #[must_use]
    pub const fn load(&self) -> Option<(Load, Timestamp)> {
        self.load
    }

    /// Work that it reported beyond what the hub gave it: its queue, and what is in flight from elsewhere. What the hub
    /// itself gave is known exactly and up to date; counting it again from the last beat would keep a busy agent shut
    /// for a whole interval after it finished.
    #[must_use]
    pub const fn foreign(&self) -> u32 {
        self.foreign
    }

    /// Tasks that it may have in flight while it warms up after a return (R-REC-6); `None`: as many as it declares.
    #[must_use]
    pub const fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// When it last asked for work, or did what is followed by asking: it registered, or ended a task. After a start of
    /// the hub everyone counts as having asked just then.
    #[must_use]
    pub const fn asked_at(&self) -> Option<Timestamp> {
        self.asked_at
    }

    /// Tasks that open claims of that process still take.
    #[must_use]
    pub fn demand(&self, incarnation: Incarnation) -> u32 {
        self.claims
            .values()
            .filter(|claim| claim.incarnation == incarnation)
            .fold(0, |sum, claim| sum.saturating_add(claim.demand()))
    }
}

/// What is known of all agents.
#[derive(Debug, Clone, Default)]
pub struct Vitals {
    pulses: BTreeMap<AgentKey, Pulse>,
    claims: BTreeMap<ClaimId, AgentKey>,
}

impl Vitals {
    /// What is known of one agent; `None` before its first sign.
    #[must_use]
    pub fn of(&self, agent: &AgentKey) -> Option<&Pulse> {
        self.pulses.get(agent)
    }

    /// An accepted call of the agent; `held` is what the hub knows it to hold now.
    pub fn beat(&mut self, agent: &AgentKey, load: Option<Load>, held: u32, now: Timestamp) {
        let pulse = self.pulse(agent);
        match load {
            Some(load) => {
                pulse.load = Some((load, now));
                pulse.foreign = load.in_flight.saturating_sub(held).saturating_add(load.queue_depth);
            }
            None => {
                if pulse.load.is_some_and(|(_, at)| now.since(at) > LOAD_LIFE) {
                    pulse.load = None;
                    pulse.foreign = 0;
                }
            }
        }
    }

    /// Sets how many tasks the agent may have in flight while it warms up.
    pub fn set_limit(&mut self, agent: &AgentKey, limit: Option<u32>) {
        self.pulse(agent).limit = limit;
    }

    /// It asked for work, or is about to.
    pub fn asked(&mut self, agent: &AgentKey, now: Timestamp) {
        self.pulse(agent).asked_at = Some(now);
    }

    /// A process began: what the one before it reported is not its load.
    pub fn begun(&mut self, agent: &AgentKey, now: Timestamp) {
        let pulse = self.pulse(agent);
        (pulse.load, pulse.foreign, pulse.asked_at) = (None, 0, Some(now));
        pulse.streaks.clear();
        pulse.tempo.begin_anew();
    }

    /// A pull agent waits for at most `max` tasks.
    pub fn open_claim(&mut self, claim: ClaimId, agent: &AgentKey, incarnation: Incarnation, max: u32) {
        let pulse = self.pulse(agent);
        if pulse.claims.len() < MAX_CLAIMS {
            pulse.claims.insert(claim, Claim { incarnation, left: max, bytes: 0 });
            self.claims.insert(claim, agent.clone());
        }
    }

    /// It waits no longer; says whose claim it was.
    pub fn close_claim(&mut self, claim: ClaimId) -> Option<AgentKey> {
        let agent = self.claims.remove(&claim)?;
        if let Some(pulse) = self.pulses.get_mut(&agent) {
            pulse.claims.remove(&claim);
        }
        Some(agent)
    }

    /// Takes the demand for a task of that weight from the oldest open claim of that process.
    pub fn take_demand(&mut self, agent: &AgentKey, incarnation: Incarnation, bytes: u64) -> Option<Taken> {
        let pulse = self.pulses.get_mut(agent)?;
        let (id, claim) = pulse.claims.iter_mut().find(|(_, c)| c.incarnation == incarnation && c.demand() > 0)?;
        let before = claim.demand();
        claim.left -= 1;
        claim.bytes = claim.bytes.saturating_add(bytes);
        Some(Taken { claim: *id, bytes, demand: before - claim.demand() })
    }

    /// Gives it back after a refused proposal, if the claim is still open.
    pub fn return_demand(&mut self, agent: &AgentKey, taken: Taken) {
        if let Some(claim) = self.pulses.get_mut(agent).and_then(|pulse| pulse.claims.get_mut(&taken.claim)) {
            claim.left = claim.left.saturating_add(1);
            claim.bytes = claim.bytes.saturating_sub(taken.bytes);
        }
    }

    /// An attempt was acknowledged so long after its dispatch.
    pub fn acknowledged(&mut self, agent: &AgentKey, after: Millis) {
        self.pulse(agent).ack.record(after);
    }

    /// An attempt ended; `worked` is the time from its acknowledgement, if there was one.
    pub fn ended(&mut self, agent: &AgentKey, (outcome, at): (Outcome, Timestamp), worked: Option<Millis>) {
        let pulse = self.pulse(agent);
        pulse.outcomes.note(outcome);
        pulse.recent.note(outcome, at);
        if let Some(worked) = worked {
            pulse.work.record(worked);
            pulse.tempo.record(worked);
        }
    }

    /// One attempt more failed; gives those that failed one after the other, at most [`OPENS_AFTER`].
    pub fn streak_grows(&mut self, agent: &AgentKey, of: &Capability, failed: FailedAttempt) -> Vec<FailedAttempt> {
        let streaks = &mut self.pulse(agent).streaks;
        // A process that declared others before fails no more of those.
        if streaks.len() >= MAX_CAPABILITIES && !streaks.contains_key(of) {
            streaks.pop_first();
        }
        let streak = streaks.entry(of.clone()).or_default();
        if streak.len() >= OPENS_AFTER {
            streak.remove(0);
        }
        streak.push(failed);
        streak.clone()
    }

    /// An attempt succeeded, or the failures had their consequence.
    pub fn streak_ends(&mut self, agent: &AgentKey, of: &Capability) {
        if let Some(pulse) = self.pulses.get_mut(agent) {
            pulse.streaks.remove(of);
        }
    }

    fn pulse(&mut self, agent: &AgentKey) -> &mut Pulse {
        self.pulses.entry(agent.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::{AgentId, Namespace};
    use crate::ledger::planner::{CLAIM_BYTES, TASK_BYTES};

    fn agent() -> AgentKey {
        AgentKey { namespace: Namespace::new("n").unwrap(), agent_id: AgentId::new("a").unwrap() }
    }

    #[test]
    fn percentiles_are_right_to_an_eighth_and_never_too_low() {
        let mut latency = Latency::default();
        (1..=1_000).for_each(|ms| latency.record(Millis(ms)));
        for (percent, exact) in [(50, 500), (95, 950), (99, 990), (100, 1_000)] {
            let found = latency.percentile(percent).unwrap().0;
            assert!(found >= exact && found <= exact + exact / 8 + 1, "p{percent}: {found} for {exact}");
        }
        assert_eq!(Latency::default().percentile(50), None);
    }

    #[test]
    fn every_bucket_ends_below_the_next_and_the_longest_latency_still_counts() {
        for value in 0..5_000_000_u64 / 97 {
            let value = value * 97;
            assert!(upper_end(bucket_of(value)) >= value.min((1 << 23) - 1) || value >= 1 << 23, "{value}");
        }
        let mut latency = Latency::default();
        latency.record(Millis(u64::MAX));
        assert_eq!(latency.samples(), 1);
    }

    #[test]
    fn old_latencies_fade() {
        let mut latency = Latency::default();
        (0..4_096).for_each(|_| latency.record(Millis(1_000)));
        (0..12_288).for_each(|_| latency.record(Millis(1)));
        assert_eq!(latency.percentile(50), Some(Millis(1)));
        assert!(latency.samples() <= HALF_LIFE);
    }

    #[test]
    fn semantics_4_only_claims_of_the_current_process_are_demand() {
        let mut vitals = Vitals::default();
        vitals.open_claim(ClaimId(1), &agent(), Incarnation(1), 4);
        vitals.open_claim(ClaimId(2), &agent(), Incarnation(2), 1);
        assert_eq!(vitals.of(&agent()).unwrap().demand(Incarnation(2)), 1);
        let taken = Taken { claim: ClaimId(2), bytes: 7, demand: 1 };
        assert_eq!(vitals.take_demand(&agent(), Incarnation(2), 7), Some(taken));
        assert_eq!(vitals.take_demand(&agent(), Incarnation(2), 7), None);
        vitals.return_demand(&agent(), taken);
        assert_eq!(vitals.of(&agent()).unwrap().demand(Incarnation(2)), 1);
        assert_eq!(vitals.close_claim(ClaimId(2)), Some(agent()));
        assert_eq!(vitals.close_claim(ClaimId(2)), None);
        assert_eq!(vitals.of(&agent()).unwrap().demand(Incarnation(2)), 0);
    }

    #[test]
    fn a_claim_whose_answer_is_large_enough_is_no_demand_until_what_was_refused_comes_back() {
        let mut vitals = Vitals::default();
        vitals.open_claim(ClaimId(1), &agent(), Incarnation(1), 10);
        let first = vitals.take_demand(&agent(), Incarnation(1), CLAIM_BYTES - TASK_BYTES).unwrap();
        let second = vitals.take_demand(&agent(), Incarnation(1), TASK_BYTES).unwrap();
        assert_eq!((first.demand, second.demand), (1, 9), "the one that fills it takes the rest of the demand");
        assert_eq!(vitals.take_demand(&agent(), Incarnation(1), 1), None);
        vitals.return_demand(&agent(), second);
        assert_eq!(vitals.of(&agent()).unwrap().demand(Incarnation(1)), 9);
    }

    #[test]
    fn only_foreign_work_counts_as_reported_load_and_an_old_report_fades() {
        let mut vitals = Vitals::default();
        let load = Load { queue_depth: 2, in_flight: 5, mean_latency: None };
        vitals.beat(&agent(), Some(load), 4, Timestamp(0));
        assert_eq!(vitals.of(&agent()).unwrap().foreign(), 3);
        vitals.beat(&agent(), None, 0, Timestamp(LOAD_LIFE.0));
        assert_eq!(vitals.of(&agent()).unwrap().foreign(), 3);
        vitals.beat(&agent(), None, 0, Timestamp(LOAD_LIFE.0 + 1));
        assert_eq!(vitals.of(&agent()).unwrap().foreign(), 0);
    }
}
