//! `reach explain`: why a task is where it is, or where a capability would be routed to now, for a tired person.

use agent_reach::api::words;
use clap::Args;
use serde_json::Value;

use crate::ctl::Context;
use crate::ctl::body::{Body, json_argument};
use crate::exit::{Code, Failure, Outcome};
use crate::moments;
use crate::output::{self, Format, field};

/// Agents named in a table; the rest is a count.
const NAMED: usize = 30;

/// A task, or one that is not sent.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Task id, or a capability for a dry run
    #[arg(required_unless_present = "text", conflicts_with = "text")]
    pub(crate) subject: Option<String>,
    /// What is wanted, in words, for a dry run
    #[arg(long)]
    pub(crate) text: Option<String>,
    /// Payload for the dry run: JSON, @FILE, or - for stdin
    #[arg(long)]
    pub(crate) payload: Option<String>,
}

/// Asks the hub and shows its answer.
pub(crate) async fn explain(context: &Context, explain: &Explain) -> Outcome {
    let client = &context.client;
    let answer = if let Some(id) = explain.subject.as_deref().filter(|subject| subject.starts_with("reach_")) {
        client.get(&["v1", "tasks", id, "explain"], &[]).await?
    } else {
        let mut body = Body::default();
        body.put("capability", explain.subject.clone());
        body.put("text", explain.text.clone());
        let payload = explain.payload.as_deref().map(|text| json_argument("--payload", text)).transpose()?;
        body.put_typed("payload", payload);
        client.post(&["v1", "route", "explain"], &body).await?
    };
    match context.format {
        Format::Json => output::json(&answer),
        Format::Table => show(&answer),
    }
    if answer.get("registered") == Some(&Value::Bool(false)) { Err(nobody(&answer)) } else { Ok(()) }
}

/// Nobody offers it: there is no such thing, and perhaps one of another name.
fn nobody(answer: &Value) -> Failure {
    let mut text = format!("nobody offers {}", field(answer, "/capability"));
    for name in answer.get("suggestions").and_then(Value::as_array).into_iter().flatten() {
        text += &format!("\n  did you mean: {}", field(name, ""));
    }
    text +=
        "\n  next: `reach agents list` shows what is offered; `reach submit --wait-for-agent` queues it all the same.";
    Failure::Other(Code::NotFound, text)
}

/// What it is, what would help, and every agent with its score or the reason against it.
fn show(answer: &Value) {
    let now = moments::now();
    let rows = facts(answer).into_iter().map(|(name, value)| (name, moments::related(&value, now)));
    output::card(&rows.collect::<Vec<_>>());
    let agents = agents(answer);
    let more = agents.len().saturating_sub(NAMED);
    if !agents.is_empty() {
        output::data("");
        output::table(&["agent", "can take it", "why"], agents.into_iter().take(NAMED));
    }
    if more > 0 {
        output::data(&format!("and {more} more; --output json names them"));
    }
}

fn facts(answer: &Value) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    let asked = [
        ("capability", "/capability"),
        ("fits the text", "/text/score"),
        ("found by its", "/text/by"),
        ("registered", "/registered"),
        ("state", "/state"),
        ("why", "/why"),
        ("ends by", "/deadline"),
        ("would go to", "/route/agent_id"),
        ("not permitted", "/route/not-permitted"),
    ];
    let is_over = words::terminal_states().any(|state| state == field(answer, "/state"));
    for (name, pointer) in asked {
        let text = field(answer, pointer);
        let says_nothing = (name == "not permitted" && text == "0") || (name == "ends by" && is_over);
        if text != "-" && !says_nothing {
            rows.push((name.to_owned(), text));
        }
    }
    rows.extend(strategy(answer.get("route")).map(|text| ("strategy".to_owned(), text)));
    if answer.get("payload_asked") == Some(&Value::Bool(false)) {
        rows.push(("payload".to_owned(), "none given, so no schema was asked".to_owned()));
    }
    rows.extend(meaning(answer));
    if answer.pointer("/last_dispatch/agent_id").is_some() {
        let part = |pointer: &str| field(answer, &format!("/last_dispatch{pointer}"));
        let by = strategy(answer.pointer("/last_dispatch/explanation")).unwrap_or_default();
        let last = format!("{}, attempt {}, at {}, by {by}", part("/agent_id"), part("/attempt"), part("/at"));
        rows.push(("last went to".to_owned(), last));
    }
    if let Some(counts) = answer.pointer("/route/counts").and_then(Value::as_object).filter(|counts| !counts.is_empty())
    {
        let counts: Vec<String> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        rows.push(("not now".to_owned(), counts.join(", ")));
    }
    for (name, list, pointer) in [("would help", "/unblock", ""), ("the payload", "/payload", "/detail")] {
        for item in answer.pointer(list).and_then(Value::as_array).into_iter().flatten() {
            rows.push((name.to_owned(), field(item, pointer)));
        }
    }
    rows
}

/// The strategy, and whose word it is.
fn strategy(of: Option<&Value>) -> Option<String> {
    let strategy = field(of?, "/strategy");
    match field(of?, "/rules_version").as_str() {
        _ if strategy == "-" => None,
        "-" => Some(strategy),
        version => Some(format!("{strategy} (rules, version {version})")),
    }
}

/// What in the text spoke for the capability, and what came near.
fn meaning(answer: &Value) -> Vec<(String, String)> {
    let list = |pointer: &str| answer.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let told = |items: Vec<String>, name: &str| (!items.is_empty()).then(|| (name.to_owned(), items.join(", ")));
    let words = list("/text/because").map(|one| format!("{} +{}", field(one, "/words"), field(one, "/adds")));
    let near = list("/text/near").map(|one| format!("{} {}", field(one, "/capability"), field(one, "/score")));
    told(words.collect(), "because of").into_iter().chain(told(near.collect(), "came near")).collect()
}

fn agents(answer: &Value) -> Vec<Vec<String>> {
    let list = |pointer: &str| answer.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let candidates = list("/route/candidates").into_iter().map(|candidate| {
        let parts = candidate.get("score").and_then(Value::as_object).into_iter().flatten();
        let score: Vec<String> = parts.map(|(part, worth)| format!("{part} {worth}")).collect();
        vec![field(&candidate, "/agent_id"), "yes".to_owned(), score.join(", ")]
    });
    let excluded = list("/route/excluded").into_iter().map(|excluded| {
        let detail = field(&excluded, "/detail");
        let reason = field(&excluded, "/reason");
        let why = if detail == "-" { reason } else { format!("{reason}: {detail}") };
        vec![field(&excluded, "/agent_id"), "no".to_owned(), why]
    });
    candidates.chain(excluded).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_told_with_the_words_that_spoke_and_what_came_near() {
        let answer = json!({"text": {
            "score": 0.8, "because": [{"words": "rain", "adds": 0.4}, {"words": "today", "adds": 0.1}],
            "near": [{"capability": "a.b", "score": 0.2}],
        }});
        let told = [("because of", "rain +0.4, today +0.1"), ("came near", "a.b 0.2")];
        assert_eq!(meaning(&answer), told.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn every_agent_stands_there_with_its_score_or_the_reason_against_it() {
        let answer = json!({
            "capability": "a.b", "registered": true, "unblock": ["an agent claims"],
            "route": {
                "agent_id": "one", "strategy": "weighted-round-robin",
                "candidates": [{"agent_id": "one", "score": {"position": 1, "weight": 10}}],
                "excluded": [{"agent_id": "two", "reason": "draining", "detail": null}],
            },
        });
        assert_eq!(agents(&answer), [["one", "yes", "position 1, weight 10"], ["two", "no", "draining"]]);
        assert!(facts(&answer).contains(&("would help".to_owned(), "an agent claims".to_owned())));
        assert!(facts(&answer).contains(&("would go to".to_owned(), "one".to_owned())));
        assert!(facts(&answer).contains(&("strategy".to_owned(), "weighted-round-robin".to_owned())));
        let ruled = json!({"strategy": "scored", "rules_version": 3});
        assert_eq!(strategy(Some(&ruled)).unwrap(), "scored (rules, version 3)");
    }
}
