//! Reading agents (R-REG-11): a list in pages, and one with all that is known of it.

use std::ops::Bound;
use std::sync::Arc;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::breakers::BreakerView;
use crate::api::App;
use crate::api::error::ApiResult;
use crate::api::extract::{Caller, Id, Json, NoQuery, Query, wrong};
use crate::api::list::only;
use crate::api::wire::{Cursor, PAGE_BYTES, Page, ROW_BYTES, page_size};
use crate::ledger::ids::{AgentId, AgentKey, Capability, Namespace};
use crate::ledger::machine::State as Ledgered;
use crate::ledger::machine::access::Scope;
use crate::ledger::machine::agent::{Agent, Standing, Transport};
use crate::ledger::store::BodyKey;

/// Agents looked at in one question to the sequencer; a filter that finds fewer goes on from there.
const LOOKED_AT: usize = 1_000;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Filter {
    /// Only agents that offer it.
    capability: Option<String>,
    /// `healthy`, `unhealthy` or `lost`.
    health: Option<String>,
    /// `active`, `draining`, `offline` or `deregistered`; default: all but the last two.
    standing: Option<String>,
    /// 1 to 500; default 50.
    limit: Option<usize>,
    cursor: Option<String>,
}

/// One agent in a list.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Summary {
    agent_id: String,
    incarnation: u32,
    version: Option<String>,
    region: Option<String>,
    health: &'static str,
    standing: &'static str,
    transport: &'static str,
    capabilities: Vec<String>,
    /// Tasks whose valid lease is with it.
    held: usize,
    /// Slots taken, those of ended tasks that it has not let go of included.
    slots_used: usize,
    max_concurrency: u32,
    #[schema(format = DateTime)]
    registered_at: String,
}

impl Summary {
    fn of(agent: &Agent) -> Self {
        let declared = &agent.declaration;
        Self {
            agent_id: agent.id().to_string(),
            incarnation: agent.incarnation.0,
            version: declared.version.as_deref().map(str::to_owned),
            region: declared.region.as_deref().map(str::to_owned),
            health: agent.health.name(),
            standing: agent.standing.name(),
            transport: match declared.transport {
                Transport::Pull => "pull",
                Transport::Http { .. } => "http",
            },
            capabilities: declared.offers.iter().map(|offer| offer.capability.to_string()).collect(),
            held: agent.held.len(),
            slots_used: agent.slots_used(),
            max_concurrency: declared.max_concurrency,
            registered_at: agent.registered_at.to_string(),
        }
    }
}

impl Summary {
    /// About how much it is in an answer.
    fn bytes(&self) -> usize {
        ROW_BYTES + self.capabilities.iter().map(String::len).sum::<usize>()
    }
}

/// What narrows a list, checked.
#[derive(Clone)]
struct Narrow {
    capability: Option<Capability>,
    health: Option<Arc<str>>,
    standing: Option<Arc<str>>,
}

impl Narrow {
    fn of(filter: &Filter) -> ApiResult<Self> {
        let capability = filter.capability.as_deref();
        let capability =
            capability.map(|text| Capability::new(text).map_err(|why| wrong("capability", Some(text), why)));
        let capability = capability.transpose()?;
        for (name, word, choice) in [
            ("health", filter.health.as_deref(), ["healthy", "unhealthy", "lost"].as_slice()),
            ("standing", filter.standing.as_deref(), &["active", "draining", "offline", "deregistered"]),
        ] {
            word.map_or(Ok(()), |word| only(name, word, choice))?;
        }
        Ok(Self {
            capability,
            health: filter.health.as_deref().map(Into::into),
            standing: filter.standing.as_deref().map(Into::into),
        })
    }

    fn takes(&self, agent: &Agent) -> bool {
        let stands = match (&self.standing, agent.standing) {
            (Some(name), standing) => standing.name() == &**name,
            (None, Standing::Active | Standing::Draining { .. }) => true,
            (None, Standing::Offline | Standing::Deregistered) => false,
        };
        stands
            && self.health.as_ref().is_none_or(|name| agent.health.name() == &**name)
            && self.capability.as_ref().is_none_or(|capability| agent.offer(capability).is_some())
    }
}

/// Agents by id.
#[utoipa::path(get, path = "/v1/agents", operation_id = "list_agents", tag = "agents", params(Filter),
    responses((status = 200, body = Page<Summary>)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<Filter>,
) -> ApiResult<Json<Page<Summary>>> {
    caller.require(Scope::Read)?;
    let limit = page_size(filter.limit)?;
    let narrow = Narrow::of(&filter)?;
    let cursors = Cursor::over(
        "agents",
        &format!("{}|{:?}|{:?}|{:?}", caller.namespace, filter.capability, filter.health, filter.standing),
    );
    let mut after = match cursors.position(filter.cursor.as_deref())? {
        None => None,
        Some(position) => Some(
            AgentId::new(&position)
                .map_err(|_| wrong("cursor", filter.cursor.as_deref(), "one that this list has given"))?,
        ),
    };
    let (mut items, mut bytes) = (Vec::new(), 0);
    loop {
        let (namespace, narrow, from) = (caller.namespace.clone(), narrow.clone(), after.take());
        let left = Left { rows: limit - items.len(), bytes: PAGE_BYTES.saturating_sub(bytes) };
        let (found, last) = app.ledger.ask(move |state| look(state, &namespace, &narrow, from, left)).await?;
        bytes += found.iter().map(Summary::bytes).sum::<usize>();
        items.extend(found);
        after = last;
        if after.is_none() || items.len() >= limit || bytes >= PAGE_BYTES {
            break;
        }
    }
    Ok(Json(Page { items, next_cursor: after.map(|id| cursors.after(id.as_str())) }))
}

/// What a page still takes.
#[derive(Debug, Clone, Copy)]
struct Left {
    rows: usize,
    bytes: usize,
}

/// Agents that fit, as many as the page takes, and where to go on; `None` at the end.
fn look(
    state: &Ledgered,
    namespace: &Namespace,
    narrow: &Narrow,
    after: Option<AgentId>,
    left: Left,
) -> (Vec<Summary>, Option<AgentId>) {
    let (mut found, mut bytes) = (Vec::new(), 0);
    let first = match after {
        Some(agent_id) => Bound::Excluded(AgentKey { namespace: namespace.clone(), agent_id }),
        // The first character of the alphabet alone: the least id that there can be.
        None => match AgentId::new("-") {
            Ok(agent_id) => Bound::Included(AgentKey { namespace: namespace.clone(), agent_id }),
            Err(_) => return (found, None),
        },
    };
    let agents = state.agents().range((first, Bound::Unbounded));
    for (looked, (key, agent)) in agents.take_while(|(key, _)| key.namespace == *namespace).enumerate() {
        if narrow.takes(agent) {
            let summary = Summary::of(agent);
            bytes += summary.bytes();
            found.push(summary);
        }
        if found.len() >= left.rows || bytes >= left.bytes || looked + 1 >= LOOKED_AT {
            return (found, Some(key.agent_id.clone()));
        }
    }
    (found, None)
}

/// One agent with all that is known of it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Detail {
    #[serde(flatten)]
    summary: Summary,
    namespace: String,
    instance: Option<String>,
    /// End of the drain's grace.
    #[schema(format = DateTime)]
    drain_until: Option<String>,
    /// When it last came back after a loss.
    #[schema(format = DateTime)]
    returned_at: Option<String>,
    heartbeat_interval_ms: u64,
    max_pending: u32,
    priority: u32,
    /// As it was declared, but for its endpoint.
    #[schema(value_type = Object)]
    declaration: Value,
    /// Breakers that are not simply closed: what the agent gets no tasks of, or what an operator holds.
    breakers: Vec<BreakerView>,
    #[serde(flatten)]
    pulse: super::pulse::Pulse,
}

/// One agent, whatever its standing.
#[utoipa::path(get, path = "/v1/agents/{agent_id}", operation_id = "get_agent", tag = "agents", params(("agent_id" = String, Path)),
    responses((status = 200, body = Detail)))]
pub(super) async fn one(
    State(app): State<App>,
    caller: Caller,
    Id(agent_id): Id<AgentId>,
    _: NoQuery,
) -> ApiResult<Json<Detail>> {
    caller.require(Scope::Read)?;
    let key = caller.agent_key(agent_id);
    let asked = key.clone();
    let question = move |state: &Ledgered| Some((state.agent(&asked).cloned()?, BreakerView::all_of(state, &asked)));
    let Some((agent, breakers)) = app.ledger.ask(question).await? else {
        return Err(super::absent::unknown(&app, &caller, &key.agent_id).await);
    };
    let body = app.ledger.body(BodyKey::Named(agent.declaration.body)).await?;
    let mut declaration: Value = body.and_then(|body| serde_json::from_slice(&body.bytes).ok()).unwrap_or_default();
    if let Some(transport) = declaration.get_mut("transport").and_then(Value::as_object_mut) {
        // Endpoints are never shown (semantics 39).
        transport.remove("endpoint");
    }
    let pulse = super::pulse::of(&app, key).await?;
    let declared = &agent.declaration;
    Ok(Json(Detail {
        summary: Summary::of(&agent),
        namespace: caller.namespace.to_string(),
        instance: agent.instance.as_deref().map(str::to_owned),
        drain_until: match agent.standing {
            Standing::Draining { until } => Some(until.to_string()),
            Standing::Active | Standing::Offline | Standing::Deregistered => None,
        },
        returned_at: agent.returned_at.map(|at| at.to_string()),
        heartbeat_interval_ms: declared.heartbeat_interval.0,
        max_pending: declared.max_pending,
        priority: declared.priority,
        declaration,
        breakers,
        pulse,
    }))
}
