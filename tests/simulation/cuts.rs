//! "Crash after event k, for all k": a run's log is cut after every commit, folded, resolved by the boot rules and gone
//! on with, until whatever was left has come to its end.

use std::sync::Arc;

use agent_reach::ledger::boot;
use agent_reach::ledger::facts::rows;
use agent_reach::ledger::ids::{Boot, Lineage};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::batch::BatchPhase;
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::due::Subject;
use agent_reach::ledger::machine::event::Event;
use agent_reach::ledger::machine::replay::ReplayPhase;
use agent_reach::ledger::machine::replay::order::ReplayWord;
use agent_reach::ledger::machine::step::{apply, step};
use agent_reach::ledger::planner::{Note, Planner};
use agent_reach::ledger::store::block::{decode_commit, encode_commit, leaf_hash};
use agent_reach::ledger::store::memory::MemoryStore;
use agent_reach::ledger::store::{Body, BodyKey, Store};
use agent_reach::ledger::time::{Millis, Timestamp};

use crate::facts;
use crate::hub::by_token;
use crate::invariants::{judge, live};
use crate::model::{Breach, Depth, Entry, Evidence, Notes};
use crate::operator::operator;
use crate::sabotage::Sabotage;
use crate::world::{Ended, read_payloads};

/// Invariants of callbacks and of the fleet: after a cut nobody sends and nobody works any more.
const NOT_AFTER_A_CUT: &[&str] = &["L4", "C3"];

/// Cuts a log everywhere; how many cuts were made, and what they broke.
pub(crate) fn everywhere(ended: &Ended) -> (u64, Vec<Breach>) {
    let store = &*ended.store;
    // What was said to the hub before the cut; receipts and sights of later events are no longer owed.
    let (spoken, acked) = (ended.notes.spoken.clone(), ended.notes.acked.clone());
    let (lists, said) = (ended.notes.lists.clone(), ended.notes.said.clone());
    let (corrections, successors) = (ended.notes.corrections.clone(), ended.notes.successors.clone());
    let notes = Notes { spoken, acked, lists, said, corrections, successors, at_rest: true, ..Notes::default() };
    let mut found = Vec::new();
    let mut cuts = 0;
    let mut state = State::default();
    let mut log: Vec<Entry> = Vec::new();
    let before = MemoryStore::new();
    for (place, frame) in store.frames().into_iter().enumerate() {
        if let Some(commit) = store.commit_at(place) {
            before.append(&commit).expect("the memory store takes what it gave");
        }
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
        found.extend(go_on((state.clone(), before.clone()), &log, (ended, &notes), Depth::every(cuts, 8)));
        if !found.is_empty() {
            break;
        }
    }
    (cuts, found)
}

/// Starts from a cut and lives on without agents until nothing is left.
fn go_on(
    (state, store): (State, MemoryStore),
    log: &[Entry],
    (ended, notes): (&Ended, &Notes),
    depth: Depth,
) -> Vec<Breach> {
    let mut later =
        Later { state, store, planners: Vec::new(), batch: Vec::new(), bodies: Vec::new(), tail: Vec::new() };
    let rest = later.live_on();
    let Later { state, tail, store, .. } = later;
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
    if !state.replays().is_empty() {
        found.push(Breach {
            invariant: "L4",
            seq,
            what: format!("{} plans never end after a cut", state.replays().len()),
        });
    }
    if depth == Depth::Whole {
        let last = log.last().map(|entry| entry.event.at).unwrap_or_default();
        let stood = ended.notes.stood.iter().copied().filter(|at| *at <= last).collect();
        let whole: Vec<Entry> = log.iter().cloned().chain(tail).collect();
        let notes = Notes { stood, payloads: read_payloads(&store, &whole), ..notes.clone() };
        let evidence = Evidence::of(&whole, &notes, ended.lineage);
        found.extend(
            judge(&evidence).breaches.into_iter().filter(|breach| !NOT_AFTER_A_CUT.contains(&breach.invariant)),
        );
    }
    found
}

/// What comes after a cut.
struct Later {
    state: State,
    /// What was durable at the cut, and what is since.
    store: MemoryStore,
    planners: Vec<Box<dyn Planner>>,
    /// Decided and not yet durable.
    batch: Vec<Event>,
    bodies: Vec<(BodyKey, Body)>,
    tail: Vec<Entry>,
}

impl Later {
    fn live_on(&mut self) -> Result<(), String> {
        let keys = Keys::from_master(&[9; 32]);
        let mut now = self.state.at().after(Millis(1_500));
        let lineage = (self.state.seq().0 == 0).then_some(Lineage([1; 16]));
        let boot = Boot(self.state.boot().0 + 1);
        let start = Command::StartHub { boot, wall_offset: 0, version: "cut".into(), lineage };
        self.planners = agent_reach::recovery::planners();
        for planner in &mut self.planners {
            planner.rebuild(&self.state, now);
        }
        self.propose(&Proposal::by_hub(None, start), now)?;
        for proposal in agent_reach::recovery::boot::resolve(&self.state) {
            self.propose(&proposal, now)?;
        }
        self.commit()?;
        self.wake_plans(now)?;
        for _ in 0..5_000 {
            self.fire(now)?;
            for index in 0..self.planners.len() {
                let planner = self.planners.get_mut(index);
                let proposals = planner.map(|planner| planner.plan(&self.state, now, 64)).unwrap_or_default();
                for mut proposal in proposals {
                    let brings = facts::fill(&mut proposal, &self.state, &self.store, &keys, Sabotage::None);
                    if !self.propose_with(&proposal, brings, now)?
                        && let Some(planner) = self.planners.get_mut(index)
                    {
                        planner.refused(&self.state, &proposal);
                    }
                }
            }
            self.commit()?;
            let wishes = self.planners.iter().filter_map(|planner| planner.wake_at(&self.state, now));
            match self.state.due().next().into_iter().chain(wishes).min() {
                Some(next) => now = next.max(Timestamp(now.0 + 1)),
                None => return Ok(()),
            }
        }
        Err("it never comes to rest after a cut".to_owned())
    }

    /// The driver brings every list; an operator lets paused plans go on, or calls every third off.
    fn wake_plans(&mut self, now: Timestamp) -> Result<(), String> {
        let plans: Vec<_> = self.state.replays().values().cloned().collect();
        for (place, plan) in plans.iter().enumerate() {
            let word = match plan.phase {
                ReplayPhase::Paused if place.is_multiple_of(3) => ReplayWord::Cancel { reason: None },
                ReplayPhase::Paused => ReplayWord::Resume { reason: None },
                ReplayPhase::Planned | ReplayPhase::Running | ReplayPhase::Finished(_) => continue,
            };
            let command = Command::SteerReplay { replay: plan.id, word };
            self.propose(&by_token(&plan.namespace, &operator(), command), now)?;
        }
        for plan in plans {
            let body = self.store.body(&BodyKey::list_of(plan.id)).map_err(|error| error.to_string())?;
            let body = body.filter(|body| body.digest() == plan.list.digest);
            let list = body.ok_or_else(|| format!("the list of {} is not durable with its plan", plan.id))?.bytes;
            for planner in &mut self.planners {
                planner.note(&self.state, &Note::Listed { replay: plan.id, list: Arc::clone(&list) }, now);
            }
        }
        Ok(())
    }

    fn fire(&mut self, now: Timestamp) -> Result<(), String> {
        while let Some(subject) = self.state.due().due_by(now).cloned() {
            let namespace = match &subject {
                Subject::Task(task) => self.state.task(*task).map(|task| task.namespace.clone()),
                Subject::Agent(agent) => Some(agent.namespace.clone()),
                Subject::Breaker(breaker) => Some(breaker.agent.namespace.clone()),
            };
            let before = self.state.seq();
            let fire = Proposal::by_hub(namespace, Command::Fire { subject: subject.clone() });
            self.propose(&fire, now)?;
            if self.state.seq() == before {
                return Err(format!("timer of {subject:?} fires without effect"));
            }
        }
        Ok(())
    }

    fn propose(&mut self, proposal: &Proposal, now: Timestamp) -> Result<bool, String> {
        self.propose_with(proposal, Vec::new(), now)
    }

    /// Decides one proposal, which brings those bodies if it is carried out; was it taken?
    fn propose_with(
        &mut self,
        proposal: &Proposal,
        brings: Vec<(BodyKey, Body)>,
        now: Timestamp,
    ) -> Result<bool, String> {
        let done = step(&mut self.state, proposal, now).map_err(|error| error.to_string())?;
        self.bodies.extend(facts::inherited(&done.events, &self.store, Sabotage::None));
        let named =
            |key: &BodyKey| done.events.iter().any(|event| BodyKey::of_event(&event.body).as_ref() == Some(key));
        self.bodies.extend(brings.into_iter().filter(|(key, _)| named(key)));
        for event in done.events {
            for planner in &mut self.planners {
                planner.observe(&self.state, &event);
            }
            self.batch.push(event);
        }
        Ok(done.answer.is_ok())
    }

    /// What was decided becomes durable.
    fn commit(&mut self) -> Result<(), String> {
        let events = std::mem::take(&mut self.batch);
        if events.is_empty() {
            return Ok(());
        }
        let mut head = self.store.head();
        let base = head.seq;
        (head.boot, head.lineage) = (self.state.boot(), self.state.lineage());
        let (mut commit, hashes) = encode_commit(&head, &events).map_err(|error| error.to_string())?;
        commit.rows = rows(&self.state, base);
        commit.bodies = std::mem::take(&mut self.bodies);
        self.store.append(&commit).map_err(|error| error.to_string())?;
        self.tail.extend(events.into_iter().zip(hashes).map(|(event, hash)| Entry { event, hash }));
        let done = self.state.seq();
        self.state.forget_up_to(done);
        Ok(())
    }
}
