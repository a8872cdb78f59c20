//! `reach submit`: one task, or a file of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_reach::api::words;
use clap::{Args, ValueEnum};
use futures_util::StreamExt as _;
use reqwest::RequestBuilder;
use serde_json::{Map, Value, json};
use tokio_util::io::ReaderStream;

use crate::client::{accepted, unreachable};
use crate::ctl::{Context, json_argument, pair, span, tasks};
use crate::exit::{Code, Failure, Outcome, Problem};
use crate::output::{self, Format};

/// What a table does not show: nothing new was made.
const REPEAT: &str = "it was submitted before under this key: this is what was made then, nothing new";
/// A batch may take that long to be read and answered.
const BATCH_PATIENCE: Duration = Duration::from_secs(600);

/// What to submit.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// Capability, `domain.task_type`
    #[arg(required_unless_present = "batch", conflicts_with = "batch")]
    capability: Option<String>,
    /// Payload: JSON, @FILE, or - for stdin
    #[arg(long, short)]
    payload: Option<String>,
    /// A file of submissions, one JSON object a line (NDJSON)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "wait"])]
    batch: Option<PathBuf>,
    /// Class of service
    #[arg(long, value_enum)]
    qos: Option<Qos>,
    /// It may be executed more than once without harm
    #[arg(long)]
    idempotent: bool,
    /// The same key and body again gives the first answer
    #[arg(long)]
    idempotency_key: Option<String>,
    /// Wait for the result: exit code 6 when the task ends without success
    #[arg(long, value_name = "DURATION", value_parser = span, num_args = 0..=1, default_missing_value = "30s")]
    wait: Option<u64>,
    /// Life of the task
    #[arg(long, value_name = "DURATION", value_parser = span)]
    lifetime: Option<u64>,
    /// Time to connect and acknowledge
    #[arg(long, value_name = "DURATION", value_parser = span)]
    reach_timeout: Option<u64>,
    /// Time to work
    #[arg(long, value_name = "DURATION", value_parser = span)]
    work_timeout: Option<u64>,
    /// Retries at most
    #[arg(long)]
    max_retries: Option<u32>,
    /// Not before this moment (RFC 3339)
    #[arg(long)]
    not_before: Option<String>,
    /// Session: its tasks stay together
    #[arg(long)]
    session: Option<String>,
    /// Label, name=value; may be given several times
    #[arg(long, value_parser = pair)]
    label: Vec<(String, String)>,
    /// Where to call back
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Name of the secret that signs the callback
    #[arg(long, requires = "callback")]
    callback_secret: Option<String>,
    /// Queue it even if nobody offers the capability yet
    #[arg(long)]
    wait_for_agent: bool,
    /// Any other field of a submission, name=JSON; may be given several times
    #[arg(long, value_parser = pair)]
    set: Vec<(String, String)>,
}

/// Class of service.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Qos {
    /// May wait 3 s, first in line.
    Urgent,
    /// May wait 20 s.
    Normal,
    /// May wait as long as it takes.
    Background,
}

/// Submits.
pub(crate) async fn run(context: &Context, submit: Submit) -> Outcome {
    if let Some(file) = &submit.batch {
        return batch(context, file, submit.idempotency_key.as_deref()).await;
    }
    let body = body(&submit)?;
    let mut request = context.client.request(reqwest::Method::POST, &["v1", "tasks"]).json(&body);
    if let Some(key) = &submit.idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    let Some(wait) = submit.wait else {
        let answer = submitted(context, request).await?;
        context.print_object(&answer);
        return Ok(());
    };
    // What the hub can wait for in one call it does; the rest is ours.
    let sync = (wait / 1_000).clamp(1, 120);
    let request = request.header("Prefer", format!("wait={sync}")).timeout(Duration::from_secs(sync + 10));
    let first = submitted(context, request).await?;
    let id = output::field(&first, "/reach_id");
    let task = if words::terminal_states().any(|state| state == output::field(&first, "/state")) {
        first
    } else {
        tasks::wait(&context.client, &id, Duration::from_millis(wait.saturating_sub(sync * 1_000))).await?
    };
    context.print_object(&task);
    tasks::unsuccessful(&task)
}

/// Sends it, and says beside what there is to say about the answer.
async fn submitted(context: &Context, request: RequestBuilder) -> Outcome<Value> {
    let response = accepted(request).await?;
    let is_repeat = response.headers().contains_key("idempotency-replayed");
    let answer: Value = parsed(&response.bytes().await.map_err(unreachable)?)?;
    if is_repeat {
        context.hint(REPEAT);
    }
    for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        context.hint(&format!("warning: {}", output::tame(&output::field(warning, ""))));
    }
    Ok(answer)
}

fn parsed(bytes: &[u8]) -> Outcome<Value> {
    serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("the hub's answer is not JSON: {error}")))
}

/// The submission of these options; what was not given is left to the hub's defaults.
fn body(submit: &Submit) -> Outcome<Value> {
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    put("capability", submit.capability.clone().map(Value::from));
    put("payload", submit.payload.as_deref().map(|text| json_argument("--payload", text)).transpose()?);
    put("qos", submit.qos.and_then(|qos| Some(Value::from(qos.to_possible_value()?.get_name()))));
    put("idempotent", submit.idempotent.then_some(Value::Bool(true)));
    put("lifetime_ms", submit.lifetime.map(Value::from));
    put("reach_timeout_ms", submit.reach_timeout.map(Value::from));
    put("work_timeout_ms", submit.work_timeout.map(Value::from));
    put("retry", submit.max_retries.map(|retries| json!({"max_retries": retries})));
    put("not_before", submit.not_before.clone().map(Value::from));
    put("session_id", submit.session.clone().map(Value::from));
    let labels: Map<String, Value> =
        submit.label.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
    put("labels", (!labels.is_empty()).then_some(Value::Object(labels)));
    put(
        "callback",
        submit.callback.as_ref().map(|url| match &submit.callback_secret {
            Some(secret) => json!({"url": url, "secret_ref": secret}),
            None => json!({"url": url}),
        }),
    );
    put("wait_for_agent", submit.wait_for_agent.then_some(Value::Bool(true)));
    for (name, value) in &submit.set {
        // A bare word is the text itself, so that `--set orphan=hold` needs no quotes inside quotes.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value.clone()));
        put(name, Some(value));
    }
    Ok(Value::Object(body))
}

/// Streams a file of submissions; refused lines go to stderr and make exit code 1.
async fn batch(context: &Context, file: &Path, key: Option<&str>) -> Outcome {
    let unreadable =
        |error: std::io::Error| Failure::Other(Code::Usage, format!("cannot read {}: {error}", file.display()));
    let length = std::fs::metadata(file).map_err(unreadable)?.len();
    let bar = output::progress(length, "bytes sent", context.chatter);
    let reader = tokio::fs::File::open(file).await.map_err(unreadable)?;
    let counting = bar.clone();
    let stream = ReaderStream::new(reader).inspect(move |chunk| {
        if let Ok(bytes) = chunk {
            counting.inc(u64::try_from(bytes.len()).unwrap_or(0));
        }
    });
    let mut request = context
        .client
        .request(reqwest::Method::POST, &["v1", "batches"])
        .header("Content-Type", "application/x-ndjson")
        .timeout(BATCH_PATIENCE)
        .body(reqwest::Body::wrap_stream(stream));
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    let bytes = accepted(request).await?.bytes().await.map_err(unreachable)?;
    bar.finish_and_clear();
    report(context, &parsed(&bytes)?)
}

fn report(context: &Context, answer: &Value) -> Outcome {
    let outcomes = answer.get("outcomes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let refused: Vec<&Value> =
        outcomes.iter().filter(|outcome| outcome.get("problem").is_some_and(|p| !p.is_null())).collect();
    if context.format == Format::Json {
        output::json(answer);
    } else {
        let total = outcomes.len();
        output::table(
            &["batch id", "total", "accepted", "refused"],
            [vec![
                output::field(answer, "/batch_id"),
                total.to_string(),
                total.saturating_sub(refused.len()).to_string(),
                refused.len().to_string(),
            ]],
        );
        if answer.get("replayed") == Some(&Value::Bool(true)) {
            context.hint(REPEAT);
        }
        for (outcome, problem) in refused.iter().filter_map(|outcome| Some((outcome, outcome.get("problem")?))) {
            let told = Problem::told_by(problem).readable();
            output::note(&format!("index {}: {told}", output::field(outcome, "/index")));
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::Told(Code::Failure)) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        submit: Submit,
    }

    fn body_of(line: &[&str]) -> Value {
        let line = Line::try_parse_from([&["submit"], line].concat()).expect("a good command line");
        body(&line.submit).expect("a good submission")
    }

    #[test]
    fn only_what_was_given_is_sent() {
        assert_eq!(body_of(&["a.b"]), json!({"capability": "a.b"}));
    }

    #[test]
    fn options_become_the_fields_of_a_submission() {
        let line = [
            "a.b",
            "--payload",
            "{\"x\":1}",
            "--qos",
            "urgent",
            "--idempotent",
            "--lifetime",
            "10m",
            "--label",
            "k=v",
            "--callback",
            "http://h/x",
            "--callback-secret",
            "s",
            "--set",
            "orphan=hold",
            "--set",
            "cost_budget=5",
        ];
        assert_eq!(
            body_of(&line),
            json!({"capability": "a.b", "payload": {"x": 1}, "qos": "urgent", "idempotent": true,
                   "lifetime_ms": 600_000, "labels": {"k": "v"}, "callback": {"url": "http://h/x", "secret_ref": "s"},
                   "orphan": "hold", "cost_budget": 5})
        );
    }

    #[test]
    fn a_capability_or_a_batch_is_needed() {
        assert!(Line::try_parse_from(["submit"]).is_err());
        assert!(Line::try_parse_from(["submit", "a.b", "--batch", "f"]).is_err());
    }
}
