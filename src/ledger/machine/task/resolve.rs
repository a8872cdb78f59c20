//! An operator's word on a task that nothing else can decide: slow, or orphaned and held (S9, S10, R-REC-5).

use serde::{Deserialize, Serialize};

use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{EventBody, TaskResolved};
use crate::ledger::machine::task::dispatch::let_back;
use crate::ledger::machine::task::retry::{dead_letter, failure};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{FailureClass, Task};

/// The code of a task that an operator gave up.
pub const GIVEN_UP: &str = "resolved-by-operator";

/// What an operator can decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolution {
    /// Back to the queue for another agent, idempotent or not: the old lease ends.
    HandOver,
    /// Give it up: `dead-letter`.
    Fail,
    /// Wait for the late result until the deadline, whatever its policy says; for slow tasks only.
    Wait,
}

impl Resolution {
    /// Every resolution.
    pub const ALL: [Self; 3] = [Self::HandOver, Self::Fail, Self::Wait];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HandOver => "hand-over",
            Self::Fail => "fail",
            Self::Wait => "wait",
        }
    }
}

/// Decides an operator's word.
pub(super) fn resolve(task: &Task, resolution: Resolution, reason: &Text) -> Decision {
    let state = task.status.kind();
    let is_slow = state == StatusKind::SlowReach;
    let decidable = is_slow || (state == StatusKind::Orphaned && resolution != Resolution::Wait);
    if !decidable {
        return Decision::refuse(Rejection::NotResolvable { state });
    }
    let resolved = TaskResolved { task: task.id(), attempt: task.attempt, resolution, reason: reason.clone() };
    let mut events: Vec<EventBody> = vec![resolved.into()];
    let state = match resolution {
        Resolution::HandOver => {
            events.extend(let_back(task));
            StatusKind::Queued
        }
        Resolution::Fail => {
            let class = if is_slow { FailureClass::AgentTimeout } else { FailureClass::AgentCrash };
            events.push(dead_letter(task, failure(class, GIVEN_UP)));
            StatusKind::DeadLetter
        }
        Resolution::Wait => state,
    };
    Decision::accept(events, Answer::Task { state })
}
