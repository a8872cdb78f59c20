//! Brings the planner the lists of running plans: they are bodies on disk, and a planner reads none (a shell).
//!
//! Level-triggered: it asks the planner which lists it lacks, reads them and notes them, and asks again until none is
//! lacking, so a note that was lost is sent again and a restart needs nothing of its own. A list that can't be read
//! pauses its plan: the operator is told, and nothing is guessed.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ledger::handle::{Ledger, Phase, Unavailable};
use crate::ledger::ids::{Namespace, ReplayId};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::replay::order::ReplayWord;
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::planner::Note;
use crate::ledger::store::BodyKey;
use crate::recovery::Recovery;
use crate::recovery::list::is_list_of;

/// Lists that are read between two questions.
const AT_ONCE: usize = 16;
/// The first and the longest pause before it asks again for what is still lacking.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Why a plan is paused whose list is gone or damaged.
pub const UNREADABLE: &str = "its list can't be read";

/// The running driver.
pub struct Handle {
    stop: CancellationToken,
    worker: JoinHandle<()>,
}

/// Starts it. It waits while the hub is starting.
#[must_use]
pub fn spawn(ledger: &Ledger) -> Handle {
    let stop = CancellationToken::new();
    let driver = Driver { ledger: ledger.clone(), stop: stop.clone() };
    Handle { stop, worker: tokio::spawn(driver.run()) }
}

impl Handle {
    /// Ends it. It only reads, so nothing is lost.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.worker.await {
            tracing::error!(%error, "the replay driver ended abruptly");
        }
    }
}

/// A list that the planner lacks.
#[derive(Debug, Clone)]
struct Wanted {
    replay: ReplayId,
    namespace: Namespace,
    list: BodyRef,
    total: usize,
}

struct Driver {
    ledger: Ledger,
    stop: CancellationToken,
}

impl Driver {
    async fn run(self) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&self) {
        let mut news = self.ledger.follow();
        let mut pause = FIRST_PAUSE;
        loop {
            let (phase, replays) = {
                let published = news.borrow_and_update();
                (published.phase, published.replays)
            };
            let is_open = !matches!(phase, Phase::Starting | Phase::NoRoom | Phase::Stopped);
            if is_open && self.bring().await != Ok(0) {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
            pause = FIRST_PAUSE;
            if news.wait_for(|now| now.phase != phase || now.replays != replays).await.is_err() {
                return;
            }
        }
    }

    /// Reads what is lacking; how many lists were.
    async fn bring(&self) -> Result<usize, Unavailable> {
        let wanted = self.wanted().await?;
        for list in &wanted {
            match self.ledger.body(BodyKey::list_of(list.replay)).await {
                Ok(Some(body)) if body.digest() == list.list.digest && is_list_of(&body.bytes, list.total) => {
                    self.ledger.note(Note::Listed { replay: list.replay, list: body.bytes });
                }
                Ok(found) => self.pause(list, if found.is_some() { "damaged" } else { "missing" }).await?,
                Err(Unavailable::Unreadable(why)) => self.pause(list, &why).await?,
                Err(why) => return Err(why),
            }
        }
        Ok(wanted.len())
    }

    async fn wanted(&self) -> Result<Vec<Wanted>, Unavailable> {
        let question = |state: &crate::ledger::machine::State, recovery: &Recovery| {
            let replays = recovery.plans().wants_list().filter_map(|id| state.replay(id));
            let wanted = replays.take(AT_ONCE).map(|replay| Wanted {
                replay: replay.id,
                namespace: replay.namespace.clone(),
                list: replay.list.clone(),
                total: replay.outcomes.len(),
            });
            wanted.collect()
        };
        Ok(self.ledger.ask_planner(question).await?.unwrap_or_default())
    }

    async fn pause(&self, list: &Wanted, why: &str) -> Result<(), Unavailable> {
        tracing::error!(replay = %list.replay, why, "the list of a replay plan can't be read; the plan is paused");
        let word = ReplayWord::Pause { reason: Some(UNREADABLE.into()) };
        let command = Command::SteerReplay { replay: list.replay, word };
        match self.ledger.propose(Proposal::by_hub(Some(list.namespace.clone()), command)).await {
            // It may have ended meanwhile: then nobody lacks its list.
            Ok(_) | Err(crate::ledger::handle::Refusal::Rejected(_)) => Ok(()),
            Err(crate::ledger::handle::Refusal::Unavailable(why)) => Err(why),
        }
    }
}
