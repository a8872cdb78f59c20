//! The impossible transition: an event that cannot follow on a state.

use crate::ledger::ids::Seq;
use crate::ledger::machine::event::{Event, EventKind};

/// An event that cannot follow on this state: a bug, or a damaged log. Never a caller's doing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} cannot follow here: {why}")]
pub struct ImpossibleTransition {
    /// Which event.
    pub seq: Seq,
    /// Its kind.
    pub kind: EventKind,
    /// Why not.
    pub why: &'static str,
}

impl ImpossibleTransition {
    pub(in crate::ledger::machine) const fn of(event: &Event, why: &'static str) -> Self {
        Self { seq: event.seq, kind: event.body.kind(), why }
    }
}
