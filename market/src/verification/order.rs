//! The verifier's list of work, which the broker gives to the agent with the nonce.

use serde::{Deserialize, Serialize};

use crate::fabric::Internode;
use crate::gpu::Gpu;
use crate::offer::Tenancy;

/// How much is checked.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// One pass over memory, few repeats, no load.
    Quick,
    /// The default.
    Standard,
    /// Long runs: all patterns of memory again and again, and a load of a quarter of an hour.
    Deep,
}

impl Level {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Deep => "deep",
        }
    }
}

/// The contents of memory in one pass. Every pass is read back and compared, except `Slow`, whose blocks are
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each 32-bit word holds its own index, mixed with nothing.
    Address,
    /// The bitwise complement of the pseudo-random fill.
    Complement,
    /// The pseudo-random fill keyed by the broker's seed; in the last pass its contents are then proved.
    Prf,
    /// In the last pass instead: a fill that takes many times as long, so that a node cannot recompute
    /// missing contents between the key and the answer.
    Slow,
    /// The pseudo-random fill, whose words are compared and inverted one after the other, upwards and then
    /// downwards, which restores them.
    MovingInversion,
    /// One bit of each 32-bit word, the next one in each following word; the first one is drawn at random.
    WalkingOne,
    /// The bitwise complement of that.
    WalkingZero,
}

/// The expected node, as leased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExpectedNode {
    /// The canonical GPU.
    pub gpu: Gpu,
    /// GPUs of the node.
    #[schema(minimum = 1, maximum = 64)]
    pub gpus: u32,
    /// Memory of one GPU as its driver reports it, MiB.
    #[schema(minimum = 1, maximum = 16_777_216)]
    pub memory_mib: u32,
    /// Virtual CPUs, where the offer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100_000)]
    pub vcpus: Option<u32>,
    /// Host memory where the offer says, GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_048_576)]
    pub memory_gib: Option<u32>,
    /// The kind of machine that was sold; absent where no offer is behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenancy: Option<Tenancy>,
    /// The network to its sibling nodes, where the offer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internode: Option<Internode>,
    /// The storage speed that was promised, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<StoragePromise>,
}

/// The storage speed that was promised, one block after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoragePromise {
    /// Reading, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1_000_000, maximum = 1_000_000_000_000_u64)]
    pub read_bytes_per_s: Option<u64>,
    /// Writing, bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1_000_000, maximum = 1_000_000_000_000_u64)]
    pub write_bytes_per_s: Option<u64>,
}

/// The memory checks of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryWork {
    /// Bytes to fill and check: a multiple of `block_bytes`.
    #[schema(minimum = 64, maximum = 17_592_186_044_416_u64)]
    pub pattern_bytes: u64,
    /// Bytes under one leaf of the tree over memory: a multiple of 16.
    #[schema(minimum = 16, maximum = 1_048_576)]
    pub block_bytes: u32,
    /// The passes in order; the last one is [`Pattern::Prf`] or [`Pattern::Slow`].
    pub passes: Vec<Pattern>,
    /// How many blocks the broker opens after the tree is committed.
    #[schema(minimum = 1, maximum = 1_024)]
    pub opened_blocks: u32,
    /// How long the passes before the last are repeated, ms; 0 means once.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 86_400_000)]
    pub repeated_ms: u64,
}

/// The exact integer products C = A B of one GPU, with A of n x k and B of k x n. They form a chain: A of
/// each is derived from the result of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GemmWork {
    /// Rows and columns of C.
    #[schema(minimum = 1, maximum = 32_768)]
    pub n: u32,
    /// The inner dimension; at most 262,143, so that sums of products stay below 2^24.
    #[schema(minimum = 1, maximum = 262_143)]
    pub k: u32,
    /// How many products the chain has.
    #[schema(minimum = 1, maximum = 100_000)]
    pub links: u32,
    /// How often the first product is computed; all results must agree bit for bit.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub iterations: u32,
    /// How many rows of the products the broker opens after the trees over them are committed.
    #[schema(minimum = 1, maximum = 1_024)]
    pub opened_rows: u32,
}

/// The memory bandwidth measurement of one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BandwidthWork {
    /// How many samples of each rate to take; the best counts, for products the median.
    #[schema(minimum = 1, maximum = 1_000)]
    pub samples: u32,
}

/// How long the broker waits for each step after its answer to the step before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDeadlines {
    /// Until the roots arrive, ms.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub roots_ms: u64,
    /// Until memory is filled, ms.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub fill_ms: u64,
    /// Until the trees over memory arrive, ms.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub memory_ms: u64,
    /// Until the openings arrive, ms.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub openings_ms: u64,
    /// Until the report arrives, ms.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub report_ms: u64,
    /// For all of them together, ms; the broker's own time between them does not count.
    #[schema(minimum = 1, maximum = 86_400_000)]
    pub whole_ms: u64,
}

/// The work of a node in its verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerificationOrder {
    /// How much is checked.
    pub level: Level,
    /// Whether the broker runs in simulation mode: only then may a reference device answer.
    pub simulation: bool,
    /// Whether this is a re-check of a node in use: it is short, and does nothing that the node's users would
    /// notice.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recheck: bool,
    /// The node's number within its lease, from 0.
    #[schema(minimum = 0, maximum = 100_000)]
    pub node_index: u32,
    /// The expected node.
    pub expected: ExpectedNode,
    /// The memory checks.
    pub memory: MemoryWork,
    /// The exact product.
    pub gemm: GemmWork,
    /// The bandwidth measurement.
    pub bandwidth: BandwidthWork,
    /// The deadlines.
    pub deadlines: StepDeadlines,
}
