//! Credentials: how API keys and short-lived tokens are made and read. Pure.
//!
//! A key is 256 random bits behind a prefix that a scanner recognises; only its BLAKE3 hash is kept. A token
//! is a JWT signed with our own Ed25519 key. [`super::auth`] asks the store whether the key behind a
//! credential is still valid.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, Header, Validation};
use market::identity::{Role, Scopes};
use market::ids::{ApiKeyId, ProviderId, TenantId};
use rand::RngCore as _;
use serde::{Deserialize, Serialize};

use super::access::Grant;
use crate::platform::keys::{KeyPair, TOKEN_LIFETIME};

/// The prefix of every API key.
pub const API_KEY_PREFIX: &str = "gpb_";

/// How far two clocks may differ. Units: seconds.
const LEEWAY_SECONDS: i64 = 30;
const ISSUER: &str = "gpu-broker";
const AUDIENCE: &str = "gpu-broker-api";
/// Characters of a key that are kept so that a person recognises it.
const SHOWN: usize = 12;

/// A new API key. It is shown once and kept nowhere.
pub struct NewSecret(String);

impl std::fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewSecret(***)")
    }
}

impl NewSecret {
    /// Makes a key from the system's randomness.
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = [0; 32];
        rand::rng().fill_bytes(&mut bytes);
        Self(format!("{API_KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// The key itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Its beginning, by which a person recognises it.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.0.chars().take(SHOWN).collect()
    }

    /// The hash under which it is kept.
    #[must_use]
    pub fn hash(&self) -> String {
        hash_api_key(&self.0)
    }
}

/// The hash under which an API key is kept: BLAKE3, in hexadecimal digits.
#[must_use]
pub fn hash_api_key(secret: &str) -> String {
    blake3::hash(secret.as_bytes()).to_hex().to_string()
}

/// The claims of a token. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    iss: String,
    aud: String,
    /// The API key that the token was traded for; the token dies with it.
    pub(crate) sub: ApiKeyId,
    pub(crate) tenant: TenantId,
    pub(crate) role: Role,
    pub(crate) scopes: Scopes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provider: Option<ProviderId>,
    iat: i64,
    exp: i64,
}

/// Why a token was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// It is not ours, or was altered.
    Invalid,
    /// It was ours, and its time is over.
    Expired,
}

/// Signs a token for the bearer of an API key and returns when it expires.
///
/// Errors: the signer's, which an Ed25519 key never gives.
pub(crate) fn sign_token(
    pair: &KeyPair,
    key: ApiKeyId,
    tenant: TenantId,
    grant: Grant,
    now: DateTime<Utc>,
) -> Result<(String, DateTime<Utc>), jsonwebtoken::errors::Error> {
    let expires_at = now + TOKEN_LIFETIME;
    let claims = Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE.to_owned(),
        sub: key,
        tenant,
        role: grant.role,
        scopes: grant.scopes,
        provider: grant.provider,
        iat: now.timestamp(),
        exp: expires_at.timestamp(),
    };
    let header = Header {
        kid: Some(pair.kid().to_owned()),
        ..Header::new(Algorithm::EdDSA)
    };
    let token = jsonwebtoken::encode(&header, &claims, &pair.encoding())?;
    Ok((token, expires_at))
}

/// The name of the signing key, as a token states it. Nothing is verified yet.
pub(crate) fn token_kid(token: &str) -> Option<String> {
    jsonwebtoken::decode_header(token).ok()?.kid
}

/// Reads a token that we signed with this key.
///
/// Errors: [`TokenRefusal`].
pub(crate) fn read_token(
    pair: &KeyPair,
    token: &str,
    now: DateTime<Utc>,
) -> Result<Claims, TokenRefusal> {
    let refuse = |_| TokenRefusal::Invalid;
    let header = jsonwebtoken::decode_header(token).map_err(refuse)?;
    if header.kid.as_deref() != Some(pair.kid()) {
        return Err(TokenRefusal::Invalid);
    }
    let mut rules = Validation::new(Algorithm::EdDSA);
    rules.set_issuer(&[ISSUER]);
    rules.set_audience(&[AUDIENCE]);
    rules.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
    // The broker's clock decides below; the library would ask the machine's.
    rules.validate_exp = false;
    let key = pair.decoding().map_err(refuse)?;
    let claims = jsonwebtoken::decode::<Claims>(token, &key, &rules)
        .map_err(refuse)?
        .claims;
    let now = now.timestamp();
    if claims.iat > now + LEEWAY_SECONDS {
        return Err(TokenRefusal::Invalid);
    }
    if now >= claims.exp.saturating_add(LEEWAY_SECONDS) {
        return Err(TokenRefusal::Expired);
    }
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use market::identity::Projects;
    use uuid::Uuid;

    use super::*;
    use chrono::TimeDelta;

    fn pair(seed: u8) -> KeyPair {
        KeyPair::from_seed([seed; 32])
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_764_000_000, 0).expect("a time")
    }

    fn token(signer: &KeyPair) -> String {
        let key = ApiKeyId::from_uuid(Uuid::from_u128(1));
        let tenant = TenantId::from_uuid(Uuid::from_u128(2));
        let grant = Grant {
            role: Role::Member,
            scopes: Scopes::new(),
            projects: Projects::All,
            provider: None,
        };
        sign_token(signer, key, tenant, grant, now())
            .expect("signed")
            .0
    }

    /// Signs any given bytes, like an attacker with another key or a careless key of ours.
    fn signed(signer: &KeyPair, header: &Header, claims: &serde_json::Value) -> String {
        jsonwebtoken::encode(header, claims, &signer.encoding()).expect("signed")
    }

    fn claims() -> serde_json::Value {
        serde_json::json!({
            "iss": ISSUER, "aud": AUDIENCE, "sub": ApiKeyId::from_uuid(Uuid::from_u128(1)),
            "tenant": TenantId::from_uuid(Uuid::from_u128(2)), "role": "member", "scopes": {},
            "iat": now().timestamp(), "exp": now().timestamp() + 60,
        })
    }

    fn header(signer: &KeyPair) -> Header {
        Header {
            kid: Some(signer.kid().to_owned()),
            ..Header::new(Algorithm::EdDSA)
        }
    }

    #[test]
    fn a_token_reads_back_until_its_time_is_over() {
        let pair = pair(1);
        let token = token(&pair);
        let claims = read_token(&pair, &token, now()).expect("our own");
        assert_eq!(claims.sub, ApiKeyId::from_uuid(Uuid::from_u128(1)));
        let end = now() + TOKEN_LIFETIME + TimeDelta::seconds(LEEWAY_SECONDS);
        assert!(read_token(&pair, &token, end - TimeDelta::seconds(1)).is_ok());
        assert_eq!(read_token(&pair, &token, end), Err(TokenRefusal::Expired));
    }

    #[test]
    fn a_token_of_another_key_is_refused_also_under_our_name() {
        let (ours, theirs) = (pair(1), pair(2));
        assert_eq!(
            read_token(&ours, &token(&theirs), now()),
            Err(TokenRefusal::Invalid)
        );
        let forged = signed(&theirs, &header(&ours), &claims());
        assert_eq!(
            read_token(&ours, &forged, now()),
            Err(TokenRefusal::Invalid)
        );
    }

    #[test]
    fn a_token_signed_by_our_public_key_as_a_password_is_refused() {
        let ours = pair(1);
        let header = Header {
            kid: Some(ours.kid().to_owned()),
            ..Header::new(Algorithm::HS256)
        };
        let password =
            jsonwebtoken::EncodingKey::from_secret(ours.signing().verifying_key().as_bytes());
        let forged = jsonwebtoken::encode(&header, &claims(), &password).expect("signed");
        assert_eq!(
            read_token(&ours, &forged, now()),
            Err(TokenRefusal::Invalid)
        );
    }

    #[test]
    fn a_token_without_one_of_its_claims_or_for_others_is_refused() {
        let ours = pair(1);
        assert!(read_token(&ours, &signed(&ours, &header(&ours), &claims()), now()).is_ok());
        for claim in [
            "iss", "aud", "sub", "exp", "iat", "tenant", "role", "scopes",
        ] {
            let mut without = claims();
            without.as_object_mut().expect("an object").remove(claim);
            let token = signed(&ours, &header(&ours), &without);
            assert_eq!(
                read_token(&ours, &token, now()),
                Err(TokenRefusal::Invalid),
                "{claim}"
            );
        }
        for (claim, other) in [("iss", "someone"), ("aud", "elsewhere"), ("sub", "key_1")] {
            let mut wrong = claims();
            wrong[claim] = other.into();
            let token = signed(&ours, &header(&ours), &wrong);
            assert_eq!(
                read_token(&ours, &token, now()),
                Err(TokenRefusal::Invalid),
                "{claim}"
            );
        }
    }

    #[test]
    fn a_token_from_the_future_and_words_that_are_no_token_are_refused() {
        let ours = pair(1);
        let early = now() - TimeDelta::seconds(LEEWAY_SECONDS + 1);
        assert_eq!(
            read_token(&ours, &token(&ours), early),
            Err(TokenRefusal::Invalid)
        );
        for word in ["", "a.b.c", "..", "gpb_x", "eyJhbGciOiJub25lIn0.e30."] {
            assert_eq!(
                read_token(&ours, word, now()),
                Err(TokenRefusal::Invalid),
                "{word}"
            );
        }
    }

    #[test]
    fn a_new_key_is_recognised_by_its_prefix_and_does_not_show_in_debug() {
        let secret = NewSecret::generate();
        assert!(secret.reveal().starts_with(API_KEY_PREFIX));
        assert_eq!(secret.reveal().len(), API_KEY_PREFIX.len() + 43);
        assert!(secret.reveal().starts_with(&secret.prefix()));
        assert_eq!(secret.prefix().len(), SHOWN);
        assert!(!format!("{secret:?}").contains(&secret.reveal()[API_KEY_PREFIX.len()..]));
        assert_ne!(secret.hash(), NewSecret::generate().hash());
    }
}
