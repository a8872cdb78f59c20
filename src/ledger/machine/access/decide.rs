//! The rules of tokens. Who may change them is the door's to judge; here an id is one token's, and a rotation leaves
//! its clients time (R-SEC-1).

use crate::ledger::machine::command::{Command, Proposal};
use crate::ledger::machine::decision::{Answer, Decision, Rejection};
use crate::ledger::machine::event::{TokenCreated, TokenRevoked, TokenRotated};
use crate::ledger::machine::{State, bounds};
use crate::ledger::time::Timestamp;

/// Decides the tokens' commands; `step.rs` sends no other here.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn decide(state: &State, proposal: &Proposal, now: Timestamp) -> Decision {
    let tokens = &state.access.tokens;
    match &proposal.command {
        Command::CreateToken { token } if tokens.contains_key(&token.id) => {
            Decision::refuse(Rejection::TokenTaken { token: token.id.clone() })
        }
        Command::CreateToken { token } => match bounds::token(state, &token.reach) {
            Ok(()) => Decision::accept(vec![TokenCreated { token: (**token).clone() }.into()], Answer::Done),
            Err(full) => Decision::refuse(full),
        },
        Command::RotateToken { token, secret, overlap } if tokens.contains_key(token) => {
            let overlap_until = now.after(*overlap);
            let rotated = TokenRotated { token: token.clone(), secret: *secret, overlap_until };
            Decision::accept(vec![rotated.into()], Answer::Done)
        }
        Command::RevokeToken { token } if tokens.contains_key(token) => {
            Decision::accept(vec![TokenRevoked { token: token.clone() }.into()], Answer::Done)
        }
        _ => Decision::refuse(Rejection::TokenUnknown),
    }
}
