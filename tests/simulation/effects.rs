//! The hub's own senders, and who they send to: pushes to agents, callbacks to receivers. Level-triggered: they ask what
//! is outstanding, keep what is under way in mind, and propose how it ended. All of it is gone when the hub dies.

use std::collections::BTreeSet;

use agent_reach::ledger::ids::{AttemptNo, CallbackId, ReachId};
use agent_reach::ledger::machine::command::{AgentBusy, Command, Proposal, PushTrouble, Report, Word};
use agent_reach::ledger::machine::event::{Actor, TryOutcome};
use agent_reach::ledger::machine::task::{Failure, FailureClass};
use agent_reach::ledger::time::Millis;

use crate::agents::Act;
use crate::chance::Chance;
use crate::facts::{Call, Effects, Push};
use crate::hub::Input;
use crate::model::{MessageSeen, Party};
use crate::workload::RECEIVERS;
use crate::world::{Action, World};

/// How an agent answers a push.
#[derive(Debug, Clone)]
pub(crate) enum PushAnswer {
    /// 202
    Accepted,
    /// 200, 4xx or 409: the outcome at once.
    Done(Word),
    /// 429 or 503
    Busy(Option<Millis>),
    /// Nobody listens, or 404.
    Refused,
    /// 500 or a reset: nobody knows.
    Broken,
}

/// What comes to a receiver or back to a sender.
#[derive(Debug)]
pub(crate) enum Arrival {
    Pushed { run: u32, push: Box<Push>, answer: PushAnswer },
    Message { run: u32, call: Box<Call> },
    Called { run: u32, call: Box<Call>, outcome: TryOutcome },
}

#[derive(Debug, Clone, Copy)]
enum Manners {
    Fine,
    Flaky,
    /// Down for so many milliseconds from the start.
    Down(u64),
    Gone,
    Forbidden,
}

/// What the senders have under way.
#[derive(Debug)]
pub(crate) struct Senders {
    pushing: BTreeSet<(ReachId, AttemptNo)>,
    calling: BTreeSet<CallbackId>,
    /// Counts starts of the hub: an answer to an older one finds nobody.
    run: u32,
    receivers: Vec<Manners>,
    /// When the next callback is due, if that is planned.
    pub(crate) next: Option<u64>,
    /// The clean stop's event is on its way to the disk.
    pub(crate) stopping: bool,
}

impl Senders {
    pub(crate) fn drawn(chance: &mut Chance) -> Self {
        let mut manners = |_| match chance.below(20) {
            0..11 => Manners::Fine,
            11..15 => Manners::Flaky,
            15 => Manners::Down(chance.between(5_000, 600_000)),
            16 if chance.hits(300) => Manners::Down(u64::MAX),
            17 => Manners::Gone,
            18 => Manners::Forbidden,
            _ => Manners::Fine,
        };
        let receivers = (0..RECEIVERS).map(&mut manners).collect();
        let (pushing, calling) = (BTreeSet::new(), BTreeSet::new());
        Self { pushing, calling, run: 1, receivers, next: None, stopping: false }
    }

    /// The process died.
    pub(crate) fn forget(&mut self) {
        self.run += 1;
        self.pushing.clear();
        self.calling.clear();
        self.next = None;
        self.stopping = false;
    }
}

impl World {
    /// Sends what is outstanding and not under way.
    pub(crate) fn send(&mut self, effects: Effects) {
        let run = self.senders.run;
        for push in effects.pushes {
            let Some(index) = self.agents.iter().position(|agent| agent.key == push.agent) else { continue };
            if self.senders.pushing.insert((push.task, push.attempt)) {
                *self.notes.pushed.entry((push.task, push.attempt)).or_insert(0) += 1;
                self.post(index, run, push);
            }
        }
        for call in effects.calls {
            if self.senders.calling.insert(call.id) {
                let after = self.chance.below(30);
                self.at(after, Action::Sender(Arrival::Message { run, call: Box::new(call) }));
            }
        }
        if let Some(next) = effects.next {
            let after = next.since(self.ledger_now()).0;
            let at = self.mono() + after;
            if self.senders.next.is_none_or(|planned| planned > at) {
                self.senders.next = Some(at);
                self.at(after, Action::Effects);
            }
        }
    }

    /// A connection may break or be slow, but delivers no request twice.
    fn post(&mut self, index: usize, run: u32, push: Push) {
        if self.is_rough() && self.chance.hits(self.weather.lost) {
            self.tally.hit("push unanswered");
            return;
        }
        let delay = self.chance.below(self.weather.slowest + 1);
        self.at(delay, Action::Agent(index, 0, Act::Pushed(Box::new(push), run)));
    }

    pub(crate) fn sender(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Pushed { run, push, answer } if run == self.senders.run => self.push_answered(&push, answer),
            Arrival::Message { run, call } if run == self.senders.run => self.receive(run, call),
            Arrival::Called { run, call, outcome } if run == self.senders.run => {
                self.senders.calling.remove(&call.id);
                let command = Command::CallbackTried { callback: call.id, attempt: call.attempt, outcome };
                self.propose(Proposal::by_hub(Some(call.namespace.clone()), command));
                self.at(1, Action::Effects);
            }
            Arrival::Pushed { .. } | Arrival::Message { .. } | Arrival::Called { .. } => {}
        }
    }

    fn propose(&mut self, proposal: Proposal) {
        let input =
            Input::Work { to: Party::Sender, call: 0, proposals: vec![proposal], bodies: Vec::new(), claim: None };
        self.at(0, Action::Arrive(input));
    }

    fn push_answered(&mut self, push: &Push, answer: PushAnswer) {
        let actor = Actor::Agent { agent_id: push.agent.agent_id.clone(), incarnation: push.incarnation };
        let report = |word| {
            Command::Report(Box::new(Report {
                task: push.task,
                agent: push.agent.agent_id.clone(),
                incarnation: push.incarnation,
                attempt: push.attempt,
                lease: push.lease,
                word,
                fact: None,
            }))
        };
        let failed = |trouble| Command::PushFailed { task: push.task, attempt: push.attempt, trouble };
        let trouble = |class, code: &str| Failure { class, code: code.into(), message: None };
        let (actor, command) = match answer {
            PushAnswer::Accepted => (actor, report(Word::Ack)),
            PushAnswer::Done(word) => (actor, report(word)),
            PushAnswer::Busy(retry_after) => {
                let failure = trouble(FailureClass::AgentOverload, "http-429");
                (Actor::Hub, failed(PushTrouble::NeverStarted { failure, retry_after, busy: AgentBusy::Yes }))
            }
            PushAnswer::Refused => {
                let failure = trouble(FailureClass::Network, "connect");
                let busy = AgentBusy::No;
                (Actor::Hub, failed(PushTrouble::NeverStarted { failure, retry_after: None, busy }))
            }
            PushAnswer::Broken => {
                let failure = trouble(FailureClass::Network, "http-500");
                (Actor::Hub, failed(PushTrouble::Ambiguous { failure }))
            }
        };
        let namespace = Some(push.agent.namespace.clone());
        self.propose(Proposal { namespace, actor, trace: None, command });
    }

    /// A message is at its receiver.
    fn receive(&mut self, run: u32, call: Box<Call>) {
        let which = (0..RECEIVERS).find(|n| *call.url == *format!("https://receiver-{n}.example/hook")).unwrap_or(0);
        let manners = usize::try_from(which).ok().and_then(|n| self.senders.receivers.get(n)).copied();
        let manners = manners.unwrap_or(Manners::Fine);
        let passed = self.mono() - agent_reach::ledger::time::SimClock::START.0;
        let failed = |error: &str| TryOutcome::Failed { error: error.into(), retry_after: None };
        let outcome = match manners {
            Manners::Fine => TryOutcome::Delivered { status: 200 },
            Manners::Flaky if self.chance.hits(400) => failed("http-500"),
            Manners::Flaky if self.chance.hits(200) => {
                let retry_after = Some(Millis(self.chance.between(100, 20_000)));
                TryOutcome::Failed { error: "http-503".into(), retry_after }
            }
            Manners::Flaky => TryOutcome::Delivered { status: 204 },
            Manners::Down(until) if passed < until => {
                self.tally.hit("receiver down");
                failed("connect")
            }
            Manners::Down(_) => TryOutcome::Delivered { status: 200 },
            Manners::Gone => TryOutcome::Gone,
            Manners::Forbidden => TryOutcome::Blocked { error: "private-address".into() },
        };
        let reached = !matches!(manners, Manners::Forbidden) && outcome != failed("connect");
        let durable = self.durable();
        let (id, subject, tells) = (call.id, call.subject, call.seq);
        if reached {
            self.notes.messages.push(MessageSeen { id, subject, tells, durable });
        }
        if self.is_rough() && self.chance.hits(60) {
            self.tally.hit("callback answer lost");
            let outcome = failed("timeout");
            self.at(15_000, Action::Sender(Arrival::Called { run, call, outcome }));
        } else {
            let after = self.chance.below(50);
            self.at(after, Action::Sender(Arrival::Called { run, call, outcome }));
        }
    }
}
