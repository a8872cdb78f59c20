//! Callers: they submit, ask again with the same key when they got no answer, call off, and read.

use std::sync::Arc;

use agent_reach::ledger::ids::{BatchId, Digest, Namespace, ReachId};
use agent_reach::ledger::machine::KeySubject;
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::decision::{Answer, Rejection};
use agent_reach::ledger::machine::task::spec::{IdempotencyKey, OrphanPolicy, Submission};
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::time::{Millis, Timestamp};

use crate::agents::Why;
use crate::hub::{Input, No, by_token};
use crate::model::{KeySeen, Party};
use crate::operator::Errand;
use crate::workload::{batch_id, callback, id, token};
use crate::world::{Action, Answered, World};

/// Tries of one order.
const MOST_TRIES: u32 = 12;

/// An idempotency key with the body it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) fingerprint: Digest,
    pub(crate) window: Millis,
}

/// One task, or a batch.
#[derive(Debug, Clone)]
pub(crate) enum What {
    One(Box<Submission>),
    Many(Vec<Submission>),
}

/// Something that a caller wants done.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) at: u64,
    pub(crate) caller: u64,
    pub(crate) namespace: Namespace,
    pub(crate) what: What,
    pub(crate) key: Option<Key>,
    /// Does it use another order's key?
    pub(crate) repeats: bool,
    pub(crate) task: Option<ReachId>,
    tries: u32,
    pub(crate) settled: bool,
}

impl Order {
    pub(crate) fn new(at: u64, (caller, namespace): (u64, Namespace), what: What, key: Option<Key>) -> Self {
        Self { at, caller, namespace, what, key, repeats: false, task: None, tries: 0, settled: false }
    }

    /// The same with more time for the work, to be replayed when its agent is lost.
    pub(crate) fn with_long_work(mut self) -> Self {
        let change = |spec: &mut Submission| {
            spec.work_timeout = Millis(spec.work_timeout.0 + 15_000);
            spec.lifetime = Millis(spec.lifetime.0 + 30_000);
            spec.orphan = OrphanPolicy::Replay;
        };
        match &mut self.what {
            What::One(spec) => change(spec),
            What::Many(specs) => specs.iter_mut().for_each(change),
        }
        self
    }

    fn idempotency(&self) -> Option<IdempotencyKey> {
        self.key.as_ref().map(|key| IdempotencyKey {
            key: key.text.as_str().into(),
            fingerprint: key.fingerprint,
            subject: token(self.caller),
            window: key.window,
        })
    }
}

impl World {
    /// Sends an order, for the first time or again.
    pub(crate) fn order(&mut self, index: usize) {
        let Some(order) = self.orders.get_mut(index).filter(|order| !order.settled) else { return };
        order.tries += 1;
        if order.tries > MOST_TRIES {
            order.settled = true;
            return;
        }
        let order = order.clone();
        match &order.what {
            What::One(spec) => {
                let submit = self.submit_command(&order, spec, None);
                let proposal = by_token(&order.namespace, &token(order.caller), submit);
                self.call(Party::Caller(index), vec![proposal], None, Why::Order);
            }
            What::Many(lines) => self.order_batch(index, &order, lines),
        }
    }

    /// As the API makes it, with absolute times in ledger time. A batch's lines get their ids here, a single task's when
    /// its request arrives: each request that arrives, however often it was sent, gets an id of its own.
    fn submit_command(&mut self, order: &Order, spec: &Submission, batch: Option<(BatchId, u32)>) -> Command {
        let now = self.ledger_now();
        let mut submission = spec.clone();
        if batch.is_some() {
            submission.reach_id = ReachId(id(self.mono(), self.chance.draw()));
        }
        submission.idempotency = if batch.is_none() { order.idempotency().map(Box::new) } else { None };
        submission.batch = batch;
        if self.chance.hits(130) {
            submission.not_before = Some(now.after(Millis(self.chance.between(1, 12_000))));
        }
        if self.chance.hits(100) {
            submission.deadline = Some(now.after(Millis(self.chance.between(500, 30_000))));
        }
        if self.chance.hits(60) {
            submission.parent = self.orders.iter().filter_map(|order| order.task).next();
        }
        Command::SubmitTask { submission: Arc::new(submission), bound: None, routed: None }
    }

    /// A batch is one stream: its lines come in order, and whatever breaks it the shell closes it.
    fn order_batch(&mut self, index: usize, order: &Order, lines: &[Submission]) {
        let batch = batch_id(self.mono(), self.chance.draw());
        let callback = self.chance.hits(500).then(|| callback(&mut self.chance));
        let open = Command::OpenBatch { batch, callback, idempotency: order.idempotency(), bound: None };
        let mut commands = vec![open];
        for (line, spec) in lines.iter().enumerate() {
            let place = u32::try_from(line).unwrap_or(0);
            commands.push(self.submit_command(order, spec, Some((batch, place))));
        }
        let cut = self.is_rough() && self.chance.hits(200);
        let kept = if cut { self.chance.between(1, u64::try_from(lines.len()).unwrap_or(1)) } else { u64::MAX };
        if cut {
            self.tally.hit("batch cut off");
        }
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        commands.truncate(kept.saturating_add(1));
        let total = u32::try_from(commands.len().saturating_sub(1)).unwrap_or(0);
        let refused = if self.chance.hits(200) { 1 } else { 0 };
        commands.push(Command::CloseBatch { batch, total: total + refused, refused });
        let mut delay = 0;
        let parts: Vec<Vec<Command>> = commands.chunks(3).map(<[Command]>::to_vec).collect();
        for part in parts {
            delay += self.chance.below(250);
            let proposals: Vec<Proposal> =
                part.into_iter().map(|command| by_token(&order.namespace, &token(order.caller), command)).collect();
            let input = Input::Work { to: Party::Operator, call: 0, proposals, bodies: Vec::new(), claim: None };
            self.at(delay, Action::Arrive(input));
        }
        let again = order.key.is_some() && self.chance.hits(150);
        if again {
            self.at(3_000, Action::Order(index));
        } else if let Some(order) = self.orders.get_mut(index) {
            order.settled = true;
        }
    }

    /// No answer: nobody knows. Only a key makes asking again safe.
    pub(crate) fn order_unanswered(&mut self, index: usize) {
        let Some(order) = self.orders.get_mut(index) else { return };
        if order.key.is_some() {
            let after = self.chance.between(10, 2_000);
            self.at(after, Action::Order(index));
        } else {
            order.settled = true;
        }
    }

    pub(crate) fn order_answered(&mut self, index: usize, first: Option<Why>, answered: Answered) {
        let Some(outcome) = answered.outcomes.into_iter().next() else { return };
        let is_repeat = first.is_none();
        match outcome {
            Ok((answer, _)) => {
                let taken = self.order_taken(index, &answer);
                if let Some((task, state)) = taken.filter(|_| !is_repeat) {
                    self.think_again(index, task, state);
                }
            }
            Err(No::Stopping) if !is_repeat => {
                let after = self.chance.between(100, 3_000);
                self.at(after, Action::Order(index));
            }
            Err(No::Rejected(Rejection::QueueFull { retry_after, .. })) if !is_repeat => {
                self.at(retry_after.0, Action::Order(index));
            }
            Err(No::Rejected(Rejection::KeyReused { first, .. })) => {
                self.tally.hit(match first {
                    Some(_) => "key used again with another body",
                    None => "key used again by another caller",
                });
                self.settle(index);
            }
            Err(No::Stopping | No::Rejected(_)) => self.settle(index),
        }
    }

    fn settle(&mut self, index: usize) {
        if let Some(order) = self.orders.get_mut(index) {
            order.settled = true;
        }
    }

    /// Notes what was taken.
    fn order_taken(&mut self, index: usize, answer: &Answer) -> Option<(ReachId, StatusKind)> {
        self.settle(index);
        let found = match answer {
            Answer::Submitted { task, state, key_until, .. } => Some((*task, *state, key_until.unwrap_or_default())),
            Answer::Replayed { subject: KeySubject::Task(task), key_until, .. } => {
                self.tally.hit("key used again with the same body");
                Some((*task, StatusKind::Queued, *key_until))
            }
            Answer::Replayed { subject: KeySubject::Batch(_) | KeySubject::Replay(_), .. }
            | Answer::Registered { .. }
            | Answer::Beat(_)
            | Answer::Dispatched { .. }
            | Answer::Reported { .. }
            | Answer::Task { .. }
            | Answer::Replay { .. }
            | Answer::BatchOpened
            | Answer::BatchClosed
            | Answer::Done => None,
        };
        let (task, state, until) = found?;
        self.note_key(index, task, until);
        if let Some(order) = self.orders.get_mut(index) {
            order.task.get_or_insert(task);
        }
        Some((task, state))
    }

    /// Looks, calls off, approves.
    fn think_again(&mut self, index: usize, task: ReachId, state: StatusKind) {
        if self.chance.hits(400) {
            let after = self.chance.below(10_000);
            self.at(after, Action::Errand(Errand::Look(task)));
        }
        if self.chance.hits(90) {
            let after = self.chance.below(8_000);
            self.at(after, Action::Errand(Errand::Cancel(index, task)));
        }
        if state == StatusKind::AwaitingApproval && self.chance.hits(850) {
            let after = self.chance.below(4_000);
            let errand = if self.chance.hits(700) { Errand::Approve(index, task) } else { Errand::Refuse(index, task) };
            self.at(after, Action::Errand(errand));
        }
    }

    fn note_key(&mut self, index: usize, task: ReachId, until: Timestamp) {
        let at = self.ledger_now();
        let Some(order) = self.orders.get(index) else { return };
        if let Some(key) = &order.key {
            self.notes.keys.push(KeySeen {
                namespace: order.namespace.clone(),
                key: key.text.clone(),
                fingerprint: key.fingerprint,
                task,
                until,
                at,
            });
        }
    }
}
