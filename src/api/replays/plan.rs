//! A plan, from what an operator orders to what the ledger keeps; and what it would do, before it is one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{HeaderName, HeaderValue, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::extract::{Caller, Json, JsonBytes, NoQuery, parse};
use crate::api::list::Filter;
use crate::api::submit::{NamedKey, draw_id, idempotency, salted, unexpected};
use crate::api::tasks::idempotency_header;
use crate::ledger::handle::{Intake, Receipt};
use crate::ledger::ids::{Capability, Digest, ReplayId, Seq};
use crate::ledger::machine::KeySubject;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::command::Command;
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::replay::order::ReplayOrder;
use crate::ledger::machine::task::spec::{BodyRef, IdempotencyKey};
use crate::ledger::store::BodyKey;
use crate::recovery::list::{Amendments, encode_amending};

use super::body::{Order, PlanBody};
use super::codes::Codes;
use super::hints::{Hint, hints, open_breakers, overlaps};
use super::select::{self, OfAttempts, Selection};
use super::view::{DryRunView, Looked, LookedAt, ReplayView};
use super::{fit, members, sample, visible};

/// Plans a replay: everything that the selection picks and that can be replayed or redriven, at a rate.
///
/// What was picked is frozen; each item is looked at again at its turn, and left alone if it has moved on. With
/// `dry_run` it only says what it would do, and binds no key.
#[utoipa::path(
    post, path = "/v1/replays", tag = "replays", request_body = PlanBody<'static>,
    params(("Idempotency-Key" = Option<String>, Header, description = "Against planning the same twice")),
    responses(
        (status = 202, body = ReplayView),
        (status = 200, body = LookedAt, description = "With `dry_run`: what the plan would do; nothing is kept. To a \
            repeat with the same `Idempotency-Key`: the answer to the first call, a `Replay` as it was frozen"),
    )
)]
pub(super) async fn plan_replay(
    State(app): State<App>,
    caller: Caller,
    NoQuery: NoQuery,
    headers: HeaderMap,
    JsonBytes(bytes): JsonBytes,
) -> ApiResult<Response> {
    caller.require(Scope::Operate)?;
    let body: PlanBody<'_> = parse(&bytes)?;
    let named = NamedKey { field: None, header: idempotency_header(&headers)? };
    let key = idempotency(&app, &caller, named, &bytes)?.filter(|_| !body.dry_run);
    // Before anything else: what a repeat selects by now, or may by now, is none of its first call's.
    if let Some(first) = first_call(&app, &caller, key.as_ref(), body.payload_patch).await? {
        return Ok(first);
    }
    let usual = app.ledger.published().policies.of(&caller.namespace).replays_per_second;
    let order = body.order(&app, usual)?;
    may_select(&caller, order.select.capability.as_ref())?;
    let filter = Filter { namespace: caller.namespace.clone(), select: order.select.clone() };
    // Until all that costs as much as the selection is done.
    let turn = Arc::new(app.selections.take(&caller.namespace).await?);
    let reads = body.dry_run && caller.require(Scope::Read).is_ok();
    let of_attempts = if reads { OfAttempts::Read } else { OfAttempts::Unread };
    let selection = select::select((&app, &turn), filter, (order.word, of_attempts)).await?;
    let fits = fit::fits(&app, (&caller.namespace, &turn), &selection.items, order.patch.as_ref()).await?;
    if body.dry_run {
        let looked = Looked {
            open_plans: overlaps(&app, &caller, &selection).await?,
            open_breakers: open_breakers(&app, &caller, &selection).await?,
            hints: hints(&app, &caller, &order.select, &selection).await?,
            sample: sample::of(&app, &caller, (&selection.items, &fits), order.patch.as_ref()).await?,
            members: members::of(&app, &caller, &selection.items, order.patch.as_ref()).await?,
            codes: reads.then(|| Codes::of(selection.items.iter().filter_map(|found| found.code.as_deref()))),
            fits,
        };
        drop(turn);
        let view = DryRunView::new(&selection, &order, looked);
        return Ok(Json(LookedAt::Dry(Box::new(view))).into_response());
    }
    if selection.items.is_empty() {
        // The first call may have made its plan meanwhile, and that have sent all of it already.
        if let Some(first) = first_call(&app, &caller, key.as_ref(), body.payload_patch).await? {
            return Ok(first);
        }
        return Err(nothing(&selection, hints(&app, &caller, &order.select, &selection).await?));
    }
    drop(turn);
    let amendments = fit::amendments(&fits, order.patch.as_ref());
    freeze(&app, &caller, (&selection, &amendments), (order, key), body.payload_patch).await
}

/// The answer of the first call, if it has bound the key by now.
async fn first_call(
    app: &App,
    caller: &Caller,
    key: Option<&IdempotencyKey>,
    patch: Option<&RawValue>,
) -> ApiResult<Option<Response>> {
    let Some(key) = key else { return Ok(None) };
    match bound_to(app, caller, key).await? {
        Some(first) => Ok(Some(again(app, caller, first, patch).await?)),
        None => Ok(None),
    }
}

/// Refuses a selection beyond the capabilities that the token is limited to; `capability` is what it names.
pub(super) fn may_select(caller: &Caller, capability: Option<&Capability>) -> ApiResult<()> {
    match capability {
        Some(capability) => caller.may_call(capability),
        None if caller.bearer().is_limited() => {
            let detail = "this token is limited to some capabilities: name one of them";
            Err(ApiError::new(Code::CapabilityNotAllowed, detail).at("/select/capability", "is missing"))
        }
        None => Ok(()),
    }
}

/// Writes the list down and makes the plan of it.
async fn freeze(
    app: &App,
    caller: &Caller,
    (selection, amendments): (&Selection, &Amendments),
    (order, idempotency): (Order, Option<IdempotencyKey>),
    sent: Option<&RawValue>,
) -> ApiResult<Response> {
    let list = selection.list();
    let replay = ReplayId(draw_id());
    let (named, kept) = salted(&encode_amending(&list, amendments))?;
    let patch = amendments.patch.as_ref().map(|patch| BodyRef {
        digest: Digest::of(&[&kept.salt, patch]),
        len: u32::try_from(patch.len()).unwrap_or(u32::MAX),
    });
    let command = Command::PlanReplay(Box::new(ReplayOrder {
        replay,
        select: order.told,
        reason: order.reason,
        rate: order.rate,
        may_have_run: order.word,
        total: u32::try_from(list.len()).unwrap_or(u32::MAX),
        list: named,
        position: selection.position,
        patch,
        idempotency,
        bound: None,
    }));
    let bodies = vec![(BodyKey::list_of(replay), kept)];
    let released = app.ledger.propose(Intake { proposal: caller.proposal(command), bodies }).await?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "any other answer is a bug, told as one")]
    match &released.answer {
        Answer::Replay { .. } => {}
        Answer::Replayed { subject, receipt, .. } => {
            return again(app, caller, (plan_of(*subject)?, *receipt), sent).await;
        }
        other => return Err(unexpected(other)),
    }
    let planned = visible(app, caller, replay).await?;
    let view = ReplayView::frozen(planned, order.rate, released.receipt.map(Into::into)).sent_with(sent);
    Ok(respond(StatusCode::ACCEPTED, (replay, Json(view))))
}

fn respond(status: StatusCode, (replay, view): (ReplayId, impl IntoResponse)) -> Response {
    let location = HeaderValue::try_from(format!("/v1/replays/{replay}")).ok();
    let mut response = (status, view).into_response();
    response.headers_mut().extend(location.map(|value| (LOCATION, value)));
    response
}

/// What a key is bound to, if it is in use; the same rules as the core's, asked before anything is selected.
async fn bound_to(app: &App, caller: &Caller, key: &IdempotencyKey) -> ApiResult<Option<(ReplayId, Seq)>> {
    let bound = app.ledger.key(caller.namespace.clone(), Arc::clone(&key.key)).await?;
    let Some(binding) = bound.filter(|binding| binding.until > app.ledger.now()) else { return Ok(None) };
    if binding.subject != key.subject {
        return Err(Rejection::KeyReused { first: None, this: key.fingerprint }.into());
    }
    if binding.fingerprint != key.fingerprint {
        return Err(Rejection::KeyReused { first: Some(binding.fingerprint), this: key.fingerprint }.into());
    }
    Ok(Some((plan_of(binding.bound_to)?, binding.receipt)))
}

fn plan_of(subject: KeySubject) -> ApiResult<ReplayId> {
    match subject {
        KeySubject::Replay(replay) => Ok(replay),
        KeySubject::Task(_) => Err(ApiError::new(Code::IdempotencyKeyReused, "the key is in use for a task")),
        KeySubject::Batch(_) => Err(ApiError::new(Code::IdempotencyKeyReused, "the key is in use for a batch")),
    }
}

/// What an earlier call with the same key was answered: the plan as it was frozen, with its receipt (semantics 31). A
/// repeat sends the same patch, so nobody is shown what they did not send.
async fn again(
    app: &App,
    caller: &Caller,
    (replay, seq): (ReplayId, Seq),
    sent: Option<&RawValue>,
) -> ApiResult<Response> {
    let first = visible(app, caller, replay).await?;
    let stored = app.ledger.events_at(vec![seq]).await?.into_iter().next();
    let receipt = stored.as_ref().map(|stored| Receipt { seq, hash: stored.hash() });
    let planned = stored.map(|stored| stored.event.body);
    let rate = if let Some(EventBody::ReplayPlanned(planned)) = planned { planned.rate } else { first.rate };
    let view = ReplayView::frozen(first, rate, receipt.map(Into::into)).sent_with(sent);
    let view = LookedAt::Planned(Box::new(view));
    let mut response = respond(StatusCode::OK, (replay, Json(view)));
    response.headers_mut().insert(HeaderName::from_static("idempotency-replayed"), HeaderValue::from_static("true"));
    Ok(response)
}

/// The refusal of a plan over nothing, with what it would have left alone and what may have been meant.
fn nothing(selection: &Selection, hints: Vec<Hint>) -> ApiError {
    let skipped: serde_json::Map<String, serde_json::Value> =
        selection.skipped.iter().map(|(skip, count)| (skip.name().to_owned(), (*count).into())).collect();
    let refusal = ApiError::from(Rejection::ReplayEmpty);
    let refusal = refusal.at("/select", "picks nothing that can be replayed").fact("skipped", skipped);
    let hidden: usize = hints.iter().map(|hint| hint.not_permitted).sum();
    let refusal = if hidden == 0 { refusal } else { refusal.fact("not-permitted", hidden) };
    hints.into_iter().fold(refusal, |refusal, Hint { pointer, detail, suggestions, .. }| {
        refusal.at(pointer, detail).suggest(suggestions)
    })
}
