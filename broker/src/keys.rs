//! The service's own signing keys: one for tokens, one for attestations.
//!
//! Both are Ed25519, live sealed in the database, and are named by the thumbprint of their public
//! half (RFC 7638), so that whoever verifies can tell which one signed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use ed25519_dalek::SigningKey;
use jsonwebtoken::{DecodingKey, EncodingKey};
use rand::RngCore as _;
use sha2::{Digest as _, Sha256};
use store::Store;
use store::signing_keys::{KeyPurpose, SigningKey as SealedKey};

use crate::secrets::{CannotOpen, SealingKey};

/// Why the signing keys could not be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The database did not answer.
    #[error("the signing keys cannot be read from the database")]
    Store(#[from] store::StoreError),
    /// They were sealed with another key.
    #[error(
        "a signing key cannot be opened; give the sealing key that this database was made with"
    )]
    Sealed(#[from] CannotOpen),
    /// What was sealed is no Ed25519 key.
    #[error("a signing key in the database is damaged")]
    Damaged,
}

/// One Ed25519 key pair and its name.
#[derive(Clone)]
pub struct KeyPair {
    kid: String,
    signing: SigningKey,
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyPair({}, ***)", self.kid)
    }
}

impl KeyPair {
    pub(crate) fn from_seed(seed: [u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(&seed);
        Self {
            kid: thumbprint(signing.verifying_key().as_bytes()),
            signing,
        }
    }

    /// The key's name: the thumbprint of its public half.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The private half.
    #[must_use]
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// The private half in the form in which tokens are signed with it.
    #[must_use]
    pub fn encoding(&self) -> EncodingKey {
        // PKCS#8 for Ed25519 (RFC 8410) is this prefix and the seed.
        const PKCS8: [u8; 16] = [
            0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
        ];
        EncodingKey::from_ed_der(&[&PKCS8[..], &self.signing.to_bytes()].concat())
    }

    /// The public half in the form in which tokens are verified with it.
    ///
    /// Errors: none in practice, for the text is our own base64url.
    pub fn decoding(&self) -> Result<DecodingKey, jsonwebtoken::errors::Error> {
        DecodingKey::from_ed_components(&self.public_text())
    }

    fn public_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.signing.verifying_key().as_bytes())
    }
}

/// The service's own signing keys.
#[derive(Debug, Clone)]
pub struct Keys {
    token: KeyPair,
    attestation: KeyPair,
}

impl Keys {
    /// Reads the keys, making those that the database has not yet.
    ///
    /// Errors: [`KeyError`].
    pub async fn load(
        store: &Store,
        sealing: &SealingKey,
        now: DateTime<Utc>,
    ) -> Result<Self, KeyError> {
        Ok(Self {
            token: load_or_make(store, sealing, KeyPurpose::Token, now).await?,
            attestation: load_or_make(store, sealing, KeyPurpose::Attestation, now).await?,
        })
    }

    /// The key that signs tokens.
    #[must_use]
    pub fn token(&self) -> &KeyPair {
        &self.token
    }

    /// The key that countersigns attestations.
    #[must_use]
    pub fn attestation(&self) -> &KeyPair {
        &self.attestation
    }

    /// The public halves as a JSON Web Key Set (RFC 7517, RFC 8037).
    #[must_use]
    pub fn jwks(&self) -> serde_json::Value {
        let key = |pair: &KeyPair, purpose: &str| {
            serde_json::json!({
                "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
                "kid": pair.kid, "x": pair.public_text(), "purpose": purpose,
            })
        };
        serde_json::json!({ "keys": [
            key(&self.token, "token"),
            key(&self.attestation, "attestation"),
        ]})
    }
}

async fn load_or_make(
    store: &Store,
    sealing: &SealingKey,
    purpose: KeyPurpose,
    now: DateTime<Utc>,
) -> Result<KeyPair, KeyError> {
    if store.signing_keys().list(purpose).await?.is_empty() {
        let mut seed = [0; 32];
        rand::rng().fill_bytes(&mut seed);
        let pair = KeyPair::from_seed(seed);
        let made = SealedKey {
            kid: pair.kid.clone(),
            purpose,
            sealed_private: sealing.seal(purpose_word(purpose), &seed),
            public: pair.signing.verifying_key().as_bytes().to_vec(),
            created_at: now,
        };
        store.signing_keys().insert(made).await?;
    }
    // Two replicas may both have made one: the oldest is the one that both use.
    let rows = store.signing_keys().list(purpose).await?;
    let oldest = rows
        .into_iter()
        .min_by_key(|row| (row.created_at, row.kid.clone()));
    let sealed = oldest.ok_or(KeyError::Damaged)?.sealed_private;
    let seed = sealing.open(purpose_word(purpose), &sealed)?;
    Ok(KeyPair::from_seed(
        seed.try_into().map_err(|_| KeyError::Damaged)?,
    ))
}

/// The word under which a key is sealed, so that one kind cannot be opened as the other.
const fn purpose_word(purpose: KeyPurpose) -> &'static str {
    match purpose {
        KeyPurpose::Token => "token",
        KeyPurpose::Attestation => "attestation",
    }
}

fn thumbprint(public: &[u8; 32]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public);
    let digest = Sha256::digest(format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#));
    URL_SAFE_NO_PAD.encode(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumbprint_is_that_of_the_published_example() {
        // RFC 8037, appendix A.3.
        let public = URL_SAFE_NO_PAD
            .decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
            .expect("base64url");
        let public: [u8; 32] = public.try_into().expect("32 bytes");
        assert_eq!(
            thumbprint(&public),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
    }

    #[test]
    fn a_key_pair_does_not_show_its_private_half() {
        let pair = KeyPair::from_seed([7; 32]);
        assert!(format!("{pair:?}").ends_with("***)"));
    }
}
