//! `reach callbacks`: what was told to callers, what could not be, and with which secrets.

use clap::Subcommand;
use serde_json::json;

use crate::client::{Listing, More};
use crate::ctl::Context;
use crate::exit::Outcome;
use crate::output::{self, Format, field};

/// What to do with callbacks.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List callbacks
    List {
        /// In this state: due, exhausted, blocked, gone
        #[arg(long)]
        state: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Send an exhausted or blocked one again
    Redrive {
        /// Callback id
        callback_id: String,
    },
    /// Signing secrets
    #[command(subcommand)]
    Secrets(Secrets),
}

/// What to do with signing secrets.
#[derive(Debug, Subcommand)]
pub(crate) enum Secrets {
    /// Make one: it is shown once
    Create {
        /// Its name, for `secret_ref`
        name: String,
    },
    /// List their names
    List,
    /// Replace one; both sign for a while
    Rotate {
        /// Its name
        name: String,
    },
    /// Remove one
    Remove {
        /// Its name
        name: String,
    },
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let client = &context.client;
    match command {
        Command::List { state, limit } => {
            let query: Vec<_> = state.map(|state| ("state", state)).into_iter().collect();
            let listing = client.list(&["v1", "callbacks"], &query, limit).await?;
            context.print_list(
                listing,
                &[
                    ("callback id", "/callback_id"),
                    ("state", "/state"),
                    ("attempts", "/attempts"),
                    ("last error", "/last_error"),
                    ("reach id", "/reach_id"),
                    ("url", "/url"),
                ],
            );
        }
        Command::Redrive { callback_id } => {
            context.print_object(&client.post(&["v1", "callbacks", &callback_id, "redrive"], &json!({})).await?);
        }
        Command::Secrets(command) => secrets(context, command).await?,
    }
    Ok(())
}

async fn secrets(context: &Context, command: Secrets) -> Outcome {
    let client = &context.client;
    let path = ["v1", "callback-secrets"];
    match command {
        Secrets::Create { name } => show_once(context, &client.post(&path, &json!({"name": name})).await?),
        Secrets::Rotate { name } => {
            show_once(context, &client.post(&["v1", "callback-secrets", &name, "rotate"], &json!({})).await?);
        }
        Secrets::List => {
            // One page, for a namespace has few.
            let mut page = client.get(&path, &[]).await?;
            let items = page.get_mut("items").and_then(|items| items.as_array_mut()).map(std::mem::take);
            let listing = Listing { items: items.unwrap_or_default(), more: More::No };
            context.print_list(listing, &[("name", "/name"), ("created", "/created_at"), ("active", "/active")]);
        }
        Secrets::Remove { name } => {
            client.delete(&["v1", "callback-secrets", &name]).await?;
            context.hint(&format!("{name} is removed"));
        }
    }
    Ok(())
}

/// A fresh secret is data: bare on stdout, so that a script can keep it.
pub(crate) fn show_once(context: &Context, answer: &serde_json::Value) {
    match context.format {
        Format::Json => output::json(answer),
        Format::Table => {
            let secret = ["/secret", "/token"].iter().map(|at| field(answer, at)).find(|text| text != "-");
            output::data(&secret.unwrap_or_default());
            context.hint("it is shown only this once");
        }
    }
}
