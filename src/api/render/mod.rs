//! An event as JSON: the same rendering for histories and the live feed. `timeline` makes text of it.
//!
//! Pure and exhaustive: a new kind of event does not compile until it says here how it is shown. Nothing secret is in
//! an event, but two things are left out all the same: agents' endpoints (semantics 39) and the hashes of tokens.

mod breakers;
mod kinds;
mod replays;
mod routing;
mod submission;
/// The most that one amount of usage may be.
const MAX_AMOUNT: f64 = 1e12;

/// An amount of usage in millionths, as the ledger keeps it; `None` when it is negative or too large.
pub(super) fn millionths(amount: &serde_json::Number) -> Option<u64> {
    let amount = amount.as_f64().filter(|amount| (0.0..=MAX_AMOUNT).contains(amount))?;
    // By way of text, for that rounds as people do and casts nothing.
    format!("{amount:.6}").replace('.', "").parse().ok()
}

/// The amount as it is shown: whole numbers without a fraction.
pub(super) fn amount(millionths: u64) -> Value {
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    match format!("{whole}.{rest:06}").parse::<f64>() {
        Ok(amount) if rest != 0 => Value::from(amount),
        Ok(_) | Err(_) => Value::from(whole),
    }
}

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use crate::ledger::ids::{ReachId, Seq};
use crate::ledger::machine::access::Access;
use crate::ledger::machine::event::{Actor, Event, EventBody, EventKind};
use crate::ledger::machine::task::Failure;
use crate::ledger::machine::task::spec::BodyRef;
use crate::ledger::store::{Body, BodyKey, BodyKind, StoredEvent};

pub(crate) use breakers::attempt;
pub(crate) use kinds::{orphan_cause, slow_cause};
pub(crate) use routing::{explanation, rules as routing_rules, score};
pub(crate) use submission::rules;

/// JSON fields in the order in which they are to be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fields(pub Vec<(&'static str, Value)>);

impl Fields {
    fn put(&mut self, name: &'static str, value: impl Into<Value>) -> &mut Self {
        self.0.push((name, value.into()));
        self
    }

    fn put_some(&mut self, name: &'static str, value: Option<impl Into<Value>>) -> &mut Self {
        if let Some(value) = value {
            self.put(name, value);
        }
        self
    }

    /// Adds a field that is found elsewhere; what the event says itself stays.
    pub(crate) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        if !self.0.iter().any(|(known, _)| *known == name) {
            self.put(name, value);
        }
    }

    /// Adds the type that the live feed calls it by (semantics 35).
    pub(crate) fn put_type(&mut self, live_type: &str) {
        self.put("type", live_type);
    }

    /// What retention took away, as an item of the feed (semantics 39).
    pub(crate) fn gap(from: Seq, to: Seq) -> Self {
        let mut fields = Self::default();
        fields.put("kind", "gap").put("from", from.0).put("to", to.0);
        fields
    }

    /// Adds what people call the token that did it, as long as it is known: until it is revoked.
    pub(crate) fn name_actor(&mut self, actor: &Actor, access: &Access) {
        let Actor::Token(id) = actor else { return };
        let shown = self.0.iter_mut().find(|(field, _)| *field == "actor");
        if let (Some(token), Some((_, Value::Object(actor)))) = (access.tokens.get(id), shown) {
            actor.insert("name".to_owned(), (&*token.name).into());
        }
    }

    /// Adds the frame's bytes, for those who recompute hashes (semantics 25).
    pub(crate) fn put_frame(&mut self, base64: String) {
        self.put("frame", base64);
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Bodies that events name, as far as they are still there. What was erased is simply absent (semantics 27).
#[derive(Debug, Default)]
pub(crate) struct Bodies(BTreeMap<BodyKey, Body>);

impl Bodies {
    /// Those that were found.
    pub(crate) fn new(found: impl IntoIterator<Item = (BodyKey, Option<Body>)>) -> Self {
        Self(found.into_iter().filter_map(|(key, body)| Some((key, body?))).collect())
    }

    /// The bytes, if they are the ones that the event names: a later progress replaces an earlier one's body.
    fn get(&self, key: &BodyKey, named: &BodyRef) -> Option<&[u8]> {
        let body = self.0.get(key)?;
        (body.digest() == named.digest).then_some(&*body.bytes)
    }

    /// As text.
    pub(crate) fn text(&self, key: &BodyKey, named: &BodyRef) -> Option<String> {
        Some(String::from_utf8_lossy(self.get(key, named)?).into_owned())
    }

    /// As JSON.
    pub(crate) fn json(&self, key: &BodyKey, named: &BodyRef) -> Option<Value> {
        serde_json::from_slice(self.get(key, named)?).ok()
    }
}

/// A task's body.
pub(crate) const fn body_key(task: ReachId, kind: BodyKind, attempt: u32) -> BodyKey {
    BodyKey::Task { task, kind, attempt }
}

/// The body that an event's rendering wants to show: an error message, a reason or progress data.
pub(crate) fn wanted(event: &Event) -> Option<BodyKey> {
    BodyKey::of_event(&event.body).filter(|key| match key {
        BodyKey::Task { kind, .. } => match kind {
            BodyKind::Progress | BodyKind::Error | BodyKind::Reason => true,
            BodyKind::Payload | BodyKind::Result => false,
        },
        BodyKey::Named(_) => false,
    })
}

/// An event as JSON: envelope first, then its own fields.
pub(crate) fn event(stored: &StoredEvent, bodies: &Bodies) -> Fields {
    let event = &stored.event;
    let mut fields = Fields::default();
    fields.put("seq", event.seq.0).put("at", event.at.to_string()).put("kind", event.body.kind().name());
    fields.put("actor", actor(&event.actor));
    fields.put("hash", stored.hash().to_string());
    fields.put_some("namespace", event.namespace.as_ref().map(ToString::to_string));
    fields.put_some("reach_id", event.body.task().map(|id| id.to_string()));
    fields.put_some("session_id", event.session.as_ref().map(ToString::to_string));
    fields.put_some("batch_id", batch_of(event));
    fields.put_some("agent_id", event.body.agent().map(ToString::to_string));
    fields.put_some("trace", event.trace.as_ref().map(ToString::to_string));
    kinds::body(event, bodies, &mut fields);
    fields
}

fn batch_of(event: &Event) -> Option<String> {
    use crate::ledger::machine::callback::CallbackSubject;
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks which kinds are a batch's own; the rest are not")]
    let own = match &event.body {
        EventBody::BatchOpened(e) => Some(e.batch),
        EventBody::BatchClosed(e) => Some(e.batch),
        EventBody::BatchSettled(e) => Some(e.batch),
        other => match other.callback_subject() {
            Some(CallbackSubject::Batch(batch)) => Some(batch),
            Some(CallbackSubject::Task(_)) | None => None,
        },
    };
    own.or(event.batch).map(|id| id.to_string())
}

/// Who did it.
pub(crate) fn actor(actor: &Actor) -> Value {
    match actor {
        Actor::Hub => serde_json::json!({"kind": "hub"}),
        Actor::Token(token) => serde_json::json!({"kind": "token", "token_id": token.as_str()}),
        Actor::Agent { agent_id, incarnation } => {
            serde_json::json!({"kind": "agent", "agent_id": agent_id.as_str(), "incarnation": incarnation.0})
        }
    }
}

/// A failure as `{class, code, message}`; the message is there while its body is.
pub(crate) fn failure(failure: &Failure, message: Option<String>) -> Value {
    serde_json::json!({"class": failure.class.name(), "code": &*failure.code, "message": message})
}

/// The type in the live feed and in callbacks: the kind with its first hyphen as a dot, and three friendlier names for
/// agents (semantics 35).
pub(crate) fn live_type(kind: EventKind) -> String {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "three kinds have a name of their own; the rest follow the rule"
    )]
    match kind {
        EventKind::AgentRegistered | EventKind::AgentHealthy => "agent.online".to_owned(),
        EventKind::AgentLeft => "agent.offline".to_owned(),
        other => other.name().replacen('-', ".", 1),
    }
}
