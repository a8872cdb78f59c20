//! What the hub's shell adds to a command before it is decided, and what its senders find outstanding.

use std::sync::Arc;

use agent_reach::ledger::ids::{AgentKey, AttemptNo, CallbackId, Incarnation, LeaseDigest, Namespace, ReachId, Seq};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::callback::CallbackSubject;
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::decision::{Answer, ReceiptOf};
use agent_reach::ledger::machine::event::Actor;
use agent_reach::ledger::machine::task::spec::IdempotencyKey;
use agent_reach::ledger::machine::{Fact, KeyBinding, State};
use agent_reach::ledger::planner::Note;
use agent_reach::ledger::store::Store;
use agent_reach::ledger::time::Timestamp;

use crate::sabotage::Sabotage;

/// One push that nobody has acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Push {
    pub(crate) task: ReachId,
    pub(crate) attempt: AttemptNo,
    pub(crate) agent: AgentKey,
    pub(crate) incarnation: Incarnation,
    pub(crate) lease: LeaseDigest,
}

/// One callback to be tried.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) id: CallbackId,
    pub(crate) namespace: Namespace,
    pub(crate) subject: CallbackSubject,
    pub(crate) seq: Seq,
    pub(crate) url: Arc<str>,
    /// The number of this try.
    pub(crate) attempt: u32,
}

/// What the hub's senders have to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects {
    pub(crate) pushes: Vec<Push>,
    pub(crate) calls: Vec<Call>,
    /// When the next callback is due.
    pub(crate) next: Option<Timestamp>,
}

/// Level-triggered: whatever the state says is outstanding.
pub(crate) fn outstanding(state: &State, keys: &Keys, now: Timestamp) -> Effects {
    let pushes = state.pushes().iter().filter_map(|id| {
        let task = state.task(*id)?;
        let lease = task.status.lease()?;
        Some(Push {
            task: *id,
            attempt: lease.attempt,
            agent: AgentKey { namespace: task.namespace.clone(), agent_id: lease.agent.clone() },
            incarnation: lease.incarnation,
            lease: keys.lease_digest(state.lineage(), *id, lease.attempt),
        })
    });
    let due = state.callbacks_due().iter().take_while(|(at, _)| *at <= now);
    let calls = due.filter_map(|(_, id)| state.callback(*id)).map(|callback| Call {
        id: callback.id,
        namespace: callback.namespace.clone(),
        subject: callback.subject,
        seq: callback.seq,
        url: Arc::clone(&callback.url),
        attempt: callback.attempts + 1,
    });
    let next = state.callbacks_due().iter().map(|(at, _)| *at).find(|at| *at > now);
    Effects { pushes: pushes.collect(), calls: calls.collect(), next }
}

/// Fills in what the command's decision needs; the state is asked first, then the store.
#[expect(clippy::wildcard_enum_match_arm, reason = "the commands that need no fact are the many")]
pub(crate) fn fill(proposal: &mut Proposal, state: &State, store: &dyn Store, keys: &Keys, sabotage: Sabotage) {
    let namespace = proposal.namespace.clone();
    let binding = |key: Option<&IdempotencyKey>| -> Option<KeyBinding> {
        let (namespace, key) = namespace.as_ref().zip(key)?;
        if sabotage == Sabotage::KeysForgotten || state.key(namespace, &key.key).is_some() {
            return None;
        }
        store.key(namespace, &key.key).expect("the memory store reads")
    };
    let finished = |task: ReachId| -> Option<Fact> {
        if state.task(task).is_some() {
            return None;
        }
        let mut row = store.finished(task).expect("the memory store reads")?;
        let later = store.after(task).expect("the memory store reads");
        row.stale_reports = row.stale_reports.saturating_add(u32::try_from(later.len()).unwrap_or(u32::MAX));
        row.seqs.extend(later);
        Some(Fact::Finished(Arc::new(row)))
    };
    match &mut proposal.command {
        Command::SubmitTask { submission, bound } => *bound = binding(submission.idempotency.as_deref()),
        Command::OpenBatch { idempotency, bound, .. } => *bound = binding(idempotency.as_ref()),
        Command::Report(report) => {
            report.fact = finished(report.task);
            if sabotage == Sabotage::NoFence
                && let Some(lease) = state.task(report.task).and_then(|task| task.status.lease())
            {
                (report.attempt, report.lease) = (lease.attempt, lease.digest);
                (report.agent, report.incarnation) = (lease.agent.clone(), lease.incarnation);
            }
        }
        Command::CancelTask { task, fact, .. } => *fact = finished(*task),
        Command::DispatchTask { task, lease, .. } => {
            if let Some(attempt) = state.task(*task).map(|task| task.attempt.next()) {
                *lease = keys.lease_digest(state.lineage(), *task, attempt);
            }
        }
        Command::RedriveCallback { callback, row } if state.callback(*callback).is_none() => {
            *row = store.callback(*callback).expect("the memory store reads");
        }
        _ => {}
    }
}

/// Any accepted call that names agent and current incarnation counts as a heartbeat (semantics 3).
#[expect(clippy::wildcard_enum_match_arm, reason = "the commands that name no agent are the many")]
pub(crate) fn beat_of(proposal: &Proposal, state: &State) -> Option<Note> {
    let (agent, incarnation) = match &proposal.command {
        Command::RegisterAgent { agent, .. } => (agent, None),
        Command::Heartbeat { agent, incarnation, .. } => (agent, Some(*incarnation)),
        Command::Report(report) if proposal.actor != Actor::Hub => (&report.agent, Some(report.incarnation)),
        _ => return None,
    };
    let key = AgentKey { namespace: proposal.namespace.clone()?, agent_id: agent.clone() };
    let current = state.agent(&key)?.incarnation;
    incarnation.is_none_or(|named| named == current).then_some(Note::Beat {
        agent: key,
        incarnation: current,
        load: None,
    })
}

/// Which receipt an answer gives, of a step that wrote the events `first..=last`.
pub(crate) fn receipt_of(answer: &Answer, first: Seq, last: Seq) -> Option<Seq> {
    let wrote = last >= first;
    match answer {
        Answer::Reported { receipt, .. } => match receipt {
            ReceiptOf::Last => wrote.then_some(last),
            ReceiptOf::First => wrote.then_some(first),
            ReceiptOf::Earlier(seq) => Some(*seq),
            ReceiptOf::None => None,
        },
        Answer::Replayed { receipt, .. } => Some(*receipt),
        Answer::Beat(_) => None,
        Answer::Registered { .. }
        | Answer::Submitted { .. }
        | Answer::Dispatched { .. }
        | Answer::Task { .. }
        | Answer::BatchOpened
        | Answer::BatchClosed
        | Answer::Done => wrote.then_some(first),
    }
}
