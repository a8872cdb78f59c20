//! Payloads that plans put right: what tasks carry, the patches that operators have for them, and what the API writes into
//! a plan's list of each.

use std::sync::Arc;

use agent_reach::ledger::machine::replay::ItemAction;
use agent_reach::ledger::machine::task::spec::{MAX_PAYLOAD, SchemaVerdicts};
use agent_reach::ledger::store::Store as _;
use agent_reach::recovery::list::{Amendments, PlanItem};
use serde_json::{Value, json};

use crate::arrivals::payload_of;
use crate::invariants::r3_payloads::patched;
use crate::workload::schema;
use crate::world::World;

/// What operators patch payloads with: as it is in the same length, longer, shorter, deeper, and not at all.
const PATCHES: [&str; 6] = [
    r#"{"host":"new"}"#,
    r#"{"host":null}"#,
    r#"{"host":"a-host-whose-name-is-long-enough-to-matter-at-the-bound-of-a-payload"}"#,
    r#"{"deep":{"a":{"b":2,"new":{"x":1,"none":null}},"gone":null},"added":[1,null,"and-a-text-beyond-what-is-spare"]}"#,
    r#"{"n":{"was":{"a":"number"},"and-is":"an object with much more in it than before"}}"#,
    "{}",
];

/// A payload, by what was drawn for it.
pub(crate) fn content(drawn: u64) -> Vec<u8> {
    let value = match drawn % 30 {
        // No JSON: nothing that a patch could change.
        0 => return [&[0xff][..], &drawn.to_be_bytes()].concat(),
        1 => long(drawn),
        2 => json!([drawn, "host"]),
        3 => json!("host"),
        _ => json!({"host": "old", "n": drawn, "deep": {"a": {"b": 1, "c": [1, null]}, "gone": true}}),
    };
    bytes(&value)
}

/// One that a longer host makes too long, or nearly.
fn long(drawn: u64) -> Value {
    let with = |pad: String| json!({"host": "old", "n": drawn, "pad": pad});
    let spare = usize::try_from(drawn / 30 % 64).unwrap_or(0);
    let len = MAX_PAYLOAD - spare - bytes(&with(String::new())).len();
    with("y".repeat(len))
}

/// A value as it is sent, without a byte too many.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a value can be written")
}

impl World {
    /// What the list of a plan says of payloads, as the API finds it: a patch or none, and what schemas say of what it
    /// makes, where they were asked.
    pub(crate) fn drawn_amendments(&mut self, items: &[PlanItem]) -> Amendments {
        let patch: Option<Arc<[u8]>> =
            self.chance.hits(400).then(|| Arc::from(self.chance.pick::<&str>(&PATCHES).as_bytes()));
        if patch.is_none() && !self.chance.hits(200) {
            return Amendments::default();
        }
        let accepting = SchemaVerdicts { accepted: vec![schema()], refused: Vec::new() };
        let refusing = SchemaVerdicts { accepted: Vec::new(), refused: vec![schema()] };
        // What the patch makes nothing of is not shown to schemas.
        let is_asked = |item: &PlanItem| {
            let payload = self.store.body(&payload_of(item.task)).expect("the memory store reads");
            let is_made = |patch: &Arc<[u8]>| patched(payload.as_ref(), patch).is_ok();
            item.action == ItemAction::Redrive && patch.as_ref().is_none_or(is_made)
        };
        let asked: Vec<bool> = items.iter().map(is_asked).collect();
        let mut verdict = |is_asked: bool| match self.chance.below(20) {
            _ if !is_asked => 0,
            0..2 => 0,
            2..6 => 2,
            _ => 1,
        };
        let of_items = asked.into_iter().map(&mut verdict).collect();
        Amendments { patch, verdicts: vec![Arc::new(accepting), Arc::new(refusing)], of_items }
    }
}
