//! The vectors that kernels and reference are held to alike: small cases with the result that each must
//! have, bit for bit. Kernels are played against them on a CPU (`kernels/emulated`), the reference in its
//! tests, and what real cards gave (`tests/it/recorded.rs`).

use std::sync::LazyLock;

use market::verification::{Digest, Pattern, Word64};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::field::Element;
use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::prf::Stream;
use crate::tensor::Format;

/// A product.
#[derive(Debug, Clone, Copy)]
pub struct ProductVector {
    /// Sizes and streams.
    pub inputs: GemmInputs,
    /// The format whose entries it has.
    pub format: Format,
    /// The checksum that it must have.
    pub checksum: Word64,
}

/// Memory that is filled and hashed.
#[derive(Debug, Clone, Copy)]
pub struct MemoryVector {
    /// Its contents.
    pub contents: Contents,
    /// The key under which it is hashed.
    pub key: Digest,
    /// The size of the hashed blocks. Units: bytes.
    pub block_bytes: u32,
    /// How many blocks.
    pub blocks: u64,
    /// The right result of [`sum_of`] for their digests.
    pub digests: Word64,
}

/// Two arrays, and what becomes of them.
#[derive(Debug, Clone, Copy)]
pub struct StreamVector {
    /// The contents of the first array.
    pub left: Stream,
    /// The contents of the second array.
    pub right: Stream,
    /// The factor of the second array before it is added to the first.
    pub scale: u32,
    /// Their length. Units: 16 bytes.
    pub vectors: u64,
    /// The sum of the first array's words.
    pub sum: Word64,
    /// The checksum of the first.
    pub copied: Word64,
    /// The checksum of the two arrays' sum.
    pub triad: Word64,
}

/// Digests as one word, each times its place, counted from one.
#[must_use]
pub fn sum_of(digests: &[Word64]) -> Word64 {
    let times = |(digest, place): (&Word64, u64)| digest.0.wrapping_mul(place);
    let sum = digests.iter().zip(1..).map(times);
    Word64(sum.fold(0, u64::wrapping_add))
}

#[derive(Deserialize)]
struct ProductRow {
    n: u32,
    k: u32,
    most: u8,
    left: String,
    right: String,
    checksum: String,
}

#[derive(Deserialize)]
struct StreamRow {
    left: String,
    right: String,
    scale: u32,
    vectors: u64,
    sum: String,
    copied: String,
    triad: String,
}

#[derive(Deserialize)]
struct MemoryRow {
    pattern: Pattern,
    stream: String,
    point: String,
    vectors: u32,
    blocks: u64,
    digests: String,
}

/// All products.
#[must_use]
pub fn products() -> &'static [ProductVector] {
    static ALL: LazyLock<Vec<ProductVector>> = LazyLock::new(|| {
        let rows = rows(include_str!("../kernels/vectors.csv")).into_iter();
        let of = |row: ProductRow| {
            let format = Format::ALL.into_iter().find(|f| f.most() == row.most)?;
            Some(ProductVector {
                inputs: GemmInputs {
                    n: row.n,
                    k: row.k,
                    left: stream(&row.left)?,
                    right: stream(&row.right)?,
                },
                format,
                checksum: Word64(number(&row.checksum)?),
            })
        };
        // Here and below: the table is part of the build, and a test compares the count of its rows.
        rows.filter_map(of).collect()
    });
    &ALL
}

/// All memories.
#[must_use]
pub fn memories() -> &'static [MemoryVector] {
    static ALL: LazyLock<Vec<MemoryVector>> = LazyLock::new(|| {
        let rows = rows(include_str!("../kernels/memory_vectors.csv")).into_iter();
        let of = |row: MemoryRow| {
            let point = Element::from_canonical(number(&row.point)?)?;
            let mut key = Digest([0; 32]);
            key.0[..8].copy_from_slice(&point.value().to_le_bytes());
            Some(MemoryVector {
                contents: Contents {
                    stream: stream(&row.stream)?,
                    pattern: row.pattern,
                },
                key,
                block_bytes: row.vectors * 16,
                blocks: row.blocks,
                digests: Word64(number(&row.digests)?),
            })
        };
        rows.filter_map(of).collect()
    });
    &ALL
}

/// All arrays that are streamed through.
#[must_use]
pub fn streams() -> &'static [StreamVector] {
    static ALL: LazyLock<Vec<StreamVector>> = LazyLock::new(|| {
        let rows = rows(include_str!("../kernels/stream_vectors.csv")).into_iter();
        let of = |row: StreamRow| {
            Some(StreamVector {
                left: stream(&row.left)?,
                right: stream(&row.right)?,
                scale: row.scale,
                vectors: row.vectors,
                sum: Word64(number(&row.sum)?),
                copied: Word64(number(&row.copied)?),
                triad: Word64(number(&row.triad)?),
            })
        };
        rows.filter_map(of).collect()
    });
    &ALL
}

fn rows<T: DeserializeOwned>(table: &str) -> Vec<T> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().flatten().collect()
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
}

fn stream(digits: &str) -> Option<Stream> {
    let word = |at: usize| u32::from_str_radix(digits.get(8 * at..8 * at + 8)?, 16).ok();
    Some(Stream::from_parameters([
        word(0)?,
        word(1)?,
        word(2)?,
        word(3)?,
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::checksum;
    use crate::memory::{block_digest, hash_point};
    use crate::tensor::expected_checksum;

    #[test]
    fn every_row_of_the_tables_is_read() {
        let rows_of = |table: &str| table.lines().count() - 1;
        let products_csv = include_str!("../kernels/vectors.csv");
        let memories_csv = include_str!("../kernels/memory_vectors.csv");
        assert_eq!(products().len(), rows_of(products_csv));
        assert_eq!(memories().len(), rows_of(memories_csv));
        let streams_csv = include_str!("../kernels/stream_vectors.csv");
        assert_eq!(streams().len(), rows_of(streams_csv));
        for format in Format::ALL {
            let of_format = products().iter().filter(|v| v.format == format);
            assert!(of_format.count() > 1, "{format:?}");
        }
        for pattern in [
            Pattern::Prf,
            Pattern::Complement,
            Pattern::Address,
            Pattern::Slow,
            Pattern::WalkingOne,
            Pattern::WalkingZero,
        ] {
            let mut all = memories().iter();
            assert!(all.any(|v| v.contents.pattern == pattern), "{pattern:?}");
        }
    }

    #[test]
    fn the_reference_gives_the_products_that_the_kernels_give() {
        for vector in products() {
            let sum = expected_checksum(&vector.inputs, vector.format.most());
            assert_eq!(sum, vector.checksum, "{vector:?}");
        }
    }

    #[test]
    fn the_reference_gives_the_digests_that_the_kernels_give() {
        for vector in memories() {
            let words = vector.block_bytes as usize / 4;
            let digest = |block: u64| {
                let mut held = Vec::new();
                let contents = vector.contents;
                contents.for_words(block * words as u64, words, |_, word| held.push(word));
                block_digest(held, hash_point(&vector.key))
            };
            let digests: Vec<Word64> = (0..vector.blocks).map(digest).collect();
            assert_eq!(sum_of(&digests), vector.digests, "{vector:?}");
        }
    }

    #[test]
    fn the_reference_gives_what_the_kernels_stream() {
        for vector in streams() {
            let words = |stream: &Stream| {
                let (mut words, count) = (Vec::new(), 4 * vector.vectors as usize);
                stream.for_words(0, count, |_, word| words.push(word));
                words
            };
            let signed = |words: &[u32]| words.iter().map(|w| w.cast_signed()).collect::<Vec<_>>();
            let (left, right) = (words(&vector.left), words(&vector.right));
            let triad = left.iter().zip(&right);
            let triad = triad.map(|(a, b)| a.wrapping_add(vector.scale.wrapping_mul(*b)));
            let triad: Vec<u32> = triad.collect();
            let sum: u64 = left.iter().copied().map(u64::from).sum();
            assert_eq!(Word64(sum), vector.sum);
            assert_eq!(checksum(&signed(&left)), vector.copied);
            assert_eq!(checksum(&signed(&triad)), vector.triad);
        }
    }
}
