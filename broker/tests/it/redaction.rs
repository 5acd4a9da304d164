//! No secret reaches a log or an error of the real command (invariant 13).
//!
//! Canaries are planted in the secrets of its configuration and of a running service. Its output, down to
//! `trace`, is searched for every canary. [`life`] also searches all answers and all stored data.

mod binary;
mod life;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

/// The two forms of our logs.
const FORMS: [&str; 2] = ["text", "json"];

/// Secrets by kind.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Canaries(BTreeMap<String, Vec<u8>>);

/// How the names of addresses begin, which a tenant may see of its own.
const ADDRESS: &str = "an address: ";

impl Canaries {
    fn add(&mut self, what: &str, secret: impl AsRef<[u8]>) {
        let secret = secret.as_ref().to_vec();
        assert!(secret.len() >= 12, "{what} could stand anywhere by chance");
        // There may be many of a kind.
        let number = self.0.len();
        let name = match self.0.contains_key(what) {
            true => format!("{what} ({number})"),
            false => what.to_owned(),
        };
        self.0.insert(name, secret);
    }

    /// Adds the texts that its own tenant may see, and the log may not.
    fn add_address(&mut self, what: &str, secret: impl AsRef<[u8]>) {
        self.add(&format!("{ADDRESS}{what}"), secret);
    }

    fn without_addresses(&self) -> Self {
        let mut rest = self.clone();
        rest.0.retain(|what, _| !what.starts_with(ADDRESS));
        rest
    }

    /// Each occurrence of a secret here, with its surroundings.
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

/// A secret as it is, as bytes in a debug form, in hexadecimal, and within base64 at every offset.
fn forms(secret: &[u8]) -> Vec<String> {
    let bytes: Vec<String> = secret.iter().map(u8::to_string).collect();
    let mut forms = vec![
        bytes.join(", "),
        hex::encode(secret),
        hex::encode_upper(secret),
    ];
    forms.extend(String::from_utf8(secret.to_vec()));
    for (offset, first_whole) in [(0, 0), (1, 2), (2, 3)] {
        let shifted = [&vec![0; offset], secret].concat();
        for encoded in [
            STANDARD_NO_PAD.encode(&shifted),
            URL_SAFE_NO_PAD.encode(&shifted),
        ] {
            // The last letter may depend on the text that follows.
            forms.push(encoded[first_whole..encoded.len() - 1].to_owned());
        }
    }
    forms.sort();
    forms.dedup();
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
        hex::encode("canary-in-the-mine"),
    ] {
        assert_eq!(canaries.seen_in(&seen).len(), 1, "{seen}");
    }
    canaries.assert_absent("nothing", "a canary in the mine");
}
