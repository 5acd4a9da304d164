//! The pseudo-random function from which all work is derived: Philox4x32-10 in counter mode.
//!
//! It is cheap, needs no memory and gives any element on its own, so that a GPU kernel, the CPU
//! reference and the broker compute the same words in any order. Its key and the upper half of
//! its counter are derived from the secret of the conversation by BLAKE3.
//! Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); test vectors of
//! the Random123 distribution.

use market::verification::Digest;
use serde::{Deserialize, Serialize};

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit changes about half of all output
/// bits.
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// How many links of the pseudo-random function the slow fill chains: 2,560 rounds for 16 bytes. On 80 GB
/// that should take an H100 three to six seconds, an estimate from published rates.
pub const SLOW_LINKS: u32 = 256;

/// Ten rounds of Philox with four 32-bit lanes.
#[must_use]
pub fn philox4x32_10(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let p0 = MULTIPLIERS[0] * u64::from(c0);
        let p1 = MULTIPLIERS[1] * u64::from(c2);
        (c0, c1, c2, c3) = (
            (p1 >> 32) as u32 ^ c1 ^ k0,
            p1 as u32,
            (p0 >> 32) as u32 ^ c3 ^ k1,
            p0 as u32,
        );
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// The purpose of a stream. Streams of different purposes share no words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The left matrix of the exact product.
    GemmLeft,
    /// The right matrix of the exact product.
    GemmRight,
    /// The fill of memory.
    Memory,
    /// The vector by which a product is checked.
    Freivalds,
    /// The broker's choices of rows and blocks to open.
    Choice,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::GemmLeft => b"gemm-left",
            Self::GemmRight => b"gemm-right",
            Self::Memory => b"memory",
            Self::Freivalds => b"freivalds",
            Self::Choice => b"choice",
        }
    }
}

/// A stream of 2^66 words, each of which can be computed on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    key: [u32; 2],
    high: [u32; 2],
}

impl Stream {
    /// The stream of one GPU for one purpose under a secret.
    #[must_use]
    pub fn derive(secret: &Digest, purpose: Purpose, gpu: u32) -> Self {
        Self::hashed(secret, purpose, gpu, &[])
    }

    /// As [`Self::derive`], for data derived from a result.
    #[must_use]
    pub fn derive_after(secret: &Digest, purpose: Purpose, gpu: u32, result: &Digest) -> Self {
        Self::hashed(secret, purpose, gpu, &result.0)
    }

    fn hashed(secret: &Digest, purpose: Purpose, gpu: u32, after: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&secret.0);
        hasher.update(purpose.label());
        hasher.update(&gpu.to_le_bytes());
        hasher.update(after);
        let hash = hasher.finalize();
        let lane = |index: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&hash.as_bytes()[4 * index..4 * index + 4]);
            u32::from_le_bytes(bytes)
        };
        Self {
            key: [lane(0), lane(1)],
            high: [lane(2), lane(3)],
        }
    }

    /// Its key and the upper half of its counter, as a kernel takes them.
    #[must_use]
    pub const fn parameters(&self) -> [u32; 4] {
        [self.key[0], self.key[1], self.high[0], self.high[1]]
    }

    /// The stream with these parameters.
    #[must_use]
    pub const fn from_parameters([key0, key1, high0, high1]: [u32; 4]) -> Self {
        Self {
            key: [key0, key1],
            high: [high0, high1],
        }
    }

    /// Words `4 * index` to `4 * index + 3`.
    #[must_use]
    pub fn block(&self, index: u64) -> [u32; 4] {
        let counter = [
            index as u32,
            (index >> 32) as u32,
            self.high[0],
            self.high[1],
        ];
        philox4x32_10(counter, self.key)
    }

    /// Words `4 * index` to `4 * index + 3` of the slow fill: each link uses the previous link's output as
    /// its counter.
    #[must_use]
    pub fn slow_block(&self, index: u64) -> [u32; 4] {
        (1..SLOW_LINKS).fold(self.block(index), |block, link| {
            philox4x32_10(block, [self.key[0].wrapping_add(link), self.key[1]])
        })
    }

    /// One word.
    #[must_use]
    pub fn word(&self, index: u64) -> u32 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// Passes the words from `start` on to `take`, `count` of them in order, each block computed once.
    pub fn for_words(&self, start: u64, count: usize, take: impl FnMut(usize, u32)) {
        words_of(|index| self.block(index), start, count, take);
    }

    /// As [`Self::for_words`], for the slow fill.
    pub fn for_slow_words(&self, start: u64, count: usize, take: impl FnMut(usize, u32)) {
        words_of(|index| self.slow_block(index), start, count, take);
    }
}

fn words_of(
    block: impl Fn(u64) -> [u32; 4],
    start: u64,
    count: usize,
    mut take: impl FnMut(usize, u32),
) {
    #[cfg(feature = "counted")]
    drawn::add(count);
    let mut done = 0;
    while done < count {
        let index = start + done as u64;
        let within = (index % 4) as usize;
        for &word in block(index / 4)[within..].iter().take(count - done) {
            take(done, word);
            done += 1;
        }
    }
}

/// How many words were drawn, for tests: the cost of checking products or memory grows with them.
#[cfg(feature = "counted")]
pub mod drawn {
    use std::cell::Cell;

    thread_local! {
        static WORDS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add(count: usize) {
        WORDS.set(WORDS.get() + count);
    }

    /// By this thread so far.
    #[must_use]
    pub fn so_far() -> usize {
        WORDS.get()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `kat_vectors` of Random123 1.14, lines `philox4x32 10`.
    #[test]
    fn philox_gives_the_published_vectors() {
        assert_eq!(
            philox4x32_10([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn nonce_purpose_and_gpu_each_change_the_stream() {
        let base = Stream::derive(&Digest([1; 32]), Purpose::Memory, 0);
        assert_ne!(base, Stream::derive(&Digest([2; 32]), Purpose::Memory, 0));
        assert_ne!(base, Stream::derive(&Digest([1; 32]), Purpose::GemmLeft, 0));
        assert_ne!(base, Stream::derive(&Digest([1; 32]), Purpose::Memory, 1));
    }

    #[test]
    fn what_follows_from_a_result_is_another_stream_for_each() {
        let after = |result| {
            Stream::derive_after(
                &Digest([1; 32]),
                Purpose::GemmLeft,
                0,
                &Digest([result; 32]),
            )
        };
        assert_ne!(after(1), after(2));
        assert_ne!(
            after(0),
            Stream::derive(&Digest([1; 32]), Purpose::GemmLeft, 0)
        );
    }

    #[test]
    fn a_stream_never_changes_between_versions() {
        let stream = Stream::derive(&Digest([7; 32]), Purpose::GemmRight, 3);
        assert_eq!(stream.block(1 << 33), FROZEN);
    }
    const FROZEN: [u32; 4] = [0xe561_47aa, 0x1597_6d34, 0xf7e3_00db, 0x6b9f_6006];

    proptest! {
        #[test]
        fn words_in_a_run_are_the_words_one_by_one(start in any::<u32>(), count in 0_usize..40) {
            let stream = Stream::derive(&Digest([9; 32]), Purpose::Memory, 0);
            let mut seen = Vec::new();
            stream.for_words(u64::from(start), count, |index, word| seen.push((index, word)));
            let expected: Vec<_> =
                (0..count).map(|i| (i, stream.word(u64::from(start) + i as u64))).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
