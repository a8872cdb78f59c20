//! The table of event kinds: stable code, stable name, body. Everything that must know every kind is made from it.

use serde::{Deserialize, Serialize};

use super::{access::*, agent::*, batch::*, breaker::*, callback::*, ledger::*, replay::*, task::*};

macro_rules! event_kinds {
    ($( $code:literal $name:literal $variant:ident ),* $(,)?) => {
        /// What happened.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub enum EventBody {
            $( #[doc = concat!("`", $name, "`")] $variant($variant), )*
        }

        $(
            impl From<$variant> for EventBody {
                fn from(body: $variant) -> Self {
                    Self::$variant(body)
                }
            }
        )*

        /// The kinds without their data.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum EventKind {
            $( #[doc = concat!("`", $name, "`")] $variant, )*
        }

        impl EventKind {
            /// Every kind, by code.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The stable code in the ledger.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self { $( Self::$variant => $code, )* }
            }

            /// The stable name on the wire: noun, then participle.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// The kind of that code.
            #[must_use]
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $( $code => Some(Self::$variant), )* _ => None }
            }
        }

        impl EventBody {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> EventKind {
                match self { $( Self::$variant(_) => EventKind::$variant, )* }
            }
        }

        /// Calls `$with` once with the variant name of every event kind: for the codec, which writes a body by itself.
        macro_rules! for_each_event_body {
            ($with:ident) => { $with! { $( $variant )* } };
        }
        pub(crate) use for_each_event_body;
    };
}

event_kinds! {
    100 "lineage-started" LineageStarted,
    101 "hub-started" HubStarted,
    102 "hub-stopped" HubStopped,
    103 "clock-jumped" ClockJumped,
    104 "hub-stalled" HubStalled,
    200 "agent-registered" AgentRegistered,
    201 "agent-updated" AgentUpdated,
    202 "agent-draining" AgentDraining,
    203 "agent-unhealthy" AgentUnhealthy,
    204 "agent-healthy" AgentHealthy,
    205 "agent-lost" AgentLost,
    206 "agent-left" AgentLeft,
    207 "agent-deregistered" AgentDeregistered,
    208 "agent-slot-freed" AgentSlotFreed,
    209 "agent-told" AgentTold,
    220 "breaker-opened" BreakerOpened,
    221 "breaker-half-opened" BreakerHalfOpened,
    222 "breaker-closed" BreakerClosed,
    300 "task-submitted" TaskSubmitted,
    301 "task-queued" TaskQueued,
    302 "task-dispatched" TaskDispatched,
    303 "task-acknowledged" TaskAcknowledged,
    304 "task-reclaimed" TaskReclaimed,
    305 "task-overdue" TaskOverdue,
    306 "task-progressed" TaskProgressed,
    307 "task-slow" TaskSlow,
    308 "task-attempt-failed" TaskAttemptFailed,
    309 "task-retry-scheduled" TaskRetryScheduled,
    310 "task-orphaned" TaskOrphaned,
    311 "task-replayed" TaskReplayed,
    312 "task-released" TaskReleased,
    313 "task-succeeded" TaskSucceeded,
    314 "task-failed" TaskFailed,
    315 "task-dead-lettered" TaskDeadLettered,
    316 "task-expired" TaskExpired,
    317 "task-cancelled" TaskCancelled,
    318 "task-approved" TaskApproved,
    319 "task-refused" TaskRefused,
    320 "task-schema-checked" TaskSchemaChecked,
    321 "task-stale-report-refused" TaskStaleReportRefused,
    322 "task-resolved" TaskResolved,
    323 "task-redriven" TaskRedriven,
    324 "task-replay-held" TaskReplayHeld,
    400 "callback-due" CallbackDue,
    401 "callback-attempted" CallbackAttempted,
    402 "callback-delivered" CallbackDelivered,
    403 "callback-exhausted" CallbackExhausted,
    404 "callback-blocked" CallbackBlocked,
    405 "callback-gone" CallbackGone,
    406 "callback-redriven" CallbackRedriven,
    500 "batch-opened" BatchOpened,
    501 "batch-closed" BatchClosed,
    502 "batch-settled" BatchSettled,
    550 "replay-planned" ReplayPlanned,
    551 "replay-started" ReplayStarted,
    552 "replay-item-done" ReplayItemDone,
    553 "replay-item-skipped" ReplayItemSkipped,
    554 "replay-paused" ReplayPaused,
    555 "replay-resumed" ReplayResumed,
    556 "replay-rate-changed" ReplayRateChanged,
    557 "replay-finished" ReplayFinished,
    600 "token-created" TokenCreated,
    601 "token-rotated" TokenRotated,
    602 "token-revoked" TokenRevoked,
    610 "policy-changed" PolicyChanged,
    611 "capability-policy-changed" CapabilityPolicyChanged,
    612 "hub-policy-changed" HubPolicyChanged,
    613 "routing-rules-changed" RoutingRulesChanged,
}
