//! Blind spots of breakers: changes of the log copy that B2 must condemn.

#![expect(clippy::ptr_arg, reason = "every change has one shape, whether it makes the log longer or not")]

use agent_reach::ledger::machine::event::{BreakerOpened, ClosedWhy, Event, EventBody, HalfOpenedWhy, OpenedWhy};
use agent_reach::ledger::time::Millis;

use crate::model::Entry;
use crate::tampers::{Tamper, change, find, insert_copy, remove, renumber};

pub(crate) const BREAKER_TAMPERS: &[(&str, Tamper, &[&str])] = &[
    ("a dispatch to an open breaker", dispatch_while_open, &["B2"]),
    ("two that try one agent out", second_probe, &["B2"]),
    ("a breaker that opens after four", opens_early, &["B2"]),
    ("a breaker that opens for the failures of others", others_failures, &["B2"]),
    ("a breaker that stays open too long", open_too_long, &["B2"]),
    ("a breaker that closes for nothing", closes_for_nothing, &["B2"]),
    ("a probe that is over and waited for", probe_forgotten, &["B2"]),
];

fn opened(event: &Event) -> Option<&BreakerOpened> {
    if let EventBody::BreakerOpened(body) = &event.body { Some(body) } else { None }
}

const fn closes(event: &Event) -> bool {
    matches!(&event.body, EventBody::BreakerClosed(body) if matches!(body.why, ClosedWhy::ProbeSucceeded))
}

/// The dispatch that follows a half-opening there.
fn probe_after(log: &[Entry], at: usize) -> Option<usize> {
    let agent = log.get(at)?.event.body.agent()?;
    let is_probe = |event: &Event| matches!(&event.body, EventBody::TaskDispatched(body) if body.agent == *agent);
    log.iter().enumerate().skip(at).find(|(_, entry)| is_probe(&entry.event)).map(|(place, _)| place)
}

fn half_opens(event: &Event) -> bool {
    matches!(&event.body, EventBody::BreakerHalfOpened(body) if body.why == HalfOpenedWhy::TimeOver)
}

fn dispatch_while_open(log: &mut Vec<Entry>) -> bool {
    let at = find(log, half_opens).filter(|at| probe_after(log, *at).is_some());
    let removed = remove(log, at);
    renumber(log);
    removed
}

fn second_probe(log: &mut Vec<Entry>) -> bool {
    let at = find(log, half_opens).and_then(|at| probe_after(log, at));
    insert_copy(log, at)
}

fn of_failures(event: &Event) -> bool {
    opened(event).is_some_and(|body| body.why == OpenedWhy::Failures)
}

fn opens_early(log: &mut Vec<Entry>) -> bool {
    change(log, of_failures, |event| {
        if let EventBody::BreakerOpened(body) = &mut event.body {
            body.failures.truncate(4);
        }
    })
}

fn others_failures(log: &mut Vec<Entry>) -> bool {
    change(log, of_failures, |event| {
        if let EventBody::BreakerOpened(body) = &mut event.body
            && let Some(first) = body.failures.first_mut()
        {
            first.attempt = first.attempt.next().next();
        }
    })
}

fn open_too_long(log: &mut Vec<Entry>) -> bool {
    change(log, of_failures, |event| {
        if let EventBody::BreakerOpened(body) = &mut event.body {
            body.until = body.until.map(|until| until.after(Millis(1)));
        }
    })
}

fn closes_for_nothing(log: &mut Vec<Entry>) -> bool {
    change(log, half_opens, |event| {
        if let EventBody::BreakerHalfOpened(body) = event.body.clone() {
            let (agent, incarnation, capability) = (body.agent, body.incarnation, body.capability);
            let why = ClosedWhy::ProbeSucceeded;
            event.body =
                agent_reach::ledger::machine::event::BreakerClosed { agent, incarnation, capability, why }.into();
        }
    })
}

/// The last word on a breaker is left out.
fn probe_forgotten(log: &mut Vec<Entry>) -> bool {
    let at = log.iter().rposition(|entry| closes(&entry.event));
    let removed = remove(log, at);
    renumber(log);
    removed
}
