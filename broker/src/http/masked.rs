//! Hides words that look like keys in the caller's own text that a refusal repeats: a secret in the wrong
//! place goes no further.

use std::borrow::Cow;

/// The least length of a word that is checked. Units: characters.
const KEY_CHARS: usize = 24;
/// The text in place of a hidden word.
const HIDDEN: &str = "***";

/// The text with [`HIDDEN`] in place of each word that looks like a key: long, of letters and
/// digits, and no id.
pub(super) fn masked(text: &str) -> Cow<'_, str> {
    let mut kept = Cow::Borrowed("");
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|letter| is_of_word(letter) != is_of_word(first))
            .unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        kept += if looks_like_key(run) { HIDDEN } else { run };
        rest = after;
    }
    kept
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '+' | '=')
}

fn looks_like_key(word: &str) -> bool {
    word.len() >= KEY_CHARS
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().any(|byte| byte.is_ascii_alphabetic())
        && !is_id(word)
}

/// Whether it is a typed id, or a UUID, as it is or as GPUs show theirs.
fn is_id(word: &str) -> bool {
    let word = word.strip_prefix("GPU-").unwrap_or(word);
    let typed = word.split_once('_').is_some_and(|(kind, id)| {
        (2..=4).contains(&kind.len())
            && kind.bytes().all(|byte| byte.is_ascii_lowercase())
            && id.len() == 32
            && uuid::Uuid::try_parse(id).is_ok()
    });
    typed || word.len() == 36 && uuid::Uuid::try_parse(word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hidden_and_ids_are_not() {
        let id = "rsv_0192f0c17b7d40b2a1c3d4e5f6071829";
        let uuid = "0192f0c1-7b7d-40b2-a1c3-d4e5f6071829";
        for (text, shown) in [
            (format!("there is no reservation {id} here"), None),
            (format!("{uuid} is over"), None),
            (format!("the GPU GPU-{uuid} was not handed over"), None),
            ("the quote lapsed at 2026-11-21T10:00:00Z".to_owned(), None),
            ("reservation.cancel_requested, lease.gone".to_owned(), None),
            (
                format!("unknown variant `gpb_{}`", "aB3".repeat(15)),
                Some("unknown variant `***`"),
            ),
            (
                format!("me:{}@example.com", "aB3".repeat(9)),
                Some("me:***@example.com"),
            ),
            (
                format!("rsv_{} has no such id", "x1".repeat(16)),
                Some("*** has no such id"),
            ),
        ] {
            assert_eq!(masked(&text), shown.unwrap_or(&text));
        }
    }
}
