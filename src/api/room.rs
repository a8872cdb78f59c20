//! How much of what callers send is in memory at a time (docs/bounds.md).
//!
//! Why one budget for the whole hub: a bound for one body says nothing about ten thousand connections. Room is taken for
//! what a body announces, before any of it is read, so bodies that arrive side by side never wait for each other with
//! half of what they need. It goes with the bytes and comes back with the last of them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ledger::time::Millis;

use super::error::{ApiError, ApiResult, Code};

/// Bodies up to here need no room: connections are bounded, and so are these.
pub(super) const FREE: usize = 16 << 10;
/// How long a call waits for room.
const PATIENCE: Duration = Duration::from_secs(2);
/// When a call that found none may come back.
const COME_BACK: Millis = Millis::secs(2);
/// Room is counted in this unit.
const UNIT: usize = 1 << 10;

/// The budget of one hub.
#[derive(Debug, Clone)]
pub struct Room(Arc<Semaphore>);

/// Room that is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Held(Option<OwnedSemaphorePermit>);

impl Room {
    /// Room for so many bytes of request bodies.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / UNIT).min(Semaphore::MAX_PERMITS))))
    }

    /// Room for a body of so many bytes.
    ///
    /// # Errors
    /// 503 `busy` when there is none for a while.
    pub(super) async fn take(&self, bytes: usize) -> ApiResult<Held> {
        if bytes <= FREE {
            return Ok(Held(None));
        }
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let taken = tokio::time::timeout(PATIENCE, Arc::clone(&self.0).acquire_many_owned(units)).await;
        let full = || ApiError::new(Code::Busy, "too many large requests at a time").retry_after(COME_BACK);
        taken.ok().and_then(Result::ok).map(|room| Held(Some(room))).ok_or_else(full)
    }
}

impl Held {
    /// Bytes that keep this room until the last of them is dropped.
    pub(super) fn with(self, bytes: Bytes) -> Bytes {
        struct Counted(Bytes, #[expect(dead_code, reason = "dropped with the bytes")] OwnedSemaphorePermit);

        impl AsRef<[u8]> for Counted {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }

        match self.0 {
            Some(room) => Bytes::from_owner(Counted(bytes, room)),
            None => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn room_goes_with_the_bytes_and_comes_back_with_the_last_of_them() {
        let room = Room::new(100 << 10);
        let body = room.take(60 << 10).await.unwrap().with(Bytes::from(vec![7; 60 << 10]));
        assert!(room.take(FREE).await.is_ok(), "a small body needs none");
        assert!(room.take(60 << 10).now_or_never().is_none(), "it waits");
        let part = body.slice(5..9);
        drop(body);
        assert!(room.take(60 << 10).now_or_never().is_none(), "a part is still there");
        drop(part);
        assert!(room.take(60 << 10).await.is_ok());
    }
}
