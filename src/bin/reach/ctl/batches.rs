//! `reach batches`: how far a batch is.

use clap::Subcommand;
use serde_json::Value;

use crate::ctl::Context;
use crate::exit::Outcome;
use crate::output::{self, Format, field};

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
    let mut batch = context.client.get(&["v1", "batches", &batch_id], &[]).await?;
    if context.format == Format::Json {
        output::json(&batch);
        return Ok(());
    }
    let outcomes = batch.as_object_mut().and_then(|fields| fields.remove("outcomes"));
    context.print_object(&batch);
    match outcomes {
        Some(Value::Array(outcomes)) if !outcomes.is_empty() => {
            output::data("");
            output::table(&["index", "reach id", "outcome"], outcomes.iter().map(row));
        }
        Some(_) => {}
        None => context.hint(&format!("it is large: `reach tasks list --batch {batch_id}` lists its tasks")),
    }
    Ok(())
}

/// One line of the batch.
fn row(outcome: &Value) -> Vec<String> {
    let said = match outcome.get("problem").filter(|problem| !problem.is_null()) {
        Some(problem) => format!("refused: {}: {}", field(problem, "/code"), field(problem, "/detail")),
        None if outcome.get("replayed") == Some(&Value::Bool(true)) => "submitted before".to_owned(),
        None => "accepted".to_owned(),
    };
    let warnings = outcome.get("warnings").and_then(Value::as_array).into_iter().flatten();
    let said = warnings.fold(said, |said, warning| format!("{said}; {}", field(warning, "")));
    vec![field(outcome, "/index"), field(outcome, "/reach_id"), said]
}
