//! From a submission's body to the ledger's [`Submission`]: every bound checked, every default filled in.
//!
//! Why by hand: the ledger outlives every version of the API, so its types carry no JSON, and a log read years later
//! must not depend on today's defaults. Everything here is pure: ids and the moment are handed in.

mod body;
mod fault;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::ledger::ids::{BatchId, Capability, FairnessKey, ReachId, TokenId};
use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::task::spec::{
    AbsentAgents, Approval, DEFAULT_LIFETIME, DEFAULT_REACH_TIMEOUT, DEFAULT_WORK_TIMEOUT, Idempotence, MAX_LIFETIME,
    MAX_RETRIES, OnWait, OrphanPolicy, Qos, Requires, RetryCause, RetryPolicy, SchemaVerdicts, SlowPolicy, Submission,
    Text,
};
use crate::ledger::time::{Millis, Timestamp};

use body::{CallbackWord, OnWaitWord, OrphanWord, QosWord, RequiresBody, RetryBody, RetryWord, SlowWord};

pub(crate) use crate::ledger::machine::task::spec::MAX_PAYLOAD;
pub(crate) use body::{CallbackBody, Labels, SlowBody, TaskBody};
pub(crate) use fault::{Fault, Faults, escape};

/// The most labels of one task.
pub(crate) const MAX_LABELS: usize = 32;
/// The longest label name, in bytes.
pub(crate) const MAX_LABEL_NAME: usize = 64;
/// The longest label value, in bytes.
pub(crate) const MAX_LABEL_VALUE: usize = 256;
/// The longest reference or URL, in bytes.
pub(crate) const MAX_REFERENCE: usize = 2_048;
/// The most tools or languages that a task may require.
pub(crate) const MAX_REQUIRED: usize = 64;
/// The longest name of a tool, language, region, secret or sensitivity label, in bytes.
pub(crate) const MAX_NAME: usize = 128;
/// The longest text that is routed, in bytes.
const MAX_TEXT: usize = crate::scheduler::routing::semantic::MAX_TEXT;
/// The longest idempotency key, in bytes.
pub(crate) const MAX_KEY: usize = 255;
/// An idempotency key is remembered for 24 h, never shorter than the task's life (semantics 31).
pub(crate) const KEY_WINDOW: Millis = Millis::secs(86_400);
/// The longest a single attempt may take to be acknowledged: an hour.
const MAX_REACH_TIMEOUT: u64 = 3_600_000;

// One event holds 60,000 bytes at most (semantics 26): the longest submission must fit.
const _: () = assert!(
    MAX_LABELS * (MAX_LABEL_NAME + MAX_LABEL_VALUE + 8) + 3 * MAX_REFERENCE + 2 * MAX_REQUIRED * (MAX_NAME + 4) + 4_096
        < 60_000
);

/// What the door adds to a body.
pub(crate) struct Setting<'a> {
    /// The new task's id.
    pub reach_id: ReachId,
    /// Who submits.
    pub subject: &'a TokenId,
    /// Ledger time.
    pub now: Timestamp,
    /// From a wall-clock moment to ledger time (semantics 23).
    pub to_ledger: &'a (dyn Fn(Timestamp) -> Timestamp + Sync),
    /// The caller waits for so long (semantics 33).
    pub sync_wait: Option<Millis>,
    /// Batch and index inside it.
    pub batch: Option<(BatchId, u32)>,
    /// What the body's text was routed to, if it names no capability.
    pub routed: Option<Capability>,
}

/// Why a body is not a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// Fields out of bounds, each with its JSON pointer.
    Invalid(Vec<Fault>),
    /// The deadline lies in the past.
    DeadlinePast {
        /// What was asked, in ledger time.
        deadline: Timestamp,
    },
    /// The payload is over [`MAX_PAYLOAD`].
    PayloadTooLarge,
}

/// Makes a submission of a body. Payload body, schema verdicts, approval and idempotency key are added by the door.
///
/// # Errors
/// [`Unfit`] with everything that is wrong with the body.
pub(crate) fn submission(body: &TaskBody<'_>, setting: &Setting<'_>) -> Result<Submission, Unfit> {
    let mut faults = Faults::default();
    if body.payload.is_some_and(|raw| raw.get().len() > MAX_PAYLOAD) {
        return Err(Unfit::PayloadTooLarge);
    }
    if body.payload.is_some() && body.payload_ref.is_some() {
        faults.add("/payload_ref", "give a payload or a reference to one, not both");
    }
    let capability = setting.routed.clone().or_else(|| capability(body, &mut faults));
    faults.text("/text", body.text.as_deref(), MAX_TEXT);
    let idempotence = if body.idempotent == Some(true) { Idempotence::Declared } else { Idempotence::NotDeclared };
    let qos = body.qos.map_or(Qos::Normal, Qos::from);
    let lifetime = faults.span("/lifetime_ms", body.lifetime_ms, 1..=MAX_LIFETIME.0, DEFAULT_LIFETIME);
    let deadline = faults.moment("/deadline", body.deadline.as_deref()).map(setting.to_ledger);
    let not_before = faults.moment("/not_before", body.not_before.as_deref()).map(setting.to_ledger);
    let retry = retry(body, &mut faults);
    let made = Submission {
        reach_id: setting.reach_id,
        capability: capability.clone().unwrap_or_else(unnamed),
        payload: None,
        payload_ref: faults.text("/payload_ref", body.payload_ref.as_deref(), MAX_REFERENCE),
        qos,
        idempotence,
        lifetime: if body.lifetime_ms.is_none() && deadline.is_some() { MAX_LIFETIME } else { lifetime },
        deadline,
        not_before,
        reach_timeout: faults.span(
            "/reach_timeout_ms",
            body.reach_timeout_ms,
            10..=MAX_REACH_TIMEOUT,
            DEFAULT_REACH_TIMEOUT,
        ),
        work_timeout: faults.span("/work_timeout_ms", body.work_timeout_ms, 10..=MAX_LIFETIME.0, DEFAULT_WORK_TIMEOUT),
        sync_wait: setting.sync_wait.filter(|_| body.work_timeout_ms.is_none()),
        retry,
        slow_reach: slow_reach(body.slow_reach.as_ref(), idempotence, &mut faults),
        orphan: orphan(body.orphan, idempotence),
        on_wait: on_wait(body.on_wait, qos),
        session: body.session_id.as_deref().and_then(|id| faults.id("/session_id", id)),
        context_path: faults.text("/context_path", body.context_path.as_deref(), MAX_REFERENCE),
        labels: labels(body, &mut faults),
        parent: body.parent.as_ref().and_then(|parent| faults.id("/parent/reach_id", &parent.reach_id)),
        fairness_key: fairness_key(body, setting, &mut faults),
        cost_budget: body.cost_budget,
        sensitivity: faults.text("/sensitivity", body.sensitivity.as_deref(), MAX_NAME),
        approval: Approval::NotNeeded,
        requires: requires(body.requires.as_ref(), &mut faults).shared(),
        schemas: SchemaVerdicts::default(),
        preferred_agent: body.preferred_agent.as_deref().and_then(|id| faults.id("/preferred_agent", id)),
        absent_agents: if body.wait_for_agent == Some(true) { AbsentAgents::Wait } else { AbsentAgents::Refuse },
        callback: body.callback.as_ref().map(|callback| callback_spec(callback, "/callback", &mut faults).into()),
        idempotency: None,
        batch: setting.batch,
    };
    faults.into_result().map_err(Unfit::Invalid)?;
    Ok(made)
}

/// Apart from [`submission`], for a repeat under an idempotency key may come after the deadline (S6).
///
/// # Errors
/// [`Unfit::DeadlinePast`].
pub(crate) fn lies_ahead(made: &Submission, now: Timestamp) -> Result<(), Unfit> {
    match made.deadline {
        Some(deadline) if deadline <= now => Err(Unfit::DeadlinePast { deadline }),
        Some(_) | None => Ok(()),
    }
}

/// Stands in while the other faults are collected, and for a repeat whose text means nothing any more: never registered.
pub(crate) fn unnamed() -> Capability {
    Capability::new("none.none").expect("the text is a capability")
}

fn capability(body: &TaskBody<'_>, faults: &mut Faults) -> Option<Capability> {
    match (&body.capability, &body.domain, &body.task_type) {
        (Some(whole), None, None) => faults.id("/capability", whole),
        (None, Some(domain), Some(task_type)) if !domain.contains('.') => {
            faults.id("/task_type", &format!("{domain}.{task_type}"))
        }
        (None, Some(_), Some(_)) => {
            faults.add("/domain", "a domain has no dot");
            None
        }
        (Some(_), _, _) => {
            faults.add("/capability", "name the capability, or its domain and task_type, not both");
            None
        }
        (None, Some(_), None) => {
            faults.add("/task_type", "is missing beside domain");
            None
        }
        (None, None, Some(_)) => {
            faults.add("/domain", "is missing beside task_type");
            None
        }
        (None, None, None) => {
            faults.add("/capability", "is missing: what must be done, as domain.task_type");
            None
        }
    }
}

fn fairness_key(body: &TaskBody<'_>, setting: &Setting<'_>, faults: &mut Faults) -> FairnessKey {
    let named = body.fairness_key.as_deref().and_then(|key| faults.id("/fairness_key", key));
    named.unwrap_or_else(|| FairnessKey::new(setting.subject.as_str()).expect("both ids have one alphabet"))
}

fn labels(body: &TaskBody<'_>, faults: &mut Faults) -> Vec<(Text, Text)> {
    let Some(labels) = &body.labels else { return Vec::new() };
    let mut out = Vec::with_capacity(labels.0.len());
    for (name, value) in &labels.0 {
        let pointer = format!("/labels/{}", escape(name));
        if name.is_empty() {
            faults.add("/labels", "a label's name is not empty");
        }
        let name = faults.text(&pointer, Some(name), MAX_LABEL_NAME);
        let value =
            if value.is_empty() { Some(Arc::from("")) } else { faults.text(&pointer, Some(value), MAX_LABEL_VALUE) };
        out.extend(name.zip(value));
    }
    out
}

fn retry(body: &TaskBody<'_>, faults: &mut Faults) -> RetryPolicy {
    let default = RetryPolicy::default();
    let RetryBody { max_retries, base_ms, factor, cap_ms } = body
        .retry
        .as_ref()
        .map_or(RetryBody { max_retries: None, base_ms: None, factor: None, cap_ms: None }, |given| RetryBody {
            ..*given
        });
    let max_retries = max_retries.unwrap_or(default.max_retries);
    if max_retries > MAX_RETRIES {
        faults.add("/retry/max_retries", format!("is {max_retries}; at most {MAX_RETRIES}"));
    }
    let base = faults.span("/retry/base_ms", base_ms, 1..=MAX_LIFETIME.0, default.base);
    let cap_default = Millis(default.cap.0.max(base.0));
    let cap = faults.span("/retry/cap_ms", cap_ms, 1..=MAX_LIFETIME.0, cap_default);
    if cap < base {
        faults.add("/retry/cap_ms", "is shorter than base_ms");
    }
    let factor_milli = match factor {
        None => default.factor_milli,
        Some(factor) => thousandths(factor).unwrap_or_else(|| {
            faults.add("/retry/factor", format!("is {factor}; 1 to 100"));
            default.factor_milli
        }),
    };
    let mut retry_on = body
        .retry_on
        .as_ref()
        .map_or(default.retry_on, |words| words.iter().copied().map(RetryCause::from).collect::<Vec<_>>());
    retry_on.sort_unstable();
    retry_on.dedup();
    RetryPolicy { max_retries, base, factor_milli, cap, retry_on }
}

/// A factor from 1 to 100 in thousandths.
fn thousandths(factor: f64) -> Option<u32> {
    if !(1.0..=100.0).contains(&factor) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1,000 and 100,000")]
    Some((factor * 1_000.0).round() as u32)
}

/// What happens when it is slow; waiting if nothing is said.
pub(crate) fn slow_reach(body: Option<&SlowBody>, idempotence: Idempotence, faults: &mut Faults) -> SlowPolicy {
    let Some(SlowBody { policy, after_ms }) = body else { return SlowPolicy::Wait };
    let after = faults.span("/slow_reach/after_ms", *after_ms, 0..=MAX_LIFETIME.0, Millis(0));
    match policy {
        SlowWord::Wait => {
            if after_ms.is_some() {
                faults.add("/slow_reach/after_ms", "has no meaning with the policy wait");
            }
            SlowPolicy::Wait
        }
        SlowWord::HandOver => {
            if idempotence == Idempotence::NotDeclared {
                faults.add("/slow_reach/policy", "hand-over is for tasks declared idempotent: the first may still run");
            }
            SlowPolicy::HandOver { after }
        }
        SlowWord::Fail => SlowPolicy::Fail { after },
    }
}

const fn orphan(word: Option<OrphanWord>, idempotence: Idempotence) -> OrphanPolicy {
    match (word, idempotence) {
        (Some(OrphanWord::Replay), _) | (None, Idempotence::Declared) => OrphanPolicy::Replay,
        (Some(OrphanWord::Hold), _) | (None, Idempotence::NotDeclared) => OrphanPolicy::Hold,
    }
}

const fn on_wait(word: Option<OnWaitWord>, qos: Qos) -> OnWait {
    match (word, qos) {
        (Some(OnWaitWord::Keep), _) | (None, Qos::Normal | Qos::Background) => OnWait::Keep,
        (Some(OnWaitWord::Fail), _) | (None, Qos::Urgent) => OnWait::Fail,
        (Some(OnWaitWord::Degrade), _) => OnWait::Degrade,
    }
}

fn requires(body: Option<&RequiresBody>, faults: &mut Faults) -> Requires {
    let Some(body) = body else { return Requires::default() };
    let version = faults.text("/requires/version", body.version.as_deref(), MAX_NAME);
    if let Some(text) = &version
        && let Err(error) = semver::VersionReq::parse(text)
    {
        faults.add("/requires/version", format!("is no semver requirement: {error}"));
    }
    Requires {
        tools: names("/requires/tools", &body.tools, faults),
        context_window: body.context_window,
        languages: names("/requires/languages", &body.languages, faults),
        region: faults.text("/requires/region", body.region.as_deref(), MAX_NAME),
        version,
    }
}

/// Sorted and without doubles, so that equal requirements share a lane.
fn names(pointer: &str, given: &[String], faults: &mut Faults) -> Vec<Text> {
    if given.len() > MAX_REQUIRED {
        faults.add(pointer, format!("has {}; at most {MAX_REQUIRED}", given.len()));
        return Vec::new();
    }
    let mut out: Vec<Text> = Vec::with_capacity(given.len());
    for (index, name) in given.iter().enumerate() {
        out.extend(faults.text(&format!("{pointer}/{index}"), Some(name), MAX_NAME));
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// A callback's bounds; whether its address may be called and its secret exists is the door's to ask.
pub(crate) fn callback_spec(body: &CallbackBody, at: &str, faults: &mut Faults) -> CallbackSpec {
    let url = faults.text(&format!("{at}/url"), Some(&body.url), MAX_REFERENCE);
    let mut events = body.events.as_ref().map_or_else(
        || vec![CallbackEvent::Terminal],
        |words| words.iter().copied().map(CallbackEvent::from).collect(),
    );
    if events.is_empty() {
        faults.add(&format!("{at}/events"), "is empty: nothing would ever be told");
    }
    events.sort_unstable();
    events.dedup();
    let secret_ref = faults.text(&format!("{at}/secret_ref"), body.secret_ref.as_deref(), MAX_NAME);
    CallbackSpec {
        url: url.unwrap_or_else(|| Arc::from("")),
        events,
        secret_ref: secret_ref.unwrap_or_else(|| Arc::from("default")),
    }
}

impl From<QosWord> for Qos {
    fn from(word: QosWord) -> Self {
        match word {
            QosWord::Urgent => Self::Urgent,
            QosWord::Normal => Self::Normal,
            QosWord::Background => Self::Background,
        }
    }
}

impl From<RetryWord> for RetryCause {
    fn from(word: RetryWord) -> Self {
        match word {
            RetryWord::Reported => Self::Reported,
            RetryWord::Ambiguous => Self::Ambiguous,
            RetryWord::Overdue => Self::Overdue,
        }
    }
}

impl From<CallbackWord> for CallbackEvent {
    fn from(word: CallbackWord) -> Self {
        match word {
            CallbackWord::Terminal => Self::Terminal,
            CallbackWord::Slow => Self::Slow,
            CallbackWord::Retrying => Self::Retrying,
            CallbackWord::Progress => Self::Progress,
            CallbackWord::Overdue => Self::Overdue,
            CallbackWord::Orphaned => Self::Orphaned,
        }
    }
}
