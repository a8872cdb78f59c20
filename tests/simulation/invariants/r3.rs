//! R3: the same plan twice equals once. Each item has at most one outcome, and that is true: what is done stands with the
//! task's own events in one piece, what is skipped was as the reason says. A plan that is completed has an outcome for
//! every item: total = done + skipped.
//!
//! And the other way round: what a newer success of its session has made superfluous is neither replayed nor made anew,
//! but by an operator's word on that very task; the sweep says so once.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{Namespace, ReachId, ReplayId, Seq, SessionId};
use agent_reach::ledger::machine::event::{Actor, Event, EventBody, QueuedWhy};
use agent_reach::ledger::machine::replay::{Done, Ended, ItemAction, ItemOutcome, MayHaveRun, Skip};
use agent_reach::ledger::machine::task::spec::{Idempotence, OrphanPolicy};
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::store::Store;
use agent_reach::ledger::store::memory::MemoryStore;

use crate::model::{Breach, Course, Evidence, Findings, Life, begins, leads_to};

/// What the events say so far.
#[derive(Default)]
struct Books {
    at: BTreeMap<ReachId, StatusKind>,
    redriven: BTreeSet<ReachId>,
    settled: BTreeMap<ReplayId, BTreeMap<u32, ItemOutcome>>,
    /// Of each session the newest place of a task that has succeeded.
    won: BTreeMap<(Namespace, SessionId), Seq>,
    /// Orphans that were said to wait for a word.
    held: BTreeSet<ReachId>,
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut books = Books::default();
    for entry in evidence.log {
        let event = &entry.event;
        let plan = event.body.replay().and_then(|id| evidence.plans.get(&id));
        if let EventBody::ReplayItemDone(body) = &event.body {
            let outcome = match body.done {
                Done::Replayed => ItemOutcome::Replayed,
                Done::Redriven { .. } => ItemOutcome::Redriven,
            };
            books.settle(plan, (event, body.index, body.task), outcome, findings);
            if !is_carried_out(evidence, event, body.task, body.done) {
                findings.add("R3", event.seq, format!("{} is not done in the same commit", body.task));
            }
        } else if let EventBody::ReplayItemSkipped(body) = &event.body {
            let outcome = ItemOutcome::Skipped(body.skip);
            books.settle(plan, (event, body.index, body.task), outcome, findings);
            if !plan.is_some_and(|plan| books.is_true(evidence, plan, (body.task, body.skip))) {
                let at = books.at.get(&body.task);
                findings.add("R3", event.seq, format!("{} is skipped as {:?}, but is {at:?}", body.task, body.skip));
            }
        } else if let EventBody::ReplayFinished(body) = &event.body {
            let settled = books.settled.get(&body.replay).map_or(0, BTreeMap::len);
            let total = plan.map_or(0, |plan| plan.list.len());
            if body.ended == Ended::Completed && settled != total {
                findings.add("R3", event.seq, format!("{}: {settled} of {total} items have an outcome", body.replay));
            }
        } else if let EventBody::ReplayPlanned(body) = &event.body
            && plan.is_none_or(|plan| u32::try_from(plan.list.len()) != Ok(body.total))
        {
            findings.add("R3", event.seq, format!("{} is not what was frozen", body.replay));
        } else if let EventBody::TaskRedriven(body) = &event.body
            && let Some(replay) = body.replay
        {
            let named = evidence.beside(event, -2).is_some_and(|before| {
                matches!(&before.body,
                EventBody::ReplayItemDone(done) if (done.replay, done.task) == (replay, body.task))
            });
            if !named {
                findings.add("R3", event.seq, format!("{}: made anew by a plan that does not say so", body.task));
            }
        }
        books.superseded(evidence, event, findings);
        books.follow(evidence, event);
    }
}

/// Where a task stands in its session: where the first of its chain was submitted.
fn place(evidence: &Evidence<'_>, life: &Life<'_>) -> Seq {
    let mut first = life;
    while let Some(older) = first.redrive_of.and_then(|id| evidence.tasks.get(&id)) {
        // A forged link may lead in a circle.
        if older.submitted.seq >= first.submitted.seq {
            break;
        }
        first = older;
    }
    first.submitted.seq
}

/// The task's own events stand right behind.
fn is_carried_out(evidence: &Evidence<'_>, event: &Event, task: ReachId, done: Done) -> bool {
    let next = |by| evidence.beside(event, by).filter(|next| next.at == event.at).map(|next| &next.body);
    let replay = event.body.replay();
    match done {
        Done::Replayed => {
            matches!(next(1), Some(EventBody::TaskReplayed(body)) if body.task == task)
                && matches!(next(2), Some(EventBody::TaskQueued(body))
                    if body.task == task && body.why == QueuedWhy::Replayed)
        }
        Done::Redriven { successor } => {
            matches!(next(1), Some(EventBody::TaskSubmitted(body)) if body.submission.reach_id == successor)
                && matches!(next(2), Some(EventBody::TaskRedriven(body))
                    if (body.task, body.successor, body.replay) == (task, successor, replay))
        }
    }
}

impl Books {
    fn settle(
        &mut self,
        plan: Option<&Course<'_>>,
        (event, index, task): (&Event, u32, ReachId),
        outcome: ItemOutcome,
        findings: &mut Findings,
    ) {
        let Some(plan) = plan else {
            findings.add("R3", event.seq, format!("{task}: an item of no plan"));
            return;
        };
        let action = match outcome {
            ItemOutcome::Replayed => Some(ItemAction::Replay),
            ItemOutcome::Redriven => Some(ItemAction::Redrive),
            ItemOutcome::Pending | ItemOutcome::Skipped(_) => None,
        };
        match plan.item(index) {
            Some(item) if item.task == task && action.is_none_or(|action| action == item.action) => {}
            item => findings.add("R3", event.seq, format!("item {index} is {task} {action:?}, the list says {item:?}")),
        }
        if let Some(first) = self.settled.entry(plan.id).or_default().insert(index, outcome) {
            findings.add("R3", event.seq, format!("item {index} of {} had its outcome: {first:?}", plan.id));
        }
    }

    /// Was it as the reason says, in that moment?
    fn is_true(&self, evidence: &Evidence<'_>, plan: &Course<'_>, (task, skip): (ReachId, Skip)) -> bool {
        let life = evidence.tasks.get(&task).filter(|life| life.namespace == plan.namespace);
        let at = self.at.get(&task).copied().filter(|_| life.is_some());
        match skip {
            Skip::Finished => at.is_some_and(StatusKind::is_terminal),
            Skip::MovedOn => at.is_some_and(|at| {
                use StatusKind::{AwaitingApproval, Queued, Retrying, Scheduled};
                [AwaitingApproval, Queued, Retrying, Scheduled].contains(&at)
            }),
            Skip::HeldElsewhere => at.is_some_and(|at| [StatusKind::Dispatched, StatusKind::Processing].contains(&at)),
            Skip::AlreadyRedriven => self.redriven.contains(&task),
            Skip::MayHaveRun => {
                let by_policy =
                    |life: &&Life<'_>| at == Some(StatusKind::Orphaned) && life.spec.orphan == OrphanPolicy::Replay;
                let careful = life.filter(|life| !by_policy(life));
                let careful = careful.is_some_and(|life| life.spec.idempotence == Idempotence::NotDeclared);
                careful && plan.planned.may_have_run == MayHaveRun::Skip
            }
            Skip::Superseded => life.is_some_and(|life| self.is_superseded(evidence, life)),
            // Nobody erases anything here.
            Skip::PayloadErased => false,
            // What of its payload is so is looked at where payloads are.
            Skip::PayloadNotInline | Skip::PayloadTooLarge | Skip::NotAccepted => {
                at.is_some_and(StatusKind::is_terminal)
            }
            Skip::NotApplicable => at.is_some(),
            Skip::Unknown => at.is_none(),
        }
    }

    fn is_superseded(&self, evidence: &Evidence<'_>, life: &Life<'_>) -> bool {
        let session = life.spec.session.clone();
        let newest = session.and_then(|session| self.won.get(&(life.namespace.clone(), session)));
        newest.is_some_and(|newest| *newest > place(evidence, life))
    }

    /// What is superseded is left alone, and said to be so once.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds bring a task back, or say why they don't")]
    fn superseded(&mut self, evidence: &Evidence<'_>, event: &Event, findings: &mut Findings) {
        let Some(life) = event.body.task().and_then(|id| evidence.tasks.get(&id)) else { return };
        let by_word = || {
            evidence
                .beside(event, -1)
                .is_some_and(|before| matches!(&before.body, EventBody::TaskResolved(body) if body.task == life.id))
        };
        let mut add = |what: &str| findings.add("R3", event.seq, format!("{} {what}", life.id));
        match &event.body {
            EventBody::TaskReplayed(_) => {
                if !by_word() && self.is_superseded(evidence, life) {
                    add("is replayed, but superseded");
                }
                if !by_word() && event.actor == Actor::Hub && self.held.contains(&life.id) {
                    add("is swept, but waits for a word");
                }
            }
            EventBody::TaskRedriven(_) if self.is_superseded(evidence, life) => add("is made anew, but superseded"),
            EventBody::TaskReplayHeld(_) => {
                let is_orphan = self.at.get(&life.id) == Some(&StatusKind::Orphaned);
                if !is_orphan || !self.is_superseded(evidence, life) {
                    add("is held as superseded, and is not");
                }
                if !self.held.insert(life.id) {
                    add("is said twice to wait for a word");
                }
            }
            _ => {}
        }
    }

    fn follow(&mut self, evidence: &Evidence<'_>, event: &Event) {
        if let EventBody::TaskRedriven(body) = &event.body {
            self.redriven.insert(body.task);
        }
        if event.body.callback_subject().is_some() {
            return;
        }
        let Some(life) = event.body.task().and_then(|id| evidence.tasks.get(&id)) else { return };
        let after = match self.at.get(&life.id) {
            None => begins(life),
            Some(before) => leads_to(&event.body, *before).unwrap_or(*before),
        };
        self.at.insert(life.id, after);
        // However it ceased to be an orphan: swept, claimed back, or given back or ended by its old lease.
        if after != StatusKind::Orphaned {
            self.held.remove(&life.id);
        }
        if let (EventBody::TaskSucceeded(_), Some(session)) = (&event.body, life.spec.session.clone()) {
            let newest = self.won.entry((life.namespace.clone(), session)).or_default();
            *newest = place(evidence, life).max(*newest);
        }
    }
}

/// The row of an ended plan says what its events say.
pub(crate) fn rows(store: &MemoryStore, evidence: &Evidence<'_>) -> Vec<Breach> {
    let mut found = Vec::new();
    for plan in evidence.plans.values() {
        let Some(last) = plan.events.iter().find(|event| matches!(event.body, EventBody::ReplayFinished(_))) else {
            continue;
        };
        let mut outcomes = vec![ItemOutcome::Pending; plan.list.len()];
        for event in &plan.events {
            let (index, outcome) = if let EventBody::ReplayItemDone(body) = &event.body {
                let redriven = matches!(body.done, Done::Redriven { .. });
                (body.index, if redriven { ItemOutcome::Redriven } else { ItemOutcome::Replayed })
            } else if let EventBody::ReplayItemSkipped(body) = &event.body {
                (body.index, ItemOutcome::Skipped(body.skip))
            } else {
                continue;
            };
            if let Some(slot) = usize::try_from(index).ok().and_then(|index| outcomes.get_mut(index)) {
                *slot = outcome;
            }
        }
        let row = store.replay(plan.id).expect("the memory store reads");
        if row.as_ref().map(|row| &row.outcomes) != Some(&outcomes) {
            let what = format!("the row of {} is not what its events say: {:?}", plan.id, row.map(|row| row.settled));
            found.push(Breach { invariant: "R3", seq: last.seq, what });
        }
    }
    found
}
