#[path = "cycle_tests.rs"]
mod cycle;
#[path = "poison_tests.rs"]
mod poison;
#[path = "stale_tests.rs"]
mod stale;

use std::sync::Arc;
use std::time::Duration;

use crate::ledger::boot;
use crate::ledger::handle::{ClaimRequest, Intake, Ledger, Phase, Refusal, Unavailable};
use crate::ledger::ids::{
    AgentId, AgentKey, AttemptNo, Capability, Digest, Incarnation, Namespace, ReachId, Seq, TokenId,
};
use crate::ledger::keys::Keys;
use crate::ledger::launch::{ClockLeap, Launch, Running, launch};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{CapabilityKind, Declaration, Offer, ProgressRule, Sensitive, Transport};
use crate::ledger::machine::command::{Command, Proposal, Report, Word};
use crate::ledger::machine::decision::{Answer, Rejection};
use crate::ledger::machine::event::{Actor, AlreadyDone, EventKind, Explanation};
use crate::ledger::machine::task::samples;
use crate::ledger::machine::task::spec::{DEFAULT_REACH_TIMEOUT, Submission};
use crate::ledger::machine::task::status::{Delivery, StatusKind};
use crate::ledger::sequencer::Fate;
use crate::ledger::store::Store as _;
use crate::ledger::store::StoredEvent;
use crate::ledger::store::memory::{Fault, MemoryStore};
use crate::ledger::time::{Millis, SimClock};

fn namespace() -> Namespace {
    Namespace::new("dev").expect("a namespace")
}

fn agent_id() -> AgentId {
    AgentId::new("worker-1").expect("an id")
}

async fn start(store: &Arc<MemoryStore>) -> Running {
    let keys = Keys::from_master(&[7; 32]);
    let clock = Arc::new(SimClock::new());
    let store = Arc::clone(store) as Arc<dyn crate::ledger::store::Store>;
    let running = launch(Launch { store, clock, keys, planners: Vec::new(), leap: ClockLeap::Refuse }).await;
    let running = running.expect("an empty store starts");
    running.ledger.enter(Phase::Open).await.expect("it opens");
    running
}

fn by_token(command: Command) -> Proposal {
    let actor = Actor::Token(TokenId::new("caller").expect("an id"));
    Proposal { namespace: Some(namespace()), actor, trace: None, command }
}

fn register() -> Proposal {
    let capability = Capability::new("text.words").expect("a capability");
    let offer = Offer {
        capability,
        kind: CapabilityKind::Service,
        schemas: Vec::new(),
        tools: Vec::new(),
        languages: Vec::new(),
        context_window: None,
        weight: 10,
        priority: 100,
        strategy: None,
        progress: ProgressRule::Shows,
        sensitive: Sensitive::No,
    };
    let declaration = Declaration {
        version: None,
        region: None,
        offers: vec![offer],
        transport: Transport::Pull,
        heartbeat_interval: Millis::secs(5),
        max_concurrency: 4,
        max_pending: 1_000,
        priority: 100,
        load_threshold_milli: 900,
        allowed_callers: Vec::new(),
        body: Digest::default(),
    };
    by_token(Command::RegisterAgent {
        agent: agent_id(),
        instance: Some("process-1".into()),
        declaration: Box::new(declaration),
    })
}

fn submit(id: u8) -> Proposal {
    by_token(Command::SubmitTask { submission: Arc::new(submission(id)), bound: None, routed: None })
}

fn submission(id: u8) -> Submission {
    samples::submission(ReachId([id; 16]), "text.words")
}

fn dispatch(id: u8) -> Proposal {
    let explanation = Explanation {
        strategy: "test".into(),
        score: Vec::new(),
        runners_up: Vec::new(),
        exclusions: Vec::new(),
        rules: None,
    };
    let command = Command::DispatchTask {
        task: ReachId([id; 16]),
        agent: agent_id(),
        incarnation: Incarnation(1),
        delivery: Delivery::Pull,
        lease: crate::ledger::ids::LeaseDigest::default(),
        explanation: Box::new(explanation),
    };
    Proposal::by_hub(Some(namespace()), command)
}

fn complete(ledger: &Ledger, id: u8) -> Proposal {
    let lineage = ledger.published().lineage;
    let report = Report {
        task: ReachId([id; 16]),
        agent: agent_id(),
        incarnation: Incarnation(1),
        attempt: AttemptNo(1),
        lease: ledger.keys().lease_digest(lineage, ReachId([id; 16]), AttemptNo(1)),
        word: Word::Complete {
            result: None,
            digest: Digest([3; 32]),
            usage: Vec::new(),
            already_done: AlreadyDone::No,
        },
        fact: None,
    };
    by_token(Command::Report(Box::new(report)))
}

fn claim() -> ClaimRequest {
    let agent = AgentKey { namespace: namespace(), agent_id: agent_id() };
    ClaimRequest { agent, incarnation: Incarnation(1), max: 4, wait: Millis::secs(30), load: None }
}

#[tokio::test]
async fn semantics_25_an_answer_carries_the_receipt_of_an_event_that_is_in_the_ledger() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let released = running.ledger.propose(submit(1)).await.expect("it is taken");
    let receipt = released.receipt.expect("a submission has a receipt");
    let stored = running.ledger.events_at(vec![receipt.seq]).await.expect("it can be read").remove(0);
    assert_eq!(stored.hash(), receipt.hash);
    assert_eq!(stored.event.body.task(), Some(ReachId([1; 16])));
    let again = boot::fold(&store.crash()).expect("what was answered is durable");
    assert!(again.state.task(ReachId([1; 16])).is_some());
}

#[tokio::test]
async fn semantics_28_a_finished_task_is_read_from_its_row_and_a_late_repeat_gets_the_first_receipt() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    for proposal in [register(), submit(1), dispatch(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    let first = ledger.propose(complete(ledger, 1)).await.expect("it is taken");
    assert!(!ledger.ask(|state| state.tasks().contains_key(&ReachId([1; 16]))).await.expect("an answer"));
    let row = ledger.task(ReachId([1; 16])).await.expect("it can be read").expect("its row is there");
    assert_eq!(row.status.kind(), StatusKind::Succeeded);
    let again = ledger.propose(complete(ledger, 1)).await.expect("semantics 14: the same outcome is harmless");
    assert_eq!(again.receipt, first.receipt);
}

#[tokio::test]
async fn semantics_4_a_second_claim_first_gets_again_what_its_process_holds_unacknowledged() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    for proposal in [register(), submit(1), dispatch(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    for _ in 0..2 {
        let answer = ledger.work(Vec::new(), Some(claim())).await.expect("an answer");
        let tasks = answer.claim.expect("it claimed").expect("it may");
        assert_eq!(tasks.iter().map(|task| task.attempt).collect::<Vec<_>>(), [AttemptNo(1)]);
    }
    let mut older = claim();
    older.incarnation = Incarnation(9);
    let answer = ledger.work(Vec::new(), Some(older)).await.expect("an answer");
    let refused = Refusal::Rejected(Rejection::IncarnationSuperseded { current: Incarnation(1) });
    assert_eq!(answer.claim.expect("it claimed"), Err(refused));
}

#[tokio::test]
async fn semantics_4_a_claim_whose_caller_is_gone_takes_nothing_and_what_is_dispatched_waits_for_the_next() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    for proposal in [register(), submit(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    let waiting = ledger.clone();
    let caller = tokio::spawn(async move { waiting.work(Vec::new(), Some(claim())).await });
    tokio::task::yield_now().await;
    caller.abort();
    drop(caller.await);
    ledger.propose(dispatch(1)).await.expect("it is taken");
    let held =
        ledger.ask(|state| state.task(ReachId([1; 16])).map(|task| task.status.kind())).await.expect("an answer");
    assert_eq!(held, Some(StatusKind::Dispatched), "no claim: it waits for the next one or its reach timeout");
}

#[tokio::test]
async fn semantics_19_what_was_applied_but_never_became_durable_is_neither_published_nor_answered() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    running.ledger.propose(submit(1)).await.expect("it is taken");
    let durable = running.ledger.published().seq;
    store.fail_append(1, Fault::UnknownLost);
    let unknown = running.ledger.propose(submit(2)).await;
    assert_eq!(unknown, Err(Refusal::Unavailable(Unavailable::Failed)));
    let (fate, state) = running.fate.await.expect("it tells how it ended");
    assert!(matches!(fate, Fate::Disk(_)), "{fate:?}");
    assert_eq!(running.ledger.published().seq, durable);
    assert_eq!(store.head().seq, durable);
    assert!(state.is_none());
    assert!(running.ledger.propose(submit(3)).await.is_err());
}

#[tokio::test]
async fn a_clean_stop_writes_its_event_and_the_next_start_has_the_next_boot_number() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    running.ledger.propose(submit(1)).await.expect("it is taken");
    running.ledger.stop().await.expect("it stops");
    let (fate, state) = running.fate.await.expect("it tells how it ended");
    assert_eq!((fate, state.is_some()), (Fate::Stopped, true));
    let again = start(&store).await;
    assert_eq!(again.found.boot.0, 2);
    assert_eq!(again.found.tasks, 1);
}

#[tokio::test]
async fn semantics_30_on_a_full_disk_completions_go_on_and_submits_are_refused() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    for proposal in [register(), submit(1), dispatch(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    ledger.enter(Phase::DiskFull).await.expect("it enters");
    assert_eq!(ledger.propose(submit(2)).await, Err(Refusal::Unavailable(Unavailable::DiskFull)));
    let done = ledger.propose(complete(ledger, 1)).await.expect("completions free capacity");
    assert!(matches!(done.answer, Answer::Reported { state: StatusKind::Succeeded, .. }));
}

#[tokio::test]
async fn many_callers_in_one_cycle_share_commits() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let before = store.commit_count();
    let intakes: Vec<Intake> = (1..=200).map(|id| submit(id).into()).collect();
    let verdicts = running.ledger.propose_all(intakes).await.expect("an answer");
    assert!(verdicts.iter().all(Result::is_ok));
    assert!(store.commit_count() - before <= 2, "200 submissions took {} commits", store.commit_count() - before);
    let watch = running.ledger.watch(ReachId([1; 16]));
    let found = watch.until(Duration::ZERO, || async { Ok::<_, ()>(Some(1)) }).await;
    assert_eq!(found, Ok(Some(1)));
}

#[tokio::test]
async fn the_first_event_of_a_start_is_hub_started_whatever_timers_are_due() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    for proposal in [register(), submit(1), dispatch(1)] {
        running.ledger.propose(proposal).await.expect("it is taken");
    }
    let clock = Arc::new(SimClock::new());
    clock.advance(DEFAULT_REACH_TIMEOUT);
    clock.advance(Millis::secs(60));
    let crashed: Arc<dyn crate::ledger::store::Store> = Arc::new(store.crash());
    let before = crashed.head().seq;
    let keys = Keys::from_master(&[7; 32]);
    let again = Launch { store: Arc::clone(&crashed), clock, keys, planners: Vec::new(), leap: ClockLeap::Refuse };
    let again = launch(again).await.expect("it starts again");
    again.ledger.enter(Phase::Open).await.expect("it opens");
    again.ledger.ask(|_| ()).await.expect("an answer");
    let events = crashed.events(before, 1).expect("it can be read");
    assert_eq!(events[0].event.body.kind().name(), "hub-started");
    assert!(boot::fold(&*crashed).is_ok(), "the chain holds over the start");
}

#[tokio::test]
async fn an_image_of_the_live_state_is_the_fold_of_the_durable_log_and_serves_as_its_snapshot() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    for proposal in [register(), submit(1), submit(2), dispatch(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    let image = ledger.ask(State::to_image).await.expect("an answer");
    let crashed = store.crash();
    assert_eq!(boot::fold(&crashed).expect("it can be folded").state.to_image(), image, "all of it is durable");
    boot::write_image(&crashed, &image).expect("it is written");
    // What comes after the image does not change it: the tasks are shared, not the state.
    ledger.propose(complete(ledger, 1)).await.expect("it is taken");
    let again = boot::fold(&crashed).expect("it can be folded");
    assert_eq!((again.snapshot, again.state.to_image()), (image.seq, image));
}
