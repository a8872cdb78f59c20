//! Slow start toward agents that came back, over a real state (R-REC-6).

use crate::ledger::planner::Planner;
use crate::ledger::time::Millis;
use crate::scheduler::routing::candidate::Reason;
use crate::scheduler::world::{World, declaration};

#[test]
fn r_rec_6_an_agent_that_came_back_gets_one_then_two_then_four() {
    let mut world = World::new();
    world.register("a", declaration(8));
    world.lose("a");
    world.submit_some(20, |_| {});
    assert_eq!(world.cycle().len(), 0);
    world.beat("a");
    let mut held = 0;
    for limit in [1, 2, 4, 8] {
        held += world.cycle().len();
        assert_eq!(held, limit);
        let task = world.submit(|_| {});
        let told = world.scheduler.explain_task(&world.state, world.state.task(task).unwrap());
        let reason = if limit < 8 { Reason::SlowStart } else { Reason::NoFreeSlot };
        assert_eq!(told.excluded[0].reason, reason);
        let wake = Planner::wake_at(&world.scheduler, &world.state, world.now);
        if limit < 8 {
            assert_eq!(wake, Some(world.now.after(Millis::secs(1))));
        }
        world.pass(999);
        world.beat("a");
        assert_eq!(world.cycle().len(), 0);
        world.pass(1);
    }
    world.register("b", declaration(8));
    assert_eq!(world.cycle().len(), 8, "a new one is not slowed");
}

#[test]
fn r_rec_6_an_agent_that_registers_again_after_a_loss_warms_up() {
    let mut world = World::new();
    world.register("a", declaration(8));
    world.lose("a");
    world.submit_some(20, |_| {});
    world.register("a", declaration(8));
    assert_eq!(world.cycle().len(), 1);
}
