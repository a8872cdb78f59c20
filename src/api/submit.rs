//! The way of one submission from its body to the ledger, the same for single calls, batches and dry runs.
//!
//! What costs time (schemas, a parent's look-up) comes before the proposal; what must be decided against the newest
//! state (keys, bounds, who offers it) is the core's. So a submission is checked twice where it matters.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::ledger::handle::{Intake, Receipt, Refusal, Released};
use crate::ledger::ids::{BatchId, Capability, ReachId, Seq};
use crate::ledger::machine::KeySubject;
use crate::ledger::machine::agent::Sensitive;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::task::deadline::first_status;
use crate::ledger::machine::task::spec::{
    AbsentAgents, Approval, BodyRef, Idempotence, IdempotencyKey, MAX_LIFETIME, SchemaVerdicts, SlowPolicy, Submission,
    Text,
};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::store::{Body, BodyKind};
use crate::ledger::time::{Millis, Timestamp};
use crate::scheduler::outbound::guard::Purpose;

use super::App;
use super::error::{ApiError, ApiResult, Code};
use super::extract::Caller;
use super::schemas::{Complaints, Sight};
use super::submission::{CallbackBody, Fault, Faults, KEY_WINDOW, MAX_KEY, MAX_PAYLOAD, Setting, TaskBody, Unfit};
use super::text::{self, Routed};
use super::wire::ReceiptBody;
use super::{near, render, schemas, submission};
use crate::ledger::canonical;

/// Where a submission comes from, besides its body.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    /// The caller waits for so long (semantics 33).
    pub sync_wait: Option<Millis>,
    /// Batch and index inside it.
    pub batch: Option<(BatchId, u32)>,
    /// The `Idempotency-Key` header.
    pub key: Option<Text>,
}

/// A submission ready to be proposed.
pub(super) struct Prepared {
    /// The proposal with its payload.
    pub intake: Intake,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// An id that sorts by time (design 4).
pub(super) fn draw_id() -> [u8; 16] {
    Uuid::now_v7().into_bytes()
}

/// A body under a fresh salt, with the reference that an event holds of it.
///
/// # Errors
/// 500 when the machine gives no randomness.
pub(super) fn salted(bytes: &[u8]) -> ApiResult<(BodyRef, Body)> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| {
        tracing::error!(%error, "the machine gives no randomness");
        ApiError::internal()
    })?;
    let body = Body { salt, bytes: Arc::from(bytes) };
    let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Ok((BodyRef { digest: body.digest(), len }, body))
}

impl From<Unfit> for ApiError {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Invalid(faults) => invalid(faults),
            Unfit::DeadlinePast { deadline } => {
                Self::new(Code::DeadlinePast, format!("the deadline {deadline} has passed"))
                    .at("/deadline", "lies in the past")
            }
            Unfit::PayloadTooLarge => {
                Self::new(Code::BodyTooLarge, format!("a payload has at most {MAX_PAYLOAD} bytes"))
                    .at("/payload", "is too large: pass a reference in payload_ref")
                    .fact("limit", MAX_PAYLOAD)
            }
        }
    }
}

/// Fields out of bounds as one problem.
pub(super) fn invalid(faults: Vec<Fault>) -> ApiError {
    let detail = faults.first().map_or_else(String::new, |fault| format!("{} {}", fault.pointer, fault.detail));
    faults
        .into_iter()
        .fold(ApiError::new(Code::InvalidField, detail), |error, fault| error.at(fault.pointer, fault.detail))
}

/// Checks a body and makes a proposal of it. `raw` is the text that `body` was parsed from.
///
/// # Errors
/// Everything that is wrong with it, with pointers into the body.
pub(super) async fn prepare(
    app: &App,
    caller: &Caller,
    body: &TaskBody<'_>,
    raw: &[u8],
    origin: Origin,
) -> ApiResult<Prepared> {
    let now = app.ledger.now();
    let to_ledger = |wall: Timestamp| app.ledger.from_wall(wall);
    let text = by_text(app, caller, (body, raw), origin.key.as_ref()).await?;
    let setting = Setting {
        reach_id: ReachId(draw_id()),
        subject: &caller.token,
        now,
        to_ledger: &to_ledger,
        sync_wait: origin.sync_wait,
        batch: origin.batch,
        routed: capability_of(text.as_ref()),
    };
    let mut made = submission::submission(body, &setting)?;
    match &text {
        Some(ByText::Repeat) => made.absent_agents = AbsentAgents::Refuse,
        Some(ByText::Routed(_)) | None => caller.may_call(&made.capability)?,
    }
    if body.slow_reach.is_none() {
        made.slow_reach = slow_by_rule(app, caller, &made);
    }
    let named = NamedKey { field: body.idempotency_key.as_deref(), header: origin.key };
    let mut key = idempotency(app, caller, named, raw)?;
    let mut warnings = Vec::new();
    if let Err(refusal) = fits_the_present(app, caller, body, &mut made, &mut warnings).await {
        // S6: a repeat is answered as the first call was, whatever has changed since. The core answers from the key.
        if !is_bound(app, caller, key.as_ref()).await? {
            return Err(refusal);
        }
    }
    if let Some(key) = &mut key {
        let life = made.deadline.map_or(made.lifetime, |deadline| deadline.since(now).min(made.lifetime));
        key.window = Millis(KEY_WINDOW.0.max(life.0));
    }
    made.idempotency = key.map(Box::new);
    let mut bodies = Vec::new();
    if let Some(payload) = body.payload_or_text() {
        let (named, kept) = salted(payload.get().as_bytes())?;
        made.payload = Some(named);
        bodies.push((render::body_key(made.reach_id, BodyKind::Payload, 0), kept));
    }
    let routed = match text {
        Some(ByText::Routed(routed)) => Some(Box::new(routed.record())),
        Some(ByText::Repeat) | None => None,
    };
    let command = Command::SubmitTask { submission: Arc::new(made), bound: None, routed };
    Ok(Prepared { intake: Intake { proposal: caller.proposal(command), bodies }, warnings })
}

/// What a text without a capability came to.
enum ByText {
    Routed(Routed),
    /// It fits nothing now, and its key is bound: the core answers with what it fitted then (S6).
    Repeat,
}

/// Routes a body that leaves it to its text what must be done; `None` for one that names its capability.
async fn by_text(
    app: &App,
    caller: &Caller,
    (body, raw): (&TaskBody<'_>, &[u8]),
    header: Option<&Text>,
) -> ApiResult<Option<ByText>> {
    let Some(asked) = body.text.as_deref().filter(|_| text::is_asked(body)) else { return Ok(None) };
    let refusal = match text::route(app, caller, asked).await {
        Ok(routed) => return Ok(Some(ByText::Routed(routed))),
        Err(refusal) => refusal,
    };
    let named = NamedKey { field: body.idempotency_key.as_deref(), header: header.cloned() };
    let key = idempotency(app, caller, named, raw)?;
    if is_bound(app, caller, key.as_ref()).await? { Ok(Some(ByText::Repeat)) } else { Err(refusal) }
}

fn capability_of(text: Option<&ByText>) -> Option<Capability> {
    text.map(|text| match text {
        ByText::Routed(routed) => routed.capability().clone(),
        ByText::Repeat => submission::unnamed(),
    })
}

/// What a slow task's capability says, for one that says nothing itself. A hand-over may start it twice, so it holds for
/// idempotent tasks only (S9).
fn slow_by_rule(app: &App, caller: &Caller, made: &Submission) -> SlowPolicy {
    let key = (caller.namespace.clone(), made.capability.clone());
    match app.ledger.published().capability_rules.get(&key).map(|rules| rules.slow_reach) {
        Some(SlowPolicy::HandOver { .. }) if made.idempotence == Idempotence::NotDeclared => SlowPolicy::Wait,
        Some(policy) => policy,
        None => SlowPolicy::Wait,
    }
}

/// What may be refused now and was not before, or the other way round: time, addresses, parents, schemas.
///
/// # Errors
/// What is against it now.
async fn fits_the_present(
    app: &App,
    caller: &Caller,
    body: &TaskBody<'_>,
    made: &mut Submission,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    if body.payload_ref.is_some() {
        warnings.push("payload_ref is passed on and never opened: no schema was checked".to_owned());
    }
    let now = app.ledger.now();
    // With a lifetime of its own the earlier of the two holds, as asked for (semantics 34).
    if body.lifetime_ms.is_none() && made.deadline.is_some_and(|deadline| deadline > now.after(MAX_LIFETIME)) {
        warnings.push("the deadline is cut to 30 days from now: no task lives longer".to_owned());
    }
    submission::lies_ahead(made, now)?;
    if let Some(spec) = &body.callback {
        callback_may_be_called(app, caller, spec, "/callback")?;
    }
    if let Some(parent) = made.parent {
        under_parent(app, caller, parent, made, warnings).await?;
    }
    match fit_to_offers(app, caller, body, made).await? {
        Some(complaints) => Err(schemas::refusal(&complaints, Sight::Payload)),
        None => Ok(()),
    }
}

/// Is the key in use, by whatever call?
pub(super) async fn is_bound(app: &App, caller: &Caller, key: Option<&IdempotencyKey>) -> ApiResult<bool> {
    let Some(key) = key else { return Ok(false) };
    let bound = app.ledger.key(caller.namespace.clone(), key.key.clone()).await?;
    Ok(bound.is_some_and(|binding| binding.until > app.ledger.now()))
}

/// The egress guard and the secret, at submission (semantics 38); the guard judges again at connect.
///
/// # Errors
/// 422 `egress-blocked` or `invalid-field`.
pub(super) fn callback_may_be_called(app: &App, caller: &Caller, body: &CallbackBody, at: &str) -> ApiResult<()> {
    if let Err(refusal) = app.guard.check_url(&body.url, Purpose::Callback) {
        return Err(
            ApiError::new(Code::EgressBlocked, refusal.to_string()).at(format!("{at}/url"), refusal.to_string())
        );
    }
    match &body.secret_ref {
        Some(name) if !app.secrets.exists(&caller.namespace, name) => {
            Err(ApiError::field(format!("{at}/secret_ref"), "there is no callback secret of that name"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A child's end is cut to its parent's; a parent too short for its child is warned of (R-SUB-7).
async fn under_parent(
    app: &App,
    caller: &Caller,
    parent: ReachId,
    made: &mut Submission,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let found = app.ledger.task(parent).await?.filter(|task| task.namespace == caller.namespace);
    let Some(found) = found else {
        return Err(ApiError::field("/parent/reach_id", "there is no such task here"));
    };
    let own = made.deadline.unwrap_or(Timestamp(u64::MAX)).min(app.ledger.now().after(made.lifetime));
    if found.deadline < own {
        made.deadline = Some(found.deadline);
        warnings.push(format!("the deadline is cut to the parent's: {}", found.deadline));
    }
    // Half as much again: time for the parent to take the child's result and go on.
    if found.spec.work_timeout.0.saturating_mul(2) < made.work_timeout.0.saturating_mul(3) {
        warnings.push(format!(
            "the parent's work timeout of {} is below 1.5 times this task's {}",
            found.spec.work_timeout, made.work_timeout
        ));
    }
    // Last, so that a repeat has the warnings of the first call.
    if found.status.kind().is_terminal() {
        return Err(ApiError::field("/parent/reach_id", "the parent has ended"));
    }
    Ok(())
}

/// Schema verdicts and the need for approval, by what is offered now; the complaints, if every offer refuses.
///
/// # Errors
/// When schemas can't be read or the check takes too long.
pub(super) async fn fit_to_offers(
    app: &App,
    caller: &Caller,
    body: &TaskBody<'_>,
    made: &mut Submission,
) -> ApiResult<Option<Complaints>> {
    let catalog = app.ledger.published().catalog;
    let Some(entry) = catalog.of(&caller.namespace, &made.capability) else { return Ok(None) };
    if entry.sensitive == Sensitive::Yes {
        made.approval = Approval::Needed;
    }
    if body.payload_ref.is_some() {
        // Never opened, so nothing can be held against it.
        made.schemas.accepted = schemas::distinct(entry).into_iter().collect();
        return Ok(None);
    }
    let (verdicts, complaints) =
        held_against_offers(app, caller, &made.capability, body.payload_or_text().as_deref()).await?;
    made.schemas = verdicts;
    Ok(complaints)
}

/// The verdicts of what is offered now about a payload; the complaints, if every offer refuses it.
///
/// # Errors
/// When schemas can't be read or the check takes too long.
pub(super) async fn held_against_offers(
    app: &App,
    caller: &Caller,
    capability: &Capability,
    payload: Option<&RawValue>,
) -> ApiResult<(SchemaVerdicts, Option<Complaints>)> {
    let catalog = app.ledger.published().catalog;
    let entry = catalog.of(&caller.namespace, capability);
    let Some((entry, digests)) = entry.map(|entry| (entry, schemas::distinct(entry))).filter(|(_, d)| !d.is_empty())
    else {
        return Ok((SchemaVerdicts::default(), None));
    };
    let payload: Arc<[u8]> = Arc::from(payload.map_or("null", RawValue::get).as_bytes());
    let compiled = app.schemas.compiled(&app.ledger, digests).await?;
    let (verdicts, complaints) = app.schemas.verdicts(compiled, payload).await?;
    let all_refuse = schemas::all_refuse(entry, &verdicts);
    Ok((verdicts, all_refuse.then_some(complaints)))
}

/// Where a call may name its key.
pub(super) struct NamedKey<'a> {
    /// `idempotency_key` in the body.
    pub field: Option<&'a str>,
    /// The `Idempotency-Key` header.
    pub header: Option<Text>,
}

/// The key by which a repeat is known, remembered for [`KEY_WINDOW`] (semantics 31).
///
/// # Errors
/// 422 when header and field differ, or the key is empty or too long.
pub(super) fn idempotency(
    app: &App,
    caller: &Caller,
    named: NamedKey<'_>,
    raw: &[u8],
) -> ApiResult<Option<IdempotencyKey>> {
    let key = match (named.field, named.header) {
        (Some(field), Some(header)) if *field != *header => {
            return Err(ApiError::field("/idempotency_key", "differs from the Idempotency-Key header"));
        }
        (Some(field), _) => {
            let mut faults = Faults::default();
            let key = faults.text("/idempotency_key", Some(field), MAX_KEY);
            faults.into_result().map_err(invalid)?;
            key
        }
        (None, header) => header,
    };
    let Some(key) = key else { return Ok(None) };
    let canonical = canonical::canonical_without(raw, "idempotency_key")
        .map_err(|error| ApiError::new(Code::MalformedJson, error.to_string()))?;
    Ok(Some(IdempotencyKey {
        key,
        fingerprint: app.ledger.keys().fingerprint(&caller.namespace, &canonical),
        subject: caller.token.clone(),
        window: KEY_WINDOW,
    }))
}

/// An accepted submission.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(super) struct Accepted {
    /// Of which task.
    #[serde(skip)]
    pub task: ReachId,
    /// Where it stood first.
    #[serde(skip)]
    pub first: StatusKind,
    reach_id: String,
    state: &'static str,
    /// `fsync`: it is on disk.
    durability: &'static str,
    deadline: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptBody>,
    /// When the idempotency key is forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key_until: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Is this the answer of an earlier call with the same key?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

impl Accepted {
    /// What the caller should know.
    pub(super) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }
}

/// The answer to a submission that the core has decided on.
///
/// # Errors
/// Why the core refused it.
pub(super) async fn accepted(
    app: &App,
    caller: &Caller,
    verdict: Result<Released, Refusal>,
    warnings: Vec<String>,
) -> ApiResult<Accepted> {
    let released = verdict.map_err(|refusal| refused(app, caller, refusal))?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other answer is a bug, told as one")]
    match released.answer {
        Answer::Submitted { task, state, deadline, key_until } => Ok(Accepted {
            task,
            reach_id: task.to_string(),
            first: state,
            state: state.name(),
            durability: "fsync",
            deadline: deadline.to_string(),
            receipt: released.receipt.map(ReceiptBody::from),
            idempotency_key_until: key_until.map(|at| at.to_string()),
            warnings,
            replayed: false,
        }),
        Answer::Replayed { subject: KeySubject::Task(task), receipt, key_until } => {
            first_answer(app, (task, receipt), key_until, warnings).await
        }
        Answer::Replayed { subject: KeySubject::Batch(_), .. } => {
            Err(ApiError::new(Code::IdempotencyKeyReused, "the key is in use for a batch"))
        }
        Answer::Replayed { subject: KeySubject::Replay(_), .. } => {
            Err(ApiError::new(Code::IdempotencyKeyReused, "the key is in use for a replay plan"))
        }
        other => Err(unexpected(&other)),
    }
}

/// A bug: the core answered something that the call can't have asked for.
pub(super) fn unexpected(answer: &Answer) -> ApiError {
    tracing::error!(?answer, "an answer that does not fit the call");
    ApiError::internal()
}

/// A refusal of the core; an unknown capability with near names.
pub(super) fn refused(app: &App, caller: &Caller, refusal: Refusal) -> ApiError {
    if let Refusal::Rejected(Rejection::CapabilityNotRegistered { capability }) = &refusal {
        return near::not_registered(app, caller, capability);
    }
    refusal.into()
}

/// The first answer again, made from the event that it told of (semantics 31).
async fn first_answer(
    app: &App,
    (task, seq): (ReachId, Seq),
    until: Timestamp,
    warnings: Vec<String>,
) -> ApiResult<Accepted> {
    let stored = app.ledger.events_at(vec![seq]).await?.into_iter().next();
    let receipt = stored.as_ref().map(|stored| Receipt { seq, hash: stored.hash() });
    let Some((at, EventBody::TaskSubmitted(first))) = stored.map(|stored| (stored.event.at, stored.event.body)) else {
        tracing::error!(%seq, "an idempotency key names an event that is no submission");
        return Err(ApiError::internal());
    };
    Ok(Accepted {
        task,
        reach_id: task.to_string(),
        first: first_status(&first.submission, at).kind(),
        state: first_status(&first.submission, at).kind().name(),
        durability: "fsync",
        deadline: first.deadline.to_string(),
        receipt: receipt.map(ReceiptBody::from),
        idempotency_key_until: Some(until.to_string()),
        warnings,
        replayed: true,
    })
}
