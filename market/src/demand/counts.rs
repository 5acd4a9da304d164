//! How many GPUs a node has: a number, or the fewest and the most.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{Object, RefOr, Schema};

/// The most GPUs that a node has.
pub(super) const MOST: u32 = 1_024;

/// How many GPUs each node has: on the wire a number, or an object of `min` and `max`, of which one may be
/// left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Counts {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
}

impl Counts {
    /// Exactly this many.
    #[must_use]
    pub const fn exactly(count: u32) -> Self {
        Self {
            min: count,
            max: count,
        }
    }

    /// Whether a node may have this many.
    #[must_use]
    pub const fn accepts(self, count: u32) -> bool {
        self.min <= count && count <= self.max
    }
}

/// Such as `8` or `4 to 8`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => self.min.fmt(f),
            false => write!(f, "{} to {}", self.min, self.max),
        }
    }
}

#[derive(Serialize)]
struct Range {
    min: u32,
    max: u32,
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { min, max } = *self;
        match min == max {
            true => serializer.serialize_u32(min),
            false => Range { min, max }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrRange)
    }
}

struct NumberOrRange;

impl<'de> Visitor<'de> for NumberOrRange {
    type Value = Counts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(r#"a whole number, or {"min": 4, "max": 8}"#)
    }

    fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<Counts, E> {
        let count =
            u32::try_from(count).map_err(|_| E::custom(format!("must be at most {MOST}")))?;
        Ok(Counts::exactly(count))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Counts, A::Error> {
        let refuse = serde::de::Error::custom;
        let (mut min, mut max) = (None, None);
        while let Some(field) = map.next_key::<String>()? {
            let bound = match field.as_str() {
                "min" => &mut min,
                "max" => &mut max,
                _ => return Err(refuse("takes the fields `min` and `max` and no other")),
            };
            *bound = Some(map.next_value::<u64>()?.min(u64::from(u32::MAX)) as u32);
        }
        match (min, max) {
            (None, None) => Err(refuse("takes `min`, `max` or both")),
            (min, max) => Ok(Counts {
                min: min.unwrap_or(1),
                max: max.unwrap_or(MOST),
            }),
        }
    }
}

impl utoipa::PartialSchema for Counts {
    fn schema() -> RefOr<Schema> {
        let number = |default: Option<u32>| -> Object {
            ObjectBuilder::new()
                .schema_type(Type::Integer)
                .minimum(Some(1))
                .maximum(Some(MOST))
                .default(default.map(Into::into))
                .build()
        };
        let range = ObjectBuilder::new()
            .property("min", number(Some(1)))
            .property("max", number(Some(MOST)))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)))
            .build();
        OneOfBuilder::new().item(number(None)).item(range).into()
    }
}

impl utoipa::ToSchema for Counts {
    fn name() -> std::borrow::Cow<'static, str> {
        std::borrow::Cow::Borrowed("Counts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_range_are_read_and_written_back() {
        for (json, min, max, written) in [
            ("8", 8, 8, "8"),
            (r#"{"min":4,"max":8}"#, 4, 8, r#"{"min":4,"max":8}"#),
            (r#"{"min":4}"#, 4, 1_024, r#"{"min":4,"max":1024}"#),
            (r#"{"max":8}"#, 1, 8, r#"{"min":1,"max":8}"#),
            (r#"{"min":8,"max":8}"#, 8, 8, "8"),
        ] {
            let counts: Counts = serde_json::from_str(json).expect("counts");
            assert_eq!(counts, Counts { min, max }, "{json}");
            assert_eq!(serde_json::to_string(&counts).expect("json"), written);
        }
    }

    #[test]
    fn what_is_no_count_is_refused_with_what_to_write() {
        for (bad, says) in [
            (r#""8""#, r#"a whole number, or {"min": 4, "max": 8}"#),
            ("[4,8]", r#"a whole number, or {"min": 4, "max": 8}"#),
            ("-1", "a whole number"),
            ("5000000000", "at most 1024"),
            (r#"{"least":4}"#, "the fields `min` and `max` and no other"),
            ("{}", "takes `min`, `max` or both"),
        ] {
            let error = serde_json::from_str::<Counts>(bad).expect_err("no count");
            assert!(error.to_string().contains(says), "{bad}: {error}");
        }
    }
}
