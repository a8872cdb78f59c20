//! `reach policies`: rules as data.

use clap::Subcommand;
use serde_json::{Value, json};

use crate::ctl::routing::{self, Routing};
use crate::ctl::{Context, pair, span};
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
    /// Change the rules of the whole hub: replays_per_second over all namespaces
    Hub {
        /// name=value, such as replays_per_second=500
        #[arg(required = true, value_parser = pair)]
        rules: Vec<(String, String)>,
        /// Why: it stands in the ledger beside who
        #[arg(long)]
        reason: String,
    },
    /// Say how the tasks of one capability are given out: strategy, weights, tiers
    Routing(Box<Routing>),
    /// Say what happens to slow tasks of one capability, and who looks after them
    Capability {
        /// domain.task_type
        capability: String,
        /// What happens to a slow task that says nothing itself; without it the rules are taken back
        #[arg(long, value_parser = ["wait", "hand-over", "fail"])]
        slow_reach: Option<String>,
        /// After how long in slow-reach
        #[arg(long, value_name = "DURATION", value_parser = span, requires = "slow_reach")]
        after: Option<u64>,
        /// Who looks after slow tasks
        #[arg(long, requires = "slow_reach")]
        owner: Option<String>,
        /// Why: it stands in the ledger beside who
        #[arg(long)]
        reason: String,
    },
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let path = ["v1", "policies"];
    let holding = match command {
        Command::Show => context.client.get(&path, &[]).await?,
        Command::Set { rules, reason } => {
            let holding = context.client.get(&path, &[]).await?;
            let policy = changed(holding.get("policy"), rules);
            context.client.put(&path, &json!({"policy": policy, "reason": reason})).await?
        }
        Command::Hub { rules, reason } => {
            let holding = context.client.get(&path, &[]).await?;
            let body = json!({"policy": changed(holding.get("hub"), rules), "reason": reason});
            context.client.put(&["v1", "policies", "hub"], &body).await?
        }
        Command::Routing(routing) => return routing::run(context, &routing).await,
        Command::Capability { capability, slow_reach, after, owner, reason } => {
            let slow_reach = slow_reach.map(|policy| json!({"policy": policy, "after_ms": after}));
            let body = json!({"capability": capability, "slow_reach": slow_reach, "owner": owner, "reason": reason});
            let set = context.client.put(&["v1", "policies", "capabilities"], &body).await?;
            if context.format == Format::Json {
                output::json(&set);
                return Ok(());
            }
            unoffered(&set).iter().for_each(|told| context.hint(told));
            context.client.get(&path, &[]).await?
        }
    };
    match context.format {
        Format::Json => output::json(&holding),
        Format::Table => {
            context.print_object(holding.get("policy").unwrap_or(&Value::Null));
            if let Some(hub) = holding.get("hub") {
                output::data("\nthe whole hub");
                context.print_object(hub);
            }
            let capabilities = holding.get("capabilities").filter(|of| of.as_object().is_some_and(|of| !of.is_empty()));
            if let Some(capabilities) = capabilities {
                context.print_object(capabilities);
            }
            routing::list(holding.get("routing"));
        }
    }
    Ok(())
}

/// That nobody offers what has rules now, and what may have been meant.
fn unoffered(set: &Value) -> Option<String> {
    if set.get("registered") != Some(&Value::Bool(false)) {
        return None;
    }
    let near = output::field(set, "/suggestions");
    let meant = if near == "-" { String::new() } else { format!("; did you mean {near}?") };
    Some(format!("warning: nobody offers {} now{meant}", output::field(set, "/capability")))
}

/// Rules as they are, but for those that are named.
fn changed(now: Option<&Value>, rules: Vec<(String, String)>) -> Value {
    let mut policy = now.and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, value) in rules {
        let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
        policy.insert(name, value);
    }
    Value::Object(policy)
}
