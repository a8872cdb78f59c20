//! D2: `seq` is dense from 1; boot numbers only rise; the history begins once, with its lineage. (The chain of commit
//! hashes is read back over the bytes at every fold.)

use agent_reach::ledger::ids::{Boot, Seq};
use agent_reach::ledger::machine::event::EventBody;

use crate::model::{Evidence, Findings};

pub(crate) fn check(evidence: &Evidence<'_>, findings: &mut Findings) {
    let mut due = Seq(1);
    let mut boot = Boot(0);
    for entry in evidence.log {
        let event = &entry.event;
        if event.seq != due {
            findings.add("D2", event.seq, format!("{due} was due"));
        }
        due = event.seq.next();
        if let EventBody::HubStarted(body) = &event.body {
            if body.boot <= boot {
                findings.add("D2", event.seq, format!("{:?} follows {boot:?}", body.boot));
            }
            boot = body.boot;
        }
        let begins = matches!(&event.body, EventBody::LineageStarted(body) if body.lineage == evidence.lineage);
        if begins != (event.seq == Seq(1)) {
            findings.add("D2", event.seq, "a history begins with its lineage, once");
        }
    }
}
