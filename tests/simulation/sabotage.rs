//! Blind spots, the first half: what the simulated hub can be made to do wrong, each with the invariants that must condemn
//! it. A suite that stays green under one of them proves nothing.

/// What the simulated hub does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// Every report is taken as if it showed the current lease.
    NoFence,
    /// Answers leave before the fsync.
    AnswersBeforeFsync,
    /// Claims are answered before the fsync.
    LeasesBeforeFsync,
    /// Pushes and callbacks are sent before the fsync.
    CallbacksBeforeFsync,
    /// Every eighth task's timers are lost.
    LostTimer,
    /// Orphans are replayed as fast as they come.
    RateTimesTwo,
    /// Keys of durable submissions are not looked up.
    KeysForgotten,
    /// The rows beside the log are not written.
    RowsForgotten,
    /// Ledger time is the wall clock.
    WallTime,
    /// Nothing is resolved at boot.
    NoBootRules,
    /// The planners are never asked.
    PlannersAsleep,
    /// Every item of a plan goes as soon as it is planned.
    PlansAtOnce,
    /// What was made of an ended task is not looked up.
    RedrivesForgotten,
    /// A task that is made anew gets no payload.
    PayloadsForgotten,
    /// The planner is not told which items belong to one session.
    SessionsForgotten,
    /// The planner is told another order than that which was frozen.
    ListsMixedUp,
    /// Which newer task of a session has succeeded is not looked up.
    SuccessesForgotten,
    /// A plan's patch is not applied.
    PatchesForgotten,
    /// What a plan's list says that schemas say is not heeded.
    VerdictsForgotten,
    /// An open breaker bars nobody.
    BreakersIgnored,
    /// Whoever tries an agent out is not known, and the next one goes as well.
    ProbesForgotten,
    /// What failed before an operator's word to a breaker counts after it.
    WordsForgotten,
}

/// The switches, each with the invariants of which at least one must condemn it.
pub(crate) const SWITCHES: &[(&str, Sabotage, &[&str])] = &[
    ("no fence", Sabotage::NoFence, &["S1"]),
    ("ack before durability", Sabotage::AnswersBeforeFsync, &["D1", "D3"]),
    ("leases before durability", Sabotage::LeasesBeforeFsync, &["D3"]),
    ("effects before durability", Sabotage::CallbacksBeforeFsync, &["D3"]),
    ("lost timer", Sabotage::LostTimer, &["L1", "L2"]),
    ("replay rate without bound", Sabotage::RateTimesTwo, &["R1"]),
    ("idempotency keys forgotten", Sabotage::KeysForgotten, &["S6"]),
    ("rows of finished tasks forgotten", Sabotage::RowsForgotten, &["D4"]),
    ("ledger time from the wall clock", Sabotage::WallTime, &["T2"]),
    ("no boot rules", Sabotage::NoBootRules, &["S10", "L4"]),
    ("planners asleep", Sabotage::PlannersAsleep, &["L4"]),
    ("plan rate without bound", Sabotage::PlansAtOnce, &["R1"]),
    ("redrives forgotten", Sabotage::RedrivesForgotten, &["semantics 40"]),
    ("payloads forgotten", Sabotage::PayloadsForgotten, &["semantics 40"]),
    ("sessions forgotten", Sabotage::SessionsForgotten, &["R4"]),
    ("lists mixed up", Sabotage::ListsMixedUp, &["R3"]),
    ("successes forgotten", Sabotage::SuccessesForgotten, &["R3"]),
    ("patches forgotten", Sabotage::PatchesForgotten, &["R3 payloads"]),
    ("verdicts forgotten", Sabotage::VerdictsForgotten, &["R3 payloads"]),
    ("open breakers ignored", Sabotage::BreakersIgnored, &["B2"]),
    ("a second probe", Sabotage::ProbesForgotten, &["B2"]),
    ("failures counted over an operator's word", Sabotage::WordsForgotten, &["B2"]),
];
