//! Hands pushes to HTTP agents (semantics 8).
//!
//! Level-triggered: it asks the state which pushes are handed over and unacknowledged, leaves out those that it has in
//! hand, posts the rest, and proposes what came of each. Nobody else retries a push.
//!
//! - A push waits in line only until its reach time is nearly over, so that one that never left is told as never sent
//!   before the ledger must call it ambiguous.
//! - The places in line are held while connecting, not while the agent works: a dead agent takes at most
//!   [`CONNECTING_TO_ONE`] of [`CONNECTING`], and a slow one none.
//! - A sent push stays open until its work time is over; the ledger makes it slow meanwhile, and a late answer still
//!   counts.
//! - What was handed over before this start counts as sent (semantics 8) and is never posted again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::answer::{MAX_RESULT, Meaning, Said, meaning};
use super::guard::Purpose;
use super::http::{HttpClient, Limits, Outgoing};
use super::report::intake;
use super::{propose, wall, wire};
use crate::ledger::handle::{Handed, Ledger, Phase, Refusal};
use crate::ledger::ids::{AgentKey, AttemptNo, Incarnation, LeaseDigest, ReachId, Seq};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Transport;
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::{Delivery, Status};
use crate::ledger::time::Millis;

/// Pushes that connect at once, over all agents.
pub const CONNECTING: usize = 256;
/// Pushes that connect to one agent at once.
pub const CONNECTING_TO_ONE: usize = 16;
/// Pushes in hand at once: waiting in line, connecting or awaiting an answer.
pub const IN_HAND: usize = 4_096;
/// Pushes taken from the state in one look.
const PAGE: usize = 256;
/// Looks at least so often, whatever wakes it.
const LOOK: Duration = Duration::from_secs(1);
/// A push that never left is given up so long before its reach time is over, or a tenth of it if that is less.
const MARGIN: Millis = Millis(200);
/// Waits for an answer so much longer than the ledger does, so that the ledger's word comes first.
const BEYOND: Millis = Millis::secs(1);

/// One push to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Push {
    pub(super) handed: Handed,
    pub(super) agent: AgentKey,
    pub(super) incarnation: Incarnation,
    pub(super) lease: LeaseDigest,
    /// `None` when the agent has changed its transport since.
    pub(super) endpoint: Option<Text>,
}

type Key = (ReachId, AttemptNo);
type InHand = Arc<Mutex<BTreeSet<Key>>>;

pub(super) struct Dispatcher {
    pub(super) ledger: Ledger,
    pub(super) http: HttpClient,
    pub(super) sent_before: Seq,
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
}

impl Dispatcher {
    pub(super) async fn run(self) {
        let mut follow = self.ledger.follow();
        let hand = Arc::new(Hand { ledger: self.ledger.clone(), http: self.http.clone(), line: Line::new() });
        let in_hand = InHand::default();
        let mut open: JoinSet<()> = JoinSet::new();
        let mut keys: HashMap<tokio::task::Id, Key> = HashMap::new();
        let (mut seen, mut is_due) = (0, true);
        while !self.stop.is_cancelled() {
            let (phase, pushes) = {
                let published = follow.borrow_and_update();
                (published.phase, published.pushes)
            };
            let is_open = !matches!(phase, Phase::Starting | Phase::NoRoom | Phase::Stopped);
            if is_open && (is_due || pushes != seen) {
                seen = pushes;
                let found = self.look(&in_hand).await;
                is_due = found.len() == PAGE;
                for push in found {
                    let key = (push.handed.spec.reach_id, push.handed.attempt);
                    let room = if keys.len() < IN_HAND { Room::Yes } else { Room::No };
                    lock(&in_hand).insert(key);
                    let hand = Arc::clone(&hand);
                    keys.insert(open.spawn(async move { hand.deliver(push, room).await }).id(), key);
                }
                if is_due {
                    continue;
                }
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                Some(ended) = open.join_next_with_id(), if !open.is_empty() => {
                    let id = match &ended {
                        Ok((id, ())) => *id,
                        Err(error) => {
                            tracing::error!(%error, "a push ended abruptly");
                            error.id()
                        }
                    };
                    if let Some(key) = keys.remove(&id) {
                        lock(&in_hand).remove(&key);
                    }
                }
                changed = follow.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(LOOK) => is_due = true,
            }
        }
        self.finish(&hand, &in_hand, open).await;
    }

    async fn look(&self, in_hand: &InHand) -> Vec<Push> {
        let (in_hand, sent_before) = (Arc::clone(in_hand), self.sent_before);
        let found = self.ledger.ask(move |state| outstanding(state, &lock(&in_hand), sent_before)).await;
        found.unwrap_or_else(|error| {
            tracing::debug!(%error, "pushes can't be looked up now");
            Vec::new()
        })
    }

    /// What was not begun goes back to the queue; what is on its way gets the grace.
    async fn finish(&self, hand: &Arc<Hand>, in_hand: &InHand, mut open: JoinSet<()>) {
        for push in self.look(in_hand).await {
            let meaning = not_now("hub-stopping");
            let hand = Arc::clone(hand);
            open.spawn(async move { hand.tell(&push, meaning).await });
        }
        let all = async { while open.join_next().await.is_some() {} };
        if tokio::time::timeout(self.grace, all).await.is_err() {
            tracing::info!("pushes were still unanswered at the stop; they count as sent at the next start");
        }
    }
}

/// Pushes that are handed over, unacknowledged and not in hand: at most [`PAGE`].
fn outstanding(state: &State, in_hand: &BTreeSet<Key>, sent_before: Seq) -> Vec<Push> {
    let tasks = state.pushes().iter().filter_map(|id| state.task(*id));
    let fresh = tasks.filter(|task| task.seqs.last().is_some_and(|last| *last > sent_before));
    let pushes = fresh.filter_map(|task| {
        let Status::Dispatched { lease, .. } = &task.status else { return None };
        if lease.delivery != Delivery::Push || in_hand.contains(&(task.id(), lease.attempt)) {
            return None;
        }
        let agent = AgentKey { namespace: task.namespace.clone(), agent_id: lease.agent.clone() };
        let endpoint = state.agent(&agent).and_then(|agent| match &agent.declaration.transport {
            Transport::Http { endpoint } => Some(endpoint.clone()),
            Transport::Pull => None,
        });
        let handed = Handed::of(task, state.at())?;
        Some(Push { handed, agent, incarnation: lease.incarnation, lease: lease.digest, endpoint })
    });
    pushes.take(PAGE).collect()
}

fn lock(in_hand: &InHand) -> std::sync::MutexGuard<'_, BTreeSet<Key>> {
    in_hand.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is there room for one more in hand?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Yes,
    No,
}

/// The places of those who connect.
struct Line {
    all: Arc<Semaphore>,
    by_agent: Mutex<BTreeMap<AgentKey, Arc<Semaphore>>>,
}

type Places = (tokio::sync::OwnedSemaphorePermit, tokio::sync::OwnedSemaphorePermit);

impl Line {
    fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(CONNECTING)), by_agent: Mutex::default() }
    }

    fn of(&self, agent: &AgentKey) -> Arc<Semaphore> {
        let mut by_agent = self.by_agent.lock().unwrap_or_else(PoisonError::into_inner);
        if by_agent.len() > IN_HAND {
            by_agent.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let places = by_agent.entry(agent.clone());
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(CONNECTING_TO_ONE))))
    }

    /// The agent's own place first, so that its line stands before its own door and not before everybody's.
    async fn places(&self, agent: &AgentKey) -> Option<Places> {
        let own = self.of(agent).acquire_owned().await.ok()?;
        let shared = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some((own, shared))
    }
}

fn not_now(code: &str) -> Meaning {
    Meaning::NeverStarted {
        class: FailureClass::Hub,
        code: code.into(),
        retry_after: Some(Millis::secs(1)),
        said: Said::NotNow,
    }
}

struct Hand {
    ledger: Ledger,
    http: HttpClient,
    line: Line,
}

impl Hand {
    async fn deliver(&self, push: Push, room: Room) {
        let meaning = match room {
            Room::Yes => self.attempt(&push).await,
            Room::No => not_now("push-limit"),
        };
        self.tell(&push, meaning).await;
    }

    async fn attempt(&self, push: &Push) -> Meaning {
        let Some(endpoint) = &push.endpoint else { return not_now("endpoint-gone") };
        let body = match wire::hand_over(&self.ledger, std::slice::from_ref(&push.handed)).await {
            Ok(written) => written.into_iter().next(),
            Err(error) => {
                tracing::error!(%error, reach_id = %push.handed.spec.reach_id, "a payload can't be handed over");
                None
            }
        };
        let Some(body) = body else { return not_now("payload-unreadable") };
        let left = push.handed.reach_deadline.since(self.ledger.now());
        let connect = Duration::from_millis(left.0 - MARGIN.0.min(left.0 / 10));
        let begun = tokio::time::Instant::now();
        let Ok(Some(places)) = tokio::time::timeout(connect, self.line.places(&push.agent)).await else {
            return not_now("push-line-full");
        };
        let answer = self.http.post(Outgoing {
            purpose: Purpose::Agent,
            url: endpoint.to_string(),
            headers: self.headers(push),
            body: Bytes::from(String::from(Box::<str>::from(body))),
            limits: Limits {
                connect: connect.saturating_sub(begun.elapsed()),
                total: Duration::from_millis(left.0 + push.handed.work_timeout.0 + BEYOND.0),
                max_body: MAX_RESULT,
            },
            until_sent: Some(Box::new(places)),
        });
        meaning(answer.await, wall(&self.ledger))
    }

    fn headers(&self, push: &Push) -> HeaderMap {
        let handed = &push.handed;
        let id = handed.spec.reach_id;
        let lease = self.ledger.keys().lease(self.ledger.published().lineage, id, handed.attempt);
        let mut headers = headers(&[
            ("reach-id", id.to_string()),
            ("reach-attempt", handed.attempt.0.to_string()),
            ("reach-deadline", handed.deadline.to_string()),
            ("idempotency-key", format!("{id}.{}", handed.attempt.0)),
        ]);
        if let Ok(mut value) = HeaderValue::from_str(lease.expose()) {
            value.set_sensitive(true);
            headers.insert("reach-lease", value);
        }
        if let Some(value) = handed.trace.and_then(|trace| HeaderValue::from_str(&trace.to_string()).ok()) {
            headers.insert("traceparent", value);
        }
        headers
    }

    async fn tell(&self, push: &Push, meaning: Meaning) {
        let (reach_id, agent) = (push.handed.spec.reach_id, &push.agent.agent_id);
        let intake = match intake(push, meaning) {
            Ok(intake) => intake,
            Err(error) => {
                tracing::error!(%reach_id, %error, "a push's outcome can't be written down");
                return;
            }
        };
        match propose::insist(&self.ledger, intake).await {
            Ok(_) => {}
            Err(Refusal::Rejected(why)) => tracing::debug!(%reach_id, %agent, ?why, "a push's answer came too late"),
            Err(Refusal::Unavailable(error)) => tracing::warn!(%reach_id, %error, "a push's outcome was not taken"),
        }
    }
}

/// JSON headers and these.
pub(super) fn headers(pairs: &[(&'static str, String)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in pairs {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}
