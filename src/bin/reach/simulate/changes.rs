//! What is asked about: the changes that the second play has.

use std::collections::BTreeMap;
use std::str::FromStr;

use agent_reach::ledger::ids::{AgentId, AgentKey, Capability, Namespace};
use agent_reach::ledger::machine::agent::{MAX_CONCURRENCY, Strategy};
use agent_reach::ledger::machine::routing::{MAX_WEIGHT, RoutingRules, Tiers};
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::scheduler::whatif::{Fleet, Job, PLAIN_SPEED, Worker};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::exit::{Code, Failure, Outcome};

use super::Scenario;

/// Routing rules, by namespace and capability.
type Rules = BTreeMap<(Namespace, Capability), RoutingRules>;

/// The smallest factor of speeds, loads and rates.
const LEAST: f64 = 0.001;
/// The largest.
const MOST: f64 = 10_000.0;

/// What is different.
#[derive(Debug, Args)]
#[command(next_help_heading = "What if")]
pub(crate) struct Changes {
    /// This strategy, for all capabilities
    #[arg(long, value_parser = PossibleValuesParser::new(Strategy::ALL.map(Strategy::name)))]
    strategy: Option<String>,
    /// Priorities are tiers, for all capabilities
    #[arg(long)]
    tiers: bool,
    /// This weight for an agent, 1 to 1,000
    #[arg(long, value_name = "AGENT=N")]
    weight: Vec<Of<u32>>,
    /// So many slots for an agent, 1 to 10,000
    #[arg(long, value_name = "AGENT=N")]
    slots: Vec<Of<u32>>,
    /// An agent so many times as fast as it is
    #[arg(long, value_name = "AGENT=X")]
    speed: Vec<Of<f64>>,
    /// One more agent, like one that is there
    #[arg(long, value_name = "NEW=AGENT")]
    add: Vec<Of<AgentId>>,
    /// Without an agent
    #[arg(long, value_name = "AGENT")]
    without: Vec<AgentId>,
    /// Arrivals so many times as dense
    #[arg(long, value_name = "X", value_parser = factor)]
    load: Option<f64>,
}

/// Something of one agent.
#[derive(Debug, Clone)]
pub(crate) struct Of<T> {
    agent: AgentId,
    value: T,
}

impl<T: FromStr> FromStr for Of<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (agent, value) = text.split_once('=').ok_or("expected AGENT=VALUE")?;
        let agent = agent.parse().map_err(|_| format!("{agent:?} is no agent's id"))?;
        Ok(Self { agent, value: value.parse().map_err(|_| format!("{value:?} is no value of it"))? })
    }
}

/// A factor of speeds, loads and rates.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if (LEAST..=MOST).contains(&factor) { Ok(factor) } else { Err(format!("expected {LEAST} to {MOST}")) }
}

/// A factor in thousandths of a speed.
pub(crate) fn speed_milli(factor: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded by `factor`")]
    let milli = (factor * f64::from(PLAIN_SPEED)).round() as u32;
    milli.max(1)
}

impl Changes {
    /// The fleet and its work with every change.
    pub(crate) fn applied(&self, scenario: &Scenario) -> Outcome<(Fleet, Vec<Job>)> {
        let workers = scenario.fleet.workers.iter();
        let mut workers: BTreeMap<AgentId, Worker> =
            workers.map(|worker| (worker.agent.agent_id.clone(), worker.clone())).collect();
        for Of { agent, value } in &self.add {
            let like = found(&mut workers, value)?.clone();
            if workers.contains_key(agent) {
                return Err(wrong(format!("--add: {agent} is there already")));
            }
            let key = AgentKey { agent_id: agent.clone(), ..like.agent };
            workers.insert(agent.clone(), Worker { agent: key, ..like });
        }
        for Of { agent, value } in &self.slots {
            within("--slots", *value, 1..=MAX_CONCURRENCY)?;
            let worker = found(&mut workers, agent)?;
            // What works on all that it holds still does.
            let holds_back = worker.at_once < worker.declaration.max_concurrency;
            worker.declaration.max_concurrency = *value;
            worker.at_once = if holds_back { worker.at_once.min(*value) } else { *value };
        }
        for Of { agent, value } in &self.speed {
            let by = factor(&value.to_string()).map_err(|why| wrong(format!("--speed: {why}")))?;
            let worker = found(&mut workers, agent)?;
            for offer in &worker.declaration.offers {
                let speed = worker.speeds.entry(offer.capability.clone()).or_insert(PLAIN_SPEED);
                *speed = speed_milli(f64::from(*speed) / f64::from(PLAIN_SPEED) * by);
            }
        }
        for Of { agent, value } in &self.weight {
            within("--weight", *value, 1..=MAX_WEIGHT)?;
            found(&mut workers, agent)?;
        }
        for agent in &self.without {
            found(&mut workers, agent)?;
            workers.remove(agent);
        }
        let rules = self.rules(&workers, &scenario.fleet.rules);
        let fleet = Fleet { workers: workers.into_values().collect(), rules };
        Ok((fleet, denser(&scenario.jobs, self.load.unwrap_or(1.0))))
    }

    /// The rules of every capability that is offered, with what is changed in them.
    fn rules(&self, workers: &BTreeMap<AgentId, Worker>, today: &Rules) -> Rules {
        let mut rules = today.clone();
        for worker in workers.values() {
            for offer in &worker.declaration.offers {
                let key = (worker.agent.namespace.clone(), offer.capability.clone());
                let of_it = rules.entry(key).or_default();
                let strategy = Strategy::ALL.into_iter().find(|one| Some(one.name()) == self.strategy.as_deref());
                of_it.strategy = strategy.or(of_it.strategy);
                if self.tiers {
                    of_it.tiers = Tiers::Yes;
                }
                let own = self.weight.iter().filter(|of| of.agent == worker.agent.agent_id);
                of_it.weights.extend(own.map(|of| (of.agent.clone(), of.value)));
            }
        }
        rules
    }

    /// Each change, in words.
    pub(crate) fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.strategy.as_ref().map(|name| format!("strategy {name}")));
        words.extend(self.tiers.then(|| "priorities are tiers".to_owned()));
        words.extend(self.weight.iter().map(|of| format!("weight of {} {}", of.agent, of.value)));
        words.extend(self.slots.iter().map(|of| format!("slots of {} {}", of.agent, of.value)));
        words.extend(self.speed.iter().map(|of| format!("{} {} times as fast", of.agent, of.value)));
        words.extend(self.add.iter().map(|of| format!("{} more, like {}", of.agent, of.value)));
        words.extend(self.without.iter().map(|agent| format!("without {agent}")));
        words.extend(self.load.map(|load| format!("{load} times the load")));
        words
    }
}

fn wrong(why: String) -> Failure {
    Failure::Other(Code::Usage, why)
}

fn within(option: &str, value: u32, bounds: std::ops::RangeInclusive<u32>) -> Outcome {
    if bounds.contains(&value) {
        return Ok(());
    }
    Err(wrong(format!("{option}: expected {} to {}, not {value}", bounds.start(), bounds.end())))
}

fn found<'a>(workers: &'a mut BTreeMap<AgentId, Worker>, agent: &AgentId) -> Outcome<&'a mut Worker> {
    let names: Vec<String> = workers.keys().take(10).map(ToString::to_string).collect();
    workers.get_mut(agent).ok_or_else(|| wrong(format!("there is no agent {agent}, but {}", names.join(", "))))
}

/// The same arrivals, closer together.
pub(crate) fn denser(jobs: &[Job], by: f64) -> Vec<Job> {
    let first = jobs.iter().map(|job| job.at).min().unwrap_or_default();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a span of milliseconds, which is far below 2^52"
    )]
    let moved = |at: Timestamp| first.after(Millis((at.since(first).0 as f64 / by).round() as u64));
    let mut jobs = jobs.to_vec();
    for job in &mut jobs {
        job.at = moved(job.at);
        job.submission.not_before = job.submission.not_before.map(moved);
    }
    jobs
}
