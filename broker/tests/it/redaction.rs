//! No secret reaches a log or an error of the real command (invariant 13).
//!
//! Canaries are planted in the secrets of its configuration and of a running service. What it prints,
//! down to `trace`, is searched for every canary.

mod binary;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// The two forms of our logs.
const FORMS: [&str; 2] = ["text", "json"];

/// Secrets by what they are.
#[derive(Debug, Default, Clone)]
struct Canaries(BTreeMap<String, String>);

impl Canaries {
    fn add(&mut self, what: &str, secret: impl Into<String>) {
        let secret = secret.into();
        assert!(secret.len() >= 12, "{what} could stand anywhere by chance");
        self.0.insert(what.to_owned(), secret);
    }

    /// What was said of the secrets here, with its surroundings.
    fn seen_in(&self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        for (what, secret) in &self.0 {
            for form in forms(secret) {
                if let Some(at) = text.find(&form) {
                    let before: String = text[..at].chars().rev().take(300).collect();
                    let before: String = before.chars().rev().collect();
                    let after: String = text[at..].chars().take(200).collect();
                    seen.push(format!("{what}: {before}{after}"));
                    break;
                }
            }
        }
        seen
    }

    #[track_caller]
    fn assert_absent(&self, place: &str, text: &str) {
        let seen = self.seen_in(text);
        assert!(seen.is_empty(), "{place} shows\n{}", seen.join("\n\n"));
    }
}

/// A secret as it is, as bytes in a debug form, and within base64 at every offset.
fn forms(secret: &str) -> Vec<String> {
    let bytes: Vec<String> = secret.bytes().map(|byte| byte.to_string()).collect();
    let mut forms = vec![secret.to_owned(), bytes.join(", ")];
    for (offset, first_whole) in [(0, 0), (1, 2), (2, 3)] {
        let shifted = [&vec![0; offset], secret.as_bytes()].concat();
        let encoded = STANDARD_NO_PAD.encode(shifted);
        // The last letter may depend on what follows.
        forms.push(encoded[first_whole..encoded.len() - 1].to_owned());
    }
    forms
}

/// A secret that nobody else has.
fn canary(name: &str) -> String {
    format!("canary{name}{}", uuid::Uuid::now_v7().simple())
}

#[test]
fn a_canary_is_found_however_it_is_written() {
    let mut canaries = Canaries::default();
    canaries.add("key", "canary-in-the-mine");
    for seen in [
        "bearer canary-in-the-mine.".to_owned(),
        format!("{:?}", b"a canary-in-the-mine"),
        STANDARD_NO_PAD.encode("x canary-in-the-mine y"),
        STANDARD_NO_PAD.encode("xy canary-in-the-mine"),
        STANDARD_NO_PAD.encode("canary-in-the-mine"),
    ] {
        assert_eq!(canaries.seen_in(&seen).len(), 1, "{seen}");
    }
    canaries.assert_absent("nothing", "a canary in the mine");
}
