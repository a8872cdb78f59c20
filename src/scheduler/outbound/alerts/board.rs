//! How telling goes, for whoever asks: figures, `/v1/cluster` and `reach status`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::rules::Kind;
use crate::ledger::time::Timestamp;

/// How one try to tell a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The receiver said 2xx.
    Told,
    /// It did not: it is tried again.
    Failed,
    /// It refuses this very message: it is given up.
    GivenUp,
}

impl Outcome {
    /// Its name in figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Failed => "failed",
            Self::GivenUp => "given-up",
        }
    }
}

/// How telling stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Host and port of the receiver; nothing else of its URL is shown.
    pub to: String,
    /// Messages that are not told yet.
    pub waiting: usize,
    /// When the last one was told, since the start.
    pub last_told_at: Option<Timestamp>,
    /// Since when nothing is taken, if the last try failed.
    pub failing_since: Option<Timestamp>,
    /// Why the last try failed, a short stable word; `None` if it did not.
    pub last_error: Option<String>,
}

/// Tries, by kind and how they ended.
pub type Counts = BTreeMap<(Kind, Outcome), u64>;

/// The board.
#[derive(Debug)]
pub struct Board(Mutex<(Standing, Counts)>);

impl Board {
    /// Of a receiver at that host and port.
    #[must_use]
    pub fn of(to: String) -> Self {
        let standing = Standing { to, waiting: 0, last_told_at: None, failing_since: None, last_error: None };
        Self(Mutex::new((standing, BTreeMap::new())))
    }

    /// How telling stands.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.lock().0.clone()
    }

    /// Tries since the start, by kind and how they ended.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().1.clone()
    }

    pub(super) fn waits(&self, messages: usize) {
        self.lock().0.waiting = messages;
    }

    /// A try ended; `error` says why it failed.
    pub(super) fn tried(&self, kind: Kind, outcome: Outcome, error: Option<&str>, now: Timestamp) {
        let mut held = self.lock();
        let count = held.1.entry((kind, outcome)).or_insert(0);
        *count = count.saturating_add(1);
        let standing = &mut held.0;
        match error {
            None => {
                (standing.last_told_at, standing.failing_since, standing.last_error) = (Some(now), None, None);
            }
            Some(error) => {
                standing.failing_since = standing.failing_since.or(Some(now));
                standing.last_error = Some(error.to_owned());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Standing, Counts)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fails_since_the_first_failure_in_a_row_and_no_more_once_told() {
        let board = Board::of("pager:443".to_owned());
        for (at, error) in [(3, "connect"), (5, "http-500")] {
            board.tried(Kind::DeadLetter, Outcome::Failed, Some(error), Timestamp(at));
        }
        let standing = board.standing();
        assert_eq!((standing.failing_since, standing.last_error.as_deref()), (Some(Timestamp(3)), Some("http-500")));
        board.tried(Kind::DeadLetter, Outcome::Told, None, Timestamp(7));
        let standing = board.standing();
        assert_eq!(
            (standing.last_told_at, standing.failing_since, standing.last_error),
            (Some(Timestamp(7)), None, None)
        );
        let counts: Vec<_> = board.counts().into_iter().collect();
        assert_eq!(counts, [((Kind::DeadLetter, Outcome::Told), 1), ((Kind::DeadLetter, Outcome::Failed), 2)]);
    }
}
