//! Whose turn it is among the hosts that wait for callbacks: pure.
//!
//! Why: one dead or slow host must never hold the others' callbacks (R-CBK-2). Each destination has its own lane, with
//! its own bound on connections and its own breaker; lanes take turns. A lane that nobody has answered on yet, or that
//! failed last, gets one connection at a time, so a hanging host costs the hub one. A host that answers gets
//! [`FIRST`], and one more with every answer while it uses all that it has, so the slower it answers the slower it grows;
//! a failure takes all but one.
//!
//! Many hanging hosts together would still hold every connection. So the lanes in doubt (unproven, failing, slow) share
//! one half of them, and the other half is for hosts that answer quickly.
//!
//! A lane is bounded. What does not fit is left out and looked for again in the state once the lane has room: the
//! state is the truth, the lane a window on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use crate::ledger::ids::CallbackId;
use crate::ledger::time::{Millis, Timestamp};

/// Connections to a host that has answered, before its answers add to them.
pub const FIRST: u32 = 4;
/// From here on an answer is slow: a third of the time that a receiver has.
pub const SLOW: Millis = Millis::secs(5);
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
    /// It answered like a host that works, and within [`SLOW`].
    Alive,
    /// It answered like one, but took long.
    Slow,
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
    /// Connections that its answers have earned; 0 before the first one and after a failure.
    earned: u32,
    pace: Pace,
    /// The earliest due time of what was left out.
    left_out: Option<Timestamp>,
}

/// How it answered last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Pace {
    #[default]
    Quick,
    Slow,
}

impl Lane {
    fn connections(&self) -> u32 {
        self.earned.max(1)
    }

    /// Has nobody answered on it yet, or not lately, or only after long?
    fn is_doubtful(&self) -> bool {
        self.earned == 0 || self.pace == Pace::Slow
    }

    fn in_doubt(&self) -> u32 {
        if self.is_doubtful() { self.in_flight } else { 0 }
    }

    fn answered(&mut self, pace: Pace, limit: u32) {
        let used_all = self.in_flight >= self.earned || !self.waiting.is_empty();
        self.earned = match self.earned {
            0 => FIRST,
            earned if used_all => earned.saturating_add(1),
            earned => earned,
        }
        .min(limit);
        (self.failures, self.pace) = (0, pace);
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

/// How many callbacks may be on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections to one host at once, at least 1; default 16.
    pub per_host: u32,
    /// Connections to all hosts at once, at least 1; default 256.
    pub in_all: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_host: 16, in_all: 256 }
    }
}

/// Every lane.
#[derive(Debug, Default)]
pub struct Hosts {
    limits: Limits,
    lanes: BTreeMap<String, Lane>,
    /// Lanes with something to send and a connection for it, by their names.
    ready: BTreeSet<String>,
    /// The same of the lanes in doubt.
    ready_in_doubt: BTreeSet<String>,
    opening: BTreeSet<(Timestamp, String)>,
    /// Who of the one sort, and of the other, had its turn last, and which sort.
    turn: String,
    turn_in_doubt: String,
    doubted_last: bool,
    waiting: usize,
    in_flight: u32,
    /// Those of them in lanes in doubt.
    in_doubt: u32,
}

impl Hosts {
    /// No lanes yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

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
        self.whose_turn().is_some()
    }

    /// Whose turn it is: the two sorts of lanes take turns, and so do the lanes of each.
    fn whose_turn(&self) -> Option<&String> {
        if self.in_flight >= self.limits.in_all {
            return None;
        }
        let sure = after(&self.ready, &self.turn);
        let doubtful = after(&self.ready_in_doubt, &self.turn_in_doubt)
            .filter(|_| self.in_doubt < (self.limits.in_all / 2).max(1));
        if self.doubted_last { sure.or(doubtful) } else { doubtful.or(sure) }
    }

    /// The next callback to send, if there is one and a connection for it.
    pub fn next(&mut self, now: Timestamp) -> Option<(String, CallbackId)> {
        self.half_open(now);
        let host = self.whose_turn()?.clone();
        let lane = self.lanes.get_mut(&host)?;
        let callback = lane.waiting.pop_front()?;
        lane.in_flight += 1;
        self.in_doubt += u32::from(lane.is_doubtful());
        self.waiting -= 1;
        self.in_flight += 1;
        self.doubted_last = lane.is_doubtful();
        let turn = if self.doubted_last { &mut self.turn_in_doubt } else { &mut self.turn };
        turn.clone_from(&host);
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
            let in_doubt = lane.in_doubt();
            match says {
                HostSays::Alive | HostSays::Slow => {
                    let pace = if says == HostSays::Slow { Pace::Slow } else { Pace::Quick };
                    lane.answered(pace, self.limits.per_host);
                    if let Some(at) = lane.open_until.take() {
                        self.opening.remove(&(at, host.to_owned()));
                    }
                }
                HostSays::Failing => {
                    lane.earned = 0;
                    lane.failures = lane.failures.saturating_add(1);
                    if lane.failures >= FAILURES && lane.open_until.is_none() {
                        let until = now.after(OPEN_FOR);
                        lane.open_until = Some(until);
                        self.opening.insert((until, host.to_owned()));
                    }
                }
                HostSays::Nothing => {}
            }
            lane.in_flight = lane.in_flight.saturating_sub(1);
            self.in_doubt = self.in_doubt.saturating_sub(in_doubt).saturating_add(lane.in_doubt());
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
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    fn refresh(&mut self, host: &str) {
        let Some(lane) = self.lanes.get(host) else { return };
        let (to, from) = if lane.is_doubtful() {
            (&mut self.ready_in_doubt, &mut self.ready)
        } else {
            (&mut self.ready, &mut self.ready_in_doubt)
        };
        from.remove(host);
        if lane.is_ready() {
            if !to.contains(host) {
                to.insert(host.to_owned());
            }
            return;
        }
        to.remove(host);
        let is_plain = lane.failures == 0 && lane.earned == 0;
        if lane.is_forgettable() && (is_plain || self.lanes.len() > REMEMBERED) {
            if let Some(at) = lane.open_until {
                self.opening.remove(&(at, host.to_owned()));
            }
            self.lanes.remove(host);
        }
    }
}

/// The next lane on the way round.
fn after<'a>(lanes: &'a BTreeSet<String>, turn: &str) -> Option<&'a String> {
    lanes.range::<str, _>((Bound::Excluded(turn), Bound::Unbounded)).next().or_else(|| lanes.first())
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
