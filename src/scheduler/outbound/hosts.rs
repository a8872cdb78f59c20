//! Whose turn it is among the hosts that wait for callbacks: pure.
//!
//! Why: one dead or slow host must never hold the others' callbacks (R-CBK-2). Each destination has its own lane, with
//! its own bound on connections and its own breaker; lanes take turns. A lane that nobody has answered on yet, or that
//! failed last, gets one connection at a time, so a hanging host costs the hub one.
//!
//! A lane is bounded. What does not fit is left out and looked for again in the state once the lane has room: the
//! state is the truth, the lane a window on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ledger::ids::CallbackId;
use crate::ledger::time::{Millis, Timestamp};

/// Connections to one host at once.
pub const PER_HOST: u32 = 4;
/// Connections to all hosts at once.
pub const IN_ALL: usize = 64;
/// Failures in a row that open a host's breaker.
pub const FAILURES: u32 = 5;
/// How long an open breaker stays open; then one probe goes out.
pub const OPEN_FOR: Millis = Millis::secs(10);
/// Callbacks in one lane.
pub const LANE: usize = 1_024;
/// Callbacks in all lanes, before lanes are cut to [`FEW`].
pub const LANES: usize = 65_536;
/// What a lane may hold however full the others are.
pub const FEW: usize = 16;
/// Quiet lanes that are remembered.
const REMEMBERED: usize = 10_000;

/// How a try ended, as far as its host is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostSays {
    /// It answered like a host that works.
    Alive,
    /// It did not answer, or said that it can't now.
    Failing,
    /// Nothing was learned: it was not asked.
    Nothing,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<CallbackId>,
    in_flight: u32,
    failures: u32,
    open_until: Option<Timestamp>,
    trust: Trust,
    /// The earliest due time of what was left out.
    left_out: Option<Timestamp>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Trust {
    #[default]
    Unproven,
    Proven,
}

impl Lane {
    fn connections(&self) -> u32 {
        if self.failures == 0 && self.trust == Trust::Proven { PER_HOST } else { 1 }
    }

    fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && self.open_until.is_none() && self.in_flight < self.connections()
    }

    fn is_forgettable(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0 && self.left_out.is_none()
    }
}

/// Was a callback taken into its lane?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Yes.
    Yes,
    /// The lane is full.
    LaneFull,
}

/// Every lane.
#[derive(Debug, Default)]
pub struct Hosts {
    lanes: BTreeMap<String, Lane>,
    ready: BTreeSet<String>,
    opening: BTreeSet<(Timestamp, String)>,
    turn: String,
    waiting: usize,
    in_flight: usize,
}

impl Hosts {
    /// Puts a due callback into its host's lane.
    pub fn offer(&mut self, host: &str, callback: CallbackId, due: Timestamp) -> Taken {
        let bound = if self.waiting >= LANES { FEW } else { LANE };
        let lane = self.lanes.entry(host.to_owned()).or_default();
        if lane.waiting.len() >= bound {
            lane.left_out = Some(lane.left_out.map_or(due, |earlier| earlier.min(due)));
            return Taken::LaneFull;
        }
        lane.waiting.push_back(callback);
        self.waiting += 1;
        self.refresh(host);
        Taken::Yes
    }

    /// Is there a callback to send and a connection for it?
    pub fn has_turn(&mut self, now: Timestamp) -> bool {
        self.half_open(now);
        self.in_flight < IN_ALL && !self.ready.is_empty()
    }

    /// The next callback to send, if there is one and a connection for it.
    pub fn next(&mut self, now: Timestamp) -> Option<(String, CallbackId)> {
        self.half_open(now);
        if self.in_flight >= IN_ALL {
            return None;
        }
        let after = (std::ops::Bound::Excluded(self.turn.clone()), std::ops::Bound::Unbounded);
        let host = self.ready.range(after).next().or_else(|| self.ready.first())?.clone();
        let lane = self.lanes.get_mut(&host)?;
        let callback = lane.waiting.pop_front()?;
        lane.in_flight += 1;
        self.waiting -= 1;
        self.in_flight += 1;
        self.turn.clone_from(&host);
        self.refresh(&host);
        Some((host, callback))
    }

    fn half_open(&mut self, now: Timestamp) {
        while let Some((at, host)) = self.opening.first().cloned().filter(|(at, _)| *at <= now) {
            self.opening.remove(&(at, host.clone()));
            if let Some(lane) = self.lanes.get_mut(&host) {
                // Half open: the failures still stand, so one probe at a time.
                lane.open_until = None;
            }
            self.refresh(&host);
        }
    }

    /// A try on that host has ended.
    pub fn done(&mut self, host: &str, says: HostSays, now: Timestamp) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(lane) = self.lanes.get_mut(host) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
            match says {
                HostSays::Alive => {
                    lane.failures = 0;
                    lane.trust = Trust::Proven;
                    if let Some(at) = lane.open_until.take() {
                        self.opening.remove(&(at, host.to_owned()));
                    }
                }
                HostSays::Failing => {
                    lane.failures = lane.failures.saturating_add(1);
                    if lane.failures >= FAILURES && lane.open_until.is_none() {
                        let until = now.after(OPEN_FOR);
                        lane.open_until = Some(until);
                        self.opening.insert((until, host.to_owned()));
                    }
                }
                HostSays::Nothing => {}
            }
        }
        self.refresh(host);
    }

    /// Where to look again in the state: a lane that left something out has room. Asked once, it is forgotten.
    pub fn look_again(&mut self, host: &str) -> Option<Timestamp> {
        let lane = self.lanes.get_mut(host)?;
        if lane.waiting.len() > FEW / 2 {
            return None;
        }
        let from = lane.left_out.take();
        self.refresh(host);
        from
    }

    /// When a breaker lets a probe out, if callbacks wait for it.
    #[must_use]
    pub fn wake_at(&self) -> Option<Timestamp> {
        let waits = |host: &String| self.lanes.get(host).is_some_and(|lane| !lane.waiting.is_empty());
        self.opening.iter().find(|(_, host)| waits(host)).map(|(at, _)| *at)
    }

    /// Callbacks that are being sent.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn refresh(&mut self, host: &str) {
        let Some(lane) = self.lanes.get(host) else { return };
        if lane.is_ready() {
            if !self.ready.contains(host) {
                self.ready.insert(host.to_owned());
            }
            return;
        }
        self.ready.remove(host);
        let is_plain = lane.failures == 0 && lane.trust == Trust::Unproven;
        if lane.is_forgettable() && (is_plain || self.lanes.len() > REMEMBERED) {
            if let Some(at) = lane.open_until {
                self.opening.remove(&(at, host.to_owned()));
            }
            self.lanes.remove(host);
        }
    }
}

/// How fast callbacks leave after a start (semantics 21): 50 in the first second, 50 more in each later one, and
/// without bound after 20 s.
#[derive(Debug)]
pub struct Ramp {
    start: Timestamp,
    sent: u64,
}

/// Growth of the rate, in callbacks a second each second.
const RAMP: u64 = 50;
/// After so long the ramp is over.
const RAMP_OVER: Millis = Millis::secs(20);

impl Ramp {
    /// A ramp that begins now.
    #[must_use]
    pub const fn starting(now: Timestamp) -> Self {
        Self { start: now, sent: 0 }
    }

    /// May one more leave now? If not, when.
    ///
    /// # Errors
    /// The moment at which to ask again.
    pub fn take(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let Millis(passed) = now.since(self.start);
        if now.since(self.start) < RAMP_OVER {
            // The sum of 50, 100, 150 … over the seconds, with the current one begun at a tenth.
            let (second, part) = (passed / 1_000, passed % 1_000);
            let allowed = RAMP * second * (second + 1) / 2 + RAMP * (second + 1) * (part / 100 + 1) / 10;
            if self.sent >= allowed {
                return Err(Timestamp(now.0 - now.0.saturating_sub(self.start.0) % 100 + 100));
            }
        }
        self.sent += 1;
        Ok(())
    }
}

#[cfg(test)]
#[path = "hosts_tests.rs"]
mod tests;
