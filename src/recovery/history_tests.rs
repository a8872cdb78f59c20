//! Random histories of losses, sweeps, plans, operators' words and restarts. Whatever comes, the audit holds, and of
//! the events alone can be told: R1 in every window, R2, R3, R4, R5 and D4.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::ledger::ids::{ReachId, ReplayId, SessionId, TokenId};
use crate::ledger::machine::State;
use crate::ledger::machine::audit;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::event::{Actor, Event, EventBody};
use crate::ledger::machine::policy::Policy;
use crate::ledger::machine::replay::ItemAction;
use crate::ledger::machine::replay::order::ReplayWord;
use crate::ledger::machine::step::apply;
use crate::ledger::machine::task::resolve::Resolution;
use crate::ledger::machine::task::spec::{OrphanPolicy, RetryPolicy};
use crate::ledger::machine::task::status::{Acked, Status};
use crate::recovery::list::{PlanItem, group_of};
use crate::recovery::pace::burst;
use crate::scheduler::world::{World, declaration, key, namespace};

const AGENTS: [&str; 2] = ["a", "b"];
const RATES: [u32; 4] = [1, 7, 20, 90];

/// Something that happens; numbers choose among what there is.
#[derive(Debug, Clone)]
enum Move {
    Submit { session: u8, held: bool },
    Cycle,
    Ack { which: u8 },
    Complete { which: u8 },
    Fail { which: u8 },
    Lose { agent: u8 },
    Return { agent: u8 },
    Plan { rate: u8, skip: u8 },
    Steer { which: u8, word: u8 },
    Resolve { which: u8, word: u8 },
    Restart,
    Pass { span: u16 },
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => (0..4_u8, any::<bool>()).prop_map(|(session, held)| Move::Submit { session, held }),
        8 => Just(Move::Cycle),
        6 => any::<u8>().prop_map(|which| Move::Ack { which }),
        3 => any::<u8>().prop_map(|which| Move::Complete { which }),
        4 => any::<u8>().prop_map(|which| Move::Fail { which }),
        3 => (0..2_u8).prop_map(|agent| Move::Lose { agent }),
        3 => (0..2_u8).prop_map(|agent| Move::Return { agent }),
        4 => (0..4_u8, 0..3_u8).prop_map(|(rate, skip)| Move::Plan { rate, skip }),
        3 => (any::<u8>(), 0..6_u8).prop_map(|(which, word)| Move::Steer { which, word }),
        1 => (any::<u8>(), 0..3_u8).prop_map(|(which, word)| Move::Resolve { which, word }),
        1 => Just(Move::Restart),
        6 => (1..1_500_u16).prop_map(|span| Move::Pass { span }),
    ]
}

struct History {
    world: World,
    lists: BTreeMap<ReplayId, (Vec<PlanItem>, Vec<u8>)>,
    sessions: BTreeMap<ReachId, SessionId>,
}

fn nth<T: Copy>(of: &[T], which: u8) -> Option<T> {
    of.get(usize::from(which) % of.len().max(1)).copied()
}

impl History {
    fn new() -> Self {
        let mut world = World::new();
        AGENTS.iter().for_each(|agent| world.register(agent, declaration(4)));
        Self { world, lists: BTreeMap::new(), sessions: BTreeMap::new() }
    }

    fn tasks(&self, is: impl Fn(&Status) -> bool) -> Vec<ReachId> {
        self.world.state.tasks().values().filter(|task| is(&task.status)).map(|task| task.id()).collect()
    }

    fn perform(&mut self, step: &Move) {
        match step {
            Move::Submit { session, held } => {
                let session = (*session > 0).then(|| SessionId::new(&format!("s{session}")).unwrap());
                self.world.submit(|spec| {
                    spec.session = session;
                    spec.orphan = if *held { OrphanPolicy::Hold } else { OrphanPolicy::Replay };
                    spec.retry = RetryPolicy { max_retries: 1, ..spec.retry.clone() };
                });
            }
            Move::Cycle => drop(self.world.cycle()),
            Move::Ack { which } => {
                let handed = self.tasks(|status| matches!(status, Status::Dispatched { .. }));
                nth(&handed, *which).into_iter().for_each(|task| self.world.ack(task));
            }
            Move::Complete { which } => self.working(*which).into_iter().for_each(|task| self.world.complete(task)),
            Move::Fail { which } => self.working(*which).into_iter().for_each(|task| self.world.fail(task)),
            Move::Lose { agent } => {
                let agent = AGENTS[usize::from(*agent)];
                if self.world.state.agent(&key(agent)).unwrap().is_open() {
                    self.world.lose(agent);
                }
            }
            Move::Return { agent } => self.world.register(AGENTS[usize::from(*agent)], declaration(4)),
            Move::Plan { rate, skip } => self.plan(RATES[usize::from(*rate)], usize::from(*skip)),
            Move::Steer { which, word } => self.steer(*which, *word),
            Move::Resolve { which, word } => {
                let task = nth(&self.tasks(|status| matches!(status, Status::Orphaned { .. })), *which);
                let resolution = Resolution::ALL[usize::from(*word)];
                if let Some(task) = task {
                    let command = Command::ResolveTask { task, resolution, reason: "seen".into() };
                    let actor = Actor::Token(TokenId::new("operator").unwrap());
                    let proposal = Proposal { namespace: Some(namespace()), actor, trace: None, command };
                    drop(self.world.propose(&proposal));
                }
            }
            Move::Restart => {
                self.world.restart();
                self.tell_all();
            }
            Move::Pass { span } => self.world.pass(u64::from(*span)),
        }
        for task in self.world.state.tasks().values() {
            self.sessions.extend(task.spec.session.clone().map(|session| (task.id(), session)));
        }
        self.tell_all();
    }

    fn working(&self, which: u8) -> Option<ReachId> {
        let works =
            |status: &Status| matches!(status, Status::Processing { .. } | Status::SlowReach { acked: Acked::Yes, .. });
        nth(&self.tasks(works), which)
    }

    /// The driver's part.
    fn tell_all(&mut self) {
        for wanted in self.world.recovery.plans().wants_list().collect::<Vec<_>>() {
            let list = self.lists[&wanted].1.clone();
            self.world.tell(wanted, &list);
        }
    }

    /// A plan over every orphan and every task that failed, but for the first few.
    fn plan(&mut self, rate: u32, skip: usize) {
        let orphans = self.tasks(|status| matches!(status, Status::Orphaned { .. })).into_iter();
        let failed = self.world.rows.values().filter(|row| matches!(row.status, Status::Failed)).map(|row| row.id());
        let all = orphans.map(|id| (id, ItemAction::Replay)).chain(failed.map(|id| (id, ItemAction::Redrive)));
        let of = |(task, action)| PlanItem { task, action, group: group_of(self.sessions.get(&task)) };
        let mut items: Vec<PlanItem> = all.skip(skip).map(of).collect();
        items.sort_by_key(|item| item.task);
        if !items.is_empty() && self.world.state.replays().len() < 5 {
            let (plan, list) = self.world.order(rate, &items);
            self.lists.insert(plan, (items, list));
        }
    }

    fn steer(&mut self, which: u8, word: u8) {
        let plans: Vec<ReplayId> = self.world.state.replays().keys().copied().collect();
        let Some(plan) = nth(&plans, which) else { return };
        let word = match word {
            0 | 1 => ReplayWord::Pause { reason: None },
            2 | 3 => ReplayWord::Resume { reason: None },
            4 => ReplayWord::Rate { rate: RATES[usize::from(which) % RATES.len()] },
            _ => ReplayWord::Cancel { reason: None },
        };
        self.world.steer(plan, word);
    }
}

/// R1 of a source: its replays at those moments, and the greatest rate that it ever had.
fn r1(name: &str, moments: &[u64], rate: u32) {
    for (first, from) in moments.iter().enumerate() {
        for (count, until) in (1_u64..).zip(moments.iter().skip(first)) {
            let allowed = u64::from(rate) * (until - from) / 1_000 + u64::from(burst(rate)) + 1;
            assert!(count <= allowed, "R1: {name} moved {count} in {} ms at {rate}/s", until - from);
        }
    }
}

/// What the events alone must show.
#[derive(Default)]
struct Witness {
    rates: BTreeMap<ReplayId, u32>,
    still: BTreeSet<ReplayId>,
    settled: BTreeSet<(ReplayId, u32)>,
    /// What was sent back of a session, by whomever, and must have ended before a plan's next item.
    former: BTreeMap<SessionId, BTreeSet<ReachId>>,
    /// Orphans of a session by submission, held ones too.
    orphans: BTreeMap<SessionId, BTreeMap<ReachId, u64>>,
    queued_by_replay: BTreeSet<ReachId>,
    /// Sent back and not with an agent since, by session.
    out: BTreeMap<SessionId, BTreeSet<ReachId>>,
    ended: BTreeSet<ReachId>,
    moments: BTreeMap<Option<ReplayId>, Vec<u64>>,
    all: Vec<u64>,
}

impl Witness {
    fn moved(&mut self, source: Option<ReplayId>, event: &Event) {
        self.moments.entry(source).or_default().push(event.at.0);
        self.all.push(event.at.0);
    }

    fn turn(&mut self, replay: ReplayId, index: u32) {
        assert!(!self.still.contains(&replay), "R5: {replay} moves while it may not");
        assert!(self.settled.insert((replay, index)), "R3: item {index} of {replay} twice");
    }

    /// R4 of a plan's item that goes.
    fn goes(&mut self, history: &History, (replay, task): (ReplayId, ReachId)) {
        let Some(session) = history.sessions.get(&task) else { return };
        let former = self.former.entry(session.clone()).or_default();
        let open: Vec<_> = former.iter().filter(|other| **other != task && !self.ended.contains(other)).collect();
        assert_eq!(open, Vec::<&ReachId>::new(), "R4: {replay} sends {task} back beside others of its session");
        let older = self.orphans.get(session).into_iter().flatten().find(|(other, _)| **other < task);
        assert_eq!(older, None, "R4: {replay} sends {task} back before an older orphan of its session");
    }

    fn sent(&mut self, history: &History, task: ReachId) {
        if let Some(session) = history.sessions.get(&task) {
            self.former.entry(session.clone()).or_default().insert(task);
            self.out.entry(session.clone()).or_default().insert(task);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about what moves plans and orphans")]
    fn see(&mut self, history: &History, before: Option<&EventBody>, event: &Event) {
        match &event.body {
            EventBody::ReplayPlanned(body) => drop(self.rates.insert(body.replay, body.rate)),
            EventBody::ReplayRateChanged(body) => {
                let rate = self.rates.get_mut(&body.replay).unwrap();
                *rate = body.rate.max(*rate);
            }
            EventBody::ReplayPaused(body) => drop(self.still.insert(body.replay)),
            EventBody::ReplayFinished(body) => drop(self.still.insert(body.replay)),
            EventBody::ReplayResumed(body) => drop(self.still.remove(&body.replay)),
            EventBody::ReplayItemSkipped(body) => self.turn(body.replay, body.index),
            EventBody::ReplayItemDone(body) => {
                self.turn(body.replay, body.index);
                self.moved(Some(body.replay), event);
                self.goes(history, (body.replay, body.task));
            }
            EventBody::TaskReplayed(body) => {
                assert!(self.queued_by_replay.insert(body.task), "R2: replayed twice and dispatched never");
                let by_sweep = event.actor == Actor::Hub && !matches!(before, Some(EventBody::TaskResolved(_)));
                let session = history.sessions.get(&body.task);
                if by_sweep {
                    self.moved(None, event);
                    let out = session.and_then(|session| self.out.get(session));
                    assert!(out.is_none_or(BTreeSet::is_empty), "R4: the sweep overtakes in its session");
                    let orphans = session.and_then(|session| self.orphans.get(session)).into_iter().flatten();
                    let older = { orphans }.find(|(other, since)| **other < body.task && **since < event.at.0);
                    assert_eq!(older, None, "R4: the sweep passes an older orphan, held or not");
                }
                self.no_orphan(history, body.task);
                self.sent(history, body.task);
            }
            EventBody::TaskRedriven(body) => self.sent(history, body.successor),
            EventBody::TaskDispatched(body) => drop(self.queued_by_replay.remove(&body.task)),
            EventBody::TaskAcknowledged(body) => self.back(history, body.task),
            // Never acknowledged, and an orphan again: it stands in the line.
            EventBody::TaskOrphaned(body) => {
                self.queued_by_replay.remove(&body.task);
                self.back(history, body.task);
                if let Some(session) = history.sessions.get(&body.task) {
                    self.orphans.entry(session.clone()).or_default().insert(body.task, event.at.0);
                    self.former.entry(session.clone()).or_default().remove(&body.task);
                }
            }
            EventBody::TaskReclaimed(body) => self.no_orphan(history, body.task),
            // Its session has gone on without it.
            EventBody::TaskReplayHeld(body) => self.no_orphan(history, body.task),
            _ => {}
        }
        let task = event.body.task().filter(|_| event.body.callback_subject().is_none());
        if let Some(task) =
            task.filter(|task| history.world.rows.get(task).is_some_and(|row| row.ended_by == Some(event.seq)))
        {
            self.ended.insert(task);
            self.no_orphan(history, task);
            self.queued_by_replay.remove(&task);
            self.back(history, task);
        }
    }

    fn no_orphan(&mut self, history: &History, task: ReachId) {
        if let Some(orphans) = history.sessions.get(&task).and_then(|session| self.orphans.get_mut(session)) {
            orphans.remove(&task);
        }
    }

    fn back(&mut self, history: &History, task: ReachId) {
        if let Some(out) = history.sessions.get(&task).and_then(|session| self.out.get_mut(session)) {
            out.remove(&task);
        }
    }
}

fn holds(history: &History) {
    let log = &history.world.log;
    assert_eq!(audit::check(log.iter()), []);
    let (mut witness, mut before) = (Witness::default(), None);
    for event in log {
        witness.see(history, before, event);
        before = Some(&event.body);
    }
    for plan in history.world.state.replays().keys() {
        let first = history.world.recovery.waiting_for(&history.world.state, *plan).map(|waiting| waiting.first);
        assert_eq!(first.and_then(|first| history.world.state.held(first)), None, "R-REC-3: {plan} waits for it");
    }
    let own = Policy::default().replays_per_second;
    let most = witness.rates.values().copied().max().unwrap_or(0).max(own);
    r1("the namespace", &witness.all, most);
    for (source, moments) in &witness.moments {
        r1(&format!("{source:?}"), moments, source.map_or(own, |id| witness.rates[&id]));
    }
    let mut again = State::default();
    log.iter().for_each(|event| apply(&mut again, event).unwrap());
    assert_eq!(again.digest(), history.world.state.digest(), "D4: the events alone");
    assert_eq!(State::from_image(again.to_image()).digest(), again.digest(), "D4: the image");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn whatever_breaks_replays_keep_their_pace_their_order_and_their_word(
        moves in prop::collection::vec(any_move(), 20..120),
    ) {
        let mut history = History::new();
        moves.iter().for_each(|step| history.perform(step));
        holds(&history);
    }
}
