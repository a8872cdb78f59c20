//! Taking a task in: the key against doubles, its bounds, and whether anybody could ever do it.

use std::sync::Arc;

use crate::ledger::ids::{Digest, Namespace};
use crate::ledger::machine::agent::Sensitive;
use crate::ledger::machine::batch::BatchPhase;
use crate::ledger::machine::batch::decide::key_says;
use crate::ledger::machine::catalog::Entry;
use crate::ledger::machine::command::Proposal;
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{Actor, TaskSubmitted, TextRoute};
use crate::ledger::machine::task::LaneId;
use crate::ledger::machine::task::deadline::{end_of_life, first_status};
use crate::ledger::machine::task::spec::{AbsentAgents, Approval, IdempotencyKey, Qos, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::{KeyBinding, State, bounds};
use crate::ledger::time::{Millis, Timestamp};

/// A caller that met a full queue tries again after this.
const QUEUE_FULL_RETRY: Millis = Millis::secs(1);

/// Decides a submission.
pub(super) fn submit(
    state: &State,
    proposal: &Proposal,
    (submission, bound, routed): (&Arc<Submission>, Option<&KeyBinding>, Option<&TextRoute>),
    now: Timestamp,
) -> Decision {
    let Some(namespace) = &proposal.namespace else { return Decision::refuse(Rejection::TaskUnknown) };
    if let Some(key) = &submission.idempotency
        && let Some(answer) = key_says(state, namespace, key, bound, now)
    {
        return Decision { events: Vec::new(), answer };
    }
    match admit(state, proposal, namespace, submission, now) {
        Ok((submission, deadline)) => {
            let answer = Answer::Submitted {
                task: submission.reach_id,
                state: first_status(&submission, now).kind(),
                deadline,
                key_until: submission.idempotency.as_ref().map(|key| key_until(key, deadline, now)),
            };
            Decision::accept(
                vec![TaskSubmitted { submission, deadline, routed: routed.cloned().map(Box::new) }.into()],
                answer,
            )
        }
        Err(reason) => Decision::refuse(reason),
    }
}

/// When a key is forgotten: after its window, never before the task's life is over (semantics 31).
pub(super) fn key_until(key: &IdempotencyKey, deadline: Timestamp, at: Timestamp) -> Timestamp {
    at.after(key.window).max(deadline)
}

/// Every reason to refuse, in the order in which a caller can mend them; gives the submission as it is recorded.
fn admit(
    state: &State,
    proposal: &Proposal,
    namespace: &Namespace,
    submission: &Arc<Submission>,
    now: Timestamp,
) -> Result<(Arc<Submission>, Timestamp), Rejection> {
    if state.task(submission.reach_id).is_some() {
        return Err(Rejection::IdTaken);
    }
    check_batch(state, namespace, submission)?;
    check_scope(state, proposal, submission)?;
    let parent = submission.parent.and_then(|id| state.task(id)).filter(|parent| parent.namespace == *namespace);
    let deadline = end_of_life(state, submission, parent, now);
    if deadline <= now {
        return Err(Rejection::DeadlinePast { deadline, now });
    }
    if submission.not_before.is_some_and(|not_before| not_before >= deadline) {
        return Err(Rejection::NotBeforeAfterDeadline);
    }
    let entry = state.catalog().of(namespace, &submission.capability);
    if entry.is_none() && submission.absent_agents == AbsentAgents::Refuse {
        return Err(Rejection::CapabilityNotRegistered { capability: submission.capability.clone() });
    }
    if let Some(entry) = entry {
        check_schemas(entry, submission)?;
    }
    let mut recorded = Arc::clone(submission);
    if entry.is_some_and(|entry| entry.sensitive == Sensitive::Yes) {
        Arc::make_mut(&mut recorded).approval = Approval::Needed; // R-SUB-9
    }
    check_bounds(state, namespace, &recorded, now)?;
    if let Some(entry) = entry {
        check_pending(state, entry, (namespace, &recorded), now)?;
    }
    Ok((recorded, deadline))
}

/// A task made of an ended one: it waits for room like any other (semantics 22), and its payload must still fit.
pub(super) fn admit_again(
    state: &State,
    namespace: &Namespace,
    mut submission: Submission,
    now: Timestamp,
) -> Result<Submission, Rejection> {
    if state.task(submission.reach_id).is_some() {
        return Err(Rejection::IdTaken);
    }
    // Whoever offered it may come back: the ended task was taken in once.
    submission.absent_agents = AbsentAgents::Wait;
    let entry = state.catalog().of(namespace, &submission.capability);
    if let Some(entry) = entry {
        check_schemas(entry, &submission)?;
        if entry.sensitive == Sensitive::Yes {
            submission.approval = Approval::Needed;
        }
    }
    check_bounds(state, namespace, &submission, now)?;
    if let Some(entry) = entry {
        check_pending(state, entry, (namespace, &submission), now)?;
    }
    Ok(submission)
}

fn check_batch(state: &State, namespace: &Namespace, submission: &Submission) -> Result<(), Rejection> {
    let Some((id, _)) = submission.batch else { return Ok(()) };
    let batch = state.batch(id).filter(|batch| batch.namespace == *namespace).ok_or(Rejection::BatchUnknown)?;
    match batch.phase {
        BatchPhase::Open => Ok(()),
        BatchPhase::Closed { .. } | BatchPhase::Settled { .. } => Err(Rejection::BatchNotOpen { batch: id }),
    }
}

/// A token that names capabilities may call no other (R-SEC-1).
fn check_scope(state: &State, proposal: &Proposal, submission: &Submission) -> Result<(), Rejection> {
    let token = match &proposal.actor {
        Actor::Token(id) => state.access().tokens.get(id),
        Actor::Hub | Actor::Agent { .. } => None,
    };
    let allowed =
        token.is_none_or(|token| token.capabilities.is_empty() || token.capabilities.contains(&submission.capability));
    if allowed {
        return Ok(());
    }
    Err(Rejection::CapabilityNotAllowed { capability: submission.capability.clone() })
}

/// Refused only if no provider would take the payload: one set without a refusing schema is enough (semantics 18).
fn check_schemas(entry: &Entry, submission: &Submission) -> Result<(), Rejection> {
    let refused = &submission.schemas.refused;
    let refuses = |set: &Vec<Digest>| set.iter().any(|schema| refused.contains(schema));
    if !entry.schema_sets.is_empty() && entry.schema_sets.iter().all(refuses) {
        return Err(Rejection::PayloadRefused { schemas: refused.clone() });
    }
    Ok(())
}

/// Semantics 22: background is refused first, urgent last. What was admitted once is never refused again.
fn check_bounds(
    state: &State,
    namespace: &Namespace,
    submission: &Submission,
    now: Timestamp,
) -> Result<(), Rejection> {
    bounds::namespace(state, namespace)?;
    let policy = state.policies().of(namespace);
    let full = |bound, limit| Rejection::QueueFull { bound, limit, retry_after: QUEUE_FULL_RETRY };
    let limit = share(submission.qos, policy.namespace_bound);
    let in_memory = state.counts().get(namespace).map_or(0, crate::ledger::machine::NamespaceCount::total);
    if in_memory >= limit {
        return Err(full("namespace", limit));
    }
    let limit = share(submission.qos, policy.lane_bound);
    let enters_lane = first_status(submission, now).kind() == StatusKind::Queued;
    if enters_lane && state.lane_len(lane_of(namespace, submission)) >= limit {
        return Err(full("lane", limit));
    }
    Ok(())
}

/// Semantics 22: the agents say how much may be pending for them, together. Work that is not yet ready does not count.
fn check_pending(
    state: &State,
    entry: &Entry,
    (namespace, submission): (&Namespace, &Submission),
    now: Timestamp,
) -> Result<(), Rejection> {
    let limit = share(submission.qos, u32::try_from(entry.max_pending).unwrap_or(u32::MAX));
    let count = state.counts().get(namespace);
    let pending = count.and_then(|count| count.pending.get(&submission.capability)).copied().unwrap_or(0);
    if first_status(submission, now).kind() == StatusKind::Queued && pending >= limit {
        return Err(Rejection::QueueFull { bound: "agent", limit, retry_after: QUEUE_FULL_RETRY });
    }
    Ok(())
}

fn share(qos: Qos, bound: u32) -> u32 {
    let percent = match qos {
        Qos::Urgent => 100,
        Qos::Normal => 95,
        Qos::Background => 80,
    };
    let share = (u64::from(bound) * percent).div_ceil(100);
    u32::try_from(share).unwrap_or(bound)
}

/// The lane of a submission: a digest over namespace, capability and requirements, each part with its length so that
/// no two differ only in where one part ends.
pub(super) fn lane_of(namespace: &Namespace, submission: &Submission) -> LaneId {
    let requires = &submission.requires;
    let mut canonical = Vec::new();
    let mut put = |tag: u8, text: &str| {
        canonical.push(tag);
        canonical.extend_from_slice(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        canonical.extend_from_slice(text.as_bytes());
    };
    put(0, namespace.as_str());
    put(1, submission.capability.as_str());
    for tool in &requires.tools {
        put(2, tool);
    }
    if let Some(window) = requires.context_window {
        put(3, &window.to_string());
    }
    for language in &requires.languages {
        put(4, language);
    }
    if let Some(region) = &requires.region {
        put(5, region);
    }
    if let Some(version) = &requires.version {
        put(6, version);
    }
    let mut lane = [0; 16];
    lane.copy_from_slice(Digest::of(&[b"lane", &canonical]).0.split_at(16).0);
    LaneId(lane)
}
