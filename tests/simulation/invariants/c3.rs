//! C3: every event that somebody asked to be told of has its callback, in the same commit or later, and at rest every
//! callback has settled: delivered, exhausted, blocked or gone. Each settles once a round. Exhausted only after 24 h.
//! Progress may stay untold while as many callbacks of the task are outstanding as the bound says.

use std::collections::{BTreeMap, BTreeSet};

use agent_reach::ledger::ids::{CallbackId, ReachId, Seq};
use agent_reach::ledger::machine::bounds::MAX_OPEN_FOR_PROGRESS;
use agent_reach::ledger::machine::callback::{CallbackSubject, MAX_TRIES, WINDOW};
use agent_reach::ledger::machine::event::EventBody;
use agent_reach::ledger::time::Timestamp;

use crate::invariants::c1::wish;
use crate::model::{Evidence, Findings};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut open: BTreeMap<CallbackId, Timestamp> = BTreeMap::new();
    let mut due: BTreeSet<Seq> = BTreeSet::new();
    let mut spared: BTreeSet<Seq> = BTreeSet::new();
    let mut outstanding = Outstanding::default();
    for entry in evidence.log {
        let event = &entry.event;
        if outstanding.is_full(&event.body) {
            spared.insert(event.seq);
        }
        outstanding.follow(&event.body);
        if let EventBody::CallbackDue(body) = &event.body {
            due.insert(body.seq);
            open.insert(body.callback, event.at);
        } else if let EventBody::CallbackRedriven(body) = &event.body
            && open.insert(body.callback, event.at).is_some()
        {
            findings.add("C3", event.seq, format!("{} is sent again while it is due", body.callback));
        }
        if let EventBody::CallbackExhausted(body) = &event.body
            && open.get(&body.callback).is_none_or(|since| event.at.since(*since) < WINDOW)
            && body.attempts < MAX_TRIES
        {
            findings.add("C3", event.seq, format!("{} is given up too early", body.callback));
        }
        if let (Some(id), Some(_)) = (callback_of(&event.body), event.body.settles_callback())
            && open.remove(&id).is_none()
        {
            findings.add("C3", event.seq, format!("{id} settles twice"));
        }
    }
    if evidence.notes.at_rest {
        for id in open.keys() {
            findings.add("C3", Seq(0), format!("{id} never settled"));
        }
    }
    for life in evidence.tasks.values() {
        let Some(spec) = &life.spec.callback else { continue };
        for event in &life.events {
            let told = due.contains(&event.seq) || spared.contains(&event.seq);
            if wish(&event.body).is_some_and(|wish| spec.events.contains(&wish)) && !told {
                findings.add("C3", event.seq, format!("{}: nobody is told of {}", life.id, event.body.kind().name()));
            }
        }
    }
}

/// The callbacks of each task that have not settled.
#[derive(Default)]
struct Outstanding(BTreeMap<ReachId, u32>);

impl Outstanding {
    fn follow(&mut self, body: &EventBody) {
        let Some(CallbackSubject::Task(task)) = body.callback_subject() else { return };
        let count = self.0.entry(task).or_default();
        if matches!(body, EventBody::CallbackDue(_) | EventBody::CallbackRedriven(_)) {
            *count += 1;
        } else if body.settles_callback().is_some() {
            *count = count.saturating_sub(1);
        }
    }

    /// Progress that makes no callback due.
    fn is_full(&self, body: &EventBody) -> bool {
        let EventBody::TaskProgressed(body) = body else { return false };
        self.0.get(&body.task).is_some_and(|count| *count >= MAX_OPEN_FOR_PROGRESS)
    }
}

fn callback_of(body: &EventBody) -> Option<CallbackId> {
    if let EventBody::CallbackDelivered(body) = body {
        Some(body.callback)
    } else if let EventBody::CallbackExhausted(body) = body {
        Some(body.callback)
    } else if let EventBody::CallbackBlocked(body) = body {
        Some(body.callback)
    } else if let EventBody::CallbackGone(body) = body {
        Some(body.callback)
    } else {
        None
    }
}
