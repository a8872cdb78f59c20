//! Which tasks an operator's filter picks, and what a plan would do with each (R-REC-4).
//!
//! Why apart from the plan: the dry run, the freezing of a plan and the list of tasks ask the same question and must
//! get the same answer. What becomes of one the ledger itself says: [`judge`].

use crate::ledger::ids::{AgentId, BatchId, Capability, Incarnation, Namespace, ReachId, SessionId};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{FailureClass, Task};
use crate::ledger::time::Timestamp;

pub use crate::ledger::machine::replay::judge::judge;

/// A filter over the tasks of one namespace. Every field narrows; an empty one does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Select {
    /// In one of these states.
    pub states: Vec<StatusKind>,
    /// Asking for this capability.
    pub capability: Option<Capability>,
    /// Held by this agent; of one that no agent holds any more: held by it last.
    pub agent: Option<AgentId>,
    /// Held under this process of the agent; an ended task has forgotten it and does not fit.
    pub incarnation: Option<Incarnation>,
    /// In this session.
    pub session: Option<SessionId>,
    /// In this batch.
    pub batch: Option<BatchId>,
    /// With all of these labels.
    pub labels: Vec<(Text, Text)>,
    /// Whose last failure is of one of these classes.
    pub classes: Vec<FailureClass>,
    /// Submitted after this moment.
    pub after: Option<Timestamp>,
    /// Submitted before this moment.
    pub before: Option<Timestamp>,
    /// One of these, sorted.
    pub tasks: Vec<ReachId>,
}

impl Select {
    /// Does it narrow at all?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Does it pick this task?
    #[must_use]
    pub fn picks(&self, namespace: &Namespace, task: &Task) -> bool {
        let (spec, lease) = (&*task.spec, task.status.lease());
        let holder = || match lease {
            Some(lease) => Some(&lease.agent),
            None if task.status.kind().is_terminal() => task.agent.as_ref(),
            None => None,
        };
        let labelled = |(name, value): &(Text, Text)| spec.labels.iter().any(|(n, v)| n == name && v == value);
        task.namespace == *namespace
            && (self.tasks.is_empty() || self.tasks.binary_search(&task.id()).is_ok())
            && (self.states.is_empty() || self.states.contains(&task.status.kind()))
            && self.capability.as_ref().is_none_or(|capability| spec.capability == *capability)
            && self.agent.as_ref().is_none_or(|agent| holder() == Some(agent))
            && self.incarnation.is_none_or(|named| lease.is_some_and(|lease| lease.incarnation == named))
            && self.session.as_ref().is_none_or(|session| spec.session.as_ref() == Some(session))
            && self.batch.is_none_or(|batch| spec.batch.is_some_and(|(of, _)| of == batch))
            && self.labels.iter().all(labelled)
            && (self.classes.is_empty()
                || task.failure.as_ref().is_some_and(|failure| self.classes.contains(&failure.class)))
            && self.after.is_none_or(|after| task.submitted_at > after)
            && self.before.is_none_or(|before| task.submitted_at < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::Seq;
    use crate::ledger::machine::replay::{ItemAction, MayHaveRun, Skip};
    use crate::ledger::machine::task::OutcomeKind;
    use crate::ledger::machine::task::spec::Idempotence;
    use crate::ledger::store::contract;

    #[test]
    fn every_field_narrows_and_an_empty_filter_picks_all_of_the_namespace() {
        let task = contract::task(3, 0);
        let here = contract::namespace();
        let all = Select::default();
        assert!(all.is_empty() && all.picks(&here, &task));
        assert!(!all.picks(&Namespace::new("team-b").unwrap(), &task));
        let others = [
            Select { states: vec![StatusKind::Queued], ..all.clone() },
            Select { capability: Some(Capability::new("no.such").unwrap()), ..all.clone() },
            Select { agent: Some(AgentId::new("nobody").unwrap()), ..all.clone() },
            Select { incarnation: Some(Incarnation(1)), ..all.clone() },
            Select { session: Some(SessionId::new("s-1").unwrap()), ..all.clone() },
            Select { batch: Some(BatchId([9; 16])), ..all.clone() },
            Select { labels: vec![("a".into(), "b".into())], ..all.clone() },
            Select { classes: vec![FailureClass::Schema], ..all.clone() },
            Select { after: Some(task.submitted_at), ..all.clone() },
            Select { before: Some(task.submitted_at), ..all.clone() },
            Select { tasks: vec![contract::reach(4)], ..all.clone() },
        ];
        for other in others {
            assert!(!other.picks(&here, &task), "{other:?}");
        }
        let itself = Select { tasks: vec![task.id()], session: task.spec.session.clone(), ..all };
        assert!(itself.picks(&here, &task));
    }

    #[test]
    fn semantics_40_a_last_word_of_its_agent_is_no_ambiguity_and_its_absence_is() {
        let mut task = contract::task(1, 0);
        std::sync::Arc::make_mut(&mut task.spec).idempotence = Idempotence::NotDeclared;
        (task.acked, task.outcomes, task.reach_outcome) = (None, Vec::new(), None);
        task.status = crate::ledger::machine::task::status::Status::Expired;
        assert_eq!(judge(&task, MayHaveRun::Skip), Ok(ItemAction::Redrive), "it never started");
        task.acked = Some((crate::ledger::ids::AttemptNo(1), Seq(5)));
        assert_eq!(judge(&task, MayHaveRun::Skip), Err(Skip::MayHaveRun));
        assert_eq!(judge(&task, MayHaveRun::Include), Ok(ItemAction::Redrive));
        task.outcomes.push(crate::ledger::machine::task::OutcomeRecord {
            attempt: crate::ledger::ids::AttemptNo(1),
            lease: crate::ledger::ids::LeaseDigest::default(),
            kind: OutcomeKind::Fail,
            digest: crate::ledger::ids::Digest([1; 32]),
            receipt: Seq(6),
        });
        assert_eq!(judge(&task, MayHaveRun::Skip), Ok(ItemAction::Redrive), "its agent said that it failed");
        // The first attempt was handed over by a word and never answered; the second one failed.
        task.attempt = crate::ledger::ids::AttemptNo(2);
        task.acked = Some((task.attempt, Seq(7)));
        if let Some(outcome) = task.outcomes.first_mut() {
            outcome.attempt = crate::ledger::ids::AttemptNo(2);
        }
        assert_eq!(judge(&task, MayHaveRun::Skip), Err(Skip::MayHaveRun), "nobody knows of the first attempt");
        task.never_started = 1;
        assert_eq!(judge(&task, MayHaveRun::Skip), Ok(ItemAction::Redrive), "the first attempt never started");
    }
}
