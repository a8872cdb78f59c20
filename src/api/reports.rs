//! What agents say about attempts that they hold, from JSON to the ledger's [`Report`]: one shape for single calls,
//! bulk reports and the reports inside a claim.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Number;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::ledger::handle::{Intake, Verdict};
use crate::ledger::ids::{AgentId, AttemptNo, Digest, Incarnation, ReachId};
use crate::ledger::keys::LeaseToken;
use crate::ledger::machine::command::{Command, Report, Retryable, Word};
use crate::ledger::machine::decision::{Answer, Coalesced};
use crate::ledger::machine::event::AlreadyDone;
use crate::ledger::machine::task::spec::Text;
use crate::ledger::machine::task::{Failure, FailureClass};
use crate::ledger::store::{Body, BodyKey, BodyKind};
use crate::ledger::time::Millis;

use super::error::{ApiError, ApiResult, Code};
use super::extract::{Caller, parse_checked};
use super::render;
use super::submission::Faults;
use super::submit::{invalid, salted, unexpected};
use super::wire::ReceiptBody;
use crate::ledger::canonical;

/// The largest result (semantics 32).
pub(super) const MAX_RESULT: usize = 1 << 20;
/// The largest error message and progress data, in bytes.
pub(super) const MAX_DETAIL: usize = 64 << 10;
/// The longest stage, in bytes.
const MAX_STAGE: usize = 128;
/// Names in one usage report.
const MAX_USAGE: usize = 32;
/// Reports in one call.
pub(super) const MAX_REPORTS: usize = 1_024;

/// One report. A single call names op and task in its path, and the agent in the body; in bulk it is the other way
/// round.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportBody<'a> {
    /// In bulk: what is said.
    pub op: Option<Op>,
    /// In bulk: of which task.
    pub reach_id: Option<String>,
    /// In a single call: who says it.
    pub agent_id: Option<String>,
    /// In a single call: which process of it.
    pub incarnation: Option<u32>,
    /// Of which attempt.
    pub attempt: u32,
    /// The lease that came with the task.
    pub lease: String,
    /// progress: the stage, at most 128 bytes.
    pub stage: Option<String>,
    /// progress: 0 to 100.
    pub percent: Option<u8>,
    /// progress: anything, at most 64 KiB.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value, required = false)]
    pub data: Option<&'a RawValue>,
    /// complete: the result, any JSON of at most 1 MiB.
    #[serde(borrow)]
    #[schema(value_type = serde_json::Value, required = false)]
    pub result: Option<&'a RawValue>,
    /// complete: cost and usage by name; numbers from 0 to 10¹², kept to the millionth.
    #[schema(value_type = Option<BTreeMap<String, f64>>)]
    pub usage: Option<BTreeMap<String, Number>>,
    /// fail: `{"code","message"}`.
    #[serde(borrow)]
    #[schema(value_type = Option<ErrorBody>)]
    pub error: Option<&'a RawValue>,
    /// fail: may another try help? `false` by default.
    pub retryable: Option<bool>,
    /// fail and release: not earlier than this; cut at 1 h.
    pub retry_after_ms: Option<u64>,
}

/// What went wrong, in the agent's words.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorBody {
    /// A stable word, at most 128 bytes.
    code: String,
    /// Free text, at most 64 KiB.
    message: Option<String>,
}

/// The five things that an agent can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Op {
    /// It starts now.
    Ack,
    /// It reached a stage.
    Progress,
    /// It succeeded.
    Complete,
    /// It failed.
    Fail,
    /// It gives the task back.
    Release,
}

/// Who reports.
#[derive(Debug, Clone)]
pub(super) struct Reporter {
    /// Which agent.
    pub agent: AgentId,
    /// Which process of it.
    pub incarnation: Incarnation,
}

/// Was a result too large to be kept? Then the task fails, and the agent is told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// It fits.
    Fits,
    /// It does not.
    TooLarge,
}

/// A report ready to be proposed.
pub(super) struct Prepared {
    /// The proposal with its bodies.
    pub intake: Intake,
    /// Whether the result had to be left out.
    pub size: Size,
}

/// Makes a proposal of a report.
///
/// # Errors
/// 422 with the fields at fault.
pub(super) fn prepare(
    caller: &Caller,
    who: &Reporter,
    op: Op,
    task: ReachId,
    body: &ReportBody<'_>,
) -> ApiResult<Prepared> {
    let mut faults = Faults::default();
    only_its_own(op, body, &mut faults);
    if body.attempt == 0 {
        faults.add("/attempt", "attempts count from 1");
    }
    let mut bodies: Vec<(BodyKey, Body)> = Vec::new();
    let mut size = Size::Fits;
    let word = match op {
        Op::Ack => Word::Ack,
        Op::Progress => progress(task, body, &mut faults, &mut bodies)?,
        Op::Complete => {
            if body.result.is_some_and(|raw| raw.get().len() > MAX_RESULT) {
                size = Size::TooLarge;
            }
            match size {
                Size::Fits => complete(task, body, &mut faults, &mut bodies)?,
                Size::TooLarge => too_large(task, body, &mut bodies)?,
            }
        }
        Op::Fail => fail(task, body, &mut faults, &mut bodies)?,
        Op::Release => Word::Release { digest: Digest::of(&[b"{}"]), retry_after: body.retry_after_ms.map(Millis) },
    };
    faults.into_result().map_err(invalid)?;
    let report = Report {
        task,
        agent: who.agent.clone(),
        incarnation: who.incarnation,
        attempt: AttemptNo(body.attempt),
        lease: LeaseToken::digest_of(&body.lease),
        word,
        fact: None,
    };
    let proposal = caller.agent_proposal(who.agent.clone(), who.incarnation, Command::Report(Box::new(report)));
    Ok(Prepared { intake: Intake { proposal, bodies }, size })
}

/// A field of another op is a mistake that would otherwise be lost in silence.
fn only_its_own(op: Op, body: &ReportBody<'_>, faults: &mut Faults) {
    let named = [
        ("/stage", body.stage.is_some(), op == Op::Progress),
        ("/percent", body.percent.is_some(), op == Op::Progress),
        ("/data", body.data.is_some(), op == Op::Progress),
        ("/result", body.result.is_some(), op == Op::Complete),
        ("/usage", body.usage.is_some(), op == Op::Complete),
        ("/error", body.error.is_some(), op == Op::Fail),
        ("/retryable", body.retryable.is_some(), op == Op::Fail),
        ("/retry_after_ms", body.retry_after_ms.is_some(), matches!(op, Op::Fail | Op::Release)),
    ];
    for (pointer, given, fits) in named {
        if given && !fits {
            faults.add(pointer, "does not belong to this report");
        }
    }
}

fn progress(
    task: ReachId,
    body: &ReportBody<'_>,
    faults: &mut Faults,
    bodies: &mut Vec<(BodyKey, Body)>,
) -> ApiResult<Word> {
    let stage = faults.text("/stage", body.stage.as_deref(), MAX_STAGE);
    if body.percent.is_some_and(|percent| percent > 100) {
        faults.add("/percent", "is above 100");
    }
    let data = match body.data {
        None => None,
        Some(raw) if raw.get().len() > MAX_DETAIL => {
            faults.add("/data", format!("has {} bytes; at most {MAX_DETAIL}", raw.get().len()));
            None
        }
        Some(raw) => Some(keep(task, BodyKind::Progress, body.attempt, raw.get(), bodies)?),
    };
    Ok(Word::Progress { stage, percent: body.percent, data })
}

fn keep(
    task: ReachId,
    kind: BodyKind,
    attempt: u32,
    text: &str,
    bodies: &mut Vec<(BodyKey, Body)>,
) -> ApiResult<crate::ledger::machine::task::spec::BodyRef> {
    let (named, body) = salted(text.as_bytes())?;
    bodies.push((render::body_key(task, kind, attempt), body));
    Ok(named)
}

fn complete(
    task: ReachId,
    body: &ReportBody<'_>,
    faults: &mut Faults,
    bodies: &mut Vec<(BodyKey, Body)>,
) -> ApiResult<Word> {
    let digest = canonical_digest(body.result, "/result", faults);
    let result = match body.result {
        None => None,
        Some(raw) => Some(keep(task, BodyKind::Result, body.attempt, raw.get(), bodies)?),
    };
    let usage = body.usage.as_ref().map_or_else(Vec::new, |usage| {
        if usage.len() > MAX_USAGE {
            faults.add("/usage", format!("has {} names; at most {MAX_USAGE}", usage.len()));
        }
        let pairs = usage.iter().take(MAX_USAGE);
        pairs.filter_map(|(name, amount)| amount_of(name, amount, faults)).collect()
    });
    Ok(Word::Complete { result, digest, usage, already_done: AlreadyDone::No })
}

/// One name with its amount in millionths.
fn amount_of(name: &str, amount: &Number, faults: &mut Faults) -> Option<(Text, u64)> {
    let millionths = render::millionths(amount);
    if millionths.is_none() {
        faults.add(&format!("/usage/{name}"), "is a number from 0 to 1000000000000");
    }
    Some((faults.text("/usage", Some(name), MAX_STAGE)?, millionths?))
}

/// The result does not fit: the task fails once and for all instead of being tried for ever.
fn too_large(task: ReachId, body: &ReportBody<'_>, bodies: &mut Vec<(BodyKey, Body)>) -> ApiResult<Word> {
    let text = body.result.map_or("", |raw| raw.get());
    let message = format!("the result has {} bytes; at most {MAX_RESULT} are kept", text.len());
    let message = keep(task, BodyKind::Error, body.attempt, &message, bodies)?;
    let failure = Failure { class: FailureClass::Policy, code: Text::from("result-too-large"), message: Some(message) };
    Ok(Word::Fail { failure, digest: Digest::of(&[text.as_bytes()]), retryable: Retryable::No, retry_after: None })
}

fn fail(
    task: ReachId,
    body: &ReportBody<'_>,
    faults: &mut Faults,
    bodies: &mut Vec<(BodyKey, Body)>,
) -> ApiResult<Word> {
    let digest = canonical_digest(body.error, "/error", faults);
    let parsed = body.error.map(|raw| parse_checked::<ErrorBody>(raw.get().as_bytes()));
    let ErrorBody { code, message } = match parsed {
        None => {
            faults.add("/error", "is missing: {\"code\", \"message\"}");
            ErrorBody { code: String::new(), message: None }
        }
        Some(Ok(error)) => error,
        Some(Err(error)) => {
            faults.add("/error", error.detail().to_owned());
            ErrorBody { code: "unreadable".to_owned(), message: None }
        }
    };
    let code = faults.text("/error/code", Some(&code), MAX_STAGE).unwrap_or_else(|| Arc::from("unreadable"));
    let message = match message {
        None => None,
        Some(text) if text.len() > MAX_DETAIL => {
            faults.add("/error/message", format!("has {} bytes; at most {MAX_DETAIL}", text.len()));
            None
        }
        Some(text) => Some(keep(task, BodyKind::Error, body.attempt, &text, bodies)?),
    };
    Ok(Word::Fail {
        failure: Failure { class: FailureClass::Business, code, message },
        digest,
        retryable: if body.retryable == Some(true) { Retryable::Yes } else { Retryable::No },
        retry_after: body.retry_after_ms.map(Millis),
    })
}

/// SHA-256 of the canonical JSON; what is absent counts as null (semantics 14).
fn canonical_digest(raw: Option<&RawValue>, pointer: &str, faults: &mut Faults) -> Digest {
    match canonical::canonical(raw.map_or("null", |raw| raw.get()).as_bytes()) {
        Ok(canonical) => Digest::of(&[&canonical]),
        Err(error) => {
            faults.add(pointer, error.to_string());
            Digest::default()
        }
    }
}

/// A report that was taken.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Taken {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
    /// Too soon after the last progress: remembered, not written.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    coalesced: bool,
}

/// What a report is answered.
///
/// # Errors
/// Why it was refused; 413 `result-too-large` after the task has failed for it.
pub(super) fn taken(verdict: Verdict, size: Size) -> ApiResult<Taken> {
    let released = verdict?;
    match (released.answer, size) {
        (Answer::Reported { state, receipt: _, coalesced }, Size::Fits) => Ok(Taken {
            state: state.name(),
            receipt: released.receipt.map(ReceiptBody::from),
            coalesced: coalesced == Coalesced::Yes,
        }),
        (Answer::Reported { state, .. }, Size::TooLarge) => {
            Err(ApiError::new(Code::ResultTooLarge, format!("a result has at most {MAX_RESULT} bytes"))
                .at("/result", "is too large")
                .fact("limit", MAX_RESULT)
                .fact("state", state.name()))
        }
        (other, _) => Err(unexpected(&other)),
    }
}

/// What became of one report in bulk.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Outcome {
    reach_id: String,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<ReceiptBody>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    coalesced: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<crate::api::error::ProblemSchema>)]
    problem: Option<ApiError>,
}

impl Outcome {
    /// The outcome of one report; `shown` is the id as the agent wrote it.
    pub(super) fn new(shown: String, result: ApiResult<Taken>) -> Self {
        match result {
            Ok(Taken { state, receipt, coalesced }) => {
                Self { reach_id: shown, status: 200, state: Some(state), receipt, coalesced, code: None, problem: None }
            }
            Err(error) => Self {
                reach_id: shown,
                status: error.status().as_u16(),
                state: None,
                receipt: None,
                coalesced: false,
                code: Some(error.code().name()),
                problem: Some(error),
            },
        }
    }
}
