//! Every reason for which a call can be refused, as data: the stable code, its status and what to do next.
//!
//! docs/errors.md is generated from this table and compared with it by a test.

use axum::http::StatusCode;

macro_rules! codes {
    ($( $(#[$doc:meta])* $variant:ident $name:literal $status:ident $title:literal $next:literal )*) => {
        /// A stable reason (`code` on the wire). Codes are added, never renamed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $( $(#[$doc])* $variant, )*
        }

        impl Code {
            /// Every code, by status.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The word on the wire.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// The HTTP status that it is answered with.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $( Self::$variant => StatusCode::$status, )* }
            }

            /// A short title that does not vary.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $( Self::$variant => $title, )* }
            }

            /// What the caller can do next.
            #[must_use]
            pub const fn next_step(self) -> &'static str {
                match self { $( Self::$variant => $next, )* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    MalformedJson "malformed-json" BAD_REQUEST "The body is not valid JSON" "Send one JSON document in UTF-8; the detail names line and column."
    /// The body nests too deep.
    JsonTooDeep "json-too-deep" BAD_REQUEST "The JSON nests too deep" "Nest at most 64 levels."
    /// The same key twice in one object.
    DuplicateKey "duplicate-key" BAD_REQUEST "A JSON object has the same key twice" "Send every key once; the pointer names the second one."
    /// A query parameter that is unknown or wrong.
    InvalidQuery "invalid-query" BAD_REQUEST "A query parameter is unknown or wrong" "Use only the parameters in /openapi.json; the detail names the one at fault."
    /// A header that is wrong.
    InvalidHeader "invalid-header" BAD_REQUEST "A header is missing or wrong" "Correct the header that the detail names."
    /// A reader is ahead of the ledger.
    SeqAhead "seq-ahead" BAD_REQUEST "The ledger does not reach so far" "You have read another ledger, or one that was restored to an earlier moment: compare the lineage, and begin at the last seq that the detail names, or at 0."
    /// No namespace was named.
    NamespaceMissing "namespace-missing" BAD_REQUEST "The call names no namespace" "This token holds in every namespace: name one in the Reach-Namespace header."
    /// The framing of the request is ambiguous.
    MalformedRequest "malformed-request" BAD_REQUEST "The HTTP request is malformed" "Correct what the detail names; the connection is closed."
    /// No or no valid token.
    Unauthenticated "unauthenticated" UNAUTHORIZED "A valid token is needed" "Send Authorization: Bearer with a token that is neither revoked nor expired."
    /// The token lacks a scope.
    ScopeMissing "scope-missing" FORBIDDEN "The token lacks a scope" "Use a token with the scope that the detail names."
    /// The token may not call the capability.
    CapabilityNotAllowed "capability-not-allowed" FORBIDDEN "The token may not call this capability" "Use a token whose capabilities include it."
    /// No such thing here.
    NotFound "not-found" NOT_FOUND "There is no such thing here" "Check the id and the namespace; what belongs to another namespace looks the same as what does not exist."
    /// Nobody offers the capability.
    CapabilityNotRegistered "capability-not-registered" NOT_FOUND "Nobody offers this capability" "Check the name against the suggestions, register an agent for it, or submit with wait_for_agent."
    /// The agent does not offer the capability.
    CapabilityNotOffered "capability-not-offered" NOT_FOUND "The agent does not offer this capability" "Name one of its capabilities; GET /v1/agents/{agent_id} lists them."
    /// The path exists, the method does not.
    MethodNotAllowed "method-not-allowed" METHOD_NOT_ALLOWED "The path does not take this method" "Use a method that the Allow header names."
    /// Sent too slowly.
    RequestTimeout "request-timeout" REQUEST_TIMEOUT "The request took too long to arrive" "Send the whole request within the time limit, or use a smaller body."
    /// An older process of the agent.
    IncarnationSuperseded "incarnation-superseded" CONFLICT "A newer process holds this agent id" "Stop this process, or register again to take over."
    /// The agent must register first.
    AgentNotRegistered "agent-not-registered" CONFLICT "The agent is not registered any more" "Stop the process if it was told to go; to bring the agent back, register it again."
    /// The agent drains.
    AgentDraining "agent-draining" CONFLICT "The agent is draining" "Finish or release what it holds; it gets no new work."
    /// The attempt is no longer the agent's.
    LeaseSuperseded "lease-superseded" CONFLICT "Attempt or lease is not the valid one" "Stop working on this attempt; the detail says what holds now."
    /// The lease gave another outcome already.
    OutcomeConflict "outcome-conflict" CONFLICT "This attempt already gave another outcome" "Keep the first outcome; the detail names its event."
    /// The task has ended.
    TaskTerminal "task-terminal" CONFLICT "The task has ended" "Nothing more can change it; the detail names the event that ended it."
    /// Acknowledged work can't be given back.
    AlreadyAcknowledged "already-acknowledged" CONFLICT "The task was acknowledged and is not idempotent" "Complete or fail it; only idempotent tasks can be released after their acknowledgement."
    /// The task does not wait for a person.
    NotAwaitingApproval "not-awaiting-approval" CONFLICT "The task does not wait for approval" "Look at the task's state; only one that awaits approval can be approved or refused."
    /// The task moved on meanwhile.
    StateChanged "state-changed" CONFLICT "The task has moved on" "Read the task again and decide anew."
    /// Nothing is left to decide.
    NotResolvable "not-resolvable" CONFLICT "The task is not one that an operator has to decide" "Only a task in slow-reach, or an orphaned one, can be resolved; an orphan can't be told to wait."
    /// It can't be made anew.
    NotRedrivable "not-redrivable" CONFLICT "The task can't be redriven" "Only a task that has failed, expired or become a dead letter can be redriven."
    /// It was made anew before.
    AlreadyRedriven "already-redriven" CONFLICT "The task was redriven before" "Follow redriven_as; that one can be redriven when it has ended."
    /// A newer one of its session succeeded.
    Superseded "superseded" CONFLICT "A newer task of its session has succeeded" "Submit it anew if it is still wanted: a redrive would go against the order of the session."
    /// It may have run.
    MayHaveRun "may-have-run" CONFLICT "The task may have run and is not idempotent" "Set include_ambiguous if a second run does no harm."
    /// Its payload is gone.
    PayloadErased "payload-erased" CONFLICT "The task's payload was erased" "Submit it anew, or redrive it with another payload."
    /// The plan has ended.
    ReplayEnded "replay-ended" CONFLICT "The replay plan has ended" "Make a new plan for what is left."
    /// The agent has no free slot.
    NoFreeSlot "no-free-slot" CONFLICT "The agent has no free slot" "Wait until it has finished something, or raise its max_concurrency."
    /// The agent takes no work now.
    AgentNotOpen "agent-not-open" CONFLICT "The agent takes no work now" "Look at the agent's health and standing."
    /// The batch is closed.
    BatchNotOpen "batch-not-open" CONFLICT "The batch is closed" "Open another batch."
    /// The callback is still under way.
    CallbackStillDue "callback-still-due" CONFLICT "The callback is still being tried" "Wait until it has settled."
    /// The id exists.
    IdTaken "id-taken" CONFLICT "The id exists already" "Send the call again; the hub draws another id."
    /// A secret or token of the name exists.
    NameTaken "name-taken" CONFLICT "The name exists already" "Choose another name, or rotate the one that exists."
    /// No version before.
    NothingToUndo "nothing-to-undo" CONFLICT "There is no version before" "Set the rules that are wanted; GET /v1/policies shows those that hold."
    /// So many are there.
    BoundReached "bound-reached" CONFLICT "As many as may be are there already" "Remove what is no longer needed; the detail names the bound."
    /// The body is too long.
    BodyTooLarge "body-too-large" PAYLOAD_TOO_LARGE "The body is too large" "Stay below the limit that the detail names, or pass a reference instead of the content."
    /// A result that is too large; its task has failed.
    ResultTooLarge "result-too-large" PAYLOAD_TOO_LARGE "The result is too large; the task has failed" "Store the result elsewhere and complete with a reference to it."
    /// Another content type is needed.
    UnsupportedMediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE "The content type is not taken here" "Send the content type that the detail names."
    /// A compressed body.
    UnsupportedEncoding "unsupported-encoding" UNSUPPORTED_MEDIA_TYPE "The content encoding is not taken here" "Send the body as it is, without Content-Encoding."
    /// A field that does not exist.
    UnknownField "unknown-field" UNPROCESSABLE_ENTITY "A field is unknown" "Remove or correct the field that the pointer names."
    /// A field that is wrong or missing.
    InvalidField "invalid-field" UNPROCESSABLE_ENTITY "A field is missing or wrong" "Correct the fields that the pointers name."
    /// The payload does not fit any offer.
    PayloadRefused "payload-refused" UNPROCESSABLE_ENTITY "No agent's schema accepts the payload" "Correct the payload at the paths that the errors name."
    /// The deadline has passed.
    DeadlinePast "deadline-past" UNPROCESSABLE_ENTITY "The deadline lies in the past" "Name a later deadline."
    /// It could never start.
    NotBeforeAfterDeadline "not-before-after-deadline" UNPROCESSABLE_ENTITY "not_before lies at or after the deadline" "Name an earlier not_before or a later deadline."
    /// The key stands for something else.
    IdempotencyKeyReused "idempotency-key-reused" UNPROCESSABLE_ENTITY "The idempotency key was used for another call" "Use a new key for a new call; repeat the very same body with the same token to get the first answer."
    /// The declaration does not fit.
    DeclarationTooLarge "declaration-too-large" UNPROCESSABLE_ENTITY "The declaration is too large" "Declare fewer capabilities or shorter texts."
    /// A schema can't be used.
    SchemaInvalid "schema-invalid" UNPROCESSABLE_ENTITY "A JSON Schema can't be used" "Correct the schema that the pointer names; only local references are taken."
    /// An address is not allowed.
    EgressBlocked "egress-blocked" UNPROCESSABLE_ENTITY "The hub may not call this address" "Use a public address, or have the network listed in the hub's egress settings."
    /// A text that asks for nothing that is offered.
    NoCapabilityFits "no-capability-fits" UNPROCESSABLE_ENTITY "Nothing that is offered fits the text" "Say it in other words, or name a capability as domain.task_type: the near misses may be meant."
    /// A plan over nothing.
    ReplayEmpty "replay-empty" UNPROCESSABLE_ENTITY "The selection has nothing to replay" "Widen the selection; a dry run shows what it finds and what it would skip."
    /// A plan over too much.
    ReplayTooLarge "replay-too-large" UNPROCESSABLE_ENTITY "The selection is too large for one plan" "Narrow it, for instance by time, and make several plans."
    /// The rules contradict each other.
    PolicyInvalid "policy-invalid" UNPROCESSABLE_ENTITY "The policy contradicts itself" "Correct the fields that the detail names."
    /// A bound is reached.
    QueueFull "queue-full" TOO_MANY_REQUESTS "A queue bound is reached" "Try again after Retry-After, or submit with a higher class of service."
    /// Too many calls.
    RateLimited "rate-limited" TOO_MANY_REQUESTS "Too many calls" "Try again after Retry-After."
    /// A head without end.
    HeadTooLarge "head-too-large" REQUEST_HEADER_FIELDS_TOO_LARGE "The request's head is too large" "Send fewer and shorter headers."
    /// The hub stopped before it could know.
    OutcomeUnknown "outcome-unknown" INTERNAL_SERVER_ERROR "The hub can't say whether the call took effect" "Send it again with the same idempotency key, or read back what holds."
    /// A bug.
    Internal "internal" INTERNAL_SERVER_ERROR "The hub made a mistake" "Report it with the time of the call; the log says more."
    /// The disk can't be read.
    LedgerUnreadable "ledger-unreadable" INTERNAL_SERVER_ERROR "The ledger could not be read" "Have the operator look at the hub's log."
    /// The command queue is full.
    Busy "busy" SERVICE_UNAVAILABLE "The hub is busy" "Try again after Retry-After, with growing pauses."
    /// Recovery runs.
    Starting "starting" SERVICE_UNAVAILABLE "The hub is starting" "Try again after Retry-After."
    /// The hub goes down.
    Stopping "stopping" SERVICE_UNAVAILABLE "The hub is stopping" "Try again after Retry-After, when it is back."
    /// No room.
    DiskFull "disk-full" INSUFFICIENT_STORAGE "The hub's disk is nearly full" "Have the operator make room; completions and heartbeats are still taken."
}

impl Code {
    /// The problem's type: a URI that never changes.
    #[must_use]
    pub fn type_uri(self) -> String {
        format!("urn:agent-reach:problem:{}", self.name())
    }
}
