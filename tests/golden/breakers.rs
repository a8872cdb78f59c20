//! Samples of breakers' events.

use agent_reach::ledger::ids::Capability;
use agent_reach::ledger::machine::breaker::FailedAttempt;
use agent_reach::ledger::machine::event::*;

use super::{ATTEMPT, INCARNATION, TASK, agent, at};

pub(super) fn breakers() -> Vec<EventBody> {
    let (agent, incarnation) = (agent(), INCARNATION);
    let capability = Capability::new("weather.forecast").unwrap();
    let failures = vec![FailedAttempt { task: TASK, attempt: ATTEMPT }];
    let reason = || "a bad release".into();
    let opened = |until, why| {
        let (agent, capability, failures) = (agent.clone(), capability.clone(), failures.clone());
        BreakerOpened { agent, incarnation, capability, until, failures, why }.into()
    };
    let half_opened =
        |why| BreakerHalfOpened { agent: agent.clone(), incarnation, capability: capability.clone(), why }.into();
    let closed = |why| BreakerClosed { agent: agent.clone(), incarnation, capability: capability.clone(), why }.into();
    vec![
        opened(Some(at(10_000)), OpenedWhy::Failures),
        opened(Some(at(20_000)), OpenedWhy::ProbeFailed),
        opened(None, OpenedWhy::Operator { reason: reason() }),
        half_opened(HalfOpenedWhy::TimeOver),
        half_opened(HalfOpenedWhy::ProbeSilent),
        half_opened(HalfOpenedWhy::Operator { reason: reason() }),
        closed(ClosedWhy::ProbeSucceeded),
        closed(ClosedWhy::ProbeAnswered),
        closed(ClosedWhy::Operator { reason: reason() }),
        closed(ClosedWhy::GivenBack { reason: reason() }),
    ]
}
