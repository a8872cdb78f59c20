//! An open batch: takes chunks of lines, remembers their outcomes, and closes whatever happens.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use crate::ledger::handle::{Intake, Ledger};
use crate::ledger::ids::BatchId;
use crate::ledger::machine::KeySubject;
use crate::ledger::machine::callback::CallbackSpec;
use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::Answer;
use crate::ledger::machine::task::spec::IdempotencyKey;

use super::super::App;
use super::super::error::{ApiError, ApiResult, Code};
use super::super::extract::{Caller, parse, parse_checked};
use super::super::submission::TaskBody;
use super::super::submit::{self, Origin, Prepared};
use super::view::{self, Kept, Outcome};
use super::{BatchAnswer, opening, unexpected};

/// Lines proposed together: one fsync serves them all.
pub(super) const CHUNK: usize = 256;
/// Lines are proposed once they are so many bytes together, even if they are few: nothing else runs on the thread that
/// makes them ready.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// One line of a batch.
pub(super) enum Line<'a> {
    /// Part of a document that was checked as a whole.
    Checked(&'a [u8]),
    /// As it came.
    Raw(&'a [u8]),
    /// It could not be read at all.
    Broken(ApiError),
}

/// Is the batch new, or was it submitted before?
pub(super) enum Begun<'a> {
    /// New.
    New(Box<OpenBatch<'a>>),
    /// The key is bound to this one.
    Again(BatchId),
}

/// An open batch.
pub(super) struct OpenBatch<'a> {
    app: &'a App,
    caller: &'a Caller,
    id: BatchId,
    /// Proposed with the first chunk, so that a small batch costs one fsync less; `None` once proposed.
    opening: Option<Intake>,
    closing: Closing,
}

/// Closes the batch when it is dropped (semantics 32).
struct Closing {
    ledger: Ledger,
    /// `None` once it is closed, or as long as it was never opened.
    close: Option<Proposal>,
    id: BatchId,
    total: u32,
    refused: u32,
    by_state: BTreeMap<String, u32>,
    outcomes: Vec<Outcome>,
    repeatable: Repeatable,
}

/// Can the batch be asked for again by a key?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeatable {
    Yes,
    No,
}

impl Closing {
    /// The closing, with what has to be kept of the answer (S6).
    fn intake(&mut self) -> Option<Intake> {
        let mut proposal = self.close.take()?;
        proposal.command = Command::CloseBatch { batch: self.id, total: self.total, refused: self.refused };
        let outcomes: Vec<Outcome> = self.outcomes.iter().filter(|outcome| !outcome.is_plain()).cloned().collect();
        let mut bodies = Vec::new();
        if self.repeatable == Repeatable::Yes || !outcomes.is_empty() {
            let (total, refused, settled) = (self.total, self.refused, self.is_settled());
            let kept = Kept { total, refused, settled, by_state: self.by_state.clone(), outcomes };
            match serde_json::to_vec(&kept).map_err(|_| ApiError::internal()).and_then(|bytes| submit::salted(&bytes)) {
                Ok((_, body)) => bodies.push((view::kept_key(self.id), body)),
                Err(error) => tracing::error!(batch = %self.id, %error, "a batch's outcomes could not be kept"),
            }
        }
        Some(Intake { proposal, bodies })
    }

    /// No task of its own is unfinished if it has none.
    fn is_settled(&self) -> bool {
        self.by_state.is_empty()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let Some(intake) = self.intake() else { return };
        let ledger = self.ledger.clone();
        // If even this fails, the hub's next start closes it.
        runtime.spawn(async move { drop(ledger.propose(intake).await) });
    }
}

impl<'a> OpenBatch<'a> {
    /// Begins a batch. One with a key is opened at once, for the key decides whether its lines are taken at all.
    ///
    /// # Errors
    /// Why the core refused it.
    pub(super) async fn begin(
        app: &'a App,
        caller: &'a Caller,
        callback: Option<CallbackSpec>,
        key: Option<IdempotencyKey>,
    ) -> ApiResult<Begun<'a>> {
        let keyed = key.is_some();
        let (id, command) = opening(callback, key);
        let proposal = caller.proposal(command);
        let closing = Closing {
            ledger: app.ledger.clone(),
            close: None,
            id,
            total: 0,
            refused: 0,
            by_state: BTreeMap::new(),
            outcomes: Vec::new(),
            repeatable: if keyed { Repeatable::Yes } else { Repeatable::No },
        };
        let mut batch = OpenBatch { app, caller, id, opening: None, closing };
        if !keyed {
            batch.opening = Some(proposal.into());
            return Ok(Begun::New(Box::new(batch)));
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "any other answer is a bug, told as one")]
        match app.ledger.propose(proposal).await?.answer {
            Answer::BatchOpened => {
                batch.opened();
                Ok(Begun::New(Box::new(batch)))
            }
            Answer::Replayed { subject: KeySubject::Batch(first), .. } => Ok(Begun::Again(first)),
            Answer::Replayed { subject: KeySubject::Task(_), .. } => {
                Err(ApiError::new(Code::IdempotencyKeyReused, "the key is in use for a task"))
            }
            Answer::Replayed { subject: KeySubject::Replay(_), .. } => {
                Err(ApiError::new(Code::IdempotencyKeyReused, "the key is in use for a replay plan"))
            }
            other => Err(unexpected(&other)),
        }
    }

    fn opened(&mut self) {
        let command = Command::CloseBatch { batch: self.id, total: 0, refused: 0 };
        self.closing.close = Some(self.caller.proposal(command));
    }

    /// Its id.
    pub(super) const fn id(&self) -> BatchId {
        self.id
    }

    /// Lines so far.
    pub(super) const fn total(&self) -> u32 {
        self.closing.total
    }

    /// Takes some lines: an outcome each, in order.
    pub(super) async fn take(&mut self, lines: Vec<Line<'_>>) {
        let first = self.closing.total;
        let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let (app, caller, id) = (self.app, self.caller, self.id);
        // Side by side, for some wait for a schema check or a parent; most are ready at once.
        let prepared =
            join_all(lines.into_iter().zip(first..).map(|(line, index)| prepare(app, caller, line, (id, index)))).await;
        let mut intakes: Vec<Intake> = Vec::with_capacity(prepared.len() + 1);
        let opens = self.opening.is_some();
        intakes.extend(self.opening.take());
        let mut slots = Vec::with_capacity(prepared.len());
        for prepared in prepared {
            slots.push(prepared.map(|Prepared { intake, warnings }| {
                intakes.push(intake);
                warnings
            }));
        }
        // From here on the events may be there even if the request is dropped while it waits for the answer.
        if opens {
            self.opened();
        }
        self.closing.total = first.saturating_add(count);
        let verdicts = if intakes.is_empty() { Ok(Vec::new()) } else { app.ledger.propose_all(intakes).await };
        let mut verdicts = match verdicts {
            Ok(verdicts) => verdicts.into_iter().map(Some).collect::<Vec<_>>().into_iter(),
            Err(why) => return self.refuse_all(&why.into(), slots.len()),
        };
        if opens && !matches!(verdicts.next(), Some(Some(Ok(_)))) {
            self.closing.close = None;
        }
        for slot in slots {
            let result = match slot {
                Err(error) => Err(error),
                Ok(warnings) => match verdicts.next().flatten() {
                    Some(verdict) => submit::accepted(app, caller, verdict, warnings).await,
                    None => Err(ApiError::new(Code::OutcomeUnknown, "the hub gave no verdict on this line")),
                },
            };
            self.settle(result);
        }
    }

    fn settle(&mut self, result: ApiResult<submit::Accepted>) {
        let closing = &mut self.closing;
        let index = u32::try_from(closing.outcomes.len()).unwrap_or(u32::MAX);
        match &result {
            Err(_) => closing.refused += 1,
            Ok(accepted) if accepted.replayed => {}
            Ok(accepted) => *closing.by_state.entry(accepted.first.name().to_owned()).or_default() += 1,
        }
        closing.outcomes.push(Outcome::new(index, result));
    }

    fn refuse_all(&mut self, why: &ApiError, count: usize) {
        for _ in 0..count {
            self.settle(Err(why.clone()));
        }
    }

    /// Closes it: all lines came.
    ///
    /// # Errors
    /// Why it could not be closed; the tasks that were taken stand all the same.
    pub(super) async fn close(mut self) -> ApiResult<BatchAnswer> {
        if self.opening.is_some() {
            // Not a single line came: open it all the same, so that it can be looked at and settles.
            self.take(Vec::new()).await;
        }
        if let Some(intake) = self.closing.intake() {
            self.app.ledger.propose(intake).await?;
        }
        let closing = &mut self.closing;
        let settled = closing.is_settled();
        Ok(BatchAnswer {
            batch_id: self.id.to_string(),
            total: closing.total,
            refused: closing.refused,
            by_state: std::mem::take(&mut closing.by_state),
            settled,
            replayed: false,
            outcomes: std::mem::take(&mut closing.outcomes),
        })
    }
}

async fn prepare(app: &App, caller: &Caller, line: Line<'_>, batch: (BatchId, u32)) -> ApiResult<Prepared> {
    let (body, raw): (TaskBody<'_>, &[u8]) = match line {
        Line::Checked(raw) => (parse_checked(raw)?, raw),
        Line::Raw(raw) => (parse(raw)?, raw),
        Line::Broken(error) => return Err(error),
    };
    submit::prepare(app, caller, &body, raw, Origin { sync_wait: None, batch: Some(batch), key: None }).await
}
