//! Events of the ledger and the hub themselves.

use crate::ledger::ids::{Boot, Digest, Lineage, Seq};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Millis;

event_structs! {
    /// A history begins (semantics 24).
    LineageStarted {
        /// The new lineage.
        lineage: Lineage,
        /// The one that it goes on from.
        previous: Option<Lineage>,
        /// The last seq taken over.
        at_seq: Seq,
        /// The chain hash there.
        hash: Digest,
        /// If a loss was accepted: the last seq that was lost.
        lost_up_to: Option<Seq>,
    }
    /// The hub started.
    HubStarted {
        /// Which start.
        boot: Boot,
        /// Wall clock minus ledger time, in milliseconds.
        wall_offset: i64,
        /// Program version.
        version: Text,
    }
    /// The hub stopped cleanly.
    HubStopped {
        /// Which start it ends.
        boot: Boot,
    }
    /// The wall clock was set (semantics 23).
    ClockJumped {
        /// New offset of the wall clock, in milliseconds.
        wall_offset: i64,
        /// By how much it jumped.
        by: i64,
    }
    /// The hub stood still and heard nobody: whoever holds or awaits work gets that time back (semantics 3, 12).
    HubStalled {
        /// How much of it is given back.
        by: Millis,
    }
}
