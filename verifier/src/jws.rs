//! Compact JWS with Ed25519 (RFC 7515, RFC 8037) over canonical JSON.
//!
//! One algorithm, a closed header and a canonical payload: a signer has nothing to choose, a reader nothing
//! to guess.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use market::ids::VerificationId;
use market::verification::{AgentKey, Digest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalError, canonical};

/// The longest signed document that is read. Units: bytes.
pub const LONGEST_JWS: usize = 256 * 1024;

/// Why a signed document was refused.
#[derive(Debug, thiserror::Error)]
pub enum JwsError {
    /// Not three parts of base64url, or too long.
    #[error("this is no compact JWS")]
    Form,
    /// The header is not the expected one.
    #[error("the header of the signed document is not the expected one: {0}")]
    Header(&'static str),
    /// The key is no Ed25519 public key.
    #[error("the key is no Ed25519 public key")]
    Key,
    /// The signature is not by this key over this text.
    #[error("the signature does not belong to this key and text")]
    Signature,
    /// The payload does not have the expected form.
    #[error("the payload of the signed document does not have the expected form")]
    Payload(#[from] serde_json::Error),
    /// The payload is not in canonical form.
    #[error("the payload of the signed document is not canonical JSON")]
    NotCanonical,
    /// A document to sign has no canonical form.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
}

/// The protected header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    alg: Algorithm,
    /// The type of the signed document.
    pub typ: DocumentType,
    /// The conversation to which the document belongs.
    pub verification_id: VerificationId,
    /// The nonce of that conversation.
    pub nonce: Option<Digest>,
    /// Which key signed, where the signer has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Algorithm {
    #[serde(rename = "EdDSA")]
    EdDsa,
}

/// The type of a signed document, so that none can stand in for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentType {
    /// An agent's report.
    #[serde(rename = "verification-report+jws")]
    Report,
    /// The broker's attestation of a real node.
    #[serde(rename = "attestation+jws")]
    Attestation,
    /// The broker's attestation of a simulated node.
    #[serde(rename = "simulated-attestation+jws")]
    SimulatedAttestation,
}

impl Header {
    /// A header without key id.
    #[must_use]
    pub const fn new(
        typ: DocumentType,
        verification_id: VerificationId,
        nonce: Option<Digest>,
    ) -> Self {
        Self {
            alg: Algorithm::EdDsa,
            typ,
            verification_id,
            nonce,
            kid: None,
        }
    }
}

/// A private key.
pub struct Signer(SigningKey);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(***)")
    }
}

impl Signer {
    /// The key with this seed, which is the secret.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public half.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs the canonical JSON of a document.
    ///
    /// Errors: [`JwsError::Canonical`] when the document holds fractions or too large integers.
    pub fn sign<T: Serialize>(&self, header: &Header, document: &T) -> Result<String, JwsError> {
        let header = URL_SAFE_NO_PAD.encode(canonical(header)?);
        let payload = URL_SAFE_NO_PAD.encode(canonical(document)?);
        let text = format!("{header}.{payload}");
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()).to_bytes());
        Ok(format!("{text}.{signature}"))
    }
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// The key of these 32 bytes.
    ///
    /// Errors: [`JwsError::Key`] when they are not a point of the curve, or one of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, JwsError> {
        VerifyingKey::from_bytes(bytes)
            .ok()
            .filter(|key| !key.is_weak())
            .map(Self)
            .ok_or(JwsError::Key)
    }

    /// The key that an agent sent, or the `x` of a JWK.
    ///
    /// Errors: [`JwsError::Key`] as for [`Self::from_bytes`].
    pub fn parse(text: &str) -> Result<Self, JwsError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| JwsError::Key)?;
        Self::from_bytes(&bytes.try_into().map_err(|_| JwsError::Key)?)
    }

    /// The key in its transmitted form: base64url, as the `x` of a JWK.
    #[must_use]
    pub fn to_base64url(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0.as_bytes())
    }

    /// The key as an agent commits to it.
    ///
    /// Errors: none in practice; 32 bytes are always 43 characters.
    pub fn to_agent_key(&self) -> Result<AgentKey, JwsError> {
        self.to_base64url().parse().map_err(|_| JwsError::Key)
    }

    /// Checks a document's signature, header type and form, and reads it.
    ///
    /// Errors: [`JwsError`] gives the reason; the payload is read only after the signature has been verified.
    pub fn verify<T: DeserializeOwned + Serialize>(
        &self,
        jws: &str,
        accepted: &[DocumentType],
    ) -> Result<(Header, T), JwsError> {
        let (text, signature) = jws.rsplit_once('.').ok_or(JwsError::Form)?;
        let (header, payload) = text.split_once('.').ok_or(JwsError::Form)?;
        if jws.len() > LONGEST_JWS {
            return Err(JwsError::Form);
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| JwsError::Form);
        let signature = decode(signature)?.try_into().map_err(|_| JwsError::Form)?;
        self.0
            .verify_strict(text.as_bytes(), &Signature::from_bytes(&signature))
            .map_err(|_| JwsError::Signature)?;

        let header: Header = serde_json::from_slice(&decode(header)?)
            .map_err(|_| JwsError::Header("unknown member, algorithm or type"))?;
        if !accepted.contains(&header.typ) {
            return Err(JwsError::Header("the document is of another type"));
        }
        let payload = decode(payload)?;
        let document: T = serde_json::from_slice(&payload)?;
        if canonical(&document)?.as_bytes() != payload {
            return Err(JwsError::NotCanonical);
        }
        Ok((header, document))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    fn header() -> Header {
        let id = VerificationId::from_uuid(Uuid::from_u128(1));
        Header::new(DocumentType::Report, id, Some(Digest([3; 32])))
    }

    fn signed() -> (PublicKey, String) {
        let signer = Signer::from_seed(&[5; 32]);
        let jws = signer
            .sign(&header(), &json!({"b": 1, "a": "x"}))
            .expect("signed");
        (signer.public_key(), jws)
    }

    fn read(key: &PublicKey, jws: &str) -> Result<(Header, Value), JwsError> {
        key.verify(jws, &[DocumentType::Report])
    }

    /// RFC 8037, appendix A: the key, and the signature over its example.
    #[test]
    fn the_key_and_signature_of_rfc_8037_are_ours() {
        let seed = URL_SAFE_NO_PAD
            .decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
            .expect("base64url");
        let signer = Signer::from_seed(&seed.try_into().expect("32 bytes"));
        let public = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        assert_eq!(signer.public_key().to_base64url(), public);
        let text = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let expected = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(
            URL_SAFE_NO_PAD.encode(signer.0.sign(text).to_bytes()),
            expected
        );
    }

    #[test]
    fn a_signed_document_reads_back() {
        let (key, jws) = signed();
        let (read_header, document) = read(&key, &jws).expect("valid");
        assert_eq!(read_header, header());
        assert_eq!(document, json!({"a": "x", "b": 1}));
    }

    #[test]
    fn changing_any_character_is_noticed() {
        let (key, jws) = signed();
        for at in 0..jws.len() {
            let mut bytes = jws.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).expect("ascii");
            assert!(read(&key, &changed).is_err(), "character {at}");
        }
    }

    #[test]
    fn another_key_another_type_and_another_algorithm_are_refused() {
        let (key, jws) = signed();
        let other = Signer::from_seed(&[6; 32]);
        assert!(matches!(
            read(&other.public_key(), &jws),
            Err(JwsError::Signature)
        ));
        let wrong_type: Result<(Header, Value), _> = key.verify(&jws, &[DocumentType::Attestation]);
        assert!(matches!(wrong_type, Err(JwsError::Header(_))));

        let raw = |head: &str, payload: &str| {
            let text = format!(
                "{}.{}",
                URL_SAFE_NO_PAD.encode(head),
                URL_SAFE_NO_PAD.encode(payload)
            );
            let signature = Signer::from_seed(&[5; 32])
                .0
                .sign(text.as_bytes())
                .to_bytes();
            format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
        };
        let head = canonical(&header()).expect("canonical");
        assert!(read(&key, &raw(&head, r#"{"a":1}"#)).is_ok());
        assert!(matches!(
            read(&key, &raw(&head, r#"{"a": 1}"#)),
            Err(JwsError::NotCanonical)
        ));
        for bad in [
            head.replace("EdDSA", "none"),
            head.replacen('{', r#"{"crit":[],"#, 1),
        ] {
            assert!(
                matches!(read(&key, &raw(&bad, "{}")), Err(JwsError::Header(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_key_of_small_order_is_no_key() {
        assert!(PublicKey::from_bytes(&[0; 32]).is_err());
        assert!(PublicKey::parse("short").is_err());
    }

    #[test]
    fn a_private_key_is_not_printed() {
        assert_eq!(format!("{:?}", Signer::from_seed(&[5; 32])), "Signer(***)");
    }
}
