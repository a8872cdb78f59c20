//! Events of callbacks: due, tried, settled, sent again.

use super::TryOutcome;
use crate::ledger::ids::{CallbackId, Seq};
use crate::ledger::machine::callback::CallbackSubject;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

event_structs! {
    /// An event must be told.
    CallbackDue {
        /// The `webhook-id`.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// The event that it tells.
        seq: Seq,
        /// Where to.
        url: Text,
        /// Signed with which secret.
        secret_ref: Text,
    }
    /// One try was made.
    CallbackAttempted {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// Which try of this round, from 1.
        attempt: u32,
        /// How it ended.
        outcome: TryOutcome,
        /// Next try, if there is one.
        next_at: Option<Timestamp>,
    }
    /// It arrived.
    CallbackDelivered {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
    }
    /// Window or tries are used up.
    CallbackExhausted {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// Tries of this round.
        attempts: u32,
    }
    /// The egress guard refuses the address.
    CallbackBlocked {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
    }
    /// The receiver said 410, or the content was erased.
    CallbackGone {
        /// Which callback.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
    }
    /// An operator lets it be sent again.
    CallbackRedriven {
        /// The callback, with what is needed to send it.
        callback: CallbackId,
        /// What it tells about.
        subject: CallbackSubject,
        /// The event that it tells.
        seq: Seq,
        /// Where to.
        url: Text,
        /// Signed with which secret.
        secret_ref: Text,
    }
}
