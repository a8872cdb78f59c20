//! The composition root: opens, wires, starts and stops. It knows every floor and decides nothing.
//!
//! ```text
//! start: data folder → fold → clock → threads → boot rules → outbound → door → open
//!        without room on the disk: … → threads → door; boot rules, outbound and open when there is room
//! stop:  no submits → no new dispatches, pushes, callbacks → door closes → clean-stop event → fsync
//! ```

pub mod folder;
pub mod guardian;
mod opening;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::api;
use crate::api::metrics::Metrics;
use crate::api::server::Server;
use crate::ledger::boot;
use crate::ledger::handle::{Ledger, Phase};
use crate::ledger::keys::Keys;
use crate::ledger::launch::{ClockLeap, Found, Launch, LaunchError, Running, prepare};
use crate::ledger::machine::State;
use crate::ledger::sequencer::Fate;
use crate::ledger::store::Store;
use crate::ledger::store::fjall::{FjallStore, OpenError, Options as StoreOptions};
use crate::ledger::store::keyfile::{self, KeyFileError};
use crate::ledger::time::Clock;
use crate::recovery;
use crate::scheduler::outbound;
use crate::scheduler::outbound::alerts::{Settings, Target, TargetError};
use crate::scheduler::outbound::guard::Guard;
use crate::scheduler::outbound::hosts::Limits as CallbackLimits;
use crate::scheduler::outbound::secrets::{SecretError, Secrets};
use crate::scheduler::trainer;

use guardian::{Guardian, Watermarks};
use opening::{Opening, Outbound, Room};

/// Where a hub's ledger lies.
pub enum Home {
    /// In a data folder; created at the first start.
    Folder(PathBuf),
    /// In a store that the caller made, with its keys: for tests. The folder holds only the callback secrets.
    Given {
        /// The store.
        store: Arc<dyn Store>,
        /// Its keys.
        keys: Keys,
        /// Where the sealed callback secrets lie.
        folder: PathBuf,
    },
}

/// What a hub is started with.
pub struct Options {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where its ledger lies.
    pub home: Home,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// May ledger time leap at this start?
    pub leap: ClockLeap,
    /// The store's own settings.
    pub store: StoreOptions,
    /// Write an admin token at the very first start?
    pub first_token: FirstToken,
    /// The door.
    pub api: api::Options,
    /// Which addresses the hub may call.
    pub guard: Guard,
    /// How many callbacks may be on their way.
    pub callbacks: CallbackLimits,
    /// Where alerts go; `None`: nowhere.
    pub alerts: Option<Target>,
    /// When the disk counts as nearly full and as full.
    pub watermarks: Watermarks,
    /// Events between two snapshots; default 200,000.
    pub snapshot_every: u64,
    /// A commit that takes longer is a failure; default 10 s (storage, guard 7).
    pub append_deadline: Duration,
    /// At a stop, work in flight may end within this; default 10 s.
    pub stop_grace: Duration,
}

/// Does the very first start write an admin token to `admin-token` in the data folder (mode 0600)?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstToken {
    /// Yes: nobody could call otherwise.
    Write,
    /// No: a development hub has its own token.
    None,
}

/// Name of that file.
pub const ADMIN_TOKEN_FILE: &str = "admin-token";
/// Name of the file with the sealed callback secrets.
pub const SECRETS_FILE: &str = "callback-secrets";

/// Name of the file that says how far alerts were told.
pub const ALERTS_FILE: &str = "alerts";

/// Why a hub can't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data folder can't be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The key file can't be read or made.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The ledger can't be folded or started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The data folder can't be made or written.
    #[error("can't write {path}: {source}")]
    Folder {
        /// It, or a file in it.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The callback secrets can't be opened.
    #[error(
        "{path}: {why}. Restore it from the backup of this data folder, or give the secrets up with `reach repair \
         --accept-loss`"
    )]
    Secrets {
        /// Their file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Alerts can't be set up like that.
    #[error(transparent)]
    Alerts(#[from] TargetError),
    /// Anything else: our own fault.
    #[error("{0}")]
    Other(String),
}

/// At a stop an open call has at least so long to get its answer.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// A running hub.
pub struct Hub {
    address: SocketAddr,
    admin: Option<PathBuf>,
    ledger: Ledger,
    store: Arc<dyn Store>,
    fate: oneshot::Receiver<(Fate, Option<State>)>,
    quit: watch::Sender<bool>,
    door: JoinHandle<()>,
    outbound: Outbound,
    /// Opens the hub when there is room, if there was none.
    late: Option<JoinHandle<Result<(), StartError>>>,
    guardian: Guardian,
    stop_grace: Duration,
}

/// What a start found. The first has nothing to tell: a line about nothing would be the first that a newcomer reads.
fn tell(found: &Found) {
    if found.seq.0 > 0 {
        tracing::info!(seq = %found.seq, snapshot = %found.snapshot, tasks = found.tasks, boot = found.boot.0, "folded");
    }
}

impl Hub {
    /// Opens the ledger, resolves what was in flight, and opens the door.
    ///
    /// # Errors
    /// [`StartError`]; nothing was changed but what its text says.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        // Before anything is opened: a mistake in the configuration touches no folder.
        let alerts = settled(options.alerts, &options.guard, &options.home)?;
        let board = alerts.as_ref().map(|alerts| Arc::clone(alerts.board()));
        let (store, keys, folder) = open(options.home, options.store).await?;
        let (running, begin) = prepare(Launch {
            store: Arc::clone(&store),
            clock: options.clock,
            keys: keys.clone(),
            planners: recovery::planners(),
            leap: options.leap,
        })
        .await?;
        let Running { ledger, fate, appends, found } = running;
        tell(&found);
        let room = Room { store: Arc::clone(&store), marks: options.watermarks };
        let secrets = Arc::new(open_secrets(&folder, &keys)?);
        let guard = Arc::new(options.guard);
        let calls = outbound::Options {
            grace: options.stop_grace,
            callbacks: options.callbacks,
            alerts,
            ..outbound::Options::new((*guard).clone(), Arc::clone(&secrets), found.seq)
        };
        let first = (options.first_token, folder);
        let opening = Opening { ledger: ledger.clone(), begin, first, calls };
        let has_room = room.is_there().await;
        let admin = if has_room {
            opening.begin().await?
        } else {
            tracing::error!("the disk is full: reads only, and the start goes on when there is room");
            ledger.enter(Phase::NoRoom).await.map_err(|error| StartError::Other(error.to_string()))?;
            None
        };
        let app = api::App::new(api::Parts {
            ledger: ledger.clone(),
            options: options.api,
            metrics: Metrics::default(),
            secrets: Arc::clone(&secrets),
            guard: Arc::clone(&guard),
            alerts: board,
            meanings: Arc::default(),
        });
        in_the_background(&ledger, &app);
        let server = Server::bind(options.listen, app)
            .await
            .map_err(|source| StartError::Listen { address: options.listen, source })?;
        let address = server.address().map_err(|why| StartError::Other(why.to_string()))?;
        let guardian = Guardian::spawn(
            ledger.clone(),
            Arc::clone(&store),
            appends,
            guardian::Options {
                watermarks: options.watermarks,
                snapshot_every: options.snapshot_every,
                append_deadline: options.append_deadline,
                snapshot: found.snapshot,
            },
        );
        let outbound = Outbound::default();
        let late = if has_room {
            outbound.lock().await.replace(opening.open().await?);
            None
        } else {
            Some(tokio::spawn(opening.when_there_is(room, Arc::clone(&outbound))))
        };
        let (quit, mut quits) = watch::channel(false);
        let door = tokio::spawn(server.run(async move { drop(quits.wait_for(|quit| *quit).await) }));
        let stop_grace = options.stop_grace;
        Ok(Self { address, admin, ledger, store, fate, quit, door, outbound, late, guardian, stop_grace })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin token was written, if this was the very first start.
    #[must_use]
    pub const fn admin_token(&self) -> Option<&PathBuf> {
        self.admin.as_ref()
    }

    /// The way to everything that it knows.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Waits until it fails by itself; a hub that works never returns from here.
    pub async fn failed(&mut self) -> Fate {
        tokio::select! {
            ended = &mut self.fate => ended.map_or_else(|_| gone(), |(fate, _)| fate),
            why = self.guardian.failed() => why,
            why = unopened(&mut self.late) => why,
        }
    }

    /// Stops in the right order (proof, rule 10): refuses submits and plans nothing new, lets what is in flight end,
    /// closes the door, writes the clean-stop event and flushes. Pushes and callbacks on their way and calls that are
    /// still open have the grace together; a try that it cut short is recorded as failed and made again later.
    ///
    /// # Errors
    /// [`Fate`] when the last events could not be written; what was acknowledged before is there all the same.
    pub async fn stop(self) -> Result<(), Fate> {
        let over = tokio::time::Instant::now() + self.stop_grace;
        drop(self.ledger.enter(Phase::Draining).await);
        if let Some(late) = self.late {
            late.abort();
            drop(late.await);
        }
        if let Some(outbound) = self.outbound.lock().await.take() {
            outbound.stop().await;
        }
        self.quit.send_replace(true);
        // However little is left of the grace: who has sent a call gets its answer.
        let last_answers = over.max(tokio::time::Instant::now() + LAST_ANSWERS);
        match tokio::time::timeout_at(last_answers, self.door).await {
            Ok(closed) => closed.map_err(|error| Fate::Impossible(error.to_string()))?,
            Err(_) => tracing::warn!("open calls did not finish within the grace"),
        }
        self.guardian.stop().await;
        let stopped = self.ledger.stop().await;
        let (fate, state) = self.fate.await.map_err(|_| gone())?;
        if stopped.is_err() || fate != Fate::Stopped {
            return Err(fate);
        }
        let store = self.store;
        let closed = tokio::task::spawn_blocking(move || {
            // It only shortens the next start, and a full disk has no room for it.
            if let Some(Err(error)) = state.map(|state| boot::write_snapshot(&*store, &state)) {
                tracing::warn!(%error, "no snapshot at the stop; the log is whole");
            }
            store.close()
        });
        closed.await.map_err(|e| Fate::Impossible(e.to_string()))?.map_err(|error| Fate::Disk(error.to_string()))
    }
}

/// What looks at every registration. Both end by themselves when the ledger does.
fn in_the_background(ledger: &Ledger, app: &api::App) {
    tokio::spawn(api::late_schemas::keep_checking(ledger.clone(), Arc::clone(&app.schemas)));
    tokio::spawn(trainer::keep_learning(ledger.clone(), Arc::clone(&app.meanings)));
}

/// Why a start that waited for room could not go on: it would stand there for ever, half open. Silent if it could.
async fn unopened(late: &mut Option<JoinHandle<Result<(), StartError>>>) -> Fate {
    if let Some(opening) = late {
        let opened = opening.await;
        *late = None;
        match opened {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Fate::Disk(error.to_string()),
            Err(error) => return Fate::Impossible(error.to_string()),
        }
    }
    std::future::pending().await
}

/// A sequencer that ended without a word has panicked: a bug.
fn gone() -> Fate {
    Fate::Impossible("the sequencer is gone".to_owned())
}

/// Where alerts go, judged, with their file in the data folder.
fn settled(target: Option<Target>, guard: &Guard, home: &Home) -> Result<Option<Settings>, TargetError> {
    let folder = match home {
        Home::Folder(folder) | Home::Given { folder, .. } => folder,
    };
    target.map(|target| target.settle(guard, folder.join(ALERTS_FILE))).transpose()
}

async fn open(home: Home, options: StoreOptions) -> Result<(Arc<dyn Store>, Keys, PathBuf), StartError> {
    match home {
        Home::Given { store, keys, folder } => Ok((store, keys, folder)),
        Home::Folder(folder) => {
            use std::os::unix::fs::DirBuilderExt as _;
            let opened = tokio::task::spawn_blocking(move || {
                // Payloads lie in it: nobody else on the machine may read it.
                let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
                made.map_err(|source| StartError::Folder { path: folder.clone(), source })?;
                let keys = keyfile::load_or_create(&folder)?;
                let store: Arc<dyn Store> = Arc::new(FjallStore::open(&folder, &options)?);
                Ok::<_, StartError>((store, keys, folder))
            });
            opened.await.map_err(|error| StartError::Other(error.to_string()))?
        }
    }
}

fn open_secrets(folder: &std::path::Path, keys: &Keys) -> Result<Secrets, StartError> {
    let path = folder.join(SECRETS_FILE);
    Secrets::open(path.clone(), keys).map_err(|error| match error {
        SecretError::Disk(source) => StartError::Folder { path, source },
        error @ (SecretError::Refused(_) | SecretError::Sealed | SecretError::Random(_)) => {
            StartError::Secrets { path, why: error.to_string() }
        }
    })
}
