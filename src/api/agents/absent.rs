//! What a call is answered whose agent is not there: near names for who mistyped one, and for a process that was told to go
//! what became of it.

use crate::api::App;
use crate::api::error::{ApiError, Code, Thing};
use crate::api::extract::Caller;
use crate::api::unborne;
use crate::ledger::handle::Refusal;
use crate::ledger::ids::{AgentId, AgentKey};
use crate::ledger::machine::agent::Standing;
use crate::ledger::machine::decision::Rejection;

/// What is next for a process whose agent was taken out: one that came back by itself would undo an operator's word.
const TOLD_TO_GO: &str =
    "Stop this process: nothing is left for it to do. Register it again only if somebody wants the agent back.";
/// What is next for one that left.
const LEFT: &str = "Stop this process if it was meant to go; to bring the agent back, register it again.";

/// The 404 of an agent that a person named, with those that were probably meant; only what this token may see (semantics 39).
pub(super) async fn unknown(app: &App, caller: &Caller, agent: &AgentId) -> ApiError {
    let error = ApiError::not_found(Thing::Agent, agent);
    // An answer without them is as true.
    let Ok(Some(near)) = unborne::agent(app, caller, agent).await else { return error };
    let error = error.suggest(near.suggestions);
    if near.not_permitted == 0 { error } else { error.fact("not-permitted", near.not_permitted) }
}

/// The refusal of a call for an agent: of one that has left or was taken out it says which.
pub(in crate::api) async fn gone(app: &App, key: AgentKey, refusal: Refusal) -> ApiError {
    let is_gone = matches!(refusal, Refusal::Rejected(Rejection::AgentNotRegistered));
    let error = ApiError::from(refusal).named(Thing::Agent, &key.agent_id);
    if !is_gone {
        return error;
    }
    let agent = key.agent_id.clone();
    let standing = app.ledger.ask(move |state| state.agent(&key).map(|agent| agent.standing)).await;
    match standing.ok().flatten() {
        Some(out @ Standing::Deregistered) => {
            let detail = format!("{agent} was drained or removed: it is out of the registry and gets no more work");
            ApiError::new(Code::AgentNotRegistered, detail).fact("standing", out.name()).advising(TOLD_TO_GO)
        }
        Some(out @ Standing::Offline) => {
            let detail = format!("{agent} is offline: it said goodbye, or an operator took it out of routing");
            ApiError::new(Code::AgentNotRegistered, detail).fact("standing", out.name()).advising(LEFT)
        }
        // It is back already, or the hub goes down.
        Some(Standing::Active | Standing::Draining { .. }) | None => error,
    }
}
