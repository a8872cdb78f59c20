//! What a seed's world looks like: its agents, what is submitted when and with which wishes.

use std::sync::Arc;

use agent_reach::ledger::ids::{
    AgentId, AgentKey, BatchId, Capability, Digest, FairnessKey, Lineage, Namespace, ReachId, SessionId, TokenId,
};
use agent_reach::ledger::machine::agent::{
    CapabilityKind, Declaration, DrainMode, Offer, ProgressRule, Sensitive, Strategy, Transport,
};
use agent_reach::ledger::machine::breaker::BreakerWord;
use agent_reach::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use agent_reach::ledger::machine::policy::Policy;
use agent_reach::ledger::machine::routing::{RoutingChange, RoutingRules, Tiers};
use agent_reach::ledger::machine::task::spec::{
    AbsentAgents, Approval, BodyRef, Idempotence, OnWait, OrphanPolicy, Qos, Requires, RetryCause, RetryPolicy,
    SchemaVerdicts, SlowPolicy, Submission,
};
use agent_reach::ledger::store::Body;
use agent_reach::ledger::time::Millis;

use crate::agents::Agent;
use crate::arrivals::salt;
use crate::callers::{Key, Order, What};
use crate::chance::Chance;
use crate::incident::Measure;
use crate::operator::Errand;
use crate::patches;
use crate::work::falls_ill;

/// Receivers of callbacks.
pub(crate) const RECEIVERS: u64 = 5;
pub(crate) const CAPABILITIES: [&str; 3] = ["text.count", "text.sort", "image.scan"];

/// The schema that some agents want their payloads checked against.
pub(crate) fn schema() -> Digest {
    Digest::of(&[b"schema"])
}

/// What the seed decided before anything happens.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// How long things go wrong, in milliseconds.
    pub(crate) span: u64,
    pub(crate) deaths: u64,
    pub(crate) jumps: u64,
    pub(crate) lineage: Lineage,
    /// Events of a batch before it is handed over.
    pub(crate) full: usize,
    /// Long work on agents with many slots, most of which are lost in one storm: many orphans at once.
    heavy: bool,
    /// Agents that flap, sessions of many tasks, and operators who are busy with both.
    incident: bool,
    /// The last capability is only for payloads that were checked, whoever offers it.
    strict: bool,
    tasks: u64,
    namespaces: u64,
    fleet: u64,
}

impl Plan {
    pub(crate) fn drawn(chance: &mut Chance, seed: u64) -> Self {
        let mut lineage = [0x11; 16];
        lineage[..8].copy_from_slice(&seed.to_be_bytes());
        let full = if chance.hits(250) { chance.between(8, 40) } else { 512 };
        Self {
            span: chance.between(8_000, 40_000),
            deaths: chance.below(5),
            jumps: chance.below(3),
            lineage: Lineage(lineage),
            heavy: chance.hits(250),
            incident: chance.hits(400),
            strict: seed.is_multiple_of(5),
            full: usize::try_from(full).unwrap_or(512),
            tasks: chance.between(70, 130),
            namespaces: chance.between(1, 2),
            fleet: chance.between(2, 5),
        }
    }

    pub(crate) fn namespace(&self, index: u64) -> Namespace {
        let name = if index.is_multiple_of(self.namespaces) { "north" } else { "south" };
        Namespace::new(name).expect("a namespace")
    }

    /// The fleet.
    pub(crate) fn agents(&self, chance: &mut Chance) -> Vec<Agent> {
        let total = self.namespaces * self.fleet;
        (0..total).map(|n| self.agent(chance, n)).collect()
    }

    fn agent(&self, chance: &mut Chance, n: u64) -> Agent {
        let pull = chance.hits(650);
        let agent_id = AgentId::new(&format!("agent-{n}")).expect("an id");
        let key = AgentKey { namespace: self.namespace(n), agent_id };
        let offers = CAPABILITIES.iter().enumerate().filter_map(|(index, name)| {
            // Every other capability is offered by somebody without conditions: the first agent of each namespace has all.
            let index = u64::try_from(index).unwrap_or(0);
            let choosy = match (self.strict && index == 2, n < self.namespaces) {
                (true, _) => 1_000,
                (false, true) => 0,
                (false, false) => 150,
            };
            (n < self.namespaces || chance.hits(600) || index == n % 3).then(|| offer(chance, name, choosy))
        });
        let offers =
            offers.map(|offer| Offer { priority: if n.is_multiple_of(2) { 100 } else { 200 }, ..offer }).collect();
        let endpoint: Arc<str> = format!("https://agent-{n}.example/reach").into();
        let declaration = Declaration {
            version: chance.hits(300).then(|| "1.4.2".into()),
            region: chance.hits(300).then(|| "cn-east".into()),
            offers,
            transport: if pull { Transport::Pull } else { Transport::Http { endpoint } },
            heartbeat_interval: Millis(chance.between(500, 3_000)),
            max_concurrency: *chance.pick(&[1, 2, 4, 10]),
            max_pending: 1_000,
            priority: 100,
            load_threshold_milli: 900,
            allowed_callers: if n >= self.namespaces && chance.hits(100) { vec![token(0)] } else { Vec::new() },
            body: Digest::of(&[b"declaration", &n.to_be_bytes()]),
        };
        let mut agent = Agent::new(key, declaration, chance);
        if self.heavy {
            agent.declaration.max_concurrency = 10;
            agent.slow = 700;
        }
        if self.incident {
            agent.frail = agent.frail.max(*chance.pick(&[20, 80, 200]));
        }
        agent
    }

    /// Everything that callers will do.
    pub(crate) fn orders(&self, chance: &mut Chance) -> Vec<Order> {
        let mut orders: Vec<Order> = Vec::new();
        let mut left = self.tasks;
        let mut n = 0;
        while left > 0 {
            n += 1;
            let at = if chance.hits(300) { chance.below(500) } else { chance.below(self.span * 9 / 10) } + 500;
            let caller = chance.below(4);
            let namespace = self.namespace(chance.below(2));
            let again = (!orders.is_empty() && chance.hits(80)).then(|| chance.pick(&orders).clone());
            let sessions = if self.incident { (500, 4) } else { (200, 7) };
            let order = match again.filter(|old| old.key.is_some() && matches!(old.what, What::One(_))) {
                Some(old) => again_of(chance, old, at),
                None if chance.hits(50) => {
                    let size = chance.between(2, 8).min(left);
                    left -= size;
                    let lines = (0..size).map(|_| submission(chance, (n, caller), sessions)).collect();
                    Order::new(at, (caller, namespace), What::Many(lines), key(chance, n))
                }
                None => {
                    left -= 1;
                    let one = Box::new(submission(chance, (n, caller), sessions));
                    Order::new(at, (caller, namespace), What::One(one), key(chance, n))
                }
            };
            orders.push(if self.heavy { order.with_long_work() } else { order });
        }
        orders
    }

    /// What operators will do.
    pub(crate) fn errands(&self, chance: &mut Chance) -> Vec<(u64, Errand)> {
        let mut errands = Vec::new();
        for index in 0..self.namespaces {
            errands.push((40, Errand::Policy(self.namespace(index), policy(chance))));
        }
        errands.push((60, Errand::Tokens));
        let total = self.namespaces * self.fleet;
        for _ in 0..chance.below(4) {
            let agent = usize::try_from(chance.below(total)).unwrap_or(0);
            let after = chance.between(2_000, self.span);
            let mode = if chance.hits(500) { DrainMode::Finish } else { DrainMode::HandOver };
            errands.push((after, Errand::Drain(agent, mode, Millis(chance.between(0, 4_000)))));
        }
        if chance.hits(200) {
            let agent = usize::try_from(chance.below(total)).unwrap_or(0);
            errands.push((chance.between(2_000, self.span), Errand::Deregister(agent)));
        }
        if chance.hits(300) {
            let namespace = self.namespace(chance.below(2));
            errands.push((chance.between(2_000, self.span), Errand::Policy(namespace, policy(chance))));
        }
        if self.heavy || chance.hits(300) {
            errands.push((chance.between(self.span / 3, self.span * 3 / 4), Errand::Storm));
        }
        for _ in 0..3 {
            errands.push((chance.between(3_000, self.span), Errand::SchemaChecked));
        }
        if chance.hits(200) {
            errands.push((chance.between(3_000, self.span * 2), Errand::EraseCallback));
        }
        for _ in 0..2 {
            errands.push((chance.between(self.span, self.span * 3), Errand::RedriveCallback));
        }
        self.measures(chance, &mut errands);
        self.breaker_words(chance, &mut errands);
        self.routing_words(chance, &mut errands);
        errands
    }

    /// What operators will say to breakers: to some while their agent is ill, in the midst of a count.
    fn breaker_words(&self, chance: &mut Chance, errands: &mut Vec<(u64, Errand)>) {
        let total = self.namespaces * self.fleet;
        let agent = usize::try_from(chance.below(total)).unwrap_or(0);
        let (first, span) = (chance.between(1_000, self.span), chance.between(500, 6_000));
        for (n, word) in (0..).zip([BreakerWord::Open, BreakerWord::Closed, BreakerWord::Automatic]) {
            errands.push((first + n * span, Errand::Breaker(agent, word)));
        }
        let (first, span) = (chance.between(1_000, self.span), chance.between(500, 3_000));
        errands.push((first, Errand::Breaker(agent, BreakerWord::Open)));
        errands.push((first + span, Errand::Breaker(agent, BreakerWord::Automatic)));
        for ill in 0..self.fleet.min(3) {
            let (agent, first) = (usize::try_from(ill).unwrap_or(0), falls_ill(ill) + 1_500);
            errands.push((first, Errand::Breaker(agent, BreakerWord::Closed)));
            errands.push((first + 800, Errand::Breaker(agent, BreakerWord::Automatic)));
        }
    }

    /// What operators will say of how tasks are given out.
    fn routing_words(&self, chance: &mut Chance, errands: &mut Vec<(u64, Errand)>) {
        for _ in 0..chance.between(1, 6) {
            let capability = Capability::new(chance.pick::<&str>(&CAPABILITIES)).expect("a capability");
            let (namespace, change) = (self.namespace(chance.below(2)), self.routing(chance));
            errands.push((chance.between(1_000, self.span), Errand::Routing(namespace, capability, change)));
        }
    }

    /// One of them.
    fn routing(&self, chance: &mut Chance) -> RoutingChange {
        if chance.hits(300) {
            return RoutingChange::Undo;
        }
        let strategy = chance.hits(700).then(|| *chance.pick(&Strategy::ALL));
        let fleet = 0..self.namespaces * self.fleet;
        let weighed = fleet.filter(|_| chance.hits(500)).map(|n| AgentId::new(&format!("agent-{n}")).expect("an id"));
        let weighed: Vec<AgentId> = weighed.collect();
        let weights = weighed.into_iter().map(|agent| (agent, chance.small(1, 30))).collect();
        let tiers = if chance.hits(400) { Tiers::Yes } else { Tiers::No };
        RoutingChange::Set(RoutingRules { strategy, weights, tiers })
    }

    /// What operators will do about replays; a little of it comes when the faults have ended.
    fn measures(&self, chance: &mut Chance, errands: &mut Vec<(u64, Errand)>) {
        let busy = if self.incident { 3 } else { 1 };
        for (measure, most) in [
            (Measure::Plan, 3 * busy),
            (Measure::Redrive, 4 * busy),
            (Measure::Resolve, 3 * busy),
            (Measure::Rules, 2 * busy),
        ] {
            for _ in 0..chance.between(0, most) {
                let namespace = self.namespace(chance.below(2));
                let after = chance.between(self.span / 5, self.span + 5_000);
                errands.push((after, Errand::Measure(namespace, measure.clone())));
            }
        }
        errands.push((self.span + 10_000, Errand::Measure(self.namespace(0), Measure::Tidy)));
    }
}

/// A caller's token.
pub(crate) fn token(n: u64) -> TokenId {
    TokenId::new(&format!("caller-{n}")).expect("an id")
}

/// A payload with its own salt.
pub(crate) fn payload(chance: &mut Chance) -> Body {
    let bytes = patches::content(chance.draw());
    Body { salt: salt(chance.draw()), bytes: bytes.into() }
}

/// What an event says of a body.
pub(crate) fn body_ref(body: &Body) -> BodyRef {
    BodyRef { digest: body.digest(), len: u32::try_from(body.bytes.len()).unwrap_or(u32::MAX) }
}

/// An id as the API draws it: it sorts by time.
pub(crate) fn id(at: u64, serial: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&(at << 16 | 0x7000).to_be_bytes());
    id[8..].copy_from_slice(&serial.to_be_bytes());
    id
}

fn policy(chance: &mut Chance) -> Policy {
    let unhealthy_after = chance.small(1, 3);
    Policy {
        unhealthy_after,
        lost_after: unhealthy_after + chance.small(1, 3),
        replays_per_second: *chance.pick(&[1, 2, 8]),
        lane_bound: chance.small(8, 200),
        namespace_bound: chance.small(30, 300),
    }
}

/// An offer that asks for a checked payload in so many of a thousand cases.
fn offer(chance: &mut Chance, name: &str, choosy: u64) -> Offer {
    let choosy = chance.hits(choosy);
    Offer {
        capability: Capability::new(name).expect("a capability"),
        kind: CapabilityKind::Service,
        schemas: if choosy { vec![schema()] } else { Vec::new() },
        tools: if chance.hits(400) { vec!["ocr".into()] } else { Vec::new() },
        languages: Vec::new(),
        context_window: None,
        weight: chance.small(1, 20),
        priority: 100,
        strategy: chance.hits(300).then_some(Strategy::LeastLoaded),
        progress: if chance.hits(400) { ProgressRule::Extends } else { ProgressRule::Shows },
        sensitive: if chance.hits(20) { Sensitive::Yes } else { Sensitive::No },
    }
}

fn key(chance: &mut Chance, n: u64) -> Option<Key> {
    chance.hits(600).then(|| Key {
        text: format!("key-{n}"),
        fingerprint: Digest::of(&[b"body", &n.to_be_bytes()]),
        window: Millis(*chance.pick(&[5_000, 60_000, 86_400_000])),
    })
}

/// A later submission with a key that was used before.
fn again_of(chance: &mut Chance, mut old: Order, at: u64) -> Order {
    old.at = old.at.max(at) + chance.below(8_000);
    match chance.below(3) {
        0 => {}
        1 => {
            if let Some(key) = &mut old.key {
                key.fingerprint = Digest::of(&[b"another body", &at.to_be_bytes()]);
            }
        }
        _ => old.caller += 1,
    }
    old.repeats = true;
    old
}

fn submission(chance: &mut Chance, (n, caller): (u64, u64), (often, sessions): (u64, u64)) -> Submission {
    let idempotence = if chance.hits(600) { Idempotence::Declared } else { Idempotence::NotDeclared };
    let nobody = chance.hits(20);
    let lifetime = match chance.below(10) {
        0 => chance.between(300, 4_000),
        1..8 => chance.between(5_000, 40_000),
        _ => chance.between(30_000, 120_000),
    };
    Submission {
        reach_id: ReachId([0; 16]),
        capability: Capability::new(if nobody { "none.here" } else { chance.pick::<&str>(&CAPABILITIES) })
            .expect("a name"),
        payload: chance.hits(500).then(|| BodyRef { digest: schema(), len: 0 }),
        payload_ref: chance.hits(100).then(|| "s3://payloads/1".into()),
        qos: *chance.pick(&[Qos::Urgent, Qos::Normal, Qos::Normal, Qos::Background]),
        idempotence,
        lifetime: Millis(lifetime),
        deadline: None,
        not_before: None,
        reach_timeout: Millis(chance.between(300, 3_000)),
        work_timeout: Millis(chance.between(500, 6_000)),
        sync_wait: chance.hits(50).then(|| Millis(chance.between(1_000, 10_000))),
        retry: retry(chance),
        slow_reach: match chance.below(4) {
            0 | 1 => SlowPolicy::Wait,
            2 => SlowPolicy::HandOver { after: Millis(chance.between(200, 3_000)) },
            _ => SlowPolicy::Fail { after: Millis(chance.between(200, 6_000)) },
        },
        orphan: if chance.hits(if idempotence == Idempotence::Declared { 900 } else { 250 }) {
            OrphanPolicy::Replay
        } else {
            OrphanPolicy::Hold
        },
        on_wait: *chance.pick(&[OnWait::Keep, OnWait::Keep, OnWait::Fail, OnWait::Degrade]),
        session: chance.hits(often).then(|| SessionId::new(&format!("session-{}", n % sessions)).expect("an id")),
        context_path: None,
        labels: if chance.hits(100) { vec![("line".into(), "travel".into())] } else { Vec::new() },
        parent: None,
        fairness_key: FairnessKey::new(&format!("caller-{caller}")).expect("a key"),
        cost_budget: None,
        sensitivity: None,
        approval: if chance.hits(40) { Approval::Needed } else { Approval::NotNeeded },
        requires: Requires {
            tools: if chance.hits(80) { vec!["ocr".into()] } else { Vec::new() },
            ..Requires::default()
        }
        .into(),
        schemas: SchemaVerdicts {
            accepted: if chance.hits(700) { vec![schema()] } else { Vec::new() },
            refused: Vec::new(),
        },
        preferred_agent: chance.hits(50).then(|| AgentId::new("agent-1").expect("an id")),
        absent_agents: if nobody && chance.hits(500) { AbsentAgents::Refuse } else { AbsentAgents::Wait },
        callback: chance.hits(350).then(|| callback(chance).into()),
        idempotency: None,
        batch: None,
    }
}

fn retry(chance: &mut Chance) -> RetryPolicy {
    let base = chance.between(50, 1_500);
    let mut retry_on = vec![RetryCause::Reported];
    if chance.hits(400) {
        retry_on.push(RetryCause::Ambiguous);
    }
    if chance.hits(400) {
        retry_on.push(RetryCause::Overdue);
    }
    RetryPolicy {
        max_retries: chance.small(0, 3),
        base: Millis(base),
        factor_milli: chance.small(1_000, 3_000),
        cap: Millis(base + chance.between(0, 8_000)),
        retry_on,
    }
}

pub(crate) fn callback(chance: &mut Chance) -> CallbackSpec {
    let mut events = vec![CallbackEvent::Terminal];
    for event in [
        CallbackEvent::Slow,
        CallbackEvent::Retrying,
        CallbackEvent::Progress,
        CallbackEvent::Overdue,
        CallbackEvent::Orphaned,
    ] {
        if chance.hits(150) {
            events.push(event);
        }
    }
    let receiver = chance.below(RECEIVERS);
    CallbackSpec {
        url: format!("https://receiver-{receiver}.example/hook").into(),
        events,
        secret_ref: "default".into(),
    }
}

pub(crate) fn batch_id(at: u64, serial: u64) -> BatchId {
    BatchId(id(at, serial))
}
