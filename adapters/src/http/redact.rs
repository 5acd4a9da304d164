//! Keeps secrets out of errors and recordings.
//!
//! Providers echo requests: a validation error may carry the whole start-up script with its one-time
//! credential, a listing carries tokens of notebooks. Text to be shown is cut short and passed through here.

use serde_json::Value;

use super::Call;

/// The most characters of a provider's words that an error shows.
pub const EXCERPT_CHARS: usize = 200;

const HIDDEN: &str = "[redacted]";

/// A word this long with a digit is treated as a key.
const KEY_CHARS: usize = 24;

/// A text of a body that is longer may be an encoded script. Units: bytes.
const LONGEST_PLAIN: usize = 256;

/// Members whose value never leaves: secrets, and echoes of what we sent.
const SENSITIVE_WORDS: [&str; 10] = [
    "token",
    "secret",
    "password",
    "private_key",
    "api_key",
    "authorization",
    "kube_config",
    "jupyter_url",
    "user_data",
    "cloudinit",
];

/// Secrets of one call: the known ones of its connection, and the scripts and keys of its body.
pub(super) fn secrets_of(call: &Call, known: &[String]) -> Vec<String> {
    let mut secrets = known.to_vec();
    if let Some(body) = &call.body {
        collect_secrets(body, &mut secrets);
    }
    secrets.retain(|secret| !secret.is_empty());
    secrets
}

fn collect_secrets(value: &Value, secrets: &mut Vec<String>) {
    match value {
        Value::String(text)
            if text.contains('\n')
                || text.len() > LONGEST_PLAIN
                || text.starts_with("#!")
                || text.starts_with("ssh-") =>
        {
            secrets.push(text.clone())
        }
        Value::Array(items) => items.iter().for_each(|item| collect_secrets(item, secrets)),
        Value::Object(members) => members
            .values()
            .for_each(|member| collect_secrets(member, secrets)),
        _ => {}
    }
}

/// The provider's words for an error, at most [`EXCERPT_CHARS`] of them.
pub(super) fn excerpt(body: &[u8], secrets: &[String]) -> String {
    let shown = match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            hide_members(&mut value, true);
            value.to_string()
        }
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    text(&shown, secrets)
}

/// A text without secrets and cut short.
pub(super) fn text(shown: &str, secrets: &[String]) -> String {
    let mut shown = shown.to_owned();
    for secret in secrets {
        // The secret may come back as it was sent or as it is written within JSON.
        let quoted = Value::from(secret.as_str()).to_string();
        for form in [secret.as_str(), quoted.trim_matches('"')] {
            shown = shown.replace(form, HIDDEN);
        }
    }
    let mut short: String = hide_long_words(&shown)
        .chars()
        .take(EXCERPT_CHARS)
        .collect();
    short.retain(|letter| !letter.is_control());
    short
}

/// A body for a recording: whole, with sensitive members hidden.
pub(super) fn recordable(body: &[u8], secrets: &[String]) -> Value {
    let hide = |text: &str| {
        secrets.iter().fold(text.to_owned(), |text, secret| {
            let quoted = Value::from(secret.as_str()).to_string();
            let within = quoted.trim_matches('"');
            text.replace(secret.as_str(), HIDDEN)
                .replace(within, HIDDEN)
        })
    };
    match serde_json::from_slice::<Value>(body) {
        Ok(mut value) => {
            hide_members(&mut value, false);
            serde_json::from_str(&hide(&value.to_string())).unwrap_or(Value::Null)
        }
        Err(_) => Value::from(hide(&String::from_utf8_lossy(body))),
    }
}

fn hide_members(value: &mut Value, echoes: bool) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let key = key.to_ascii_lowercase();
                // Containers echo the environment that they were ordered with, and lists of start-up scripts
                // the scripts.
                let sensitive = key == "env"
                    || key.contains("script")
                    || SENSITIVE_WORDS.iter().any(|word| key.contains(word));
                // Validation errors carry the offending request under these names.
                let echo = echoes && matches!(key.as_str(), "input" | "ctx" | "body" | "request");
                if (sensitive || echo) && !member.is_null() {
                    *member = Value::from(HIDDEN);
                } else {
                    hide_members(member, echoes);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_members(item, echoes)),
        _ => {}
    }
}

/// Hides words that look like keys: long, with digits, and no UUID.
fn hide_long_words(shown: &str) -> String {
    let part_of_word =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '+' | '=' | '-');
    let mut kept = String::with_capacity(shown.len());
    let mut rest = shown;
    while let Some(first) = rest.chars().next() {
        let inside = part_of_word(first);
        let end = rest
            .find(|letter| part_of_word(letter) != inside)
            .unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        kept.push_str(if inside && looks_like_key(run) {
            HIDDEN
        } else {
            run
        });
        rest = after;
    }
    kept
}

fn looks_like_key(word: &str) -> bool {
    let is_mark = word.parse::<market::order::ClientToken>().is_ok();
    let is_uuid = word.len() == 36 && uuid::Uuid::try_parse(word).is_ok();
    word.len() >= KEY_CHARS
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && !is_uuid
        && !is_mark
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::http::Purpose;

    fn order(body: Value) -> Call {
        Call {
            purpose: Purpose::Order,
            method: "POST",
            path: "/launch".into(),
            body: Some(body),
        }
    }

    #[test]
    fn a_script_is_not_recorded_however_it_is_encoded_or_echoed() {
        let script = "#!/bin/sh\ncurl -H 'Bearer once-only' https://broker.example/\n";
        let encoded = "b25jZS1vbmx5".repeat(30);
        let secrets = secrets_of(&order(json!({"user_data": script, "blob": encoded})), &[]);
        for body in [
            json!({"launch": {"base64_script": encoded}}),
            json!({"detail": format!("cannot run {script}")}),
            json!({"detail": format!("cannot decode {encoded}")}),
        ] {
            let kept = recordable(body.to_string().as_bytes(), &secrets).to_string();
            assert!(
                !kept.contains("once-only") && !kept.contains("b25jZS1vbmx5"),
                "{kept}"
            );
        }
    }

    #[test]
    fn an_echoed_script_is_not_shown() {
        let script =
            "#!/bin/sh\ncurl -H 'Authorization: Bearer once-only' https://broker.example/\n";
        let secrets = secrets_of(
            &order(json!({"name": "gpb", "cloudinit_script": script})),
            &[],
        );
        let validation =
            json!({"detail": [{"msg": "too short", "input": {"cloudinit_script": script}}]});
        let plain = format!("cannot parse {script}");
        let quoted = json!({"message": format!("cannot parse {script}")});
        for body in [validation.to_string(), plain, quoted.to_string()] {
            let shown = excerpt(body.as_bytes(), &secrets);
            assert!(!shown.contains("once-only"), "{shown}");
        }
    }

    #[test]
    fn the_codes_of_a_provider_stay_readable() {
        let body = json!({"error": {"code": "instance-operations/launch/file-system-in-wrong-region",
            "message": "Not enough capacity", "id": "0192f0c1-7b7d-40b2-a1c3-d4e5f6071829"}});
        let shown = excerpt(body.to_string().as_bytes(), &[]);
        assert!(
            shown.contains("file-system-in-wrong-region") && shown.contains("0192f0c1-7b7d"),
            "{shown}"
        );
    }

    #[test]
    fn a_recording_keeps_the_numbers_and_drops_the_tokens() {
        let body = br#"{"data":[{"id":"i-1","price":"1.99","jupyter_token":"03b7","jupyter_url":"https://x/?token=03b7"}]}"#;
        let kept = recordable(body, &[]);
        assert_eq!(kept["data"][0]["price"], "1.99");
        assert_eq!(kept["data"][0]["jupyter_token"], HIDDEN);
        assert!(!kept.to_string().contains("03b7"));
    }

    #[test]
    fn a_start_up_script_is_not_recorded() {
        let kept = recordable(br##"[{"id":"s-1","script":"#!/bin/sh\nonce-only"}]"##, &[]);
        assert_eq!(kept, json!([{ "id": "s-1", "script": HIDDEN }]));
    }

    #[test]
    fn the_environment_of_a_container_is_not_recorded() {
        let body = br#"{"pods":[{"id":"p-1","env":{"START":"once-only"}},{"environment":"test"}]}"#;
        let kept = recordable(body, &[]);
        assert_eq!(kept["pods"][0], json!({"id": "p-1", "env": HIDDEN}));
        assert_eq!(kept["pods"][1]["environment"], "test");
    }

    proptest! {
        #[test]
        fn a_credential_never_shows_however_the_body_wraps_it(
            credential in "[A-Za-z0-9_-]{8,60}", before in ".{0,80}", after in ".{0,80}", as_json in any::<bool>(),
        ) {
            let body = format!("{before}{credential}{after}");
            let body = if as_json { json!({"detail": body}).to_string() } else { body };
            let secrets = secrets_of(&order(Value::Null), std::slice::from_ref(&credential));
            let shown = excerpt(body.as_bytes(), &secrets);
            prop_assert!(!shown.contains(&credential));
            prop_assert!(shown.chars().count() <= EXCERPT_CHARS);
        }
    }
}
