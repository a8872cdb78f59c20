//! `reach policies`: rules as data.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::ctl::{Context, pair};
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
