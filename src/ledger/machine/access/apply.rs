//! The moves of tokens.

use std::sync::Arc;

use crate::ledger::machine::State;
use crate::ledger::machine::event::{Event, EventBody};
use crate::ledger::machine::step::ImpossibleTransition;

/// Applies a token's event; `step.rs` sends no other here.
///
/// # Errors
/// [`ImpossibleTransition`] when the event cannot follow on this state: a bug or a damaged log.
#[expect(clippy::wildcard_enum_match_arm, reason = "the top match in step.rs is exhaustive and sends only these")]
pub(in crate::ledger::machine) fn apply(state: &mut State, event: &Event) -> Result<(), ImpossibleTransition> {
    let unknown = || ImpossibleTransition::of(event, "the token is unknown");
    let access = Arc::make_mut(&mut state.access);
    match &event.body {
        EventBody::TokenCreated(body) => match access.tokens.insert(body.token.id.clone(), body.token.clone()) {
            None => Ok(()),
            Some(_) => Err(ImpossibleTransition::of(event, "the token exists")),
        },
        EventBody::TokenRotated(body) => {
            let token = access.tokens.get_mut(&body.token).ok_or_else(unknown)?;
            token.previous = Some((token.secret, body.overlap_until));
            token.secret = body.secret;
            Ok(())
        }
        EventBody::TokenRevoked(body) => access.tokens.remove(&body.token).map(drop).ok_or_else(unknown),
        _ => Err(ImpossibleTransition::of(event, "not a token's event")),
    }
}
