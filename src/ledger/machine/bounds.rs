//! How many of each thing the state holds at most (B1). docs/bounds.md is its face.
//!
//! Why here and not in policies: a policy is an operator's rule for a namespace; these keep the hub itself whole,
//! whoever calls and whatever was set. What leaves by itself is refused as a full queue, to be tried again; what stays
//! until somebody removes it is refused with what to remove.

use std::collections::BTreeSet;

use crate::ledger::ids::Namespace;
use crate::ledger::machine::State;
use crate::ledger::machine::access::Reach;
use crate::ledger::machine::decision::Rejection;
use crate::ledger::machine::replay::MAX_REPLAYS;
use crate::ledger::time::Millis;

/// Agents of one namespace that take part: active, draining and lost ones.
pub const MAX_AGENTS: u32 = 10_000;
/// Agent ids that one namespace knows, gone ones included: they are kept for audit (R-REG-6).
pub const MAX_AGENT_IDS: u32 = 100_000;
/// Namespaces with agents, tasks, batches or a policy of their own.
pub const MAX_NAMESPACES: u32 = 10_000;
/// Tokens that hold in one namespace, and as many that hold everywhere; revoked ones do not count.
pub const MAX_TOKENS: u32 = 10_000;
/// Batches of one namespace that have not settled or whose callback is outstanding.
pub const MAX_BATCHES: u32 = 100_000;
/// Outstanding callbacks of the whole hub beyond which no settled one is sent again.
pub const MAX_CALLBACKS: usize = 1_000_000;
/// Capabilities with rules of their own, in the whole hub.
pub const MAX_CAPABILITY_RULES: u32 = 10_000;
/// Capabilities with routing rules, in the whole hub; as many versions back as can be undone are kept with each.
pub const MAX_ROUTING_RULES: u32 = 1_000;
/// Breakers of one agent that operators hold open or closed: as many as it may have capabilities.
pub const MAX_HELD_BREAKERS: u32 = 256;
/// While so many callbacks of a task are outstanding, its progress makes no new one due: its end always does.
pub const MAX_OPEN_FOR_PROGRESS: u32 = 16;

/// Who met a bound that passes tries again after this.
const RETRY: Millis = Millis::secs(1);

/// A bound on what stays until somebody removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// [`MAX_AGENTS`]
    Agents,
    /// [`MAX_AGENT_IDS`]
    AgentIds,
    /// [`MAX_NAMESPACES`]
    Namespaces,
    /// [`MAX_TOKENS`]
    Tokens,
    /// [`MAX_REPLAYS`]
    Replays,
    /// [`MAX_CAPABILITY_RULES`]
    CapabilityRules,
    /// [`MAX_ROUTING_RULES`]
    RoutingRules,
    /// [`MAX_HELD_BREAKERS`]
    HeldBreakers,
}

impl Bound {
    /// How many.
    #[must_use]
    pub const fn limit(self) -> u32 {
        match self {
            Self::Agents => MAX_AGENTS,
            Self::AgentIds => MAX_AGENT_IDS,
            Self::Namespaces => MAX_NAMESPACES,
            Self::Tokens => MAX_TOKENS,
            Self::Replays => MAX_REPLAYS,
            Self::CapabilityRules => MAX_CAPABILITY_RULES,
            Self::RoutingRules => MAX_ROUTING_RULES,
            Self::HeldBreakers => MAX_HELD_BREAKERS,
        }
    }
}

/// What one namespace has, counted so that a bound costs one look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::ledger::machine) struct Census {
    /// Agents that take part.
    pub(in crate::ledger::machine) agents: u32,
    /// Agents that are known, gone ones too.
    pub(in crate::ledger::machine) agent_ids: u32,
    /// Batches in memory.
    pub(in crate::ledger::machine) batches: u32,
    /// Replay plans that have not ended.
    pub(in crate::ledger::machine) replays: u32,
}

impl State {
    pub(in crate::ledger::machine) fn census_of(&self, namespace: &Namespace) -> Census {
        self.census.get(namespace).copied().unwrap_or_default()
    }

    /// Counts something more, or less, in a namespace.
    pub(in crate::ledger::machine) fn count_in(&mut self, namespace: &Namespace, change: impl FnOnce(&mut Census)) {
        let census = self.census.entry(namespace.clone()).or_default();
        change(census);
        if *census == Census::default() {
            self.census.remove(namespace);
        }
    }
}

impl State {
    /// Was anything ever in that namespace: an agent, a task, a batch, a plan, or a policy of its own?
    #[must_use]
    pub fn knows(&self, namespace: &Namespace) -> bool {
        self.census.contains_key(namespace)
            || self.counts.contains_key(namespace)
            || self.endings.contains_key(namespace)
            || self.policies.by_namespace.contains_key(namespace)
    }

    /// Every such namespace, of the first [`MAX_NAMESPACES`].
    #[must_use]
    pub fn namespaces(&self) -> Vec<Namespace> {
        let busy = self.census.keys().chain(self.counts.keys()).chain(self.endings.keys());
        let all: BTreeSet<&Namespace> = busy.chain(self.policies.by_namespace.keys()).collect();
        all.into_iter().take(usize::try_from(MAX_NAMESPACES).unwrap_or(usize::MAX)).cloned().collect()
    }
}

/// May a namespace have something, if it has nothing yet?
pub(in crate::ledger::machine) fn namespace(state: &State, namespace: &Namespace) -> Result<(), Rejection> {
    let policies = &state.policies.by_namespace;
    let is_known = state.census.contains_key(namespace)
        || state.counts.contains_key(namespace)
        || policies.contains_key(namespace);
    let most = state.census.len().max(state.counts.len()).max(policies.len());
    if is_known || most < usize::try_from(MAX_NAMESPACES).unwrap_or(usize::MAX) {
        return Ok(());
    }
    Err(Rejection::BoundReached { bound: Bound::Namespaces })
}

/// May one agent more take part, and is its id known already?
pub(in crate::ledger::machine) fn agent(state: &State, of: &Namespace, known: Known) -> Result<(), Rejection> {
    namespace(state, of)?;
    let census = state.census_of(of);
    let refuse = |bound| Err(Rejection::BoundReached { bound });
    match known {
        _ if census.agents >= MAX_AGENTS => refuse(Bound::Agents),
        Known::No if census.agent_ids >= MAX_AGENT_IDS => refuse(Bound::AgentIds),
        Known::Yes | Known::No => Ok(()),
    }
}

/// Is an agent's id known?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ledger::machine) enum Known {
    /// It is.
    Yes,
    /// It is new.
    No,
}

/// May one token more hold there?
pub(in crate::ledger::machine) fn token(state: &State, reach: &Reach) -> Result<(), Rejection> {
    let limit = usize::try_from(MAX_TOKENS).unwrap_or(usize::MAX);
    let tokens = &state.access.tokens;
    if tokens.len() >= limit && tokens.values().filter(|token| token.reach == *reach).count() >= limit {
        return Err(Rejection::BoundReached { bound: Bound::Tokens });
    }
    Ok(())
}

/// May one batch more be open?
pub(in crate::ledger::machine) fn batch(state: &State, of: &Namespace) -> Result<(), Rejection> {
    namespace(state, of)?;
    if state.census_of(of).batches >= MAX_BATCHES {
        return Err(Rejection::QueueFull { bound: "batches", limit: MAX_BATCHES, retry_after: RETRY });
    }
    Ok(())
}

/// May one capability more have rules of its own?
pub(in crate::ledger::machine) fn capability_rules(state: &State) -> Result<(), Rejection> {
    if state.capability_rules.len() >= usize::try_from(MAX_CAPABILITY_RULES).unwrap_or(usize::MAX) {
        return Err(Rejection::BoundReached { bound: Bound::CapabilityRules });
    }
    Ok(())
}

/// May one capability more have routing rules? Those that were taken back count for nothing.
pub(in crate::ledger::machine) fn routing_rules(state: &State) -> Result<(), Rejection> {
    let holding = state.routing_rules.values().flat_map(|of| of.values()).filter(|entry| entry.rules.is_some()).count();
    if holding >= usize::try_from(MAX_ROUTING_RULES).unwrap_or(usize::MAX) {
        return Err(Rejection::BoundReached { bound: Bound::RoutingRules });
    }
    Ok(())
}

/// May one breaker more of an agent be held by an operator, beside so many?
pub(in crate::ledger::machine) fn held_breaker(held: usize) -> Result<(), Rejection> {
    if held >= usize::try_from(MAX_HELD_BREAKERS).unwrap_or(usize::MAX) {
        return Err(Rejection::BoundReached { bound: Bound::HeldBreakers });
    }
    Ok(())
}

/// May one replay plan more be open?
pub(in crate::ledger::machine) fn replay(state: &State, of: &Namespace) -> Result<(), Rejection> {
    if state.census_of(of).replays >= MAX_REPLAYS {
        return Err(Rejection::BoundReached { bound: Bound::Replays });
    }
    Ok(())
}

/// May a settled callback be sent again?
pub(in crate::ledger::machine) fn redrive(state: &State) -> Result<(), Rejection> {
    if state.callbacks.len() >= MAX_CALLBACKS {
        let limit = u32::try_from(MAX_CALLBACKS).unwrap_or(u32::MAX);
        return Err(Rejection::QueueFull { bound: "callbacks", limit, retry_after: RETRY });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::machine::agent::Standing;
    use crate::ledger::machine::command::Command;
    use crate::ledger::machine::world::{World, agent_id, batch_id, declaration, namespace, submission};

    fn register(name: &str) -> Command {
        Command::RegisterAgent { agent: agent_id(name), instance: None, declaration: Box::new(declaration()) }
    }

    fn many(world: &mut World, change: impl FnOnce(&mut Census)) {
        world.state.count_in(&namespace(), change);
    }

    #[test]
    fn b1_one_agent_more_than_may_take_part_is_refused_and_one_that_leaves_makes_room() {
        let mut world = World::new();
        world.register("a", Some("i"));
        many(&mut world, |census| census.agents += MAX_AGENTS - 2);
        world.register("b", Some("i"));
        let full = Rejection::BoundReached { bound: Bound::Agents };
        assert_eq!(world.refused(register("c")), full);
        world.register("a", Some("i")); // One that takes part is only replaced.
        world.ok(Command::DeregisterAgent { agent: agent_id("a") });
        world.register("c", Some("i"));
        assert_eq!(world.refused(register("a")), full, "one that comes back takes part again");
        assert_eq!(world.agent("a").standing, Standing::Deregistered);
    }

    #[test]
    fn b1_one_agent_id_more_than_are_kept_is_refused_and_a_known_one_is_not() {
        let mut world = World::new();
        world.register("a", Some("i"));
        world.ok(Command::DeregisterAgent { agent: agent_id("a") });
        many(&mut world, |census| census.agent_ids += MAX_AGENT_IDS - 1);
        assert_eq!(world.refused(register("b")), Rejection::BoundReached { bound: Bound::AgentIds });
        world.register("a", Some("j"));
    }

    #[test]
    fn b1_one_namespace_more_is_refused_whatever_it_begins_with() {
        let mut world = World::new();
        for n in 0..MAX_NAMESPACES {
            world.state.count_in(&format!("n-{n}").parse().unwrap(), |census| census.batches += 1);
        }
        let full = Rejection::BoundReached { bound: Bound::Namespaces };
        let submit = Command::SubmitTask { submission: std::sync::Arc::new(submission(1)), bound: None, routed: None };
        let policy = crate::ledger::machine::policy::Policy::default();
        let set = Command::SetPolicy { policy, reason: "a test".into() };
        let open = Command::OpenBatch { batch: batch_id(1), callback: None, idempotency: None, bound: None };
        for command in [register("a"), submit, set, open] {
            assert_eq!(world.refused(command), full);
        }
        world.state.count_in(&"n-1".parse().unwrap(), |census| census.batches = 0);
        world.register("a", Some("i"));
    }

    #[test]
    fn b1_a_batch_and_a_redriven_callback_wait_for_room() {
        let mut world = World::new();
        many(&mut world, |census| census.batches += MAX_BATCHES);
        let open = Command::OpenBatch { batch: batch_id(1), callback: None, idempotency: None, bound: None };
        let full = Rejection::QueueFull { bound: "batches", limit: MAX_BATCHES, retry_after: RETRY };
        assert_eq!(world.refused(open), full);
    }

    #[test]
    fn docs_bounds_md_states_every_number_of_this_file() {
        let documented = include_str!("../../../docs/bounds.md");
        let numbers = [
            MAX_AGENTS,
            MAX_AGENT_IDS,
            MAX_NAMESPACES,
            MAX_TOKENS,
            MAX_BATCHES,
            MAX_OPEN_FOR_PROGRESS,
            u32::try_from(MAX_CALLBACKS).unwrap(),
        ];
        for number in numbers {
            let digits = number.to_string();
            let mut grouped = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            assert!(documented.contains(&grouped), "{grouped} is not in docs/bounds.md");
        }
    }
}
