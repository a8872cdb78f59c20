//! What a task was made anew of, or let back into its queue by: by whom, why, and whether its payload stayed.
//!
//! Why found and not read: the link between the two says which plan did it, and a plan has its own reason and owner; what
//! became of the payload the two submissions say. So nothing of it is kept twice (semantics 40).

use serde_json::Value;

use crate::ledger::handle::{Ledger, Unavailable};
use crate::ledger::ids::{ReplayId, Seq};
use crate::ledger::machine::access::Access;
use crate::ledger::machine::event::{Actor, Event, EventBody, TaskRedriven};
use crate::ledger::machine::task::Task;
use crate::ledger::machine::task::spec::Text;

use super::render::{self, Fields};

/// What became of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    /// It goes as it was.
    Kept,
    /// The plan patched it.
    Patched,
    /// The operator sent another one.
    Replaced,
}

impl Payload {
    const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Patched => "patched",
            Self::Replaced => "replaced",
        }
    }

    /// By the two submissions. A payload that is made anew has a salt of its own, so no two of them look the same.
    fn between(old: &Task, new: &Task, link: &TaskRedriven) -> Self {
        let is_kept = old.spec.payload == new.spec.payload && old.spec.payload_ref == new.spec.payload_ref;
        match link.replay {
            _ if is_kept => Self::Kept,
            Some(_) => Self::Patched,
            None => Self::Replaced,
        }
    }
}

/// How a task was made of an ended one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Anew {
    link: TaskRedriven,
    at: String,
    /// Who ordered it: the operator, of a plan whoever made that.
    by: Value,
    reason: Option<Text>,
    payload: Option<Payload>,
}

impl Anew {
    /// What the link tells, with what lies behind it; `None` of any other event.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub(super) async fn told_by(ledger: &Ledger, event: &Event) -> Result<Option<Self>, Unavailable> {
        let EventBody::TaskRedriven(link) = &event.body else { return Ok(None) };
        let mut both = ledger.tasks(vec![link.task, link.successor]).await?.into_iter();
        let (old, new) = (both.next().flatten(), both.next().flatten());
        let payload = old.zip(new).map(|(old, new)| Payload::between(&old, &new, link));
        let plan = match link.replay {
            Some(plan) => ledger.replay(plan).await?,
            None => None,
        };
        let access = ledger.published().access;
        let by = plan.as_ref().map_or(&event.actor, |plan| &plan.by);
        let reason = link.reason.clone().or_else(|| plan.as_ref().map(|plan| plan.reason.clone()));
        Ok(Some(Self { link: link.clone(), at: event.at.to_string(), by: named(by, &access), reason, payload }))
    }

    /// The same of the task that was made, if it was made of another.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub(super) async fn of(ledger: &Ledger, task: &Task) -> Result<Option<Self>, Unavailable> {
        // The submission stands right before the link.
        let [first, second, ..] = task.seqs.as_slice() else { return Ok(None) };
        let found = ledger.events_after(*first, 1).await?.into_iter().find(|stored| stored.event.seq == *second);
        let told = match found {
            Some(stored) => Self::told_by(ledger, &stored.event).await?,
            None => None,
        };
        Ok(told.filter(|anew| anew.link.successor == task.id()))
    }

    /// As the task that was made shows it.
    pub(super) fn view(&self) -> Value {
        let mut fields = Fields::default();
        fields.add("of", self.link.task.to_string());
        fields.add("at", self.at.clone());
        fields.add("by", self.by.clone());
        if let Some(plan) = self.link.replay {
            fields.add("replay_id", plan.to_string());
        }
        self.add_why(&mut fields);
        serde_json::to_value(fields).unwrap_or_default()
    }

    /// Adds to the link, in a history, what it does not say itself.
    pub(super) fn add_to(&self, fields: &mut Fields) {
        fields.add("ordered_by", self.by.clone());
        self.add_why(fields);
    }

    fn add_why(&self, fields: &mut Fields) {
        if let Some(reason) = &self.reason {
            fields.add("reason", &**reason);
        }
        if let Some(payload) = self.payload {
            fields.add("payload", payload.name());
        }
    }
}

/// The plan that let a task back into its queue.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SentBack {
    plan: ReplayId,
    by: Value,
    reason: Option<Text>,
}

impl SentBack {
    /// What the outcome of an item tells that stands right before the replay, in the same commit; `None` of any other
    /// event, and of one that no plan ordered.
    ///
    /// # Errors
    /// [`Unavailable`] when the hub or its disk does not answer.
    pub(super) async fn told_by(ledger: &Ledger, event: &Event) -> Result<Option<Self>, Unavailable> {
        let EventBody::TaskReplayed(replayed) = &event.body else { return Ok(None) };
        let before = ledger.events_at(vec![Seq(event.seq.0.saturating_sub(1))]).await?.into_iter().next();
        let Some(EventBody::ReplayItemDone(item)) = before.map(|stored| stored.event.body) else { return Ok(None) };
        if item.task != replayed.task {
            return Ok(None);
        }
        let plan = ledger.replay(item.replay).await?;
        let by = plan.as_ref().map_or(&event.actor, |plan| &plan.by);
        let by = named(by, &ledger.published().access);
        Ok(Some(Self { plan: item.replay, by, reason: plan.map(|plan| plan.reason) }))
    }

    /// Adds to the replay, in a history, what it does not say itself.
    pub(super) fn add_to(&self, fields: &mut Fields) {
        fields.add("replay_id", self.plan.to_string());
        fields.add("ordered_by", self.by.clone());
        if let Some(reason) = &self.reason {
            fields.add("reason", &**reason);
        }
    }
}

/// Who it was, by the name that people call the token by.
fn named(actor: &Actor, access: &Access) -> Value {
    let mut fields = Fields::default();
    fields.add("actor", render::actor(actor));
    fields.name_actor(actor, access);
    fields.0.pop().map(|(_, actor)| actor).unwrap_or_default()
}
