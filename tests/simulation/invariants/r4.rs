//! R4: sessions keep their order and stay together, whoever sends their tasks back.
//!
//! The orphans of a session come back by submission: the sweep passes none, held or not, and calls none while another
//! that was sent back, by whomever, is not with its new agent. A plan's item goes when no older orphan of its session
//! waits, and everything of it that was sent back has ended: by the sweep, by another plan, by a word, or made anew. And a
//! plan's items of one session are done in the list's order, the next only when the former one's task, and the last of
//! what was made of it, has ended. What was made of it is an item as well, or an orphan beside this one: then it is no
//! reason to wait, for orphans among each other go by their submissions. Neither is one that the ledger says to be
//! superseded: the session has gone on without it.
//!
//! What another hand proposes over the planner's head is not judged: the order is the planner's to keep. Its own
//! proposals are judged beside it all the same, but for the order within a plan, where a session in which another hand
//! meddled is left out.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{Namespace, ReachId, Seq, SessionId};
use agent_reach::ledger::machine::event::{Actor, Event, EventBody};
use agent_reach::ledger::machine::replay::Done;
use agent_reach::ledger::time::Timestamp;

use crate::model::{Course, Evidence, Findings, Life, ends};

/// When each task ended, and what was made of it when.
struct Fates {
    ends: BTreeMap<ReachId, Seq>,
    made: BTreeMap<ReachId, (Seq, ReachId)>,
}

impl Fates {
    fn is_over(&self, evidence: &Evidence<'_>, task: ReachId, by: Seq) -> bool {
        !evidence.tasks.contains_key(&task) || self.ends.get(&task).is_some_and(|end| *end < by)
    }

    /// Is it over, and everything that was made of it, and of that, until the turn that left it behind?
    fn is_line_over(&self, evidence: &Evidence<'_>, (task, turn): (ReachId, &Event), item: (ReachId, Seq)) -> bool {
        let known = |(seq, next): &(Seq, ReachId)| (*seq < turn.seq || was_made_by(turn, *seq)).then_some(*next);
        let mut chain = std::iter::successors(Some(task), |of| self.made.get(of).and_then(known));
        let passes = |task| goes_after(evidence, task, item) || is_held_back(evidence, task, item.1);
        chain.all(|task| self.is_over(evidence, task, item.1) || passes(task))
    }
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut fates = Fates { ends: BTreeMap::new(), made: BTreeMap::new() };
    for event in evidence.log.iter().map(|entry| &entry.event) {
        if let (Some(_), Some(task)) = (ends(&event.body), event.body.task()) {
            fates.ends.entry(task).or_insert(event.seq);
        } else if let EventBody::TaskRedriven(body) = &event.body {
            fates.made.insert(body.task, (event.seq, body.successor));
        }
    }
    one_line(evidence, findings);
    for plan in evidence.plans.values() {
        listed(evidence, plan, findings);
        lines(evidence, plan, &fates, findings);
    }
}

/// One session.
#[derive(Default)]
struct Line {
    /// Orphans, held ones too: their submission, and since when.
    waiting: BTreeMap<ReachId, (Seq, Timestamp)>,
    /// Sent back, and not with an agent since.
    out: BTreeSet<ReachId>,
    /// Sent back, and no orphan since: it has to end before a plan goes on.
    sent: BTreeSet<ReachId>,
}

impl Line {
    /// An orphan that goes before: what became one in that very moment was not there when the turn was given.
    fn older(&self, life: &Life<'_>, at: Timestamp) -> Option<ReachId> {
        let passed = |(seq, since): &(Seq, Timestamp)| *seq < life.submitted.seq && *since < at;
        self.waiting.iter().find(|(_, place)| passed(place)).map(|(id, _)| *id)
    }

    fn lets_sweep(&self, life: &Life<'_>, at: Timestamp) -> Result<(), ReachId> {
        self.older(life, at).or_else(|| self.out.first().copied()).map_or(Ok(()), Err)
    }

    fn lets_plan(&self, life: &Life<'_>, at: Timestamp) -> Result<(), ReachId> {
        let sent = self.sent.iter().copied().find(|other| *other != life.id);
        // An item that has left memory has no place in the planner's eyes but its id, and ids that are drawn side by side
        // may be submitted the other way round.
        let passed = |(other, (seq, since)): &(&ReachId, &(Seq, Timestamp))| {
            **other < life.id && *seq < life.submitted.seq && *since < at
        };
        let older = self.waiting.iter().find(passed).map(|(id, _)| *id);
        older.or(sent).map_or(Ok(()), Err)
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks what moves a session's line; the rest does not")]
fn one_line(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut lines: BTreeMap<(&Namespace, &SessionId), Line> = BTreeMap::new();
    for event in evidence.log.iter().map(|entry| &entry.event) {
        if event.body.callback_subject().is_some() {
            continue;
        }
        let item = if let EventBody::ReplayItemDone(body) = &event.body { Some(body) } else { None };
        let subject = item.map(|body| body.task).or_else(|| event.body.task());
        let Some(life) = subject.and_then(|id| evidence.tasks.get(&id)) else { continue };
        let Some(session) = &life.spec.session else { continue };
        let line = lines.entry((life.namespace, session)).or_default();
        match &event.body {
            EventBody::ReplayItemDone(body) => {
                let plan = evidence.plans.get(&body.replay);
                if plan.is_some_and(|plan| *plan.by == event.actor) {
                    findings.judged("R4: items of sessions that went");
                    if let Err(other) = line.lets_plan(life, event.at) {
                        let what = format!("{}: {} goes beside {other} of its session", body.replay, life.id);
                        findings.add("R4", event.seq, what);
                    }
                }
            }
            EventBody::TaskOrphaned(_) => {
                line.out.remove(&life.id);
                line.sent.remove(&life.id);
                line.waiting.insert(life.id, (life.submitted.seq, event.at));
            }
            EventBody::TaskReplayed(_) => {
                line.waiting.remove(&life.id);
                if event.actor == Actor::Hub {
                    findings.judged("R4: orphans of sessions that were swept");
                    if let Err(other) = line.lets_sweep(life, event.at) {
                        let what = format!("{} goes before {other} of its session is placed", life.id);
                        findings.add("R4", event.seq, what);
                    }
                }
                line.out.insert(life.id);
                line.sent.insert(life.id);
            }
            EventBody::TaskRedriven(body) => {
                line.out.insert(body.successor);
                line.sent.insert(body.successor);
            }
            EventBody::TaskAcknowledged(_) | EventBody::TaskReclaimed(_) | EventBody::TaskProgressed(_) => {
                line.waiting.remove(&life.id);
                line.out.remove(&life.id);
            }
            body if ends(body).is_some() => {
                line.waiting.remove(&life.id);
                line.out.remove(&life.id);
                line.sent.remove(&life.id);
            }
            // It waits for a word: nobody waits for it.
            EventBody::TaskReplayHeld(_) => drop(line.waiting.remove(&life.id)),
            EventBody::TaskQueued(_) | EventBody::TaskRetryScheduled(_) => drop(line.waiting.remove(&life.id)),
            _ => {}
        }
    }
}

/// The list itself is in order.
fn listed(evidence: &Evidence<'_>, plan: &Course<'_>, findings: &mut Findings) {
    let mut last: BTreeMap<u32, Seq> = BTreeMap::new();
    for item in plan.list.iter().filter(|item| item.group > 0) {
        let Some(life) = evidence.tasks.get(&item.task) else { continue };
        let seq = life.submitted.seq;
        if last.insert(item.group, seq).is_some_and(|before| before > seq) {
            findings.add("R4", seq, format!("{} lists {} behind a newer task of its session", plan.id, item.task));
        }
    }
}

fn lines(evidence: &Evidence<'_>, plan: &Course<'_>, fates: &Fates, findings: &mut Findings) {
    let turns: Vec<(u32, &Event)> = plan.events.iter().filter_map(|event| Some((index_of(event)?, *event))).collect();
    let group_of = |index: u32| plan.item(index).map_or(0, |item| item.group);
    let meddled: BTreeSet<u32> =
        turns.iter().filter(|(_, event)| event.actor != *plan.by).map(|(index, _)| group_of(*index)).collect();
    let mut settled: BTreeMap<u32, &Event> = BTreeMap::new();
    for (index, event) in turns {
        let group = group_of(index);
        if group == 0 {
            continue;
        }
        if meddled.contains(&group) {
            findings.judged("R4: items left out, another hand meddled");
            continue;
        }
        findings.judged("R4: items judged within their plan");
        let of_session = (0_u32..).zip(plan.list).filter(|(_, item)| item.group == group);
        let done = matches!(event.body, EventBody::ReplayItemDone(_));
        let Some(going) = plan.item(index).map(|item| item.task) else { continue };
        for (before, item) in of_session.take_while(|(before, _)| *before < index).filter(|_| done) {
            let over = match settled.get(&before) {
                None => false,
                Some(former) => fates.is_line_over(evidence, (item.task, former), (going, event.seq)),
            };
            if !over {
                let what = format!("{}: item {index} goes before item {before} of its session is over", plan.id);
                findings.add("R4", event.seq, what);
            }
        }
        settled.insert(index, event);
    }
}

/// Is it the item's own task, or an orphan beside it that was submitted later?
fn goes_after(evidence: &Evidence<'_>, task: ReachId, (going, by): (ReachId, Seq)) -> bool {
    let (Some(life), Some(own)) = (evidence.tasks.get(&task), evidence.tasks.get(&going)) else { return false };
    let is_later = life.submitted.seq > own.submitted.seq;
    task == going || is_later && is_orphan(life, by) && is_orphan(own, by)
}

/// Was it an orphan right before that event?
fn is_orphan(life: &Life<'_>, by: Seq) -> bool {
    matches!(last(life, by), Some(EventBody::TaskOrphaned(_) | EventBody::TaskReplayHeld(_)))
}

/// Was it an orphan without which its session had gone on?
fn is_held_back(evidence: &Evidence<'_>, task: ReachId, by: Seq) -> bool {
    let life = evidence.tasks.get(&task);
    life.is_some_and(|life| matches!(last(life, by), Some(EventBody::TaskReplayHeld(_))))
}

/// What moved a task last before that event: a report that was refused does not, nor does a verdict on its payload.
fn last<'a>(life: &Life<'a>, by: Seq) -> Option<&'a EventBody> {
    let is_aside =
        |body: &EventBody| matches!(body, EventBody::TaskStaleReportRefused(_) | EventBody::TaskSchemaChecked(_));
    let moves = |body: &EventBody| body.callback_subject().is_none() && !is_aside(body);
    let mut own = life.events.iter().filter(|event| event.seq < by && moves(&event.body));
    own.next_back().map(|event| &event.body)
}

fn index_of(event: &Event) -> Option<u32> {
    if let EventBody::ReplayItemDone(body) = &event.body {
        Some(body.index)
    } else if let EventBody::ReplayItemSkipped(body) = &event.body {
        Some(body.index)
    } else {
        None
    }
}

/// Is it that very turn that made it?
fn was_made_by(turn: &Event, made: Seq) -> bool {
    matches!(&turn.body, EventBody::ReplayItemDone(body) if matches!(body.done, Done::Redriven { .. }))
        && made.0 == turn.seq.0 + 2
}
