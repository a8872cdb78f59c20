//! The live view: it follows the feed of durable events, over restarts of the hub, and counts them by kind.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::client::Client;
use crate::ctl::events::Feed;
use crate::output::{self, Chatter, field};

/// Kinds of the events that end a task, and the state that each leaves it in.
pub(crate) const ENDS: [(&str, &str); 5] = [
    ("task-succeeded", "succeeded"),
    ("task-failed", "failed"),
    ("task-dead-lettered", "dead-letter"),
    ("task-expired", "expired"),
    ("task-cancelled", "cancelled"),
];
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// Without a terminal one line comes so often.
const SPARSE: Duration = Duration::from_secs(5);

/// Events by kind.
pub(crate) type Counts = BTreeMap<String, u64>;

/// How many tasks have ended.
pub(crate) fn ended(counts: &Counts) -> u64 {
    ENDS.iter().map(|(kind, _)| count(counts, kind)).sum()
}

fn count(counts: &Counts, kind: &str) -> u64 {
    counts.get(kind).copied().unwrap_or(0)
}

/// A running view.
#[derive(Debug)]
pub(crate) struct Pulse {
    counts: Arc<Mutex<Counts>>,
    said: Arc<Mutex<String>>,
    following: JoinHandle<()>,
    showing: JoinHandle<()>,
    lines: Lines,
    began: Instant,
}

impl Pulse {
    /// Follows that hub.
    pub(crate) fn start(client: Client, began: Instant, chatter: Chatter) -> Self {
        let counts = Arc::new(Mutex::new(Counts::new()));
        let said = Arc::new(Mutex::new(String::new()));
        let lines = Lines::new(chatter);
        let following = tokio::spawn(follow(client, Arc::clone(&counts)));
        let showing = tokio::spawn(show(lines.clone(), Arc::clone(&counts), Arc::clone(&said), began));
        Self { counts, said, following, showing, lines, began }
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what is going on.
    pub(crate) fn say(&self, text: &str) {
        text.clone_into(&mut self.said.lock().unwrap_or_else(PoisonError::into_inner));
        self.lines.say(&format!("{:5.1} s  {text}", self.began.elapsed().as_secs_f64()));
    }

    /// Ends the view and gives the counts.
    pub(crate) fn stop(self) -> Counts {
        self.counts()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.following.abort();
        self.showing.abort();
        self.lines.clear();
    }
}

async fn follow(client: Client, counts: Arc<Mutex<Counts>>) {
    let mut feed = Feed::after(0);
    loop {
        match feed.next(&client, LOOK * 2).await {
            Ok(events) => add(&mut counts.lock().unwrap_or_else(PoisonError::into_inner), &events),
            // The hub is away: the feed goes on where it was.
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

fn add(counts: &mut Counts, events: &[Value]) {
    for event in events {
        *counts.entry(field(event, "/kind")).or_default() += 1;
    }
}

async fn show(lines: Lines, counts: Arc<Mutex<Counts>>, said: Arc<Mutex<String>>, began: Instant) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match &lines {
            Lines::Live { bars, .. } => {
                let rows = table(&counts, &said, began.elapsed());
                for (bar, row) in bars.iter().zip(rows) {
                    bar.set_message(row);
                }
            }
            Lines::Sparse if last.elapsed() >= SPARSE => {
                last = Instant::now();
                let [_, tasks, ..] = table(&counts, &said, began.elapsed());
                output::note(&format!("{:5.1} s  {tasks}", began.elapsed().as_secs_f64()));
            }
            Lines::Sparse | Lines::None => {}
        }
    }
}

fn table(counts: &Counts, said: &str, elapsed: Duration) -> [String; 4] {
    let of = |kind: &str| count(counts, kind);
    [
        format!("{:5.1} s  {said}", elapsed.as_secs_f64()),
        format!(
            "tasks      submitted {:>5}  ended {:>5}  succeeded {:>5}  failed {:>3}  dead letters {:>3}  expired {:>3}  cancelled {:>3}",
            of("task-submitted"),
            ended(counts),
            of("task-succeeded"),
            of("task-failed"),
            of("task-dead-lettered"),
            of("task-expired"),
            of("task-cancelled"),
        ),
        format!(
            "on the way dispatched {:>5}  retried {:>4}  slow {:>4}  orphaned {:>4}  replayed {:>4}  redriven {:>3}",
            of("task-dispatched"),
            of("task-retry-scheduled"),
            of("task-slow"),
            of("task-orphaned"),
            of("task-replayed"),
            of("task-redriven"),
        ),
        format!(
            "fleet      registered {:>2}  lost {:>2}  drained {:>2}   hub starts {:>2}   callbacks delivered {:>5}",
            of("agent-registered"),
            of("agent-lost"),
            of("agent-draining"),
            of("hub-started"),
            of("callback-delivered"),
        ),
    ]
}

/// Where the view goes: a live table on a terminal, sparse lines elsewhere, nothing when quiet.
#[derive(Debug, Clone)]
enum Lines {
    Live { all: MultiProgress, bars: [ProgressBar; 4] },
    Sparse,
    None,
}

impl Lines {
    fn new(chatter: Chatter) -> Self {
        if chatter == Chatter::Quiet {
            return Self::None;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Sparse;
        }
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bars = [(); 4].map(|()| all.add(ProgressBar::new_spinner().with_style(style.clone())));
        Self::Live { all, bars }
    }

    fn say(&self, text: &str) {
        match self {
            Self::Live { all, .. } => drop(all.println(text)),
            Self::Sparse => output::note(text),
            Self::None => {}
        }
    }

    fn clear(&self) {
        match self {
            Self::Live { all, .. } => drop(all.clear()),
            Self::Sparse | Self::None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_counted_by_kind_and_ends_add_up() {
        let mut counts = Counts::new();
        add(
            &mut counts,
            &[json!({"kind": "task-submitted"}), json!({"kind": "task-failed"}), json!({"kind": "task-expired"})],
        );
        assert_eq!(ended(&counts), 2);
        assert_eq!(count(&counts, "task-submitted"), 1);
    }
}
