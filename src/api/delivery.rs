//! Whether an answer left: what is to be undone when it did not (semantics 4).
//!
//! Why at the connection: a body is asked for its bytes long before they are written, and a connection that breaks in
//! between tells no handler. So a body hands what it carries to its connection's [`Outbox`]; a flush that empties the
//! connection's buffers settles it, and a connection that ends without one drops it.

use std::sync::{Arc, Mutex, PoisonError};

/// Something that an answer carries. Dropped without a word, it did not leave.
pub(super) trait Carried: Send {
    /// Its bytes are written.
    fn left(self: Box<Self>);
}

/// What the answers on one connection carry whose bytes are not written yet.
#[derive(Clone, Default)]
pub(super) struct Outbox(Arc<Mutex<Vec<Box<dyn Carried>>>>);

impl Outbox {
    /// Keeps it until the next flush.
    pub(super) fn hold(&self, carried: Box<dyn Carried>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(carried);
    }

    /// All that was held is written.
    pub(super) fn flushed(&self) {
        let held = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for carried in held {
            carried.left();
        }
    }
}
