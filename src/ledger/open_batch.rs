//! The batch that the sequencer fills while the committer is busy with the one before.

use crate::ledger::committer::{Pending, Show};
use crate::ledger::ids::Seq;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::store::block::{TARGET_COMMIT_BYTES, TARGET_COMMIT_EVENTS};
use crate::ledger::store::codec::MAX_EVENT_FRAME;
use crate::ledger::store::{Body, BodyKey};

/// Bodies of one batch, in bytes.
const BODY_BYTES_A_BATCH: usize = 8 << 20;

/// One batch is one commit, so the events of one decision are never torn apart.
#[derive(Default)]
pub(in crate::ledger) struct OpenBatch {
    pub(in crate::ledger) events: Vec<Event>,
    pub(in crate::ledger) bodies: Vec<(BodyKey, Body)>,
    pub(in crate::ledger) pending: Vec<Pending>,
    pub(in crate::ledger) show: Show,
    /// The seq before its first event.
    pub(in crate::ledger) base: Seq,
    body_bytes: usize,
    weight: usize,
}

impl OpenBatch {
    /// Takes the events of one step.
    pub(in crate::ledger) fn push_events(&mut self, events: Vec<Event>) {
        self.weight += events.iter().map(weight).sum::<usize>();
        self.events.extend(events);
    }

    /// Takes the bodies that the events from the `decided`-th on bring. A body that none of them brings must not be kept:
    /// it has another salt and would take the place of the one that an earlier event names (semantics 27).
    pub(in crate::ledger) fn push_bodies(&mut self, bodies: Vec<(BodyKey, Body)>, decided: usize) {
        let events = self.events.get(decided..).unwrap_or_default();
        for (key, body) in bodies {
            let named = match &key {
                BodyKey::Task { .. } => {
                    events.iter().any(|event| BodyKey::of_event(&event.body).as_ref() == Some(&key))
                }
                BodyKey::Named(_) => !events.is_empty(),
            };
            if named {
                self.body_bytes += body.bytes.len();
                self.bodies.push((key, body));
            }
        }
    }

    /// Must it be handed over before more is decided?
    pub(in crate::ledger) fn is_full(&self) -> bool {
        self.room() == 0 || self.weight >= TARGET_COMMIT_BYTES || self.body_bytes >= BODY_BYTES_A_BATCH
    }

    /// Events that still fit.
    pub(in crate::ledger) fn room(&self) -> usize {
        TARGET_COMMIT_EVENTS.saturating_sub(self.events.len())
    }

    /// Is there nothing in it that anybody waits for?
    pub(in crate::ledger) fn is_idle(&self) -> bool {
        self.events.is_empty() && self.pending.is_empty() && self.show == Show::Events
    }
}

/// Roughly how many bytes an event takes; only the kinds that carry a caller's text can be large.
#[expect(clippy::wildcard_enum_match_arm, reason = "the kinds without a caller's text are the many, and small")]
fn weight(event: &Event) -> usize {
    match &event.body {
        EventBody::TaskSubmitted(e) => {
            let spec = &e.submission;
            let labels: usize = spec.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
            let texts = [&spec.payload_ref, &spec.context_path, &spec.sensitivity];
            512 + labels
                + texts.into_iter().flatten().map(|text| text.len()).sum::<usize>()
                + spec.callback.as_ref().map_or(0, |callback| callback.url.len())
        }
        EventBody::AgentRegistered(_) | EventBody::AgentUpdated(_) => MAX_EVENT_FRAME,
        _ => 256,
    }
}
