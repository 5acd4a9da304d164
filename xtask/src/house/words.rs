//! Phrases that this project does not use, because a reader has to translate them.
//!
//! They are looked for in what people read: Markdown, comments and texts in Rust. Names of Rust, commands
//! and serialised words are left alone.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use regex::Regex;

/// Each phrase, as a pattern of whole words, and a plain one.
const PHRASES: [(&str, &str); 21] = [
    (r"(is|are|was|were|be) told", "log, report, name the actor"),
    (r"(is|are|was|were) said", "state, report"),
    (r"held against", "compared with"),
    (r"(comes|came) to", "evaluates to, reaches, is"),
    (r"of late", "recently"),
    (r"anew", "again"),
    (r"parted (by|into)", "split by, split into"),
    (r"made known", "registered"),
    (r"nothing is said", "by default"),
    (r"lets? go", "release, delete"),
    (r"(fell|falls) (silent|out)", "stops responding, fails"),
    (r"hot state", "coordination state"),
    (r"heads of keys", "KV heads"),
    (r"(a|the|of) piles?", "batch"),
    (r"whoever|whosever", "name the actor"),
    (r"the books (balance|are)", "the ledger balances"),
    (r"recounts the books", "checks the ledger"),
    (r"is nobody here", "not a member"),
    (r"as many of these as", "limit reached"),
    (r"these were too many calls", "too many requests"),
    (r"works in no gang", "cannot be used in a multi-node job"),
];

/// Names of types of which nobody could guess the meaning.
const TYPES: [&str; 12] = [
    "Wish", "Doubts", "Pulses", "Turns", "Tap", "Door", "Lobby", "Strand", "Dice", "World", "Told",
    "Whose",
];

/// One place where a phrase stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) file: PathBuf,
    pub(super) line: usize,
    pub(super) found: String,
    pub(super) instead: &'static str,
}

/// Every phrase in these files, which lie below the root.
///
/// Errors: a file cannot be read.
pub(super) fn hits(root: &Path, files: &[PathBuf]) -> Result<Vec<Hit>> {
    let phrases: Vec<(Regex, &str)> = PHRASES
        .iter()
        .map(|(words, instead)| Ok((Regex::new(&format!(r"(?i)\b({words})\b"))?, *instead)))
        .collect::<Result<_>>()?;
    let types = Regex::new(&format!(
        r"\b(struct|enum|trait|type) ({})\b",
        TYPES.join("|")
    ))?;
    let mut hits = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(root.join(file))
            .with_context(|| format!("{} cannot be read", file.display()))?;
        let is_rust = file.extension().is_some_and(|extension| extension == "rs");
        for (number, line) in text.lines().enumerate() {
            let read = if is_rust {
                read_by_people(line)
            } else {
                line.to_owned()
            };
            let mut hit = |found: &str, instead| {
                hits.push(Hit {
                    file: file.clone(),
                    line: number + 1,
                    found: found.to_owned(),
                    instead,
                });
            };
            for (phrase, instead) in &phrases {
                if let Some(found) = phrase.find(&read) {
                    hit(found.as_str(), instead);
                }
            }
            if let Some(found) = types.find(line).filter(|_| is_rust) {
                hit(found.as_str(), "a noun of the glossary");
            }
        }
    }
    Ok(hits)
}

/// The comment and the texts of a line of Rust. A text that goes on from the line before counts as code.
fn read_by_people(line: &str) -> String {
    let mut read = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['"', '/']) {
        if let Some(comment) = rest[at..].strip_prefix("//") {
            return read + " " + comment;
        }
        if let Some(text) = rest[at..].strip_prefix('"') {
            let (text, after) = text.split_once('"').unwrap_or((text, ""));
            read = read + " " + text;
            rest = after;
        } else {
            rest = &rest[at + 1..];
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_in_comments_and_texts_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let text =
            "let anew = 1; // done anew\nprint(\"nothing is said\");\nlet told = held_against();\n";
        let file = PathBuf::from("a.rs");
        std::fs::write(folder.path().join(&file), text).expect("written");
        let hits = hits(folder.path(), std::slice::from_ref(&file)).expect("read");
        let found: Vec<_> = hits.iter().map(|hit| (hit.line, &*hit.found)).collect();
        assert_eq!(found, [(1, "anew"), (2, "is said"), (2, "nothing is said")]);
    }
}
