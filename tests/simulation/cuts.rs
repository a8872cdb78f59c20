//! "Crash after event k, for all k": a run's log is cut after every commit, folded, resolved by the boot rules and gone
//! on with, until whatever was left has come to its end.

use agent_reach::ledger::boot;
use agent_reach::ledger::ids::{Boot, Lineage};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::batch::BatchPhase;
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::due::Subject;
use agent_reach::ledger::machine::step::{apply, step};
use agent_reach::ledger::planner::Planner;
use agent_reach::ledger::store::block::{decode_commit, leaf_hash};
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::recovery::Recovery;
use agent_reach::scheduler::plan::Scheduler;

use crate::facts;
use crate::invariants::{judge, live};
use crate::model::{Breach, Depth, Entry, Evidence, Notes};
use crate::sabotage::Sabotage;
use crate::world::Ended;

/// Invariants of callbacks and of the fleet: after a cut nobody sends and nobody works any more.
const NOT_AFTER_A_CUT: &[&str] = &["L4", "C3"];

/// Cuts a log everywhere; how many cuts were made, and what they broke.
pub(crate) fn everywhere(ended: &Ended) -> (u64, Vec<Breach>) {
    let store = &*ended.store;
    // What was said to the hub before the cut; receipts and sights of later events are no longer owed.
    let (spoken, acked) = (ended.notes.spoken.clone(), ended.notes.acked.clone());
    let notes = Notes { spoken, acked, at_rest: true, ..Notes::default() };
    let mut found = Vec::new();
    let mut cuts = 0;
    let mut state = State::default();
    let mut log: Vec<Entry> = Vec::new();
    for frame in store.frames() {
        let decoded = decode_commit(&frame).expect("what was committed can be read");
        for stored in decoded.events {
            if let Err(error) = apply(&mut state, &stored.event) {
                found.push(Breach { invariant: "D4", seq: stored.event.seq, what: error.to_string() });
                return (cuts, found);
            }
            log.push(Entry { hash: leaf_hash(&stored.frame), event: stored.event });
        }
        let durable = state.seq();
        state.forget_up_to(durable);
        cuts += 1;
        if cuts.is_multiple_of(32) {
            let place = usize::try_from(cuts).unwrap_or(usize::MAX);
            let folded = boot::fold(&store.cut_after(place)).map(|folded| folded.state.digest());
            if folded != Ok(state.digest()) {
                found.push(Breach {
                    invariant: "D4",
                    seq: durable,
                    what: format!("cut {cuts} folds to another state"),
                });
            }
        }
        // Judging a whole log at each cut would cost its square: every eighth is judged, all are lived to the end.
        found.extend(go_on(state.clone(), &log, (ended, &notes), Depth::every(cuts, 8)));
        if !found.is_empty() {
            break;
        }
    }
    (cuts, found)
}

/// Starts from a cut and lives on without agents until nothing is left.
fn go_on(mut state: State, log: &[Entry], (ended, notes): (&Ended, &Notes), depth: Depth) -> Vec<Breach> {
    let mut tail = Vec::new();
    let rest = live_on(&mut state, &ended.store, &mut tail);
    let mut found: Vec<Breach> = live::gauges(&state, Depth::Whole);
    let seq = state.seq();
    if let Err(what) = rest {
        found.push(Breach { invariant: "D4", seq, what });
        return found;
    }
    let unfinished = state.tasks().values().filter(|task| !task.status.kind().is_terminal()).count();
    let open = state.batches().values().filter(|batch| !matches!(batch.phase, BatchPhase::Settled { .. })).count();
    if open > 0 {
        found.push(Breach { invariant: "L4", seq, what: format!("{open} batches never settle after a cut") });
    }
    if unfinished > 0 {
        found.push(Breach { invariant: "L1", seq, what: format!("{unfinished} tasks never end after a cut") });
    }
    if depth == Depth::Whole {
        let whole: Vec<Entry> = log.iter().cloned().chain(tail).collect();
        let evidence = Evidence::of(&whole, notes, ended.lineage);
        found.extend(judge(&evidence).into_iter().filter(|breach| !NOT_AFTER_A_CUT.contains(&breach.invariant)));
    }
    found
}

fn live_on(state: &mut State, store: &MemoryStore, tail: &mut Vec<Entry>) -> Result<(), String> {
    let keys = Keys::from_master(&[9; 32]);
    let mut now = state.at().after(Millis(1_500));
    let lineage = (state.seq().0 == 0).then_some(Lineage([1; 16]));
    let start = Command::StartHub { boot: Boot(state.boot().0 + 1), wall_offset: 0, version: "cut".into(), lineage };
    let mut planners: Vec<Box<dyn Planner>> = vec![Box::new(Scheduler::new()), Box::new(Recovery::new())];
    for planner in &mut planners {
        planner.rebuild(state, now);
    }
    propose(state, &mut planners, tail, (Proposal::by_hub(None, start), now))?;
    for proposal in agent_reach::recovery::boot::resolve(state) {
        propose(state, &mut planners, tail, (proposal, now))?;
    }
    for _ in 0..5_000 {
        while let Some(subject) = state.due().due_by(now).cloned() {
            let namespace = match &subject {
                Subject::Task(task) => state.task(*task).map(|task| task.namespace.clone()),
                Subject::Agent(agent) => Some(agent.namespace.clone()),
            };
            let before = state.seq();
            let fire = Proposal::by_hub(namespace, Command::Fire { subject: subject.clone() });
            propose(state, &mut planners, tail, (fire, now))?;
            if state.seq() == before {
                return Err(format!("timer of {subject:?} fires without effect"));
            }
        }
        for index in 0..planners.len() {
            let proposals = planners.get_mut(index).map(|planner| planner.plan(state, now, 64)).unwrap_or_default();
            for mut proposal in proposals {
                facts::fill(&mut proposal, state, store, &keys, Sabotage::None);
                if !propose(state, &mut planners, tail, (proposal.clone(), now))?
                    && let Some(planner) = planners.get_mut(index)
                {
                    planner.refused(state, &proposal);
                }
            }
        }
        let done = state.seq();
        state.forget_up_to(done);
        let wishes = planners.iter().filter_map(|planner| planner.wake_at(state, now));
        match state.due().next().into_iter().chain(wishes).min() {
            Some(next) => now = next.max(Timestamp(now.0 + 1)),
            None => return Ok(()),
        }
    }
    Err("it never comes to rest after a cut".to_owned())
}

/// Decides one proposal; was it taken?
fn propose(
    state: &mut State,
    planners: &mut [Box<dyn Planner>],
    tail: &mut Vec<Entry>,
    (proposal, now): (Proposal, Timestamp),
) -> Result<bool, String> {
    let done = step(state, &proposal, now).map_err(|error| error.to_string())?;
    for event in done.events {
        for planner in planners.iter_mut() {
            planner.observe(state, &event);
        }
        tail.push(Entry { hash: agent_reach::ledger::ids::Digest::default(), event });
    }
    Ok(done.answer.is_ok())
}
