//! The list of a plan's items as bytes: the body that `replay-planned` names (semantics 26).
//!
//! ```text
//! version u8 │ count u32 │ (task 16 │ action u8 │ group u32) …        numbers big-endian
//! ```
//!
//! Items of one group, a session's, go one at a time and in the list's order (R4); group 0 is none.

use crate::ledger::ids::ReachId;
use crate::ledger::machine::replay::ItemAction;

const VERSION: u8 = 1;
const HEAD: usize = 5;
const ITEM: usize = 21;

/// One item of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanItem {
    /// Which task.
    pub task: ReachId,
    /// What is to be done with it.
    pub action: ItemAction,
    /// Its session's number within the plan, from 1; 0 for a task without one.
    pub group: u32,
}

/// A list that is not one: damaged, or of a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of a replay plan is damaged or of a newer version")]
pub struct NoList;

/// The list as bytes.
#[must_use]
pub fn encode(items: &[PlanItem]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + items.len() * ITEM);
    bytes.push(VERSION);
    bytes.extend_from_slice(&u32::try_from(items.len()).unwrap_or(u32::MAX).to_be_bytes());
    for item in items {
        bytes.extend_from_slice(&item.task.0);
        bytes.push(match item.action {
            ItemAction::Replay => 0,
            ItemAction::Redrive => 1,
        });
        bytes.extend_from_slice(&item.group.to_be_bytes());
    }
    bytes
}

/// The list of those bytes.
///
/// # Errors
/// [`NoList`] when they are none, or too many or too few.
pub fn decode(bytes: &[u8]) -> Result<Vec<PlanItem>, NoList> {
    let (head, items) = bytes.split_first_chunk::<HEAD>().ok_or(NoList)?;
    let [version, count @ ..] = head;
    let whole = items.len().is_multiple_of(ITEM);
    if *version != VERSION || !whole || usize::try_from(u32::from_be_bytes(*count)) != Ok(items.len() / ITEM) {
        return Err(NoList);
    }
    items.chunks_exact(ITEM).map(item).collect()
}

fn item(bytes: &[u8]) -> Result<PlanItem, NoList> {
    let (task, rest) = bytes.split_first_chunk::<16>().ok_or(NoList)?;
    let (action, group) = rest.split_first().ok_or(NoList)?;
    let action = match action {
        0 => ItemAction::Replay,
        1 => ItemAction::Redrive,
        _ => return Err(NoList),
    };
    let group = group.first_chunk().map(|group| u32::from_be_bytes(*group)).ok_or(NoList)?;
    Ok(PlanItem { task: ReachId(*task), action, group })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_and_a_damaged_one_does_not() {
        let items: Vec<PlanItem> = (0..5_u8)
            .map(|n| PlanItem {
                task: ReachId([n; 16]),
                action: if n % 2 == 0 { ItemAction::Replay } else { ItemAction::Redrive },
                group: u32::from(n) * 70_000,
            })
            .collect();
        let bytes = encode(&items);
        assert_eq!(decode(&bytes), Ok(items));
        assert_eq!(decode(&encode(&[])), Ok(Vec::new()));
        for at in [0, 4, HEAD + 16] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert_eq!(decode(&bad), Err(NoList), "byte {at}");
        }
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
    }
}
