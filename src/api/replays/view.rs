//! A plan as operators see it, the same in every answer, and what a plan would do before it is one.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::agents::breakers::InTheWay;
use crate::api::render;
use crate::api::wire::ReceiptBody;
use crate::ledger::machine::replay::{ItemAction, ItemOutcome, MayHaveRun, Replay, ReplayPhase, Skip};
use crate::recovery::plans::Waiting;

use super::body::Order;
use super::codes::Codes;
use super::fit::Fit;
use super::hints::{Hint, Overlap};
use super::members::{MemberView, Members};
use super::sample::{SampleView, raw};
use super::select::Selection;

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
    /// Items whose turn did not come before the plan was called off: their tasks are as they were.
    cancelled: u32,
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
    /// Seconds that the pending items take at least, at its rate or the whole hub's, whichever is less; `null` while it waits for tasks whose end nobody knows.
    estimate_s: Option<u64>,
    /// The merge patch of its items' payloads; in answers about this one plan, to those who sent it and to tokens with
    /// the scope `read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Option<Object>)]
    payload_patch: Option<Box<RawValue>>,
    /// The call changed nothing: the plan stood so already. Such a call makes no event, so it has no receipt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    unchanged: bool,
    /// Of the event that this call made, if it made one; of the first call's, in the answer to a repeat by its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    receipt: Option<ReceiptBody>,
}

impl ReplayView {
    /// The view of a plan, with the receipt of what was just done to it.
    pub(super) fn new(replay: &Replay, receipt: Option<ReceiptBody>) -> Self {
        let tally = Tally::of(replay);
        let (left, cancelled) = match replay.phase {
            ReplayPhase::Planned | ReplayPhase::Running | ReplayPhase::Paused => (tally.pending, 0),
            ReplayPhase::Finished(_) => (0, tally.pending),
        };
        Self {
            replay_id: replay.id.to_string(),
            state: replay.phase.name(),
            total: replay.total(),
            pending: left,
            cancelled,
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
            payload_patch: None,
            unchanged: false,
            receipt,
        }
    }

    /// The view of a plan as it was frozen, whatever became of it since: what whoever ordered it is told (semantics 31).
    pub(super) fn frozen(replay: Replay, rate: u32, receipt: Option<ReceiptBody>) -> Self {
        let outcomes = vec![ItemOutcome::Pending; replay.outcomes.len()];
        let (phase, ended_at) = (ReplayPhase::Running, None);
        Self::new(&Replay { rate, outcomes, phase, ended_at, ..replay }, receipt)
    }

    /// The same, with its patch.
    pub(super) fn patched_by(mut self, patch: Option<&[u8]>) -> Self {
        self.payload_patch = patch.and_then(raw);
        self
    }

    /// The same, with the patch that came with the call.
    pub(super) fn sent_with(self, patch: Option<&RawValue>) -> Self {
        self.patched_by(patch.map(|patch| patch.get().as_bytes()))
    }

    /// The same, on a hub that replays so many a second over all by now: an older plan's rate may be more.
    pub(super) fn at_most(mut self, most: u32) -> Self {
        let rate = self.rate_per_s.min(most);
        self.estimate_s = self.estimate_s.map(|_| estimate(self.pending, rate));
        self
    }

    /// The same, as the answer to an operator's word.
    pub(super) fn steered(mut self) -> Self {
        self.unchanged = self.receipt.is_none();
        self
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

/// Seconds at that rate, if nobody else replays beside it.
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

/// What becomes of the payloads that a plan patches.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayPatch)]
struct PatchView {
    /// Items that would be made anew: whoever offers their capability takes them, or nobody is there to refuse.
    accepted: u32,
    /// Items that would be left alone; `would_skip` says why.
    refused: u32,
    /// What the patch names and no payload has, so that it would be added to each: for tokens with the scope `read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    in_no_payload: Option<Vec<MemberView>>,
    /// Payloads looked at for that: the first ones, at most 1,000 and 16 MiB, and no more when all was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    looked_at: Option<u32>,
}

/// What was looked up beside the selection.
pub(super) struct Looked {
    pub(super) fits: Vec<Fit>,
    pub(super) sample: Vec<SampleView>,
    pub(super) members: Option<Members>,
    pub(super) codes: Option<Codes>,
    pub(super) open_plans: Vec<Overlap>,
    pub(super) open_breakers: Vec<InTheWay>,
    pub(super) hints: Vec<Hint>,
}

/// What a plan would do, if it were made now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayDryRun)]
pub(super) struct DryRunView {
    dry_run: bool,
    /// Items that the plan would have.
    total: u32,
    /// Those of them that it would act on, as things stand: all but `would_skip`.
    would_act_on: u32,
    /// Items by the state of their task.
    by_state: BTreeMap<&'static str, u32>,
    /// Items by the class of their task's last failure.
    by_failure_class: BTreeMap<&'static str, u32>,
    /// Items by the code with which their last attempt failed, or their task, of the 20 most frequent: for tokens with the
    /// scope `read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    by_failure_code: Option<BTreeMap<String, u32>>,
    /// Items of all other codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    other_failure_codes: Option<u32>,
    /// Items by what is done with them: `replay` goes back to the queue, `redrive` is made anew.
    by_action: BTreeMap<&'static str, u32>,
    /// What the selection picks and the plan would not have as an item.
    skipped: Vec<SkippedView>,
    /// Picked tasks that may have run and are not idempotent: among the items with `include_ambiguous`, else left
    /// alone.
    ambiguous: u32,
    /// The first items.
    sample: Vec<SampleView>,
    /// Items that the plan would leave alone at their turn, by reason, as their sessions, their payloads and today's
    /// schemas stand. A payload that was erased is found out only then, where payloads are not looked at.
    would_skip: Vec<SkippedView>,
    /// What today's schemas say of the patched payloads, where there is a patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false)]
    payload_patch: Option<PatchView>,
    /// Plans that have not ended and have some of these tasks before them.
    open_plans: Vec<Overlap>,
    /// Tasks that it names and that are not there; and if it picks nothing at all the names in it that nothing bears.
    hints: Vec<Hint>,
    /// In which order they go.
    order: &'static str,
    /// Sessions of which several items go, one at a time.
    sessions: usize,
    rate_per_s: u32,
    /// Seconds that the items take at least, at that rate; tasks of one session wait for each other beside it.
    estimate_s: u64,
    /// Breakers that keep tasks of the items' capabilities from an agent now, at most 100: items that only such agents
    /// serve wait in the queue until one closes.
    open_breakers: Vec<InTheWay>,
    /// The last event that the selection is sure to have seen.
    position: u64,
}

/// What is answered where nothing was made.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = ReplayLookedAt)]
pub(super) enum LookedAt {
    /// What a plan would do.
    Dry(Box<DryRunView>),
    /// The plan that an earlier call made with the same key.
    Planned(Box<ReplayView>),
}

impl DryRunView {
    pub(super) fn new(selection: &Selection, order: &Order, looked: Looked) -> Self {
        let items = &selection.items;
        let total = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let skipped = selection.skipped.iter();
        let would_skip = counted(looked.fits.iter().filter_map(Fit::skip).map(Skip::name));
        let would_act_on = total.saturating_sub(would_skip.values().sum());
        let (by_failure_code, other_failure_codes) = looked.codes.map(|codes| (codes.named, codes.others)).unzip();
        let (in_no_payload, looked_at) = looked.members.map(|members| (members.absent, members.looked_at)).unzip();
        Self {
            dry_run: true,
            total,
            would_act_on,
            by_failure_code,
            other_failure_codes,
            by_state: counted(items.iter().map(|found| found.state.name())),
            by_failure_class: counted(items.iter().filter_map(|found| found.class).map(|class| class.name())),
            by_action: counted(items.iter().map(|found| action(found.action))),
            skipped: skipped.map(|(skip, count)| SkippedView { reason: skip.name(), count: *count }).collect(),
            ambiguous: selection.ambiguous,
            sample: looked.sample,
            would_skip: would_skip.iter().map(|(reason, count)| SkippedView { reason, count: *count }).collect(),
            payload_patch: order.patch.is_some().then(|| PatchView {
                accepted: would_act_on,
                refused: would_skip.values().sum(),
                in_no_payload,
                looked_at,
            }),
            open_plans: looked.open_plans,
            hints: looked.hints,
            order: ORDER,
            sessions: selection.sessions(),
            rate_per_s: order.rate,
            estimate_s: estimate(total, order.rate),
            open_breakers: looked.open_breakers,
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
