//! What one routing decision costs: a dispatch proposed by the scheduler, with 100,000 tasks queued and 20 or 1,000
//! candidates (R-RTE, proof 7: p99 ≤ 0.1 ms and ≤ 1 ms).
//!
//! Prints a table, then one line of JSON. `--smoke` runs a small size only, for CI; `cargo bench` adds `--bench`, which
//! is ignored.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::sync::Arc;
use std::time::Duration;

use agent_reach::ledger::ids::{AgentId, Capability, Digest, FairnessKey, LeaseDigest, Namespace, ReachId, TokenId};
use agent_reach::ledger::machine::State;
use agent_reach::ledger::machine::agent::{CapabilityKind, Declaration, Offer, ProgressRule, Sensitive, Transport};
use agent_reach::ledger::machine::command::{Command, Proposal, Report, Word};
use agent_reach::ledger::machine::event::{Actor, AlreadyDone};
use agent_reach::ledger::machine::step::step;
use agent_reach::ledger::machine::task::spec::{Idempotence, OrphanPolicy, Qos, Requires, Submission};
use agent_reach::ledger::planner::Planner as _;
use agent_reach::ledger::time::{Millis, SimClock, Timestamp};
use agent_reach::scheduler::plan::Scheduler;
use hdrhistogram::Histogram;

/// What one decision took. A decision waits for nothing, so its CPU time is its cost; wall time is shown beside, and
/// on a busy machine tells of the neighbours.
struct Took {
    cpu: Duration,
    wall: Duration,
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(at.tv_sec).unwrap_or(0), u32::try_from(at.tv_nsec).unwrap_or(0))
}

/// One size of the measurement.
struct Size {
    name: &'static str,
    queued: u64,
    agents: u64,
    decisions: u64,
}

const SMOKE: [Size; 1] = [Size { name: "smoke", queued: 2_000, agents: 20, decisions: 500 }];
const FULL: [Size; 2] = [
    Size { name: "20-candidates", queued: 100_000, agents: 20, decisions: 20_000 },
    Size { name: "1000-candidates", queued: 100_000, agents: 1_000, decisions: 20_000 },
];

/// Callers that share the queue, and distinct requirements (lanes) of the tasks.
const CALLERS: u64 = 50;
const LANES: u64 = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sizes = if std::env::args().any(|arg| arg == "--smoke") { &SMOKE[..] } else { &FULL[..] };
    println!("one routing decision, µs of CPU time (and of wall time)");
    println!(
        "{:<16} {:>8} {:>7} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "size", "queued", "agents", "p50", "p95", "p99", "max", "wall p99"
    );
    let mut rows = Vec::new();
    for size in sizes {
        let (cpu, wall) = measure(size)?;
        let micros = |of: &Histogram<u64>, quantile: f64| {
            Duration::from_nanos(of.value_at_quantile(quantile)).as_secs_f64() * 1e6
        };
        let [p50, p95, p99, max] = [0.5, 0.95, 0.99, 1.0].map(|quantile| micros(&cpu, quantile));
        let wall_p99 = micros(&wall, 0.99);
        println!(
            "{:<16} {:>8} {:>7} {p50:>8.1} {p95:>8.1} {p99:>8.1} {max:>8.1} {wall_p99:>9.1}",
            size.name, size.queued, size.agents
        );
        rows.push(serde_json::json!({
            "size": size.name, "queued": size.queued, "agents": size.agents, "decisions": cpu.len(),
            "p50_us": p50, "p95_us": p95, "p99_us": p99, "max_us": max, "wall_p99_us": wall_p99,
        }));
    }
    println!("{}", serde_json::json!({ "routing_decision": rows }));
    Ok(())
}

/// Agents with room to spare: every decision has all of them as candidates. After each decision the oldest running task
/// completes and a new one is submitted, so the queue keeps its length.
fn measure(size: &Size) -> Result<(Histogram<u64>, Histogram<u64>), Box<dyn std::error::Error>> {
    let mut bench = Bench::new()?;
    for agent in 0..size.agents {
        bench.register(agent)?;
    }
    for _ in 0..size.queued {
        bench.submit()?;
    }
    let (mut cpu, mut wall) = (Histogram::new(3)?, Histogram::new(3)?);
    let mut running = std::collections::VecDeque::new();
    while cpu.len() < size.decisions {
        let (proposal, took) = bench.plan_one();
        let Some(proposal) = proposal else { return Err("nothing was proposed".into()) };
        cpu.record(u64::try_from(took.cpu.as_nanos())?)?;
        wall.record(u64::try_from(took.wall.as_nanos())?)?;
        running.push_back(bench.dispatch(proposal)?);
        if running.len() > usize::try_from(size.agents)?
            && let Some(oldest) = running.pop_front()
        {
            bench.complete(oldest)?;
        }
        bench.submit()?;
    }
    Ok((cpu, wall))
}

struct Bench {
    state: State,
    scheduler: Scheduler,
    namespace: Namespace,
    capability: Capability,
    now: Timestamp,
    tasks: u64,
}

impl Bench {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let mut scheduler = Scheduler::new();
        let state = State::default();
        scheduler.rebuild(&state, SimClock::START);
        let (namespace, capability) = (Namespace::new("bench")?, Capability::new("bench.work")?);
        Ok(Self { state, scheduler, namespace, capability, now: SimClock::START, tasks: 0 })
    }

    fn apply(&mut self, actor: Actor, command: Command) -> Result<(), Box<dyn std::error::Error>> {
        let proposal = Proposal { namespace: Some(self.namespace.clone()), actor, trace: None, command };
        let done = step(&mut self.state, &proposal, self.now)?;
        done.answer.map_err(|why| format!("refused: {why:?}"))?;
        for event in &done.events {
            self.scheduler.observe(&self.state, event);
        }
        self.state.forget_up_to(self.state.seq());
        Ok(())
    }

    fn register(&mut self, n: u64) -> Result<(), Box<dyn std::error::Error>> {
        let offer = Offer {
            capability: self.capability.clone(),
            kind: CapabilityKind::Service,
            schemas: Vec::new(),
            tools: vec!["search".into(), "sql".into()],
            languages: vec!["zh".into(), "en".into()],
            context_window: Some(8_192),
            weight: u32::try_from(1 + n % 10)?,
            priority: 100,
            strategy: None,
            progress: ProgressRule::Shows,
            sensitive: Sensitive::No,
        };
        let declaration = Declaration {
            version: Some("2.1.0".into()),
            region: Some("eu".into()),
            offers: vec![offer],
            transport: Transport::Http { endpoint: "http://agent.example/".into() },
            heartbeat_interval: Millis::secs(5),
            max_concurrency: 10_000,
            max_pending: 1_000_000,
            priority: 100,
            load_threshold_milli: 900,
            allowed_callers: Vec::new(),
            body: Digest::default(),
        };
        let agent = AgentId::new(&format!("agent-{n:04}"))?;
        let declaration = Box::new(declaration);
        self.apply(Actor::Token(TokenId::new("bench")?), Command::RegisterAgent { agent, instance: None, declaration })
    }

    fn submit(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.tasks += 1;
        let mut id = [0; 16];
        id.copy_from_slice(&u128::from(self.tasks).to_be_bytes());
        let qos = match self.tasks % 10 {
            0 => Qos::Urgent,
            1..=6 => Qos::Normal,
            7.. => Qos::Background,
        };
        let requires = Requires {
            tools: vec!["sql".into()],
            context_window: Some(u32::try_from(1_024 + self.tasks % LANES)?),
            languages: vec!["zh".into()],
            region: None,
            version: Some("^2".into()),
        };
        let caller = FairnessKey::new(&format!("caller-{}", self.tasks % CALLERS))?;
        let submission = Submission {
            qos,
            idempotence: Idempotence::Declared,
            orphan: OrphanPolicy::Replay,
            requires: requires.into(),
            ..Submission::plain(ReachId(id), self.capability.clone(), caller)
        };
        let command = Command::SubmitTask { submission: Arc::new(submission), bound: None, routed: None };
        self.apply(Actor::Token(TokenId::new("bench")?), command)
    }

    /// The measured part: one decision.
    #[expect(clippy::disallowed_methods, reason = "a bench measures with the machine's own clock")]
    fn plan_one(&mut self) -> (Option<Proposal>, Took) {
        let (wall, cpu) = (std::time::Instant::now(), cpu_time());
        let proposals = self.scheduler.plan(&self.state, self.now, 1);
        let took = Took { cpu: cpu_time().saturating_sub(cpu), wall: wall.elapsed() };
        (proposals.into_iter().next(), took)
    }

    fn dispatch(&mut self, mut proposal: Proposal) -> Result<ReachId, Box<dyn std::error::Error>> {
        let Command::DispatchTask { task, lease, .. } = &mut proposal.command else {
            return Err("no dispatch".into());
        };
        let task = *task;
        *lease = LeaseDigest(Digest::of(&[&task.0]));
        self.apply(Actor::Hub, proposal.command)?;
        Ok(task)
    }

    fn complete(&mut self, task: ReachId) -> Result<(), Box<dyn std::error::Error>> {
        let held = self.state.task(task).and_then(|task| task.status.lease()).cloned();
        let lease = held.ok_or("no lease")?;
        let actor = Actor::Agent { agent_id: lease.agent.clone(), incarnation: lease.incarnation };
        let word = Word::Complete {
            result: None,
            digest: Digest::default(),
            usage: vec![(Arc::from("tokens"), 1)],
            already_done: AlreadyDone::No,
        };
        let report = Report {
            task,
            agent: lease.agent,
            incarnation: lease.incarnation,
            attempt: lease.attempt,
            lease: lease.digest,
            word,
            fact: None,
        };
        self.apply(actor, Command::Report(Box::new(report)))
    }
}
