//! The hub's own calls to others: pushes to agents, cancel notices, callbacks to callers.
//!
//! Why here and not in the API: these are consequences of the ledger, not answers to a call. Everything is level-
//! triggered: a worker asks the state what is outstanding, keeps its own set of what it has in hand, and proposes what
//! came of it. A commit only wakes it, and a restart needs no outbox.
//!
//! | where | what |
//! | --- | --- |
//! | [`guard`], [`address`] | pure: what may be connected to |
//! | [`http`] | the client: resolves once, connects to what was checked, knows what was sent |
//! | [`wire`] | a handed task as JSON, for claims and pushes alike |
//! | [`dispatcher`], [`answer`], [`report`] | pushes: who, what the answer means, what is proposed |
//! | [`cancels`] | notices to push agents |
//! | [`callback`], [`attempt`], [`hosts`] | callbacks: what is due, one try, whose turn it is |
//! | [`message`], [`signature`] | pure: a callback's bytes and their signatures |
//! | [`secrets`] | the sealed file of signing secrets |
//! | [`alerts`] | what wants a person: gathered from the ledger, signed, told |
//!
//! Deliberately absent: retry rules. When a push or a callback is tried again is the ledger's decision.

pub mod address;
pub mod alerts;
pub mod answer;
mod attempt;
mod callback;
mod cancels;
pub mod dispatcher;
pub mod guard;
pub mod hosts;
pub mod http;
pub mod message;
mod propose;
mod report;
pub mod secrets;
pub mod signature;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::ledger::handle::Ledger;
use crate::ledger::ids::Seq;
use crate::ledger::time::Timestamp;
use alerts::Reader;
use callback::Sender;
use cancels::Cancels;
use dispatcher::Dispatcher;
use guard::Guard;
use http::{HttpClient, Lookup, SetupError, SystemLookup};
use secrets::Secrets;

/// What is on its way at a stop gets so long, unless the hub is set up otherwise (proof 3.10).
pub const DEFAULT_GRACE: Duration = Duration::from_secs(10);
/// Beyond the grace, to write down what came of it.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What the outbound workers need besides the ledger.
pub struct Options {
    /// What may be connected to.
    pub guard: Guard,
    /// Name service.
    pub lookup: Arc<dyn Lookup>,
    /// Signing secrets, shared with the API.
    pub secrets: Arc<Secrets>,
    /// How many callbacks may be on their way.
    pub callbacks: hosts::Limits,
    /// The last event before this start: what was handed over by then counts as sent (semantics 8).
    pub sent_before: Seq,
    /// Where alerts go; `None`: nowhere.
    pub alerts: Option<alerts::Settings>,
    /// What is on its way at a stop gets so long (proof 3.10); default [`DEFAULT_GRACE`].
    pub grace: Duration,
}

impl Options {
    /// With the machine's own name service.
    #[must_use]
    pub fn new(guard: Guard, secrets: Arc<Secrets>, sent_before: Seq) -> Self {
        let (lookup, callbacks) = (Arc::new(SystemLookup), hosts::Limits::default());
        Self { guard, lookup, secrets, callbacks, sent_before, alerts: None, grace: DEFAULT_GRACE }
    }
}

/// The running workers.
pub struct Handle {
    http: HttpClient,
    stop: CancellationToken,
    grace: Duration,
    workers: JoinSet<()>,
}

/// Starts the workers. They wait while the hub is starting, so that what it finds in flight is settled first.
///
/// # Errors
/// [`SetupError`] when the HTTP client can't be set up.
pub fn spawn(ledger: &Ledger, options: Options) -> Result<Handle, SetupError> {
    let http = HttpClient::new(options.guard, options.lookup)?;
    let (stop, grace) = (CancellationToken::new(), options.grace);
    let mut workers = JoinSet::new();
    let dispatcher = Dispatcher {
        ledger: ledger.clone(),
        http: http.clone(),
        sent_before: options.sent_before,
        stop: stop.clone(),
        grace,
    };
    workers.spawn(dispatcher.run());
    workers.spawn(Cancels { ledger: ledger.clone(), http: http.clone(), stop: stop.clone(), grace }.run());
    if let Some(settings) = options.alerts {
        let (ledger, http, secrets) = (ledger.clone(), http.clone(), Arc::clone(&options.secrets));
        workers.spawn(Reader { ledger, http, secrets, settings, stop: stop.clone() }.run());
    }
    let sender = Sender {
        ledger: ledger.clone(),
        http: http.clone(),
        secrets: options.secrets,
        limits: options.callbacks,
        started: ledger.now(),
        stop: stop.clone(),
        grace,
    };
    workers.spawn(sender.run());
    Ok(Handle { http, stop, grace, workers })
}

impl Handle {
    /// The guarded client, for probes and hooks.
    #[must_use]
    pub const fn http(&self) -> &HttpClient {
        &self.http
    }

    /// Takes nothing new and waits for what is on its way, at most the grace and a moment to write
    /// down what came of it. The ledger must still take proposals.
    pub async fn stop(mut self) {
        self.stop.cancel();
        let all = async {
            while let Some(ended) = self.workers.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "an outbound worker ended abruptly");
                }
            }
        };
        // Each worker bounds its own end; one that hangs before it must not hold up the stop.
        if tokio::time::timeout(self.grace + LAST_WORD + LAST_WORD, all).await.is_err() {
            tracing::warn!("an outbound worker did not end within the grace");
        }
    }
}

/// The wall clock, by the ledger's own offset: for what leaves the hub with a time on it.
fn wall(ledger: &Ledger) -> Timestamp {
    let now = ledger.now();
    // `from_wall` takes the offset off; mirrored at `now` it is put on.
    Timestamp(now.0.saturating_mul(2).saturating_sub(ledger.from_wall(now).0))
}

#[cfg(test)]
mod receiver;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
