//! Blind spots, the second half: changes of the log copy that the invariants are shown, each with those that must condemn
//! it.

#![expect(clippy::ptr_arg, reason = "every change has one shape, whether it makes the log longer or not")]

use std::sync::Arc;

use agent_reach::ledger::ids::{AttemptNo, Boot, Digest, Incarnation, Seq};
use agent_reach::ledger::machine::event::{
    Event, EventBody, QueuedWhy, RetryWhy, TaskExpired, TaskQueued, TaskReplayed,
};
use agent_reach::ledger::machine::task::spec::{Idempotence, OrphanPolicy, SlowPolicy};
use agent_reach::ledger::machine::task::status::OrphanCause;
use agent_reach::ledger::time::{Millis, Timestamp};

use crate::model::{Entry, ends};

/// A change of the log copy; false when this log has nothing that it could change.
pub(crate) type Tamper = fn(&mut Vec<Entry>) -> bool;

/// The changes, each with the invariants of which at least one must condemn it.
pub(crate) const TAMPERS: &[(&str, Tamper, &[&str])] = &[
    ("a dispatch doubled", dispatch_doubled, &["S3", "S4"]),
    ("an epoch left out", epoch_left_out, &["S4"]),
    ("a second end", second_end, &["S1"]),
    ("an end followed by another move", move_after_end, &["S2"]),
    ("an outcome of an older epoch", older_outcome, &["S1", "S3"]),
    ("an outcome that nobody said", forged_outcome, &["S1"]),
    ("an acknowledgement dropped", ack_dropped, &["S3"]),
    ("an event dropped", event_dropped, &["D2"]),
    ("an event dropped, the rest closed up", event_closed_up, &["D1"]),
    ("two events in the wrong order", reordered, &["S3"]),
    ("a receipt's event rewritten", rewritten, &["D1"]),
    ("time that falls", falling_time, &["T1"]),
    ("a dispatch to an older incarnation", older_incarnation, &["S7"]),
    ("a dispatch before its time", before_its_time, &["S7"]),
    ("a dispatch after its deadline", after_its_deadline, &["S7"]),
    ("a retry without its delay", hasty_retry, &["S7"]),
    ("more retries than allowed", greedy_retry, &["S5"]),
    ("more work than slots", no_slots, &["S8"]),
    ("slow taken for failed", slow_taken, &["S9"]),
    ("a second epoch of careful work", careless, &["S10"]),
    ("a live agent's task orphaned", stolen, &["S9"]),
    ("an orphan replayed twice", replayed_twice, &["R2"]),
    ("a held orphan replayed", held_replayed, &["R2"]),
    ("one key for two tasks", one_key, &["S6"]),
    ("a callback for nothing", callback_for_nothing, &["C1"]),
    ("a callback that never settles", unsettled, &["C3"]),
    ("an event that nobody is told of", untold, &["C3"]),
    ("a boot number used again", boot_again, &["D2"]),
    ("a late end", late_end, &["L1"]),
    ("an end that never comes", no_end, &["L1"]),
    ("an early expiry", early_expiry, &["T2"]),
    ("last in, first out", overtaken, &["F1"]),
    ("a batch that settles twice", settled_twice, &["L4"]),
    ("stale reports without bound", endless_stale, &["B1"]),
    ("a clock jump with the wrong size", wrong_jump, &["T2"]),
];

pub(crate) fn find(log: &[Entry], wanted: impl Fn(&Event) -> bool) -> Option<usize> {
    log.iter().position(|entry| wanted(&entry.event))
}

pub(crate) fn change(log: &mut [Entry], wanted: impl Fn(&Event) -> bool, change: impl FnOnce(&mut Event)) -> bool {
    let found = log.iter_mut().map(|entry| &mut entry.event).find(|event| wanted(event));
    found.map(change).is_some()
}

/// Puts an event in and closes up, so that density does not give it away.
pub(crate) fn insert(log: &mut Vec<Entry>, at: usize, body: EventBody) -> bool {
    let Some(entry) = log.get(at) else { return false };
    let mut entry = entry.clone();
    entry.event.body = body;
    entry.hash = Digest::of(&[b"inserted"]);
    log.insert(at + 1, entry);
    renumber(log);
    true
}

pub(crate) fn renumber(log: &mut [Entry]) {
    for (entry, seq) in log.iter_mut().zip(1..) {
        entry.event.seq = Seq(seq);
    }
}

pub(crate) fn insert_copy(log: &mut Vec<Entry>, at: Option<usize>) -> bool {
    let Some((at, body)) = at.and_then(|at| Some((at, log.get(at)?.event.body.clone()))) else { return false };
    insert(log, at, body)
}

const fn is_dispatch(event: &Event) -> bool {
    matches!(event.body, EventBody::TaskDispatched(_))
}

fn dispatch_doubled(log: &mut Vec<Entry>) -> bool {
    let at = find(log, is_dispatch);
    insert_copy(log, at)
}

fn epoch_left_out(log: &mut Vec<Entry>) -> bool {
    change(log, is_dispatch, |event| {
        if let EventBody::TaskDispatched(body) = &mut event.body {
            body.attempt = body.attempt.next();
        }
    })
}

fn second_end(log: &mut Vec<Entry>) -> bool {
    let Some(at) = find(log, |event| ends(&event.body).is_some()) else { return false };
    let task = log.get(at).and_then(|entry| entry.event.body.task());
    task.is_some_and(|task| insert(log, at, TaskExpired { task }.into()))
}

fn move_after_end(log: &mut Vec<Entry>) -> bool {
    let Some(at) = find(log, |event| ends(&event.body).is_some()) else { return false };
    let task = log.get(at).and_then(|entry| entry.event.body.task());
    task.is_some_and(|task| insert(log, at, TaskQueued { task, why: QueuedWhy::RetryDue }.into()))
}

fn older_outcome(log: &mut Vec<Entry>) -> bool {
    let second = |event: &Event| matches!(&event.body, EventBody::TaskSucceeded(body) if body.attempt > AttemptNo(1));
    change(log, second, |event| {
        if let EventBody::TaskSucceeded(body) = &mut event.body {
            body.attempt = AttemptNo(1);
        }
    })
}

fn forged_outcome(log: &mut Vec<Entry>) -> bool {
    change(
        log,
        |event| matches!(event.body, EventBody::TaskSucceeded(_)),
        |event| {
            if let EventBody::TaskSucceeded(body) = &mut event.body {
                body.outcome = Digest::of(&[b"forged"]);
            }
        },
    )
}

pub(crate) fn remove(log: &mut Vec<Entry>, at: Option<usize>) -> bool {
    let found = at.filter(|at| *at < log.len());
    if let Some(at) = found {
        log.remove(at);
    }
    found.is_some()
}

fn ack_dropped(log: &mut Vec<Entry>) -> bool {
    let ended = log.iter().rev().find_map(|entry| {
        if let EventBody::TaskSucceeded(body) = &entry.event.body { Some((body.task, body.attempt)) } else { None }
    });
    let at = find(
        log,
        |event| matches!(&event.body, EventBody::TaskAcknowledged(body) if ended == Some((body.task, body.attempt))),
    );
    remove(log, at)
}

fn event_dropped(log: &mut Vec<Entry>) -> bool {
    let at = log.len() / 2;
    remove(log, Some(at))
}

fn event_closed_up(log: &mut Vec<Entry>) -> bool {
    let at = find(log, |event| matches!(event.body, EventBody::TaskSubmitted(_)));
    let removed = remove(log, at);
    renumber(log);
    removed
}

fn reordered(log: &mut Vec<Entry>) -> bool {
    let Some(at) = find(log, |event| matches!(event.body, EventBody::TaskAcknowledged(_))) else { return false };
    let task = log.get(at).and_then(|entry| entry.event.body.task());
    let Some(before) = log.iter().take(at).position(|e| is_dispatch(&e.event) && e.event.body.task() == task) else {
        return false;
    };
    log.swap(before, at);
    renumber(log);
    true
}

fn rewritten(log: &mut Vec<Entry>) -> bool {
    let found = log.iter_mut().find(|entry| matches!(entry.event.body, EventBody::TaskSubmitted(_)));
    found.map(|entry| entry.hash = Digest::of(&[b"rewritten"])).is_some()
}

fn falling_time(log: &mut Vec<Entry>) -> bool {
    let at = log.len() / 2;
    log.get_mut(at).map(|entry| entry.event.at = Timestamp(entry.event.at.0 - 5_000)).is_some()
}

fn older_incarnation(log: &mut Vec<Entry>) -> bool {
    change(log, is_dispatch, |event| {
        if let EventBody::TaskDispatched(body) = &mut event.body {
            body.incarnation = Incarnation(0);
        }
    })
}

/// Changes what a dispatched task asked for, as if the core had not heeded it.
fn asked(log: &mut [Entry], which: impl Fn(&Event) -> bool, wish: impl FnOnce(&mut Event)) -> bool {
    let task = log.iter().find(|entry| which(&entry.event)).and_then(|entry| entry.event.body.task());
    task.is_some()
        && change(log, |event| matches!(event.body, EventBody::TaskSubmitted(_)) && event.body.task() == task, wish)
}

fn before_its_time(log: &mut Vec<Entry>) -> bool {
    asked(log, is_dispatch, |event| {
        let later = event.at.after(Millis::secs(86_400));
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            Arc::make_mut(&mut body.submission).not_before = Some(later);
        }
    })
}

fn after_its_deadline(log: &mut Vec<Entry>) -> bool {
    asked(log, is_dispatch, |event| {
        let at = event.at;
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            body.deadline = at;
        }
    })
}

fn is_retry(event: &Event) -> bool {
    matches!(&event.body, EventBody::TaskRetryScheduled(body) if body.why == RetryWhy::AttemptFailed)
}

fn hasty_retry(log: &mut Vec<Entry>) -> bool {
    change(log, is_retry, |event| {
        let now = event.at;
        if let EventBody::TaskRetryScheduled(body) = &mut event.body {
            body.until = now;
        }
    })
}

fn greedy_retry(log: &mut Vec<Entry>) -> bool {
    asked(log, is_retry, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            Arc::make_mut(&mut body.submission).retry.max_retries = 0;
        }
    })
}

fn no_slots(log: &mut Vec<Entry>) -> bool {
    let mut done = false;
    for entry in log.iter_mut() {
        if let EventBody::AgentRegistered(body) = &mut entry.event.body {
            body.declaration.max_concurrency = 0;
            done = true;
        }
    }
    done
}

fn slow_taken(log: &mut Vec<Entry>) -> bool {
    let failed = |event: &Event| {
        matches!(&event.body, EventBody::TaskAttemptFailed(body)
            if body.outcome.is_none() && body.started == agent_reach::ledger::machine::event::Started::Maybe)
    };
    asked(log, failed, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            Arc::make_mut(&mut body.submission).slow_reach = SlowPolicy::Wait;
            Arc::make_mut(&mut body.submission).retry.retry_on.clear();
        }
    })
}

fn careless(log: &mut Vec<Entry>) -> bool {
    asked(log, is_retry, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            Arc::make_mut(&mut body.submission).idempotence = Idempotence::NotDeclared;
        }
    })
}

fn stolen(log: &mut Vec<Entry>) -> bool {
    // The loss of the agent is struck out; what it held is orphaned all the same.
    let Some(orphaned) =
        find(log, |event| matches!(&event.body, EventBody::TaskOrphaned(body) if body.cause == OrphanCause::AgentLost))
    else {
        return false;
    };
    let before = log.iter().take(orphaned).rposition(|entry| matches!(entry.event.body, EventBody::AgentLost(_)));
    let agent = before.and_then(|at| log.get(at)).and_then(|entry| entry.event.body.agent().cloned());
    let silent = |event: &Event| {
        let lost = matches!(event.body, EventBody::AgentLost(_) | EventBody::AgentUnhealthy(_));
        lost && event.body.agent() == agent.as_ref()
    };
    log.retain(|entry| !silent(&entry.event));
    renumber(log);
    before.is_some()
}

fn is_replay(event: &Event) -> bool {
    matches!(event.body, EventBody::TaskReplayed(_))
}

fn replayed_twice(log: &mut Vec<Entry>) -> bool {
    let found = log.iter().enumerate().find_map(|(at, entry)| {
        if let EventBody::TaskReplayed(body) = &entry.event.body { Some((at, body.task, body.attempt)) } else { None }
    });
    found.is_some_and(|(at, task, attempt)| insert(log, at, TaskReplayed { task, attempt }.into()))
}

fn held_replayed(log: &mut Vec<Entry>) -> bool {
    asked(log, is_replay, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            Arc::make_mut(&mut body.submission).orphan = OrphanPolicy::Hold;
        }
    })
}

fn one_key(log: &mut Vec<Entry>) -> bool {
    let keyed = log.iter().find_map(|entry| {
        let EventBody::TaskSubmitted(body) = &entry.event.body else { return None };
        let key = body.submission.idempotency.clone()?;
        Some((entry.event.seq, entry.event.namespace.clone(), key))
    });
    let Some((first, namespace, key)) = keyed else { return false };
    let other = |event: &Event| {
        event.seq > first && event.namespace == namespace && matches!(event.body, EventBody::TaskSubmitted(_))
    };
    change(log, other, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            Arc::make_mut(&mut body.submission).idempotency = Some(key);
        }
    })
}

fn callback_for_nothing(log: &mut Vec<Entry>) -> bool {
    asked(
        log,
        |event| matches!(event.body, EventBody::CallbackDue(_)),
        |event| {
            if let EventBody::TaskSubmitted(body) = &mut event.body {
                Arc::make_mut(&mut body.submission).callback = None;
            }
        },
    )
}

fn unsettled(log: &mut Vec<Entry>) -> bool {
    let at = log.iter().rposition(|entry| matches!(entry.event.body, EventBody::CallbackDelivered(_)));
    remove(log, at)
}

fn untold(log: &mut Vec<Entry>) -> bool {
    let at = find(log, |event| matches!(event.body, EventBody::CallbackDue(_)));
    remove(log, at)
}

fn boot_again(log: &mut Vec<Entry>) -> bool {
    let later = |event: &Event| matches!(&event.body, EventBody::HubStarted(body) if body.boot > Boot(1));
    change(log, later, |event| {
        if let EventBody::HubStarted(body) = &mut event.body {
            body.boot = Boot(1);
        }
    })
}

fn late_end(log: &mut Vec<Entry>) -> bool {
    let last = log.iter().rposition(|entry| ends(&entry.event.body).is_some());
    let found = last.and_then(|at| log.get_mut(at));
    found.map(|entry| entry.event.at = entry.event.at.after(Millis::secs(86_400))).is_some()
}

fn no_end(log: &mut Vec<Entry>) -> bool {
    let at = find(log, |event| matches!(event.body, EventBody::TaskExpired(_)));
    let removed = remove(log, at);
    renumber(log);
    removed
}

fn early_expiry(log: &mut Vec<Entry>) -> bool {
    asked(
        log,
        |event| matches!(event.body, EventBody::TaskExpired(_)),
        |event| {
            if let EventBody::TaskSubmitted(body) = &mut event.body {
                body.deadline = body.deadline.after(Millis::secs(600));
            }
        },
    )
}

/// Two first dispatches of one line change places.
fn overtaken(log: &mut Vec<Entry>) -> bool {
    let mut waiting: Vec<(usize, &agent_reach::ledger::machine::task::spec::Submission, &Event)> = Vec::new();
    let mut pair = None;
    for (at, entry) in log.iter().enumerate() {
        if let EventBody::TaskSubmitted(body) = &entry.event.body {
            let plain = body.submission.preferred_agent.is_none() && body.submission.not_before.is_none();
            if plain && body.submission.approval == agent_reach::ledger::machine::task::spec::Approval::NotNeeded {
                waiting.push((at, &body.submission, &entry.event));
            }
        } else if let EventBody::TaskDispatched(body) = &entry.event.body
            && body.attempt == AttemptNo(1)
        {
            let Some(place) = waiting.iter().position(|(_, spec, _)| spec.reach_id == body.task) else { continue };
            let (_, spec, event) = waiting.remove(place);
            let other = waiting.iter().find(|(_, other, later)| {
                later.at > event.at
                    && later.namespace == event.namespace
                    && later.actor == event.actor
                    && (&other.capability, &other.requires, &other.schemas, other.qos, &other.fairness_key)
                        == (&spec.capability, &spec.requires, &spec.schemas, spec.qos, &spec.fairness_key)
            });
            if let Some((_, other, _)) = other {
                pair = Some((at, other.reach_id));
                break;
            }
        }
    }
    let Some((at, other)) = pair else { return false };
    change(log.get_mut(at..=at).unwrap_or_default(), is_dispatch, |event| {
        if let EventBody::TaskDispatched(body) = &mut event.body {
            body.task = other;
        }
    })
}

fn settled_twice(log: &mut Vec<Entry>) -> bool {
    let at = find(log, |event| matches!(event.body, EventBody::BatchSettled(_)));
    insert_copy(log, at)
}

fn endless_stale(log: &mut Vec<Entry>) -> bool {
    let at = find(log, |event| matches!(event.body, EventBody::TaskStaleReportRefused(_)));
    (0..17).all(|_| insert_copy(log, at))
}

fn wrong_jump(log: &mut Vec<Entry>) -> bool {
    change(
        log,
        |event| matches!(event.body, EventBody::ClockJumped(_)),
        |event| {
            if let EventBody::ClockJumped(body) = &mut event.body {
                body.by += 5;
            }
        },
    )
}
