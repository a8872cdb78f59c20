//! `reach submit`: one task, or a file of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_reach::api::words;
use clap::{Args, ValueEnum};
use futures_util::StreamExt as _;
use reqwest::RequestBuilder;
use serde_json::{Map, Value, json};
use tokio_util::io::ReaderStream;

use crate::client::{accepted, unreachable};
use crate::ctl::body::{Body, json_argument};
use crate::ctl::tasks::{self, Waited};
use crate::ctl::{Context, pair, span};
use crate::exit::{Code, Failure, Outcome, Problem};
use crate::output::{self, Format};

/// What a table does not show: nothing new was made.
const REPEAT: &str = "it was submitted before under this key: this is what was made then, nothing new";
/// A task without a payload is a legal one, and more often a forgotten option.
const NOTHING: &str = "no --payload: the task carries none, its agent gets null";
/// Lines of a batch that are named where the same is said of many; `--output json` has all.
const NAMED: usize = 5;
/// Refusals that are told apart.
const REASONS: usize = 50;
/// A batch may take that long to be read and answered.
const BATCH_PATIENCE: Duration = Duration::from_secs(600);

/// What to submit.
#[derive(Debug, Args)]
pub(crate) struct Submit {
    /// Capability, `domain.task_type`
    #[arg(required_unless_present_any = ["batch", "text"], conflicts_with = "batch")]
    capability: Option<String>,
    /// What is wanted, in words: finds the capability if none is named
    #[arg(long, conflicts_with = "batch")]
    text: Option<String>,
    /// Payload: JSON, @FILE, or - for stdin; null when absent
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
    /// Wait for the result; its agent gets 80 % of that to work, where no time to work is named. Exit code 6 when the task
    /// ends without success, 7 when the wait is over: its id is printed all the same
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

impl Submit {
    /// Is nothing given for its agent to work on?
    fn carries_nothing(&self) -> bool {
        self.payload.is_none() && !self.set.iter().any(|(name, _)| ["payload", "payload_ref"].contains(&name.as_str()))
    }
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
    if submit.carries_nothing() {
        context.hint(NOTHING);
    }
    let body = body(&submit)?;
    let mut request = context.client.request(reqwest::Method::POST, &["v1", "tasks"]).json(&body);
    if let Some(key) = &submit.idempotency_key {
        request = request.header("Idempotency-Key", key);
    }
    // It will be taken, and its namespace be there from then on: a misspelt one has to be told before.
    if submit.wait_for_agent {
        context.hint_unused().await;
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
    if words::terminal_states().any(|state| state == output::field(&first, "/state")) {
        return Waited::Ended(first).tell(context);
    }
    let left = Duration::from_millis(wait.saturating_sub(sync * 1_000));
    // It is accepted: whoever submitted it learns its id, also when the hub goes away meanwhile.
    let waited = tasks::wait(&context.client, &id, left).await.inspect_err(|_| context.print_object(&first))?;
    waited.tell(context)
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
fn body(submit: &Submit) -> Outcome<Body> {
    let mut body = Body::default();
    body.put("capability", submit.capability.clone());
    body.put("text", submit.text.clone());
    body.put_typed("payload", submit.payload.as_deref().map(|text| json_argument("--payload", text)).transpose()?);
    body.put("qos", submit.qos.and_then(|qos| Some(qos.to_possible_value()?.get_name().to_owned())));
    body.put("idempotent", submit.idempotent.then_some(true));
    body.put("lifetime_ms", submit.lifetime);
    body.put("reach_timeout_ms", submit.reach_timeout);
    body.put("work_timeout_ms", submit.work_timeout);
    body.put("retry", submit.max_retries.map(|retries| json!({"max_retries": retries})));
    body.put("not_before", submit.not_before.clone());
    body.put("session_id", submit.session.clone());
    let labels: Map<String, Value> =
        submit.label.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
    body.put("labels", (!labels.is_empty()).then_some(labels));
    body.put(
        "callback",
        submit.callback.as_ref().map(|url| match &submit.callback_secret {
            Some(secret) => json!({"url": url, "secret_ref": secret}),
            None => json!({"url": url}),
        }),
    );
    body.put("wait_for_agent", submit.wait_for_agent.then_some(true));
    for (name, value) in &submit.set {
        match serde_json::from_str(value) {
            Ok(json) => body.put_typed(name, Some(json)),
            // A bare word is the text itself, so that `--set orphan=hold` needs no quotes inside quotes.
            Err(_) => body.put(name, Some(value.clone())),
        }
    }
    Ok(body)
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
    let told = report(context, &parsed(&bytes)?);
    if told.is_err() {
        context.hint_unused().await;
    }
    told
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
        let alike = alike(&refused);
        for (told, indices) in alike.iter().take(REASONS) {
            output::note(&format!("{}: {told}", numbered(indices)));
        }
        if let more @ 1.. = alike.len().saturating_sub(REASONS) {
            output::note(&format!("and {more} other refusals; --output json has all"));
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(Failure::Told(Code::Failure)) }
}

/// What is said of refused lines, each once, with the lines that it is said of.
fn alike(refused: &[&Value]) -> Vec<(String, Vec<String>)> {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (outcome, problem) in refused.iter().filter_map(|outcome| Some((outcome, outcome.get("problem")?))) {
        let (text, index) = (Problem::told_by(problem).readable(), output::field(outcome, "/index"));
        match known.get(&text).and_then(|at| told.get_mut(*at)) {
            Some((_, indices)) => indices.push(index),
            None => {
                known.insert(text.clone(), told.len());
                told.push((text, vec![index]));
            }
        }
    }
    told
}

/// `index 3`, or `300 lines, index 0, 1, 2, 3, 4, …`.
fn numbered(indices: &[String]) -> String {
    let first = indices.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    match indices.len() {
        1 => format!("index {first}"),
        lines if lines <= NAMED => format!("{lines} lines, index {first}"),
        lines => format!("{lines} lines, index {first}, …"),
    }
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
        serde_json::to_value(body(&line.submit).expect("a good submission")).expect("JSON")
    }

    #[test]
    fn words_stand_for_a_capability() {
        assert_eq!(body_of(&["--text", "will it rain"]), json!({"text": "will it rain"}));
    }

    #[test]
    fn only_what_was_given_is_sent() {
        assert_eq!(body_of(&["a.b"]), json!({"capability": "a.b"}));
    }

    #[test]
    fn a_payload_that_is_not_given_is_noticed() {
        let carries_nothing = |line: &[&str]| {
            Line::try_parse_from([&["submit", "a.b"], line].concat())
                .expect("a good command line")
                .submit
                .carries_nothing()
        };
        assert!(carries_nothing(&[]) && carries_nothing(&["--set", "orphan=hold"]));
        for given in [&["--payload", "null"], &["--set", "payload=1"], &["--set", "payload_ref=s3://b/k"]] {
            assert!(!carries_nothing(given), "{given:?}");
        }
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
    fn what_is_said_of_many_lines_is_said_once() {
        let refused =
            |index: u64, code: &str| json!({"index": index, "problem": {"status": 422, "code": code, "detail": "no"}});
        let outcomes: Vec<Value> = (0..300).map(|n| refused(n, if n == 7 { "other" } else { "same" })).collect();
        let told = alike(&outcomes.iter().collect::<Vec<_>>());
        let told: Vec<String> = told.iter().map(|(text, indices)| format!("{}: {text}", numbered(indices))).collect();
        assert_eq!(told, ["299 lines, index 0, 1, 2, 3, 4, …: same: no", "index 7: other: no"]);
    }

    #[test]
    fn a_capability_or_a_batch_is_needed() {
        assert!(Line::try_parse_from(["submit"]).is_err());
        assert!(Line::try_parse_from(["submit", "a.b", "--batch", "f"]).is_err());
    }
}
