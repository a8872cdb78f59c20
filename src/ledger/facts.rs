//! Facts: what a decision needs from outside the state, read right before it, and the rows that it leaves behind.
//!
//! The core must not read a disk or hold a key, so the sequencer's shell fills commands here (semantics 1, 16). The
//! state is asked first, then the disk: what was decided but is not yet durable is still in the state, so there is no
//! window in which both miss it.

use std::sync::Arc;

use crate::ledger::ids::{AgentKey, Digest, Namespace, ReachId, Seq, SessionId};
use crate::ledger::keys::Keys;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Actor, Event, EventBody, EventKind, TaskRedriven};
use crate::ledger::machine::replay::order::{Before, Patched, ReplayItem};
use crate::ledger::machine::replay::{ItemAction, Skip, would_go};
use crate::ledger::machine::success::{Origin, Success};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{BodyRef, IdempotencyKey, MAX_STALE_EVENTS};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::{Fact, KeyBinding, State};
use crate::ledger::merge_patch::patched;
use crate::ledger::planner::Note;
use crate::ledger::store::{Body, BodyKey, BodyKind, FinishedFilter, Kept, ReadError, Rows, Store, StoredEvent};

/// Later events of a finished task that are read for one report, and ended tasks of a session that are read where
/// successes have no row.
const LOOKED_AT: usize = 128;
/// Links of a chain of redrives that are followed one by one.
const CHAIN: usize = 64;

/// Bodies that come with a proposal.
pub type Brought = [(BodyKey, Body)];

/// Fills in what the command's decision needs; answers the bodies that it brings if it is carried out.
///
/// # Errors
/// [`ReadError`] when the disk fails: then nothing can be decided.
#[expect(clippy::wildcard_enum_match_arm, reason = "the commands that need no fact are the many")]
pub fn fill(
    proposal: &mut Proposal,
    state: &State,
    store: &dyn Store,
    keys: &Keys,
) -> Result<Vec<(BodyKey, Body)>, ReadError> {
    let namespace = proposal.namespace.clone();
    let mut brings = Vec::new();
    match &mut proposal.command {
        Command::SubmitTask { submission, bound, .. } => {
            *bound = binding(namespace.as_ref(), submission.idempotency.as_deref(), state, store)?;
        }
        Command::OpenBatch { idempotency, bound, .. } => {
            *bound = binding(namespace.as_ref(), idempotency.as_ref(), state, store)?;
        }
        Command::PlanReplay(order) => {
            order.bound = binding(namespace.as_ref(), order.idempotency.as_ref(), state, store)?;
        }
        Command::Report(report) => report.fact = reported_on(report.task, state, store)?,
        Command::CancelTask { task, fact, .. } => *fact = finished(*task, state, store)?,
        Command::RedriveTask(order) => order.before = Some(before_redrive(order.task, state, store)?),
        Command::ReplayItem(item) => brings.extend(before_item(item, namespace.as_ref(), state, store)?),
        Command::ReplayTask { task, superseded_by } => {
            if let Some(orphan) = state.task(*task) {
                *superseded_by = superseded_orphan(orphan, state, store)?;
            }
        }
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
    Ok(brings)
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

/// What the disk knows of an unfinished task that a plan lets back into the queue: that it has ended meanwhile, or that
/// a newer one of its session has succeeded (R-REC-3).
fn before_replay(id: ReachId, state: &State, store: &dyn Store) -> Result<Before, ReadError> {
    match state.task(id) {
        Some(task) => Ok(Before { superseded_by: superseded_orphan(task, state, store)?, ..Before::default() }),
        None => Ok(Before { finished: store.finished(id)?.map(Arc::new), ..Before::default() }),
    }
}

/// What the disk knows of an item's task; and the payload that its plan's patch makes, if the item goes with it.
fn before_item(
    item: &mut ReplayItem,
    namespace: Option<&Namespace>,
    state: &State,
    store: &dyn Store,
) -> Result<Option<(BodyKey, Body)>, ReadError> {
    let patch = item.amendment.as_ref().and_then(|amendment| amendment.patch.clone());
    let Some(patch) = patch.filter(|_| item.action == ItemAction::Redrive) else {
        item.before = Some(match item.action {
            ItemAction::Replay => before_replay(item.task, state, store)?,
            ItemAction::Redrive => before_redrive(item.task, state, store)?,
        });
        return Ok(None);
    };
    let before = Before { patched: Some(Patched::NotMade), ..history(item.task, state, store)? };
    item.before = Some(before);
    // A payload is only read, and taken apart, for what the rules let go.
    let goes = would_go(state, namespace, item);
    let Some(before) = item.before.as_mut().filter(|_| goes) else { return Ok(None) };
    let (patched, made) = if before.has_payload {
        patch_payload((item.task, item.replay.successor(item.task)), &patch, store)?
    } else {
        (Some(Patched::Left(Skip::PayloadNotInline)), None)
    };
    // One that was erased is told as such.
    (before.has_payload, before.patched) = (patched.is_some(), patched);
    Ok(made)
}

/// What the disk knows of an ended task that is to be made anew (semantics 16, 28, 40).
fn before_redrive(id: ReachId, state: &State, store: &dyn Store) -> Result<Before, ReadError> {
    let mut before = history(id, state, store)?;
    if before.has_payload {
        let key = BodyKey::Task { task: id, kind: BodyKind::Payload, attempt: 0 };
        before.has_payload = store.body(&key)?.is_some();
    }
    Ok(before)
}

/// As [`before_redrive`], without a look at its payload: it says whether it had one.
fn history(id: ReachId, state: &State, store: &dyn Store) -> Result<Before, ReadError> {
    let finished = row_of(id, state, store)?;
    let Some(task) = finished.as_ref().or_else(|| state.task(id)) else { return Ok(Before::default()) };
    if !task.status.kind().is_terminal() {
        return Ok(Before::default());
    }
    let mut later: Vec<Seq> = task.seqs.iter().copied().filter(|seq| Some(*seq) > task.ended_by).collect();
    later.extend(store.after(id)?);
    Ok(Before {
        redriven_as: redriven_as(id, &later, store)?,
        has_payload: task.spec.payload.is_some(),
        superseded_by: superseded_by(task, state, store)?,
        origin: origin(id, state, store)?,
        finished: finished.map(Arc::new),
        patched: None,
    })
}

/// What is told of a patched payload, and itself.
type PatchedBody = (Option<Patched>, Option<(BodyKey, Body)>);

/// The payload that a plan's patch makes of that of the first of two tasks, for the second; `None` if it is gone.
fn patch_payload(
    (task, successor): (ReachId, ReachId),
    patch: &[u8],
    store: &dyn Store,
) -> Result<PatchedBody, ReadError> {
    let key = |task| BodyKey::Task { task, kind: BodyKind::Payload, attempt: 0 };
    let Some(old) = store.body(&key(task))? else { return Ok((None, None)) };
    Ok(match patched(&old.bytes, patch) {
        Err(why) => (Some(Patched::Left(why.skip())), None),
        Ok(bytes) => {
            let body = Body { salt: salt_of(&old, successor), bytes: bytes.into() };
            let len = u32::try_from(body.bytes.len()).unwrap_or(u32::MAX);
            (Some(Patched::Made(BodyRef { digest: body.digest(), len })), Some((key(successor), body)))
        }
    })
}

/// A salt that is as secret as that of the first payload, and the same at every try.
fn salt_of(old: &Body, successor: ReachId) -> [u8; 16] {
    let Digest(digest) = Digest::of(&[b"patched", &old.salt, &successor.0]);
    digest.first_chunk().copied().unwrap_or_default()
}

/// The task that was made of this one, if a later event of its history says so.
///
/// # Errors
/// [`ReadError`] when the disk fails.
pub fn redriven_as(id: ReachId, later: &[Seq], store: &dyn Store) -> Result<Option<ReachId>, ReadError> {
    // The link is the last or among the last: callbacks of the first end are told before anybody makes it anew.
    for seq in later.iter().rev() {
        if let Some(stored) = store.event(*seq)?
            && let EventBody::TaskRedriven(body) = &stored.event.body
            && body.task == id
        {
            return Ok(Some(body.successor));
        }
    }
    Ok(None)
}

/// The task that this one was made of: the second event of its history says so.
///
/// # Errors
/// [`ReadError`] when the disk fails.
pub fn redrive_of(task: ReachId, second: Option<Seq>, store: &dyn Store) -> Result<Option<ReachId>, ReadError> {
    Ok(link(task, second, store)?.map(|link| link.task))
}

fn link(task: ReachId, second: Option<Seq>, store: &dyn Store) -> Result<Option<TaskRedriven>, ReadError> {
    let Some(second) = second else { return Ok(None) };
    let Some(stored) = store.event(second)? else { return Ok(None) };
    let EventBody::TaskRedriven(body) = stored.event.body else { return Ok(None) };
    Ok((body.successor == task).then_some(body))
}

/// Where the chain of redrives began that this task ends: with itself, if it was made of none. A link tells it at once;
/// one that was written before links told it is followed, at most [`CHAIN`] times.
///
/// # Errors
/// [`ReadError`] when the disk fails.
pub fn origin(id: ReachId, state: &State, store: &dyn Store) -> Result<Option<Origin>, ReadError> {
    let mut at = id;
    for _ in 0..CHAIN {
        if let Some(origin) = state.origin(at) {
            return Ok(Some(origin));
        }
        let older = if state.task(at).is_some() {
            state.kin(at).redrive_of
        } else {
            let Some(row) = store.finished(at)? else { return Ok(None) };
            match link(at, row.seqs.get(1).copied(), store)? {
                None => return Ok(row.seqs.first().map(|seq| Origin { task: at, seq: *seq })),
                Some(TaskRedriven { origin: Some(origin), .. }) => return Ok(Some(origin)),
                Some(link) => Some(link.task),
            }
        };
        let Some(older) = older else { return Ok(None) };
        at = older;
    }
    Ok(None)
}

/// As [`superseded_by`], of a task that a replay would let back into the queue.
fn superseded_orphan(task: &Task, state: &State, store: &dyn Store) -> Result<Option<ReachId>, ReadError> {
    match task.status.kind() {
        StatusKind::Orphaned | StatusKind::SlowReach => superseded_by(task, state, store),
        StatusKind::AwaitingApproval
        | StatusKind::Scheduled
        | StatusKind::Queued
        | StatusKind::Dispatched
        | StatusKind::Processing
        | StatusKind::Retrying
        | StatusKind::Succeeded
        | StatusKind::Failed
        | StatusKind::DeadLetter
        | StatusKind::Expired
        | StatusKind::Cancelled => Ok(None),
    }
}

/// A task of the same session that was submitted later and has succeeded (R-REC-3). One that was made of an older task
/// is as old as that. The state knows those in memory, one row those that have left it.
///
/// # Errors
/// [`ReadError`] when the disk fails.
pub fn superseded_by(task: &Task, state: &State, store: &dyn Store) -> Result<Option<ReachId>, ReadError> {
    let Some(session) = &task.spec.session else { return Ok(None) };
    let own = origin(task.id(), state, store)?.map(|origin| origin.seq);
    let place = own.or_else(|| task.seqs.first().copied()).unwrap_or_default();
    match state.newest_success(&task.namespace, session).and_then(|success| newer(success, place)) {
        Some(by) => Ok(Some(by)),
        None => succeeded_after((&task.namespace, session), place, store),
    }
}

/// The task of a success, if that was submitted after a place.
#[must_use]
pub fn newer(success: Success, place: Seq) -> Option<ReachId> {
    (success.place > place).then_some(success.task)
}

/// A task of a session that was submitted after a place, has succeeded and has left memory.
///
/// # Errors
/// [`ReadError`] when the disk fails.
pub fn succeeded_after(
    (namespace, session): (&Namespace, &SessionId),
    place: Seq,
    store: &dyn Store,
) -> Result<Option<ReachId>, ReadError> {
    let newest = store.newest_success(namespace, session)?;
    match (newest.success.and_then(|success| newer(success, place)), newest.kept) {
        (Some(by), _) => Ok(Some(by)),
        (None, Kept::Always) => Ok(None),
        (None, Kept::Lately) => among_old((namespace, session), place, store),
    }
}

/// The same in a folder that was begun before successes had rows: looked for among the [`LOOKED_AT`] newest ended tasks
/// of the session. One that was made of an older one does not count there.
fn among_old(
    (namespace, session): (&Namespace, &SessionId),
    place: Seq,
    store: &dyn Store,
) -> Result<Option<ReachId>, ReadError> {
    let filter = FinishedFilter { session: Some(session.clone()), ..FinishedFilter::default() };
    for newer in store.list_finished(namespace, &filter, None, LOOKED_AT)? {
        let succeeded = newer.status.kind() == StatusKind::Succeeded;
        if succeeded
            && newer.seqs.first().copied() > Some(place)
            && link(newer.id(), newer.seqs.get(1).copied(), store)?.is_none()
        {
            return Ok(Some(newer.id()));
        }
    }
    Ok(None)
}

/// The payloads of tasks that were made of ended ones: each keeps its own, so that each can be erased by itself. Of one
/// that brought another payload nothing is read.
///
/// # Errors
/// [`ReadError`] when the disk fails.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about two kinds; no other brings a payload")]
pub fn inherited(events: &[Event], brought: &Brought, store: &dyn Store) -> Result<Vec<(BodyKey, Body)>, ReadError> {
    let mut bodies = Vec::new();
    let mut named = None;
    for event in events {
        match &event.body {
            // The submission stands right before the link. A corrected payload came with the call.
            EventBody::TaskSubmitted(body) => named = body.submission.payload.as_ref().map(|payload| payload.digest),
            EventBody::TaskRedriven(body) => {
                let key = |task| BodyKey::Task { task, kind: BodyKind::Payload, attempt: 0 };
                let is_own = brought.iter().any(|(place, _)| *place == key(body.successor));
                let payload = if named.is_some() && !is_own { store.body(&key(body.task))? } else { None };
                let same = payload.filter(|payload| Some(payload.digest()) == named);
                bodies.extend(same.map(|payload| (key(body.successor), payload)));
            }
            _ => {}
        }
    }
    Ok(bodies)
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
        replays: sealed.replays,
        callbacks: sealed.callbacks,
        successes: sealed.successes,
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

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
