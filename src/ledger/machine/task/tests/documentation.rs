use super::*;
use crate::ledger::machine::event::*;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::status::{Acked, Lease, OrphanCause, SlowCause, Status};
use crate::ledger::machine::task::table;

/// Another task, of which the tested one may be the origin.
const SUCCESSOR: ReachId = ReachId([0x33; 16]);

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/state-machine.md");

fn between(text: &str, name: &str, new: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin).expect("the document has the marker");
    let (_, tail) = rest.split_once(&end).expect("the document has the end marker");
    format!("{head}{begin}{new}{end}{tail}")
}

#[test]
fn the_document_shows_the_table_that_the_code_runs() {
    let shown = std::fs::read_to_string(DOCUMENT).unwrap();
    let mermaid = format!("```mermaid\n{}```\n", table::mermaid());
    let made = between(&between(&shown, "table", &table::markdown()), "diagram", &mermaid);
    if std::env::var_os("REACH_FIX").is_some() {
        std::fs::write(DOCUMENT, &made).unwrap();
    }
    assert_eq!(std::fs::read_to_string(DOCUMENT).unwrap(), made, "run with REACH_FIX=1 to write it anew");
}

pub(super) fn held() -> Lease {
    let digest = lease(TASK, 1);
    Lease { attempt: AttemptNo(1), agent: agent("a"), incarnation: Incarnation(1), digest, delivery: Delivery::Pull }
}

pub(super) fn status(kind: StatusKind) -> Status {
    let (at, lease) = (SimClock::START, held());
    match kind {
        StatusKind::AwaitingApproval => Status::AwaitingApproval,
        StatusKind::Scheduled => Status::Scheduled { until: at },
        StatusKind::Queued => Status::Queued { since: at, wait_until: None },
        StatusKind::Dispatched => Status::Dispatched { lease, reach_deadline: at },
        StatusKind::Processing => Status::Processing { lease, work_deadline: at },
        StatusKind::SlowReach => {
            Status::SlowReach { lease, acked: Acked::Yes, cause: SlowCause::Overdue, act_at: None }
        }
        StatusKind::Retrying => Status::Retrying { until: at },
        StatusKind::Orphaned => Status::Orphaned { lease, cause: OrphanCause::AgentLost, since: at },
        StatusKind::Succeeded => Status::Succeeded,
        StatusKind::Failed => Status::Failed,
        StatusKind::DeadLetter => Status::DeadLetter,
        StatusKind::Expired => Status::Expired,
        StatusKind::Cancelled => Status::Cancelled,
    }
}

/// A sample of every kind of task event, about the first attempt; a dispatch is the second.
fn samples() -> Vec<EventBody> {
    let (task, attempt, at) = (TASK, AttemptNo(1), SimClock::START);
    let (incarnation, digest) = (Incarnation(1), Digest::default());
    let failure = || Failure { class: FailureClass::Business, code: "boom".into(), message: None };
    let explanation = || Explanation {
        strategy: "test".into(),
        score: Vec::new(),
        runners_up: Vec::new(),
        exclusions: Vec::new(),
        rules: None,
    };
    vec![
        TaskSubmitted { submission: submission(ReachId([2; 16])).into(), deadline: at, routed: None }.into(),
        TaskQueued { task, why: QueuedWhy::RetryDue }.into(),
        TaskDispatched {
            task,
            attempt: AttemptNo(2),
            agent: agent("a"),
            incarnation,
            lease: lease(task, 2),
            delivery: Delivery::Pull,
            reach_deadline: at,
            explanation: explanation(),
        }
        .into(),
        TaskAcknowledged { task, attempt, incarnation, work_deadline: at }.into(),
        TaskReclaimed { task, attempt, work_deadline: at }.into(),
        TaskOverdue { task }.into(),
        TaskProgressed { task, attempt, stage: None, percent: None, data: None, work_deadline: Some(at) }.into(),
        TaskSlow { task, attempt, cause: SlowCause::Overdue, act_at: None }.into(),
        TaskAttemptFailed { task, attempt, failure: failure(), started: Started::Maybe, outcome: None }.into(),
        TaskRetryScheduled { task, why: RetryWhy::AttemptFailed, until: at }.into(),
        TaskOrphaned { task, attempt, cause: OrphanCause::AgentLost }.into(),
        TaskReplayed { task, attempt }.into(),
        TaskResolved { task, attempt, resolution: Resolution::HandOver, reason: "seen".into() }.into(),
        TaskRedriven { task, successor: SUCCESSOR, submitter: None, replay: None, reason: None, origin: None }.into(),
        TaskReplayHeld { task, attempt, why: HeldWhy::Superseded { by: SUCCESSOR } }.into(),
        TaskReleased { task, attempt, outcome: digest }.into(),
        TaskSucceeded {
            task,
            attempt,
            incarnation,
            result: None,
            outcome: digest,
            usage: Vec::new(),
            already_done: AlreadyDone::No,
        }
        .into(),
        TaskFailed { task, attempt, incarnation, failure: failure(), outcome: digest }.into(),
        TaskDeadLettered { task, failure: failure(), attempts: 1 }.into(),
        TaskExpired { task }.into(),
        TaskCancelled { task, reason: None }.into(),
        TaskApproved { task }.into(),
        TaskRefused { task, reason: None }.into(),
        TaskSchemaChecked { task, verdicts: SchemaVerdicts::default() }.into(),
        TaskStaleReportRefused {
            task,
            attempt,
            agent: agent("a"),
            report: ReportKind::Ack,
            why: StaleWhy::TaskTerminal,
            content: digest,
        }
        .into(),
    ]
}

#[test]
fn every_state_takes_exactly_the_events_that_the_table_has_a_row_for_and_lands_where_it_says() {
    let base = Play::working(submission(TASK)).act(submit(submission(SUCCESSOR)));
    let kinds: Vec<EventKind> = samples().iter().map(EventBody::kind).collect();
    let all = EventKind::ALL.iter().filter(|kind| kind.name().starts_with("task-"));
    assert!(all.clone().all(|kind| kinds.contains(kind)), "a kind has no sample");
    for from in StatusKind::ALL {
        for body in samples().into_iter().filter(|body| body.kind() != EventKind::TaskSubmitted) {
            let mut state = base.state.clone();
            Arc::make_mut(state.tasks.get_mut(&TASK).unwrap()).status = status(from);
            let (kind, seq, at) = (body.kind(), state.seq().next(), base.now);
            let event = Event {
                seq,
                at,
                namespace: Some(namespace()),
                actor: Actor::Hub,
                session: None,
                batch: None,
                trace: None,
                body,
            };
            let taken = apply(&mut state, &event).is_ok();
            let rows = table::rows_of(Some(from), kind);
            assert_eq!(taken, !rows.is_empty(), "{} meets {}", kind.name(), from.name());
            let to = state.task(TASK).map(|task| task.status.kind());
            assert!(!taken || rows.iter().any(|row| Some(row.to) == to), "{} leads to {to:?}", kind.name());
        }
    }
    let first = table::rows_of(None, EventKind::TaskSubmitted);
    assert_eq!(first.iter().map(|row| row.to).collect::<Vec<_>>().len(), 3);
}

#[test]
fn no_row_leads_out_of_a_terminal_state() {
    for row in table::rows().filter(|row| row.from.is_some_and(StatusKind::is_terminal)) {
        assert_eq!(row.from, Some(row.to));
    }
}
