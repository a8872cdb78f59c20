//! From what a push came to, to what is proposed: an answer becomes the agent's own report, anything else the hub's
//! word on the push.

use super::answer::{Meaning, Said};
use super::dispatcher::Push;
use super::wire::outcome_digest;
use crate::ledger::handle::Intake;
use crate::ledger::machine::command::{AgentBusy, Command, Proposal, PushTrouble, Report, Retryable, Word};
use crate::ledger::machine::event::{Actor, AlreadyDone};
use crate::ledger::machine::task::Failure;
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::store::{Body, BodyKey, BodyKind};

/// No random bytes for a body's salt.
#[derive(Debug, thiserror::Error)]
#[error("no random bytes: {0}")]
pub(super) struct NoRandomness(String);

/// The proposal that tells `meaning`, with the bodies that it names.
pub(super) fn intake(push: &Push, meaning: Meaning) -> Result<Intake, NoRandomness> {
    let mut bodies = Vec::new();
    let word = match meaning {
        Meaning::Acknowledged => Word::Ack,
        Meaning::Done { result } => {
            let digest = outcome_digest(result.as_deref().unwrap_or(b"null"));
            let result = result.map(|bytes| keep(push, BodyKind::Result, bytes, &mut bodies)).transpose()?;
            Word::Complete { result, digest, usage: Vec::new(), already_done: AlreadyDone::No }
        }
        Meaning::AlreadyDone => Word::Complete {
            result: None,
            digest: outcome_digest(b"null"),
            usage: Vec::new(),
            already_done: AlreadyDone::Yes,
        },
        Meaning::Failed { class, code, message } => {
            let said = serde_json::json!({"code": &*code, "message": message});
            let digest = outcome_digest(said.to_string().as_bytes());
            let message =
                message.map(|text| keep(push, BodyKind::Error, text.into_bytes(), &mut bodies)).transpose()?;
            let failure = Failure { class, code, message };
            Word::Fail { failure, digest, retryable: Retryable::No, retry_after: None }
        }
        Meaning::NeverStarted { class, code, retry_after, said } => {
            let busy = match said {
                Said::NotNow => AgentBusy::Yes,
                Said::Nothing => AgentBusy::No,
            };
            let failure = Failure { class, code, message: None };
            return Ok(trouble(push, PushTrouble::NeverStarted { failure, retry_after, busy }));
        }
        Meaning::Ambiguous { class, code } => {
            return Ok(trouble(push, PushTrouble::Ambiguous { failure: Failure { class, code, message: None } }));
        }
    };
    let report = Report {
        task: push.handed.spec.reach_id,
        agent: push.agent.agent_id.clone(),
        incarnation: push.incarnation,
        attempt: push.handed.attempt,
        lease: push.lease,
        word,
        fact: None,
    };
    let proposal = Proposal {
        namespace: Some(push.handed.namespace.clone()),
        actor: Actor::Agent { agent_id: push.agent.agent_id.clone(), incarnation: push.incarnation },
        trace: push.handed.trace,
        command: Command::Report(Box::new(report)),
    };
    Ok(Intake { proposal, bodies })
}

fn trouble(push: &Push, trouble: PushTrouble) -> Intake {
    let command = Command::PushFailed { task: push.handed.spec.reach_id, attempt: push.handed.attempt, trouble };
    let proposal =
        Proposal { trace: push.handed.trace, ..Proposal::by_hub(Some(push.handed.namespace.clone()), command) };
    proposal.into()
}

fn keep(
    push: &Push,
    kind: BodyKind,
    bytes: Vec<u8>,
    bodies: &mut Vec<(BodyKey, Body)>,
) -> Result<BodyRef, NoRandomness> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).map_err(|error| NoRandomness(error.to_string()))?;
    let body = Body { salt, bytes: bytes.into() };
    let named = BodyRef { digest: body.digest(), len: u32::try_from(body.bytes.len()).unwrap_or(u32::MAX) };
    let key = BodyKey::Task { task: push.handed.spec.reach_id, kind, attempt: push.handed.attempt.0 };
    bodies.push((key, body));
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::ledger::ids::{AgentId, AgentKey, Incarnation, LeaseDigest, ReachId};
    use crate::ledger::machine::task::FailureClass;
    use crate::ledger::time::Millis;

    fn push() -> Push {
        Push {
            handed: samples::handed(ReachId([4; 16])),
            agent: AgentKey { namespace: samples::namespace(), agent_id: AgentId::new("push-1").expect("an id") },
            incarnation: Incarnation(3),
            lease: LeaseDigest::default(),
            endpoint: None,
        }
    }

    #[test]
    fn a_result_is_the_agents_own_report_with_its_body_beside() {
        let intake = intake(&push(), Meaning::Done { result: Some(b"{\"t\": 1}".to_vec()) }).expect("random bytes");
        assert_eq!(
            intake.proposal.actor,
            Actor::Agent { agent_id: AgentId::new("push-1").expect("an id"), incarnation: Incarnation(3) }
        );
        let Command::Report(report) = intake.proposal.command else { panic!("no report") };
        let Word::Complete { result: Some(named), digest, already_done: AlreadyDone::No, .. } = report.word else {
            panic!("not complete")
        };
        let [(key, body)] = &*intake.bodies else { panic!("one body") };
        assert_eq!(*key, BodyKey::Task { task: ReachId([4; 16]), kind: BodyKind::Result, attempt: 2 });
        assert_eq!((named.digest, named.len, &*body.bytes), (body.digest(), 8, &b"{\"t\": 1}"[..]));
        assert_eq!(digest, outcome_digest(b"{\"t\":1}"));
    }

    #[test]
    fn semantics_8_a_409_is_an_empty_success_that_says_so() {
        let intake = intake(&push(), Meaning::AlreadyDone).expect("random bytes");
        let Command::Report(report) = intake.proposal.command else { panic!("no report") };
        assert!(matches!(report.word, Word::Complete { result: None, already_done: AlreadyDone::Yes, .. }));
    }

    #[test]
    fn a_failure_keeps_its_message_beside_the_ledger() {
        let meaning = Meaning::Failed {
            class: FailureClass::Business,
            code: "bad-city".into(),
            message: Some("no such city".to_owned()),
        };
        let intake = intake(&push(), meaning).expect("random bytes");
        let Command::Report(report) = intake.proposal.command else { panic!("no report") };
        let Word::Fail { failure, retryable: Retryable::No, .. } = report.word else { panic!("not failed") };
        assert_eq!(&*failure.code, "bad-city");
        assert_eq!(intake.bodies.first().map(|(_, body)| &*body.bytes), Some(&b"no such city"[..]));
    }

    #[test]
    fn semantics_8_trouble_is_the_hubs_own_word() {
        let busy = Meaning::NeverStarted {
            class: FailureClass::AgentOverload,
            code: "http-429".into(),
            retry_after: Some(Millis(5_000)),
            said: Said::NotNow,
        };
        let intake = intake(&push(), busy).expect("random bytes");
        assert_eq!(intake.proposal.actor, Actor::Hub);
        let Command::PushFailed { trouble, .. } = intake.proposal.command else { panic!("no trouble") };
        assert!(matches!(
            trouble,
            PushTrouble::NeverStarted { busy: AgentBusy::Yes, retry_after: Some(Millis(5_000)), .. }
        ));
    }
}
