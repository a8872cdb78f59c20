//! `reach policies routing`: how the tasks of a capability are given out, and what other rules would have made of the last.

use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};

use crate::ctl::{Context, pair};
use crate::exit::Outcome;
use crate::moments;
use crate::output::{self, Format, field};

/// What is to hold for one capability.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own on the command line")]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["strategy", "weight", "tiers", "undo", "none"]))]
pub(crate) struct Routing {
    /// domain.task_type
    capability: String,
    /// weighted-round-robin, least-loaded, consistent-hash or scored; without it as most of its agents ask for
    #[arg(long)]
    strategy: Option<String>,
    /// AGENT=N in place of the declared weight, 1 to 1000; may be given several times
    #[arg(long, value_name = "AGENT=N", value_parser = pair)]
    weight: Vec<(String, String)>,
    /// Only the highest priority that is open competes
    #[arg(long)]
    tiers: bool,
    /// Back to the version before
    #[arg(long, conflicts_with_all = ["strategy", "weight", "tiers", "none"])]
    undo: bool,
    /// No rules: as its agents ask for
    #[arg(long, conflicts_with_all = ["strategy", "weight", "tiers"])]
    none: bool,
    /// Change nothing, and say what it would have made of the last decisions
    #[arg(long)]
    dry_run: bool,
    /// Why: it stands in the ledger beside who
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
}

impl Routing {
    fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("capability".to_owned(), json!(self.capability));
        if let Some(strategy) = &self.strategy {
            body.insert("strategy".to_owned(), json!(strategy));
        }
        if !self.weight.is_empty() {
            let weight = |(agent, weight): &(String, String)| {
                let value = serde_json::from_str(weight).unwrap_or_else(|_| json!(weight));
                (agent.clone(), value)
            };
            body.insert("weights".to_owned(), Value::Object(self.weight.iter().map(weight).collect()));
        }
        for (name, is_set) in [("tiers", self.tiers), ("undo", self.undo), ("dry_run", self.dry_run)] {
            if is_set {
                body.insert(name.to_owned(), json!(true));
            }
        }
        if let Some(reason) = &self.reason {
            body.insert("reason".to_owned(), json!(reason));
        }
        Value::Object(body)
    }
}

/// Runs it.
pub(crate) async fn run(context: &Context, routing: &Routing) -> Outcome {
    let answer = context.client.put(&["v1", "policies", "routing"], &routing.body()).await?;
    match context.format {
        Format::Json => output::json(&answer),
        Format::Table => show(context, &answer),
    }
    Ok(())
}

fn show(context: &Context, answer: &Value) {
    output::card(&facts(answer));
    for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        context.hint(&format!("warning: {}", field(warning, "")));
    }
    let Some(would_have) = answer.get("would_have") else { return };
    let list = |pointer: &str| would_have.get(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if !list("shares").is_empty() {
        output::data("");
        let row = |share: &Value| vec![field(share, "/agent_id"), field(share, "/was"), field(share, "/would_be")];
        output::table(&["agent", "got", "would have got"], list("shares").iter().map(row));
    }
    if !list("newest").is_empty() {
        output::data("");
        let row = |other: &Value| ["/reach_id", "/was", "/would_be"].map(|at| field(other, at)).to_vec();
        output::table(&["of the last", "went to", "would have gone to"], list("newest").iter().map(row));
    }
    context.hint("nothing is changed; agents are weighed as they felt then");
}

/// The rules as they stand, and in a dry run how much would have been otherwise.
fn facts(answer: &Value) -> Vec<(String, String)> {
    let mut rows = vec![("capability".to_owned(), field(answer, "/capability"))];
    let mut add = |name: &str, text: String| rows.push((name.to_owned(), text));
    add("version", field(answer, "/version"));
    add("rules", told(answer.get("rules")));
    match answer.get("would_have") {
        Some(would_have) => {
            let count = |pointer: &str| field(would_have, pointer);
            add("would be", told(would_have.get("rules")));
            add("would have changed", format!("{} of the last {} decisions", count("/changed"), count("/decisions")));
            if count("/not_weighed") != "0" {
                add("not weighed", format!("{} with more than 64 candidates", count("/not_weighed")));
            }
            if count("/since") != "-" {
                add("since", moments::related(&count("/since"), moments::now()));
            }
        }
        None if field(answer, "/unchanged") == "true" => add("changed", "nothing: it was so already".to_owned()),
        None => add("versions before", field(answer, "/undoable")),
    }
    rows
}

/// Rules in one line.
pub(super) fn told(rules: Option<&Value>) -> String {
    let Some(rules) = rules.filter(|rules| rules.is_object()) else { return "none: as its agents ask for".to_owned() };
    let mut parts = Vec::new();
    if field(rules, "/strategy") != "-" {
        parts.push(field(rules, "/strategy"));
    }
    let weights = rules.get("weights").and_then(Value::as_object).into_iter().flatten();
    let weights: Vec<String> = weights.map(|(agent, weight)| format!("{agent} {}", field(weight, ""))).collect();
    if !weights.is_empty() {
        parts.push(format!("weights {}", weights.join(", ")));
    }
    if field(rules, "/tiers") == "true" {
        parts.push("priorities are tiers".to_owned());
    }
    parts.join("; ")
}

/// The rules of all capabilities that have, or had, some; nothing where there are none.
pub(super) fn list(routing: Option<&Value>) {
    let routing = routing.and_then(Value::as_object).into_iter().flatten();
    let row = |(capability, of): (&String, &Value)| {
        let since = moments::related(&field(of, "/since"), moments::now());
        vec![capability.clone(), field(of, "/version"), since, told(of.get("rules"))]
    };
    let rows: Vec<Vec<String>> = routing.map(row).collect();
    if !rows.is_empty() {
        output::data("");
        output::table(&["routing", "version", "since", "rules"], rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_one_line_and_none_are_said_to_be_none() {
        let rules = json!({"strategy": "scored", "weights": {"a": 20, "b": 5}, "tiers": true});
        assert_eq!(told(Some(&rules)), "scored; weights a 20, b 5; priorities are tiers");
        let rules = json!({"strategy": null, "weights": {}, "tiers": true});
        assert_eq!(told(Some(&rules)), "priorities are tiers");
        assert_eq!(told(Some(&Value::Null)), "none: as its agents ask for");
    }

    #[test]
    fn a_dry_run_says_how_much_would_have_been_otherwise() {
        let would_have = json!({"rules": {"strategy": "scored", "weights": {}, "tiers": false}, "decisions": 40,
            "changed": 7, "not_weighed": 2, "since": null});
        let answer = json!({"capability": "a.b", "version": 3, "rules": null, "would_have": would_have});
        let shown: Vec<String> = facts(&answer).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        let expected = [
            "capability: a.b",
            "version: 3",
            "rules: none: as its agents ask for",
            "would be: scored",
            "would have changed: 7 of the last 40 decisions",
            "not weighed: 2 with more than 64 candidates",
        ];
        assert_eq!(shown, expected);
    }
}
