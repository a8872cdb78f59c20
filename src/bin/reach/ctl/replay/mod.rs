//! `reach replay`: bring work back after an incident. Look first, then order it, then follow it, and stop it at any
//! moment.

mod command;
mod dry;
mod fates;
mod plan;
mod watch;

use agent_reach::api::timeline::span;
use agent_reach::api::words;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::ctl::agents::without_nulls;
use crate::ctl::{Context, age};
use crate::exit::Outcome;
use crate::moments;
use crate::output::{self, Format, field};

/// What to do with replay plans.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Order one, or say with --dry-run what it would do
    Plan(Box<plan::Plan>),
    /// List plans, newest first
    List {
        /// Only those in this state
        #[arg(long, value_parser = PossibleValuesParser::new(words::replay_states()))]
        state: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show how far one is
    Show(One),
    /// Show its items and what became of each
    Items {
        /// Plan id
        replay_id: String,
        /// Only those with this outcome
        #[arg(long, value_parser = ["pending", "replayed", "redriven", "skipped", "cancelled"])]
        outcome: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Follow one to its end: exit code 0 when it is completed, 6 when it was cancelled, 7 after Ctrl-C, which leaves it running
    Watch(One),
    /// Let no more items go until it is resumed
    Pause(Steered),
    /// Let it go on
    Resume(Steered),
    /// Call the rest off; what went is not called back
    Cancel(Steered),
    /// Make it faster or slower
    Rate {
        /// Plan id
        replay_id: String,
        /// Items a second
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
        per_second: u32,
    },
}

/// One plan.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Plan id
    replay_id: String,
}

/// One plan, and why it is steered.
#[derive(Debug, Args)]
pub(crate) struct Steered {
    /// Plan id
    replay_id: String,
    /// Why, for the record
    #[arg(long)]
    reason: Option<String>,
}

/// Runs it.
pub(crate) async fn run(context: &Context, command: Command) -> Outcome {
    let client = &context.client;
    match command {
        Command::Plan(order) => plan::run(context, &order).await?,
        Command::List { state, limit } => list(context, state, limit).await?,
        Command::Show(One { replay_id }) => {
            let plan = client.get(&["v1", "replays", &replay_id], &[]).await?;
            show(context, &fates::with_fates(client, plan).await?);
        }
        Command::Items { replay_id, outcome, limit } => items(context, &replay_id, (outcome, limit)).await?,
        Command::Watch(One { replay_id }) => watch::run(context, &replay_id).await?,
        Command::Pause(Steered { replay_id, reason }) => {
            steer(context, &replay_id, ("pause", reason)).await?;
            context.hint(&format!("nothing more goes; `reach replay resume {replay_id}` lets it go on"));
        }
        Command::Resume(Steered { replay_id, reason }) => steer(context, &replay_id, ("resume", reason)).await?,
        Command::Cancel(Steered { replay_id, reason }) => {
            steer(context, &replay_id, ("cancel", reason)).await?;
            context.hint("what was pending stays as it is; what went is not called back");
        }
        Command::Rate { replay_id, per_second } => {
            let body = json!({"rate_per_s": per_second});
            show(context, &client.patch(&["v1", "replays", &replay_id], &body).await?);
        }
    }
    Ok(())
}

async fn steer(context: &Context, replay_id: &str, (word, reason): (&str, Option<String>)) -> Outcome {
    let body = without_nulls(json!({"reason": reason}));
    show(context, &context.client.post(&["v1", "replays", replay_id, word], &body).await?);
    Ok(())
}

async fn list(context: &Context, state: Option<String>, limit: usize) -> Outcome {
    let query: Vec<_> = state.map(|state| ("state", state)).into_iter().collect();
    let listing = context.client.list(&["v1", "replays"], &query, limit).await?;
    context
        .print_list(
            listing,
            &[
                ("replay id", |plan| field(plan, "/replay_id")),
                ("state", |plan| field(plan, "/state")),
                // Its rate and the rest are in `replay show`: here a line fits a narrow terminal.
                ("done", |plan| format!("{}/{}", Progress::of(plan).done(), field(plan, "/total"))),
                ("skipped", |plan| Progress::of(plan).skipped.to_string()),
                ("age", |plan| age(plan, "/planned_at")),
                ("reason", |plan| field(plan, "/reason")),
            ],
        )
        .await;
    Ok(())
}

async fn items(context: &Context, replay_id: &str, (outcome, limit): (Option<String>, usize)) -> Outcome {
    let query: Vec<_> = outcome.map(|outcome| ("outcome", outcome)).into_iter().collect();
    let listing = context.client.list(&["v1", "replays", replay_id, "items"], &query, limit).await?;
    context
        .print_list(
            listing,
            &[
                ("index", |item| field(item, "/index")),
                ("reach id", |item| field(item, "/reach_id")),
                ("action", |item| field(item, "/action")),
                ("outcome", |item| field(item, "/outcome")),
                ("why", |item| field(item, "/skipped")),
                ("redriven as", |item| field(item, "/redriven_as")),
                ("now", |item| field(item, "/state")),
            ],
        )
        .await;
    Ok(())
}

/// A plan: how far it is, first of all.
fn show(context: &Context, plan: &Value) {
    match context.format {
        Format::Json => output::json(plan),
        Format::Table => {
            let now = moments::now();
            let rows = facts(plan).into_iter().map(|(name, value)| (name.to_owned(), moments::related(&value, now)));
            output::card(&rows.collect::<Vec<_>>());
        }
    }
}

/// How far a plan is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    total: u64,
    pending: u64,
    cancelled: u64,
    replayed: u64,
    redriven: u64,
    skipped: u64,
}

impl Progress {
    /// How far that plan is.
    pub(crate) fn of(plan: &Value) -> Self {
        let number = |name: &str| plan.get(name).and_then(Value::as_u64).unwrap_or(0);
        Self {
            total: number("total"),
            pending: number("pending"),
            cancelled: number("cancelled"),
            replayed: number("replayed"),
            redriven: number("redriven"),
            skipped: counts(plan.get("skipped")).iter().map(|(_, count)| count).sum(),
        }
    }

    /// Items that went.
    pub(crate) const fn done(self) -> u64 {
        self.replayed + self.redriven
    }

    /// Items that have an outcome.
    const fn settled(self) -> u64 {
        self.done() + self.skipped
    }

    /// `2 replayed, 10 redriven, 1 skipped, 27 pending of 40`; of a plan that was called off how many it did not come to.
    pub(crate) fn words(self) -> String {
        let done = match (self.replayed, self.redriven) {
            (0, 0) => "0 done".to_owned(),
            (replayed, 0) => format!("{replayed} replayed"),
            (0, redriven) => format!("{redriven} redriven"),
            (replayed, redriven) => format!("{replayed} replayed, {redriven} redriven"),
        };
        let left = match self.cancelled {
            0 => format!("{} pending", self.pending),
            cancelled => format!("{cancelled} not done"),
        };
        format!("{done}, {} skipped, {left} of {}", self.skipped, self.total)
    }
}

fn facts(plan: &Value) -> Vec<(&'static str, String)> {
    let is_unchanged = plan.get("unchanged") == Some(&Value::Bool(true));
    let mut rows = vec![
        ("plan", field(plan, "/replay_id")),
        (
            "state",
            format!("{}{}", field(plan, "/state"), if is_unchanged { " (already: nothing changed)" } else { "" }),
        ),
        ("progress", Progress::of(plan).words()),
    ];
    rows.extend(skipped(plan).map(|skipped| ("skipped", skipped)));
    rows.extend(fates::fates_of(plan).map(|fates| ("their tasks", fates)));
    let left = plan.get("estimate_s").and_then(Value::as_u64).filter(|left| *left > 0);
    rows.extend(left.map(|left| ("left", format!("{} at its rate, or longer", span(left.saturating_mul(1_000))))));
    rows.extend(waits(plan).map(|waits| ("waits", waits)));
    rows.push(("rate", format!("{} a second", field(plan, "/rate_per_s"))));
    if plan.get("include_ambiguous") == Some(&Value::Bool(true)) {
        rows.push(("ambiguous", "what may have run and is not idempotent goes, too".to_owned()));
    }
    let others = [
        ("select", "/select"),
        ("patch", "/payload_patch"),
        ("reason", "/reason"),
        ("planned", "/planned_at"),
        ("ended", "/ended_at"),
        ("as of event", "/position"),
    ];
    let others = others.map(|(name, at)| (name, field(plan, at)));
    rows.extend(others.into_iter().filter(|(_, text)| text != "-"));
    let by = ["/by/token_id", "/by/agent_id", "/by/kind"].map(|at| field(plan, at));
    rows.extend(by.into_iter().find(|text| text != "-").map(|by| ("by", by)));
    rows
}

/// `2 sessions wait, the first for reach_…`; `None` when every item can go.
fn waits(plan: &Value) -> Option<String> {
    let sessions = plan.pointer("/waiting_for/sessions").and_then(Value::as_u64)?;
    let told =
        if sessions == 1 { "1 session waits".to_owned() } else { format!("{sessions} sessions wait, the first") };
    Some(format!("{told} for {}", field(plan, "/waiting_for/reach_id")))
}

/// `3 may-have-run, 1 superseded`; `None` when nothing was left alone.
fn skipped(plan: &Value) -> Option<String> {
    let told = told(&counts(plan.get("skipped")));
    (!told.is_empty()).then_some(told)
}

/// Names and counts of an object, or of a list of reasons with theirs.
fn counts(value: Option<&Value>) -> Vec<(String, u64)> {
    let of_object = value.and_then(Value::as_object).into_iter().flatten();
    let of_object = of_object.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
    let of_list = value.and_then(Value::as_array).into_iter().flatten();
    let of_list = of_list.filter_map(|item| Some((field(item, "/reason"), item.get("count")?.as_u64()?)));
    of_object.chain(of_list).filter(|(_, count)| *count > 0).collect()
}

fn told(counts: &[(String, u64)]) -> String {
    counts.iter().map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Value {
        json!({
            "replay_id": "replay_x", "state": "running", "total": 40, "pending": 27, "replayed": 2, "redriven": 10,
            "skipped": {"may-have-run": 1}, "rate_per_s": 20, "include_ambiguous": false, "select": {"state": ["failed"]},
            "reason": "night", "by": {"kind": "token", "token_id": "tok_1"}, "planned_at": "2026-01-01T00:00:00Z",
            "ended_at": null, "position": 99, "estimate_s": 2,
        })
    }

    #[test]
    fn a_plan_says_how_far_it_is_before_everything_else() {
        let rows: Vec<String> = facts(&plan()).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        assert_eq!(
            rows,
            [
                "plan: replay_x",
                "state: running",
                "progress: 2 replayed, 10 redriven, 1 skipped, 27 pending of 40",
                "skipped: 1 may-have-run",
                "left: 2.0 s at its rate, or longer",
                "rate: 20 a second",
                "select: {\"state\":[\"failed\"]}",
                "reason: night",
                "planned: 2026-01-01T00:00:00Z",
                "as of event: 99",
                "by: tok_1",
            ]
        );
    }

    #[test]
    fn a_plan_that_waits_says_for_whom_and_pretends_no_end() {
        let mut plan = plan();
        plan["estimate_s"] = Value::Null;
        plan["waiting_for"] = json!({"sessions": 1, "reach_id": "reach_a"});
        let rows: Vec<String> = facts(&plan).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        assert!(rows.contains(&"waits: 1 session waits for reach_a".to_owned()), "{rows:?}");
        assert!(!rows.iter().any(|row| row.starts_with("left")), "{rows:?}");
        plan["waiting_for"]["sessions"] = json!(3);
        assert_eq!(waits(&plan).as_deref(), Some("3 sessions wait, the first for reach_a"));
    }

    #[test]
    fn counts_are_read_from_both_of_their_forms() {
        let list = json!([{"reason": "superseded", "count": 2}, {"reason": "unknown", "count": 0}]);
        assert_eq!(told(&counts(Some(&list))), "2 superseded");
        assert_eq!(told(&counts(Some(&json!({"orphaned": 3, "failed": 1})))), "1 failed, 3 orphaned");
        let progress = Progress::of(&plan());
        assert_eq!((progress.done(), progress.settled(), progress.skipped), (12, 13, 1));
        let called_off =
            json!({"total": 40, "pending": 0, "cancelled": 27, "replayed": 12, "skipped": {"superseded": 1}});
        assert_eq!(Progress::of(&called_off).words(), "12 replayed, 1 skipped, 27 not done of 40");
    }
}
