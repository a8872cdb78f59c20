//! Breakers as a table: of an agent, or those that stand in the way of a plan.

use serde_json::Value;

use crate::moments;
use crate::output::{self, field};

/// Shows them under a line of their own; nothing where there is none.
pub(crate) fn show(breakers: &Value) {
    let breakers = breakers.as_array().map(Vec::as_slice).unwrap_or_default();
    if breakers.is_empty() {
        return;
    }
    output::data("");
    output::table(&["breaker", "agent", "state", "until", "since", "failed", "why"], breakers.iter().map(row));
}

fn row(breaker: &Value) -> Vec<String> {
    let now = moments::now();
    let when = |at| moments::related(&field(breaker, at), now);
    let failed = breaker.get("tasks").and_then(Value::as_array).and_then(|tasks| tasks.last());
    vec![
        field(breaker, "/capability"),
        field(breaker, "/agent_id"),
        field(breaker, "/state"),
        when("/until"),
        when("/since"),
        failed.map_or_else(|| "-".to_owned(), |task| field(task, "/reach_id")),
        why(breaker),
    ]
}

/// An operator's word, or what the rule does.
fn why(breaker: &Value) -> String {
    let by = ["/forced/by/token_id", "/forced/by/kind"].map(|at| field(breaker, at));
    match by.into_iter().find(|text| text != "-") {
        Some(by) => format!("{by}: {}", field(breaker, "/forced/reason")),
        None => match field(breaker, "/probe").as_str() {
            "-" => "the rule".to_owned(),
            probe => format!("{probe} tries it out"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_breaker_says_who_holds_it_or_which_task_tries_its_agent_out() {
        let forced = json!({"capability": "a.b", "state": "open", "until": null, "tasks": [], "probe": null,
            "forced": {"by": {"kind": "token", "token_id": "tok_1"}, "reason": "a bad release"}});
        assert_eq!(why(&forced), "tok_1: a bad release");
        let probed = json!({"capability": "a.b", "state": "half-open", "until": null, "forced": null,
            "tasks": [{"reach_id": "reach_x", "attempt": 1}], "probe": "reach_y"});
        assert_eq!(why(&probed), "reach_y tries it out");
        assert_eq!(row(&probed)[5], "reach_x", "the last that failed");
        assert_eq!(why(&json!({"probe": null, "forced": null})), "the rule");
    }
}
