//! What is asked of the living state while the hub runs: L2 (timers fire in time), T3 (everything unfinished has exactly
//! one next wake-up), S8 (slots and gauges are what the leases say; at rest every gauge is 0).

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{AgentKey, ReachId, Seq};
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::due::Subject;
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::time::{Millis, Timestamp};

use crate::model::{Breach, Depth};

const TICK: Millis = Millis(10);
/// The longest fsync of a world.
const FSYNC: u64 = 41;

/// L2: a timer that fires more than a tick after it was due, or before. Timers are cut into commits (semantics 21): each
/// of the `commits` that all live tasks together would fill may make the rest wait for one fsync, as may the one before.
/// The hub itself stood still for `stood` since it was due: its disk was slow to read.
pub(crate) fn lateness(
    subject: &Subject,
    (due, now): (Timestamp, Timestamp),
    (commits, stood): (usize, Millis),
    seq: Seq,
) -> Option<Breach> {
    let waits = u64::try_from(commits).unwrap_or(u64::MAX).saturating_add(1).saturating_mul(FSYNC);
    let waits = waits.saturating_add(stood.0);
    let what = format!("{subject:?} was due at {due} and fires at {now}");
    let late = now.since(due).0 > TICK.0.saturating_add(waits) || now < due;
    late.then_some(Breach { invariant: "L2", seq, what })
}

/// T3 and S8, over everything (`Whole`) or only by the sizes.
pub(crate) fn gauges(state: &State, depth: Depth) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut breach = |invariant, what: String| found.push(Breach { invariant, seq: state.seq(), what });
    let waking = state.tasks().values().filter(|task| !task.status.kind().is_terminal()).count();
    let agents = state.agents().values().filter(|agent| agent.wake_at().is_some()).count();
    let breakers = open_breakers(state);
    if state.due().len() != waking + agents + breakers {
        let timers = state.due().len();
        breach("T3", format!("{timers} timers for {waking} tasks, {agents} agents and {breakers} breakers"));
    }
    let counted: u32 = state.counts().values().map(agent_reach::ledger::machine::NamespaceCount::total).sum();
    if u32::try_from(state.tasks().len()) != Ok(counted) {
        breach("S8", format!("{counted} tasks are counted, {} are there", state.tasks().len()));
    }
    if depth == Depth::Quick {
        return found;
    }
    let mut held: BTreeMap<AgentKey, BTreeSet<ReachId>> = BTreeMap::new();
    for task in state.tasks().values() {
        if state.due().of(&Subject::Task(task.id())) != task.wake_at() {
            breach("T3", format!("{} does not wake when it should", task.id()));
        }
        if let Some(lease) = task.status.lease() {
            let key = AgentKey { namespace: task.namespace.clone(), agent_id: lease.agent.clone() };
            if state.agent(&key).is_some_and(|agent| agent.incarnation == lease.incarnation) {
                held.entry(key).or_default().insert(task.id());
            }
        }
    }
    for (key, agent) in state.agents() {
        let leases = held.remove(key).unwrap_or_default();
        if leases != agent.held {
            breach("S8", format!("{} counts {:?}, leases are {leases:?}", key.agent_id, agent.held));
        }
    }
    found
}

/// Breakers that half-open by themselves.
fn open_breakers(state: &State) -> usize {
    state.breakers().values().flat_map(BTreeMap::values).filter(|breaker| breaker.wake_at().is_some()).count()
}

/// S8 at rest: nothing lives, so nothing is counted.
pub(crate) fn at_rest(state: &State) -> Vec<Breach> {
    let mut left = Vec::new();
    let unfinished = state.tasks().values().filter(|task| !task.status.kind().is_terminal()).count();
    let slots: usize = state.agents().values().map(agent_reach::ledger::machine::agent::Agent::slots_used).sum();
    let alive = |kind: &StatusKind| !kind.is_terminal();
    let counted = state.counts().values().flat_map(|count| count.by_state.keys()).filter(|kind| alive(kind)).count();
    for (name, count) in [
        ("tasks", unfinished),
        ("slots", slots),
        ("counts", counted),
        ("timers", state.due().len() - open_breakers(state)),
        ("pushes", state.pushes().len()),
        ("orphans", state.orphans().len()),
        ("callbacks", state.callbacks().len()),
        ("batches", state.batches().len()),
        ("plans", state.replays().len()),
    ] {
        if count > 0 {
            left.push(Breach {
                invariant: "S8",
                seq: state.seq(),
                what: format!("at rest, but {count} {name} are left"),
            });
        }
    }
    left
}
