//! What an operator orders, checked: the selection, the rate, the word on what may have run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult};
use crate::api::list::{MAX_CODE, MAX_CODES};
use crate::api::near::one_of;
use crate::api::submission::{Faults, Labels};
use crate::api::submit::invalid;
use crate::api::wire;
use crate::ledger::canonical;
use crate::ledger::ids::{Digest, IdError, Incarnation, ReachId};
use crate::ledger::machine::replay::MayHaveRun;
use crate::ledger::machine::task::FailureClass;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::status::StatusKind;
use crate::ledger::merge_patch::{MAX_PATCH, MAX_PATCH_DEPTH, depth};
use crate::recovery::select::Select;

/// Tasks named one by one at most.
pub(super) const MAX_NAMED: usize = 10_000;
/// Of so many the plan's event says the ids; of more it says how many, and their digest.
const TOLD: usize = 100;
/// What a plan acts on.
const ACTED_ON: [StatusKind; 5] =
    [StatusKind::Orphaned, StatusKind::SlowReach, StatusKind::Failed, StatusKind::DeadLetter, StatusKind::Expired];

/// What of it is made anew.
const MADE_ANEW: [StatusKind; 3] = [StatusKind::Failed, StatusKind::DeadLetter, StatusKind::Expired];

/// Which tasks. Every field narrows; at least one is needed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplaySelect)]
pub(super) struct SelectBody {
    /// In one of these states. Without it: `orphaned`; with `reach_ids`: every state that a plan acts on, which are
    /// `orphaned`, `slow-reach`, `failed`, `dead-letter` and `expired`; with `payload_patch` the last three.
    state: Option<Vec<String>>,
    /// `domain.task_type`
    capability: Option<String>,
    /// Held by this agent, or last held by it.
    agent_id: Option<String>,
    /// Held by this process of the agent.
    incarnation: Option<u32>,
    /// In this session.
    session_id: Option<String>,
    /// In this batch.
    batch_id: Option<String>,
    /// With all of these labels.
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    label: Option<Labels>,
    /// That ended with a failure of one of these classes, or whose last attempt that failed did.
    failure_class: Option<Vec<String>>,
    /// That ended with one of these codes, or whose last attempt that failed did: 1 to 50 of up to 128 bytes, the agents'
    /// own or the hub's.
    failure_code: Option<Vec<String>>,
    /// RFC 3339 with an offset.
    #[schema(value_type = Option<String>, format = DateTime)]
    submitted_after: Option<String>,
    /// RFC 3339 with an offset.
    #[schema(value_type = Option<String>, format = DateTime)]
    submitted_before: Option<String>,
    /// These tasks, 10,000 at most.
    reach_ids: Option<Vec<String>>,
}

/// A plan, or with `dry_run` the question what it would do.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplayBody)]
pub(super) struct PlanBody<'a> {
    pub(super) select: SelectBody,
    /// Items a second, 1 to what the whole hub replays; without it the namespace's `replays_per_second`, or the hub's
    /// where that is less.
    rate_per_s: Option<u32>,
    /// Why, 1 to 1,000 characters: it stands in the ledger beside who. With `dry_run` it may be left out.
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
    /// Also those that may have run and are not idempotent.
    #[serde(default)]
    include_ambiguous: bool,
    /// A JSON merge patch (RFC 7396) of the payloads of what is made anew: an object of up to 64 KiB, 16 objects deep. It
    /// is frozen with the plan. Then the plan is for `failed`, `dead-letter` and `expired` tasks alone.
    #[serde(borrow)]
    #[schema(value_type = Option<Object>)]
    pub(super) payload_patch: Option<&'a RawValue>,
    /// Only say what it would do.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// Another rate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplayRate)]
pub(super) struct RateBody {
    /// Items a second, 1 to 100,000.
    pub(super) rate_per_s: u32,
}

/// Why a plan is paused, resumed or called off.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplayReason)]
pub(super) struct WhyBody {
    /// 1 to 1,000 characters.
    pub(super) reason: Option<String>,
}

/// A checked order.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) select: Select,
    /// The selection as canonical JSON.
    pub(super) told: Text,
    pub(super) rate: u32,
    pub(super) reason: Text,
    pub(super) word: MayHaveRun,
    /// The merge patch of payloads.
    pub(super) patch: Option<Arc<[u8]>>,
}

/// The operator's word on what may have run.
pub(super) const fn word(include_ambiguous: Option<bool>) -> MayHaveRun {
    match include_ambiguous {
        Some(true) => MayHaveRun::Include,
        Some(false) | None => MayHaveRun::Skip,
    }
}

/// A rate within its bounds: what the whole hub may replay.
///
/// # Errors
/// 422 `invalid-field`.
pub(super) fn rate(app: &App, asked: u32) -> ApiResult<u32> {
    let most = app.ledger.published().hub_policy.replays_per_second;
    if (1..=most).contains(&asked) {
        return Ok(asked);
    }
    let what = format!("is {asked}; 1 to {most} a second, which is what the whole hub replays (/v1/policies/hub)");
    Err(ApiError::field("/rate_per_s", what))
}

impl PlanBody<'_> {
    /// Checks it all; `usual` is the rate of one that names none.
    ///
    /// # Errors
    /// 422 with a pointer to what is wrong.
    pub(super) fn order(&self, app: &App, usual: u32) -> ApiResult<Order> {
        let reason = match &self.reason {
            // Nothing is kept of a look, so it needs no why.
            None if self.dry_run => Text::default(),
            sent => wire::why(sent.as_deref())?,
        };
        let most = app.ledger.published().hub_policy.replays_per_second;
        let rate = self.rate_per_s.map_or(Ok(usual.min(most)), |asked| rate(app, asked))?;
        let patch = self.payload_patch.map(patch).transpose()?;
        let usual = if patch.is_some() { &MADE_ANEW[..] } else { &ACTED_ON[..] };
        let select = self.select.select(app, usual)?;
        let sent_back = |state: &StatusKind| ACTED_ON.contains(state) && !MADE_ANEW.contains(state);
        if let Some(state) = select.states.iter().find(|state| patch.is_some() && sent_back(state)) {
            let what = format!("is for what is made anew; what is {} goes back as it is", state.name());
            return Err(ApiError::field("/payload_patch", what));
        }
        let told = told(&select)?;
        Ok(Order { told, select, rate, reason, word: word(Some(self.include_ambiguous)), patch })
    }
}

/// A patch within its bounds.
fn patch(patch: &RawValue) -> ApiResult<Arc<[u8]>> {
    let text = patch.get();
    let bad = |what: String| Err(ApiError::field("/payload_patch", what));
    // Before it is taken apart: a long one costs as much as somebody likes.
    if text.len() > MAX_PATCH {
        return bad(format!("has {} bytes, more than {MAX_PATCH}", text.len()));
    }
    let deep = depth(text.as_bytes()).map_err(|error| ApiError::field("/payload_patch", error.to_string()))?;
    match deep {
        0 => bad("is no object: a merge patch names the members that change".to_owned()),
        _ if deep > MAX_PATCH_DEPTH => bad(format!("nests more than {MAX_PATCH_DEPTH} objects")),
        _ if text.bytes().filter(|byte| !byte.is_ascii_whitespace()).eq(*b"{}") => bad("changes nothing".to_owned()),
        _ => Ok(Arc::from(text.as_bytes())),
    }
}

impl SelectBody {
    /// `usual` are the states of one that names tasks and no state.
    fn select(&self, app: &App, usual: &[StatusKind]) -> ApiResult<Select> {
        let mut faults = Faults::default();
        let states = words("/select/state", self.state.as_deref(), &StatusKind::ALL, StatusKind::name)?;
        let classes =
            words("/select/failure_class", self.failure_class.as_deref(), &FailureClass::ALL, FailureClass::name)?;
        if self.incarnation.is_some() && self.agent_id.is_none() {
            faults.add("/select/incarnation", "is one of an agent: name its agent_id too");
        }
        let mut moment =
            |pointer: &str, text: &Option<String>| Some(app.ledger.from_wall(faults.moment(pointer, text.as_deref())?));
        let after = moment("/select/submitted_after", &self.submitted_after);
        let before = moment("/select/submitted_before", &self.submitted_before);
        if after.zip(before).is_some_and(|(after, before)| after >= before) {
            faults.add("/select/submitted_before", "is not after submitted_after: nothing lies between");
        }
        let mut select = Select {
            states,
            capability: id("/select/capability", self.capability.as_deref(), &mut faults),
            agent: id("/select/agent_id", self.agent_id.as_deref(), &mut faults),
            incarnation: self.incarnation.map(Incarnation),
            session: id("/select/session_id", self.session_id.as_deref(), &mut faults),
            batch: id("/select/batch_id", self.batch_id.as_deref(), &mut faults),
            labels: self
                .label
                .iter()
                .flat_map(|labels| &labels.0)
                .map(|(n, v)| ((&**n).into(), (&**v).into()))
                .collect(),
            classes,
            codes: self.codes(&mut faults),
            after,
            before,
            tasks: self.named(&mut faults),
        };
        faults.into_result().map_err(invalid)?;
        if select.is_empty() {
            return Err(ApiError::field("/select", "narrows nothing: name at least one thing that the tasks have"));
        }
        if select.states.is_empty() {
            let all = !select.tasks.is_empty() || !usual.contains(&StatusKind::Orphaned);
            select.states = if all { usual.to_vec() } else { vec![StatusKind::Orphaned] };
        }
        Ok(select)
    }

    /// Codes of failures, sorted and without doubles. An empty list would widen what it seems to narrow.
    fn codes(&self, faults: &mut Faults) -> Vec<Text> {
        const AT: &str = "/select/failure_code";
        let Some(named) = &self.failure_code else { return Vec::new() };
        if named.is_empty() || named.len() > MAX_CODES {
            faults.add(AT, format!("has {}; 1 to {MAX_CODES}", named.len()));
            return Vec::new();
        }
        let codes = named.iter().enumerate();
        let mut codes: Vec<Text> =
            codes.filter_map(|(index, code)| faults.text(&format!("{AT}/{index}"), Some(code), MAX_CODE)).collect();
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// The tasks that are named one by one, sorted and without doubles.
    fn named(&self, faults: &mut Faults) -> Vec<ReachId> {
        let Some(named) = &self.reach_ids else { return Vec::new() };
        if named.is_empty() || named.len() > MAX_NAMED {
            faults.add("/select/reach_ids", format!("has {}; 1 to {MAX_NAMED}", named.len()));
            return Vec::new();
        }
        let mut tasks = Vec::with_capacity(named.len());
        for (index, text) in named.iter().enumerate() {
            match text.parse() {
                Ok(task) => tasks.push(task),
                Err(error) => faults.add(&format!("/select/reach_ids/{index}"), IdError::to_string(&error)),
            }
        }
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }
}

fn id<T: std::str::FromStr<Err = IdError>>(pointer: &str, text: Option<&str>, faults: &mut Faults) -> Option<T> {
    text.and_then(|text| faults.id(pointer, text))
}

/// Words of a choice, in the choice's order and without doubles. An empty list would widen what it seems to narrow.
fn words<T: Copy + Ord>(
    pointer: &str,
    sent: Option<&[String]>,
    all: &[T],
    spell: fn(T) -> &'static str,
) -> ApiResult<Vec<T>> {
    let Some(sent) = sent else { return Ok(Vec::new()) };
    if sent.is_empty() {
        return Err(ApiError::field(pointer, "is empty: leave it out, or name at least one"));
    }
    let mut found = Vec::new();
    for (index, text) in sent.iter().enumerate() {
        found.push(one_of(text, all, spell).map_err(|no| no.at(&format!("{pointer}/{index}")))?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The selection as the ledger keeps it: what was asked, with the states that it means, as canonical JSON.
fn told(select: &Select) -> ApiResult<Text> {
    let mut all = Map::new();
    let mut put = |name: &str, value: Option<Value>| all.extend(value.map(|value| (name.to_owned(), value)));
    put("state", Some(select.states.iter().map(|state| state.name()).collect()));
    put("capability", select.capability.as_ref().map(|id| id.as_str().into()));
    put("agent_id", select.agent.as_ref().map(|id| id.as_str().into()));
    put("incarnation", select.incarnation.map(|incarnation| incarnation.0.into()));
    put("session_id", select.session.as_ref().map(|id| id.as_str().into()));
    put("batch_id", select.batch.map(|id| id.to_string().into()));
    let labels: BTreeMap<&str, &str> = select.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    put("label", (!labels.is_empty()).then(|| json!(labels)));
    let classes: Value = select.classes.iter().map(|class| class.name()).collect();
    put("failure_class", (!select.classes.is_empty()).then_some(classes));
    let codes: Value = select.codes.iter().map(|code| &**code).collect();
    put("failure_code", (!select.codes.is_empty()).then_some(codes));
    put("submitted_after", select.after.map(|at| at.to_string().into()));
    put("submitted_before", select.before.map(|at| at.to_string().into()));
    put("reach_ids", (!select.tasks.is_empty()).then(|| ids_told(&select.tasks)));
    let text = serde_json::to_vec(&Value::Object(all)).unwrap_or_default();
    let canonical = canonical::canonical(&text).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    canonical.map(Text::from).ok_or_else(ApiError::internal)
}

/// Many ids would not fit an event (semantics 26); the plan's list holds those that it took.
fn ids_told(tasks: &[ReachId]) -> Value {
    if tasks.len() <= TOLD {
        return tasks.iter().map(ToString::to_string).collect();
    }
    let bytes: Vec<u8> = tasks.iter().flat_map(|id| id.0).collect();
    json!({"count": tasks.len(), "sha256": Digest::of(&[&bytes]).to_string()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_measured_before_it_is_taken_apart() {
        let raw = |text: String| RawValue::from_string(text).unwrap();
        let long = raw(format!(r#"{{"\ud800":"{}"}}"#, "x".repeat(MAX_PATCH)));
        assert!(patch(&long).unwrap_err().detail().contains("more than 65536"));
        let half = raw(r#"{"\ud800":1}"#.to_owned());
        assert!(!patch(&half).unwrap_err().detail().contains("more than"));
        let deep = raw(format!("{}1{}", r#"{"a":"#.repeat(17), "}".repeat(17)));
        assert!(patch(&deep).unwrap_err().detail().contains("16 objects"));
    }

    #[test]
    fn what_was_asked_is_told_in_one_form_and_fits_an_event_however_many_tasks_it_names() {
        let states = vec![StatusKind::Orphaned];
        let few = Select { states: states.clone(), tasks: vec![ReachId([1; 16])], ..Select::default() };
        let text = told(&few).unwrap();
        assert!(text.starts_with(r#"{"reach_ids":["reach_"#) && text.ends_with(r#""state":["orphaned"]}"#), "{text}");
        let many = (0..10_000_u32).map(|n| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_be_bytes());
            ReachId(id)
        });
        let many = Select { states, tasks: many.collect(), ..Select::default() };
        let text = told(&many).unwrap();
        assert!(text.len() < 200 && text.contains(r#""count":10000"#), "{text}");
    }
}
