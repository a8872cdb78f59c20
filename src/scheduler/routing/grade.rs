//! How gladly a task goes to an agent that is not excluded.
//!
//! Why grades and no exclusions: each of these is a reason to take somebody else, and none to take nobody.

use crate::scheduler::routing::Provider;
use crate::scheduler::routing::candidate::{Question, Reason, Suspect};
use crate::scheduler::routing::way::Way;

/// The lowest grade that anyone has wins. The first field outweighs the next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grade {
    /// A suspect would have a neighbour there (semantics 9).
    beside_suspect: bool,
    /// A task of the capability is over its time there (R-SCH-11).
    overdue: bool,
    /// It failed the task last.
    avoided: bool,
    /// Where the rules make priorities tiers: the lower the sooner.
    tier: u32,
}

impl Grade {
    /// The word for an agent that loses to one of that grade by its own; `None` if it does not.
    #[must_use]
    pub fn loses_to(self, best: Self) -> Option<Reason> {
        if self <= best {
            None
        } else if self.beside_suspect != best.beside_suspect {
            Some(Reason::Suspect)
        } else if self.overdue != best.overdue {
            Some(Reason::Overdue)
        } else if self.avoided != best.avoided {
            Some(Reason::Avoid)
        } else {
            Some(Reason::LowerTier)
        }
    }

    /// The same under another way to give tasks out.
    #[must_use]
    pub const fn in_tier(self, tier: u32) -> Self {
        Self { tier, ..self }
    }
}

/// The grade of an agent for a task.
#[must_use]
pub fn grade(question: &Question<'_>, way: &Way<'_>, provider: &Provider<'_>) -> Grade {
    let seat = provider.seat;
    Grade {
        beside_suspect: match question.needs.suspect {
            Suspect::Yes => seat.taken() > 0,
            Suspect::No => seat.suspects > 0,
        },
        overdue: seat.overdue.contains_key(&question.needs.capability),
        avoided: question.avoid == Some(&seat.key.agent_id),
        tier: way.tier(provider.offer),
    }
}
