//! The exact product on the tensor units: the rate that buyers pay for, with a result that any CPU
//! reproduces.
//!
//! Entries are integers that the format holds, and small enough that single precision holds every
//! sum, so the tensor units round nowhere and no order of summation matters: as BF16 the product is,
//! bit for bit, that of [`crate::gemm`]. As FP8 entries are smaller still, since some tensor units keep
//! no more than 13 bits behind the leading one while they add 8-bit products (reported of Hopper in
//! "DeepSeek-V3 Technical Report", 2024, section 3.3.2).

use market::verification::Word64;
use serde::{Deserialize, Serialize};

use crate::gemm::{GemmInputs, checksum};

/// The format of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// 16 bits with the exponent of single precision.
    Bf16,
    /// 8 bits: sign, 4 of exponent, 3 of fraction (e4m3).
    Fp8,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::Fp8];

    /// The largest entry; its negative is the smallest.
    #[must_use]
    pub const fn most(self) -> u8 {
        match self {
            Self::Bf16 => 8,
            Self::Fp8 => 4,
        }
    }

    /// Whether the agent measures its rate on GPUs of this compute capability: where there are such tensor
    /// units and kernels for them. Not on 10.x (`sm_100a`, `sm_103a`), whose kernels do not reach the rates
    /// that buyers pay for and are not calibrated. Nor 8-bit products on later parts, since the driver would
    /// compile them with spills (`kernels/left_out.csv`).
    #[must_use]
    pub fn is_rated_on(self, capability: &str) -> bool {
        let mut numbers = capability.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            return false;
        };
        match self {
            Self::Bf16 => major >= 8 && major != 10,
            Self::Fp8 => matches!((major, minor), (8, 9) | (9, 0) | (12, _)),
        }
    }

    /// Its usual name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::Fp8 => "FP8",
        }
    }

    /// The size of an entry. Units: bytes.
    #[must_use]
    pub const fn entry_bytes(self) -> u32 {
        match self {
            Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }
}

/// Products that a GPU computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorWork {
    /// Sizes and streams.
    pub inputs: GemmInputs,
    /// The format of entries.
    pub format: Format,
    /// The largest entry, [`Format::most`] of this format or of a shorter one.
    pub most: u8,
    /// How many are computed one after the other for the rate; at least one.
    pub timed: u32,
    /// How many more are computed and checked one by one.
    pub checked: u32,
}

/// Their results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorRun {
    /// The rate. Units: 1e9 operations per second, a multiplication and an addition being two.
    pub gflops: u64,
    /// The checksum of each checked product.
    pub checksums: Vec<Word64>,
}

/// The checksum that the product must have of entries up to `most`, whatever they are held as.
///
/// Work: n^2 k multiplications.
#[must_use]
pub fn expected_checksum(inputs: &GemmInputs, most: u8) -> Word64 {
    let (n, k) = (inputs.n as usize, inputs.k as usize);
    let entries = |stream: &crate::prf::Stream| {
        let mut entries = vec![0_i32; n * k];
        stream.for_words(0, n * k, |index, word| {
            entries[index] = entry(word, most);
        });
        entries
    };
    let (left, right) = (entries(&inputs.left), entries(&inputs.right));
    let mut product = vec![0_i32; n * n];
    for (row, left) in product.chunks_mut(n).zip(left.chunks(k)) {
        for (a, right) in left.iter().zip(right.chunks(n)) {
            for (sum, b) in row.iter_mut().zip(right) {
                *sum += a * b;
            }
        }
    }
    checksum(&product)
}

/// An entry in [-most, most], evenly, from the high bits of a word.
#[must_use]
pub fn entry(word: u32, most: u8) -> i32 {
    let values = 2 * u64::from(most) + 1;
    ((u64::from(word) * values) >> 32) as i32 - i32::from(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_measured_where_there_are_units_and_kernels_that_reach_them() {
        let rated = |format: Format| {
            let all = [
                "7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1",
                "13.0", "", "gfx942",
            ];
            let rated = all.into_iter().filter(|of| format.is_rated_on(of));
            rated.collect::<Vec<_>>()
        };
        let bf16 = ["8.0", "8.6", "8.9", "9.0", "11.0", "12.0", "12.1", "13.0"];
        assert_eq!(rated(Format::Bf16), bf16);
        assert_eq!(rated(Format::Fp8), ["8.9", "9.0", "12.0", "12.1"]);
    }
}
