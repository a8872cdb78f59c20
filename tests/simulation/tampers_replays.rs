//! Changes of the log copy that concern replays: plans, their items, links and words of operators.

#![expect(clippy::ptr_arg, reason = "every change has one shape, whether it makes the log longer or not")]

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach::ledger::ids::{ReachId, ReplayId, SessionId};
use agent_reach::ledger::machine::event::{
    Actor, Event, EventBody, ReplayFinished, ReplayItemDone, ReplayPaused, TaskRedriven, TaskReplayed,
};
use agent_reach::ledger::machine::replay::{Done, Ended};
use agent_reach::ledger::machine::task::resolve::Resolution;
use agent_reach::ledger::machine::task::spec::OrphanPolicy;

use crate::model::{Entry, ends};
use crate::tampers::{Tamper, change, find, insert, insert_copy, remove, renumber};

/// The changes, each with the invariants of which at least one must condemn it.
pub(crate) const REPLAY_TAMPERS: &[(&str, Tamper, &[&str])] = &[
    ("an item done twice", item_twice, &["R3"]),
    ("an item beyond the list", item_beyond, &["R3"]),
    ("an item of another task", item_of_another, &["R3"]),
    ("an item without its task's events", item_alone, &["R3"]),
    ("a replay that its plan does not say", replay_unsaid, &["S9"]),
    ("a skip that is not true", false_skip, &["R3"]),
    ("an outcome that is missing", outcome_missing, &["R3"]),
    ("a paused plan goes on", paused_goes_on, &["R5"]),
    ("an ended plan goes on", ended_goes_on, &["R5"]),
    ("a plan faster than its rate", too_fast, &["R1"]),
    ("a namespace faster than its rate", namespace_too_fast, &["R1"]),
    ("a session's items in the wrong order", session_swapped, &["R4"]),
    ("a session's item before the former one is over", session_hurried, &["R4"]),
    ("a session swept out of order", swept_out_of_order, &["R4"]),
    ("a session swept past an orphan that is held", swept_past_a_held_one, &["R4"]),
    ("two plans in one session at a time", plans_side_by_side, &["R4"]),
    ("a superseded orphan replayed", superseded_replayed, &["R3"]),
    ("a held orphan replayed all the same", held_all_the_same, &["R3"]),
    ("a plan that never ends", endless_plan, &["L4"]),
    ("a task made anew twice", redriven_twice, &["semantics 40"]),
    ("a lost link", link_lost, &["semantics 40", "R3"]),
    ("a link to another task", link_astray, &["semantics 40"]),
    ("a success made anew", success_redriven, &["semantics 40"]),
    ("another payload", other_payload, &["semantics 40"]),
    ("a word of nobody", word_of_nobody, &["S9"]),
    ("a word forgotten", word_forgotten, &["S9"]),
    ("a policy against the word", policy_against_the_word, &["S9"]),
    ("a slow task replayed by the sweep", slow_swept, &["R2", "S9"]),
];

const fn is_done(event: &Event) -> bool {
    matches!(event.body, EventBody::ReplayItemDone(_))
}

fn is_redriven(event: &Event) -> bool {
    matches!(event.body, EventBody::TaskRedriven(_))
}

fn item_twice(log: &mut Vec<Entry>) -> bool {
    let at = find(log, is_done);
    insert_copy(log, at)
}

fn with_item(log: &mut [Entry], with: impl FnOnce(&mut ReplayItemDone)) -> bool {
    change(log, is_done, |event| {
        if let EventBody::ReplayItemDone(body) = &mut event.body {
            with(body);
        }
    })
}

fn item_beyond(log: &mut Vec<Entry>) -> bool {
    with_item(log, |body| body.index += 1_000)
}

fn item_of_another(log: &mut Vec<Entry>) -> bool {
    with_item(log, |body| body.task = ReachId([3; 16]))
}

fn item_alone(log: &mut Vec<Entry>) -> bool {
    let Some(at) = find(log, is_done) else { return false };
    log.remove(at + 1);
    renumber(log);
    true
}

fn replay_unsaid(log: &mut Vec<Entry>) -> bool {
    let said = |event: &Event| matches!(&event.body, EventBody::ReplayItemDone(body) if body.done == Done::Replayed);
    let at = find(log, said);
    let removed = remove(log, at);
    renumber(log);
    removed
}

fn false_skip(log: &mut Vec<Entry>) -> bool {
    use agent_reach::ledger::machine::replay::Skip;
    let wrong = |skip: Skip| if skip == Skip::Finished { Skip::MovedOn } else { Skip::PayloadErased };
    change(
        log,
        |event| matches!(event.body, EventBody::ReplayItemSkipped(_)),
        |event| {
            if let EventBody::ReplayItemSkipped(body) = &mut event.body {
                body.skip = wrong(body.skip);
            }
        },
    )
}

fn completed(log: &[Entry]) -> Option<ReplayId> {
    log.iter().find_map(|entry| {
        let EventBody::ReplayFinished(body) = &entry.event.body else { return None };
        (body.ended == Ended::Completed).then_some(body.replay)
    })
}

fn outcome_missing(log: &mut Vec<Entry>) -> bool {
    let Some(plan) = completed(log) else { return false };
    let at = find(log, |event| {
        matches!(&event.body, EventBody::ReplayItemSkipped(body) if body.replay == plan)
            || matches!(&event.body, EventBody::ReplayItemDone(body) if body.replay == plan)
    });
    let removed = remove(log, at);
    renumber(log);
    removed
}

/// Puts an event of its plan right before an item.
fn before_an_item(log: &mut Vec<Entry>, body: impl FnOnce(ReplayId) -> EventBody) -> bool {
    let Some(at) = find(log, is_done) else { return false };
    let plan = log.get(at).and_then(|entry| entry.event.body.replay());
    match (plan, at.checked_sub(1)) {
        (Some(plan), Some(before)) => insert(log, before, body(plan)),
        _ => false,
    }
}

fn paused_goes_on(log: &mut Vec<Entry>) -> bool {
    before_an_item(log, |replay| ReplayPaused { replay, reason: None }.into())
}

fn ended_goes_on(log: &mut Vec<Entry>) -> bool {
    before_an_item(log, |replay| ReplayFinished { replay, ended: Ended::Cancelled, reason: None }.into())
}

/// A plan whose own hand did two items within one second.
fn hasty_plan(log: &[Entry]) -> Option<ReplayId> {
    let mut last = BTreeMap::new();
    log.iter().map(|entry| &entry.event).filter(|event| is_done(event)).find_map(|event| {
        let (plan, by) = (event.body.replay()?, event.actor.clone());
        let before = last.insert((plan, format!("{by:?}")), event.at);
        let by_plan = !format!("{by:?}").contains("meddler");
        before.filter(|before| by_plan && event.at.since(*before).0 < 900).map(|_| plan)
    })
}

/// The plan's own rate, and what it was changed to, become one a second.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds say a rate; the rest do not")]
fn slow_down(log: &mut [Entry], plan: ReplayId) {
    for entry in log.iter_mut() {
        match &mut entry.event.body {
            EventBody::ReplayPlanned(body) if body.replay == plan => body.rate = 1,
            EventBody::ReplayRateChanged(body) if body.replay == plan => body.rate = 1,
            _ => {}
        }
    }
}

fn too_fast(log: &mut Vec<Entry>) -> bool {
    let plan = hasty_plan(log);
    if let Some(plan) = plan {
        slow_down(log, plan);
    }
    plan.is_some()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds say a rate; the rest do not")]
fn namespace_too_fast(log: &mut Vec<Entry>) -> bool {
    let Some(_) = hasty_plan(log) else { return false };
    // Every source alone may keep to its rate: each item is another plan's.
    for entry in log.iter_mut() {
        match &mut entry.event.body {
            EventBody::ReplayPlanned(body) => body.rate = 1,
            EventBody::ReplayRateChanged(body) => body.rate = 1,
            EventBody::PolicyChanged(body) => body.policy.replays_per_second = 1,
            _ => {}
        }
    }
    true
}

/// Two items of one session, done by their plan.
fn pair_of_a_session(log: &[Entry]) -> Option<(usize, usize)> {
    let mut sessions = BTreeMap::new();
    for entry in log {
        if let EventBody::TaskSubmitted(body) = &entry.event.body
            && let Some(session) = &body.submission.session
        {
            sessions.insert(body.submission.reach_id, session.clone());
        }
    }
    let mut first = BTreeMap::new();
    for (place, entry) in log.iter().enumerate() {
        let EventBody::ReplayItemDone(body) = &entry.event.body else { continue };
        let Some(session) = sessions.get(&body.task) else { continue };
        if let Some(before) = first.insert((body.replay, session.clone()), place) {
            return Some((before, place));
        }
    }
    None
}

fn session_swapped(log: &mut Vec<Entry>) -> bool {
    let Some((one, two)) = pair_of_a_session(log) else { return false };
    log.swap(one, two);
    renumber(log);
    true
}

/// The second item moves, with what it does, right behind the first.
fn session_hurried(log: &mut Vec<Entry>) -> bool {
    let Some((one, two)) = pair_of_a_session(log) else { return false };
    let moved: Vec<Entry> = log.drain(two..(two + 3).min(log.len())).collect();
    for (place, entry) in moved.into_iter().enumerate() {
        log.insert(one + 3 + place, entry);
    }
    renumber(log);
    true
}

/// Two orphans of which the younger was brought back first are said to be of one session.
fn swept_out_of_order(log: &mut Vec<Entry>) -> bool {
    swept_pair(log).is_some()
}

/// And the older one was held.
fn swept_past_a_held_one(log: &mut Vec<Entry>) -> bool {
    let Some(older) = swept_pair(log) else { return false };
    for entry in log.iter_mut() {
        if let EventBody::TaskSubmitted(body) = &mut entry.event.body
            && body.submission.reach_id == older
        {
            Arc::make_mut(&mut body.submission).orphan = OrphanPolicy::Hold;
        }
    }
    true
}

/// What two plans made anew, the second before the first had ended, is said to be of one session.
fn plans_side_by_side(log: &mut Vec<Entry>) -> bool {
    let mut open: BTreeMap<ReachId, (ReplayId, ReachId)> = BTreeMap::new();
    let mut pair = None;
    for event in log.iter().map(|entry| &entry.event) {
        if let EventBody::ReplayItemDone(body) = &event.body
            && let Done::Redriven { successor } = body.done
            && !format!("{:?}", event.actor).contains("meddler")
        {
            let other = open.iter().find(|(_, (plan, _))| *plan != body.replay);
            if let Some((made, (_, of))) = other {
                pair = Some([*made, *of, successor, body.task]);
                break;
            }
            open.insert(successor, (body.replay, body.task));
        } else if ends(&event.body).is_some()
            && let Some(task) = event.body.task().filter(|_| event.body.callback_subject().is_none())
        {
            open.remove(&task);
        }
    }
    let Some(of_one) = pair else { return false };
    for entry in log.iter_mut() {
        if let EventBody::TaskSubmitted(body) = &mut entry.event.body
            && of_one.contains(&body.submission.reach_id)
        {
            let session = SessionId::new("beside").expect("an id");
            Arc::make_mut(&mut body.submission).session = Some(session);
        }
    }
    true
}

/// Makes the pair one of a session; the older of the two.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds make an orphan and end it; the rest do not")]
fn swept_pair(log: &mut [Entry]) -> Option<ReachId> {
    let mut submitted = BTreeMap::new();
    let mut waiting = BTreeMap::new();
    let mut pair = None;
    for event in log.iter().map(|entry| &entry.event) {
        let Some(task) = event.body.task().filter(|_| event.body.callback_subject().is_none()) else { continue };
        match &event.body {
            EventBody::TaskSubmitted(body) if body.submission.orphan == OrphanPolicy::Replay => {
                submitted.insert(task, event.seq);
            }
            EventBody::TaskOrphaned(_) if submitted.contains_key(&task) => {
                waiting.insert(task, (submitted.get(&task).copied(), event.at, event.namespace.clone()));
            }
            EventBody::TaskReplayed(_) if event.actor == Actor::Hub => {
                waiting.remove(&task);
                let own = submitted.get(&task).copied();
                let older = waiting.iter().find(|(_, (seq, since, namespace))| {
                    *seq < own && *since < event.at && *namespace == event.namespace
                });
                if let Some((other, _)) = older {
                    pair = Some((task, *other));
                    break;
                }
            }
            body if ends(body).is_some()
                || matches!(body, EventBody::TaskReclaimed(_) | EventBody::TaskReplayed(_)) =>
            {
                waiting.remove(&task);
            }
            _ => {}
        }
    }
    let (one, other) = pair?;
    for entry in log.iter_mut() {
        if let EventBody::TaskSubmitted(body) = &mut entry.event.body
            && [one, other].contains(&body.submission.reach_id)
        {
            let session = SessionId::new("swept").expect("an id");
            Arc::make_mut(&mut body.submission).session = Some(session);
        }
    }
    Some(other)
}

/// An orphan was brought back after a task that was submitted later had succeeded: they are said to be of one session.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds make a pair; the rest do not")]
fn superseded_replayed(log: &mut Vec<Entry>) -> bool {
    let mut submitted = BTreeMap::new();
    let mut won = Vec::new();
    let mut resolved = None;
    let mut pair = None;
    for event in log.iter().map(|entry| &entry.event) {
        match &event.body {
            EventBody::TaskSubmitted(body) => drop(submitted.insert(body.submission.reach_id, event.seq)),
            // Their places are others.
            EventBody::TaskRedriven(body) => drop(submitted.remove(&body.successor)),
            EventBody::TaskSucceeded(body) => won.push((body.task, event.namespace.clone())),
            EventBody::TaskResolved(body) => resolved = Some((body.task, event.seq.next())),
            EventBody::TaskReplayed(body) if resolved != Some((body.task, event.seq)) => {
                let own = submitted.get(&body.task).copied();
                let newer = won.iter().find(|(task, namespace)| {
                    own.is_some() && submitted.get(task).copied() > own && *namespace == event.namespace
                });
                pair = newer.map(|(newer, _)| [body.task, *newer]);
            }
            _ => {}
        }
        if pair.is_some() {
            break;
        }
    }
    let Some(pair) = pair else { return false };
    for entry in log.iter_mut() {
        if let EventBody::TaskSubmitted(body) = &mut entry.event.body
            && pair.contains(&body.submission.reach_id)
        {
            let session = SessionId::new("won").expect("an id");
            Arc::make_mut(&mut body.submission).session = Some(session);
        }
    }
    true
}

/// What the sweep held back it brings back.
fn held_all_the_same(log: &mut Vec<Entry>) -> bool {
    let held = |event: &Event| matches!(event.body, EventBody::TaskReplayHeld(_));
    change(log, held, |event| {
        if let EventBody::TaskReplayHeld(body) = &event.body {
            event.body = TaskReplayed { task: body.task, attempt: body.attempt }.into();
        }
    })
}

fn endless_plan(log: &mut Vec<Entry>) -> bool {
    let at = find(log, |event| matches!(event.body, EventBody::ReplayFinished(_)));
    let removed = remove(log, at);
    renumber(log);
    removed
}

fn with_link(log: &mut [Entry], with: impl FnOnce(&mut TaskRedriven)) -> bool {
    change(log, is_redriven, |event| {
        if let EventBody::TaskRedriven(body) = &mut event.body {
            with(body);
        }
    })
}

fn redriven_twice(log: &mut Vec<Entry>) -> bool {
    let links: Vec<ReachId> =
        log.iter().filter(|e| is_redriven(&e.event)).filter_map(|e| e.event.body.task()).collect();
    let [first, _, ..] = links.as_slice() else { return false };
    let first = *first;
    let other = |event: &Event| is_redriven(event) && event.body.task() != Some(first);
    change(log, other, |event| {
        if let EventBody::TaskRedriven(body) = &mut event.body {
            body.task = first;
        }
    })
}

fn link_lost(log: &mut Vec<Entry>) -> bool {
    let at = find(log, is_redriven);
    let removed = remove(log, at);
    renumber(log);
    removed
}

fn link_astray(log: &mut Vec<Entry>) -> bool {
    with_link(log, |body| body.successor = ReachId([4; 16]))
}

fn success_redriven(log: &mut Vec<Entry>) -> bool {
    let Some(first) = log.iter().find(|e| matches!(e.event.body, EventBody::TaskSucceeded(_))) else { return false };
    let (at, task) = (first.event.seq, first.event.body.task());
    let later = |event: &Event| is_redriven(event) && event.seq > at;
    task.is_some_and(|task| {
        change(log, later, |event| {
            if let EventBody::TaskRedriven(body) = &mut event.body {
                body.task = task;
            }
        })
    })
}

fn other_payload(log: &mut Vec<Entry>) -> bool {
    let successors: Vec<ReachId> = log
        .iter()
        .filter_map(
            |entry| {
                if let EventBody::TaskRedriven(body) = &entry.event.body { Some(body.successor) } else { None }
            },
        )
        .collect();
    let made = |event: &Event| {
        matches!(&event.body, EventBody::TaskSubmitted(body)
            if body.submission.payload.is_some() && successors.contains(&body.submission.reach_id))
    };
    change(log, made, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body
            && let Some(payload) = &mut Arc::make_mut(&mut body.submission).payload
        {
            payload.digest = agent_reach::ledger::ids::Digest::of(&[b"other"]);
        }
    })
}

const fn is_word(event: &Event) -> bool {
    matches!(event.body, EventBody::TaskResolved(_))
}

fn word_of_nobody(log: &mut Vec<Entry>) -> bool {
    change(log, is_word, |event| event.actor = Actor::Hub)
}

fn word_forgotten(log: &mut Vec<Entry>) -> bool {
    let handed =
        |event: &Event| matches!(&event.body, EventBody::TaskResolved(body) if body.resolution == Resolution::HandOver);
    let at = find(log, handed);
    let removed = remove(log, at);
    renumber(log);
    removed
}

/// The hub gives up what was to be waited for.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about one kind")]
fn policy_against_the_word(log: &mut Vec<Entry>) -> bool {
    let waits =
        |event: &Event| matches!(&event.body, EventBody::TaskResolved(body) if body.resolution == Resolution::Wait);
    let Some(at) = find(log, waits) else { return false };
    let task = log.get(at).and_then(|entry| entry.event.body.task());
    let late = |entry: &&mut Entry| entry.event.body.task() == task && ends(&entry.event.body).is_some();
    let given_up = log.iter().find_map(|entry| match &entry.event.body {
        EventBody::TaskDeadLettered(body) if &*body.failure.code == "overdue" => Some(body.clone()),
        _ => None,
    });
    let (Some(mut body), Some(task)) = (given_up, task) else { return false };
    body.task = task;
    let Some(end) = log.iter_mut().skip(at).find(late) else { return false };
    end.event.body = body.into();
    end.event.actor = Actor::Hub;
    true
}

fn slow_swept(log: &mut Vec<Entry>) -> bool {
    let handed =
        |event: &Event| matches!(&event.body, EventBody::TaskResolved(body) if body.resolution == Resolution::HandOver);
    let Some(at) = find(log, handed) else { return false };
    if let Some(next) = log.get_mut(at + 1) {
        next.event.actor = Actor::Hub;
    }
    let removed = remove(log, Some(at));
    renumber(log);
    removed
}
