//! Payloads against the JSON Schemas of those who could take them (semantics 18).
//!
//! Why here and not in the core: checking costs time that a payload's author chooses, so it runs on the blocking pool
//! under a time limit, and the core only compares digests. Schemas are named by digest and never change, so a compiled
//! one is kept; patterns run on a linear-time engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::Digest;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::catalog::Entry;
use crate::ledger::machine::task::spec::SchemaVerdicts;
use crate::ledger::store::BodyKey;
use crate::ledger::time::Millis;
use crate::scheduler::routing::constraint::{self, Schema, SchemaViolation};

use super::error::{ApiError, Code};
use super::extract::Caller;

/// Compiled schemas kept; beyond, the cache starts over.
const MAX_COMPILED: usize = 1_024;
/// One payload against all schemas of its capability may take so long.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Checks at a time: the rest of the machine goes on.
const CHECKS_AT_A_TIME: usize = 4;
/// Paths told of one schema that refuses.
const MAX_TOLD: usize = 5;

/// Compiled schemas by digest.
#[derive(Debug)]
pub struct SchemaCache {
    compiled: Mutex<BTreeMap<Digest, Option<Arc<Schema>>>>,
    room: Arc<Semaphore>,
}

impl Default for SchemaCache {
    fn default() -> Self {
        Self { compiled: Mutex::default(), room: Arc::new(Semaphore::new(CHECKS_AT_A_TIME)) }
    }
}

/// A schema's digest and its compiled form; `None` if it can't be compiled, which registration rules out.
pub(super) type Compiled = Vec<(Digest, Option<Arc<Schema>>)>;

/// Why a schema refuses.
#[derive(Debug, Clone)]
pub(super) struct Complaint {
    /// Which schema.
    pub(super) schema: Digest,
    /// JSON pointer into the payload.
    pub(super) pointer: String,
    /// Which keyword of the schema.
    keyword: String,
    /// What is wrong; may quote the payload.
    detail: String,
}

impl Complaint {
    /// What is wrong, as far as whoever asks may see it.
    pub(super) fn told(&self, sight: Sight) -> String {
        match sight {
            Sight::Payload => self.detail.clone(),
            Sight::Schema if self.keyword.is_empty() => "is not what the schema wants".to_owned(),
            Sight::Schema => format!("is not what the schema's {} wants", self.keyword),
        }
    }
}

/// Why the schemas refuse.
pub(super) type Complaints = Vec<Complaint>;

/// What may be told of a payload that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// All: it came with this call, or the token may read payloads.
    Payload,
    /// Where, and by which keyword; nothing that it holds.
    Schema,
}

impl Sight {
    /// Of a payload that is kept here.
    pub(super) fn of(caller: &Caller) -> Self {
        if caller.require(Scope::Read).is_ok() { Self::Payload } else { Self::Schema }
    }
}

/// Why a check came to no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unchecked {
    /// Other checks took all the room for too long: nobody looked at this payload.
    Busy,
    /// It took too long.
    TooSlow,
    /// It broke off, which is a bug.
    Broken,
    /// The hub goes down.
    Stopping,
}

impl From<Unchecked> for ApiError {
    fn from(why: Unchecked) -> Self {
        match why {
            Unchecked::Busy => {
                Self::new(Code::Busy, "too many payloads are being checked").retry_after(Millis::secs(2))
            }
            // Such a payload is no agent's to take.
            Unchecked::TooSlow => Self::new(Code::PayloadRefused, "the check against the schemas took too long")
                .at("/payload", "took too long to check"),
            Unchecked::Broken => Self::internal(),
            Unchecked::Stopping => Unavailable::Stopping.into(),
        }
    }
}

impl SchemaCache {
    /// The compiled schemas of those digests; what is not in the cache is read and compiled off-thread.
    ///
    /// # Errors
    /// [`Unavailable`] when a schema's body can't be read.
    pub(super) async fn compiled(&self, ledger: &Ledger, digests: BTreeSet<Digest>) -> Result<Compiled, Unavailable> {
        let mut found = Vec::with_capacity(digests.len());
        let mut missing = Vec::new();
        {
            let cache = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
            for digest in digests {
                match cache.get(&digest) {
                    Some(validator) => found.push((digest, validator.clone())),
                    None => missing.push(digest),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let bodies = ledger.bodies(missing.iter().map(|digest| BodyKey::Named(*digest)).collect()).await?;
        let new = tokio::task::spawn_blocking(move || -> Compiled {
            let compile =
                |body: Option<crate::ledger::store::Body>| constraint::compile(&body?.bytes).ok().map(Arc::new);
            missing.into_iter().zip(bodies).map(|(digest, body)| (digest, compile(body))).collect()
        });
        let new = new.await.map_err(|error| Unavailable::Unreadable(error.to_string()))?;
        let mut cache = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.len() + new.len() > MAX_COMPILED {
            cache.clear();
        }
        cache.extend(new.iter().cloned());
        drop(cache);
        found.extend(new);
        Ok(found)
    }

    /// The verdicts of each schema about a payload, with complaints of those that refuse it.
    ///
    /// # Errors
    /// [`Unchecked`] when there is none: that is no verdict of any schema.
    pub(super) async fn verdicts(
        &self,
        compiled: Compiled,
        payload: Arc<[u8]>,
    ) -> Result<(SchemaVerdicts, Complaints), Unchecked> {
        let room = timeout(TIME_LIMIT, Arc::clone(&self.room).acquire_owned()).await.map_err(|_| Unchecked::Busy)?;
        let permit = room.map_err(|_| Unchecked::Stopping)?;
        let check = tokio::task::spawn_blocking(move || {
            let verdicts = check(&compiled, &payload);
            // Held to the end of the check, not of the wait for it: so a slow payload can't pile up threads.
            drop(permit);
            verdicts
        });
        timeout(TIME_LIMIT, check).await.map_err(|_| Unchecked::TooSlow)?.map_err(|error| {
            if error.is_cancelled() {
                return Unchecked::Stopping;
            }
            tracing::error!(%error, "a schema check broke off");
            Unchecked::Broken
        })
    }
}

fn check(compiled: &Compiled, payload: &[u8]) -> (SchemaVerdicts, Complaints) {
    let mut verdicts = SchemaVerdicts::default();
    let mut complaints = Vec::new();
    let Ok(instance) = serde_json::from_slice::<Value>(payload) else { return (verdicts, complaints) };
    for (digest, validator) in compiled {
        let Some(validator) = validator else {
            verdicts.refused.push(*digest);
            let detail = "the schema can't be compiled".to_owned();
            let (pointer, keyword) = (String::new(), String::new());
            complaints.push(Complaint { schema: *digest, pointer, keyword, detail });
            continue;
        };
        match validator.check(&instance) {
            Ok(()) => verdicts.accepted.push(*digest),
            Err(violations) => {
                verdicts.refused.push(*digest);
                let told = violations.into_iter().take(MAX_TOLD);
                complaints.extend(told.map(|SchemaViolation { pointer, keyword, detail }| Complaint {
                    schema: *digest,
                    pointer,
                    keyword,
                    detail,
                }));
            }
        }
    }
    verdicts.accepted.sort_unstable();
    verdicts.refused.sort_unstable();
    (verdicts, complaints)
}

/// Every schema that any provider of the capability names.
pub(super) fn distinct(entry: &Entry) -> BTreeSet<Digest> {
    entry.schema_sets.iter().flatten().copied().collect()
}

/// Does every provider's set hold a schema that refuses?
pub(super) fn all_refuse(entry: &Entry, verdicts: &SchemaVerdicts) -> bool {
    !entry.schema_sets.is_empty()
        && entry.schema_sets.iter().all(|set| set.iter().any(|digest| verdicts.refused.contains(digest)))
}

/// The refusal with the paths, without doubles, as far as they may be seen.
pub(super) fn refusal(complaints: &Complaints, sight: Sight) -> ApiError {
    let mut told = BTreeSet::new();
    let mut error =
        ApiError::new(Code::PayloadRefused, "the agents that offer this capability do not take such a payload");
    for complaint in complaints {
        let detail = complaint.told(sight);
        if told.insert((&complaint.pointer, detail.clone())) {
            error = error.at(format!("/payload{}", complaint.pointer), detail);
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::machine::agent::Sensitive;

    fn schema(json: &str) -> (Digest, Option<Arc<Schema>>) {
        (constraint::digest(json.as_bytes()), Some(Arc::new(constraint::compile(json.as_bytes()).unwrap())))
    }

    fn entry(sets: &[&[Digest]]) -> Entry {
        let schema_sets = sets.iter().map(|set| set.to_vec()).collect();
        Entry { providers: BTreeSet::new(), schema_sets, max_pending: 0, sensitive: Sensitive::No }
    }

    #[test]
    fn semantics_18_each_schema_has_its_verdict_and_a_refusal_names_the_path() {
        let wants_city = schema(r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#);
        let takes_all = schema("{}");
        let compiled = vec![wants_city.clone(), takes_all.clone()];
        let (verdicts, complaints) = check(&compiled, br#"{"city":7}"#);
        assert_eq!(verdicts.accepted, vec![takes_all.0]);
        assert_eq!(verdicts.refused, vec![wants_city.0]);
        let problem = serde_json::to_value(refusal(&complaints, Sight::Payload)).unwrap();
        assert_eq!(problem["errors"][0]["pointer"], "/payload/city");
        let veiled = serde_json::to_value(refusal(&complaints, Sight::Schema)).unwrap();
        assert_eq!(veiled["errors"][0]["pointer"], "/payload/city");
        assert_eq!(veiled["errors"][0]["detail"], "is not what the schema's type wants");
        assert!(!all_refuse(&entry(&[&[wants_city.0], &[takes_all.0]]), &verdicts), "one provider takes it");
        assert!(!all_refuse(&entry(&[&[wants_city.0], &[]]), &verdicts), "a provider without a schema takes all");
        assert!(all_refuse(&entry(&[&[wants_city.0], &[takes_all.0, wants_city.0]]), &verdicts));
        assert!(!all_refuse(&entry(&[]), &verdicts), "nobody there, nobody refuses");
    }
}
