//! SIGKILL of the real process under load, again and again; then an independent checker asks the public API for every
//! promise that was made on the way (proof, row 4: S1, S4, S6, S10, D1, D2, A2).
//!
//! `CRASH_ROUNDS` sets the rounds (default 50), `CRASH_SEED` the times of the kills.

#![expect(clippy::indexing_slicing, reason = "a test may panic: that is how it fails")]

mod checker;
mod client;
mod hub;
mod load;
mod patched;
mod redrive;

use std::time::Duration;

use hub::{Chance, HubProcess};
use load::{Load, Promises};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_under_load_lose_nothing_acknowledged_and_finish_nothing_twice() {
    // The HTTP client wants a provider although nothing here speaks TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let rounds = setting("CRASH_ROUNDS", 50);
    let seed = setting("CRASH_SEED", 7);
    println!("CRASH_ROUNDS={rounds} CRASH_SEED={seed} cargo test --test crash");
    let mut chance = Chance::new(seed);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut hub = HubProcess::start(folder.path(), hub::free_port()).await;
    let load = Load::start(hub.url());
    for _ in 0..rounds {
        // Time is the fault here: the kill may strike anywhere, also during start and recovery.
        tokio::time::sleep(Duration::from_millis(chance.between(5, 500))).await;
        hub.kill();
        hub = hub.restart().await;
    }
    let promises: Promises = load.finish().await;
    println!("{}", promises.summary());
    assert!(promises.submitted() > rounds, "too little load to prove anything: {}", promises.summary());
    assert!(promises.completed() > rounds / 2, "too few outcomes to prove anything: {}", promises.summary());
    let broken = checker::check(&hub.url(), &promises).await;
    assert!(broken.is_empty(), "{} promises were broken:\n{}", broken.len(), broken.join("\n"));
    hub.stop().await;
    hub::verify(folder.path());
}
