//! Telling the ledger what became of a call: again and again while it is busy, for the outcome of a request that left
//! the hub must not be lost to a full queue.

use std::time::Duration;

use crate::ledger::handle::{Intake, Ledger, Refusal, Released, Unavailable};

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const TRIES: u32 = 12;

/// Proposes until the core has answered, at most [`TRIES`] times.
///
/// # Errors
/// The core's refusal, or why the hub takes nothing more.
pub(super) async fn insist(ledger: &Ledger, intake: Intake) -> Result<Released, Refusal> {
    let mut pause = FIRST_PAUSE;
    let mut last = Unavailable::Busy;
    for _ in 0..TRIES {
        match ledger.propose(intake.clone()).await {
            Ok(released) => return Ok(released),
            Err(Refusal::Unavailable(why)) => match why {
                Unavailable::Stopping | Unavailable::Failed => return Err(why.into()),
                Unavailable::Busy | Unavailable::Starting | Unavailable::DiskFull | Unavailable::Unreadable(_) => {
                    last = why;
                }
            },
            Err(Refusal::Rejected(why)) => return Err(Refusal::Rejected(why)),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Err(last.into())
}
