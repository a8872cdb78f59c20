//! One file for each invariant, named as the design names it. Those over the ledger alone see only events and what the
//! outside noted; those of the living state are asked while the hub runs.

pub(crate) mod b1;
pub(crate) mod b2;
pub(crate) mod c1;
pub(crate) mod c3;
pub(crate) mod d1;
pub(crate) mod d2;
pub(crate) mod d3;
pub(crate) mod d4;
pub(crate) mod f1;
pub(crate) mod l1;
pub(crate) mod l4;
pub(crate) mod live;
pub(crate) mod r1;
pub(crate) mod r2;
pub(crate) mod r3;
pub(crate) mod r3_payloads;
pub(crate) mod r4;
pub(crate) mod r4_together;
pub(crate) mod r5;
pub(crate) mod r_rte_10;
pub(crate) mod s1;
pub(crate) mod s10;
pub(crate) mod s2;
pub(crate) mod s3;
pub(crate) mod s4;
pub(crate) mod s5;
pub(crate) mod s6;
pub(crate) mod s7;
pub(crate) mod s8;
pub(crate) mod s9;
pub(crate) mod semantics_40;
pub(crate) mod t1;
pub(crate) mod t2;

use agent_reach::ledger::machine::audit;

use crate::model::{Breach, Evidence, Findings};

/// An invariant over the evidence of one run.
type Check = fn(&Evidence<'_>, &mut Findings);

const CHECKS: &[Check] = &[
    s1::check,
    s2::check,
    s3::check,
    s4::check,
    s5::check,
    s6::check,
    s7::check,
    s8::check,
    s9::check,
    s10::check,
    d1::check,
    d2::check,
    d3::check,
    t1::check,
    t2::check,
    r1::check,
    r2::check,
    r3::check,
    r3_payloads::check,
    r4::check,
    r4_together::check,
    r5::check,
    r_rte_10::check,
    semantics_40::check,
    c1::check,
    c3::check,
    f1::check,
    l1::check,
    l4::check,
    b1::check,
    b2::check,
];

/// Everything that is broken: found over the evidence, and found while it ran (L2, S8, T2, T3, D4).
pub(crate) fn judge(evidence: &Evidence<'_>) -> Findings {
    let mut findings = Findings::default();
    for check in CHECKS {
        check(evidence, &mut findings);
    }
    // A second opinion, kept beside the machine.
    let second = audit::check(evidence.log.iter().map(|entry| &entry.event));
    findings.breaches.extend(second.into_iter().map(|v| Breach { invariant: v.invariant, seq: v.seq, what: v.what }));
    findings.breaches.extend(evidence.notes.live.iter().cloned());
    findings
}
