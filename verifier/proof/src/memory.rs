//! The contents of memory, and how they are hashed under a fresh key.
//!
//! Memory is 32-bit words in little-endian order. A block's digest is its words as coefficients
//! of a polynomial at the fresh key, mod 2^61 - 1: cheap on a GPU, computed in any order, and
//! two different blocks agree for at most one key in 2^61 / words. A BLAKE3 tree over the digests, of
//! which each leaf has [`LEAF_BLOCKS`], commits to all memory.

use market::verification::{Digest, MemoryWork, OpenedBlock, Pattern, Word64};
use serde::{Deserialize, Serialize};

use crate::field::Element;
use crate::merkle::{self, Tree};
use crate::prf::{Purpose, Stream};

/// The contents of one GPU's memory in one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// The pseudo-random words.
    pub stream: Stream,
    /// The pattern derived from them.
    pub pattern: Pattern,
}

impl Contents {
    /// The contents derived from the broker's draw for one GPU.
    #[must_use]
    pub fn derive(seed: &Digest, gpu: u32, pattern: Pattern) -> Self {
        Self {
            stream: Stream::derive(seed, Purpose::Memory, gpu),
            pattern,
        }
    }

    /// The contents of a repeated pass in this round: different each time, except for addresses, which never
    /// change.
    #[must_use]
    pub fn in_round(seed: &Digest, gpu: u32, pattern: Pattern, round: u32) -> Self {
        let mut number = [0; 32];
        number[..4].copy_from_slice(&round.to_le_bytes());
        Self {
            stream: Stream::derive_after(seed, Purpose::Memory, gpu, &Digest(number)),
            pattern,
        }
    }

    /// A pseudo-random fill after all its words have been inverted.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self {
            pattern: Pattern::Complement,
            ..self
        }
    }

    /// Passes `count` words from word `start` on to `take`, in order.
    pub fn for_words(&self, start: u64, count: usize, mut take: impl FnMut(usize, u32)) {
        match self.pattern {
            Pattern::Prf | Pattern::MovingInversion => self.stream.for_words(start, count, take),
            Pattern::Slow => self.stream.for_slow_words(start, count, take),
            Pattern::Complement => {
                self.stream
                    .for_words(start, count, |index, word| take(index, !word));
            }
            Pattern::Address => {
                for index in 0..count {
                    let address = start + index as u64;
                    take(index, (address ^ (address >> 32)) as u32);
                }
            }
            Pattern::WalkingOne => self.walking(start, count, take),
            Pattern::WalkingZero => self.walking(start, count, |index, word| take(index, !word)),
        }
    }

    /// Appends the first `count` words.
    pub fn write(&self, count: usize, words: &mut Vec<u32>) {
        self.for_words(0, count, |_, word| words.push(word));
    }

    /// How many words differ from the first of these contents, and the first that does.
    #[must_use]
    pub fn differences(&self, words: &[u32]) -> (u64, Option<usize>) {
        let (mut count, mut first) = (0, None);
        self.for_words(0, words.len(), |index, word| {
            if words[index] != word {
                count += 1;
                first.get_or_insert(index);
            }
        });
        (count, first)
    }

    fn walking(&self, start: u64, count: usize, mut take: impl FnMut(usize, u32)) {
        let [drawn, ..] = self.stream.parameters();
        for index in 0..count {
            let bit = (start + index as u64).wrapping_add(drawn.into()) % 32;
            take(index, 1 << bit);
        }
    }
}

/// The pattern in memory when it is proved: that of the last pass.
#[must_use]
pub fn proved_pattern(work: &MemoryWork) -> Pattern {
    work.passes.last().copied().unwrap_or(Pattern::Prf)
}

/// The point at which blocks are hashed: neither zero nor one.
#[must_use]
pub fn hash_point(key: &Digest) -> Element {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key.0[..8]);
    let point = Element::new(u64::from_le_bytes(bytes));
    if point.value() > 1 {
        point
    } else {
        Element::new(point.value() + 2)
    }
}

/// The digest of one block of words.
pub fn block_digest(words: impl IntoIterator<Item = u32>, point: Element) -> Word64 {
    let digest = words.into_iter().fold(Element::ONE, |sum, word| {
        sum.times(point).plus(Element::new(u64::from(word)))
    });
    Word64(digest.value())
}

/// The digests of blocks of this many words; the last block has the remainder.
#[must_use]
pub fn digests(words: &[u32], block_words: usize, point: Element) -> Vec<Word64> {
    let blocks = words.chunks(block_words);
    blocks
        .map(|block| block_digest(block.iter().copied(), point))
        .collect()
}

/// The blocks of one leaf of the tree over memory; the last leaf has the remainder. Most of the time between
/// the fresh key and the answer is that of the tree, and no memory may be recomputed in it: with a leaf for
/// each block it is ten times as long.
pub const LEAF_BLOCKS: usize = 16;

/// The leaf of the tree over memory that has these digests.
fn digests_leaf(leaf: u64, digests: &[Word64]) -> Digest {
    let mut content = [0; 8 * LEAF_BLOCKS];
    for (room, digest) in content.chunks_exact_mut(8).zip(digests) {
        room.copy_from_slice(&digest.0.to_le_bytes());
    }
    merkle::leaf(leaf, &content[..8 * digests.len().min(LEAF_BLOCKS)])
}

/// The tree over the digests of all blocks, by at most this many threads.
#[must_use]
pub fn tree(digests: &[Word64], threads: usize) -> Tree {
    let leaves = digests.len().div_ceil(LEAF_BLOCKS) as u64;
    Tree::over(leaves, threads, |leaf| {
        let first = leaf as usize * LEAF_BLOCKS;
        let end = digests.len().min(first + LEAF_BLOCKS);
        digests_leaf(leaf, &digests[first..end])
    })
}

/// A block with its place in the tree over these digests; `None` where there is no such block.
#[must_use]
pub fn open(digests: &[Word64], tree: &Tree, block: u64) -> Option<OpenedBlock> {
    let at = usize::try_from(block).ok()?;
    let (leaf, within) = (at / LEAF_BLOCKS, at % LEAF_BLOCKS);
    let mut beside = digests.chunks(LEAF_BLOCKS).nth(leaf)?.to_vec();
    if within >= beside.len() {
        return None;
    }
    Some(OpenedBlock {
        block,
        digest: beside.remove(within),
        beside,
        path: tree.path(leaf as u64),
    })
}

/// Whether an opened block is in the committed tree over this many.
#[must_use]
pub fn is_committed(root: &Digest, opened: &OpenedBlock, count: u64) -> bool {
    let (leaves, blocks) = (count.div_ceil(LEAF_BLOCKS as u64), LEAF_BLOCKS as u64);
    let (leaf, within) = (opened.block / blocks, opened.block % blocks);
    let of_leaf = count.saturating_sub(leaf * blocks).min(blocks);
    if within >= of_leaf || opened.beside.len() as u64 + 1 != of_leaf {
        return false;
    }
    let mut digests = opened.beside.clone();
    digests.insert(within as usize, opened.digest);
    merkle::leads_to(
        root,
        digests_leaf(leaf, &digests),
        leaf,
        leaves,
        &opened.path,
    )
}

/// How many blocks an order has.
#[must_use]
pub fn block_count(work: &MemoryWork) -> u64 {
    work.pattern_bytes / u64::from(work.block_bytes)
}

/// The granularity in which drivers allocate memory, with room for small allocations. Units: bytes.
const PIECE: u64 = 2 << 20;

/// How much of an order's memory can be filled where this much can be allocated in one piece: hashing it
/// takes a little in addition.
///
/// Units: bytes. Shape: a whole number of blocks, and never more than is ordered.
#[must_use]
fn fillable_bytes(work: &MemoryWork, allocatable_bytes: u64) -> u64 {
    let block = u64::from(work.block_bytes);
    let digests = block_count(work) * 8;
    let beside = (digests.next_multiple_of(PIECE) + PIECE).min(allocatable_bytes / 100);
    (allocatable_bytes - beside).min(work.pattern_bytes) / block * block
}

/// An order's work on a GPU on which this much can be allocated.
#[must_use]
pub fn work_where(work: &MemoryWork, allocatable_mib: u32) -> MemoryWork {
    MemoryWork {
        pattern_bytes: fillable_bytes(work, u64::from(allocatable_mib) << 20),
        ..work.clone()
    }
}

/// The right digest of a block when memory holds the last fill.
#[must_use]
pub fn expected_digest(contents: &Contents, work: &MemoryWork, block: u64, key: &Digest) -> Word64 {
    let words = work.block_bytes as usize / 4;
    let point = hash_point(key);
    let mut sum = Element::ONE;
    contents.for_words(block * words as u64, words, |_, word| {
        sum = sum.times(point).plus(Element::new(u64::from(word)));
    });
    Word64(sum.value())
}

/// The right root of memory when it holds the last fill.
///
/// Work: as much as the agent's, so it is for small orders; the broker checks large ones by opened blocks.
#[must_use]
pub fn expected_root(contents: &Contents, work: &MemoryWork, key: &Digest) -> Digest {
    let digests: Vec<Word64> = (0..block_count(work))
        .map(|block| expected_digest(contents, work, block, key))
        .collect();
    tree(&digests, 1).root()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NONCE: Digest = Digest([1; 32]);
    const KEY: Digest = Digest([2; 32]);

    fn words(pattern: Pattern, start: u64, count: usize) -> Vec<u32> {
        let mut words = Vec::new();
        Contents::derive(&NONCE, 0, pattern).for_words(start, count, |_, word| words.push(word));
        words
    }

    proptest! {
        #[test]
        fn a_changed_or_moved_word_changes_the_digest(
            mut words in prop::collection::vec(any::<u32>(), 2..64), at in any::<usize>(), bit in 0_u32..32,
        ) {
            let point = hash_point(&KEY);
            let before = block_digest(words.iter().copied(), point);
            let at = at % words.len();
            words[at] ^= 1_u32 << bit;
            prop_assert_ne!(block_digest(words.iter().copied(), point), before);
            words[at] ^= 1_u32 << bit;
            let other = (at + 1) % words.len();
            if words[at] != words[other] {
                words.swap(at, other);
                prop_assert_ne!(block_digest(words.iter().copied(), point), before);
            }
        }

        #[test]
        fn another_key_gives_another_digest(a in any::<[u8; 32]>(), b in any::<[u8; 32]>()) {
            prop_assume!(a[..8] != b[..8]);
            let block = words(Pattern::Prf, 0, 16);
            let digest = |key| block_digest(block.iter().copied(), hash_point(&Digest(key)));
            prop_assert_ne!(digest(a), digest(b));
        }
    }

    #[test]
    fn complement_differs_from_the_fill_in_every_bit() {
        let pairs = words(Pattern::Prf, 5, 9)
            .into_iter()
            .zip(words(Pattern::Complement, 5, 9));
        assert!(pairs.into_iter().all(|(a, b)| a == !b));
    }

    #[test]
    fn memory_that_was_filled_slowly_is_proved_as_such() {
        let mut work = MemoryWork {
            pattern_bytes: 640,
            block_bytes: 64,
            passes: vec![Pattern::Address, Pattern::Slow],
            opened_blocks: 1,
            repeated_ms: 0,
        };
        assert_eq!(proved_pattern(&work), Pattern::Slow);
        let slow = Contents::derive(&NONCE, 0, Pattern::Slow);
        let plain = Contents::derive(&NONCE, 0, Pattern::Prf);
        assert_ne!(
            expected_root(&slow, &work, &KEY),
            expected_root(&plain, &work, &KEY)
        );
        work.passes.clear();
        assert_eq!(proved_pattern(&work), Pattern::Prf);
    }

    #[test]
    fn addresses_tell_words_apart_beyond_16_gib() {
        assert_eq!(words(Pattern::Address, 7, 3), [7, 8, 9]);
        assert_ne!(
            words(Pattern::Address, 7, 1),
            words(Pattern::Address, 7 + (1 << 32), 1)
        );
    }

    #[test]
    fn one_bit_walks_through_the_words_from_another_on_in_each_round() {
        let walking = |pattern, round| {
            let mut words = Vec::new();
            let contents = Contents::in_round(&NONCE, 0, pattern, round);
            contents.for_words(100, 64, |_, word| words.push(word));
            words
        };
        let ones = walking(Pattern::WalkingOne, 0);
        assert!(ones.iter().all(|word| word.is_power_of_two()));
        assert!(ones.windows(2).all(|two| two[1] == two[0].rotate_left(1)));
        let zeros = walking(Pattern::WalkingZero, 0);
        assert!(ones.iter().zip(zeros).all(|(one, zero)| *one == !zero));
        let begins: std::collections::BTreeSet<u32> = (0..400)
            .map(|round| walking(Pattern::WalkingOne, round)[0])
            .collect();
        assert_eq!(begins.len(), 32, "each word has held each bit");
    }

    proptest! {
        #[test]
        fn what_is_filled_fits_beside_its_digests_and_is_all_that_is_ordered_where_there_is_room(
            blocks in 1_u64..1 << 22, block in 1_u32..64, has in 0_u64..1 << 42,
        ) {
            let work = MemoryWork {
                pattern_bytes: blocks * u64::from(block) * 1_024,
                block_bytes: block * 1_024,
                passes: vec![Pattern::Prf],
                opened_blocks: 1,
            repeated_ms: 0,
            };
            let fills = fillable_bytes(&work, has);
            prop_assert!(fills <= work.pattern_bytes);
            prop_assert!(fills.is_multiple_of(u64::from(work.block_bytes)));
            prop_assert!(fills + fills / u64::from(work.block_bytes) * 8 <= has);
            if has >= work.pattern_bytes + work.pattern_bytes / 64 + 3 * PIECE {
                prop_assert_eq!(fills, work.pattern_bytes);
            }
            // Never more than a hundredth is left, apart from an incomplete block.
            let least = (has - has / 100).min(work.pattern_bytes);
            prop_assert!(fills + u64::from(work.block_bytes) > least);
        }
    }

    proptest! {
        #[test]
        fn a_block_is_in_the_tree_as_it_is_and_nowhere_else(count in 1_u64..100, at in any::<prop::sample::Index>()) {
            let digests: Vec<Word64> = (0..count).map(|block| Word64(block * block + 7)).collect();
            let made = tree(&digests, 2);
            let root = made.root();
            let block = at.index(digests.len()) as u64;
            let opened = open(&digests, &made, block).expect("there");
            prop_assert_eq!(opened.digest, digests[block as usize]);
            prop_assert!(is_committed(&root, &opened, count));
            let changed = |change: &dyn Fn(&mut OpenedBlock)| {
                let mut other = opened.clone();
                change(&mut other);
                is_committed(&root, &other, count)
            };
            prop_assert!(!changed(&|other| other.digest.0 += 1));
            prop_assert!(!changed(&|other| other.beside.push(Word64(0))));
            prop_assert!(!changed(&|other| other.path.push(KEY)));
            for block in (0..count + 17).filter(|other| *other != block) {
                prop_assert!(!changed(&|other| other.block = block));
            }
            for one in 0..opened.beside.len() {
                prop_assert!(!changed(&|other| other.beside[one].0 += 1));
                let with_fewer = changed(&|other| {
                    other.beside.remove(one);
                });
                prop_assert!(!with_fewer);
            }
            prop_assert!(open(&digests, &made, count).is_none());
        }
    }

    #[test]
    fn a_key_of_zeros_is_no_trivial_point() {
        assert!(hash_point(&Digest([0; 32])).value() > 1);
    }

    #[test]
    fn the_expected_root_is_that_of_memory_that_holds_the_fill() {
        let work = MemoryWork {
            pattern_bytes: 640,
            block_bytes: 64,
            passes: vec![Pattern::Prf],
            opened_blocks: 1,
            repeated_ms: 0,
        };
        let memory = words(Pattern::Prf, 0, 160);
        let digests: Vec<Word64> = memory
            .chunks(16)
            .map(|block| block_digest(block.iter().copied(), hash_point(&KEY)))
            .collect();
        let contents = Contents::derive(&NONCE, 0, Pattern::Prf);
        assert_eq!(
            expected_root(&contents, &work, &KEY),
            tree(&digests, 1).root()
        );
        assert_ne!(
            expected_root(&contents, &work, &NONCE),
            tree(&digests, 1).root()
        );
    }
}
