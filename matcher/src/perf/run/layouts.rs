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
    splits(work, nodes, gpus).flat_map(move |split| {
        let copies = gpus / (split.tensor * split.pipeline);
        MICRO_BATCHES
            .into_iter()
            .filter(move |sequences| {
                *sequences == 1
                    || f64::from(copies) * f64::from(*sequences) <= work.wanted_sequences()
            })
            .flat_map(move |sequences| {
                [Recompute::None, Recompute::Full]
                    .map(|recompute| split.choice(work, gpus, sequences, recompute))
            })
    })
}

/// How GPUs share the model, before the batch is cut.
#[derive(Debug, Clone, Copy)]
struct Split {
    strategy: Strategy,
    tensor: u32,
    pipeline: u32,
    expert: u32,
}

fn splits<'a>(
    work: &'a RunWork,
    nodes: &'a RunNodes,
    gpus: u32,
) -> impl Iterator<Item = Split> + use<'a> {
    let model = &work.model;
    let widest = widest_tensor_group(model, nodes.gpus_per_node, nodes.joined);
    let tensors = (1..=widest).filter(move |tensor| widest.is_multiple_of(*tensor));
    let strategies: &[Strategy] = match work.method {
        TrainMethod::Full => &[Strategy::FullShard, Strategy::OptimiserShard],
        TrainMethod::Lora | TrainMethod::Qlora => &[Strategy::Adapters],
    };
    tensors.flat_map(move |tensor| {
        strategies.iter().flat_map(move |strategy| {
            let pipelines = PIPELINES.into_iter().filter(move |pipeline| {
                *pipeline == 1
                    || (nodes.pipelines
                        && *strategy == Strategy::OptimiserShard
                        && model.layers.is_multiple_of(*pipeline)
                        && gpus.is_multiple_of(tensor * pipeline))
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

/// Experts all on each GPU, or spread over the GPUs of a node that hold different sequences.
fn experts(work: &RunWork, nodes: &RunNodes, tensor: u32) -> [Option<u32>; 2] {
    let spread = nodes.gpus_per_node / tensor;
    let divides = work
        .model
        .experts
        .is_some_and(|experts| spread > 1 && experts.per_layer.is_multiple_of(spread));
    [Some(1), divides.then_some(spread)]
}

impl Split {
    fn choice(self, work: &RunWork, gpus: u32, sequences: u32, recompute: Recompute) -> Choice {
        let copies = f64::from(gpus / (self.tensor * self.pipeline));
        let micro_batch = f64::from(sequences);
        let micro_batches = (work.wanted_sequences() / (copies * micro_batch)).ceil();
        let layout = Layout {
            tensor: f64::from(self.tensor),
            pipeline: f64::from(self.pipeline),
            chunks: 1.0,
            context: 1.0,
            expert: f64::from(self.expert),
            strategy: self.strategy,
            micro_batches,
        };
        Choice {
            layout,
            micro_batch,
            recompute,
            bytes_per_gpu: state_bytes(work, gpus, &layout)
                + activation_bytes(work, &layout, micro_batch, recompute)
                + RUNTIME_BYTES,
        }
    }
}

/// Weights, gradients and optimiser on one GPU. Source: Rajbhandari et al. 2020 (ZeRO).
fn state_bytes(work: &RunWork, gpus: u32, layout: &Layout) -> f64 {
    let model = &work.model;
    let gpus = f64::from(gpus);
    if layout.strategy != Strategy::OptimiserShard {
        return model.params_total * state_bytes_per_param(work.method) / gpus;
    }
    let experts = model.experts.map_or(0.0, |experts| experts.params);
    let held = (model.params_total - experts + experts / layout.expert)
        / (layout.tensor * layout.pipeline);
    WEIGHT_AND_GRADIENT_BYTES * held + OPTIMISER_STATE_BYTES * model.params_total / gpus
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
