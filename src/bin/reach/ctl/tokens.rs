//! `reach tokens`: who may do what.

use agent_reach::api::words;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::ctl::agents::without_nulls;
use crate::ctl::callbacks::show_once;
use crate::ctl::{Context, span};
use crate::exit::Outcome;
use crate::output::field;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make one: it is shown once
    Create(Create),
    /// List them, without their secrets
    List,
    /// End one at once
    Revoke {
        /// Token id
        token_id: String,
    },
    /// Replace its secret; the old one holds for a while
    Rotate {
        /// Token id
        token_id: String,
        /// For how long the old one holds
        #[arg(long, value_name = "DURATION", value_parser = span)]
        overlap: Option<u64>,
    },
}

/// A new token.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// What people call it
    #[arg(long)]
    name: String,
    /// What it may do; commas between them
    #[arg(long, required = true, value_delimiter = ',', value_parser = PossibleValuesParser::new(words::scopes()))]
    scope: Vec<String>,
    /// It holds in every namespace, not only in that of this call
    #[arg(long)]
    everywhere: bool,
    /// Agents that it may act as: ids, or one trailing *; none when absent
    #[arg(long, value_delimiter = ',')]
    agent: Vec<String>,
    /// Capabilities that it may call, decide about and offer; all when absent
    #[arg(long, value_delimiter = ',')]
    capability: Vec<String>,
    /// When it ends (RFC 3339)
    #[arg(long)]
    expires_at: Option<String>,
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let client = &context.client;
    match command {
        Command::Create(create) => {
            let mut body = without_nulls(json!({
                "name": create.name, "scopes": create.scope, "namespaces": create.everywhere.then_some("all"),
                "expires_at": create.expires_at,
            }));
            if let Some(fields) = body.as_object_mut() {
                for (name, list) in [("agents", create.agent), ("capabilities", create.capability)] {
                    if !list.is_empty() {
                        fields.insert(name.to_owned(), list.into());
                    }
                }
            }
            show_once(context, &client.post(&["v1", "tokens"], &body).await?);
        }
        Command::List => {
            let listing = client.list(&["v1", "tokens"], &[], 10_000).await?;
            context
                .print_list(
                    listing,
                    &[
                        ("token id", |token| field(token, "/token_id")),
                        ("name", |token| field(token, "/name")),
                        ("scopes", |token| field(token, "/scopes")),
                        ("namespace", |token| field(token, "/namespace")),
                        ("agents", |token| field(token, "/agents")),
                        ("expires", |token| field(token, "/expires_at")),
                    ],
                )
                .await;
        }
        Command::Revoke { token_id } => {
            let answer = client.delete(&["v1", "tokens", &token_id]).await?;
            context.print_done(&answer, &format!("{token_id} is revoked"));
        }
        Command::Rotate { token_id, overlap } => {
            let body = without_nulls(json!({"overlap_ms": overlap}));
            show_once(context, &client.post(&["v1", "tokens", &token_id, "rotate"], &body).await?);
        }
    }
    Ok(())
}
