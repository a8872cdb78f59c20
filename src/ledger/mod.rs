//! Floor 0: what happened.
//!
//! Why a ledger: teams lose work between agents because nobody can say afterwards what happened. Here every
//! registration, dispatch, ack, retry and completion is an event in an append-only log, and everything else is a fold.
//!
//! Seven rules of the loop:
//! 1. `decide(&State, &Proposal, now) -> Decision`: a refusal may still leave an event.
//! 2. `apply(&mut State, &Event)`: no rules, no time, no chance; the same for live, boot, simulation and audit.
//! 3. Ids, jitter and routing results arrive inside the command; the moment arrives as `now`.
//! 4. Planners only propose; `decide` checks every hard limit again.
//! 5. Level, not edge: effects act on what durable state says is outstanding; an event only wakes them.
//! 6. Readers and effects see only what is fsynced; after a failed append the hub stops.
//! 7. Ledger state is the fold; vitals (heartbeats, load, latency) are volatile and only their consequences are events.
//!
//! | where | what |
//! | --- | --- |
//! | [`ids`], [`time`] | newtypes and the clock seam |
//! | [`machine`] | the pure state machine |
//! | [`planner`] | the seam to what proposes next |
//! | [`store`] | the disk, behind one trait |
//! | [`keys`] | the secrets that must not lie in the ledger |
//! | [`merge_patch`] | payloads put right, member by member |
//! | [`sequencer`], [`committer`] | the two threads: decide; make durable and let answers go |
//! | [`boot`], [`launch`] | snapshot and log back to a state; starting it all |
//! | [`handle`], [`view`], [`watch`] | the face to the shells: propose, claim, ask, read, wait |

pub mod boot;
pub mod canonical;
mod claims;
pub mod committer;
pub mod facts;
mod fresh;
pub mod handle;
pub mod ids;
pub mod keys;
mod lag;
pub mod last_failure;
pub mod launch;
pub mod machine;
pub mod merge_patch;
mod open_batch;
pub mod planner;
pub mod sequencer;
pub mod store;
pub mod time;
pub mod view;
pub mod watch;
