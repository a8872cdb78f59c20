//! The invariants under whatever order of commands: agents come and go, callers submit and cancel, time passes, reports
//! come late, twice or under a wrong lease. After every step the audit and the counts must hold; at the end the events
//! alone must give the same state (S1 to S10, T1, T3, D4).

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::tests::*;
use crate::ledger::ids::{AttemptNo, Boot, Digest, Incarnation, ReachId, ReplayId, Seq, TokenId};
use crate::ledger::machine::agent::{DrainMode, Transport};
use crate::ledger::machine::audit::Audit;
use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::command::{AgentBusy, Command, Held, Proposal, PushTrouble, Retryable, Word};
use crate::ledger::machine::decision::Answer;
use crate::ledger::machine::event::TryOutcome;
use crate::ledger::machine::replay::order::{Before, RedriveOrder, ReplayItem, ReplayOrder, ReplayWord};
use crate::ledger::machine::replay::{ItemAction, MayHaveRun};
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::{
    Approval, BodyRef, Idempotence, IdempotencyKey, OnWait, OrphanPolicy, Qos, RetryCause, SlowPolicy, Submission,
};
use crate::ledger::machine::task::status::Delivery;
use crate::ledger::machine::task::{Failure, FailureClass};
use crate::ledger::time::{Millis, Timestamp};

/// Sequences in all, over the three properties.
const SEQUENCES: u32 = 10_200;

/// Something that somebody does; small numbers choose among few tasks and agents, so that they meet.
#[derive(Debug, Clone)]
enum Move {
    Submit { task: u8, shape: u32 },
    Dispatch { task: u8, agent: u8 },
    Say { task: u8, agent: u8, lease: u8, word: u8 },
    PushFailed { task: u8, how: u8 },
    Decide { task: u8, how: u8 },
    Register { agent: u8, instance: u8 },
    Beat { agent: u8, held: u8 },
    Leave { agent: u8, how: u8 },
    Callback { how: u8 },
    Batch { how: u8 },
    Plan { plan: u8, how: u8 },
    Item { plan: u8, index: u8, task: u8, action: ItemAction },
    Word { task: u8, how: u8 },
    Restart,
    StandStill { seconds: u8 },
    Wait { how: u8 },
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (0..5_u8, any::<u32>()).prop_map(|(task, shape)| Move::Submit { task, shape }),
        6 => (0..5_u8, 0..2_u8).prop_map(|(task, agent)| Move::Dispatch { task, agent }),
        8 => (0..5_u8, 0..2_u8, 0..8_u8, 0..12_u8)
            .prop_map(|(task, agent, lease, word)| Move::Say { task, agent, lease, word }),
        1 => (0..5_u8, 0..3_u8).prop_map(|(task, how)| Move::PushFailed { task, how }),
        3 => (0..5_u8, 0..6_u8).prop_map(|(task, how)| Move::Decide { task, how }),
        2 => (0..2_u8, 0..3_u8).prop_map(|(agent, instance)| Move::Register { agent, instance }),
        2 => (0..2_u8, 0..4_u8).prop_map(|(agent, held)| Move::Beat { agent, held }),
        2 => (0..2_u8, 0..7_u8).prop_map(|(agent, how)| Move::Leave { agent, how }),
        2 => (0..4_u8).prop_map(|how| Move::Callback { how }),
        1 => (0..3_u8).prop_map(|how| Move::Batch { how }),
        1 => (1..3_u8, 0..7_u8).prop_map(|(plan, how)| Move::Plan { plan, how }),
        2 => (1..3_u8, 0..3_u8, 0..5_u8, prop_oneof![Just(ItemAction::Replay), Just(ItemAction::Redrive)])
            .prop_map(|(plan, index, task, action)| Move::Item { plan, index, task, action }),
        2 => (0..5_u8, 0..5_u8).prop_map(|(task, how)| Move::Word { task, how }),
        1 => Just(Move::Restart),
        1 => (0..100_u8).prop_map(|seconds| Move::StandStill { seconds }),
        4 => (0..8_u8).prop_map(|how| Move::Wait { how }),
    ]
}

const NAMES: [&str; 2] = ["a", "b"];

fn id(task: u8) -> ReachId {
    ReachId([task + 1; 16])
}

/// Every policy that a task can have, chosen by the bits of `shape`.
fn shaped(task: u8, shape: u32, now: Timestamp) -> Submission {
    let bit = |n: u32| shape >> n & 1 == 1;
    let mut spec = submission(id(task));
    if bit(0) {
        spec.idempotence = Idempotence::Declared;
    }
    spec.orphan = if bit(1) { OrphanPolicy::Replay } else { OrphanPolicy::Hold };
    spec.qos = [Qos::Urgent, Qos::Normal, Qos::Background, Qos::Normal][(shape >> 2 & 3) as usize];
    spec.on_wait = if bit(4) { OnWait::Fail } else { OnWait::Keep };
    let after = Millis::secs(20);
    let policies = [SlowPolicy::Wait, SlowPolicy::HandOver { after }, SlowPolicy::Fail { after }, SlowPolicy::Wait];
    spec.slow_reach = policies[(shape >> 5 & 3) as usize];
    let causes = [(7, RetryCause::Reported), (8, RetryCause::Ambiguous), (9, RetryCause::Overdue)];
    spec.retry.retry_on = causes.into_iter().filter(|(n, _)| bit(*n)).map(|(_, cause)| cause).collect();
    spec.retry.max_retries = shape >> 10 & 3;
    if bit(12) && bit(13) {
        spec.approval = Approval::Needed;
    }
    if bit(14) && bit(15) {
        spec.not_before = Some(now.after(Millis::secs(30)));
    }
    if bit(16) {
        spec.lifetime = Millis::secs(100);
    }
    if bit(17) {
        let events = if bit(18) {
            vec![CallbackEvent::Terminal]
        } else {
            vec![CallbackEvent::Terminal, CallbackEvent::Slow, CallbackEvent::Retrying, CallbackEvent::Orphaned]
        };
        let (url, secret_ref) = ("https://caller.example/hook".into(), "default".into());
        spec.callback = Some(CallbackSpec { url, events, secret_ref }.into());
    }
    if bit(19) && bit(20) {
        spec.batch = Some((batch(), u32::from(task)));
    }
    if bit(21) {
        spec.idempotency = Some(Box::new(IdempotencyKey {
            key: if bit(22) { "k1".into() } else { "k2".into() },
            fingerprint: Digest([u8::from(bit(23)); 32]),
            subject: TokenId::new("caller").unwrap(),
            window: Millis::secs(60),
        }));
    }
    if bit(24) {
        spec.sync_wait = Some(Millis::secs(10));
    }
    spec
}

struct World {
    play: Play,
    audit: Audit,
    bound: BTreeMap<String, Timestamp>,
}

impl World {
    fn new() -> Self {
        let transport = Transport::Http { endpoint: "http://agent.example/reach".into() };
        // One slot, so that full agents are met often.
        let push = crate::ledger::machine::agent::Declaration { transport, max_concurrency: 1, ..declaration() };
        let play = Play::new().act(register("b", "one", push));
        let mut audit = Audit::default();
        play.log.iter().for_each(|event| audit.observe(event));
        Self { play, audit, bound: BTreeMap::new() }
    }

    fn incarnation(&self, agent: u8) -> u32 {
        let name = NAMES[usize::from(agent)];
        let agents = self.play.state.agents().values();
        agents.filter(|agent| agent.id().as_str() == name).map(|agent| agent.incarnation.0).max().unwrap_or(1)
    }

    fn attempt(&self, task: u8) -> u32 {
        self.play.state.task(id(task)).map_or(1, |task| task.attempt.0)
    }

    fn perform(&mut self, step: &Move) {
        let seen = self.play.log.len();
        match step {
            Move::Submit { task, shape } => self.submit(*task, *shape),
            Move::Wait { how } => {
                let spans = [0, 500, 1_000, 3_000, 20_000, 31_000, 61_000, 400_000];
                let span = Millis(spans[usize::from(*how)]);
                if *how == 0 {
                    self.play.now = self.play.now.after(Millis::secs(25)); // The sweep lags: timers stay due.
                } else {
                    self.play = std::mem::replace(&mut self.play, Play::empty()).wait(span);
                }
            }
            Move::Dispatch { .. }
            | Move::Say { .. }
            | Move::PushFailed { .. }
            | Move::Decide { .. }
            | Move::Register { .. }
            | Move::Beat { .. }
            | Move::Leave { .. }
            | Move::Callback { .. }
            | Move::Batch { .. }
            | Move::Plan { .. }
            | Move::Item { .. }
            | Move::Word { .. }
            | Move::StandStill { .. }
            | Move::Restart => {
                if let Move::StandStill { seconds } = step {
                    self.play.now = self.play.now.after(Millis::secs(u64::from(*seconds)));
                }
                if let Some(proposal) = self.proposal(step) {
                    self.act(proposal);
                }
                if matches!(step, Move::Say { lease: 1, .. }) {
                    assert!(self.play.answer.is_err(), "S3: a wrong token was taken");
                }
            }
        }
        for event in self.play.log.iter().skip(seen) {
            self.audit.observe(event);
        }
        assert_eq!(self.audit.violations(), [], "after {step:?}");
        slots_and_counts(&self.play.state);
    }

    fn act(&mut self, proposal: Proposal) {
        self.play = std::mem::replace(&mut self.play, Play::empty()).act(proposal);
    }

    /// S6: a key is bound at most once in its window, and never to a second task.
    fn submit(&mut self, task: u8, shape: u32) {
        let spec = shaped(task, shape, self.play.now);
        let key = spec.idempotency.as_ref().map(|key| key.key.to_string());
        self.act(submit(spec));
        if let (Some(key), Ok(Answer::Submitted { key_until, .. })) = (key, &self.play.answer) {
            let before = self.bound.insert(key, key_until.unwrap());
            assert!(before.is_none_or(|until| until <= self.play.now), "S6: bound twice in its window");
        }
    }

    fn proposal(&self, step: &Move) -> Option<Proposal> {
        Some(match step {
            Move::Submit { .. } | Move::Wait { .. } => return None,
            Move::Dispatch { task, agent } => {
                let delivery = if *agent == 0 { Delivery::Pull } else { Delivery::Push };
                let attempt = self.play.state.task(id(*task)).map_or(0, |task| task.attempt.0) + 1;
                handed(id(*task), attempt, (NAMES[usize::from(*agent)], self.incarnation(*agent)), delivery)
            }
            Move::Say { task, agent, lease, word } => self.report(*task, *agent, (*lease, *word)),
            Move::PushFailed { task, how } => {
                let failure = Failure { class: FailureClass::Network, code: "connect".into(), message: None };
                let (retry_after, attempt) = (Some(Millis::secs(5)), AttemptNo(self.attempt(*task)));
                let trouble = match how {
                    0 => PushTrouble::Ambiguous { failure },
                    1 => PushTrouble::NeverStarted { failure, retry_after: None, busy: AgentBusy::No },
                    _ => PushTrouble::NeverStarted { failure, retry_after, busy: AgentBusy::Yes },
                };
                Proposal::by_hub(None, Command::PushFailed { task: id(*task), attempt, trouble })
            }
            Move::Decide { task, how } => self.operator(id(*task), *how),
            Move::Register { agent, instance } => {
                let instance = ["one", "two", "three"][usize::from(*instance)];
                let mut offer = declaration();
                if *agent == 1 {
                    offer.transport = Transport::Http { endpoint: "http://agent.example/reach".into() };
                    offer.max_concurrency = 1;
                }
                register(NAMES[usize::from(*agent)], instance, offer)
            }
            Move::Beat { agent, held } => {
                let listed = |task: u8| Held { task: id(task), attempt: AttemptNo(self.attempt(task)) };
                let held = [None, Some(Vec::new()), Some(vec![listed(0)]), Some((0..5).map(listed).collect())]
                    [usize::from(*held)]
                .clone();
                let (agent, incarnation) = self.who(*agent);
                by_caller(Command::Heartbeat { agent, incarnation, held })
            }
            Move::Leave { agent, how } => self.leave(*agent, *how),
            Move::Callback { how } => {
                let (id, callback) = self.play.state.callbacks().iter().next()?;
                let outcome = match how {
                    0 => TryOutcome::Delivered { status: 200 },
                    1 => TryOutcome::Gone,
                    2 => TryOutcome::Blocked { error: "loopback".into() },
                    _ => TryOutcome::Failed { error: "http-500".into(), retry_after: None },
                };
                let attempt = callback.attempts + 1;
                Proposal::by_hub(None, Command::CallbackTried { callback: *id, attempt, outcome })
            }
            Move::Batch { how } => by_caller(match how {
                0 => Command::CloseBatch { batch: batch(), total: 3, refused: 0 },
                _ => Command::OpenBatch { batch: batch(), callback: None, idempotency: None, bound: None },
            }),
            Move::Plan { plan, how } => by_caller(steered(*plan, *how)),
            Move::Item { plan, index, task, action } => {
                let (replay, task, action, before) = (ReplayId([*plan; 16]), id(*task), *action, Some(on_disk()));
                let turn = ReplayItem { replay, index: u32::from(*index), task, action, amendment: None, before };
                by_caller(Command::ReplayItem(Box::new(turn)))
            }
            Move::Word { task, how } => by_caller(word_on(*task, *how)),
            Move::Restart => {
                let (boot, version) = (Boot(self.play.state.boot().0 + 1), "test".into());
                Proposal::by_hub(None, Command::StartHub { boot, wall_offset: 0, version, lineage: None })
            }
            Move::StandStill { seconds } => {
                let by = Millis::secs(u64::from(*seconds));
                Proposal::by_hub(None, Command::NoteStandstill { by })
            }
        })
    }

    fn who(&self, agent: u8) -> (crate::ledger::ids::AgentId, Incarnation) {
        (agent_id(agent), Incarnation(self.incarnation(agent)))
    }

    /// Mostly under the right lease; else under an old attempt, a wrong token or as an older process.
    fn report(&self, task: u8, agent: u8, (lease_choice, word): (u8, u8)) -> Proposal {
        let holder = self.play.state.task(id(task)).and_then(|task| task.status.lease()).cloned();
        let (name, incarnation) = match &holder {
            Some(lease) => (lease.agent.as_str().to_owned(), lease.incarnation.0),
            None => (NAMES[usize::from(agent)].to_owned(), self.incarnation(agent)),
        };
        let attempt = self.attempt(task);
        let (incarnation, shown) = match lease_choice {
            0 => (incarnation, (id(task), attempt.saturating_sub(1), lease(id(task), attempt.saturating_sub(1)))),
            1 => (incarnation, (id(task), attempt, lease(id(task), attempt + 7))),
            2 => (incarnation + 1, (id(task), attempt, lease(id(task), attempt))),
            _ => (incarnation, (id(task), attempt, lease(id(task), attempt))),
        };
        let word = match word {
            0..=4 => Word::Ack,
            5 | 6 => progress(),
            7 => complete("x"),
            8 => complete("y"),
            9 => fail(Retryable::Yes),
            10 => fail(Retryable::No),
            _ => release(),
        };
        says_as((&name, incarnation), shown, word)
    }

    fn operator(&self, task: ReachId, how: u8) -> Proposal {
        match how {
            0 => cancel(task),
            1 => by_caller(Command::ApproveTask { task }),
            2 => by_caller(Command::RefuseTask { task, reason: None }),
            3 => {
                let attempt = AttemptNo(self.play.state.task(task).map_or(1, |task| task.attempt.0));
                Proposal::by_hub(None, Command::ResolvePushAtBoot { task, attempt })
            }
            _ => Proposal::by_hub(None, Command::ReplayTask { task, superseded_by: None }),
        }
    }

    fn leave(&self, which: u8, how: u8) -> Proposal {
        let (agent, incarnation) = self.who(which);
        let (silent, grace) = (Millis::secs(45), Millis::secs(30));
        match how {
            0 | 1 => Proposal::by_hub(Some(namespace()), Command::MarkLost { agent, incarnation, silent }),
            2 => Proposal::by_hub(Some(namespace()), Command::MarkUnhealthy { agent, incarnation, silent }),
            3 => by_caller(Command::AgentOffline { agent, incarnation }),
            4 => by_caller(Command::DrainAgent { agent, mode: DrainMode::Finish, grace, reason: None }),
            5 => by_caller(Command::DrainAgent { agent, mode: DrainMode::HandOver, grace, reason: None }),
            _ => by_caller(Command::DeregisterAgent { agent }),
        }
    }
}

/// All that a shell reads of a task that is still in memory.
fn on_disk() -> Before {
    Before { has_payload: true, ..Before::default() }
}

fn steered(plan: u8, how: u8) -> Command {
    let replay = ReplayId([plan; 16]);
    let word = match how {
        0..=2 => {
            return Command::PlanReplay(Box::new(ReplayOrder {
                replay,
                select: "{}".into(),
                reason: "after the incident".into(),
                rate: 20,
                may_have_run: if plan == 1 { MayHaveRun::Skip } else { MayHaveRun::Include },
                total: 3,
                list: BodyRef { digest: Digest([9; 32]), len: 68 },
                position: Seq(1),
                patch: None,
                idempotency: None,
                bound: None,
            }));
        }
        3 => ReplayWord::Pause { reason: None },
        4 => ReplayWord::Resume { reason: None },
        5 => ReplayWord::Rate { rate: 3 },
        _ => ReplayWord::Cancel { reason: None },
    };
    Command::SteerReplay { replay, word }
}

/// An operator's word on one task: it is made anew, or resolved.
fn word_on(task: u8, how: u8) -> Command {
    let (may_have_run, reason) = (if how == 0 { MayHaveRun::Skip } else { MayHaveRun::Include }, "seen".into());
    let (successor, before) = (ReachId([task + 101; 16]), Some(on_disk()));
    match Resolution::ALL.get(usize::from(how.saturating_sub(2))).filter(|_| how > 1) {
        Some(resolution) => Command::ResolveTask { task: id(task), resolution: *resolution, reason },
        None => {
            let order = RedriveOrder {
                task: id(task),
                successor,
                may_have_run,
                correction: None,
                schemas: None,
                reason,
                before,
            };
            Command::RedriveTask(Box::new(order))
        }
    }
}

fn agent_id(which: u8) -> crate::ledger::ids::AgentId {
    agent(NAMES[usize::from(which)])
}

fn run(prefix: &[Move], moves: &[Move]) -> World {
    let mut world = World::new();
    for step in prefix.iter().chain(moves) {
        world.perform(step);
    }
    world.play.holds();
    world
}

fn lives(shape: u32) -> Vec<Move> {
    (0..2).flat_map(|task| [Move::Submit { task, shape }, Move::Dispatch { task, agent: task }]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: SEQUENCES / 3, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_commands_keeps_every_invariant(moves in prop::collection::vec(any_move(), 1..24)) {
        run(&[], &moves);
    }

    /// Two tasks are with an agent from the start, so that what follows meets leases more often.
    #[test]
    fn whatever_befalls_leased_tasks_keeps_every_invariant(
        shape in any::<u32>(),
        moves in prop::collection::vec(any_move(), 1..20),
    ) {
        // Neither held nor scheduled, else nothing is leased.
        run(&lives(shape & !(3 << 12) & !(3 << 14) & !(3 << 19)), &moves);
    }

    /// Once time has run out for everything, everything has ended and every gauge is at zero (L1, S8).
    #[test]
    fn when_time_is_over_every_task_has_ended_and_every_slot_is_free(
        shape in any::<u32>(),
        moves in prop::collection::vec(any_move(), 1..16),
    ) {
        let world = run(&lives(shape), &moves);
        let play = world.play.wait(Millis::secs(86_400 + 60));
        play.holds();
        let open = play.state.tasks().values().filter(|task| !task.status.kind().is_terminal()).count();
        prop_assert_eq!(open, 0, "L1");
        let used: usize = play.state.agents().values().map(crate::ledger::machine::agent::Agent::slots_used).sum();
        prop_assert_eq!(used, 0, "S8");
        prop_assert!(play.state.lanes.is_empty() && play.state.pushes.is_empty() && play.state.orphans.is_empty());
        prop_assert!(play.state.due.is_empty());
    }
}
