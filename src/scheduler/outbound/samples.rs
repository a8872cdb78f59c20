//! Sample values for the tests beside.

use std::sync::Arc;

use crate::ledger::handle::Handed;
use crate::ledger::ids::{AttemptNo, FairnessKey, Namespace, ReachId, SessionId, TraceContext};
use crate::ledger::machine::task::samples;
use crate::ledger::machine::task::spec::{SchemaVerdicts, Submission};
use crate::ledger::time::{Millis, SimClock};

pub(super) fn namespace() -> Namespace {
    Namespace::new("dev").expect("an id")
}

pub(super) fn submission(id: ReachId) -> Submission {
    Submission {
        session: SessionId::new("trip-42").ok(),
        context_path: Some("s3://ctx/42".into()),
        labels: vec![("line".into(), "travel".into()), ("a".into(), "b".into())],
        fairness_key: FairnessKey::new("tok").expect("an id"),
        ..samples::submission(id, "weather.forecast")
    }
}

pub(super) fn handed(id: ReachId) -> Handed {
    Handed {
        namespace: namespace(),
        spec: Arc::new(submission(id)),
        attempt: AttemptNo(2),
        deadline: SimClock::START.after(Millis::secs(86_400)),
        reach_deadline: SimClock::START.after(Millis::secs(3)),
        work_timeout: Millis::secs(60),
        replay: None,
        trace: Some(TraceContext { trace_id: [1; 16], span_id: [2; 8], flags: 1 }),
    }
}

pub(super) fn task(id: ReachId) -> crate::ledger::machine::task::Task {
    use crate::ledger::machine::task::status::Status;
    use crate::ledger::machine::task::{LaneId, Task};
    Task {
        namespace: namespace(),
        spec: Arc::new(submission(id)),
        status: Status::Queued { since: SimClock::START, wait_until: None },
        lane: LaneId::default(),
        submitted_at: SimClock::START,
        deadline: SimClock::START.after(Millis::secs(86_400)),
        ended_at: None,
        attempt: AttemptNo(0),
        acked: None,
        retries_used: 0,
        interruptions: 0,
        never_started: 0,
        avoid: None,
        agent: None,
        ended_by: None,
        last_lease: None,
        submitter: None,
        schemas: SchemaVerdicts::default(),
        progress: None,
        progress_events: 0,
        reach_outcome: None,
        work_outcome: None,
        result: None,
        failure: None,
        outcomes: Vec::new(),
        callback: None,
        callbacks_open: 0,
        stale_reports: 0,
        seqs: Vec::new(),
        trace: None,
    }
}
