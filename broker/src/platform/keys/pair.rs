//! One Ed25519 key pair, named by the thumbprint of its public half.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::SigningKey;
use jsonwebtoken::{DecodingKey, EncodingKey};
use sha2::{Digest as _, Sha256};

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

    /// The public half in base64url.
    pub(super) fn public_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.signing.verifying_key().as_bytes())
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
