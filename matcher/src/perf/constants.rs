//! The fitted constants of the models, read from `data/params.json` and
//! `data/params.reference.json`, which are compiled in.

use std::sync::LazyLock;

use serde::Deserialize;

/// A set of constants.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    /// What the set is for.
    pub about: String,
    /// Of the training model.
    pub training: TrainingConstants,
    /// Of the serving model.
    pub inference: InferenceConstants,
    /// How far four of five measurements lie from their predictions.
    pub interval_80_ln: Intervals,
}

/// The half-width of an 80 % interval: the natural logarithm of the factor either way.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intervals {
    /// Of tokens per second in training.
    pub training: f64,
    /// Of tokens per second, or times, in serving.
    pub inference: f64,
}

/// The constants of the training model.
///
/// Shares and factors are fractions of one; every name says its unit otherwise.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingConstants {
    /// Element-wise memory traffic for each token, layer and hidden unit. Units: bytes.
    pub elementwise_bytes_per_unit: f64,
    /// What casts to 8 or 4 bits add to it. Units: bytes.
    pub cast_bytes_per_unit: f64,
    /// Share of the micro-benchmark's rate that a full step sustains, Ampere.
    pub sustained_ampere: f64,
    /// The same, Hopper.
    pub sustained_hopper: f64,
    /// The same, Blackwell.
    pub sustained_blackwell: f64,
    /// The same, every other architecture.
    pub sustained_other: f64,
    /// Rate of the GB300 above its architecture's.
    pub gb300_factor: f64,
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
    /// Share of the 16-bit peak that attention reaches, Ampere and what is not named.
    pub attention_ampere: f64,
    /// The same, Hopper.
    pub attention_hopper: f64,
    /// The same, Blackwell.
    pub attention_blackwell: f64,
    /// Share of the 4-bit peak that a plain product reaches.
    pub fp4_share: f64,
    /// Forward passes that selective recomputation adds in PyTorch stacks.
    pub selective_recompute: f64,
    /// Time to launch the kernels of a layer. Units: microseconds.
    pub layer_launch_us: f64,
    /// What every optimiser step takes beside. Units: milliseconds.
    pub step_overhead_ms: f64,
    /// Share of tensor-parallel traffic that Megatron does not hide.
    pub exposed_tensor_megatron: f64,
    /// The same, other stacks.
    pub exposed_tensor_other: f64,
    /// Share of expert-parallel traffic that is not hidden.
    pub exposed_experts: f64,
    /// What splitting a sequence over ever more GPUs adds in the limit.
    pub context_overhead: f64,
    /// Share of the link within a node that collectives reach.
    pub link_share: f64,
    /// Share of the network between nodes that collectives reach.
    pub net_share: f64,
    /// How sharply traffic hides behind work: 0 is a plain sum, infinity a maximum.
    pub overlap_exponent: f64,
    /// Time of one hop of a ring. Units: microseconds.
    pub hop_us: f64,
    /// Slow-down with each doubling of the nodes.
    pub jitter_per_doubling: f64,
}

/// The constants of the serving model.
///
/// Shares and factors are fractions of one; every name says its unit otherwise.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InferenceConstants {
    /// Share of the memory bandwidth at which weights are read.
    pub bandwidth_share: f64,
    /// The same for the key-value cache.
    pub cache_bandwidth_share: f64,
    /// Share of the micro-benchmark's rate that products reach.
    pub matmul_share: f64,
    /// Share of the 4-bit peak that a plain product reaches.
    pub fp4_share: f64,
    /// Share of that bandwidth at which chosen experts are read.
    pub expert_read_share: f64,
    /// Rate of a mixture's small products against a dense model's.
    pub expert_matmul_share: f64,
    /// Share of the 16-bit peak that attention over latents reaches.
    pub latent_attention_share: f64,
    /// Time of the scheduler in each step. Units: microseconds.
    pub step_overhead_us: f64,
    /// Time to launch the kernels of a layer. Units: microseconds.
    pub layer_launch_us: f64,
    /// Time to sample and schedule one sequence. Units: microseconds.
    pub sequence_overhead_us: f64,
    /// Memory traffic of activations for each token, layer and hidden unit. Units: bytes.
    pub activation_bytes_per_unit: f64,
    /// Latency of an all-reduce per doubling over NVLink or xGMI. Units: microseconds.
    pub nvlink_latency_us: f64,
    /// The same over PCI Express. Units: microseconds.
    pub pcie_latency_us: f64,
    /// Share of the link within a node that collectives reach.
    pub link_share: f64,
    /// What collectives reach over PCI Express 4. Units: GB/s.
    pub pcie_gb_s: f64,
    /// How that falls with more than four GPUs.
    pub pcie_contention_exponent: f64,
    /// Share of a GPU's memory that an engine fills.
    pub memory_share: f64,
    /// Memory of the runtime and activations on each GPU. Units: GB.
    pub activations_gb: f64,
    /// Tokens of an answer for which cache is set aside, as a share of its length.
    pub answer_occupancy: f64,
    /// The largest batch of one GPU. Units: sequences.
    pub largest_batch: f64,
    /// What a pipeline keeps of its rate with each doubling of its stages.
    pub pipeline_share: f64,
    /// What draining a finite test costs, as a share of one batch.
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
    /// The same, TensorRT-LLM 0.20 and later.
    pub stack_tensorrt_llm_recent: f64,
    /// The same, MLC-LLM.
    pub stack_mlc: f64,
    /// Share of the memory bandwidth that llama.cpp reaches, first class of memory.
    pub llama_cpp_bandwidth_share_gddr: f64,
    /// The same, second class.
    pub llama_cpp_bandwidth_share_hbm: f64,
    /// Share of the product rate that llama.cpp reaches.
    pub llama_cpp_matmul_share: f64,
    /// The same over 4-bit integers.
    pub llama_cpp_matmul_share_quantised: f64,
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
            let widths = [set.interval_80_ln.training, set.interval_80_ln.inference];
            assert!(widths.iter().all(|width| (0.05..1.0).contains(width)));
        }
    }
}
