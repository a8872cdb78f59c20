//! `reach simulate`: what another strategy, other weights, more agents or more load would have done.
//!
//! Why it can be believed: nothing is modelled but the agents. Arrivals, classes, sizes and failures are recorded ones,
//! and the planner and the state machine are the hub's own (`scheduler::whatif`). Played twice, under the rules of today
//! and under those asked about, so that what the model gets wrong it gets wrong on both sides; where the work was
//! recorded by a hub, what truly happened stands beside them.

mod asked;
mod changes;
mod fleet;
mod history;
mod report;
mod trace;

use std::path::PathBuf;

use agent_reach::scheduler::whatif::{self, Fate, Fleet, Job, Outcome as Played};
use clap::Args;
use serde_json::json;

use crate::client::{Client, Connect};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, Chatter, Format};

use changes::Changes;
use report::Figures;
use trace::Seat;

/// Tasks played at most.
pub(crate) const MAX_TASKS: usize = 250_000;

/// What is played, and what is changed.
#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// Arrivals and sizes of a trace, in lines of TIMESTAMP,ContextTokens,GeneratedTokens
    #[arg(long, value_name = "FILE", requires = "agents")]
    trace: Option<PathBuf>,
    /// An agent of the trace's fleet
    #[arg(long = "agent", value_name = "NAME[,slots=N][,at-once=N][,speed=X][,weight=N]", requires = "trace")]
    agents: Vec<Seat>,
    /// Mean arrivals a second of the trace; as recorded without it
    #[arg(long, requires = "trace", value_parser = changes::factor)]
    rate: Option<f64>,
    /// Shares of urgent, normal and background tasks of the trace
    #[arg(long, value_name = "U:N:B", requires = "trace", default_value = "0:1:0")]
    classes: trace::Classes,
    /// Without a trace: the hub's own work, from so many events before the end of its ledger
    #[arg(long, default_value_t = 100_000, conflicts_with = "trace")]
    last: u64,
    #[command(flatten)]
    changes: Changes,
}

/// What is played.
pub(crate) struct Scenario {
    /// In words.
    pub(crate) source: String,
    /// Who works, by which rules.
    pub(crate) fleet: Fleet,
    /// Its work.
    pub(crate) jobs: Vec<Job>,
    /// What truly became of it, where that is known.
    pub(crate) recorded: Vec<Fate>,
    /// What the scenario leaves out, in words.
    pub(crate) left_out: Vec<String>,
}

/// Plays both and prints them side by side.
pub(crate) async fn run(simulate: &Simulate, connect: &Connect, (format, chatter): (Format, Chatter)) -> Outcome {
    let scenario = match &simulate.trace {
        Some(file) => trace::scenario(file, &simulate.agents, (simulate.rate, simulate.classes))?,
        None => history::scenario(&Client::new(connect)?, simulate.last, chatter).await?,
    };
    if scenario.jobs.is_empty() {
        return Err(Failure::Other(
            Code::NotFound,
            format!("there is nothing to play: {} has no tasks", scenario.source),
        ));
    }
    if scenario.jobs.len() > MAX_TASKS {
        return Err(too_many());
    }
    let (fleet, jobs) = simulate.changes.applied(&scenario)?;
    let now = play("today", (&scenario.fleet, &scenario.jobs), chatter)?;
    let changes = simulate.changes.in_words();
    let then = if changes.is_empty() { None } else { Some(play("what if", (&fleet, &jobs), chatter)?) };
    let figures = |fates: &[Fate]| Figures::of(fates, &scenario.jobs);
    let answer = json!({
        "source": scenario.source, "tasks": scenario.jobs.len(), "changes": changes, "left_out": scenario.left_out,
        "recorded": (!scenario.recorded.is_empty()).then(|| figures(&scenario.recorded).json()),
        "today": figures(&now.fates).refused(now.refused.len()).json(),
        "what_if": then.map(|then| figures(&then.fates).refused(then.refused.len()).json()),
    });
    match format {
        Format::Json => output::json(&answer),
        Format::Table => report::show(&answer),
    }
    Ok(())
}

fn play(what: &str, (fleet, jobs): (&Fleet, &[Job]), chatter: Chatter) -> Outcome<Played> {
    let bar = output::progress(u64::try_from(jobs.len()).unwrap_or(u64::MAX), what, chatter);
    let played = whatif::run(fleet, jobs, &mut |ended| bar.set_position(u64::try_from(ended).unwrap_or(u64::MAX)));
    bar.finish_and_clear();
    played.map_err(|bug| Failure::Other(Code::LedgerFailed, format!("the state machine failed: {bug}")))
}

/// More tasks than are played at a time.
fn too_many() -> Failure {
    let why =
        format!("more than {MAX_TASKS} tasks are not played at a time: take fewer events (--last), or a shorter trace");
    Failure::Other(Code::Usage, why)
}
