//! Demands of the kind `serve_realtime`: a fleet of nodes of one offer, most memory bandwidth per
//! dollar first.
//!
//! A copy of the model stays inside one node. Its width (GPUs, doubling from one) is the one that
//! needs the fewest nodes for the load, and among those the narrowest.

use market::demand::{Precision, ServeRealtimeDemand};
use market::gpu::GpuSpec;

use crate::MatchError;
use crate::models::ModelFigures;
use crate::perf::serving::{NoReplica, Replica, ServingWork, doublings, peak_tflops};
use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key, most_nodes};
use crate::snapshot::Row;

/// The share of its throughput that a fleet is planned to run at, so that queues stay short.
pub(crate) const PLANNED_UTILISATION: f64 = 0.8;

/// What a `serve_realtime` demand asks of each offer.
pub(crate) struct ServeQuery<'a> {
    pub(crate) demand: &'a ServeRealtimeDemand,
    pub(crate) work: ServingWork,
    pub(crate) load: Load,
}

/// The load at the peak, growth included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    /// Requests that come in per second.
    RequestsPerSecond(f64),
    /// Requests in flight.
    Concurrency(f64),
}

/// What a fleet of one offer comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ServeFit {
    /// One copy of the model.
    pub(crate) replica: Replica,
    /// Copies on each node.
    pub(crate) replicas_per_node: u32,
}

impl<'a> ServeQuery<'a> {
    pub(crate) fn new(demand: &'a ServeRealtimeDemand) -> Result<Self, MatchError> {
        if demand.weights == Precision::Fp32 {
            let precision = demand.weights;
            return Err(MatchError::PrecisionNotSupported {
                work: "serving",
                precision,
            });
        }
        if demand.survive.is_some() {
            return Err(MatchError::SurviveNotSupported);
        }
        let growth = demand.growth.unwrap_or(1.0);
        let load = match (demand.requests_per_second, demand.concurrency) {
            (Some(rate), _) => Load::RequestsPerSecond(rate * growth),
            (None, Some(count)) => Load::Concurrency(f64::from(count) * growth),
            (None, None) => return Err(MatchError::LoadMissing),
        };
        let work = ServingWork {
            model: ModelFigures::of(&demand.model)?,
            weights: demand.weights,
            cache: demand.kv_cache,
            input_tokens: demand.input_tokens.into(),
            output_tokens: demand.output_tokens.into(),
            latency: demand.latency.clone().unwrap_or_default(),
        };
        Ok(Self { demand, work, load })
    }

    /// Finds the width of a copy and the nodes of the fleet.
    pub(crate) fn fit(
        &self,
        row: &Row,
        spec: &GpuSpec,
        gpus_per_node: u32,
    ) -> Result<Fit, ReasonCode> {
        let peak = peak_tflops(spec, self.work.weights).ok_or(ReasonCode::Precision)?;
        let mut best: Option<(f64, ServeFit)> = None;
        let mut refusal = ReasonCode::Memory;
        for gpus in doublings(gpus_per_node) {
            match self.work.replica(spec, peak, gpus) {
                Ok(replica) => {
                    let fit = ServeFit {
                        replica,
                        replicas_per_node: gpus_per_node / gpus,
                    };
                    let nodes = self.nodes(&fit);
                    if best.is_none_or(|(fewest, _)| nodes < fewest) {
                        best = Some((nodes, fit));
                    }
                }
                Err(NoReplica::TooLarge) => {}
                Err(NoReplica::TooSlow) => refusal = ReasonCode::Latency,
            }
        }
        let (nodes, fit) = best.ok_or(refusal)?;
        let nodes = most_nodes(nodes).ok_or(ReasonCode::NotEnoughNodes)?;
        let key = Key {
            tier: 0,
            cost: price_per_bandwidth(row, spec, gpus_per_node),
        };
        Ok(Fit {
            nodes,
            key,
            figures: Figures::Serve(fit),
        })
    }

    /// The nodes that carry the load.
    ///
    /// By Little's law the requests in flight are those that come in times the time each takes, so
    /// a rate of requests needs tokens per second, and a number in flight needs places in batches.
    fn nodes(&self, fit: &ServeFit) -> f64 {
        let replicas = f64::from(fit.replicas_per_node);
        let nodes = match self.load {
            Load::RequestsPerSecond(rate) => {
                let planned = fit.replica.tokens_per_second * replicas * PLANNED_UTILISATION;
                rate * self.work.output_tokens / planned
            }
            Load::Concurrency(count) => count / (fit.replica.batch * replicas),
        };
        nodes.ceil().max(1.0)
    }
}

/// The price of memory bandwidth, rounded down. Units: 1e-14 US dollars per hour and MB/s.
fn price_per_bandwidth(row: &Row, spec: &GpuSpec, gpus_per_node: u32) -> i128 {
    let megabytes = (spec.memory_bandwidth_gbps * 1e3).round().max(1.0) as i128;
    let price = i128::from(row.offer.price_per_node_hour.units());
    price * 1_000_000 / (megabytes * i128::from(gpus_per_node))
}
