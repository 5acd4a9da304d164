//! Reads when the prices of a row were written down.

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use market::catalog::SkipReason;

use crate::gate::{Rejection, shown};

/// A date, which begins at midnight UTC, or a time; blank is none.
pub(super) fn date(column: &str, text: &str) -> Result<Option<DateTime<Utc>>, Rejection> {
    if text.is_empty() {
        return Ok(None);
    }
    let of_day = || {
        let day = text.parse::<NaiveDate>().ok()?;
        Some(day.and_time(NaiveTime::MIN).and_utc())
    };
    let of_time = || text.parse::<DateTime<Utc>>().ok();
    of_day().or_else(of_time).map(Some).ok_or_else(|| {
        let why = format!(
            "`{column}` is `{}`, neither a date (2026-01-31) nor a time (2026-01-31T12:00:00Z)",
            shown(text)
        );
        Rejection::new(SkipReason::Unreadable, why)
    })
}
