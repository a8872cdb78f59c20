//! Samples of rows beside the log. New ones stand at the end.

use agent_reach::ledger::ids::{Namespace, ReplayId, Seq};
use agent_reach::ledger::machine::callback::{CallbackState, CallbackSubject};
use agent_reach::ledger::machine::command::CallbackRow;
use agent_reach::ledger::machine::success::Success;
use agent_reach::ledger::machine::{KeyBinding, KeySubject};

use super::{BATCH, SUBJECT, TASK, at, digest, token_id};

/// What idempotency keys are bound to, each once.
pub(crate) fn keys() -> Vec<KeyBinding> {
    let subjects = [KeySubject::Task(TASK), KeySubject::Batch(BATCH), KeySubject::Replay(ReplayId([0x55; 16]))];
    let binding = |bound_to| KeyBinding {
        bound_to,
        fingerprint: digest(0x66),
        subject: token_id(),
        receipt: Seq(70_002),
        until: at(86_400_000),
    };
    subjects.map(binding).to_vec()
}

/// A callback as it is kept, settled in each way.
pub(crate) fn callback_rows() -> Vec<CallbackRow> {
    let row = |(state, subject)| CallbackRow {
        namespace: Namespace::new("team-a").unwrap(),
        subject,
        seq: Seq(70_003),
        url: "https://a.example/hook".into(),
        secret_ref: "default".into(),
        state,
        attempts: 32,
        last_error: (state != CallbackState::Delivered).then(|| "http-500".into()),
        at: at(9_000),
    };
    let batch = CallbackSubject::Batch(BATCH);
    let settled = [
        (CallbackState::Delivered, SUBJECT),
        (CallbackState::Exhausted, SUBJECT),
        (CallbackState::Blocked, batch),
        (CallbackState::Gone, batch),
    ];
    settled.map(row).to_vec()
}

/// The newest success of a session.
pub(crate) fn success() -> Success {
    Success { place: Seq(70_004), task: TASK }
}
