//! The commands that decide a task which waits for a person's word, ready to be pasted (R-SUB-9, S9, S10, R-REC-5).
//!
//! As with an ended task, what is told is what the rules let pass for this very one.

use crate::api::aftermath::can_be_typed;
use crate::ledger::machine::event::HeldWhy;
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::redrive::may_have_run;
use crate::ledger::machine::task::spec::OrphanPolicy;
use crate::ledger::machine::task::status::Status;

/// The words that decide it; none for a task that goes on by itself.
pub(super) fn commands(task: &Task, held: Option<HeldWhy>) -> Vec<String> {
    let id = task.id();
    let call_off = format!("to call it off: `reach tasks cancel {id} --reason WHY`");
    match &task.status {
        Status::AwaitingApproval => {
            vec![format!("to let it go on: `reach tasks approve {id}`, which is POST /v1/tasks/{id}/approve"), call_off]
        }
        Status::SlowReach { act_at, .. } => {
            let mut all = resolutions(task, "if its agent is known to be dead");
            // Without a policy that acts it waits anyway.
            all.extend(act_at.map(|_| {
                format!("if it is seen at work, until its deadline: `reach tasks resolve {id} wait --reason WHY`")
            }));
            all.push(call_off);
            all
        }
        Status::Orphaned { lease, .. } if held.is_some() || task.spec.orphan == OrphanPolicy::Hold => {
            let mut all = resolutions(task, "for another agent to do it");
            all.push(call_off);
            let agent = lease.agent.as_str();
            // A plan leaves alone what its session has left behind.
            if held.is_none() && can_be_typed(agent) {
                all.push(format!(
                    "for all that {agent} left there are plans: `reach replay plan --state orphaned --agent {agent} \
                     --include-ambiguous --dry-run`"
                ));
            }
            all
        }
        Status::Scheduled { .. }
        | Status::Queued { .. }
        | Status::Dispatched { .. }
        | Status::Processing { .. }
        | Status::Retrying { .. }
        | Status::Orphaned { .. }
        | Status::Succeeded
        | Status::Failed
        | Status::DeadLetter
        | Status::Expired
        | Status::Cancelled => Vec::new(),
    }
}

fn resolutions(task: &Task, when: &str) -> Vec<String> {
    let id = task.id();
    let only_if = if may_have_run(task) {
        ", for it may have run and is not declared idempotent: only if a second run does no harm"
    } else {
        ""
    };
    vec![
        format!(
            "{when}{only_if}: `reach tasks resolve {id} hand-over --reason WHY`, which is POST /v1/tasks/{id}/resolve"
        ),
        format!("to give it up, as a dead letter: `reach tasks resolve {id} fail --reason WHY`"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::store::contract;

    #[test]
    fn what_goes_on_by_itself_needs_no_word_and_what_waits_for_one_is_told_the_command() {
        let mut task = contract::task(3, 0);
        let id = task.id();
        assert_eq!(commands(&task, None), [""; 0], "it has ended");
        task.status = Status::AwaitingApproval;
        let told = commands(&task, None).join("\n");
        assert!(told.contains(&format!("`reach tasks approve {id}`")), "{told}");
        task.status = Status::Retrying { until: task.submitted_at };
        assert_eq!(commands(&task, None), [""; 0]);
    }
}
