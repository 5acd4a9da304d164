//! How long the steps of a verification may take. The limits follow from the level, the GPU and the work,
//! with room for slow hosts and one limit over all steps.
//!
//! None of it is measured with these kernels yet: rates are the floors, and the host's processors are assumed
//! slow. The limits of two steps are proofs in themselves. That of the chained products proves that each GPU
//! is one of its own ([`links`]); that of memory proves that the memory is there ([`memory_ms`]).

use std::time::Duration;

use market::gpu::Gpu;
use market::verification::{ExpectedNode, GemmWork, Level, MemoryWork, Pattern, StepDeadlines};

use crate::floors::{Calibration, Floors, Metric};
use crate::prf::SLOW_LINKS;

const MINUTE_MS: u64 = 60_000;
/// A step's overhead: to allocate, to start, to reach the broker.
const START_MS: u64 = 10_000;
/// The overhead of the chained products, and of the fill after them: to load kernels, allocate memory and
/// send the answer. The GPUs were opened and inspected before.
const OPENED_START_MS: u64 = 2_000;
/// The rows, columns and inner dimension of a real order's products.
pub(crate) const PRODUCT_ROWS: u32 = 8_192;
/// The least rate of exact products of a multiprocessor: eight operations in an instruction, on a third of 64
/// lanes at 1 GHz. That is a sixth of an H100's peak, and an unoptimised kernel should reach twice as much.
/// Units: operations per second.
const EXACT_OPERATIONS_PER_S: u64 = 170_000_000_000;
/// How long the chained products take at that least rate.
const CHAIN_MS: u64 = 12_000;
/// How long they take at the floor of a GPU whose chains are calibrated. A good GPU needs five seconds, and
/// its floor is three quarters of its rate.
const CALIBRATED_CHAIN_MS: u64 = 6_667;
/// How fast a host hashes the sums of rows of a product, with a thread for each GPU and a core for every two.
/// Units: rows of each GPU per second.
const ROWS_PER_S: u64 = 1_500_000;
/// Up to this power limit, cards are assumed to run at half of their clock. Units: W.
const LITTLE_POWER_W: u32 = 75;
/// How fast a host receives and multiplies the entries of the products of all its GPUs, of four bytes each.
/// Units: entries per second.
const ENTRIES_PER_S: u64 = 100_000_000;
/// The least rate of a multiprocessor in the slow fill: a link is ten rounds of about ten operations each, on
/// 64 lanes at 1 GHz. Units: links per second.
const LINKS_PER_S: u64 = 640_000_000;
/// The multiprocessors assumed for a GPU with no published number.
const FEW_MULTIPROCESSORS: u32 = 40;
/// The rate assumed for memory with no published one. Units: bytes per second.
const SLOW_MEMORY: u64 = 100_000_000_000;
/// The round trip from the broker's answer with the key to the node's answer, without the work.
const PROOF_ROUND_TRIP_MS: u64 = 500;
/// The additional time for hash trees on a host with fewer processors per GPU than the one on which they were
/// timed.
const SLOW_HOST_MS: u64 = 1_000;
/// The overhead around reading while no GPU proof is calibrated. Neither the hashing kernel nor the tree has
/// been timed on such a node, and a limit that fails good nodes proves nothing.
const PROVISIONAL_PROOF_MS: u64 = 15_000;
/// How long `deep` repeats its patterns.
pub(crate) const DEEP_PATTERNS: Duration = Duration::from_mins(20);

/// How long all steps of a level may take together on a real node.
#[must_use]
pub const fn whole(level: Level) -> Duration {
    match level {
        Level::Quick => Duration::from_secs(60),
        Level::Standard => Duration::from_secs(90),
        Level::Deep => Duration::from_mins(100),
    }
}

/// The deadlines of a real node. All its GPUs work at once.
#[must_use]
pub fn real(
    expected: &ExpectedNode,
    level: Level,
    memory: &MemoryWork,
    gemm: &GemmWork,
) -> StepDeadlines {
    let (gpu, bytes) = (expected.gpu, memory.pattern_bytes);
    let host_ms = entries_ms(expected.gpus, gemm.n);
    // Each opened row may be of another product, and the first product is multiplied by a vector.
    let exact = known_chain(gpu).unwrap_or_else(|| exact_operations_per_s(gpu));
    let opened_ms = products_ms(exact, gemm, gemm.opened_rows + 1) + host_ms;
    let (last, before) = memory.passes.split_last().unwrap_or((&Pattern::Prf, &[]));
    let passes_ms: u64 = before.iter().map(|pass| pass_ms(gpu, *pass, bytes)).sum();
    let last_ms = fill_ms(gpu, *last, bytes);
    // The slow fill is not read back.
    let read_back_ms = match last {
        Pattern::Slow => 0,
        _ => last_ms,
    };
    let whole_ms = whole(level).as_millis() as u64;
    StepDeadlines {
        roots_ms: roots_ms(gpu, gemm, known_chain(gpu)),
        // The last round of patterns may begin just before the whole time is over.
        fill_ms: OPENED_START_MS + opened_ms + memory.repeated_ms + passes_ms + last_ms,
        memory_ms: memory_ms(gpu, bytes, known_rate(gpu), known_proof(gpu)),
        openings_ms: START_MS + read_back_ms,
        report_ms: match level {
            Level::Quick => MINUTE_MS,
            Level::Standard => whole_ms,
            // The load, the vendor's diagnostic of level 3, and the measurements beside them.
            Level::Deep => 60 * MINUTE_MS,
        },
        whole_ms,
    }
}

/// The deadlines of a simulated node, whose sizes are small and whose processors simulate many nodes.
#[must_use]
pub const fn simulated(level: Level) -> StepDeadlines {
    let (fill_ms, report_ms) = match level {
        Level::Quick | Level::Standard => (MINUTE_MS, MINUTE_MS),
        Level::Deep => (30 * MINUTE_MS, 35 * MINUTE_MS),
    };
    StepDeadlines {
        roots_ms: MINUTE_MS,
        fill_ms,
        memory_ms: MINUTE_MS,
        openings_ms: MINUTE_MS,
        report_ms,
        whole_ms: 3 * MINUTE_MS + fill_ms + report_ms,
    }
}

/// How many products are chained. The GPUs work for seconds, so the way to the broker takes little in
/// comparison, and one GPU that poses as several needs several times as long.
///
/// At the assumed least rate they take 12 seconds; a good GPU whose chains are calibrated takes five.
#[must_use]
pub fn links(gpu: Gpu) -> u32 {
    links_of(gpu, known_chain(gpu))
}

/// As [`links`]; `chain` is the least rate of such chains, where it is calibrated. Units: operations per
/// second.
fn links_of(gpu: Gpu, chain: Option<u64>) -> u32 {
    let n = u64::from(PRODUCT_ROWS);
    let (for_ms, per_s) = match chain {
        Some(least) => (CALIBRATED_CHAIN_MS, least),
        None => (CHAIN_MS, exact_operations_per_s(gpu)),
    };
    let operations = u128::from(for_ms) * u128::from(per_s) / 1_000;
    let links = operations / u128::from(2 * n * n * n);
    // Some hundreds.
    u32::try_from(links.max(1)).unwrap_or(u32::MAX)
}

/// The limit for all products. `chain` is the least rate of such chains, where it is calibrated: then the
/// limit is four thirds of a good GPU's time, and the overhead. Where it is not, the limit follows from the
/// assumed least rate.
///
/// Units: ms; of `chain` operations per second.
fn roots_ms(gpu: Gpu, gemm: &GemmWork, chain: Option<u64>) -> u64 {
    let products = gemm.links + gemm.iterations;
    let work_ms = match chain {
        // The trees are a part of it.
        Some(least) => products_ms(least, gemm, products) + SLOW_HOST_MS,
        None => {
            let rows = u64::from(gemm.links) * u64::from(gemm.n);
            products_ms(exact_operations_per_s(gpu), gemm, products) + ms(rows, ROWS_PER_S)
        }
    };
    OPENED_START_MS + work_ms
}

/// How long this many products take at a rate of operations per second.
fn products_ms(per_s: u64, gemm: &GemmWork, products: u32) -> u64 {
    let operations = 2 * u64::from(gemm.n).pow(2) * u64::from(gemm.k);
    ms(operations.saturating_mul(products.into()), per_s)
}

/// The least rate of a GPU's exact products. Units: operations per second.
fn exact_operations_per_s(gpu: Gpu) -> u64 {
    let is_slowed = gpu
        .spec()
        .tdp_w
        .is_some_and(|watts| watts <= LITTLE_POWER_W);
    EXACT_OPERATIONS_PER_S * multiprocessors(gpu) / if is_slowed { 2 } else { 1 }
}

/// The limit for hashing memory after its key came.
///
/// Units: ms; `read` is the least rate at which memory is read, `proof` the least at which it is hashed with
/// its tree, where that was measured with these kernels, both in bytes per second. A node must recompute
/// within this time any memory that it does not hold: the shorter the limit, the more it must really hold.
#[must_use]
pub fn memory_ms(gpu: Gpu, bytes: u64, read: u64, proof: Option<u64>) -> u64 {
    match proof {
        Some(proof) => proof_limit_ms(gpu, bytes, proof),
        None => 2 * ms(bytes, read) + PROVISIONAL_PROOF_MS,
    }
}

/// The limit that follows from the least rate at which memory is hashed with its tree, bytes per second.
/// Units: ms.
///
/// The addition for hosts with fewer processors is capped at the time in which a fifth of the memory could be
/// recomputed: a node that claims 1.25 times its memory would have to do that.
#[must_use]
pub fn proof_limit_ms(gpu: Gpu, bytes: u64, proof: u64) -> u64 {
    let least = ms(bytes, proof) + PROOF_ROUND_TRIP_MS;
    let anew = quickest_slow_fill_ms(gpu, bytes / 5) / 10 * 9;
    least.max(anew.min(least + SLOW_HOST_MS))
}

/// The least time assumed for filling this much memory slowly: a link is ten rounds of five operations each
/// on all of a multiprocessor's integer lanes, at the highest clock. Our kernels reach 0.96 of that on an
/// H200 (`docs/calibration.md`); a kernel with fewer operations a round would take less time. Units: ms.
fn quickest_slow_fill_ms(gpu: Gpu, bytes: u64) -> u64 {
    let links = (bytes / 16).saturating_mul(SLOW_LINKS.into());
    let (lanes, hz) = integer_lanes(gpu);
    ms(links, lanes * hz / (10 * 5) * multiprocessors(gpu))
}

/// The integer lanes of a multiprocessor, and a rate above their highest clock. Units: lanes; Hz.
///
/// Source: NVIDIA, white papers of the architectures: 64 lanes up to Ada and Hopper, 128 from Blackwell on.
fn integer_lanes(gpu: Gpu) -> (u64, u64) {
    match gpu.spec().compute_capability.split_once('.') {
        // Of accelerators: 1.98 GHz at most.
        Some(("7", "0") | ("8", "0") | ("9", _)) => (64, 2_000_000_000),
        Some(("10", _)) => (128, 2_100_000_000),
        // Graphics cards are clocked higher, and card makers choose their clocks.
        Some(("7" | "8", _)) => (64, 3_000_000_000),
        _ => (128, 3_000_000_000),
    }
}

fn multiprocessors(gpu: Gpu) -> u64 {
    let known = gpu.spec().sm_count.unwrap_or(FEW_MULTIPROCESSORS);
    known.max(1).into()
}

/// The least rate at which a GPU's memory is read. Units: bytes per second.
fn known_rate(gpu: Gpu) -> u64 {
    let floor = Floors::current().best_of(gpu, Metric::HbmRead);
    floor.map_or(SLOW_MEMORY, |floor| floor.floor * 1_000_000)
}

/// The least rate at which a GPU's memory is hashed with its tree, where that is calibrated. Units: bytes per
/// second.
fn known_proof(gpu: Gpu) -> Option<u64> {
    Some(calibrated(gpu, Metric::MemoryProof)? * 1_000_000)
}

/// The least rate of a GPU's chained products, where that is calibrated. Units: operations per second.
fn known_chain(gpu: Gpu) -> Option<u64> {
    Some(calibrated(gpu, Metric::ExactChain)? * 1_000_000_000)
}

fn calibrated(gpu: Gpu, metric: Metric) -> Option<u64> {
    let floor = Floors::current().best_of(gpu, metric)?;
    (floor.calibration == Calibration::Calibrated).then_some(floor.floor)
}

/// How long a pass over memory takes at most: its writes and its reads.
pub(crate) fn pass_ms(gpu: Gpu, pattern: Pattern, bytes: u64) -> u64 {
    let times = match pattern {
        // Written, then read and inverted twice, and read once more.
        Pattern::MovingInversion => 6,
        Pattern::Address
        | Pattern::Complement
        | Pattern::Prf
        | Pattern::Slow
        | Pattern::WalkingOne
        | Pattern::WalkingZero => 2,
    };
    times * fill_ms(gpu, pattern, bytes)
}

/// How long it takes at most to fill memory with a pattern, or to compare it.
pub(crate) fn fill_ms(gpu: Gpu, pattern: Pattern, bytes: u64) -> u64 {
    match pattern {
        Pattern::Slow => {
            let links = (bytes / 16).saturating_mul(SLOW_LINKS.into());
            ms(links, LINKS_PER_S * multiprocessors(gpu))
        }
        _ => ms(bytes, known_rate(gpu)),
    }
}

fn entries_ms(gpus: u32, n: u32) -> u64 {
    ms(u64::from(gpus) * u64::from(n).pow(2), ENTRIES_PER_S)
}

/// The milliseconds of this much work at a rate per second.
fn ms(work: u64, per_s: u64) -> u64 {
    let ms = u128::from(work) * 1_000 / u128::from(per_s.max(1));
    u64::try_from(ms).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Mode, expected_node, is_drivable, order_for};
    use crate::probe::{burn, diagnostic, links, storage};

    fn order(gpu: Gpu, gpus: u32, level: Level) -> market::verification::VerificationOrder {
        order_for(expected_node(gpu, gpus), 0, level, Mode::Real)
    }

    /// The rates assumed for an H100: reading; and half of the rate of hashing when it takes 0.1 s with the
    /// tree by eight threads. Units: bytes per second.
    const READ: u64 = 2_790_000_000_000;
    const PROOF: u64 = 400_000_000_000;

    fn h100() -> Gpu {
        Gpu::parse("H100-SXM").expect("known")
    }

    /// The least time of one GPU that poses as several: for an H100 all lanes of all multiprocessors at 1.98
    /// GHz, which no kernel reaches. Units: ms.
    fn taking_turns_ms(order: &market::verification::VerificationOrder, shown_as: u64) -> u64 {
        let gemm = &order.gemm;
        let at_most = 64 * 8 * 1_980_000_000 * 132;
        let operations = 2 * u64::from(gemm.n).pow(3) * u64::from(gemm.links);
        shown_as * ms(operations, at_most)
    }

    #[test]
    fn the_integer_units_of_an_h100_have_no_time_for_eight_chains_and_twice_that_for_their_own() {
        for level in [Level::Quick, Level::Standard, Level::Deep] {
            let order = order(h100(), 8, level);
            let limit_ms = order.deadlines.roots_ms;
            let eight_ms = taking_turns_ms(&order, 8);
            assert!(
                eight_ms > limit_ms,
                "{level:?}: {eight_ms} in {limit_ms} ms"
            );
            // Nine twentieths of its lanes at 1.755 GHz.
            let meant_ms = taking_turns_ms(&order, 1) * 1_980 / 1_755 * 20 / 9;
            assert!(
                2 * meant_ms < limit_ms,
                "{level:?}: {meant_ms} in {limit_ms} ms"
            );
        }
        let standard = order(h100(), 8, Level::Standard);
        // No kernel lets it recompute eight memories by the slow fill: at the highest clock, a round in five
        // operations.
        let links = standard.memory.pattern_bytes / 16 * u64::from(SLOW_LINKS);
        let filled_ms = ms(8 * links * 10 * 5, 64 * 1_980_000_000 * 132);
        let limit_ms = standard.deadlines.fill_ms;
        assert!(filled_ms > limit_ms, "{filled_ms} in {limit_ms} ms");
        let meant_ms = taking_turns_ms(&standard, 1) * 1_980 / 1_755 * 20 / 9;
        assert!(meant_ms >= 5_000, "{meant_ms}");
    }

    #[test]
    fn once_chains_are_calibrated_a_good_gpu_has_time_for_its_own_and_none_for_two() {
        // About an H200's measured rate; the least assumed for an H100; and that of a card of 40
        // multiprocessors. Units: 1e9 operations per second.
        for gops in [81_000, 22_000, 7_000] {
            let shown = gops * 1_000_000_000;
            let floor = shown / 4 * 3;
            for level in [Level::Quick, Level::Standard, Level::Deep] {
                let mut gemm = order(h100(), 1, level).gemm;
                gemm.links = links_of(h100(), Some(floor));
                let limit_ms = roots_ms(h100(), &gemm, Some(floor));
                let one_ms = products_ms(shown, &gemm, gemm.links + gemm.iterations);
                assert!(
                    (4_800..6_700).contains(&one_ms) && one_ms + 4_000 < limit_ms,
                    "{gops} at {level:?}: {one_ms} in {limit_ms} ms"
                );
                assert!(
                    2 * one_ms > limit_ms,
                    "{gops} at {level:?}: {one_ms} in {limit_ms} ms"
                );
            }
        }
    }

    #[test]
    fn what_proves_memory_hangs_on_its_size_and_is_wide_until_a_rate_is_calibrated() {
        let gib = 1 << 30;
        let calibrated = |bytes| memory_ms(h100(), bytes, READ, Some(PROOF));
        assert_eq!(
            calibrated(80 * gib),
            729,
            "a fifth of it could be recomputed in 813 ms"
        );
        assert_eq!(calibrated(160 * gib), 1_458);
        // Where hashing takes so long that no lower limit would do.
        let slow = memory_ms(h100(), 80 * gib, READ, Some(PROOF / 4));
        assert_eq!(slow, 500 + 858);
        assert_eq!(memory_ms(h100(), 80 * gib, READ, None), 15_000 + 60);
        let ordered = order(h100(), 8, Level::Standard).deadlines.memory_ms;
        assert!((15_000..16_000).contains(&ordered), "{ordered}");
    }

    #[test]
    fn the_slow_fill_of_a_fifth_of_a_memory_takes_longer_than_a_calibrated_limit() {
        // An H100 at the highest clock, a round in five operations; and an H200 as measured.
        let bytes = 80_u64 << 30;
        let fifth_ms = ms(
            bytes / 5 / 16 * u64::from(SLOW_LINKS) * 10 * 5,
            64 * 1_980_000_000 * 132,
        );
        let limit_ms = memory_ms(h100(), bytes, READ, Some(PROOF));
        assert!(fifth_ms > limit_ms, "{fifth_ms} ms within {limit_ms} ms");

        let recorded = include_str!("../fixtures/calibration/nvidia-h200-2026-11-26.json");
        let shown: serde_json::Value = serde_json::from_str(recorded).expect("a report");
        let card = &shown["gpus"][0];
        let passes = card["passes"].as_array().expect("passes");
        let slow = passes.iter().find(|pass| pass["pattern"] == "slow");
        let filled_ms = slow.expect("slow")["fill_ms"].as_u64().expect("a time");
        let bytes = card["proof"]["bytes"].as_u64().expect("a size");
        let h200 = Gpu::parse("H200-SXM").expect("known");
        let least_ms = quickest_slow_fill_ms(h200, bytes);
        assert!(
            least_ms < filled_ms && filled_ms < least_ms * 11 / 10,
            "no kernel is reckoned quicker than {least_ms} ms, and one took {filled_ms}"
        );
        // Hashing took 61 ms of its proof, and a sixteenth of the leaves a sixteenth of the rest or little more.
        let proof_us = card["proof"]["elapsed_us"][0].as_u64().expect("a time");
        let proof_ms = 61 + proof_us / 1_000 / 8;
        let limit_ms = proof_limit_ms(h200, bytes, bytes * 1_000 / proof_ms / 2);
        assert!(
            filled_ms / 5 > limit_ms,
            "{filled_ms} / 5 within {limit_ms} ms"
        );
    }

    #[test]
    fn every_gpu_that_is_driven_gets_time_for_each_step_and_for_what_follows() {
        for gpu in Gpu::all().filter(|gpu| is_drivable(*gpu)) {
            for level in [Level::Quick, Level::Standard, Level::Deep] {
                let StepDeadlines {
                    roots_ms,
                    fill_ms,
                    memory_ms,
                    openings_ms,
                    report_ms,
                    whole_ms,
                } = order(gpu, 8, level).deadlines;
                let steps = [roots_ms, fill_ms, memory_ms, openings_ms, report_ms];
                assert!(
                    steps
                        .iter()
                        .all(|ms| *ms >= 3 * OPENED_START_MS && *ms <= whole_ms),
                    "{gpu}: {steps:?}"
                );
                // The assumed work, without the overhead of a step's start.
                let starts_ms = 2 * OPENED_START_MS + START_MS;
                let work = roots_ms + fill_ms + openings_ms - starts_ms;
                assert!(
                    work < whole_ms,
                    "{gpu} at {level:?}: {work} ms of {whole_ms}"
                );
            }
        }
    }

    /// The time that 8 GPUs take for `standard` where every part takes its whole limit.
    #[test]
    fn all_parts_of_a_standard_run_on_eight_gpus_fit_into_its_ninety_seconds() {
        let level = Level::Standard;
        let StepDeadlines {
            roots_ms,
            fill_ms,
            openings_ms,
            ..
        } = order(h100(), 8, level).deadlines;
        // Exact product with its rows, patterns with the slow fill; memory as calibrated.
        let reckoned = roots_ms + fill_ms + openings_ms - 2 * OPENED_START_MS - START_MS;
        let proof = memory_ms(h100(), 80 << 30, READ, Some(PROOF));
        let before = Duration::from_millis(reckoned + proof);
        // Host links one by one in both directions, five times 4 GiB each at half of their rate, then once
        // together; and the time of memory and products, which run as often untimed before.
        let rates = Duration::from_secs(15);
        let kept_back = Duration::from_secs(5);
        let mut left = whole(level)
            .checked_sub(before + rates + kept_back)
            .expect("time is left");
        let load = burn::lasts(level, left).expect("a load");
        // Of its 25 s: the chain of products is assumed at more than twice its intended time, the slow fill
        // at three times, the proof of memory at its limit.
        assert!(load >= Duration::from_secs(16), "with {left:?} left");
        let mut take = |part: Option<Duration>| {
            let part = part.unwrap_or_default();
            left = left
                .checked_sub(part)
                .expect("no part takes more than is left");
            left
        };
        let left = take(Some(load));
        // NCCL takes a part of this.
        let left = take(Some(links::lasts(level, left)));
        let left = take(storage::lasts(level, left));
        take(diagnostic::lasts(level, left));
        // With only the load before it, the vendor's diagnostic runs.
        assert!(diagnostic::lasts(level, Duration::from_secs(15)).is_some());
        assert_eq!(
            diagnostic::lasts(level, Duration::from_secs(200)),
            Some(Duration::from_secs(60))
        );
    }
}
