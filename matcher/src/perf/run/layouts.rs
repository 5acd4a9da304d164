//! The layouts that a run is tried in, each with the memory that it takes on a GPU.

use market::demand::TrainMethod;

use super::{RunNodes, RunWork, widest_tensor_group};
use crate::perf::memory::{
    OPTIMISER_STATE_BYTES, RUNTIME_BYTES, WEIGHT_AND_GRADIENT_BYTES, state_bytes_per_param,
};
use crate::perf::step_time::{Layout, Recompute, Strategy};

/// Stages that a pipeline is tried with.
const PIPELINES: [u32; 5] = [1, 2, 4, 8, 16];

/// Sequences that a micro batch is tried with.
const MICRO_BATCHES: [u32; 5] = [1, 2, 4, 8, 16];

/// Bytes of activations that one token leaves in a layer for each hidden unit, with attention that
/// keeps no scores. Source: Korthikanti et al. 2022.
const KEPT_BYTES: f64 = 34.0;

/// The same where only the input of the layer is kept.
const INPUT_BYTES: f64 = 2.0;

/// One way to lay a run out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub(super) layout: Layout,
    pub(super) micro_batch: f64,
    pub(super) recompute: Recompute,
    pub(super) bytes_per_gpu: f64,
}

/// All ways to lay a run out on so many GPUs, whether they fit or not.
pub(super) fn choices<'a>(
    work: &'a RunWork,
    nodes: &'a RunNodes,
    gpus: u32,
) -> impl Iterator<Item = Choice> + use<'a> {
    ways(work, nodes).filter_map(move |way| way.on(work, nodes, gpus))
}

/// All ways to lay a run out on any number of nodes, in the order in which equals are taken.
pub(super) fn ways<'a>(
    work: &'a RunWork,
    nodes: &'a RunNodes,
) -> impl Iterator<Item = Way> + use<'a> {
    splits(work, nodes).flat_map(|split| {
        MICRO_BATCHES.into_iter().flat_map(move |sequences| {
            [Recompute::None, Recompute::Full].map(|recompute| Way {
                split,
                sequences,
                recompute,
            })
        })
    })
}

/// One way to lay a run out, on any number of GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    split: Split,
    sequences: u32,
    recompute: Recompute,
}

impl Way {
    /// The layout on so many GPUs; `None` where they cannot be split in this way.
    pub(super) fn on(self, work: &RunWork, nodes: &RunNodes, gpus: u32) -> Option<Choice> {
        let shared = gpus.is_multiple_of(self.copy_gpus()) && !self.is_past(work, gpus);
        shared.then(|| {
            let micro_batches = self.micro_batches(work, gpus).ceil();
            self.cut(work, nodes, gpus, micro_batches)
        })
    }

    /// The same with a batch that divides without a remainder, into any part of a micro batch: no whole
    /// number of micro batches takes less time or less memory.
    pub(super) fn without_rest(self, work: &RunWork, nodes: &RunNodes, gpus: u32) -> Choice {
        self.cut(work, nodes, gpus, self.micro_batches(work, gpus))
    }

    /// Memory of each of so many GPUs. More GPUs never increase it. Units: bytes.
    pub(super) fn bytes_per_gpu(self, work: &RunWork, nodes: &RunNodes, gpus: u32) -> f64 {
        let micro_batches = self.micro_batches(work, gpus).ceil();
        self.cut(work, nodes, gpus, micro_batches).bytes_per_gpu
    }

    /// Whether a step has too few sequences for so many GPUs, and for any more.
    pub(super) fn is_past(self, work: &RunWork, gpus: u32) -> bool {
        let sequences = f64::from(gpus / self.copy_gpus()) * f64::from(self.sequences);
        self.sequences > 1 && sequences > work.wanted_sequences()
    }

    fn copy_gpus(self) -> u32 {
        self.split.tensor * self.split.pipeline
    }

    fn micro_batches(self, work: &RunWork, gpus: u32) -> f64 {
        let copies = (f64::from(gpus) / f64::from(self.copy_gpus())).max(1.0);
        work.wanted_sequences() / (copies * f64::from(self.sequences))
    }

    fn cut(self, work: &RunWork, nodes: &RunNodes, gpus: u32, micro_batches: f64) -> Choice {
        let (split, micro_batch) = (self.split, f64::from(self.sequences));
        let layout = Layout {
            tensor: f64::from(split.tensor),
            pipeline: f64::from(split.pipeline),
            chunks: 1.0,
            context: 1.0,
            expert: f64::from(split.expert),
            strategy: split.strategy,
            micro_batches,
        };
        Choice {
            layout,
            micro_batch,
            recompute: self.recompute,
            bytes_per_gpu: state_bytes(work, nodes, gpus, &layout)
                + activation_bytes(work, &layout, micro_batch, self.recompute)
                + RUNTIME_BYTES,
        }
    }
}

/// How GPUs share the model, before the batch is cut.
#[derive(Debug, Clone, Copy)]
struct Split {
    strategy: Strategy,
    tensor: u32,
    pipeline: u32,
    expert: u32,
}

fn splits<'a>(work: &'a RunWork, nodes: &'a RunNodes) -> impl Iterator<Item = Split> + use<'a> {
    let model = &work.model;
    let widest = widest_tensor_group(model, nodes.gpus_per_node, nodes.tensor_domain_gpus);
    let tensors = (1..=widest).filter(move |tensor| widest.is_multiple_of(*tensor));
    let strategies = strategies(work, nodes);
    tensors.flat_map(move |tensor| {
        strategies.iter().flat_map(move |strategy| {
            let pipelines = PIPELINES.into_iter().filter(move |pipeline| {
                *pipeline == 1
                    || (nodes.pipelines
                        && *strategy == Strategy::OptimiserShard
                        && model.layers.is_multiple_of(*pipeline))
            });
            pipelines.flat_map(move |pipeline| {
                experts(work, nodes, tensor)
                    .into_iter()
                    .flatten()
                    .map(move |expert| Split {
                        strategy: *strategy,
                        tensor,
                        pipeline,
                        expert,
                    })
            })
        })
    })
}

/// How state may be spread. Frozen weights leave a node only where none holds them.
fn strategies(work: &RunWork, nodes: &RunNodes) -> &'static [Strategy] {
    let in_node = || {
        let memory = work.least_memory(nodes.gpus_per_node, nodes.tensor_domain_gpus);
        let room = nodes.room_bytes() * f64::from(nodes.gpus_per_node);
        memory.total_bytes(nodes.gpus_per_node) <= room
    };
    match work.method {
        TrainMethod::Full => &[Strategy::FullShard, Strategy::OptimiserShard],
        TrainMethod::Lora | TrainMethod::Qlora if in_node() => {
            &[Strategy::Adapters, Strategy::FrozenInNode]
        }
        TrainMethod::Lora | TrainMethod::Qlora => &[Strategy::FrozenShard],
    }
}

/// Experts all on each GPU, or spread over the GPUs of a node that hold different sequences.
fn experts(work: &RunWork, nodes: &RunNodes, tensor: u32) -> [Option<u32>; 2] {
    let spread = nodes.gpus_per_node / tensor;
    let divides = work
        .model
        .experts
        .is_some_and(|experts| spread > 1 && experts.per_layer.is_multiple_of(spread));
    [Some(1), divides.then_some(spread)]
}

/// Weights, gradients and optimiser on one GPU. Source: Rajbhandari et al. 2020 (ZeRO).
fn state_bytes(work: &RunWork, nodes: &RunNodes, gpus: u32, layout: &Layout) -> f64 {
    let model = &work.model;
    let gpus = f64::from(gpus);
    let all = model.params_total * state_bytes_per_param(work.method);
    let held = || {
        let experts = model.experts.map_or(0.0, |experts| experts.params);
        (model.params_total - experts + experts / layout.expert) / (layout.tensor * layout.pipeline)
    };
    match layout.strategy {
        Strategy::OptimiserShard => {
            WEIGHT_AND_GRADIENT_BYTES * held() + OPTIMISER_STATE_BYTES * model.params_total / gpus
        }
        Strategy::Adapters => state_bytes_per_param(work.method) * held(),
        Strategy::FrozenInNode => all / gpus.min(f64::from(nodes.gpus_per_node)),
        _ => all / gpus,
    }
}

/// Activations of the micro batches in flight: as many as there are stages, or as a step has.
fn activation_bytes(
    work: &RunWork,
    layout: &Layout,
    micro_batch: f64,
    recompute: Recompute,
) -> f64 {
    let units = micro_batch * f64::from(work.sequence_length) * f64::from(work.model.hidden)
        / layout.tensor;
    let in_flight = layout.pipeline.min(layout.micro_batches);
    let layers = f64::from(work.model.layers) / layout.pipeline * in_flight;
    match recompute {
        // The one layer that is being computed again is whole.
        Recompute::Full => units * (INPUT_BYTES * layers + KEPT_BYTES),
        Recompute::None | Recompute::Selective => units * KEPT_BYTES * layers,
    }
}
