//! The plainest submission, for every test that needs one: what a test is about it changes, and nothing else stands there.

use crate::ledger::ids::{Capability, FairnessKey, ReachId};
use crate::ledger::machine::task::spec::{
    AbsentAgents, Approval, DEFAULT_LIFETIME, DEFAULT_REACH_TIMEOUT, DEFAULT_WORK_TIMEOUT, Idempotence, OnWait,
    OrphanPolicy, Qos, Requires, RetryPolicy, SchemaVerdicts, SlowPolicy, Submission,
};

/// Every default of the API, no payload, nobody to tell; it waits where nobody offers the capability.
pub(crate) fn submission(reach_id: ReachId, capability: &str) -> Submission {
    Submission {
        reach_id,
        capability: Capability::new(capability).expect("a capability"),
        payload: None,
        payload_ref: None,
        qos: Qos::Normal,
        idempotence: Idempotence::NotDeclared,
        lifetime: DEFAULT_LIFETIME,
        deadline: None,
        not_before: None,
        reach_timeout: DEFAULT_REACH_TIMEOUT,
        work_timeout: DEFAULT_WORK_TIMEOUT,
        sync_wait: None,
        retry: RetryPolicy::default(),
        slow_reach: SlowPolicy::Wait,
        orphan: OrphanPolicy::Hold,
        on_wait: OnWait::Keep,
        session: None,
        context_path: None,
        labels: Vec::new(),
        parent: None,
        fairness_key: FairnessKey::new("caller").expect("a key"),
        cost_budget: None,
        sensitivity: None,
        approval: Approval::NotNeeded,
        requires: Requires::nothing(),
        schemas: SchemaVerdicts::default(),
        preferred_agent: None,
        absent_agents: AbsentAgents::Wait,
        callback: None,
        idempotency: None,
        batch: None,
    }
}
