//! The time of one decoding step and of one token of a prompt, on one copy of a model.

use super::{Engine, Setup, WeightFormat};
use crate::perf::chip::{MemoryClass, Product, ScaleUp};
use crate::perf::constants::InferenceConstants;

/// Share of the 16-bit peak that attention over a prompt reaches.
const PROMPT_ATTENTION_SHARE: f64 = 0.4;

/// What attention over a prompt costs more where keys are latent.
const LATENT_PROMPT_FACTOR: f64 = 1.2;

/// Numbers that one head multiplies with for each latent position: 512 of the latent twice, and
/// 64 that carry the position. Source: DeepSeek-V2 (2024).
const LATENT_POSITION_WIDTH: f64 = 1_088.0;

/// What of the shorter of reading and multiplying does not hide behind the longer.
const UNHIDDEN: f64 = 0.3;

/// The rates of one copy.
#[derive(Debug)]
pub struct Rates<'a> {
    setup: &'a Setup<'a>,
    constants: &'a InferenceConstants,
    /// At which weights are read. Units: bytes per second and GPU.
    weight_bandwidth: f64,
    /// Of products. Units: FLOP/s and GPU.
    matmul_flops: f64,
    /// Of all-reduces. Units: bytes per second.
    link: f64,
    /// Of an all-reduce for each doubling of its members. Units: seconds.
    link_latency: f64,
}

impl<'a> Rates<'a> {
    /// The rates of a copy.
    #[must_use]
    pub fn new(constants: &'a InferenceConstants, setup: &'a Setup<'a>) -> Self {
        let (link, link_latency) = link(constants, setup);
        Self {
            setup,
            constants,
            weight_bandwidth: weight_bandwidth(constants, setup),
            matmul_flops: matmul_flops(constants, setup),
            link,
            link_latency,
        }
    }

    /// The time in which each of `batch` sequences, `context` tokens long so far, gets its next
    /// token. Units: seconds.
    #[must_use]
    pub fn step_seconds(&self, batch: f64, context: f64) -> f64 {
        let (setup, constants) = (self.setup, self.constants);
        let stages = setup.pipeline;
        let pipelined = stages > 1.0 && setup.engine != Engine::LlamaCpp;
        // A pipeline fills its stages with micro batches.
        let together = if pipelined { batch / stages } else { batch };
        let pass = self.weights_seconds(together)
            + self.cache_seconds(together, context)
            + self.layers_seconds(together);
        // Each token visits all stages.
        let pass = pass * stages
            / if pipelined {
                self.pipeline_share()
            } else {
                1.0
            };
        if batch <= 1.0 {
            return pass;
        }
        let schedulers = if setup.schedules_per_gpu() {
            setup.tensor
        } else {
            1.0
        };
        let step_us = match setup.engine {
            Engine::LlamaCpp => 0.0,
            _ => constants.step_overhead_us,
        };
        pass + (step_us + batch / schedulers * constants.sequence_overhead_us) * 1e-6
    }

    /// The time to read one token of a prompt of so many. Units: seconds.
    #[must_use]
    pub fn prompt_token_seconds(&self, prompt_tokens: f64) -> f64 {
        let (setup, model) = (self.setup, self.setup.model);
        let multiplied = model.params_active - model.embedding_params;
        let products = 2.0 * multiplied / setup.gpus() / (self.matmul_flops * self.mixture_share());
        let width = f64::from(model.heads) * f64::from(model.head_dim);
        let latent = if model.latent_attention {
            LATENT_PROMPT_FACTOR
        } else {
            1.0
        };
        let attention = 2.0 * prompt_tokens * width * f64::from(model.layers)
            / setup.gpus()
            / (setup.chip.bf16_flops * PROMPT_ATTENTION_SHARE)
            * latent;
        let layers = f64::from(model.layers) / setup.pipeline;
        let reduced = layers * 2.0 * self.reduce_seconds_per_token();
        let activations = match setup.engine {
            Engine::LlamaCpp => 0.0,
            _ => layers * self.activation_seconds_per_token(),
        };
        let alone = products + attention + reduced + activations;
        match (setup.pipeline > 1.0, setup.engine) {
            (false, _) => alone,
            (true, Engine::LlamaCpp) => alone * setup.pipeline,
            (true, _) => alone / self.pipeline_share(),
        }
    }

    /// Reads the weights once and multiplies them with each sequence.
    fn weights_seconds(&self, batch: f64) -> f64 {
        let (setup, model) = (self.setup, self.setup.model);
        let read = self.weight_bytes_touched(batch) / setup.gpus() / self.weight_bandwidth;
        let multiplied = 2.0 * (model.params_active - model.embedding_params) * batch;
        let multiply = multiplied / setup.gpus() / (self.matmul_flops * self.mixture_share());
        read.max(multiply) + UNHIDDEN * read.min(multiply)
    }

    /// Bytes of the weights that a batch touches: of a mixture, the experts that its tokens choose,
    /// taken as chosen at random.
    fn weight_bytes_touched(&self, batch: f64) -> f64 {
        let model = self.setup.model;
        let each = self.setup.weights.bytes();
        let dense = model.params_total - model.embedding_params;
        let Some(experts) = model.experts else {
            return dense * each;
        };
        let missed = 1.0 - f64::from(experts.per_token) / f64::from(experts.per_layer);
        let touched = 1.0 - missed.powf(batch.max(1.0));
        (dense - experts.params) * each
            + experts.params * touched * each / self.constants.expert_read_share
    }

    /// Reads the cache of each sequence and attends to it.
    fn cache_seconds(&self, batch: f64, context: f64) -> f64 {
        let (setup, model) = (self.setup, self.setup.model);
        let bandwidth = self.constants.cache_bandwidth_share * setup.chip.memory_bytes_per_second;
        let read = batch * setup.cache_bytes(context) / setup.gpus() / bandwidth;
        if !model.latent_attention {
            return read;
        }
        let heads = f64::from(model.heads) * f64::from(model.layers);
        let flop = batch * 2.0 * heads * LATENT_POSITION_WIDTH * context;
        let rate = setup.chip.bf16_flops * self.constants.latent_attention_share;
        read + flop / setup.gpus() / rate
    }

    /// Launches, activations and all-reduces of the layers of one stage.
    fn layers_seconds(&self, batch: f64) -> f64 {
        let setup = self.setup;
        let launch = self.constants.layer_launch_us * 1e-6;
        let latency = self.link_latency * setup.tensor.log2();
        let each = launch
            + batch * self.activation_seconds_per_token()
            + 2.0 * (latency + batch * self.reduce_seconds_per_token());
        f64::from(setup.model.layers) / setup.pipeline * each
    }

    /// Half of the activations is split over the GPUs of a group.
    fn activation_seconds_per_token(&self) -> f64 {
        let setup = self.setup;
        f64::from(setup.model.hidden) * self.constants.activation_bytes_per_unit
            / setup.chip.memory_bytes_per_second
            * (0.5 + 0.5 / setup.tensor)
    }

    /// One all-reduce of one token's activations; none on one GPU.
    fn reduce_seconds_per_token(&self) -> f64 {
        let members = self.setup.tensor;
        2.0 * (members - 1.0) / members * f64::from(self.setup.model.hidden) * 2.0 / self.link
    }

    fn mixture_share(&self) -> f64 {
        match self.setup.model.experts {
            Some(_) => self.constants.expert_matmul_share,
            None => 1.0,
        }
    }

    fn pipeline_share(&self) -> f64 {
        self.constants
            .pipeline_share
            .powf(self.setup.pipeline.log2())
    }
}

/// The rate of an engine against TensorRT-LLM 0.13.
fn stack(constants: &InferenceConstants, engine: Engine) -> f64 {
    match engine {
        Engine::TensorRtLlm | Engine::LlamaCpp => 1.0,
        Engine::TensorRtLlm020 | Engine::TensorRtLlm10 => constants.stack_tensorrt_llm_recent,
        Engine::VllmUntuned => constants.stack_vllm_untuned,
        Engine::Vllm2024 => constants.stack_vllm_2024,
        Engine::VllmAmd => constants.stack_vllm_amd,
        Engine::Mlc => constants.stack_mlc,
    }
}

fn weight_bandwidth(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    let share = match (setup.engine, setup.chip.llama_cpp_memory) {
        (Engine::LlamaCpp, MemoryClass::Gddr) => constants.llama_cpp_bandwidth_share_gddr,
        (Engine::LlamaCpp, MemoryClass::Hbm) => constants.llama_cpp_bandwidth_share_hbm,
        // A slow engine reads weights better than it multiplies them.
        (engine, _) => constants.bandwidth_share * stack(constants, engine).powf(0.3).min(1.1),
    };
    share * setup.chip.memory_bytes_per_second
}

fn matmul_flops(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    // Integers are unpacked to 16 bits before they are multiplied.
    let product = match setup.weights {
        WeightFormat::Fp4 => Product::Fp4,
        WeightFormat::Fp8 => Product::Fp8,
        _ => Product::Bf16,
    };
    let plain = setup.chip.matmul_flops(product, constants.fp4_share);
    if setup.engine != Engine::LlamaCpp {
        return plain * constants.matmul_share * stack(constants, setup.engine);
    }
    let share = match setup.weights {
        WeightFormat::Int4Group | WeightFormat::Int4Mixed => {
            constants.llama_cpp_matmul_share_quantised
        }
        _ => constants.llama_cpp_matmul_share,
    };
    let accumulators = if setup.chip.doubled_in_llama_cpp {
        2.0
    } else {
        1.0
    };
    plain * share * accumulators
}

/// What an all-reduce reaches (bytes per second), and its latency per doubling (seconds).
fn link(constants: &InferenceConstants, setup: &Setup<'_>) -> (f64, f64) {
    let chip = setup.chip;
    let over_pcie = chip.is_pcie_only() || setup.tensor > f64::from(chip.domain_gpus);
    if !over_pcie {
        let rate = chip.link_bytes_per_second * constants.link_share;
        return (rate, constants.nvlink_latency_us * 1e-6);
    }
    let generation = if chip.scale_up == ScaleUp::Pcie5 {
        2.0
    } else {
        1.0
    };
    let rate = (constants.pcie_gb_s * 1e9 * generation).min(chip.link_bytes_per_second);
    let contention = (4.0 / setup.tensor)
        .powf(constants.pcie_contention_exponent)
        .min(1.0);
    (rate * contention, constants.pcie_latency_us * 1e-6)
}
