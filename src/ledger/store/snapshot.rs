//! The state as a snapshot: the fold cut short, so that a start need not read the whole log (D4).
//!
//! A snapshot is only a short cut. One that is damaged, of an unknown version or with another digest than the state it
//! gives is passed over for the older one, and at last for the whole fold from seq 1.

use super::codec::{CodecError, check_version, decode_bare, encode_bare};
use super::{ReadError, Store};
use crate::ledger::ids::{Digest, Namespace, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::endings::Endings;
use crate::ledger::machine::image::StateImage;
use crate::ledger::machine::policy::HubPolicy;

/// Version of the image's layout. Each is the one before with more fields at its end, and an earlier one reads as one in
/// which they are empty: version 1 had no replay plans, redrives and rules by capability, version 2 no origins of redrives
/// and no orphans held for a word, version 3 no rules of the hub and no count of endings, version 4
/// no breakers, version 5 no routing rules.
pub const SNAPSHOT_VERSION: u8 = 6;
/// A start from an earlier one would not know how tasks had ended by then: the log is folded as a whole instead, once.
const COUNTS_ENDINGS: u8 = 4;

const HAS_BREAKERS: u8 = 5;

/// What version 5 added, with nothing in it: an empty list.
const NO_BREAKERS: &[u8] = &[0];
/// What version 6 added, with nothing in it.
const NO_ROUTING_RULES: &[u8] = &[0];

/// A state as bytes, with the seq that it folds up to and its digest: ready for [`Store::put_snapshot`].
///
/// # Errors
/// [`CodecError::Encode`].
pub fn encode(state: &State) -> Result<(Seq, Digest, Vec<u8>), CodecError> {
    encode_image(&state.to_image(), state.digest())
}

/// As [`encode`], from an image and its digest: so that a thread aside can do the work.
///
/// # Errors
/// [`CodecError::Encode`].
pub fn encode_image(image: &StateImage, digest: Digest) -> Result<(Seq, Digest, Vec<u8>), CodecError> {
    let mut bytes = Vec::with_capacity(1_024 + image.tasks.len() * 512);
    bytes.push(SNAPSHOT_VERSION);
    encode_bare(image, &mut bytes)?;
    Ok((image.seq, digest, bytes))
}

/// The state of a snapshot, if it is what its seq and digest say.
///
/// # Errors
/// [`CodecError`] when it is not.
pub fn decode(seq: Seq, digest: Digest, bytes: &[u8]) -> Result<State, CodecError> {
    let (version, image) = bytes.split_first().ok_or(CodecError::Truncated)?;
    check_version("a snapshot", *version, SNAPSHOT_VERSION)?;
    // An empty list is one byte.
    let missing: &[u8] = match version {
        1 => &[0; 5],
        2 => &[0; 2],
        _ => &[],
    };
    let image: StateImage = match version {
        ..COUNTS_ENDINGS => decode_bare(&[image, missing, &*empty_fourth()?, NO_BREAKERS, NO_ROUTING_RULES].concat())?,
        ..HAS_BREAKERS => decode_bare(&[image, NO_BREAKERS, NO_ROUTING_RULES].concat())?,
        ..SNAPSHOT_VERSION => decode_bare(&[image, NO_ROUTING_RULES].concat())?,
        SNAPSHOT_VERSION.. => decode_bare(image)?,
    };
    let state = State::from_image(image);
    if state.seq() != seq {
        return Err(CodecError::Sequence { expected: seq, found: state.seq() });
    }
    if state.digest() != digest {
        return Err(CodecError::Checksum("the state of a snapshot"));
    }
    Ok(state)
}

/// What version 4 added, with nothing in it.
fn empty_fourth() -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::new();
    encode_bare(&(HubPolicy::default(), Vec::<(Namespace, Endings)>::new()), &mut bytes)?;
    Ok(bytes)
}

/// The state of the newest good snapshot at or before the store's head; the empty state if there is none.
///
/// # Errors
/// [`ReadError`] when the disk fails.
pub fn newest(store: &dyn Store) -> Result<State, ReadError> {
    let head = store.head().seq;
    let mut snapshots = store.snapshots()?;
    snapshots.retain(|(seq, ..)| *seq <= head);
    for (seq, digest, bytes) in snapshots {
        if bytes.first().is_some_and(|version| (1..COUNTS_ENDINGS).contains(version)) {
            tracing::info!(%seq, "a snapshot of an earlier version is passed over: it counts no endings");
            continue;
        }
        match decode(seq, digest, &bytes) {
            Ok(state) => return Ok(state),
            Err(error) => tracing::warn!(%seq, %error, "a snapshot is passed over"),
        }
    }
    Ok(State::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::Boot;
    use crate::ledger::machine::event::{Actor, Event, EventBody, HubStarted, TokenCreated};
    use crate::ledger::machine::step::apply;
    use crate::ledger::store::contract::{event, token};
    use crate::ledger::store::memory::MemoryStore;

    fn state(tokens: u64) -> State {
        let mut state = State::default();
        let started = HubStarted { boot: Boot(1), wall_offset: 0, version: "0".into() };
        let hub = Event { namespace: None, actor: Actor::Hub, ..event(1, EventBody::from(started)) };
        apply(&mut state, &hub).unwrap();
        for seq in 2..2 + tokens {
            let mut token = token();
            token.id = crate::ledger::ids::TokenId::new(&format!("t{seq}")).unwrap();
            apply(&mut state, &event(seq, TokenCreated { token })).unwrap();
        }
        state
    }

    fn store_with(snapshots: &[&State]) -> MemoryStore {
        let store = MemoryStore::new();
        store.append(&crate::ledger::store::contract::chain(&[9]).remove(0)).unwrap();
        for state in snapshots {
            let (seq, digest, bytes) = encode(state).unwrap();
            store.put_snapshot(seq, digest, &bytes).unwrap();
        }
        store
    }

    #[test]
    fn a_snapshot_gives_the_same_state_and_the_newest_one_is_taken() {
        let (older, newer) = (state(1), state(5));
        assert_eq!(newest(&store_with(&[&older, &newer])).unwrap(), newer);
        assert_eq!(newest(&store_with(&[])).unwrap(), State::default());
    }

    #[test]
    fn a_damaged_snapshot_or_one_of_a_newer_version_gives_way_to_the_older() {
        let (older, newer) = (state(1), state(5));
        let (seq, digest, bytes) = encode(&newer).unwrap();
        for at in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            let mut bad = bytes.clone();
            bad[at] = bad[at].wrapping_add(1);
            assert!(decode(seq, digest, &bad).is_err(), "byte {at}");
            let store = store_with(&[&older]);
            store.put_snapshot(seq, digest, &bad).unwrap();
            assert_eq!(newest(&store).unwrap(), older);
        }
        assert!(decode(seq, Digest([0; 32]), &bytes).is_err(), "another digest");
        assert!(decode(Seq(3), digest, &bytes).is_err(), "another seq");
    }
}
