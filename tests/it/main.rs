//! Behaviour, through the public face only: a real hub in this process, on a free port, over HTTP.
//!
//! `world.rs` starts the hub; every other file is a resource or a group of rules. What can't be reached from here is
//! nobody's promise.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic: that is how it fails")]

mod access;
mod agents;
mod alerts;
mod approvals;
mod batches;
mod bounds;
mod breakers;
mod callbacks;
mod document;
mod early;
mod edge;
mod failures;
mod feed;
mod fleet;
mod gate;
mod goodbyes;
mod handing;
mod handovers;
mod incidents;
mod input;
mod lists;
mod meanings;
mod memory;
mod namespaces;
mod patches;
mod plan_answers;
mod plan_words;
mod probes;
mod receipts;
mod redrives;
mod repeats;
mod replay_runs;
mod replays;
mod routing_rules;
mod standbys;
mod starts;
mod status;
mod stops;
mod submission;
mod tokens;
mod unborne;
mod wording;
mod work;
mod world;
