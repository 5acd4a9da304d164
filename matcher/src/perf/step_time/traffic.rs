//! The traffic between the GPUs of a training run, and its time without overlap.
//!
//! Rings: an all-reduce of d members moves 2(d-1)/d of the payload over each link, a gather or a
//! scatter half of that.

use super::{Cluster, Job, Layout, Stack, Strategy};
use crate::perf::chip::Chip;
use crate::perf::constants::TrainingConstants;

/// The most that collectives over PCI Express reach. Units: bytes per second.
const PCIE_BYTES_PER_SECOND: f64 = 20e9;

/// The slowest network that experts are spread over. Units: bytes per second and GPU.
const SLOWEST_EXPERT_NET: f64 = 1e9;

/// Rates that collectives reach. Units: bytes per second.
struct Rates<'a> {
    chip: &'a Chip,
    link: f64,
    net: f64,
    net_per_gpu: f64,
}

impl<'a> Rates<'a> {
    fn new(constants: &TrainingConstants, cluster: &Cluster<'a>) -> Self {
        let net = cluster.net_bytes_per_second * constants.net_share;
        Self {
            chip: cluster.chip,
            link: cluster.chip.link_bytes_per_second * constants.link_share,
            net,
            net_per_gpu: net / cluster.domain_gpus,
        }
    }

    /// The rate that remains in a ring over so many neighbouring GPUs.
    fn through(&self, gpus: f64, rate: f64) -> f64 {
        if self.chip.passes_pcie(gpus) {
            rate.min(PCIE_BYTES_PER_SECOND)
        } else {
            rate
        }
    }
}

/// Tensor- and expert-parallel traffic of one micro batch that work does not hide. Units: seconds.
pub(super) fn within_stage_seconds(
    constants: &TrainingConstants,
    cluster: &Cluster<'_>,
    job: &Job<'_>,
    layout: &Layout,
) -> f64 {
    let rates = Rates::new(constants, cluster);
    tensor_seconds(constants, cluster, job, layout, &rates)
        + expert_seconds(constants, cluster, job, layout, &rates)
}

/// Two all-reduces a layer forward and two backward, two more where layers are computed again.
fn tensor_seconds(
    constants: &TrainingConstants,
    cluster: &Cluster<'_>,
    job: &Job<'_>,
    layout: &Layout,
    rates: &Rates<'_>,
) -> f64 {
    let members = layout.tensor;
    if members <= 1.0 {
        return 0.0;
    }
    let reduces = 4.0 + 2.0 * job.extra_passes(constants);
    let payload = job.tokens_of_micro_batch(layout) * f64::from(job.model.hidden) * 2.0;
    let layers = f64::from(job.model.layers) / layout.pipeline;
    let moved = reduces * 2.0 * (members - 1.0) / members * payload * layers * job.trained_share();
    let rate = if members <= cluster.domain_gpus {
        rates.link
    } else {
        rates.net_per_gpu
    };
    let share = match job.stack {
        Stack::Megatron => constants.exposed_tensor_megatron,
        _ => constants.exposed_tensor_other,
    };
    share * moved / rates.through(members, rate)
}

/// Each token goes to its experts and back, forward and backward.
fn expert_seconds(
    constants: &TrainingConstants,
    cluster: &Cluster<'_>,
    job: &Job<'_>,
    layout: &Layout,
    rates: &Rates<'_>,
) -> f64 {
    let (Some(experts), true) = (
        job.model.experts,
        job.model.is_mixture() && layout.expert > 1.0,
    ) else {
        return 0.0;
    };
    let payload = job.tokens_of_micro_batch(layout)
        * f64::from(experts.per_token)
        * f64::from(job.model.hidden)
        * 2.0;
    let moved = 4.0 * payload * experts.layers / layout.pipeline / layout.tensor;
    let inside = if cluster.gpus > cluster.domain_gpus {
        (cluster.domain_gpus / layout.expert).min(1.0)
    } else {
        1.0
    };
    let net = rates.net_per_gpu.max(SLOWEST_EXPERT_NET);
    let link = rates.through(layout.expert * layout.tensor, rates.link);
    let by_link = inside * (layout.expert - 1.0) / layout.expert / link;
    constants.exposed_experts * moved * (by_link + (1.0 - inside) / net)
}

/// Data-parallel traffic of one step, taken by itself. Units: seconds.
pub(super) fn between_copies(
    constants: &TrainingConstants,
    cluster: &Cluster<'_>,
    job: &Job<'_>,
    layout: &Layout,
) -> f64 {
    let rings = Rings::new(constants, cluster, job, layout);
    let layers = f64::from(job.model.layers);
    let stage_layers = layers / layout.pipeline;
    let (batches, copies) = (layout.micro_batches, layout.copies(cluster.gpus));
    let hop = constants.hop_us * 1e-6;
    // The factors are bytes for each parameter: 2 for weights in 16 bits, 2 or 4 for gradients.
    match layout.strategy {
        // Gather forward, gather backward, scatter gradients, at each micro batch.
        Strategy::FullShard => batches * (rings.slower(6.0) + 3.0 * stage_layers * hop * copies),
        Strategy::GradientShard => {
            (1.0 + batches) * (rings.slower(2.0) + stage_layers * hop * copies)
        }
        Strategy::HybridShard => {
            batches * rings.within(6.0) + rings.between(4.0) + 2.0 * layers * hop * rings.nodes
        }
        Strategy::OptimiserInNode => {
            rings.within(4.0) + rings.between(4.0) + 2.0 * layers * hop * rings.nodes
        }
        Strategy::OptimiserShard if job.stack == Stack::InternEvo => {
            let owners = layers * constants.owner_broadcast_us * 1e-6 * copies;
            rings.slower(6.0) + 2.0 * stage_layers * hop * copies + owners
        }
        Strategy::OptimiserShard | Strategy::Replicated => {
            rings.slower(6.0) + 2.0 * stage_layers * hop * copies
        }
        Strategy::Adapters => 0.0,
        // Gather forward, gather backward; frozen weights have no gradients.
        Strategy::FrozenInNode => batches * rings.within(2.0 * job.frozen_weight_bytes),
        Strategy::FrozenShard => {
            let gathered = rings.slower(2.0 * job.frozen_weight_bytes);
            batches * (gathered + 2.0 * stage_layers * hop * copies)
        }
    }
}

/// The rings that connect the replicas of a model, within nodes and between them.
struct Rings {
    nodes: f64,
    /// Seconds for one byte of each parameter.
    between_per_byte: f64,
    within_per_byte: f64,
}

impl Rings {
    fn new(
        constants: &TrainingConstants,
        cluster: &Cluster<'_>,
        job: &Job<'_>,
        layout: &Layout,
    ) -> Self {
        let rates = Rates::new(constants, cluster);
        let copies = layout.copies(cluster.gpus);
        let per_copy = layout.tensor * layout.context;
        let reached = if per_copy < cluster.domain_gpus {
            copies * per_copy / cluster.domain_gpus
        } else {
            copies
        };
        let nodes = (cluster.gpus / cluster.domain_gpus).min(reached).max(1.0);
        let (in_node, on_gpu) = held_params(cluster, job, layout);
        let crosses_nodes = cluster.gpus > cluster.domain_gpus && nodes > 1.0;
        let between_per_byte = if crosses_nodes {
            in_node * (copies - 1.0) / copies / rates.net
        } else {
            0.0
        };
        let joined = cluster.domain_gpus.min(cluster.gpus);
        let members = joined / layout.tensor;
        let kept = if members > 1.0 {
            (members - 1.0) / members
        } else {
            0.0
        };
        Self {
            nodes,
            between_per_byte,
            within_per_byte: on_gpu * kept / rates.through(joined, rates.link),
        }
    }

    fn between(&self, bytes_per_param: f64) -> f64 {
        bytes_per_param * self.between_per_byte
    }

    fn within(&self, bytes_per_param: f64) -> f64 {
        bytes_per_param * self.within_per_byte
    }

    /// Rings through both run at the pace of the slower part.
    fn slower(&self, bytes_per_param: f64) -> f64 {
        self.between(bytes_per_param)
            .max(self.within(bytes_per_param))
    }
}

/// Parameters of a stage that a node exchanges with others, and those that one GPU exchanges. Experts that
/// are spread over GPUs are exchanged with their own replicas alone.
fn held_params(cluster: &Cluster<'_>, job: &Job<'_>, layout: &Layout) -> (f64, f64) {
    let total = job.model.params_total;
    let experts = match job.model.experts {
        Some(experts) if layout.expert > 1.0 => experts.params,
        _ => 0.0,
    };
    let dense = total - experts;
    let in_node = dense + experts * (cluster.domain_gpus / layout.expert).min(1.0);
    let on_gpu = dense + experts / layout.expert;
    (in_node / layout.pipeline, on_gpu / layout.shards())
}

/// Parameters of a stage that one GPU computes with.
pub(super) fn params_on_gpu(cluster: &Cluster<'_>, job: &Job<'_>, layout: &Layout) -> f64 {
    held_params(cluster, job, layout).1
}
