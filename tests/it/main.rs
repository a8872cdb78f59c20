//! Behaviour, through the public face only: a real hub in this process, on a free port, over HTTP.
//!
//! `world.rs` starts the hub; every other file is a resource or a group of rules. What can't be reached from here is
//! nobody's promise.

mod access;
mod agents;
mod edge;
mod input;
mod probes;
mod tokens;
mod world;
