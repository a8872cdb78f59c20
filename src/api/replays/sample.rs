//! The first items of a dry run, with their payloads before and after its patch for those who may read payloads.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::App;
use crate::api::error::ApiResult;
use crate::api::extract::Caller;
use crate::api::render::body_key;
use crate::api::schemas::Sight;
use crate::ledger::store::BodyKind;

use super::fit::{Fit, Held, patched};
use super::select::Found;
use super::view::action;

/// Items shown as a sample of a dry run.
pub(super) const SAMPLE: usize = 10;
/// Payloads up to here are shown, in bytes; a longer one is asked for by itself.
const SHOWN: usize = 16 << 10;

/// An item of a dry run's sample.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplaySample)]
pub(super) struct SampleView {
    reach_id: String,
    state: &'static str,
    capability: String,
    /// `replay` or `redrive`.
    action: &'static str,
    session_id: Option<String>,
    #[schema(format = DateTime)]
    submitted_at: String,
    /// Why it would be left alone, as things stand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    skipped: Option<&'static str>,
    /// What the schemas refuse in its payload; to tokens without the scope `read` only where, and by which keyword.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    refused: Option<String>,
    /// Its payload, where the plan patches it: for tokens with the scope `read`, up to 16 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The same, patched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<serde_json::Value>)]
    payload_patched: Option<Box<RawValue>>,
}

impl SampleView {
    fn new(found: &Found, fit: &Fit, sight: Sight) -> Self {
        let refused = match fit {
            Fit::Refused(_, Some(why)) => Some(format!("/payload{} {}", why.pointer, why.told(sight))),
            Fit::Refused(_, None) => Some("the schemas of whoever offers its capability refuse it".to_owned()),
            Fit::AsItIs | Fit::Taken(_) | Fit::LeftAlone(_) => None,
        };
        Self {
            reach_id: found.task.to_string(),
            state: found.state.name(),
            capability: found.capability.to_string(),
            action: action(found.action),
            session_id: found.session.as_ref().map(ToString::to_string),
            submitted_at: found.submitted_at.to_string(),
            skipped: fit.skip().map(|skip| skip.name()),
            refused,
            payload: None,
            payload_patched: None,
        }
    }
}

/// The sample of those items.
///
/// # Errors
/// 503 when the disk does not answer.
pub(super) async fn of(
    app: &App,
    caller: &Caller,
    (items, fits): (&[Found], &[Fit]),
    patch: Option<&Arc<[u8]>>,
) -> ApiResult<Vec<SampleView>> {
    let first: Vec<&Found> = items.iter().take(SAMPLE).collect();
    let sight = Sight::of(caller);
    let mut sample: Vec<SampleView> =
        items.iter().zip(fits).take(SAMPLE).map(|(found, fit)| SampleView::new(found, fit, sight)).collect();
    let Some(patch) = patch.filter(|_| sight == Sight::Payload) else { return Ok(sample) };
    let keys = first.iter().map(|found| body_key(found.task, BodyKind::Payload, 0)).collect();
    let bodies = app.ledger.bodies(keys).await?;
    for ((view, body), found) in sample.iter_mut().zip(bodies).zip(first) {
        let Some(body) = body.filter(|body| found.held == Held::Inline && body.bytes.len() <= SHOWN) else { continue };
        view.payload = raw(&body.bytes);
        let made = patched(&body.bytes, patch).ok();
        view.payload_patched = made.and_then(|made| raw(&made));
    }
    Ok(sample)
}

/// JSON as it stands, for an answer.
pub(super) fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(bytes.to_vec()).ok()?).ok()
}
