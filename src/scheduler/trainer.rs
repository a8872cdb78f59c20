//! Learns what capabilities mean from what agents declare, in the background.
//!
//! Why beside the ledger: what a text means is a guess from declarations that lie there already, so it is derived anew at
//! every start and never an event; what was guessed for a task is in its submission. Until something is learned, and
//! for what registered since, words speak: nobody waits for a training. One namespace is learned at a time, on one thread of
//! its own; while it learns, routes are answered by what was learned before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::{Digest, Namespace};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Standing;
use crate::ledger::store::BodyKey;
use crate::scheduler::routing::semantic::declared::{Texts, merged};
use crate::scheduler::routing::semantic::{LEAST_EXAMPLES, Learned, Profile, Router};

/// Between two looks: a fleet that registers all at once costs a few of them, not one each.
const BREATH: Duration = Duration::from_millis(100);
/// Texts of declarations kept at a time, over all namespaces; what comes after is known by its capability's name only.
const MAX_TEXTS: usize = 64 << 20;
/// What was learned, over all namespaces; beyond, a namespace is routed by words.
const MAX_LEARNED_BYTES: usize = 256 << 20;
/// Declarations read together: each may have a megabyte.
const READ_AT_ONCE: usize = 16;

/// What texts mean, by namespace.
#[derive(Debug, Default)]
pub struct Meanings {
    routers: RwLock<BTreeMap<Namespace, Arc<Router>>>,
}

impl Meanings {
    /// How texts of that namespace are routed now; `None` while nobody has declared anything there.
    #[must_use]
    pub fn of(&self, namespace: &Namespace) -> Option<Arc<Router>> {
        self.routers.read().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned()
    }

    fn put(&self, namespace: Namespace, router: Router) {
        self.routers.write().unwrap_or_else(PoisonError::into_inner).insert(namespace, Arc::new(router));
    }

    /// Bytes that all others have learned.
    fn learned_by_others(&self, namespace: &Namespace) -> usize {
        let routers = self.routers.read().unwrap_or_else(PoisonError::into_inner);
        let others = routers.iter().filter(|(of, _)| *of != namespace);
        others.filter_map(|(_, router)| Some(router.learned()?.bytes())).sum()
    }
}

/// What agents declare that take part, by namespace.
type Declared = BTreeMap<Namespace, BTreeSet<Digest>>;

/// What is known between two looks.
#[derive(Default)]
struct Known {
    declared: Declared,
    texts: BTreeMap<Digest, Arc<Texts>>,
    profiles: BTreeMap<Namespace, Arc<Vec<Profile>>>,
    /// Namespaces whose capabilities are to be learned anew.
    pending: BTreeSet<Namespace>,
    /// The one that is being learned.
    running: Option<Lesson>,
}

/// A training under way. Dropped, it stops at the next capability.
struct Lesson {
    namespace: Namespace,
    stop: Arc<AtomicBool>,
    learned: oneshot::Receiver<Option<Learned>>,
}

impl Drop for Lesson {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Goes on learning until the hub stops.
pub async fn keep_learning(ledger: Ledger, meanings: Arc<Meanings>) {
    let mut news = ledger.follow();
    let mut known = Known::default();
    let mut seen = None;
    loop {
        let now = news.borrow_and_update().registrations;
        if seen != Some(now) {
            match look(&ledger, &mut known, &meanings).await {
                Ok(()) => seen = Some(now),
                // A start that still waits, or a disk that can't be read: again after a breath.
                Err(why) => tracing::debug!(%why, "declarations could not be read"),
            }
        }
        if known.running.is_none() {
            known.running = known.pending.pop_first().and_then(|namespace| lesson(&known, namespace));
        }
        // Whoever waits here waits for the end too: a handle kept beyond it would keep the store open.
        if timeout(BREATH, news.wait_for(|_| false)).await.is_ok() {
            return;
        }
        tokio::select! {
            still = news.wait_for(|published| Some(published.registrations) != seen) => if still.is_err() { return },
            learned = ended(&mut known.running) => {
                if let Some(lesson) = known.running.take() {
                    put(&meanings, &known, &lesson.namespace, learned);
                }
            }
        }
    }
}

/// Waits for the training under way; for ever if there is none.
async fn ended(running: &mut Option<Lesson>) -> Option<Learned> {
    match running {
        Some(lesson) => (&mut lesson.learned).await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// Routes by what was learned, or by words if there is no room for it.
fn put(meanings: &Meanings, known: &Known, namespace: &Namespace, learned: Option<Learned>) {
    let Some(profiles) = known.profiles.get(namespace) else { return };
    let others = meanings.learned_by_others(namespace);
    let fits = learned.filter(|learned| others + learned.bytes() <= MAX_LEARNED_BYTES);
    if fits.is_none() {
        tracing::warn!(%namespace, "no room for what was learned: words route this namespace");
    }
    let router = Router::new(profiles, fits.map(Arc::new));
    tracing::info!(%namespace, capabilities = profiles.len(), bytes = router.bytes(), "learned what texts mean");
    meanings.put(namespace.clone(), router);
}

/// Begins to learn, if there is enough to learn from.
fn lesson(known: &Known, namespace: Namespace) -> Option<Lesson> {
    let profiles = Arc::clone(known.profiles.get(&namespace)?);
    let stop = Arc::new(AtomicBool::new(false));
    let (told, learned) = oneshot::channel();
    let stops = Arc::clone(&stop);
    let spawned = std::thread::Builder::new().name("learner".to_owned()).spawn(move || {
        let mut step =
            |_, _| if stops.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        drop(told.send(Learned::learn(&profiles, &mut step)));
    });
    match spawned {
        Ok(_) => Some(Lesson { namespace, stop, learned }),
        Err(error) => {
            tracing::warn!(%error, "no thread to learn on: words route this namespace");
            None
        }
    }
}

/// Can anything be learned there?
fn is_rich(profiles: &[Profile]) -> bool {
    profiles.iter().filter(|one| one.examples.len() >= LEAST_EXAMPLES).count() >= 2
}

/// Reads what agents declare now. Where that has changed, words route by it at once, and it is to be learned.
async fn look(ledger: &Ledger, known: &mut Known, meanings: &Meanings) -> Result<(), Unavailable> {
    let declared = ledger.ask(declared).await?;
    let wanted: BTreeSet<Digest> = declared.values().flatten().copied().collect();
    known.texts.retain(|digest, _| wanted.contains(digest));
    let mut room = MAX_TEXTS.saturating_sub(known.texts.values().map(|texts| texts.bytes()).sum());
    let missing: Vec<Digest> = wanted.into_iter().filter(|digest| !known.texts.contains_key(digest)).collect();
    for some in missing.chunks(READ_AT_ONCE) {
        let bodies = ledger.bodies(some.iter().map(|digest| BodyKey::Named(*digest)).collect()).await?;
        for (digest, body) in some.iter().zip(bodies) {
            let mut texts = body.map(|body| Texts::of(&body.bytes)).unwrap_or_default();
            if texts.bytes() > room {
                tracing::warn!(%digest, "more declared texts than are kept: this declaration is known by its names only");
                texts.forget();
            }
            room = room.saturating_sub(texts.bytes());
            known.texts.insert(*digest, Arc::new(texts));
        }
    }
    for (namespace, digests) in &declared {
        if known.declared.get(namespace) == Some(digests) {
            continue;
        }
        let texts = digests.iter().filter_map(|digest| known.texts.get(digest)).map(Arc::as_ref);
        let profiles = merged(texts);
        let rich = is_rich(&profiles);
        let before = meanings.of(namespace).filter(|_| rich).and_then(|router| router.learned().cloned());
        meanings.put(namespace.clone(), Router::new(&profiles, before));
        known.profiles.insert(namespace.clone(), Arc::new(profiles));
        if rich {
            known.pending.insert(namespace.clone());
        }
    }
    known.declared = declared;
    Ok(())
}

fn declared(state: &State) -> Declared {
    let mut declared = Declared::new();
    for agent in state.agents().values() {
        match agent.standing {
            Standing::Active | Standing::Draining { .. } => {
                declared.entry(agent.key.namespace.clone()).or_default().insert(agent.declaration.body);
            }
            Standing::Offline | Standing::Deregistered => {}
        }
    }
    declared
}
