//! Routing: why an agent was chosen, and the rules of a capability.

use serde_json::{Value, json};

use crate::ledger::machine::event::Explanation;
use crate::ledger::machine::routing::{RoutingRules, Tiers};

/// Thousandths as the score that people read.
pub(crate) fn score<P: ToString>(parts: &[(P, i64)]) -> Value {
    let map = parts.iter().map(|(part, milli)| {
        let whole = serde_json::Number::from(milli / 1_000);
        let value = if milli % 1_000 == 0 { Value::Number(whole) } else { json!(f64_of(*milli) / 1_000.0) };
        (part.to_string(), value)
    });
    Value::Object(map.collect())
}

#[expect(clippy::cast_precision_loss, reason = "a score is far below 2^53")]
const fn f64_of(milli: i64) -> f64 {
    milli as f64
}

/// A stored explanation.
pub(crate) fn explanation(e: &Explanation) -> Value {
    let runners: Vec<_> =
        e.runners_up.iter().map(|c| json!({"agent_id": c.agent.as_str(), "score": score(&c.score)})).collect();
    let exclusions: Vec<_> = e
        .exclusions
        .iter()
        .map(|x| {
            let samples: Vec<_> = x.samples.iter().map(ToString::to_string).collect();
            json!({"reason": &*x.reason, "count": x.count, "samples": samples})
        })
        .collect();
    json!({
        "strategy": &*e.strategy,
        "rules_version": e.rules,
        "score": score(&e.score),
        "runners_up": runners,
        "exclusions": exclusions,
    })
}

/// Routing rules as they are set.
pub(crate) fn rules(rules: &RoutingRules) -> Value {
    let weights = rules.weights.iter().map(|(agent, weight)| (agent.to_string(), Value::from(*weight)));
    json!({
        "strategy": rules.strategy.map(crate::ledger::machine::agent::Strategy::name),
        "weights": weights.collect::<serde_json::Map<_, _>>(),
        "tiers": rules.tiers == Tiers::Yes,
    })
}
