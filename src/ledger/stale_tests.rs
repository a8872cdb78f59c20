//! Stale reports over a task's whole life: while it lives, once its row is all that is left, and after a restart.

use super::*;

use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::event::TryOutcome;

/// A report that conflicts with the outcome, or comes under another attempt.
fn stale(ledger: &Ledger, attempt: u32, n: u8) -> Proposal {
    let mut proposal = complete(ledger, 1);
    if let Command::Report(report) = &mut proposal.command {
        report.attempt = AttemptNo(attempt);
        report.word = Word::Release { digest: Digest([n; 32]), retry_after: None };
    }
    proposal
}

async fn refuse(ledger: &Ledger, attempt: u32, numbers: std::ops::Range<u8>) {
    for n in numbers {
        let refused = ledger.propose(stale(ledger, attempt, n)).await;
        assert!(matches!(refused, Err(Refusal::Rejected(_))), "{refused:?}");
    }
}

fn recorded(store: &MemoryStore) -> usize {
    let events = store.events(Seq(0), 10_000).expect("it can be read");
    let recorded = |event: &&StoredEvent| event.event.body.kind() == EventKind::TaskStaleReportRefused;
    events.iter().filter(recorded).count()
}

/// The receiver says 410 to the one try that is due; then an operator sends it once more.
async fn sent_in_vain_and_redriven(ledger: &Ledger, times: usize) {
    let event = ledger.ask(|state| state.callbacks().keys().next().copied()).await.expect("an answer");
    let callback = event.expect("one is due");
    for n in 0..times {
        let tried = Command::CallbackTried { callback, attempt: 1, outcome: TryOutcome::Gone };
        ledger.propose(Proposal::by_hub(Some(namespace()), tried)).await.expect("it is taken");
        if n + 1 < times {
            let redrive = Command::RedriveCallback { callback, row: None };
            ledger.propose(by_token(redrive)).await.expect("it is taken");
        }
    }
}

#[tokio::test]
async fn semantics_36_at_most_sixteen_stale_reports_are_recorded_also_once_the_task_has_left_memory() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    for proposal in [register(), submit(1), dispatch(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    refuse(ledger, 9, 0..6).await;
    ledger.propose(complete(ledger, 1)).await.expect("it is taken");
    refuse(ledger, 1, 6..10).await;
    let at_once: Vec<Intake> = (10..30).map(|n| stale(ledger, 1, n).into()).collect();
    ledger.propose_all(at_once).await.expect("an answer");
    assert_eq!(recorded(&store), 16);
}

#[tokio::test]
async fn semantics_36_the_sixteen_are_one_sum_over_end_callback_and_restart() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = &running.ledger;
    let url = "https://caller.example/hook".into();
    let callback = CallbackSpec { url, events: vec![CallbackEvent::Terminal], secret_ref: "default".into() };
    let submission = Arc::new(Submission { callback: Some(callback.into()), ..submission(1) });
    let submit = by_token(Command::SubmitTask { submission, bound: None, routed: None });
    for proposal in [register(), submit, dispatch(1)] {
        ledger.propose(proposal).await.expect("it is taken");
    }
    refuse(ledger, 9, 0..5).await;
    ledger.propose(complete(ledger, 1)).await.expect("it is taken");
    refuse(ledger, 1, 5..8).await; // Ended, but its callback keeps it in memory.
    sent_in_vain_and_redriven(ledger, 8).await;
    let left = ledger.ask(|state| state.task(ReachId([1; 16])).is_none()).await.expect("an answer");
    assert!(left, "only its row is left");
    refuse(ledger, 1, 8..12).await;
    assert_eq!(recorded(&store), 12, "what became of its callback is no report");
    let crashed = Arc::new(store.crash());
    drop(running);
    let again = start(&crashed).await;
    refuse(&again.ledger, 1, 12..15).await;
    assert_eq!(recorded(&crashed), 15);
    refuse(&again.ledger, 1, 15..40).await;
    assert_eq!(recorded(&crashed), 16, "the sixteen do not begin anew");
}
