//! Changes of the log copy, and of the payloads that lie beside it, that concern what plans make of payloads.

use std::sync::Arc;

use agent_reach::ledger::ids::{Digest, ReachId, ReplayId};
use agent_reach::ledger::machine::event::{Event, EventBody, ReplayItemDone, ReplayItemSkipped};
use agent_reach::ledger::machine::replay::{Done, Skip};
use agent_reach::ledger::machine::task::spec::{SchemaVerdicts, Submission};

use crate::invariants::r3_payloads::patched;
use crate::model::{Entry, Notes};
use crate::patches;
use crate::tampers::change;
use crate::workload::body_ref;

/// A change of both; false when there is nothing that it could change.
pub(crate) type PatchTamper = fn(&mut [Entry], &mut Notes) -> bool;

/// The changes, each with the invariants of which at least one must condemn it.
pub(crate) const PATCH_TAMPERS: &[(&str, PatchTamper, &[&str])] = &[
    ("a payload merged with another patch", merged_with_another, &["R3 payloads"]),
    ("a payload not merged at all", not_merged, &["R3 payloads"]),
    ("a payload that a plan without a patch changed", changed_unasked, &["R3 payloads"]),
    ("a payload that is not the one on disk", another_on_disk, &["R3 payloads"]),
    ("a verdict of the list left out", verdict_left_out, &["R3 payloads"]),
    ("a payload that everybody refuses made anew", refused_and_gone, &["R3 payloads"]),
    ("left alone as not inline, and it was", falsely_not_inline, &["R3 payloads"]),
    ("left alone as too large, and it was not", falsely_too_large, &["R3 payloads"]),
    ("left alone as not accepted, and somebody takes it", falsely_not_accepted, &["R3 payloads"]),
    ("another patch than was frozen", another_patch_named, &["R3 payloads"]),
];

/// Do plans of that kind patch?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Patching,
    Plain,
}

fn kind_of(notes: &Notes, plan: ReplayId) -> Option<Kind> {
    let said = notes.said.get(&plan)?;
    Some(if said.amendments.patch.is_some() { Kind::Patching } else { Kind::Plain })
}

/// Items that were made anew by plans of a kind, with what was made of them.
fn made(log: &[Entry], notes: &Notes, kind: Kind) -> Vec<(ReplayItemDone, ReachId)> {
    let of_kind = |entry: &Entry| {
        let EventBody::ReplayItemDone(body) = &entry.event.body else { return None };
        let Done::Redriven { successor } = body.done else { return None };
        (kind_of(notes, body.replay) == Some(kind)).then(|| (body.clone(), successor))
    };
    log.iter().filter_map(of_kind).collect()
}

fn with_submission(log: &mut [Entry], task: ReachId, with: impl FnOnce(&mut Submission)) -> bool {
    let is_its =
        |event: &Event| matches!(&event.body, EventBody::TaskSubmitted(body) if body.submission.reach_id == task);
    change(log, is_its, |event| {
        if let EventBody::TaskSubmitted(body) = &mut event.body {
            with(Arc::make_mut(&mut body.submission));
        }
    })
}

/// Gives a task that payload, on disk and in the log.
fn give(log: &mut [Entry], notes: &mut Notes, task: ReachId, bytes: Vec<u8>) -> bool {
    let Some(body) = notes.payloads.get_mut(&task).filter(|body| *body.bytes != *bytes) else { return false };
    body.bytes = bytes.into();
    let named = body_ref(body);
    with_submission(log, task, |submission| submission.payload = Some(named))
}

fn merged_with_another(log: &mut [Entry], notes: &mut Notes) -> bool {
    made(log, notes, Kind::Patching).into_iter().any(|(body, successor)| {
        let other = patched(notes.payloads.get(&body.task), br#"{"host":"of-another-patch"}"#);
        other.is_ok_and(|value| give(log, notes, successor, patches::bytes(&value)))
    })
}

fn not_merged(log: &mut [Entry], notes: &mut Notes) -> bool {
    made(log, notes, Kind::Patching).into_iter().any(|(body, successor)| {
        let old = notes.payloads.get(&body.task).map(|old| old.bytes.to_vec());
        old.is_some_and(|old| give(log, notes, successor, old))
    })
}

fn changed_unasked(log: &mut [Entry], notes: &mut Notes) -> bool {
    let made = made(log, notes, Kind::Plain);
    made.into_iter().any(|(_, successor)| give(log, notes, successor, br#"{"host":"unasked"}"#.to_vec()))
}

fn another_on_disk(log: &mut [Entry], notes: &mut Notes) -> bool {
    made(log, notes, Kind::Patching).into_iter().any(|(_, successor)| {
        with_submission(log, successor, |submission| {
            if let Some(payload) = &mut submission.payload {
                payload.digest = Digest::of(&[b"another"]);
            }
        })
    })
}

fn verdict_left_out(log: &mut [Entry], notes: &mut Notes) -> bool {
    made(log, notes, Kind::Patching).into_iter().any(|(body, successor)| {
        let said = notes.said.get(&body.replay).and_then(|said| said.amendments.of(body.index));
        said.is_some_and(|said| !said.schemas.accepted.is_empty())
            && with_submission(log, successor, |submission| submission.schemas = SchemaVerdicts::default())
    })
}

/// The list said so all along.
fn refused_and_gone(log: &mut [Entry], notes: &mut Notes) -> bool {
    let strict = |task: ReachId| {
        log.iter().any(|entry| {
            matches!(&entry.event.body, EventBody::TaskSubmitted(body)
                if body.submission.reach_id == task && body.submission.capability.as_str() == "image.scan")
        })
    };
    let found = made(log, notes, Kind::Patching).into_iter().find(|(body, _)| strict(body.task));
    let Some((body, successor)) = found else { return false };
    let Some(said) = notes.said.get_mut(&body.replay) else { return false };
    let place = usize::try_from(body.index).ok().and_then(|index| said.amendments.of_items.get_mut(index));
    let Some(place) = place else { return false };
    *place = 2;
    let refusing = said.amendments.of(body.index).map(|said| said.schemas);
    refusing.is_some_and(|refusing| with_submission(log, successor, |spec| spec.schemas = (*refusing).clone()))
}

/// Says another reason of the first item that fits.
fn skip_as(log: &mut [Entry], fits: impl Fn(&ReplayItemSkipped) -> bool, skip: Skip) -> bool {
    let is_one = |event: &Event| matches!(&event.body, EventBody::ReplayItemSkipped(body) if fits(body));
    change(log, is_one, |event| {
        if let EventBody::ReplayItemSkipped(body) = &mut event.body {
            body.skip = skip;
        }
    })
}

fn is_patchable(notes: &Notes, body: &ReplayItemSkipped) -> bool {
    kind_of(notes, body.replay) == Some(Kind::Patching) && patched(notes.payloads.get(&body.task), b"{}").is_ok()
}

fn falsely_not_inline(log: &mut [Entry], notes: &mut Notes) -> bool {
    let notes = &*notes;
    skip_as(log, |body| is_patchable(notes, body), Skip::PayloadNotInline)
}

fn falsely_too_large(log: &mut [Entry], _: &mut Notes) -> bool {
    skip_as(log, |body| body.skip == Skip::PayloadNotInline, Skip::PayloadTooLarge)
}

fn falsely_not_accepted(log: &mut [Entry], _: &mut Notes) -> bool {
    skip_as(log, |body| body.skip == Skip::AlreadyRedriven, Skip::NotAccepted)
}

fn another_patch_named(log: &mut [Entry], notes: &mut Notes) -> bool {
    let notes = &*notes;
    let patching = |event: &Event| event.body.replay().and_then(|plan| kind_of(notes, plan)) == Some(Kind::Patching);
    change(log, patching, |event| {
        if let EventBody::ReplayPlanned(body) = &mut event.body {
            body.patch.iter_mut().for_each(|patch| patch.digest = Digest::of(&[b"another"]));
        }
    })
}
