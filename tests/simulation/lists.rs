//! The driver of replay plans: it asks the hub which lists its planner lacks, reads them and brings them. Sometimes late,
//! sometimes for nothing: it asks again until none is lacking.

use std::sync::Arc;

use agent_reach::ledger::ids::ReplayId;
use agent_reach::ledger::machine::command::Command;
use agent_reach::ledger::machine::replay::ItemAction;
use agent_reach::ledger::planner::Note;
use agent_reach::ledger::store::{BodyKey, Store};
use agent_reach::recovery::Recovery;
use agent_reach::recovery::list::{amendments, decode, encode_amending};

use crate::hub::{Disk, Hub, Input};
use crate::sabotage::Sabotage;
use crate::world::{Action, World};

/// Lists that are read between two questions.
const AT_ONCE: usize = 2;

/// What the driver is about.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Driver {
    #[default]
    Idle,
    /// It has a question on its way, or pauses before the next.
    Busy,
}

impl Hub {
    /// Running plans whose list the planner does not have.
    pub(crate) fn wants_lists(&self) -> Vec<ReplayId> {
        let recovery = self.planners.iter().filter_map(|planner| planner.as_any().downcast_ref::<Recovery>());
        recovery.flat_map(|recovery| recovery.plans().wants_list()).collect()
    }

    /// A list came from the driver.
    #[expect(clippy::wildcard_enum_match_arm, reason = "asks about two sabotages; the rest leave the list as it is")]
    pub(crate) fn listed(&mut self, replay: ReplayId, list: &[u8]) {
        let list: Arc<[u8]> = match self.sabotage {
            Sabotage::SessionsForgotten => {
                let mut items = decode(list).unwrap_or_default();
                items.iter_mut().for_each(|item| item.group = 0);
                encode_amending(&items, &amendments(list).unwrap_or_default()).into()
            }
            Sabotage::ListsMixedUp => {
                let mut items = decode(list).unwrap_or_default();
                items.reverse();
                encode_amending(&items, &amendments(list).unwrap_or_default()).into()
            }
            _ => list.into(),
        };
        self.note(&Note::Listed { replay, list });
    }

    /// On a disk that is nearly full nothing new is taken in; what frees room is.
    pub(crate) fn is_shut_for(&self, command: &Command) -> bool {
        let submits = matches!(
            command,
            Command::SubmitTask { .. } | Command::OpenBatch { .. } | Command::RedriveTask(_) | Command::PlanReplay(_)
        ) || matches!(command, Command::ReplayItem(item) if item.action == ItemAction::Redrive);
        self.disk == Disk::Low && submits
    }
}

impl World {
    /// After each step: is a list lacking that nobody fetches?
    pub(crate) fn mind_lists(&mut self) {
        let lacks = |hub: &Hub| hub.is_open() && !hub.wants_lists().is_empty();
        if self.driver == Driver::Busy || !self.hub.as_ref().is_some_and(lacks) {
            return;
        }
        self.driver = Driver::Busy;
        let idle = self.is_rough() && self.chance.hits(80);
        let after = if idle { self.chance.between(1_000, 6_000) } else { self.chance.between(1, 120) };
        if idle {
            self.tally.hit("list late");
        }
        self.at(after, Action::Lists);
    }

    /// The driver's question was answered: it reads and brings what is lacking.
    pub(crate) fn bring_lists(&mut self, wanted: Vec<ReplayId>) {
        let Some(boot) = self.hub.as_ref().map(|hub| hub.state.boot()) else { return };
        for replay in wanted.into_iter().take(AT_ONCE) {
            let body = self.store.body(&BodyKey::list_of(replay)).expect("the memory store reads");
            let named = self.hub.as_ref().and_then(|hub| hub.state.replay(replay)).map(|plan| plan.list.digest);
            match body {
                Some(body) if named.is_none_or(|named| named == body.digest()) => {
                    if self.is_rough() && self.chance.hits(100) {
                        self.tally.hit("list lost");
                        continue;
                    }
                    let list = body.bytes;
                    self.at(1, Action::Arrive(Input::Listed { boot, replay, list }));
                }
                Some(_) | None => self.breach("D1", format!("the list of {replay} is not what its plan names")),
            }
        }
    }
}
