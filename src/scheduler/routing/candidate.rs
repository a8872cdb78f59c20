//! Who could serve a task, and the one exact reason for everyone who can't (R-RTE-2, R-RTE-8).
//!
//! Why a [`Seat`] and not the agent itself: a decision among a thousand agents must not look each of them up by name.
//! A seat is the handful of figures that a decision needs, kept up to date by the planner, made on the spot by an
//! explanation; both go through [`exclusion`], so what is explained is what is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use semver::{Version, VersionReq};

use crate::ledger::ids::{AgentId, AgentKey, Capability, Incarnation, Namespace, TokenId};
use crate::ledger::machine::State;
use crate::ledger::machine::agent::{Agent, Declaration, Health, Offer, Standing, Transport};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::{Requires, SchemaVerdicts, Submission};
use crate::ledger::machine::task::status::{Delivery, Status};
use crate::ledger::time::{Millis, Timestamp};
use crate::scheduler::routing::bar::{self, Bar, barred};
use crate::scheduler::routing::rendezvous::{Key, mark};
use crate::scheduler::tempo::{Pace, RecentOutcomes};
use crate::scheduler::vitals::Pulse;

/// From so many interruptions on a task is a suspect (semantics 9).
pub const SUSPECT_FROM: u32 = 2;

/// A pull agent that does not ask now is expected to within its heartbeat interval after it asked last, and within this
/// at most: so long a task may wait for one that it should rather go to.
pub const ASKS_WITHIN: Millis = Millis::secs(10);

/// Did the task break its agents before?
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// Not often enough to say so.
    No,
    /// Two or more losses without a goodbye.
    Yes,
}

impl Suspect {
    /// What a task is.
    #[must_use]
    pub const fn of(task: &Task) -> Self {
        if task.interruptions >= SUSPECT_FROM { Self::Yes } else { Self::No }
    }
}

/// What is asked of an agent's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionNeed {
    /// Nothing.
    Any,
    /// A semver requirement.
    Matching(VersionReq),
    /// Something that is no semver requirement: nobody meets it.
    Unreadable,
}

/// What a task needs of whoever serves it; the same for all tasks of a lane.
#[derive(Debug, Clone)]
pub struct Needs {
    /// Where it belongs.
    pub namespace: Namespace,
    /// What must be done.
    pub capability: Capability,
    /// Tools, languages, context window, region.
    pub requires: Arc<Requires>,
    /// The version requirement, read once.
    pub version: VersionNeed,
    /// Which schemas accept and refuse the payload.
    pub schemas: SchemaVerdicts,
    /// Who submitted it; `None` where unknown or where no agent asks.
    pub caller: Option<TokenId>,
    /// Did it break its agents before?
    pub suspect: Suspect,
}

impl Needs {
    /// What a submission needs, sent or not.
    #[must_use]
    pub fn of_submission(namespace: &Namespace, spec: &Submission, caller: Option<TokenId>) -> Self {
        let version = match &spec.requires.version {
            None => VersionNeed::Any,
            Some(text) => VersionReq::parse(text).map_or(VersionNeed::Unreadable, VersionNeed::Matching),
        };
        Self {
            namespace: namespace.clone(),
            capability: spec.capability.clone(),
            requires: Arc::clone(&spec.requires),
            version,
            schemas: spec.schemas.clone(),
            caller,
            suspect: Suspect::No,
        }
    }

    /// What a task needs now: later schema verdicts and interruptions count.
    #[must_use]
    pub fn of_task(task: &Task) -> Self {
        Self {
            schemas: task.schemas.clone(),
            suspect: Suspect::of(task),
            ..Self::of_submission(&task.namespace, &task.spec, task.submitter.clone())
        }
    }
}

/// A task's needs with its own wishes.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// What it needs.
    pub needs: &'a Needs,
    /// Asked for by name: gets it when open.
    pub preferred: Option<&'a AgentId>,
    /// Works for its session now: gets it when open, unless another is asked for by name (R4).
    pub affine: Option<&'a AgentId>,
    /// Failed it last: gets it only when there is no other.
    pub avoid: Option<&'a AgentId>,
    /// Works for its session and is waited for while it is about to ask: only what comes back does so (R-REC-3).
    pub expected: Option<&'a AgentId>,
    /// What it is kept together by where agents are chosen by a hash.
    pub key: Key,
    /// As of when.
    pub now: Timestamp,
}

impl<'a> Question<'a> {
    /// Agents that get it when they are open, whatever the strategy says, with the part of the score that tells so.
    pub fn choices(&self) -> impl Iterator<Item = (&'static str, &'a AgentId)> {
        let choices = [("preferred", self.preferred), ("affinity", self.affine)];
        choices.into_iter().filter_map(|(part, agent)| Some((part, agent?)))
    }
}

macro_rules! reasons {
    ($( $(#[$doc:meta])* $variant:ident $name:literal )*) => {
        /// Why an agent is no candidate now.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $( $(#[$doc])* $variant, )* }

        impl Reason {
            /// Every reason, in the order in which they are asked.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The stable word on the wire and in the ledger.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }
        }
    };
}

reasons! {
    /// It said goodbye or was taken out of the registry.
    NotRegistered "not-registered"
    /// It drains.
    Draining "draining"
    /// It missed too many heartbeats.
    Lost "lost"
    /// It missed some heartbeats.
    Unhealthy "unhealthy"
    /// It serves only other callers.
    NotPermitted "not-permitted"
    /// One of its schemas refuses the payload.
    SchemaRefused "schema-refused"
    /// One of its schemas was not yet checked against the payload.
    SchemaUnchecked "schema-unchecked"
    /// A tool is missing.
    Tools "tools"
    /// Its context window is too small or not declared.
    ContextWindow "context-window"
    /// A language is missing.
    Language "language"
    /// It runs elsewhere.
    Region "region"
    /// Its version does not meet the requirement.
    Version "version"
    /// It failed this capability too often and gets nothing of it for a while, or by an operator's word (R-RTE-7).
    BreakerOpen "breaker-open"
    /// Another task of this capability tries it out after that.
    BreakerProbing "breaker-probing"
    /// It reported more load than its threshold.
    LoadThreshold "load-threshold"
    /// It works on all that it may.
    NoFreeSlot "no-free-slot"
    /// It came back a moment ago and warms up (R-REC-6).
    SlowStart "slow-start"
    /// A pull agent that does not ask for work now.
    NoOpenClaim "no-open-claim"
    /// It holds a suspect, or the task is one and another agent is free of neighbours (semantics 9).
    Suspect "suspect"
    /// A task of this capability is over its time there, and another agent can serve (R-SCH-11).
    Overdue "overdue"
    /// It failed this task last and another can serve it.
    Avoid "avoid"
    /// The rules make priorities tiers, and one of a higher priority can serve (R-RTE-10).
    LowerTier "lower-tier"
}

/// The figures of one agent that a decision needs.
#[derive(Debug, Clone)]
pub struct Seat {
    /// Who.
    pub key: AgentKey,
    /// Which process.
    pub incarnation: Incarnation,
    /// What it declared.
    pub declaration: Arc<Declaration>,
    /// Its version, if it reads as semver.
    pub version: Option<Version>,
    /// Why it gets no work at all, if so.
    pub closed: Option<Reason>,
    /// Slots in use: valid leases and ghosts.
    pub used: u32,
    /// Slots taken by proposals not yet decided.
    pub reserved: u32,
    /// Tasks that it may have in flight while it warms up; unbounded otherwise.
    pub limit: u32,
    /// What open claims still take; unbounded for a push agent.
    pub demand: u32,
    /// Until when a pull agent that does not ask now is expected to; the past for a push agent.
    pub asks_by: Timestamp,
    /// Work reported beyond what the hub gave it.
    pub foreign: u32,
    /// Suspects that it holds or is about to.
    pub suspects: u32,
    /// Tasks that are over their time there, by capability.
    pub overdue: BTreeMap<Capability, u32>,
    /// Breakers that are not closed, by capability.
    pub bars: BTreeMap<Capability, Bar>,
    /// Capabilities for which it is about to be tried out.
    pub probing: BTreeSet<Capability>,
    /// Sessions that it holds (R-RTE-5).
    pub sessions: u32,
    /// Is it slower than it always was (R-RTE-6)?
    pub pace: Pace,
    /// How attempts ended in the last minutes.
    pub ends: RecentOutcomes,
    /// Its name as a number, for hashing.
    pub mark: u64,
}

impl Seat {
    /// The seat of an agent as it stands; `suspects`, `overdue`, `probing` and `sessions` are kept by whoever keeps it.
    #[must_use]
    pub fn of(agent: &Agent, pulse: Option<&Pulse>, state: &State) -> Self {
        let declaration = Arc::clone(&agent.declaration);
        Self {
            key: agent.key.clone(),
            incarnation: agent.incarnation,
            version: declaration.version.as_deref().and_then(|text| Version::parse(text).ok()),
            closed: closed(agent),
            used: u32::try_from(agent.slots_used()).unwrap_or(u32::MAX),
            reserved: 0,
            limit: pulse.and_then(Pulse::limit).unwrap_or(u32::MAX),
            demand: match declaration.transport {
                Transport::Pull => pulse.map_or(0, |pulse| pulse.demand(agent.incarnation)),
                Transport::Http { .. } => u32::MAX,
            },
            asks_by: match declaration.transport {
                Transport::Pull => pulse
                    .and_then(Pulse::asked_at)
                    .map_or(Timestamp(0), |at| at.after(declaration.heartbeat_interval.min(ASKS_WITHIN))),
                Transport::Http { .. } => Timestamp(0),
            },
            foreign: pulse.map_or(0, Pulse::foreign),
            suspects: 0,
            overdue: BTreeMap::new(),
            bars: Bar::all_of(state, &agent.key),
            probing: BTreeSet::new(),
            sessions: 0,
            pace: pulse.map(|pulse| pulse.tempo.pace()).unwrap_or_default(),
            ends: pulse.map(|pulse| pulse.recent).unwrap_or_default(),
            mark: mark(agent.id().as_str().as_bytes()),
            declaration,
        }
    }

    /// As [`Seat::of`], with its suspects and what is overdue counted in the state: for explanations.
    #[must_use]
    pub fn counted(agent: &Agent, pulse: Option<&Pulse>, state: &State) -> Self {
        let held = || agent.held.iter().filter_map(|task| state.task(*task));
        let suspects = held().filter(|task| Suspect::of(task) == Suspect::Yes).count();
        let mut seat = Self { suspects: u32::try_from(suspects).unwrap_or(u32::MAX), ..Self::of(agent, pulse, state) };
        for task in held().filter(|task| is_overdue(task)) {
            *seat.overdue.entry(task.spec.capability.clone()).or_insert(0) += 1;
        }
        seat
    }

    /// How work reaches it.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        match self.declaration.transport {
            Transport::Pull => Delivery::Pull,
            Transport::Http { .. } => Delivery::Push,
        }
    }

    /// Slots that a proposal may take.
    #[must_use]
    pub fn slots_free(&self) -> u32 {
        self.declaration.slots().min(self.limit).saturating_sub(self.taken())
    }

    /// Slots in use or about to be.
    #[must_use]
    pub const fn taken(&self) -> u32 {
        self.used.saturating_add(self.reserved)
    }

    /// Tasks that it takes now: min(free slots, demand), none while it is closed.
    #[must_use]
    pub fn room(&self) -> u32 {
        if self.busy().is_some() { 0 } else { self.slots_free().min(self.demand) }
    }

    /// (in flight + reported foreign work) / max_concurrency, in thousandths.
    #[must_use]
    pub fn load_milli(&self) -> u64 {
        let load = u64::from(self.taken()) + u64::from(self.foreign);
        load * 1_000 / u64::from(self.declaration.max_concurrency.max(1))
    }

    /// Sessions that it holds, in thousandths of its max_concurrency.
    #[must_use]
    pub fn sessions_milli(&self) -> u64 {
        u64::from(self.sessions) * 1_000 / u64::from(self.declaration.max_concurrency.max(1))
    }

    fn over_threshold(&self) -> bool {
        self.foreign > 0 && self.load_milli() > u64::from(self.declaration.load_threshold_milli)
    }

    /// Why it takes nothing now, whatever it is.
    #[must_use]
    pub fn busy(&self) -> Option<Reason> {
        if self.closed.is_some() {
            self.closed
        } else if self.over_threshold() {
            Some(Reason::LoadThreshold)
        } else if self.declaration.slots() <= self.taken() {
            Some(Reason::NoFreeSlot)
        } else if self.limit <= self.taken() {
            Some(Reason::SlowStart)
        } else if self.demand == 0 {
            Some(Reason::NoOpenClaim)
        } else {
            None
        }
    }
}

/// Is it over its time with whoever holds it?
#[must_use]
pub fn is_overdue(task: &Task) -> bool {
    matches!(task.status, Status::SlowReach { .. })
}

fn closed(agent: &Agent) -> Option<Reason> {
    match (agent.standing, agent.health) {
        (Standing::Offline | Standing::Deregistered, _) => Some(Reason::NotRegistered),
        (Standing::Draining { .. }, _) => Some(Reason::Draining),
        (Standing::Active, Health::Lost) => Some(Reason::Lost),
        (Standing::Active, Health::Unhealthy) => Some(Reason::Unhealthy),
        (Standing::Active, Health::Healthy) => None,
    }
}

/// Why this agent can never serve such tasks with what it declares now; `None` if it can.
#[must_use]
pub fn mismatch(needs: &Needs, seat: &Seat, offer: &Offer) -> Option<Reason> {
    let declared = &seat.declaration;
    let refused = |digest| needs.schemas.refused.contains(digest);
    let accepted = |digest| needs.schemas.accepted.contains(digest);
    if !declared.serves(needs.caller.as_ref()) {
        return Some(Reason::NotPermitted);
    }
    if offer.schemas.iter().any(refused) {
        return Some(Reason::SchemaRefused);
    }
    if !offer.schemas.iter().all(accepted) {
        return Some(Reason::SchemaUnchecked);
    }
    let wanted = &needs.requires;
    if !wanted.tools.iter().all(|tool| offer.tools.contains(tool)) {
        return Some(Reason::Tools);
    }
    if wanted.context_window.is_some_and(|least| offer.context_window.is_none_or(|has| has < least)) {
        return Some(Reason::ContextWindow);
    }
    if !wanted.languages.iter().all(|language| offer.languages.contains(language)) {
        return Some(Reason::Language);
    }
    if wanted.region.is_some() && wanted.region != declared.region {
        return Some(Reason::Region);
    }
    let version_fits = match &needs.version {
        VersionNeed::Any => true,
        VersionNeed::Unreadable => false,
        VersionNeed::Matching(wanted) => seat.version.as_ref().is_some_and(|version| wanted.matches(version)),
    };
    if version_fits { None } else { Some(Reason::Version) }
}

/// Why this agent is no candidate now. What passes the hour outranks what passes with a slot: a lost agent is `lost`,
/// not `no-free-slot`.
#[must_use]
pub fn exclusion(needs: &Needs, seat: &Seat, offer: &Offer) -> Option<Reason> {
    let barred = || barred(&needs.capability, seat);
    let now = || seat.busy().or_else(|| crowded(needs, seat));
    seat.closed.or_else(|| mismatch(needs, seat, offer)).or_else(barred).or_else(now)
}

/// Could it take such a task, but for that it does not ask in this moment, and is it about to? What excludes it is
/// [`Reason::NoOpenClaim`].
#[must_use]
pub fn asks_soon(question: &Question<'_>, seat: &Seat) -> bool {
    seat.asks_by > question.now && crowded(question.needs, seat).is_none()
}

/// An agent holds at most one suspect, whoever else can serve.
const fn crowded(needs: &Needs, seat: &Seat) -> Option<Reason> {
    match needs.suspect {
        Suspect::Yes if seat.suspects > 0 => Some(Reason::Suspect),
        Suspect::Yes | Suspect::No => None,
    }
}

/// A reason in words, with the figures: for explanations that people read.
#[must_use]
pub fn detail(reason: Reason, needs: &Needs, seat: &Seat, offer: &Offer) -> String {
    let missing = |wanted: &[Arc<str>], has: &[Arc<str>]| {
        wanted.iter().filter(|word| !has.contains(word)).map(|word| &**word).collect::<Vec<_>>().join(", ")
    };
    let wanted = &needs.requires;
    let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or("none declared").to_owned();
    match reason {
        Reason::NotRegistered => "it is offline or deregistered".to_owned(),
        Reason::Draining => "it is draining".to_owned(),
        Reason::Lost => "it missed too many heartbeats".to_owned(),
        Reason::Unhealthy => "it missed heartbeats".to_owned(),
        Reason::NotPermitted => "it serves other callers only".to_owned(),
        Reason::SchemaRefused => "a schema that it declares refuses the payload".to_owned(),
        Reason::SchemaUnchecked => "a schema that it declares has not been checked against the payload yet".to_owned(),
        Reason::Tools => format!("missing tools: {}", missing(&wanted.tools, &offer.tools)),
        Reason::ContextWindow => format!(
            "context window {}, needed {}",
            offer.context_window.map_or_else(|| "not declared".to_owned(), |size| size.to_string()),
            wanted.context_window.unwrap_or(0)
        ),
        Reason::Language => format!("missing languages: {}", missing(&wanted.languages, &offer.languages)),
        Reason::Region => format!("region {}, needed {}", text(&seat.declaration.region), text(&wanted.region)),
        Reason::Version => format!("version {}, needed {}", text(&seat.declaration.version), text(&wanted.version)),
        Reason::BreakerOpen | Reason::BreakerProbing => bar::detail(reason, seat.bars.get(&needs.capability)),
        Reason::LoadThreshold => {
            format!("load {} ‰, threshold {} ‰", seat.load_milli(), seat.declaration.load_threshold_milli)
        }
        Reason::NoFreeSlot => format!("{} of {} slots in use", seat.taken(), seat.declaration.max_concurrency),
        Reason::SlowStart => format!("it came back a moment ago: {} in flight, {} for now", seat.taken(), seat.limit),
        Reason::NoOpenClaim => "it does not ask for work now".to_owned(),
        Reason::Suspect => "a suspect would not be alone there".to_owned(),
        Reason::Overdue => format!(
            "{} of this capability are over their time there",
            seat.overdue.get(&needs.capability).copied().unwrap_or(0)
        ),
        Reason::Avoid => "it failed this task last".to_owned(),
        Reason::LowerTier => format!("its priority is {}, and one of a higher priority can serve", offer.priority),
    }
}
