//! `reach agents`: who is there, how they are, and how to send them away without losing work.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::ctl::{Context, age, span};
use crate::exit::Outcome;
use crate::output::field;

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
        Command::List(List { capability, health, standing, limit }) => {
            let mut query = Vec::new();
            query.extend(capability.map(|value| ("capability", value)));
            query.extend(health.map(|value| ("health", value)));
            query.extend(standing.map(|value| ("standing", value)));
            let listing = client.list(&["v1", "agents"], &query, limit).await?;
            context.print_list(
                listing,
                &[
                    ("agent", |agent| field(agent, "/agent_id")),
                    ("standing", |agent| field(agent, "/standing")),
                    ("health", |agent| field(agent, "/health")),
                    ("busy", |agent| format!("{}/{}", field(agent, "/slots_used"), field(agent, "/max_concurrency"))),
                    ("process", |agent| field(agent, "/incarnation")),
                    ("since", |agent| age(agent, "/registered_at")),
                    ("version", |agent| field(agent, "/version")),
                    ("capabilities", |agent| field(agent, "/capabilities")),
                ],
            );
        }
        Command::Show { agent_id } => context.print_object(&client.get(&["v1", "agents", &agent_id], &[]).await?),
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

/// Unset options are left out, so that the hub's defaults hold.
pub(crate) fn without_nulls(mut body: serde_json::Value) -> serde_json::Value {
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    body
}
