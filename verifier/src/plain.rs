//! Which characters of a node's text are stored and shown.

/// Whether a character may stand in text that is shown: none that controls a terminal, and none that is unseen
/// but turns round or divides what stands beside it.
///
/// Source: Unicode 16, the general categories Cc, Cf, Zl and Zp.
#[must_use]
pub fn is_plain(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2064}'
            | '\u{2066}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    );
    !unseen && !c.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_or_is_unseen_is_not_plain_and_letters_of_any_script_are() {
        for c in "\0\n\u{7f}\u{9b}\u{200b}\u{202e}\u{2028}\u{2069}\u{feff}\u{e0041}".chars() {
            assert!(!is_plain(c), "{c:?}");
        }
        for c in "NVIDIA H100 80GB-é漢字🙂\u{a0}\u{2010}".chars() {
            assert!(is_plain(c), "{c:?}");
        }
    }
}
