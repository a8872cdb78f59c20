//! Which events want a person, and what that person does first: pure, a table in code.
//!
//! Alerted is what nothing in the hub mends by itself. An orphan that will be replayed, a retry, a slow task with a
//! policy that acts: none of them wakes anybody.

use crate::ledger::ids::{Capability, Namespace, ReachId, Seq};
use crate::ledger::machine::event::{Actor, Event, EventBody, EventKind, HeldWhy, OpenedWhy};
use crate::ledger::machine::policy::RulesByCapability;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::resolve::GIVEN_UP;
use crate::ledger::machine::task::spec::{OrphanPolicy, Text};
use crate::ledger::machine::task::status::{OrphanCause, SlowCause, StatusKind};
use crate::ledger::time::Timestamp;

/// What an alert is about. The names are stable; a receiver must bear new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The hub gave tasks up.
    DeadLetter,
    /// Tasks lost their agent and go on by a person's word only.
    OrphanHeld,
    /// Tasks are over their time, and their policy is to wait.
    TaskSlow,
    /// Agents fell silent.
    AgentLost,
    /// Agents failed a capability so often that they get nothing of it for a while.
    BreakerOpen,
    /// Callbacks used up their tries.
    CallbackExhausted,
    /// The egress guard refuses where callbacks should go.
    CallbackBlocked,
    /// The hub paused a replay plan.
    ReplayPaused,
    /// The hub started without having stopped: it was killed, or its ledger failed.
    HubRestarted,
    /// A queue has less than a tenth of its bound left.
    QueueNearBound,
    /// The disk is nearly full, or full.
    DiskShort,
    /// More than one window can tell apart.
    More,
}

impl Kind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::DeadLetter,
        Self::OrphanHeld,
        Self::TaskSlow,
        Self::AgentLost,
        Self::BreakerOpen,
        Self::CallbackExhausted,
        Self::CallbackBlocked,
        Self::ReplayPaused,
        Self::HubRestarted,
        Self::QueueNearBound,
        Self::DiskShort,
        Self::More,
    ];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeadLetter => "dead-letter",
            Self::OrphanHeld => "orphan-held",
            Self::TaskSlow => "task-slow",
            Self::AgentLost => "agent-lost",
            Self::BreakerOpen => "breaker-open",
            Self::CallbackExhausted => "callback-exhausted",
            Self::CallbackBlocked => "callback-blocked",
            Self::ReplayPaused => "replay-paused",
            Self::HubRestarted => "hub-restarted",
            Self::QueueNearBound => "queue-near-bound",
            Self::DiskShort => "disk-short",
            Self::More => "more",
        }
    }

    /// So many of them, in words.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::DeadLetter => ("task is a dead letter", "tasks are dead letters"),
            Self::OrphanHeld => ("orphaned task waits for a word", "orphaned tasks wait for a word"),
            Self::TaskSlow => ("task is over its time", "tasks are over their time"),
            Self::AgentLost => ("agent is lost", "agents are lost"),
            Self::BreakerOpen => ("breaker is open", "breakers are open"),
            Self::CallbackExhausted => ("callback was tried in vain", "callbacks were tried in vain"),
            Self::CallbackBlocked => ("callback may not go where it should", "callbacks may not go where they should"),
            Self::ReplayPaused => ("replay plan was paused", "replay plans were paused"),
            Self::HubRestarted => ("start of the hub without a stop before", "starts of the hub without a stop before"),
            Self::QueueNearBound => ("queue is near its bound", "changes of a queue near its bound"),
            Self::DiskShort => ("disk is short of room", "changes of a disk that is short of room"),
            Self::More => ("alert more, of other groups", "alerts more, of other groups"),
        }
    }
}

/// Does a condition begin to hold, or end?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelState {
    /// It holds.
    Firing,
    /// It holds no more.
    Resolved,
}

impl LevelState {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

/// What is told as one: alerts of one kind in one place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// What it is about.
    pub kind: Kind,
    /// Where; `None` for what concerns the whole hub.
    pub namespace: Option<Namespace>,
    /// Of which capability, where one is at stake.
    pub capability: Option<Capability>,
}

/// One thing that wants a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// With what it is told.
    pub group: Group,
    /// Its id: of a task, an agent, a callback, a plan; empty where there is none.
    pub subject: String,
    /// Why, in words.
    pub why: String,
    /// The event, or the last one before.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// Who looks after it, by the capability's rules.
    pub owner: Option<Text>,
    /// Of conditions only: does it begin or end?
    pub state: Option<LevelState>,
}

/// What is known beside the event.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// The event's task as it stands now, if [`wants_task`] named one.
    pub task: Option<&'a Task>,
    /// The kind of the event before.
    pub before: Option<EventKind>,
    /// The capabilities' rules.
    pub rules: &'a RulesByCapability,
}

/// The task that must be looked at to judge an event.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the kinds that are judged by their task")]
pub fn wants_task(body: &EventBody) -> Option<ReachId> {
    match body {
        EventBody::TaskDeadLettered(_)
        | EventBody::TaskOrphaned(_)
        | EventBody::TaskReplayHeld(_)
        | EventBody::TaskSlow(_) => body.task(),
        _ => None,
    }
}

/// Does the event want a person? Of a task that was orphaned or slow only while it still is.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "asks about the kinds that want a person; a new kind is none")]
pub fn classify(event: &Event, beside: Beside<'_>) -> Option<Alert> {
    let standing = |kind| beside.task.filter(|task| task.status.kind() == kind);
    match &event.body {
        // An operator's own word is no news.
        EventBody::TaskDeadLettered(body) if &*body.failure.code != GIVEN_UP => {
            let why = format!("{} ({})", body.failure.code, body.failure.class.name());
            Some(about_task(event, Kind::DeadLetter, body.task, why).of(beside))
        }
        EventBody::TaskOrphaned(body) => {
            let task = standing(StatusKind::Orphaned)?;
            (policy(task) == OrphanPolicy::Hold).then(|| {
                let why = format!("{}; it may have run and is not replayed by itself", cause(body.cause));
                about_task(event, Kind::OrphanHeld, body.task, why).of(beside)
            })
        }
        EventBody::TaskReplayHeld(body) => {
            // Of one that its policy holds it was said when it became an orphan.
            standing(StatusKind::Orphaned).filter(|task| policy(task) == OrphanPolicy::Replay)?;
            let HeldWhy::Superseded { by } = body.why;
            let why = format!("{by}, a newer task of its session, has succeeded, so it is not replayed by itself");
            Some(about_task(event, Kind::OrphanHeld, body.task, why).of(beside))
        }
        EventBody::TaskSlow(body) if body.act_at.is_none() => {
            standing(StatusKind::SlowReach)?;
            let why = match body.cause {
                SlowCause::Overdue => "over its work time; it may still run, and its policy is to wait",
                SlowCause::Ambiguous => "sent and unanswered; it may run, and its policy is to wait",
            };
            Some(about_task(event, Kind::TaskSlow, body.task, why.to_owned()).of(beside))
        }
        EventBody::AgentLost(body) => {
            let why = format!("no word from it for {}", body.silent);
            Some(about(event, Kind::AgentLost, body.agent.as_str().to_owned(), why))
        }
        // That it stays open is no news, and an operator's own word is none either.
        EventBody::BreakerOpened(body) if body.why == OpenedWhy::Failures => {
            let failed = body.failures.len();
            let why = format!("{failed} attempts failed one after the other; tasks of it wait or go to others");
            let alert = about(event, Kind::BreakerOpen, body.agent.as_str().to_owned(), why);
            Some(alert.of_capability(event.namespace.as_ref(), &body.capability, beside.rules))
        }
        EventBody::CallbackExhausted(body) => {
            let why = format!("{} tries in vain; it is kept, and can be sent again", body.attempts);
            Some(about(event, Kind::CallbackExhausted, body.callback.to_string(), why))
        }
        EventBody::CallbackBlocked(body) => {
            let why = "the egress guard refuses its address".to_owned();
            Some(about(event, Kind::CallbackBlocked, body.callback.to_string(), why))
        }
        EventBody::ReplayPaused(body) if event.actor == Actor::Hub => {
            let why = body.reason.as_deref().unwrap_or("the hub paused it").to_owned();
            Some(about(event, Kind::ReplayPaused, body.replay.to_string(), why))
        }
        EventBody::HubStarted(_) => {
            let clean = [EventKind::HubStopped, EventKind::LineageStarted];
            let before = beside.before.filter(|before| !clean.contains(before))?;
            let why = format!("the last event before its start is {}, not hub-stopped", before.name());
            Some(about(event, Kind::HubRestarted, String::new(), why))
        }
        _ => None,
    }
}

/// A task that a lost agent left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It is replayed by itself.
    Replayed,
    /// It waits for a word.
    Held,
}

/// What a lost agent left behind by this event, if it is that.
#[must_use]
pub fn left_behind(event: &Event, task: Option<&Task>) -> Option<Left> {
    let EventBody::TaskOrphaned(body) = &event.body else { return None };
    if body.cause != OrphanCause::AgentLost {
        return None;
    }
    Some(match task.map(policy) {
        Some(OrphanPolicy::Hold) => Left::Held,
        Some(OrphanPolicy::Replay) | None => Left::Replayed,
    })
}

fn policy(task: &Task) -> OrphanPolicy {
    task.spec.orphan
}

const fn cause(cause: OrphanCause) -> &'static str {
    match cause {
        OrphanCause::AgentLost => "its agent is lost",
        OrphanCause::AgentLeft => "its agent said goodbye",
        OrphanCause::AgentReplaced => "a new process took its agent's place",
        OrphanCause::AgentDrained => "its agent was drained",
        OrphanCause::LossAccepted => "the end of the ledger was lost",
    }
}

fn about(event: &Event, kind: Kind, subject: String, why: String) -> Alert {
    let group = Group { kind, namespace: event.namespace.clone(), capability: None };
    Alert { group, subject, why, seq: event.seq, at: event.at, owner: None, state: None }
}

fn about_task(event: &Event, kind: Kind, task: ReachId, why: String) -> Alert {
    about(event, kind, task.to_string(), why)
}

impl Alert {
    /// Told with others of its task's capability, and with who looks after that.
    fn of(self, beside: Beside<'_>) -> Self {
        let Some(task) = beside.task else { return self };
        self.of_capability(Some(&task.namespace), &task.spec.capability, beside.rules)
    }

    fn of_capability(mut self, of: Option<&Namespace>, capability: &Capability, rules: &RulesByCapability) -> Self {
        let rules = of.and_then(|namespace| rules.get(&(namespace.clone(), capability.clone())));
        self.owner = rules.and_then(|rules| rules.owner.clone());
        self.group.capability = Some(capability.clone());
        self
    }
}

/// The commands that show it and mend it: those of docs/operations.md and of `reach status`.
#[must_use]
pub fn what_to_do(group: &Group, first: &str) -> Vec<String> {
    let there = group.namespace.as_ref().map_or_else(String::new, |namespace| format!(" --namespace {namespace}"));
    let of = group.capability.as_ref().map_or_else(String::new, |capability| format!(" --capability {capability}"));
    let lines: Vec<String> = match group.kind {
        Kind::DeadLetter => vec![
            format!("reach history {first}"),
            format!("reach tasks list --state dead-letter{of}"),
            format!("reach replay plan --state dead-letter{of} --dry-run"),
        ],
        Kind::OrphanHeld => vec![
            format!("reach explain {first}"),
            format!("reach tasks resolve {first} hand-over --reason WHY"),
            format!("reach replay plan --state orphaned{of} --include-ambiguous --dry-run"),
        ],
        Kind::TaskSlow => vec![
            format!("reach explain {first}"),
            format!("reach tasks list --state slow-reach{of}"),
            format!("reach tasks resolve {first} wait --reason WHY"),
        ],
        Kind::AgentLost => vec![
            format!("reach agents show {first}"),
            "reach agents list --health lost".to_owned(),
            "reach tasks list --state orphaned".to_owned(),
        ],
        Kind::BreakerOpen => {
            let task_kind = group.capability.as_ref().map_or_else(|| "CAPABILITY".to_owned(), ToString::to_string);
            vec![
                format!("reach agents show {first}"),
                format!("reach explain {task_kind}"),
                format!("reach agents breaker {first} {task_kind} --close --reason WHY"),
            ]
        }
        Kind::CallbackExhausted => {
            vec!["reach callbacks list --state exhausted".to_owned(), format!("reach callbacks redrive {first}")]
        }
        Kind::CallbackBlocked => vec!["reach callbacks list --state blocked".to_owned()],
        Kind::ReplayPaused => vec![format!("reach replay show {first}"), format!("reach replay resume {first}")],
        Kind::QueueNearBound => match &group.capability {
            Some(capability) => {
                vec![format!("reach explain {capability}"), format!("reach agents list --capability {capability}")]
            }
            None => vec!["reach status".to_owned()],
        },
        Kind::HubRestarted | Kind::DiskShort | Kind::More => vec!["reach status".to_owned()],
    };
    lines.into_iter().map(|line| line + &there).collect()
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
