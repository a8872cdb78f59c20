//! What a submission is answered when nobody offers its capability any more: by whom it was offered, and until when.
//!
//! Why apart from [`near`](super::near): it asks the sequencer, which a batch of a hundred thousand lines must not do once
//! a line.

use serde_json::json;

use crate::ledger::handle::Refusal;
use crate::ledger::ids::Capability;
use crate::ledger::machine::State;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::Standing;
use crate::ledger::machine::decision::Rejection;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::plan::departures::LastOffer;

use super::App;
use super::error::ApiError;
use super::extract::Caller;
use super::submit;

/// A refusal of the core as one call is answered: of a capability that was offered once it says so.
pub(super) async fn refused(app: &App, caller: &Caller, refusal: Refusal) -> ApiError {
    let wanted = match &refusal {
        Refusal::Rejected(Rejection::CapabilityNotRegistered { capability }) => Some(capability.clone()),
        Refusal::Rejected(_) | Refusal::Unavailable(_) => None,
    };
    let error = submit::refused(app, caller, refusal);
    let Some(wanted) = wanted else { return error };
    match last_offer(app, caller, wanted).await {
        None => error,
        Some(last) => {
            // Who may only submit learns that it was offered, not by whom.
            let may_see = [Scope::Read, Scope::Operate].iter().any(|scope| caller.require(*scope).is_ok());
            let name = may_see.then(|| last.agent.to_string());
            let until = last.until.map(|at| at.to_string());
            let told = told(&last, name.as_deref(), until.as_deref());
            error.adding(&told).fact("last_offer", json!({"agent_id": name, "until": until, "agents": last.agents}))
        }
    }
}

async fn last_offer(app: &App, caller: &Caller, wanted: Capability) -> Option<LastOffer> {
    let (namespace, reader) = (caller.namespace.clone(), caller.token.clone());
    let question =
        move |state: &State, scheduler: &Scheduler| scheduler.last_offer(state, (&namespace, &wanted), &reader);
    // An answer without it is as true.
    app.ledger.ask_planner(question).await.ok().flatten().flatten()
}

fn told(last: &LastOffer, name: Option<&str>, until: Option<&str>) -> String {
    let until = until.map_or_else(|| "before the hub's last start".to_owned(), |at| format!("until {at}"));
    let how = match last.standing {
        Standing::Offline => "said goodbye",
        Standing::Active | Standing::Draining { .. } | Standing::Deregistered => "was drained or removed",
    };
    let before = match last.agents.saturating_sub(1) {
        0 => String::new(),
        1 => "; another one had left before".to_owned(),
        others => format!("; {others} others had left before"),
    };
    format!(" now; {} offered it {until} and {how}{before}", name.unwrap_or("an agent"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::AgentId;

    #[test]
    fn it_is_told_by_whom_it_was_offered_and_until_when() {
        let mut last = LastOffer {
            agent: AgentId::new("w-1").expect("an id"),
            until: None,
            standing: Standing::Offline,
            agents: 1,
        };
        let at = Some("2026-01-01T00:00:00Z");
        assert_eq!(told(&last, Some("w-1"), at), " now; w-1 offered it until 2026-01-01T00:00:00Z and said goodbye");
        last.standing = Standing::Deregistered;
        last.agents = 3;
        assert_eq!(
            told(&last, None, None),
            " now; an agent offered it before the hub's last start and was drained or removed; 2 others had left before"
        );
    }
}
