//! The plainest submission, for every test that needs one: what a test is about it changes, and nothing else stands there.

use crate::ledger::ids::{Capability, FairnessKey, ReachId};
use crate::ledger::machine::task::spec::Submission;

/// Every default of the API, no payload, nobody to tell; it waits where nobody offers the capability.
pub(crate) fn submission(reach_id: ReachId, capability: &str) -> Submission {
    let (capability, caller) = (Capability::new(capability), FairnessKey::new("caller"));
    Submission::plain(reach_id, capability.expect("a capability"), caller.expect("a key"))
}
