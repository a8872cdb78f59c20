//! `reach replay plan`: which tasks, how fast, why; and what it would do, before it does it.

use std::time::Duration;

use agent_reach::api::words;
use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::client::answer;
use crate::ctl::body::{Body, json_argument};
use crate::ctl::{Context, pair};
use crate::exit::{Code, Outcome};
use crate::moments::moment;
use crate::output::{self, Format, field};

use super::{command, dry, show};

/// A selection waits for its turn, is looked through, and its payloads may have to be held against schemas.
const PATIENCE: Duration = Duration::from_secs(120);
/// Why, for the hub, when somebody only asks.
const ONLY_ASKED: &str = "dry run";

/// What to bring back. Every filter narrows; at least one is needed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which tasks: every filter narrows, and at least one is needed")]
pub(crate) struct Plan {
    /// In one of these states; commas between them. Orphaned ones when absent, or all of these where tasks are named
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(words::replayable_states()))]
    state: Vec<String>,
    /// Of this capability
    #[arg(long)]
    capability: Option<String>,
    /// Held by this agent, or last held by it
    #[arg(long)]
    agent: Option<String>,
    /// Held by this process of the agent: its incarnation
    #[arg(long)]
    incarnation: Option<u64>,
    /// In this session
    #[arg(long)]
    session: Option<String>,
    /// In this batch
    #[arg(long)]
    batch: Option<String>,
    /// With this label, name=value; may be given several times, then with all of them
    #[arg(long, value_parser = pair)]
    label: Vec<(String, String)>,
    /// That ended with a failure of one of these classes, or whose last attempt failed with one; commas between them
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(words::failure_classes()))]
    failure_class: Vec<String>,
    /// That ended with one of these codes, or whose last attempt failed with one; commas between them
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    failure_code: Vec<String>,
    /// Submitted after this moment: RFC 3339, or so long ago, as in 90m
    #[arg(long, visible_alias = "since", value_name = "WHEN", value_parser = moment)]
    submitted_after: Option<Timestamp>,
    /// Submitted before this moment: RFC 3339, or so long ago, as in 30m
    #[arg(long, visible_alias = "until", value_name = "WHEN", value_parser = moment)]
    submitted_before: Option<Timestamp>,
    /// These tasks; commas between their ids
    #[arg(long, value_name = "REACH_ID", value_delimiter = ',')]
    task: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// How it is done.
#[derive(Debug, Args)]
#[command(next_help_heading = "How")]
struct How {
    /// Items a second; the namespace's replays_per_second when absent
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    /// Why: it stands in the ledger beside who
    #[arg(long, required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Also what may have run and is not declared idempotent: a second run does no harm
    #[arg(long)]
    include_ambiguous: bool,
    /// Put the payloads right that are made anew, by a merge patch: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "PATCH")]
    payload_patch: Option<String>,
    /// Makes a repeat of this very plan answer with the first one; a new key when absent
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Only say what it would do; nothing is kept
    #[arg(long)]
    dry_run: bool,
}

/// Orders it, or says what it would do.
pub(super) async fn run(context: &Context, plan: &Plan) -> Outcome {
    let patch = plan.how.payload_patch.as_deref().map(patch).transpose()?;
    let key = plan.how.idempotency_key.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let request = context.client.request(Method::POST, &["v1", "replays"]).timeout(PATIENCE);
    let answer = answer(request.header("Idempotency-Key", &key).json(&body(plan, patch))).await;
    let answer = answer.inspect_err(|failure| {
        if failure.code() == Code::Unreachable && !plan.how.dry_run {
            context.hint(&format!("it may be planned all the same; with --idempotency-key {key} it is planned once"));
        }
    })?;
    if plan.how.dry_run {
        match context.format {
            Format::Json => output::json(&answer),
            Format::Table => {
                let (after, before) = (plan.submitted_after, plan.submitted_before);
                let resolved = [
                    ("--submitted-after", after),
                    ("--since", after),
                    ("--submitted-before", before),
                    ("--until", before),
                ];
                let start = command::that_starts(std::env::args(), &resolved, plan.how.reason.as_deref());
                dry::show(&answer, &start);
            }
        }
        if answer.get("total").and_then(Value::as_u64) == Some(0) {
            context.note_unused().await;
        }
        return Ok(());
    }
    show(context, &answer);
    let id = field(&answer, "/replay_id");
    context.hint(&format!("follow it: reach replay watch {id}\nstop it:   reach replay pause {id}"));
    Ok(())
}

/// As with every JSON of the command line. A patch is an object, so what does not begin as one is taken as the name of a
/// file also without the `@`.
fn patch(text: &str) -> Outcome<Box<RawValue>> {
    let is_told = text.trim_start().starts_with('{') || text == "-" || text.starts_with('@');
    if is_told { json_argument("--payload-patch", text) } else { json_argument("--payload-patch", &format!("@{text}")) }
}

/// The order of these options; what was not given is left to the hub.
fn body(plan: &Plan, patch: Option<Box<RawValue>>) -> Body {
    let mut select = Map::new();
    let mut put = |name: &str, value: Option<Value>| select.extend(value.map(|value| (name.to_owned(), value)));
    let list = |items: &[String]| (!items.is_empty()).then(|| json!(items));
    put("state", list(&plan.state));
    put("capability", plan.capability.clone().map(Value::from));
    put("agent_id", plan.agent.clone().map(Value::from));
    put("incarnation", plan.incarnation.map(Value::from));
    put("session_id", plan.session.clone().map(Value::from));
    put("batch_id", plan.batch.clone().map(Value::from));
    let labels: Map<String, Value> =
        plan.label.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
    put("label", (!labels.is_empty()).then_some(Value::Object(labels)));
    put("failure_class", list(&plan.failure_class));
    put("failure_code", list(&plan.failure_code));
    put("submitted_after", plan.submitted_after.map(|at| at.to_string().into()));
    put("submitted_before", plan.submitted_before.map(|at| at.to_string().into()));
    put("reach_ids", list(&plan.task));
    let How { rate, reason, include_ambiguous, payload_patch: _, idempotency_key: _, dry_run } = &plan.how;
    let mut body = Body::default();
    body.put("select", Some(select));
    body.put("reason", Some(reason.as_deref().unwrap_or(ONLY_ASKED)));
    body.put("include_ambiguous", Some(*include_ambiguous));
    body.put("dry_run", Some(*dry_run));
    body.put("rate_per_s", *rate);
    body.put_typed("payload_patch", patch);
    body
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    fn body_of(line: &[&str]) -> Value {
        let plan = Line::try_parse_from([&["plan"], line].concat()).expect("a good command line").plan;
        let patch = plan.how.payload_patch.as_deref().map(|text| patch(text).expect("JSON"));
        serde_json::to_value(body(&plan, patch)).expect("JSON")
    }

    #[test]
    fn only_what_was_given_is_sent() {
        assert_eq!(
            body_of(&["--dry-run"]),
            json!({"select": {}, "reason": "dry run", "include_ambiguous": false, "dry_run": true})
        );
    }

    #[test]
    fn options_become_the_fields_of_the_selection() {
        let line = [
            "--state=failed,dead-letter --capability a.b --agent a-1 --incarnation 3 --session s --batch b",
            "--label k=v --label l=w --failure-class agent-crash,agent-timeout --failure-code no-host,42 --submitted-after 2026-01-01T00:00:00Z",
            "--submitted-before 2026-01-02T00:00:00Z --task x,y --rate 5 --reason why --include-ambiguous",
            "--payload-patch {\"to\":null}",
        ];
        let line: Vec<&str> = line.iter().flat_map(|part| part.split(' ')).collect();
        assert_eq!(
            body_of(&line),
            json!({
                "select": {
                    "state": ["failed", "dead-letter"], "capability": "a.b", "agent_id": "a-1", "incarnation": 3,
                    "session_id": "s", "batch_id": "b", "label": {"k": "v", "l": "w"},
                    "failure_class": ["agent-crash", "agent-timeout"], "failure_code": ["no-host", "42"], "submitted_after": "2026-01-01T00:00:00Z",
                    "submitted_before": "2026-01-02T00:00:00Z", "reach_ids": ["x", "y"],
                },
                "rate_per_s": 5, "reason": "why", "include_ambiguous": true, "dry_run": false,
                "payload_patch": {"to": null},
            })
        );
    }

    #[test]
    fn a_plan_needs_a_reason_and_a_dry_run_none() {
        assert!(Line::try_parse_from(["plan", "--state", "failed"]).is_err());
        assert!(Line::try_parse_from(["plan", "--state", "failed", "--rate", "0", "--reason", "r"]).is_err());
        assert!(Line::try_parse_from(["plan", "--state", "succeeded", "--dry-run"]).is_err());
    }
}
