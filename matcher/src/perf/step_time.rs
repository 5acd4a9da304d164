//! How long one optimiser step of a training run takes, in closed form.
//!
//! The step has these parts: the work of one micro batch on one GPU, its waiting time within its stage
//! (`traffic`), the pipeline around it, the data-parallel traffic that does not overlap, and the optimiser.
//! Sources: Kaplan et al. 2020 (work per token), Narayanan et al. 2021 (pipelines), Korthikanti et
//! al. 2022 (recomputation), Rajbhandari et al. 2020 (sharded state), Patarasuk & Yuan 2009
//! (rings). Point-to-point traffic between stages and stalls of storage are not modelled.

mod traffic;

#[cfg(test)]
mod tests;

use market::math::{log2, pow};

use super::chip::{Architecture, Chip, FittedFactor, Product};
use super::constants::TrainingConstants;
use crate::models::ModelFigures;

/// Heads of latent attention cost as much as heads of this width. Source: DeepSeek-V2 (2024).
const LATENT_HEAD_WIDTH: f64 = 160.0;

/// Memory traffic of Adam for each parameter: states, gradient and weight, read and written.
/// Units: bytes.
const OPTIMISER_BYTES: f64 = 28.0;

/// Share of the memory bandwidth at which the optimiser streams.
const OPTIMISER_BANDWIDTH_SHARE: f64 = 0.7;

/// The part of the launch time that work never hides.
const LAUNCH_EXPOSED: f64 = 0.15;

/// The machines of a run.
#[derive(Debug, Clone, Copy)]
pub struct Cluster<'a> {
    /// Their GPUs.
    pub chip: &'a Chip,
    /// GPUs over all nodes.
    pub gpus: f64,
    /// GPUs of one scale-up domain.
    pub domain_gpus: f64,
    /// The rate of one domain's network cards in one direction. Units: bytes per second.
    pub net_bytes_per_second: f64,
}

/// Which activations are computed again in the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recompute {
    /// None.
    None,
    /// Those of attention.
    Selective,
    /// All.
    Full,
}

/// The training software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// Megatron and NeMo: the one that all others are compared with.
    Megatron,
    /// Megatron with DeepSpeed.
    MegatronDeepSpeed,
    /// PyTorch FSDP.
    PytorchFsdp,
    /// torchtitan.
    Torchtitan,
    /// InternEvo.
    InternEvo,
    /// DeepSpeed, and software built on it.
    DeepSpeed,
}

/// How old the training software is, where its speed changed with its releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// NeMo before 26.06.
    Earlier,
    /// NeMo 26.06 and later.
    Recent,
}

/// How state is spread over the data-parallel GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Weights, gradients and optimiser (ZeRO-3, FSDP).
    FullShard,
    /// Gradients and optimiser; weights are gathered once a micro batch (ZeRO-2).
    GradientShard,
    /// All three within a node, replicas between nodes.
    HybridShard,
    /// The optimiser, within a node.
    OptimiserInNode,
    /// The optimiser (ZeRO-1).
    OptimiserShard,
    /// Nothing: a full replica on each GPU.
    Replicated,
    /// Adapters over a whole copy of frozen weights, which exchange next to nothing.
    Adapters,
    /// Adapters over frozen weights that the GPUs of a node share.
    FrozenInNode,
    /// Adapters over frozen weights that all GPUs share.
    FrozenShard,
}

/// The training job, one micro batch at a time.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The model.
    pub model: &'a ModelFigures,
    /// Tokens of a sequence.
    pub sequence_tokens: f64,
    /// Sequences of a micro batch.
    pub micro_batch: f64,
    /// The format of the products.
    pub product: Product,
    /// The recomputed activations.
    pub recompute: Recompute,
    /// Operations for each parameter and token: 6, or 4 where most weights are frozen.
    pub flop_per_param: f64,
    /// A frozen weight as GPUs that share it gather it. Units: bytes.
    pub frozen_weight_bytes: f64,
    /// The software.
    pub stack: Stack,
    /// How old it is.
    pub release: Release,
}

/// How a run is laid out over its GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// GPUs that share each matrix.
    pub tensor: f64,
    /// Stages that share the layers.
    pub pipeline: f64,
    /// Pieces of each stage, interleaved.
    pub chunks: f64,
    /// GPUs that share each sequence.
    pub context: f64,
    /// GPUs that share the experts of a layer.
    pub expert: f64,
    /// How state is spread.
    pub strategy: Strategy,
    /// Micro batches of one step on each pipeline.
    pub micro_batches: f64,
}

/// One optimiser step, and where its time goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTime {
    /// Units: seconds.
    pub seconds: f64,
    /// Tokens of all GPUs.
    pub tokens: f64,
    /// Seconds of data-parallel traffic that do not hide behind work.
    pub exposed_seconds: f64,
    /// Seconds of tensor- and expert-parallel traffic that do not.
    pub inner_exposed_seconds: f64,
    /// Seconds in which a stage waits for the pipeline to fill and drain.
    pub bubble_seconds: f64,
    gpus: f64,
    flop_per_token: f64,
    peak_flops: f64,
}

impl StepTime {
    /// Tokens per second on each GPU.
    #[must_use]
    pub fn tokens_per_second_gpu(&self) -> f64 {
        self.tokens / self.seconds / self.gpus
    }

    /// Model FLOP utilisation: the model's own work against the peak of the format.
    ///
    /// Recomputation is not counted as work, frozen weights are not either.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.flop_per_token * self.tokens_per_second_gpu() / self.peak_flops
    }

    /// Share of the step that is communication which work does not hide.
    #[must_use]
    pub fn exposed_share(&self) -> f64 {
        (self.exposed_seconds + self.inner_exposed_seconds) / self.seconds
    }
}

impl Layout {
    /// Replicas of the model.
    #[must_use]
    pub fn copies(&self, gpus: f64) -> f64 {
        (gpus / (self.tensor * self.pipeline * self.context)).max(1.0)
    }

    /// GPUs that share one replica's matrices and layers.
    fn shards(&self) -> f64 {
        self.tensor * self.pipeline
    }
}

impl Job<'_> {
    fn tokens_of_micro_batch(&self, layout: &Layout) -> f64 {
        self.micro_batch * self.sequence_tokens / layout.context
    }

    /// Parameters that one token is multiplied with.
    fn params_multiplied(&self) -> f64 {
        self.model.params_active - self.model.embedding_params
    }

    /// The parameters of the experts that receive it; all of them for a mixture with unknown experts.
    fn params_of_chosen_experts(&self) -> f64 {
        match (self.model.is_mixture(), self.model.experts) {
            (true, Some(experts)) => {
                experts.params * f64::from(experts.per_token) / f64::from(experts.per_layer)
            }
            (true, None) => self.params_multiplied(),
            (false, _) => 0.0,
        }
    }

    /// How many copies of a token its experts receive.
    fn routed_copies(&self) -> f64 {
        match (self.model.is_mixture(), self.model.experts) {
            (true, Some(experts)) => f64::from(experts.per_token),
            _ => 1.0,
        }
    }

    /// Forward passes that recomputation adds.
    fn extra_passes(&self, constants: &TrainingConstants) -> f64 {
        match (self.recompute, self.stack) {
            (Recompute::None, _) => 0.0,
            (Recompute::Full, _) => 1.0,
            (Recompute::Selective, Stack::Megatron | Stack::MegatronDeepSpeed) => 0.05,
            (Recompute::Selective, _) => constants.selective_recompute,
        }
    }

    /// The part of the backward pass that remains with frozen weights.
    fn trained_share(&self) -> f64 {
        self.flop_per_param.min(6.0) / 6.0
    }

    /// Tokens that attention looks at, averaged over layers; a window is seen from both its ends.
    fn attended_tokens(&self) -> f64 {
        let all = self.sequence_tokens;
        self.model.sliding.map_or(all, |sliding| {
            let near = all.min(2.0 * f64::from(sliding.window));
            all + sliding.layer_fraction * (near - all)
        })
    }

    fn attention_width(&self) -> f64 {
        let head = if self.model.latent_attention {
            LATENT_HEAD_WIDTH
        } else {
            f64::from(self.model.head_dim)
        };
        f64::from(self.model.heads) * head
    }
}

/// Predicts one optimiser step.
///
/// A layout that does not fit in memory is predicted all the same: whether it fits is
/// [`super::memory`]'s question, to be asked first.
#[must_use]
pub fn step_time(
    constants: &TrainingConstants,
    cluster: &Cluster<'_>,
    job: &Job<'_>,
    layout: &Layout,
) -> StepTime {
    let work = micro_batch_seconds(constants, cluster.chip, job, layout)
        + weight_traffic_seconds(constants, cluster, job, layout);
    let inner = traffic::within_stage_seconds(constants, cluster, job, layout);
    let per_micro_batch = (work + inner)
        * (1.0 + constants.context_overhead * (layout.context - 1.0) / layout.context);
    let all = layout.micro_batches * per_micro_batch;
    let bubble_seconds = all * (layout.pipeline - 1.0) / (layout.chunks * layout.micro_batches);
    let passes = all + bubble_seconds;
    let sync = traffic::between_copies(constants, cluster, job, layout);
    let exposed_seconds = exposed(constants, sync, passes, layout);
    let domains = (cluster.gpus / cluster.domain_gpus).max(1.0);
    let jitter = 1.0 + constants.jitter_per_doubling * log2(domains + 1.0);
    let copies = layout.copies(cluster.gpus);
    StepTime {
        seconds: (passes + exposed_seconds) * jitter
            + optimiser_seconds(cluster, job, layout)
            + overhead_ms(constants, job, layout) * 1e-3,
        tokens: copies * job.micro_batch * job.sequence_tokens * layout.micro_batches,
        exposed_seconds,
        inner_exposed_seconds: layout.micro_batches * inner,
        bubble_seconds,
        gpus: cluster.gpus,
        flop_per_token: job.flop_per_param * job.model.params_active,
        peak_flops: cluster.chip.peak_flops(job.product),
    }
}

/// Forward and backward pass of one micro batch on one GPU, without communication.
fn micro_batch_seconds(
    constants: &TrainingConstants,
    chip: &Chip,
    job: &Job<'_>,
    layout: &Layout,
) -> f64 {
    let tokens = job.tokens_of_micro_batch(layout);
    let extra = job.extra_passes(constants);
    let layers = f64::from(job.model.layers) / layout.pipeline;
    let limited = match chip.fitted_factor {
        Some(FittedFactor::PowerLimited) => constants.power_limited_factor,
        _ => 1.0,
    };
    let in_experts = job.params_of_chosen_experts();
    let rate = matmul_flops(constants, chip, job);
    let seconds_per_flop = (job.params_multiplied() - in_experts)
        / (rate * dense_share(constants, job))
        + in_experts / (rate * expert_share(constants, job));
    let matmul = tokens * (job.flop_per_param + 2.0 * extra) * seconds_per_flop / layout.shards();
    // Causal: half of all pairs forward, two and a half times that backward.
    let attention_flop = (3.5 + extra)
        * 2.0
        * job.attended_tokens()
        * job.attention_width()
        * f64::from(job.model.layers);
    let attention_rate =
        chip.bf16_flops * attention_share(constants, chip.architecture, job.stack) * limited;
    let attention = tokens * attention_flop / layout.shards() / attention_rate;
    let elementwise = tokens * layers * elementwise_bytes(constants, job, extra)
        / pow(layout.tensor, 0.7)
        / chip.memory_bytes_per_second;
    let launch = layers * constants.layer_launch_us * 1e-6;
    (matmul + attention + elementwise).max(launch) + LAUNCH_EXPOSED * launch
}

/// The rate of the products of a full step. Units: FLOP/s.
fn matmul_flops(constants: &TrainingConstants, chip: &Chip, job: &Job<'_>) -> f64 {
    let sustained = match chip.architecture {
        Architecture::Ampere => constants.sustained_ampere,
        Architecture::Hopper => constants.sustained_hopper,
        Architecture::Blackwell => constants.sustained_blackwell,
        Architecture::Cdna3 | Architecture::Cdna4 => constants.sustained_cdna,
        _ => constants.sustained_other,
    };
    let stack = match job.stack {
        Stack::Megatron => 1.0,
        Stack::PytorchFsdp => constants.stack_pytorch,
        Stack::Torchtitan => constants.stack_torchtitan,
        Stack::InternEvo => constants.stack_internevo,
        Stack::DeepSpeed | Stack::MegatronDeepSpeed => constants.stack_deepspeed,
    };
    let own = match chip.fitted_factor {
        Some(FittedFactor::Gb300) => constants.gb300_factor,
        Some(FittedFactor::B300) => constants.b300_factor,
        Some(FittedFactor::PowerLimited) => constants.power_limited_factor,
        Some(FittedFactor::Gh200) | None => 1.0,
    };
    chip.matmul_flops(job.product, constants.fp4_share) * sustained * stack * own
}

/// The rate of a mixture's dense products against a dense model's.
fn dense_share(constants: &TrainingConstants, job: &Job<'_>) -> f64 {
    match (job.model.is_mixture(), job.stack) {
        (false, _) => 1.0,
        (true, Stack::Megatron) => constants.mixture_dense_matmul,
        (true, _) => constants.mixture_dense_matmul * constants.ungrouped_experts,
    }
}

/// The rate of the products of its experts, which is lower for narrow experts.
fn expert_share(constants: &TrainingConstants, job: &Job<'_>) -> f64 {
    let width = job
        .model
        .experts
        .map_or(f64::INFINITY, |experts| f64::from(experts.width));
    let grouped = match (job.stack, job.release) {
        (Stack::Megatron, Release::Recent) => constants.recent_experts,
        (Stack::Megatron, Release::Earlier) => 1.0,
        _ => constants.ungrouped_experts,
    };
    constants.expert_matmul * grouped / (1.0 + constants.expert_half_width / width)
}

fn attention_share(constants: &TrainingConstants, architecture: Architecture, stack: Stack) -> f64 {
    match (architecture, stack) {
        (Architecture::Hopper, Stack::Megatron) => constants.attention_hopper,
        (Architecture::Hopper, _) => constants.attention_hopper_older_kernels,
        (Architecture::Blackwell, _) => constants.attention_blackwell,
        _ => constants.attention_ampere,
    }
}

/// Reads the held weights and adds to their gradients, once a micro batch.
fn weight_traffic_seconds(
    constants: &TrainingConstants,
    cluster: &Cluster<'_>,
    job: &Job<'_>,
    layout: &Layout,
) -> f64 {
    let held = traffic::params_on_gpu(cluster, job, layout);
    held * constants.weight_bytes_per_pass * job.trained_share()
        / cluster.chip.memory_bytes_per_second
}

fn overhead_ms(constants: &TrainingConstants, job: &Job<'_>, layout: &Layout) -> f64 {
    match (layout.strategy, job.stack) {
        (Strategy::Adapters | Strategy::FrozenInNode | Strategy::FrozenShard, _) => {
            constants.step_overhead_adapters_ms
        }
        (_, Stack::Megatron) => constants.step_overhead_ms,
        _ => constants.step_overhead_other_ms,
    }
}

/// Bytes of norms, activations, residuals and casts for one token and layer.
fn elementwise_bytes(constants: &TrainingConstants, job: &Job<'_>, extra_passes: f64) -> f64 {
    let casts = match job.product {
        Product::Bf16 => 0.0,
        Product::Fp8 | Product::Fp4 => constants.cast_bytes_per_unit,
    };
    let width = f64::from(job.model.hidden) * (1.0 + 0.5 * (job.routed_copies() - 1.0));
    let per_unit = constants.elementwise_bytes_per_unit + casts;
    width * per_unit * (1.0 + extra_passes / 3.0) * job.trained_share()
}

/// The data-parallel traffic that does not overlap with work: a smooth maximum, which hides short traffic
/// fully and adds traffic that dominates.
fn exposed(constants: &TrainingConstants, sync_seconds: f64, passes: f64, layout: &Layout) -> f64 {
    let window = match layout.strategy {
        Strategy::FullShard
        | Strategy::GradientShard
        | Strategy::HybridShard
        | Strategy::Adapters
        | Strategy::FrozenInNode
        | Strategy::FrozenShard => passes,
        Strategy::OptimiserInNode => passes / layout.micro_batches,
        Strategy::OptimiserShard | Strategy::Replicated => {
            passes / layout.micro_batches * layout.micro_batches.min(1.5)
        }
    };
    let power = 1.0 + constants.overlap_exponent;
    // (window^p + sync^p)^(1/p) - window, with the window taken out.
    let both = 1.0 + pow(sync_seconds / window, power);
    window * (pow(both, power.recip()) - 1.0)
}

fn optimiser_seconds(cluster: &Cluster<'_>, job: &Job<'_>, layout: &Layout) -> f64 {
    let holders = match layout.strategy {
        Strategy::Adapters | Strategy::FrozenInNode | Strategy::FrozenShard => return 0.0,
        Strategy::Replicated => layout.shards(),
        _ => cluster.gpus,
    };
    let bandwidth = OPTIMISER_BANDWIDTH_SHARE * cluster.chip.memory_bytes_per_second;
    OPTIMISER_BYTES * job.model.params_total / holders / bandwidth
}
