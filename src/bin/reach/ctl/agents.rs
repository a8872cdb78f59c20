//! `reach agents`: who is there, how they are, and how to send them away without losing work.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::ctl::{Column, Context, age, breakers, span};
use crate::exit::Outcome;
use crate::output::{self, Format, field};

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List agents with health and load
    List(List),
    /// Show one agent
    Show {
        /// Agent id
        agent_id: String,
    },
    /// No new work; let it finish or hand over, then deregister it
    Drain(Drain),
    /// Hold its breaker for one capability open or closed, or give it back to the rule
    Breaker(Breaker),
    /// Take it out of routing at once, as if it had said goodbye
    Offline {
        /// Agent id
        agent_id: String,
    },
    /// Deregister it
    Remove {
        /// Agent id
        agent_id: String,
    },
}

/// Filters.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those that offer this capability
    #[arg(long)]
    capability: Option<String>,
    /// Only those with this health
    #[arg(long, value_parser = ["healthy", "unhealthy", "lost"])]
    health: Option<String>,
    /// Only those of this standing; offline and deregistered ones are hidden otherwise
    #[arg(long, value_parser = ["active", "draining", "offline", "deregistered"])]
    standing: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 200)]
    limit: usize,
}

/// How to drain.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Agent id
    agent_id: String,
    /// Running work may finish for so long
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "30s")]
    grace: u64,
    /// What happens to running work
    #[arg(long, value_enum, default_value_t = Mode::Finish)]
    mode: Mode,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
}

/// An operator's word on a breaker.
#[derive(Debug, Args)]
pub(crate) struct Breaker {
    /// Agent id
    agent_id: String,
    /// Capability; the agent's others go on
    capability: String,
    #[command(flatten)]
    word: BreakerWord,
    /// Why: it stands in the ledger beside who
    #[arg(long)]
    reason: String,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct BreakerWord {
    /// Give it no tasks of the capability until another word
    #[arg(long)]
    open: bool,
    /// Give it tasks of the capability, whatever fails, until another word
    #[arg(long)]
    close: bool,
    /// Let the rule decide again; one that was held open lets one task try it out first
    #[arg(long)]
    automatic: bool,
}

impl BreakerWord {
    const fn name(&self) -> &'static str {
        match (self.open, self.close) {
            (true, _) => "open",
            (false, true) => "closed",
            (false, false) => "automatic",
        }
    }
}

/// What happens to running work.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// It may finish within the grace.
    Finish,
    /// It goes to a standby now.
    HandOver,
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let client = &context.client;
    match command {
        Command::List(filters) => list(context, filters).await?,
        Command::Show { agent_id } => show(context, client.get(&["v1", "agents", &agent_id], &[]).await?),
        Command::Breaker(Breaker { agent_id, capability, word, reason }) => {
            let body = json!({"state": word.name(), "reason": reason});
            let path = ["v1", "agents", &agent_id, "breakers", &capability];
            let answer = client.put(&path, &body).await?;
            match context.format {
                Format::Json => output::json(&answer),
                Format::Table => breakers::show(&Value::Array(vec![answer])),
            }
        }
        Command::Drain(Drain { agent_id, grace, mode, reason }) => {
            let mode = match mode {
                Mode::Finish => "finish",
                Mode::HandOver => "hand-over",
            };
            let body = json!({"grace_ms": grace, "mode": mode, "reason": reason});
            let answer = client.post(&["v1", "agents", &agent_id, "drain"], &without_nulls(body)).await?;
            context.print_object(&answer);
        }
        Command::Offline { agent_id } => {
            let agent = client.get(&["v1", "agents", &agent_id], &[]).await?;
            let body = json!({"incarnation": agent.get("incarnation")});
            let answer = client.post(&["v1", "agents", &agent_id, "offline"], &body).await?;
            context.print_done(&answer, &format!("{} is offline", field(&agent, "/agent_id")));
        }
        Command::Remove { agent_id } => {
            let answer = client.delete(&["v1", "agents", &agent_id]).await?;
            context.print_done(&answer, &format!("{agent_id} is deregistered"));
        }
    }
    Ok(())
}

async fn list(context: &Context, filters: List) -> Outcome {
    let client = &context.client;
    let hides_the_gone = filters.standing.is_none() && filters.health.is_none();
    let pairs = [("capability", filters.capability), ("health", filters.health), ("standing", filters.standing)];
    let query: Vec<_> = pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let listing = client.list(&["v1", "agents"], &query, filters.limit).await?;
    let is_empty = listing.items.is_empty();
    let columns: [Column; 8] = [
        ("agent", |agent| field(agent, "/agent_id")),
        ("standing", |agent| field(agent, "/standing")),
        ("health", health),
        ("busy", |agent| format!("{}/{}", field(agent, "/slots_used"), field(agent, "/max_concurrency"))),
        ("process", |agent| field(agent, "/incarnation")),
        ("registered", |agent| format!("{} ago", age(agent, "/registered_at"))),
        ("version", |agent| field(agent, "/version")),
        ("capabilities", |agent| field(agent, "/capabilities")),
    ];
    context.print_list(listing, &columns).await;
    if is_empty && hides_the_gone {
        let standing = client.get(&["v1", "status"], &[]).await.ok();
        standing.as_ref().and_then(gone).iter().for_each(|gone| context.hint(gone));
    }
    Ok(())
}

/// How it is; of one that has left nobody asks.
fn health(agent: &Value) -> String {
    match field(agent, "/standing").as_str() {
        "offline" | "deregistered" => "-".to_owned(),
        _ => field(agent, "/health"),
    }
}

/// Those that a list leaves out because they have left, with the command that shows them.
fn gone(standing: &Value) -> Option<String> {
    let of = |word: &str| standing.pointer(&format!("/agents/{word}")).and_then(Value::as_u64).unwrap_or(0);
    let told = ["offline", "deregistered"].into_iter().filter(|word| of(word) > 0);
    let told: Vec<String> =
        told.map(|word| format!("{} {word}: `reach agents list --standing {word}`", of(word))).collect();
    (!told.is_empty()).then(|| format!("those that have left are not listed; {}", told.join(", ")))
}

/// An agent; its breakers stand in a table of their own.
fn show(context: &Context, mut agent: Value) {
    if context.format == Format::Json {
        return output::json(&agent);
    }
    let mut breakers = agent.as_object_mut().and_then(|fields| fields.remove("breakers")).unwrap_or_default();
    for breaker in breakers.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        breaker.insert("agent_id".to_owned(), json!(field(&agent, "/agent_id")));
    }
    context.print_object(&agent);
    breakers::show(&breakers);
}

/// Unset options are left out, so that the hub's defaults hold.
pub(crate) fn without_nulls(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_that_have_left_have_no_health_and_are_pointed_to() {
        let of = |standing: &str| json!({"standing": standing, "health": "healthy"});
        assert_eq!((health(&of("active")), health(&of("deregistered"))), ("healthy".to_owned(), "-".to_owned()));
        assert_eq!(gone(&json!({"agents": {"healthy": 2}})), None);
        assert_eq!(
            gone(&json!({"agents": {"deregistered": 2, "offline": 1}})).as_deref(),
            Some(
                "those that have left are not listed; 1 offline: `reach agents list --standing offline`, 2 deregistered: \
                 `reach agents list --standing deregistered`"
            )
        );
    }
}
