//! D1: every receipt that was given names an event that is in the ledger at that seq with that hash, after every crash.

use crate::model::{Evidence, Findings};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for receipt in &evidence.notes.receipts {
        match evidence.at(receipt.seq) {
            None => findings.add("D1", receipt.seq, "a receipt names an event that is not there"),
            Some(entry) if entry.hash != receipt.hash => {
                findings.add("D1", receipt.seq, "a receipt's event has another hash");
            }
            Some(_) if receipt.durable < receipt.seq => {
                findings.add("D1", receipt.seq, "a receipt was given before its event was durable");
            }
            Some(_) => {}
        }
    }
}
