//! F1, in part: within a class and fairness key of one lane first in, first out. Only first dispatches of tasks that
//! entered the queue in different milliseconds are compared, and only where no agent was asked for or is to be avoided. What
//! was made anew may wait for the agent of its session.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_reach::ledger::ids::{Capability, FairnessKey, Namespace, ReachId, Seq};
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::machine::task::spec::{Qos, Requires, SchemaVerdicts};
use agent_reach::ledger::machine::task::status::StatusKind;
use agent_reach::ledger::time::Timestamp;

use crate::model::{Evidence, Findings, begins, ends};

type Line = (Namespace, Capability, Arc<Requires>, SchemaVerdicts, Qos, (FairnessKey, String));

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut lines: BTreeMap<Line, BTreeMap<ReachId, (Timestamp, Seq)>> = BTreeMap::new();
    for entry in evidence.log {
        let event = &entry.event;
        if event.body.callback_subject().is_some() {
            continue;
        }
        let Some(life) = event.body.task().and_then(|id| evidence.tasks.get(&id)) else { continue };
        let checked = life.events.iter().any(|event| matches!(event.body, EventBody::TaskSchemaChecked(_)));
        let awaits = life.redrive_of.is_some() && life.spec.session.is_some();
        if life.spec.preferred_agent.is_some() || checked || awaits {
            continue;
        }
        let by = life.asked_by.as_ref().map(ToString::to_string).unwrap_or_default();
        let spec = life.spec;
        let line: Line = (
            life.namespace.clone(),
            spec.capability.clone(),
            spec.requires.clone(),
            spec.schemas.clone(),
            spec.qos,
            (spec.fairness_key.clone(), by),
        );
        let waiting = lines.entry(line).or_default();
        let first = matches!(event.body, EventBody::TaskSubmitted(_)) && begins(life) == StatusKind::Queued;
        if first {
            waiting.insert(life.id, (event.at, event.seq));
        } else if matches!(event.body, EventBody::TaskDispatched(_)) {
            let Some((since, _)) = waiting.remove(&life.id) else { continue };
            if let Some((other, _)) = waiting.iter().find(|(_, (before, _))| *before < since) {
                findings.add("F1", event.seq, format!("{} overtakes {other}", life.id));
            }
        } else if ends(&event.body).is_some() {
            waiting.remove(&life.id);
        }
    }
}
