//! A plan as operators see it, the same in every answer, and what a plan would do before it is one.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::render;
use crate::api::wire::ReceiptBody;
use crate::ledger::machine::replay::{ItemAction, ItemOutcome, MayHaveRun, Replay, ReplayPhase};
use crate::recovery::plans::Waiting;

use super::body::Order;
use super::select::{Found, Selection};

/// Items shown as a sample of a dry run.
const SAMPLE: usize = 10;
/// In words, for those who read a dry run.
const ORDER: &str = "by submission; sessions one at a time";

/// What became of a plan's items.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pending: u32,
    replayed: u32,
    redriven: u32,
    skipped: BTreeMap<&'static str, u32>,
}

impl Tally {
    fn of(replay: &Replay) -> Self {
        let mut tally = Self::default();
        for outcome in &replay.outcomes {
            match outcome {
                ItemOutcome::Pending => tally.pending += 1,
                ItemOutcome::Replayed => tally.replayed += 1,
                ItemOutcome::Redriven => tally.redriven += 1,
                ItemOutcome::Skipped(skip) => *tally.skipped.entry(skip.name()).or_default() += 1,
            }
        }
        tally
    }
}

/// What a plan waits for, beside its rate.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReplayWaiting)]
struct WaitingView {
    /// Sessions whose next item waits, of those that the plan has come to.
    sessions: u32,
    /// The task that the first of them waits for: one that was left alone and is unfinished, an orphan that goes before,
    /// or one of its session that was sent back and has not ended.
    reach_id: String,
}

/// A replay plan.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Replay)]
pub(super) struct ReplayView {
    pub(super) replay_id: String,
    /// `running`, `paused`, `completed` or `cancelled`.
    pub(super) state: &'static str,
    /// Items in all: frozen when it was planned.
    total: u32,
    /// Items whose turn has not come.
    pending: u32,
    /// Items that are back in the queue.
    replayed: u32,
    /// Items that were made anew.
    redriven: u32,
    /// Items that were left alone, by reason.
    skipped: BTreeMap<&'static str, u32>,
    /// Items a second.
    rate_per_s: u32,
    /// Also items that may have run and are not idempotent.
    include_ambiguous: bool,
    /// What was selected.
    #[schema(value_type = Object)]
    select: Value,
    reason: String,
    /// Who ordered it.
    #[schema(value_type = Object)]
    by: Value,
    #[schema(format = DateTime)]
    planned_at: String,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// The last event that the selection is sure to have seen.
    position: u64,
    /// SHA-256 over salt and bytes of the list of items.
    list_digest: String,
    /// Sessions of which an item can't go yet, and for whom; nothing when all can.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    waiting_for: Option<WaitingView>,
    /// Seconds that the pending items take at least, at its rate; `null` while it waits for tasks whose end nobody knows.
    estimate_s: Option<u64>,
    /// Of the event that this call made, if it made one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    receipt: Option<ReceiptBody>,
}

impl ReplayView {
    /// The view of a plan, with the receipt of what was just done to it.
    pub(super) fn new(replay: &Replay, receipt: Option<ReceiptBody>) -> Self {
        let tally = Tally::of(replay);
        let left = match replay.phase {
            ReplayPhase::Planned | ReplayPhase::Running | ReplayPhase::Paused => tally.pending,
            ReplayPhase::Finished(_) => 0,
        };
        Self {
            replay_id: replay.id.to_string(),
            state: replay.phase.name(),
            total: replay.total(),
            pending: tally.pending,
            replayed: tally.replayed,
            redriven: tally.redriven,
            skipped: tally.skipped,
            rate_per_s: replay.rate,
            include_ambiguous: replay.may_have_run == MayHaveRun::Include,
            select: serde_json::from_str(&replay.select).unwrap_or_default(),
            reason: replay.reason.to_string(),
            by: render::actor(&replay.by),
            planned_at: replay.planned_at.to_string(),
            ended_at: replay.ended_at.map(|at| at.to_string()),
            position: replay.position.0,
            list_digest: replay.list.digest.to_string(),
            waiting_for: None,
            estimate_s: Some(estimate(left, replay.rate)),
            receipt,
        }
    }

    /// The same, with what it waits for.
    pub(super) fn waiting_for(mut self, waiting: Option<Waiting>) -> Self {
        if let Some(Waiting { lines, first }) = waiting {
            self.waiting_for = Some(WaitingView { sessions: lines, reach_id: first.to_string() });
            self.estimate_s = None;
        }
        self
    }
}

/// Seconds at that rate, if nobody else replays beside it; when it was ordered, the hub allowed so much.
fn estimate(items: u32, rate: u32) -> u64 {
    u64::from(items.div_ceil(rate.max(1)))
}

/// A reason, and how many items it holds for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplaySkipped)]
struct SkippedView {
    reason: &'static str,
    count: u32,
}

/// An item of a dry run's sample.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplaySample)]
struct SampleView {
    reach_id: String,
    state: &'static str,
    capability: String,
    /// `replay` or `redrive`.
    action: &'static str,
    session_id: Option<String>,
    #[schema(format = DateTime)]
    submitted_at: String,
}

impl SampleView {
    fn new(found: &Found) -> Self {
        Self {
            reach_id: found.task.to_string(),
            state: found.state.name(),
            capability: found.capability.to_string(),
            action: action(found.action),
            session_id: found.session.as_ref().map(ToString::to_string),
            submitted_at: found.submitted_at.to_string(),
        }
    }
}

/// What a plan would do, if it were made now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayDryRun)]
pub(super) struct DryRunView {
    dry_run: bool,
    /// Items that the plan would have.
    total: u32,
    /// Items by the state of their task.
    by_state: BTreeMap<&'static str, u32>,
    /// Items by the class of their task's last failure.
    by_failure_class: BTreeMap<&'static str, u32>,
    /// Items by what is done with them: `replay` goes back to the queue, `redrive` is made anew.
    by_action: BTreeMap<&'static str, u32>,
    /// What the selection picks and the plan would leave alone. A task that is superseded in its session, or whose
    /// payload was erased, is found out at its turn.
    skipped: Vec<SkippedView>,
    /// Picked tasks that may have run and are not idempotent: among the items with `include_ambiguous`, else left
    /// alone.
    ambiguous: u32,
    /// The first items.
    sample: Vec<SampleView>,
    /// In which order they go.
    order: &'static str,
    /// Sessions of which several items go, one at a time.
    sessions: usize,
    rate_per_s: u32,
    /// Seconds that the items take at least, at that rate; tasks of one session wait for each other beside it.
    estimate_s: u64,
    /// The last event that the selection is sure to have seen.
    position: u64,
}

impl DryRunView {
    pub(super) fn new(selection: &Selection, order: &Order) -> Self {
        let items = &selection.items;
        let total = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let skipped = selection.skipped.iter();
        Self {
            dry_run: true,
            total,
            by_state: counted(items.iter().map(|found| found.state.name())),
            by_failure_class: counted(items.iter().filter_map(|found| found.class).map(|class| class.name())),
            by_action: counted(items.iter().map(|found| action(found.action))),
            skipped: skipped.map(|(skip, count)| SkippedView { reason: skip.name(), count: *count }).collect(),
            ambiguous: selection.ambiguous,
            sample: items.iter().take(SAMPLE).map(SampleView::new).collect(),
            order: ORDER,
            sessions: selection.sessions(),
            rate_per_s: order.rate,
            estimate_s: estimate(total, order.rate),
            position: selection.position.0,
        }
    }
}

fn counted(names: impl Iterator<Item = &'static str>) -> BTreeMap<&'static str, u32> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// What is done with an item, on the wire.
pub(super) const fn action(action: ItemAction) -> &'static str {
    match action {
        ItemAction::Replay => "replay",
        ItemAction::Redrive => "redrive",
    }
}
