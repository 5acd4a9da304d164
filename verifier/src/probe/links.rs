//! Copies between the GPUs of a node, and sums over all of them: round a ring of our own, and by the
//! vendor's library where the node has it.
//!
//! A process of its own does each, which opens all GPUs and knows how long it has. What it cannot do there is
//! left out and named in the attestation as not measured; the rules on links are in [`crate::rules`].

use std::time::{Duration, Instant};

use market::verification::{CollectiveRate, Level, NodeFacts, PairRate, VerificationOrder};
use serde::{Deserialize, Serialize};

use crate::device::Node;

/// What is copied from GPU to GPU at once, at most. Units: bytes.
const PAIR_BYTES: u64 = 512 << 20;
/// What each GPU brings to the sum, at most. Units: bytes.
const RING_BYTES: u64 = 1 << 30;
/// How long it may take, the vendor's library included: `deep` has time for every size over slow links, too.
const MOST: Duration = Duration::from_secs(20);
const MOST_OF_DEEP: Duration = Duration::from_mins(2);
/// The part of it that the vendor's library may take to join the GPUs and to sum, and the one that is kept for
/// it however slow the links are: one of so many.
const PART_OF_LIBRARY: u32 = 2;
const KEPT_FOR_LIBRARY: u32 = 4;
/// How often for one figure, and how often where the link is slow: at most and at least.
const MOST_ROUNDS: u64 = 16;
const LEAST_ROUNDS: u64 = 2;
/// How much of a full size is tried out, and is the least that is measured by: one of so many.
pub const TRIAL_PART: u64 = 32;

/// What is measured between GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkWork {
    /// How many GPUs there are.
    pub gpus: u32,
    /// Whether every ordered pair is measured, or each GPU with the next.
    pub every_pair: bool,
    /// What is copied at once, where there is room. Units: bytes.
    pub pair_bytes: u64,
    /// What each GPU brings to the sum, where there is room. Units: bytes.
    pub ring_bytes: u64,
}

impl LinkWork {
    /// What an order wants of so many GPUs.
    #[must_use]
    pub fn of(order: &VerificationOrder, gpus: u32) -> Self {
        Self {
            every_pair: order.level != Level::Quick,
            ..Self::on(gpus, order.memory.pattern_bytes)
        }
    }

    /// Everything that is measured between so many GPUs, in so much memory of each, bytes.
    #[must_use]
    pub fn on(gpus: u32, memory_bytes: u64) -> Self {
        Self {
            gpus,
            every_pair: true,
            pair_bytes: PAIR_BYTES.min(memory_bytes),
            ring_bytes: RING_BYTES.min(memory_bytes),
        }
    }

    /// The pairs, in order.
    #[must_use]
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let all = (0..self.gpus).flat_map(|from| (0..self.gpus).map(move |to| (from, to)));
        let wanted = all
            .filter(|(from, to)| from != to && (self.every_pair || *to == (from + 1) % self.gpus));
        wanted.collect()
    }
}

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRates {
    /// Copies, each in its one direction.
    pub pairs: Vec<PairRate>,
    /// The sum over all GPUs, where each reaches the memory of the one before it.
    pub collective: Option<CollectiveRate>,
}

/// The two halves of a sum round a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Each GPU adds what the one before it holds of a part.
    Adding,
    /// Each GPU takes over the finished part of the one before it.
    Gathering,
}

/// Which part a GPU reads from the one before it at a step of `0..gpus - 1`. No two GPUs touch the
/// same part of the same memory at one step.
#[must_use]
pub const fn part_of(half: Half, gpu: u32, step: u32, gpus: u32) -> u32 {
    let ahead = match half {
        Half::Adding => 2 * gpus + gpu - 1 - step,
        Half::Gathering => 2 * gpus + gpu - step,
    };
    ahead % gpus
}

/// How much is copied or summed at once, and how often: what lasts no longer than it may, where a full size
/// takes so long once, ms. Sizes are full as long as they can go at least twice: fast links are
/// compared by them.
#[must_use]
pub fn worth(full_bytes: u64, once_ms: f64, may_ms: f64) -> (u64, u64) {
    let mut part = 1;
    while part < TRIAL_PART && once_ms * LEAST_ROUNDS as f64 > may_ms * part as f64 {
        part *= 2;
    }
    let rounds = (may_ms * part as f64 / once_ms) as u64;
    (full_bytes / part, rounds.clamp(LEAST_ROUNDS, MOST_ROUNDS))
}

const fn most(level: Level) -> Duration {
    match level {
        Level::Quick | Level::Standard => MOST,
        Level::Deep => MOST_OF_DEEP,
    }
}

/// How long links and the sums over them may take, of the time that is left.
#[must_use]
pub fn lasts(level: Level, left: Duration) -> Duration {
    left.min(most(level))
}

/// Measures the links and adds to the facts what was measured by then; nothing where there is one GPU.
pub fn measure(node: &mut Node, facts: &mut NodeFacts, order: &VerificationOrder, left: Duration) {
    // No node has so many.
    let work = LinkWork::of(order, node.devices.len() as u32);
    if work.gpus < 2 {
        return;
    }
    let Some(surroundings) = &mut node.surroundings else {
        return;
    };
    let lasts = lasts(order.level, left);
    let until = Instant::now() + lasts;
    let by = match work.every_pair {
        true => until - lasts / KEPT_FOR_LIBRARY,
        false => until,
    };
    if let Some(rates) = surroundings.links(&work, by) {
        facts.pairs = Some(rates.pairs);
        facts.collectives.extend(rates.collective);
    }
    // A library that hangs costs no more than its own figure.
    if work.every_pair {
        let by = until.min(Instant::now() + most(order.level) / PART_OF_LIBRARY);
        facts
            .collectives
            .extend(surroundings.library_sum(&work, by));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_quick_level_goes_round_and_the_others_measure_every_ordered_pair() {
        let work = LinkWork {
            gpus: 3,
            every_pair: false,
            pair_bytes: 1,
            ring_bytes: 1,
        };
        assert_eq!(work.pairs(), [(0, 1), (1, 2), (2, 0)]);
        let every = LinkWork {
            every_pair: true,
            ..work
        };
        assert_eq!(every.pairs().len(), 6);
        assert!(every.pairs().iter().all(|(from, to)| from != to));
    }

    #[test]
    fn slow_links_are_measured_less_often_and_then_by_less_and_fast_ones_as_ever() {
        let (full, may_ms) = (512 << 20, 90.0);
        // What 512 MiB take at so many GB/s.
        let at = |gb_per_s: f64| worth(full, full as f64 / gb_per_s / 1e6, may_ms);
        assert_eq!(at(376.0), (full, 16));
        assert_eq!(at(96.0), (full, 16));
        assert_eq!(at(20.0), (full, 3));
        assert_eq!(at(12.0), (full, 2));
        assert_eq!(at(11.0), (full / 2, 3));
        assert_eq!(at(1.0), (full / 16, 2));
        assert_eq!(at(0.001), (full / 32, 2));
        assert_eq!(worth(full, 0.0, may_ms), (full, 16));
    }

    proptest! {
        #[test]
        fn the_ring_leaves_every_sum_with_every_gpu(gpus in 2_u32..10, seed in any::<u32>()) {
            let value = |gpu: u32, part: u32| seed.wrapping_mul(31 * gpu + 1) ^ part;
            let mut held: Vec<Vec<u32>> = (0..gpus)
                .map(|gpu| (0..gpus).map(|part| value(gpu, part)).collect())
                .collect();
            for half in [Half::Adding, Half::Gathering] {
                for step in 0..gpus - 1 {
                    let before = held.clone();
                    let mut written = Vec::new();
                    for gpu in 0..gpus {
                        let part = part_of(half, gpu, step, gpus);
                        let from = (gpu + gpus - 1) % gpus;
                        let theirs = before[from as usize][part as usize];
                        let mine = &mut held[gpu as usize][part as usize];
                        *mine = match half {
                            Half::Adding => mine.wrapping_add(theirs),
                            Half::Gathering => theirs,
                        };
                        written.push((gpu, part));
                    }
                    // Nobody reads what another writes at the same step.
                    for gpu in 0..gpus {
                        let part = part_of(half, gpu, step, gpus);
                        let from = (gpu + gpus - 1) % gpus;
                        prop_assert!(!written.contains(&(from, part)));
                    }
                }
            }
            for part in 0..gpus {
                let sum = (0..gpus).fold(0_u32, |sum, gpu| sum.wrapping_add(value(gpu, part)));
                prop_assert!(held.iter().all(|parts| parts[part as usize] == sum));
            }
        }
    }
}
