//! Queues that fill, in a real state: each capability is looked at once, however the look is cut.

use super::super::alerts::levels::{Filling, Place, filling};
use super::*;
use crate::ledger::machine::policy::Policy;

#[tokio::test]
async fn every_queue_that_fills_is_found_once_however_many_are_looked_at_in_one_question() {
    let hub = Hub::start().await;
    let policy = Policy { lane_bound: 10, namespace_bound: 10_000, ..Policy::default() };
    hub.propose(by_token(Command::SetPolicy { policy, reason: "a small queue".into() })).await;
    for n in 0..50_u8 {
        let capability = if n < 8 { "a.full".to_owned() } else { format!("b.n{n}") };
        let mut submission = samples::submission(ReachId([n + 1; 16]));
        submission.capability = Capability::new(&capability).expect("a name");
        submission.absent_agents = crate::ledger::machine::task::spec::AbsentAgents::Wait;
        hub.submit(submission, None).await;
    }
    let mut all = Vec::new();
    for most in [1, 2, 7, 1_000] {
        let (mut found, mut from) = (Vec::<Filling>::new(), Some(Place::default()));
        while let Some(place) = from.take() {
            let (some, next) = hub.ledger().ask(move |state| filling(state, &place, most)).await.expect("answers");
            found.extend(some);
            from = next;
        }
        all.push(found);
    }
    assert!(all.iter().all(|found| *found == all[0]), "{all:?}");
    let found: Vec<_> =
        all[0].iter().map(|queue| (queue.capability.as_ref().map(Capability::as_str), queue.count)).collect();
    assert_eq!(found, [(Some("a.full"), 8)]);
}
