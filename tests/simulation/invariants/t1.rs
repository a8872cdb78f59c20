//! T1: event times never fall.

use crate::model::{Evidence, Findings};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    for (before, after) in evidence.log.iter().zip(evidence.log.iter().skip(1)) {
        if after.event.at < before.event.at {
            findings.add("T1", after.event.seq, format!("{} follows {}", after.event.at, before.event.at));
        }
    }
}
