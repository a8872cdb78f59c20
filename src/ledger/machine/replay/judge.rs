//! What a plan does with a task as it stands: one answer for the dry run, the planner and the ledger.

use crate::ledger::machine::replay::{ItemAction, MayHaveRun, Skip};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::redrive::may_have_run;
use crate::ledger::machine::task::spec::{Idempotence, OrphanPolicy};
use crate::ledger::machine::task::status::StatusKind;

/// What a plan would do with a task as it stands now. Whether it was redriven before, is superseded or has lost its
/// payload is only known to who reads its history.
///
/// # Errors
/// The reason for which it would be left alone.
pub fn judge(task: &Task, word: MayHaveRun) -> Result<ItemAction, Skip> {
    let kind = task.status.kind();
    match kind {
        StatusKind::Orphaned | StatusKind::SlowReach => {
            // The orphan policy is its caller's word, given beforehand, for orphans alone (R-REC-5, semantics 11).
            let by_policy = kind == StatusKind::Orphaned && task.spec.orphan == OrphanPolicy::Replay;
            let is_safe = by_policy || task.spec.idempotence == Idempotence::Declared || word == MayHaveRun::Include;
            if is_safe { Ok(ItemAction::Replay) } else { Err(Skip::MayHaveRun) }
        }
        StatusKind::Failed | StatusKind::DeadLetter | StatusKind::Expired => {
            let is_safe = word == MayHaveRun::Include || !may_have_run(task);
            if is_safe { Ok(ItemAction::Redrive) } else { Err(Skip::MayHaveRun) }
        }
        StatusKind::Dispatched | StatusKind::Processing => Err(Skip::HeldElsewhere),
        StatusKind::AwaitingApproval | StatusKind::Scheduled | StatusKind::Queued | StatusKind::Retrying => {
            Err(Skip::MovedOn)
        }
        StatusKind::Succeeded | StatusKind::Cancelled => Err(Skip::NotApplicable),
    }
}
