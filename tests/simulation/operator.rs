//! Operators and second thoughts: drains, rules, approvals, tokens, callbacks sent again, tasks called off.

use std::sync::Arc;

use agent_reach::ledger::ids::{CallbackId, Capability, Digest, Namespace, ReachId, TokenId};
use agent_reach::ledger::machine::access::{Reach, Scope, Token};
use agent_reach::ledger::machine::agent::DrainMode;
use agent_reach::ledger::machine::breaker::BreakerWord;
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::event::Actor;
use agent_reach::ledger::machine::policy::Policy;
use agent_reach::ledger::machine::routing::RoutingChange;
use agent_reach::ledger::machine::task::spec::SchemaVerdicts;
use agent_reach::ledger::time::Millis;

use crate::agents::Why;
use crate::hub::by_token;
use crate::incident::Measure;
use crate::model::Party;
use crate::workload::{schema, token};
use crate::world::World;

/// What somebody is sent to do.
#[derive(Debug, Clone)]
pub(crate) enum Errand {
    Policy(Namespace, Policy),
    Tokens,
    Drain(usize, DrainMode, Millis),
    Deregister(usize),
    /// A word on a breaker of an agent's first capability.
    Breaker(usize, BreakerWord),
    /// How the tasks of a capability are given out.
    Routing(Namespace, Capability, RoutingChange),
    /// A rack loses power: most agents are gone at once.
    Storm,
    SchemaChecked,
    EraseCallback,
    RedriveCallback,
    /// About replays.
    Measure(Namespace, Measure),
    /// Something said before, once more.
    Say(Box<Proposal>),
    Look(ReachId),
    Cancel(usize, ReachId),
    Approve(usize, ReachId),
    Refuse(usize, ReachId),
}

impl World {
    pub(crate) fn errand(&mut self, errand: Errand) {
        let proposals = match errand {
            Errand::Look(task) => {
                self.look(task);
                return;
            }
            Errand::Storm => {
                self.storm();
                return;
            }
            Errand::Measure(namespace, measure) => {
                self.measure(&namespace, &measure);
                return;
            }
            Errand::Say(proposal) => vec![*proposal],
            Errand::Policy(namespace, policy) => {
                vec![by_token(&namespace, &operator(), Command::SetPolicy { policy, reason: "load".into() })]
            }
            Errand::Tokens => tokens(),
            Errand::Drain(index, mode, grace) => self.about_agent(index, |agent| Command::DrainAgent {
                agent,
                mode,
                grace,
                reason: Some("deploy".into()),
            }),
            Errand::Deregister(index) => self.about_agent(index, |agent| Command::DeregisterAgent { agent }),
            Errand::Breaker(index, word) => self.about_breaker(index, word),
            Errand::Routing(namespace, capability, change) => {
                let command = Command::SetRouting { capability, change, reason: "a launch".into() };
                vec![by_token(&namespace, &operator(), command)]
            }
            Errand::SchemaChecked => self.about_schemas(),
            Errand::EraseCallback => self.about_callback(|callback| Command::CallbackErased { callback }),
            Errand::RedriveCallback => self.about_callback(|callback| Command::RedriveCallback { callback, row: None }),
            Errand::Cancel(order, task) => {
                self.about_task(order, Command::CancelTask { task, reason: None, fact: None })
            }
            Errand::Approve(order, task) => self.about_task(order, Command::ApproveTask { task }),
            Errand::Refuse(order, task) => self.about_task(order, Command::RefuseTask { task, reason: None }),
        };
        if !proposals.is_empty() {
            self.call(Party::Operator, proposals, None, Why::Errand);
        }
    }

    fn about_agent(
        &self,
        index: usize,
        command: impl Fn(agent_reach::ledger::ids::AgentId) -> Command,
    ) -> Vec<Proposal> {
        let agent = self.agents.get(index);
        agent.map(|a| by_token(&a.key.namespace, &operator(), command(a.key.agent_id.clone()))).into_iter().collect()
    }

    fn about_breaker(&self, index: usize, word: BreakerWord) -> Vec<Proposal> {
        let Some(agent) = self.agents.get(index) else { return Vec::new() };
        let Some(offer) = agent.declaration.offers.first() else { return Vec::new() };
        let capability = offer.capability.clone();
        let command =
            Command::SetBreaker { agent: agent.key.agent_id.clone(), capability, word, reason: "seen".into() };
        vec![by_token(&agent.key.namespace, &operator(), command)]
    }

    fn about_task(&self, order: usize, command: Command) -> Vec<Proposal> {
        let order = self.orders.get(order);
        order.map(|order| by_token(&order.namespace, &token(order.caller), command)).into_iter().collect()
    }

    fn about_schemas(&mut self) -> Vec<Proposal> {
        let tasks: Vec<(Namespace, ReachId)> =
            self.orders.iter().filter_map(|order| Some((order.namespace.clone(), order.task?))).collect();
        let mut proposals = Vec::new();
        for (namespace, task) in tasks {
            if self.chance.hits(200) {
                let verdicts = SchemaVerdicts { accepted: vec![schema()], refused: Vec::new() };
                proposals.push(Proposal::by_hub(Some(namespace), Command::SchemaChecked { task, verdicts }));
            }
        }
        proposals
    }

    /// About a callback that some receiver has seen, in the namespace where it belongs or in the other one.
    fn about_callback(&mut self, command: impl Fn(CallbackId) -> Command) -> Vec<Proposal> {
        if self.notes.messages.is_empty() {
            return Vec::new();
        }
        let id = self.chance.pick(&self.notes.messages).id;
        let namespaces = [self.plan.namespace(0), self.plan.namespace(1)];
        namespaces.iter().map(|namespace| by_token(namespace, &operator(), command(id))).collect()
    }
}

/// The operator's token.
pub(crate) fn operator() -> TokenId {
    TokenId::new("operator").expect("an id")
}

fn tokens() -> Vec<Proposal> {
    let id = TokenId::new("short-lived").expect("an id");
    let token = Token {
        id: id.clone(),
        name: "short-lived".into(),
        secret: Digest::of(&[b"secret"]),
        previous: None,
        scopes: vec![Scope::Read],
        reach: Reach::All,
        agents: Vec::new(),
        capabilities: Vec::new(),
        expires_at: None,
        created_at: agent_reach::ledger::time::SimClock::START,
    };
    let secret = Digest::of(&[b"another secret"]);
    let commands = [
        Command::CreateToken { token: Box::new(token) },
        Command::RotateToken { token: id.clone(), secret, overlap: Millis(1_000) },
        Command::RevokeToken { token: id },
    ];
    let by = Actor::Token(operator());
    let proposal = |command: Command| Proposal { namespace: None, actor: by.clone(), trace: None, command };
    commands.into_iter().map(proposal).collect()
}

/// An instance name.
pub(crate) fn instance(n: u32) -> Arc<str> {
    format!("process-{n}").into()
}
