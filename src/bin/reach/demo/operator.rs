//! The operator, after the incident: looks at the dead letters by a dry run, makes those anew whose downstream works
//! again, and follows the plan to its end. Over the public API, as `reach replay` does.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Client;
use crate::ctl::replay::Progress;
use crate::demo::plan::Fate;
use crate::demo::pulse::Pulse;
use crate::exit::{Code, Failure, Outcome};
use crate::output::field;

/// Items a second: so that the plan can be seen at work.
const RATE: u64 = 25;
/// A plan that has not ended by then is given up.
const PATIENCE: Duration = Duration::from_secs(20);
/// One look waits so long for a change.
const LONG_POLL_MS: u64 = 1_000;
/// Between two words on how far it is.
const SPARSE: Duration = Duration::from_millis(500);
/// More items than the demo's largest plan has.
const ITEMS: usize = 10_000;

/// What the operator brought back.
#[derive(Debug)]
pub(crate) struct Brought {
    /// What was found: all dead letters.
    found: Value,
    /// What the plan was going to do, said before.
    pub(crate) dry_run: Value,
    /// The plan at its end.
    pub(crate) plan: Value,
    /// The tasks that it made.
    pub(crate) successors: Vec<String>,
}

impl Brought {
    /// Dead letters that were there.
    pub(crate) fn dead_letters(&self) -> u64 {
        number(&self.found, "total")
    }

    /// Tasks made anew.
    pub(crate) fn redriven(&self) -> u64 {
        number(&self.plan, "redriven")
    }

    /// How far the plan was from what its dry run said.
    pub(crate) fn amiss(&self) -> u64 {
        let said = self.dry_run.pointer("/by_action/redrive").and_then(Value::as_u64).unwrap_or(0);
        let made = u64::try_from(self.successors.len()).unwrap_or(u64::MAX);
        said.abs_diff(self.redriven()) + made.abs_diff(said) + u64::from(field(&self.plan, "/state") != "completed")
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// Gives the word to what the hub holds for one, until it fails: an orphan that a newer task of its session has
/// overtaken is not replayed by itself, and would wait here until its life is over.
pub(crate) async fn decide(client: &Client, pulse: &Pulse) -> Failure {
    loop {
        if let Err(failure) = hand_over_held(client, pulse).await {
            return failure;
        }
        tokio::time::sleep(SPARSE).await;
    }
}

async fn hand_over_held(client: &Client, pulse: &Pulse) -> Outcome {
    let orphans = client.get(&["v1", "tasks"], &[("state", "orphaned".to_owned())]).await?;
    let items = orphans.get("items").and_then(Value::as_array).into_iter().flatten();
    for task in items.filter(|task| task.pointer("/waits/superseded_by").is_some()) {
        let id = field(task, "/reach_id");
        pulse.say(&format!("{id} is held, a newer task of its session has succeeded; the operator hands it over"));
        let word = json!({"resolution": "hand-over", "reason": "the demo's operator: both are wanted"});
        match client.post(&["v1", "tasks", &id, "resolve"], &word).await {
            // Its agent, or its deadline, was quicker.
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// A dry run over all dead letters, one over those that can succeed now, and a plan of these.
pub(crate) async fn bring_back(client: &Client, pulse: &Pulse) -> Outcome<Brought> {
    let ask = async |select: Value, is_dry: bool| {
        let reason = "the demo's operator: what they need is mended";
        let order = json!({"select": select, "rate_per_s": RATE, "reason": reason, "dry_run": is_dry});
        client.post(&["v1", "replays"], &order).await
    };
    let select = json!({"state": ["dead-letter"], "label": {"demo": Fate::Stranded.name()}});
    let found = ask(json!({"state": ["dead-letter"]}), true).await?;
    pulse.say(&format!("an operator finds {} dead letters", number(&found, "total")));
    let dry_run = ask(select.clone(), true).await?;
    let (items, takes) = (number(&dry_run, "total"), number(&dry_run, "estimate_s"));
    let others = number(&found, "total").saturating_sub(items);
    pulse.say(&format!(
        "what {items} of them need is mended now; the other {others} are made to fail, and are left alone"
    ));
    pulse.say(&format!("dry run: these {items} would be made anew at {RATE} a second, in {takes} s; nothing was done"));
    let plan = ask(select, false).await?;
    let replay_id = field(&plan, "/replay_id");
    pulse.say(&format!("the plan runs: {replay_id}"));
    let plan = to_its_end(client, pulse, &replay_id).await?;
    let listing =
        client.list(&["v1", "replays", &replay_id, "items"], &[("outcome", "redriven".to_owned())], ITEMS).await?;
    let successors = listing.items.iter().map(|item| field(item, "/redriven_as")).collect();
    Ok(Brought { found, dry_run, plan, successors })
}

async fn to_its_end(client: &Client, pulse: &Pulse, replay_id: &str) -> Outcome<Value> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let plan = client.get(&["v1", "replays", replay_id], &[("wait_ms", LONG_POLL_MS.to_string())]).await?;
        let state = field(&plan, "/state");
        pulse.say(&format!("the plan is {state}: {}", Progress::of(&plan).words()));
        if state == "completed" || state == "cancelled" {
            return Ok(plan);
        }
        if Instant::now() > give_up {
            return Err(Failure::Other(
                Code::Timeout,
                format!("the plan {replay_id} has not ended after {PATIENCE:?}"),
            ));
        }
        tokio::time::sleep(SPARSE).await;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An operator who found nothing to do.
    pub(crate) fn idle() -> Brought {
        let nothing = json!({"total": 0, "by_action": {"redrive": 0}});
        let plan = json!({"state": "completed", "redriven": 0});
        Brought { found: nothing.clone(), dry_run: nothing, plan, successors: Vec::new() }
    }

    #[test]
    fn a_plan_that_did_less_than_its_dry_run_said_is_amiss() {
        let brought = |redriven: u64, made: usize, state: &str| Brought {
            found: json!({"total": 9}),
            dry_run: json!({"total": 3, "by_action": {"redrive": 3}}),
            plan: json!({"state": state, "redriven": redriven}),
            successors: vec!["reach_x".to_owned(); made],
        };
        assert_eq!((brought(3, 3, "completed").amiss(), brought(3, 3, "completed").dead_letters()), (0, 9));
        assert_eq!(brought(2, 3, "completed").amiss(), 1);
        assert_eq!(brought(3, 2, "completed").amiss(), 1);
        assert_eq!(brought(3, 3, "cancelled").amiss(), 1);
    }
}
