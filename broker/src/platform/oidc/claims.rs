//! Reading the claims of a token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The issuer that a token names. Nothing is verified: it only selects the keys to ask for.
pub(super) fn unverified_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Said {
        iss: String,
    }
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    Some(serde_json::from_slice::<Said>(&payload).ok()?.iss)
}

/// A moment in seconds since 1970; some issuers write fractions.
pub(super) fn moment(value: &Value) -> Option<DateTime<Utc>> {
    let seconds = value
        .as_i64()
        .or_else(|| value.as_f64().map(|seconds| seconds as i64))?;
    // Far enough for every issuer, and room to add to.
    (0..=253_402_300_799)
        .contains(&seconds)
        .then(|| DateTime::from_timestamp(seconds, 0))?
}

/// The words of a claim: its text, or each text of its list. A name with dots that is no claim
/// leads into objects (`realm_access.roles`).
pub(super) fn words<'a>(claims: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    let found = claims.get(name).or_else(|| {
        let mut parts = name.split('.');
        let first = claims.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))
    });
    match found {
        Some(Value::String(word)) => vec![word],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_a_word_a_list_or_lies_within_objects() {
        let claims = json!({
            "role": "gpu-admin", "groups": ["a", 7, "b"],
            "realm_access": { "roles": ["c"] }, "https://acme.example/roles": "d",
        });
        let claims = claims.as_object().expect("an object");
        assert_eq!(words(claims, "role"), ["gpu-admin"]);
        assert_eq!(words(claims, "groups"), ["a", "b"]);
        assert_eq!(words(claims, "realm_access.roles"), ["c"]);
        assert_eq!(words(claims, "https://acme.example/roles"), ["d"]);
        assert!(words(claims, "absent.roles").is_empty());
        assert!(words(claims, "realm_access").is_empty());
    }

    #[test]
    fn a_moment_that_no_calendar_holds_is_none() {
        assert!(moment(&json!(1_764_000_000.5)).is_some());
        for odd in [json!(-1), json!(1e300), json!("1764000000"), json!(null)] {
            assert_eq!(moment(&odd), None, "{odd}");
        }
    }
}
