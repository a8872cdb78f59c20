//! `reach history`: everything that ever happened to one task, in order.

use agent_reach::api::timeline::timeline;
use clap::Args;

use crate::ctl::Context;
use crate::exit::Outcome;
use crate::output::{self, Format};

/// Whose history.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Task id
    reach_id: String,
}

/// Prints it: a line an event, or the events as JSON.
pub(crate) async fn run(context: &Context, history: &History) -> Outcome {
    let answer = context.client.get(&["v1", "tasks", &history.reach_id, "history"], &[]).await?;
    match context.format {
        Format::Json => output::json(&answer),
        Format::Table => timeline(&answer).lines().for_each(output::row),
    }
    Ok(())
}
