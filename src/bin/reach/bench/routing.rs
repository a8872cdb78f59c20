//! Free texts to capabilities: taught with one file, asked with another, so that anybody can repeat it with their own.
//!
//! No hub takes part: the same code that a hub routes with is taught and asked here, on one thread.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent_reach::ledger::ids::Capability;
use agent_reach::scheduler::routing::semantic::{Learned, MAX_EXAMPLES, Profile, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, Chatter, Format, field};
use crate::times::{histogram, quantiles};

/// The domain of texts that nothing fits.
const OUT_OF_SCOPE: &str = "oos";

/// One line of a file.
#[derive(Deserialize)]
struct Line {
    text: String,
    domain: String,
    task_type: String,
}

/// A text and what it asks for; `None`: nothing fits it.
type Asked = (String, Option<Capability>);

/// How it came out.
#[derive(Default)]
struct Tally {
    in_scope: u32,
    /// The right one came first.
    first: u32,
    /// And was taken.
    right: u32,
    out_of_scope: u32,
    /// Nothing was taken, rightly.
    refused: u32,
}

/// Teaches, asks, and prints the figures.
pub(super) fn run(train: Option<&Path>, test: Option<&Path>, format: Format, chatter: Chatter) -> Outcome {
    let (Some(train), Some(test)) = (train, test) else {
        return Err(Failure::Other(Code::Usage, "`reach bench routing` needs --train FILE and --test FILE".to_owned()));
    };
    let profiles = profiles(read(train)?);
    let asked = read(test)?;
    if profiles.is_empty() || asked.is_empty() {
        return Err(Failure::Other(Code::Usage, "both files need at least one line".to_owned()));
    }
    let size = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let bar = output::progress(size(profiles.len()), "learn", chatter);
    let started = Instant::now();
    let learned = Learned::learn(&profiles, &mut |_, _| {
        bar.inc(1);
        ControlFlow::Continue(())
    });
    let features = learned.as_ref().map_or(0, Learned::features);
    let capabilities = learned.as_ref().map_or(0, Learned::capabilities);
    let router = Router::new(&profiles, learned.map(Arc::new));
    let taught = started.elapsed();
    bar.finish_and_clear();

    let bar = output::progress(size(asked.len()), "ask", chatter);
    let (mut tally, mut nanos) = (Tally::default(), histogram());
    for (text, wanted) in &asked {
        let started = Instant::now();
        let candidates = router.ask(text, &|_| true);
        let took: Duration = started.elapsed();
        nanos.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let best = candidates.first();
        tally.count(wanted.as_ref(), best.map(|best| (&best.capability, best.fits)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let row = json!({
        "work": "routing", "capabilities": profiles.len(), "learned": capabilities, "features": features,
        "examples": profiles.iter().map(|one| one.examples.len().min(MAX_EXAMPLES)).sum::<usize>(),
        "in_scope": tally.in_scope, "accuracy": share(tally.right, tally.in_scope),
        "best_is_right": share(tally.first, tally.in_scope),
        "out_of_scope": tally.out_of_scope, "recall": share(tally.refused, tally.out_of_scope),
        "latency_us": quantiles(&nanos, 1e3), "training_s": taught.as_secs_f64(), "memory_bytes": router.bytes(),
    });
    report(&row, format);
    Ok(())
}

impl Tally {
    fn count(&mut self, wanted: Option<&Capability>, best: Option<(&Capability, bool)>) {
        let taken = best.filter(|(_, fits)| *fits).map(|(capability, _)| capability);
        match wanted {
            Some(wanted) => {
                self.in_scope += 1;
                self.first += u32::from(best.is_some_and(|(capability, _)| capability == wanted));
                self.right += u32::from(taken == Some(wanted));
            }
            None => {
                self.out_of_scope += 1;
                self.refused += u32::from(taken.is_none());
            }
        }
    }
}

/// In percent, to a hundredth; none of none has no share.
fn share(part: u32, whole: u32) -> Option<f64> {
    (whole > 0).then(|| (f64::from(part) * 10_000.0 / f64::from(whole)).round() / 100.0)
}

fn read(path: &Path) -> Outcome<Vec<Asked>> {
    let wrong = |why: String| Failure::Other(Code::Usage, format!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mut asked = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| wrong(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let at = |why: String| wrong(format!("line {number}: {why}"));
        let line: Line = serde_json::from_str(&line).map_err(|error| at(error.to_string()))?;
        let capability = if line.domain == OUT_OF_SCOPE {
            None
        } else {
            let named = Capability::new(&format!("{}.{}", line.domain, line.task_type));
            Some(named.map_err(|error| at(error.to_string()))?)
        };
        asked.push((line.text, capability));
    }
    Ok(asked)
}

/// Capabilities with their examples; what is out of scope is none.
fn profiles(lines: Vec<Asked>) -> Vec<Profile> {
    let mut profiles: BTreeMap<Capability, Profile> = BTreeMap::new();
    for (text, capability) in lines {
        if let Some(capability) = capability {
            let profile = profiles.entry(capability.clone()).or_insert_with(|| Profile::new(capability));
            profile.examples.push(text);
        }
    }
    profiles.into_values().collect()
}

fn report(row: &Value, format: Format) {
    if format == Format::Json {
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        return output::json(&json!({"version": env!("CARGO_PKG_VERSION"), "cpus": cpus, "rows": [row]}));
    }
    let figure = |pointer: &str, digits: usize, unit: &str| match row.pointer(pointer).and_then(Value::as_f64) {
        Some(figure) => format!("{figure:.digits$}{unit}"),
        None => "-".to_owned(),
    };
    let mebibytes = row["memory_bytes"].as_f64().unwrap_or(0.0) / 1_048_576.0;
    let rows = [
        ("capabilities", format!("{} taught with {} examples", field(row, "/capabilities"), field(row, "/examples"))),
        ("in scope", format!("{} right of {}", figure("/accuracy", 2, " %"), field(row, "/in_scope"))),
        ("", format!("{} with the right one first, fitting or not", figure("/best_is_right", 2, " %"))),
        ("out of scope", format!("{} refused of {}", figure("/recall", 2, " %"), field(row, "/out_of_scope"))),
        (
            "one answer",
            format!("p50 {}, p99 {}", figure("/latency_us/p50", 0, " µs"), figure("/latency_us/p99", 0, " µs")),
        ),
        ("training", figure("/training_s", 1, " s")),
        ("memory", format!("{mebibytes:.1} MiB, {} features", field(row, "/features"))),
    ];
    output::card(&rows.map(|(name, value)| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_right_but_not_taken_counts_only_as_first() {
        let capability = Capability::new("a.b").expect("a capability");
        let other = Capability::new("a.c").expect("a capability");
        let mut tally = Tally::default();
        tally.count(Some(&capability), Some((&capability, true)));
        tally.count(Some(&capability), Some((&capability, false)));
        tally.count(Some(&capability), Some((&other, true)));
        tally.count(None, Some((&other, false)));
        tally.count(None, Some((&other, true)));
        let Tally { in_scope, first, right, out_of_scope, refused } = tally;
        assert_eq!((in_scope, first, right, out_of_scope, refused), (3, 2, 1, 2, 1));
        assert_eq!((share(1, 3), share(0, 0)), (Some(33.33), None));
    }
}
