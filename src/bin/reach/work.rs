//! The work that demo agents really do: text statistics, hashing, a CSV summary, and an LLM call whose time is real.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::workload;

/// The capabilities of a demo agent.
pub(crate) const CAPABILITIES: [&str; 5] = ["text.words", "text.ngrams", "file.sha256", "csv.summary", "llm.generate"];
/// The sentences' file name in the demo's folder.
pub(crate) const SENTENCES: &str = "clinc150-excerpt.jsonl";
/// The trace's file name in the demo's folder.
pub(crate) const TRACE: &str = "azure-llm-2023-excerpt.csv";

/// Why work failed: an agent's own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkError {
    /// A stable code.
    pub(crate) code: &'static str,
    /// A sentence.
    pub(crate) message: String,
}

impl WorkError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// What must be done with one task.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Job {
    /// Compute it; it takes what it takes.
    Compute(Value),
    /// Serve an LLM call: that long, that many tokens.
    Generate {
        /// Service time.
        takes: Duration,
        /// Tokens in.
        context_tokens: u32,
        /// Tokens out.
        generated_tokens: u32,
    },
}

/// Does the work of `capability` over the files in `folder`. LLM calls are only described: the agent waits for them.
pub(crate) fn start(capability: &str, payload: &Value, folder: &Path) -> Result<Job, WorkError> {
    match capability {
        "text.words" => words(&slice(payload, folder)?, 1).map(Job::Compute),
        "text.ngrams" => {
            let n = payload.get("n").and_then(Value::as_u64).unwrap_or(2);
            words(&slice(payload, folder)?, usize::try_from(n).unwrap_or(2)).map(Job::Compute)
        }
        "file.sha256" => sha256(&slice(payload, folder)?).map(Job::Compute),
        "csv.summary" => csv_summary(payload, folder).map(Job::Compute),
        "llm.generate" => {
            let number = |name: &str| payload.get(name).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
            let (Some(context_tokens), Some(generated_tokens)) = (number("context_tokens"), number("generated_tokens"))
            else {
                return Err(WorkError::new("bad-payload", "context_tokens and generated_tokens are needed"));
            };
            let faster = payload.get("faster").and_then(Value::as_f64).unwrap_or(1.0);
            let takes = workload::service_time(generated_tokens, faster);
            Ok(Job::Generate { takes, context_tokens, generated_tokens })
        }
        other => Err(WorkError::new("unknown-capability", other)),
    }
}

/// The lines that a payload names: `{"file", "from", "lines"}`.
fn slice(payload: &Value, folder: &Path) -> Result<Vec<String>, WorkError> {
    let path = inside(folder, payload.get("file").and_then(Value::as_str).unwrap_or(SENTENCES))?;
    let text = std::fs::read_to_string(&path).map_err(|error| WorkError::new("file-unreadable", error.to_string()))?;
    let number = |name: &str, default: u64| {
        usize::try_from(payload.get(name).and_then(Value::as_u64).unwrap_or(default)).unwrap_or(usize::MAX)
    };
    Ok(text.lines().skip(number("from", 0)).take(number("lines", 100)).map(str::to_owned).collect())
}

/// A file name inside the folder and nowhere else: the payload came from a stranger.
pub(crate) fn inside(folder: &Path, name: &str) -> Result<PathBuf, WorkError> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    if plain && !name.is_empty() {
        Ok(folder.join(name))
    } else {
        Err(WorkError::new("bad-file-name", "a plain file name is needed"))
    }
}

/// The ten most frequent runs of `n` words in the sentences.
fn words(lines: &[String], n: usize) -> Result<Value, WorkError> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut total = 0_u64;
    for line in lines {
        let sentence: Value =
            serde_json::from_str(line).map_err(|error| WorkError::new("bad-line", error.to_string()))?;
        let text = sentence.get("text").and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let tokens: Vec<&str> =
            text.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|t| !t.is_empty()).collect();
        for run in tokens.windows(n.clamp(1, 8)) {
            *counts.entry(run.join(" ")).or_default() += 1;
            total += 1;
        }
    }
    let distinct = counts.len();
    let mut ranked: Vec<(String, u64)> = counts.into_iter().collect();
    ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked.truncate(10);
    Ok(json!({"lines": lines.len(), "total": total, "distinct": distinct, "top": ranked}))
}

fn sha256(lines: &[String]) -> Result<Value, WorkError> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    for line in lines {
        hash.update(line.as_bytes());
        hash.update(b"\n");
        bytes += line.len() + 1;
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({"sha256": digest, "bytes": bytes}))
}

/// Count, mean, least, median and most of one column.
fn csv_summary(payload: &Value, folder: &Path) -> Result<Value, WorkError> {
    let lines = slice(&json!({"file": TRACE, "lines": u32::MAX}), folder)?;
    let column = payload.get("column").and_then(Value::as_str).unwrap_or("GeneratedTokens");
    let at = lines
        .first()
        .and_then(|head| head.split(',').position(|name| name == column))
        .ok_or_else(|| WorkError::new("no-such-column", column))?;
    let from = payload.get("from").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let mut values: Vec<u64> =
        lines.iter().skip(1 + from).filter_map(|line| line.split(',').nth(at)?.parse().ok()).collect();
    values.sort_unstable();
    let (Some(least), Some(most)) = (values.first(), values.last()) else {
        return Err(WorkError::new("no-numbers", column));
    };
    let sum: u64 = values.iter().sum();
    let mean = sum as f64 / values.len() as f64;
    let median = values.get(values.len() / 2);
    Ok(
        json!({"column": column, "count": values.len(), "mean": (mean * 100.0).round() / 100.0, "min": least, "median": median, "max": most}),
    )
}

/// Writes the embedded files where agents can read them.
pub(crate) fn lay_out(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join(SENTENCES), workload::SENTENCES_JSONL)?;
    std::fs::write(folder.join(TRACE), workload::TRACE_CSV)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        lay_out(folder.path()).expect("the files can be written");
        folder
    }

    fn compute(capability: &str, payload: &Value) -> Result<Value, WorkError> {
        match start(capability, payload, folder().path())? {
            Job::Compute(value) => Ok(value),
            Job::Generate { .. } => panic!("expected a computed result"),
        }
    }

    #[test]
    fn words_are_counted_over_the_named_lines() {
        let result = compute("text.words", &json!({"from": 0, "lines": 10})).expect("the file is there");
        assert_eq!(result["lines"], 10);
        assert_eq!(result["top"].as_array().map(Vec::len), Some(10));
    }

    #[test]
    fn a_hash_is_that_of_the_lines() {
        let first = workload::SENTENCES_JSONL.lines().next().expect("there are lines");
        let expected: String = Sha256::digest(format!("{first}\n")).iter().map(|byte| format!("{byte:02x}")).collect();
        let result = compute("file.sha256", &json!({"from": 0, "lines": 1})).expect("the file is there");
        assert_eq!(result["sha256"], Value::from(expected));
    }

    #[test]
    fn a_column_is_summed_up() {
        let result = compute("csv.summary", &json!({"column": "GeneratedTokens"})).expect("the file is there");
        assert_eq!((result["count"].as_u64(), result["max"].as_u64()), (Some(1_000), Some(841)));
    }

    #[test]
    fn a_payload_cannot_read_outside_the_folder() {
        for name in ["../secret", "/etc/hostname", ""] {
            let error = compute("file.sha256", &json!({"file": name})).expect_err("it is refused");
            assert_eq!(error.code, "bad-file-name");
        }
    }

    #[test]
    fn an_llm_call_takes_as_long_as_its_tokens() {
        let payload = json!({"context_tokens": 4808, "generated_tokens": 10, "faster": 20.0});
        let job = start("llm.generate", &payload, Path::new(".")).expect("a good payload");
        assert_eq!(
            job,
            Job::Generate { takes: Duration::from_millis(16), context_tokens: 4_808, generated_tokens: 10 }
        );
    }
}
