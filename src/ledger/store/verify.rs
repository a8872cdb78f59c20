//! The whole ledger checked offline: every commit, every event, the fold, the rows, the mark and the snapshots (D2, D4, D5).
//!
//! Why beside the checks of every start: those look at the tail only. Here nothing is believed: damage is named by its
//! seq and file, and what lies behind it is reported as unchecked, never skipped in silence. [`accept_loss`] goes on
//! from the last good commit as a new lineage (semantics 24).

use std::path::{Path, PathBuf};

use super::Head;
use crate::ledger::ids::{Digest, Seq};

pub use super::fjall_repair::{Accepted, Lost, RepairError, accept_loss};
pub use super::fjall_verify::verify;
pub use super::keyfile::Mended;

/// More problems than this are counted, not listed.
const MAX_PROBLEMS: usize = 1_000;

/// Why a data folder can't be verified at all. What is wrong *in* it is a [`Problem`].
pub type VerifyError = super::fjall::OpenError;

/// One thing that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The event at fault, where one can be named.
    pub seq: Option<Seq>,
    /// The file or folder.
    pub file: PathBuf,
    /// What is wrong.
    pub what: String,
}

/// What was checked and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The last good commit.
    pub head: Head,
    /// How far the mark or a snapshot says that the ledger had come.
    pub marked: Seq,
    /// Commits checked.
    pub commits: u64,
    /// Events checked, decoded and folded.
    pub events: u64,
    /// Finished tasks whose rows were compared with the fold.
    pub finished: u64,
    /// Bodies whose digests were compared with their events.
    pub bodies: u64,
    /// Those among them that are gone and whose loss was accepted.
    pub given_up: u64,
    /// Snapshots whose digests were compared with the fold.
    pub snapshots: u64,
    /// Digest of the folded state.
    pub state: Digest,
    /// The first file or folder of the ledger that this process may not write, and what the system says: it is as it was
    /// written, but a hub of the same user would not start.
    pub closed: Option<(PathBuf, String)>,
    /// Everything that is wrong, at most 1,000 of it.
    pub problems: Vec<Problem>,
    /// Problems in all.
    pub problem_count: u64,
}

impl VerifyReport {
    /// Is everything as it was written?
    #[must_use]
    pub const fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    /// Adds a problem: the event at fault where one can be named, the file, and what is wrong.
    pub fn note(&mut self, seq: Option<Seq>, file: &Path, what: impl std::fmt::Display) {
        self.problem_count += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { seq, file: file.to_owned(), what: what.to_string() });
        }
    }
}
