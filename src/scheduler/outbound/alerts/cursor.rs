//! How far alerts were told: one small file in the data folder.
//!
//! ```text
//! "reach-alerts-1" · up to which seq all is told · up to which seq the window goes that is being told, in decimal
//! ```
//!
//! The second number makes a restart cut the same window again, so that its messages come with the same ids. The file
//! holds nothing that can be lost: without it, or with one that can't be read, alerts begin at the end of the ledger.

use std::io;
use std::path::Path;

use crate::ledger::ids::Seq;
use crate::ledger::store::place;

const MAGIC: &str = "reach-alerts-1";

/// Up to where alerts were told, and are being told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Everything up to here is told.
    pub told: Seq,
    /// The window that is being told ends here; the same as `told` when none is.
    pub cut: Seq,
}

impl Cursor {
    /// Nothing is being told.
    #[must_use]
    pub const fn at(seq: Seq) -> Self {
        Self { told: seq, cut: seq }
    }

    /// Where to begin on a ledger that ends at `end`: never beyond it, where one begins that has lost its end.
    #[must_use]
    pub fn within(self, end: Seq) -> Self {
        if self.told > end { Self::at(end) } else { Self { told: self.told, cut: self.cut.clamp(self.told, end) } }
    }
}

/// Reads it; `None` where there is none.
///
/// # Errors
/// What the disk says, or [`io::ErrorKind::InvalidData`].
pub fn read(path: &Path) -> io::Result<Option<Cursor>> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes it.
///
/// # Errors
/// What the disk says; then the old one stands.
pub fn write(path: &Path, cursor: Cursor) -> io::Result<()> {
    let text = format!("{MAGIC} {} {}\n", cursor.told, cursor.cut);
    place::write_private(path, &path.with_extension("new"), &[text.as_bytes()])
}

fn parse(text: &str) -> Option<Cursor> {
    let mut words = text.strip_suffix('\n')?.split(' ');
    let (magic, told, cut) = (words.next()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (magic == MAGIC && words.next().is_none() && told <= cut).then_some(Cursor { told: Seq(told), cut: Seq(cut) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alerts");
        assert_eq!(read(&path).unwrap(), None);
        let cursor = Cursor { told: Seq(7), cut: Seq(12) };
        write(&path, cursor).unwrap();
        assert_eq!(read(&path).unwrap(), Some(cursor));
        for bad in [
            "",
            "reach-alerts-1 7 12",
            "reach-alerts-2 7 12\n",
            "reach-alerts-1 12 7\n",
            "reach-alerts-1 7 12 1\n",
            "reach-alerts-1 -7 12\n",
        ] {
            std::fs::write(&path, bad).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bad:?}");
        }
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        read(&path).unwrap_err();
    }

    #[test]
    fn a_cursor_ahead_of_the_ledger_begins_at_its_end() {
        let of = |told, cut| Cursor { told: Seq(told), cut: Seq(cut) };
        assert_eq!(of(7, 12).within(Seq(20)), of(7, 12));
        assert_eq!(of(7, 12).within(Seq(10)), of(7, 10));
        assert_eq!(of(7, 12).within(Seq(6)), of(6, 6));
    }
}
