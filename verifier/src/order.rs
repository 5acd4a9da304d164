//! The list of work for one node: the amounts at each level, and the limits that an agent accepts.

use std::fmt;

use market::gpu::{Gpu, GpuVendor};
use market::verification::{
    BandwidthWork, ExpectedNode, GemmWork, Level, MemoryWork, Pattern, StoragePromise,
    VerificationOrder,
};
use serde::{Deserialize, Serialize};

use crate::deadlines::{self, DEEP_PATTERNS, PRODUCT_ROWS};

/// Whether real machines are verified, or simulated ones may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Only real hardware; a reference device is refused.
    Real,
    /// All results are marked as simulated.
    Simulation,
}

/// An order that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the verification order cannot be carried out: {0}")]
pub struct BadOrder(&'static str);

const MIB: u64 = 1 << 20;
/// The most GPUs of a node: openings of more do not fit into one message.
pub const MOST_GPUS: u32 = 32;
/// The oldest GPUs that the agent has kernels for, by the first number of their compute capability.
const OLDEST_MAJOR: u32 = 7;
/// The sum of k products of entries in [-8, 8] stays below 2^24 up to here.
const LARGEST_INNER: u32 = 262_143;

/// The expected properties of a node with this many of a GPU.
///
/// Where no driver's figure of the memory is known, the marketed gigabytes count as decimal, which is less
/// than any driver shows.
#[must_use]
pub fn expected_node(gpu: Gpu, gpus: u32) -> ExpectedNode {
    let spec = gpu.spec();
    let marketed_mib = (spec.memory_gb * 1e9) as u64 / MIB;
    let memory_mib = u32::try_from(spec.reported_memory_mib.unwrap_or(marketed_mib));
    // No GPU has 4 PiB.
    ExpectedNode {
        gpu,
        gpus,
        memory_mib: memory_mib.unwrap_or(u32::MAX),
        vcpus: None,
        memory_gib: None,
        tenancy: None,
        internode: None,
        storage: None,
    }
}

/// Whether an agent exists for a kind of GPU: a kind without one can never be verified.
#[must_use]
pub fn is_drivable(gpu: Gpu) -> bool {
    undrivable(gpu).is_none()
}

/// Why no agent supports a kind of GPU, in words; none where one does.
///
/// The agent is built for hosts of x86-64, and its kernels begin with compute capability 7.0. GPUs with a
/// chip-to-chip link have an Arm host, as do some others.
#[must_use]
pub fn undrivable(gpu: Gpu) -> Option<&'static str> {
    let spec = gpu.spec();
    let capability = |part: &str| part.split('.').next()?.parse::<u32>().ok();
    let on_arm = spec.pcie_gen.as_deref() == Some("C2C") || spec.node_form.contains("arm64");
    match spec.vendor {
        GpuVendor::Nvidia if on_arm => {
            Some("the agent does not run on its host's processor (arm64)")
        }
        GpuVendor::Nvidia if capability(&spec.compute_capability) < Some(OLDEST_MAJOR) => {
            Some("the agent has no kernels for a GPU so old (compute capability below 7.0)")
        }
        GpuVendor::Nvidia => None,
        _ => Some("no agent drives GPUs of its vendor"),
    }
}

/// The list of work for one node of a lease.
///
/// In simulation sizes are small enough for a CPU; otherwise memory is filled up to 97.5 % and
/// the product is the 8192 cube.
#[must_use]
pub fn order_for(
    expected: ExpectedNode,
    node_index: u32,
    level: Level,
    mode: Mode,
) -> VerificationOrder {
    let (memory, gemm) = match mode {
        Mode::Simulation => simulated_work(level),
        Mode::Real => real_work(&expected, level),
    };
    let deadlines = match mode {
        Mode::Simulation => deadlines::simulated(level),
        Mode::Real => deadlines::real(&expected, level, &memory, &gemm),
    };
    VerificationOrder {
        level,
        simulation: mode == Mode::Simulation,
        recheck: false,
        node_index,
        expected,
        memory,
        gemm,
        bandwidth: BandwidthWork { samples: 5 },
        deadlines,
    }
}

/// The memory that a re-check fills on each GPU: a tenant has the rest. Units: bytes.
const RECHECKED_BYTES: u64 = MIB;

/// The list of work for a node in use: seconds beside its tenant's work.
#[must_use]
pub fn order_for_recheck(expected: ExpectedNode, node_index: u32, mode: Mode) -> VerificationOrder {
    let quick = order_for(expected, node_index, Level::Quick, mode);
    let n = quick.gemm.n.min(2_048);
    VerificationOrder {
        recheck: true,
        memory: MemoryWork {
            pattern_bytes: RECHECKED_BYTES,
            ..quick.memory
        },
        gemm: GemmWork {
            n,
            k: n,
            links: 1,
            ..quick.gemm
        },
        ..quick
    }
}

/// The passes over memory. The proved contents are expensive to recompute where that is worth it: a simulated
/// node has nothing to hide, and a quick check has no time.
fn passes(level: Level, mode: Mode) -> Vec<Pattern> {
    let last = match (level, mode) {
        (Level::Standard | Level::Deep, Mode::Real) => Pattern::Slow,
        _ => Pattern::Prf,
    };
    match level {
        Level::Quick => vec![last],
        Level::Standard => vec![Pattern::Address, Pattern::Complement, last],
        Level::Deep => vec![
            Pattern::MovingInversion,
            Pattern::WalkingOne,
            Pattern::WalkingZero,
            Pattern::Address,
            Pattern::Complement,
            Pattern::Prf,
            last,
        ],
    }
}

fn iterations(level: Level) -> u32 {
    match level {
        Level::Quick => 3,
        // A node that only repeats its first result would gain the time of the other repeats.
        Level::Standard | Level::Deep => 10,
    }
}

/// How many products a simulated node chains.
const SIMULATED_LINKS: u32 = 4;

fn simulated_work(level: Level) -> (MemoryWork, GemmWork) {
    let memory = MemoryWork {
        pattern_bytes: MIB,
        block_bytes: 4_096,
        passes: passes(level, Mode::Simulation),
        opened_blocks: 16,
        repeated_ms: 0,
    };
    (
        memory,
        GemmWork {
            n: 64,
            k: 64,
            links: SIMULATED_LINKS,
            iterations: iterations(level),
            opened_rows: 4,
        },
    )
}

/// The size of a slow fill's blocks. Units: bytes.
pub(crate) const SLOW_BLOCK: u32 = 16 << 10;

/// The size of a real order's blocks. The number of opened blocks, not their size, finds missing memory. The
/// broker recomputes each of them, which the slow fill makes expensive.
fn block_bytes(passes: &[Pattern]) -> u32 {
    match passes.last() {
        Some(Pattern::Slow) => SLOW_BLOCK,
        _ => 64 << 10,
    }
}

/// How many rows of each GPU's product are opened. With eight rows, an omitted half of a product shows on
/// all but one of 256 GPUs. As many rows of more GPUs do not fit into one message (8 MiB).
const fn opened_rows(expected: &ExpectedNode) -> u32 {
    match expected.gpus {
        ..=8 => 8,
        9..=16 => 4,
        _ => 1,
    }
}

fn real_work(expected: &ExpectedNode, level: Level) -> (MemoryWork, GemmWork) {
    let passes = passes(level, Mode::Real);
    let block_bytes = block_bytes(&passes);
    let blocks = u64::from(expected.memory_mib) * MIB / 1_000 * 975 / u64::from(block_bytes);
    let memory = MemoryWork {
        pattern_bytes: blocks.max(1) * u64::from(block_bytes),
        block_bytes,
        passes,
        opened_blocks: 64,
        repeated_ms: match level {
            Level::Quick | Level::Standard => 0,
            Level::Deep => DEEP_PATTERNS.as_millis() as u64,
        },
    };
    (
        memory,
        GemmWork {
            n: PRODUCT_ROWS,
            k: PRODUCT_ROWS,
            links: deadlines::links(expected.gpu),
            iterations: iterations(level),
            opened_rows: opened_rows(expected),
        },
    )
}

/// Checks that an order belongs to a mode: a real order is never sent as simulation, or the reverse.
///
/// Errors: [`BadOrder`].
pub fn check_mode(order: &VerificationOrder, mode: Mode) -> Result<(), BadOrder> {
    if order.simulation == (mode == Mode::Simulation) {
        return Ok(());
    }
    Err(BadOrder("it is made for the other mode"))
}

/// Checks that an order can be carried out, as an agent does before it begins.
///
/// Errors: [`BadOrder`] names the first thing wrong.
pub fn check_order(order: &VerificationOrder) -> Result<(), BadOrder> {
    let MemoryWork {
        pattern_bytes,
        block_bytes,
        passes,
        opened_blocks,
        repeated_ms,
    } = &order.memory;
    let GemmWork {
        n,
        k,
        links,
        iterations,
        opened_rows,
    } = &order.gemm;
    let block = u64::from(*block_bytes);
    let demands = [
        (
            (1..=MOST_GPUS).contains(&order.expected.gpus),
            "a node has 1 to 32 GPUs",
        ),
        (
            block >= 16 && block.is_multiple_of(16),
            "a block is a multiple of 16 bytes",
        ),
        (*block_bytes <= 1 << 20, "a block has at most 1 MiB"),
        (
            *pattern_bytes > 0 && block > 0 && pattern_bytes.is_multiple_of(block),
            "memory to fill is a multiple of the block",
        ),
        (*pattern_bytes <= 1 << 44, "no GPU has more than 16 TiB"),
        (
            matches!(passes.last(), Some(Pattern::Prf | Pattern::Slow)),
            "the last pass is the pseudo-random fill, plain or slow",
        ),
        (passes.len() <= 64, "at most 64 passes"),
        (
            *repeated_ms <= 86_400_000,
            "passes are repeated for a day at most",
        ),
        (
            (1..=1_024).contains(opened_blocks),
            "1 to 1024 blocks are opened",
        ),
        ((1..=32_768).contains(n), "the product has 1 to 32768 rows"),
        (
            (1..=LARGEST_INNER).contains(k),
            "the inner dimension is 1 to 262143",
        ),
        (
            (1..=100_000).contains(links),
            "a chain has 1 to 100000 products",
        ),
        (
            (1..=1_000_000).contains(iterations),
            "1 to 1000000 iterations",
        ),
        (
            (1..=1_024).contains(opened_rows),
            "1 to 1024 rows are opened",
        ),
        (
            order.expected.storage.is_none_or(is_a_promise),
            "a promised rate of storage is 1 MB/s to 1 TB/s",
        ),
        (
            (1..=1_000).contains(&order.bandwidth.samples),
            "1 to 1000 bandwidth samples",
        ),
    ];
    match demands.into_iter().find(|(met, _)| !met) {
        Some((_, what)) => Err(BadOrder(what)),
        None => Ok(()),
    }
}

/// Whether each promised rate is valid.
fn is_a_promise(storage: StoragePromise) -> bool {
    let rates = [storage.read_bytes_per_s, storage.write_bytes_per_s];
    let is_rate = |rate: u64| (1_000_000..=1_000_000_000_000).contains(&rate);
    rates.into_iter().flatten().all(is_rate)
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Real => "real",
            Self::Simulation => "simulation",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> ExpectedNode {
        expected_node(Gpu::parse("H100-SXM").expect("known"), 8)
    }

    #[test]
    fn an_expected_node_never_demands_more_memory_than_drivers_show() {
        assert_eq!(expected().memory_mib, 81_559);
        for gpu in Gpu::all() {
            let expected = u64::from(expected_node(gpu, 1).memory_mib);
            assert!(expected > 0, "{gpu}");
            if let Some(reported) = gpu.spec().reported_memory_mib {
                assert_eq!(expected, reported, "{gpu}");
                let marketed_mib = (gpu.spec().memory_gb * 1e9) as u64 / MIB;
                assert!(marketed_mib * REPORTED_PERCENT / 100 <= reported, "{gpu}");
            }
        }
    }
    /// The share that the rule on reported memory accepts.
    const REPORTED_PERCENT: u64 = 98;

    #[test]
    fn what_the_agent_cannot_run_beside_or_has_no_kernels_for_is_not_driven() {
        let why = |gpu: &str| undrivable(Gpu::parse(gpu).expect("known")).unwrap_or("driven");
        for (word, gpus) in [
            (
                "arm64",
                &["GH200-96", "GH200-144", "GB200", "GB300", "T4G"][..],
            ),
            (
                "7.0",
                &["P100-PCIe-16", "P40", "P4", "M60", "K80", "GTX-1080-Ti"],
            ),
            ("vendor", &["MI300X", "MI25"]),
            (
                "driven",
                &[
                    "V100-SXM2-16",
                    "T4",
                    "A100-SXM-80",
                    "H200-SXM",
                    "B300-SXM",
                    "RTX-5090",
                ],
            ),
        ] {
            for gpu in gpus {
                assert!(why(gpu).contains(word), "{gpu}: {}", why(gpu));
            }
        }
    }

    #[test]
    fn every_order_that_is_made_can_be_carried_out() {
        for level in [Level::Quick, Level::Standard, Level::Deep] {
            for mode in [Mode::Real, Mode::Simulation] {
                let order = order_for(expected(), 0, level, mode);
                assert_eq!(check_order(&order), Ok(()), "{level:?} {mode}");
                assert_eq!(order.simulation, mode == Mode::Simulation);
            }
        }
    }

    #[test]
    fn a_recheck_asks_for_little_and_can_be_carried_out() {
        for mode in [Mode::Real, Mode::Simulation] {
            let order = order_for_recheck(expected(), 3, mode);
            assert_eq!(check_order(&order), Ok(()), "{mode}");
            assert!(order.recheck && order.node_index == 3);
            assert_eq!(order.memory.pattern_bytes, MIB);
            assert!(order.gemm.n <= 2_048 && order.gemm.k <= 2_048);
            assert_eq!(
                order.gemm.links, 1,
                "a chain would take the GPU for seconds"
            );
        }
    }

    #[test]
    fn a_real_order_fills_nearly_all_memory_and_no_more_than_there_is() {
        let order = order_for(expected(), 0, Level::Quick, Mode::Real);
        let memory_bytes = 81_559 * MIB;
        assert!(order.memory.pattern_bytes > memory_bytes / 100 * 97);
        assert!(order.memory.pattern_bytes < memory_bytes / 100 * 98);
    }

    #[test]
    fn what_a_broker_makes_anew_of_a_gpu_is_a_mib_where_the_fill_is_slow() {
        let remade = |level| {
            let memory = order_for(expected(), 0, level, Mode::Real).memory;
            u64::from(memory.block_bytes) * u64::from(memory.opened_blocks)
        };
        assert_eq!(remade(Level::Standard), MIB);
        assert_eq!(remade(Level::Deep), MIB);
        assert_eq!(remade(Level::Quick), 4 * MIB);
    }

    #[test]
    fn impossible_orders_are_refused() {
        let refused = |change: fn(&mut VerificationOrder)| {
            let mut order = order_for(expected(), 0, Level::Quick, Mode::Simulation);
            change(&mut order);
            check_order(&order).is_err()
        };
        assert!(refused(|o| o.expected.gpus = 0));
        assert!(refused(|o| o.expected.gpus = MOST_GPUS + 1));
        assert!(refused(|o| o.memory.block_bytes = 0));
        assert!(refused(|o| o.memory.block_bytes = 24));
        assert!(refused(|o| o.memory.pattern_bytes += 1));
        assert!(refused(|o| o.memory.pattern_bytes = 0));
        assert!(refused(|o| o.memory.passes.clear()));
        assert!(refused(|o| o.memory.passes.push(Pattern::Complement)));
        assert!(refused(|o| o.memory.opened_blocks = 0));
        assert!(refused(|o| o.gemm.k = LARGEST_INNER + 1));
        assert!(refused(|o| o.gemm.n = 0));
        assert!(refused(|o| o.gemm.links = 0));
        assert!(refused(|o| o.gemm.iterations = 0));
        assert!(refused(|o| o.gemm.opened_rows = 0));
        assert!(refused(|o| o.bandwidth.samples = 0));
        assert!(refused(|o| {
            o.expected.storage = Some(StoragePromise {
                read_bytes_per_s: Some(0),
                write_bytes_per_s: None,
            });
        }));
    }
}
