//! Schemas registered after a task was submitted, checked against its payload while it waits (semantics 18).
//!
//! Until its schema has a verdict an agent is no candidate for a task, so a task submitted before its only agent would
//! wait for ever without this loop. It is level-triggered: a registration only wakes it, and what it looks for is in the
//! state. Once registrations have ceased it looks once more a little later, for submissions that were on their way with
//! an older catalog in hand; and every few seconds while tasks are made anew that were checked when that was ordered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::ledger::handle::{Ledger, Published, Unavailable};
use crate::ledger::ids::{Digest, Namespace, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::task::spec::SchemaVerdicts;
use crate::ledger::store::BodyKind;

use super::render::body_key;
use super::schemas::{SchemaCache, Unchecked, distinct};

/// Tasks looked at in one question to the state.
const LOOK: usize = 2_000;
/// Checks proposed together.
const CHUNK: usize = 64;
/// A submission is decided on within this time of reading the catalog.
const ON_THE_WAY: Duration = Duration::from_secs(5);
/// Between two looks: a fleet that registers all at once costs a few of them, not one each.
const BREATH: Duration = Duration::from_millis(100);

/// A task whose verdicts lack schemas of its capability.
struct Lacking {
    task: ReachId,
    namespace: Namespace,
    has_payload: bool,
    is_reference: bool,
    schemas: BTreeSet<Digest>,
}

/// Goes on checking until the hub stops.
pub async fn keep_checking(ledger: Ledger, cache: Arc<SchemaCache>) {
    let mut news = ledger.follow();
    loop {
        let (seen, redrives) = {
            let published = news.borrow_and_update();
            (published.registrations, published.redrives)
        };
        sweep(&ledger, &cache).await;
        // Whoever waits here waits for the end too: a handle kept beyond it would keep the store open.
        let ended = timeout(BREATH, news.wait_for(|_| false)).await.is_ok();
        if ended {
            return;
        }
        let changed = timeout(ON_THE_WAY, news.wait_for(|published| published.registrations != seen)).await;
        match changed.map(|still| still.is_ok()) {
            Ok(true) => continue,
            Ok(false) => return,
            Err(_) => sweep(&ledger, &cache).await,
        }
        // What is made anew was asked when that was ordered, and no schema since.
        let is_news = |published: &Published| published.registrations != seen || published.redrives != redrives;
        if news.wait_for(is_news).await.is_err() {
            return;
        }
    }
}

async fn sweep(ledger: &Ledger, cache: &SchemaCache) {
    if let Err(why) = check_all(ledger, cache).await {
        tracing::warn!(%why, "late schemas could not be checked; the next registration tries again");
    }
}

async fn check_all(ledger: &Ledger, cache: &SchemaCache) -> Result<(), Unavailable> {
    let mut from = Some(ReachId([0; 16]));
    while let Some(start) = from {
        let (lacking, next) = ledger.ask(move |state| page(state, start)).await?;
        from = next;
        for chunk in lacking.chunks(CHUNK) {
            let mut proposals = Vec::with_capacity(chunk.len());
            for one in chunk {
                if let Some(verdicts) = check(ledger, cache, one).await? {
                    let command = Command::SchemaChecked { task: one.task, verdicts };
                    proposals.push(Proposal::by_hub(Some(one.namespace.clone()), command).into());
                }
            }
            // One that has ended meanwhile is refused, which is as well.
            ledger.propose_all(proposals).await?;
        }
    }
    Ok(())
}

/// Unfinished tasks from `start` on that lack verdicts, and where to go on.
fn page(state: &State, start: ReachId) -> (Vec<Lacking>, Option<ReachId>) {
    let mut range = state.tasks().range(start..);
    let mut lacking = Vec::new();
    for (id, task) in range.by_ref().take(LOOK) {
        if task.status.kind().is_terminal() {
            continue;
        }
        let Some(entry) = state.catalog().of(&task.namespace, &task.spec.capability) else { continue };
        let mut schemas = distinct(entry);
        schemas.retain(|digest| !task.schemas.accepted.contains(digest) && !task.schemas.refused.contains(digest));
        if !schemas.is_empty() {
            lacking.push(Lacking {
                task: *id,
                namespace: task.namespace.clone(),
                has_payload: task.spec.payload.is_some(),
                is_reference: task.spec.payload_ref.is_some(),
                schemas,
            });
        }
    }
    (lacking, range.next().map(|(id, _)| *id))
}

async fn check(ledger: &Ledger, cache: &SchemaCache, one: &Lacking) -> Result<Option<SchemaVerdicts>, Unavailable> {
    if one.is_reference {
        // Never opened, so nothing can be held against it.
        let accepted = one.schemas.iter().copied().collect();
        return Ok(Some(SchemaVerdicts { accepted, refused: Vec::new() }));
    }
    let payload: Arc<[u8]> = if one.has_payload {
        match ledger.body(body_key(one.task, BodyKind::Payload, 0)).await? {
            Some(body) => body.bytes,
            None => return Ok(None),
        }
    } else {
        Arc::from(&b"null"[..])
    };
    loop {
        let compiled = cache.compiled(ledger, one.schemas.clone()).await?;
        return match cache.verdicts(compiled, Arc::clone(&payload)).await {
            Ok((verdicts, _)) => Ok(Some(verdicts)),
            // Too slow to check, at every try: no agent's to take.
            Err(Unchecked::TooSlow | Unchecked::Broken) => {
                let refused = one.schemas.iter().copied().collect();
                Ok(Some(SchemaVerdicts { accepted: Vec::new(), refused }))
            }
            Err(Unchecked::Busy) => continue,
            Err(Unchecked::Stopping) => Err(Unavailable::Stopping),
        };
    }
}
