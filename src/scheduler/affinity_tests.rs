//! Sessions stay together, over a real state (R4).

use crate::ledger::ids::SessionId;
use crate::ledger::machine::task::spec::Submission;
use crate::scheduler::world::{World, declaration};

#[test]
fn r4_tasks_of_a_session_go_to_the_agent_that_works_for_it_while_it_is_a_candidate() {
    let mut world = World::new();
    for agent in ["a", "b", "c"] {
        world.register(agent, declaration(3));
    }
    let of_session = |spec: &mut Submission| {
        spec.session = Some(SessionId::new("s").unwrap());
    };
    world.submit(of_session);
    let first = world.cycle().remove(0);
    world.ack(first.task);
    for _ in 0..2 {
        let task = world.submit(of_session);
        let told = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
        let winner = told.candidates.iter().find(|candidate| Some(&candidate.agent) == told.winner.as_ref()).unwrap();
        assert!(winner.score.contains(&("affinity", 1_000)), "what is explained is what is done");
        let next = world.cycle().remove(0);
        assert_eq!(next.agent, first.agent);
        assert_eq!(next.event.explanation.score[0], ("affinity".into(), 1_000));
        world.ack(next.task);
    }
    world.submit(of_session);
    let elsewhere = world.cycle().remove(0);
    assert_ne!(elsewhere.agent, first.agent, "it is full, and nobody waits for it");
    world.restart();
    world.complete(first.task);
    world.submit(of_session);
    assert_eq!(world.cycle()[0].agent, first.agent, "a restart forgets no holder");
}
