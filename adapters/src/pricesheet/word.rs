//! Words in the cells of price lists.

use market::catalog::SkipReason;

use super::dialect::Fields;
use crate::gate::{Rejection, shown};

/// Reads one of the words that a column may hold, in any case; blank is none.
pub(super) fn word<T: Copy>(
    column: &'static str,
    fields: &Fields<'_>,
    words: &[(&str, T)],
) -> Result<Option<T>, Rejection> {
    let text = fields.text(column);
    if text.is_empty() {
        return Ok(None);
    }
    let found = words
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, meaning)| Some(*meaning)).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let why = format!(
            "`{column}` is `{}`, not one of {}",
            shown(text),
            known.join(", ")
        );
        Rejection::new(SkipReason::Unreadable, why)
    })
}
