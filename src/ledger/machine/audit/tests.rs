//! The audit must condemn a forged history, one forgery for each invariant: an audit that cannot fail proves nothing.

use std::sync::Arc;

use super::check as examine;
use super::*;
use crate::ledger::machine::command::{Retryable, Word};
use crate::ledger::machine::event::{TaskDispatched, TaskQueued, TaskReplayed};
use crate::ledger::machine::task::tests::*;
use crate::ledger::time::Millis;

/// A life with a retry: dispatched, acknowledged, failed, retried, dispatched again, succeeded.
fn history() -> Vec<Event> {
    let play = Play::working(idempotent(TASK)).act(says(TASK, 1, fail(Retryable::Yes))).wait(Millis::secs(10));
    let play = play.act(dispatch(TASK, 2, ("a", 1))).act(says(TASK, 2, Word::Ack)).act(says(TASK, 2, complete("x")));
    assert_eq!(examine(play.log.iter()), []);
    play.log
}

fn find(events: &[Event], kind: &str) -> usize {
    events.iter().position(|event| event.body.kind().name() == kind).unwrap()
}

fn renumber(events: &mut [Event]) {
    let mut seq = Seq(0);
    for event in events {
        seq = seq.next();
        event.seq = seq;
    }
}

/// The history forged by `forge`, dense again, must break this invariant.
fn condemned(invariant: &str, forge: impl FnOnce(&mut Vec<Event>)) {
    let mut events = history();
    forge(&mut events);
    renumber(&mut events);
    let found = examine(events.iter());
    assert!(found.iter().any(|violation| violation.invariant == invariant), "{invariant}: {found:?}");
}

#[test]
fn a_gap_in_the_seqs_and_a_falling_time_are_condemned() {
    let mut events = history();
    events.remove(3);
    assert_eq!(examine(events.iter()).first().map(|violation| violation.invariant), Some("D2"));
    condemned("T1", |events| events.last_mut().unwrap().at = Timestamp(1));
}

#[test]
fn a_second_terminal_event_or_any_move_after_the_end_is_condemned() {
    condemned("S2", |events| events.push(events.last().unwrap().clone()));
    condemned("S2", |events| {
        let mut late = events.last().unwrap().clone();
        late.body = TaskQueued { task: TASK, why: QueuedWhy::Released }.into();
        events.push(late);
    });
}

#[test]
fn an_outcome_of_an_older_epoch_is_condemned() {
    condemned("S1", |events| {
        if let EventBody::TaskSucceeded(body) = &mut events.last_mut().unwrap().body {
            body.attempt = AttemptNo(1);
        }
    });
}

fn first_dispatch(events: &mut [Event]) -> &mut TaskDispatched {
    let at = find(events, "task-dispatched");
    let EventBody::TaskDispatched(body) = &mut events[at].body else { panic!("found by its kind") };
    body
}

#[test]
fn a_dispatch_that_is_not_from_the_queue_or_reuses_an_epoch_is_condemned() {
    condemned("S3", |events| {
        let twice = events[find(events, "task-dispatched")].clone();
        events.insert(find(events, "task-acknowledged"), twice);
    });
    condemned("S3", |events| {
        events.remove(find(events, "task-dispatched"));
    });
    condemned("S4", |events| first_dispatch(events).attempt = AttemptNo(3));
}

#[test]
fn more_retries_than_the_budget_are_condemned() {
    condemned("S5", |events| {
        let at = find(events, "task-submitted");
        if let EventBody::TaskSubmitted(body) = &mut events[at].body {
            Arc::make_mut(&mut body.submission).retry.max_retries = 0;
        }
    });
}

#[test]
fn a_dispatch_to_an_agent_that_is_not_open_or_before_its_time_is_condemned() {
    condemned("S7", |events| first_dispatch(events).incarnation = Incarnation(2));
    condemned("S7", |events| {
        let at = find(events, "task-retry-scheduled");
        if let EventBody::TaskRetryScheduled(body) = &mut events[at].body {
            body.until = body.until.after(Millis::secs(3_600));
        }
    });
}

#[test]
fn a_second_epoch_of_a_task_not_declared_idempotent_is_condemned() {
    condemned("S10", |events| {
        let at = find(events, "task-submitted");
        if let EventBody::TaskSubmitted(body) = &mut events[at].body {
            Arc::make_mut(&mut body.submission).idempotence = Idempotence::NotDeclared;
        }
    });
}

#[test]
fn a_replay_of_what_is_no_orphan_is_condemned() {
    condemned("S9", |events| {
        let at = find(events, "task-attempt-failed");
        let mut replayed = events[at].clone();
        replayed.body = TaskReplayed { task: TASK, attempt: AttemptNo(1) }.into();
        events.insert(at, replayed);
    });
}
