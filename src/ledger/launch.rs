//! Starting the ledger: fold, fix the clock, start the two threads, write `hub-started`.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::thread;

use tokio::sync::{oneshot, watch};

use crate::ledger::boot::{self, FoldError, Folded};
use crate::ledger::claims::Claims;
use crate::ledger::committer::{AppendWatch, Committer, Desk, Handoff, RecentLeaves};
use crate::ledger::fresh::FreshPayloads;
use crate::ledger::handle::{Ledger, Phase, Published, Refusal};
use crate::ledger::ids::{Boot, Lineage};
use crate::ledger::keys::Keys;
use crate::ledger::lag::Lag;
use crate::ledger::machine::State;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::open_batch::OpenBatch;
use crate::ledger::planner::Planner;
use crate::ledger::sequencer::{Fate, INBOX, Quiet, Sequencer};
use crate::ledger::store::Store;
use crate::ledger::time::{Clock, LedgerClock, Millis, Timestamp};
use crate::ledger::watch::Watchers;

/// A start may advance ledger time by at most 7 days without a word (semantics 23).
pub const LONGEST_ADVANCE: Millis = Millis::secs(7 * 86_400);

/// May ledger time leap forward at this start?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockLeap {
    /// Refuse to advance by more than [`LONGEST_ADVANCE`].
    Refuse,
    /// The operator said `--accept-clock`.
    Accept,
}

/// What a ledger is started with.
pub struct Launch {
    /// Where it lies.
    pub store: Arc<dyn Store>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Its keys.
    pub keys: Keys,
    /// What proposes next, asked in this order.
    pub planners: Vec<Box<dyn Planner>>,
    /// May ledger time leap?
    pub leap: ClockLeap,
}

/// A running ledger.
pub struct Running {
    /// The handle for shells.
    pub ledger: Ledger,
    /// How it ended, with its last state when it stopped cleanly.
    pub fate: oneshot::Receiver<(Fate, Option<State>)>,
    /// For the watchdog.
    pub appends: Arc<AppendWatch>,
    /// What the fold found at start.
    pub found: Found,
}

/// What the fold found at start.
#[derive(Debug, Clone)]
pub struct Found {
    /// Last event before this start.
    pub seq: crate::ledger::ids::Seq,
    /// The snapshot that the fold began with.
    pub snapshot: crate::ledger::ids::Seq,
    /// Unfinished tasks.
    pub tasks: usize,
    /// Which start this is.
    pub boot: Boot,
}

/// Why a ledger can't start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It can't be folded.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// The wall clock is too far ahead.
    #[error(
        "the wall clock is {ahead} ahead of the ledger's last event, more than 7 days; if the clock is right, start with --accept-clock"
    )]
    ClockAhead {
        /// By how much.
        ahead: Millis,
    },
    /// A thread could not be started, or the first event not be written.
    #[error("the ledger did not start: {0}")]
    Start(String),
}

/// Folds the log and starts the sequencer and the committer; returns once `hub-started` is durable. The hub is in
/// [`Phase::Starting`]: it takes proposals, but no planner speaks until [`Ledger::enter`] opens it.
///
/// # Errors
/// [`LaunchError`] when the log is damaged, the clock leaps or the first append fails.
pub async fn launch(launch: Launch) -> Result<Running, LaunchError> {
    let (running, start) = prepare(launch).await?;
    begin(&running.ledger, start).await?;
    Ok(running)
}

/// Writes the event with which a start begins: `hub-started`, with its boot number.
///
/// # Errors
/// [`LaunchError::Start`] when the append fails.
pub async fn begin(ledger: &Ledger, start: Proposal) -> Result<(), LaunchError> {
    match ledger.propose(start).await {
        Ok(_) => Ok(()),
        Err(Refusal::Rejected(why)) => Err(LaunchError::Start(format!("{why:?}"))),
        Err(Refusal::Unavailable(why)) => Err(LaunchError::Start(why.to_string())),
    }
}

/// As [`launch`], but writes nothing: gives the proposal for [`begin`] beside, for a start that may have no room
/// (semantics 30).
///
/// # Errors
/// [`LaunchError`] when the log is damaged or the clock leaps.
pub async fn prepare(launch: Launch) -> Result<(Running, Proposal), LaunchError> {
    let store = Arc::clone(&launch.store);
    let folded = tokio::task::spawn_blocking(move || boot::fold(&*store))
        .await
        .map_err(|error| LaunchError::Start(error.to_string()))??;
    let base = first_moment(&folded, launch.clock.wall(), launch.leap)?;
    let clock = LedgerClock::starting_at(Arc::clone(&launch.clock), base);
    let boot = Boot(folded.state.boot().0.saturating_add(1));
    let lineage = if folded.head.seq.0 == 0 { Some(draw_lineage()?) } else { None };
    let found = Found { seq: folded.head.seq, snapshot: folded.snapshot, tasks: folded.state.tasks().len(), boot };
    let (ledger, fate, appends) = start_threads(launch, folded.state, folded.head, clock.clone())?;
    let start = Command::StartHub {
        boot,
        wall_offset: clock.wall_offset(),
        version: env!("CARGO_PKG_VERSION").into(),
        lineage,
    };
    Ok((Running { ledger, fate, appends, found }, Proposal::by_hub(None, start)))
}

/// Ledger time goes on from the last event or the wall clock, whichever is later (semantics 23).
fn first_moment(folded: &Folded, wall: Timestamp, leap: ClockLeap) -> Result<Timestamp, LaunchError> {
    if folded.head.seq.0 == 0 {
        return Ok(wall);
    }
    let last = folded.state.at();
    let ahead = wall.since(last);
    if ahead > LONGEST_ADVANCE && leap == ClockLeap::Refuse {
        return Err(LaunchError::ClockAhead { ahead });
    }
    Ok(last.max(wall))
}

fn draw_lineage() -> Result<Lineage, LaunchError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| LaunchError::Start(error.to_string()))?;
    Ok(Lineage(bytes))
}

type Started = (Ledger, oneshot::Receiver<(Fate, Option<State>)>, Arc<AppendWatch>);

fn start_threads(
    launch: Launch,
    state: State,
    head: crate::ledger::store::Head,
    clock: LedgerClock,
) -> Result<Started, LaunchError> {
    let (inbox, inputs) = sync_channel(INBOX);
    let (batches, commits) = sync_channel(1);
    let (publish, published) = watch::channel(first_published(&state, head));
    let handoff = Arc::new(Handoff::starting_at(head.seq));
    let watchers = Arc::new(Watchers::default());
    let fresh = Arc::new(FreshPayloads::default());
    let appends = Arc::new(AppendWatch::default());
    let ledger = Ledger {
        inbox: inbox.clone(),
        published,
        store: Arc::clone(&launch.store),
        keys: launch.keys.clone(),
        clock: clock.clone(),
        watchers: Arc::clone(&watchers),
        fresh: Arc::clone(&fresh),
        claims: Arc::new(AtomicU64::new(1)),
    };
    let committer = Committer {
        store: Arc::clone(&launch.store),
        head,
        handoff: Arc::clone(&handoff),
        publish,
        watchers,
        fresh,
        inbox,
        keys: launch.keys.clone(),
        clock: launch.clock,
        watch: Arc::clone(&appends),
        recent: RecentLeaves::default(),
    };
    let desk = Desk::new(committer);
    let mut planners = launch.planners;
    for planner in &mut planners {
        planner.rebuild(&state, clock.now());
    }
    let lag = Lag::starting_at(clock.now());
    let sequencer = Sequencer {
        state,
        planners,
        clock,
        keys: launch.keys,
        store: launch.store,
        handoff,
        batches,
        desk: desk.clone(),
        quiet: Quiet::No,
        phase: Phase::Starting,
        claims: Claims::default(),
        open: OpenBatch::default(),
        unfinished: false,
        lag,
        waits_for_room: false,
    };
    let (tell, fate) = oneshot::channel();
    spawn("committer", move || desk.run(&commits))?;
    spawn("sequencer", move || {
        let (fate, state) = sequencer.run(&inputs);
        let state = (fate == Fate::Stopped).then_some(state);
        drop(tell.send((fate, state)));
    })?;
    Ok((ledger, fate, appends))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), LaunchError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map(drop)
        .map_err(|error| LaunchError::Start(error.to_string()))
}

fn first_published(state: &State, head: crate::ledger::store::Head) -> Published {
    Published { seq: head.seq, lineage: head.lineage, ..Published::of(state, Phase::Starting) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::store::memory::MemoryStore;
    use crate::ledger::time::SimClock;

    async fn started(store: &Arc<MemoryStore>, clock: &Arc<SimClock>, leap: ClockLeap) -> Result<Running, LaunchError> {
        let (store, clock) = (Arc::clone(store) as Arc<dyn Store>, Arc::clone(clock) as Arc<dyn Clock>);
        launch(Launch { store, clock, keys: Keys::from_master(&[7; 32]), planners: Vec::new(), leap }).await
    }

    #[tokio::test]
    async fn semantics_23_a_start_leaps_no_more_than_seven_days_unless_the_operator_says_so() {
        let (store, clock) = (Arc::new(MemoryStore::new()), Arc::new(SimClock::new()));
        let first = started(&store, &clock, ClockLeap::Refuse).await.expect("an empty ledger takes any clock");
        first.ledger.stop().await.expect("it stops");
        clock.advance(LONGEST_ADVANCE);
        let week = started(&store, &clock, ClockLeap::Refuse).await.expect("seven days are a holiday");
        week.ledger.stop().await.expect("it stops");
        let head = store.head();

        clock.advance(Millis(LONGEST_ADVANCE.0 + 1));
        let refused = started(&store, &clock, ClockLeap::Refuse).await.err().expect("one moment more is refused");
        assert!(matches!(&refused, LaunchError::ClockAhead { ahead } if ahead.0 == LONGEST_ADVANCE.0 + 1), "{refused}");
        assert!(refused.to_string().contains("--accept-clock"), "{refused}");
        assert_eq!(store.head(), head, "a refused start writes nothing");
        let taken = started(&store, &clock, ClockLeap::Accept).await.expect("the operator said so");
        assert_eq!(taken.ledger.now(), clock.wall());
        taken.ledger.stop().await.expect("it stops");
        let again = started(&store, &clock, ClockLeap::Refuse).await.expect("and need not say so again");
        assert_eq!(again.found.boot, Boot(4), "the refused start took no number");
    }
}
