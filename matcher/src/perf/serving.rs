//! One replica of a model on GPUs of a node, the building block of fleets: its layout and the largest batch
//! that meets the latency objective.
//!
//! The rates are those of [`super::replica`]. A layout splits matrices over the GPUs that a fast link
//! connects. Without such a link, or where the replica is wider than the link reaches, stages are tried too.

use market::demand::{LatencyObjective, Precision};

use super::chip::{Architecture, Chip};
use super::constants::InferenceConstants;
use super::replica::tails::{Arrivals, CopyLoad, StepTimes, Tails, simulate};
use super::replica::{
    CacheFormat, CannotServe, Engine, Limits, PromptTimes, Rates, Served, Setup, WeightFormat,
    serve, usable_bytes_per_gpu,
};
use crate::models::ModelFigures;

/// Every plan draws the same arrivals, so that the same demand gets the same tail latencies.
const SEED: u64 = 1;

/// The model that is served, and its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct ServingWork {
    /// The model.
    pub model: ModelFigures,
    /// Its weights.
    pub weights: WeightFormat,
    /// Its key-value cache.
    pub cache: CacheFormat,
    /// Tokens of a prompt.
    pub input_tokens: f64,
    /// Tokens of an answer.
    pub output_tokens: f64,
    /// How fast answers must come.
    pub latency: LatencyObjective,
}

/// One replica of a model on some GPUs of a node, at the largest batch that fits and meets the
/// latency objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Replica {
    /// GPUs of the replica.
    pub gpus: u32,
    /// GPUs that share each matrix; the rest are stages.
    pub tensor: u32,
    /// The software that the prediction assumes.
    pub engine: Engine,
    /// Sequences answered together.
    pub batch: f64,
    /// Tokens written per second.
    pub tokens_per_second: f64,
    /// Seconds until the first token, without network and queueing.
    pub first_token_seconds: f64,
    /// Seconds per further token.
    pub per_token_seconds: f64,
    /// Bytes that the weights and one sequence's cache need.
    pub needed_bytes: f64,
    /// Bytes that the GPUs have for weights and cache.
    pub available_bytes: f64,
}

impl Replica {
    /// The batch size in the engine's settings: a whole number of sequences, at least one.
    #[must_use]
    pub fn whole_batch(&self) -> f64 {
        self.batch.floor().max(1.0)
    }
}

/// The format of weights in this precision; `None` where no engine serves it.
#[must_use]
pub const fn weight_format(precision: Precision) -> Option<WeightFormat> {
    match precision {
        Precision::Fp32 => None,
        Precision::Bf16 | Precision::Fp16 => Some(WeightFormat::Bf16),
        Precision::Fp8 => Some(WeightFormat::Fp8),
        Precision::Int8 => Some(WeightFormat::Int8),
        Precision::Fp4 => Some(WeightFormat::Fp4),
        Precision::Int4 => Some(WeightFormat::Int4Group),
    }
}

/// The format of a cache in this precision; `None` where no engine keeps one in it.
#[must_use]
pub const fn cache_format(precision: Precision) -> Option<CacheFormat> {
    match precision {
        Precision::Fp32 | Precision::Int4 => None,
        Precision::Bf16 | Precision::Fp16 => Some(CacheFormat::Bf16),
        Precision::Fp8 | Precision::Int8 => Some(CacheFormat::Fp8),
        Precision::Fp4 => Some(CacheFormat::Fp4),
    }
}

/// The engine that a plan assumes: the one that the chip's maker tunes.
#[must_use]
pub const fn engine_of(chip: &Chip) -> Engine {
    match chip.architecture {
        Architecture::Cdna3 | Architecture::Cdna4 | Architecture::Rdna3 => Engine::VllmAmd,
        _ => Engine::TensorRtLlm10,
    }
}

/// Bytes of so many GPUs that an engine fills with weights and cache.
#[must_use]
pub fn usable_bytes(constants: &InferenceConstants, chip: &Chip, gpus: u32) -> f64 {
    usable_bytes_per_gpu(constants, chip) * f64::from(gpus)
}

impl ServingWork {
    /// Bytes of so many GPUs that an engine must be able to fill to serve one sequence at a time, in
    /// the layout that needs least.
    #[must_use]
    pub fn needed_bytes(&self, constants: &InferenceConstants, chip: &Chip, gpus: u32) -> f64 {
        self.layouts(chip, gpus)
            .map(|setup| setup.needed_bytes(constants))
            .reduce(f64::min)
            // If the heads cannot be split like this, the memory that stages would need.
            .unwrap_or_else(|| self.setup(chip, 1, gpus).needed_bytes(constants))
    }

    /// Whether so many GPUs could hold one replica and a sequence if the heads could be split over them.
    #[must_use]
    pub fn lacks_heads_alone(
        &self,
        constants: &InferenceConstants,
        chip: &Chip,
        gpus: u32,
    ) -> bool {
        self.layouts(chip, gpus).next().is_none()
            && self.needed_bytes(constants, chip, gpus) <= usable_bytes(constants, chip, gpus)
    }

    /// The fewest GPUs, doubling from one, that hold one replica and a sequence.
    #[must_use]
    pub fn fewest_gpus(
        &self,
        constants: &InferenceConstants,
        chip: &Chip,
        most: u32,
    ) -> Option<u32> {
        doublings(most).find(|gpus| {
            self.needed_bytes(constants, chip, *gpus) <= usable_bytes(constants, chip, *gpus)
        })
    }

    /// The model in one layout.
    #[must_use]
    pub fn setup<'a>(&'a self, chip: &'a Chip, tensor: u32, stages: u32) -> Setup<'a> {
        Setup {
            model: &self.model,
            chip,
            tensor: f64::from(tensor),
            pipeline: f64::from(stages),
            weights: self.weights,
            cache: self.cache,
            engine: engine_of(chip),
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }

    /// Seconds until the first token and per further token of a request that has a replica on so
    /// many GPUs to itself, in the layout that writes fastest.
    #[must_use]
    pub fn seconds_alone(
        &self,
        constants: &InferenceConstants,
        chip: &Chip,
        gpus: u32,
    ) -> (f64, f64) {
        let context = self.input_tokens + self.output_tokens / 2.0;
        let alone = |setup: Setup<'_>| {
            let rates = Rates::new(constants, &setup);
            let step = rates.step_seconds(1.0, context);
            let prompt = rates.prompt(self.input_tokens).alone;
            (prompt + step, step + prompt / self.output_tokens)
        };
        self.layouts(chip, gpus)
            .map(alone)
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((f64::INFINITY, f64::INFINITY))
    }

    /// One replica of the model on so many GPUs of a kind, in the layout that writes most.
    ///
    /// Units: `network_seconds` is the network's part of the time to the first token.
    /// Errors: [`CannotServe`].
    pub fn replica(
        &self,
        constants: &InferenceConstants,
        chip: &Chip,
        gpus: u32,
        network_seconds: f64,
    ) -> Result<Replica, CannotServe> {
        let limits = Limits {
            per_token_seconds: self.latency.per_token_ms.map(|ms| ms / 1e3),
            first_token_seconds: self.first_token_limit(network_seconds),
            ..Limits::default()
        };
        let mut best: Result<(Served, f64), CannotServe> = Err(CannotServe::TooLarge);
        for setup in self.layouts(chip, gpus) {
            best = match (serve(constants, &setup, &limits), best) {
                (Ok(served), Ok((most, _)))
                    if served.tokens_per_second <= most.tokens_per_second =>
                {
                    best
                }
                (Ok(served), _) => Ok((served, setup.tensor)),
                (Err(CannotServe::TooSlow), Err(_)) => Err(CannotServe::TooSlow),
                (Err(_), best) => best,
            };
        }
        best.map(|(served, tensor)| Replica {
            gpus,
            // A power of two, at most a node's GPUs.
            tensor: tensor as u32,
            engine: engine_of(chip),
            batch: served.batch,
            tokens_per_second: served.tokens_per_second,
            first_token_seconds: served.first_token_seconds,
            per_token_seconds: served.per_token_seconds,
            needed_bytes: self.needed_bytes(constants, chip, gpus),
            available_bytes: usable_bytes(constants, chip, gpus),
        })
    }

    /// The limit on the time to the first token, less the network's part. Units: seconds.
    pub(crate) fn first_token_limit(&self, network_seconds: f64) -> Option<f64> {
        let limit = self.latency.first_token_ms?;
        Some(limit / 1e3 - network_seconds)
    }

    /// The simulated latencies of requests to one replica; `None` where answers are too long for a
    /// simulation.
    #[must_use]
    pub fn tails(
        &self,
        constants: &InferenceConstants,
        chip: &Chip,
        replica: &Replica,
        arrivals: Arrivals,
    ) -> Option<Tails> {
        let setup = self.setup(chip, replica.tensor, replica.gpus / replica.tensor);
        let rates = Rates::new(constants, &setup);
        let times = CopyTimes {
            prompt: rates.prompt(self.input_tokens),
            rates,
        };
        let load = CopyLoad {
            arrivals,
            input_tokens: self.input_tokens,
            // At most 1e7, and a batch of at most some thousands.
            output_tokens: self.output_tokens as u32,
            most_together: replica.batch as u32,
        };
        simulate(&load, &times, SEED)
    }

    /// The ways to lay a replica out on so many GPUs of a node.
    pub(super) fn layouts<'a>(
        &'a self,
        chip: &'a Chip,
        gpus: u32,
    ) -> impl Iterator<Item = Setup<'a>> {
        let joined = !chip.is_pcie_only();
        let widest = if joined { chip.domain_gpus } else { gpus };
        let heads = self.model.heads;
        doublings(gpus.min(widest))
            .filter(move |tensor| heads.is_multiple_of(*tensor))
            // With a fast link it is better to split matrices over all the GPUs that it connects.
            .filter(move |tensor| !joined || gpus > widest || *tensor == gpus)
            .map(move |tensor| self.setup(chip, tensor, gpus / tensor))
    }
}

/// The steps of a replica in the closed form.
struct CopyTimes<'a> {
    rates: Rates<'a>,
    prompt: PromptTimes,
}

impl StepTimes for CopyTimes<'_> {
    fn prompt(&self) -> PromptTimes {
        self.prompt
    }

    fn step_seconds(&self, batch: f64, context: f64) -> f64 {
        self.rates.step_seconds(batch, context)
    }
}

/// Powers of two up to `most`: the ways to split heads evenly.
pub(crate) fn doublings(most: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(1_u32), |gpus| gpus.checked_mul(2))
        .take_while(move |gpus| *gpus <= most)
}

#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;
