//! Fixed samples of every event kind: each enum inside at each of its variants, because the body encoding would swap
//! two variants without a word.

use agent_reach::ledger::ids::*;
use agent_reach::ledger::machine::access::{Reach, Scope, Token};
use agent_reach::ledger::machine::agent::{
    CapabilityKind, Declaration, DrainMode, Offer, ProgressRule, Sensitive, Strategy, Transport,
};
use agent_reach::ledger::machine::callback::{CallbackEvent, CallbackSpec, CallbackSubject};
use agent_reach::ledger::machine::event::*;
use agent_reach::ledger::machine::policy::{CapabilityRules, HubPolicy, Policy};
use agent_reach::ledger::machine::task::spec::*;
use agent_reach::ledger::machine::task::status::{Delivery, OrphanCause, SlowCause};
use agent_reach::ledger::machine::task::{Failure, FailureClass};
use agent_reach::ledger::time::{Millis, Timestamp};

#[path = "breakers.rs"]
mod breakers;

#[path = "samples_replays.rs"]
mod replays;

#[path = "samples_rows.rs"]
mod rows;

pub(crate) use rows::{callback_rows, keys, success};

#[path = "routing.rs"]
mod routing;

const TASK: ReachId = ReachId([0x11; 16]);
const BATCH: BatchId = BatchId([0x22; 16]);
const CALLBACK: CallbackId = CallbackId([0x33; 16]);
const ATTEMPT: AttemptNo = AttemptNo(3);
const INCARNATION: Incarnation = Incarnation(7);
const SUBJECT: CallbackSubject = CallbackSubject::Task(TASK);

fn at(millis: u64) -> Timestamp {
    Timestamp(1_767_225_600_000 + millis)
}

fn digest(byte: u8) -> Digest {
    Digest([byte; 32])
}

fn agent() -> AgentId {
    AgentId::new("weather-1").unwrap()
}

fn token_id() -> TokenId {
    TokenId::new("tok-1").unwrap()
}

fn body_ref() -> BodyRef {
    BodyRef { digest: digest(0x44), len: 70_000 }
}

fn actors() -> [Actor; 3] {
    [Actor::Hub, Actor::Token(token_id()), Actor::Agent { agent_id: agent(), incarnation: INCARNATION }]
}

/// One event of each body; envelopes take turns.
pub(crate) fn events() -> Vec<Event> {
    let bodies = [
        hub(),
        agents(),
        submissions(),
        tasks(),
        outcomes(),
        callbacks(),
        batches(),
        access(),
        later(),
        replays::replays(),
        capability_rules(),
        replays::held(),
        vec![HubPolicyChanged { policy: HubPolicy { replays_per_second: 500 }, reason: "a launch".into() }.into()],
        replays::patched(),
        breakers::breakers(),
        routing::routing(),
    ]
    .concat();
    let envelope = |(n, body): (usize, EventBody)| {
        let full = n % 2 == 0;
        Event {
            seq: Seq(1 + n as u64 * 1_000),
            at: at(n as u64),
            namespace: full.then(|| Namespace::new("team-a").unwrap()),
            actor: actors()[n % 3].clone(),
            session: full.then(|| SessionId::new("trip-42").unwrap()),
            batch: (n % 4 == 0).then_some(BATCH),
            trace: (n % 3 == 0).then_some(TraceContext { trace_id: [5; 16], span_id: [6; 8], flags: 1 }),
            body,
        }
    };
    bodies.into_iter().enumerate().map(envelope).collect()
}

/// Shapes that came after the others: at the end, because a sample's place is in its bytes.
fn later() -> Vec<EventBody> {
    vec![
        TaskOrphaned { task: TASK, attempt: ATTEMPT, cause: OrphanCause::LossAccepted }.into(),
        HubStalled { by: Millis(60_000) }.into(),
    ]
}

fn hub() -> Vec<EventBody> {
    let lineage = Lineage([9; 16]);
    vec![
        LineageStarted { lineage, previous: None, at_seq: Seq(0), hash: digest(0), lost_up_to: None }.into(),
        LineageStarted {
            lineage,
            previous: Some(Lineage([8; 16])),
            at_seq: Seq(41),
            hash: digest(1),
            lost_up_to: Some(Seq(52)),
        }
        .into(),
        HubStarted { boot: Boot(2), wall_offset: -7_200_000, version: "0.1.0".into() }.into(),
        HubStopped { boot: Boot(2) }.into(),
        ClockJumped { wall_offset: 3_600_000, by: 1 }.into(),
    ]
}

fn offer(kind: CapabilityKind, strategy: Option<Strategy>) -> Offer {
    Offer {
        capability: Capability::new("weather.forecast").unwrap(),
        kind,
        schemas: vec![digest(2), digest(3)],
        tools: vec!["map".into()],
        languages: vec!["zh".into(), "en".into()],
        context_window: Some(8_192),
        weight: 10,
        priority: 100,
        strategy,
        progress: if strategy.is_some() { ProgressRule::Extends } else { ProgressRule::Shows },
        sensitive: if strategy.is_some() { Sensitive::Yes } else { Sensitive::No },
    }
}

fn declaration(transport: Transport) -> Declaration {
    Declaration {
        version: Some("2.1.0".into()),
        region: Some("cn-east".into()),
        offers: vec![
            offer(CapabilityKind::Tool, None),
            offer(CapabilityKind::Service, Some(Strategy::WeightedRoundRobin)),
            offer(CapabilityKind::Subagent, Some(Strategy::LeastLoaded)),
            offer(CapabilityKind::Skill, None),
        ],
        transport,
        heartbeat_interval: Millis(5_000),
        max_concurrency: 10,
        max_pending: 1_000,
        priority: 100,
        load_threshold_milli: 900,
        allowed_callers: vec![token_id()],
        body: digest(4),
    }
}

fn agents() -> Vec<EventBody> {
    let (agent, incarnation) = (agent(), INCARNATION);
    let push = declaration(Transport::Http { endpoint: "http://10.0.3.22:9001/reach".into() });
    let pull = declaration(Transport::Pull);
    let draining = |mode, reason| AgentDraining { agent: agent.clone(), incarnation, mode, until: at(30_000), reason };
    vec![
        AgentRegistered { agent: agent.clone(), incarnation, instance: Some("i-1".into()), declaration: pull.clone() }
            .into(),
        AgentRegistered { agent: agent.clone(), incarnation, instance: None, declaration: push }.into(),
        AgentUpdated { agent: agent.clone(), incarnation, declaration: pull }.into(),
        draining(DrainMode::Finish, None).into(),
        draining(DrainMode::HandOver, Some("deploy".into())).into(),
        AgentUnhealthy { agent: agent.clone(), incarnation, silent: Millis(15_000) }.into(),
        AgentHealthy { agent: agent.clone(), incarnation }.into(),
        AgentLost { agent: agent.clone(), incarnation, silent: Millis(45_000) }.into(),
        AgentLeft { agent: agent.clone(), incarnation }.into(),
        AgentDeregistered { agent: agent.clone(), incarnation }.into(),
        AgentSlotFreed { agent: agent.clone(), task: TASK, attempt: ATTEMPT }.into(),
        AgentTold { agent, task: TASK, attempt: ATTEMPT }.into(),
    ]
}

fn submission() -> Submission {
    Submission {
        reach_id: TASK,
        capability: Capability::new("weather.forecast").unwrap(),
        payload: Some(body_ref()),
        payload_ref: Some("s3://in/42".into()),
        qos: Qos::Urgent,
        idempotence: Idempotence::Declared,
        lifetime: DEFAULT_LIFETIME,
        deadline: Some(at(60_000)),
        not_before: Some(at(1_000)),
        reach_timeout: DEFAULT_REACH_TIMEOUT,
        work_timeout: DEFAULT_WORK_TIMEOUT,
        sync_wait: Some(Millis(30_000)),
        retry: RetryPolicy {
            retry_on: vec![RetryCause::Reported, RetryCause::Ambiguous, RetryCause::Overdue],
            ..RetryPolicy::default()
        },
        slow_reach: SlowPolicy::HandOver { after: Millis(1_500) },
        orphan: OrphanPolicy::Replay,
        on_wait: OnWait::Keep,
        session: Some(SessionId::new("trip-42").unwrap()),
        context_path: Some("s3://ctx/42".into()),
        labels: vec![("intent".into(), "forecast".into()), ("城市".into(), "成都".into())],
        parent: Some(ReachId([0x12; 16])),
        fairness_key: FairnessKey::new("tok-1").unwrap(),
        cost_budget: Some(900),
        sensitivity: Some("internal".into()),
        approval: Approval::NotNeeded,
        requires: Requires {
            tools: vec!["map".into()],
            context_window: Some(4_096),
            languages: vec!["zh".into()],
            region: Some("cn-east".into()),
            version: Some("^2".into()),
        }
        .into(),
        schemas: SchemaVerdicts { accepted: vec![digest(2)], refused: vec![digest(3)] },
        preferred_agent: Some(agent()),
        absent_agents: AbsentAgents::Refuse,
        callback: Some(callback_spec().into()),
        idempotency: Some(idempotency().into()),
        batch: Some((BATCH, 99_999)),
    }
}

fn callback_spec() -> CallbackSpec {
    CallbackSpec {
        url: "https://caller.example/hook".into(),
        events: vec![
            CallbackEvent::Terminal,
            CallbackEvent::Slow,
            CallbackEvent::Retrying,
            CallbackEvent::Progress,
            CallbackEvent::Overdue,
            CallbackEvent::Orphaned,
        ],
        secret_ref: "travel".into(),
    }
}

fn idempotency() -> IdempotencyKey {
    IdempotencyKey { key: "order-7".into(), fingerprint: digest(5), subject: token_id(), window: DEFAULT_LIFETIME }
}

fn submissions() -> Vec<EventBody> {
    let bare = Submission {
        payload: None,
        payload_ref: None,
        qos: Qos::Normal,
        idempotence: Idempotence::NotDeclared,
        deadline: None,
        not_before: None,
        sync_wait: None,
        slow_reach: SlowPolicy::Wait,
        orphan: OrphanPolicy::Hold,
        on_wait: OnWait::Fail,
        session: None,
        context_path: None,
        labels: Vec::new(),
        parent: None,
        cost_budget: None,
        sensitivity: None,
        approval: Approval::Needed,
        requires: Requires::nothing(),
        schemas: SchemaVerdicts::default(),
        preferred_agent: None,
        absent_agents: AbsentAgents::Wait,
        callback: None,
        idempotency: None,
        batch: None,
        ..submission()
    };
    let third = Submission {
        qos: Qos::Background,
        slow_reach: SlowPolicy::Fail { after: Millis(9) },
        on_wait: OnWait::Degrade,
        ..bare.clone()
    };
    let route = TextRoute {
        by: "examples".into(),
        score: 871,
        threshold: 300,
        near: vec![(Capability::new("weather.alerts").unwrap(), 214)],
    };
    [(submission(), Some(route)), (bare, None), (third, None)]
        .map(|(submission, route)| {
            let routed = route.map(Box::new);
            TaskSubmitted { submission: submission.into(), deadline: at(60_000), routed }.into()
        })
        .to_vec()
}

fn explanation() -> Explanation {
    Explanation {
        strategy: "weighted-round-robin".into(),
        score: vec![("weight".into(), 10_000), ("load".into(), -250)],
        runners_up: vec![ScoredCandidate {
            agent: AgentId::new("weather-2").unwrap(),
            score: vec![("weight".into(), 5)],
        }],
        exclusions: vec![Exclusion { reason: "draining".into(), count: 4, samples: vec![agent()] }],
        rules: Some(3),
    }
}

fn tasks() -> Vec<EventBody> {
    let (task, attempt) = (TASK, ATTEMPT);
    let queued = [
        QueuedWhy::NotBeforeReached,
        QueuedWhy::Approved,
        QueuedWhy::RetryDue,
        QueuedWhy::Released,
        QueuedWhy::NeverStarted,
        QueuedWhy::Replayed,
    ]
    .map(|why| TaskQueued { task, why }.into());
    let dispatched = [Delivery::Pull, Delivery::Push].map(|delivery| {
        TaskDispatched {
            task,
            attempt,
            agent: agent(),
            incarnation: INCARNATION,
            lease: LeaseDigest(digest(6)),
            delivery,
            reach_deadline: at(3_000),
            explanation: explanation(),
        }
        .into()
    });
    let slow = [(SlowCause::Overdue, None), (SlowCause::Ambiguous, Some(at(9)))]
        .map(|(cause, act_at)| TaskSlow { task, attempt, cause, act_at }.into());
    let scheduled = [RetryWhy::AttemptFailed, RetryWhy::Returned]
        .map(|why| TaskRetryScheduled { task, why, until: at(2_000) }.into());
    let orphaned =
        [OrphanCause::AgentLost, OrphanCause::AgentLeft, OrphanCause::AgentReplaced, OrphanCause::AgentDrained]
            .map(|cause| TaskOrphaned { task, attempt, cause }.into());
    let rest = vec![
        TaskAcknowledged { task, attempt, incarnation: INCARNATION, work_deadline: at(60_000) }.into(),
        TaskReclaimed { task, attempt, work_deadline: at(60_001) }.into(),
        TaskOverdue { task }.into(),
        TaskProgressed {
            task,
            attempt,
            stage: Some("parse".into()),
            percent: Some(40),
            data: Some(body_ref()),
            work_deadline: Some(at(70_000)),
        }
        .into(),
        TaskProgressed { task, attempt, stage: None, percent: None, data: None, work_deadline: None }.into(),
        TaskReplayed { task, attempt }.into(),
        TaskReleased { task, attempt, outcome: digest(7) }.into(),
        TaskApproved { task }.into(),
        TaskRefused { task, reason: Some(body_ref()) }.into(),
        TaskSchemaChecked { task, verdicts: SchemaVerdicts { accepted: vec![digest(8)], refused: Vec::new() } }.into(),
    ];
    [queued.to_vec(), dispatched.to_vec(), slow.to_vec(), scheduled.to_vec(), orphaned.to_vec(), rest].concat()
}

fn outcomes() -> Vec<EventBody> {
    let (task, attempt, incarnation) = (TASK, ATTEMPT, INCARNATION);
    let failure = |class| Failure { class, code: "quota".into(), message: Some(body_ref()) };
    let mut bodies: Vec<EventBody> = FailureClass::ALL
        .map(|class| {
            let (started, outcome) = match class {
                FailureClass::Network => (Started::Never, None),
                FailureClass::AgentOverload
                | FailureClass::AgentCrash
                | FailureClass::AgentTimeout
                | FailureClass::Business
                | FailureClass::Schema
                | FailureClass::Policy
                | FailureClass::Hub
                | FailureClass::CallerCancelled => (Started::Maybe, Some(digest(9))),
            };
            TaskAttemptFailed { task, attempt, failure: failure(class), started, outcome }.into()
        })
        .to_vec();
    let succeeded = |result, already_done| {
        let usage = vec![("tokens".into(), 1_234)];
        TaskSucceeded { task, attempt, incarnation, result, outcome: digest(10), usage, already_done }
    };
    bodies.push(succeeded(Some(body_ref()), AlreadyDone::No).into());
    bodies.push(succeeded(None, AlreadyDone::Yes).into());
    let failed = failure(FailureClass::Business);
    bodies.push(TaskFailed { task, attempt, incarnation, failure: failed.clone(), outcome: digest(11) }.into());
    bodies.push(TaskDeadLettered { task, failure: failed, attempts: 20 }.into());
    bodies.push(TaskExpired { task }.into());
    bodies.push(TaskCancelled { task, reason: None }.into());
    bodies.push(TaskCancelled { task, reason: Some(body_ref()) }.into());
    let reports = [
        (ReportKind::Ack, StaleWhy::LeaseSuperseded),
        (ReportKind::Progress, StaleWhy::TaskTerminal),
        (ReportKind::Complete, StaleWhy::OutcomeConflict),
        (ReportKind::Fail, StaleWhy::LeaseSuperseded),
        (ReportKind::Release, StaleWhy::LeaseSuperseded),
    ];
    bodies.extend(reports.map(|(report, why)| {
        TaskStaleReportRefused { task, attempt, agent: agent(), report, why, content: digest(12) }.into()
    }));
    bodies
}

fn callbacks() -> Vec<EventBody> {
    let (callback, subject, seq) = (CALLBACK, SUBJECT, Seq(77));
    let (url, secret_ref): (Text, Text) = ("https://caller.example/hook".into(), "travel".into());
    let tries = [
        (TryOutcome::Delivered { status: 204 }, None),
        (TryOutcome::Failed { error: "http-500".into(), retry_after: Some(Millis(2_000)) }, Some(at(2_000))),
        (TryOutcome::Gone, None),
        (TryOutcome::Blocked { error: "loopback".into() }, None),
    ];
    let mut bodies: Vec<EventBody> = tries
        .map(|(outcome, next_at)| CallbackAttempted { callback, subject, attempt: 2, outcome, next_at }.into())
        .to_vec();
    for subject in [subject, CallbackSubject::Batch(BATCH)] {
        let (url, secret_ref) = (url.clone(), secret_ref.clone());
        bodies.push(CallbackDue { callback, subject, seq, url, secret_ref }.into());
    }
    bodies.push(CallbackDelivered { callback, subject }.into());
    bodies.push(CallbackExhausted { callback, subject, attempts: 32 }.into());
    bodies.push(CallbackBlocked { callback, subject }.into());
    bodies.push(CallbackGone { callback, subject }.into());
    bodies.push(CallbackRedriven { callback, subject, seq, url, secret_ref }.into());
    bodies
}

fn batches() -> Vec<EventBody> {
    vec![
        BatchOpened { batch: BATCH, callback: Some(callback_spec()), idempotency: Some(idempotency()) }.into(),
        BatchOpened { batch: BATCH, callback: None, idempotency: None }.into(),
        BatchClosed { batch: BATCH, total: 100_000, refused: 3 }.into(),
        BatchSettled { batch: BATCH }.into(),
    ]
}

fn capability_rules() -> Vec<EventBody> {
    let changed = |rules| CapabilityPolicyChanged {
        capability: Capability::new("weather.forecast").unwrap(),
        rules,
        reason: "late".into(),
    };
    let rules = CapabilityRules { slow_reach: SlowPolicy::Fail { after: Millis(9) }, owner: Some("desk".into()) };
    vec![changed(Some(rules)).into(), changed(None).into()]
}

fn access() -> Vec<EventBody> {
    let token = Token {
        id: token_id(),
        name: "travel desk".into(),
        secret: digest(13),
        previous: Some((digest(14), at(5))),
        scopes: Scope::ALL.to_vec(),
        reach: Reach::One(Namespace::new("team-a").unwrap()),
        agents: vec!["weather-*".into()],
        capabilities: vec![Capability::new("weather.forecast").unwrap()],
        expires_at: Some(at(86_400_000)),
        created_at: at(0),
    };
    let all = Token { previous: None, reach: Reach::All, expires_at: None, ..token.clone() };
    vec![
        TokenCreated { token }.into(),
        TokenCreated { token: all }.into(),
        TokenRotated { token: token_id(), secret: digest(15), overlap_until: at(9) }.into(),
        TokenRevoked { token: token_id() }.into(),
        PolicyChanged { policy: Policy::default(), reason: "slower sweep".into() }.into(),
    ]
}
