//! R1: in any window of one second, replays ≤ rate + burst, per namespace. Where the rate changed within the window or
//! the second before it, the higher one counts.

use std::collections::{BTreeMap, VecDeque};

use agent_reach::ledger::ids::Namespace;
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::policy::Policy;
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::recovery::pace::burst;

use crate::model::{Evidence, Findings};

const WINDOW: Millis = Millis(1_000);

#[derive(Default)]
struct Ward {
    replays: VecDeque<Timestamp>,
    /// Rates with the moment until which each held.
    rates: Vec<(u32, Option<Timestamp>)>,
}

impl Ward {
    fn rate(&self, since: Timestamp) -> u32 {
        let counts = |until: &Option<Timestamp>| until.is_none_or(|until| until >= since);
        self.rates.iter().filter(|(_, until)| counts(until)).map(|(rate, _)| *rate).max().unwrap_or(0)
    }
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut wards: BTreeMap<Namespace, Ward> = BTreeMap::new();
    for entry in evidence.log {
        let event = &entry.event;
        let Some(namespace) = &event.namespace else { continue };
        let ward = wards
            .entry(namespace.clone())
            .or_insert_with(|| Ward { rates: vec![(Policy::default().replays_per_second, None)], ..Ward::default() });
        if let EventBody::PolicyChanged(body) = &event.body {
            if let Some(last) = ward.rates.last_mut() {
                last.1 = Some(event.at);
            }
            ward.rates.push((body.policy.replays_per_second, None));
        }
        if !matches!(event.body, EventBody::TaskReplayed(_)) {
            continue;
        }
        ward.replays.push_back(event.at);
        while ward.replays.front().is_some_and(|first| event.at.since(*first) > WINDOW) {
            ward.replays.pop_front();
        }
        let since = Timestamp(event.at.0.saturating_sub(2_000));
        let rate = ward.rate(since);
        let allowed = usize::try_from(rate + burst(rate)).unwrap_or(usize::MAX);
        if ward.replays.len() > allowed {
            let what = format!("{} replays in a second of {namespace}, {allowed} are allowed", ward.replays.len());
            findings.add("R1", event.seq, what);
        }
    }
}
