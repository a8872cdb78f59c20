//! The product's own facts for a command, under a sabotage, and what the hub's senders find outstanding.

use std::sync::Arc;

use agent_reach::ledger::facts;
use agent_reach::ledger::ids::{AgentKey, AttemptNo, CallbackId, Incarnation, LeaseDigest, Namespace, ReachId, Seq};
use agent_reach::ledger::keys::Keys;
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::callback::CallbackSubject;
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::event::Event;
use agent_reach::ledger::machine::replay::order::Amendment;
use agent_reach::ledger::store::{Body, BodyKey, Store};
use agent_reach::ledger::time::Timestamp;

use crate::sabotage::Sabotage;

/// The payloads of tasks that were made of ended ones, as the product copies them.
pub(crate) fn inherited(events: &[Event], store: &dyn Store, sabotage: Sabotage) -> Vec<(BodyKey, Body)> {
    if sabotage == Sabotage::PayloadsForgotten {
        return Vec::new();
    }
    facts::inherited(events, &[], store).expect("the memory store reads")
}

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

/// What the product fills in for the decision and brings if that is carried out, and what a sabotage makes of it.
pub(crate) fn fill(
    proposal: &mut Proposal,
    state: &State,
    store: &dyn Store,
    keys: &Keys,
    sabotage: Sabotage,
) -> Vec<(BodyKey, Body)> {
    if let Command::ReplayItem(item) = &mut proposal.command
        && let Some(amendment) = &mut item.amendment
    {
        forget_what_is_said(amendment, sabotage);
    }
    let brings = facts::fill(proposal, state, store, keys).expect("the memory store reads");
    match (sabotage, &mut proposal.command) {
        (Sabotage::KeysForgotten, Command::SubmitTask { bound, .. } | Command::OpenBatch { bound, .. }) => {
            *bound = None
        }
        (Sabotage::NoFence, Command::Report(report)) => {
            if let Some(lease) = state.task(report.task).and_then(|task| task.status.lease()) {
                (report.attempt, report.lease) = (lease.attempt, lease.digest);
                (report.agent, report.incarnation) = (lease.agent.clone(), lease.incarnation);
            }
        }
        (Sabotage::RedrivesForgotten, Command::RedriveTask(order)) => {
            order.before.iter_mut().for_each(|before| before.redriven_as = None);
        }
        (Sabotage::RedrivesForgotten, Command::ReplayItem(item)) => {
            item.before.iter_mut().for_each(|before| before.redriven_as = None);
        }
        (Sabotage::SuccessesForgotten, Command::ReplayTask { superseded_by, .. }) => *superseded_by = None,
        (Sabotage::SuccessesForgotten, Command::ReplayItem(item)) => {
            item.before.iter_mut().for_each(|before| before.superseded_by = None);
        }
        _ => {}
    }
    brings
}

/// The saboteur's hub does not heed all that a list says of a payload.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about two sabotages; the rest heed the list")]
fn forget_what_is_said(amendment: &mut Amendment, sabotage: Sabotage) {
    match sabotage {
        Sabotage::PatchesForgotten => amendment.patch = None,
        Sabotage::VerdictsForgotten => amendment.schemas = Arc::default(),
        _ => {}
    }
}
