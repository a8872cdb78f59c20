//! Many alerts become few: a pure coalescer. 40,000 dead letters of one capability in a minute are one message a window.

use std::collections::BTreeMap;

use super::rules::{Alert, Group, Kind, Left, LevelState};
use crate::ledger::ids::{Namespace, Seq};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Timestamp;

/// Groups that one window tells apart; what is beyond them is counted.
pub const MAX_GROUPS: usize = 1_000;
/// Subjects of one group that are named.
pub const MAX_NAMED: usize = 5;
/// A reason is cut to this many bytes.
pub const MAX_WHY: usize = 1_024;

/// One end of what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The subject's id; empty where there is none.
    pub subject: String,
    /// The event.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
}

/// What is told of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// How many alerts.
    pub count: u64,
    /// The first of them.
    pub first: Mark,
    /// The last of them.
    pub last: Mark,
    /// The first few subjects.
    pub named: Vec<String>,
    /// Why: of the first; of a condition, of the last.
    pub why: String,
    /// Who looks after the first.
    pub owner: Option<Text>,
    /// Of lost agents: tasks that come back by themselves, and tasks that wait for a word.
    pub left: Option<(u64, u64)>,
    /// Of conditions: how it stands after the last.
    pub state: Option<LevelState>,
}

/// What happened since the last time that alerts were told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    groups: BTreeMap<Group, Told>,
}

impl Window {
    /// Is there nothing to tell?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Groups in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Takes an alert in: into its group, into a new one, or among what is only counted.
    pub fn put(&mut self, alert: Alert) {
        let Alert { group, subject, mut why, seq, at, owner, state } = alert;
        cut(&mut why);
        let mark = Mark { subject, seq, at };
        let beyond = Group { kind: Kind::More, namespace: None, capability: None };
        let is_full = self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&group);
        let (group, why) =
            if is_full { (beyond, format!("the first is of kind {}: {why}", group.kind.name())) } else { (group, why) };
        let kind = group.kind;
        let told = self.groups.entry(group).or_insert_with(|| Told {
            count: 0,
            first: mark.clone(),
            last: mark.clone(),
            named: Vec::new(),
            why: why.clone(),
            owner,
            left: (kind == Kind::AgentLost).then_some((0, 0)),
            state: None,
        });
        told.count = told.count.saturating_add(1);
        if told.named.len() < MAX_NAMED && !mark.subject.is_empty() && !told.named.contains(&mark.subject) {
            told.named.push(mark.subject.clone());
        }
        told.last = mark;
        if state.is_some() {
            // Whoever acts on a condition needs to know how it stands, not how it stood.
            (told.state, told.why) = (state, why);
        }
    }

    /// Counts what lost agents of a namespace left behind, if their loss is told here.
    pub fn leave(&mut self, namespace: Option<&Namespace>, left: Left) {
        let group = Group { kind: Kind::AgentLost, namespace: namespace.cloned(), capability: None };
        if let Some((replayed, held)) = self.groups.get_mut(&group).and_then(|told| told.left.as_mut()) {
            match left {
                Left::Replayed => *replayed = replayed.saturating_add(1),
                Left::Held => *held = held.saturating_add(1),
            }
        }
    }

    /// Every group, in order.
    pub fn into_groups(self) -> impl Iterator<Item = (Group, Told)> {
        self.groups.into_iter()
    }
}

fn cut(text: &mut String) {
    if text.len() > MAX_WHY {
        let end = (0..=MAX_WHY).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ids::Capability;

    fn group(kind: Kind, capability: &str) -> Group {
        let namespace = Namespace::new("acme").ok();
        Group { kind, namespace, capability: Capability::new(capability).ok() }
    }

    fn alert(group: Group, n: u64) -> Alert {
        let (subject, why) = (format!("reach_{n}"), format!("reason {n}"));
        Alert { group, subject, why, seq: Seq(n), at: Timestamp(n), owner: None, state: None }
    }

    #[test]
    fn forty_thousand_of_one_kind_in_one_place_are_one_with_the_first_the_last_and_how_many() {
        let mut window = Window::default();
        (1..=40_000).for_each(|n| window.put(alert(group(Kind::DeadLetter, "mail.send"), n)));
        window.put(alert(group(Kind::DeadLetter, "ocr.read"), 40_001));
        window.put(alert(group(Kind::OrphanHeld, "mail.send"), 40_002));
        assert_eq!(window.len(), 3);
        let (_, told) = window.into_groups().next().expect("a group");
        assert_eq!((told.count, &*told.first.subject, &*told.last.subject), (40_000, "reach_1", "reach_40000"));
        assert_eq!((told.first.seq, told.last.seq, &*told.why), (Seq(1), Seq(40_000), "reason 1"));
        assert_eq!(told.named, ["reach_1", "reach_2", "reach_3", "reach_4", "reach_5"]);
    }

    #[test]
    fn what_is_beyond_the_bound_is_counted_and_known_groups_go_on() {
        let mut window = Window::default();
        let of = |n: usize| group(Kind::DeadLetter, &format!("a.n{n}"));
        (0..MAX_GROUPS).for_each(|n| window.put(alert(of(n), 1)));
        (0..500).for_each(|n| window.put(alert(of(MAX_GROUPS + n), 2)));
        window.put(alert(of(0), 3));
        assert_eq!(window.len(), MAX_GROUPS + 1);
        let told: Vec<_> = window.into_groups().collect();
        let more: Vec<_> = told.iter().filter(|(group, _)| group.kind == Kind::More).collect();
        assert_eq!((more.len(), more[0].1.count), (1, 500));
        assert!(more[0].1.why.contains("dead-letter"), "{}", more[0].1.why);
        assert!(told.iter().any(|(group, told)| *group == of(0) && told.count == 2), "a known group takes it in");
    }

    #[test]
    fn of_a_condition_the_last_word_counts() {
        let mut window = Window::default();
        for (n, state) in [(1, LevelState::Firing), (2, LevelState::Resolved)] {
            window.put(Alert { state: Some(state), ..alert(group(Kind::QueueNearBound, "a.b"), n) });
        }
        let (_, told) = window.into_groups().next().expect("a group");
        assert_eq!((told.state, &*told.why, told.count), (Some(LevelState::Resolved), "reason 2", 2));
    }

    #[test]
    fn what_a_lost_agent_left_behind_is_counted_with_its_loss_and_nowhere_else() {
        let mut window = Window::default();
        let lost = Group { capability: None, ..group(Kind::AgentLost, "a.b") };
        window.leave(lost.namespace.as_ref(), Left::Held);
        assert!(window.is_empty());
        window.put(alert(lost.clone(), 1));
        for left in [Left::Held, Left::Replayed, Left::Replayed] {
            window.leave(lost.namespace.as_ref(), left);
        }
        assert_eq!(window.into_groups().next().expect("a group").1.left, Some((2, 1)));
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut window = Window::default();
        window.put(Alert { why: "ü".repeat(2_000) + "x", ..alert(group(Kind::DeadLetter, "a.b"), 1) });
        let (_, told) = window.into_groups().next().expect("a group");
        assert_eq!(told.why, "ü".repeat(MAX_WHY / 2));
    }
}
