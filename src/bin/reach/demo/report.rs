//! What the demo says at the end: totals that add up, each promise with its verdict, and one task's whole life.

use std::time::Duration;

use agent_reach::api::timeline::timeline;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::demo::caller::Acknowledged;
use crate::demo::operator::Brought;
use crate::demo::plan::Fate;
use crate::demo::proof::Findings;
use crate::demo::pulse::Counts;
use crate::demo::receiver::Inbox;
use crate::output;
use crate::times::quantiles;

/// What the demo did to the fleet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Harm {
    /// Workers that were killed, and the hub told of their loss.
    pub(crate) workers_killed: u64,
    /// Times the hub was killed and came back.
    pub(crate) hub_killed: u64,
    /// Workers that were drained and ended by themselves.
    pub(crate) workers_drained: u64,
    /// How long the hub took to come back.
    pub(crate) back_after: Duration,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Report {
    /// What was acknowledged.
    pub(crate) acknowledged: Acknowledged,
    /// What was found.
    pub(crate) findings: Findings,
    /// What was told.
    pub(crate) inbox: Inbox,
    /// What the ledger holds.
    pub(crate) events: Counts,
    /// What was done to it.
    pub(crate) harm: Harm,
    /// Tasks that the caller was to submit.
    pub(crate) planned: usize,
    /// What the operator brought back afterwards: these are among the tasks, too.
    pub(crate) brought: Brought,
    /// How long it all took.
    pub(crate) took: Duration,
}

/// A promise, what was looked at, and how often it was broken.
struct Promise {
    name: &'static str,
    looked_at: String,
    broken: u64,
}

impl Report {
    fn promises(&self) -> Vec<Promise> {
        let size = |set: &std::collections::BTreeSet<String>| u64::try_from(set.len()).unwrap_or(u64::MAX);
        let tasks = u64::try_from(self.acknowledged.tasks.len()).unwrap_or(u64::MAX);
        let event = |kind: &str| self.events.get(kind).copied().unwrap_or(0);
        let sum: u64 = self.findings.by_state.values().sum();
        let of_tasks = |what: &str| format!("{what} of {tasks} tasks");
        let promise = |name, looked_at: String, broken| Promise { name, looked_at, broken };
        vec![
            promise("nothing acknowledged is lost", of_tasks("state and history"), size(&self.findings.lost)),
            promise("nothing ends twice", of_tasks("terminal events"), size(&self.findings.finished_twice)),
            promise(
                "what may not be repeated starts once",
                of_tasks("acknowledged attempts"),
                size(&self.findings.started_twice),
            ),
            promise("every history is whole", of_tasks("order, attempts, end"), size(&self.findings.inconsistent)),
            promise("every end is told", of_tasks("signed callbacks"), size(&self.findings.callbacks_missing)),
            promise(
                "every callback is signed and unchanged",
                format!("{} deliveries", self.inbox.deliveries),
                self.inbox.invalid + self.inbox.changed,
            ),
            promise(
                "the ledger holds what was acknowledged, no more",
                format!("{} task-submitted events", event("task-submitted")),
                event("task-submitted").abs_diff(tasks),
            ),
            promise("the totals add up", format!("{sum} by state, {} planned", self.planned()), {
                let refused = u64::try_from(self.acknowledged.refused.len()).unwrap_or(u64::MAX);
                sum.abs_diff(tasks) + self.planned().abs_diff(tasks) + refused
            }),
            promise(
                "a replay does what its dry run said",
                format!(
                    "{} dead letters of {}: those that were mended",
                    self.brought.redriven(),
                    self.brought.dead_letters()
                ),
                self.brought.amiss()
                    + self.stranded().abs_diff(self.brought.redriven())
                    + size(&self.findings.redriven_in_vain),
            ),
            promise(
                "the fleet survives its kills",
                format!("{} kills, {} drain", self.kills(), self.harm.workers_drained),
                3_u64.saturating_sub(self.kills()) + 1_u64.saturating_sub(self.harm.workers_drained),
            ),
        ]
    }

    /// Tasks that were to be made: the caller's, and what the operator's plan was to make anew.
    fn planned(&self) -> u64 {
        u64::try_from(self.planned).unwrap_or(u64::MAX).saturating_add(self.brought.redriven())
    }

    /// Tasks that became dead letters because their downstream was broken.
    fn stranded(&self) -> u64 {
        let stranded = self.acknowledged.tasks.values().filter(|fate| **fate == Fate::Stranded).count();
        u64::try_from(stranded).unwrap_or(u64::MAX)
    }

    fn kills(&self) -> u64 {
        self.harm.workers_killed + self.harm.hub_killed
    }

    /// Was every promise kept?
    pub(crate) fn is_kept(&self) -> bool {
        self.promises().iter().all(|promise| promise.broken == 0)
    }

    /// One object.
    pub(crate) fn json(&self) -> Value {
        let promises: Vec<Value> = self
            .promises()
            .iter()
            .map(|p| json!({"promise": p.name, "kept": p.broken == 0, "broken": p.broken, "looked_at": p.looked_at}))
            .collect();
        json!({
            "kept": self.is_kept(),
            "planned": self.planned(),
            "tasks": self.acknowledged.tasks.len(),
            "by_state": self.findings.by_state,
            "by_fate": self.fates(),
            "lost": self.findings.lost.len(),
            "finished_twice": self.findings.finished_twice.len(),
            "started_twice": self.findings.started_twice.len(),
            "callbacks_missing": self.findings.callbacks_missing.len(),
            "kills_survived": self.kills(),
            "workers_killed": self.harm.workers_killed,
            "hub_killed": self.harm.hub_killed,
            "hub_back_after_ms": u64::try_from(self.harm.back_after.as_millis()).unwrap_or(u64::MAX),
            "workers_drained": self.harm.workers_drained,
            "replayed": self.events.get("task-replayed"),
            "redriven": self.brought.redriven(),
            "replay": {"dry_run": self.brought.dry_run, "plan": self.brought.plan},
            "batches": {"acknowledged": self.acknowledged.batches, "sent_again": self.acknowledged.sent_again},
            "callbacks": {
                "messages": self.inbox.messages.len(), "deliveries": self.inbox.deliveries,
                "invalid": self.inbox.invalid, "changed": self.inbox.changed, "refused_on_purpose": self.inbox.refused,
            },
            "events": self.events,
            "latency_ms": {
                "submit_batch": quantiles(&self.acknowledged.submit_micros, 1e3),
                "queue": quantiles(&self.findings.queue, 1.0),
                "work": quantiles(&self.findings.work, 1.0),
                "end_to_end": quantiles(&self.findings.end_to_end, 1.0),
            },
            "promises": promises,
            "timeline": self.findings.richest,
            "seconds": (self.took.as_secs_f64() * 10.0).round() / 10.0,
        })
    }

    fn fates(&self) -> std::collections::BTreeMap<&'static str, u64> {
        let mut fates = std::collections::BTreeMap::new();
        for fate in self.acknowledged.tasks.values() {
            *fates.entry(fate.name()).or_default() += 1;
        }
        fates
    }

    /// For eyes.
    pub(crate) fn print(&self) {
        output::data("How the tasks ended, those that were ordered to fail included:\n");
        let states = self.findings.by_state.iter();
        let states = states.map(|(state, count)| vec![state.clone(), count.to_string(), ordered(state).to_owned()]);
        let total = vec!["total".to_owned(), self.findings.by_state.values().sum::<u64>().to_string(), String::new()];
        output::table(&["state", "tasks", "because"], states.chain([total]));
        output::data("\nHow long it took, the time without a hub and with fewer workers included:\n");
        let spans = [
            ("submit a batch", &self.acknowledged.submit_micros, 1e3),
            ("in the queue", &self.findings.queue, 1.0),
            ("at work", &self.findings.work, 1.0),
            ("end to end", &self.findings.end_to_end, 1.0),
        ];
        let row = |(name, histogram, scale): (&str, &Histogram<u64>, f64)| {
            let at = |q| format!("{:.1}", histogram.value_at_quantile(q) as f64 / scale);
            vec![name.to_owned(), at(0.5), at(0.95), at(0.99), format!("{:.1}", histogram.max() as f64 / scale)]
        };
        output::table(&["ms", "p50", "p95", "p99", "max"], spans.into_iter().map(row));
        output::data("\nWhat was promised, as a caller can check it:\n");
        output::table(
            &["promise", "kept", "looked at"],
            self.promises().into_iter().map(|p| {
                let kept = if p.broken == 0 { "yes".to_owned() } else { format!("NO, {} times", p.broken) };
                vec![p.name.to_owned(), kept, p.looked_at]
            }),
        );
        if let Some(history) = &self.findings.richest {
            output::data("\nOne task's life, of those with the most going on:\n");
            timeline(history).lines().for_each(output::row);
        }
        output::data("");
        output::data(&format!(
            "{} tasks ({} made anew by a replay), {} kills survived (the hub was back after {} ms), {} callbacks, {:.1} s: {}",
            self.acknowledged.tasks.len(),
            self.brought.redriven(),
            self.kills(),
            self.harm.back_after.as_millis(),
            self.inbox.messages.len(),
            self.took.as_secs_f64(),
            if self.is_kept() { "every promise kept" } else { "A PROMISE WAS BROKEN" }
        ));
    }
}

/// Why tasks of this demo end in that state.
fn ordered(state: &str) -> &'static str {
    match state {
        "succeeded" => "done, some after a retry, a slow worker or a lost one",
        "failed" => "ordered: the worker says that it can't be done",
        "dead-letter" => {
            "ordered: every attempt fails; of these, those whose cause was mended were made anew as others"
        }
        "expired" => "ordered: the life is shorter than the work",
        "cancelled" => "ordered: the caller calls it off",
        _ => "this should not be",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(harm: Harm) -> Value {
        let report = Report {
            acknowledged: Acknowledged::new(),
            findings: Findings::new(),
            inbox: Inbox::default(),
            events: Counts::new(),
            harm,
            planned: 0,
            brought: crate::demo::operator::tests::idle(),
            took: Duration::from_secs(1),
        };
        report.json()
    }

    #[test]
    fn what_others_read_of_the_json_stands_under_these_names() {
        let harm = Harm { workers_killed: 2, hub_killed: 1, workers_drained: 1, back_after: Duration::from_millis(7) };
        let whole = report(harm);
        for name in ["lost", "finished_twice", "started_twice", "callbacks_missing", "tasks", "planned"] {
            assert_eq!(whole[name], 0, "{name} in {whole}");
        }
        assert_eq!((&whole["kills_survived"], &whole["kept"]), (&json!(3), &json!(true)), "{whole}");
        let whole = report(Harm { hub_killed: 0, ..harm });
        assert_eq!((&whole["kills_survived"], &whole["kept"]), (&json!(2), &json!(false)), "{whole}");
        let broken = whole["promises"].as_array().unwrap().iter().filter(|promise| promise["kept"] == false);
        let broken: Vec<&Value> = broken.map(|promise| &promise["promise"]).collect();
        assert_eq!(broken, ["the fleet survives its kills"]);
    }
}
