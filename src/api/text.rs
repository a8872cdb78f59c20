//! A submission that says in words what it wants: which capability it is routed to, and why (R-RTE-4).
//!
//! Why before the proposal: what a text means is a guess that changes with every registration, so it is made here and
//! recorded, and the core never makes it again. A repeat under an idempotency key is answered from the key, whatever
//! the text means by then.

use serde_json::{Value, json};

use crate::ledger::ids::{AgentKey, Capability};
use crate::ledger::machine::State;
use crate::ledger::machine::event::TextRoute;
use crate::scheduler::routing::semantic::{By, Candidate, MAX_TEXT, THRESHOLD, in_order};

use super::App;
use super::error::{ApiError, ApiResult, Code};
use super::extract::Caller;
use super::submission::TaskBody;

/// Agents of one capability whose load is looked at.
const MAX_LOOKED_AT: usize = 64;

/// Where a text goes.
#[derive(Debug, Clone)]
pub(super) struct Routed {
    best: Candidate,
    near: Vec<Candidate>,
}

impl Routed {
    /// The capability.
    pub(super) fn capability(&self) -> &Capability {
        &self.best.capability
    }

    /// As the ledger keeps it: figures and names, none of the text's own words.
    pub(super) fn record(&self) -> TextRoute {
        TextRoute {
            by: self.best.by.name().into(),
            score: thousandths(self.best.score),
            threshold: thousandths(THRESHOLD),
            near: self.near.iter().map(|one| (one.capability.clone(), thousandths(one.score))).collect(),
        }
    }

    /// As a dry run shows it, with the words that spoke for it.
    pub(super) fn shown(&self) -> Value {
        let mut shown = told(&self.best);
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("threshold".to_owned(), json!(rounded(THRESHOLD)));
            shown.insert("near".to_owned(), self.near.iter().map(told).collect());
        }
        shown
    }
}

/// Does the body leave it to its text what must be done?
pub(super) fn is_asked(body: &TaskBody<'_>) -> bool {
    body.text.is_some() && body.capability.is_none() && body.domain.is_none() && body.task_type.is_none()
}

/// Finds the capability that a text asks for, among those that are offered here and that this token may call.
///
/// # Errors
/// 422 `invalid-field` for a text out of bounds, `no-capability-fits` with the near misses.
pub(super) async fn route(app: &App, caller: &Caller, text: &str) -> ApiResult<Routed> {
    if text.trim().is_empty() || text.len() > MAX_TEXT {
        return Err(ApiError::field("/text", format!("1 to {MAX_TEXT} bytes that say something")));
    }
    let mut candidates = match app.meanings.of(&caller.namespace) {
        None => Vec::new(),
        Some(router) => {
            let catalog = app.ledger.published().catalog;
            let admitted = |capability: &Capability| {
                catalog.of(&caller.namespace, capability).is_some() && caller.bearer().can_call(capability)
            };
            router.ask(text, &admitted)
        }
    };
    if candidates.iter().any(|one| one.by == By::Words) {
        weigh(app, caller, &mut candidates).await?;
    }
    let fits = candidates.first().is_some_and(|best| best.fits);
    if !fits {
        return Err(nothing_fits(&candidates));
    }
    let best = candidates.remove(0);
    Ok(Routed { best, near: candidates })
}

/// Weighs those found by their words by how much room their agents have.
async fn weigh(app: &App, caller: &Caller, candidates: &mut [Candidate]) -> ApiResult<()> {
    let names: Vec<Capability> = candidates.iter().map(|one| one.capability.clone()).collect();
    let namespace = caller.namespace.clone();
    let free = move |state: &State| -> Vec<f32> {
        let share = |capability: &Capability| {
            let Some(entry) = state.catalog().of(&namespace, capability) else { return 0.0 };
            let agents = entry.providers.iter().take(MAX_LOOKED_AT).filter_map(|agent_id| {
                state.agent(&AgentKey { namespace: namespace.clone(), agent_id: agent_id.clone() })
            });
            let (free, all) = agents.fold((0_usize, 0_usize), |(free, all), agent| {
                let room = if agent.is_open() { agent.slots_free() } else { 0 };
                (free + room, all + room + agent.slots_used())
            });
            free as f32 / all.max(1) as f32
        };
        names.iter().map(share).collect()
    };
    let free = app.ledger.ask(free).await?;
    for (candidate, free) in candidates.iter_mut().zip(free) {
        candidate.weigh(free);
    }
    in_order(candidates);
    Ok(())
}

fn nothing_fits(near: &[Candidate]) -> ApiError {
    ApiError::new(Code::NoCapabilityFits, "nothing that is offered here fits the text")
        .at("/text", "fits no capability")
        .suggest(near.iter().map(|one| one.capability.to_string()))
        .fact("threshold", rounded(THRESHOLD))
        .fact("near", near.iter().map(told).collect::<Vec<_>>())
}

fn told(candidate: &Candidate) -> Value {
    let parts: serde_json::Map<_, _> =
        candidate.parts.iter().map(|(name, part)| ((*name).to_owned(), json!(rounded(*part)))).collect();
    let because: Vec<_> =
        candidate.because.iter().map(|(words, adds)| json!({"words": &**words, "adds": rounded(*adds)})).collect();
    json!({
        "capability": candidate.capability.as_str(), "score": rounded(candidate.score), "by": candidate.by.name(),
        "parts": parts, "because": because,
    })
}

/// A score from 0 to 1 in thousandths.
fn thousandths(score: f32) -> u32 {
    (0..=1_000_u32).find(|milli| *milli as f32 + 0.5 > score * 1_000.0).unwrap_or(1_000)
}

fn rounded(score: f32) -> f64 {
    (f64::from(score) * 1_000.0).round() / 1_000.0
}
