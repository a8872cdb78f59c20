//! `reach policies`: rules as data, and `reach explain`: where a task would go.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::ctl::{Context, json_argument, pair};
use crate::exit::Outcome;
use crate::output::{self, Format};

/// What to do with policies.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the rules in force
    Show,
    /// Change some of them; the others stay as they are
    Set {
        /// name=value, such as lane_bound=5000; may be given several times
        #[arg(required = true, value_parser = pair)]
        rules: Vec<(String, String)>,
        /// Why: it stands in the ledger beside who
        #[arg(long)]
        reason: String,
    },
}

/// A task that is not sent.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Task id, or a capability for a dry run
    subject: String,
    /// Payload for the dry run: JSON, @FILE, or - for stdin
    #[arg(long, short)]
    payload: Option<String>,
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let path = ["v1", "policies"];
    let mut holding = context.client.get(&path, &[]).await?;
    if let Command::Set { rules, reason } = command {
        let mut policy = holding.get("policy").and_then(Value::as_object).cloned().unwrap_or_default();
        for (name, value) in rules {
            let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
            policy.insert(name, value);
        }
        holding = context.client.put(&path, &json!({"policy": policy, "reason": reason})).await?;
    }
    match context.format {
        Format::Json => output::json(&holding),
        Format::Table => context.print_object(holding.get("policy").unwrap_or(&Value::Null)),
    }
    Ok(())
}

/// Why a task is where it is, or where a capability would be routed to now.
pub(crate) async fn explain(context: &Context, explain: &Explain) -> Outcome {
    let client = &context.client;
    let answer = if explain.subject.starts_with("reach_") {
        client.get(&["v1", "tasks", &explain.subject, "explain"], &[]).await?
    } else {
        let mut body: Map<String, Value> = Map::new();
        body.insert("capability".to_owned(), json!(explain.subject));
        if let Some(payload) = &explain.payload {
            body.insert("payload".to_owned(), json_argument("--payload", payload)?);
        }
        client.post(&["v1", "route", "explain"], &Value::Object(body)).await?
    };
    output::json(&answer);
    Ok(())
}
