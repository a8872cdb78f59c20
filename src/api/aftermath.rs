//! What is said of a task that has ended without success: why, in its own words and those of its last attempt, and what an
//! operator can do next.
//!
//! Why here and not in a manual: whether it can be made anew, and with which words, depends on this very task. What is
//! advised is what the rules would let pass (semantics 40); the commands can be pasted.

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::ReachId;
use crate::ledger::last_failure::{LastFailure, Trail};
use crate::ledger::machine::task::redrive::may_have_run;
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::machine::task::{Failure, FailureClass, Task};
use crate::ledger::store::BodyKind;
use crate::recovery::select::hides_a_failure;

use super::render::body_key;
use super::task_view::{message, message_of};

/// Why a task is where it is, and what would let it go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) why: String,
    pub(super) unblock: Vec<String>,
}

/// What was looked up beside the task.
#[derive(Debug, Clone, Default)]
struct Known {
    message: Option<String>,
    /// The failure of its last attempt, where its end hides that, and what was said then.
    last: Option<(LastFailure, Option<String>)>,
    redriven_as: Option<ReachId>,
    superseded_by: Option<ReachId>,
    payload: Payload,
}

/// Is there a payload that would go again?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Payload {
    /// As it was submitted, if it was with one.
    #[default]
    Kept,
    /// It was erased.
    Erased,
}

/// What is said of a task that has failed, expired or become a dead letter; `None` of any other.
///
/// # Errors
/// [`Unavailable`] when the hub or its disk does not answer.
pub(super) async fn of(ledger: &Ledger, task: &Task) -> Result<Option<Told>, Unavailable> {
    if !matches!(task.status.kind(), StatusKind::Failed | StatusKind::DeadLetter | StatusKind::Expired) {
        return Ok(None);
    }
    let mut known = Known { redriven_as: ledger.kin(task).await?.redriven_as, ..Known::default() };
    if let Some(named) = message_ref(task.failure.as_deref()) {
        known.message = message(ledger, task, named).await?;
    }
    if hides_a_failure(task) {
        let last = ledger.last_failures(vec![Trail::of(task)]).await?.pop().flatten();
        if let Some(last) = last {
            let said = match message_ref(Some(&last.failure)) {
                Some(named) => message_of(ledger, task.id(), last.attempt, named).await?,
                None => None,
            };
            known.last = Some((last, said));
        }
    }
    if known.redriven_as.is_none() {
        known.superseded_by = ledger.superseded_by(task).await?;
        let key = body_key(task.id(), BodyKind::Payload, 0);
        if task.spec.payload.is_some() && ledger.body(key).await?.is_none() {
            known.payload = Payload::Erased;
        }
    }
    Ok(Some(Told { why: why(task, &known), unblock: unblock(task, &known) }))
}

fn message_ref(failure: Option<&Failure>) -> Option<&BodyRef> {
    failure.and_then(|failure| failure.message.as_ref())
}

/// How a task has ended, and since when.
pub(super) fn ended(task: &Task) -> String {
    let at = task.ended_at.map_or_else(String::new, |at| format!(" since {at}"));
    let cause = task.failure.as_deref().filter(|_| task.status.kind() != StatusKind::Succeeded);
    let cause = cause.map_or_else(String::new, |failure| format!(": {}", told(failure, None)));
    format!("it is {}{at}{cause}", task.status.kind().name())
}

/// `code (class): message`.
fn told(failure: &Failure, message: Option<&str>) -> String {
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    format!("{} ({}){message}", failure.code, failure.class.name())
}

fn why(task: &Task, known: &Known) -> String {
    let own = ended(task);
    let Some((last, said)) = &known.last else {
        return match &known.message {
            Some(message) => format!("{own}: {message}"),
            None => own,
        };
    };
    // What the hub says of the end may be the attempt's own message: once is enough.
    let is_same = message_ref(task.failure.as_deref()) == message_ref(Some(&last.failure));
    let message = known.message.as_ref().filter(|_| !is_same);
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    format!("{own}{message}; attempt {} failed: {}", last.attempt.0, told(&last.failure, said.as_deref()))
}

fn unblock(task: &Task, known: &Known) -> Vec<String> {
    let id = task.id();
    if let Some(successor) = known.redriven_as {
        return vec![format!("nothing: it was made anew as {successor}, of which `reach explain {successor}` tells")];
    }
    if let Some(by) = known.superseded_by {
        return vec![format!(
            "{by}, a newer task of its session, has succeeded, so it is not made anew: submit it again if it is wanted all \
             the same"
        )];
    }
    let own = task.failure.as_deref();
    let last = known.last.as_ref().map(|(last, _)| &last.failure).or(own);
    let is_of =
        |classes: &[FailureClass]| [own, last].into_iter().flatten().any(|failure| classes.contains(&failure.class));
    let mut all = Vec::new();
    if own.is_some_and(|own| matches!(own.class, FailureClass::Network | FailureClass::AgentOverload)) {
        all.push(format!("see first who could take it now: `reach explain {}`", task.spec.capability));
    }
    let (word, only_if) = if may_have_run(task) {
        let only_if = ", for it may have run and is not declared idempotent: only if a second run does no harm";
        (" --include-ambiguous", only_if)
    } else {
        ("", "")
    };
    let (payload, with) = match known.payload {
        Payload::Kept => ("", ""),
        Payload::Erased => (" --payload JSON", ", with another payload, for its own was erased"),
    };
    all.push(format!(
        "once the cause is mended an operator makes it anew{with}{only_if}: `reach tasks redrive {id}{word}{payload} \
         --reason WHY`, which is POST /v1/tasks/{id}/redrive"
    ));
    if known.payload == Payload::Kept && is_of(&[FailureClass::Business, FailureClass::Schema]) {
        let with = format!("`reach tasks redrive {id}{word} --payload JSON --reason WHY`");
        all.push(format!("if its payload was wrong, it is made anew with another one: {with}"));
    }
    if let Some(code) = last.map(|last| &*last.code).filter(|code| can_be_typed(code)) {
        let (state, capability) = (task.status.kind().name(), &task.spec.capability);
        let plan =
            format!("`reach replay plan --state {state} --capability {capability} --failure-code {code} --dry-run`");
        all.push(format!("for all that failed like it there are plans: {plan}"));
    }
    all
}

/// Means a code the same to a shell, and to an option that takes several with commas between?
pub(super) fn can_be_typed(code: &str) -> bool {
    !code.is_empty()
        && !code.starts_with('-')
        && code.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::AttemptNo;
    use crate::ledger::machine::task::spec::Idempotence;
    use crate::ledger::machine::task::status::Status;
    use crate::ledger::store::contract;

    fn failure(class: FailureClass, code: &str) -> Failure {
        Failure { class, code: code.into(), message: None }
    }

    fn dead_letter(class: FailureClass, code: &str) -> Task {
        let mut task = contract::task(3, 0);
        task.status = Status::DeadLetter;
        task.failure = Some(failure(class, code).into());
        task
    }

    #[test]
    fn an_end_is_told_with_what_its_last_attempt_said_and_nothing_twice() {
        let task = dead_letter(FailureClass::Business, "retries-exhausted");
        let last = LastFailure { attempt: AttemptNo(2), failure: failure(FailureClass::Business, "smtp-down") };
        let said = Some("connection refused".to_owned());
        let known = Known { message: said.clone(), last: Some((last, said)), ..Known::default() };
        let why = why(&task, &known);
        assert!(why.starts_with("it is dead-letter since "), "{why}");
        let ends = ": retries-exhausted (business); attempt 2 failed: smtp-down (business): connection refused";
        assert!(why.ends_with(ends), "{why}");
        let alone = super::why(&task, &Known { message: Some("gone".to_owned()), ..Known::default() });
        assert!(alone.ends_with(": retries-exhausted (business): gone"), "{alone}");
    }

    #[test]
    fn semantics_40_what_is_advised_is_what_the_rules_let_pass() {
        let mut task = dead_letter(FailureClass::AgentTimeout, "overdue");
        let id = task.id();
        let said = |task: &Task, known: &Known| unblock(task, known).join("\n");
        let plain = said(&task, &Known::default());
        assert!(plain.contains(&format!("`reach tasks redrive {id} --reason WHY`")), "{plain}");
        assert!(
            plain.contains("--state dead-letter --capability text.count --failure-code overdue --dry-run"),
            "{plain}"
        );
        std::sync::Arc::make_mut(&mut task.spec).idempotence = Idempotence::NotDeclared;
        task.acked = Some((AttemptNo(1), crate::ledger::ids::Seq(5)));
        let erased = said(&task, &Known { payload: Payload::Erased, ..Known::default() });
        let command = format!("`reach tasks redrive {id} --include-ambiguous --payload JSON --reason WHY`");
        assert!(erased.contains(&command) && erased.contains("no harm") && erased.contains("was erased"), "{erased}");
        let other = contract::reach(9);
        let made = said(&task, &Known { redriven_as: Some(other), ..Known::default() });
        assert!(made.starts_with("nothing") && made.contains(&other.to_string()), "{made}");
        let overtaken = said(&task, &Known { superseded_by: Some(other), ..Known::default() });
        assert!(!overtaken.contains("redrive") && overtaken.contains("submit it again"), "{overtaken}");
    }

    #[test]
    fn where_nobody_took_it_there_is_a_look_at_who_could_and_where_it_was_refused_another_payload() {
        let unreached = unblock(&dead_letter(FailureClass::Network, "never-reached"), &Known::default());
        assert!(unreached[0].contains("`reach explain text.count`"), "{unreached:?}");
        let refused = unblock(&dead_letter(FailureClass::Schema, "bad $(input)"), &Known::default());
        assert!(refused[1].contains("--payload JSON"), "{refused:?}");
        assert!(!refused.concat().contains("$("), "nothing that a shell would run: {refused:?}");
    }
}
