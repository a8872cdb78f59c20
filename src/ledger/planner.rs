//! The seam between the sequencer and what proposes next (seam 4): the ledger names nothing above it, so it is handed
//! its planners by the hub.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ledger::ids::{AgentKey, Incarnation, ReplayId};
use crate::ledger::machine::State;
use crate::ledger::machine::command::Proposal;
use crate::ledger::machine::event::Event;
use crate::ledger::machine::task::Progress;
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::time::{Millis, Timestamp};

/// A waiting claim, numbered within one run of the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// Load figures that a heartbeat may carry (R-REG-4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Tasks waiting inside the agent.
    pub queue_depth: u32,
    /// Tasks it works on, in its own count.
    pub in_flight: u32,
    /// Mean latency of late.
    pub mean_latency: Option<Millis>,
}

/// The most bytes that one claim hands over, by the measure of [`answer_bytes`]; what does not fit stays queued for the
/// next claim. The one bound for the planner, which proposes, and for the claims, which hand over.
pub const CLAIM_BYTES: u64 = 8 << 20;

/// The heaviest task that there can be: a payload of 1 MiB, 64 KiB of stage data, labels and references. The API's
/// bounds hold it.
pub const TASK_BYTES: u64 = 1_280 << 10;

/// Does an answer of that weight take one more task? Whatever that weighs: so the next task in turn is never passed
/// over for a lighter one, and an empty answer takes any.
#[must_use]
pub const fn takes_one_more(bytes: u64) -> bool {
    bytes.saturating_add(TASK_BYTES) <= CLAIM_BYTES
}

/// What a task weighs in a claim's answer: payload and data of the last stage, and what stands around them.
#[must_use]
pub fn answer_bytes(spec: &Submission, replay: Option<&Progress>) -> u64 {
    const AROUND: u64 = 1_024;
    let labels: usize = spec.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    let texts = [&spec.payload_ref, &spec.context_path].into_iter().flatten().map(|text| text.len()).sum::<usize>();
    let stage = replay.and_then(|progress| progress.data.as_ref());
    let bodies = spec.payload.iter().chain(stage).map(|body| u64::from(body.len)).sum::<u64>();
    AROUND + bodies + u64::try_from(labels + texts).unwrap_or(u64::MAX >> 1)
}

/// Something volatile that planners should know: never in the ledger (rule 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// An accepted call named this agent and its current incarnation (semantics 3).
    Beat {
        /// Who.
        agent: AgentKey,
        /// Which process.
        incarnation: Incarnation,
        /// Load figures, if it sent any.
        load: Option<Load>,
    },
    /// A pull agent waits for work: its demand (semantics 4).
    ClaimOpened {
        /// Which claim.
        claim: ClaimId,
        /// Whose.
        agent: AgentKey,
        /// Which process.
        incarnation: Incarnation,
        /// Tasks it takes at most.
        max: u32,
    },
    /// It waits no longer: answered, timed out or gone.
    ClaimClosed {
        /// Which claim.
        claim: ClaimId,
    },
    /// The list of a running plan's items, read from its body by a shell.
    Listed {
        /// Which plan.
        replay: ReplayId,
        /// Its list, as bytes that fit the digest in the ledger.
        list: Arc<[u8]>,
    },
    /// The sequencer's own cycle lagged: silence in that time is not held against agents (semantics 3).
    Lagged {
        /// For how long.
        by: Millis,
    },
}

/// A pure machine beside the state: it watches, remembers and proposes. The core checks every proposal again, so a
/// planner's fault can be unfair, never unsafe (rule 4).
pub trait Planner: Send {
    /// Starts over from a state, after boot.
    fn rebuild(&mut self, state: &State, now: Timestamp);

    /// An event was applied; `state` is the state after it.
    fn observe(&mut self, state: &State, event: &Event);

    /// Something volatile happened.
    fn note(&mut self, state: &State, note: &Note, now: Timestamp);

    /// What should happen next, at most `room` proposals. Asked again in the same cycle until it has no more.
    fn plan(&mut self, state: &State, now: Timestamp, room: usize) -> Vec<Proposal>;

    /// A proposal of this planner was refused: its view was stale.
    fn refused(&mut self, state: &State, proposal: &Proposal);

    /// When it wants to be asked again even if nothing happens.
    fn wake_at(&self, state: &State, now: Timestamp) -> Option<Timestamp>;

    /// For readers above that know the planner's own type (explanations, vitals).
    fn as_any(&self) -> &dyn Any;
}
