//! Which characters of a node's text are stored and shown.

/// The longest text of a node in a note. Units: characters.
const LONGEST: usize = 160;

/// Text of a node for a note: short, and without control or invisible characters.
pub(crate) fn plain(text: &str) -> String {
    shortened(text, LONGEST)
}

/// Text of a node without control or invisible characters and without spaces around it, cut to this many
/// characters.
#[must_use]
pub fn shortened(text: &str, longest: usize) -> String {
    let plain: String = text.chars().filter(|c| is_plain(*c)).collect();
    plain.trim().chars().take(longest).collect()
}

/// Whether a text is a valid name, as an id, a product or an address: ASCII letters, digits, punctuation and
/// spaces, so that two that look the same are the same, and without the quotation mark of notes.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| (c == ' ' || c.is_ascii_graphic()) && c != '`';
    text.chars().all(fits)
}

/// Whether a text can be the name of a host or of an adapter. It stands in the sentences of other nodes'
/// documents and must not be a sentence itself.
#[must_use]
pub fn is_one_word(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._:-%@[]".contains(c);
    text.chars().all(fits)
}

/// Whether a character may stand in displayed text. Not allowed are terminal control characters, and
/// invisible characters that reverse or split the text beside them, or show as nothing.
///
/// Source: Unicode 16, the general categories Cc, Cf, Zl and Zp, and the property `Default_Ignorable_Code_Point`.
#[must_use]
pub fn is_plain(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    );
    !unseen && !c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_or_is_unseen_is_not_plain_and_letters_of_any_script_are() {
        for c in "\0\n\u{7f}\u{9b}\u{200b}\u{202e}\u{2028}\u{2069}\u{feff}\u{e0041}\u{3164}\u{fe0f}"
            .chars()
        {
            assert!(!is_plain(c), "{c:?}");
        }
        for c in "NVIDIA H100 80GB-é漢字🙂\u{a0}\u{2010}".chars() {
            assert!(is_plain(c), "{c:?}");
        }
    }
    #[test]
    fn what_looks_like_another_name_or_like_a_sentence_is_no_name() {
        for name in ["NVIDIA H100 80GB HBM3", "GPU-5f3a", "570.86.15", ""] {
            assert!(is_name(name), "{name:?}");
        }
        for other in [
            "GPU-\u{421}1",
            "GPU-1\u{200b}",
            "GPU-1\u{a0}",
            "a` b",
            "a\tb",
        ] {
            assert!(!is_name(other), "{other:?}");
        }
        for word in [
            "mlx5_0",
            "bond0.100",
            "ib0:1",
            "10.0.0.2",
            "[fe80::1%eth0]",
            "node-1.example",
        ] {
            assert!(is_one_word(word), "{word:?}");
        }
        for other in ["mlx5_0; node 1 is slow", "a,b", "a`b", "é"] {
            assert!(!is_one_word(other), "{other:?}");
        }
    }
}
