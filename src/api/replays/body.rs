//! What an operator orders, checked: the selection, the rate, the word on what may have run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult};
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
use crate::recovery::select::Select;

/// Tasks named one by one at most.
pub(super) const MAX_NAMED: usize = 10_000;
/// Of so many the plan's event says the ids; of more it says how many, and their digest.
const TOLD: usize = 100;
/// What a plan acts on.
const ACTED_ON: [StatusKind; 5] =
    [StatusKind::Orphaned, StatusKind::SlowReach, StatusKind::Failed, StatusKind::DeadLetter, StatusKind::Expired];

/// Which tasks. Every field narrows; at least one is needed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReplaySelect)]
pub(super) struct SelectBody {
    /// In one of these states. Without it: `orphaned`; with `reach_ids`: every state that a plan acts on, which are
    /// `orphaned`, `slow-reach`, `failed`, `dead-letter` and `expired`.
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
    /// Whose last failure is of one of these classes.
    failure_class: Option<Vec<String>>,
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
pub(super) struct PlanBody {
    pub(super) select: SelectBody,
    /// Items a second, 1 to what the whole hub replays; without it the namespace's `replays_per_second`.
    rate_per_s: Option<u32>,
    /// Why, 1 to 1,000 characters: it stands in the ledger beside who.
    reason: Option<String>,
    /// Also those that may have run and are not idempotent.
    #[serde(default)]
    include_ambiguous: bool,
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

/// Why a plan is paused or called off.
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

/// An operator's reason, which there must be.
///
/// # Errors
/// 422 `invalid-field`.
pub(super) fn reason(text: Option<&str>) -> ApiResult<Text> {
    wire::reason("/reason", text)?
        .ok_or_else(|| ApiError::field("/reason", "is missing: say why, it stands in the ledger"))
}

impl PlanBody {
    /// Checks it all; `usual` is the rate of one that names none.
    ///
    /// # Errors
    /// 422 with a pointer to what is wrong.
    pub(super) fn order(&self, app: &App, usual: u32) -> ApiResult<Order> {
        let reason = reason(self.reason.as_deref())?;
        let rate = self.rate_per_s.map_or(Ok(usual), |asked| rate(app, asked))?;
        let select = self.select.select(app)?;
        let told = told(&select)?;
        Ok(Order { told, select, rate, reason, word: word(Some(self.include_ambiguous)) })
    }
}

impl SelectBody {
    fn select(&self, app: &App) -> ApiResult<Select> {
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
            after,
            before,
            tasks: self.named(&mut faults),
        };
        faults.into_result().map_err(invalid)?;
        if select.is_empty() {
            return Err(ApiError::field("/select", "narrows nothing: name at least one thing that the tasks have"));
        }
        if select.states.is_empty() {
            select.states = if select.tasks.is_empty() { vec![StatusKind::Orphaned] } else { ACTED_ON.to_vec() };
        }
        Ok(select)
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
