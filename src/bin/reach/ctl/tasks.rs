//! `reach tasks`: what became of them, and why.

use std::time::Duration;

use agent_reach::api::words;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Client;
use crate::ctl::agents::without_nulls;
use crate::ctl::body::{Body, json_argument};
use crate::ctl::explain::{Explain, explain};
use crate::ctl::{Context, age, pair, span};
use crate::exit::{Code, Failure, Outcome};
use crate::moments::moment;
use crate::output::{self, Format, field};

/// One long-poll asks for so long.
const LONG_POLL: Duration = Duration::from_secs(20);

/// What to do with tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List tasks, newest first
    List(List),
    /// Show one task
    Show(One),
    /// Call it off
    Cancel {
        /// Task id
        reach_id: String,
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let one that awaits approval go on
    Approve(One),
    /// Make an ended one anew: a new task, once, with fresh budgets
    Redrive(Redrive),
    /// Decide one that is slow, or whose agent is gone
    Resolve {
        /// Task id
        reach_id: String,
        /// What becomes of it
        #[arg(value_enum)]
        resolution: Resolution,
        /// Why, for the record
        #[arg(long)]
        reason: String,
    },
    /// Why it is where it is, and what would move it on
    Explain(One),
    /// Wait for its end: exit code 0 when it succeeded, 6 when it did not, 7 when the wait is over
    Wait {
        /// Task id
        reach_id: String,
        /// How long
        #[arg(long, value_name = "DURATION", value_parser = span, default_value = "5m")]
        timeout: u64,
    },
    /// Print its result
    Result(One),
    /// Print its payload
    Payload(One),
}

/// One task.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Task id
    reach_id: String,
}

/// How to make one anew.
#[derive(Debug, Args)]
pub(crate) struct Redrive {
    /// Task id
    reach_id: String,
    /// Why, for the record
    #[arg(long)]
    reason: String,
    /// Even if it may have run and is not declared idempotent: a second run does no harm
    #[arg(long)]
    include_ambiguous: bool,
    /// Another payload: JSON, @FILE, or - for stdin
    #[arg(long, short)]
    payload: Option<String>,
}

/// What becomes of a task that waits for a person's word.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Resolution {
    /// Another agent gets it, idempotent or not: the one that had it is known to be dead
    HandOver,
    /// It is given up: a dead letter
    Fail,
    /// A slow one may go on until its deadline
    Wait,
}

impl Resolution {
    const fn name(self) -> &'static str {
        match self {
            Self::HandOver => "hand-over",
            Self::Fail => "fail",
            Self::Wait => "wait",
        }
    }
}

/// Filters.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// In one of these states; commas between them
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(words::task_states()))]
    state: Vec<String>,
    /// Of this capability
    #[arg(long)]
    capability: Option<String>,
    /// Last held by this agent
    #[arg(long)]
    agent: Option<String>,
    /// In this session
    #[arg(long)]
    session: Option<String>,
    /// In this batch
    #[arg(long)]
    batch: Option<String>,
    /// With this label, name=value
    #[arg(long, value_parser = pair)]
    label: Option<(String, String)>,
    /// With this class of failure
    #[arg(long, value_parser = PossibleValuesParser::new(words::failure_classes()))]
    failure_class: Option<String>,
    /// That ended with one of these codes, or whose last attempt failed with one; commas between them
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    failure_code: Vec<String>,
    /// Submitted after this moment: RFC 3339, or so long ago, as in 1h
    #[arg(long, visible_alias = "since", value_name = "WHEN", value_parser = moment)]
    submitted_after: Option<Timestamp>,
    /// Submitted before this moment: RFC 3339, or so long ago, as in 30m
    #[arg(long, visible_alias = "until", value_name = "WHEN", value_parser = moment)]
    submitted_before: Option<Timestamp>,
    /// At most so many
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let client = &context.client;
    match command {
        Command::List(filters) => list(context, filters).await?,
        Command::Show(One { reach_id }) => {
            context.print_object(&client.get(&["v1", "tasks", &reach_id], &[]).await?);
        }
        Command::Cancel { reach_id, reason } => {
            let body = without_nulls(json!({"reason": reason}));
            context.print_object(&client.post(&["v1", "tasks", &reach_id, "cancel"], &body).await?);
        }
        Command::Approve(One { reach_id }) => {
            context.print_object(&client.post(&["v1", "tasks", &reach_id, "approve"], &json!({})).await?);
        }
        Command::Redrive(redrive) => {
            let payload = redrive.payload.as_deref().map(|text| json_argument("--payload", text)).transpose()?;
            let mut body = Body::default();
            body.put("reason", Some(redrive.reason));
            body.put("include_ambiguous", redrive.include_ambiguous.then_some(true));
            body.put_typed("payload", payload);
            context.print_object(&client.post(&["v1", "tasks", &redrive.reach_id, "redrive"], &body).await?);
        }
        Command::Resolve { reach_id, resolution, reason } => {
            let body = json!({"resolution": resolution.name(), "reason": reason});
            context.print_object(&client.post(&["v1", "tasks", &reach_id, "resolve"], &body).await?);
        }
        Command::Explain(One { reach_id }) => {
            explain(context, &Explain { subject: Some(reach_id), text: None, payload: None }).await?;
        }
        Command::Wait { reach_id, timeout } => {
            let waited = wait(client, &reach_id, Duration::from_millis(timeout)).await?;
            return waited.tell(context);
        }
        Command::Result(One { reach_id }) => raw_body(context, &reach_id, "result").await?,
        Command::Payload(One { reach_id }) => raw_body(context, &reach_id, "payload").await?,
    }
    Ok(())
}

async fn list(context: &Context, filters: List) -> Outcome {
    let mut query = Vec::new();
    let pairs = [
        ("state", (!filters.state.is_empty()).then(|| filters.state.join(","))),
        ("capability", filters.capability),
        ("agent_id", filters.agent),
        ("session_id", filters.session),
        ("batch_id", filters.batch),
        ("label", filters.label.map(|(name, value)| format!("{name}:{value}"))),
        ("failure_class", filters.failure_class),
        ("failure_code", (!filters.failure_code.is_empty()).then(|| filters.failure_code.join(","))),
        ("submitted_after", filters.submitted_after.map(|at| at.to_string())),
        ("submitted_before", filters.submitted_before.map(|at| at.to_string())),
    ];
    query.extend(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let listing = context.client.list(&["v1", "tasks"], &query, filters.limit).await?;
    context
        .print_list(
            listing,
            &[
                ("reach id", |task| field(task, "/reach_id")),
                ("state", |task| field(task, "/state")),
                ("age", |task| age(task, "/submitted_at")),
                ("try", |task| field(task, "/attempt")),
                ("capability", |task| field(task, "/capability")),
                ("agent", |task| field(task, "/agent_id")),
                ("failure", |task| field(task, "/failure/code")),
            ],
        )
        .await;
    Ok(())
}

async fn raw_body(context: &Context, reach_id: &str, which: &str) -> Outcome {
    let body = context.client.get(&["v1", "tasks", reach_id, which], &[]).await?;
    match body.as_str() {
        Some(text) if context.format == Format::Table => output::data(text),
        Some(_) | None => output::json(&body),
    }
    Ok(())
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The task has ended.
    Ended(Value),
    /// It has not yet: the task as it was seen last.
    Over(Value),
}

impl Waited {
    /// Prints the task, whatever became of it: scripts read its id there. Exit code 6 for one that ended without success,
    /// 7 for one that has not ended.
    pub(crate) fn tell(&self, context: &Context) -> Outcome {
        match self {
            Self::Ended(task) => {
                context.print_object(task);
                if field(task, "/state") == "succeeded" { Ok(()) } else { Err(Failure::Told(Code::Unsuccessful)) }
            }
            Self::Over(task) => {
                context.print_object(task);
                let (id, state) = (field(task, "/reach_id"), field(task, "/state"));
                let next = format!("`reach explain {id}` says why; `reach tasks wait {id}` goes on waiting");
                Err(Failure::Other(Code::Timeout, format!("{id} is still {state}\n  next: {next}")))
            }
        }
    }
}

/// Waits for a task's end, at most so long.
pub(crate) async fn wait(client: &Client, reach_id: &str, patience: Duration) -> Outcome<Waited> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now()).min(LONG_POLL);
        let wait_ms = u64::try_from(left.as_millis()).unwrap_or(0);
        let task = client.get(&["v1", "tasks", reach_id], &[("wait_ms", wait_ms.to_string())]).await?;
        if words::terminal_states().any(|state| state == field(&task, "/state")) {
            return Ok(Waited::Ended(task));
        }
        if left.is_zero() {
            return Ok(Waited::Over(task));
        }
    }
}
