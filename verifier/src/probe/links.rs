//! Copies between the GPUs of a node, and collective operations of all of them: sums by the agent's own ring,
//! and by the vendor's library where the node has it.
//!
//! Each runs in a process of its own, which opens all GPUs and knows its time limit. The attestation names
//! the unfinished measurements as not measured; the rules on links are in [`crate::rules`].

use std::ops::Range;
use std::time::{Duration, Instant};

use market::verification::{
    CollectiveAlgorithm, CollectiveOperation, CollectiveRate, Level, NodeFacts, PairRate,
    VerificationOrder,
};
use serde::{Deserialize, Serialize};

use crate::device::Node;

/// The most that one copy between GPUs moves. Units: bytes.
const PAIR_BYTES: u64 = 512 << 20;
/// The most that each GPU contributes to the sum. Units: bytes.
const RING_BYTES: u64 = 1 << 30;
/// How long it may take, with the vendor's library: `deep` has time for every size over slow links, too.
const MOST: Duration = Duration::from_secs(20);
const MOST_OF_DEEP: Duration = Duration::from_mins(2);
/// The vendor's library may take this part of the time to join the GPUs and to sum: one in this many. It is
/// reserved for the library even when the links are slow.
const PART_OF_LIBRARY: u32 = 2;
const KEPT_FOR_LIBRARY: u32 = 4;
/// The least time left for which the library also runs its ring.
const LEAST_FOR_RING: Duration = Duration::from_secs(3);
/// The sizes at which `deep` does each operation: the full one, and one part in this many of it.
const SIZES: [u64; 3] = [1, 32, 1_024];
/// The repeats for one figure: at most, and at least where the link is slow.
const MOST_ROUNDS: u64 = 16;
const LEAST_ROUNDS: u64 = 2;
/// The part of a full size for a trial, which is also the least for a measurement: one in this many.
pub const TRIAL_PART: u64 = 32;

/// The measurements between GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkWork {
    /// How many GPUs there are.
    pub gpus: u32,
    /// Whether every ordered pair is measured, or each GPU with the next.
    pub every_pair: bool,
    /// The size of a copy, where there is room. Units: bytes.
    pub pair_bytes: u64,
    /// Each GPU's contribution to the sum, where there is room. Units: bytes.
    pub ring_bytes: u64,
}

impl LinkWork {
    /// The measurements that an order asks of this many GPUs.
    #[must_use]
    pub fn of(order: &VerificationOrder, gpus: u32) -> Self {
        Self {
            every_pair: order.level != Level::Quick,
            ..Self::on(gpus, order.memory.pattern_bytes)
        }
    }

    /// All measurements between this many GPUs, in this much memory of each, bytes.
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

/// The operations of the vendor's library over all GPUs, in a process of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryWork {
    /// How many GPUs there are.
    pub gpus: u32,
    /// The algorithm that it must use.
    pub algorithm: CollectiveAlgorithm,
    /// The operations, one after the other, and their sizes, limited by the room on each GPU. Units: bytes.
    pub operations: Vec<(CollectiveOperation, u64)>,
}

impl LibraryWork {
    /// A sum as at level `standard`.
    #[must_use]
    pub fn sum(links: &LinkWork, algorithm: CollectiveAlgorithm) -> Self {
        Self {
            gpus: links.gpus,
            algorithm,
            operations: vec![(CollectiveOperation::AllReduce, links.ring_bytes)],
        }
    }

    /// The operations of a level by the library's own choice of algorithm: `deep` runs every operation at
    /// every size, the full ones first.
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

/// The data on a GPU after an operation, in parts of its buffer, one for each GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Which GPU.
    pub gpu: u32,
    /// Which parts.
    pub parts: Range<u32>,
    /// The GPUs whose words are added up there.
    pub of: Vec<u32>,
}

/// The data on each of this many GPUs after an operation; parts that are not named are undefined.
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

/// The results.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRates {
    /// Copies, each in its one direction.
    pub pairs: Vec<PairRate>,
    /// The sum over all GPUs, where each reaches the memory of the one before it.
    pub collective: Option<CollectiveRate>,
}

/// The two halves of a ring sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// Each GPU adds the previous GPU's data for a part.
    Adding,
    /// Each GPU copies the finished part of the one before it.
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

/// The size and the repeats of a copy or sum within the time limit, where one run at full size takes this
/// long, ms. Sizes are full when at least two runs fit: fast links are compared at the full size.
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

/// How long links and the sums over them may take, of the time left.
#[must_use]
pub fn lasts(level: Level, left: Duration) -> Duration {
    left.min(most(level))
}

/// Measures the links and adds the results up to the deadline to the facts; nothing for a single GPU.
pub fn measure(node: &mut Node, facts: &mut NodeFacts, order: &VerificationOrder, left: Duration) {
    // No node has so many GPUs.
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
    // A library that hangs costs only its own figure.
    if work.every_pair {
        let by = until.min(Instant::now() + most(order.level) / PART_OF_LIBRARY);
        let chosen = surroundings.library(&LibraryWork::of(&work, order.level), by);
        let is_there = !chosen.is_empty();
        facts.collectives.extend(chosen);
        // A sum within the switch shows less about each link than a ring does.
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
        // The time of 512 MiB at this many GB/s.
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
                    // No GPU reads a part that another writes at the same step.
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
