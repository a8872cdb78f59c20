//! Which tasks an operator's filter picks, and what a plan would do with each (R-REC-4).
//!
//! Why apart from the plan: the dry run, the freezing of a plan and the list of tasks ask the same question and must
//! get the same answer. What becomes of one the ledger itself says: [`judge`].
//!
//! An end of the hub's own making has a code and a class of its own, such as `retries-exhausted`, and hides those of the
//! attempt before it; these are the ones that people saw. Both count. The attempt's lie in the ledger and not in the task,
//! so one look at a task may end in the question for them: [`Pick::ByItsLastAttempt`].

use crate::ledger::ids::{AgentId, BatchId, Capability, Incarnation, Namespace, ReachId, SessionId};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Failure, FailureClass, Task};
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
    /// That ended with a failure of one of these classes, or whose last attempt that failed did.
    pub classes: Vec<FailureClass>,
    /// That ended with one of these codes, or whose last attempt that failed did.
    pub codes: Vec<Text>,
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

    /// Does it pick this task, by what the task itself says?
    #[must_use]
    pub fn picks(&self, namespace: &Namespace, task: &Task) -> bool {
        self.pick(namespace, task) == Pick::Yes
    }

    /// What one look at a task says.
    #[must_use]
    pub fn pick(&self, namespace: &Namespace, task: &Task) -> Pick {
        if !self.fits(namespace, task) {
            Pick::No
        } else if self.fits_failures(task, None) {
            Pick::Yes
        } else if hides_a_failure(task) {
            Pick::ByItsLastAttempt
        } else {
            Pick::No
        }
    }

    /// Do the failures that it names fit: the one that the task shows, or the one of its last attempt that failed?
    #[must_use]
    pub fn fits_failures(&self, task: &Task, last: Option<&Failure>) -> bool {
        let some =
            |fits: &dyn Fn(&Failure) -> bool| task.failure.as_deref().is_some_and(fits) || last.is_some_and(fits);
        (self.classes.is_empty() || some(&|failure: &Failure| self.classes.contains(&failure.class)))
            && (self.codes.is_empty() || some(&|failure: &Failure| self.codes.contains(&failure.code)))
    }

    /// Does all fit but what it says of failures?
    fn fits(&self, namespace: &Namespace, task: &Task) -> bool {
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
            && self.after.is_none_or(|after| task.submitted_at > after)
            && self.before.is_none_or(|before| task.submitted_at < before)
    }
}

/// What one look at a task says of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// It picks it.
    Yes,
    /// It does not.
    No,
    /// It does if the failure of its last attempt that failed fits ([`Select::fits_failures`]), which is to be read.
    ByItsLastAttempt,
}

/// May the failure of an attempt lie under the one that the task shows? Only an end that is none of an agent's hides one;
/// an unfinished task shows the last that there was.
#[must_use]
pub fn hides_a_failure(task: &Task) -> bool {
    match task.status.kind() {
        StatusKind::DeadLetter | StatusKind::Expired | StatusKind::Cancelled => task.attempt.0 > 0,
        StatusKind::AwaitingApproval
        | StatusKind::Scheduled
        | StatusKind::Queued
        | StatusKind::Dispatched
        | StatusKind::Processing
        | StatusKind::SlowReach
        | StatusKind::Retrying
        | StatusKind::Orphaned
        | StatusKind::Succeeded
        | StatusKind::Failed => false,
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
            Select { codes: vec!["no-such".into()], ..all.clone() },
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
    fn an_end_of_the_hubs_own_making_is_picked_by_its_own_failure_and_by_that_of_its_last_attempt() {
        use crate::ledger::machine::task::status::Status;
        let failure = |class, code: &str| Failure { class, code: code.into(), message: None };
        let here = contract::namespace();
        let mut task = contract::task(3, 0);
        task.status = Status::DeadLetter;
        task.failure = Some(failure(FailureClass::Network, "never-reached").into());
        let last = failure(FailureClass::AgentOverload, "http-503");
        let by = |classes: &[FailureClass], codes: &[&str]| Select {
            classes: classes.to_vec(),
            codes: codes.iter().map(|code| Text::from(*code)).collect(),
            ..Select::default()
        };
        let own = by(&[FailureClass::Network], &["never-reached"]);
        assert_eq!(own.pick(&here, &task), Pick::Yes);
        for select in [by(&[], &["http-503"]), by(&[FailureClass::AgentOverload], &[])] {
            assert_eq!(select.pick(&here, &task), Pick::ByItsLastAttempt, "{select:?}");
            assert!(select.fits_failures(&task, Some(&last)) && !select.fits_failures(&task, None), "{select:?}");
        }
        // Each narrows by itself: the class of the one and the code of the other fit.
        assert!(by(&[FailureClass::Network], &["http-503"]).fits_failures(&task, Some(&last)));
        assert!(!by(&[FailureClass::Business], &["http-503"]).fits_failures(&task, Some(&last)));
        // Where nothing else fits, or nothing is hidden, nobody need look.
        let elsewhere = Select { batch: Some(BatchId([9; 16])), ..by(&[], &["http-503"]) };
        assert_eq!(elsewhere.pick(&here, &task), Pick::No);
        task.status = Status::Failed;
        assert_eq!(by(&[], &["http-503"]).pick(&here, &task), Pick::No);
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
