//! How large a registration is, estimated from above: an event must fit its frame (semantics 26), and the core must
//! be able to say no without knowing how events are encoded.

use crate::ledger::machine::agent::{Declaration, Offer, Transport};
use crate::ledger::machine::task::spec::Text;

/// Encoded bytes that one event may have, as it is told to callers.
pub const MAX_EVENT_BYTES: u32 = 60_000;
/// The same, to compare with.
pub(in crate::ledger::machine) const MAX_EVENT: usize = 60_000;

/// The envelope, with its longest ids, and the declaration's numbers.
const FIXED: usize = 1_024;
/// A length or a number, in its longest encoding with its tag.
const WORD: usize = 10;
/// A digest with its tag.
const DIGEST: usize = 34;

/// Encoded bytes of the event that registers or updates an agent, never less than they will be.
#[must_use]
pub(in crate::ledger::machine) fn of_registration(instance: Option<&Text>, declaration: &Declaration) -> usize {
    let endpoint = match &declaration.transport {
        Transport::Pull => 0,
        Transport::Http { endpoint } => endpoint.len(),
    };
    let texts = [instance, declaration.version.as_ref(), declaration.region.as_ref()];
    let texts: usize = texts.into_iter().flatten().map(text).sum();
    let callers: usize = declaration.allowed_callers.iter().map(|token| token.as_str().len() + WORD).sum();
    let offers: usize = declaration.offers.iter().map(of_offer).sum();
    FIXED + endpoint + texts + callers + offers
}

fn of_offer(offer: &Offer) -> usize {
    let texts: usize = offer.tools.iter().chain(&offer.languages).map(text).sum();
    offer.capability.as_str().len() + texts + offer.schemas.len() * DIGEST + 12 * WORD
}

fn text(text: &Text) -> usize {
    text.len() + WORD
}
