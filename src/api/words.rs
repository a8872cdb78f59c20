//! The words that filters take, for those who offer a choice of them: the command line, a panel.

use crate::ledger::machine::access::Scope;
use crate::ledger::machine::event::EventKind;
use crate::ledger::machine::replay::{Ended, ReplayPhase, Skip};
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::status::StatusKind;

/// Every kind of event.
pub fn event_kinds() -> impl Iterator<Item = &'static str> {
    EventKind::ALL.iter().map(|kind| kind.name())
}

/// Every state of a task.
pub fn task_states() -> impl Iterator<Item = &'static str> {
    StatusKind::ALL.into_iter().map(StatusKind::name)
}

/// The states of a task that nobody moves on.
pub fn terminal_states() -> impl Iterator<Item = &'static str> {
    StatusKind::ALL.into_iter().filter(|state| state.is_terminal()).map(StatusKind::name)
}

/// Every class of failure.
pub fn failure_classes() -> impl Iterator<Item = &'static str> {
    FailureClass::ALL.into_iter().map(FailureClass::name)
}

/// Every scope of a token.
pub fn scopes() -> impl Iterator<Item = &'static str> {
    Scope::ALL.into_iter().map(Scope::name)
}

/// The states of a task that a replay plan acts on.
pub fn replayable_states() -> impl Iterator<Item = &'static str> {
    use StatusKind::{DeadLetter, Expired, Failed, Orphaned, SlowReach};
    [Orphaned, SlowReach, Failed, DeadLetter, Expired].into_iter().map(StatusKind::name)
}

/// Every state of a replay plan that can be seen from outside.
pub fn replay_states() -> impl Iterator<Item = &'static str> {
    let ended = [Ended::Completed, Ended::Cancelled].map(ReplayPhase::Finished);
    [ReplayPhase::Running, ReplayPhase::Paused].into_iter().chain(ended).map(ReplayPhase::name)
}

/// Every reason for which a plan leaves an item alone.
pub fn skip_reasons() -> impl Iterator<Item = &'static str> {
    Skip::ALL.into_iter().map(Skip::name)
}
