//! How fast one replica of a model serves: memory, throughput, latency, in closed form.
//!
//! `rates` gives the time of one decoding step and of reading a prompt. This module computes the number of
//! sequences that fit, and the effect of continuous batching: while one request is written, each slot of the
//! batch reads one prompt. Queues are not modelled; tail latency needs a simulation (`tails`).
//! Sources: Pope et al. 2022, Williams et al. 2009 (roofline).

mod rates;
pub mod tails;

#[cfg(test)]
mod tests;

use super::chip::{Chip, Product};
use super::constants::{InferenceConstants, InferenceGround};
use super::memory;
use crate::models::ModelFigures;

pub use rates::{PromptTimes, Rates};

/// How weights lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// 16 bits.
    Bf16,
    /// 8-bit floating point.
    Fp8,
    /// 8-bit integers.
    Int8,
    /// 4-bit floating point with a scale for each block of 16.
    Fp4,
    /// 4-bit integers with a scale for each group.
    Int4Group,
    /// The mixed 4-bit format that llama.cpp calls `Q4_K`.
    Int4Mixed,
}

/// The format of the key-value cache in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheFormat {
    /// 16 bits.
    Bf16,
    /// 8 bits.
    Fp8,
    /// 4-bit floating point with scales.
    Fp4,
}

/// The serving engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// TensorRT-LLM before 0.20: the one that all others are compared with.
    TensorRtLlm,
    /// TensorRT-LLM 0.20.
    TensorRtLlm020,
    /// TensorRT-LLM 1.0: each GPU schedules its own sequences of a mixture of experts.
    TensorRtLlm10,
    /// TensorRT-LLM as it is tuned for submissions to MLPerf: the same.
    TensorRtLlmMlperf,
    /// vLLM as it is installed.
    VllmUntuned,
    /// vLLM of 2024.
    Vllm2024,
    /// vLLM as AMD tunes it.
    VllmAmd,
    /// vLLM as AMD tunes it for submissions to MLPerf.
    VllmAmdMlperf,
    /// llama.cpp, which splits layers over GPUs and does not pipeline.
    LlamaCpp,
    /// MLC-LLM.
    Mlc,
}

/// The model that is served, and its hardware.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The model.
    pub model: &'a ModelFigures,
    /// The GPUs.
    pub chip: &'a Chip,
    /// GPUs that share each matrix.
    pub tensor: f64,
    /// Stages that share the layers.
    pub pipeline: f64,
    /// Its weights.
    pub weights: WeightFormat,
    /// Its cache.
    pub cache: CacheFormat,
    /// The software.
    pub engine: Engine,
    /// Tokens of a prompt.
    pub input_tokens: f64,
    /// Tokens of an answer.
    pub output_tokens: f64,
}

/// The limits on the batch and on the latency. `Default` sets no limits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// Requests in flight, in place of the largest batch that the engine schedules.
    pub concurrency: Option<f64>,
    /// Requests of a finite test, at whose end a batch drains.
    pub requests: Option<f64>,
    /// The most seconds per token of the slow requests; the mean must stay further below.
    pub per_token_seconds: Option<f64>,
    /// The most seconds until the first token, without queueing.
    pub first_token_seconds: Option<f64>,
}

/// How one replica serves at its batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Served {
    /// Tokens written per second.
    pub tokens_per_second: f64,
    /// Mean seconds per token of a request.
    pub per_token_seconds: f64,
    /// Seconds until the first token, without queueing.
    pub first_token_seconds: f64,
    /// Sequences answered together, on average.
    pub batch: f64,
    /// The number of sequences whose cache fits.
    pub capacity: f64,
}

/// Why a replica of the model does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotServe {
    /// Weights and one sequence's cache do not fit.
    #[error("the weights and one sequence do not fit in memory")]
    TooLarge,
    /// Even a single request is answered too slowly.
    #[error("even a request alone is answered too slowly")]
    TooSlow,
}

impl WeightFormat {
    /// Bytes of one weight, scales included.
    #[must_use]
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Fp4 | Self::Int4Group => memory::BLOCK_SCALED_BYTES,
            Self::Int4Mixed => 0.61,
        }
    }

    /// The format in which these weights are multiplied: integers are unpacked to 16 bits.
    #[must_use]
    pub const fn product(self) -> Product {
        match self {
            Self::Fp4 => Product::Fp4,
            Self::Fp8 => Product::Fp8,
            Self::Bf16 | Self::Int8 | Self::Int4Group | Self::Int4Mixed => Product::Bf16,
        }
    }
}

impl Engine {
    /// The group of measured errors for predictions of a model in this engine.
    #[must_use]
    pub fn ground(self, model: &ModelFigures) -> InferenceGround {
        match self {
            Self::VllmUntuned | Self::Vllm2024 | Self::LlamaCpp | Self::Mlc => {
                InferenceGround::OtherEngine
            }
            _ if model.is_mixture() => InferenceGround::Mixture,
            _ => InferenceGround::Dense,
        }
    }
}

impl CacheFormat {
    /// Bytes of one number, scales included.
    #[must_use]
    pub const fn bytes(self) -> f64 {
        match self {
            Self::Bf16 => 2.0,
            Self::Fp8 => 1.0,
            Self::Fp4 => memory::BLOCK_SCALED_BYTES,
        }
    }
}

impl Setup<'_> {
    /// GPUs of the replica.
    #[must_use]
    pub fn gpus(&self) -> f64 {
        self.tensor * self.pipeline
    }

    /// Bytes of all weights.
    #[must_use]
    pub fn weight_bytes(&self) -> f64 {
        memory::weight_bytes(self.model, self.weights.bytes())
    }

    /// Bytes of the cache of a sequence of so many tokens; layers with a window keep at most their window.
    #[must_use]
    pub fn cache_bytes(&self, tokens: f64) -> f64 {
        let kept = self.model.sliding.map_or(tokens, |sliding| {
            let near = tokens.min(f64::from(sliding.window));
            tokens + sliding.layer_fraction * (near - tokens)
        });
        self.model.kv_elements_per_token * self.cache.bytes() * kept
    }

    /// How often the GPUs of the replica keep the cache of a sequence. A head's keys are not split:
    /// where more GPUs share a matrix than there are KV heads, several keep the same one.
    /// Where each GPU attends to sequences of its own, each keeps those alone.
    #[must_use]
    pub fn cache_copies(&self, constants: &InferenceConstants) -> f64 {
        if self.attends_per_gpu() {
            return 1.0;
        }
        let kept = (self.tensor / f64::from(self.model.kv_heads)).max(1.0);
        1.0 + constants.cache_copies * (kept - 1.0)
    }

    /// Bytes over all GPUs that the cache of one sequence takes: its whole prompt, and the reserve for its
    /// answer.
    #[must_use]
    pub fn sequence_bytes(&self, constants: &InferenceConstants) -> f64 {
        let set_aside = self.input_tokens + self.output_tokens * constants.answer_occupancy;
        self.cache_bytes(set_aside) * self.cache_copies(constants)
    }

    /// The number of sequences that fit beside the weights; below one, the replica cannot serve.
    #[must_use]
    pub fn capacity(&self, constants: &InferenceConstants) -> f64 {
        let usable = usable_bytes_per_gpu(constants, self.chip);
        let free = (self.gpus() * usable - self.weight_bytes()) * constants.cache_memory_share;
        free / self.sequence_bytes(constants).max(1.0)
    }

    /// Bytes that an engine must be able to fill to serve one sequence at a time. The engine uses only a
    /// share of the memory beside the weights for the cache.
    #[must_use]
    pub fn needed_bytes(&self, constants: &InferenceConstants) -> f64 {
        self.weight_bytes() + self.sequence_bytes(constants) / constants.cache_memory_share
    }

    /// The share of each GPU's whole memory that weights, the cache that is set aside, the runtime
    /// and activations take.
    #[must_use]
    pub fn taken_share(&self, constants: &InferenceConstants) -> f64 {
        let weights = self.weight_bytes() / self.gpus();
        let usable = usable_bytes_per_gpu(constants, self.chip);
        let cache = (usable - weights) * constants.cache_memory_share;
        (weights + cache + constants.activations_gb * 1e9) / self.chip.reported_memory_bytes
    }

    /// Whether each GPU schedules the sequences that it holds by itself.
    fn schedules_per_gpu(&self) -> bool {
        let per_gpu = [Engine::TensorRtLlm10, Engine::TensorRtLlmMlperf];
        self.model.experts.is_some() && per_gpu.contains(&self.engine)
    }

    /// Whether each GPU keeps the cache of its own sequences. vLLM, as AMD tunes it, does so for latent
    /// attention, which has one KV head that all GPUs of a group would keep.
    pub(crate) fn attends_per_gpu(&self) -> bool {
        let amd = [Engine::VllmAmd, Engine::VllmAmdMlperf].contains(&self.engine);
        let latent_mixture = self.model.latent_attention && self.model.is_mixture();
        self.schedules_per_gpu() || (amd && latent_mixture)
    }

    /// How many schedulers share the sequences of a stage, each with a batch of its own.
    #[must_use]
    pub fn schedulers(&self) -> f64 {
        if self.schedules_per_gpu() {
            self.tensor
        } else {
            1.0
        }
    }

    /// The largest batch that the engine schedules.
    fn largest_batch(&self, constants: &InferenceConstants) -> f64 {
        let factor = if self.schedules_per_gpu() {
            self.gpus()
        } else if self.gpus() > 1.0 {
            1.5
        } else {
            1.0
        };
        constants.largest_batch * factor
    }
}

/// Bytes of one GPU that an engine fills with weights and cache.
#[must_use]
pub fn usable_bytes_per_gpu(constants: &InferenceConstants, chip: &Chip) -> f64 {
    let more = chip.reported_memory_bytes - chip.memory_bytes;
    let memory = chip.memory_bytes + constants.reported_memory * more;
    memory * constants.memory_share - constants.activations_gb * 1e9
}

/// Predicts how one replica serves, at the largest batch that fits and meets the limits.
///
/// Errors: [`CannotServe`].
pub fn serve(
    constants: &InferenceConstants,
    setup: &Setup<'_>,
    limits: &Limits,
) -> Result<Served, CannotServe> {
    let cycle = Cycle::new(constants, setup, limits)?;
    let batch = cycle.largest_batch(constants, limits);
    batch
        .map(|batch| cycle.at(batch))
        .ok_or(CannotServe::TooSlow)
}

/// As [`serve`], but a request alone is predicted even where it is too slow.
///
/// Errors: [`CannotServe::TooLarge`].
pub fn serve_as_well_as_it_can(
    constants: &InferenceConstants,
    setup: &Setup<'_>,
    limits: &Limits,
) -> Result<Served, CannotServe> {
    let cycle = Cycle::new(constants, setup, limits)?;
    let batch = cycle.largest_batch(constants, limits).unwrap_or(1.0);
    Ok(cycle.at(batch))
}

/// Continuous batching on one replica.
struct Cycle<'a> {
    rates: Rates<'a>,
    capacity: f64,
    most: f64,
    prompt: PromptTimes,
    context: f64,
    output_tokens: f64,
    /// Requests of a finite test, and the share of a batch that its end costs.
    drain: Option<(f64, f64)>,
}

impl<'a> Cycle<'a> {
    fn new(
        constants: &'a InferenceConstants,
        setup: &'a Setup<'a>,
        limits: &Limits,
    ) -> Result<Self, CannotServe> {
        let capacity = setup.capacity(constants);
        if capacity < 1.0 {
            return Err(CannotServe::TooLarge);
        }
        let wanted = limits.concurrency;
        let scheduled = wanted.unwrap_or_else(|| setup.largest_batch(constants));
        let rates = Rates::new(constants, setup);
        Ok(Self {
            prompt: rates.prompt(setup.input_tokens),
            rates,
            capacity,
            most: capacity
                .min(scheduled)
                .min(limits.requests.unwrap_or(f64::INFINITY)),
            // Half of the answer is written, on average.
            context: setup.input_tokens + setup.output_tokens / 2.0,
            output_tokens: setup.output_tokens,
            drain: limits
                .requests
                .map(|requests| (requests, constants.tail_share)),
        })
    }

    fn per_token_seconds(&self, batch: f64) -> f64 {
        self.rates.step_seconds(batch, self.context)
            + self.prompt.together(batch) / self.output_tokens
    }

    fn first_token_seconds(&self, batch: f64) -> f64 {
        self.prompt.alone + self.rates.step_seconds(batch, self.context)
    }

    fn at(&self, batch: f64) -> Served {
        let per_token_seconds = self.per_token_seconds(batch);
        let drained = self.drain.map_or(1.0, |(requests, share)| {
            requests / (requests + share * batch)
        });
        Served {
            tokens_per_second: batch / per_token_seconds * drained,
            per_token_seconds,
            first_token_seconds: self.first_token_seconds(batch),
            batch,
            capacity: self.capacity,
        }
    }

    /// The largest batch that meets the limits, by bisection: both times only grow with it.
    fn largest_batch(&self, constants: &InferenceConstants, limits: &Limits) -> Option<f64> {
        let within = |seconds: f64, limit: Option<f64>| limit.is_none_or(|limit| seconds <= limit);
        let mean_limit = limits
            .per_token_seconds
            .map(|limit| limit * constants.objective_share);
        let meets = |batch: f64| {
            within(self.per_token_seconds(batch), mean_limit)
                && within(self.first_token_seconds(batch), limits.first_token_seconds)
        };
        if meets(self.most) {
            return Some(self.most);
        }
        if !meets(1.0) {
            return None;
        }
        let (mut quick_enough, mut too_slow) = (1.0, self.most);
        // Forty halvings leave less than a millionth of a sequence.
        for _ in 0..40 {
            let middle = f64::midpoint(quick_enough, too_slow);
            if meets(middle) {
                quick_enough = middle;
            } else {
                too_slow = middle;
            }
        }
        Some(quick_enough)
    }
}
