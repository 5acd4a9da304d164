//! The measured rates between GPUs: copies of pairs, and collective operations.

use serde::{Deserialize, Serialize};

/// The rate of copies from one GPU to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PairRate {
    /// From which GPU of the inventory.
    pub from: u32,
    /// To which.
    pub to: u32,
    /// The rate in this one direction, 1e6 bytes per second.
    pub mb_per_s: u64,
}

/// The rate of a collective operation over all GPUs of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectiveRate {
    /// The operation: an all-reduce by default.
    #[serde(default, skip_serializing_if = "CollectiveOperation::is_all_reduce")]
    pub operation: CollectiveOperation,
    /// The implementation and its algorithm; figures of different ones are never compared.
    pub algorithm: CollectiveAlgorithm,
    /// The payload of one GPU, bytes; of a gather or scatter, the parts of all GPUs together.
    pub payload_bytes: u64,
    /// The bus rate, [`CollectiveOperation::bus_bytes`] of the payload / time, 1e6 bytes per second.
    pub bus_mb_per_s: u64,
    /// Elements of the result that were wrong: at least this many.
    pub wrong_elements: u64,
}

/// A collective operation of all GPUs of a node.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveOperation {
    /// Each ends with the sum of all inputs.
    #[default]
    AllReduce,
    /// Each ends with its part of that sum.
    ReduceScatter,
    /// Each ends with the parts of all.
    AllGather,
    /// Each ends with the first one's input.
    Broadcast,
    /// The first one ends with the sum.
    Reduce,
}

impl CollectiveOperation {
    /// Every operation.
    pub const ALL: [Self; 5] = [
        Self::AllReduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::Reduce,
    ];

    /// Its name in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::AllReduce => "sum",
            Self::ReduceScatter => "scattered sum",
            Self::AllGather => "gathering",
            Self::Broadcast => "broadcast",
            Self::Reduce => "sum for one GPU",
        }
    }

    /// Of this many payload bytes, the least that passes through the slowest link. Rates are given in these
    /// bytes.
    ///
    /// Shape: at least one GPU. Source: NVIDIA, nccl-tests, notes on performance: bus bandwidth.
    #[must_use]
    pub const fn bus_bytes(self, payload_bytes: u64, gpus: u64) -> u64 {
        let once = payload_bytes / gpus * (gpus - 1);
        match self {
            Self::AllReduce => 2 * once,
            Self::ReduceScatter | Self::AllGather => once,
            Self::Broadcast | Self::Reduce => payload_bytes,
        }
    }

    /// Whether it is the default operation.
    #[must_use]
    pub fn is_all_reduce(&self) -> bool {
        *self == Self::AllReduce
    }
}

/// The implementation and algorithm of a collective operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CollectiveAlgorithm {
    /// NCCL with its own choice, which may use the switch's own adders.
    NcclDefault,
    /// NCCL in a ring, which uses only the GPUs' own links.
    NcclRing,
    /// The agent's own ring of copies.
    OwnRing,
}
