//! Ids of providers' things as segments of a path.

use crate::error::AdapterError;

/// The longest plausible id of a provider's thing. Units: bytes.
const LONGEST_ID: usize = 200;

/// Whether a text can be the id of one thing. As a segment of a path, an empty text, `.` or `..` names the
/// list of all of them, escaped or not.
#[must_use]
pub fn is_id(id: &str) -> bool {
    !matches!(id, "" | "." | "..") && id.len() <= LONGEST_ID
}

/// Writes an id into a path so that it stays one segment of it.
///
/// Errors: [`AdapterError::BadId`] for a text that is no [id](is_id).
pub fn segment(id: &str) -> Result<String, AdapterError> {
    if !is_id(id) {
        return Err(AdapterError::BadId(id.chars().take(80).collect()));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut segment = String::with_capacity(id.len());
    for byte in id.bytes() {
        if plain(byte) {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_its_segment_of_the_path() {
        let written = |id| segment(id).expect("an id");
        assert_eq!(written("0920582c-7ff0_A"), "0920582c-7ff0_A");
        assert_eq!(written("../keys?x=1#é"), "%2E%2E%2Fkeys%3Fx%3D1%23%C3%A9");
        // A URL treats these as steps up or as nothing, also when they are escaped.
        for none in ["", ".", "..", &"x".repeat(201)] {
            let refused = segment(none).expect_err("no id");
            assert!(matches!(refused, AdapterError::BadId(_)), "{refused}");
        }
    }
}
