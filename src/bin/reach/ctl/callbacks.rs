//! `reach callbacks`: what was told to callers, what could not be, and with which secrets.

use std::cmp::Reverse;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{Listing, More};
use crate::ctl::{Context, age};
use crate::exit::Outcome;
use crate::moments;
use crate::output::{self, Format, field};

/// Callbacks that are read to find the newest.
const MOST: usize = 10_000;

/// What to do with callbacks.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List callbacks that have not arrived, newest first
    List {
        /// Only those in this state
        #[arg(long, value_parser = ["due", "exhausted", "blocked", "gone"])]
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
            // By id they come in no order that a person knows: all are read, and sorted by the event that they tell.
            let listing = newest_first(client.list(&["v1", "callbacks"], &query, MOST).await?, limit);
            context
                .print_list(
                    listing,
                    &[
                        ("callback id", |callback| field(callback, "/callback_id")),
                        ("state", |callback| field(callback, "/state")),
                        ("tries", |callback| field(callback, "/attempts")),
                        ("next try", next_try),
                        ("last error", |callback| field(callback, "/last_error")),
                        ("url", |callback| field(callback, "/url")),
                    ],
                )
                .await;
        }
        Command::Redrive { callback_id } => {
            context.print_object(&client.post(&["v1", "callbacks", &callback_id, "redrive"], &json!({})).await?);
        }
        Command::Secrets(command) => secrets(context, command).await?,
    }
    Ok(())
}

fn next_try(callback: &Value) -> String {
    due(&field(callback, "/next_at"), moments::now())
}

/// When a try is to come: `in 2.0 s`, or `due`, for its moment may pass before a sender is free.
fn due(next: &str, now: jiff::Timestamp) -> String {
    match next.parse::<jiff::Timestamp>() {
        Ok(at) if at <= now => "due".to_owned(),
        Ok(at) => moments::relative(at, now),
        Err(_) => next.to_owned(),
    }
}

/// The newest of a listing, without what was delivered.
fn newest_first(mut listing: Listing, limit: usize) -> Listing {
    listing.items.retain(|callback| field(callback, "/state") != "delivered");
    listing.items.sort_by_key(|callback| Reverse(callback.get("seq").and_then(Value::as_u64)));
    if listing.items.len() > limit {
        listing.more = More::Yes;
        listing.items.truncate(limit);
    }
    listing
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
            let listing = Listing { items: items.unwrap_or_default(), more: More::No, hints: Vec::new() };
            context
                .print_list(
                    listing,
                    &[
                        ("name", |secret| field(secret, "/name")),
                        ("signing now", |secret| field(secret, "/active")),
                        ("age", |secret| age(secret, "/created_at")),
                    ],
                )
                .await;
        }
        Secrets::Remove { name } => {
            let answer = client.delete(&["v1", "callback-secrets", &name]).await?;
            context.print_done(&answer, &format!("{name} is removed"));
        }
    }
    Ok(())
}

/// A fresh secret is data: bare on stdout, so that a script can keep it.
pub(crate) fn show_once(context: &Context, answer: &Value) {
    match context.format {
        Format::Json => output::json(answer),
        Format::Table => {
            let secret = ["/secret", "/token"].iter().map(|at| field(answer, at)).find(|text| text != "-");
            output::data(&secret.unwrap_or_default());
            context.hint("it is shown only this once");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_whose_moment_has_come_is_due_and_not_long_ago() {
        let now = "2026-01-01T00:00:10Z".parse().expect("a moment");
        assert_eq!(due("2026-01-01T00:00:09.38Z", now), "due");
        assert_eq!(due("2026-01-01T00:00:12Z", now), "in 2.0 s");
        assert_eq!(due("-", now), "-");
    }

    #[test]
    fn the_newest_come_first_and_what_arrived_is_left_out() {
        let item = |seq: u64, state: &str| json!({"seq": seq, "state": state});
        let items = vec![item(3, "due"), item(9, "exhausted"), item(12, "delivered"), item(5, "gone")];
        let listing = newest_first(Listing { items, more: More::No, hints: Vec::new() }, 2);
        assert_eq!(listing.items, [item(9, "exhausted"), item(5, "gone")]);
        assert_eq!(listing.more, More::Yes);
    }
}
