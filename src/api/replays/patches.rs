//! The merge patches of plans, for those who may see payloads: read once, and kept.
//!
//! Why kept: a patch stands in the list of its plan, which may be some megabytes, and a plan is looked at again and again
//! while it runs. A plan never changes its patch, so what was read once holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::api::App;
use crate::api::error::ApiResult;
use crate::ledger::ids::ReplayId;
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::replay::Replay;
use crate::recovery::list::{amendments, is_amending};

use super::items::read;

/// Plans whose patch is known: of up to 64 KiB each.
const KEPT: usize = 64;

/// Patches by plan; `None` of a plan without one.
#[derive(Debug, Default)]
pub(in crate::api) struct Patches(Mutex<BTreeMap<ReplayId, Option<Arc<[u8]>>>>);

impl Patches {
    fn known(&self, id: ReplayId) -> Option<Option<Arc<[u8]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    fn keep(&self, id: ReplayId, patch: Option<Arc<[u8]>>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(id, patch);
        // The oldest plan is looked at least.
        while kept.len() > KEPT {
            kept.pop_first();
        }
    }
}

/// The patch of a plan's payloads, if it has one and it can be read: a plan whose list is damaged is shown without it.
pub(super) async fn patch_of(app: &App, replay: &Replay) -> Option<Arc<[u8]>> {
    // Most plans tell by the length of their list that it says nothing of payloads.
    if !is_amending(replay.outcomes.len(), usize::try_from(replay.list.len).unwrap_or(usize::MAX)) {
        return None;
    }
    if let Some(known) = app.patches.known(replay.id) {
        return known;
    }
    let patch = looked_up(app, replay).await.ok()?;
    app.patches.keep(replay.id, patch.clone());
    patch
}

async fn looked_up(app: &App, replay: &Replay) -> ApiResult<Option<Arc<[u8]>>> {
    let planned = app.ledger.events_at(replay.seqs.first().copied().into_iter().collect()).await?;
    // The event names a patch if there is one; where it is no longer kept the list tells.
    if let Some(EventBody::ReplayPlanned(body)) = planned.first().map(|stored| &stored.event.body)
        && body.patch.is_none()
    {
        return Ok(None);
    }
    Ok(read(app, replay, amendments).await?.patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_patches_are_kept_and_the_oldest_plans_goes_first() {
        let patches = Patches::default();
        let id = |n: u8| ReplayId([n; 16]);
        let patch: Arc<[u8]> = Arc::from(&b"{}"[..]);
        patches.keep(id(0), Some(Arc::clone(&patch)));
        assert_eq!((patches.known(id(0)), patches.known(id(1))), (Some(Some(patch)), None));
        for n in 1..=64 {
            patches.keep(id(n), None);
        }
        assert_eq!((patches.known(id(0)), patches.known(id(1))), (None, Some(None)));
    }
}
