//! `reach batches`: how far a batch is.

use clap::Subcommand;

use crate::ctl::Context;
use crate::exit::Outcome;

/// What to do with batches.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a batch: total, by state, settled or not
    Show {
        /// Batch id
        batch_id: String,
    },
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let Command::Show { batch_id } = command;
    context.print_object(&context.client.get(&["v1", "batches", &batch_id], &[]).await?);
    Ok(())
}
