//! One measurement of the job itself, by which its predictions are corrected.

use serde::{Deserialize, Serialize};

use crate::fabric::Internode;
use crate::gpu::Gpu;

/// One measured step of a training run. Give `tokens_per_second` or `seconds_per_step`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainCalibration {
    /// The GPU that it ran on.
    pub gpu: Gpu,
    /// GPUs of each node that it ran on.
    #[schema(minimum = 1, maximum = 1_024)]
    pub gpus_per_node: u32,
    /// Nodes that it ran on.
    #[serde(default = "super::one")]
    #[schema(minimum = 1, maximum = 10_000, default = 1)]
    pub nodes: u32,
    /// The network between the nodes.
    #[serde(default = "nothing_between")]
    pub internode: Internode,
    /// Tokens trained per second over all GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 1e12)]
    pub tokens_per_second: Option<f64>,
    /// Seconds of one optimiser step, of the batch that the demand gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.000_001, maximum = 1e6)]
    pub seconds_per_step: Option<f64>,
}

/// One measurement of a serving replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServeCalibration {
    /// The GPU that it ran on.
    pub gpu: Gpu,
    /// GPUs of the replica.
    #[schema(minimum = 1, maximum = 1_024)]
    pub gpus: u32,
    /// Requests that were in flight.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub concurrency: u32,
    /// Tokens that the replica generated per second.
    #[schema(minimum = 0.001, maximum = 1e9)]
    pub tokens_per_second: f64,
}

const fn nothing_between() -> Internode {
    Internode::None
}
