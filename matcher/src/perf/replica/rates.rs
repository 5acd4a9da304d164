//! The time of one decoding step and of one token of a prompt, on one replica of a model.

use market::math::{log2, pow};

use super::{Engine, Setup, WeightFormat};
use crate::perf::chip::{Architecture, FittedFactor, MemoryClass, ScaleUp};
use crate::perf::constants::InferenceConstants;

/// Share of the 16-bit peak that attention over a prompt reaches.
const PROMPT_ATTENTION_SHARE: f64 = 0.4;

/// The extra cost factor of attention over a prompt with latent keys.
const LATENT_PROMPT_FACTOR: f64 = 1.2;

/// Multiplications of one head for each latent position: 512 of the latent, twice, and 64 that encode the
/// position. Source: DeepSeek-V2 (2024).
const LATENT_POSITION_WIDTH: f64 = 1_088.0;

/// Tokens of a prompt that llama.cpp reads at once. Source: its default `n_ubatch`.
const LLAMA_CPP_PIECE_TOKENS: f64 = 512.0;

/// The peak about which the rates of llama.cpp's products are compared. Units: FLOP/s.
const LLAMA_CPP_PEAK: f64 = 2e14;

/// The part of the shorter of reading and multiplying that does not overlap with the longer.
const UNHIDDEN: f64 = 0.3;

/// How long prompts of one length take on one replica. Units: seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptTimes {
    /// Each of many: the stages of a pipeline read different ones at the same time.
    pub each: f64,
    /// One prompt by itself, which passes all stages one after the other.
    pub alone: f64,
}

impl PromptTimes {
    /// The time to read so many prompts (one or more) that arrive together.
    #[must_use]
    pub fn together(self, prompts: f64) -> f64 {
        (prompts * self.each).max(self.alone)
    }
}

/// The rates of one replica.
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
    /// Whether a switch that adds up its traffic connects them.
    switched: bool,
    /// Of an all-reduce for each doubling of its members. Units: seconds.
    link_latency: f64,
}

impl<'a> Rates<'a> {
    /// The rates of a replica.
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
            switched: setup.chip.scale_up == ScaleUp::Nvlink
                && matches!(
                    setup.chip.architecture,
                    Architecture::Hopper | Architecture::Blackwell
                ),
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
                self.pipelined(constants.pipeline_share)
            } else {
                1.0
            };
        if batch <= 1.0 {
            return pass;
        }
        let schedulers = setup.schedulers();
        let (step_us, sequence_us) = match setup.engine {
            Engine::LlamaCpp => (0.0, constants.sequence_overhead_us),
            Engine::TensorRtLlm10 => (
                constants.step_overhead_python_us,
                constants.sequence_overhead_python_us,
            ),
            _ => (constants.step_overhead_us, constants.sequence_overhead_us),
        };
        let stages = if pipelined { stages } else { 1.0 };
        let step_us = step_us * (1.0 + constants.stage_overhead_share * (stages - 1.0));
        pass + (step_us + batch / schedulers * sequence_us) * 1e-6
    }

    /// The time to read prompts of so many tokens.
    #[must_use]
    pub fn prompt(&self, prompt_tokens: f64) -> PromptTimes {
        let setup = self.setup;
        let stage = prompt_tokens * self.stage_seconds_per_prompt_token(prompt_tokens);
        match (setup.pipeline > 1.0, setup.engine) {
            (false, _) => PromptTimes {
                each: stage,
                alone: stage,
            },
            (true, Engine::LlamaCpp) => {
                // Pieces of a prompt follow each other through the stages; other prompts wait.
                let pieces = (prompt_tokens / LLAMA_CPP_PIECE_TOKENS).max(1.0);
                let stages = setup.pipeline;
                let overlapped = (pieces + stages - 1.0) / (pieces * stages);
                let seconds =
                    stage * stages * pow(overlapped, self.constants.llama_cpp_prompt_overlap);
                PromptTimes {
                    each: seconds,
                    alone: seconds,
                }
            }
            (true, _) => {
                let each = stage / self.pipelined(self.constants.pipeline_prompt_share);
                let in_turn = stage * setup.pipeline;
                PromptTimes {
                    each,
                    alone: each + self.constants.prompt_stages_in_turn * (in_turn - each),
                }
            }
        }
    }

    /// The time for one stage to read one token of a prompt of so many tokens. Units: seconds.
    fn stage_seconds_per_prompt_token(&self, prompt_tokens: f64) -> f64 {
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
        products + attention + reduced + activations
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
        let touched = 1.0 - pow(missed, batch.max(1.0));
        (dense - experts.params) * each
            + experts.params * touched * each
                / (self.constants.expert_read_share * self.width_share(experts.width))
    }

    /// Reads the cache of each sequence and attends to it.
    fn cache_seconds(&self, batch: f64, context: f64) -> f64 {
        let (setup, model) = (self.setup, self.setup.model);
        let share =
            self.constants.cache_bandwidth_share * bandwidth_of_family(self.constants, setup);
        let bandwidth =
            share.min(self.constants.most_bandwidth_share) * setup.chip.memory_bytes_per_second;
        let held = setup.cache_bytes(context) * setup.cache_copies(self.constants);
        let read = batch * held / setup.gpus() / bandwidth;
        if !model.latent_attention {
            return read * (1.0 + self.constants.grouped_query_cost * (model.query_group() - 1.0));
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
        let latency = self.link_latency * log2(setup.tensor);
        let each = launch
            + batch * self.activation_seconds_per_token()
            + 2.0 * (latency + batch * self.reduce_seconds_per_token());
        f64::from(setup.model.layers) / setup.pipeline * each
    }

    /// Half of the activations is split over the GPUs of a group; all where each GPU attends to
    /// sequences of its own.
    fn activation_seconds_per_token(&self) -> f64 {
        let setup = self.setup;
        let apart = self.attention_per_gpu();
        let split = (1.0 - apart) * (0.5 + 0.5 / setup.tensor) + apart / setup.tensor;
        f64::from(setup.model.hidden) * self.constants.activation_bytes_per_unit
            / setup.chip.memory_bytes_per_second
            * split
    }

    /// Half of the traffic between a layer's GPUs for one token: an all-reduce of its activations, or the
    /// transfer to its experts. Zero on one GPU.
    fn reduce_seconds_per_token(&self) -> f64 {
        let members = self.setup.tensor;
        let model = self.setup.model;
        let gathered = (members - 1.0) / members;
        let payload = f64::from(model.hidden) * 2.0 / self.link;
        let reduced = if members > 2.0 && self.switched {
            1.0 + (2.0 * gathered - 1.0) * self.constants.switched_ring_share
        } else {
            2.0 * gathered
        };
        let apart = self.attention_per_gpu();
        let to_experts = model.experts.map_or(0.0, |experts| {
            // If a token goes to more experts than there are GPUs, every GPU receives every token.
            let sent = (f64::from(experts.per_token) / members).min(1.0);
            sent * experts.layers / f64::from(model.layers)
        });
        payload * ((1.0 - apart) * reduced + apart * gathered * to_experts)
    }

    fn attention_per_gpu(&self) -> f64 {
        if self.setup.schedules_per_gpu() {
            self.constants.attention_per_gpu
        } else {
            0.0
        }
    }

    fn mixture_share(&self) -> f64 {
        match self.setup.model.experts {
            Some(experts) => self.constants.expert_matmul_share * self.width_share(experts.width),
            None => 1.0,
        }
    }

    fn width_share(&self, width: u32) -> f64 {
        let recent = match self.setup.engine {
            Engine::TensorRtLlm10 => self.constants.expert_share_recent,
            _ => 1.0,
        };
        recent / (1.0 + self.constants.expert_half_width / f64::from(width))
    }

    /// The remaining rate where each doubling of the stages keeps this share.
    fn pipelined(&self, share: f64) -> f64 {
        pow(share, log2(self.setup.pipeline))
    }
}

/// The rate of an engine against TensorRT-LLM 0.13.
fn stack(constants: &InferenceConstants, engine: Engine) -> f64 {
    match engine {
        Engine::TensorRtLlm | Engine::LlamaCpp => 1.0,
        Engine::TensorRtLlm020 | Engine::TensorRtLlm10 | Engine::TensorRtLlmMlperf => {
            constants.stack_tensorrt_llm_recent
        }
        Engine::VllmUntuned => constants.stack_vllm_untuned,
        Engine::Vllm2024 => constants.stack_vllm_2024,
        Engine::VllmAmd => constants.stack_vllm_amd,
        Engine::VllmAmdMlperf => constants.stack_vllm_amd_mlperf,
        Engine::Mlc => constants.stack_mlc,
    }
}

fn weight_bandwidth(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    let share = match (setup.engine, setup.chip.llama_cpp_memory) {
        (Engine::LlamaCpp, MemoryClass::Gddr) => constants.llama_cpp_bandwidth_share_gddr,
        (Engine::LlamaCpp, MemoryClass::HbmA100) => constants.llama_cpp_bandwidth_share_a100,
        (Engine::LlamaCpp, MemoryClass::Hbm) => constants.llama_cpp_bandwidth_share_hbm,
        // A slow engine reads weights better than it multiplies them.
        (engine, _) => {
            let share = constants.bandwidth_share
                * pow(stack(constants, engine), 0.3).min(1.1)
                * bandwidth_of_family(constants, setup);
            share.min(constants.most_bandwidth_share)
        }
    };
    share * setup.chip.memory_bytes_per_second
}

fn matmul_flops(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    let plain = setup
        .chip
        .matmul_flops(setup.weights.product(), constants.fp4_share);
    if setup.engine != Engine::LlamaCpp {
        return plain
            * constants.matmul_share
            * stack(constants, setup.engine)
            * matmul_of_family(constants, setup);
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
    let peak = plain * accumulators;
    share * LLAMA_CPP_PEAK * pow(peak / LLAMA_CPP_PEAK, constants.llama_cpp_peak_exponent)
}

/// The share of the bandwidth that engines reach on a family of chips, against Hopper.
fn bandwidth_of_family(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    let family = match setup.chip.architecture {
        _ if setup.engine == Engine::LlamaCpp => return 1.0,
        Architecture::Volta | Architecture::Turing | Architecture::Ampere => {
            constants.bandwidth_ampere
        }
        Architecture::Ada => constants.bandwidth_ada,
        Architecture::Hopper => 1.0,
        Architecture::Blackwell => constants.bandwidth_blackwell,
        Architecture::Cdna3 | Architecture::Cdna4 | Architecture::Rdna3 => constants.bandwidth_cdna,
    };
    family * own_factor(constants, setup)
}

/// The share that products reach on a family of chips, against Hopper.
fn matmul_of_family(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    let family = match setup.chip.architecture {
        Architecture::Volta | Architecture::Turing | Architecture::Ampere => {
            constants.matmul_ampere
        }
        Architecture::Ada => constants.matmul_ada,
        Architecture::Hopper => 1.0,
        Architecture::Blackwell => constants.matmul_blackwell,
        Architecture::Cdna3 | Architecture::Cdna4 | Architecture::Rdna3 => constants.matmul_cdna,
    };
    family * own_factor(constants, setup)
}

fn own_factor(constants: &InferenceConstants, setup: &Setup<'_>) -> f64 {
    match setup.chip.fitted_factor {
        Some(FittedFactor::Gh200) => constants.gh200_factor,
        _ => 1.0,
    }
}

/// The rate of an all-reduce (bytes per second), and its latency per doubling (seconds).
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
    let contention = pow(4.0 / setup.tensor, constants.pcie_contention_exponent).min(1.0);
    (rate * contention, constants.pcie_latency_us * 1e-6)
}
