//! The figures of a candidate, which complement its reasons.

use market::money::Money;
use serde::{Deserialize, Serialize};

/// The figures behind a candidate's reasons; those that its kind of demand has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Facts {
    /// Memory that the work needs, over all GPUs of one replica of the model. Units: 1e9 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_needed_gb: Option<f64>,
    /// Memory that those GPUs have for it. Units: 1e9 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available_gb: Option<f64>,
    /// The predicted duration of the training run, including failures, or of the batch of requests. Units:
    /// hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_hours: Option<f64>,
    /// The predicted cost of the training run or of the batch of requests. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_cost_usd: Option<Money>,
    /// The predicted cost of 1e9 tokens, including failures. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_billion_tokens: Option<Money>,
    /// The factor on all predictions, from a measured step or replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration_factor: Option<f64>,
    /// The factor, up or down, from the predicted rate to the ends of its 80 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_factor: Option<f64>,
    /// How the run is best laid out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<RunLayout>,
    /// The share of the GPUs' peak that the model's own work is predicted to take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_utilisation: Option<f64>,
    /// The share of a step that is communication which work does not hide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed_communication: Option<f64>,
    /// The share of the time that failures and checkpoints leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
    /// The interval between checkpoints that the plan assumes. Units: minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_interval_minutes: Option<f64>,
    /// The assumed time for which writing a checkpoint blocks the run. Units: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_seconds: Option<f64>,
    /// The saving if the training run did one per cent more in the same time. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_percent_efficiency: Option<Money>,
    /// Spare nodes that are worth holding for the run; no price includes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_nodes: Option<u32>,
    /// The share of its replicas' capacity at which the fleet is planned; the rest is a warm buffer. Units: a
    /// share, 1 for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_share: Option<f64>,
    /// Replicas of the model in the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// GPUs of one replica of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_replica: Option<u32>,
    /// Sequences that a replica answers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences_per_replica: Option<f64>,
    /// The predicted tokens per second that the run trains without failures, or that the fleet writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// The predicted cost of 1e6 output tokens at full capacity of the fleet. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_million_tokens: Option<Money>,
    /// The network's part of the time to the first token. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_ms: Option<f64>,
    /// Time to the first token, network included, without queueing. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<f64>,
    /// Time per further token at the planned batch. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token_ms: Option<f64>,
    /// The percentile of the simulated times. Units: percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// Time to the first token at that percentile of requests, including network and queueing. Units:
    /// milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_tail_ms: Option<f64>,
    /// Mean time per further token at that percentile of requests. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token_tail_ms: Option<f64>,
    /// Time to the first token that 95 % of requests have at most, network and queueing included.
    /// Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_p95_ms: Option<f64>,
    /// The same for 99 %. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_p99_ms: Option<f64>,
    /// Mean time per further token that 95 % of requests have at most. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token_p95_ms: Option<f64>,
    /// The same for 99 %. Units: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token_p99_ms: Option<f64>,
    /// Whether the simulated times meet the latency objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meets_objective: Option<bool>,
    /// Memory bandwidth per price. Units: GB/s per US dollar per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_gbps_per_usd_hour: Option<f64>,
}

/// How a training run is laid out over its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RunLayout {
    /// Tensor parallelism (TP): GPUs that share each matrix.
    pub tensor_parallel: u32,
    /// Pipeline parallelism (PP): stages that share the layers.
    pub pipeline_parallel: u32,
    /// Data parallelism (DP): replicas of the model.
    pub data_parallel: u32,
    /// Expert parallelism (EP): GPUs that share the experts of a layer.
    pub expert_parallel: u32,
    /// How state is sharded over the replicas.
    pub strategy: RunStrategy,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Micro-batches of an optimiser step on each replica.
    pub micro_batches: u32,
    /// Whether activations are computed again in the backward pass.
    pub recompute: bool,
}

/// How a training run's state is sharded over the replicas of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStrategy {
    /// Weights, gradients and optimiser (FSDP, ZeRO-3).
    FullShard,
    /// The optimiser alone (ZeRO-1).
    OptimiserShard,
    /// A whole copy of frozen weights on the GPUs that share its matrices; adapters exchange next to
    /// nothing.
    Adapters,
    /// Frozen weights shared by the GPUs of each node, gathered for each pass.
    FrozenInNode,
    /// Frozen weights shared by all GPUs, gathered for each pass: no node holds them.
    FrozenShard,
}
