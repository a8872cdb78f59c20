//! What supersedes what, as a shell tells it: held against a model that knows nothing of rows, memory and links.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::ledger::ids::{AgentId, AttemptNo, Digest, Incarnation, LeaseDigest};
use crate::ledger::machine::callback::{CallbackEvent, CallbackSpec};
use crate::ledger::machine::command::Command;
use crate::ledger::machine::event::{
    AlreadyDone, Explanation, TaskAcknowledged, TaskDispatched, TaskExpired, TaskOrphaned, TaskSubmitted, TaskSucceeded,
};
use crate::ledger::machine::replay::MayHaveRun;
use crate::ledger::machine::replay::order::RedriveOrder;
use crate::ledger::machine::step::{apply, step};
use crate::ledger::machine::task::samples::submission;
use crate::ledger::machine::task::spec::Submission;
use crate::ledger::machine::task::status::{Delivery, OrphanCause};
use crate::ledger::store::Head;
use crate::ledger::store::codec::encode_commit;
use crate::ledger::store::contract::{event, namespace, reach};
use crate::ledger::store::memory::MemoryStore;
use crate::ledger::time::Timestamp;

/// Is somebody called back, so that an ended task stays in memory?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Yes,
    No,
}

/// A ledger that is written by hand, commit by commit.
#[derive(Default)]
struct Book {
    state: State,
    store: MemoryStore,
    head: Head,
    open: Vec<Event>,
}

impl Book {
    fn tell(&mut self, body: impl Into<EventBody>) {
        let event = event(self.state.seq().next().0, body);
        apply(&mut self.state, &event).unwrap();
        self.open.push(event);
    }

    fn submit(&mut self, n: u64, session: &str, told: Told) {
        let callback = CallbackSpec {
            url: "https://caller.example/hook".into(),
            events: vec![CallbackEvent::Terminal],
            secret_ref: "default".into(),
        };
        let submission = Submission {
            session: Some(SessionId::new(session).unwrap()),
            callback: (told == Told::Yes).then(|| callback.into()),
            ..submission(reach(n), "text.count")
        };
        self.tell(TaskSubmitted { submission: submission.into(), deadline: Timestamp(u64::MAX / 2), routed: None });
    }

    fn work(&mut self, task: ReachId) {
        let (attempt, incarnation) = (self.state.task(task).unwrap().attempt.next(), Incarnation(1));
        self.tell(TaskDispatched {
            task,
            attempt,
            agent: AgentId::new("a").unwrap(),
            incarnation,
            lease: LeaseDigest::default(),
            delivery: Delivery::Pull,
            reach_deadline: Timestamp(u64::MAX / 2),
            explanation: Explanation {
                strategy: "test".into(),
                score: Vec::new(),
                runners_up: Vec::new(),
                exclusions: Vec::new(),
                rules: None,
            },
        });
        self.tell(TaskAcknowledged { task, attempt, incarnation, work_deadline: Timestamp(u64::MAX / 2) });
    }

    fn succeed(&mut self, task: ReachId) {
        self.work(task);
        self.tell(TaskSucceeded {
            task,
            attempt: AttemptNo(1),
            incarnation: Incarnation(1),
            result: None,
            outcome: Digest::default(),
            usage: Vec::new(),
            already_done: AlreadyDone::No,
        });
    }

    fn orphan(&mut self, task: ReachId) {
        self.work(task);
        self.tell(TaskOrphaned { task, attempt: AttemptNo(1), cause: OrphanCause::AgentLost });
    }

    /// Made anew as the hub does it; `false` if it is refused.
    fn redrive(&mut self, task: ReachId, successor: ReachId) -> bool {
        let order = RedriveOrder {
            task,
            successor,
            may_have_run: MayHaveRun::Include,
            correction: None,
            schemas: None,
            reason: "again".into(),
            before: None,
        };
        let mut proposal = Proposal {
            namespace: Some(namespace()),
            actor: Actor::Hub,
            trace: None,
            command: Command::RedriveTask(Box::new(order)),
        };
        fill(&mut proposal, &self.state, &self.store, &Keys::from_master(&[7; 32])).unwrap();
        let at = self.state.at();
        let done = step(&mut self.state, &proposal, at).unwrap();
        self.open.extend(done.events);
        done.answer.is_ok()
    }

    fn commit(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let mut commit = encode_commit(&self.head, &self.open).unwrap().0;
        commit.rows = rows(&self.state, self.head.seq);
        self.store.append(&commit).unwrap();
        self.head = commit.head;
        self.state.forget_up_to(self.head.seq);
        self.open.clear();
    }

    fn superseded(&self, id: ReachId) -> Option<ReachId> {
        let task = self.state.task(id).cloned().or_else(|| self.store.finished(id).unwrap()).unwrap();
        superseded_by(&task, &self.state, &self.store).unwrap()
    }
}

#[test]
fn r_rec_3_a_newer_success_supersedes_wherever_it_lies_and_an_older_one_does_not() {
    for told in [Told::No, Told::Yes] {
        let mut book = Book::default();
        (1..=4).for_each(|n| book.submit(n, if n == 4 { "other" } else { "s" }, told));
        book.orphan(reach(1));
        book.orphan(reach(3));
        book.succeed(reach(4));
        assert_eq!(book.superseded(reach(1)), None, "that one is of another session");
        book.succeed(reach(2));
        for durable in [false, true] {
            assert_eq!(book.superseded(reach(1)), Some(reach(2)), "durable: {durable}, callback open: {told:?}");
            assert_eq!(book.superseded(reach(3)), None, "the success is older");
            book.commit();
        }
        let copy = State::from_image(book.state.to_image());
        let task = copy.task(reach(1)).unwrap();
        assert_eq!(superseded_by(task, &copy, &book.store).unwrap(), Some(reach(2)), "after a start");
    }
}

#[test]
fn r_rec_3_a_chain_of_redrives_stands_where_its_first_task_stood() {
    let mut book = Book::default();
    (1..=3).for_each(|n| book.submit(n, "s", Told::No));
    book.tell(TaskExpired { task: reach(2) });
    book.commit();
    // 2 is made anew as 20, and that as 21; meanwhile 1 and 3 are orphans.
    assert!(book.redrive(reach(2), reach(20)));
    book.tell(TaskExpired { task: reach(20) });
    book.commit();
    assert!(book.redrive(reach(20), reach(21)));
    let origin = Some(Origin { task: reach(2), seq: Seq(2) });
    assert_eq!(book.state.origin(reach(21)), origin, "in one step, although both before it have left memory");
    assert_eq!(State::from_image(book.state.to_image()).origin(reach(21)), origin);
    book.orphan(reach(1));
    book.orphan(reach(3));
    book.succeed(reach(21));
    for durable in [false, true] {
        assert_eq!(book.superseded(reach(1)), Some(reach(21)), "durable: {durable}");
        assert_eq!(book.superseded(reach(3)), None, "3 was submitted after 2");
        book.commit();
    }
    assert_eq!(super::origin(reach(21), &book.state, &book.store).unwrap(), origin, "its link on disk says it");
}

#[test]
fn a_link_of_before_that_does_not_say_its_chain_is_followed() {
    let mut book = Book::default();
    (1..=2).for_each(|n| book.submit(n, "s", Told::No));
    book.tell(TaskExpired { task: reach(1) });
    for (old, new) in [(1, 10), (10, 11)] {
        book.submit(new, "s", Told::No);
        let (task, successor) = (reach(old), reach(new));
        book.tell(TaskRedriven { task, successor, submitter: None, replay: None, reason: None, origin: None });
        if new == 10 {
            book.tell(TaskExpired { task: successor });
        }
        book.commit();
    }
    assert_eq!(book.state.origin(reach(11)), None);
    let origin = Some(Origin { task: reach(1), seq: Seq(1) });
    assert_eq!(super::origin(reach(11), &book.state, &book.store).unwrap(), origin);
    book.orphan(reach(11));
    book.succeed(reach(2));
    assert_eq!(book.superseded(reach(11)), Some(reach(2)), "it is as old as 1");
    book.commit();
    assert_eq!(book.superseded(reach(11)), Some(reach(2)));
}

/// What is asked of the model: the place of a chain's origin, and whether it has succeeded.
#[derive(Debug, Clone, Copy)]
struct Known {
    session: u8,
    place: Seq,
    stands: Stands,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Queued,
    Orphaned,
    Ended,
    Redriven,
    Won,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Submit { session: u8, told: Told },
    Orphan(u8),
    Expire(u8),
    Succeed(u8),
    Redrive(u8),
    Commit,
    Restart,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        4 => (0..2_u8, prop_oneof![Just(Told::No), Just(Told::Yes)]).prop_map(|(session, told)| Move::Submit { session, told }),
        3 => any::<u8>().prop_map(Move::Orphan),
        3 => any::<u8>().prop_map(Move::Expire),
        3 => any::<u8>().prop_map(Move::Succeed),
        4 => any::<u8>().prop_map(Move::Redrive),
        2 => Just(Move::Commit),
        1 => Just(Move::Restart),
    ]
}

fn perform(book: &mut Book, model: &mut BTreeMap<ReachId, Known>, step: Move) {
    let nth = |model: &BTreeMap<ReachId, Known>, n: u8, stands: Stands| {
        let fit: Vec<ReachId> = model.iter().filter(|(_, known)| known.stands == stands).map(|(id, _)| *id).collect();
        (!fit.is_empty()).then(|| fit[usize::from(n) % fit.len()])
    };
    match step {
        Move::Submit { session, told } => {
            let n = book.state.seq().next().0;
            book.submit(n, if session == 0 { "s" } else { "t" }, told);
            model.insert(reach(n), Known { session, place: Seq(n), stands: Stands::Queued });
        }
        Move::Orphan(n) => {
            if let Some(id) = nth(model, n, Stands::Queued) {
                book.orphan(id);
                model.entry(id).and_modify(|known| known.stands = Stands::Orphaned);
            }
        }
        Move::Expire(n) => {
            if let Some(task) = nth(model, n, Stands::Queued) {
                book.tell(TaskExpired { task });
                model.entry(task).and_modify(|known| known.stands = Stands::Ended);
            }
        }
        Move::Succeed(n) => {
            if let Some(id) = nth(model, n, Stands::Queued) {
                book.succeed(id);
                model.entry(id).and_modify(|known| known.stands = Stands::Won);
            }
        }
        Move::Redrive(n) => {
            let Some(id) = nth(model, n, Stands::Ended) else { return };
            let (known, successor) = (model[&id], reach(book.state.seq().next().0));
            let taken = book.redrive(id, successor);
            assert_eq!(taken, !is_superseded(model, &known), "{id}");
            if taken {
                model.insert(successor, Known { stands: Stands::Queued, ..known });
                model.entry(id).and_modify(|known| known.stands = Stands::Redriven);
            }
        }
        Move::Commit => book.commit(),
        Move::Restart => {
            book.commit();
            book.state = State::from_image(book.state.to_image());
        }
    }
}

fn is_superseded(model: &BTreeMap<ReachId, Known>, known: &Known) -> bool {
    let won = model.values().filter(|other| other.stands == Stands::Won && other.session == known.session);
    won.map(|other| other.place).max().is_some_and(|newest| newest > known.place)
}

mod properties {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn r_rec_3_whatever_succeeds_and_is_made_anew_the_newest_success_is_known(
            moves in prop::collection::vec(any_move(), 1..40),
        ) {
            let (mut book, mut model) = (Book::default(), BTreeMap::new());
            for step in moves {
                perform(&mut book, &mut model, step);
                for (id, known) in &model {
                    let by = book.superseded(*id);
                    prop_assert_eq!(by.is_some(), is_superseded(&model, known), "{} of {:?}", id, &model);
                    let newer = by.is_none_or(|by| {
                        model.get(&by).is_some_and(|by| by.place > known.place && by.stands == Stands::Won)
                    });
                    prop_assert!(newer, "{:?} does not supersede {}", by, id);
                }
            }
        }
    }
}
