//! Standard Webhooks signatures: `v1,` and base64 of HMAC-SHA-256 over `{id}.{timestamp}.{body}`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const PREFIX: &str = "whsec_";
/// Bytes of a secret that this hub draws; the standard takes 24 to 64.
pub const SECRET_LEN: usize = 32;

/// A signing secret. `Debug` hides it; [`CallbackSecret::expose`] is for the one answer that hands it over.
#[derive(Clone, PartialEq, Eq)]
pub struct CallbackSecret(Vec<u8>);

impl fmt::Debug for CallbackSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackSecret(hidden)")
    }
}

impl CallbackSecret {
    /// A secret of these bytes; `None` unless there are 24 to 64 of them.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (24..=64).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Reads `whsec_` and base64; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        STANDARD.decode(text.strip_prefix(PREFIX)?).ok().and_then(Self::from_bytes)
    }

    /// `whsec_` and base64.
    #[must_use]
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// The signature of one message at one try.
    #[must_use]
    pub fn sign(&self, id: &str, unix_seconds: u64, body: &[u8]) -> String {
        // HMAC fills a key up to its 64-byte block with zeros, and no secret is longer than that.
        let mut block = [0; 64];
        for (slot, byte) in block.iter_mut().zip(&self.0) {
            *slot = *byte;
        }
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(format!("{id}.{unix_seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

/// The `webhook-signature` header: a signature for every secret that holds now, so that a receiver may rotate.
#[must_use]
pub fn header(secrets: &[CallbackSecret], id: &str, unix_seconds: u64, body: &[u8]) -> String {
    secrets.iter().map(|secret| secret.sign(id, unix_seconds, body)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn the_published_vector_of_standard_webhooks_holds() {
        let secret = CallbackSecret::parse(SECRET).expect("a secret");
        let signature = secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(secret.expose(), SECRET);
    }

    #[test]
    fn another_implementation_signs_the_same_bytes_the_same() {
        let ours = CallbackSecret::from_bytes((0..64).collect()).expect("64 bytes");
        let theirs = standardwebhooks::Webhook::new(&ours.expose()).expect("theirs");
        for (id, at, body) in [("msg_1", 1, ""), ("msg_ü", 4_102_444_800, "{\"城\":\"成都\"}"), ("m", 0, "\u{0}")] {
            let signed = theirs.sign(id, i64::try_from(at).expect("small"), body.as_bytes()).expect("signs");
            assert_eq!(ours.sign(id, at, body.as_bytes()), signed);
        }
    }

    #[test]
    fn while_rotating_every_secret_signs_and_debug_shows_none() {
        let old = CallbackSecret::from_bytes(vec![1; 24]).expect("24 bytes");
        let new = CallbackSecret::from_bytes(vec![2; 24]).expect("24 bytes");
        let both = header(&[new.clone(), old.clone()], "msg_1", 7, b"{}");
        assert_eq!(both, format!("{} {}", new.sign("msg_1", 7, b"{}"), old.sign("msg_1", 7, b"{}")));
        assert_eq!(format!("{new:?}"), "CallbackSecret(hidden)");
    }

    #[test]
    fn a_secret_that_is_too_short_or_no_base64_is_none() {
        for bad in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_????", "whsec_AAAA"] {
            assert_eq!(CallbackSecret::parse(bad), None, "{bad}");
        }
        assert_eq!(CallbackSecret::from_bytes(vec![0; 65]), None);
    }
}
