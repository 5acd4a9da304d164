//! The public keys of an issuer: read over HTTPS, trusted for five minutes, read again for a key that is not
//! known, and never more often than once a minute.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tracing::warn;

use crate::platform::config::OidcConfig;

/// How long the keys are trusted without a new read: for so long a key that its issuer has withdrawn still
/// works.
const READ_EVERY: TimeDelta = TimeDelta::minutes(5);
/// How often an unknown key may have them read again.
const READ_AGAIN: TimeDelta = TimeDelta::seconds(60);
/// How often they are asked for while none is known.
const FIRST_READ_AGAIN: TimeDelta = TimeDelta::seconds(5);
/// How long known keys serve while the issuer does not answer.
const SERVE_ON: TimeDelta = TimeDelta::hours(24);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer. Units: bytes.
const MOST_BYTES: usize = 256 << 10;
/// The shortest modulus of an RSA key. Units: bits.
///
/// Source: RFC 7518, 3.3.
const LEAST_RSA_BITS: usize = 2_048;
/// The most keys of an issuer.
const MOST_KEYS: usize = 100;

/// Why there is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRefusal {
    /// The issuer has no such key.
    Unknown,
    /// The issuer has not published its keys.
    Unavailable,
}

/// A public key and the one algorithm that it is used with.
#[derive(Clone)]
pub(super) struct PublicKey {
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

/// Why the keys could not be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("it did not answer")]
    Http(#[from] reqwest::Error),
    #[error("its answer is longer than {MOST_BYTES} bytes")]
    TooLong,
    #[error("its answer is not valid")]
    Shape(#[from] serde_json::Error),
    #[error("its configuration is that of another issuer")]
    OtherIssuer,
    #[error("the address of its keys cannot be used: {0}")]
    Address(String),
}

#[derive(Default)]
struct CachedKeys {
    keys: HashMap<String, PublicKey>,
    read_at: Option<DateTime<Utc>>,
}

/// The public keys of one issuer.
pub(super) struct PublicKeys {
    issuer: String,
    /// Where the keys lie; `None` asks the issuer's configuration.
    address: Option<Url>,
    discovery: Url,
    allow_loopback: bool,
    client: Client,
    known: RwLock<Arc<CachedKeys>>,
    tried_at: Mutex<Option<DateTime<Utc>>>,
}

impl std::fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicKeys")
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}

impl PublicKeys {
    /// The keys of an issuer; nothing is read yet.
    ///
    /// Errors: the fault of its addresses, in words.
    pub(super) fn of(config: &OidcConfig, allow_loopback: bool) -> Result<Self, String> {
        check_address(&config.issuer, allow_loopback)?;
        let discovery = format!(
            "{}/.well-known/openid-configuration",
            config.issuer.trim_end_matches('/')
        );
        let discovery = check_address(&discovery, allow_loopback)?;
        let address = config
            .jwks_url
            .as_deref()
            .map(|url| check_address(url, allow_loopback))
            .transpose()?;
        let client = Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(TIMEOUT)
            // An address that was checked must not lead to one that was not.
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            issuer: config.issuer.clone(),
            address,
            discovery,
            allow_loopback,
            client,
            known: RwLock::default(),
            tried_at: Mutex::default(),
        })
    }

    fn known(&self) -> Arc<CachedKeys> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key of this name.
    pub(super) async fn find(
        &self,
        kid: &str,
        now: DateTime<Utc>,
    ) -> Result<PublicKey, KeyRefusal> {
        let known = self.known();
        let age = known.read_at.map(|at| now - at);
        let fresh = age.is_some_and(|age| age < READ_EVERY);
        if fresh && let Some(key) = known.keys.get(kid) {
            return Ok(key.clone());
        }
        let pause = if age.is_some() {
            READ_AGAIN
        } else {
            FIRST_READ_AGAIN
        };
        self.read_again(now, pause).await;
        let known = self.known();
        let believed = known.read_at.is_some_and(|at| now - at < SERVE_ON);
        if !believed {
            return Err(KeyRefusal::Unavailable);
        }
        known.keys.get(kid).cloned().ok_or(KeyRefusal::Unknown)
    }

    /// Reads the keys again unless that was tried within `pause`; only one call at a time does.
    async fn read_again(&self, now: DateTime<Utc>, pause: TimeDelta) {
        let mut tried_at = self.tried_at.lock().await;
        if tried_at.is_some_and(|at| now - at < pause) {
            return;
        }
        *tried_at = Some(now);
        match self.read().await {
            Ok(keys) => {
                let read_at = Some(now);
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                *known = Arc::new(CachedKeys { keys, read_at });
            }
            Err(failure) => {
                let causes = crate::chain(&failure);
                warn!(
                    oidc.issuer = %self.issuer, error = %causes,
                    "The keys of {} could not be read: {causes}", self.issuer
                );
            }
        }
    }

    async fn read(&self) -> Result<HashMap<String, PublicKey>, ReadError> {
        let address = match &self.address {
            Some(address) => address.clone(),
            None => self.discover().await?,
        };
        let set: KeySet = serde_json::from_slice(&self.fetch(address).await?)?;
        let keys = set.keys.into_iter().take(MOST_KEYS).filter_map(usable);
        Ok(keys.collect())
    }

    async fn discover(&self) -> Result<Url, ReadError> {
        #[derive(Deserialize)]
        struct Discovered {
            issuer: String,
            jwks_uri: String,
        }
        let bytes = self.fetch(self.discovery.clone()).await?;
        let found: Discovered = serde_json::from_slice(&bytes)?;
        if found.issuer != self.issuer {
            return Err(ReadError::OtherIssuer);
        }
        check_address(&found.jwks_uri, self.allow_loopback).map_err(ReadError::Address)
    }

    async fn fetch(&self, address: Url) -> Result<Vec<u8>, ReadError> {
        let mut answer = self.client.get(address).send().await?.error_for_status()?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            if bytes.len() + chunk.len() > MOST_BYTES {
                return Err(ReadError::TooLong);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// A key that signs tokens, by its name; keys of another kind or for another use are left out.
fn usable(value: Value) -> Option<(String, PublicKey)> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let kid = jwk.common.key_id.clone()?;
    if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
        return None;
    }
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) if bits(&rsa.n)? >= LEAST_RSA_BITS => {
            (Algorithm::RS256, KeyAlgorithm::RS256)
        }
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        _ => return None,
    };
    if jwk.common.key_algorithm.is_some_and(|said| said != named) {
        return None;
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    Some((kid, PublicKey { algorithm, key }))
}

/// How many bits a number has that is written in base64url; `None` for one that is not.
fn bits(number: &str) -> Option<usize> {
    let bytes = URL_SAFE_NO_PAD.decode(number).ok()?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let first = bytes.get(zeros)?;
    Some((bytes.len() - zeros) * 8 - first.leading_zeros() as usize)
}

/// An address that may be asked: `https`, or `http` on this machine where that is allowed.
fn check_address(address: &str, allow_loopback: bool) -> Result<Url, String> {
    let url = Url::parse(address).map_err(|error| format!("`{address}` is no URL: {error}"))?;
    let plain =
        allow_loopback && url.scheme() == "http" && crate::platform::loopback::is_loopback(address);
    if !plain && url.scheme() != "https" {
        return Err(format!("`{address}` must be an `https` URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address must not hold a user or a password".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_https_is_asked_and_loopback_in_simulation() {
        for (address, in_simulation, in_production) in [
            ("https://id.example/keys", true, true),
            ("http://127.0.0.1:9/keys", true, false),
            ("http://[::1]:9/keys", true, false),
            ("http://id.example/keys", false, false),
            ("http://127.0.0.1.id.example/keys", false, false),
            ("https://user:word@id.example/keys", false, false),
            ("file:///etc/passwd", false, false),
            ("nonsense", false, false),
        ] {
            assert_eq!(
                check_address(address, true).is_ok(),
                in_simulation,
                "{address}"
            );
            assert_eq!(
                check_address(address, false).is_ok(),
                in_production,
                "{address}"
            );
        }
    }

    #[test]
    fn a_symmetric_key_or_one_for_another_use_or_algorithm_is_left_out() {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let good = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": x });
        assert!(usable(good.clone()).is_some());
        for (field, value) in [
            ("use", json!("enc")),
            ("alg", json!("RS256")),
            ("kid", json!(null)),
            ("crv", json!("X25519")),
        ] {
            let mut odd = good.clone();
            odd[field] = value;
            assert!(usable(odd).is_none(), "{field}");
        }
        assert!(usable(json!({ "kty": "oct", "kid": "a", "k": "c2VjcmV0" })).is_none());
    }

    #[test]
    fn an_rsa_key_below_2048_bits_is_left_out() {
        let key = |first: u8, bytes: usize| {
            let mut modulus = vec![0xff; bytes];
            modulus[0] = first;
            let n = URL_SAFE_NO_PAD.encode(&modulus);
            usable(json!({ "kty": "RSA", "kid": "a", "n": n, "e": "AQAB" }))
        };
        assert!(key(0xff, 256).is_some() && key(0xff, 512).is_some());
        // A byte more than the number needs makes it no longer.
        for (first, bytes) in [(0x7f, 256), (0xff, 128), (0, 256), (0x01, 256)] {
            assert!(key(first, bytes).is_none(), "{first} {bytes}");
        }
    }
}
