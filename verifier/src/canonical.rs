//! Canonical JSON (RFC 8785) for documents of objects, arrays, strings, integers and booleans.
//!
//! Signed documents contain no fractions, so the RFC's one hard rule, how to write a double, is not needed.
//! Fractions, and integers that a double cannot represent, are refused.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

/// Why a document has no canonical form here.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// A number that is not an integer of at most 53 bits.
    #[error("the number {0} is no integer between -(2^53 - 1) and 2^53 - 1")]
    Number(String),
    /// The value cannot be written as JSON at all.
    #[error("the value cannot be written as JSON")]
    Unwritable(#[from] serde_json::Error),
}

const LARGEST_EXACT: u64 = (1 << 53) - 1;

/// The canonical JSON of anything that serialises.
///
/// Errors: [`CanonicalError`] for fractions and integers beyond 2^53 - 1.
pub fn canonical<T: Serialize>(value: &T) -> Result<String, CanonicalError> {
    let mut out = String::new();
    write_value(&serde_json::to_value(value)?, &mut out)?;
    Ok(out)
}

fn write_value(value: &Value, out: &mut String) -> Result<(), CanonicalError> {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => {
            let size = number
                .as_i64()
                .map(i64::unsigned_abs)
                .or_else(|| number.as_u64());
            if size.is_none_or(|size| size > LARGEST_EXACT) {
                return Err(CanonicalError::Number(number.to_string()));
            }
            // Writing to a string cannot fail.
            let _ = write!(out, "{number}");
        }
        Value::String(text) => write_string(text, out)?,
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(item, out)?;
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (index, (key, item)) in sorted.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key, out)?;
                out.push(':');
                write_value(item, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

/// The escapes of serde_json are those of RFC 8785, section 3.2.2.2; a test below holds that.
fn write_string(text: &str, out: &mut String) -> Result<(), CanonicalError> {
    out.push_str(&serde_json::to_string(text)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// RFC 8785, section 3.2.3.
    #[test]
    fn members_are_sorted_by_utf16_code_units() {
        let value: Value = serde_json::from_str(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
        )
        .expect("json");
        let text = canonical(&value).expect("canonical");
        let at = |word: &str| text.find(word).expect(word);
        let order = [
            "Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew",
        ];
        assert!(
            order.windows(2).all(|pair| at(pair[0]) < at(pair[1])),
            "{text}"
        );
    }

    /// RFC 8785, section 3.2.2.2 and the string of its example in 3.2.2.
    #[test]
    fn strings_are_escaped_as_the_rfc_says_and_no_more() {
        let text = "\u{20ac}$\u{f}\nA'B\"\\\\\"/\u{8}\t\u{c}\r\u{7f}\u{2028}";
        let expected = "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\\b\\t\\f\\r\u{7f}\u{2028}\"";
        assert_eq!(canonical(&text).expect("canonical"), expected);
    }

    #[test]
    fn nothing_is_written_between_tokens() {
        let value = json!({"b": [1, true, null], "a": {"d": -7, "c": false}});
        let expected = r#"{"a":{"c":false,"d":-7},"b":[1,true,null]}"#;
        assert_eq!(canonical(&value).expect("canonical"), expected);
    }

    #[test]
    fn fractions_and_integers_beyond_a_double_are_refused() {
        assert!(canonical(&json!(1.5)).is_err());
        assert!(canonical(&json!(1e3)).is_err());
        assert!(canonical(&json!(u64::MAX)).is_err());
        assert!(canonical(&json!(-(1_i64 << 53))).is_err());
        assert_eq!(
            canonical(&json!((1_u64 << 53) - 1)).expect("exact"),
            "9007199254740991"
        );
    }

    fn any_document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_canonical_form_means_the_same_and_is_its_own(document in any_document()) {
            let text = canonical(&document).expect("canonical");
            let back: Value = serde_json::from_str(&text).expect("json");
            prop_assert_eq!(&back, &document);
            prop_assert_eq!(canonical(&back).expect("canonical"), text);
        }
    }
}
