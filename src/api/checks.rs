//! What a registration is checked against beyond its own fields: the egress guard and the schema compiler below.

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
    pub(super) fn schema(&self, _bytes: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
