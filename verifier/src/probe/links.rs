//! Copies between the GPUs of a node, and what all of them do together: sums round a ring of our own, and by the
//! vendor's library where the node has it.
//!
//! A process of its own does each, which opens all GPUs and knows how long it has. What it cannot do there is
//! left out and named in the attestation as not measured; the rules on links are in [`crate::rules`].

use std::ops::Range;
use std::time::{Duration, Instant};

use market::verification::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveRate, Level, NodeFacts, PairRate,
    VerificationOrder,
};
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
/// What is left of that time at the least for the library to go round a ring as well.
const LEAST_FOR_RING: Duration = Duration::from_secs(3);
/// The sizes at which `deep` does each operation: the full one, and one of so many.
const SIZES: [u64; 3] = [1, 32, 1_024];
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

/// What the vendor's library is to do over all GPUs, in a process of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryWork {
    /// How many GPUs there are.
    pub gpus: u32,
    /// The way that it is to go.
    pub algorithm: CollectiveAlgorithm,
    /// What is done one after the other, and of how much each GPU has room for, where there is as much. Units:
    /// bytes.
    pub operations: Vec<(CollectiveOperation, u64)>,
}

impl LibraryWork {
    /// A sum as `standard` has it.
    #[must_use]
    pub fn sum(links: &LinkWork, algorithm: CollectiveAlgorithm) -> Self {
        Self {
            gpus: links.gpus,
            algorithm,
            operations: vec![(CollectiveOperation::AllReduce, links.ring_bytes)],
        }
    }

    /// What a level has it do as it chooses itself: `deep` every operation at every size, the full ones first.
    #[must_use]
    pub fn of(links: &LinkWork, level: Level) -> Self {
        let sum = Self::sum(links, CollectiveAlgorithm::NcclDefault);
        let of_size = |part: u64| {
            let all = CollectiveOperation::ALL.into_iter();
            all.map(move |operation| (operation, links.ring_bytes / part))
        };
        match level {
            Level::Quick | Level::Standard => sum,
            Level::Deep => Self {
                operations: SIZES.into_iter().flat_map(of_size).collect(),
                ..sum
            },
        }
    }
}

/// What a GPU holds after an operation, in parts of its buffer, of which there is one for each GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Which GPU.
    pub gpu: u32,
    /// Which parts.
    pub parts: Range<u32>,
    /// Whose words are there, added up.
    pub of: Vec<u32>,
}

/// What each of so many GPUs holds after an operation; of what is not named nothing is promised.
#[must_use]
pub fn holdings(operation: CollectiveOperation, gpus: u32) -> Vec<Holding> {
    let all: Vec<u32> = (0..gpus).collect();
    let holding = |gpu: u32, parts: Range<u32>, of: &[u32]| Holding {
        gpu,
        parts,
        of: of.to_vec(),
    };
    let each = all.iter().copied();
    match operation {
        CollectiveOperation::AllReduce => each.map(|gpu| holding(gpu, 0..gpus, &all)).collect(),
        CollectiveOperation::ReduceScatter => {
            each.map(|gpu| holding(gpu, gpu..gpu + 1, &all)).collect()
        }
        CollectiveOperation::AllGather => each
            .flat_map(|gpu| (0..gpus).map(move |part| (gpu, part)))
            .map(|(gpu, part)| holding(gpu, part..part + 1, &[part]))
            .collect(),
        CollectiveOperation::Broadcast => each.map(|gpu| holding(gpu, 0..gpus, &[0])).collect(),
        CollectiveOperation::Reduce => vec![holding(0, 0..gpus, &all)],
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
        let chosen = surroundings.library(&LibraryWork::of(&work, order.level), by);
        let is_there = !chosen.is_empty();
        facts.collectives.extend(chosen);
        // What the switch adds up by itself says less of each link than a ring does.
        if is_there && Instant::now() + LEAST_FOR_RING <= until {
            let round = LibraryWork::sum(&work, CollectiveAlgorithm::NcclRing);
            let rates = surroundings.library(&round, until);
            facts.collectives.extend(rates);
        }
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

    #[test]
    fn a_deep_level_does_every_operation_at_every_size_and_the_others_sum() {
        let links = LinkWork::on(8, 1 << 40);
        let standard = LibraryWork::of(&links, Level::Standard);
        assert_eq!(
            standard.operations,
            [(CollectiveOperation::AllReduce, 1 << 30)]
        );
        let deep = LibraryWork::of(&links, Level::Deep).operations;
        assert_eq!(deep.len(), 15);
        for operation in CollectiveOperation::ALL {
            for mib in [1_024, 32, 1] {
                assert!(
                    deep.contains(&(operation, mib << 20)),
                    "{operation:?} {mib}"
                );
            }
        }
        let bus = |operation: CollectiveOperation| operation.bus_bytes(800, 8);
        let all = CollectiveOperation::ALL.map(bus);
        assert_eq!(all, [1_400, 700, 700, 800, 800]);
    }

    #[test]
    fn operations_leave_what_they_are_named_for() {
        let left = |operation| {
            let all = holdings(operation, 2).into_iter();
            let all = all.map(|left| (left.gpu, (left.parts.start, left.parts.end), left.of));
            all.collect::<Vec<_>>()
        };
        let (both, whole) = (vec![0, 1], (0, 2));
        use CollectiveOperation as Of;
        assert_eq!(
            left(Of::AllReduce),
            [(0, whole, both.clone()), (1, whole, both.clone())]
        );
        assert_eq!(
            left(Of::ReduceScatter),
            [(0, (0, 1), both.clone()), (1, (1, 2), both.clone())]
        );
        assert_eq!(
            left(Of::AllGather),
            [
                (0, (0, 1), vec![0]),
                (0, (1, 2), vec![1]),
                (1, (0, 1), vec![0]),
                (1, (1, 2), vec![1])
            ]
        );
        assert_eq!(
            left(Of::Broadcast),
            [(0, whole, vec![0]), (1, whole, vec![0])]
        );
        assert_eq!(left(Of::Reduce), [(0, whole, both)]);
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
