//! The `reach` binary as people and scripts meet it: what it prints where, and how it ends.

mod advice;
mod alerts;
mod callbacks;
mod damage;
mod demo;
mod examples;
mod guidance;
mod hub;
mod incident;
mod newcomer;
mod offline;
mod operator;
mod replay;
mod routing_bench;
mod runbook;
mod running;
mod signals;
mod simulate;
mod texts;
mod tour;
