//! `reach serve`: configuration → hub → signals; and `reach config`, which shows what would hold.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use agent_reach::api::auth::token::DevToken;
use agent_reach::config::{self, Config};
use agent_reach::hub::{Hub, StartError};
use agent_reach::ledger::ids::Namespace;
use agent_reach::ledger::launch::ClockLeap;
use agent_reach::telemetry;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::advice::of_folder;
use crate::child;
use crate::client::Secret;
use crate::exit::{Code, Failure, Outcome, starting};
use crate::output;

/// The namespace that a development hub opens.
const DEV_NAMESPACE: &str = "dev";
/// Threads that are busy at the end are not waited for longer.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// How to run a hub.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    source: Source,
    /// Where to listen; port 0 takes a free one
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Data folder
    #[arg(long)]
    data: Option<PathBuf>,
    /// For development: a `dev` namespace, loopback callbacks and push endpoints, and a token of all scopes from
    /// REACH_DEV_TOKEN, else a fresh one that is printed
    #[arg(long)]
    dev: bool,
    /// The wall clock is right, although it is more than 7 days ahead of the ledger
    #[arg(long)]
    accept_clock: bool,
    /// End when the parent process ends
    #[arg(long, hide = true)]
    die_with_parent: bool,
}

/// Where the configuration comes from.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// Configuration file (TOML)
    #[arg(long, env = "REACH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Which configuration to show.
#[derive(Debug, Args)]
pub(crate) struct ShowConfig {
    #[command(flatten)]
    source: Source,
    /// What holds with this file and environment, instead of the documented defaults
    #[arg(long)]
    effective: bool,
}

/// Prints a configuration as a file.
pub(crate) fn show_config(show: &ShowConfig) -> Outcome {
    let text = if show.effective || show.source.config.is_some() {
        load(&show.source)?.to_toml().map_err(|error| Failure::Other(Code::Usage, error.to_string()))?
    } else {
        config::DOCUMENTED.to_owned()
    };
    output::data(text.trim_end());
    Ok(())
}

fn load(source: &Source) -> Outcome<Config> {
    Config::load(source.config.as_deref()).map_err(|error| Failure::Other(Code::Usage, error.to_string()))
}

/// Runs a hub until it is told to stop.
pub(crate) fn run(serve: &Serve) -> Outcome {
    if serve.die_with_parent {
        child::die_with_parent();
    }
    let mut config = load(&serve.source)?;
    config.listen = serve.listen.unwrap_or(config.listen);
    if let Some(data) = &serve.data {
        config.data.clone_from(data);
    }
    telemetry::start(&config.log).map_err(|error| Failure::Other(Code::Usage, error.to_string()))?;
    let (dev, drawn) = if serve.dev { dev_token()? } else { (None, None) };
    let leap = if serve.accept_clock { ClockLeap::Accept } else { ClockLeap::Refuse };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("no runtime: {error}")))?;
    let ended = runtime.block_on(live(config, dev, leap, drawn));
    // A thread that hangs in a failed disk must not keep the process alive (semantics 30).
    runtime.shutdown_timeout(LAST_WAIT);
    ended
}

/// The token of a development hub, and its text if it was drawn here and must be shown.
fn dev_token() -> Outcome<(Option<DevToken>, Option<Secret>)> {
    let usage = |error: String| Failure::Other(Code::Usage, error);
    let namespace = Namespace::new(DEV_NAMESPACE).map_err(|error| usage(error.to_string()))?;
    let given = std::env::var("REACH_DEV_TOKEN").ok().filter(|token| !token.is_empty());
    let drawn = if given.is_none() { Some(child::fresh_token()?) } else { None };
    let text = given.as_deref().or_else(|| drawn.as_ref().map(Secret::expose)).unwrap_or_default();
    let token = DevToken::new(text, namespace).map_err(|error| usage(format!("REACH_DEV_TOKEN: {error}")))?;
    Ok((Some(token), drawn))
}

async fn live(config: Config, dev: Option<DevToken>, leap: ClockLeap, drawn: Option<Secret>) -> Outcome {
    // Before the hub starts, so that no signal is lost in between.
    let mut stops = Stops::new()?;
    let data = config.data.clone();
    let failure = |error: StartError| {
        Failure::Other(starting(&error), of_folder(&format!("the hub does not start: {error}"), &data))
    };
    let mut hub = Box::pin(Hub::start(config.hub_options(dev, leap))).await.map_err(failure)?;
    if let Some(token) = &drawn {
        output::data(&format!("token: {}", token.expose()));
    }
    if let Some(path) = hub.admin_token() {
        output::data(&format!("admin token: written to {}", path.display()));
    }
    output::data(&format!("ready: http://{}", hub.address()));
    let failed = tokio::select! {
        () = stops.next() => None,
        fate = hub.failed() => Some(fate),
    };
    let ended = match failed {
        Some(fate) => Err(fate),
        None => {
            tracing::info!("stopping");
            tokio::select! {
                stopped = Box::pin(hub.stop()) => stopped,
                // Told twice: kill -9 is equally safe, and so is this.
                () = stops.next() => return Err(Failure::new("stopped at once; the ledger is safe")),
            }
        }
    };
    ended.map_err(|fate| {
        tracing::error!(%fate, "the ledger failed");
        Failure::Other(Code::LedgerFailed, format!("the hub must end: {fate}"))
    })
}

/// The signals that mean stop.
struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    fn new() -> Outcome<Self> {
        let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("signals: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
