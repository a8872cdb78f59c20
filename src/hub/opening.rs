//! The steps of a start that write: at once, or as soon as there is room (semantics 30).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::api::auth::token;
use crate::hub::guardian::{LOOK, Watermarks};
use crate::hub::{ADMIN_TOKEN_FILE, FirstToken, StartError};
use crate::ledger::handle::{Ledger, Phase};
use crate::ledger::launch;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::store::Store;
use crate::recovery;
use crate::scheduler::outbound;

/// What runs beside an open hub: its own calls, and what brings replay plans their lists.
pub(super) struct Workers {
    outbound: outbound::Handle,
    replays: recovery::driver::Handle,
}

impl Workers {
    /// Ends them: nothing new goes out, and what is on its way has the grace.
    pub(super) async fn stop(self) {
        self.replays.stop().await;
        self.outbound.stop().await;
    }
}

/// The workers, once the hub is open.
pub(super) type Outbound = Arc<Mutex<Option<Workers>>>;

/// The disk and its marks.
pub(super) struct Room {
    pub(super) store: Arc<dyn Store>,
    pub(super) marks: Watermarks,
}

impl Room {
    /// Is the disk not full? One that can't be asked is not known to be.
    pub(super) async fn is_there(&self) -> bool {
        let store = Arc::clone(&self.store);
        match tokio::task::spawn_blocking(move || store.space()).await {
            Ok(Some(space)) => self.marks.phase(space) != Phase::DiskFull,
            Ok(None) | Err(_) => true,
        }
    }
}

/// What is still to be done before a hub is open.
pub(super) struct Opening {
    pub(super) ledger: Ledger,
    /// `hub-started`.
    pub(super) begin: Proposal,
    /// Whether a first token is written, and into which folder.
    pub(super) first: (FirstToken, PathBuf),
    pub(super) calls: outbound::Options,
}

impl Opening {
    /// Begins the start: its first event, what was in flight, and the first token; gives where that was written.
    pub(super) async fn begin(&self) -> Result<Option<PathBuf>, StartError> {
        launch::begin(&self.ledger, self.begin.clone()).await?;
        resolve(&self.ledger).await?;
        match &self.first {
            (FirstToken::Write, folder) => ensure_admin(&self.ledger, folder).await,
            (FirstToken::None, _) => Ok(None),
        }
    }

    /// Opens the hub and lets it call out.
    pub(super) async fn open(self) -> Result<Workers, StartError> {
        self.ledger.enter(Phase::Open).await.map_err(|error| StartError::Other(error.to_string()))?;
        let outbound = outbound::spawn(&self.ledger, self.calls).map_err(|why| StartError::Other(why.to_string()))?;
        Ok(Workers { outbound, replays: recovery::driver::spawn(&self.ledger) })
    }

    /// All of it once there is room.
    pub(super) async fn when_there_is(self, room: Room, outbound: Outbound) -> Result<(), StartError> {
        loop {
            tokio::time::sleep(LOOK).await;
            if room.is_there().await {
                break;
            }
        }
        tracing::warn!("there is room again: the start goes on");
        drop(self.ledger.enter(Phase::Starting).await);
        self.begin().await?;
        let handle = self.open().await?;
        outbound.lock().await.replace(handle);
        Ok(())
    }
}

/// Applies recovery's rules to what was in flight when the hub last stopped.
async fn resolve(ledger: &Ledger) -> Result<(), StartError> {
    let other = |error: crate::ledger::handle::Unavailable| StartError::Other(error.to_string());
    let proposals = ledger.ask(recovery::boot::resolve).await.map_err(other)?;
    let count = proposals.len();
    let verdicts = ledger.propose_all(proposals.into_iter().map(Into::into).collect()).await.map_err(other)?;
    let refused = verdicts.iter().filter(|verdict| verdict.is_err()).count();
    if count > 0 {
        tracing::info!(count, refused, "resolved what was in flight");
    }
    Ok(())
}

/// The first start of a hub without tokens: draws the admin token and writes it where only its owner can read it. The
/// file comes first, so that a crash between the two leaves a file that the next start replaces.
async fn ensure_admin(ledger: &Ledger, folder: &Path) -> Result<Option<PathBuf>, StartError> {
    let other = |error: String| StartError::Other(error);
    if !ledger.published().access.tokens.is_empty() {
        return Ok(None);
    }
    let minted = token::Minted::draw().map_err(|error| other(error.to_string()))?;
    let path = folder.join(ADMIN_TOKEN_FILE);
    minted.write_to(&path).map_err(|source| StartError::Folder { path: path.clone(), source })?;
    let command = Command::CreateToken { token: Box::new(token::admin(&minted, ledger.now())) };
    match ledger.propose(Proposal::by_hub(None, command)).await {
        Ok(_) => Ok(Some(path)),
        Err(error) => Err(other(format!("the admin token could not be made: {error:?}"))),
    }
}
