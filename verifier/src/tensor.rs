//! The exact product on the tensor units: the rate that is paid for, with a result that any CPU has.
//!
//! Entries are integers that the format holds, and small enough that single precision holds every
//! sum, so the tensor units round nowhere and no order of summation matters: as BF16 the product is,
//! bit for bit, that of [`crate::gemm`]. As FP8 entries are smaller still, since some tensor units keep
//! no more than 13 bits behind the leading one while they add 8-bit products (reported of Hopper in
//! "DeepSeek-V3 Technical Report", 2024, section 3.3.2).

use market::verification::Word64;
use serde::{Deserialize, Serialize};

use crate::gemm::{GemmInputs, checksum};

/// What an entry is held as.
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

    /// The largest entry, and with its sign turned the smallest.
    #[must_use]
    pub const fn most(self) -> u8 {
        match self {
            Self::Bf16 => 8,
            Self::Fp8 => 4,
        }
    }

    /// What an entry takes. Units: bytes.
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
    /// What entries are held as.
    pub format: Format,
    /// How many are computed one after the other for the rate; at least one.
    pub timed: u32,
    /// How many more are computed and looked at one by one.
    pub checked: u32,
}

/// What they showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorRun {
    /// The rate. Units: 1e9 operations per second, a multiplication and an addition being two.
    pub gflops: u64,
    /// The checksum of each product that was looked at.
    pub checksums: Vec<Word64>,
}

/// What the vendor's library makes of the same inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum LibraryRun {
    /// The node has no such library.
    NotInstalled,
    /// The library has no way to compute such a product on this GPU.
    NoSuchProduct,
    /// It did.
    Measured {
        /// Its name and version.
        library: String,
        /// The rate. Units: 1e9 operations per second.
        gflops: u64,
    },
}

/// The checksum that the product must have.
///
/// Work: n^2 k multiplications.
#[must_use]
pub fn expected_checksum(inputs: &GemmInputs, format: Format) -> Word64 {
    let (n, k) = (inputs.n as usize, inputs.k as usize);
    let entries = |stream: &crate::prf::Stream| {
        let mut entries = vec![0_i32; n * k];
        stream.for_words(0, n * k, |index, word| {
            entries[index] = entry(word, format.most());
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
    use crate::device::Device;
    use crate::prf::Stream;
    use crate::reference::NodeDescription;

    /// A row of the vectors that the kernels are held to as well (`kernels/emulated`).
    #[derive(Debug, Deserialize)]
    struct Vector {
        kind: String,
        n: u32,
        k: u32,
        most: u8,
        left: String,
        right: String,
        checksum: String,
    }

    impl Vector {
        fn inputs(&self) -> GemmInputs {
            let stream = |digits: &str| {
                let word = |at: usize| {
                    u32::from_str_radix(&digits[8 * at..8 * at + 8], 16).expect("a word")
                };
                Stream::from_parameters([word(0), word(1), word(2), word(3)])
            };
            GemmInputs {
                n: self.n,
                k: self.k,
                left: stream(&self.left),
                right: stream(&self.right),
            }
        }
    }

    fn vectors() -> Vec<Vector> {
        let table = include_str!("../kernels/vectors.csv");
        csv::Reader::from_reader(table.as_bytes())
            .deserialize()
            .collect::<Result<_, _>>()
            .expect("vectors")
    }

    #[test]
    fn the_reference_gives_the_vectors_that_the_kernels_give() {
        let mut seen = [0; 2];
        for vector in vectors() {
            assert_eq!(vector.kind, "product");
            let at = Format::ALL
                .iter()
                .position(|format| format.most() == vector.most);
            let at = at.expect("a format with such entries");
            let sum = expected_checksum(&vector.inputs(), Format::ALL[at]);
            assert_eq!(format!("0x{:x}", sum.0), vector.checksum, "{vector:?}");
            seen[at] += 1;
        }
        assert!(seen.iter().all(|count| *count > 1), "{seen:?}");
    }

    #[test]
    fn as_bf16_the_product_is_that_of_the_integers() {
        let vector = vectors().remove(1);
        let description = serde_json::json!({
            "schema": "simulated-node-1", "node_index": 0, "host": "127.0.0.1", "gpu": "H100-SXM",
            "gpus": 1, "memory_mib": 81_559, "vcpus": 8, "memory_gib": 64, "uuids": ["GPU-0"],
            "driver": "580", "internode": "none",
        });
        let description = NodeDescription::parse(&description.to_string()).expect("a node");
        let mut node = description.node();
        let device: &mut dyn Device = node.devices[0].as_mut();
        let inputs = vector.inputs();
        assert_eq!(
            device.multiply(&inputs).expect("a product"),
            expected_checksum(&inputs, Format::Bf16)
        );
        assert_ne!(
            expected_checksum(&inputs, Format::Bf16),
            expected_checksum(&inputs, Format::Fp8)
        );
    }
}
