//! **Agent-Reach**: the reach layer for fleets of agents.
//!
//! *The ledger knows what happened. The scheduler proposes what should happen next. Recovery proposes what should
//! happen when something broke. The API lets the world ask and tell.* Everyone proposes commands; only the ledger
//! decides. That is the whole architecture; ARCHITECTURE.md has the picture.

pub mod api;
pub mod config;
pub mod hub;
pub mod ledger;
pub mod recovery;
pub mod scheduler;
pub mod telemetry;
