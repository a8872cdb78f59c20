//! `reach replay watch`: a plan to its end. On a terminal a bar and its last items; in a pipe a line when it has moved.
//!
//! It only looks: whoever stops looking stops nothing.

use std::collections::VecDeque;
use std::io::IsTerminal as _;
use std::time::Duration;

use agent_reach::api::timeline::{meaning, span};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::ctl::Context;
use crate::ctl::events::{Feed, end_of_feed};
use crate::exit::{Code, Failure, Outcome};
use crate::output::{self, Chatter, Format, field, tame};

use super::fates::{fates_of, with_fates};
use super::{Progress, show, waits};

/// One look waits so long for a change.
const LONG_POLL_MS: u64 = 2_000;
/// Between two looks that a person sees.
const LOOK: Duration = Duration::from_millis(200);
/// Between two lines in a pipe.
const SPARSE: Duration = Duration::from_secs(1);
/// The rate now is that of the last few seconds.
const WINDOW: Duration = Duration::from_secs(5);
/// A hub that is away for longer ends the watch.
const AWAY: Duration = Duration::from_secs(60);
/// Items that are shown below the bar.
const ITEMS: usize = 3;
/// A page of the feed with so many events: there is more than anybody can read.
const FULL_PAGE: usize = 1_000;

/// Follows it.
pub(super) async fn run(context: &Context, replay_id: &str) -> Outcome {
    tokio::select! {
        ended = follow(context, replay_id) => ended,
        _ = tokio::signal::ctrl_c() => {
            let goes_on = format!("{replay_id} goes on without being watched; `reach replay pause {replay_id}` stops it");
            output::note(&goes_on);
            Err(Failure::Told(Code::Timeout))
        }
    }
}

async fn follow(context: &Context, replay_id: &str) -> Outcome {
    let mut plan = look(&context.client, replay_id, 0).await?;
    let mut screen = Screen::new(context, &plan);
    let mut pace = Pace::default();
    let mut away: Option<Instant> = None;
    loop {
        let has_ended = ["completed", "cancelled"].contains(&&*field(&plan, "/state"));
        if has_ended {
            plan = with_fates(&context.client, plan).await?;
        }
        pace.note(Instant::now(), Progress::of(&plan).settled());
        screen.show(&context.client, &plan, &pace).await;
        if has_ended {
            break;
        }
        sleep(screen.between()).await;
        match look(&context.client, replay_id, LONG_POLL_MS).await {
            Ok(newer) => (plan, away) = (newer, None),
            Err(failure) if is_away(&failure) && away.is_none_or(|since| since.elapsed() < AWAY) => {
                if away.is_none() {
                    screen.note("the hub does not answer; a plan goes on when its hub does. Looking again …");
                }
                away = away.or_else(|| Some(Instant::now()));
                sleep(SPARSE).await;
            }
            Err(failure) => return Err(failure),
        }
    }
    screen.end(context, &plan);
    if field(&plan, "/state") == "completed" { Ok(()) } else { Err(Failure::Told(Code::Unsuccessful)) }
}

async fn look(client: &Client, replay_id: &str, wait_ms: u64) -> Outcome<Value> {
    client.get(&["v1", "replays", replay_id], &[("wait_ms", wait_ms.to_string())]).await
}

/// Does it pass by itself?
fn is_away(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(problem) => problem.status == 503,
        Failure::Other(code, _) | Failure::Told(code) => matches!(code, Code::Unreachable | Code::Timeout),
    }
}

/// How fast it has gone lately.
#[derive(Debug, Default)]
struct Pace {
    looks: VecDeque<(Instant, u64)>,
}

impl Pace {
    fn note(&mut self, now: Instant, settled: u64) {
        while self.looks.len() > 2 && self.looks.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.looks.pop_front();
        }
        self.looks.push_back((now, settled));
    }

    /// Items a second; `None` before there were two looks.
    fn now(&self) -> Option<f64> {
        let ((from, before), (to, after)) = (self.looks.front()?, self.looks.back()?);
        let seconds = to.duration_since(*from).as_secs_f64();
        (seconds > 0.0).then(|| after.saturating_sub(*before) as f64 / seconds)
    }
}

/// `19.8/s of 20/s, 1.4 s to go`, or whom it waits for; what a paused one waits for; nothing for one that has ended.
fn pace_in_words(plan: &Value, pace: &Pace) -> String {
    let pending = Progress::of(plan).pending;
    let rate = plan.get("rate_per_s").and_then(Value::as_f64).unwrap_or(0.0);
    match field(plan, "/state").as_str() {
        "running" => {
            let now = pace.now().filter(|now| *now > 0.0);
            let left = pending as f64 / now.unwrap_or(rate).max(0.001);
            let left = Duration::try_from_secs_f64(left).map_or(u128::MAX, |left| left.as_millis());
            let left = span(u64::try_from(left).unwrap_or(u64::MAX));
            match (now, waits(plan)) {
                (Some(now), None) => format!("{now:.1}/s of {rate}/s, {left} to go"),
                (None, None) => format!("{rate}/s, {left} to go"),
                (Some(now), Some(waits)) => format!("{now:.1}/s of {rate}/s; {waits}"),
                (None, Some(waits)) => waits,
            }
        }
        "paused" => format!("`reach replay resume {}` lets it go on", field(plan, "/replay_id")),
        _ => String::new(),
    }
}

/// All of it in a line.
fn line(plan: &Value, pace: &Pace) -> String {
    let line = format!("{:<9}  {}; {}", field(plan, "/state"), Progress::of(plan).words(), pace_in_words(plan, pace));
    let fates = fates_of(plan).map_or_else(String::new, |fates| format!("; their tasks: {fates}"));
    format!("{}{fates}", line.trim_end_matches("; "))
}

/// Where it is shown.
#[derive(Debug)]
enum Screen {
    /// A bar, and the last items below it.
    Bar { all: MultiProgress, bar: ProgressBar, items: [ProgressBar; ITEMS], tail: Tail },
    /// A line, when it has moved.
    Lines { last: Option<(String, Progress, Option<String>)>, format: Format },
    /// Nothing but the end.
    End,
}

impl Screen {
    fn new(context: &Context, plan: &Value) -> Self {
        let is_seen = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        match context.format {
            Format::Json => Self::Lines { last: None, format: Format::Json },
            Format::Table if context.chatter == Chatter::Quiet => Self::End,
            Format::Table if !is_seen => Self::Lines { last: None, format: Format::Table },
            Format::Table => {
                let all = MultiProgress::new();
                let plain = ProgressStyle::default_bar();
                let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}  {msg}").unwrap_or(plain);
                let bar = all.add(ProgressBar::new(Progress::of(plan).total).with_style(style));
                let plain = ProgressStyle::default_spinner();
                let style = ProgressStyle::with_template("  {wide_msg}").unwrap_or(plain);
                let items = [(); ITEMS].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())));
                Self::Bar { all, bar, items, tail: Tail::new(&field(plan, "/replay_id")) }
            }
        }
    }

    const fn between(&self) -> Duration {
        match self {
            Self::Bar { .. } => LOOK,
            Self::Lines { .. } | Self::End => SPARSE,
        }
    }

    async fn show(&mut self, client: &Client, plan: &Value, pace: &Pace) {
        let (state, progress) = (field(plan, "/state"), Progress::of(plan));
        match self {
            Self::Bar { bar, items, tail, .. } => {
                bar.set_position(progress.settled());
                bar.set_prefix(format!("{state}: {} done, {} skipped", progress.done(), progress.skipped));
                bar.set_message(pace_in_words(plan, pace));
                tail.read(client).await;
                for (line, item) in items.iter().zip(&tail.last) {
                    line.set_message(item.clone());
                }
            }
            Self::Lines { last, format } => {
                let now = Some((state, progress, waits(plan)));
                if *last != now {
                    match format {
                        Format::Json => output::data(&plan.to_string()),
                        Format::Table => output::row(&line(plan, pace)),
                    }
                    *last = now;
                }
            }
            Self::End => {}
        }
    }

    fn note(&self, text: &str) {
        match self {
            Self::Bar { all, .. } => drop(all.println(text)),
            Self::Lines { .. } => output::note(text),
            Self::End => {}
        }
    }

    fn end(&self, context: &Context, plan: &Value) {
        match self {
            Self::Bar { all, .. } => {
                drop(all.clear());
                show(context, plan);
            }
            Self::Lines { .. } => {}
            Self::End => show(context, plan),
        }
    }
}

/// The last items of a plan, from the feed; without the right to read that there are none.
#[derive(Debug)]
struct Tail {
    replay_id: String,
    feed: Option<Feed>,
    may_read: bool,
    last: VecDeque<String>,
}

impl Tail {
    fn new(replay_id: &str) -> Self {
        Self { replay_id: replay_id.to_owned(), feed: None, may_read: true, last: VecDeque::new() }
    }

    async fn read(&mut self, client: &Client) {
        if !self.may_read {
            return;
        }
        if let Some(feed) = &mut self.feed {
            let Ok(page) = feed.next(client, Duration::ZERO).await else { return };
            self.take(&page);
            if page.len() < FULL_PAGE {
                return;
            }
        }
        // The beginning, or more comes than is read: only the newest is of use here.
        match end_of_feed(client).await {
            Ok(end) => self.feed = Some(Feed::after(end)),
            Err(Failure::Refused(problem)) if problem.status == 403 => self.may_read = false,
            Err(_) => {}
        }
    }

    fn take(&mut self, events: &[Value]) {
        let is_item = |event: &&Value| {
            field(event, "/replay_id") == self.replay_id && field(event, "/kind").starts_with("replay-item-")
        };
        for event in events.iter().filter(is_item) {
            // Which plan it is of, whoever watches it knows.
            let told = meaning(event);
            let told = told.strip_prefix(&format!("{}: ", self.replay_id)).unwrap_or(&told);
            self.last.push_back(tame(told));
        }
        self.last.drain(..self.last.len().saturating_sub(ITEMS));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(state: &str) -> Value {
        json!({"replay_id": "replay_x", "state": state, "total": 40, "pending": 30, "replayed": 10, "redriven": 0,
               "skipped": {}, "rate_per_s": 20})
    }

    #[tokio::test]
    async fn the_rate_now_is_that_of_the_last_seconds_and_tells_how_long_it_takes() {
        let begun = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(pace_in_words(&plan("running"), &pace), "20/s, 1.5 s to go");
        pace.note(begun, 0);
        pace.note(begun + Duration::from_secs(100), 0);
        pace.note(begun + Duration::from_secs(101), 15);
        pace.note(begun + Duration::from_secs(102), 30);
        assert_eq!(pace_in_words(&plan("running"), &pace), "15.0/s of 20/s, 2.0 s to go");
        assert!(pace_in_words(&plan("paused"), &pace).contains("reach replay resume replay_x"));
        assert_eq!(line(&plan("completed"), &pace), "completed  10 replayed, 0 skipped, 30 pending of 40");
    }

    #[test]
    fn a_plan_that_waits_for_somebody_says_so_and_no_time() {
        let mut plan = plan("running");
        plan["waiting_for"] = json!({"sessions": 2, "reach_id": "reach_a"});
        assert_eq!(pace_in_words(&plan, &Pace::default()), "2 sessions wait, the first for reach_a");
    }

    #[test]
    fn the_last_items_are_those_of_this_plan() {
        let mut tail = Tail::new("replay_x");
        let item = |plan: &str, index: u64| json!({"kind": "replay-item-done", "replay_id": plan, "index": index, "of_reach_id": "reach_a", "outcome": "replayed"});
        let events: Vec<Value> = (0..5).map(|n| item("replay_x", n)).chain([item("replay_y", 9)]).collect();
        tail.take(&events);
        assert_eq!(
            tail.last,
            [
                "item 2, reach_a: back in the queue",
                "item 3, reach_a: back in the queue",
                "item 4, reach_a: back in the queue"
            ]
        );
    }
}
