//! What holds for a while: a queue near its bound, a disk short of room. Told when it begins and when it ends. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::rules::{Alert, Group, Kind, LevelState};
use crate::ledger::handle::Phase;
use crate::ledger::ids::{Capability, Namespace, Seq};
use crate::ledger::machine::State;
use crate::ledger::time::Timestamp;

/// A queue with so many hundredths of its bound is near it.
const NEAR: u64 = 90;
/// Below so many it is no more: it must not be told in turns.
const FAR: u64 = 80;
/// Conditions that are remembered at a time.
const MAX_HELD: usize = 1_000;

/// A queue that has at least [`FAR`] hundredths of a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filling {
    /// Where.
    pub namespace: Namespace,
    /// Of which capability; `None` for the whole namespace.
    pub capability: Option<Capability>,
    /// Tasks that count.
    pub count: u32,
    /// How many may.
    pub bound: u32,
}

/// The last one that was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    namespace: Option<Namespace>,
    capability: Option<Capability>,
}

fn percent(count: u32, bound: u32) -> u64 {
    u64::from(count).saturating_mul(100).checked_div(u64::from(bound)).unwrap_or(100)
}

/// Queues that fill, among the next `most` capabilities after `from`, and where the next look goes on; `None` at the
/// end. What the agents' `max_pending` or a lane bounds is held against the tasks of the capability that wait for an
/// agent or are with one, over all its lanes.
#[must_use]
pub fn filling(state: &State, from: &Place, most: usize) -> (Vec<Filling>, Option<Place>) {
    let (mut found, mut looked) = (Vec::new(), 0);
    let start = from.namespace.as_ref().map_or(Bound::Unbounded, Bound::Included);
    for (namespace, count) in state.counts().range::<Namespace, _>((start, Bound::Unbounded)) {
        let policy = state.policies().of(namespace);
        let after = from.capability.as_ref().filter(|_| from.namespace.as_ref() == Some(namespace));
        if after.is_none() {
            looked += 1;
            put(&mut found, (namespace, None), count.total(), policy.namespace_bound);
        }
        let rest = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        for (capability, pending) in count.pending.range::<Capability, _>(rest) {
            looked += 1;
            let entry = state.catalog().of(namespace, capability);
            let agents = entry.map_or(u32::MAX, |entry| u32::try_from(entry.max_pending).unwrap_or(u32::MAX));
            put(&mut found, (namespace, Some(capability)), *pending, agents.min(policy.lane_bound));
            if looked >= most {
                let place = Place { namespace: Some(namespace.clone()), capability: Some(capability.clone()) };
                return (found, Some(place));
            }
        }
    }
    (found, None)
}

fn put(found: &mut Vec<Filling>, of: (&Namespace, Option<&Capability>), count: u32, bound: u32) {
    if percent(count, bound) >= FAR {
        found.push(Filling { namespace: of.0.clone(), capability: of.1.cloned(), count, bound });
    }
}

/// The moment of a look.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The last event then.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
}

/// The conditions that hold.
#[derive(Debug, Clone, Default)]
pub struct Levels {
    held: BTreeSet<Group>,
}

impl Levels {
    /// What began or ended since the last look, given every queue that fills and the hub's phase.
    pub fn look(&mut self, filling: &[Filling], phase: Phase, moment: Moment) -> Vec<Alert> {
        let mut now: BTreeMap<Group, (u64, String)> = BTreeMap::new();
        for Filling { namespace, capability, count, bound } in filling {
            let group = Group {
                kind: Kind::QueueNearBound,
                namespace: Some(namespace.clone()),
                capability: capability.clone(),
            };
            let share = percent(*count, *bound);
            now.insert(group, (share, format!("{count} of {bound} tasks, {share} %")));
        }
        if let Some(why) = short_of_room(phase) {
            let group = Group { kind: Kind::DiskShort, namespace: None, capability: None };
            now.insert(group, (100, why.to_owned()));
        }
        let mut alerts = Vec::new();
        let ended: Vec<Group> = self.held.iter().filter(|group| !now.contains_key(group)).cloned().collect();
        for group in ended {
            self.held.remove(&group);
            alerts.push(alert(group, LevelState::Resolved, "it has room again".to_owned(), moment));
        }
        for (group, (share, why)) in now {
            if share >= NEAR && !self.held.contains(&group) && self.held.len() < MAX_HELD {
                self.held.insert(group.clone());
                alerts.push(alert(group, LevelState::Firing, why, moment));
            }
        }
        alerts
    }
}

fn alert(group: Group, state: LevelState, why: String, moment: Moment) -> Alert {
    let Moment { seq, at } = moment;
    Alert { group, subject: String::new(), why, seq, at, owner: None, state: Some(state) }
}

const fn short_of_room(phase: Phase) -> Option<&'static str> {
    match phase {
        Phase::DiskLow => Some("nearly full: submits are refused (507) until there is room"),
        Phase::DiskFull | Phase::NoRoom => Some("full: nearly everything is refused (507) until there is room"),
        Phase::Starting | Phase::Open | Phase::Draining | Phase::Stopped => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: Moment = Moment { seq: Seq(7), at: Timestamp(9) };

    fn queue(count: u32) -> Filling {
        let namespace = Namespace::new("acme").expect("a name");
        Filling { namespace, capability: Capability::new("mail.send").ok(), count, bound: 1_000 }
    }

    fn told(levels: &mut Levels, filling: &[Filling], phase: Phase) -> Vec<(Kind, LevelState)> {
        let alerts = levels.look(filling, phase, MOMENT);
        alerts.into_iter().filter_map(|alert| Some((alert.group.kind, alert.state?))).collect()
    }

    #[test]
    fn a_queue_is_told_once_at_nine_tenths_and_once_below_eight() {
        let mut levels = Levels::default();
        let queue = |count| vec![queue(count)];
        let near = |state| vec![(Kind::QueueNearBound, state)];
        assert_eq!(told(&mut levels, &queue(899), Phase::Open), []);
        assert_eq!(told(&mut levels, &queue(900), Phase::Open), near(LevelState::Firing));
        assert_eq!(told(&mut levels, &queue(950), Phase::Open), []);
        assert_eq!(told(&mut levels, &queue(810), Phase::Open), [], "it may not be told in turns");
        assert_eq!(told(&mut levels, &queue(990), Phase::Open), []);
        assert_eq!(told(&mut levels, &[], Phase::Open), near(LevelState::Resolved));
        assert_eq!(told(&mut levels, &queue(900), Phase::Open), near(LevelState::Firing));
    }

    #[test]
    fn a_disk_is_told_when_it_is_short_of_room_and_when_it_has_some_again() {
        let mut levels = Levels::default();
        let disk = |state| vec![(Kind::DiskShort, state)];
        assert_eq!(told(&mut levels, &[], Phase::Open), []);
        assert_eq!(told(&mut levels, &[], Phase::DiskLow), disk(LevelState::Firing));
        assert_eq!(told(&mut levels, &[], Phase::DiskFull), []);
        assert_eq!(told(&mut levels, &[], Phase::Open), disk(LevelState::Resolved));
    }

    #[test]
    fn a_bound_of_nothing_is_met() {
        assert_eq!((percent(0, 0), percent(899, 1_000), percent(u32::MAX, 1)), (100, 89, u64::from(u32::MAX) * 100));
    }
}
