//! Facts: what a decision needs from outside the state, read right before it, and the rows that it leaves behind.
//!
//! The core must not read a disk or hold a key, so the sequencer's shell fills commands here (semantics 1, 16). The
//! state is asked first, then the disk: what was decided but is not yet durable is still in the state, so there is no
//! window in which both miss it.

use std::sync::Arc;

use crate::ledger::ids::{AgentKey, Namespace, ReachId, Seq};
use crate::ledger::keys::Keys;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Actor, EventKind};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{IdempotencyKey, MAX_STALE_EVENTS};
use crate::ledger::machine::{Fact, KeyBinding, State};
use crate::ledger::planner::Note;
use crate::ledger::store::{ReadError, Rows, Store, StoredEvent};

/// Later events of a finished task that are read for one report.
const LOOKED_AT: usize = 128;

/// Fills in what the command's decision needs.
///
/// # Errors
/// [`ReadError`] when the disk fails: then nothing can be decided.
#[expect(clippy::wildcard_enum_match_arm, reason = "the commands that need no fact are the many")]
pub fn fill(proposal: &mut Proposal, state: &State, store: &dyn Store, keys: &Keys) -> Result<(), ReadError> {
    let namespace = proposal.namespace.clone();
    match &mut proposal.command {
        Command::SubmitTask { submission, bound } => {
            *bound = binding(namespace.as_ref(), submission.idempotency.as_deref(), state, store)?;
        }
        Command::OpenBatch { idempotency, bound, .. } => {
            *bound = binding(namespace.as_ref(), idempotency.as_ref(), state, store)?;
        }
        Command::Report(report) => report.fact = reported_on(report.task, state, store)?,
        Command::CancelTask { task, fact, .. } => *fact = finished(*task, state, store)?,
        Command::DispatchTask { task, lease, .. } => {
            if let Some(attempt) = state.task(*task).map(|task| task.attempt.next()) {
                *lease = keys.lease_digest(state.lineage(), *task, attempt);
            }
        }
        Command::RedriveCallback { callback, row } if state.callback(*callback).is_none() => {
            *row = store.callback(*callback)?;
        }
        _ => {}
    }
    Ok(())
}

fn binding(
    namespace: Option<&Namespace>,
    key: Option<&IdempotencyKey>,
    state: &State,
    store: &dyn Store,
) -> Result<Option<KeyBinding>, ReadError> {
    match (namespace, key) {
        (Some(namespace), Some(key)) if state.key(namespace, &key.key).is_none() => store.key(namespace, &key.key),
        _ => Ok(None),
    }
}

/// The row of a task that has left memory, with its later events.
fn finished(task: ReachId, state: &State, store: &dyn Store) -> Result<Option<Fact>, ReadError> {
    let Some(mut row) = row_of(task, state, store)? else { return Ok(None) };
    row.seqs.extend(store.after(task)?);
    Ok(Some(Fact::Finished(Arc::new(row))))
}

/// As [`finished`], with the stale reports that were recorded later: they are bounded over the task's whole life
/// (semantics 36). Among the later events are those of its callback, which do not count; beyond [`LOOKED_AT`] nobody
/// looks, and all count.
fn reported_on(task: ReachId, state: &State, store: &dyn Store) -> Result<Option<Fact>, ReadError> {
    let Some(mut row) = row_of(task, state, store)? else { return Ok(None) };
    let later = store.after(task)?;
    for (looked, seq) in later.iter().enumerate() {
        if row.stale_reports >= MAX_STALE_EVENTS {
            break;
        }
        let counts = looked >= LOOKED_AT || store.event(*seq)?.is_none_or(|stored| is_stale(&stored));
        row.stale_reports = row.stale_reports.saturating_add(u32::from(counts));
    }
    row.seqs.extend(later);
    Ok(Some(Fact::Finished(Arc::new(row))))
}

fn row_of(task: ReachId, state: &State, store: &dyn Store) -> Result<Option<Task>, ReadError> {
    if state.task(task).is_some() { Ok(None) } else { store.finished(task) }
}

fn is_stale(stored: &StoredEvent) -> bool {
    stored.event.body.kind() == EventKind::TaskStaleReportRefused
}

/// The rows of what left memory after `base`.
#[must_use]
pub fn rows(state: &State, base: Seq) -> Rows {
    let sealed = state.sealed(base);
    Rows {
        finished: sealed.tasks,
        after: sealed.after,
        keys: sealed.keys,
        batches: sealed.batches,
        callbacks: sealed.callbacks,
    }
}

/// Any accepted call that names agent and current incarnation counts as a heartbeat (semantics 3).
#[expect(clippy::wildcard_enum_match_arm, reason = "the commands that name no agent are the many")]
#[must_use]
pub fn beat_of(proposal: &Proposal, state: &State) -> Option<Note> {
    let (agent, incarnation) = match &proposal.command {
        Command::RegisterAgent { agent, .. } => (agent, None),
        Command::Heartbeat { agent, incarnation, .. } => (agent, Some(*incarnation)),
        Command::Report(report) if proposal.actor != Actor::Hub => (&report.agent, Some(report.incarnation)),
        _ => return None,
    };
    let key = AgentKey { namespace: proposal.namespace.clone()?, agent_id: agent.clone() };
    let current = state.agent(&key)?.incarnation;
    (incarnation.is_none_or(|named| named == current)).then_some(Note::Beat {
        agent: key,
        incarnation: current,
        load: None,
    })
}
