//! R1: in any window w, replays ≤ rate × w + burst, with burst = max(1, rate/4): of each source (the sweep of a namespace,
//! each plan) at its own rate, of a namespace at the greatest that any of its sources has, and of the hub. Every window
//! that begins and ends with a replay is looked at, so every second is, and every other. Where a rate changed within a
//! window, the highest in it counts.
//!
//! What an operator says of a single task is paced by nobody.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{Namespace, ReplayId, Seq};
use agent_reach::ledger::machine::event::{Actor, Event, EventBody};
use agent_reach::ledger::machine::policy::{HubPolicy, Policy};
use agent_reach::ledger::time::Timestamp;
use agent_reach::recovery::pace::burst;

use crate::model::{Evidence, Findings};

/// Replays, and the rate that held from each moment on.
#[derive(Default)]
struct Source {
    replays: Vec<(Timestamp, Seq)>,
    rates: Vec<(Timestamp, u32)>,
}

impl Source {
    fn at_rate(rate: u32) -> Self {
        Self { replays: Vec::new(), rates: vec![(Timestamp(0), rate)] }
    }

    fn rate(&self) -> u32 {
        self.rates.last().map_or(0, |(_, rate)| *rate)
    }

    fn set(&mut self, at: Timestamp, rate: u32) {
        if rate != self.rate() {
            self.rates.push((at, rate));
        }
    }

    fn check(&self, name: &str, findings: &mut Findings) {
        for (begin, (from, _)) in self.replays.iter().enumerate() {
            // The rate before the window still holds at its first moment.
            let mut next = self.rates.partition_point(|(since, _)| since < from);
            let mut rate = next.checked_sub(1).and_then(|last| self.rates.get(last)).map_or(0, |(_, rate)| *rate);
            for (count, (at, seq)) in (1_u64..).zip(self.replays.iter().skip(begin)) {
                while let Some((_, changed)) = self.rates.get(next).filter(|(since, _)| since <= at) {
                    rate = rate.max(*changed);
                    next += 1;
                }
                let window = at.since(*from).0;
                let allowed = u64::from(rate) * window / 1_000 + u64::from(burst(rate));
                if count > allowed {
                    let what =
                        format!("{name}: {count} replays in {window} ms, {allowed} are allowed at {rate} a second");
                    findings.add("R1", *seq, what);
                    return;
                }
            }
        }
    }
}

/// A namespace: its policy, its plans that run, all that is replayed in it.
struct Ward {
    policy: u32,
    running: BTreeMap<ReplayId, u32>,
    sweep: Source,
    all: Source,
}

impl Ward {
    fn new() -> Self {
        let policy = Policy::default().replays_per_second;
        Self { policy, running: BTreeMap::new(), sweep: Source::at_rate(policy), all: Source::at_rate(policy) }
    }

    fn changed(&mut self, at: Timestamp) {
        let most = self.running.values().copied().max().unwrap_or(0);
        self.sweep.set(at, self.policy);
        self.all.set(at, self.policy.max(most));
    }
}

#[derive(Default)]
struct Count {
    wards: BTreeMap<Namespace, Ward>,
    plans: BTreeMap<ReplayId, Source>,
    overall: Source,
    /// Items that somebody else than their plan proposed.
    foreign: BTreeSet<Seq>,
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut count = Count { overall: Source::at_rate(HubPolicy::default().replays_per_second), ..Count::default() };
    for entry in evidence.log {
        count.rates(&entry.event);
        count.replays(evidence, &entry.event);
    }
    for (name, ward) in &count.wards {
        ward.sweep.check(&format!("the sweep of {name}"), findings);
        ward.all.check(&format!("all of {name}"), findings);
    }
    for (id, plan) in &count.plans {
        plan.check(&id.to_string(), findings);
    }
    count.overall.check("all", findings);
}

impl Count {
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks what changes a rate; the rest does not")]
    fn rates(&mut self, event: &Event) {
        if let EventBody::HubPolicyChanged(body) = &event.body {
            self.overall.set(event.at, body.policy.replays_per_second);
        }
        let Some(namespace) = &event.namespace else { return };
        let ward = self.wards.entry(namespace.clone()).or_insert_with(Ward::new);
        match &event.body {
            EventBody::PolicyChanged(body) => ward.policy = body.policy.replays_per_second,
            EventBody::ReplayPlanned(body) => {
                self.plans.insert(body.replay, Source::at_rate(body.rate));
            }
            EventBody::ReplayStarted(body) => run(ward, &self.plans, body.replay),
            EventBody::ReplayResumed(body) => run(ward, &self.plans, body.replay),
            EventBody::ReplayRateChanged(body) => {
                if let Some(plan) = self.plans.get_mut(&body.replay) {
                    plan.set(event.at, body.rate);
                }
                if let Some(rate) = ward.running.get_mut(&body.replay) {
                    *rate = body.rate;
                }
            }
            EventBody::ReplayPaused(body) => drop(ward.running.remove(&body.replay)),
            EventBody::ReplayFinished(body) => drop(ward.running.remove(&body.replay)),
            _ => return,
        }
        ward.changed(event.at);
    }

    fn replays(&mut self, evidence: &Evidence<'_>, event: &Event) {
        let Some(ward) = event.namespace.as_ref().and_then(|namespace| self.wards.get_mut(namespace)) else { return };
        let one = (event.at, event.seq);
        if let EventBody::ReplayItemDone(body) = &event.body {
            let Some(plan) = self.plans.get_mut(&body.replay) else { return };
            if evidence.plans.get(&body.replay).is_none_or(|plan| *plan.by != event.actor) {
                self.foreign.insert(event.seq);
                return;
            }
            plan.replays.push(one);
        } else if matches!(event.body, EventBody::TaskReplayed(_)) && event.actor == Actor::Hub {
            ward.sweep.replays.push(one);
        } else {
            return;
        }
        ward.all.replays.push(one);
        self.overall.replays.push(one);
    }
}

fn run(ward: &mut Ward, plans: &BTreeMap<ReplayId, Source>, id: ReplayId) {
    let rate = plans.get(&id).map_or(0, Source::rate);
    ward.running.insert(id, rate);
}
