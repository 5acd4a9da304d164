//! How fast one copy of a model serves, by the roofline of decoding.
//!
//! Writing a token reads the weights once for the whole batch and each sequence's cache once;
//! it multiplies each active weight once per sequence. The slower of the two bounds a step.
//! Reading prompts shares the same GPUs, so each slot of the batch also pays for its prompt.

use market::demand::{LatencyObjective, Precision};
use market::gpu::GpuSpec;

use super::memory::{SERVING_FRACTION, bytes_per_weight, cache_bytes, weight_bytes};
use crate::hardware::joined_all_to_all;
use crate::models::ModelFigures;

/// The share of the memory bandwidth that decoding is assumed to reach.
pub const ASSUMED_BANDWIDTH_SHARE: f64 = 0.7;

/// The share of the peak rate that prompts and large batches are assumed to reach.
pub const ASSUMED_COMPUTE_SHARE: f64 = 0.5;

/// What each doubling of the GPUs of one copy is assumed to keep of the rate, joined all to all.
const KEPT_PER_DOUBLING: f64 = 0.85;

/// The same over PCI Express or bridges.
const KEPT_PER_DOUBLING_PCIE: f64 = 0.7;

/// The largest batch that serving engines schedule. Units: sequences.
const LARGEST_BATCH: f64 = 1_024.0;

/// What is served and how.
#[derive(Debug, Clone, PartialEq)]
pub struct ServingWork {
    /// The model.
    pub model: ModelFigures,
    /// Precision of its weights.
    pub weights: Precision,
    /// Precision of its key-value cache.
    pub cache: Precision,
    /// Tokens of a prompt.
    pub input_tokens: f64,
    /// Tokens of an answer.
    pub output_tokens: f64,
    /// How fast answers must come.
    pub latency: LatencyObjective,
}

/// One copy of a model on some GPUs of a node, at the largest batch that fits and meets the
/// latency objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replica {
    /// GPUs of the copy.
    pub gpus: u32,
    /// Sequences answered together.
    pub batch: f64,
    /// Tokens written per second.
    pub tokens_per_second: f64,
    /// Seconds until the first token, without queueing.
    pub first_token_seconds: f64,
    /// Seconds per further token.
    pub per_token_seconds: f64,
    /// Bytes of the weights and of one sequence's cache.
    pub needed_bytes: f64,
    /// Bytes that the GPUs have for weights and cache.
    pub available_bytes: f64,
}

/// Why a copy of the model does not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoReplica {
    /// Weights and one sequence's cache do not fit.
    TooLarge,
    /// Even alone a request is answered too slowly.
    TooSlow,
}

/// The most tokens per second that one sequence can be written at: every active weight is read
/// once a token. An upper bound for any engine without speculative decoding.
#[must_use]
pub fn tokens_per_second_bound(
    model: &ModelFigures,
    weights: Precision,
    bandwidth_gbps: f64,
) -> f64 {
    bandwidth_gbps * 1e9 / (model.params_active * bytes_per_weight(weights))
}

/// The peak rate for weights of this precision. Units: TFLOPS.
///
/// 4-bit integers are unpacked to 16 bits before they are multiplied.
#[must_use]
pub fn peak_tflops(spec: &GpuSpec, weights: Precision) -> Option<f64> {
    match weights {
        Precision::Bf16 => spec.bf16_tflops_dense,
        Precision::Fp16 | Precision::Int4 => spec.fp16_tflops_dense,
        Precision::Fp8 => spec.fp8_tflops_dense,
        Precision::Int8 => spec.int8_tops_dense,
        Precision::Fp4 => spec.fp4_tflops_dense,
        Precision::Fp32 => None,
    }
}

impl ServingWork {
    /// Bytes of the weights and of one sequence's cache at its longest.
    #[must_use]
    pub fn needed_bytes(&self) -> f64 {
        weight_bytes(&self.model, self.weights) + self.sequence_bytes()
    }

    fn sequence_bytes(&self) -> f64 {
        cache_bytes(
            &self.model,
            self.cache,
            self.input_tokens + self.output_tokens,
        )
    }

    /// The fewest GPUs, doubling from one, whose memory (GB each) holds one copy and a sequence.
    #[must_use]
    pub fn fewest_gpus(&self, memory_gb: f64, most: u32) -> Option<u32> {
        doublings(most).find(|gpus| self.needed_bytes() <= serving_bytes(memory_gb, *gpus))
    }

    /// Seconds until the first token and per further token of a request that has a copy on so
    /// many GPUs to itself.
    #[must_use]
    pub fn seconds_alone(&self, spec: &GpuSpec, peak_tflops: f64, gpus: u32) -> (f64, f64) {
        let speed = Speed::new(self, spec, peak_tflops, gpus);
        (speed.first_token_seconds(1.0), speed.per_token_seconds(1.0))
    }

    /// One copy of the model on so many GPUs of a kind.
    ///
    /// `peak_tflops` is the rate of one GPU at the precision of the weights.
    /// Errors: [`NoReplica`].
    pub fn replica(
        &self,
        spec: &GpuSpec,
        peak_tflops: f64,
        gpus: u32,
    ) -> Result<Replica, NoReplica> {
        let needed_bytes = self.needed_bytes();
        let available_bytes = serving_bytes(spec.memory_gb, gpus);
        if needed_bytes > available_bytes {
            return Err(NoReplica::TooLarge);
        }
        let speed = Speed::new(self, spec, peak_tflops, gpus);
        let free_bytes = available_bytes - weight_bytes(&self.model, self.weights);
        let largest = (free_bytes / self.sequence_bytes())
            .floor()
            .clamp(1.0, LARGEST_BATCH);
        let batch = speed.largest_batch(largest).ok_or(NoReplica::TooSlow)?;
        let per_token_seconds = speed.per_token_seconds(batch);
        Ok(Replica {
            gpus,
            batch,
            tokens_per_second: batch / per_token_seconds,
            first_token_seconds: speed.first_token_seconds(batch),
            per_token_seconds,
            needed_bytes,
            available_bytes,
        })
    }
}

/// Powers of two up to `most`: the ways to split heads evenly.
pub(crate) fn doublings(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |gpus| gpus.checked_mul(2))
        .take_while(move |gpus| *gpus <= most)
}

fn serving_bytes(memory_gb: f64, gpus: u32) -> f64 {
    memory_gb * 1e9 * SERVING_FRACTION * f64::from(gpus)
}

/// The effective rates of the GPUs of one copy.
struct Speed<'a> {
    work: &'a ServingWork,
    bytes_per_second: f64,
    flop_per_second: f64,
}

impl<'a> Speed<'a> {
    fn new(work: &'a ServingWork, spec: &GpuSpec, peak_tflops: f64, gpus: u32) -> Self {
        let kept: f64 = if joined_all_to_all(spec) {
            KEPT_PER_DOUBLING
        } else {
            KEPT_PER_DOUBLING_PCIE
        };
        let effective_gpus = f64::from(gpus) * kept.powf(f64::from(gpus).log2());
        let bandwidth = spec.memory_bandwidth_gbps * 1e9 * ASSUMED_BANDWIDTH_SHARE;
        Self {
            work,
            bytes_per_second: bandwidth * effective_gpus,
            flop_per_second: peak_tflops * 1e12 * ASSUMED_COMPUTE_SHARE * effective_gpus,
        }
    }

    /// One decoding step of a batch, each sequence half written.
    fn step_seconds(&self, batch: f64) -> f64 {
        let work = self.work;
        // A batch touches at most the experts that its tokens choose, and at most all of them.
        let touched = work
            .model
            .params_total
            .min(work.model.params_active * batch);
        let context = work.input_tokens + work.output_tokens / 2.0;
        let read = touched * bytes_per_weight(work.weights)
            + batch * cache_bytes(&work.model, work.cache, context);
        let multiplied = 2.0 * work.model.params_active * batch;
        (read / self.bytes_per_second).max(multiplied / self.flop_per_second)
    }

    fn prompt_seconds(&self) -> f64 {
        2.0 * self.work.model.params_active * self.work.input_tokens / self.flop_per_second
    }

    /// While one request is written, each slot of the batch reads one prompt.
    fn per_token_seconds(&self, batch: f64) -> f64 {
        self.step_seconds(batch) + batch * self.prompt_seconds() / self.work.output_tokens
    }

    fn first_token_seconds(&self, batch: f64) -> f64 {
        self.prompt_seconds() + self.step_seconds(batch)
    }

    fn meets_objective(&self, batch: f64) -> bool {
        let within =
            |seconds: f64, limit_ms: Option<f64>| limit_ms.is_none_or(|ms| seconds * 1e3 <= ms);
        within(
            self.per_token_seconds(batch),
            self.work.latency.per_token_ms,
        ) && within(
            self.first_token_seconds(batch),
            self.work.latency.first_token_ms,
        )
    }

    /// The largest whole batch up to `largest` that meets the objective, by bisection: both times
    /// only grow with the batch.
    fn largest_batch(&self, largest: f64) -> Option<f64> {
        if !self.meets_objective(1.0) {
            return None;
        }
        if self.meets_objective(largest) {
            return Some(largest);
        }
        let (mut meets, mut fails) = (1.0, largest);
        while fails - meets > 1.0 {
            let middle = f64::floor((meets + fails) / 2.0);
            if self.meets_objective(middle) {
                meets = middle
            } else {
                fails = middle
            }
        }
        Some(meets)
    }
}

#[cfg(test)]
mod tests;
