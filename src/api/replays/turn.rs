//! Whose selection is made: one of a namespace, a few over all.
//!
//! Why by namespace: each may read every row of its own, and no tenant may keep another from its recovery by asking
//! again and again.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::api::error::{ApiError, ApiResult, Code};
use crate::ledger::ids::Namespace;
use crate::ledger::time::Millis;

/// Selections at a time.
const AT_A_TIME: usize = 4;
/// Those of further namespaces wait for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who is selecting.
#[derive(Debug)]
pub(in crate::api) struct Turns {
    all: Semaphore,
    busy: Mutex<BTreeSet<Namespace>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Semaphore::new(AT_A_TIME), busy: Mutex::default() }
    }
}

/// The one selection of a namespace; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _own: Own<'a>,
    _among_all: SemaphorePermit<'a>,
}

/// A namespace among the busy ones, for as long as this is there.
#[derive(Debug)]
struct Own<'a> {
    turns: &'a Turns,
    namespace: Namespace,
}

impl Drop for Own<'_> {
    fn drop(&mut self) {
        self.turns.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.namespace);
    }
}

impl Turns {
    /// # Errors
    /// 503 `busy` while another of the namespace is being made, or four of others for long.
    pub(super) async fn take(&self, namespace: &Namespace) -> ApiResult<Turn<'_>> {
        let busy = |detail: &'static str| ApiError::new(Code::Busy, detail).retry_after(Millis::secs(2));
        if !self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.clone()) {
            return Err(busy("a selection of this namespace is being made already"));
        }
        let own = Own { turns: self, namespace: namespace.clone() };
        match tokio::time::timeout(PATIENCE, self.all.acquire()).await {
            Ok(Ok(permit)) => Ok(Turn { _own: own, _among_all: permit }),
            Ok(Err(_)) | Err(_) => Err(busy("selections of other namespaces are being made")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_makes_one_selection_at_a_time_and_keeps_no_other_out() {
        let turns = Turns::default();
        let name = |n: usize| Namespace::new(&format!("n-{n}")).unwrap();
        let first = turns.take(&name(0)).await.unwrap();
        let refused = |turn: ApiResult<Turn<'_>>| turn.err().map(|refused| refused.code());
        assert_eq!(refused(turns.take(&name(0)).await), Some(Code::Busy));
        let mut others = Vec::new();
        for n in 1..AT_A_TIME {
            others.push(turns.take(&name(n)).await.unwrap());
        }
        let ninth = name(9);
        let (waited, ()) = tokio::join!(turns.take(&ninth), async { drop(first) });
        drop(waited.unwrap());
        drop(turns.take(&name(0)).await.unwrap());
    }
}
