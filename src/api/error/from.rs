//! One conversion for each floor below: what the core refuses is the caller's, what the hub can't do is ours.

use crate::ledger::handle::{Refusal, Unavailable};
use crate::ledger::ids::{Digest, IdError};
use crate::ledger::machine::bounds::Bound;
use crate::ledger::machine::decision::{LeaseWhy, Rejection};
use crate::ledger::time::Millis;

use super::{ApiError, Code, Thing};

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Rejected(rejection) => rejection.into(),
            Refusal::Unavailable(why) => why.into(),
        }
    }
}

impl From<Unavailable> for ApiError {
    fn from(why: Unavailable) -> Self {
        let detail = why.to_string();
        match why {
            Unavailable::Busy => Self::new(Code::Busy, detail).retry_after(jittered(1_000)),
            Unavailable::Starting => Self::new(Code::Starting, detail).retry_after(jittered(2_000)),
            Unavailable::Stopping => Self::new(Code::Stopping, detail).retry_after(jittered(5_000)),
            Unavailable::DiskFull => Self::new(Code::DiskFull, detail).retry_after(jittered(30_000)),
            Unavailable::Failed => Self::new(Code::OutcomeUnknown, detail),
            Unavailable::Unreadable(what) => {
                // What a disk says is for the operator's log, not for callers.
                tracing::error!(error = %what, "the ledger could not be read");
                Self::unreadable()
            }
        }
    }
}

/// Between `base` and twice that, so that callers do not come back all at once (proof 3.5).
fn jittered(base: u64) -> Millis {
    let mut byte = [0u8; 1];
    let part = if getrandom::fill(&mut byte).is_ok() { u64::from(byte[0]) } else { 0 };
    Millis(base + base * part / 256)
}

/// A fingerprint as it is shown: 8 hex digits (semantics 31).
fn short(digest: &Digest) -> String {
    digest.to_string().chars().take(8).collect()
}

impl From<Rejection> for ApiError {
    #[expect(clippy::too_many_lines, reason = "the index of every refusal: each arm is one answer")]
    fn from(rejection: Rejection) -> Self {
        match rejection {
            gone @ (Rejection::TaskUnknown
            | Rejection::AgentUnknown
            | Rejection::BatchUnknown
            | Rejection::CallbackUnknown
            | Rejection::TokenUnknown
            | Rejection::ReplayUnknown) => Self::absent(thing_of(&gone)),
            Rejection::IncarnationSuperseded { current } => {
                Self::new(Code::IncarnationSuperseded, format!("incarnation {} holds this agent id now", current.0))
                    .fact("current_incarnation", current.0)
            }
            Rejection::AgentNotRegistered => {
                Self::new(Code::AgentNotRegistered, "it said goodbye, or it was taken out of the registry")
            }
            Rejection::AgentDraining => Self::new(Code::AgentDraining, "it was told to take no new work"),
            Rejection::CapabilityNotRegistered { capability } => {
                Self::new(Code::CapabilityNotRegistered, format!("no agent offers {capability}"))
                    .at("/capability", "not registered")
            }
            Rejection::CapabilityNotAllowed { capability } => {
                Self::new(Code::CapabilityNotAllowed, format!("this token may not call {capability}"))
                    .at("/capability", "not allowed")
            }
            Rejection::PayloadRefused { .. } => {
                Self::new(Code::PayloadRefused, "every schema on offer refuses the payload")
                    .at("/payload", "every schema on offer refuses it")
            }
            Rejection::DeadlinePast { deadline, now } => {
                Self::new(Code::DeadlinePast, format!("the deadline {deadline} is not after {now}"))
                    .at("/deadline", "lies in the past")
            }
            Rejection::NotBeforeAfterDeadline => {
                Self::new(Code::NotBeforeAfterDeadline, "it could never start: its life ends before not_before")
                    .at("/not_before", "lies at or after the deadline")
            }
            Rejection::QueueFull { bound, limit, retry_after } => {
                Self::new(Code::QueueFull, format!("the {bound} bound of {limit} is reached for this class"))
                    .fact("bound", bound)
                    .fact("limit", limit)
                    .retry_after(retry_after)
            }
            Rejection::BoundReached { bound } => bound_reached(bound),
            Rejection::KeyReused { first, this } => key_reused(first.as_ref(), &this),
            Rejection::IdTaken => Self::new(Code::IdTaken, "the id that was drawn for it stands for something else"),
            Rejection::BatchNotOpen { .. } => Self::new(Code::BatchNotOpen, "it takes no more lines"),
            Rejection::CallbackStillDue { .. } => {
                Self::new(Code::CallbackStillDue, "its round of tries is not over: the hub goes on by itself")
            }
            Rejection::TokenTaken { token } => Self::new(Code::IdTaken, format!("the token id {token} is in use")),
            Rejection::DeclarationTooLarge { limit } => {
                Self::new(Code::DeclarationTooLarge, format!("it must encode to at most {limit} bytes"))
            }
            Rejection::NothingToUndo => Self::new(Code::NothingToUndo, "no version before it is kept"),
            Rejection::PolicyInvalid { why } => Self::new(Code::PolicyInvalid, why),
            plan @ (Rejection::NotResolvable { .. }
            | Rejection::NotRedrivable { .. }
            | Rejection::AlreadyRedriven { .. }
            | Rejection::Superseded { .. }
            | Rejection::MayHaveRun
            | Rejection::PayloadErased
            | Rejection::ReplayEmpty
            | Rejection::ReplayTooLarge { .. }
            | Rejection::ReplayRate { .. }
            | Rejection::ReplayEnded { .. }
            | Rejection::ReplayMovedOn { .. }) => no_replay(plan),
            Rejection::NoFreeSlot { agent } => {
                Self::new(Code::NoFreeSlot, format!("{agent} works on as much as it may at a time"))
            }
            Rejection::BreakerOpen { agent, capability } => {
                Self::new(Code::AgentNotOpen, format!("{agent} gets no tasks of {capability} now: its breaker is open"))
            }
            Rejection::CapabilityNotOffered { capability } => {
                Self::new(Code::CapabilityNotOffered, format!("it does not offer {capability}"))
            }
            Rejection::AgentNotOpen { agent } => {
                Self::new(Code::AgentNotOpen, format!("{agent} is draining, gone or silent"))
            }
            report @ (Rejection::LeaseSuperseded { .. }
            | Rejection::OutcomeConflict { .. }
            | Rejection::TaskTerminal { .. }
            | Rejection::AlreadyAcknowledged
            | Rejection::NotAwaitingApproval { .. }
            | Rejection::MovedOn { .. }) => task_conflict(report),
        }
    }
}

/// What there is not.
#[expect(clippy::wildcard_enum_match_arm, reason = "takes over these only; the caller's match has no such arm")]
const fn thing_of(gone: &Rejection) -> Thing {
    match gone {
        Rejection::AgentUnknown => Thing::Agent,
        Rejection::BatchUnknown => Thing::Batch,
        Rejection::CallbackUnknown => Thing::Callback,
        Rejection::TokenUnknown => Thing::Token,
        Rejection::ReplayUnknown => Thing::Replay,
        _ => Thing::Task,
    }
}

/// What a report or an operator's word is answered when the task stands elsewhere (semantics 14).
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "takes over the task's conflicts only; the caller's match has no such arm"
)]
fn task_conflict(rejection: Rejection) -> ApiError {
    match rejection {
        Rejection::LeaseSuperseded { why } => {
            let detail = match why {
                LeaseWhy::Attempt(current) => format!("attempt {} is the current one", current.0),
                LeaseWhy::Token => "the attempt is current, but this is not its lease".to_owned(),
                LeaseWhy::Ended => "the attempt's lease has ended and none is valid now".to_owned(),
                LeaseWhy::Holder => "the lease is held by another agent or a newer incarnation".to_owned(),
            };
            let error = ApiError::new(Code::LeaseSuperseded, detail);
            match why {
                LeaseWhy::Attempt(current) => error.fact("current_attempt", current.0),
                LeaseWhy::Token | LeaseWhy::Ended | LeaseWhy::Holder => error,
            }
        }
        Rejection::OutcomeConflict { first } => {
            ApiError::new(Code::OutcomeConflict, format!("event {first} holds the first outcome")).fact("seq", first.0)
        }
        Rejection::TaskTerminal { state, seq } => {
            ApiError::new(Code::TaskTerminal, format!("it is {} since event {seq}", state.name()))
                .fact("state", state.name())
                .fact("seq", seq.0)
        }
        Rejection::AlreadyAcknowledged => {
            ApiError::new(Code::AlreadyAcknowledged, "its agent said that it starts, so it may have been done")
        }
        Rejection::NotAwaitingApproval { state } => {
            ApiError::new(Code::NotAwaitingApproval, format!("it is {}", state.name())).fact("state", state.name())
        }
        Rejection::MovedOn { state } => {
            ApiError::new(Code::StateChanged, format!("it is {} now", state.name())).fact("state", state.name())
        }
        other => {
            tracing::error!(rejection = ?other, "a rejection without an answer of its own");
            ApiError::internal()
        }
    }
}

/// What an operator is answered who wants something again.
#[expect(clippy::wildcard_enum_match_arm, reason = "takes over these only; the caller's match has no such arm")]
fn no_replay(rejection: Rejection) -> ApiError {
    match rejection {
        Rejection::NotResolvable { state } => ApiError::new(Code::NotResolvable, format!("it is {}", state.name())),
        Rejection::NotRedrivable { state } => {
            ApiError::new(Code::NotRedrivable, format!("it is {}", state.name())).fact("state", state.name())
        }
        Rejection::AlreadyRedriven { successor } => {
            ApiError::new(Code::AlreadyRedriven, format!("it was made anew as {successor}"))
                .fact("redriven_as", successor.to_string())
        }
        Rejection::Superseded { by } => ApiError::new(Code::Superseded, format!("{by} has succeeded since")),
        Rejection::MayHaveRun => {
            ApiError::new(Code::MayHaveRun, "no agent gave a last word on an attempt that started")
        }
        Rejection::PayloadErased => ApiError::new(Code::PayloadErased, "nothing is left to hand to an agent"),
        Rejection::ReplayEmpty => ApiError::new(Code::ReplayEmpty, "no task that it picks can be replayed or redriven"),
        Rejection::ReplayTooLarge { limit } => {
            ApiError::new(Code::ReplayTooLarge, format!("a plan has at most {limit} items")).fact("limit", limit)
        }
        Rejection::ReplayRate { most } => {
            ApiError::new(Code::InvalidField, format!("rate_per_s is 1 to {most}")).at("/rate_per_s", "out of bounds")
        }
        Rejection::ReplayEnded { phase } | Rejection::ReplayMovedOn { phase } => {
            ApiError::new(Code::ReplayEnded, format!("it is {}", phase.name())).fact("state", phase.name())
        }
        other => {
            tracing::error!(rejection = ?other, "a rejection without an answer of its own");
            ApiError::internal()
        }
    }
}

fn bound_reached(bound: Bound) -> ApiError {
    let limit = bound.limit();
    let (name, detail) = match bound {
        Bound::Agents => ("agents", format!("{limit} agents take part in this namespace: remove those that are lost")),
        Bound::AgentIds => (
            "agent-ids",
            format!("{limit} agent ids are known here: an id is stable, so register under one that exists"),
        ),
        Bound::Namespaces => ("namespaces", format!("there are {limit} namespaces: use one that exists")),
        Bound::CapabilityRules => {
            ("capability-rules", format!("{limit} capabilities have rules of their own: take some back"))
        }
        Bound::RoutingRules => ("routing-rules", format!("{limit} capabilities have routing rules: take some back")),
        Bound::HeldBreakers => {
            ("held-breakers", format!("operators hold {limit} breakers of this agent: give some back to the rule"))
        }
        Bound::Replays => {
            ("replays", format!("{limit} replay plans are open here: let one finish, or cancel one that is paused"))
        }
        Bound::Tokens => ("tokens", format!("{limit} tokens hold here: revoke those that nobody uses")),
    };
    ApiError::new(Code::BoundReached, detail).fact("bound", name).fact("limit", limit)
}

fn key_reused(first: Option<&Digest>, this: &Digest) -> ApiError {
    match first {
        Some(first) => ApiError::new(
            Code::IdempotencyKeyReused,
            format!("the first body has fingerprint {}, this one {}", short(first), short(this)),
        )
        .fact("first_fingerprint", short(first))
        .fact("this_fingerprint", short(this)),
        // Another subject's key: say nothing about its body (semantics 31).
        None => {
            let detail =
                "another token of this namespace has used the key; keys belong to the token that sent them first";
            ApiError::new(Code::IdempotencyKeyReused, detail)
        }
    }
}

/// An id inside a body: a precise refusal. Ids in paths never come here; they are the plain 404.
impl From<IdError> for ApiError {
    fn from(error: IdError) -> Self {
        Self::new(Code::InvalidField, error.to_string())
    }
}
