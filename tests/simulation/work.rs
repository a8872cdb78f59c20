//! What an agent does with a task: acknowledges, works, reports; says it again, contradicts itself, shows old leases.

use agent_reach::ledger::ids::{AttemptNo, Digest, LeaseDigest, ReachId};
use agent_reach::ledger::machine::command::{Command, Report, Retryable, Word};
use agent_reach::ledger::machine::decision::Answer;
use agent_reach::ledger::machine::event::AlreadyDone;
use agent_reach::ledger::machine::task::{Failure, FailureClass};
use agent_reach::ledger::time::{Millis, SimClock};

use crate::agents::{Act, Agent, Job, Phase, Said, Why, as_agent};
use crate::effects::{Arrival, PushAnswer};
use crate::facts::Push;
use crate::hub::{Input, No};
use crate::model::{Handed, LeaseSeen, Party, Spoken};
use crate::world::{Action, World};

impl World {
    pub(crate) fn agent_acks(&mut self, index: usize, task: ReachId, attempt: AttemptNo) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        let Some(job) = agent.jobs.get_mut(&(task, attempt)).filter(|job| job.phase == Phase::Got) else { return };
        job.tries += 1;
        if job.tries > 4 {
            agent.jobs.remove(&(task, attempt));
            return;
        }
        let incarnation = agent.incarnation.unwrap_or_default();
        let who = (agent.key.clone(), incarnation);
        self.notes.acked.entry((task, attempt)).or_default().push(who);
        self.report(index, task, attempt, Word::Ack);
    }

    fn report(&mut self, index: usize, task: ReachId, attempt: AttemptNo, word: Word) {
        let Some(agent) = self.agents.get(index) else { return };
        let known = agent.old.iter().find(|old| (old.0, old.1) == (task, attempt)).map(|old| old.2);
        let Some(lease) = agent.jobs.get(&(task, attempt)).map(|job| job.lease).or(known) else { return };
        let said = Said { task, attempt, is_ack: matches!(word, Word::Ack), word: word.clone() };
        let proposal = as_agent(agent, report_of(agent, (task, attempt, lease), word));
        let twice = self.is_rough() && self.chance.hits(30);
        self.call(Party::Agent(index), vec![proposal.clone()], None, Why::Work(vec![said], false));
        if twice {
            self.tally.hit("outcome said twice");
            let input = Input::Work {
                to: Party::Operator,
                call: 0,
                proposals: vec![proposal],
                bodies: Vec::new(),
                claim: None,
            };
            let after = self.chance.below(4_000);
            self.at(after, Action::Arrive(input));
        }
    }

    /// An answer to a report: only an accepted acknowledgement lets the work begin.
    pub(crate) fn heard(
        &mut self,
        index: usize,
        said: &Said,
        outcome: Result<(Answer, Option<agent_reach::ledger::ids::Seq>), No>,
    ) {
        let attempt = (said.task, said.attempt);
        if let (Ok((_, Some(receipt))), Some(digest)) = (&outcome, digest_of(&said.word))
            && let Some(spoken) = self.notes.spoken.get_mut(&digest)
        {
            spoken.receipts.push(*receipt);
        }
        let deadly = self.is_rough() && is_poison(said.task);
        let Some(agent) = self.agents.get_mut(index) else { return };
        let epoch = agent.epoch;
        match outcome {
            Ok(_) if said.is_ack && deadly => self.fall_for(index, said.task),
            Ok(_) if said.is_ack => {
                let Some(job) = agent.jobs.get_mut(&attempt).filter(|job| job.phase == Phase::Got) else { return };
                job.phase = Phase::Working;
                job.tries = 0;
                let takes = if self.chance.hits(agent.slow) {
                    self.chance.between(2_000, 15_000)
                } else {
                    self.chance.between(10, 3_000)
                };
                self.at(takes, Action::Agent(index, epoch, Act::Say(said.task, said.attempt)));
                if takes > 700 && self.chance.hits(600) {
                    self.at(300, Action::Agent(index, epoch, Act::Progress(said.task, said.attempt)));
                }
            }
            Err(No::Stopping) => {
                let after = self.chance.between(100, 2_000);
                let act =
                    if said.is_ack { Act::Ack(said.task, said.attempt) } else { Act::Say(said.task, said.attempt) };
                self.at(after, Action::Agent(index, epoch, act));
            }
            Ok(_) | Err(No::Rejected(_)) => {
                if !matches!(said.word, Word::Progress { .. }) {
                    agent.jobs.remove(&attempt);
                    self.claim(index);
                }
            }
        }
    }

    pub(crate) fn agent_progresses(&mut self, index: usize, task: ReachId, attempt: AttemptNo) {
        let Some(agent) = self.agents.get(index) else { return };
        if agent.jobs.get(&(task, attempt)).is_none_or(|job| job.phase != Phase::Working) {
            return;
        }
        let epoch = agent.epoch;
        let percent = Some(u8::try_from(self.chance.below(100)).unwrap_or(0));
        self.report(index, task, attempt, Word::Progress { stage: Some("parse".into()), percent, data: None });
        let after = self.chance.between(300, 2_500);
        self.at(after, Action::Agent(index, epoch, Act::Progress(task, attempt)));
    }

    /// The work is over, or an outcome is said again because nobody answered.
    pub(crate) fn agent_says(&mut self, index: usize, task: ReachId, attempt: AttemptNo) {
        let Some(agent) = self.agents.get_mut(index) else { return };
        if !agent.jobs.contains_key(&(task, attempt)) {
            return;
        }
        let word = match agent.jobs.get(&(task, attempt)).and_then(|job| job.word.clone()) {
            Some(word) => word,
            None => self.outcome(index, task, attempt),
        };
        let Some(agent) = self.agents.get_mut(index) else { return };
        let Some(job) = agent.jobs.get_mut(&(task, attempt)) else { return };
        job.phase = Phase::Saying;
        job.word = Some(word.clone());
        job.tries += 1;
        let given_up = job.tries > 8;
        if let Some(old) = agent.old.iter_mut().rev().find(|old| (old.0, old.1) == (task, attempt)) {
            old.3 = Some(word.clone());
        }
        if given_up {
            agent.jobs.remove(&(task, attempt));
        } else {
            self.report(index, task, attempt, word);
        }
    }

    /// Draws an outcome whose digest nobody else ever says.
    pub(crate) fn outcome(&mut self, index: usize, task: ReachId, attempt: AttemptNo) -> Word {
        let who = u64::try_from(index).unwrap_or(0);
        let salt = self.chance.draw();
        let digest =
            Digest::of(&[b"outcome", &task.0, &attempt.0.to_be_bytes(), &who.to_be_bytes(), &salt.to_be_bytes()]);
        let retry_after = self.chance.hits(300).then(|| Millis(self.chance.between(10, 8_000)));
        let ill = self.is_ill(index);
        let word = match self.chance.below(100) {
            drawn @ 0..97 if ill => {
                self.tally.hit("agent ill");
                let class = usize::try_from(drawn)
                    .ok()
                    .and_then(|drawn| ILL.into_iter().cycle().nth(drawn))
                    .unwrap_or(FailureClass::AgentCrash);
                let failure = Failure { class, code: "ill".into(), message: None };
                Word::Fail { failure, digest, retryable: Retryable::Yes, retry_after }
            }
            0..78 => Word::Complete {
                result: None,
                digest,
                usage: vec![("tokens".into(), 7)],
                already_done: AlreadyDone::No,
            },
            78..88 => Word::Fail { failure: business("later"), digest, retryable: Retryable::Yes, retry_after },
            88..92 => Word::Fail { failure: business("never"), digest, retryable: Retryable::No, retry_after: None },
            _ => Word::Release { digest, retry_after },
        };
        let wish = match &word {
            Word::Fail { retry_after, .. } | Word::Release { retry_after, .. } => *retry_after,
            Word::Ack | Word::Progress { .. } | Word::Complete { .. } => None,
        };
        self.notes.spoken.insert(digest, Spoken { task, attempt, retry_after: wish, receipts: Vec::new() });
        word
    }

    /// For six seconds of twenty-four an agent fails nearly everything.
    fn is_ill(&self, index: usize) -> bool {
        self.is_rough() && is_turn_of(self.mono() / ILL_FOR, u64::try_from(index).unwrap_or(0))
    }

    /// An old lease speaks: the same word again, another word, or an acknowledgement of long ago.
    pub(crate) fn agent_haunts(&mut self, index: usize, which: usize) {
        let Some(agent) = self.agents.get(index) else { return };
        let Some((task, attempt, lease, word)) = agent.old.get(which).cloned() else { return };
        self.tally.hit("old lease shown again");
        let word = match (word, self.chance.below(3)) {
            (Some(word), 0 | 1) => word,
            (Some(_), _) => {
                self.tally.hit("outcome contradicted");
                self.outcome(index, task, attempt)
            }
            (None, 0) => Word::Ack,
            (None, _) => self.outcome(index, task, attempt),
        };
        let Some(agent) = self.agents.get(index) else { return };
        if matches!(word, Word::Ack) {
            let who = (agent.key.clone(), agent.incarnation.unwrap_or_default());
            self.notes.acked.entry((task, attempt)).or_default().push(who);
        }
        let Some(agent) = self.agents.get(index) else { return };
        let proposal = as_agent(agent, report_of(agent, (task, attempt, lease), word.clone()));
        let said = Said { task, attempt, is_ack: false, word };
        self.call(Party::Agent(index), vec![proposal], None, Why::Work(vec![said], false));
        if self.chance.hits(700) {
            let epoch = self.agents.get(index).map_or(0, |agent| agent.epoch);
            let after = self.chance.between(100, 3_000);
            self.at(after, Action::Agent(index, epoch, Act::Haunt(which)));
        }
    }

    /// A push arrives at an agent's endpoint.
    pub(crate) fn pushed(&mut self, index: usize, push: Push, run: u32) {
        let durable = self.durable();
        let rough = self.is_rough();
        let Some(agent) = self.agents.get_mut(index) else { return };
        let (task, attempt, lease) = (push.task, push.attempt, push.lease);
        if !agent.is_up {
            self.tally.hit("push refused");
            let answer = PushAnswer::Refused;
            self.at(2, Action::Sender(Arrival::Pushed { run, push: Box::new(push), answer }));
            return;
        }
        let handed = Handed { task, attempt, lease, agent: agent.key.clone() };
        self.notes.leases.push(LeaseSeen { handed: handed.clone(), durable });
        let unanswered = rough && self.chance.hits(80);
        let answer = match self.chance.below(100) {
            0..55 => PushAnswer::Accepted,
            55..80 => PushAnswer::Done(self.outcome(index, task, attempt)),
            80..86 => PushAnswer::Busy(self.chance.hits(500).then(|| Millis(self.chance.between(10, 3_000)))),
            86..90 => PushAnswer::Refused,
            90..96 => PushAnswer::Broken,
            _ => PushAnswer::Done(self.already(index, task, attempt)),
        };
        if let PushAnswer::Accepted = answer {
            let Some(agent) = self.agents.get_mut(index) else { return };
            agent.old.push((task, attempt, lease, None));
            let epoch = agent.epoch;
            agent.jobs.insert((task, attempt), Job { lease, phase: Phase::Working, tries: 0, word: None });
            let who = (agent.key.clone(), push.incarnation);
            self.notes.acked.entry((task, attempt)).or_default().push(who);
            let takes = self.chance.between(20, 4_000);
            self.at(takes, Action::Agent(index, epoch, Act::Say(task, attempt)));
        }
        if unanswered {
            self.tally.hit("push unanswered");
            return;
        }
        let late = if self.chance.hits(150) { self.chance.between(300, 5_000) } else { self.chance.below(60) };
        self.at(late, Action::Sender(Arrival::Pushed { run, push: Box::new(push), answer }));
    }

    fn already(&mut self, index: usize, task: ReachId, attempt: AttemptNo) -> Word {
        let digest = Digest::of(&[b"already", &task.0, &attempt.0.to_be_bytes(), &[u8::try_from(index).unwrap_or(0)]]);
        let spoken = Spoken { task, attempt, retry_after: None, receipts: Vec::new() };
        self.notes.spoken.entry(digest).or_insert(spoken);
        Word::Complete { result: None, digest, usage: Vec::new(), already_done: AlreadyDone::Yes }
    }
}

/// How long an agent is ill, in milliseconds: every fourth turn of that length.
const ILL_FOR: u64 = 6_000;

const fn is_turn_of(turn: u64, index: u64) -> bool {
    (turn + index).is_multiple_of(4)
}

/// When an agent falls ill for the first time, in milliseconds of its world.
pub(crate) fn falls_ill(index: u64) -> u64 {
    let next = SimClock::START.0 / ILL_FOR + 1;
    let turn = (next..next + 4).find(|turn| is_turn_of(*turn, index)).unwrap_or(next);
    turn * ILL_FOR - SimClock::START.0
}

/// How an agent that is ill fails.
const ILL: [FailureClass; 4] =
    [FailureClass::AgentCrash, FailureClass::AgentOverload, FailureClass::AgentTimeout, FailureClass::Network];

/// One task in sixty.
fn is_poison(task: ReachId) -> bool {
    task.0.last().is_some_and(|last| *last % 60 == 7)
}

fn business(code: &str) -> Failure {
    Failure { class: FailureClass::Business, code: code.into(), message: None }
}

fn report_of(agent: &Agent, (task, attempt, lease): (ReachId, AttemptNo, LeaseDigest), word: Word) -> Command {
    let incarnation = agent.incarnation.unwrap_or_default();
    let (agent, fact) = (agent.key.agent_id.clone(), None);
    Command::Report(Box::new(Report { task, agent, incarnation, attempt, lease, word, fact }))
}

fn digest_of(word: &Word) -> Option<Digest> {
    match word {
        Word::Complete { digest, .. } | Word::Fail { digest, .. } | Word::Release { digest, .. } => Some(*digest),
        Word::Ack | Word::Progress { .. } => None,
    }
}
