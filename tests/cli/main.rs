//! The `reach` binary as people and scripts meet it: what it prints where, and how it ends.

mod damage;
mod examples;
mod hub;
mod offline;
mod running;
