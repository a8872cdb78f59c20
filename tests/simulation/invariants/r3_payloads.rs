//! R3, of payloads: what a plan makes anew has the payload that its frozen list says: the first one's with the plan's
//! patch in it (RFC 7396, merged here by the text of the standard), or, without a patch, the very same; and the verdicts of
//! the list. What is left alone for its payload is left alone for that: there is none to be patched, it came out too long, or
//! everybody who offers its capability in that moment refuses it.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{AgentKey, Digest, ReachId};
use agent_reach::ledger::machine::agent::Offer;
use agent_reach::ledger::machine::event::{Event, EventBody};
use agent_reach::ledger::machine::replay::{Done, ItemAction, Skip};
use agent_reach::ledger::machine::task::spec::{MAX_PAYLOAD, SchemaVerdicts};
use agent_reach::ledger::store::Body;
use serde_json::{Map, Value};

use crate::invariants::s7::key_of;
use crate::model::{Course, Evidence, Findings, Life};
use crate::patches;

const NAME: &str = "R3 payloads";
/// Reasons that are a payload's, each with what it is counted as.
const LEFT_ALONE: [(Skip, &str); 3] = [
    (Skip::PayloadNotInline, "R3: left alone, not inline"),
    (Skip::PayloadTooLarge, "R3: left alone, too large"),
    (Skip::NotAccepted, "R3: left alone, not accepted"),
];

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut registry = Registry::default();
    for event in evidence.log.iter().map(|entry| &entry.event) {
        if let Some(plan) = event.body.replay().and_then(|id| evidence.plans.get(&id)) {
            match judged(evidence, &registry, (plan, event)) {
                Ok(Some(what)) => findings.judged(what),
                Ok(None) => {}
                Err(what) => findings.add(NAME, event.seq, format!("{}: {what}", plan.id)),
            }
        }
        registry.follow(event);
    }
}

/// What was judged, if anything was, or what is wrong.
fn judged(
    evidence: &Evidence<'_>,
    registry: &Registry,
    (plan, event): (&Course<'_>, &Event),
) -> Result<Option<&'static str>, String> {
    let turn = |index, task: ReachId| {
        let first = evidence.tasks.get(&task).filter(|life| life.namespace == plan.namespace);
        let amendment = plan.said.and_then(|said| said.amendments.of(index));
        let verdicts = amendment.map(|amendment| SchemaVerdicts::clone(&amendment.schemas)).unwrap_or_default();
        first.map(|first| Turn { evidence, plan, first, old: evidence.notes.payloads.get(&task), verdicts })
    };
    if let EventBody::ReplayPlanned(body) = &event.body {
        let named = plan.said.and_then(|said| said.named.as_ref());
        return if body.patch.as_ref() == named { Ok(None) } else { Err("its event names another patch".to_owned()) };
    }
    if let EventBody::ReplayItemDone(body) = &event.body
        && let Done::Redriven { successor } = body.done
    {
        // Of links that lead nowhere others speak.
        let second = evidence.tasks.get(&successor);
        return match turn(body.index, body.task).zip(second) {
            Some((turn, second)) => turn.goes(registry, second).map(Some),
            None => Ok(None),
        };
    }
    if let EventBody::ReplayItemSkipped(body) = &event.body
        && LEFT_ALONE.iter().any(|(skip, _)| *skip == body.skip)
    {
        let redrives = plan.item(body.index).is_some_and(|item| item.action == ItemAction::Redrive);
        let turn = turn(body.index, body.task).filter(|_| redrives);
        let turn = turn.ok_or_else(|| format!("{} has no payload to leave it alone for", body.task))?;
        return turn.stays(registry, body.skip).map(Some);
    }
    Ok(None)
}

/// An item in the moment of its turn.
struct Turn<'a> {
    evidence: &'a Evidence<'a>,
    plan: &'a Course<'a>,
    first: &'a Life<'a>,
    /// The first one's payload.
    old: Option<&'a Body>,
    /// What the list says that schemas say.
    verdicts: SchemaVerdicts,
}

impl Turn<'_> {
    /// It is made anew.
    fn goes(&self, registry: &Registry, second: &Life<'_>) -> Result<&'static str, String> {
        let new = self.evidence.notes.payloads.get(&second.id);
        let wrong = |what: &str| Err(format!("{} as {}: {what}", self.first.id, second.id));
        let on_disk = new.map(|body| (body.digest(), u32::try_from(body.bytes.len()).unwrap_or(u32::MAX)));
        let named = second.spec.payload.as_ref().map(|payload| (payload.digest, payload.len));
        if named != on_disk {
            return wrong("its submission names another payload than lies on disk");
        }
        if registry.everybody_refuses(self) {
            return wrong("everybody refuses it");
        }
        let (what, verdicts) = (&self.verdicts, &second.spec.schemas);
        let Some(patch) = self.plan.patch() else {
            if self.old.map(|body| &body.bytes) != new.map(|body| &body.bytes) {
                return wrong("it has another payload, and nobody patched it");
            }
            let are_told = what.accepted.iter().all(|schema| verdicts.accepted.contains(schema))
                && what.refused.iter().all(|schema| verdicts.refused.contains(schema));
            return if are_told { Ok("R3: payloads kept") } else { wrong("it lacks a verdict of the list") };
        };
        match patched(self.old, patch) {
            Ok(wanted) if new.and_then(read).as_ref() == Some(&wanted) => {}
            Ok(_) => return wrong("its payload is not what the patch makes"),
            Err(skip) => return wrong(&format!("it is {}", skip.name())),
        }
        if verdicts != what || second.spec.payload_ref.is_some() {
            return wrong("it has a verdict or a reference of the first payload");
        }
        Ok("R3: payloads patched")
    }

    /// It is left alone for its payload.
    fn stays(&self, registry: &Registry, skip: Skip) -> Result<&'static str, String> {
        let made = self.plan.patch().map(|patch| patched(self.old, patch));
        let is_so = if skip == Skip::NotAccepted {
            made.is_none_or(|made| made.is_ok()) && registry.everybody_refuses(self)
        } else {
            made == Some(Err(skip))
        };
        let judged = LEFT_ALONE.iter().find(|(reason, _)| *reason == skip).filter(|_| is_so);
        let wrong = || format!("{} is left alone as {} and is not", self.first.id, skip.name());
        judged.map(|(_, what)| *what).ok_or_else(wrong)
    }
}

/// What a patch makes of a payload, or why nothing.
pub(crate) fn patched(old: Option<&Body>, patch: &[u8]) -> Result<Value, Skip> {
    let old = old.and_then(read).ok_or(Skip::PayloadNotInline)?;
    let patch: Value = serde_json::from_slice(patch).expect("operators write JSON");
    let made = merged(old, &patch);
    if patches::bytes(&made).len() > MAX_PAYLOAD { Err(Skip::PayloadTooLarge) } else { Ok(made) }
}

fn read(body: &Body) -> Option<Value> {
    serde_json::from_slice(&body.bytes).ok()
}

/// `MergePatch` of RFC 7396, section 2.
fn merged(target: Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut object = if let Value::Object(object) = target { object } else { Map::new() };
    for (name, value) in changes {
        let old = object.remove(name).unwrap_or(Value::Null);
        if !value.is_null() {
            object.insert(name.clone(), merged(old, value));
        }
    }
    Value::Object(object)
}

/// Who offers what, and what is known of payloads, as the events so far tell it.
#[derive(Default)]
struct Registry {
    offers: BTreeMap<AgentKey, Vec<Offer>>,
    /// Schemas that refuse a task's payload.
    refused: BTreeMap<ReachId, BTreeSet<Digest>>,
}

impl Registry {
    fn follow(&mut self, event: &Event) {
        let agent = event.body.agent().and_then(|agent| key_of(event, agent));
        match (&event.body, agent) {
            (EventBody::AgentRegistered(body), Some(agent)) => {
                self.offers.insert(agent, body.declaration.offers.clone());
            }
            (EventBody::AgentUpdated(body), Some(agent)) => {
                self.offers.insert(agent, body.declaration.offers.clone());
            }
            (EventBody::AgentLeft(_) | EventBody::AgentDeregistered(_), Some(agent)) => {
                self.offers.remove(&agent);
            }
            (EventBody::TaskSubmitted(body), _) => {
                let spec = &body.submission;
                self.refused.insert(spec.reach_id, spec.schemas.refused.iter().copied().collect());
            }
            (EventBody::TaskSchemaChecked(body), _) => {
                let refused = self.refused.entry(body.task).or_default();
                learn(refused, &body.verdicts);
            }
            _ => {}
        }
    }

    /// Does every one who offers the capability refuse the payload that the item would go with? Nobody is not everybody.
    fn everybody_refuses(&self, turn: &Turn<'_>) -> bool {
        let mut refused = BTreeSet::new();
        if turn.plan.patch().is_none() {
            refused = self.refused.get(&turn.first.id).cloned().unwrap_or_default();
        }
        learn(&mut refused, &turn.verdicts);
        let here = self.offers.iter().filter(|(agent, _)| agent.namespace == *turn.first.namespace);
        let offers = here.flat_map(|(_, offers)| offers);
        let mut offers = offers.filter(|offer| offer.capability == turn.first.spec.capability).peekable();
        offers.peek().is_some() && offers.all(|offer| offer.schemas.iter().any(|schema| refused.contains(schema)))
    }
}

/// Newer verdicts hold.
fn learn(refused: &mut BTreeSet<Digest>, verdicts: &SchemaVerdicts) {
    refused.retain(|schema| !verdicts.accepted.contains(schema));
    refused.extend(verdicts.refused.iter().copied());
}
