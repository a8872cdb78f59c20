//! The proof: an independent look, through the public API only, at what became of every acknowledged task.
//!
//! It shares no code with the hub. What it holds against it is what a caller could hold against it: I was told that you
//! have this task, so show me that it ended, that it ended once, that no second epoch was let loose on work that may
//! not be repeated, and that I was told so under a valid signature.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use hdrhistogram::Histogram;
use serde_json::Value;

use crate::client::Client;
use crate::demo::plan::Fate;
use crate::demo::pulse::ENDS;
use crate::demo::receiver::Inbox;
use crate::exit::{Failure, Outcome};
use crate::output::field;
use crate::times::histogram;

/// Histories read at the same time.
const AT_ONCE: usize = 16;

/// One task as the public API shows it at the end.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    reach_id: String,
    fate: Fate,
    state: String,
    history: Value,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Findings {
    /// Tasks by their state at the end.
    pub(crate) by_state: BTreeMap<String, u64>,
    /// Acknowledged, but absent or not ended.
    pub(crate) lost: BTreeSet<String>,
    /// More than one terminal event.
    pub(crate) finished_twice: BTreeSet<String>,
    /// Not idempotent and acknowledged by agents under more than one attempt.
    pub(crate) started_twice: BTreeSet<String>,
    /// A history out of order, with a gap in its attempts, or at odds with the task's state.
    pub(crate) inconsistent: BTreeSet<String>,
    /// Made anew after what it had failed for was mended, and ended without success again.
    pub(crate) redriven_in_vain: BTreeSet<String>,
    /// Ended, and nobody was told, or told another end.
    pub(crate) callbacks_missing: BTreeSet<String>,
    /// From submission to the first hand-over, ms.
    pub(crate) queue: Histogram<u64>,
    /// From the acknowledgement to the result, ms.
    pub(crate) work: Histogram<u64>,
    /// From submission to the end, of tasks that nothing was ordered to happen to, ms.
    pub(crate) end_to_end: Histogram<u64>,
    /// The history with the most going on.
    pub(crate) richest: Option<Value>,
}

impl Findings {
    pub(crate) fn new() -> Self {
        Self {
            by_state: BTreeMap::new(),
            lost: BTreeSet::new(),
            finished_twice: BTreeSet::new(),
            started_twice: BTreeSet::new(),
            inconsistent: BTreeSet::new(),
            redriven_in_vain: BTreeSet::new(),
            callbacks_missing: BTreeSet::new(),
            queue: histogram(),
            work: histogram(),
            end_to_end: histogram(),
            richest: None,
        }
    }
}

/// Looks at every acknowledged task.
pub(crate) async fn look(client: &Client, acknowledged: &BTreeMap<String, Fate>, inbox: &Inbox) -> Outcome<Findings> {
    let client = Arc::new(client.clone());
    let looks = acknowledged.iter().map(|(reach_id, fate)| see(Arc::clone(&client), reach_id.clone(), *fate));
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    let told = told_by_task(inbox);
    let mut findings = Findings::new();
    while let Some(seen) = looks.next().await {
        judge(&seen?, &told, &mut findings);
    }
    Ok(findings)
}

async fn see(client: Arc<Client>, reach_id: String, fate: Fate) -> Outcome<Seen> {
    let task = client.get(&["v1", "tasks", &reach_id], &[]).await;
    let state = match task {
        Ok(task) => field(&task, "/state"),
        Err(Failure::Refused(problem)) if problem.status == 404 => "absent".to_owned(),
        Err(failure) => return Err(failure),
    };
    let history = match client.get(&["v1", "tasks", &reach_id, "history"], &[]).await {
        Ok(history) => history,
        Err(Failure::Refused(problem)) if problem.status == 404 => Value::Null,
        Err(failure) => return Err(failure),
    };
    Ok(Seen { reach_id, fate, state, history })
}

fn told_by_task(inbox: &Inbox) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut told: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for message in inbox.messages.values() {
        told.entry(&message.reach_id).or_default().insert(&message.kind);
    }
    told
}

fn judge(seen: &Seen, told: &BTreeMap<&str, BTreeSet<&str>>, findings: &mut Findings) {
    let id = || seen.reach_id.clone();
    *findings.by_state.entry(seen.state.clone()).or_default() += 1;
    let events = seen.history.get("events").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let kinds: Vec<String> = events.iter().map(|event| field(event, "/kind")).collect();
    let ends: Vec<&(&str, &str)> = kinds.iter().filter_map(|kind| ENDS.iter().find(|(end, _)| end == kind)).collect();
    if ends.is_empty() || !ENDS.iter().any(|(_, state)| *state == seen.state) {
        findings.lost.insert(id());
        return;
    }
    if ends.len() > 1 {
        findings.finished_twice.insert(id());
    }
    if !is_consistent(events, &seen.state) {
        findings.inconsistent.insert(id());
    }
    if seen.fate == Fate::Careful && attempts(events, "task-acknowledged").len() > 1 {
        findings.started_twice.insert(id());
    }
    if seen.fate == Fate::Redriven && seen.state != "succeeded" {
        findings.redriven_in_vain.insert(id());
    }
    let expected: Vec<String> = ends.iter().map(|(kind, _)| kind.replacen('-', ".", 1)).collect();
    let said = told.get(seen.reach_id.as_str());
    if !said.is_some_and(|said| said.len() == 1 && expected.iter().all(|kind| said.contains(kind.as_str()))) {
        findings.callbacks_missing.insert(id());
    }
    measure(seen, events, findings);
    let richest = findings
        .richest
        .as_ref()
        .and_then(|history| history.get("events")?.as_array())
        .map_or(0, |richest| interest(richest));
    if interest(events) > richest {
        findings.richest = Some(seen.history.clone());
    }
}

/// How much a history has to tell: what went wrong on the way to success counts most.
fn interest(events: &[Value]) -> usize {
    let has = |kind: &str| usize::from(events.iter().any(|event| field(event, "/kind") == kind));
    8 * has("task-replayed")
        + 4 * has("task-succeeded")
        + 3 * has("task-slow")
        + 2 * has("task-attempt-failed")
        + events.len().min(16)
}

/// Seqs rise, attempts are dense from 1, and the end is the one that the task shows.
fn is_consistent(events: &[Value], state: &str) -> bool {
    let seqs: Vec<u64> = events.iter().filter_map(|event| event.get("seq")?.as_u64()).collect();
    let rising = seqs.len() == events.len() && seqs.is_sorted_by(|a, b| a < b);
    let dense = attempts(events, "task-dispatched").into_iter().zip(1..).all(|(attempt, expected)| attempt == expected);
    let end = events.iter().find_map(|event| ENDS.iter().find(|(kind, _)| *kind == field(event, "/kind")));
    rising && dense && end.is_some_and(|(_, end)| *end == state)
}

fn attempts(events: &[Value], kind: &str) -> Vec<u64> {
    let of_kind = events.iter().filter(|event| field(event, "/kind") == kind);
    of_kind.filter_map(|event| event.get("attempt")?.as_u64()).collect()
}

fn measure(seen: &Seen, events: &[Value], findings: &mut Findings) {
    let moment = |kind: &str| {
        let event = events.iter().find(|event| field(event, "/kind") == kind)?;
        field(event, "/at").parse::<jiff::Timestamp>().ok()
    };
    let between = |from: &str, to: &str| {
        let span = moment(to)?.duration_since(moment(from)?).as_millis();
        u64::try_from(span).ok()
    };
    if let Some(ms) = between("task-submitted", "task-dispatched") {
        findings.queue.saturating_record(ms);
    }
    if seen.fate == Fate::Plain && seen.state == "succeeded" {
        if let Some(ms) = between("task-acknowledged", "task-succeeded") {
            findings.work.saturating_record(ms);
        }
        if let Some(ms) = between("task-submitted", "task-succeeded") {
            findings.end_to_end.saturating_record(ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(fate: Fate, state: &str, kinds: &[(&str, u64)]) -> Seen {
        let events: Vec<Value> = kinds
            .iter()
            .zip(1..)
            .map(|((kind, attempt), seq)| json!({"seq": seq, "kind": kind, "attempt": attempt, "at": "2026-01-01T00:00:00Z"}))
            .collect();
        Seen { reach_id: "reach_x".to_owned(), fate, state: state.to_owned(), history: json!({"events": events}) }
    }

    fn judged(seen: &Seen, told: &[&str]) -> Findings {
        let told = BTreeMap::from([("reach_x", told.iter().copied().collect::<BTreeSet<_>>())]);
        let mut findings = Findings::new();
        judge(seen, &told, &mut findings);
        findings
    }

    const GOOD: [(&str, u64); 4] =
        [("task-submitted", 0), ("task-dispatched", 1), ("task-acknowledged", 1), ("task-succeeded", 1)];

    #[test]
    fn a_good_life_breaks_nothing() {
        let findings = judged(&seen(Fate::Plain, "succeeded", &GOOD), &["task.succeeded"]);
        assert!(findings.lost.is_empty() && findings.finished_twice.is_empty() && findings.inconsistent.is_empty());
        assert!(findings.callbacks_missing.is_empty());
        assert_eq!(findings.by_state, BTreeMap::from([("succeeded".to_owned(), 1)]));
    }

    #[test]
    fn an_absent_or_unfinished_task_is_lost() {
        assert_eq!(judged(&seen(Fate::Plain, "absent", &[]), &[]).lost.len(), 1);
        assert_eq!(judged(&seen(Fate::Plain, "queued", &GOOD[..1]), &[]).lost.len(), 1);
    }

    #[test]
    fn two_ends_are_one_too_many() {
        let twice = [GOOD.as_slice(), &[("task-failed", 1)]].concat();
        assert_eq!(judged(&seen(Fate::Plain, "succeeded", &twice), &["task.succeeded"]).finished_twice.len(), 1);
    }

    #[test]
    fn a_missing_or_wrong_callback_is_found() {
        assert_eq!(judged(&seen(Fate::Plain, "succeeded", &GOOD), &[]).callbacks_missing.len(), 1);
        assert_eq!(judged(&seen(Fate::Plain, "succeeded", &GOOD), &["task.failed"]).callbacks_missing.len(), 1);
        let both = ["task.failed", "task.succeeded"];
        assert_eq!(judged(&seen(Fate::Plain, "succeeded", &GOOD), &both).callbacks_missing.len(), 1);
    }

    #[test]
    fn a_second_start_of_what_may_not_be_repeated_is_found() {
        let kinds = [
            ("task-submitted", 0),
            ("task-dispatched", 1),
            ("task-acknowledged", 1),
            ("task-dispatched", 2),
            ("task-acknowledged", 2),
            ("task-succeeded", 2),
        ];
        assert_eq!(judged(&seen(Fate::Careful, "succeeded", &kinds), &["task.succeeded"]).started_twice.len(), 1);
        assert!(judged(&seen(Fate::Plain, "succeeded", &kinds), &["task.succeeded"]).started_twice.is_empty());
    }

    #[test]
    fn what_was_made_anew_has_to_succeed() {
        let failed = [("task-submitted", 0), ("task-dispatched", 1), ("task-failed", 1)];
        assert_eq!(judged(&seen(Fate::Redriven, "failed", &failed), &["task.failed"]).redriven_in_vain.len(), 1);
        assert!(judged(&seen(Fate::Broken, "failed", &failed), &["task.failed"]).redriven_in_vain.is_empty());
    }

    #[test]
    fn a_gap_in_the_attempts_or_another_end_than_shown_is_inconsistent() {
        let gap = [("task-submitted", 0), ("task-dispatched", 2), ("task-succeeded", 2)];
        assert_eq!(judged(&seen(Fate::Plain, "succeeded", &gap), &["task.succeeded"]).inconsistent.len(), 1);
        assert_eq!(judged(&seen(Fate::Plain, "failed", &GOOD), &["task.succeeded"]).inconsistent.len(), 1);
    }
}
