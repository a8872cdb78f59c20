//! A bug in a commit: whoever waits is told that nobody knows, and nobody waits for ever.

use super::*;

/// Long enough for a slow machine; a hub that hangs would take for ever.
const SOON: Duration = Duration::from_secs(20);

/// An answer whose end is a panic on the thread that commits: the committer's, or the sequencer's when it does so itself.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        let here = std::thread::current();
        assert!(!matches!(here.name(), Some("committer" | "sequencer")), "a bug in a commit");
    }
}

#[tokio::test]
async fn a_panic_in_a_commit_ends_the_hub_and_hangs_nobody() {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = running.ledger.clone();
    ledger.propose(register()).await.expect("it is taken");
    // A question whose asker is gone: its answer is dropped where it would have been sent, by the committer.
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let asking = ledger.clone();
    let look = move |_: &_| {
        assert!(gate.recv().is_ok());
        Bomb
    };
    let asked = tokio::spawn(async move { asking.ask(look).await.is_ok() });
    tokio::task::yield_now().await;
    asked.abort();
    drop(asked.await);
    let waiting = ledger.clone();
    let waiting = tokio::spawn(async move { waiting.propose(submit(1)).await });
    tokio::task::yield_now().await;
    open.send(()).expect("the sequencer waits at the gate");

    let answer = tokio::time::timeout(SOON, waiting).await.expect("nobody hangs").expect("it ends");
    assert_eq!(answer, Err(Refusal::Unavailable(Unavailable::Failed)), "whether it was taken nobody knows");
    // A sequencer that panicked itself says nothing more; the hub takes that for a bug and ends.
    if let Ok((fate, state)) = tokio::time::timeout(SOON, running.fate).await.expect("it ends") {
        assert!(matches!(fate, Fate::Disk(_)), "{fate:?}");
        assert!(state.is_none(), "no snapshot is made of what may not be durable");
    }
    let later = tokio::time::timeout(SOON, ledger.propose(submit(2))).await.expect("nobody hangs");
    assert!(matches!(later, Err(Refusal::Unavailable(_))), "{later:?}");
    assert!(tokio::time::timeout(SOON, ledger.stop()).await.expect("nobody hangs").is_err());
}
