//! The work that a hub has recorded, from its feed of events.
//!
//! An agent's speed is what its successes took, beside what the capability's took everywhere. So a task that went to a
//! slow agent is a smaller one at a fast agent, as it would be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_reach::ledger::ids::{AgentId, Capability, ReachId};
use agent_reach::ledger::machine::task::FailureClass;
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::time::{Millis, Timestamp};
use agent_reach::scheduler::whatif::{Ends, Fate, Fleet, Job, PLAIN_SPEED, Try};
use serde_json::Value;

use crate::client::Client;
use crate::ctl::events::{Feed, end_of_feed};
use crate::exit::Outcome;
use crate::output::{self, Chatter};

use super::asked::{self, moment, text};
use super::changes::speed_milli;
use super::{MAX_TASKS, Scenario, fleet, too_many};

/// One attempt, as the feed tells it.
#[derive(Debug, Clone)]
struct Attempt {
    agent: AgentId,
    given: Timestamp,
    acked: Option<Timestamp>,
    ended: Option<(Timestamp, Ends)>,
}

impl Attempt {
    /// When its agent began: with its acknowledgement. Who says nothing until it is done is acknowledged with its word,
    /// and began when it was given the task.
    fn began(&self) -> Option<Timestamp> {
        let acked = self.acked?;
        Some(if self.ended.is_some_and(|(at, _)| at == acked) { self.given } else { acked })
    }
}

/// One task, as the feed tells it.
#[derive(Debug, Clone)]
struct Life {
    job: Job,
    attempts: BTreeMap<u64, Attempt>,
    end: Option<(Timestamp, StatusKind)>,
}

impl Life {
    /// What each attempt took that began and ended.
    fn works(&self) -> impl Iterator<Item = (&AgentId, Millis, Ends)> {
        self.attempts.values().filter_map(|attempt| {
            let (at, ends) = attempt.ended?;
            Some((&attempt.agent, at.since(attempt.began()?), ends))
        })
    }
}

/// Everything that was done since so many events before the end.
pub(super) async fn scenario(client: &Client, last: u64, chatter: Chatter) -> Outcome<Scenario> {
    let (mut lives, end) = read(client, last, chatter).await?;
    let source = format!("the last {} events of {}", end.min(last), client.url());
    let all = lives.len();
    lives.retain(|_, life| life.end.is_none_or(|(_, end)| end != StatusKind::Cancelled));
    let Some(namespace) = lives.values().next().map(|life| life.job.namespace.clone()) else {
        let fleet = Fleet::default();
        return Ok(Scenario { source, fleet, jobs: Vec::new(), recorded: Vec::new(), left_out: Vec::new() });
    };
    let took_part: BTreeSet<AgentId> =
        lives.values().flat_map(|life| life.attempts.values().map(|attempt| attempt.agent.clone())).collect();
    let found = fleet::found(client, &namespace, &took_part).await?;
    let pace = Pace::of(&lives);
    let mut fleet = found.fleet;
    for worker in &mut fleet.workers {
        let agent = worker.agent.agent_id.clone();
        let speed = |of: &Capability| (of.clone(), pace.speed(&agent, of));
        worker.speeds = worker.declaration.offers.iter().map(|offer| speed(&offer.capability)).collect();
    }
    let unseen = lives.values().filter(|life| life.works().next().is_none()).count();
    let jobs: Vec<Job> = lives.values().map(|life| pace.job(life)).collect();
    let recorded = recorded(lives.values());
    let mut left_out = vec!["losses, drains and schemas are not played, nor what was under way before".to_owned()];
    let counted = [
        (all - lives.len(), "tasks that were cancelled are not played"),
        (unseen, "tasks that nobody was seen to finish take what such tasks take"),
    ];
    left_out.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    left_out.extend(found.left_out);
    let source = format!("{} tasks in {namespace} of {source}", jobs.len());
    Ok(Scenario { source, fleet, jobs, recorded, left_out })
}

/// The tasks that were submitted in that window, and where it ends.
async fn read(client: &Client, last: u64, chatter: Chatter) -> Outcome<(BTreeMap<ReachId, Life>, u64)> {
    let end = end_of_feed(client).await?;
    let bar = output::progress(end.min(last), "read", chatter);
    let mut feed = Feed::after(end.saturating_sub(last));
    let mut lives = BTreeMap::new();
    loop {
        let before = feed.position();
        let page = feed.next(client, Duration::ZERO).await?;
        // An empty page looked past events of others; what comes while we read is not of this window.
        for event in page.iter().filter(|event| event.get("seq").and_then(Value::as_u64).is_some_and(|seq| seq <= end))
        {
            note(&mut lives, event);
        }
        if lives.len() > MAX_TASKS {
            return Err(too_many());
        }
        bar.inc(feed.position().saturating_sub(before));
        if feed.position() >= end || feed.position() == before {
            break;
        }
    }
    bar.finish_and_clear();
    Ok((lives, end))
}

/// Takes one event in: the beginning of a task, or what became of one of its attempts.
fn note(lives: &mut BTreeMap<ReachId, Life>, event: &Value) {
    let kind = text(event, "kind").unwrap_or_default();
    if kind == "task-submitted" {
        let job = asked::job(event);
        lives.extend(job.map(|job| (job.submission.reach_id, Life { job, attempts: BTreeMap::new(), end: None })));
        return;
    }
    let id = text(event, "reach_id").and_then(|id| id.parse::<ReachId>().ok());
    let Some((at, life)) = moment(event, "at").zip(id.and_then(|id| lives.get_mut(&id))) else { return };
    let number = event.get("attempt").and_then(Value::as_u64).unwrap_or(0);
    match kind {
        "task-dispatched" => {
            if let Some(agent) = text(event, "agent_id").and_then(|agent| agent.parse().ok()) {
                life.attempts.insert(number, Attempt { agent, given: at, acked: None, ended: None });
            }
        }
        "task-acknowledged" => {
            if let Some(attempt) = life.attempts.get_mut(&number) {
                attempt.acked = Some(at);
            }
        }
        // Where a person's word let it go, its time began then.
        "task-approved" => life.job.at = at,
        _ => life.note_end(at, (kind, number), event),
    }
}

impl Life {
    fn note_end(&mut self, at: Timestamp, (kind, number): (&str, u64), event: &Value) {
        let class = event.pointer("/failure/class").and_then(Value::as_str);
        let class = FailureClass::ALL.into_iter().find(|one| Some(one.name()) == class);
        let ends = match kind {
            "task-attempt-failed" => class.map(Ends::Ill),
            "task-succeeded" => Some(Ends::Well),
            "task-failed" => class.map(Ends::Broken),
            _ => None,
        };
        if let (Some(ends), Some(attempt)) = (ends, self.attempts.get_mut(&number)) {
            attempt.ended = attempt.ended.or(Some((at, ends)));
        }
        let end = match kind {
            "task-succeeded" => Some(StatusKind::Succeeded),
            "task-failed" => Some(StatusKind::Failed),
            "task-dead-lettered" => Some(StatusKind::DeadLetter),
            "task-expired" => Some(StatusKind::Expired),
            "task-cancelled" | "task-refused" => Some(StatusKind::Cancelled),
            _ => None,
        };
        if self.end.is_none() {
            self.end = end.map(|end| (at, end));
        }
    }
}

/// How fast agents are.
struct Pace {
    /// What a success of the capability takes, on average.
    usual: BTreeMap<Capability, f64>,
    /// In thousandths of that.
    speeds: BTreeMap<(AgentId, Capability), u32>,
}

impl Pace {
    fn of(lives: &BTreeMap<ReachId, Life>) -> Self {
        let mut all: BTreeMap<Capability, (f64, f64)> = BTreeMap::new();
        let mut each: BTreeMap<(AgentId, Capability), (f64, f64)> = BTreeMap::new();
        for life in lives.values() {
            let capability = &life.job.submission.capability;
            for (agent, took, _) in life.works().filter(|(_, _, ends)| *ends == Ends::Well) {
                #[expect(clippy::cast_precision_loss, reason = "a span of milliseconds, which is far below 2^52")]
                let took = took.0 as f64;
                let own = each.entry((agent.clone(), capability.clone())).or_default();
                for (sum, count) in [all.entry(capability.clone()).or_default(), own] {
                    *sum += took;
                    *count += 1.0;
                }
            }
        }
        let usual: BTreeMap<Capability, f64> = all.into_iter().map(|(of, (sum, count))| (of, sum / count)).collect();
        let speed = |((agent, of), (sum, count)): ((AgentId, Capability), (f64, f64))| {
            let (usual, own) = (usual.get(&of).copied().unwrap_or(0.0), sum / count);
            // What takes no time at all has no speed.
            let timed = usual > 0.0 && own > 0.0;
            ((agent, of), if timed { speed_milli((usual / own).clamp(0.001, 1_000.0)) } else { PLAIN_SPEED })
        };
        let speeds = each.into_iter().map(speed).collect();
        Self { usual, speeds }
    }

    fn speed(&self, agent: &AgentId, of: &Capability) -> u32 {
        self.speeds.get(&(agent.clone(), of.clone())).copied().unwrap_or(PLAIN_SPEED)
    }

    /// The task as it would arrive again, of the size that its recorded times tell.
    fn job(&self, life: &Life) -> Job {
        let mut job = life.job.clone();
        let capability = &job.submission.capability;
        let tries = life.works().map(|(agent, took, ends)| {
            let plain = took.0.saturating_mul(u64::from(self.speed(agent, capability))) / u64::from(PLAIN_SPEED);
            Try { work: Millis(plain), ends }
        });
        let mut tries: Vec<Try> = tries.collect();
        let is_dead = life.end.is_some_and(|(_, end)| end == StatusKind::DeadLetter) && !tries.is_empty();
        let is_told = matches!(tries.last(), Some(Try { ends: Ends::Well | Ends::Broken(_), .. }));
        if !is_told && !is_dead {
            // Nobody has seen it end: it takes what such tasks take.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an average of milliseconds")]
            let work = Millis(self.usual.get(capability).copied().unwrap_or(0.0) as u64);
            tries.push(Try { work, ends: Ends::Well });
        }
        job.tries = tries;
        job
    }
}

/// What truly happened to those that ended.
fn recorded<'a>(lives: impl Iterator<Item = &'a Life>) -> Vec<Fate> {
    let fate = |(place, life): (usize, &Life)| {
        let (ended, end) = life.end?;
        let arrived = life.job.submission.not_before.map_or(life.job.at, |at| at.max(life.job.at));
        let last = life.attempts.values().rfind(|attempt| attempt.acked.is_some());
        let began = last.and_then(Attempt::began).unwrap_or(ended);
        let agent = last.map(|attempt| attempt.agent.clone());
        Some(Fate { job: place, agent, waited: began.since(arrived), took: ended.since(arrived), end })
    };
    lives.enumerate().filter_map(fate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// One event of a task, so many milliseconds after the hour.
    fn event(id: u8, (kind, ms): (&str, u64), more: &Value) -> Value {
        let mut event = json!({"kind": kind, "at": format!("2026-01-01T00:00:00.{ms:03}Z"), "namespace": "n",
            "reach_id": ReachId([id; 16]).to_string(), "capability": "a.b", "fairness_key": "team"});
        event.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        event
    }

    fn told(events: &[Value]) -> (Pace, Vec<Job>, Vec<Fate>) {
        let mut lives = BTreeMap::new();
        events.iter().for_each(|event| note(&mut lives, event));
        let pace = Pace::of(&lives);
        let jobs = lives.values().map(|life| pace.job(life)).collect();
        (pace, jobs, recorded(lives.values()))
    }

    /// Submitted at once, given at 1 ms, begun at 2 ms, done after so long.
    fn done_by(id: u8, agent: &str, took: u64) -> Vec<Value> {
        vec![
            event(id, ("task-submitted", 0), &json!({})),
            event(id, ("task-dispatched", 1), &json!({"attempt": 1, "agent_id": agent})),
            event(id, ("task-acknowledged", 2), &json!({"attempt": 1})),
            event(id, ("task-succeeded", 2 + took), &json!({"attempt": 1})),
        ]
    }

    const CRASH: Ends = Ends::Ill(FailureClass::AgentCrash);

    #[test]
    fn every_attempt_takes_what_it_took_and_ends_as_it_ended() {
        let (_, jobs, fates) = told(&[
            event(1, ("task-submitted", 0), &json!({})),
            event(1, ("task-dispatched", 5), &json!({"attempt": 1, "agent_id": "a"})),
            event(1, ("task-acknowledged", 10), &json!({"attempt": 1})),
            event(1, ("task-attempt-failed", 30), &json!({"attempt": 1, "failure": {"class": "agent-crash"}})),
            event(1, ("task-dispatched", 50), &json!({"attempt": 2, "agent_id": "b"})),
            event(1, ("task-acknowledged", 60), &json!({"attempt": 2})),
            event(1, ("task-succeeded", 160), &json!({"attempt": 2})),
        ]);
        assert_eq!(jobs[0].tries, [Try { work: Millis(20), ends: CRASH }, Try { work: Millis(100), ends: Ends::Well }]);
        let fate = &fates[0];
        assert_eq!((fate.waited, fate.took, fate.end), (Millis(60), Millis(160), StatusKind::Succeeded));
    }

    #[test]
    fn who_says_nothing_until_it_is_done_began_when_it_was_given_the_task() {
        let (_, jobs, fates) = told(&[
            event(1, ("task-submitted", 0), &json!({})),
            event(1, ("task-dispatched", 40), &json!({"attempt": 1, "agent_id": "a"})),
            event(1, ("task-acknowledged", 540), &json!({"attempt": 1})),
            event(1, ("task-succeeded", 540), &json!({"attempt": 1})),
        ]);
        assert_eq!(jobs[0].tries, [Try { work: Millis(500), ends: Ends::Well }]);
        assert_eq!((fates[0].waited, fates[0].took), (Millis(40), Millis(540)));
    }

    #[test]
    fn what_nobody_was_seen_to_finish_takes_what_such_tasks_take_and_what_never_succeeded_never_does() {
        let mut events = done_by(1, "a", 80);
        events.push(event(2, ("task-submitted", 0), &json!({})));
        events.push(event(3, ("task-submitted", 0), &json!({})));
        events.push(event(3, ("task-dead-lettered", 90), &json!({"failure": {"class": "network"}})));
        events.extend([
            event(4, ("task-submitted", 0), &json!({})),
            event(4, ("task-dispatched", 5), &json!({"attempt": 1, "agent_id": "a"})),
            event(4, ("task-acknowledged", 10), &json!({"attempt": 1})),
            event(4, ("task-attempt-failed", 30), &json!({"attempt": 1, "failure": {"class": "agent-crash"}})),
            event(4, ("task-dead-lettered", 30), &json!({"failure": {"class": "agent-crash"}})),
        ]);
        let (_, jobs, fates) = told(&events);
        let usual = [Try { work: Millis(80), ends: Ends::Well }];
        assert_eq!((&jobs[1].tries[..], &jobs[2].tries[..]), (&usual[..], &usual[..]), "running, never begun");
        assert_eq!(jobs[3].tries, [Try { work: Millis(20), ends: CRASH }]);
        assert_eq!(fates.len(), 3);
    }

    #[test]
    fn a_slow_agents_task_is_a_smaller_one_at_a_fast_agent() {
        let (pace, jobs, _) = told(&[done_by(1, "fast", 50), done_by(2, "slow", 150)].concat());
        let capability = &jobs[0].submission.capability;
        let speed = |agent: &str| pace.speed(&agent.parse().expect("an id"), capability);
        assert_eq!((speed("fast"), speed("slow")), (2_000, 667));
        let plain: Vec<u64> = jobs.iter().map(|job| job.tries[0].work.0).collect();
        assert_eq!(plain, [100, 100]);
    }

    #[test]
    fn a_task_that_was_to_wait_is_counted_from_when_it_might_go() {
        let mut events = done_by(1, "a", 500);
        events[0]["not_before"] = json!("2026-01-01T00:00:00.001Z");
        assert_eq!(told(&events).2[0].took, Millis(501));
    }
}
