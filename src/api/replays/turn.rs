//! Whose selection is made: one of a namespace, a few over all.
//!
//! Why by namespace: each may read every row of its own, and no tenant may keep another from its recovery by asking
//! again and again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
    all: Arc<Semaphore>,
    busy: Arc<Mutex<BTreeSet<Namespace>>>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_A_TIME)), busy: Arc::default() }
    }
}

/// The one selection of a namespace; it ends when this is dropped, by the last who works for it.
#[derive(Debug)]
pub(super) struct Turn {
    _own: Own,
    _among_all: OwnedSemaphorePermit,
}

/// A namespace among the busy ones, for as long as this is there.
#[derive(Debug)]
struct Own {
    busy: Arc<Mutex<BTreeSet<Namespace>>>,
    namespace: Namespace,
}

impl Drop for Own {
    fn drop(&mut self) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.namespace);
    }
}

impl Turns {
    /// # Errors
    /// 503 `busy` while another of the namespace is being made, or four of others for long.
    pub(super) async fn take(&self, namespace: &Namespace) -> ApiResult<Turn> {
        let busy = |detail: &'static str| ApiError::new(Code::Busy, detail).retry_after(Millis::secs(2));
        if !self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.clone()) {
            return Err(busy("a selection of this namespace is being made already"));
        }
        let own = Own { busy: Arc::clone(&self.busy), namespace: namespace.clone() };
        match tokio::time::timeout(PATIENCE, Arc::clone(&self.all).acquire_owned()).await {
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
        let refused = |turn: ApiResult<Turn>| turn.err().map(|refused| refused.code());
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
