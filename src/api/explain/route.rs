//! Who could serve a task, as one caller may see it, and what would help.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::api::render;
use crate::ledger::ids::{AgentId, AgentKey, Namespace, TokenId};
use crate::ledger::machine::State as Ledgered;
use crate::scheduler::routing::RouteReport;
use crate::scheduler::routing::candidate::Reason;

/// Agents named in one report; the rest is in the counts.
const MAX_NAMED: usize = 200;

/// Who could serve a task now, who not, and why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Route)]
pub(super) struct RouteView {
    /// How one is chosen.
    strategy: &'static str,
    /// The version of the capability's routing rules that hold; null where its agents' own word does.
    rules_version: Option<u32>,
    /// Who would get it now.
    agent_id: Option<String>,
    /// Those that could take it now, best first.
    #[schema(value_type = Vec<Object>)]
    candidates: Vec<Value>,
    /// Those that can't, each with the exact reason.
    #[schema(value_type = Vec<Object>)]
    excluded: Vec<Value>,
    /// Agents by reason, those not named above included.
    counts: BTreeMap<&'static str, usize>,
    /// If nobody can take it now and all for the same reason: that one.
    only_reason: Option<&'static str>,
    /// Agents that do not serve this caller.
    #[serde(rename = "not-permitted")]
    not_permitted: usize,
}

/// A report with those agents that serve this caller.
pub(super) struct Permitted {
    pub(super) report: RouteReport,
    hidden: usize,
}

/// What of a report this caller may see.
pub(super) fn permitted(
    state: &Ledgered,
    namespace: &Namespace,
    token: &TokenId,
    mut report: RouteReport,
) -> Permitted {
    let serves = |agent: &AgentId| {
        let key = AgentKey { namespace: namespace.clone(), agent_id: agent.clone() };
        state.agent(&key).is_some_and(|agent| agent.declaration.serves(Some(token)))
    };
    let before = report.candidates.len() + report.excluded.len();
    report.candidates.retain(|candidate| serves(&candidate.agent));
    report.excluded.retain(|excluded| excluded.reason != Reason::NotPermitted && serves(&excluded.agent));
    report.winner = report.winner.filter(|winner| serves(winner));
    let hidden = before - report.candidates.len() - report.excluded.len();
    Permitted { report, hidden }
}

impl Permitted {
    /// The one reason for which nobody can take it now, if it is one.
    fn only_reason(&self) -> Option<Reason> {
        let mut reasons = self.report.excluded.iter().map(|excluded| excluded.reason);
        let first = match (reasons.next(), self.hidden) {
            (Some(first), 0) => first,
            (None, 1..) => Reason::NotPermitted,
            (Some(_), _) | (None, 0) => return None,
        };
        (self.report.candidates.is_empty() && reasons.all(|reason| reason == first)).then_some(first)
    }

    /// The same in words, to go on with after what the task waits for.
    pub(super) fn only_reason_told(&self) -> Option<String> {
        let reason = self.only_reason()?.name();
        Some(match &*self.report.excluded {
            [] => format!("; no agent that offers it serves this caller ({reason})"),
            [only] => format!("; the only one that offers it is {}: {} ({reason})", only.agent, only.detail),
            all => format!("; none of the {} that offer it can take it now, all for one reason: {reason}", all.len()),
        })
    }
}

impl RouteView {
    pub(super) fn new(permitted: Permitted) -> Self {
        let only_reason = permitted.only_reason().map(Reason::name);
        let Permitted { report, hidden } = permitted;
        let mut counts = BTreeMap::new();
        for excluded in &report.excluded {
            *counts.entry(excluded.reason.name()).or_default() += 1;
        }
        let candidates =
            report.candidates.into_iter().take(MAX_NAMED).map(
                |candidate| json!({"agent_id": candidate.agent.as_str(), "score": render::score(&candidate.score)}),
            );
        let excluded = report.excluded.into_iter().take(MAX_NAMED).map(|excluded| {
            json!({
                "agent_id": excluded.agent.as_str(),
                "reason": excluded.reason.name(),
                "detail": excluded.detail,
            })
        });
        Self {
            strategy: report.strategy,
            rules_version: report.rules,
            agent_id: report.winner.map(|winner| winner.to_string()),
            candidates: candidates.collect(),
            excluded: excluded.collect(),
            counts,
            only_reason,
            not_permitted: hidden,
        }
    }
}

/// What would make one reason go away.
const fn remedy(reason: Reason) -> &'static str {
    match reason {
        Reason::NotRegistered => "an agent that left registers again",
        Reason::Draining => "a draining agent is replaced by another",
        Reason::Lost => "a lost agent beats again, or another registers",
        Reason::Unhealthy => "an unhealthy agent beats again",
        Reason::NotPermitted => "an agent allows this caller",
        Reason::SchemaRefused => "a payload that fits the agent's schema is submitted",
        Reason::SchemaUnchecked => "the hub checks the payload against a schema that came later; this takes a moment",
        Reason::Tools => "an agent with the required tools registers",
        Reason::ContextWindow => "an agent with a larger context window registers",
        Reason::Language => "an agent with the required languages registers",
        Reason::Region => "an agent in the required region registers",
        Reason::Version => "an agent of a fitting version registers",
        Reason::BreakerOpen => "its breaker opens for one that tries it out, or an operator closes it",
        Reason::BreakerProbing => "the task that tries the agent out succeeds",
        Reason::LoadThreshold => "an agent reports less load",
        Reason::SlowStart => "it has warmed up, within seconds",
        Reason::NoFreeSlot => "an agent finishes something",
        Reason::NoOpenClaim => "a pull agent claims work",
        Reason::Overdue => "an agent without an overdue task of this capability asks for work",
        Reason::Suspect => "an agent without other work is free: the task has broken its agents before",
        Reason::LowerTier => "the agents of a higher priority are full or excluded",
        Reason::Avoid => "the agent that failed it is tried again when no other can serve",
    }
}

/// What would let it go on.
pub(super) fn remedies(Permitted { report, hidden }: &Permitted) -> Vec<String> {
    if report.winner.is_some() {
        return vec!["nothing: it is next to be handed over".to_owned()];
    }
    if report.candidates.is_empty() && report.excluded.is_empty() {
        if *hidden > 0 {
            return vec![remedy(Reason::NotPermitted).to_owned()];
        }
        return vec!["an agent that offers the capability registers".to_owned()];
    }
    let reasons: BTreeSet<Reason> = report.excluded.iter().map(|excluded| excluded.reason).collect();
    reasons.into_iter().map(|reason| remedy(reason).to_owned()).collect()
}
