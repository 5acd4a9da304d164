//! Secrets and signatures after the Standard Webhooks specification, version 1.0.0.
//!
//! Source: <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::RngCore as _;
use ring::hmac;

/// The prefix of every secret.
const PREFIX: &str = "whsec_";
/// Random bytes of a secret. The specification takes 24 to 64.
const BYTES: usize = 32;

/// The secret of a webhook endpoint. Shown once, and kept sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret(***)")
    }
}

impl WebhookSecret {
    /// Makes a secret from the system's randomness.
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = vec![0; BYTES];
        rand::rng().fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// A secret from its bytes, as they were sealed.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes, to be sealed.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The secret as its receiver gets it: `whsec_` and Base64.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// The signature of a message: `v1,` and the Base64 of the HMAC-SHA256 of
    /// `{id}.{timestamp}.{body}`.
    ///
    /// Units: `timestamp` in seconds since 1970, of the attempt. `id` holds no full stop.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0);
        let mut signing = hmac::Context::with_key(&key);
        signing.update(format!("{id}.{timestamp}.").as_bytes());
        signing.update(body);
        format!("v1,{}", STANDARD.encode(signing.sign()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_published_example() {
        let bytes = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let secret = WebhookSecret::from_bytes(bytes.expect("Base64"));
        assert_eq!(secret.reveal(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = secret.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_new_secret_is_long_enough_and_does_not_show_in_debug() {
        let secret = WebhookSecret::generate();
        let bytes = STANDARD.decode(&secret.reveal()[PREFIX.len()..]);
        assert!((24..=64).contains(&bytes.expect("Base64").len()));
        assert!(!format!("{secret:?}").contains(&secret.reveal()[PREFIX.len()..]));
        assert_ne!(secret, WebhookSecret::generate());
    }
}
