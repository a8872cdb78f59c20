//! Figures of a play, and two plays side by side.

use std::collections::BTreeMap;

use agent_reach::ledger::machine::task::spec::Qos;
use agent_reach::scheduler::whatif::{Fate, Job};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::output::{self, field};
use crate::times::{histogram, quantiles};

/// How a group of tasks fared.
struct Group {
    waited: Histogram<u64>,
    took: Histogram<u64>,
}

impl Group {
    fn new() -> Self {
        Self { waited: histogram(), took: histogram() }
    }

    fn add(&mut self, fate: &Fate) {
        self.waited.saturating_record(fate.waited.0);
        self.took.saturating_record(fate.took.0);
    }

    fn json(&self) -> Value {
        json!({"tasks": self.took.len(), "waited_ms": quantiles(&self.waited, 1.0), "took_ms": quantiles(&self.took, 1.0)})
    }
}

/// How all of them fared, by class and by agent.
pub(super) struct Figures {
    all: Group,
    classes: BTreeMap<&'static str, Group>,
    agents: BTreeMap<String, Group>,
    ends: BTreeMap<&'static str, u64>,
    refused: usize,
}

impl Figures {
    pub(super) fn of(fates: &[Fate], jobs: &[Job]) -> Self {
        let (mut classes, mut agents, mut ends) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut all = Group::new();
        for fate in fates {
            all.add(fate);
            let class = jobs.get(fate.job).map_or(Qos::Normal, |job| job.submission.qos).name();
            classes.entry(class).or_insert_with(Group::new).add(fate);
            if let Some(agent) = &fate.agent {
                agents.entry(agent.to_string()).or_insert_with(Group::new).add(fate);
            }
            *ends.entry(fate.end.name()).or_insert(0) += 1;
        }
        Self { all, classes, agents, ends, refused: 0 }
    }

    pub(super) const fn refused(mut self, refused: usize) -> Self {
        self.refused = refused;
        self
    }

    pub(super) fn json(&self) -> Value {
        let classes: BTreeMap<_, _> = self.classes.iter().map(|(name, group)| (*name, group.json())).collect();
        let agents: BTreeMap<_, _> = self.agents.iter().map(|(name, group)| (name, group.json())).collect();
        json!({"all": self.all.json(), "classes": classes, "agents": agents, "ends": self.ends, "refused": self.refused})
    }
}

/// What was played, and how it came out.
pub(super) fn show(answer: &Value) {
    let mut rows = vec![("played".to_owned(), field(answer, "/source"))];
    let list = |name: &str| answer.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    rows.extend(list("changes").iter().map(|change| ("what if".to_owned(), field(change, ""))));
    rows.extend(list("left_out").iter().map(|what| ("note".to_owned(), field(what, ""))));
    for side in SIDES {
        if let Some(ends) = answer.pointer(&format!("/{side}/ends")).and_then(Value::as_object) {
            let mut words: Vec<String> = ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
            let refused = field(answer, &format!("/{side}/refused"));
            if refused != "0" {
                words.push(format!("{refused} refused"));
            }
            rows.push((side.replace('_', " "), words.join(", ")));
        }
    }
    output::card(&rows);
    for (figure, heading) in [("waited_ms", "waited, ms"), ("took_ms", "end to end, ms")] {
        output::data("");
        let mut head = vec![heading.to_owned()];
        for side in SIDES.iter().filter(|side| !answer[**side].is_null()) {
            let side = side.replace('_', " ");
            head.extend([format!("{side}: tasks"), "p50".to_owned(), "p95".to_owned(), "p99".to_owned()]);
        }
        let compares = !answer["what_if"].is_null();
        if compares {
            head.push("p95 ×".to_owned());
        }
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        output::table(&head, groups(answer).into_iter().map(|(name, at)| row(answer, (&name, &at), figure)));
    }
}

/// Columns, from left to right.
const SIDES: [&str; 3] = ["recorded", "today", "what_if"];

/// Every group of any side: its name and its place.
fn groups(answer: &Value) -> Vec<(String, String)> {
    let mut groups = vec![("all".to_owned(), "/all".to_owned())];
    for kind in ["classes", "agents"] {
        let mut names: Vec<String> = SIDES
            .iter()
            .filter_map(|side| answer.pointer(&format!("/{side}/{kind}")).and_then(Value::as_object))
            .flat_map(|of| of.keys().cloned())
            .collect();
        names.sort_unstable();
        names.dedup();
        // One class is all there is.
        if kind == "agents" || names.len() > 1 {
            groups.extend(
                names
                    .into_iter()
                    .map(|name| (name.clone(), format!("/{kind}/{}", name.replace('~', "~0").replace('/', "~1")))),
            );
        }
    }
    groups
}

fn row(answer: &Value, (name, at): (&str, &str), figure: &str) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    let number = |side: &str, what: &str| answer.pointer(&format!("/{side}{at}{what}")).and_then(Value::as_f64);
    for side in SIDES.iter().filter(|side| !answer[**side].is_null()) {
        let figures =
            ["/tasks".to_owned()].into_iter().chain(["p50", "p95", "p99"].map(|of| format!("/{figure}/{of}")));
        row.extend(figures.map(|of| number(side, &of).map_or_else(|| "-".to_owned(), |number| format!("{number:.0}"))));
    }
    if !answer["what_if"].is_null() {
        let p95 = |side: &str| number(side, &format!("/{figure}/p95")).filter(|p95| *p95 > 0.0);
        let ratio = p95("today").zip(p95("what_if")).map(|(now, then)| then / now);
        row.push(ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
    }
    row
}
