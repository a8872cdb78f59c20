//! The workers against a real ledger in memory and receivers on local sockets.

mod alerts;
mod callbacks;
mod pushes;

use std::sync::Arc;
use std::time::Duration;

use super::guard::{Guard, Loopback};
use super::receiver::{Canary, Receiver, Reply};
use super::secrets::Secrets;
use super::{Handle, Options, samples, spawn};
use crate::ledger::handle::{Intake, Ledger, Phase, Released};
use crate::ledger::ids::{
    AgentId, AgentKey, AttemptNo, Capability, Digest, Incarnation, LeaseDigest, ReachId, TokenId,
};
use crate::ledger::keys::Keys;
use crate::ledger::launch::{ClockLeap, Launch, Running, launch};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{CapabilityKind, Declaration, Offer, ProgressRule, Sensitive, Transport};
use crate::ledger::machine::command::{Command, Proposal, Report, Word};
use crate::ledger::machine::event::{Actor, Explanation};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{BodyRef, Submission};
use crate::ledger::machine::task::status::{Delivery, StatusKind};
use crate::ledger::store::memory::MemoryStore;
use crate::ledger::store::{Body, BodyKey, BodyKind, Store};
use crate::ledger::time::{Clock, Millis, SimClock};

/// No test waits longer than this for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

struct Hub {
    clock: Arc<SimClock>,
    running: Running,
    outbound: Option<Handle>,
    secrets: Arc<Secrets>,
    _folder: tempfile::TempDir,
}

fn dev() -> Guard {
    Guard { loopback: Loopback::Allowed, ..Guard::default() }
}

fn keys() -> Keys {
    Keys::from_master(&[7; 32])
}

impl Hub {
    async fn start() -> Self {
        Self::start_on(Arc::new(MemoryStore::new()), dev()).await
    }

    /// Past the ramp that a start begins with.
    async fn start_on(store: Arc<MemoryStore>, guard: Guard) -> Self {
        let hub = Self::launch_on(store, guard).await;
        hub.pass(Millis::secs(30));
        hub
    }

    async fn launch_on(store: Arc<MemoryStore>, guard: Guard) -> Self {
        let clock = Arc::new(SimClock::new());
        let running = launch(Launch {
            store: store as Arc<dyn Store>,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            keys: keys(),
            planners: Vec::new(),
            leap: ClockLeap::Refuse,
        })
        .await
        .expect("starts");
        let folder = tempfile::tempdir().expect("a folder");
        let secrets = Secrets::open(folder.path().join("callback-secrets"), &keys()).expect("opens");
        let secrets = Arc::new(secrets);
        let options = Options::new(guard, Arc::clone(&secrets), running.found.seq);
        let outbound = Some(spawn(&running.ledger, options).expect("a client"));
        running.ledger.enter(Phase::Open).await.expect("opens");
        Self { clock, running, outbound, secrets, _folder: folder }
    }

    fn ledger(&self) -> &Ledger {
        &self.running.ledger
    }

    fn pass(&self, span: Millis) {
        self.clock.advance(span);
        self.ledger().nudge();
    }

    async fn propose(&self, intake: impl Into<Intake>) -> Released {
        self.ledger().propose(intake).await.expect("taken")
    }

    async fn register(&self, name: &str, transport: Transport) {
        let offer = Offer {
            capability: Capability::new("weather.forecast").expect("a capability"),
            kind: CapabilityKind::Service,
            schemas: Vec::new(),
            tools: Vec::new(),
            languages: Vec::new(),
            context_window: None,
            weight: 10,
            priority: 100,
            strategy: None,
            progress: ProgressRule::Shows,
            sensitive: Sensitive::No,
        };
        let declaration = Declaration {
            version: None,
            region: None,
            offers: vec![offer],
            transport,
            heartbeat_interval: Millis::secs(3_600),
            max_concurrency: 100,
            max_pending: 1_000,
            priority: 100,
            load_threshold_milli: 900,
            allowed_callers: Vec::new(),
            body: Digest::default(),
        };
        let command = Command::RegisterAgent { agent: agent(name), instance: None, declaration: Box::new(declaration) };
        self.propose(by_token(command)).await;
    }

    async fn submit(&self, mut submission: Submission, payload: Option<&str>) {
        let id = submission.reach_id;
        let mut bodies = Vec::new();
        if let Some(text) = payload {
            let body = Body { salt: [1; 16], bytes: text.as_bytes().into() };
            submission.payload = Some(named(&body));
            bodies.push((BodyKey::Task { task: id, kind: BodyKind::Payload, attempt: 0 }, body));
        }
        let proposal = by_token(Command::SubmitTask { submission: Arc::new(submission), bound: None, routed: None });
        self.propose(Intake { proposal, bodies }).await;
    }

    async fn dispatch(&self, id: ReachId, to: &str, delivery: Delivery) {
        let explanation = Explanation {
            strategy: "test".into(),
            score: Vec::new(),
            runners_up: Vec::new(),
            exclusions: Vec::new(),
            rules: None,
        };
        let command = Command::DispatchTask {
            task: id,
            agent: agent(to),
            incarnation: Incarnation(1),
            delivery,
            lease: LeaseDigest::default(),
            explanation: Box::new(explanation),
        };
        self.propose(Proposal::by_hub(Some(samples::namespace()), command)).await;
    }

    async fn report(&self, id: ReachId, from: &str, word: Word, bodies: Vec<(BodyKey, Body)>) {
        let lease = self.ledger().keys().lease_digest(self.ledger().published().lineage, id, AttemptNo(1));
        let report = Report {
            task: id,
            agent: agent(from),
            incarnation: Incarnation(1),
            attempt: AttemptNo(1),
            lease,
            word,
            fact: None,
        };
        let proposal = Proposal {
            namespace: Some(samples::namespace()),
            actor: Actor::Agent { agent_id: agent(from), incarnation: Incarnation(1) },
            trace: None,
            command: Command::Report(Box::new(report)),
        };
        self.propose(Intake { proposal, bodies }).await;
    }

    /// Waits for the state to show it, looking after every commit.
    async fn until<T: Send + 'static>(&self, look: impl Fn(&State) -> Option<T> + Send + Sync + Clone + 'static) -> T {
        let mut follow = self.ledger().follow();
        let all = async {
            loop {
                follow.borrow_and_update();
                let look = look.clone();
                if let Some(found) = self.ledger().ask(move |state| look(state)).await.expect("answers") {
                    return found;
                }
                follow.changed().await.expect("runs");
            }
        };
        tokio::time::timeout(PATIENCE, all).await.expect("it shows in time")
    }

    async fn until_kind(&self, id: ReachId, kind: StatusKind) -> Task {
        let ledger = self.ledger().clone();
        let look = || {
            let ledger = ledger.clone();
            async move { ledger.task(id).await.map(|task| task.filter(|task| task.status.kind() == kind)) }
        };
        let found = ledger.watch(id).until(PATIENCE, look).await.expect("answers");
        match found {
            Some(task) => task,
            None => panic!("never {kind:?}: {:?}", ledger.task(id).await.expect("answers").map(|task| task.status)),
        }
    }
}

fn agent(name: &str) -> AgentId {
    AgentId::new(name).expect("an id")
}

fn named(body: &Body) -> BodyRef {
    BodyRef { digest: body.digest(), len: u32::try_from(body.bytes.len()).expect("small") }
}

fn by_token(command: Command) -> Proposal {
    let actor = Actor::Token(TokenId::new("caller").expect("an id"));
    Proposal { namespace: Some(samples::namespace()), actor, trace: None, command }
}

fn id(n: u8) -> ReachId {
    ReachId([n; 16])
}
