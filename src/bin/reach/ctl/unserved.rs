//! Queued tasks that nobody can take now, as `status` tells them.

use serde_json::Value;

use crate::moments;
use crate::output::field;

/// Capabilities that are named; the rest is a count.
const NAMED: usize = 5;

/// Those of one capability.
struct Capability {
    name: String,
    tasks: u64,
    /// The one that waits longest.
    oldest: String,
    since: String,
    /// What is against the agents that offer it.
    against: String,
}

/// All of them, the one that waits longest first.
pub(super) struct Unserved {
    /// How many.
    pub(super) tasks: u64,
    capabilities: Vec<Capability>,
    /// Capabilities that are not named.
    others: usize,
    is_cut: bool,
}

impl Unserved {
    /// What the hub says of them.
    pub(super) fn of(standing: &Value) -> Self {
        let all = standing.pointer("/unserved/capabilities").and_then(Value::as_array);
        let all = all.map(Vec::as_slice).unwrap_or_default();
        Self {
            tasks: standing.pointer("/unserved/tasks").and_then(Value::as_u64).unwrap_or(0),
            capabilities: all.iter().take(NAMED).map(Capability::of).collect(),
            others: all.len().saturating_sub(NAMED),
            is_cut: standing.pointer("/unserved/more").and_then(Value::as_bool) == Some(true),
        }
    }

    /// What needs a look: each with the command that names every agent and what is against it.
    pub(super) fn look_at(&self, now: jiff::Timestamp) -> Vec<(String, String)> {
        let mut look_at: Vec<(String, String)> = self.capabilities.iter().map(|one| one.told(now)).collect();
        if self.others > 0 || self.is_cut {
            let what = format!("there are more that no agent can take: {} in all at least", tasks(self.tasks));
            look_at.push((what, "reach status --output json".to_owned()));
        }
        look_at
    }
}

impl Capability {
    fn of(one: &Value) -> Self {
        let counts = one.get("agents").and_then(Value::as_object).into_iter().flatten();
        let counts: Vec<String> = counts.map(|(reason, count)| format!("{count} {reason}")).collect();
        Self {
            name: field(one, "/capability"),
            tasks: one.get("tasks").and_then(Value::as_u64).unwrap_or(0),
            oldest: field(one, "/reach_id"),
            since: field(one, "/queued_since"),
            against: if counts.is_empty() { "nobody offers it".to_owned() } else { counts.join(", ") },
        }
    }

    fn told(&self, now: jiff::Timestamp) -> (String, String) {
        let Self { name, against, .. } = self;
        let age = moments::age(&self.since, now);
        let what = match self.tasks {
            1 => format!("1 task of {name} that no agent can take, queued for {age}: {against}"),
            _ => format!(
                "{} of {name} that no agent can take, the oldest queued for {age}: {against}",
                tasks(self.tasks)
            ),
        };
        (what, format!("reach explain {}", self.oldest))
    }
}

fn tasks(count: u64) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{count} tasks") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_can_take_is_told_by_capability_with_its_age_and_the_command_that_says_why() {
        let one = |name: &str, tasks: u64, agents: Value| {
            json!({"capability": name, "tasks": tasks, "reach_id": "reach_x", "queued_since": "2026-01-01T00:00:00Z",
                "agents": agents})
        };
        let mut standing = json!({"unserved": {"tasks": 4, "more": false, "capabilities": [
            one("a.b", 3, json!({"breaker-open": 1, "lost": 2})), one("c.d", 1, json!({})),
        ]}});
        let now = "2026-01-01T00:10:00Z".parse().expect("a moment");
        let told = |standing: &Value| -> Vec<String> {
            let look_at = Unserved::of(standing).look_at(now);
            look_at.into_iter().map(|(what, with)| format!("{what}: {with}")).collect()
        };
        assert_eq!(
            told(&standing),
            [
                "3 tasks of a.b that no agent can take, the oldest queued for 10 m 00 s: 1 breaker-open, 2 lost: reach explain reach_x",
                "1 task of c.d that no agent can take, queued for 10 m 00 s: nobody offers it: reach explain reach_x",
            ]
        );
        standing["unserved"]["more"] = json!(true);
        assert!(told(&standing)[2].starts_with("there are more that no agent can take: 4 tasks"));
        assert_eq!(told(&json!({})), [""; 0]);
    }
}
