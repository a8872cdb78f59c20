//! How the tasks fare that a plan sent back or made anew: a plan that is completed has mended nothing yet.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::Client;
use crate::exit::Outcome;
use crate::output::field;

use super::{counts, told};

/// Of a larger plan they are not counted: each is looked up.
const MOST: u64 = 20_000;

/// The plan with `tasks`: how many of them are in which state. Without it for a plan that is too large, and for whoever
/// may not read its items.
pub(super) async fn with_fates(client: &Client, mut plan: Value) -> Outcome<Value> {
    let number = |name: &str| plan.get(name).and_then(Value::as_u64).unwrap_or(0);
    let moved = number("replayed") + number("redriven");
    if moved == 0 || number("total") > MOST {
        return Ok(plan);
    }
    let path = ["v1", "replays", &field(&plan, "/replay_id"), "items"].map(str::to_owned);
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let all = usize::try_from(MOST).unwrap_or(usize::MAX);
    let listing = client.list(&path, &[], all).await?;
    let mut fates: BTreeMap<String, u64> = BTreeMap::new();
    let moved = listing.items.iter().filter(|item| ["replayed", "redriven"].contains(&&*field(item, "/outcome")));
    for item in moved {
        *fates.entry(field(item, "/state")).or_default() += 1;
    }
    if let Some(plan) = plan.as_object_mut() {
        plan.insert("tasks".to_owned(), json!(fates));
    }
    Ok(plan)
}

/// `3 queued, 8 succeeded`; `None` where nothing was counted.
pub(super) fn fates_of(plan: &Value) -> Option<String> {
    let told = told(&counts(plan.get("tasks")));
    (!told.is_empty()).then_some(told)
}
