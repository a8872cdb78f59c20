//! `reach history`: everything that ever happened to one task, in order.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use crate::ctl::Context;
use crate::exit::Outcome;
use crate::output::{self, Format, field, tame};

/// Whose history.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Task id
    reach_id: String,
}

/// Fields that the timeline's own columns show, that say nothing to a person, or that are there for programs:
/// `--output json` has them all.
const ELSEWHERE: [&str; 27] = [
    "seq",
    "at",
    "kind",
    "actor",
    "hash",
    "version",
    "namespace",
    "reach_id",
    "trace",
    "explanation",
    "type",
    "task",
    "batch_id",
    "batch_index",
    "fairness_key",
    "key_fingerprint",
    "delivery",
    "callback_id",
    "of_seq",
    "secret_ref",
    "subject",
    "wait_for_agent",
    "reach_timeout_ms",
    "work_timeout_ms",
    "lifetime_ms",
    "on_wait",
    "orphan",
];

/// Prints it.
pub(crate) async fn run(context: &Context, history: &History) -> Outcome {
    let answer = context.client.get(&["v1", "tasks", &history.reach_id, "history"], &[]).await?;
    match context.format {
        Format::Json => output::json(&answer),
        Format::Table => output::data(&timeline(&answer)),
    }
    Ok(())
}

/// A readable timeline: when, how long after the first, what, by whom, and what matters of it.
pub(crate) fn timeline(history: &Value) -> String {
    let events = history.get("events").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let moment = |event: &Value| field(event, "/at").parse::<jiff::Timestamp>().ok();
    let first = events.first().and_then(moment);
    let mut text = format!("{}  {} events", tame(&field(history, "/reach_id")), events.len());
    for event in events {
        let since = match (first, moment(event)) {
            (Some(first), Some(at)) => format!("+{:.3}s", at.duration_since(first).as_secs_f64()),
            _ => "-".to_owned(),
        };
        let kind = tame(&field(event, "/kind"));
        let _ = write!(
            text,
            "\n  {:>9}  #{:<8} {kind:<26} {:<16} {}",
            since,
            field(event, "/seq"),
            actor(event),
            details(event)
        );
        text.truncate(text.trim_end().len());
    }
    text
}

fn actor(event: &Value) -> String {
    let named = ["/actor/agent_id", "/actor/token_id", "/actor/kind", "/actor"];
    let name = named.iter().map(|at| field(event, at)).find(|name| name != "-").unwrap_or_default();
    match field(event, "/actor/incarnation").as_str() {
        "-" => tame(&name),
        incarnation => tame(&format!("{name}/{incarnation}")),
    }
}

fn details(event: &Value) -> String {
    let fields = event.as_object().into_iter().flatten();
    let hidden = |name: &str| ELSEWHERE.contains(&name) || name.ends_with("_digest");
    let told = fields.filter(|(name, value)| !hidden(name) && !value.is_null());
    let words = told.filter_map(|(name, value)| {
        if value.pointer("/code").is_some() {
            return Some(format!("{name}={}:{}", field(value, "/class"), field(value, "/code")));
        }
        let simple = !value.is_object() && !value.is_array();
        simple.then(|| format!("{name}={}", field(event, &format!("/{name}"))))
    });
    tame(&words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_timeline_says_when_what_who_and_why() {
        let history = json!({"reach_id": "reach_x", "events": [
            {"seq": 7, "at": "2026-01-01T00:00:00.000Z", "kind": "task-submitted", "actor": {"token_id": "dev"}, "state": "queued"},
            {"seq": 9, "at": "2026-01-01T00:00:00.012Z", "kind": "task-dispatched", "actor": "hub", "attempt": 1, "agent_id": "w-1", "explanation": {"strategy": "x"}},
            {"seq": 12, "at": "2026-01-01T00:00:01.500Z", "kind": "task-attempt-failed", "actor": {"agent_id": "w-1", "incarnation": 2}, "attempt": 1,
             "failure": {"class": "business", "code": "flaky"}},
        ]});
        insta::assert_snapshot!(timeline(&history), @r"
        reach_x  3 events
            +0.000s  #7        task-submitted             dev              state=queued
            +0.012s  #9        task-dispatched            hub              agent_id=w-1 attempt=1
            +1.500s  #12       task-attempt-failed        w-1/2            attempt=1 failure=business:flaky
        ");
    }
}
