//! `reach status`: is all well, and if not, where to look. For whoever was woken up.
//!
//! It asks what the API answers to anybody who may read, and ends with the commands that tell more.

use agent_reach::api::words;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::{Client, Listing, More};
use crate::ctl::Context;
use crate::ctl::alerts::Alerts;
use crate::ctl::replay::Progress;
use crate::ctl::unserved::Unserved;
use crate::ctl::unused;
use crate::exit::Outcome;
use crate::moments;
use crate::output::{self, Format, field};

/// Items of a list that are counted.
const MOST: usize = 1_000;
/// A task in the queue for longer than that is worth a look, in milliseconds.
const LONG: u64 = 60_000;

/// An end without success that is longer ago needs no look, in milliseconds: a day.
const LONG_AGO: u64 = 24 * 3_600_000;
/// Ends without success of which a plan makes new tasks.
const BAD_ENDS: [&str; 3] = ["dead-letter", "failed", "expired"];

/// A callback that is due and has failed before, as `status` calls it.
const FAILING: &str = "failing";

/// It takes no options of its own.
#[derive(Debug, Args)]
pub(crate) struct Status {}

/// Some items: how many, and the oldest of them.
#[derive(Debug, PartialEq)]
struct Heap {
    name: String,
    count: usize,
    more: More,
    oldest: Option<Oldest>,
}

#[derive(Debug, PartialEq)]
struct Oldest {
    id: String,
    since: String,
}

/// Tasks whose agent is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Orphans {
    /// Replayed by themselves, at the namespace's pace.
    waiting: u64,
    /// Held until their agent returns or somebody decides.
    held: u64,
    /// Of those, the ones that a newer task of their session has superseded.
    superseded: u64,
    /// Are there more than were looked at?
    more: More,
}

impl Orphans {
    fn of(standing: &Value) -> Self {
        let more = standing.pointer("/orphans/more").and_then(Value::as_bool) == Some(true);
        Self {
            waiting: number(standing, "/orphans/waiting"),
            held: number(standing, "/orphans/held"),
            superseded: number(standing, "/orphans/superseded"),
            more: if more { More::Yes } else { More::No },
        }
    }

    /// Which ones the numbers are of.
    fn looked_at(self) -> String {
        match self.more {
            More::No => "of the orphaned".to_owned(),
            More::Yes => format!("of the {} oldest orphaned", self.waiting + self.held),
        }
    }
}

fn number(of: &Value, pointer: &str) -> u64 {
    of.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// Asks, shows, and points.
pub(crate) async fn run(context: &Context, _: &Status) -> Outcome {
    let client = &context.client;
    let ready = client.get(&["readyz"], &[]).await;
    let ready = match ready {
        Ok(answer) => field(&answer, "/phase"),
        Err(crate::exit::Failure::Refused(problem)) if problem.status == 503 => field(&problem.whole, "/phase"),
        Err(failure) => return Err(failure),
    };
    let standing = client.get(&["v1", "status"], &[]).await?;
    let (agents, orphans) = (agents(&standing), Orphans::of(&standing));
    let mut tasks = Vec::new();
    for state in words::task_states() {
        tasks.extend(tasks_in(client, &standing, state).await?);
    }
    let replays = open_plans(client).await?;
    let alerts = Alerts::of(&standing);
    let callbacks = client.list(&["v1", "callbacks"], &[], MOST).await?;
    let has_failed = |callback: &&Value| {
        field(callback, "/state") == "due" && callback.get("attempts").and_then(Value::as_u64).is_some_and(|n| n > 0)
    };
    let failing = Heap {
        name: FAILING.to_owned(),
        count: callbacks.items.iter().filter(has_failed).count(),
        more: callbacks.more,
        oldest: None,
    };
    let callbacks = by(callbacks, |callback| field(callback, "/state"));
    let troubled: Vec<&Heap> = callbacks.iter().chain(Some(&failing)).collect();
    let unserved = Unserved::of(&standing);
    let mut look_at = unused::look_at(&standing);
    look_at.extend(unserved.look_at(moments::now()));
    // What only waits needs a look after a while; of what nobody can take it is said already.
    let waiting = tasks.iter().filter(|heap| heap.name != "queued" || heap.counted_beyond(unserved.tasks));
    look_at.extend(self::look_at(&agents, waiting, &troubled, moments::now()));
    look_at.extend(ended_badly(&standing, moments::now()));
    look_at.extend(not_closed(&standing));
    look_at.extend(after_an_incident(orphans, &replays));
    look_at.extend(alerts.in_vain());
    match context.format {
        Format::Json => output::json(&json!({
            "phase": ready, "namespace": standing.get("namespace"), "used": standing.get("used"),
            "suggestions": standing.get("suggestions"), "unserved": standing.get("unserved"), "seq": standing.get("seq"),
            "redriven": standing.get("redriven"), "agents": counts(&agents), "tasks": counts(&tasks), "callbacks": counts(&callbacks),
            "breakers": standing.get("breakers"), "orphans": {"waiting": orphans.waiting, "held": orphans.held, "superseded": orphans.superseded, "more": orphans.more == More::Yes}, "replays": replays, "alerts": alerts.0,
            "look_at": look_at.iter().map(|(what, command)| json!({"what": what, "command": command})).collect::<Vec<_>>(),
        })),
        Format::Table => {
            let plans: Vec<String> = replays.iter().map(told).collect();
            let hub = format!("{ready}, {}, namespace {}", client.url(), field(&standing, "/namespace"));
            show(
                &hub,
                [&agents, &tasks, &callbacks],
                &[("breakers", breakers(&standing)), ("replays", plans), ("alerts", alerts.line())],
            );
            point_at(&look_at, unused::told(&standing));
        }
    }
    Ok(())
}

fn agents(standing: &Value) -> Vec<Heap> {
    let all = standing.get("agents").and_then(Value::as_object).into_iter().flatten();
    all.map(|(name, count)| Heap::counted_by_the_hub(name, count.as_u64().unwrap_or(0))).collect()
}

/// The tasks of one state, and the oldest of them if they are few and not over.
async fn tasks_in(client: &Client, standing: &Value, state: &str) -> Outcome<Option<Heap>> {
    let count = number(standing, &format!("/tasks/{state}/count"));
    if count == 0 {
        return Ok(None);
    }
    let mut heap = Heap::counted_by_the_hub(state, count);
    if heap.count <= MOST && !words::terminal_states().any(|terminal| terminal == state) {
        let listing = client.list(&["v1", "tasks"], &[("state", state.to_owned())], MOST).await?;
        heap.oldest = listing
            .items
            .last()
            .map(|task| Oldest { id: field(task, "/reach_id"), since: field(task, "/submitted_at") });
    }
    Ok(Some(heap))
}

/// Plans that have not ended: running ones first.
async fn open_plans(client: &Client) -> Outcome<Vec<Value>> {
    let mut plans = Vec::new();
    for state in ["running", "paused"] {
        plans.extend(client.list(&["v1", "replays"], &[("state", state.to_owned())], MOST).await?.items);
    }
    Ok(plans)
}

fn by(listing: Listing, name: impl Fn(&Value) -> String) -> Vec<Heap> {
    let mut heaps: Vec<Heap> = Vec::new();
    for item in &listing.items {
        let name = name(item);
        match heaps.iter_mut().find(|heap| heap.name == name) {
            Some(heap) => heap.count += 1,
            None => heaps.push(Heap { name, count: 1, more: listing.more, oldest: None }),
        }
    }
    heaps.sort_by(|a, b| a.name.cmp(&b.name));
    heaps
}

impl Heap {
    fn counted_by_the_hub(name: &str, count: u64) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Self { name: name.to_owned(), count, more: More::No, oldest: None }
    }

    /// Are there more than so many?
    fn counted_beyond(&self, count: u64) -> bool {
        u64::try_from(self.count).unwrap_or(u64::MAX) > count
    }

    /// `1 task`, `3 tasks`, `over 200 tasks`.
    fn of(&self, noun: &str) -> String {
        match (self.count, self.more) {
            (1, More::No) => format!("1 {noun}"),
            (count, More::No) => format!("{count} {noun}s"),
            (count, More::Yes) => format!("over {count} {noun}s"),
        }
    }

    /// `3`, or `over 200` where not all were counted.
    fn counted(&self) -> String {
        match self.more {
            More::No => self.count.to_string(),
            More::Yes => format!("over {}", self.count),
        }
    }
}

fn counts(heaps: &[Heap]) -> Value {
    let one = |heap: &Heap| {
        let oldest = heap.oldest.as_ref().map(|oldest| json!({"reach_id": oldest.id, "submitted_at": oldest.since}));
        (heap.name.clone(), json!({"count": heap.count, "more": heap.more == More::Yes, "oldest": oldest}))
    };
    Value::Object(heaps.iter().map(one).collect::<Map<String, Value>>())
}

fn show(ready: &str, heaps: [&[Heap]; 3], more: &[(&str, Vec<String>)]) {
    let now = moments::now();
    let mut rows = vec![("hub".to_owned(), ready.to_owned())];
    for (what, heaps) in ["agents", "tasks", "callbacks"].into_iter().zip(heaps) {
        if heaps.is_empty() {
            rows.push((what.to_owned(), "none".to_owned()));
        }
        for (n, heap) in heaps.iter().enumerate() {
            let oldest = heap.oldest.as_ref().map_or_else(String::new, |oldest| {
                format!(", the oldest submitted {} ago", moments::age(&oldest.since, now))
            });
            let name = if n == 0 { what.to_owned() } else { String::new() };
            rows.push((name, format!("{:<17} {}{oldest}", heap.name, heap.counted())));
        }
    }
    for (what, lines) in more {
        for (n, line) in lines.iter().enumerate() {
            rows.push((if n == 0 { (*what).to_owned() } else { String::new() }, line.clone()));
        }
    }
    output::card(&rows);
}

/// A plan in a line.
fn told(plan: &Value) -> String {
    let (state, progress) = (field(plan, "/state"), Progress::of(plan).words());
    format!("{state:<17} {progress}, {}", field(plan, "/replay_id"))
}

/// Tasks that ended without success and were not made anew, if the last of them is not long ago: nobody need look at
/// what was looked at yesterday.
fn ended_badly(standing: &Value, now: jiff::Timestamp) -> Option<(String, String)> {
    let of = |state: &str| number(standing, &format!("/tasks/{state}/count"));
    let states: Vec<&str> = BAD_ENDS.into_iter().filter(|state| of(state) > 0).collect();
    let left = states.iter().map(|state| of(state)).sum::<u64>().saturating_sub(number(standing, "/redriven"));
    let last = states.iter().map(|state| field(standing, &format!("/tasks/{state}/last_ended_at"))).max()?;
    let is_recent = last.parse().is_ok_and(|last| agent_reach::api::timeline::millis_between(last, now) < LONG_AGO);
    let heaps = match states.as_slice() {
        [only] => format!("{left} of {} {only} not redriven", of(only)),
        all => {
            let told: Vec<String> = all.iter().map(|state| format!("{} {state}", of(state))).collect();
            let total: u64 = all.iter().map(|state| of(state)).sum();
            format!("{left} of {total} not redriven ({})", told.join(", "))
        }
    };
    (left > 0 && is_recent).then(|| {
        let what = format!("{heaps}, the last {} ago", moments::age(&last, now));
        (what, format!("reach replay plan --state {} --dry-run", states.join(",")))
    })
}

/// Breakers by state; nothing where all are closed.
fn breakers(standing: &Value) -> Vec<String> {
    let states = [("open", "/breakers/open"), ("half-open", "/breakers/half_open"), ("held", "/breakers/forced")];
    let counts = states.map(|(name, at)| (name, number(standing, at)));
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name:<17} {count}")).collect()
}

/// Agents that get no tasks of some capability now, or one at a time.
fn not_closed(standing: &Value) -> Option<(String, String)> {
    let count = number(standing, "/breakers/open") + number(standing, "/breakers/half_open");
    let agent = standing.pointer("/breakers/agents/0").and_then(Value::as_str)?;
    let noun = if count == 1 { "breaker" } else { "breakers" };
    Some((format!("{count} {noun} of agents not closed"), format!("reach agents show {agent}")))
}

/// What is left of an incident: plans under way, and orphans.
fn after_an_incident(orphans: Orphans, plans: &[Value]) -> Vec<(String, String)> {
    let mut look_at = Vec::new();
    if orphans.waiting > 0 {
        let what = format!("{}, {} come back by themselves", orphans.looked_at(), orphans.waiting);
        look_at.push((what, "reach events --follow --kind task-replayed".to_owned()));
    }
    let decided_by_plan = orphans.held.saturating_sub(orphans.superseded);
    if decided_by_plan > 0 {
        let what = format!("{}, {decided_by_plan} held for a decision", orphans.looked_at());
        look_at.push((what, "reach replay plan --state orphaned --dry-run".to_owned()));
    }
    if orphans.superseded > 0 {
        let what = format!("{}, {} superseded in their sessions", orphans.looked_at(), orphans.superseded);
        look_at.push((what, "reach tasks list --state orphaned".to_owned()));
    }
    for plan in plans {
        let (state, id) = (field(plan, "/state"), field(plan, "/replay_id"));
        let verb = if state == "running" { "watch" } else { "show" };
        look_at.push((format!("a replay plan is {state}"), format!("reach replay {verb} {id}")));
    }
    look_at
}

fn point_at(look_at: &[(String, String)], unused: Option<String>) {
    output::data("");
    if look_at.is_empty() {
        output::data(unused.as_deref().unwrap_or("nothing needs a look"));
    } else {
        output::pointers(&["look at", "with"], look_at);
    }
}

/// What needs a look, and the command that tells more.
fn look_at<'a>(
    agents: &[Heap],
    tasks: impl IntoIterator<Item = &'a Heap>,
    callbacks: &[&Heap],
    now: jiff::Timestamp,
) -> Vec<(String, String)> {
    let mut look_at = Vec::new();
    for heap in agents {
        match heap.name.as_str() {
            "lost" | "unhealthy" => {
                look_at.push((
                    format!("{} {}", heap.of("agent"), heap.name),
                    format!("reach agents list --health {}", heap.name),
                ));
            }
            "draining" => {
                look_at.push((
                    format!("{} draining", heap.of("agent")),
                    "reach agents list --standing draining".to_owned(),
                ));
            }
            _ => {}
        }
    }
    for heap in tasks {
        let waits_long = heap.oldest.as_ref().is_some_and(|oldest| {
            oldest.since.parse().is_ok_and(|since| agent_reach::api::timeline::millis_between(since, now) > LONG)
        });
        let worth = match heap.name.as_str() {
            "slow-reach" | "orphaned" | "awaiting-approval" => true,
            "queued" | "retrying" | "dispatched" => waits_long,
            _ => false,
        };
        let with = match &heap.oldest {
            Some(oldest) => format!("reach explain {}", oldest.id),
            None => format!("reach tasks list --state {}", heap.name),
        };
        if worth {
            look_at.push((format!("{} {}", heap.of("task"), heap.name), with));
        }
    }
    for heap in callbacks.iter().filter(|heap| heap.count > 0) {
        let (what, state) = match heap.name.as_str() {
            FAILING => (format!("{} tried in vain so far", heap.of("callback")), "due"),
            name @ ("exhausted" | "blocked") => (format!("{} {name}", heap.of("callback")), name),
            _ => continue,
        };
        look_at.push((what, format!("reach callbacks list --state {state}")));
    }
    look_at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_counted_to_its_end_is_over_that() {
        let heap = |count, more| Heap { name: "succeeded".to_owned(), count, more, oldest: None };
        assert_eq!((heap(200, More::Yes).counted(), heap(200, More::No).counted()), ("over 200".into(), "200".into()));
        assert_eq!(heap(200, More::Yes).of("task"), "over 200 tasks");
    }

    #[test]
    fn what_is_left_of_an_incident_is_named_with_the_next_command() {
        let orphans = Orphans::of(&json!({"orphans": {"waiting": 1, "held": 3, "superseded": 1, "more": false}}));
        assert_eq!(orphans, Orphans { waiting: 1, held: 3, superseded: 1, more: More::No });
        let many = Orphans { more: More::Yes, ..orphans };
        assert!(after_an_incident(many, &[])[0].0.starts_with("of the 4 oldest orphaned, 1"));
        let plans =
            [json!({"state": "running", "replay_id": "replay_x"}), json!({"state": "paused", "replay_id": "replay_y"})];
        let look: Vec<String> =
            after_an_incident(orphans, &plans).into_iter().map(|(what, with)| format!("{what}: {with}")).collect();
        assert_eq!(
            look,
            [
                "of the orphaned, 1 come back by themselves: reach events --follow --kind task-replayed",
                "of the orphaned, 2 held for a decision: reach replay plan --state orphaned --dry-run",
                "of the orphaned, 1 superseded in their sessions: reach tasks list --state orphaned",
                "a replay plan is running: reach replay watch replay_x",
                "a replay plan is paused: reach replay show replay_y",
            ]
        );
        let none = Orphans { waiting: 0, held: 0, superseded: 0, more: More::No };
        assert_eq!(after_an_incident(none, &[]), []);
    }

    #[test]
    fn breakers_that_are_not_closed_are_counted_and_need_a_look() {
        let standing = json!({"breakers": {"open": 2, "half_open": 1, "forced": 1, "agents": ["weather-1", "x"]}});
        assert_eq!(breakers(&standing), ["open              2", "half-open         1", "held              1"]);
        let (what, with) = not_closed(&standing).expect("it needs a look");
        assert_eq!((&*what, &*with), ("3 breakers of agents not closed", "reach agents show weather-1"));
        let closed = json!({"breakers": {"open": 0, "half_open": 0, "forced": 0, "agents": []}});
        assert_eq!((breakers(&closed).len(), not_closed(&closed)), (0, None));
    }

    #[test]
    fn bad_ends_need_a_look_until_they_were_made_anew_or_are_a_day_old() {
        let ended = |count: u64, at: &str| json!({"count": count, "last_ended_at": at});
        let mut standing = json!({"redriven": 3, "tasks": {
            "dead-letter": ended(4, "2026-01-01T00:00:00Z"), "failed": ended(2, "2026-01-01T00:09:00Z"),
            "succeeded": ended(9, "2026-01-01T00:09:59Z"),
        }});
        let now = "2026-01-01T00:10:00Z".parse().expect("a moment");
        let (what, with) = ended_badly(&standing, now).expect("it needs a look");
        assert!(what.starts_with("3 of 6 not redriven (4 dead-letter, 2 failed), the last 1 m"), "{what}");
        assert_eq!(with, "reach replay plan --state dead-letter,failed --dry-run");
        let alone = json!({"redriven": 14, "tasks": {"dead-letter": ended(15, "2026-01-01T00:09:00Z")}});
        let (what, _) = ended_badly(&alone, now).expect("it needs a look");
        assert!(what.starts_with("1 of 15 dead-letter not redriven, the last 1 m"), "{what}");
        standing["redriven"] = json!(6);
        assert_eq!(ended_badly(&standing, now), None, "all were made anew");
        standing["redriven"] = json!(0);
        let later = "2026-01-02T00:09:00Z".parse().expect("a moment");
        assert_eq!(ended_badly(&standing, later), None, "that was yesterday");
        assert_eq!(ended_badly(&json!({"tasks": {}}), now), None);
    }

    #[test]
    fn what_needs_a_look_comes_with_the_command_that_tells_more() {
        let heap = |name: &str, oldest: Option<&str>| Heap {
            name: name.to_owned(),
            count: 2,
            more: More::No,
            oldest: oldest.map(|since| Oldest { id: "reach_x".to_owned(), since: since.to_owned() }),
        };
        let now = "2026-01-01T00:10:00Z".parse().expect("a moment");
        let agents = [heap("healthy", None), heap("lost", None)];
        let tasks = [
            heap("queued", Some("2026-01-01T00:09:59Z")),
            heap("retrying", Some("2026-01-01T00:00:00Z")),
            heap("dead-letter", None),
            heap("succeeded", None),
        ];
        let (fresh, failing, exhausted) = (heap("due", None), heap(FAILING, None), heap("exhausted", None));
        let look: Vec<String> = look_at(&agents, &tasks, &[&fresh, &exhausted, &failing], now)
            .into_iter()
            .map(|(a, b)| format!("{a}: {b}"))
            .collect();
        assert_eq!(
            look,
            [
                "2 agents lost: reach agents list --health lost",
                "2 tasks retrying: reach explain reach_x",
                "2 callbacks exhausted: reach callbacks list --state exhausted",
                "2 callbacks tried in vain so far: reach callbacks list --state due",
            ]
        );
    }
}
