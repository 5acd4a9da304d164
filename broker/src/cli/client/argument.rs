//! Arguments that several commands share.

use std::num::NonZeroU32;

use market::demand::check::LONGEST_HOURS;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a word of the API on the command line, so that a wrong one is refused before any call.
pub(super) fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| error.to_string())
}

/// Parses a number of hours.
pub(super) fn hours(text: &str) -> Result<NonZeroU32, String> {
    let hours = text.parse::<NonZeroU32>().ok();
    hours
        .filter(|hours| hours.get() <= LONGEST_HOURS)
        .ok_or_else(|| format!("must be a whole number of hours, 1 to {LONGEST_HOURS} (ten years)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_whole_and_of_ten_years_at_most() {
        assert_eq!(hours("87600").map(NonZeroU32::get), Ok(87_600));
        for bad in ["0", "87601", "1000000", "1.5", "-1", "99999999999", "day"] {
            let why = hours(bad).expect_err("a fault");
            assert_eq!(
                why, "must be a whole number of hours, 1 to 87600 (ten years)",
                "{bad}"
            );
        }
    }
}
