//! Who may do what: names of scopes on the wire.

use crate::ledger::machine::access::Scope;

/// The scope of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<Scope> {
    Scope::ALL.into_iter().find(|scope| scope.name() == name)
}
