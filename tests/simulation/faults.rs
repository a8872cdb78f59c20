//! What goes wrong in one run, drawn from its seed, and a count of what really did: a fault that never hit proves nothing.

use std::collections::BTreeMap;

use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::replay::Done;

use crate::chance::Chance;

/// Every fault that a long run must have seen.
pub(crate) const FAULTS: &[&str] = &[
    "agent ill",
    "message lost",
    "message delayed",
    "message doubled",
    "crash between batches",
    "crash before the append",
    "crash after the append, before the answers",
    "append torn",
    "append unknown, lost",
    "append unknown, kept",
    "append refused",
    "crash while starting",
    "clean stop",
    "restart with tasks in flight",
    "wall clock forward",
    "wall clock backward",
    "standstill",
    "agent killed",
    "agent paused",
    "agent back under the same instance",
    "agent back as a new instance",
    "outcome said twice",
    "outcome contradicted",
    "old lease shown again",
    "key used again with the same body",
    "key used again with another body",
    "key used again by another caller",
    "answer unknown, asked again",
    "batch cut off",
    "receiver down",
    "callback answer lost",
    "push unanswered",
    "push refused",
    "batch full",
    "poison taken",
    "agents lost at once",
    "snapshot taken",
    "snapshot used",
    "list late",
    "list lost",
    "disk nearly full",
    "plan over tasks of another",
    "item proposed by another hand",
    "redriven again",
    "redriven while it runs",
    "redriven from another namespace",
];

/// How the hub dies at its next commit, or between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    Idle,
    BeforeAppend,
    AfterAppend,
    Torn,
    UnknownLost,
    UnknownKept,
    Refused,
    Clean,
}

const DEATHS: &[Death] = &[
    Death::Idle,
    Death::BeforeAppend,
    Death::AfterAppend,
    Death::Torn,
    Death::UnknownLost,
    Death::UnknownKept,
    Death::Refused,
    Death::Clean,
];

impl Death {
    pub(crate) fn drawn(chance: &mut Chance) -> Self {
        *chance.pick(DEATHS)
    }
}

/// How bad the network is, in thousandths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
    /// The longest ordinary delay, in milliseconds.
    pub(crate) slowest: u64,
    /// The longest ordinary fsync, in milliseconds.
    pub(crate) fsync: u64,
}

impl Weather {
    pub(crate) fn drawn(chance: &mut Chance) -> Self {
        match chance.below(4) {
            0 => Self { lost: 0, doubled: 0, delayed: 0, slowest: 5, fsync: 3 },
            1 => Self { lost: 20, doubled: 20, delayed: 30, slowest: 30, fsync: 8 },
            2 => Self { lost: 80, doubled: 60, delayed: 80, slowest: 120, fsync: 20 },
            _ => Self { lost: 10, doubled: 150, delayed: 200, slowest: 60, fsync: 40 },
        }
    }
}

/// How often each fault hit, and each kind of event was written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) kinds: BTreeMap<&'static str, u64>,
    pub(crate) rejections: BTreeMap<String, u64>,
    /// Items of plans by outcome, single redrives, resolutions.
    pub(crate) items: BTreeMap<String, u64>,
    /// Cases that an invariant judged, or had to leave out.
    pub(crate) judged: BTreeMap<&'static str, u64>,
    pub(crate) lives: u64,
    pub(crate) commits: u64,
}

impl Tally {
    pub(crate) fn hit(&mut self, fault: &'static str) {
        debug_assert!(FAULTS.contains(&fault), "{fault} is not in the list");
        *self.faults.entry(fault).or_insert(0) += 1;
    }

    /// Counts what became of items and what operators said.
    pub(crate) fn note(&mut self, body: &EventBody) {
        let name = if let EventBody::ReplayItemDone(body) = body {
            match body.done {
                Done::Replayed => "item: replayed".to_owned(),
                Done::Redriven { .. } => "item: redriven".to_owned(),
            }
        } else if let EventBody::ReplayItemSkipped(body) = body {
            format!("item: skipped, {}", body.skip.name())
        } else if let EventBody::TaskRedriven(body) = body
            && body.replay.is_none()
        {
            "redriven by a word".to_owned()
        } else if let EventBody::TaskResolved(body) = body {
            format!("resolved: {}", body.resolution.name())
        } else {
            return;
        };
        *self.items.entry(name).or_insert(0) += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (name, count) in &other.faults {
            *self.faults.entry(name).or_insert(0) += count;
        }
        for (name, count) in &other.kinds {
            *self.kinds.entry(name).or_insert(0) += count;
        }
        for (name, count) in &other.rejections {
            *self.rejections.entry(name.clone()).or_insert(0) += count;
        }
        for (name, count) in &other.items {
            *self.items.entry(name.clone()).or_insert(0) += count;
        }
        for (name, count) in &other.judged {
            *self.judged.entry(name).or_insert(0) += count;
        }
        self.lives += other.lives;
        self.commits += other.commits;
    }
}
