//! The hub's own calls to others.
pub mod address;
pub mod answer;
pub mod guard;
pub mod hosts;
pub mod http;
pub mod message;
#[cfg(test)]
mod receiver;
#[cfg(test)]
mod samples;
pub mod secrets;
pub mod signature;
pub mod wire;
