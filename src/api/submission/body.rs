//! The body of a submission as it comes over the wire. Unknown fields are refused with their path (design 4).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

/// What must be done, by whom it may be done, and how it should be treated.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskBody<'a> {
    /// `domain.task_type`; or name `domain` and `task_type` apart.
    pub capability: Option<String>,
    /// The part before the dot.
    pub domain: Option<String>,
    /// The part after the dot.
    pub task_type: Option<String>,
    /// What is wanted, in words, 1 to 4,096 bytes: routed to a capability if none is named, and the payload if there is none.
    pub text: Option<String>,
    /// Any JSON, at most 1 MiB; handed to the agent as it came.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value, required = false)]
    pub payload: Option<&'a RawValue>,
    /// A reference that is passed on and never opened.
    pub payload_ref: Option<String>,
    /// May it be executed more than once without harm?
    pub idempotent: Option<bool>,
    /// Class of service; `normal` by default.
    pub qos: Option<QosWord>,
    /// Life from the submission, 1 ms to 30 days; 24 h by default.
    pub lifetime_ms: Option<u64>,
    /// An absolute end, RFC 3339 with an offset; with `lifetime_ms` the earlier holds.
    pub deadline: Option<String>,
    /// Not before this moment, RFC 3339 with an offset.
    pub not_before: Option<String>,
    /// Time to connect and acknowledge; 3,000 by default.
    pub reach_timeout_ms: Option<u64>,
    /// Time to work from the acknowledgement; 60,000 by default.
    pub work_timeout_ms: Option<u64>,
    /// Retry budget and spacing.
    pub retry: Option<RetryBody>,
    /// Causes that are retried for idempotent tasks; `["reported"]` by default.
    pub retry_on: Option<Vec<RetryWord>>,
    /// What happens when it is slow.
    pub slow_reach: Option<SlowBody>,
    /// What happens when its agent is lost.
    pub orphan: Option<OrphanWord>,
    /// What happens when the wait budget is spent.
    pub on_wait: Option<OnWaitWord>,
    /// Tasks of one session stay together and in order.
    pub session_id: Option<String>,
    /// A reference to context, passed on and never expanded.
    pub context_path: Option<String>,
    /// At most 32 labels.
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    pub labels: Option<Labels>,
    /// The task that this one is part of: its deadline holds for this one too.
    pub parent: Option<ParentBody>,
    /// What the queue is shared fairly by; the token by default.
    pub fairness_key: Option<String>,
    /// The most that it may cost, in the unit that agents report.
    pub cost_budget: Option<u64>,
    /// Sensitivity label, passed on.
    pub sensitivity: Option<String>,
    /// What an agent must have.
    pub requires: Option<RequiresBody>,
    /// Asked for by name.
    pub preferred_agent: Option<String>,
    /// Queue even if nobody offers the capability yet.
    pub wait_for_agent: Option<bool>,
    /// Whom to tell.
    pub callback: Option<CallbackBody>,
    /// Against double submission, 1 to 255 bytes; the same as the `Idempotency-Key` header.
    pub idempotency_key: Option<String>,
}

impl TaskBody<'_> {
    /// What the agent gets: the payload, or the text in an object of its own.
    pub(crate) fn payload_or_text(&self) -> Option<Cow<'_, RawValue>> {
        match (self.payload, &self.text) {
            (Some(payload), _) => Some(Cow::Borrowed(payload)),
            (None, Some(text)) if self.payload_ref.is_none() => {
                to_raw_value(&json!({"text": text})).ok().map(Cow::Owned)
            }
            (None, _) => None,
        }
    }
}

/// Class of service.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QosWord {
    /// May wait 3 s.
    Urgent,
    /// May wait 20 s.
    Normal,
    /// No bound.
    Background,
}

/// Retry budget and spacing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// 0 to 100; 3 by default.
    pub max_retries: Option<u32>,
    /// Shortest delay; 2,000 by default.
    pub base_ms: Option<u64>,
    /// Growth a retry, 1 to 100; 2.0 by default.
    pub factor: Option<f64>,
    /// Longest delay; 300,000 by default.
    pub cap_ms: Option<u64>,
}

/// A cause that is retried.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RetryWord {
    /// The agent said that a retry makes sense.
    Reported,
    /// It may have started, nobody knows.
    Ambiguous,
    /// It is over its work time.
    Overdue,
}

/// What happens when the task is slow.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SlowBody {
    /// `wait`, `hand-over` (idempotent tasks only) or `fail`.
    pub policy: SlowWord,
    /// After how long in `slow-reach`.
    pub after_ms: Option<u64>,
}

/// The three ways to treat a slow task.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SlowWord {
    /// For the late result until the deadline.
    Wait,
    /// To another agent.
    HandOver,
    /// Give up.
    Fail,
}

/// What happens to an orphan.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OrphanWord {
    /// Replay it at the paced rate.
    Replay,
    /// Hold it for an operator's word.
    Hold,
}

/// What happens when the wait budget is spent.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnWaitWord {
    /// It stays queued.
    Keep,
    /// It fails.
    Fail,
    /// As `fail`: no capability can declare a degraded answer yet.
    Degrade,
}

/// The task that this one is part of.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ParentBody {
    /// Its id.
    pub reach_id: String,
}

/// What an agent must have.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequiresBody {
    /// Tools that must all be there.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Smallest context window.
    pub context_window: Option<u32>,
    /// Languages that must all be there.
    #[serde(default)]
    pub languages: Vec<String>,
    /// The agent's region.
    pub region: Option<String>,
    /// A semver requirement on the agent's version.
    pub version: Option<String>,
}

/// Where to call back, and for what.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallbackBody {
    /// An absolute http or https URL.
    pub url: String,
    /// For which events; `["terminal"]` by default.
    pub events: Option<Vec<CallbackWord>>,
    /// Name of the signing secret; the namespace's `default` when none is named.
    pub secret_ref: Option<String>,
}

/// An event that calls back.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CallbackWord {
    /// Any terminal event.
    Terminal,
    /// It became slow.
    Slow,
    /// A retry waits.
    Retrying,
    /// A stage was reported.
    Progress,
    /// Its wait budget is spent.
    Overdue,
    /// Its agent is gone.
    Orphaned,
}

/// Labels in the caller's order; a label that stands twice is refused.
#[derive(Debug, Default)]
pub(crate) struct Labels(pub Vec<(String, String)>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LabelsVisitor;
        impl<'de> serde::de::Visitor<'de> for LabelsVisitor {
            type Value = Labels;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object whose values are strings")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut entries: A) -> Result<Labels, A::Error> {
                let mut labels: Vec<(String, String)> = Vec::new();
                while let Some((key, value)) = entries.next_entry::<String, String>()? {
                    if labels.len() >= super::MAX_LABELS {
                        return Err(serde::de::Error::custom(format_args!("more than {} labels", super::MAX_LABELS)));
                    }
                    if labels.iter().any(|(known, _)| *known == key) {
                        return Err(serde::de::Error::custom(format_args!("the label {key:?} stands twice")));
                    }
                    labels.push((key, value));
                }
                Ok(Labels(labels))
            }
        }
        deserializer.deserialize_map(LabelsVisitor)
    }
}
