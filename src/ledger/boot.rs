//! Boot: newest good snapshot, the log after it, and nothing else (R-REC-1).
//!
//! A snapshot is written from an image of the live state, whose tasks are shared and not copied, or by the same fold
//! beside the hub where the image would be too large to take between two cycles (docs/decisions, "snapshots").

use crate::ledger::ids::Seq;
use crate::ledger::machine::State;
use crate::ledger::machine::image::StateImage;
use crate::ledger::machine::step::apply;
use crate::ledger::store::{AppendError, Head, ReadError, Store, snapshot};

/// Events read and folded at a time.
const PAGE: usize = 4_096;

/// A folded ledger.
#[derive(Debug, Clone)]
pub struct Folded {
    /// The state at the head.
    pub state: State,
    /// The head it was folded to.
    pub head: Head,
    /// The snapshot that it began with; 0 when it began with the first event.
    pub snapshot: Seq,
}

/// Why a ledger can't be folded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The disk failed, or something on it is damaged.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log holds an event that its own state forbids.
    #[error("the log contradicts itself at seq {seq}: {what}")]
    Impossible {
        /// Which event.
        seq: Seq,
        /// How.
        what: String,
    },
}

/// Folds a store's log up to its head.
///
/// # Errors
/// [`FoldError`]; nothing is skipped in silence (D5).
pub fn fold(store: &dyn Store) -> Result<Folded, FoldError> {
    let head = store.head();
    let mut state = snapshot::newest(store)?;
    let snapshot = state.seq();
    while state.seq() < head.seq {
        let page = store.events(state.seq(), PAGE)?;
        if page.is_empty() {
            return Err(missing(state.seq(), head).into());
        }
        for stored in page {
            if stored.event.seq > head.seq {
                break;
            }
            apply(&mut state, &stored.event)
                .map_err(|error| FoldError::Impossible { seq: stored.event.seq, what: error.to_string() })?;
        }
        let folded = state.seq();
        state.forget_up_to(folded);
    }
    Ok(Folded { state, head, snapshot })
}

fn missing(last_good: Seq, head: Head) -> ReadError {
    ReadError::Damaged {
        seq: last_good.next(),
        last_good,
        what: format!("the log ends before its head at {}", head.seq),
    }
}

/// Writes a snapshot of a state that is durable as a whole.
///
/// # Errors
/// [`AppendError`] when the disk fails.
pub fn write_snapshot(store: &dyn Store, state: &State) -> Result<(), AppendError> {
    let (seq, digest, bytes) = snapshot::encode(state).map_err(|error| AppendError::Refused(error.to_string()))?;
    store.put_snapshot(seq, digest, &bytes)
}

/// As [`write_snapshot`], of an image that was taken of a durable state.
///
/// # Errors
/// [`AppendError`] when the disk fails.
pub fn write_image(store: &dyn Store, image: &StateImage) -> Result<(), AppendError> {
    let encoded = snapshot::encode_image(image, image.digest());
    let (seq, digest, bytes) = encoded.map_err(|error| AppendError::Refused(error.to_string()))?;
    store.put_snapshot(seq, digest, &bytes)
}
