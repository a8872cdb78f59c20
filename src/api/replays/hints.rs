//! What somebody who looks before they leap should know: names that nothing bears, and plans that are at it already.

use std::collections::BTreeSet;

use serde::Serialize;
use utoipa::ToSchema;

use crate::api::App;
use crate::api::agents::breakers::{InTheWay, in_the_way};
use crate::api::error::ApiResult;
use crate::api::extract::Caller;
use crate::api::submission::escape;
use crate::api::unborne::{self, Unborne};
use crate::ledger::ids::{Capability, ReachId, ReplayId};
use crate::ledger::machine::State;
use crate::ledger::machine::replay::{ItemOutcome, Replay};
use crate::recovery::select::Select;

use super::items::list_of;
use super::select::Selection;

/// Breakers that a dry run names.
const MAX_BREAKERS: usize = 100;

/// A part of the selection that picks nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ReplayHint)]
pub(super) struct Hint {
    /// Which field.
    pub(super) pointer: String,
    /// What is the matter with it.
    pub(super) detail: String,
    /// Names that may have been meant, of those that this token may see.
    pub(super) suggestions: Vec<String>,
    /// How many more there are that it may not see.
    #[serde(skip_serializing_if = "is_none")]
    #[schema(required = false)]
    pub(super) not_permitted: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A plan that has not ended and has some of the same tasks before it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayOverlap)]
pub(super) struct Overlap {
    replay_id: String,
    /// `running` or `paused`.
    state: &'static str,
    /// Tasks of this selection that are still pending there. Whoever comes first acts; the other leaves them alone.
    shared: u32,
}

impl Hint {
    fn new(name: Unborne) -> Self {
        let Unborne { field, member, detail, suggestions, not_permitted } = name;
        let member = member.map_or_else(String::new, |member| format!("/{}", escape(&member)));
        Self { pointer: format!("/select/{field}{member}"), detail, suggestions, not_permitted }
    }
}

/// Names of a selection that nothing bears: tasks that are not there, and of one that picks nothing at all every other.
///
/// # Errors
/// 503 when the hub or its disk does not answer.
pub(super) async fn hints(app: &App, caller: &Caller, select: &Select, selection: &Selection) -> ApiResult<Vec<Hint>> {
    let mut names: Vec<Unborne> = unborne::ids(app, caller, &selection.unknown).await?.into_iter().collect();
    if selection.items.is_empty() && selection.skipped.is_empty() {
        names.extend(unborne::of(app, caller, select).await?);
    }
    Ok(names.into_iter().map(Hint::new).collect())
}

/// Plans of the namespace that have some of those tasks before them.
///
/// # Errors
/// 503 when the hub or its disk does not answer.
pub(super) async fn overlaps(app: &App, caller: &Caller, selection: &Selection) -> ApiResult<Vec<Overlap>> {
    let namespace = caller.namespace.clone();
    let open = move |state: &State| -> Vec<(ReplayId, std::sync::Arc<Replay>)> {
        let of = state.replays().iter().filter(|(_, replay)| replay.namespace == namespace);
        of.map(|(id, replay)| (*id, std::sync::Arc::clone(replay))).collect()
    };
    let picked: BTreeSet<ReachId> = selection.items.iter().map(|found| found.task).collect();
    let mut overlaps = Vec::new();
    for (id, replay) in app.ledger.ask(open).await? {
        // One whose list can't be read is paused by the hub, and goes on with nothing.
        let Ok(list) = list_of(app, &replay).await else { continue };
        let pending = list.iter().zip(&replay.outcomes).filter(|(_, outcome)| **outcome == ItemOutcome::Pending);
        let shared = pending.filter(|(item, _)| picked.contains(&item.task)).count();
        if shared > 0 {
            let shared = u32::try_from(shared).unwrap_or(u32::MAX);
            overlaps.push(Overlap { replay_id: id.to_string(), state: replay.phase.name(), shared });
        }
    }
    Ok(overlaps)
}

/// The breakers that stand in the way of what the plan would act on.
///
/// # Errors
/// 503 when the hub does not answer.
pub(super) async fn open_breakers(app: &App, caller: &Caller, selection: &Selection) -> ApiResult<Vec<InTheWay>> {
    let namespace = caller.namespace.clone();
    let wanted: BTreeSet<Capability> = selection.items.iter().map(|found| found.capability.clone()).collect();
    let takes = move |capability: &Capability| wanted.contains(capability);
    Ok(app.ledger.ask(move |state| in_the_way(state, &namespace, takes, MAX_BREAKERS)).await?)
}
