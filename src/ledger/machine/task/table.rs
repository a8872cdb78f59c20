//! The transition table: which event may meet which state, where it leads, and why.
//!
//! `apply.rs` refuses whatever has no row here; docs/state-machine.md is rendered from these rows. So the document, the
//! code and the ledger cannot differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::ledger::ids::AttemptNo;
use crate::ledger::machine::event::{EventBody, EventKind};
use crate::ledger::machine::task::status::StatusKind;

/// One allowed move. An event may have several rows from one state where its data say which holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// From where; `None` before the submission.
    pub from: Option<StatusKind>,
    /// By which event.
    pub event: EventKind,
    /// Where to.
    pub to: StatusKind,
    /// Why.
    pub why: &'static str,
}

use EventKind as E;
use StatusKind as S;

/// Moves from particular states, in the order of a task's life.
const MOVES: &[(Option<S>, E, S, &str)] = &[
    (None, E::TaskSubmitted, S::Queued, "accepted"),
    (None, E::TaskSubmitted, S::Scheduled, "accepted, not before a later time"),
    (None, E::TaskSubmitted, S::AwaitingApproval, "accepted, held for a person's word"),
    (Some(S::AwaitingApproval), E::TaskApproved, S::Scheduled, "approved; the queue follows when its time has come"),
    (Some(S::AwaitingApproval), E::TaskRefused, S::AwaitingApproval, "refused; task-cancelled follows"),
    (Some(S::Scheduled), E::TaskQueued, S::Queued, "its time came, or it was approved"),
    (Some(S::AwaitingApproval), E::TaskDeadLettered, S::DeadLetter, "its payload went with a damaged ledger"),
    (Some(S::Scheduled), E::TaskDeadLettered, S::DeadLetter, "its payload went with a damaged ledger"),
    (Some(S::Queued), E::TaskDispatched, S::Dispatched, "handed over under a lease"),
    (Some(S::Queued), E::TaskOverdue, S::Queued, "wait budget spent, policy keep"),
    (Some(S::Queued), E::TaskDeadLettered, S::DeadLetter, "wait budget spent, policy fail; or its payload is lost"),
    (Some(S::Dispatched), E::TaskAcknowledged, S::Processing, "its agent starts"),
    (Some(S::Dispatched), E::TaskQueued, S::Queued, "a pull never started: its agent is gone"),
    (Some(S::Dispatched), E::TaskRetryScheduled, S::Retrying, "a pull never started again and again: it waits"),
    (Some(S::Dispatched), E::TaskDeadLettered, S::DeadLetter, "never reached after too many dispatches"),
    (Some(S::Dispatched), E::TaskAttemptFailed, S::Retrying, "not acknowledged in time, or refused unstarted"),
    (Some(S::Dispatched), E::TaskReleased, S::Retrying, "given back unstarted"),
    (Some(S::Dispatched), E::TaskSlow, S::SlowReach, "a push that may have arrived, unanswered"),
    (Some(S::Dispatched), E::TaskOrphaned, S::Orphaned, "the ledger's end was lost: nobody knows who holds it"),
    (Some(S::Processing), E::TaskProgressed, S::Processing, "a stage was reached"),
    (Some(S::Processing), E::TaskSucceeded, S::Succeeded, "the agent's success"),
    (Some(S::Processing), E::TaskFailed, S::Failed, "the agent's failure, final"),
    (
        Some(S::Processing),
        E::TaskAttemptFailed,
        S::Retrying,
        "the agent's failure, or overdue and allowed to be retried",
    ),
    (Some(S::Processing), E::TaskReleased, S::Retrying, "given back, idempotent tasks only"),
    (Some(S::Processing), E::TaskSlow, S::SlowReach, "over its work time"),
    (Some(S::Processing), E::TaskOrphaned, S::Orphaned, "its agent is gone"),
    (Some(S::SlowReach), E::TaskAcknowledged, S::Processing, "a late acknowledgement"),
    (Some(S::SlowReach), E::TaskProgressed, S::Processing, "it is alive: a new work time"),
    (Some(S::SlowReach), E::TaskSucceeded, S::Succeeded, "a late success wins"),
    (Some(S::SlowReach), E::TaskFailed, S::Failed, "a late failure"),
    (Some(S::SlowReach), E::TaskAttemptFailed, S::Retrying, "a late failure, or handed over by its policy"),
    (Some(S::SlowReach), E::TaskReleased, S::Retrying, "given back"),
    (Some(S::SlowReach), E::TaskDeadLettered, S::DeadLetter, "its slow-reach policy gives up"),
    (Some(S::SlowReach), E::TaskOrphaned, S::Orphaned, "its agent is gone"),
    (Some(S::SlowReach), E::TaskResolved, S::SlowReach, "an operator decided; what was decided follows"),
    (Some(S::SlowReach), E::TaskReplayed, S::Retrying, "handed over by an operator's word: its lease ends"),
    (Some(S::Retrying), E::TaskRetryScheduled, S::Retrying, "the delay before the next try"),
    (Some(S::Retrying), E::TaskQueued, S::Queued, "the delay is over, or there is none"),
    (Some(S::Retrying), E::TaskDeadLettered, S::DeadLetter, "out of retries, never reached, or its payload is lost"),
    (Some(S::Orphaned), E::TaskOrphaned, S::Orphaned, "the ledger's end was lost: its lease is void"),
    (Some(S::Orphaned), E::TaskReclaimed, S::Processing, "its own agent came back first"),
    (Some(S::Orphaned), E::TaskResolved, S::Orphaned, "an operator decided; what was decided follows"),
    (
        Some(S::Orphaned),
        E::TaskReplayHeld,
        S::Orphaned,
        "a newer one of its session has succeeded: it waits for a word",
    ),
    (Some(S::Orphaned), E::TaskReplayed, S::Retrying, "replayed: the old lease ends, the queue follows"),
    (Some(S::Orphaned), E::TaskSucceeded, S::Succeeded, "a late success under the still valid lease"),
    (Some(S::Orphaned), E::TaskFailed, S::Failed, "a late failure under the still valid lease"),
    (Some(S::Orphaned), E::TaskAttemptFailed, S::Retrying, "a late failure that may be retried"),
    (Some(S::Orphaned), E::TaskReleased, S::Retrying, "given back late"),
    (Some(S::Orphaned), E::TaskDeadLettered, S::DeadLetter, "it may be what kills its agents; or its payload is lost"),
];

/// Moves from every unfinished state; `None` where it stays.
const FROM_ALL: &[(E, Option<S>, &str)] = &[
    (E::TaskCancelled, Some(S::Cancelled), "called off"),
    (E::TaskExpired, Some(S::Expired), "lifetime over"),
    (E::TaskSchemaChecked, None, "a schema registered later was checked"),
    (E::TaskStaleReportRefused, None, "an old lease spoke; audit only"),
];

/// Every row: by state in the order of a task's life, then by event.
pub fn rows() -> impl Iterator<Item = Row> {
    let particular = MOVES.iter().map(|(from, event, to, why)| Row { from: *from, event: *event, to: *to, why });
    let unfinished = StatusKind::ALL.into_iter().filter(|kind| !kind.is_terminal());
    let general = unfinished.flat_map(|from| {
        FROM_ALL.iter().map(move |(event, to, why)| Row {
            from: Some(from),
            event: *event,
            to: to.unwrap_or(from),
            why,
        })
    });
    let terminal = StatusKind::ALL.into_iter().filter(|kind| kind.is_terminal());
    let after = terminal.map(|from| Row {
        from: Some(from),
        event: E::TaskStaleReportRefused,
        to: from,
        why: "an old lease spoke; audit only, allowed after the end",
    });
    let redriven = [S::Failed, S::DeadLetter, S::Expired].into_iter().map(|from| Row {
        from: Some(from),
        event: E::TaskRedriven,
        to: from,
        why: "made anew under another id; it stays what it is",
    });
    particular.chain(general).chain(after).chain(redriven)
}

/// The rows of one event from one state: more than one where the event's data say which holds.
#[must_use]
pub fn rows_of(from: Option<StatusKind>, event: EventKind) -> Vec<Row> {
    rows().filter(|row| row.from == from && row.event == event).collect()
}

/// Where an event may take a task from a state; nowhere if there is no row. Every event of every task asks.
#[must_use]
pub fn targets(from: StatusKind, event: EventKind) -> &'static [StatusKind] {
    static TARGETS: LazyLock<BTreeMap<(StatusKind, EventKind), Vec<StatusKind>>> = LazyLock::new(|| {
        let mut targets: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in rows() {
            if let Some(from) = row.from {
                targets.entry((from, row.event)).or_default().push(row.to);
            }
        }
        targets
    });
    TARGETS.get(&(from, event)).map_or(&[], Vec::as_slice)
}

/// The attempt that an event must carry to be about the current one (S3); a stale report names an old one.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds are fenced; the rest carry no attempt")]
pub(super) const fn fenced_attempt(body: &EventBody) -> Option<AttemptNo> {
    match body {
        EventBody::TaskAcknowledged(e) => Some(e.attempt),
        EventBody::TaskReclaimed(e) => Some(e.attempt),
        EventBody::TaskProgressed(e) => Some(e.attempt),
        EventBody::TaskSlow(e) => Some(e.attempt),
        EventBody::TaskAttemptFailed(e) => Some(e.attempt),
        EventBody::TaskOrphaned(e) => Some(e.attempt),
        EventBody::TaskReplayed(e) => Some(e.attempt),
        EventBody::TaskReplayHeld(e) => Some(e.attempt),
        EventBody::TaskReleased(e) => Some(e.attempt),
        EventBody::TaskResolved(e) => Some(e.attempt),
        EventBody::TaskSucceeded(e) => Some(e.attempt),
        EventBody::TaskFailed(e) => Some(e.attempt),
        _ => None,
    }
}

/// The table as markdown.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| from | event | to | why |\n| --- | --- | --- | --- |\n");
    for row in rows() {
        let from = row.from.map_or("(none)", StatusKind::name);
        // Writing to a string cannot fail.
        let _written = writeln!(text, "| `{from}` | `{}` | `{}` | {} |", row.event.name(), row.to.name(), row.why);
    }
    text
}

/// The moves between different states as a Mermaid diagram; cancel and expiry, which lead out of every unfinished
/// state, are left out for legibility.
#[must_use]
pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n");
    for row in rows().filter(|row| row.from != Some(row.to)) {
        if matches!(row.event, EventKind::TaskCancelled | EventKind::TaskExpired) {
            continue;
        }
        let from = row.from.map_or("[*]", StatusKind::name).replace('-', "_");
        let to = row.to.name().replace('-', "_");
        let _written = writeln!(text, "    {from} --> {to}: {}", row.event.name());
    }
    for end in StatusKind::ALL.into_iter().filter(|kind| kind.is_terminal()) {
        let _written = writeln!(text, "    {} --> [*]", end.name().replace('-', "_"));
    }
    text
}
