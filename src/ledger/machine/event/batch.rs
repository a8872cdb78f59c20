//! Events of batches.

use crate::ledger::ids::BatchId;
use crate::ledger::machine::callback::CallbackSpec;
use crate::ledger::machine::task::spec::IdempotencyKey;

event_structs! {
    /// A batch began.
    BatchOpened {
        /// Which batch.
        batch: BatchId,
        /// Whom to tell when it has settled.
        callback: Option<CallbackSpec>,
        /// Key against double submission.
        idempotency: Option<IdempotencyKey>,
    }
    /// Its last line came.
    BatchClosed {
        /// Which batch.
        batch: BatchId,
        /// Every line counted.
        total: u32,
        /// Lines that were refused.
        refused: u32,
    }
    /// Every task of it has ended.
    BatchSettled {
        /// Which batch.
        batch: BatchId,
    }
}
