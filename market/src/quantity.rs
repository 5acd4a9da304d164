//! Quantities of hardware: GPUs of a node, which may be fractions, and nodes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a quantity was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// A node has at least a thousandth of a GPU and at most 1,024 GPUs.
    #[error("{0} GPUs in one node is impossible")]
    ImpossibleGpus(String),
}

/// How many GPUs one node has; a slice of a GPU is a fraction of one.
///
/// Units: held as thousandths of a GPU, so 1/6 of an A10 is published and kept as 0.167.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GpuCount {
    thousandths: u32,
}

impl GpuCount {
    /// The most GPUs that one node can have.
    pub const MAX: u32 = 1_024;

    /// This many whole GPUs, 1..=1024.
    ///
    /// Errors: [`QuantityError::ImpossibleGpus`].
    pub fn whole(gpus: u32) -> Result<Self, QuantityError> {
        if gpus == 0 || gpus > Self::MAX {
            return Err(QuantityError::ImpossibleGpus(gpus.to_string()));
        }
        Ok(Self {
            thousandths: gpus * 1_000,
        })
    }

    /// This many thousandths of a GPU.
    ///
    /// Errors: [`QuantityError::ImpossibleGpus`].
    pub fn from_thousandths(thousandths: u32) -> Result<Self, QuantityError> {
        if thousandths == 0 || thousandths > Self::MAX * 1_000 {
            return Err(QuantityError::ImpossibleGpus(format!("{thousandths}/1000")));
        }
        Ok(Self { thousandths })
    }

    /// Reads a published count such as `8` or `0.167`.
    ///
    /// Errors: [`QuantityError::ImpossibleGpus`] for zero, less, more than a node holds, no
    /// number, or finer than a thousandth.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let refuse = || QuantityError::ImpossibleGpus(text.chars().take(40).collect());
        let count = rust_decimal::Decimal::from_str_exact(text.trim()).map_err(|_| refuse())?;
        let thousandths = count.checked_mul(1_000.into()).ok_or_else(refuse)?;
        if !thousandths.fract().is_zero() {
            return Err(refuse());
        }
        let thousandths = u32::try_from(thousandths).map_err(|_| refuse())?;
        Self::from_thousandths(thousandths).map_err(|_| refuse())
    }

    /// The count in thousandths of a GPU.
    #[must_use]
    pub const fn thousandths(self) -> u32 {
        self.thousandths
    }

    /// The count when it is whole; `None` for a slice of a GPU.
    #[must_use]
    pub const fn as_whole(self) -> Option<u32> {
        if self.thousandths.is_multiple_of(1_000) {
            Some(self.thousandths / 1_000)
        } else {
            None
        }
    }

    /// The count as a floating-point number, for arithmetic on physical quantities only.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        f64::from(self.thousandths) / 1_000.0
    }
}

impl fmt::Display for GpuCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_whole() {
            Some(whole) => write!(f, "{whole}"),
            None => write!(
                f,
                "{}",
                rust_decimal::Decimal::new(i64::from(self.thousandths), 3).normalize()
            ),
        }
    }
}

impl Serialize for GpuCount {
    /// A JSON number: an integer when whole, else a decimal such as `0.167`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_whole() {
            Some(whole) => serializer.serialize_u32(whole),
            None => serializer.serialize_f64(self.to_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for GpuCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        Self::parse(&number.to_string()).map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for GpuCount {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::Number)
            .minimum(Some(0.001))
            .maximum(Some(f64::from(Self::MAX)))
            .description(Some("GPUs of one node; a slice of a GPU is a fraction"))
            .into()
    }
}

impl utoipa::ToSchema for GpuCount {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_slice_is_a_fraction_and_never_a_whole_gpu() {
        let slice = GpuCount::parse("0.167").expect("a slice");
        assert_eq!(slice.as_whole(), None);
        assert_eq!(serde_json::to_string(&slice).expect("json"), "0.167");
    }

    #[test]
    fn impossible_counts_are_refused_at_the_door() {
        // A real inventory published the first one: minus one, read without its sign.
        for bad in [
            "18446744073709551615",
            "0",
            "-1",
            "1e3",
            "0.0001",
            "1025",
            "",
            "eight",
        ] {
            assert!(GpuCount::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_count_reads_back_as_it_was_written(thousandths in 1_u32..=1_024_000) {
            let count = GpuCount::from_thousandths(thousandths).expect("in range");
            prop_assert_eq!(GpuCount::parse(&count.to_string()), Ok(count));
            let json = serde_json::to_string(&count).expect("json");
            prop_assert_eq!(serde_json::from_str::<GpuCount>(&json).expect("reads back"), count);
        }
    }
}
