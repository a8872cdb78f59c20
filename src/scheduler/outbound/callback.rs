//! The callback sender (R-CBK-1, R-CBK-2): asks the state what is due, sends it signed, proposes how each try ended.
//!
//! The rules of retrying are the ledger's (`machine/callback`): here is only who goes next ([`super::hosts`]), what is
//! sent ([`super::message`]) and how. At least once: a try whose outcome the ledger did not take is made again, with
//! the same id and the same bytes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::LAST_WORD;
use super::attempt::{Attempt, Ended, Settled};
use super::guard::Purpose;
use super::hosts::{HostSays, Hosts, Limits, Ramp, Taken};
use super::http::HttpClient;
use super::secrets::Secrets;
use crate::ledger::handle::{Ledger, Phase};
use crate::ledger::ids::CallbackId;
use crate::ledger::machine::State;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::{Millis, Timestamp};

/// Due callbacks looked at in one question.
const PAGE: usize = 512;
/// Looks at least so often, whatever wakes it.
const LOOK: Millis = Millis::secs(1);

type Place = (Timestamp, CallbackId);

/// One due callback in a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    place: Place,
    url: Text,
}

/// A part of what is due.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    found: Vec<Found>,
    /// Where the next page begins.
    next: Place,
    /// Is there more that is due?
    more: More,
    /// When the next one becomes due.
    due_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Yes,
    No,
}

/// The page from `from` on. It ends where nothing earlier can still come: whatever becomes due later does so at or
/// after the last event's time.
fn page(state: &State, from: Place, now: Timestamp) -> Page {
    let last = (now.min(state.at()), CallbackId([0; 16]));
    let mut found = Vec::new();
    for place in state.callbacks_due().range((Bound::Included(from), Bound::Unbounded)).copied() {
        if place.0 > now {
            return Page { found, next: last, more: More::No, due_at: Some(place.0) };
        }
        if found.len() == PAGE {
            return Page { found, next: place, more: More::Yes, due_at: None };
        }
        if let Some(callback) = state.callback(place.1) {
            found.push(Found { place, url: callback.url.clone() });
        }
    }
    Page { found, next: last, more: More::No, due_at: None }
}

pub(super) struct Sender {
    pub(super) ledger: Ledger,
    pub(super) http: HttpClient,
    pub(super) secrets: Arc<Secrets>,
    pub(super) limits: Limits,
    /// When the hub started to send: the ramp begins here.
    pub(super) started: Timestamp,
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
}

/// What the sender remembers between looks.
struct Desk {
    hosts: Hosts,
    /// In a lane or being sent, with the time at which each became due.
    known: BTreeMap<CallbackId, Timestamp>,
    from: Place,
    ramp: Ramp,
    /// When the next callback becomes due, as far as the last look saw.
    due_at: Option<Timestamp>,
    /// Look again from there, not before that moment.
    again: Option<(Timestamp, Timestamp)>,
}

impl Desk {
    fn new(now: Timestamp, limits: Limits) -> Self {
        Self {
            hosts: Hosts::new(limits),
            known: BTreeMap::new(),
            from: (Timestamp(0), CallbackId([0; 16])),
            ramp: Ramp::starting(now),
            due_at: None,
            again: None,
        }
    }

    fn wants_look(&self, now: Timestamp) -> bool {
        self.due_at.is_some_and(|at| at <= now) || self.again.is_some_and(|(_, at)| at <= now)
    }

    fn take(&mut self, found: Found, host: &str) {
        let (due, id) = found.place;
        if self.known.contains_key(&id) {
            return;
        }
        if self.hosts.offer(host, id, due) == Taken::Yes {
            self.known.insert(id, due);
        }
    }

    fn look_again(&mut self, from: Timestamp, not_before: Timestamp) {
        self.again = Some(match self.again {
            Some((earlier, at)) => (earlier.min(from), at.max(not_before)),
            None => (from, not_before),
        });
    }

    fn ended(&mut self, ended: &Ended, now: Timestamp) {
        self.hosts.done(&ended.host, ended.says, now);
        if let Some(due) = self.known.remove(&ended.callback)
            && ended.settled == Settled::No
        {
            self.look_again(due, now.after(LOOK));
        }
        if let Some(from) = self.hosts.look_again(&ended.host) {
            self.look_again(from, now);
        }
    }
}

impl Sender {
    pub(super) async fn run(self) {
        let mut follow = self.ledger.follow();
        let cut = CancellationToken::new();
        let attempt = Arc::new(Attempt {
            ledger: self.ledger.clone(),
            http: self.http.clone(),
            secrets: self.secrets.clone(),
            cut: cut.clone(),
        });
        let mut desk = Desk::new(self.started, self.limits);
        let mut open: JoinSet<Ended> = JoinSet::new();
        let mut running: HashMap<tokio::task::Id, (String, CallbackId)> = HashMap::new();
        let (mut seen, mut looked) = (None, Instant::now());
        loop {
            let (phase, callbacks) = {
                let published = follow.borrow_and_update();
                (published.phase, published.callbacks)
            };
            let now = self.ledger.now();
            let mut wake = now.after(LOOK);
            if matches!(phase, Phase::Open | Phase::DiskLow) {
                if seen != Some(callbacks) || desk.wants_look(now) || looked.elapsed() >= pause_of(LOOK) {
                    self.look(&mut desk, now).await;
                    (seen, looked) = (Some(callbacks), Instant::now());
                }
                wake = self.send(&mut desk, now, |host, id| {
                    let attempt = Arc::clone(&attempt);
                    let key = (host.clone(), id);
                    let task = open.spawn(async move { attempt.make(host, id).await });
                    running.insert(task.id(), key);
                });
            }
            let pause = pause_of(wake.since(now));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = open.join_next_with_id(), if !open.is_empty() => {
                    let ended = match ended {
                        Ok((id, ended)) => {
                            running.remove(&id);
                            Some(ended)
                        }
                        Err(error) => {
                            tracing::error!(%error, "a callback ended abruptly");
                            running.remove(&error.id()).map(|(host, id)| Ended::unknown(host, id))
                        }
                    };
                    if let Some(ended) = ended {
                        desk.ended(&ended, self.ledger.now());
                    }
                }
                changed = follow.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(pause) => {}
            }
        }
        if tokio::time::timeout(self.grace, all_of(&mut open)).await.is_err() {
            tracing::info!(
                open = open.len(),
                "callbacks were still unanswered at the stop; they are tried again later"
            );
            // Each try was made, and the history says so.
            cut.cancel();
            drop(tokio::time::timeout(LAST_WORD, all_of(&mut open)).await);
        }
    }

    /// Brings what is due into the lanes.
    async fn look(&self, desk: &mut Desk, now: Timestamp) {
        if let Some((from, _)) = desk.again.take_if(|(_, at)| *at <= now) {
            desk.from = desk.from.min((from, CallbackId([0; 16])));
        }
        loop {
            let from = desk.from;
            let Ok(page) = self.ledger.ask(move |state| page(state, from, now)).await else {
                // Busy or stopping: later, from here.
                desk.due_at = Some(now.after(LOOK));
                return;
            };
            for found in page.found {
                let host = self.host(&found.url);
                desk.take(found, &host);
            }
            desk.from = page.next;
            desk.due_at = page.due_at;
            if page.more == More::No {
                return;
            }
        }
    }

    /// The destination by which lanes are told apart. A URL that the guard refuses has none and is not connected to.
    fn host(&self, url: &str) -> String {
        self.http.guard().check_url(url, Purpose::Callback).map_or_else(|_| String::new(), |url| url.authority())
    }

    /// Starts what may go now; answers when to come again.
    fn send(&self, desk: &mut Desk, now: Timestamp, mut start: impl FnMut(String, CallbackId)) -> Timestamp {
        let mut wake = now.after(LOOK);
        while desk.hosts.has_turn(now) {
            if let Err(later) = desk.ramp.take(now) {
                wake = wake.min(later);
                break;
            }
            let Some((host, id)) = desk.hosts.next(now) else { break };
            start(host, id);
        }
        for at in [desk.due_at, desk.hosts.wake_at(), desk.again.map(|(_, at)| at)].into_iter().flatten() {
            wake = wake.min(at);
        }
        wake
    }
}

async fn all_of(open: &mut JoinSet<Ended>) {
    while open.join_next().await.is_some() {}
}

/// How long to pause for a span: never nothing, never longer than [`LOOK`].
fn pause_of(span: Millis) -> Duration {
    Duration::from_millis(span.0.clamp(1, LOOK.0))
}

impl Ended {
    fn unknown(host: String, callback: CallbackId) -> Self {
        Self { host, callback, says: HostSays::Nothing, settled: Settled::No }
    }
}
