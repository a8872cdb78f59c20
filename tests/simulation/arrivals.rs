//! What the API draws when a request arrives: ids and salts. A request that the network doubles is two requests, each with
//! its own.

use std::sync::Arc;

use agent_reach::ledger::ids::{Digest, ReachId, ReplayId};
use agent_reach::ledger::machine::command::{Command, Proposal};
use agent_reach::ledger::machine::task::spec::BodyRef;
use agent_reach::ledger::store::{Body, BodyKey, BodyKind};
use agent_reach::recovery::list::{amendments, decode};

use crate::hub::Input;
use crate::model::Said;
use crate::workload::{body_ref, id, payload};
use crate::world::World;

/// An id that is still to be drawn.
pub(crate) const UNDRAWN: [u8; 16] = [0; 16];

impl World {
    pub(crate) fn draw_ids(&mut self, input: &mut Input) {
        let Input::Work { proposals, bodies, .. } = input else { return };
        for Proposal { command, .. } in proposals {
            if let Command::SubmitTask { submission, .. } = command {
                let submission = Arc::make_mut(submission);
                if submission.reach_id == ReachId(UNDRAWN) {
                    submission.reach_id = ReachId(id(self.mono(), self.chance.draw()));
                }
                if submission.payload.is_some() {
                    let payload = payload(&mut self.chance);
                    submission.payload = Some(body_ref(&payload));
                    bodies.push((payload_of(submission.reach_id), payload));
                }
            } else if let Command::RedriveTask(order) = command {
                order.successor = ReachId(id(self.mono(), self.chance.draw()));
                self.notes.successors.insert(order.successor);
                if let Some(correction) = &mut order.correction {
                    let payload = payload(&mut self.chance);
                    correction.payload = body_ref(&payload);
                    self.notes.corrections.insert(correction.payload.digest);
                    bodies.push((payload_of(order.successor), payload));
                }
            } else if let Command::PlanReplay(order) = command {
                order.replay = ReplayId(id(self.mono(), self.chance.draw()));
                let (_, list) = bodies.first().cloned().expect("a plan brings its list");
                let salted = Body { salt: salt(self.chance.draw()), ..list };
                order.list = body_ref(&salted);
                let items = decode(&salted.bytes).expect("a list");
                let amendments = amendments(&salted.bytes).expect("a list");
                order.patch = amendments.patch.as_ref().map(|patch| BodyRef {
                    digest: Digest::of(&[&salted.salt, patch]),
                    len: u32::try_from(patch.len()).unwrap_or(u32::MAX),
                });
                self.notes.lists.insert(order.replay, items);
                self.notes.said.insert(order.replay, Said { amendments, named: order.patch.clone() });
                *bodies = vec![(BodyKey::list_of(order.replay), salted)];
            }
        }
    }
}

/// Sixteen bytes of it.
pub(crate) fn salt(drawn: u64) -> [u8; 16] {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&drawn.to_be_bytes());
    salt
}

/// Where a task's payload lies.
pub(crate) const fn payload_of(task: ReachId) -> BodyKey {
    BodyKey::Task { task, kind: BodyKind::Payload, attempt: 0 }
}
