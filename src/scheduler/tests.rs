//! The planner over a real state: what it proposes, and to whom.

use std::sync::Arc;

use crate::ledger::ids::{AgentId, Digest, FairnessKey, ReachId, TokenId};
use crate::ledger::machine::agent::{Declaration, Offer, Strategy};
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::task::spec::{BodyRef, Qos, SchemaVerdicts, Submission};
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::planner::{CLAIM_BYTES, Load, Note, Planner, TASK_BYTES, answer_bytes};
use crate::ledger::time::Millis;
use crate::scheduler::queue::BACKGROUND_EVERY;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::world::{Dispatch, World, declaration, key, namespace, offer, pull};

fn agents(dispatched: &[Dispatch]) -> Vec<&str> {
    dispatched.iter().map(|dispatch| dispatch.agent.as_str()).collect()
}

fn offering(max: u32, change: impl FnOnce(&mut Offer)) -> Declaration {
    let mut one = offer("a.b");
    change(&mut one);
    Declaration { offers: vec![one], ..declaration(max) }
}

#[test]
fn a_push_agent_gets_no_more_than_its_free_slots_and_the_next_when_one_is_free() {
    let mut world = World::new();
    world.register("a", declaration(2));
    let tasks: Vec<_> = (0..5).map(|_| world.submit(|_| {})).collect();
    let first = world.cycle();
    assert_eq!(first.iter().map(|d| d.task).collect::<Vec<_>>(), tasks[..2]);
    assert!(world.cycle().is_empty());
    world.complete(tasks[0]);
    assert_eq!(world.cycle().iter().map(|d| d.task).collect::<Vec<_>>(), tasks[2..3]);
    assert!(world.refusals.is_empty());
}

#[test]
fn semantics_4_a_pull_agent_gets_only_what_open_claims_of_its_process_ask_for() {
    let mut world = World::new();
    world.register("a", pull(10));
    world.submit_some(9, |_| {});
    assert!(world.cycle().is_empty(), "nobody asked");
    let old = world.claim("a", 2);
    assert_eq!(world.cycle_by(1).len(), 2);
    world.unclaim(old);
    let stale = world.claim("a", 5);
    world.register("a", pull(10));
    assert!(world.cycle().is_empty(), "the claim is of an older process");
    world.unclaim(stale);
    let wide = world.claim("a", 100);
    assert_eq!(world.cycle().len(), 9, "two unstarted ones came back, nine fit into ten slots");
    world.unclaim(wide);
    assert!(world.refusals.is_empty());
}

#[test]
fn a_claim_wider_than_the_free_slots_takes_the_slots() {
    let mut world = World::new();
    world.register("a", pull(3));
    world.submit_some(9, |_| {});
    world.claim("a", 100);
    assert_eq!(world.cycle().len(), 3);
}

#[test]
fn a_claim_takes_no_more_than_its_bytes_and_a_second_one_takes_the_rest_in_order() {
    let heavy = |task: &mut Submission| {
        task.payload = Some(BodyRef { digest: Digest::default(), len: 1 << 20 });
    };
    let mut world = World::new();
    world.register("a", pull(100));
    let tasks: Vec<_> = (0..30).map(|_| world.submit(heavy)).collect();
    let first = world.claim("a", 100);
    let filled = world.cycle_by(3);
    let weight = |dispatched: &[Dispatch]| {
        let spec = |task| &world.state.task(task).unwrap().spec;
        dispatched.iter().map(|dispatch| answer_bytes(spec(dispatch.task), None)).sum::<u64>()
    };
    assert!(weight(&filled) <= CLAIM_BYTES && weight(&filled) + TASK_BYTES > CLAIM_BYTES, "{}", filled.len());
    world.claim("a", 1);
    let more = world.cycle();
    assert_eq!(more.len(), 1, "the first claim takes none although it asked for a hundred");
    world.unclaim(first);
    world.claim("a", 100);
    let rest = world.cycle();
    assert_eq!(rest.len(), filled.len());
    let order: Vec<_> = filled.iter().chain(&more).chain(&rest).map(|dispatch| dispatch.task).collect();
    assert_eq!(order, tasks[..order.len()]);
    assert!(world.refusals.is_empty());
}

#[test]
fn urgent_goes_first_and_background_at_least_once_in_sixteen() {
    let mut world = World::new();
    world.submit_some(40, |s| s.qos = Qos::Background);
    world.submit_some(200, |s| s.qos = Qos::Urgent);
    world.register("a", declaration(160));
    let picked = world.cycle_by(1_000);
    let classes: Vec<Qos> = picked.iter().map(|d| world.state.task(d.task).unwrap().spec.qos).collect();
    assert_eq!(classes[0], Qos::Urgent);
    for window in classes.windows(usize::from(BACKGROUND_EVERY)) {
        assert_eq!(window.iter().filter(|class| **class == Qos::Background).count(), 1);
    }
}

#[test]
fn weights_are_honoured_and_unhealthy_or_full_agents_get_nothing() {
    let mut world = World::new();
    world.register("a", offering(100, |offer| offer.weight = 30));
    world.register("b", offering(100, |offer| offer.weight = 10));
    world.register("c", declaration(100));
    world.lose("c");
    world.submit_some(40, |_| {});
    let picked = world.cycle();
    assert_eq!(agents(&picked).iter().filter(|agent| **agent == "a").count(), 30);
    assert_eq!(agents(&picked).iter().filter(|agent| **agent == "b").count(), 10);
    let why = &picked[0].event.explanation;
    assert_eq!(&*why.strategy, "weighted-round-robin");
    assert_eq!(why.exclusions[0].reason, "lost".into());
    assert_eq!(why.exclusions[0].samples, [AgentId::new("c").unwrap()]);
    assert_eq!(why.runners_up[0].agent.as_str(), "b");
}

#[test]
fn least_loaded_counts_reported_foreign_work() {
    let mut world = World::new();
    let least = |offer: &mut Offer| offer.strategy = Some(Strategy::LeastLoaded);
    world.register("a", offering(10, least));
    world.register("b", offering(10, least));
    let load = Some(Load { queue_depth: 5, in_flight: 0, mean_latency: None });
    world.note(&Note::Beat { agent: key("a"), incarnation: world.incarnation("a"), load });
    world.submit_some(5, |_| {});
    assert_eq!(agents(&world.cycle()), ["b"; 5]);
}

#[test]
fn an_agent_over_its_load_threshold_waits_for_a_better_report() {
    let mut world = World::new();
    world.register("a", declaration(10));
    let report = |depth| Some(Load { queue_depth: depth, in_flight: 0, mean_latency: None });
    let incarnation = world.incarnation("a");
    world.note(&Note::Beat { agent: key("a"), incarnation, load: report(10) });
    let task = world.submit(|_| {});
    assert!(world.cycle().is_empty());
    let report_of = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
    assert_eq!(report_of.excluded[0].reason, Reason::LoadThreshold);
    world.note(&Note::Beat { agent: key("a"), incarnation, load: report(0) });
    assert_eq!(world.cycle().len(), 1);
}

#[test]
fn a_preferred_agent_wins_while_it_is_open_and_the_one_that_failed_last_is_avoided() {
    let mut world = World::new();
    world.register("a", declaration(1));
    world.register("b", declaration(1));
    let wanted = |s: &mut Submission| {
        s.preferred_agent = Some(AgentId::new("b").unwrap());
    };
    let first = world.submit(wanted);
    let second = world.submit(wanted);
    let picked = world.cycle();
    assert_eq!((picked[0].task, agents(&picked)), (first, vec!["b", "a"]));
    world.complete(first);
    world.ack(second);
    world.fail(second);
    world.pass(10);
    assert_eq!(agents(&world.cycle()), ["b"]);
    world.fail(second);
    world.lose("a");
    world.pass(10);
    assert_eq!(agents(&world.cycle()), ["b"], "it failed there last, but there is no other");
}

#[test]
fn requirements_and_callers_exclude_with_the_exact_reason() {
    let mut world = World::new();
    let d = |change: fn(&mut Declaration)| {
        let mut declared = declaration(5);
        change(&mut declared);
        declared
    };
    world.register("caller", d(|d| d.allowed_callers = vec![TokenId::new("other").unwrap()]));
    world.register("region", d(|d| d.region = Some("us".into())));
    world.register("version", d(|d| d.region = Some("eu".into())));
    world.register("window", d(|d| d.offers[0].context_window = Some(10)));
    world.register("schema", d(|d| d.offers[0].schemas = vec![Digest([7; 32])]));
    world.register("refused", d(|d| d.offers[0].schemas = vec![Digest([8; 32])]));
    let task = world.submit(|s| {
        Arc::make_mut(&mut s.requires).region = Some("eu".into());
        Arc::make_mut(&mut s.requires).version = Some("^2".into());
        s.schemas = SchemaVerdicts { accepted: Vec::new(), refused: vec![Digest([8; 32])] };
    });
    let small = world.submit(|s| {
        Arc::make_mut(&mut s.requires).context_window = Some(11);
        Arc::make_mut(&mut s.requires).tools = vec!["hammer".into()];
    });
    assert!(world.cycle().is_empty());
    let reasons = |world: &World, task| -> Vec<(String, Reason)> {
        let report = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
        report.excluded.iter().map(|e| (e.agent.as_str().to_owned(), e.reason)).collect()
    };
    let expected = [
        ("caller", Reason::NotPermitted),
        ("refused", Reason::SchemaRefused),
        ("region", Reason::Region),
        ("schema", Reason::SchemaUnchecked),
        ("version", Reason::Version),
        ("window", Reason::Region),
    ];
    assert_eq!(reasons(&world, task), expected.map(|(agent, reason)| (agent.to_owned(), reason)));
    assert!(reasons(&world, small).contains(&("window".to_owned(), Reason::Tools)));
}

#[test]
fn an_agent_that_serves_one_caller_is_not_blocked_by_the_tasks_of_others() {
    let mut world = World::new();
    for _ in 0..3 {
        world.submit_by("other", |_| {});
    }
    let mine = world.submit_by("mine", |_| {});
    let choosy = Declaration { allowed_callers: vec![TokenId::new("mine").unwrap()], ..declaration(5) };
    world.register("a", choosy);
    let picked = world.cycle();
    assert_eq!(picked.iter().map(|d| d.task).collect::<Vec<_>>(), [mine]);
    world.register("b", declaration(5));
    assert_eq!(agents(&world.cycle()), ["b"; 3]);
    assert!(world.refusals.is_empty());
}

#[test]
fn semantics_18_an_agent_with_a_later_schema_is_no_candidate_until_it_was_checked() {
    let mut world = World::new();
    let task = world.submit(|_| {});
    world.register("a", offering(5, |offer| offer.schemas = vec![Digest([7; 32])]));
    assert!(world.cycle().is_empty());
    let verdicts = SchemaVerdicts { accepted: vec![Digest([7; 32])], refused: Vec::new() };
    let namespace = Some(namespace());
    let checked = Command::SchemaChecked { task, verdicts };
    world.propose(&Proposal::by_hub(namespace, checked)).0.unwrap();
    assert_eq!(agents(&world.cycle()), ["a"]);
}

/// Tasks that their agents did not survive twice.
fn suspects(world: &mut World, n: u32) -> Vec<ReachId> {
    let tasks: Vec<_> = (0..n).map(|_| world.submit(|_| {})).collect();
    for victim in ["v1", "v2"] {
        world.register(victim, declaration(n));
        assert_eq!(world.cycle().len(), tasks.len());
        tasks.iter().for_each(|task| world.ack(*task));
        world.lose(victim);
        for task in &tasks {
            let replay = Command::ReplayTask { task: *task, superseded_by: None };
            world.propose(&Proposal::by_hub(Some(namespace()), replay)).0.unwrap();
        }
    }
    assert!(tasks.iter().all(|task| world.state.task(*task).unwrap().interruptions == 2));
    tasks
}

#[test]
fn semantics_9_a_suspect_has_no_neighbour_while_another_agent_can_serve() {
    let mut world = World::new();
    let task = suspects(&mut world, 1)[0];
    world.register("a", declaration(3));
    assert_eq!(world.cycle()[0].task, task);
    world.register("b", declaration(3));
    world.submit_some(4, |_| {});
    assert_eq!(agents(&world.cycle()), ["b", "b", "b", "a"], "beside the suspect only when nobody else can");
}

#[test]
fn semantics_9_an_agent_holds_at_most_one_suspect() {
    let mut world = World::new();
    let tasks = suspects(&mut world, 2);
    world.register("a", declaration(9));
    assert_eq!(agents(&world.cycle()), ["a"]);
    assert!(world.cycle().is_empty(), "the other waits, though there is room and nobody else");
    world.ack(tasks[0]);
    world.complete(tasks[0]);
    assert_eq!(world.cycle()[0].task, tasks[1]);
    assert!(world.refusals.is_empty());
}

#[test]
fn semantics_9_tasks_wait_for_an_idle_pull_agent_rather_than_join_a_suspect() {
    let mut world = World::new();
    suspects(&mut world, 1);
    world.register("a", declaration(3));
    world.cycle();
    world.register("b", pull(3));
    world.submit(|_| {});
    assert!(world.cycle().is_empty());
    world.claim("b", 1);
    assert_eq!(agents(&world.cycle()), ["b"]);
    world.submit(|_| {});
    assert!(world.cycle().is_empty());
    world.lose("b");
    assert_eq!(agents(&world.cycle()), ["a", "a"], "b is gone: its unstarted task came back, and nobody else is left");
}

#[test]
fn semantics_9_the_suspect_of_an_older_process_keeps_nobody_from_its_successor() {
    let mut world = World::new();
    let suspect = suspects(&mut world, 1)[0];
    world.register("a", declaration(3));
    assert_eq!(world.cycle()[0].task, suspect);
    world.register("b", pull(3));
    world.register("a", declaration(3));
    assert_eq!(world.state.task(suspect).unwrap().status.kind(), StatusKind::SlowReach);
    let task = world.submit(|_| {});
    let dispatched = world.cycle();
    assert_eq!(agents(&dispatched), ["a"], "its successor holds no suspect");
    assert_eq!(dispatched[0].task, task);
}

#[test]
fn a_refused_proposal_gives_back_slot_demand_and_place() {
    let mut world = World::new();
    world.register("a", pull(5));
    let tasks: Vec<_> = (0..3).map(|_| world.submit(|_| {})).collect();
    world.claim("a", 1);
    let proposals = world.scheduler.plan(&world.state, world.now, 10);
    assert_eq!(proposals.len(), 1);
    world.scheduler.refused(&world.state, &proposals[0]);
    assert!(world.scheduler.plan(&world.state, world.now, 10).is_empty(), "not at once again");
    let again = world.scheduler.wake_at(&world.state, world.now).unwrap();
    world.pass(again.since(world.now).0);
    assert_eq!(world.cycle().iter().map(|d| d.task).collect::<Vec<_>>(), tasks[..1]);
}

#[test]
fn a_proposal_that_was_never_decided_is_made_again() {
    let mut world = World::new();
    world.register("a", declaration(1));
    let task = world.submit(|_| {});
    assert_eq!(world.scheduler.plan(&world.state, world.now, 10).len(), 1);
    world.scheduler.plan(&world.state, world.now, 10);
    world.pass(10);
    assert_eq!(world.cycle()[0].task, task);
}

#[test]
fn semantics_21_a_backlog_found_at_boot_is_handed_out_on_a_ramp_and_a_new_task_is_not_held_back_after_it() {
    let mut world = World::new();
    world.submit_some(600, |_| {});
    world.register("a", declaration(10_000));
    world.restart();
    assert_eq!(world.cycle_by(1_000).len(), 20);
    let wake = world.scheduler.wake_at(&world.state, world.now).unwrap();
    assert!(wake > world.now);
    world.pass(1_000);
    assert_eq!(world.cycle_by(1_000).len(), 200);
    world.pass(1_000);
    assert_eq!(world.cycle_by(1_000).len(), 380);
    assert_eq!(world.scheduler.wake_at(&world.state, world.now), None);
    world.submit_some(500, |_| {});
    assert_eq!(world.cycle_by(1_000).len(), 500);
}

#[test]
fn a_cancelled_or_expired_task_leaves_nothing_in_the_queue() {
    let mut world = World::new();
    let task = world.submit(|s| s.fairness_key = FairnessKey::new("bob").unwrap());
    let namespace = Some(namespace());
    let cancel = Command::CancelTask { task, reason: None, fact: None };
    world.propose(&Proposal::by_hub(namespace, cancel)).0.unwrap();
    world.submit(|s| s.lifetime = Millis(5));
    world.pass(5);
    assert_eq!(world.scheduler.queued(), 0);
    world.register("a", declaration(5));
    assert!(world.cycle().is_empty());
}

#[test]
fn latencies_and_failures_are_observed_by_agent() {
    let mut world = World::new();
    world.register("a", declaration(5));
    let task = world.submit(|_| {});
    world.cycle();
    world.pass(40);
    world.ack(task);
    world.pass(200);
    world.complete(task);
    let pulse = world.scheduler.vitals().of(&key("a")).unwrap();
    assert!((40..=45).contains(&pulse.ack.percentile(50).unwrap().0));
    assert!((200..=225).contains(&pulse.work.percentile(99).unwrap().0));
    assert_eq!(pulse.outcomes.failure_milli(), Some(0));
}

#[test]
fn only_a_loss_is_a_failure_of_the_agent_not_a_drain_a_goodbye_or_a_successor() {
    let failures = |leave: fn(&mut World)| {
        let mut world = World::new();
        world.register("a", declaration(5));
        for _ in 0..2 {
            let task = world.submit(|_| {});
            world.cycle();
            world.ack(task);
        }
        leave(&mut world);
        let orphaned = |id: &StatusKind| *id == StatusKind::Orphaned;
        let kinds: Vec<_> = world.state.tasks().values().map(|task| task.status.kind()).collect();
        assert!(kinds.iter().all(orphaned), "{kinds:?}");
        world.scheduler.vitals().of(&key("a")).unwrap().outcomes.failure_milli()
    };
    assert_eq!(failures(|world| world.lose("a")), Some(1_000));
    assert_eq!(failures(|world| world.drain("a")), None);
    assert_eq!(failures(|world| world.leave("a")), None);
    assert_eq!(failures(|world| world.register("a", declaration(5))), None);
}

#[test]
fn one_agent_serves_all_its_capabilities_by_class_and_turn() {
    let mut world = World::new();
    let declared = Declaration { offers: vec![offer("a.b"), offer("c.d")], ..declaration(4) };
    let flood: Vec<_> = (0..3).map(|_| world.submit(|_| {})).collect();
    let other = world.submit(|s| {
        s.capability = "c.d".parse().unwrap();
        s.fairness_key = FairnessKey::new("bob").unwrap();
    });
    world.register("a", declared);
    let order: Vec<_> = world.cycle().iter().map(|d| d.task).collect();
    assert_eq!(order, [flood[0], other, flood[1], flood[2]]);
}

#[test]
fn semantics_17_a_planner_rebuilt_from_the_state_hands_out_what_the_one_that_watched_would() {
    let plan = |restarted: bool| {
        let mut world = World::new();
        world.submit_some(6, |_| {});
        world.submit(|spec| spec.qos = Qos::Urgent);
        if restarted {
            world.restart();
            world.pass(60_000);
        }
        world.register("a", declaration(4));
        world.beat("a");
        world.cycle().into_iter().map(|dispatch| dispatch.task).collect::<Vec<_>>()
    };
    let watched = plan(false);
    assert_eq!(watched.len(), 4, "as many as there are slots");
    assert_eq!(plan(true), watched, "lanes and positions are derived: nothing of them is in the ledger");
}
