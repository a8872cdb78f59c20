//! R-RTE-10: the rules of a capability are versions without a gap, an undo brings back what held before, and every
//! dispatch names the version under which it was decided.

use std::collections::BTreeMap;

use agent_reach::ledger::ids::{Capability, Namespace, ReachId};
use agent_reach::ledger::machine::event::{EventBody, RoutingRulesChanged};
use agent_reach::ledger::machine::routing::RoutingRules;

use crate::model::{Evidence, Findings};

/// What holds for one capability, and what held before.
#[derive(Default)]
struct Line {
    version: u32,
    rules: Option<RoutingRules>,
    before: Vec<Option<RoutingRules>>,
}

impl Line {
    /// What is wrong with a change; it holds all the same.
    fn change(&mut self, body: &RoutingRulesChanged) -> Option<&'static str> {
        let follows = body.version == self.version + 1;
        let held = std::mem::replace(&mut self.rules, body.rules.clone());
        let undone = self.version;
        self.version = body.version;
        let goes_back = match body.undoes {
            None => {
                self.before.push(held);
                true
            }
            Some(version) => self.before.pop() == Some(body.rules.clone()) && version == undone,
        };
        match (follows, goes_back) {
            (false, _) => Some("a version is left out"),
            (true, false) => Some("an undo brings back what did not hold before"),
            (true, true) => None,
        }
    }
}

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut lines: BTreeMap<(Namespace, Capability), Line> = BTreeMap::new();
    let mut asked: BTreeMap<ReachId, Capability> = BTreeMap::new();
    for entry in evidence.log {
        let event = &entry.event;
        let Some(namespace) = &event.namespace else { continue };
        if let EventBody::TaskSubmitted(body) = &event.body {
            asked.insert(body.submission.reach_id, body.submission.capability.clone());
        } else if let EventBody::RoutingRulesChanged(body) = &event.body {
            let line = lines.entry((namespace.clone(), body.capability.clone())).or_default();
            if let Some(wrong) = line.change(body) {
                findings.add("R-RTE-10", event.seq, format!("{} of {namespace}: {wrong}", body.capability));
            }
        } else if let EventBody::TaskDispatched(body) = &event.body
            && let Some(capability) = asked.get(&body.task)
        {
            let line = lines.get(&(namespace.clone(), capability.clone()));
            let holds = line.filter(|line| line.rules.is_some()).map(|line| line.version);
            if body.explanation.rules != holds {
                let told = body.explanation.rules;
                findings.add("R-RTE-10", event.seq, format!("{} goes by {told:?} where {holds:?} holds", body.task));
            }
        }
    }
}
