//! Who offers what and has room now.
//!
//! Why an index: a new task must look only at the agents that can serve its lane, and a busy fleet of a thousand must
//! cost it nothing. A [`Pool`] lists the providers of one capability; its ready set holds those with room.
//!
//! Seats are numbered once and stay: as many as agents were ever registered, which the state keeps as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ledger::ids::{AgentId, AgentKey, Capability, Namespace};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, Offer, Strategy};
use crate::ledger::time::Timestamp;
use crate::scheduler::queue::Floor;
use crate::scheduler::routing::Provider;
use crate::scheduler::routing::candidate::{Reason, Seat};
use crate::scheduler::routing::strategy::of_votes;
use crate::scheduler::vitals::Pulse;

/// A seat, numbered within one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatNo(usize);

/// A pool, numbered within one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolNo(u64);

/// One agent's place in the planner.
#[derive(Debug)]
pub struct Desk {
    /// The figures that decisions need.
    pub seat: Seat,
    /// What keeps lower classes alive at this agent.
    pub floor: Floor,
    /// When it left, if it did so in this run of the hub.
    pub left_at: Option<Timestamp>,
    /// Its pools, each with the place of the offer in its declaration.
    pools: Vec<(PoolNo, usize)>,
}

impl Desk {
    /// Its pools, each with the place of the offer in its declaration.
    #[must_use]
    pub fn pools(&self) -> &[(PoolNo, usize)] {
        &self.pools
    }
}

#[derive(Debug, Clone)]
struct Member {
    agent: AgentId,
    seat: SeatNo,
    offer: usize,
    position: i64,
}

/// The providers of one capability in one namespace, by agent id.
#[derive(Debug)]
pub struct Pool {
    name: (Namespace, Capability),
    members: Vec<Member>,
    ready: BTreeSet<SeatNo>,
    /// Offers by the strategy that they ask for, as [`Strategy::ALL`] lists them.
    votes: [usize; Strategy::ALL.len()],
    choosy: usize,
}

impl Pool {
    /// The strategy that most of its offers ask for.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        of_votes(self.votes)
    }

    /// An offer that joins or leaves changes what is asked for.
    fn vote(&mut self, offer: Option<&Offer>, change: fn(usize, usize) -> usize) {
        let wanted = offer.and_then(|offer| offer.strategy);
        for (strategy, votes) in Strategy::ALL.into_iter().zip(&mut self.votes) {
            if wanted == Some(strategy) {
                *votes = change(*votes, 1);
            }
        }
    }

    /// Does any provider serve some callers only?
    #[must_use]
    pub const fn is_choosy(&self) -> bool {
        self.choosy > 0
    }

    /// Providers with room.
    pub fn ready(&self) -> impl Iterator<Item = SeatNo> + '_ {
        self.ready.iter().copied()
    }

    /// Where everyone stands in the round.
    pub fn positions(&self) -> impl Iterator<Item = (&AgentId, i64)> + '_ {
        self.members.iter().map(|member| (&member.agent, member.position))
    }
}

/// All seats and pools.
#[derive(Debug, Default)]
pub struct Roster {
    numbers: BTreeMap<AgentKey, SeatNo>,
    desks: Vec<Desk>,
    pools: BTreeMap<PoolNo, Pool>,
    names: BTreeMap<(Namespace, Capability), PoolNo>,
    next_pool: u64,
}

impl Roster {
    /// The seat of an agent.
    #[must_use]
    pub fn number(&self, agent: &AgentKey) -> Option<SeatNo> {
        self.numbers.get(agent).copied()
    }

    /// One desk.
    #[must_use]
    pub fn desk(&self, seat: SeatNo) -> Option<&Desk> {
        self.desks.get(seat.0)
    }

    /// One pool.
    #[must_use]
    pub fn pool(&self, pool: PoolNo) -> Option<&Pool> {
        self.pools.get(&pool)
    }

    /// The pool of a capability, if anyone offers it or waits for it.
    #[must_use]
    pub fn pool_named(&self, namespace: &Namespace, capability: &Capability) -> Option<&Pool> {
        self.pools.get(&self.pool_number(namespace, capability)?)
    }

    /// Its number.
    #[must_use]
    pub fn pool_number(&self, namespace: &Namespace, capability: &Capability) -> Option<PoolNo> {
        self.names.get(&(namespace.clone(), capability.clone())).copied()
    }

    /// The pool of a capability, made if need be. [`Roster::forget_pool`] takes an idle one out.
    pub fn open_pool(&mut self, namespace: &Namespace, capability: &Capability) -> PoolNo {
        let name = (namespace.clone(), capability.clone());
        if let Some(no) = self.names.get(&name) {
            return *no;
        }
        self.next_pool += 1;
        let no = PoolNo(self.next_pool);
        self.names.insert(name.clone(), no);
        let votes = [0; Strategy::ALL.len()];
        let pool = Pool { name, members: Vec::new(), ready: BTreeSet::new(), votes, choosy: 0 };
        self.pools.insert(no, pool);
        no
    }

    /// Forgets a pool that nobody offers any more; the caller knows that nobody waits in it either.
    pub fn forget_pool(&mut self, pool: PoolNo) {
        if self.pools.get(&pool).is_some_and(|pool| pool.members.is_empty())
            && let Some(gone) = self.pools.remove(&pool)
        {
            self.names.remove(&gone.name);
        }
    }

    /// The providers of a pool, by agent id.
    #[must_use]
    pub fn providers(&self, pool: PoolNo) -> Vec<Provider<'_>> {
        let members = self.pools.get(&pool).map_or(&[][..], |pool| &pool.members);
        members.iter().filter_map(|member| self.provider(member)).collect()
    }

    fn provider(&self, member: &Member) -> Option<Provider<'_>> {
        let seat = &self.desk(member.seat)?.seat;
        let offer = seat.declaration.offers.get(member.offer)?;
        Some(Provider { seat, offer, position: member.position })
    }

    /// One provider of a pool.
    #[must_use]
    pub fn provider_at(&self, pool: PoolNo, seat: SeatNo) -> Option<Provider<'_>> {
        let desk = self.desk(seat)?;
        let (_, offer) = desk.pools.iter().find(|(other, _)| *other == pool)?;
        Some(Provider { seat: &desk.seat, offer: desk.seat.declaration.offers.get(*offer)?, position: 0 })
    }

    /// Moves the round of a pool on; places are those of [`Roster::providers`].
    pub fn set_positions(&mut self, pool: PoolNo, positions: Vec<(usize, i64)>) {
        let Some(pool) = self.pools.get_mut(&pool) else { return };
        for (place, position) in positions {
            if let Some(member) = pool.members.get_mut(place) {
                member.position = position;
            }
        }
    }

    /// Begins the round of a capability anew: positions that other weights made would hold some back, or up, for long.
    pub fn begin_round(&mut self, namespace: &Namespace, capability: &Capability) {
        let no = self.names.get(&(namespace.clone(), capability.clone()));
        if let Some(pool) = no.and_then(|no| self.pools.get_mut(no)) {
            pool.members.iter_mut().for_each(|member| member.position = 0);
        }
    }

    /// The seat at a place of [`Roster::providers`].
    #[must_use]
    pub fn seat_at(&self, pool: PoolNo, place: usize) -> Option<SeatNo> {
        Some(self.pools.get(&pool)?.members.get(place)?.seat)
    }

    /// Brings a seat up to date with the state and the vitals. Gives the pools that it joined or left, when what it
    /// declares or whether it takes part has changed.
    pub fn refresh(&mut self, agent: &Agent, pulse: Option<&Pulse>, state: &State) -> (SeatNo, Vec<PoolNo>) {
        let fresh = Seat::of(agent, pulse, state);
        let Some(no) = self.number(&agent.key) else {
            let no = SeatNo(self.desks.len());
            self.numbers.insert(agent.key.clone(), no);
            self.desks.push(Desk { seat: fresh, floor: Floor::starting(no.0), left_at: None, pools: Vec::new() });
            return (no, self.enlist(no));
        };
        let mut moved = false;
        if let Some(desk) = self.desks.get_mut(no.0) {
            let is_out = |seat: &Seat| seat.closed == Some(Reason::NotRegistered);
            moved = !Arc::ptr_eq(&desk.seat.declaration, &fresh.declaration) || is_out(&desk.seat) != is_out(&fresh);
        }
        let mut changed = Vec::new();
        if moved {
            changed = self.delist(no);
        }
        if let Some(desk) = self.desks.get_mut(no.0) {
            // What an older process held is no longer with its successor.
            let is_same = desk.seat.incarnation == fresh.incarnation;
            let (reserved, sessions) = (desk.seat.reserved, desk.seat.sessions);
            let probing = std::mem::take(&mut desk.seat.probing);
            let (suspects, overdue) = match is_same {
                true => (desk.seat.suspects, std::mem::take(&mut desk.seat.overdue)),
                false => (0, BTreeMap::new()),
            };
            desk.seat = Seat { reserved, sessions, probing, suspects, overdue, ..fresh };
        }
        if moved {
            changed.extend(self.enlist(no));
        }
        self.settle(no);
        (no, changed)
    }

    /// Changes the figures of a seat.
    pub fn adjust(&mut self, seat: SeatNo, change: impl FnOnce(&mut Desk)) {
        if let Some(desk) = self.desks.get_mut(seat.0) {
            change(desk);
            self.settle(seat);
        }
    }

    /// Notes when an agent left; `None` once it is back.
    pub fn note_departure(&mut self, agent: &AgentKey, at: Option<Timestamp>) {
        if let Some(desk) = self.number(agent).and_then(|no| self.desks.get_mut(no.0)) {
            desk.left_at = at;
        }
    }

    /// Puts the seat into, or out of, the ready sets of its pools.
    fn settle(&mut self, no: SeatNo) {
        let Some(desk) = self.desks.get(no.0) else { return };
        let has_room = desk.seat.room() > 0;
        for (pool, _) in &desk.pools {
            let Some(pool) = self.pools.get_mut(pool) else { continue };
            if has_room == pool.ready.contains(&no) {
                // All pools of a seat agree; the first tells.
                return;
            }
            if has_room {
                pool.ready.insert(no);
            } else {
                pool.ready.remove(&no);
            }
        }
    }

    fn enlist(&mut self, no: SeatNo) -> Vec<PoolNo> {
        let Some(desk) = self.desks.get(no.0) else { return Vec::new() };
        if desk.seat.closed == Some(Reason::NotRegistered) {
            return Vec::new();
        }
        let has_room = desk.seat.room() > 0;
        let key = desk.seat.key.clone();
        let declaration = Arc::clone(&desk.seat.declaration);
        let choosy = usize::from(!declaration.allowed_callers.is_empty());
        let mut joined = Vec::new();
        for (offer, offered) in declaration.offers.iter().enumerate() {
            let no_pool = self.open_pool(&key.namespace, &offered.capability);
            let Some(pool) = self.pools.get_mut(&no_pool) else { continue };
            // A capability offered twice counts once, as `Agent::offer` has it.
            if let Err(place) = pool.members.binary_search_by(|member| member.agent.cmp(&key.agent_id)) {
                pool.members.insert(place, Member { agent: key.agent_id.clone(), seat: no, offer, position: 0 });
                pool.choosy += choosy;
                pool.vote(Some(offered), usize::saturating_add);
                if has_room {
                    pool.ready.insert(no);
                }
                joined.push((no_pool, offer));
            }
        }
        let pools = joined.iter().map(|(pool, _)| *pool).collect();
        if let Some(desk) = self.desks.get_mut(no.0) {
            desk.pools = joined;
        }
        pools
    }

    fn delist(&mut self, no: SeatNo) -> Vec<PoolNo> {
        let Some(desk) = self.desks.get_mut(no.0) else { return Vec::new() };
        let left = std::mem::take(&mut desk.pools);
        let key = desk.seat.key.clone();
        let declaration = Arc::clone(&desk.seat.declaration);
        for (pool, offer) in &left {
            let Some(pool) = self.pools.get_mut(pool) else { continue };
            if let Ok(place) = pool.members.binary_search_by(|member| member.agent.cmp(&key.agent_id)) {
                pool.members.remove(place);
            }
            pool.ready.remove(&no);
            pool.choosy = pool.choosy.saturating_sub(usize::from(!declaration.allowed_callers.is_empty()));
            pool.vote(declaration.offers.get(*offer), usize::saturating_sub);
        }
        left.into_iter().map(|(pool, _)| pool).collect()
    }
}
