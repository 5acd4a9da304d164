//! The load that one node of an offer carries: replicas of the width with which it carries most.

use market::demand::Precision;
use market::gpu::GpuSpec;
use market::offer::Offer;

use super::{Load, PARTS, ServeQuery};
use crate::perf::chip::Chip;
use crate::perf::replica::CannotServe;
use crate::perf::serving::{Replica, doublings};
use crate::reason::ReasonCode;

/// The load that one node of an offer carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ServeFit {
    /// One replica of the model.
    pub(crate) replica: Replica,
    /// Replicas on each node.
    pub(crate) replicas_per_node: u32,
    /// The share of the load that a node carries, in the parts of [`ServeQuery::need`].
    pub(crate) capacity: u64,
    /// The round trip to the users that the percentile is of. Units: milliseconds.
    pub(crate) network_ms: Option<f64>,
}

impl ServeQuery {
    /// The load that one node carries.
    pub(crate) fn node(
        &self,
        offer: &Offer,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
    ) -> Result<ServeFit, ReasonCode> {
        let network_ms = self.network_ms(offer);
        // The network affects the capacity of a node only where the time to the first token is limited. In
        // whole milliseconds, rounded up, many places share one shape.
        let limited = self.work.latency.first_token_ms.and(network_ms);
        let taken_ms = limited.map_or(0, |ms| ms.ceil() as u32);
        let shape = (spec.canonical.as_str(), gpus_per_node, taken_ms);
        let known = self.nodes.borrow().get(&shape).copied();
        let found = known.unwrap_or_else(|| {
            let found = self.node_of(spec, gpus_per_node, taken_ms);
            self.nodes.borrow_mut().insert(shape, found);
            found
        });
        found.map(|node| ServeFit { network_ms, ..node })
    }

    /// The round trip to the users that the percentile is of. Units: milliseconds.
    pub(crate) fn network_ms(&self, offer: &Offer) -> Option<f64> {
        self.network_ms_of(offer, self.percentile())
    }

    /// The round trip of the users at this percentile. Units: milliseconds.
    pub(crate) fn network_ms_of(&self, offer: &Offer, percentile: f64) -> Option<f64> {
        let users = self.users.as_ref()?;
        Some(users.round_trip_ms(offer, percentile))
    }

    fn node_of(
        &self,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        network_ms: u32,
    ) -> Result<ServeFit, ReasonCode> {
        if !has_rate(spec, self.weights) {
            return Err(ReasonCode::Precision);
        }
        let chip = Chip::of_spec(spec).ok_or(ReasonCode::Precision)?;
        let network_seconds = f64::from(network_ms) / 1e3;
        let mut copies = self.copies.borrow_mut();
        let mut best: Result<ServeFit, ReasonCode> = Err(ReasonCode::Memory);
        for gpus in doublings(gpus_per_node) {
            let shape = (spec.canonical.as_str(), gpus, network_ms);
            let copy = copies.entry(shape);
            match *copy.or_insert_with(|| self.replica(&chip, spec, gpus, network_seconds)) {
                Ok(replica) => {
                    let replicas_per_node = gpus_per_node / gpus;
                    let capacity = self.capacity(&replica, replicas_per_node);
                    if capacity > best.map_or(0, |best| best.capacity) {
                        best = Ok(ServeFit {
                            replica,
                            replicas_per_node,
                            capacity,
                            network_ms: None,
                        });
                    }
                }
                Err(CannotServe::TooSlow) if best.is_err() => best = Err(ReasonCode::Latency),
                Err(_) => {}
            }
        }
        let mut widths = doublings(gpus_per_node);
        let lacks_heads = |gpus| self.work.lacks_heads_alone(self.constants, &chip, gpus);
        match best {
            Err(ReasonCode::Memory) if widths.any(lacks_heads) => Err(ReasonCode::HeadsDoNotDivide),
            best => best,
        }
    }

    /// The load that the replicas on a node carry, rounded down.
    ///
    /// By Little's law the requests in flight are the arrival rate times the time that each takes. So a rate
    /// of requests needs tokens per second, and a number in flight needs slots in batches.
    fn capacity(&self, replica: &Replica, replicas_per_node: u32) -> u64 {
        let each = match self.asked {
            Load::Concurrency(_) => replica.batch.floor(),
            Load::RequestsPerSecond(_) | Load::Pile(..) => replica.tokens_per_second,
        };
        (each * self.planned_share * PARTS * f64::from(replicas_per_node)) as u64
    }
}

/// Whether a rate is published for products of weights of this precision. Integers are unpacked to
/// 16 bits before they are multiplied.
fn has_rate(spec: &GpuSpec, weights: Precision) -> bool {
    match weights {
        Precision::Bf16 => spec.bf16_tflops_dense,
        Precision::Fp16 | Precision::Int8 | Precision::Int4 => spec.fp16_tflops_dense,
        Precision::Fp8 => spec.fp8_tflops_dense,
        Precision::Fp4 => spec.fp4_tflops_dense,
        Precision::Fp32 => None,
    }
    .is_some()
}
