//! The registration on the wire (R-REG-1, R-REG-2) and what the core keeps of it.
//!
//! The whole declaration lies beside the log, byte for byte as it came, and is named by its digest; rules and routing
//! need only the compact [`Declaration`]. Schemas are bodies of their own, so that equal ones are kept and compiled once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::near::one_of;
use crate::ledger::ids::{Capability, Digest, TokenId};
use crate::ledger::machine::agent::{
    CapabilityKind, DEFAULT_CONCURRENCY, DEFAULT_PRIORITY, DEFAULT_WEIGHT, Declaration, MAX_CAPABILITIES,
    MAX_CONCURRENCY, MAX_PENDING, Offer, ProgressRule, Sensitive, Strategy, Transport,
};
use crate::ledger::machine::task::spec::Text;
use crate::ledger::time::Millis;
use crate::scheduler::routing::semantic::MAX_EXAMPLES;

/// The longest example that is a text, in bytes.
const MAX_EXAMPLE: usize = 1_024;

/// A registration.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Register {
    /// Stable and immutable, `[A-Za-z0-9._:-]{1,128}`.
    pub agent_id: String,
    /// Random for each process; the same one keeps its incarnation.
    pub instance: Option<String>,
    pub name: Option<String>,
    pub version: Option<String>,
    pub owner: Option<String>,
    pub contact: Option<String>,
    pub capabilities: Vec<CapabilityBody>,
    pub transport: TransportBody,
    pub health: Option<HealthBody>,
    /// 1 to 10,000; default 10.
    pub max_concurrency: Option<u32>,
    /// Tasks that wait for it or are with it, 1 to 1,000,000; by default only the lanes are bounded. The sum over all
    /// who offer a capability bounds that capability.
    pub max_pending: Option<u32>,
    /// 0 to 1,000; default 100.
    pub priority: Option<u32>,
    /// Default weight of its capabilities, 1 to 1,000; default 10.
    pub weight: Option<u32>,
    pub access: Option<AccessBody>,
    /// `region` takes part in routing; the rest is kept.
    #[schema(value_type = Option<Object>)]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// Kept as it is.
    #[schema(value_type = Option<Object>)]
    #[expect(dead_code, reason = "taken and checked; it is kept with the whole declaration")]
    pub ext: Option<Map<String, Value>>,
}

/// One capability: name it, or its two parts.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CapabilityBody {
    pub capability: Option<String>,
    pub domain: Option<String>,
    pub task_type: Option<String>,
    pub id: Option<String>,
    /// `tool`, `service`, `subagent` or `skill`; default `service`.
    pub kind: Option<String>,
    pub name: Option<String>,
    pub description: Option<String>,
    /// `domain/verb/object`.
    pub tags: Option<Vec<String>>,
    pub aliases: Option<Vec<String>>,
    /// At most 256. Texts, of at most 1,024 bytes, are what callers say who want it: from eight on it is learned from them.
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    pub examples: Option<Vec<Value>>,
    #[schema(value_type = Option<Object>)]
    pub input_schema: Option<Box<RawValue>>,
    #[schema(value_type = Option<Object>)]
    pub output_schema: Option<Box<RawValue>>,
    pub output_format: Option<String>,
    pub languages: Option<Vec<String>>,
    pub tools: Option<Vec<String>>,
    pub context_window: Option<u32>,
    /// 1 to 1,000.
    pub weight: Option<u32>,
    /// 0 to 1,000.
    pub priority: Option<u32>,
    /// `weighted-round-robin`, `least-loaded`, `consistent-hash` or `scored`; what most agents of a capability ask for
    /// holds, unless rules say otherwise.
    pub strategy: Option<String>,
    /// A JSON Schema that the payload must pass beside `input_schema`.
    #[schema(value_type = Option<Object>)]
    pub constraints: Option<Box<RawValue>>,
    /// Does task progress extend the work time?
    pub progress_extends: Option<bool>,
    /// Do its tasks wait for a person's word?
    pub sensitive: Option<bool>,
}

/// How the hub reaches the agent.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum TransportBody {
    /// The agent claims work.
    Pull {},
    /// The hub posts to the endpoint.
    Http { endpoint: String },
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HealthBody {
    /// 100 to 3,600,000; default 5,000.
    pub interval_ms: Option<u64>,
    /// A path on the endpoint's origin. It is kept with the declaration and not called yet: only heartbeats and other
    /// calls count as signs of life.
    pub probe: Option<String>,
    /// Above 0, at most 1; default 0.9.
    pub load_threshold: Option<f64>,
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccessBody {
    /// Public ids of tokens; empty means every caller of the namespace.
    pub allowed_callers: Option<Vec<String>>,
}

/// A schema that the declaration names: its digest, its bytes, where it stands in the body.
#[derive(Debug, Clone)]
pub(super) struct NamedSchema {
    pub digest: Digest,
    pub bytes: Box<str>,
    pub pointer: String,
}

/// The compact declaration and the schemas that it names.
#[derive(Debug)]
pub(super) struct Declared {
    pub declaration: Declaration,
    pub schemas: Vec<NamedSchema>,
}

impl Register {
    /// Checks every field and keeps what rules and routing need. `body` is the digest of the whole.
    pub(super) fn declare(&self, body: Digest) -> ApiResult<Declared> {
        for (name, value) in
            [("name", &self.name), ("owner", &self.owner), ("contact", &self.contact), ("version", &self.version)]
        {
            short_text(&format!("/{name}"), value.as_deref(), 256)?;
        }
        let mut schemas = Vec::new();
        let offers = self.offers(&mut schemas)?;
        let health = self.health.as_ref();
        let region = match self.metadata.as_ref().and_then(|metadata| metadata.get("region")) {
            None => None,
            Some(Value::String(region)) => {
                short_text("/metadata/region", Some(region), 128)?;
                Some(Text::from(region.as_str()))
            }
            Some(_) => return Err(ApiError::field("/metadata/region", "expected a string")),
        };
        let declaration = Declaration {
            version: self.version.as_deref().map(Text::from),
            region,
            offers,
            transport: self.transport()?,
            heartbeat_interval: Millis(within(
                "/health/interval_ms",
                health.and_then(|h| h.interval_ms).unwrap_or(5_000),
                100,
                3_600_000,
            )?),
            max_concurrency: bounded(
                "/max_concurrency",
                self.max_concurrency,
                DEFAULT_CONCURRENCY,
                (1, MAX_CONCURRENCY),
            )?,
            max_pending: bounded("/max_pending", self.max_pending, MAX_PENDING, (1, MAX_PENDING))?,
            priority: bounded("/priority", self.priority, DEFAULT_PRIORITY, (0, 1_000))?,
            load_threshold_milli: load_threshold(health.and_then(|h| h.load_threshold))?,
            allowed_callers: self.allowed_callers()?,
            body,
        };
        Ok(Declared { declaration, schemas })
    }

    fn transport(&self) -> ApiResult<Transport> {
        if self.health.as_ref().and_then(|h| h.probe.as_deref()).is_some_and(|path| !is_plain_path(path)) {
            return Err(ApiError::field("/health/probe", "expected a plain path that begins with one /"));
        }
        match &self.transport {
            TransportBody::Pull {} => Ok(Transport::Pull),
            TransportBody::Http { endpoint } => {
                short_text("/transport/endpoint", Some(endpoint), 2_048)?;
                Ok(Transport::Http { endpoint: endpoint.as_str().into() })
            }
        }
    }

    fn allowed_callers(&self) -> ApiResult<Vec<TokenId>> {
        let callers = self.access.as_ref().and_then(|access| access.allowed_callers.as_deref()).unwrap_or_default();
        at_most("/access/allowed_callers", callers.len(), 256)?;
        let parse = |(index, id): (usize, &String)| {
            TokenId::new(id).map_err(|e| ApiError::field(format!("/access/allowed_callers/{index}"), e.to_string()))
        };
        callers.iter().enumerate().map(parse).collect()
    }

    fn offers(&self, schemas: &mut Vec<NamedSchema>) -> ApiResult<Vec<Offer>> {
        if self.capabilities.is_empty() {
            return Err(ApiError::field("/capabilities", "an agent offers at least one capability"));
        }
        at_most("/capabilities", self.capabilities.len(), MAX_CAPABILITIES)?;
        let weight = bounded("/weight", self.weight, DEFAULT_WEIGHT, (1, 1_000))?;
        let priority = bounded("/priority", self.priority, DEFAULT_PRIORITY, (0, 1_000))?;
        let mut offers: Vec<Offer> = Vec::with_capacity(self.capabilities.len());
        for (index, body) in self.capabilities.iter().enumerate() {
            let at = format!("/capabilities/{index}");
            let offer = body.offer(&at, (weight, priority), schemas)?;
            if offers.iter().any(|other| other.capability == offer.capability) {
                return Err(ApiError::field(format!("{at}/capability"), "this capability is declared twice"));
            }
            offers.push(offer);
        }
        Ok(offers)
    }
}

impl CapabilityBody {
    fn offer(&self, at: &str, defaults: (u32, u32), schemas: &mut Vec<NamedSchema>) -> ApiResult<Offer> {
        self.check_texts(at)?;
        let mut named = Vec::new();
        for (field, schema) in [("input_schema", &self.input_schema), ("constraints", &self.constraints)] {
            if let Some(schema) = schema {
                let kept = keep_schema(format!("{at}/{field}"), schema, schemas);
                if !named.contains(&kept) {
                    named.push(kept);
                }
            }
        }
        if let Some(schema) = &self.output_schema {
            // Compiled and kept like the others, but it judges results, not payloads.
            keep_schema(format!("{at}/output_schema"), schema, schemas);
        }
        named.sort();
        Ok(Offer {
            capability: self.capability(at)?,
            kind: self.kind(at)?,
            schemas: named,
            tools: texts(self.tools.as_deref()),
            languages: texts(self.languages.as_deref()),
            context_window: self.context_window,
            weight: bounded(&format!("{at}/weight"), self.weight, defaults.0, (1, 1_000))?,
            priority: bounded(&format!("{at}/priority"), self.priority, defaults.1, (0, 1_000))?,
            strategy: self.strategy(at)?,
            progress: if self.progress_extends == Some(true) { ProgressRule::Extends } else { ProgressRule::Shows },
            sensitive: if self.sensitive == Some(true) { Sensitive::Yes } else { Sensitive::No },
        })
    }

    fn capability(&self, at: &str) -> ApiResult<Capability> {
        let text = match (&self.capability, &self.domain, &self.task_type) {
            (Some(whole), None, None) => whole.clone(),
            (None, Some(domain), Some(kind)) if !domain.contains('.') => format!("{domain}.{kind}"),
            _ => {
                return Err(ApiError::field(
                    format!("{at}/capability"),
                    "name it as domain.task_type, or as domain (without a dot) and task_type",
                ));
            }
        };
        Capability::new(&text).map_err(|error| ApiError::field(format!("{at}/capability"), error.to_string()))
    }

    fn kind(&self, at: &str) -> ApiResult<CapabilityKind> {
        match self.kind.as_deref() {
            Some("tool") => Ok(CapabilityKind::Tool),
            None | Some("service") => Ok(CapabilityKind::Service),
            Some("subagent") => Ok(CapabilityKind::Subagent),
            Some("skill") => Ok(CapabilityKind::Skill),
            Some(_) => Err(ApiError::field(format!("{at}/kind"), "expected tool, service, subagent or skill")),
        }
    }

    fn strategy(&self, at: &str) -> ApiResult<Option<Strategy>> {
        match self.strategy.as_deref() {
            None => Ok(None),
            Some(word) => {
                let found = one_of(word, &Strategy::ALL, Strategy::name);
                found.map(Some).map_err(|no| no.at(&format!("{at}/strategy")))
            }
        }
    }

    fn check_texts(&self, at: &str) -> ApiResult<()> {
        for (field, text, most) in [
            ("id", &self.id, 128),
            ("name", &self.name, 256),
            ("description", &self.description, 4_096),
            ("output_format", &self.output_format, 256),
        ] {
            short_text(&format!("{at}/{field}"), text.as_deref(), most)?;
        }
        for (field, list, most) in [
            ("tags", &self.tags, 64),
            ("aliases", &self.aliases, 64),
            ("languages", &self.languages, 64),
            ("tools", &self.tools, 256),
        ] {
            let list = list.as_deref().unwrap_or_default();
            at_most(&format!("{at}/{field}"), list.len(), most)?;
            for (index, text) in list.iter().enumerate() {
                short_text(&format!("{at}/{field}/{index}"), Some(text), 128)?;
            }
        }
        for (index, tag) in self.tags.as_deref().unwrap_or_default().iter().enumerate() {
            // R-REG-9: the shape is held; caps per tag are a later policy.
            if tag.split('/').count() != 3 || tag.split('/').any(str::is_empty) {
                return Err(ApiError::field(format!("{at}/tags/{index}"), "a tag is written domain/verb/object"));
            }
        }
        let examples = self.examples.as_deref().unwrap_or_default();
        at_most(&format!("{at}/examples"), examples.len(), MAX_EXAMPLES)?;
        for (index, example) in examples.iter().enumerate() {
            short_text(&format!("{at}/examples/{index}"), example.as_str(), MAX_EXAMPLE)?;
        }
        Ok(())
    }
}

fn keep_schema(pointer: String, schema: &RawValue, schemas: &mut Vec<NamedSchema>) -> Digest {
    let digest = Digest::of(&[schema.get().as_bytes()]);
    if !schemas.iter().any(|kept| kept.digest == digest) {
        schemas.push(NamedSchema { digest, bytes: schema.get().into(), pointer });
    }
    digest
}

fn texts(list: Option<&[String]>) -> Vec<Text> {
    list.unwrap_or_default().iter().map(|text| Text::from(text.as_str())).collect()
}

/// A path that stays on the endpoint's origin and says the same to everybody who reads it (semantics 38): visible ASCII,
/// no step upwards in any spelling, no fragment, no backslash.
fn is_plain_path(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    let is_step = |segment: &str| matches!(&*segment.replace("%2e", "."), "." | "..");
    path.len() <= 1_024
        && path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#'))
        && !["%2f", "%5c", "%00", "%0d", "%0a"].iter().any(|hidden| lower.contains(hidden))
        && !lower.split(['/', '?']).any(is_step)
}

fn load_threshold(threshold: Option<f64>) -> ApiResult<u32> {
    let threshold = threshold.unwrap_or(0.9);
    if !(threshold > 0.0 && threshold <= 1.0) {
        return Err(ApiError::field("/health/load_threshold", "above 0 and at most 1"));
    }
    // Thousandths by comparison: no float is cut to an integer anywhere.
    Ok((1..=1_000u32).find(|milli| f64::from(*milli) >= threshold * 1_000.0 - 0.5).unwrap_or(1_000))
}

fn bounded(pointer: &str, value: Option<u32>, default: u32, (least, most): (u32, u32)) -> ApiResult<u32> {
    let value = value.unwrap_or(default);
    within(pointer, u64::from(value), u64::from(least), u64::from(most))?;
    Ok(value)
}

fn within(pointer: &str, value: u64, least: u64, most: u64) -> ApiResult<u64> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(ApiError::field(pointer, format!("{least} to {most}, this is {value}")))
}

fn at_most(pointer: &str, len: usize, most: usize) -> ApiResult<()> {
    if len <= most {
        return Ok(());
    }
    Err(ApiError::field(pointer, format!("at most {most} items, these are {len}")))
}

fn short_text(pointer: &str, text: Option<&str>, most: usize) -> ApiResult<()> {
    let Some(text) = text else { return Ok(()) };
    if text.len() > most {
        return Err(ApiError::field(pointer, format!("at most {most} bytes")));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(ApiError::new(Code::InvalidField, "control characters are not taken")
            .at(pointer, "holds a control character"));
    }
    Ok(())
}
