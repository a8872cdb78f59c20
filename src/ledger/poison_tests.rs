//! A bug in a commit: whoever waits is told that nobody knows, and nobody waits for ever.

use std::sync::Mutex;

use super::*;

/// Long enough for a slow machine; a hub that hangs would take for ever.
const SOON: Duration = Duration::from_secs(20);

/// An answer whose end is a panic on the thread that commits; it says on which.
struct Bomb(Arc<Mutex<Option<String>>>);

impl Drop for Bomb {
    fn drop(&mut self) {
        let here = std::thread::current();
        if let Some(name @ ("committer" | "sequencer")) = here.name() {
            *self.0.lock().expect("nobody else") = Some(name.to_owned());
            panic!("a bug in a commit");
        }
    }
}

/// A commit that panics while so many callers wait for it; gives the thread that it was on.
async fn a_commit_panics(callers: u8) -> Option<String> {
    let store = Arc::new(MemoryStore::new());
    let running = start(&store).await;
    let ledger = running.ledger.clone();
    ledger.propose(register()).await.expect("it is taken");
    // The sequencer stands still until everybody is in line.
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (arrived, arrives) = tokio::sync::oneshot::channel();
    let asking = ledger.clone();
    let stand = move |_: &_| {
        assert!(arrived.send(()).is_ok() && gate.recv().is_ok());
    };
    let standing = tokio::spawn(async move { asking.ask(stand).await.is_ok() });
    arrives.await.expect("the sequencer comes to the gate");
    // A question whose asker is gone: its answer is dropped where it would have been sent.
    let place = Arc::new(Mutex::new(None));
    let (asking, bomb) = (ledger.clone(), Bomb(Arc::clone(&place)));
    let asked = tokio::spawn(async move { asking.ask(move |_| bomb).await.is_ok() });
    tokio::task::yield_now().await;
    asked.abort();
    drop(asked.await);
    let mut waiting = Vec::new();
    for id in 1..=callers {
        let ledger = ledger.clone();
        waiting.push(tokio::spawn(async move { ledger.propose(submit(id)).await }));
        tokio::task::yield_now().await;
    }
    open.send(()).expect("the sequencer waits at the gate");
    assert!(standing.await.expect("it ends"), "what came before is answered");

    for waiting in waiting {
        let answer = tokio::time::timeout(SOON, waiting).await.expect("nobody hangs").expect("it ends");
        assert_eq!(answer, Err(Refusal::Unavailable(Unavailable::Failed)), "whether it was taken nobody knows");
    }
    // A sequencer that panicked itself says nothing more; the hub takes that for a bug and ends.
    if let Ok((fate, state)) = tokio::time::timeout(SOON, running.fate).await.expect("it ends") {
        assert!(matches!(fate, Fate::Disk(_)), "{fate:?}");
        assert!(state.is_none(), "no snapshot is made of what may not be durable");
    }
    let later = tokio::time::timeout(SOON, ledger.propose(submit(100))).await.expect("nobody hangs");
    assert!(matches!(later, Err(Refusal::Unavailable(_))), "{later:?}");
    assert!(tokio::time::timeout(SOON, ledger.stop()).await.expect("nobody hangs").is_err());
    place.lock().expect("nobody else").clone()
}

#[tokio::test]
async fn a_panic_in_a_commit_of_the_sequencer_ends_the_hub_and_hangs_nobody() {
    assert_eq!(a_commit_panics(1).await.as_deref(), Some("sequencer"));
}

#[tokio::test]
async fn a_panic_in_a_commit_of_the_committer_ends_the_hub_and_hangs_nobody() {
    assert_eq!(a_commit_panics(8).await.as_deref(), Some("committer"));
}
