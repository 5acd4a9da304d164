//! Opaque values of the conversation: digests, 64-bit words and agents' public keys.
//!
//! They travel as text, because JSON numbers stop being exact at 2^53.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is no opaque value of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}")]
pub struct InvalidOpaque {
    expected: &'static str,
}

macro_rules! opaque_text {
    ($type:ty, $name:literal, $pattern:literal, $length:literal) => {
        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some($pattern))
                    .max_length(Some($length))
                    .into()
            }
        }
        impl utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed($name)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The bytes of this many hex digits; `None` for any other text.
fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !is_lower_hex(text) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

/// 256 bits: a nonce, a key, a hash or the root of a tree. Text: 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = InvalidOpaque;

    fn from_str(text: &str) -> Result<Self, InvalidOpaque> {
        bytes_of(text).map(Self).ok_or(InvalidOpaque {
            expected: "64 lower-case hexadecimal digits",
        })
    }
}

opaque_text!(Digest, "Digest", "^[0-9a-f]{64}$", 64);

/// The id by which the GPUs of several nodes find each other in NCCL: 128 bytes that only NCCL reads. Text:
/// 256 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NcclId(pub [u8; 128]);

impl fmt::Display for NcclId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for NcclId {
    type Err = InvalidOpaque;

    fn from_str(text: &str) -> Result<Self, InvalidOpaque> {
        bytes_of(text).map(Self).ok_or(InvalidOpaque {
            expected: "256 lower-case hexadecimal digits",
        })
    }
}

opaque_text!(NcclId, "NcclId", "^[0-9a-f]{256}$", 256);

/// 64 bits: a checksum or an element of the field mod 2^61 - 1. Text: 16 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Word64(pub u64);

impl fmt::Display for Word64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Word64 {
    type Err = InvalidOpaque;

    fn from_str(text: &str) -> Result<Self, InvalidOpaque> {
        Some(text)
            .filter(|t| t.len() == 16 && is_lower_hex(t))
            .and_then(|t| u64::from_str_radix(t, 16).ok())
            .map(Self)
            .ok_or(InvalidOpaque {
                expected: "16 lower-case hexadecimal digits",
            })
    }
}

opaque_text!(Word64, "Word64", "^[0-9a-f]{16}$", 16);

/// An agent's ephemeral Ed25519 public key. Text: 43 characters of base64url without padding.
///
/// Only its alphabet and length are checked here. The signature check finds out whether it is a point of the
/// curve.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentKey(String);

impl AgentKey {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AgentKey {
    type Err = InvalidOpaque;

    fn from_str(text: &str) -> Result<Self, InvalidOpaque> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if text.len() == 43 && text.bytes().all(legal) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidOpaque {
            expected: "43 characters of base64url",
        })
    }
}

opaque_text!(AgentKey, "AgentKey", "^[A-Za-z0-9_-]{43}$", 43);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_digest_and_a_word_read_back_as_written(bytes in any::<[u8; 32]>(), word in any::<u64>()) {
            prop_assert_eq!(Digest(bytes).to_string().parse(), Ok(Digest(bytes)));
            let id = NcclId([bytes; 4].concat().try_into().expect("128 bytes"));
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            prop_assert_eq!(Word64(word).to_string().parse(), Ok(Word64(word)));
        }

        #[test]
        fn any_text_is_a_digest_or_a_refusal(text in ".{0,70}") {
            if let Ok(digest) = text.parse::<Digest>() {
                prop_assert_eq!(digest.to_string(), text);
            }
        }
    }

    #[test]
    fn upper_case_signs_and_wrong_lengths_are_refused() {
        assert!("AB".repeat(32).parse::<Digest>().is_err());
        assert!("+000000000000001".parse::<Word64>().is_err());
        assert!("0".repeat(63).parse::<Digest>().is_err());
        assert!("0".repeat(255).parse::<NcclId>().is_err());
        assert!("a".repeat(42).parse::<AgentKey>().is_err());
        assert!("+".repeat(43).parse::<AgentKey>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }
}
