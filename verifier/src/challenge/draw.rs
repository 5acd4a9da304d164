//! The broker's draws, with fresh entropy for each step so that nobody can know them before.

use std::collections::BTreeSet;

use market::verification::{Choices, ChosenRow, Digest, GemmWork};

use crate::prf::{Purpose, Stream};

/// Draws the products that this many GPUs must open, and the seeds from which they fill memory.
pub(super) fn choices(entropy: &[u8; 32], gpus: usize, gemm: &GemmWork) -> Choices {
    let n = u64::from(gemm.n);
    // Products and rows are counted by 32 bits each.
    let at = |index: u64| ChosenRow {
        link: (index / n) as u32,
        row: (index % n) as u32,
    };
    let rows = (0..gpus as u32).map(|gpu| {
        let drawn = choose(entropy, gpu, gemm.opened_rows, n * u64::from(gemm.links));
        drawn.into_iter().map(at).collect()
    });
    let seed = |of| Digest(blake3::derive_key(of, entropy));
    Choices {
        freivalds_seed: seed("verification 1: Freivalds seed"),
        fill_seed: seed("verification 1: fill seed"),
        rows: rows.collect(),
    }
}

/// `count` different numbers below `bound`, in order; all of them when there are no more.
pub(super) fn choose(entropy: &[u8; 32], gpu: u32, count: u32, bound: u64) -> Vec<u64> {
    if bound <= u64::from(count) {
        return (0..bound).collect();
    }
    let stream = Stream::derive(&Digest(*entropy), Purpose::Choice, gpu);
    let mut chosen = BTreeSet::new();
    let mut index = 0;
    while chosen.len() < count as usize {
        let [low, high, ..] = stream.block(index);
        chosen.insert((u64::from(low) | u64::from(high) << 32) % bound);
        index += 1;
    }
    chosen.into_iter().collect()
}
