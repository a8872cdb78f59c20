//! What the demo asks for: real arrivals from the trace, real work, and every way in which a task can go wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::work;
use crate::workload::{SplitMix, Trace};

/// How much faster than real the trace is played.
pub(crate) const FASTER: f64 = 26.0;
/// The file that says that the broken downstream works again.
pub(crate) const MENDED: &str = "downstream-mended";
/// No task lives longer, so that the demo ends whatever happens.
const LIFETIME_MS: u64 = 45_000;

/// What is going to happen to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// It succeeds.
    Plain,
    /// Its first attempt fails, a later one succeeds.
    Flaky,
    /// Every attempt fails: dead letter.
    Hopeless,
    /// Every attempt fails until its downstream is mended: dead letter, and redriven by an operator.
    Stranded,
    /// Made anew by the operator's plan out of a stranded one: it succeeds.
    Redriven,
    /// Its agent says that it can't be done: failed.
    Broken,
    /// It takes longer than its work time: slow, and its late result counts.
    Slow,
    /// Its life is over before it is done.
    Expiring,
    /// Its caller calls it off.
    CalledOff,
    /// Not idempotent: it is never started twice, even if its agent is killed.
    Careful,
}

impl Fate {
    /// Its name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Flaky => "flaky",
            Self::Hopeless => "hopeless",
            Self::Stranded => "stranded",
            Self::Redriven => "redriven",
            Self::Broken => "broken",
            Self::Slow => "slow",
            Self::Expiring => "expiring",
            Self::CalledOff => "called-off",
            Self::Careful => "careful",
        }
    }

    /// The fate of the n-th accompanying task: mostly none, everything in turn.
    const fn of(n: u64) -> Self {
        match n % 100 {
            3 | 23 | 43 | 63 | 83 => Self::Flaky,
            7 | 57 => Self::Broken,
            11 => Self::Hopeless,
            13 | 39 | 61 | 89 => Self::Stranded,
            19 | 69 => Self::Slow,
            29 | 79 => Self::Expiring,
            37 | 87 => Self::CalledOff,
            5 | 15 | 25 | 35 | 45 | 55 | 65 | 75 | 85 | 95 => Self::Careful,
            _ => Self::Plain,
        }
    }
}

/// One task to be submitted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Planned {
    /// When, from the start.
    pub(crate) at: Duration,
    /// What will happen.
    pub(crate) fate: Fate,
    /// The submission, with its own idempotency key.
    pub(crate) submission: Value,
}

/// Whom to tell, and when the demo began.
#[derive(Debug, Clone)]
pub(crate) struct Brief {
    /// Where callbacks go.
    pub(crate) callback_url: String,
    /// Which secret signs them.
    pub(crate) secret_ref: String,
    /// The wall clock at the start, for absolute times.
    pub(crate) began: jiff::Timestamp,
    /// Tasks in all; the traced calls are among them.
    pub(crate) tasks: u64,
    /// All arrivals lie within this.
    pub(crate) span: Duration,
}

/// The whole plan, in order of arrival. The same brief gives the same plan.
pub(crate) fn plan(trace: &Trace, brief: &Brief) -> Vec<Planned> {
    let fast = trace.squeezed_into(brief.span);
    let calls = fast.calls();
    let count = u64::try_from(calls.len()).unwrap_or(1).max(1);
    let mut chance = SplitMix(2_023);
    let mut planned = Vec::new();
    let mut beside = 0;
    for (index, call) in (0_u64..).zip(calls) {
        let payload = json!({
            "context_tokens": call.context_tokens, "generated_tokens": call.generated_tokens, "faster": FASTER,
        });
        planned.push(one(brief, planned.len(), (call.at, Fate::Plain), ("llm.generate", payload)));
        // The accompanying tasks are spread evenly over the traced arrivals.
        let due = brief.tasks.saturating_sub(count) * (index + 1) / count;
        while beside < due {
            let work = accompanying(beside, &mut chance);
            planned.push(one(brief, planned.len(), (call.at, Fate::of(beside)), work));
            beside += 1;
        }
    }
    planned
}

fn accompanying(n: u64, chance: &mut SplitMix) -> (&'static str, Value) {
    let from = chance.below(1_400);
    match n % 4 {
        0 => ("text.words", json!({"file": work::SENTENCES, "from": from, "lines": 100})),
        1 => ("text.ngrams", json!({"file": work::SENTENCES, "from": from, "lines": 100, "n": 2 + n % 2})),
        2 => ("file.sha256", json!({"file": work::SENTENCES, "from": from, "lines": 100})),
        _ => ("csv.summary", json!({"column": "GeneratedTokens", "from": from % 900})),
    }
}

fn one(brief: &Brief, n: usize, (at, fate): (Duration, Fate), (capability, payload): (&str, Value)) -> Planned {
    let qos = match n % 10 {
        0 => "urgent",
        1..=3 => "background",
        _ => "normal",
    };
    let mut fields: BTreeMap<&str, Value> = BTreeMap::from([
        ("capability", json!(capability)),
        ("payload", payload),
        ("qos", json!(qos)),
        // An urgent task would rather wait out an outage than be given up: the demo kills the hub.
        ("on_wait", json!("keep")),
        ("idempotent", json!(fate != Fate::Careful)),
        ("idempotency_key", json!(format!("demo-{n}"))),
        ("lifetime_ms", json!(LIFETIME_MS)),
        ("retry", json!({"max_retries": 3, "base_ms": 100, "factor": 2.0, "cap_ms": 1_000})),
        ("labels", json!({"demo": fate.name()})),
        ("callback", json!({"url": brief.callback_url, "events": ["terminal"], "secret_ref": brief.secret_ref})),
    ]);
    if n.is_multiple_of(16) {
        fields.insert("session_id", json!(format!("session-{}", n / 160)));
    }
    let mut order = |order: Value| {
        if let Some(payload) = fields.get_mut("payload").and_then(Value::as_object_mut) {
            payload.insert("demo".to_owned(), order);
        }
    };
    match fate {
        Fate::Plain | Fate::Redriven => {}
        Fate::Flaky => order(json!({"fail_attempts": 1})),
        Fate::Broken => order(json!({"fail": "permanent"})),
        Fate::Hopeless => {
            order(json!({"fail_attempts": 1_000_000}));
            fields.insert("retry", json!({"max_retries": 1, "base_ms": 100, "factor": 2.0, "cap_ms": 1_000}));
        }
        Fate::Stranded => {
            order(json!({"fail_until": MENDED}));
            fields.insert("retry", json!({"max_retries": 1, "base_ms": 100, "factor": 2.0, "cap_ms": 1_000}));
        }
        Fate::Slow => {
            order(json!({"hold_ms": 1_200}));
            fields.insert("work_timeout_ms", json!(400));
        }
        Fate::Expiring => {
            order(json!({"hold_ms": 4_000}));
            fields.insert("lifetime_ms", json!(1_500));
        }
        Fate::CalledOff => {
            let until = brief.began.checked_add(at + Duration::from_secs(30)).unwrap_or(brief.began);
            fields.insert("not_before", json!(until.to_string()));
        }
        Fate::Careful => {
            // Long enough to be caught by a kill; held for a person when its agent is lost, so its life is short.
            order(json!({"hold_ms": 100}));
            fields.insert("lifetime_ms", json!(12_000));
        }
    }
    Planned { at, fate, submission: json!(fields) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::workload::TRACE_CSV;

    fn sample() -> Vec<Planned> {
        let trace = Trace::parse(TRACE_CSV).expect("the embedded trace is whole");
        let brief = Brief {
            callback_url: "http://127.0.0.1:1/hook".to_owned(),
            secret_ref: "demo".to_owned(),
            began: "2026-01-01T00:00:00Z".parse().expect("a moment"),
            tasks: 2_400,
            span: Duration::from_secs(20),
        };
        plan(&trace, &brief)
    }

    #[test]
    fn a_plan_has_as_many_tasks_as_asked_for_in_order_of_arrival() {
        let planned = sample();
        assert_eq!(planned.len(), 2_400);
        assert!(planned.is_sorted_by_key(|task| task.at));
        assert!(planned.last().is_some_and(|task| task.at.as_secs_f64() <= 20.01));
    }

    #[test]
    fn every_fate_and_every_class_occurs() {
        let planned = sample();
        let fates: BTreeSet<Fate> = planned.iter().map(|task| task.fate).collect();
        assert_eq!(fates.len(), 9);
        let classes: BTreeSet<&str> = planned.iter().filter_map(|task| task.submission["qos"].as_str()).collect();
        assert_eq!(classes, BTreeSet::from(["background", "normal", "urgent"]));
    }

    #[test]
    fn every_task_has_a_key_of_its_own_and_the_plan_is_always_the_same() {
        let planned = sample();
        let keys: BTreeSet<&str> =
            planned.iter().filter_map(|task| task.submission["idempotency_key"].as_str()).collect();
        assert_eq!(keys.len(), planned.len());
        assert_eq!(planned, sample());
    }

    #[test]
    fn only_careful_tasks_are_not_idempotent() {
        assert!(sample().iter().all(|task| task.submission["idempotent"] == json!(task.fate != Fate::Careful)));
    }
}
