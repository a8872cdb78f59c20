//! `reach events`: the feed of durable events, from any place in the ledger.

use std::time::Duration;

use agent_reach::api::timeline::{meaning, who};
use agent_reach::api::words;
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::client::{Client, accepted, unreachable};
use crate::ctl::Context;
use crate::exit::{Failure, Outcome};
use crate::output::{self, Format, field, tame};

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only events after this seq; 0 is the beginning
    #[arg(long)]
    after: Option<u64>,
    /// Begin so many places before the end of the ledger
    #[arg(long, default_value_t = 1_000, conflicts_with = "after")]
    last: u64,
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// Only of these kinds, such as task-failed; commas between them
    #[arg(long, value_delimiter = ',', hide_possible_values = true,
        value_parser = PossibleValuesParser::new(words::event_kinds()))]
    kind: Vec<String>,
    /// Only of this agent
    #[arg(long)]
    agent: Option<String>,
    /// At most so many
    #[arg(long)]
    limit: Option<usize>,
}

/// How long the hub may wait for the next event.
const WAIT: Duration = Duration::from_secs(20);

/// Prints them, one a line.
pub(crate) async fn run(context: &Context, events: &Events) -> Outcome {
    let after = match events.after {
        Some(seq) => seq,
        None => end_of_feed(&context.client).await?.saturating_sub(events.last),
    };
    let mut feed = Feed::after(after);
    let most = events.limit.unwrap_or(usize::MAX);
    let (mut looked, mut shown, mut since) = (0, 0, None);
    let (mut day, mut is_used) = (String::new(), false);
    while shown < most {
        let wait = if events.follow { WAIT } else { Duration::ZERO };
        let page = feed.next(&context.client, wait).await?;
        if page.is_empty() && !is_used {
            is_used = true;
            context.note_unused().await;
        }
        if page.is_empty() && !events.follow {
            break;
        }
        looked += page.len();
        // Events of the hub are in every namespace.
        is_used |= page.iter().any(|event| field(event, "/namespace") != "-");
        since = since.or_else(|| page.first().map(|event| field(event, "/at")));
        for event in page.iter().filter(|event| events.wants(event)).take(most - shown) {
            shown += 1;
            match context.format {
                Format::Json => output::data(&event.to_string()),
                Format::Table => show(event, &mut day),
            }
        }
    }
    if shown == 0 && most > 0 {
        context.hint(&found_nothing(looked, since.as_deref(), after));
    }
    Ok(())
}

/// Where was looked in vain, and how to look further back.
fn found_nothing(looked: usize, since: Option<&str>, after: u64) -> String {
    let what = match since {
        Some(since) => format!("none of the {looked} events after #{after}, since {since}, is one of these"),
        None => format!("there is no event after #{after}"),
    };
    let further = if after == 0 { "" } else { "; --last 100000 looks further back, --after 0 from the beginning" };
    what + further
}

impl Events {
    fn wants(&self, event: &Value) -> bool {
        (self.kind.is_empty() || self.kind.contains(&field(event, "/kind")))
            && self
                .agent
                .as_ref()
                .is_none_or(|agent| [field(event, "/agent_id"), field(event, "/actor/agent_id")].contains(agent))
    }
}

/// One line. For eyes a new day stands above its first event; a pipe has the whole moment in every line.
fn show(event: &Value, day: &mut String) {
    let at = field(event, "/at");
    if !output::is_read_by_eyes() {
        return output::data(&line(event, &at));
    }
    let (date, time) = at.split_once('T').unwrap_or(("", &at));
    if date != day {
        output::row(&tame(date));
        date.clone_into(day);
    }
    output::row(&line(event, time.trim_end_matches('Z')));
}

/// Place, time, kind, whom it is about, what it means, and whose word it was.
fn line(event: &Value, time: &str) -> String {
    let subject = ["/reach_id", "/agent_id", "/batch_id"].iter().map(|at| field(event, at)).find(|text| text != "-");
    let (seq, kind) = (field(event, "/seq"), field(event, "/kind"));
    let by = if field(event, "/actor/kind") == "token" { format!("; by {}", who(event)) } else { String::new() };
    let text = format!("{seq:>6}  {time:<12}  {kind:<20}  {:<32}  {}{by}", subject.unwrap_or_default(), meaning(event));
    tame(text.trim_end())
}

/// The seq of the newest event.
pub(crate) async fn end_of_feed(client: &Client) -> Outcome<u64> {
    let request = client.request(reqwest::Method::GET, &["v1", "events"]).query(&[("after", "latest")]);
    let response = accepted(request).await?;
    Ok(looked_to(&response).unwrap_or(0))
}

/// How far the hub looked for an answer.
fn looked_to(response: &reqwest::Response) -> Option<u64> {
    response.headers().get("reach-after")?.to_str().ok()?.parse().ok()
}

/// A place in the feed. It never skips: a gap left by retention comes as an item of its own.
#[derive(Debug)]
pub(crate) struct Feed {
    after: u64,
}

impl Feed {
    /// The feed after that seq.
    pub(crate) const fn after(seq: u64) -> Self {
        Self { after: seq }
    }

    /// The seq up to which it was looked.
    pub(crate) const fn position(&self) -> u64 {
        self.after
    }

    /// The next events; none when there are none within `wait`.
    pub(crate) async fn next(&mut self, client: &Client, wait: Duration) -> Outcome<Vec<Value>> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(0);
        let request = client
            .request(reqwest::Method::GET, &["v1", "events"])
            .header("Accept", "application/x-ndjson")
            .query(&[("after", self.after), ("wait_ms", wait_ms)])
            .timeout(wait + Duration::from_secs(15));
        let response = accepted(request).await?;
        let looked = looked_to(&response);
        let text = response.text().await.map_err(unreachable)?;
        let events = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(serde_json::from_str)
            .collect::<Result<Vec<Value>, _>>()
            .map_err(|error| Failure::new(format!("the feed is not NDJSON: {error}")))?;
        // Events of other namespaces are looked past, not shown.
        self.after = self.after.max(looked.unwrap_or(0));
        for event in &events {
            let seq = event.get("seq").or_else(|| event.get("to")).and_then(Value::as_u64).unwrap_or(0);
            self.after = self.after.max(seq);
        }
        Ok(events)
    }
}
