//! Tells push agents that a task which they hold has ended without their word (semantics 6): `POST {endpoint}` with
//! `Reach-Event: cancel` and `{reach_id, attempt}`, once for each ghost slot.
//!
//! A notice is a courtesy: the slot is freed by the agent's own report or by time, so a lost one is not repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::dispatcher::headers;
use super::guard::Purpose;
use super::http::{HttpClient, Limits, Outgoing};
use crate::ledger::handle::{Ledger, Phase};
use crate::ledger::ids::{AgentKey, AttemptNo, ReachId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::Transport;
use crate::ledger::machine::task::spec::Text;

/// Agents looked at in one question.
const PAGE: usize = 1_000;
/// Agents that are told at once.
const AT_ONCE: usize = 64;
/// At most one look in this time.
const SPACING: Duration = Duration::from_millis(100);
const LIMITS: Limits = Limits { connect: Duration::from_secs(3), total: Duration::from_secs(10), max_body: 4 * 1024 };

type Ghost = (ReachId, AttemptNo);

/// One agent's ghosts.
#[derive(Debug, PartialEq, Eq)]
struct Haunted {
    agent: AgentKey,
    endpoint: Text,
    ghosts: Vec<Ghost>,
}

pub(super) struct Cancels {
    pub(super) ledger: Ledger,
    pub(super) http: HttpClient,
    pub(super) stop: CancellationToken,
    pub(super) grace: Duration,
}

impl Cancels {
    pub(super) async fn run(self) {
        let mut follow = self.ledger.follow();
        let mut told: BTreeMap<AgentKey, BTreeSet<Ghost>> = BTreeMap::new();
        let mut notices: JoinSet<()> = JoinSet::new();
        let mut seen = None;
        loop {
            let (phase, pushes) = {
                let published = follow.borrow_and_update();
                (published.phase, published.pushes)
            };
            let is_open = !matches!(phase, Phase::Starting | Phase::NoRoom | Phase::Stopped);
            if is_open && seen != Some(pushes) {
                if let Some(haunted) = self.look().await {
                    seen = Some(pushes);
                    for agent in fresh(haunted, &mut told) {
                        while notices.len() >= AT_ONCE {
                            notices.join_next().await;
                        }
                        notices.spawn(tell(self.http.clone(), agent));
                    }
                }
                tokio::select! {
                    () = self.stop.cancelled() => break,
                    () = tokio::time::sleep(SPACING) => {}
                }
                continue;
            }
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(_) = notices.join_next(), if !notices.is_empty() => {}
                changed = follow.changed() => if changed.is_err() { break },
            }
        }
        let all = async { while notices.join_next().await.is_some() {} };
        drop(tokio::time::timeout(self.grace, all).await);
    }

    /// Every push agent with ghosts; `None` when the ledger does not answer now.
    async fn look(&self) -> Option<Vec<Haunted>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (found, next) = self.ledger.ask(move |state| page(state, after)).await.ok()?;
            all.extend(found);
            if next.is_none() {
                return Some(all);
            }
            after = next;
        }
    }
}

fn page(state: &State, after: Option<AgentKey>) -> (Vec<Haunted>, Option<AgentKey>) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut found, mut seen, mut last) = (Vec::new(), 0, None);
    for (key, agent) in state.agents().range((from, Bound::Unbounded)).take(PAGE) {
        (seen, last) = (seen + 1, Some(key));
        match &agent.declaration.transport {
            Transport::Http { endpoint } if !agent.ghosts.is_empty() => found.push(Haunted {
                agent: key.clone(),
                endpoint: endpoint.clone(),
                ghosts: agent.ghosts.keys().copied().collect(),
            }),
            Transport::Http { .. } | Transport::Pull => {}
        }
    }
    (found, last.filter(|_| seen == PAGE).cloned())
}

/// Only what was not told before; what is no ghost any more is forgotten.
fn fresh(haunted: Vec<Haunted>, told: &mut BTreeMap<AgentKey, BTreeSet<Ghost>>) -> Vec<Haunted> {
    let before = std::mem::take(told);
    let none = BTreeSet::new();
    let mut fresh = Vec::new();
    for mut agent in haunted {
        told.insert(agent.agent.clone(), agent.ghosts.iter().copied().collect());
        let known = before.get(&agent.agent).unwrap_or(&none);
        agent.ghosts.retain(|ghost| !known.contains(ghost));
        if !agent.ghosts.is_empty() {
            fresh.push(agent);
        }
    }
    fresh
}

/// One after the other, so that an agent which does not answer takes one place.
async fn tell(http: HttpClient, haunted: Haunted) {
    for (task, attempt) in haunted.ghosts {
        let body = serde_json::json!({"reach_id": task.to_string(), "attempt": attempt.0}).to_string();
        let sent = http.post(Outgoing {
            purpose: Purpose::Agent,
            url: haunted.endpoint.to_string(),
            headers: headers(&[
                ("reach-event", "cancel".to_owned()),
                ("reach-id", task.to_string()),
                ("reach-attempt", attempt.0.to_string()),
            ]),
            body: Bytes::from(body),
            limits: LIMITS,
            until_sent: None,
        });
        if let Err(error) = sent.await {
            tracing::debug!(reach_id = %task, agent = %haunted.agent.agent_id, why = error.trouble.word(), "a cancel was not told");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::{AgentId, Namespace};

    fn haunted(name: &str, ghosts: &[u8]) -> Haunted {
        Haunted {
            agent: AgentKey {
                namespace: Namespace::new("dev").expect("an id"),
                agent_id: AgentId::new(name).expect("an id"),
            },
            endpoint: "http://127.0.0.1:9001/".into(),
            ghosts: ghosts.iter().map(|n| (ReachId([*n; 16]), AttemptNo(1))).collect(),
        }
    }

    #[test]
    fn semantics_6_a_ghost_is_told_once_and_a_new_one_of_the_same_agent_too() {
        let mut told = BTreeMap::new();
        assert_eq!(fresh(vec![haunted("a", &[1]), haunted("b", &[2])], &mut told).len(), 2);
        assert_eq!(fresh(vec![haunted("a", &[1, 3])], &mut told), vec![haunted("a", &[3])]);
        assert_eq!(fresh(vec![haunted("a", &[1, 3])], &mut told), vec![]);
        assert_eq!(fresh(vec![], &mut told), vec![]);
        assert!(told.is_empty(), "gone ghosts are forgotten");
    }
}
