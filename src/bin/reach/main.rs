//! `reach`: a hub, and everything that its people do with it.
//!
//! | file | what |
//! | --- | --- |
//! | `serve.rs`, `verify.rs` | the hub itself: run it, check its ledger, repair it |
//! | `ctl/` | the operator's CLI, over HTTP only |
//! | `smoke.rs` | does this hub deliver? |
//! | `demo/`, `worker.rs`, `work.rs` | a hub and a fleet of real processes, killed on purpose, and the proof |
//! | `bench/` | open-loop load and what came out of it |
//! | `simulate/` | what other rules would have done: recorded work through the same planner |
//! | `workload.rs`, `times.rs` | arrival traces and histograms, shared by demo, bench and simulate |
//! | `client.rs`, `output.rs`, `exit.rs` | the hub over HTTP; what is printed; exit codes |
//! | `help.rs`, `advice.rs` | examples of every command; what to do after a refusal |
//! | `moments.rs` | moments as people think of them |

mod advice;
mod bench;
mod child;
mod client;
mod ctl;
mod demo;
mod exit;
mod help;
mod moments;
mod output;
mod scratch;
mod serve;
mod simulate;
mod smoke;
mod times;
mod verify;
mod work;
mod worker;
mod workload;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use client::{Client, Connect};
use ctl::Context;
use exit::{Code, Failure, Outcome};
use output::{Chatter, Format};

/// What is made on one thread and freed on another is most of a hub's work (docs/decisions, "allocator").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The reach layer for fleets of agents: a hub, and everything that its people do with it.
#[derive(Debug, Parser)]
#[command(name = "reach", version, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    connect: Connect,
    /// How data is printed on stdout
    #[arg(long, short, global = true, value_enum, default_value_t = Format::Table, help_heading = "Output")]
    output: Format,
    /// Only data and errors
    #[arg(long, short, global = true, help_heading = "Output")]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a hub
    Serve(serve::Serve),
    /// Print the configuration with its documentation and defaults
    Config(serve::ShowConfig),
    /// See it work: a hub, five workers, two thousand tasks, three kills, and the proof that nothing was lost
    Demo(demo::Demo),
    /// Put a hub under load and measure it
    Bench(bench::Bench),
    /// What another strategy, other weights, more agents or more load would have done
    Simulate(Box<simulate::Simulate>),
    /// Check a ledger on disk: every event, every hash
    Verify(verify::Verify),
    /// Make a damaged ledger usable again, at the price of its damaged end
    Repair(verify::Repair),
    #[command(flatten)]
    Talk(Talk),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// An agent process of the demo
    #[command(hide = true)]
    DemoWorker(worker::Args),
}

/// What is one conversation with a hub.
#[derive(Debug, Subcommand)]
enum Talk {
    /// Does this hub deliver? Sends requests to a temporary agent of its own
    Smoke(smoke::Smoke),
    /// Is all well, and if not, where to look
    Status(ctl::status::Status),
    /// Who is there: list, show, drain, take offline, remove
    #[command(subcommand)]
    Agents(ctl::agents::Command),
    /// What became of tasks: list, show, explain, cancel, approve, redrive, resolve, wait
    #[command(subcommand)]
    Tasks(ctl::tasks::Command),
    /// Bring work back after an incident: a dry run, a plan, its progress
    #[command(subcommand)]
    Replay(ctl::replay::Command),
    /// Submit a task, or a file of them
    Submit(Box<ctl::submit::Submit>),
    /// How far a batch is, line by line
    #[command(subcommand)]
    Batches(ctl::batches::Command),
    /// Everything that ever happened to a task
    History(ctl::history::History),
    /// Why a task is where it is, or where one would go
    Explain(ctl::explain::Explain),
    /// The feed of events
    Events(ctl::events::Events),
    /// Callbacks that have not arrived, and signing secrets
    #[command(subcommand)]
    Callbacks(ctl::callbacks::Command),
    /// Access tokens: create, list, revoke, rotate
    #[command(subcommand)]
    Tokens(ctl::tokens::Command),
    /// The rules of a namespace: show them, change them
    #[command(subcommand)]
    Policies(ctl::policies::Command),
}

fn main() -> ExitCode {
    let cli = parse();
    let format = cli.output;
    client::install_tls();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell(format);
            ExitCode::from(failure.code() as u8)
        }
    }
}

/// The command line; wrong ones and questions for help end here.
fn parse() -> Cli {
    let mut command = help::dressed(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let matches =
        matches.unwrap_or_else(|error| help::pointed(&command, help::of_the_line(error, Cli::command())).exit());
    if let Some(error) = help::out_of_place(&mut command, &matches) {
        error.exit();
    }
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn run(cli: Cli) -> Outcome {
    let chatter = if cli.quiet { Chatter::Quiet } else { Chatter::Normal };
    match cli.command {
        Command::Serve(serve) => serve::run(&serve),
        Command::Config(show) => serve::show_config(&show),
        Command::Verify(verify) => verify::run(&verify, cli.output, chatter),
        Command::Repair(repair) => verify::repair(&repair, cli.output),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "reach", &mut std::io::stdout());
            Ok(())
        }
        Command::Demo(demo) => on_threads(demo::run(&demo, chatter)),
        // One thread: the load generator shares the machine with what it measures.
        Command::Bench(bench) => on_one_thread(bench::run(&bench, &cli.connect, cli.output, chatter)),
        Command::Simulate(what_if) => on_one_thread(simulate::run(&what_if, &cli.connect, (cli.output, chatter))),
        Command::DemoWorker(args) => on_one_thread(worker::run(&args, &cli.connect)),
        Command::Talk(talk) => {
            let context = Context { client: Client::new(&cli.connect)?, format: cli.output, chatter };
            on_one_thread(converse(&context, talk))
        }
    }
}

async fn converse(context: &Context, talk: Talk) -> Outcome {
    let outcome = asked(context, talk).await;
    // What is not there may be in the namespace that was meant.
    if outcome.as_ref().is_err_and(|failure| failure.code() == Code::NotFound) {
        context.hint_unused().await;
    }
    outcome
}

async fn asked(context: &Context, talk: Talk) -> Outcome {
    match talk {
        Talk::Smoke(smoke) => smoke::run(context, &smoke).await,
        Talk::Status(status) => ctl::status::run(context, &status).await,
        Talk::Agents(command) => ctl::agents::run(context, command).await,
        Talk::Tasks(command) => ctl::tasks::run(context, command).await,
        Talk::Replay(command) => ctl::replay::run(context, command).await,
        Talk::Submit(submit) => ctl::submit::run(context, *submit).await,
        Talk::Batches(command) => ctl::batches::run(context, command).await,
        Talk::History(history) => ctl::history::run(context, &history).await,
        Talk::Explain(explain) => ctl::explain::explain(context, &explain).await,
        Talk::Events(events) => ctl::events::run(context, &events).await,
        Talk::Callbacks(command) => ctl::callbacks::run(context, command).await,
        Talk::Tokens(command) => ctl::tokens::run(context, command).await,
        Talk::Policies(command) => ctl::policies::run(context, command).await,
    }
}

fn on_one_thread(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("no runtime: {error}")))?.block_on(work)
}

fn on_threads(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(format!("no runtime: {error}")))?.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
