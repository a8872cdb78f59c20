//! `reach events`: the feed of durable events, from any place in the ledger.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use crate::client::{Client, accepted, unreachable};
use crate::ctl::Context;
use crate::exit::{Failure, Outcome};
use crate::output::{self, Format, field, tame};

/// Which events.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only events after this seq
    #[arg(long, default_value_t = 0)]
    after: u64,
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// Only of this kind, such as task-failed; may be given several times
    #[arg(long)]
    kind: Vec<String>,
    /// At most so many
    #[arg(long)]
    limit: Option<usize>,
}

/// How long the hub may wait for the next event.
const WAIT: Duration = Duration::from_secs(20);

/// Prints them, one a line.
pub(crate) async fn run(context: &Context, events: &Events) -> Outcome {
    let mut feed = Feed::after(events.after);
    let mut left = events.limit.unwrap_or(usize::MAX);
    loop {
        let wait = if events.follow { WAIT } else { Duration::ZERO };
        let page = feed.next(&context.client, wait).await?;
        if page.is_empty() && !events.follow {
            return Ok(());
        }
        for event in page {
            if !events.kind.is_empty() && !events.kind.contains(&field(&event, "/kind")) {
                continue;
            }
            print(context.format, &event);
            left -= 1;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

fn print(format: Format, event: &Value) {
    match format {
        Format::Json => output::data(&event.to_string()),
        Format::Table => {
            let subject = ["/reach_id", "/task", "/agent_id", "/agent", "/batch_id"]
                .iter()
                .map(|at| field(event, at))
                .find(|text| text != "-");
            output::data(&tame(&format!(
                "{:>10}  {}  {:<26} {}",
                field(event, "/seq"),
                field(event, "/at"),
                field(event, "/kind"),
                subject.unwrap_or_default()
            )));
        }
    }
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

    /// The next events; none when there are none within `wait`.
    pub(crate) async fn next(&mut self, client: &Client, wait: Duration) -> Outcome<Vec<Value>> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(0);
        let request = client
            .request(reqwest::Method::GET, &["v1", "events"])
            .header("Accept", "application/x-ndjson")
            .query(&[("after", self.after), ("wait_ms", wait_ms)])
            .timeout(wait + Duration::from_secs(15));
        let response = accepted(request).await?;
        let looked = response.headers().get("reach-after").and_then(|at| at.to_str().ok()?.parse::<u64>().ok());
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
