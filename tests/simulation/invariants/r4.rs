//! R4: sessions keep their order and stay together. A plan's items of one session are done one at a time and in the list's
//! order, which is that of submission: the next only when the former one's task, or what was made of it, has ended.
//!
//! The sweep brings the orphans of a session back by submission, and none while another that was sent back, by whomever, is
//! not with its new agent.
//!
//! Sessions in which another hand proposed items are left out: the order is the planner's to keep.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{Namespace, ReachId, Seq, SessionId};
use agent_reach::ledger::machine::event::{Actor, Event, EventBody};
use agent_reach::ledger::machine::replay::{Done, Skip};
use agent_reach::ledger::machine::task::spec::OrphanPolicy;
use agent_reach::ledger::time::Timestamp;

use crate::model::{Course, Evidence, Findings, ends};

/// When each task ended, and what was made of it when.
struct Fates {
    ends: BTreeMap<ReachId, Seq>,
    made: BTreeMap<ReachId, (Seq, ReachId)>,
}

impl Fates {
    fn is_over(&self, evidence: &Evidence<'_>, task: ReachId, by: Seq) -> bool {
        !evidence.tasks.contains_key(&task) || self.ends.get(&task).is_some_and(|end| *end < by)
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
    swept(evidence, findings);
    for plan in evidence.plans.values() {
        listed(evidence, plan, findings);
        lines(evidence, plan, &fates, findings);
    }
}

/// The orphans of one session.
#[derive(Default)]
struct Line {
    /// Those that the sweep may bring back: their submission, and since when.
    waiting: BTreeMap<ReachId, (Seq, Timestamp)>,
    /// Sent back, and not with an agent since.
    out: BTreeSet<ReachId>,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks what puts a task into its session's line; the rest does not")]
fn swept(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut lines: BTreeMap<(&Namespace, &SessionId), Line> = BTreeMap::new();
    for event in evidence.log.iter().map(|entry| &entry.event) {
        if event.body.callback_subject().is_some() {
            continue;
        }
        let Some(life) = event.body.task().and_then(|id| evidence.tasks.get(&id)) else { continue };
        let Some(session) = &life.spec.session else { continue };
        let line = lines.entry((life.namespace, session)).or_default();
        match &event.body {
            EventBody::TaskOrphaned(_) => {
                line.out.remove(&life.id);
                if life.spec.orphan == OrphanPolicy::Replay {
                    line.waiting.insert(life.id, (life.submitted.seq, event.at));
                }
            }
            EventBody::TaskReplayed(_) => {
                line.waiting.remove(&life.id);
                // What was orphaned in that very moment was not there when the turn was given.
                let passed = |(seq, since): &(Seq, Timestamp)| *seq < life.submitted.seq && *since < event.at;
                let before = line.waiting.iter().find(|(_, place)| passed(place)).map(|(id, _)| id);
                if let Some(other) = before.or_else(|| line.out.first()).filter(|_| event.actor == Actor::Hub) {
                    findings.add("R4", event.seq, format!("{} goes before {other} of its session is placed", life.id));
                }
                line.out.insert(life.id);
            }
            EventBody::TaskAcknowledged(_) | EventBody::TaskReclaimed(_) | EventBody::TaskProgressed(_) => {
                line.waiting.remove(&life.id);
                line.out.remove(&life.id);
            }
            body if ends(body).is_some() => {
                line.waiting.remove(&life.id);
                line.out.remove(&life.id);
            }
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
        if group == 0 || meddled.contains(&group) {
            continue;
        }
        let of_session = (0_u32..).zip(plan.list).filter(|(_, item)| item.group == group);
        let done = matches!(event.body, EventBody::ReplayItemDone(_));
        for (before, item) in of_session.take_while(|(before, _)| *before < index).filter(|_| done) {
            let over = match settled.get(&before) {
                None => false,
                Some(former) => {
                    let made = fates.made.get(&item.task).filter(|(seq, _)| was_known(former, *seq)).map(|made| made.1);
                    fates.is_over(evidence, item.task, event.seq)
                        && made.is_none_or(|made| fates.is_over(evidence, made, event.seq))
                }
            };
            if !over {
                let what = format!("{}: item {index} goes before item {before} of its session is over", plan.id);
                findings.add("R4", event.seq, what);
            }
        }
        settled.insert(index, event);
    }
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

/// Is it that item's turn that made it, or was it made before and left alone for that?
fn was_known(turn: &Event, made: Seq) -> bool {
    if let EventBody::ReplayItemDone(body) = &turn.body {
        matches!(body.done, Done::Redriven { .. }) && made.0 == turn.seq.0 + 2
    } else if let EventBody::ReplayItemSkipped(body) = &turn.body {
        body.skip == Skip::AlreadyRedriven && made < turn.seq
    } else {
        false
    }
}
