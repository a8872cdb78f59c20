//! A trace of arrivals, worked on by a fleet that is told on the command line.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use agent_reach::ledger::ids::{AgentId, AgentKey, Capability, FairnessKey, Namespace, ReachId, TokenId};
use agent_reach::ledger::machine::agent::{DEFAULT_CONCURRENCY, DEFAULT_WEIGHT, Declaration, MAX_CONCURRENCY, Offer};
use agent_reach::ledger::machine::routing::MAX_WEIGHT;
use agent_reach::ledger::machine::task::spec::Qos;
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::scheduler::whatif::{Ends, Fleet, Job, Try, Worker};

use crate::exit::{Code, Failure, Outcome};
use crate::workload::{Trace, service_time};

use super::changes::{factor, speed_milli};
use super::{Scenario, fleet};

/// What every call of a trace asks for.
const CAPABILITY: &str = "llm.generate";

/// An agent, as the command line tells it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seat {
    name: AgentId,
    slots: u32,
    at_once: Option<u32>,
    speed: f64,
    weight: u32,
}

impl FromStr for Seat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let name = name.parse().map_err(|_| format!("{name:?} is no agent's id"))?;
        let mut seat = Self { name, slots: DEFAULT_CONCURRENCY, at_once: None, speed: 1.0, weight: DEFAULT_WEIGHT };
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?}: expected NAME=VALUE"))?;
            let number = |most: u32| {
                let number = value.parse().ok().filter(|number| (1..=most).contains(number));
                number.ok_or_else(|| format!("{key}: expected 1 to {most}, not {value:?}"))
            };
            match key {
                "slots" => seat.slots = number(MAX_CONCURRENCY)?,
                "at-once" => seat.at_once = Some(number(MAX_CONCURRENCY)?),
                "weight" => seat.weight = number(MAX_WEIGHT)?,
                "speed" => seat.speed = factor(value).map_err(|why| format!("speed: {why}"))?,
                _ => return Err(format!("{key:?}: expected slots, at-once, speed or weight")),
            }
        }
        Ok(seat)
    }
}

/// Shares of urgent, normal and background tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Classes([u32; 3]);

impl FromStr for Classes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        let shares: [u32; 3] =
            shares.ok().and_then(|shares| shares.try_into().ok()).ok_or("expected U:N:B, as in 1:6:3")?;
        if shares.iter().any(|share| *share > 1_000) || shares.iter().sum::<u32>() == 0 {
            return Err("expected shares of at most 1,000, and not all of them 0".to_owned());
        }
        Ok(Self(shares))
    }
}

impl Classes {
    /// The class of the n-th task: in turns, by the shares.
    fn of(self, n: usize) -> Qos {
        let [urgent, normal, background] = self.0;
        let round = urgent + normal + background;
        let place = u32::try_from(n).unwrap_or(0) % round.max(1);
        if place < urgent {
            Qos::Urgent
        } else if place < urgent + normal {
            Qos::Normal
        } else {
            Qos::Background
        }
    }
}

/// The trace, worked on by that fleet.
pub(super) fn scenario(file: &Path, seats: &[Seat], (rate, classes): (Option<f64>, Classes)) -> Outcome<Scenario> {
    let wrong = |why: String| Failure::Other(Code::Usage, format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let trace = Trace::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let count = u32::try_from(trace.calls().len()).unwrap_or(u32::MAX);
    let trace = match rate {
        Some(rate) => trace.squeezed_into(Duration::from_secs_f64(f64::from(count) / rate)),
        None => trace,
    };
    let named = named().map_err(|error| wrong(error.to_string()))?;
    let mut fleet: BTreeMap<AgentId, Worker> = BTreeMap::new();
    for seat in seats {
        if fleet.insert(seat.name.clone(), seat.worker(&named)).is_some() {
            return Err(Failure::Other(Code::Usage, format!("--agent: {} is there twice", seat.name)));
        }
    }
    let jobs = (0_u64..).zip(trace.calls()).enumerate().map(|(place, (n, call))| {
        let mut id = [0; 16];
        if let Some(end) = id.last_chunk_mut() {
            *end = n.to_be_bytes();
        }
        let at = Timestamp(u64::try_from(call.at.as_millis()).unwrap_or(u64::MAX));
        let asked = (named.namespace.clone(), named.capability.clone(), named.caller.clone());
        let mut job = Job::plain(ReachId(id), at, asked, named.fairness_key.clone());
        job.submission.qos = classes.of(place);
        let work = Millis(u64::try_from(service_time(call.generated_tokens, 1.0).as_millis()).unwrap_or(u64::MAX));
        job.tries.push(Try { work, ends: Ends::Well });
        job
    });
    let left_out = vec!["the work of a call is 20 ms and 30 ms for each token that it generates".to_owned()];
    let source = format!("{} calls of {}", trace.calls().len(), file.display());
    let fleet = Fleet { workers: fleet.into_values().collect(), rules: BTreeMap::new() };
    Ok(Scenario { source, fleet, jobs: jobs.collect(), recorded: Vec::new(), left_out })
}

/// Names that a trace has none of.
struct Named {
    namespace: Namespace,
    capability: Capability,
    caller: TokenId,
    fairness_key: FairnessKey,
}

fn named() -> Result<Named, agent_reach::ledger::ids::IdError> {
    Ok(Named {
        namespace: Namespace::new("trace")?,
        capability: Capability::new(CAPABILITY)?,
        caller: TokenId::new("trace")?,
        fairness_key: FairnessKey::new("trace")?,
    })
}

impl Seat {
    fn worker(&self, named: &Named) -> Worker {
        let offer = Offer { weight: self.weight, ..fleet::offer(named.capability.clone()) };
        let declaration = Declaration { max_concurrency: self.slots, ..fleet::declaration(vec![offer]) };
        Worker {
            agent: AgentKey { namespace: named.namespace.clone(), agent_id: self.name.clone() },
            declaration,
            at_once: self.at_once.unwrap_or(self.slots),
            speeds: [(named.capability.clone(), speed_milli(self.speed))].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_told_in_one_word() {
        let seat: Seat = "fast-1,slots=40,at-once=4,speed=2.5,weight=20".parse().expect("an agent");
        assert_eq!((seat.slots, seat.at_once, seat.speed, seat.weight), (40, Some(4), 2.5, 20));
        for wrong in ["", "a,slots=0", "a,speed=-1", "a,speed=NaN", "a,weight=1001", "a,colour=red", "a,slots"] {
            assert!(wrong.parse::<Seat>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn classes_come_in_turns_by_their_shares() {
        let classes: Classes = "1:2:1".parse().expect("shares");
        let six: Vec<Qos> = (0..6).map(|n| classes.of(n)).collect();
        assert_eq!(six, [Qos::Urgent, Qos::Normal, Qos::Normal, Qos::Background, Qos::Urgent, Qos::Normal]);
        assert!("0:0:0".parse::<Classes>().is_err() && "1:2".parse::<Classes>().is_err());
    }
}
