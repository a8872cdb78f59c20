//! What a plan's patch names and no payload has: a misspelt member is added to every payload, and nobody is told.
//!
//! To add one may be meant, so it is said and not refused; and only to those who may read payloads, for it tells of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::App;
use crate::api::error::ApiResult;
use crate::api::extract::Caller;
use crate::api::near::alike;
use crate::api::render::body_key;
use crate::api::schemas::Sight;
use crate::api::submission::escape;
use crate::ledger::handle::Unavailable;
use crate::ledger::machine::replay::ItemAction;
use crate::ledger::store::BodyKind;

use super::fit::Held;
use super::select::Found;

/// Payloads looked at, and their bytes.
const MOST_PAYLOADS: usize = 1_000;
const MOST_BYTES: usize = 16 << 20;
/// Payloads that are in memory at once.
const AT_ONCE: usize = 16;
/// Members of a patch that are looked for, and names beside one that are compared with it.
const MOST_MEMBERS: usize = 100;
const MOST_BESIDE: usize = 200;

/// A member that a patch names and no payload has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ReplayPatchMember)]
pub(super) struct MemberView {
    /// Where it stands in the order.
    pointer: String,
    /// Members in its place that may have been meant.
    suggestions: Vec<String>,
}

/// What was found.
pub(super) struct Members {
    pub(super) absent: Vec<MemberView>,
    /// Payloads looked at: the first ones.
    pub(super) looked_at: u32,
}

/// A member that a patch names.
struct Member {
    steps: Vec<String>,
    is_there: bool,
    /// Names that payloads have in its place.
    beside: BTreeSet<String>,
}

/// What no payload of those items has; nothing without a patch, and for those who may not read payloads.
///
/// # Errors
/// 503 when the disk does not answer.
pub(super) async fn of(
    app: &App,
    caller: &Caller,
    items: &[Found],
    patch: Option<&Arc<[u8]>>,
) -> ApiResult<Option<Members>> {
    let Some(patch) = patch.filter(|_| Sight::of(caller) == Sight::Payload) else { return Ok(None) };
    let mut members = Vec::new();
    if let Ok(patch) = serde_json::from_slice(patch) {
        named(&patch, &[], &mut members);
    }
    let patched: Vec<&Found> = items
        .iter()
        .filter(|found| found.action == ItemAction::Redrive && found.held == Held::Inline)
        .take(MOST_PAYLOADS)
        .collect();
    let (mut looked_at, mut bytes) = (0, 0);
    for some in patched.chunks(AT_ONCE) {
        if bytes >= MOST_BYTES || members.iter().all(|member| member.is_there) {
            break;
        }
        let keys = some.iter().map(|found| body_key(found.task, BodyKind::Payload, 0)).collect();
        let bodies: Vec<Arc<[u8]>> =
            app.ledger.bodies(keys).await?.into_iter().flatten().map(|body| body.bytes).collect();
        looked_at += bodies.len();
        bytes += bodies.iter().map(|body| body.len()).sum::<usize>();
        // To read a large payload is no work for those who answer calls.
        let look = move || {
            bodies.iter().for_each(|body| look_at(body, &mut members));
            members
        };
        let looked = tokio::task::spawn_blocking(look).await;
        members = looked.map_err(|error| Unavailable::Unreadable(error.to_string()))?;
    }
    let absent = if looked_at == 0 { Vec::new() } else { absent(&members) };
    Ok(Some(Members { absent, looked_at: u32::try_from(looked_at).unwrap_or(u32::MAX) }))
}

/// The members of a patch, each before those inside it.
fn named(patch: &Value, above: &[String], members: &mut Vec<Member>) {
    for (name, value) in patch.as_object().into_iter().flatten() {
        if members.len() >= MOST_MEMBERS {
            return;
        }
        let steps = [above, std::slice::from_ref(name)].concat();
        members.push(Member { steps: steps.clone(), is_there: false, beside: BTreeSet::new() });
        named(value, &steps, members);
    }
}

fn look_at(payload: &[u8], members: &mut [Member]) {
    let payload: Option<Value> = serde_json::from_slice(payload).ok();
    for member in members.iter_mut().filter(|member| !member.is_there) {
        // Of what cannot be read nobody says what it has not.
        let Some(payload) = &payload else {
            member.is_there = true;
            continue;
        };
        let Some((last, above)) = member.steps.split_last() else { continue };
        let place = above.iter().try_fold(payload, |at, step| at.get(step)).and_then(Value::as_object);
        let Some(place) = place else { continue };
        member.is_there = place.contains_key(last);
        let room = MOST_BESIDE.saturating_sub(member.beside.len());
        member.beside.extend(place.keys().take(room).cloned());
    }
}

/// Those that are not there, where what they lie in is.
fn absent(members: &[Member]) -> Vec<MemberView> {
    let is_there = |steps: &[String]| members.iter().any(|member| member.is_there && member.steps == steps);
    let told = members.iter().filter(|member| !member.is_there).filter(|member| match member.steps.split_last() {
        Some((_, above)) => above.is_empty() || is_there(above),
        None => false,
    });
    told.map(|member| {
        let last = member.steps.last().map(String::as_str).unwrap_or_default();
        let path: String = member.steps.iter().map(|step| format!("/{}", escape(step))).collect();
        let suggestions = alike(last, member.beside.iter().map(String::as_str));
        MemberView { pointer: format!("/payload_patch{path}"), suggestions }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(patch: &str, payloads: &[&str]) -> Vec<(String, Vec<String>)> {
        let mut members = Vec::new();
        named(&serde_json::from_str(patch).unwrap(), &[], &mut members);
        payloads.iter().for_each(|payload| look_at(payload.as_bytes(), &mut members));
        absent(&members).into_iter().map(|view| (view.pointer, view.suggestions)).collect()
    }

    #[test]
    fn what_one_payload_has_is_no_slip_and_what_none_has_is_told_where_it_begins() {
        let payloads = [r#"{"to":{"host":"a"},"n":1}"#, r#"{"to":{"host":"b","port":1}}"#, "[1]", "null"];
        assert_eq!(told(r#"{"to":{"port":2},"n":null}"#, &payloads), []);
        let slips = told(r#"{"ot":{"host":"x","port":{"a":1}},"to":{"hsot":1}}"#, &payloads);
        let told_as = |pointer: &str, meant: &str| (pointer.to_owned(), vec![meant.to_owned()]);
        assert_eq!(slips[1], told_as("/payload_patch/to/hsot", "host"));
        assert_eq!((slips.len(), &*slips[0].0), (2, "/payload_patch/ot"));
        assert_eq!(told(r#"{"x":1}"#, &["no JSON"]), [], "nobody knows what it has");
        assert_eq!(told("[1]", &payloads), []);
    }
}
