//! What a run leaves for the invariants: the events as they are in the ledger, sorted by task, and what the outside saw
//! while it ran. No rule of the core is used to read it, so a mistake of the core does not excuse itself here.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{
    AgentKey, AttemptNo, CallbackId, Digest, Incarnation, LeaseDigest, Lineage, Namespace, ReachId, ReplayId, Seq,
    TokenId,
};
use agent_reach::ledger::machine::callback::CallbackSubject;
use agent_reach::ledger::machine::event::{Actor, Event, EventBody, ReplayPlanned};
use agent_reach::ledger::machine::task::spec::{BodyRef, Submission};
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::store::Body;
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::recovery::list::{Amendments, PlanItem};

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    Caller(usize),
    Agent(usize),
    /// The hub's own senders: pushes and callbacks.
    Sender,
    Operator,
}

/// A task as a pull agent gets it.
#[derive(Debug, Clone)]
pub(crate) struct Handed {
    pub(crate) task: ReachId,
    pub(crate) attempt: AttemptNo,
    pub(crate) lease: LeaseDigest,
    pub(crate) agent: AgentKey,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach {
    pub(crate) invariant: &'static str,
    pub(crate) seq: Seq,
    pub(crate) what: String,
}

/// One event as it lies in the ledger.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    /// Its leaf hash.
    pub(crate) hash: Digest,
}

/// An agent saw a lease.
#[derive(Debug, Clone)]
pub(crate) struct LeaseSeen {
    pub(crate) handed: Handed,
    /// What was durable at that moment.
    pub(crate) durable: Seq,
}

/// A receiver saw a message.
#[derive(Debug, Clone)]
pub(crate) struct MessageSeen {
    pub(crate) id: CallbackId,
    pub(crate) subject: CallbackSubject,
    pub(crate) tells: Seq,
    pub(crate) durable: Seq,
}

/// A reader saw a state.
#[derive(Debug, Clone)]
pub(crate) struct StateSeen {
    pub(crate) task: ReachId,
    pub(crate) status: Option<StatusKind>,
    pub(crate) at: Seq,
    pub(crate) durable: Seq,
}

/// Somebody was given a receipt.
#[derive(Debug, Clone)]
pub(crate) struct ReceiptSeen {
    pub(crate) seq: Seq,
    pub(crate) hash: Digest,
    pub(crate) durable: Seq,
}

/// A caller's key was answered.
#[derive(Debug, Clone)]
pub(crate) struct KeySeen {
    pub(crate) namespace: Namespace,
    pub(crate) key: String,
    pub(crate) fingerprint: Digest,
    pub(crate) task: ReachId,
    pub(crate) until: Timestamp,
    pub(crate) at: Timestamp,
}

/// What an agent said with a digest: under which attempt, and its wish.
#[derive(Debug, Clone)]
pub(crate) struct Spoken {
    pub(crate) task: ReachId,
    pub(crate) attempt: AttemptNo,
    pub(crate) retry_after: Option<Millis>,
    /// Every receipt that it was answered with.
    pub(crate) receipts: Vec<Seq>,
}

/// What a plan says of payloads, as it was frozen.
#[derive(Debug, Default, Clone)]
pub(crate) struct Said {
    pub(crate) amendments: Amendments,
    /// The patch as its event must name it.
    pub(crate) named: Option<BodyRef>,
}

/// What the outside saw.
#[derive(Debug, Default, Clone)]
pub(crate) struct Notes {
    pub(crate) receipts: Vec<ReceiptSeen>,
    pub(crate) leases: Vec<LeaseSeen>,
    pub(crate) messages: Vec<MessageSeen>,
    pub(crate) states: Vec<StateSeen>,
    pub(crate) keys: Vec<KeySeen>,
    pub(crate) spoken: BTreeMap<Digest, Spoken>,
    /// Acknowledgements sent: by whom.
    pub(crate) acked: BTreeMap<(ReachId, AttemptNo), Vec<(AgentKey, Incarnation)>>,
    /// How often each push was posted.
    pub(crate) pushed: BTreeMap<(ReachId, AttemptNo), u32>,
    /// The lists of plans, as they were frozen.
    pub(crate) lists: BTreeMap<ReplayId, Vec<PlanItem>>,
    /// What they say of payloads.
    pub(crate) said: BTreeMap<ReplayId, Said>,
    /// Every payload that is on disk in the end.
    pub(crate) payloads: BTreeMap<ReachId, Body>,
    /// Ids that were drawn for tasks made anew.
    pub(crate) successors: BTreeSet<ReachId>,
    /// Payloads that an operator corrected.
    pub(crate) corrections: BTreeSet<Digest>,
    /// When the hub went on after it had stood still.
    pub(crate) stood: Vec<Timestamp>,
    /// Did the run come to its end, with nothing left to do?
    pub(crate) at_rest: bool,
    /// Found while it ran.
    pub(crate) live: Vec<Breach>,
}

/// One task's events, in order; those of its callbacks apart.
#[derive(Debug)]
pub(crate) struct Life<'a> {
    pub(crate) id: ReachId,
    pub(crate) namespace: &'a Namespace,
    pub(crate) spec: &'a Submission,
    pub(crate) submitted: &'a Event,
    pub(crate) deadline: Timestamp,
    /// Later events of the task itself.
    pub(crate) events: Vec<&'a Event>,
    /// Who asked for it first; one that was made anew is served for whoever that was.
    pub(crate) asked_by: Option<TokenId>,
    /// What it was made of.
    pub(crate) redrive_of: Option<ReachId>,
}

impl Life<'_> {
    /// Its terminal events.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().copied().filter(|event| ends(&event.body).is_some())
    }
}

/// How much is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// What was touched, and the sizes.
    Quick,
    /// Everything.
    Whole,
}

impl Depth {
    /// Whole every so many times.
    pub(crate) const fn every(n: u64, of: u64) -> Self {
        if n.is_multiple_of(of) { Self::Whole } else { Self::Quick }
    }
}

/// One plan: how it was frozen, and its events.
#[derive(Debug)]
pub(crate) struct Course<'a> {
    pub(crate) id: ReplayId,
    pub(crate) namespace: &'a Namespace,
    pub(crate) planned: &'a ReplayPlanned,
    /// Whose word its items are.
    pub(crate) by: &'a Actor,
    /// The list, as whoever froze it knows it.
    pub(crate) list: &'a [PlanItem],
    /// What it says of payloads.
    pub(crate) said: Option<&'a Said>,
    /// All later events of it.
    pub(crate) events: Vec<&'a Event>,
}

impl Course<'_> {
    /// The item at a place.
    pub(crate) fn item(&self, index: u32) -> Option<&PlanItem> {
        self.list.get(usize::try_from(index).ok()?)
    }

    /// The patch of its payloads.
    pub(crate) fn patch(&self) -> Option<&[u8]> {
        self.said?.amendments.patch.as_deref()
    }
}

/// Everything that the invariants look at.
pub(crate) struct Evidence<'a> {
    pub(crate) log: &'a [Entry],
    pub(crate) tasks: BTreeMap<ReachId, Life<'a>>,
    pub(crate) plans: BTreeMap<ReplayId, Course<'a>>,
    pub(crate) lineage: Lineage,
    pub(crate) notes: &'a Notes,
}

impl<'a> Evidence<'a> {
    pub(crate) fn of(log: &'a [Entry], notes: &'a Notes, lineage: Lineage) -> Self {
        let mut tasks: BTreeMap<ReachId, Life<'a>> = BTreeMap::new();
        let mut plans: BTreeMap<ReplayId, Course<'a>> = BTreeMap::new();
        for entry in log {
            let event = &entry.event;
            if let (EventBody::ReplayPlanned(body), Some(namespace)) = (&event.body, &event.namespace) {
                let list = notes.lists.get(&body.replay).map(Vec::as_slice).unwrap_or_default();
                let (said, by, events) = (notes.said.get(&body.replay), &event.actor, Vec::new());
                let course = Course { id: body.replay, namespace, planned: body, by, list, said, events };
                plans.entry(course.id).or_insert(course);
            } else if let Some(plan) = event.body.replay().and_then(|id| plans.get_mut(&id)) {
                plan.events.push(event);
            } else if let (EventBody::TaskSubmitted(body), Some(namespace)) = (&event.body, &event.namespace) {
                let life = Life {
                    id: body.submission.reach_id,
                    namespace,
                    spec: &body.submission,
                    submitted: event,
                    deadline: body.deadline,
                    events: Vec::new(),
                    asked_by: if let Actor::Token(token) = &event.actor { Some(token.clone()) } else { None },
                    redrive_of: None,
                };
                tasks.entry(life.id).or_insert(life);
            } else if event.body.callback_subject().is_none()
                && let Some(life) = event.body.task().and_then(|id| tasks.get_mut(&id))
            {
                life.events.push(event);
                if let EventBody::TaskRedriven(body) = &event.body
                    && let Some(successor) = tasks.get_mut(&body.successor)
                {
                    (successor.asked_by, successor.redrive_of) = (body.submitter.clone(), Some(body.task));
                }
            }
        }
        Self { log, tasks, plans, lineage, notes }
    }

    /// The event so many places before or after another.
    pub(crate) fn beside(&self, event: &Event, by: i64) -> Option<&'a Event> {
        let entry = self.at(Seq(event.seq.0.checked_add_signed(by)?))?;
        Some(&entry.event)
    }

    /// The event at a seq.
    pub(crate) fn at(&self, seq: Seq) -> Option<&'a Entry> {
        let index = usize::try_from(seq.0.checked_sub(1)?).ok()?;
        self.log.get(index).filter(|entry| entry.event.seq == seq)
    }
}

/// What was found, and how much was looked at: an invariant that judges nothing proves nothing.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) breaches: Vec<Breach>,
    pub(crate) judged: BTreeMap<&'static str, u64>,
}

impl Findings {
    pub(crate) fn add(&mut self, invariant: &'static str, seq: Seq, what: impl Into<String>) {
        self.breaches.push(Breach { invariant, seq, what: what.into() });
    }

    /// Counts one case that was judged.
    pub(crate) fn judged(&mut self, what: &'static str) {
        *self.judged.entry(what).or_insert(0) += 1;
    }
}

/// The terminal state that an event leads to.
pub(crate) const fn ends(body: &EventBody) -> Option<StatusKind> {
    if let EventBody::TaskSucceeded(_) = body {
        Some(StatusKind::Succeeded)
    } else if let EventBody::TaskFailed(_) = body {
        Some(StatusKind::Failed)
    } else if let EventBody::TaskDeadLettered(_) = body {
        Some(StatusKind::DeadLetter)
    } else if let EventBody::TaskExpired(_) = body {
        Some(StatusKind::Expired)
    } else if let EventBody::TaskCancelled(_) = body {
        Some(StatusKind::Cancelled)
    } else {
        None
    }
}

/// The attempt that an event of a lease names.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds speak under a lease; the rest do not")]
pub(crate) const fn speaks_of(body: &EventBody) -> Option<AttemptNo> {
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

/// Where a task stands after an event, as the events alone tell it; `None` where it stays.
#[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds move a task; the rest do not")]
pub(crate) const fn leads_to(body: &EventBody, from: StatusKind) -> Option<StatusKind> {
    match body {
        EventBody::TaskQueued(_) => Some(StatusKind::Queued),
        EventBody::TaskDispatched(_) => Some(StatusKind::Dispatched),
        EventBody::TaskAcknowledged(_) | EventBody::TaskReclaimed(_) => Some(StatusKind::Processing),
        EventBody::TaskProgressed(_) if matches!(from, StatusKind::SlowReach) => Some(StatusKind::Processing),
        EventBody::TaskSlow(_) => Some(StatusKind::SlowReach),
        EventBody::TaskAttemptFailed(_) | EventBody::TaskReleased(_) | EventBody::TaskReplayed(_) => {
            Some(StatusKind::Retrying)
        }
        EventBody::TaskRetryScheduled(_) => Some(StatusKind::Retrying),
        EventBody::TaskOrphaned(_) => Some(StatusKind::Orphaned),
        EventBody::TaskApproved(_) => Some(StatusKind::Scheduled),
        body => ends(body),
    }
}

/// Where a submission begins.
pub(crate) fn begins(life: &Life<'_>) -> StatusKind {
    use agent_reach::ledger::machine::task::spec::Approval;
    let early = life.spec.not_before.is_some_and(|at| at > life.submitted.at);
    match (life.spec.approval, early) {
        (Approval::Needed, _) => StatusKind::AwaitingApproval,
        (Approval::NotNeeded, true) => StatusKind::Scheduled,
        (Approval::NotNeeded, false) => StatusKind::Queued,
    }
}
