//! The driver beside a real ledger in memory.

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::handle::{Intake, Ledger, Phase};
use crate::ledger::ids::{Namespace, ReachId, ReplayId, Seq};
use crate::ledger::keys::Keys;
use crate::ledger::launch::{ClockLeap, Launch, Running, launch};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::EventBody;
use crate::ledger::machine::replay::order::{ReplayOrder, ReplayWord};
use crate::ledger::machine::replay::{Ended, ItemAction, ItemOutcome, MayHaveRun, Replay, ReplayPhase, Skip};
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::store::memory::MemoryStore;
use crate::ledger::store::{Body, BodyKey, Store};
use crate::ledger::time::{Clock, SimClock};
use crate::recovery::list::{PlanItem, encode};
use crate::recovery::{Recovery, driver};

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

async fn start(store: &Arc<MemoryStore>) -> Running {
    let running = launch(Launch {
        store: Arc::clone(store) as Arc<dyn Store>,
        clock: Arc::new(SimClock::new()) as Arc<dyn Clock>,
        keys: Keys::from_master(&[7; 32]),
        planners: vec![Box::new(Recovery::new())],
        leap: ClockLeap::Refuse,
    })
    .await
    .unwrap();
    running.ledger.enter(Phase::Open).await.unwrap();
    running
}

fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

fn id(n: u8) -> ReplayId {
    ReplayId([n; 16])
}

/// A plan over one task that there is not, whose list is what `stored` makes of it.
async fn plan(ledger: &Ledger, n: u8, stored: impl FnOnce(Body) -> Option<Body>) {
    let items = [PlanItem { task: ReachId([n; 16]), action: ItemAction::Replay, group: 0 }];
    let list = Body { salt: [3; 16], bytes: encode(&items).into() };
    let order = ReplayOrder {
        replay: id(n),
        select: "{}".into(),
        reason: "test".into(),
        rate: 20,
        may_have_run: MayHaveRun::Skip,
        total: 1,
        list: BodyRef { digest: list.digest(), len: u32::try_from(list.bytes.len()).unwrap() },
        position: Seq(0),
        patch: None,
        idempotency: None,
        bound: None,
    };
    let bodies = stored(list).map(|body| (BodyKey::list_of(id(n)), body)).into_iter().collect();
    let proposal = Proposal::by_hub(Some(namespace()), Command::PlanReplay(Box::new(order)));
    ledger.propose(Intake { proposal, bodies }).await.unwrap();
}

async fn until(ledger: &Ledger, n: u8, phase: ReplayPhase) -> Replay {
    let mut news = ledger.follow();
    let all = async {
        loop {
            news.borrow_and_update();
            let found = ledger.replay(id(n)).await.unwrap().unwrap();
            if found.phase == phase {
                return found;
            }
            news.changed().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("the plan gets there")
}

#[tokio::test]
async fn a_plan_that_was_there_at_the_start_and_one_that_comes_later_get_their_lists() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    plan(&running.ledger, 1, Some).await;
    let driver = driver::spawn(&running.ledger);
    let completed = ReplayPhase::Finished(Ended::Completed);
    let ended = until(&running.ledger, 1, completed).await;
    assert_eq!(ended.outcomes, [ItemOutcome::Skipped(Skip::Unknown)]);
    plan(&running.ledger, 2, Some).await;
    until(&running.ledger, 2, completed).await;
    driver.stop().await;
    running.ledger.stop().await.unwrap();
}

#[tokio::test]
async fn a_plan_whose_list_is_gone_or_damaged_is_paused_and_says_why() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let driver = driver::spawn(&running.ledger);
    plan(&running.ledger, 1, |_| None).await;
    plan(&running.ledger, 2, |list| Some(Body { bytes: Arc::from(&list.bytes[1..]), ..list })).await;
    for n in [1, 2] {
        let paused = until(&running.ledger, n, ReplayPhase::Paused).await;
        assert_eq!(paused.outcomes, [ItemOutcome::Pending]);
        let last = running.ledger.events_at(vec![*paused.seqs.last().unwrap()]).await.unwrap().remove(0);
        let EventBody::ReplayPaused(body) = last.event.body else { panic!("{:?}", last.event.body) };
        assert_eq!(body.reason.as_deref(), Some(driver::UNREADABLE));
    }
    // Resumed, it finds the same; a plan beside it is not held up.
    let resume = Command::SteerReplay { replay: id(1), word: ReplayWord::Resume { reason: None } };
    running.ledger.propose(Proposal::by_hub(Some(namespace()), resume)).await.unwrap();
    plan(&running.ledger, 3, Some).await;
    until(&running.ledger, 1, ReplayPhase::Paused).await;
    until(&running.ledger, 3, ReplayPhase::Finished(Ended::Completed)).await;
    driver.stop().await;
    running.ledger.stop().await.unwrap();
}
