//! Floor 1: what should happen next.
//!
//! Why it may only propose: a routing bug must be able to be unfair but never unsafe. Everything here is a guess over
//! a state that may have moved on; the ledger checks incarnation, slot and lease again when it decides (rule 4). So the
//! lanes, turns and positions below are derived, volatile and rebuilt at boot, and nothing of them is ever an event.
//!
//! ```text
//! event ─► queue (who waits, in which order) ─┐
//! event ─► roster (who offers what, has room) ─┼─► plan: next head ─► routing (who serves it, who not, why) ─► proposal
//! note ──► vitals (load, claims, latencies) ───┘
//! ```
//!
//! | where | what |
//! | --- | --- |
//! | [`vitals`] | what agents feel like: reported load, open claims, latencies, failure rate |
//! | [`tempo`] | whether one is slower than it always was, and fails of late |
//! | [`queue`] | who goes next: class, then caller, then first in first out |
//! | [`roster`] | who offers what and has room now |
//! | [`affinity`], [`last_holders`] | which agent works for a session now; which did last |
//! | [`slow_start`] | how fast an agent that came back gets work again |
//! | [`ramp`] | how fast a backlog found at boot is handed out |
//! | [`routing`] | who serves a task, and why not the others |
//! | [`decisions`] | the last decisions, and what other rules would have made of them |
//! | [`trainer`] | learns what texts mean from what agents declare; a shell |
//! | [`plan`] | the planner: a free slot meets a waiting task |
//! | [`whatif`] | the same planner over work of the past, in virtual time |
//! | [`outbound`] | the hub's own calls: pushes, callbacks and the egress guard; a shell |
//!
//! Deliberately absent: clocks, chance and I/O. Heartbeat *times* are recovery's.

pub mod affinity;
pub mod decisions;
pub mod last_holders;
pub mod outbound;
pub mod plan;
pub mod queue;
pub mod ramp;
pub mod roster;
pub mod routing;
pub mod slow_start;
pub mod tempo;
pub mod trainer;
pub mod vitals;
pub mod whatif;

#[cfg(test)]
mod affinity_tests;
#[cfg(test)]
mod breaker_tests;
#[cfg(test)]
mod decisions_tests;
#[cfg(test)]
mod overdue_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod slow_start_tests;
#[cfg(test)]
mod strategy_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod world;
