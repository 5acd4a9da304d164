//! Which of several equivalent variants of a kernel runs. It follows from the broker's draw, so nobody knows
//! it beforehand, and a shim that imitates one of them is not enough. All give the same result bit for bit,
//! in the same time.

use market::verification::Digest;

use crate::gemm::GemmInputs;
use crate::prf::Stream;

/// Kernels that compute the same product in other ways.
pub(super) const EXACT_KERNELS: [&str; 2] = ["gemm_exact", "gemm_exact_back"];
/// The orders in which the tiles of a product on the tensor units are computed: bits that reverse its rows
/// and its columns.
pub(super) const WALKS: u32 = 4;
/// Where a stream may begin is a multiple of this, so that warps keep to whole lines. Units: vectors.
const TURN_MULTIPLE: u64 = 32;

/// The kernel that computes a product on the integer units.
pub(super) const fn exact_kernel(inputs: &GemmInputs) -> &'static str {
    let [drawn, ..] = inputs.left.parameters();
    EXACT_KERNELS[drawn as usize % EXACT_KERNELS.len()]
}

/// The order of a tensor-unit product's tiles.
pub(super) const fn walk(inputs: &GemmInputs) -> u32 {
    let [drawn, ..] = inputs.right.parameters();
    drawn % WALKS
}

/// Whether filling memory and comparing it begin at the highest address.
pub(super) const fn goes_down(stream: &Stream) -> u32 {
    let [_, drawn, ..] = stream.parameters();
    drawn % 2
}

/// Whether hashing memory under a key begins with the last block.
pub(super) const fn hashes_down(key: &Digest) -> u32 {
    // The point at which blocks are hashed is made of the first eight bytes.
    (key.0[8] % 2) as u32
}

/// Where a stream through this many vectors begins; `drawn` is any word.
pub(super) const fn turn(drawn: u32, vectors: u64) -> u64 {
    let places = vectors / TURN_MULTIPLE;
    // A 32nd of 2^64 vectors times a word stays far below 2^128.
    (((drawn as u128) * (places as u128)) >> 32) as u64 * TURN_MULTIPLE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_way_is_drawn_and_what_is_drawn_always_leads_to_the_same() {
        let drawn = |nonce: u32| {
            let word = nonce.wrapping_mul(0x9E37_79B9);
            let stream = Stream::from_parameters([word, word.rotate_left(7), 2, 3]);
            let inputs = GemmInputs {
                n: 8,
                k: 8,
                left: stream,
                right: stream,
            };
            let key = Digest([nonce as u8; 32]);
            let ways = || {
                (
                    exact_kernel(&inputs),
                    walk(&inputs),
                    goes_down(&stream),
                    hashes_down(&key),
                )
            };
            assert_eq!(ways(), ways());
            ways()
        };
        let all: Vec<_> = (0..64).map(drawn).collect();
        let kernels: BTreeSet<_> = all.iter().map(|way| way.0).collect();
        assert_eq!(kernels, BTreeSet::from(EXACT_KERNELS));
        let walks: BTreeSet<_> = all.iter().map(|way| way.1).collect();
        assert_eq!(walks, (0..WALKS).collect());
        for down in [0, 1] {
            assert!(all.iter().any(|way| way.2 == down) && all.iter().any(|way| way.3 == down));
        }
    }

    #[test]
    fn a_stream_begins_anywhere_within_its_array_on_whole_lines() {
        for vectors in [0, 1, 31, 32, 33, 1 << 28, (1 << 28) + 5] {
            for drawn in [0, 1, u32::MAX / 2, u32::MAX] {
                let turn = turn(drawn, vectors);
                assert!(turn < vectors.max(1) && turn.is_multiple_of(TURN_MULTIPLE));
            }
        }
        assert_eq!(turn(1 << 31, 1 << 28), 1 << 27);
    }
}
