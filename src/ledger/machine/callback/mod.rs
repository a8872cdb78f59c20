//! A callback: one signed message about one ledger event, sent at least once for at least 24 h (R-CBK-1).

pub(in crate::ledger::machine) mod apply;
pub(in crate::ledger::machine) mod backoff;
pub(in crate::ledger::machine) mod decide;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{BatchId, CallbackId, Namespace, ReachId, Seq};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

/// A round of tries lasts at least this long: the last try is never earlier (R-CBK-1).
pub const WINDOW: Millis = Millis::secs(24 * 3_600);
/// Tries at most in one round. With full jitter about 60 fill the window (11 until the delay reaches [`MAX_DELAY`], then
/// two an hour); 100 leave room for short draws, and should even they not do, the hundredth waits for the window's end.
pub const MAX_TRIES: u32 = 100;
/// A receiver's `Retry-After` is a floor for the next try, but cut at 24 h.
pub const MAX_RETRY_AFTER: Millis = Millis::secs(24 * 3_600);
/// First delay between tries; doubles up to [`MAX_DELAY`], with full jitter.
pub const BASE_DELAY: Millis = Millis::secs(2);
/// Longest delay between tries.
pub const MAX_DELAY: Millis = Millis::secs(3_600);

/// Which events call back (R-CBK-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CallbackEvent {
    /// Any terminal event; the default.
    Terminal,
    /// `task-slow`
    Slow,
    /// `task-retry-scheduled`
    Retrying,
    /// `task-progressed`
    Progress,
    /// `task-overdue`
    Overdue,
    /// `task-orphaned`
    Orphaned,
}

/// Where to call back, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackSpec {
    /// An absolute URL that passed the egress guard at submission.
    pub url: Text,
    /// For which events; sorted, not empty.
    pub events: Vec<CallbackEvent>,
    /// Name of the signing secret; `default` when none was named.
    pub secret_ref: Text,
}

/// What a callback tells about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CallbackSubject {
    /// A task.
    Task(ReachId),
    /// A settled batch.
    Batch(BatchId),
}

/// How a callback stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CallbackState {
    /// To be tried, again or for the first time.
    Due,
    /// A 2xx was received.
    Delivered,
    /// The window or the tries are used up.
    Exhausted,
    /// The address is refused by the egress guard.
    Blocked,
    /// The receiver said 410, or the content was erased.
    Gone,
}

impl CallbackState {
    /// Name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Delivered => "delivered",
            Self::Exhausted => "exhausted",
            Self::Blocked => "blocked",
            Self::Gone => "gone",
        }
    }
}

/// The short form that a task shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackStanding {
    /// Which callback: of the last one that became due.
    pub id: CallbackId,
    /// How it stands.
    pub state: CallbackState,
    /// Tries so far.
    pub attempts: u32,
}

/// One callback as the fold sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// The `webhook-id`.
    pub id: CallbackId,
    /// Where it belongs.
    pub namespace: Namespace,
    /// What it tells about.
    pub subject: CallbackSubject,
    /// The event that it tells.
    pub seq: Seq,
    /// Where to.
    pub url: Text,
    /// Signed with which secret.
    pub secret_ref: Text,
    /// How it stands.
    pub state: CallbackState,
    /// Tries so far, in this round; a redrive starts a new one.
    pub attempts: u32,
    /// When this round began.
    pub since: Timestamp,
    /// Next try, when due.
    pub next_at: Timestamp,
    /// Why the last try failed: a short stable word such as `http-500` or `connect`.
    pub last_error: Option<Text>,
}

/// A settled callback as the store keeps it, so that it can be sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackRow {
    /// Where it belongs.
    pub namespace: Namespace,
    /// What it tells about.
    pub subject: CallbackSubject,
    /// The event that it tells.
    pub seq: Seq,
    /// Where to.
    pub url: Text,
    /// Signed with which secret.
    pub secret_ref: Text,
    /// How it settled.
    pub state: CallbackState,
    /// Tries of the last round.
    pub attempts: u32,
    /// When it settled.
    pub at: Timestamp,
    /// Why the last try failed.
    pub last_error: Option<Text>,
}
