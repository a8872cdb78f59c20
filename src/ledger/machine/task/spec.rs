//! What a caller asked for: the part of a task that never changes after submission.
//!
//! Defaults are filled in by the API before a [`Submission`] is made, so that a log read years later does not depend
//! on the defaults of the program that reads it.

use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Deserializer, Serialize};

use crate::ledger::ids::{AgentId, BatchId, Capability, Digest, FairnessKey, ReachId, SessionId, TokenId};
use crate::ledger::machine::callback::CallbackSpec;
use crate::ledger::time::{Millis, Timestamp};

/// Short free text, bounded by the door that made it.
pub type Text = Arc<str>;

/// The longest payload, in bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The longest lifetime a task may ask for: 30 days.
pub const MAX_LIFETIME: Millis = Millis::secs(30 * 86_400);
/// The lifetime of a task that names none: 24 h (R-SUB-4).
pub const DEFAULT_LIFETIME: Millis = Millis::secs(86_400);
/// Connect and acknowledge within 3 s (R-SCH-4).
pub const DEFAULT_REACH_TIMEOUT: Millis = Millis::secs(3);
/// Work within 60 s of the acknowledgement (R-SCH-4).
pub const DEFAULT_WORK_TIMEOUT: Millis = Millis::secs(60);
/// The most retries a task may ask for.
pub const MAX_RETRIES: u32 = 100;
/// Dispatches that never started before the hub gives up with `never-reached` (semantics 9).
pub const MAX_NEVER_STARTED: u32 = 20;
/// Interruptions after which a task is `poison-suspected` (semantics 9).
pub const MAX_INTERRUPTIONS: u32 = 5;
/// An agent's `retry_after` is cut at 1 h (semantics 10).
pub const MAX_RETRY_AFTER: Millis = Millis::secs(3_600);
/// Durable progress events of one task; later ones are coalesced (semantics 36).
pub const MAX_PROGRESS_EVENTS: u32 = 1_000;
/// Durable progress: at most one in this span (semantics 36).
pub const PROGRESS_SPACING: Millis = Millis::secs(1);
/// Stale reports recorded for one task; later ones are only counted (semantics 36).
pub const MAX_STALE_EVENTS: u32 = 16;

/// A body kept beside the log and named by a salted digest (R-AUD-3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyRef {
    /// SHA-256(salt ‖ body).
    pub digest: Digest,
    /// Length of the body in bytes.
    pub len: u32,
}

/// Quality of service: how long a task may wait and who goes first (R-SCH-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Qos {
    /// May wait 3 s; first in line.
    Urgent,
    /// May wait 20 s.
    Normal,
    /// No bound; comes last, but a fairness floor keeps it from starving.
    Background,
}

impl Qos {
    /// Every class, the first in line first.
    pub const ALL: [Self; 3] = [Self::Urgent, Self::Normal, Self::Background];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Urgent => "urgent",
            Self::Normal => "normal",
            Self::Background => "background",
        }
    }

    /// The queue-wait budget of the class; `None` means unbounded.
    #[must_use]
    pub const fn wait_budget(self) -> Option<Millis> {
        match self {
            Self::Urgent => Some(Millis::secs(3)),
            Self::Normal => Some(Millis::secs(20)),
            Self::Background => None,
        }
    }
}

/// May the task be executed more than once without harm? The caller's word (R-SCH-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Idempotence {
    /// The caller declared it idempotent.
    Declared,
    /// Not declared: retried only when it provably never started.
    NotDeclared,
}

/// What happens when the wait budget is spent (semantics 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnWait {
    /// One `task-overdue`, and it stays queued.
    Keep,
    /// `dead-letter`, class `agent-overload`, code `wait-budget-spent`.
    Fail,
    /// As `Fail`, with the capability's degraded answer where one is configured.
    Degrade,
}

/// What happens to a task that is slow (semantics 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlowPolicy {
    /// Wait for the late result until the deadline.
    Wait,
    /// After `after`, hand over to another agent; idempotent tasks only.
    HandOver {
        /// Time in `slow-reach` before the hand-over.
        after: Millis,
    },
    /// After `after`, give up: `dead-letter`.
    Fail {
        /// Time in `slow-reach` before giving up.
        after: Millis,
    },
}

/// What happens to an orphaned task (R-REC-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrphanPolicy {
    /// Replay it at the paced rate.
    Replay,
    /// Hold it for an operator's word.
    Hold,
}

/// Which failures are retried by themselves, for idempotent tasks (semantics 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RetryCause {
    /// The agent reported a failure and said that a retry makes sense.
    Reported,
    /// It may have started, nobody knows.
    Ambiguous,
    /// It is over its work time.
    Overdue,
}

/// The retry budget and its spacing (R-SCH-5, semantics 10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Retries after the first attempt, 0 to [`MAX_RETRIES`]; default 3.
    pub max_retries: u32,
    /// Shortest delay; default 2 s.
    pub base: Millis,
    /// Growth a retry in thousandths; default 2,000.
    pub factor_milli: u32,
    /// Longest delay; default 300 s.
    pub cap: Millis,
    /// Causes that are retried; default only `Reported`.
    pub retry_on: Vec<RetryCause>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base: Millis::secs(2),
            factor_milli: 2_000,
            cap: Millis::secs(300),
            retry_on: vec![RetryCause::Reported],
        }
    }
}

/// What an agent must have to be a candidate (R-RTE-2).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requires {
    /// Tools that must all be there.
    pub tools: Vec<Text>,
    /// Smallest context window.
    pub context_window: Option<u32>,
    /// Languages that must all be there.
    pub languages: Vec<Text>,
    /// The agent's `metadata.region`.
    pub region: Option<Text>,
    /// A semver requirement on the agent's version.
    pub version: Option<Text>,
}

impl Requires {
    /// Most tasks require nothing: they share this one.
    #[must_use]
    pub fn nothing() -> Arc<Self> {
        static NOTHING: LazyLock<Arc<Requires>> = LazyLock::new(Arc::default);
        Arc::clone(&NOTHING)
    }

    /// Shared where it is [`Requires::nothing`].
    #[must_use]
    pub fn shared(self) -> Arc<Self> {
        let nothing = Self::nothing();
        if self == *nothing { nothing } else { Arc::new(self) }
    }
}

fn shared_requires<'de, D: Deserializer<'de>>(source: D) -> Result<Arc<Requires>, D::Error> {
    Requires::deserialize(source).map(Requires::shared)
}

/// Verdicts of the schema checks that the API made before the submission (semantics 18). A schema in neither list was
/// not checked: an agent whose capability names it is no candidate yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SchemaVerdicts {
    /// Digests of schemas that accept the payload, sorted.
    pub accepted: Vec<Digest>,
    /// Digests of schemas that refuse it, sorted.
    pub refused: Vec<Digest>,
}

impl SchemaVerdicts {
    /// Takes newer ones over the same payload: of a schema that was asked before they hold.
    pub fn join(&mut self, others: &Self) {
        self.accepted.retain(|schema| !others.refused.contains(schema));
        self.refused.retain(|schema| !others.accepted.contains(schema));
        for (own, more) in [(&mut self.accepted, &others.accepted), (&mut self.refused, &others.refused)] {
            own.extend(more);
            own.sort_unstable();
            own.dedup();
        }
    }
}

/// An idempotency key with what it is compared by (semantics 31).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    /// The caller's key, byte-exact, 1 to 255 bytes.
    pub key: Text,
    /// HMAC of the canonical body.
    pub fingerprint: Digest,
    /// Who used it; another subject's key is refused without saying more.
    pub subject: TokenId,
    /// How long the key is remembered, never shorter than the task's life.
    pub window: Millis,
}

/// A whole submission with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The new task's id, drawn by the API.
    pub reach_id: ReachId,
    /// What must be done.
    pub capability: Capability,
    /// The inline payload, if any.
    pub payload: Option<BodyRef>,
    /// A reference that is passed on and never opened.
    pub payload_ref: Option<Text>,
    /// Class of service.
    pub qos: Qos,
    /// The caller's word on repetition.
    pub idempotence: Idempotence,
    /// Life in ledger time from the submission, at most [`MAX_LIFETIME`].
    pub lifetime: Millis,
    /// An absolute end, already in ledger time; the earlier of the two holds (semantics 34).
    pub deadline: Option<Timestamp>,
    /// Not before this moment, in ledger time.
    pub not_before: Option<Timestamp>,
    /// Time to connect and acknowledge.
    pub reach_timeout: Millis,
    /// Time to work from the acknowledgement.
    pub work_timeout: Millis,
    /// For a synchronous call that named no work timeout: the caller's wait, of which the agent gets 80 % (semantics 33).
    pub sync_wait: Option<Millis>,
    /// Retry budget.
    pub retry: RetryPolicy,
    /// Policy in `slow-reach`.
    pub slow_reach: SlowPolicy,
    /// Policy when orphaned.
    pub orphan: OrphanPolicy,
    /// Policy when the wait budget is spent.
    pub on_wait: OnWait,
    /// Session, for affinity and order.
    pub session: Option<SessionId>,
    /// A reference to context, passed on and never expanded (R-SUB-4).
    pub context_path: Option<Text>,
    /// Labels in the caller's order, at most 32.
    pub labels: Vec<(Text, Text)>,
    /// Parent task, to which the deadline is cut.
    pub parent: Option<ReachId>,
    /// What the queue is shared fairly by.
    pub fairness_key: FairnessKey,
    /// The most this task may cost, in the unit that agents report.
    pub cost_budget: Option<u64>,
    /// Sensitivity label.
    pub sensitivity: Option<Text>,
    /// Holds the task for a person's word (R-SUB-9).
    pub approval: Approval,
    /// What an agent must have.
    #[serde(deserialize_with = "shared_requires")]
    pub requires: Arc<Requires>,
    /// Verdicts of schema checks.
    pub schemas: SchemaVerdicts,
    /// Asked for by name.
    pub preferred_agent: Option<AgentId>,
    /// Queue even if nobody offers the capability yet.
    pub absent_agents: AbsentAgents,
    /// Whom to tell.
    pub callback: Option<Box<CallbackSpec>>,
    /// Key against double submission.
    pub idempotency: Option<Box<IdempotencyKey>>,
    /// Batch and index inside it.
    pub batch: Option<(BatchId, u32)>,
}

impl Submission {
    /// One that says nothing but what, and by what the queue is shared: every default of the API, no payload, nobody to
    /// tell. It waits where nobody offers the capability.
    #[must_use]
    pub fn plain(reach_id: ReachId, capability: Capability, fairness_key: FairnessKey) -> Self {
        Self {
            reach_id,
            capability,
            payload: None,
            payload_ref: None,
            qos: Qos::Normal,
            idempotence: Idempotence::NotDeclared,
            lifetime: DEFAULT_LIFETIME,
            deadline: None,
            not_before: None,
            reach_timeout: DEFAULT_REACH_TIMEOUT,
            work_timeout: DEFAULT_WORK_TIMEOUT,
            sync_wait: None,
            retry: RetryPolicy::default(),
            slow_reach: SlowPolicy::Wait,
            orphan: OrphanPolicy::Hold,
            on_wait: OnWait::Keep,
            session: None,
            context_path: None,
            labels: Vec::new(),
            parent: None,
            fairness_key,
            cost_budget: None,
            sensitivity: None,
            approval: Approval::NotNeeded,
            requires: Requires::nothing(),
            schemas: SchemaVerdicts::default(),
            preferred_agent: None,
            absent_agents: AbsentAgents::Wait,
            callback: None,
            idempotency: None,
            batch: None,
        }
    }
}

/// Must a person approve first?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Approval {
    /// No.
    NotNeeded,
    /// Yes: `awaiting-approval`.
    Needed,
}

/// What to do when nobody offers the capability (R-RTE-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbsentAgents {
    /// Refuse with `capability-not-registered`.
    Refuse,
    /// Queue and wait for one.
    Wait,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_schema_that_is_asked_again_the_newer_verdict_holds() {
        let digest = |n: u8| Digest([n; 32]);
        let mut verdicts = SchemaVerdicts { accepted: vec![digest(1), digest(2)], refused: vec![digest(3)] };
        verdicts.join(&SchemaVerdicts { accepted: vec![digest(3)], refused: vec![digest(1)] });
        assert_eq!(verdicts, SchemaVerdicts { accepted: vec![digest(2), digest(3)], refused: vec![digest(1)] });
    }
}
