//! How the items of a plan would fare: whether their sessions have gone on without them, what today's schemas say of the
//! payloads that it makes anew, and what its patch makes of them.
//!
//! Why here and not at each item's turn: a check costs time that a payload's author chooses, and the sequencer gives none
//! away. A payload, a patch and a schema never change, so what was found when the plan was made holds at the turn; the
//! list says it to the ledger, which asks it of whoever offers the capability then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::api::App;
use crate::api::error::{ApiError, ApiResult, Code};
use crate::api::render::body_key;
use crate::api::schemas::{Complaint, Complaints, Unchecked, all_refuse, distinct};
use crate::ledger::handle::Unavailable;
use crate::ledger::ids::{Digest, Namespace, ReachId};
use crate::ledger::machine::catalog::{Catalog, Entry};
use crate::ledger::machine::replay::{ItemAction, Skip};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::SchemaVerdicts;
use crate::ledger::merge_patch::{self, NotPatched};
use crate::ledger::store::BodyKind;
use crate::ledger::view::OfSession;
use crate::recovery::list::Amendments;

use super::sample::SAMPLE;
use super::select::Found;
use super::turn::Turn;

/// Payloads that are in memory at once.
const AT_ONCE: usize = 16;
/// Tasks whose sessions are looked at with one question.
const SESSIONS_AT_ONCE: usize = 256;
/// All payloads of a plan together may take so long.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of the sets of verdicts that a plan keeps, for ever.
const MAX_VERDICTS: usize = 1 << 20;

/// What a task has as its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// A body here.
    Inline,
    /// A reference, which is never opened.
    Reference,
    /// None.
    Nothing,
}

impl Held {
    /// That of a task.
    pub(super) fn by(task: &Task) -> Self {
        match (&task.spec.payload, &task.spec.payload_ref) {
            (Some(_), _) => Self::Inline,
            (None, Some(_)) => Self::Reference,
            (None, None) => Self::Nothing,
        }
    }
}

/// Verdicts, each kept once however many payloads have them.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeSet<Arc<SchemaVerdicts>>);

impl Shared {
    /// The same, shared.
    pub(super) fn share(&mut self, verdicts: Arc<SchemaVerdicts>) -> Arc<SchemaVerdicts> {
        if let Some(known) = self.0.get(&verdicts) {
            return Arc::clone(known);
        }
        self.0.insert(Arc::clone(&verdicts));
        verdicts
    }
}

/// How an item fares with its payload.
#[derive(Debug, Clone)]
pub(super) enum Fit {
    /// It keeps its payload and what is known of it; or there was no verdict, and it is asked for one when its task is
    /// there.
    AsItIs,
    /// Somebody takes it, or nobody is there to refuse it.
    Taken(Arc<SchemaVerdicts>),
    /// All who offer its capability refuse it; the verdicts, and of the first items the first complaint, if it is known.
    Refused(Arc<SchemaVerdicts>, Option<Box<Complaint>>),
    /// It is left alone for that reason.
    LeftAlone(Skip),
}

impl Fit {
    /// Why it would be left alone, as things stand.
    pub(super) const fn skip(&self) -> Option<Skip> {
        match self {
            Self::AsItIs | Self::Taken(_) => None,
            Self::Refused(..) => Some(Skip::NotAccepted),
            Self::LeftAlone(skip) => Some(*skip),
        }
    }

    /// As it is kept of one that nobody is shown.
    fn kept(self, shared: &mut Shared, place: usize) -> Self {
        match self {
            Self::Taken(verdicts) => Self::Taken(shared.share(verdicts)),
            Self::Refused(verdicts, why) => Self::Refused(shared.share(verdicts), why.filter(|_| place < SAMPLE)),
            Self::AsItIs | Self::LeftAlone(_) => self,
        }
    }
}

/// How those items fare, in their order. Whatever works for it holds the turn, so none is left behind by its end.
///
/// # Errors
/// 422 `replay-too-large` when it takes too long, for the next time it would as well; 503 when the disk does not answer or
/// the hub goes down.
pub(super) async fn fits(
    app: &App,
    (namespace, turn): (&Namespace, &Arc<Turn>),
    items: &[Found],
    patch: Option<&Arc<[u8]>>,
) -> ApiResult<Vec<Fit>> {
    let catalog = app.ledger.published().catalog;
    // Gone with this call, when its time is over or its caller is.
    let asker = Arc::new(());
    let patching =
        patch.map(|patch| Patching { patch: Arc::clone(patch), asker: Arc::downgrade(&asker), turn: Arc::clone(turn) });
    let all = async {
        let (mut fits, mut shared) = (Vec::with_capacity(items.len()), Shared::default());
        let gone_on = gone_on_without(app, namespace, items).await?;
        for some in items.chunks(AT_ONCE) {
            let some = some_fits(app, (&catalog, namespace), (some, &gone_on), patching.as_ref()).await?;
            let some = some.ok_or_else(too_slow)?;
            for fit in some {
                let fit = fit.kept(&mut shared, fits.len());
                fits.push(fit);
            }
        }
        Ok(fits)
    };
    in_time(LIMIT, all).await
}

/// Those without which their sessions have gone on: a newer task has succeeded, and that is final (R-REC-3).
async fn gone_on_without(app: &App, namespace: &Namespace, items: &[Found]) -> ApiResult<BTreeSet<ReachId>> {
    let of_session = |found: &Found| {
        let session = found.session.clone()?;
        Some(OfSession { task: found.task, session, first: found.first.unwrap_or_default() })
    };
    let asked: Vec<OfSession> = items.iter().filter_map(of_session).collect();
    let mut gone_on = BTreeSet::new();
    for some in asked.chunks(SESSIONS_AT_ONCE) {
        let found = app.ledger.superseded(namespace, some.to_vec()).await?;
        gone_on.extend(some.iter().zip(found).filter_map(|(one, by)| by.map(|_| one.task)));
    }
    Ok(gone_on)
}

/// What comes of a check, if it comes within its time.
async fn in_time<T>(limit: Duration, check: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
    tokio::time::timeout(limit, check).await.unwrap_or_else(|_| Err(too_slow()))
}

/// The refusal of a selection whose payloads take too long.
fn too_slow() -> ApiError {
    let limit = LIMIT.as_secs();
    let detail = format!("its payloads took more than {limit} s to check against today's schemas: select fewer tasks");
    ApiError::new(Code::ReplayTooLarge, detail).at("/select", "takes too long to check").fact("limit_s", limit)
}

/// A payload, patched or as it was.
type Payload = Result<Arc<[u8]>, Skip>;

/// What is to be done with payloads, and for whom.
#[derive(Debug, Clone)]
struct Patching {
    patch: Arc<[u8]>,
    asker: Weak<()>,
    turn: Arc<Turn>,
}

impl Patching {
    /// The payloads as they come out; `None` when nobody waits for them any more.
    fn all(self, payloads: Vec<Option<Payload>>) -> Option<Vec<Option<Payload>>> {
        let Self { patch, asker, turn } = self;
        let one = |payload: Option<Payload>| {
            if asker.strong_count() == 0 {
                return None;
            }
            Some(payload.map(|payload| payload.and_then(|payload| patched(&payload, &patch))))
        };
        let made = payloads.into_iter().map(one).collect();
        // Whoever waited may be gone: until here it was this namespace's turn all the same.
        drop(turn);
        made
    }
}

/// How some of them fare; `None` when the time is over.
async fn some_fits(
    app: &App,
    (catalog, namespace): (&Catalog, &Namespace),
    (items, gone_on): (&[Found], &BTreeSet<ReachId>),
    patching: Option<&Patching>,
) -> ApiResult<Option<Vec<Fit>>> {
    let entry = |found: &Found| catalog.of(namespace, &found.capability);
    let goes = |found: &Found| !gone_on.contains(&found.task);
    let asked: Vec<bool> = items.iter().map(|found| goes(found) && is_asked(found, entry(found), patching)).collect();
    let Some(payloads) = payloads(app, items, &asked, patching).await? else { return Ok(None) };
    let mut fits = Vec::with_capacity(items.len());
    for (found, payload) in items.iter().zip(payloads) {
        let entry = entry(found);
        fits.push(match payload {
            _ if !goes(found) => Fit::LeftAlone(Skip::Superseded),
            Some(Err(skip)) => Fit::LeftAlone(skip),
            Some(Ok(payload)) => verdict(app, entry, payload).await?,
            None if found.action == ItemAction::Redrive => known(found, entry),
            None => Fit::AsItIs,
        });
    }
    Ok(Some(fits))
}

/// Must its payload be looked at?
fn is_asked(found: &Found, entry: Option<&Entry>, patching: Option<&Patching>) -> bool {
    let is_known = |schema: &Digest| found.known.accepted.contains(schema) || found.known.refused.contains(schema);
    let is_new = || found.held != Held::Reference && entry.is_some_and(|entry| !distinct(entry).iter().all(is_known));
    found.action == ItemAction::Redrive && (patching.is_some() || is_new())
}

/// What is known already of the payload that it keeps.
fn known(found: &Found, entry: Option<&Entry>) -> Fit {
    match entry {
        Some(entry) if all_refuse(entry, &found.known) => Fit::Refused(Arc::clone(&found.known), None),
        Some(_) | None => Fit::AsItIs,
    }
}

/// The payloads of those that are asked about, `None` for the others; nothing at all when the time is over.
async fn payloads(
    app: &App,
    items: &[Found],
    asked: &[bool],
    patching: Option<&Patching>,
) -> ApiResult<Option<Vec<Option<Payload>>>> {
    if !asked.contains(&true) {
        return Ok(Some(items.iter().map(|_| None).collect()));
    }
    let is_read = |(found, asked): &(&Found, &bool)| **asked && found.held == Held::Inline;
    let keys = items.iter().zip(asked).filter(is_read);
    let keys = keys.map(|(found, _)| body_key(found.task, BodyKind::Payload, 0)).collect();
    let mut bodies = app.ledger.bodies(keys).await?.into_iter();
    let mut payloads: Vec<Option<Payload>> = Vec::with_capacity(items.len());
    for (found, asked) in items.iter().zip(asked) {
        payloads.push(match found.held {
            _ if !asked => None,
            Held::Inline => Some(bodies.next().flatten().map(|body| body.bytes).ok_or(Skip::PayloadErased)),
            Held::Reference | Held::Nothing if patching.is_some() => Some(Err(Skip::PayloadNotInline)),
            Held::Reference => None,
            Held::Nothing => Some(Ok(Arc::from(&b"null"[..]))),
        });
    }
    let Some(patching) = patching.cloned() else { return Ok(Some(payloads)) };
    // Taking apart a large payload is no work for those who answer calls.
    let patched = tokio::task::spawn_blocking(move || patching.all(payloads));
    Ok(patched.await.map_err(|error| Unavailable::Unreadable(error.to_string()))?)
}

/// The payload as the plan makes it, or why it does not.
pub(super) fn patched(payload: &[u8], patch: &[u8]) -> Payload {
    merge_patch::patched(payload, patch).map(Arc::from).map_err(NotPatched::skip)
}

async fn verdict(app: &App, entry: Option<&Entry>, payload: Arc<[u8]>) -> ApiResult<Fit> {
    let Some(entry) = entry else { return Ok(Fit::Taken(Arc::default())) };
    let compiled = app.schemas.compiled(&app.ledger, distinct(entry)).await?;
    fit(entry, app.schemas.verdicts(compiled, payload).await)
}

/// Only a verdict is frozen with a plan: a payload that nobody came to judge is no worse for it.
fn fit(entry: &Entry, checked: Result<(SchemaVerdicts, Complaints), Unchecked>) -> ApiResult<Fit> {
    match checked {
        Ok((verdicts, complaints)) if all_refuse(entry, &verdicts) => {
            Ok(Fit::Refused(Arc::new(verdicts), complaints.into_iter().next().map(Box::new)))
        }
        Ok((verdicts, _)) => Ok(Fit::Taken(Arc::new(verdicts))),
        // The hub checks it when the task is there.
        Err(Unchecked::Busy | Unchecked::TooSlow | Unchecked::Broken) => Ok(Fit::AsItIs),
        Err(Unchecked::Stopping) => Err(Unavailable::Stopping.into()),
    }
}

/// What the plan's list says of it. Sets of verdicts beyond [`MAX_VERDICTS`] bytes, those that refuse before those that
/// take, are left out: the hub checks what lacks them when the task is there.
pub(super) fn amendments(fits: &[Fit], patch: Option<&Arc<[u8]>>) -> Amendments {
    let refusing =
        fits.iter().filter_map(|fit| if let Fit::Refused(verdicts, _) = fit { Some(verdicts) } else { None });
    let taking = fits.iter().filter_map(|fit| if let Fit::Taken(verdicts) = fit { Some(verdicts) } else { None });
    let mut made = Amendments { patch: patch.cloned(), verdicts: Vec::new(), of_items: Vec::with_capacity(fits.len()) };
    let mut places: BTreeMap<&SchemaVerdicts, u16> = BTreeMap::new();
    let mut left = MAX_VERDICTS;
    for verdicts in refusing.chain(taking) {
        if places.contains_key(&**verdicts) {
            continue;
        }
        let next = u16::try_from(places.len() + 1).ok().filter(|place| *place < u16::MAX);
        if let (Some(place), Some(rest)) = (next, left.checked_sub(bytes_of(verdicts))) {
            left = rest;
            places.insert(verdicts, place);
            made.verdicts.push(Arc::clone(verdicts));
        }
    }
    for fit in fits {
        made.of_items.push(match fit {
            Fit::Taken(verdicts) | Fit::Refused(verdicts, _) => places.get(&**verdicts).copied().unwrap_or(0),
            Fit::AsItIs | Fit::LeftAlone(_) => 0,
        });
    }
    if made.patch.is_none() && made.verdicts.is_empty() { Amendments::default() } else { made }
}

/// How long a set is in a list.
fn bytes_of(verdicts: &SchemaVerdicts) -> usize {
    4 + 32 * (verdicts.accepted.len() + verdicts.refused.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::replays::turn::Turns;
    use crate::ledger::machine::agent::Sensitive;

    #[test]
    fn items_share_their_verdicts_and_a_plan_that_asked_nothing_says_nothing() {
        let verdicts = |n: u8| Arc::new(SchemaVerdicts { accepted: vec![Digest([n; 32])], refused: Vec::new() });
        let refused = Fit::Refused(verdicts(2), None);
        let fits = [Fit::Taken(verdicts(1)), Fit::AsItIs, refused, Fit::Taken(verdicts(1))];
        let made = amendments(&fits, None);
        assert_eq!((made.of_items, made.verdicts.len()), (vec![2, 0, 1, 2], 2));
        assert_eq!(amendments(&[Fit::AsItIs], None), Amendments::default());
        let patch: Arc<[u8]> = Arc::from(&b"{}"[..]);
        let left = amendments(&[Fit::LeftAlone(Skip::PayloadErased)], Some(&patch));
        assert_eq!((left.patch, left.of_items), (Some(patch), vec![0]));
    }

    #[test]
    fn only_a_verdict_is_frozen_and_never_that_there_was_none() {
        let schema = Digest([1; 32]);
        let (providers, schema_sets) = (BTreeSet::new(), [vec![schema]].into());
        let entry = Entry { providers, schema_sets, max_pending: 0, sensitive: Sensitive::No };
        let refused = SchemaVerdicts { accepted: Vec::new(), refused: vec![schema] };
        assert!(matches!(fit(&entry, Ok((refused, Vec::new()))), Ok(Fit::Refused(..))));
        assert!(matches!(fit(&entry, Ok((SchemaVerdicts::default(), Vec::new()))), Ok(Fit::Taken(_))));
        for why in [Unchecked::Busy, Unchecked::TooSlow, Unchecked::Broken] {
            assert!(matches!(fit(&entry, Err(why)), Ok(Fit::AsItIs)), "{why:?}");
        }
        assert_eq!(fit(&entry, Err(Unchecked::Stopping)).unwrap_err().code(), Code::Stopping);
    }

    #[test]
    fn a_plan_keeps_a_bounded_count_of_bytes_of_verdicts_and_those_that_refuse_first() {
        let many: Vec<Digest> = (0..=u8::MAX).map(|n| Digest([n; 32])).collect();
        let verdicts = |n: u32, refused: &[Digest]| {
            let accepted = many.iter().map(|Digest(bytes)| Digest::of(&[bytes, &n.to_be_bytes()])).collect();
            Arc::new(SchemaVerdicts { accepted, refused: refused.to_vec() })
        };
        let mut fits: Vec<Fit> = (0..1_000).map(|n| Fit::Taken(verdicts(n, &[]))).collect();
        fits.push(Fit::Refused(verdicts(0, &many[..1]), None));
        let made = amendments(&fits, None);
        let kept: usize = made.verdicts.iter().map(|verdicts| bytes_of(verdicts)).sum();
        assert!(kept <= MAX_VERDICTS && kept > MAX_VERDICTS / 2, "{kept}");
        assert_eq!(made.of_items.first_chunk(), Some(&[2, 3]));
        assert_eq!((made.of_items.get(999), made.of_items.get(1_000)), (Some(&0), Some(&1)));
    }

    #[tokio::test]
    async fn a_check_that_takes_too_long_is_no_fault_of_the_hub_but_a_selection_to_be_narrowed() {
        assert_eq!(in_time(LIMIT, async { Ok(7) }).await, Ok(7));
        let refusal = in_time(Duration::ZERO, std::future::pending::<ApiResult<()>>()).await.unwrap_err();
        assert_eq!((refusal.code(), refusal.status().as_u16()), (Code::ReplayTooLarge, 422));
        assert!(refusal.detail().contains("60 s") && refusal.detail().contains("fewer tasks"), "{refusal}");
    }

    #[tokio::test]
    async fn a_job_that_patches_holds_its_turn_to_its_end_and_stops_when_nobody_waits_for_it() {
        let turns = Turns::default();
        let name = Namespace::new("n").unwrap();
        let turn = Arc::new(turns.take(&name).await.unwrap());
        let patch: Arc<[u8]> = Arc::from(&br#"{"a":1}"#[..]);
        let asker = Arc::new(());
        let job = |asker| Patching { patch: Arc::clone(&patch), asker, turn: Arc::clone(&turn) };
        let (late, early) = (job(Weak::new()), job(Arc::downgrade(&asker)));
        drop(turn);
        let payloads = || vec![Some(Ok(Arc::from(&b"{}"[..]))), None];
        assert_eq!(late.all(payloads()), None);
        assert!(turns.take(&name).await.is_err(), "one still works");
        assert_eq!(early.all(payloads()), Some(vec![Some(Ok(patch)), None]));
        drop(turns.take(&name).await.unwrap());
    }
}
