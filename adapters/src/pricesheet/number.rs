//! Numbers in the cells of price lists.

use market::catalog::SkipReason;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use crate::gate::{Rejection, shown};

/// Reads a number; blank is none.
pub(super) fn number(column: &str, text: &str) -> Result<Option<Decimal>, Rejection> {
    if text.is_empty() {
        return Ok(None);
    }
    // Digits beyond the 28th are rounded away without loss; any other bad character is an error.
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    let parsed = text.parse::<Decimal>().ok().filter(|_| is_plain);
    let unreadable = || {
        Rejection::new(
            SkipReason::Unreadable,
            format!("`{column}` is `{}`, which is no number", shown(text)),
        )
    };
    parsed.map(Some).ok_or_else(unreadable)
}

/// Reads a size that is kept as a whole number, rounded down; blank is none.
pub(super) fn whole(column: &str, text: &str) -> Result<Option<u32>, Rejection> {
    let Some(size) = number(column, text)? else {
        return Ok(None);
    };
    let impossible = || {
        Rejection::new(
            SkipReason::Unreadable,
            format!("`{column}` is {size}, which is no size"),
        )
    };
    size.trunc().to_u32().map(Some).ok_or_else(impossible)
}
