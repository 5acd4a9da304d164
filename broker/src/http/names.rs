//! The names that tenants give to their things.

use super::error::ApiError;

/// The longest name. Units: characters.
const MAX_CHARS: usize = 100;

/// The fault of a name in the field `field`: blank, longer than 100 characters, or not printable.
pub(crate) fn name_fault(field: &str, name: &str) -> Option<String> {
    let fits = !name.trim().is_empty()
        && name.chars().count() <= MAX_CHARS
        && !name.chars().any(char::is_control);
    (!fits).then(|| format!("`{field}` must be 1 to {MAX_CHARS} printable characters"))
}

/// Checks a name in the field `field`.
///
/// Errors: `invalid_body`, with the fault from [`name_fault`].
pub(super) fn check_name(field: &str, name: &str) -> Result<(), ApiError> {
    name_fault(field, name).map_or(Ok(()), |fault| Err(ApiError::invalid_body(fault)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_printable_and_short() {
        assert!(check_name("name", "laptop of Änne").is_ok());
        for bad in ["", "  ", "two\nlines", &"x".repeat(101)] {
            assert!(check_name("name", bad).is_err(), "{bad:?}");
        }
    }
}
