//! The statements of a countersigned document of ours.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use market::attestation::Attestation;
use store::StoreError;

/// The statements of a document. Its signature was made when it was kept; its reader checks it.
///
/// Errors: [`StoreError::Corrupt`], where it is not one of ours.
pub(crate) fn read_document(jws: &str) -> Result<Attestation, StoreError> {
    let read = || {
        let payload = URL_SAFE_NO_PAD.decode(jws.split('.').nth(1)?).ok()?;
        serde_json::from_slice(&payload).ok()
    };
    read().ok_or_else(|| StoreError::Corrupt {
        detail: "the payload of an attestation".to_owned(),
    })
}
