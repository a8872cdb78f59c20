//! Who may do what: one row a call.
//!
//! The handlers ask for their scopes themselves, next to what they do; this table is what tests, the OpenAPI document
//! and people read. Two tests hold them together: every operation has a row, and every row behaves as it says.

use crate::ledger::machine::access::Scope;

/// Who may make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Everybody, without a token (semantics 39).
    Everybody,
    /// A token with any one of these scopes.
    AnyOf(&'static [Scope]),
    /// A token with this scope that holds in every namespace.
    Everywhere(Scope),
}

use Allowed::{AnyOf, Everybody, Everywhere};
use Scope::{Admin, Audit, Operate, Read, Register, Submit, Work};

/// Method, path, who.
pub const TABLE: &[(&str, &str, Allowed)] = &[
    ("get", "/", Everybody),
    ("get", "/livez", Everybody),
    ("get", "/readyz", Everybody),
    ("get", "/openapi.json", Everybody),
    ("get", "/docs", Everybody),
    ("get", "/metrics", Everywhere(Operate)),
    ("get", "/v1/cluster", AnyOf(&[Read])),
    ("get", "/v1/status", AnyOf(&[Read, Operate])),
    ("get", "/v1/machine", AnyOf(&[Read])),
    ("post", "/v1/agents", AnyOf(&[Register])),
    ("get", "/v1/agents", AnyOf(&[Read])),
    ("get", "/v1/agents/{agent_id}", AnyOf(&[Read])),
    ("delete", "/v1/agents/{agent_id}", AnyOf(&[Register])),
    ("post", "/v1/agents/{agent_id}/heartbeat", AnyOf(&[Work])),
    ("post", "/v1/agents/{agent_id}/claim", AnyOf(&[Work])),
    ("post", "/v1/agents/{agent_id}/drain", AnyOf(&[Operate, Register])),
    ("post", "/v1/agents/{agent_id}/offline", AnyOf(&[Work, Register])),
    ("put", "/v1/agents/{agent_id}/breakers/{capability}", AnyOf(&[Operate])),
    ("post", "/v1/tasks", AnyOf(&[Submit])),
    ("get", "/v1/tasks", AnyOf(&[Read])),
    ("get", "/v1/tasks/{reach_id}", AnyOf(&[Read])),
    ("get", "/v1/tasks/{reach_id}/result", AnyOf(&[Read])),
    ("get", "/v1/tasks/{reach_id}/payload", AnyOf(&[Read])),
    ("get", "/v1/tasks/{reach_id}/history", AnyOf(&[Audit])),
    ("get", "/v1/tasks/{reach_id}/explain", AnyOf(&[Read])),
    ("post", "/v1/route/explain", AnyOf(&[Read])),
    ("post", "/v1/tasks/{reach_id}/ack", AnyOf(&[Work])),
    ("post", "/v1/tasks/{reach_id}/progress", AnyOf(&[Work])),
    ("post", "/v1/tasks/{reach_id}/complete", AnyOf(&[Work])),
    ("post", "/v1/tasks/{reach_id}/fail", AnyOf(&[Work])),
    ("post", "/v1/tasks/{reach_id}/release", AnyOf(&[Work])),
    ("post", "/v1/tasks/{reach_id}/cancel", AnyOf(&[Submit, Operate])),
    ("post", "/v1/tasks/{reach_id}/approve", AnyOf(&[Operate])),
    ("post", "/v1/tasks/{reach_id}/redrive", AnyOf(&[Operate])),
    ("post", "/v1/tasks/{reach_id}/resolve", AnyOf(&[Operate])),
    ("post", "/v1/work/reports", AnyOf(&[Work])),
    ("post", "/v1/batches", AnyOf(&[Submit])),
    ("get", "/v1/batches/{batch_id}", AnyOf(&[Read])),
    ("post", "/v1/replays", AnyOf(&[Operate])),
    ("get", "/v1/replays", AnyOf(&[Read])),
    ("get", "/v1/replays/{replay_id}", AnyOf(&[Read])),
    ("patch", "/v1/replays/{replay_id}", AnyOf(&[Operate])),
    ("get", "/v1/replays/{replay_id}/items", AnyOf(&[Read])),
    ("post", "/v1/replays/{replay_id}/pause", AnyOf(&[Operate])),
    ("post", "/v1/replays/{replay_id}/resume", AnyOf(&[Operate])),
    ("post", "/v1/replays/{replay_id}/cancel", AnyOf(&[Operate])),
    ("get", "/v1/events", AnyOf(&[Audit])),
    ("get", "/v1/callbacks", AnyOf(&[Read])),
    ("post", "/v1/callbacks/{callback_id}/redrive", AnyOf(&[Operate])),
    ("post", "/v1/callback-secrets", AnyOf(&[Admin])),
    ("get", "/v1/callback-secrets", AnyOf(&[Admin])),
    ("post", "/v1/callback-secrets/{name}/rotate", AnyOf(&[Admin])),
    ("delete", "/v1/callback-secrets/{name}", AnyOf(&[Admin])),
    ("get", "/v1/policies", AnyOf(&[Read, Operate])),
    ("put", "/v1/policies", AnyOf(&[Operate])),
    ("put", "/v1/policies/capabilities", AnyOf(&[Operate])),
    ("put", "/v1/policies/routing", AnyOf(&[Operate])),
    ("put", "/v1/policies/hub", Everywhere(Operate)),
    ("post", "/v1/tokens", AnyOf(&[Admin])),
    ("get", "/v1/tokens", AnyOf(&[Admin])),
    ("delete", "/v1/tokens/{token_id}", AnyOf(&[Admin])),
    ("post", "/v1/tokens/{token_id}/rotate", AnyOf(&[Admin])),
];

/// Who may make that call; `None` for one that is not in the table.
#[must_use]
pub fn allowed(method: &str, path: &str) -> Option<Allowed> {
    TABLE.iter().find(|(m, p, _)| *m == method && *p == path).map(|(_, _, allowed)| *allowed)
}

/// The scope of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Scope> {
    Scope::ALL.into_iter().find(|scope| scope.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_the_document_has_its_row() {
        let document = crate::api::openapi::document();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                assert!(allowed(method, path).is_some(), "{method} {path} has no row");
            }
        }
    }
}
