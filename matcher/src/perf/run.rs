//! How a training run is best laid out on some nodes, and how long it then takes.
//!
//! [`super::step_time`] predicts all layouts of a small set, and the fastest one that fits in memory is kept.
//! The set: tensor parallel inside an NVLink domain of a node, pipelines of up to sixteen stages where RDMA
//! connects the nodes, state fully sharded (without a pipeline) or the optimiser's alone, experts spread over
//! a node or not, micro batches of up to sixteen sequences, activations kept or computed again.

mod counts;
mod layouts;

#[cfg(test)]
pub(crate) mod tests;

use market::demand::{Precision, TrainMethod};
use market::fabric::Internode;
use market::gpu::GpuSpec;

use super::chip::{Chip, Product};
use super::constants::Constants;
use super::goodput::Interruptions;
use super::memory::{TRAINING_FRACTION, TrainingMemory, checkpoint_bytes, frozen_weight_bytes};
use super::step_time::{Cluster, Job, Layout, Recompute, Release, Stack, StepTime, step_time};
use crate::hardware::tensor_domain_gpus;
use crate::models::ModelFigures;

pub use counts::Counts;

/// Tokens of one optimiser step where the demand does not state them: usual for runs of every size.
pub const USUAL_STEP_TOKENS: f64 = 4_194_304.0;

/// The assumed write rate of a run's storage, at any size. A checkpoint blocks the run while it is written.
/// Units: bytes per second.
pub const STORAGE_BYTES_PER_SECOND: f64 = 10e9;

/// The assumed time of a run from a failure to its next useful step. Units: seconds.
pub const RESTART_SECONDS: f64 = 600.0;

/// The assumed rate of one node's plain Ethernet: 100 Gb/s by TCP. Units: bytes per second.
const ETHERNET_BYTES_PER_SECOND: f64 = 7e9;

/// The assumed rate per GPU of a provider's own RDMA fabric without a published rate: that of the oldest such
/// fabric. Units: bytes per second.
const PROPRIETARY_BYTES_PER_SECOND_GPU: f64 = 6.25e9;

/// A run, independent of its hardware.
#[derive(Debug, Clone, PartialEq)]
pub struct RunWork {
    /// The model.
    pub model: ModelFigures,
    /// The trained part of it.
    pub method: TrainMethod,
    /// The precision of the products.
    pub precision: Precision,
    /// Tokens of a sequence.
    pub sequence_length: u32,
    /// Sequences of an optimiser step; `None` for the usual number.
    pub step_sequences: Option<u32>,
    /// Tokens of the run.
    pub tokens: u64,
    /// The interval between checkpoints, where the demand fixes it. Units: seconds.
    pub checkpoint_interval_seconds: Option<f64>,
    /// The size of a checkpoint, where the demand fixes it. Units: bytes.
    pub checkpoint_bytes: Option<f64>,
}

/// Nodes of one kind in one fabric.
#[derive(Debug, Clone, PartialEq)]
pub struct RunNodes {
    /// Their GPUs.
    pub chip: Chip,
    /// GPUs of each.
    pub gpus_per_node: u32,
    /// Memory of each GPU, as the catalogue has it. Units: bytes.
    pub memory_bytes: f64,
    /// GPUs of one NVLink domain, which may share a matrix; one where they are not connected all to all.
    pub tensor_domain_gpus: u32,
    /// Whether stages may be on different nodes. The traffic between them is not modelled, so this needs
    /// RDMA, where it is small.
    pub pipelines: bool,
    /// The rate of a node's network cards in one direction. Units: bytes per second.
    pub net_bytes_per_second: f64,
}

/// A run in its best layout on some nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// GPUs over all nodes.
    pub gpus: u32,
    /// The layout.
    pub layout: Layout,
    /// Sequences of a micro batch.
    pub micro_batch: f64,
    /// Whether activations are computed again.
    pub recompute: Recompute,
    /// One step.
    pub step: StepTime,
    /// Memory of each GPU in this layout. Units: bytes.
    pub bytes_per_gpu: f64,
    /// Tokens trained per second by all GPUs while nothing fails.
    pub tokens_per_second: f64,
    /// The share of the time that failures and checkpoints leave.
    pub goodput: f64,
    /// The interval between checkpoints. Units: seconds.
    pub checkpoint_interval_seconds: f64,
    /// The size of one. Units: bytes.
    pub checkpoint_bytes: f64,
    /// Hours of the run, failures included.
    pub hours: f64,
}

/// The peak that a run in this precision is measured against. Units: TFLOPS.
#[must_use]
pub fn peak_tflops(spec: &GpuSpec, precision: Precision) -> Option<f64> {
    match precision {
        Precision::Bf16 => spec.bf16_tflops_dense,
        Precision::Fp16 => spec.fp16_tflops_dense,
        Precision::Fp8 => spec.fp8_tflops_dense,
        _ => None,
    }
}

/// The most GPUs that share one sequence: a divisor of the GPUs of a node, of the GPUs of a domain in it
/// ([`RunNodes::tensor_domain_gpus`]) and of the model's heads.
#[must_use]
pub fn widest_tensor_group(model: &ModelFigures, gpus_per_node: u32, domain_gpus: u32) -> u32 {
    let all = [gpus_per_node, domain_gpus, model.heads];
    let splits = |by: &u32| all.iter().all(|whole| whole.is_multiple_of(*by));
    (1..=domain_gpus).rev().find(splits).unwrap_or(1)
}

/// The assumed rate of a node's network cards in one direction. Units: bytes per second.
pub(crate) fn net_bytes_per_second(internode: Internode, gpus_per_node: u32) -> f64 {
    let gpus = f64::from(gpus_per_node);
    match (internode.gbps_per_gpu(), internode) {
        (Some(gigabits), _) => f64::from(gigabits) * 1e9 / 8.0 * gpus,
        (None, Internode::Proprietary) => PROPRIETARY_BYTES_PER_SECOND_GPU * gpus,
        (None, _) => ETHERNET_BYTES_PER_SECOND,
    }
}

impl RunNodes {
    /// Nodes of this kind; `None` where no rate is published.
    #[must_use]
    pub fn new(spec: &GpuSpec, gpus_per_node: u32, internode: Internode) -> Option<Self> {
        Some(Self {
            chip: Chip::of_spec(spec)?,
            gpus_per_node,
            memory_bytes: spec.memory_gb * 1e9,
            tensor_domain_gpus: tensor_domain_gpus(spec, gpus_per_node),
            pipelines: internode.is_rdma(),
            net_bytes_per_second: net_bytes_per_second(internode, gpus_per_node),
        })
    }

    /// Memory of each GPU that a run may fill. Units: bytes.
    fn room_bytes(&self) -> f64 {
        self.memory_bytes * TRAINING_FRACTION
    }

    fn cluster(&self, gpus: u32) -> Cluster<'_> {
        Cluster {
            chip: &self.chip,
            gpus: f64::from(gpus),
            domain_gpus: f64::from(self.gpus_per_node),
            net_bytes_per_second: self.net_bytes_per_second,
        }
    }
}

impl RunWork {
    /// The least memory in which the run can be laid out on nodes with so many GPUs and domains of so many
    /// GPUs.
    #[must_use]
    pub fn least_memory(&self, gpus_per_node: u32, domain_gpus: u32) -> TrainingMemory {
        let together = widest_tensor_group(&self.model, gpus_per_node, domain_gpus);
        TrainingMemory::of(&self.model, self.method, self.sequence_length, together)
    }

    /// The run in its fastest layout that fits on so many nodes; `None` where none fits.
    #[must_use]
    pub fn best_on(&self, constants: &Constants, nodes: &RunNodes, count: u32) -> Option<Run> {
        let gpus = nodes.gpus_per_node.checked_mul(count)?;
        let room = nodes.room_bytes();
        let mut best: Option<Run> = None;
        for choice in layouts::choices(self, nodes, gpus) {
            if choice.bytes_per_gpu > room {
                continue;
            }
            let run = self.run_of(constants, nodes, gpus, &choice);
            let faster = |best: &Run| run.tokens_per_second > best.tokens_per_second;
            if best.as_ref().is_none_or(faster) {
                best = Some(run);
            }
        }
        best
    }

    /// The run in one layout, whether it fits or not.
    fn run_of(
        &self,
        constants: &Constants,
        nodes: &RunNodes,
        gpus: u32,
        choice: &layouts::Choice,
    ) -> Run {
        let step = self.step(constants, nodes, gpus, choice);
        let rate =
            self.step_sequences(choice, gpus) * f64::from(self.sequence_length) / step.seconds;
        self.run(gpus, rate, choice, step)
    }

    fn step(
        &self,
        constants: &Constants,
        nodes: &RunNodes,
        gpus: u32,
        choice: &layouts::Choice,
    ) -> StepTime {
        let (cluster, job) = (nodes.cluster(gpus), self.job(choice));
        step_time(&constants.training, &cluster, &job, &choice.layout)
    }

    /// Tokens of one optimiser step.
    #[must_use]
    pub fn tokens_of_a_step(&self) -> f64 {
        self.wanted_sequences() * f64::from(self.sequence_length)
    }

    /// Sequences that one optimiser step really uses.
    fn step_sequences(&self, choice: &layouts::Choice, gpus: u32) -> f64 {
        let copies = choice.layout.copies(f64::from(gpus));
        let computed = copies * choice.micro_batch * choice.layout.micro_batches;
        computed.min(self.wanted_sequences())
    }

    fn wanted_sequences(&self) -> f64 {
        let usual = (USUAL_STEP_TOKENS / f64::from(self.sequence_length)).round();
        self.step_sequences.map_or(usual, f64::from).max(1.0)
    }

    fn job(&self, choice: &layouts::Choice) -> Job<'_> {
        Job {
            model: &self.model,
            sequence_tokens: f64::from(self.sequence_length),
            micro_batch: choice.micro_batch,
            product: match self.precision {
                Precision::Fp8 => Product::Fp8,
                _ => Product::Bf16,
            },
            recompute: choice.recompute,
            // Frozen weights need no gradients of their own.
            flop_per_param: match self.method {
                TrainMethod::Full => 6.0,
                TrainMethod::Lora | TrainMethod::Qlora => 4.0,
            },
            frozen_weight_bytes: frozen_weight_bytes(self.method),
            // The tenant's software is unknown, so the prediction assumes that it is good.
            stack: Stack::Megatron,
            release: Release::Recent,
        }
    }

    /// The size of a checkpoint: as in the demand, else the state that the run resumes from. Units: bytes.
    fn checkpoint_bytes(&self) -> f64 {
        let state = || checkpoint_bytes(&self.model, self.method);
        self.checkpoint_bytes.unwrap_or_else(state)
    }

    /// The interval between checkpoints on so many GPUs (seconds), and the share of the time that remains
    /// after failures and checkpoints.
    fn goodput(&self, gpus: u32) -> (f64, f64) {
        let failures = interruptions(gpus, self.checkpoint_bytes());
        let interval = self
            .checkpoint_interval_seconds
            .unwrap_or_else(|| failures.best_interval_seconds());
        (interval, failures.goodput(interval))
    }

    fn run(&self, gpus: u32, rate: f64, choice: &layouts::Choice, step: StepTime) -> Run {
        let (interval, goodput) = self.goodput(gpus);
        Run {
            gpus,
            layout: choice.layout,
            micro_batch: choice.micro_batch,
            recompute: choice.recompute,
            step,
            bytes_per_gpu: choice.bytes_per_gpu,
            tokens_per_second: rate,
            goodput,
            checkpoint_interval_seconds: interval,
            checkpoint_bytes: self.checkpoint_bytes(),
            hours: self.tokens as f64 / (rate * goodput) / 3_600.0,
        }
    }
}

fn interruptions(gpus: u32, checkpoint_bytes: f64) -> Interruptions {
    let checkpoint_seconds = checkpoint_bytes / STORAGE_BYTES_PER_SECOND;
    Interruptions::of_gpus(f64::from(gpus), checkpoint_seconds, RESTART_SECONDS)
}

impl Run {
    /// Its interruptions and its recovery.
    #[must_use]
    pub fn interruptions(&self) -> Interruptions {
        interruptions(self.gpus, self.checkpoint_bytes)
    }

    /// Hours for so many tokens, failures included.
    #[must_use]
    pub fn hours_of(&self, tokens: f64) -> f64 {
        tokens / (self.tokens_per_second * self.goodput) / 3_600.0
    }

    /// The run on software that is faster by this factor. The step stays as predicted, since its shares are
    /// the same at every speed.
    #[must_use]
    pub fn at_speed(self, factor: f64) -> Self {
        Self {
            tokens_per_second: self.tokens_per_second * factor,
            hours: self.hours / factor,
            ..self
        }
    }

    /// GPU-hours of the run, failures included.
    #[must_use]
    pub fn gpu_hours(&self) -> f64 {
        self.hours * f64::from(self.gpus)
    }

    /// The same as it is paid for: whole GPU-seconds, the last one begun. No sum holds one that never
    /// ends, which is the largest.
    #[must_use]
    pub fn gpu_seconds(&self) -> i64 {
        // The cast stops at the largest integer.
        (self.gpu_hours() * 3_600.0).ceil() as i64
    }

    /// The part of the peak that the model's own work uses.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        // Sequences that the last micro batches lack are no work of the model.
        let computed = self.step.tokens / self.step.seconds;
        self.step.utilisation() * self.tokens_per_second / computed
    }
}
