//! Open-loop arrivals: a thread that fires when a request is due, whatever became of the ones before.
//!
//! Latency counts from that moment, so a stalled server cannot hide the requests that would have come meanwhile
//! (coordinated omission). A thread of its own, because an async timer is a millisecond coarse.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::workload::Arrivals;

/// Due requests that nobody took yet; when it is full the load is more than the clients can send, and is said so.
const BACKLOG: usize = 1 << 16;

/// One due request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    /// Its number, from 0.
    pub(crate) n: u32,
    /// When it was to start.
    pub(crate) at: Instant,
}

/// Where clients take due requests from.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    due: Arc<Mutex<mpsc::Receiver<Due>>>,
}

impl Pace {
    /// Fires as `arrivals` say, from now until `span` is over.
    pub(crate) fn start(arrivals: Arrivals, span: Duration) -> Self {
        let (fire, due) = mpsc::channel(BACKLOG);
        let began = Instant::now();
        std::thread::spawn(move || {
            for (n, offset) in (0_u32..).zip(arrivals.offsets().take_while(|offset| *offset < span)) {
                let at = began + offset;
                std::thread::sleep(at.saturating_duration_since(Instant::now()));
                // When this thread itself was late the request starts late: nobody waited for it.
                if fire.blocking_send(Due { n, at: Instant::now() }).is_err() {
                    return;
                }
            }
        });
        Self { due: Arc::new(Mutex::new(due)) }
    }

    /// The next due request; `None` when there are no more.
    pub(crate) async fn next(&self) -> Option<Due> {
        self.due.lock().await.recv().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_due_request_fires_once_and_in_time() {
        let pace = Pace::start(Arrivals::Steady { rate: 2_000.0 }, Duration::from_millis(100));
        let began = Instant::now();
        let mut fired = Vec::new();
        while let Some(due) = pace.next().await {
            fired.push(due.n);
            assert!(due.at.saturating_duration_since(began) < Duration::from_secs(5));
        }
        assert_eq!(fired, (0..200).collect::<Vec<_>>());
    }
}
