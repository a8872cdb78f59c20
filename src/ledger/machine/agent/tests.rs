//! The rules of agents: given what was proposed before, when this is proposed, then these events.

use crate::ledger::ids::{AttemptNo, Capability, Digest, Incarnation};
use crate::ledger::machine::agent::{DrainMode, GHOST_SLOT, Health, Sensitive, Standing};
use crate::ledger::machine::command::{Command, Held, Proposal};
use crate::ledger::machine::decision::{Answer, Beat, Rejection};
use crate::ledger::machine::due::Subject;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::world::{World, agent_id, capability, declaration, key, namespace, offer, task_id};
use crate::ledger::time::Millis;

const ONE: Incarnation = Incarnation(1);
const TWO: Incarnation = Incarnation(2);

fn beat_with(world: &mut World, incarnation: Incarnation, held: Option<Vec<(u8, u32)>>) -> (Vec<&'static str>, Beat) {
    let held = held.map(|held| {
        held.into_iter().map(|(n, attempt)| Held { task: task_id(n), attempt: AttemptNo(attempt) }).collect()
    });
    let (events, answer) = world.when(Command::Heartbeat { agent: agent_id("a"), incarnation, held });
    match answer {
        Ok(Answer::Beat(beat)) => (events, beat),
        other => panic!("a heartbeat was answered {other:?}"),
    }
}

fn lost(incarnation: Incarnation) -> Command {
    Command::MarkLost { agent: agent_id("a"), incarnation, silent: Millis::secs(45) }
}

fn unhealthy(incarnation: Incarnation) -> Command {
    Command::MarkUnhealthy { agent: agent_id("a"), incarnation, silent: Millis::secs(15) }
}

fn drain(mode: DrainMode, grace: Millis) -> Command {
    Command::DrainAgent { agent: agent_id("a"), mode, grace, reason: None }
}

fn cancel(n: u8) -> Command {
    Command::CancelTask { task: task_id(n), reason: None, fact: None }
}

#[test]
fn semantics_2_the_same_instance_keeps_its_incarnation_and_its_work() {
    let mut world = World::new();
    assert_eq!(world.register("a", Some("i")), ["agent-registered"]);
    world.work(1, "a");
    assert_eq!(world.register("a", Some("i")), ["agent-updated"]);
    assert_eq!(world.incarnation("a"), ONE);
    assert_eq!(world.status(1), StatusKind::Processing);
}

#[test]
fn semantics_2_another_instance_takes_over_what_was_acknowledged_is_orphaned_and_the_rest_is_queued() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.dispatch(2, "a");
    let events = world.register("a", Some("j"));
    assert_eq!(events.first(), Some(&"agent-registered"));
    assert!(events.contains(&"task-orphaned"), "{events:?}");
    assert_eq!(world.incarnation("a"), TWO);
    assert_eq!((world.status(1), world.status(2)), (StatusKind::Orphaned, StatusKind::Queued));
}

#[test]
fn semantics_2_without_an_instance_every_registration_is_another_process() {
    let mut world = World::new();
    world.register("a", None);
    world.register("a", None);
    assert_eq!(world.incarnation("a"), TWO);
}

#[test]
fn semantics_2_an_older_incarnation_is_fenced() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.register("a", Some("j"));
    let superseded = Rejection::IncarnationSuperseded { current: TWO };
    let old = Command::Heartbeat { agent: agent_id("a"), incarnation: ONE, held: None };
    assert_eq!(world.refused(old), superseded);
    assert_eq!(world.refused(Command::AgentOffline { agent: agent_id("a"), incarnation: ONE }), superseded);
    assert_eq!(world.refused(lost(ONE)), superseded);
}

#[test]
fn semantics_3_a_lost_agent_that_calls_with_its_unreplaced_incarnation_is_healthy_again() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    assert_eq!(world.ok(unhealthy(ONE)), ["agent-unhealthy"]);
    assert_eq!(world.ok(lost(ONE)), ["agent-lost", "task-orphaned"]);
    world.wait(Millis::secs(1));
    assert_eq!(beat_with(&mut world, ONE, None).0, ["agent-healthy"]);
    assert_eq!(world.agent("a").health, Health::Healthy);
    assert_eq!(world.agent("a").returned_at, Some(world.now));
    assert_eq!(world.status(1), StatusKind::Orphaned, "only a listing or a report reclaims");
}

#[test]
fn a_heartbeat_that_changes_nothing_leaves_no_event() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    assert_eq!(beat_with(&mut world, ONE, Some(vec![(1, 1)])), (vec![], Beat::default()));
}

#[test]
fn semantics_3_a_mark_that_comes_too_late_is_a_stale_view() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.ok(lost(ONE));
    assert!(world.refused(lost(ONE)).is_stale_view());
    assert!(world.refused(unhealthy(ONE)).is_stale_view());
}

#[test]
fn semantics_5_a_returned_agent_that_lists_its_orphan_gets_it_back_and_a_foreign_one_is_lost() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.register("b", Some("i"));
    world.work(1, "a");
    world.work(2, "b");
    world.ok(lost(ONE));
    let (events, beat) = beat_with(&mut world, ONE, Some(vec![(1, 1), (1, 1), (2, 1), (1, 9), (77, 1)]));
    assert_eq!(events, ["agent-healthy", "task-reclaimed"]);
    assert_eq!(world.status(1), StatusKind::Processing);
    assert_eq!(world.status(2), StatusKind::Processing);
    let lost = [(task_id(1), AttemptNo(9)), (task_id(2), AttemptNo(1)), (task_id(77), AttemptNo(1))];
    assert_eq!(beat.lost, lost);
}

#[test]
fn semantics_6_a_ghost_slot_is_kept_until_the_told_agent_omits_it() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(cancel(1));
    assert_eq!(world.agent("a").slots_used(), 1);
    let (events, beat) = beat_with(&mut world, ONE, Some(vec![]));
    assert_eq!(events, ["agent-told"], "it could not know yet: its omission frees nothing");
    assert_eq!(beat.cancelled, [(task_id(1), AttemptNo(1))]);
    let (events, beat) = beat_with(&mut world, ONE, Some(vec![(1, 1)]));
    assert_eq!((events, beat.cancelled.len(), beat.lost.len()), (vec![], 1, 0));
    let (events, beat) = beat_with(&mut world, ONE, Some(vec![]));
    assert_eq!(events, ["agent-slot-freed"]);
    assert_eq!(beat, Beat::default());
    assert_eq!(world.agent("a").slots_used(), 0);
    assert!(world.agent("a").told.is_empty());
    assert_eq!(world.state.due().of(&Subject::Agent(key("a"))), None);
}

#[test]
fn semantics_6_a_heartbeat_without_a_listing_frees_no_ghost_slot_but_30_s_do() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(cancel(1));
    beat_with(&mut world, ONE, None);
    assert_eq!(beat_with(&mut world, ONE, None).0, [""; 0]);
    world.wait(Millis(GHOST_SLOT.0 - 1));
    assert_eq!(world.fire("a"), [""; 0]);
    world.wait(Millis(1));
    assert_eq!(world.state.due().of(&Subject::Agent(key("a"))), Some(world.now));
    assert_eq!(world.fire("a"), ["agent-slot-freed"]);
    assert_eq!(world.agent("a").slots_used(), 0);
}

#[test]
fn semantics_40_a_draining_agent_finishes_and_is_deregistered_with_its_last_task() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.work(2, "a");
    assert_eq!(world.ok(drain(DrainMode::Finish, Millis::secs(30))), ["agent-draining"]);
    assert!(!world.agent("a").is_open());
    assert_eq!(beat_with(&mut world, ONE, None).1.drain_until, Some(world.now.after(Millis::secs(30))));
    assert_eq!(world.complete(1, "a"), ["task-succeeded"]);
    assert_eq!(world.complete(2, "a"), ["task-succeeded", "agent-deregistered"]);
    assert_eq!(world.agent("a").standing, Standing::Deregistered);
    assert_eq!(world.state.due().of(&Subject::Agent(key("a"))), None);
}

#[test]
fn semantics_40_at_the_end_of_the_grace_leftovers_are_orphaned_and_only_then_is_the_agent_out() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(drain(DrainMode::Finish, Millis::secs(30)));
    world.wait(Millis(29_999));
    assert_eq!(world.fire("a"), [""; 0]);
    world.wait(Millis(1));
    assert_eq!(world.fire("a"), ["task-orphaned", "agent-deregistered"]);
    assert_eq!(world.status(1), StatusKind::Orphaned);
    assert_eq!(world.complete(1, "a"), ["task-succeeded"], "its lease is valid until the replay");
}

#[test]
fn semantics_40_hand_over_orphans_at_once_and_an_idle_agent_is_out_at_once() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    let events = world.ok(drain(DrainMode::HandOver, Millis::secs(30)));
    assert_eq!(events, ["agent-draining", "task-orphaned", "agent-deregistered"]);
    world.register("a", Some("j"));
    world.work(2, "a");
    world.complete(2, "a");
    let events = world.ok(drain(DrainMode::Finish, Millis::secs(30)));
    assert_eq!(events, ["agent-draining", "agent-deregistered"]);
    assert_eq!(world.refused(drain(DrainMode::Finish, Millis::secs(30))), Rejection::AgentNotRegistered);
}

#[test]
fn a_draining_agent_that_is_lost_is_out_with_its_leftovers_orphaned() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(drain(DrainMode::Finish, Millis::secs(30)));
    assert_eq!(world.ok(lost(ONE)), ["agent-lost", "task-orphaned", "agent-deregistered"]);
}

#[test]
fn a_draining_agent_waits_for_its_ghost_slots_too() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(drain(DrainMode::Finish, Millis::secs(60)));
    assert_eq!(world.ok(cancel(1)), ["task-cancelled"]);
    world.wait(GHOST_SLOT);
    assert_eq!(world.fire("a"), ["agent-slot-freed", "agent-deregistered"]);
}

#[test]
fn a_refresh_by_the_same_process_does_not_undo_an_operators_drain_and_a_new_process_does() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(drain(DrainMode::Finish, Millis::secs(30)));
    world.register("a", Some("i"));
    assert!(matches!(world.agent("a").standing, Standing::Draining { .. }));
    let events = world.register("a", Some("j"));
    assert_eq!(events, ["agent-registered", "task-orphaned"]);
    assert_eq!(world.agent("a").standing, Standing::Active);
}

#[test]
fn a_goodbye_takes_effect_at_once_and_registering_brings_the_agent_back() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    let goodbye = || Command::AgentOffline { agent: agent_id("a"), incarnation: ONE };
    assert_eq!(world.ok(goodbye()), ["agent-left", "task-orphaned"]);
    assert_eq!(world.ok(goodbye()), [""; 0], "twice is harmless");
    let beat = Command::Heartbeat { agent: agent_id("a"), incarnation: ONE, held: None };
    assert_eq!(world.refused(beat), Rejection::AgentNotRegistered);
    assert_eq!(world.register("a", Some("i")), ["agent-registered"]);
    assert_eq!((world.incarnation("a"), world.agent("a").standing), (ONE, Standing::Active));
}

#[test]
fn a_deregistered_agent_loses_its_work_and_a_second_deletion_is_harmless() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    let delete = || Command::DeregisterAgent { agent: agent_id("a") };
    assert_eq!(world.ok(delete()), ["agent-deregistered", "task-orphaned"]);
    assert_eq!(world.ok(delete()), [""; 0]);
    assert_eq!(world.refused(Command::DeregisterAgent { agent: agent_id("z") }), Rejection::AgentUnknown);
}

#[test]
fn semantics_34_a_capability_is_listed_while_an_agent_not_gone_declares_it_lost_ones_included() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.register("b", Some("i"));
    world.ok(lost(ONE));
    world.ok(Command::AgentOffline { agent: agent_id("b"), incarnation: ONE });
    let listed = |world: &World| world.state.catalog().of(&namespace(), &capability()).cloned();
    assert_eq!(listed(&world).unwrap().providers.len(), 1);
    world.ok(Command::DeregisterAgent { agent: agent_id("a") });
    assert_eq!(listed(&world), None);
    world.register("b", Some("i"));
    assert_eq!(listed(&world).unwrap().providers.len(), 1);
}

#[test]
fn the_catalog_follows_a_changed_declaration() {
    let mut world = World::new();
    let mut first = declaration();
    first.offers[0].schemas = vec![Digest::of(&[b"s1"])];
    first.offers[0].sensitive = Sensitive::Yes;
    world.register_with("a", Some("i"), first.clone());
    world.register_with("b", Some("i"), first);
    let entry = |world: &World| world.state.catalog().of(&namespace(), &capability()).unwrap().clone();
    assert_eq!((entry(&world).schema_sets.len(), entry(&world).sensitive), (1, Sensitive::Yes));
    world.register("a", Some("i"));
    assert_eq!((entry(&world).schema_sets.len(), entry(&world).sensitive), (2, Sensitive::Yes));
    world.register("b", Some("i"));
    assert_eq!(entry(&world).schema_sets.iter().collect::<Vec<_>>(), [&Vec::<Digest>::new()]);
    assert_eq!(entry(&world).sensitive, Sensitive::No);
    let other = Capability::new("text.hash").unwrap();
    let mut moved = declaration();
    moved.offers = vec![offer(other.clone())];
    world.register_with("a", Some("i"), moved);
    assert_eq!(entry(&world).providers.len(), 1);
    assert!(world.state.catalog().of(&namespace(), &other).is_some());
}

#[test]
fn semantics_7_an_agent_of_another_namespace_is_as_unknown_as_none() {
    let mut world = World::new();
    world.register("a", Some("i"));
    for command in [
        Command::Heartbeat { agent: agent_id("a"), incarnation: ONE, held: None },
        Command::AgentOffline { agent: agent_id("a"), incarnation: ONE },
        drain(DrainMode::Finish, Millis::secs(1)),
        Command::DeregisterAgent { agent: agent_id("a") },
    ] {
        let foreign = Proposal::by_hub(Some("other".parse().unwrap()), command);
        assert_eq!(world.propose(foreign), (vec![], Err(Rejection::AgentUnknown)));
    }
}

#[test]
fn semantics_26_a_declaration_that_does_not_fit_one_event_is_refused() {
    let mut world = World::new();
    let mut large = declaration();
    large.offers[0].tools = (0..600).map(|n| format!("{n:0100}").into()).collect();
    let command = Command::RegisterAgent { agent: agent_id("a"), instance: None, declaration: Box::new(large) };
    assert_eq!(world.refused(command), Rejection::DeclarationTooLarge { limit: 60_000 });
}

#[test]
fn a_draining_agent_calls_no_orphan_back_by_its_listing() {
    let mut world = World::new();
    world.register("a", Some("i"));
    world.work(1, "a");
    world.ok(lost(ONE));
    assert_eq!(beat_with(&mut world, ONE, None).0, ["agent-healthy"]);
    world.work(2, "a");
    world.ok(drain(DrainMode::Finish, Millis::secs(30)));
    let (events, beat) = beat_with(&mut world, ONE, Some(vec![(1, 1), (2, 1)]));
    assert_eq!(events, [""; 0], "it was told to let go: task 1 is replayed elsewhere");
    assert_eq!(beat.lost, [], "its lease is valid until then, and a late result still wins");
    assert!(beat.drain_until.is_some());
}
