//! The fitted constants of the models, read from `data/params.json` and
//! `data/params.reference.json`, which are compiled in.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::chip::Basis;

/// A set of constants.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// The purpose of the set.
    pub about: String,
    /// Of the training model.
    pub training: TrainingConstants,
    /// Of the serving model.
    pub inference: InferenceConstants,
    /// The interval around predictions that contains four of five measurements.
    pub interval_80_ln: Intervals,
}

/// Half-widths of 80 % intervals: the natural logarithm of the factor either way.
///
/// Each is the 80th percentile of the cross-validation errors of the rows of its group.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Of tokens per second in training.
    pub training: TrainingIntervals,
    /// Of tokens per second, or times, in serving.
    pub inference: InferenceIntervals,
}

/// Half-widths for training.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingIntervals {
    /// Dense models within one scale-up domain.
    pub one_domain: f64,
    /// Dense models over several.
    pub several_domains: f64,
    /// Mixtures of experts.
    pub mixture: f64,
    /// Chips without a measured run.
    pub family: f64,
    /// A job with a measured step on the same GPU.
    pub calibrated: f64,
    /// The same on another GPU.
    pub calibrated_elsewhere: f64,
}

/// Half-widths for serving.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceIntervals {
    /// Dense models in TensorRT-LLM, or vLLM as AMD tunes it.
    pub dense: f64,
    /// Mixtures of experts in either.
    pub mixture: f64,
    /// Whole machines with an unrecorded layout, chosen by the submitter, as for MLPerf.
    pub layout_unknown: f64,
    /// Other engines.
    pub other_engine: f64,
    /// Chips without a measured test.
    pub family: f64,
}

/// The group that decides the expected error of a training prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainingGround {
    /// Whether each token uses only a part of the parameters.
    pub mixture: bool,
    /// Whether the run spans scale-up domains.
    pub several_domains: bool,
    /// The basis of the chip's figures.
    pub basis: Basis,
}

/// The group of a serving prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InferenceGround {
    /// A dense model in a well-run engine.
    Dense,
    /// A mixture in one.
    Mixture,
    /// A whole machine with an unknown layout.
    LayoutUnknown,
    /// Another engine.
    OtherEngine,
}

impl TrainingIntervals {
    /// The half-width for a run.
    #[must_use]
    pub fn half_width(&self, ground: TrainingGround) -> f64 {
        let group = match (ground.mixture, ground.several_domains) {
            (true, _) => self.mixture,
            (false, true) => self.several_domains,
            (false, false) => self.one_domain,
        };
        match ground.basis {
            Basis::Measured => group,
            Basis::Family => group.max(self.family),
        }
    }
}

impl InferenceIntervals {
    /// The half-width for a replica of a model on a chip.
    #[must_use]
    pub fn half_width(&self, ground: InferenceGround, basis: Basis) -> f64 {
        let group = match ground {
            InferenceGround::Dense => self.dense,
            InferenceGround::Mixture => self.mixture,
            InferenceGround::LayoutUnknown => self.layout_unknown,
            InferenceGround::OtherEngine => self.other_engine,
        };
        match basis {
            Basis::Measured => group,
            Basis::Family => group.max(self.family),
        }
    }
}

/// The constants of the training model.
///
/// Shares and factors are fractions of one; otherwise every name contains its unit.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConstants {
    /// Element-wise memory traffic for each token, layer and hidden unit. Units: bytes.
    pub elementwise_bytes_per_unit: f64,
    /// The extra traffic of casts to 8 or 4 bits. Units: bytes.
    pub cast_bytes_per_unit: f64,
    /// Share of the micro-benchmark's rate that a full step sustains, Ampere.
    pub sustained_ampere: f64,
    /// The same, Hopper.
    pub sustained_hopper: f64,
    /// The same, Blackwell.
    pub sustained_blackwell: f64,
    /// The same, CDNA.
    pub sustained_cdna: f64,
    /// The same, every other architecture.
    pub sustained_other: f64,
    /// Rate of the GB300 above its architecture's.
    pub gb300_factor: f64,
    /// Rate of the B300 above its architecture's.
    pub b300_factor: f64,
    /// Rate of the H100 built for 500 W against the H100.
    pub power_limited_factor: f64,
    /// Matmul rate of PyTorch FSDP against Megatron.
    pub stack_pytorch: f64,
    /// The same, torchtitan.
    pub stack_torchtitan: f64,
    /// The same, InternEvo.
    pub stack_internevo: f64,
    /// The same, DeepSpeed and stacks made of it.
    pub stack_deepspeed: f64,
    /// Rate of a mixture where experts are multiplied one after the other.
    pub ungrouped_experts: f64,
    /// Rate of a mixture's small products against a dense model's.
    pub expert_matmul: f64,
    /// How much narrower than this an expert must be to lose half of that rate. Units: columns.
    pub expert_half_width: f64,
    /// Rate of a mixture's dense products against a dense model's.
    pub mixture_dense_matmul: f64,
    /// Rate of experts in releases of Megatron from mid-2026 on against those before.
    pub recent_experts: f64,
    /// Share of the 16-bit peak that attention reaches, on Ampere and on architectures that are not named.
    pub attention_ampere: f64,
    /// The same, Hopper.
    pub attention_hopper: f64,
    /// The same, Hopper under kernels written for Ampere.
    pub attention_hopper_older_kernels: f64,
    /// The same, Blackwell.
    pub attention_blackwell: f64,
    /// Share of the 4-bit peak that a plain product reaches.
    pub fp4_share: f64,
    /// Forward passes that selective recomputation adds in PyTorch stacks.
    pub selective_recompute: f64,
    /// Time to launch the kernels of a layer. Units: microseconds.
    pub layer_launch_us: f64,
    /// The fixed extra time of every optimiser step. Units: milliseconds.
    pub step_overhead_ms: f64,
    /// The same, other stacks than Megatron. Units: milliseconds.
    pub step_overhead_other_ms: f64,
    /// The same where most weights are frozen. Units: milliseconds.
    pub step_overhead_adapters_ms: f64,
    /// Memory traffic of each held weight and its gradient in each micro batch. Units: bytes.
    pub weight_bytes_per_pass: f64,
    /// Share of tensor-parallel traffic that Megatron does not hide.
    pub exposed_tensor_megatron: f64,
    /// The same, other stacks.
    pub exposed_tensor_other: f64,
    /// Share of expert-parallel traffic that is not hidden.
    pub exposed_experts: f64,
    /// The overhead of splitting a sequence over many GPUs, in the limit.
    pub context_overhead: f64,
    /// Share of the link within a node that collectives reach.
    pub link_share: f64,
    /// Share of the network between nodes that collectives reach.
    pub net_share: f64,
    /// How sharply traffic hides behind work: 0 is a plain sum, infinity a maximum.
    pub overlap_exponent: f64,
    /// Time of one hop of a ring. Units: microseconds.
    pub hop_us: f64,
    /// Time in which each owner of a part of the optimiser sends the weights of a layer, where
    /// owners send one after the other (InternEvo). Units: microseconds.
    pub owner_broadcast_us: f64,
    /// Slow-down with each doubling of the nodes.
    pub jitter_per_doubling: f64,
}

/// The constants of the serving model.
///
/// Shares and factors are fractions of one; otherwise every name contains its unit.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceConstants {
    /// Share of the memory bandwidth at which weights are read.
    pub bandwidth_share: f64,
    /// The most of the memory bandwidth that any weights are read at.
    pub most_bandwidth_share: f64,
    /// The same for the key-value cache.
    pub cache_bandwidth_share: f64,
    /// The extra time to read the cache for each further head that shares a key, as a share.
    pub grouped_query_cost: f64,
    /// The memory bandwidth that engines reach on Ampere against Hopper.
    pub bandwidth_ampere: f64,
    /// The same, Ada.
    pub bandwidth_ada: f64,
    /// The same, Blackwell.
    pub bandwidth_blackwell: f64,
    /// The same, CDNA.
    pub bandwidth_cdna: f64,
    /// Share of the micro-benchmark's rate that products reach.
    pub matmul_share: f64,
    /// The share of the micro-benchmark's rate that products reach on Ampere against Hopper.
    pub matmul_ampere: f64,
    /// The same, Ada.
    pub matmul_ada: f64,
    /// The same, Blackwell.
    pub matmul_blackwell: f64,
    /// The same, CDNA.
    pub matmul_cdna: f64,
    /// The share of its figures that a GH200 reaches, against an H100 in an ordinary host.
    pub gh200_factor: f64,
    /// Share of the 4-bit peak that a plain product reaches.
    pub fp4_share: f64,
    /// Share of that bandwidth at which chosen experts are read.
    pub expert_read_share: f64,
    /// Rate of a mixture's small products against a dense model's.
    pub expert_matmul_share: f64,
    /// The factor of TensorRT-LLM 1.0 on both, against earlier releases.
    pub expert_share_recent: f64,
    /// How much narrower than this an expert must be to lose half of both rates. Units: columns.
    pub expert_half_width: f64,
    /// Share of the 16-bit peak that attention over latents reaches.
    pub latent_attention_share: f64,
    /// Time of the scheduler in each step. Units: microseconds.
    pub step_overhead_us: f64,
    /// The same, TensorRT-LLM 1.0 with its scheduler in Python. Units: microseconds.
    pub step_overhead_python_us: f64,
    /// The part of it that each further stage of a pipeline adds.
    pub stage_overhead_share: f64,
    /// Time to launch the kernels of a layer. Units: microseconds.
    pub layer_launch_us: f64,
    /// Time to sample and schedule one sequence. Units: microseconds.
    pub sequence_overhead_us: f64,
    /// The same, TensorRT-LLM 1.0. Units: microseconds.
    pub sequence_overhead_python_us: f64,
    /// Memory traffic of activations for each token, layer and hidden unit. Units: bytes.
    pub activation_bytes_per_unit: f64,
    /// Latency of an all-reduce per doubling over NVLink or xGMI. Units: microseconds.
    pub nvlink_latency_us: f64,
    /// The same over PCI Express. Units: microseconds.
    pub pcie_latency_us: f64,
    /// Share of the link within a node that collectives reach.
    pub link_share: f64,
    /// The rate of collectives over PCI Express 4. Units: GB/s.
    pub pcie_gb_s: f64,
    /// The decrease of that with more than four GPUs.
    pub pcie_contention_exponent: f64,
    /// The part of a ring's traffic beyond its payload that an all-reduce through a switch moves.
    pub switched_ring_share: f64,
    /// Share of a GPU's memory that an engine fills.
    pub memory_share: f64,
    /// Whether the memory that a driver reports is counted (1) or the round figure it is sold by (0).
    pub reported_memory: f64,
    /// Whether GPUs that outnumber the KV heads that they share keep copies of them (1), or parts (0).
    pub cache_copies: f64,
    /// Share of the memory beside weights and activations that is reserved for the cache.
    pub cache_memory_share: f64,
    /// Memory of the runtime and activations on each GPU. Units: GB.
    pub activations_gb: f64,
    /// Tokens of an answer for which cache is set aside, as a share of its length.
    pub answer_occupancy: f64,
    /// The largest batch of one GPU. Units: sequences.
    pub largest_batch: f64,
    /// The share of its rate that a pipeline keeps with each doubling of its stages.
    pub pipeline_share: f64,
    /// The same while prompts are read.
    pub pipeline_prompt_share: f64,
    /// Whether one prompt passes the stages of a pipeline one after the other (1), or is read at the rate of
    /// stages that are all busy with others (0).
    pub prompt_stages_in_turn: f64,
    /// Share of a mixture's layers that send tokens between experts instead of summing over all GPUs, where
    /// each GPU attends to sequences of its own.
    pub attention_per_gpu: f64,
    /// The cost of draining a finite test, as a share of one batch.
    pub tail_share: f64,
    /// Throughput under Poisson arrivals against all requests at once.
    pub poisson_share: f64,
    /// Share of a per-token limit that the mean may take.
    pub objective_share: f64,
    /// Rate of vLLM of 2024 against TensorRT-LLM 0.13.
    pub stack_vllm_2024: f64,
    /// The same, vLLM as it is installed.
    pub stack_vllm_untuned: f64,
    /// The same, vLLM as AMD tunes it.
    pub stack_vllm_amd: f64,
    /// The same, as AMD tunes it for submissions to MLPerf.
    pub stack_vllm_amd_mlperf: f64,
    /// The same, TensorRT-LLM 0.20 and later.
    pub stack_tensorrt_llm_recent: f64,
    /// The same, MLC-LLM.
    pub stack_mlc: f64,
    /// Share of the memory bandwidth that llama.cpp reaches, first class of memory.
    pub llama_cpp_bandwidth_share_gddr: f64,
    /// The same, second class.
    pub llama_cpp_bandwidth_share_hbm: f64,
    /// The same, the A100.
    pub llama_cpp_bandwidth_share_a100: f64,
    /// Share of the product rate that llama.cpp reaches.
    pub llama_cpp_matmul_share: f64,
    /// The same over 4-bit integers.
    pub llama_cpp_matmul_share_quantised: f64,
    /// How its products grow with the peak of a chip: 1 is in proportion.
    pub llama_cpp_peak_exponent: f64,
    /// The share of the possible saving that a pipeline over the pieces of a prompt reaches: 0 none, 1 all.
    pub llama_cpp_prompt_overlap: f64,
}

static PRODUCT: LazyLock<Constants> =
    LazyLock::new(|| read(include_str!("../../data/params.json")));

static REFERENCE: LazyLock<Constants> =
    LazyLock::new(|| read(include_str!("../../data/params.reference.json")));

fn read(text: &str) -> Constants {
    serde_json::from_str(text)
        // The bytes are part of the program, and the test below reads both sets.
        .unwrap_or_else(|error| panic!("a set of constants cannot be read: {error}"))
}

impl Constants {
    /// The set that the product predicts with.
    #[must_use]
    pub fn product() -> &'static Self {
        &PRODUCT
    }

    /// The set that reproduces the golden predictions; never refitted.
    #[must_use]
    pub fn reference() -> &'static Self {
        &REFERENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_read_and_their_intervals_are_wider_than_nothing() {
        for set in [Constants::product(), Constants::reference()] {
            assert!(!set.about.is_empty());
            let training = &set.interval_80_ln.training;
            let inference = &set.interval_80_ln.inference;
            let widths = [
                training.one_domain,
                training.several_domains,
                training.mixture,
                training.family,
                training.calibrated,
                training.calibrated_elsewhere,
                inference.dense,
                inference.mixture,
                inference.layout_unknown,
                inference.other_engine,
                inference.family,
            ];
            assert!(widths.iter().all(|width| (0.005..1.0).contains(width)));
        }
    }
}
