//! Demands of the kinds `serve_realtime` and `serve_batch`: the load that one node of an offer carries at the
//! requested latency, and the nodes that carry the whole load.
//!
//! A replica of the model stays inside one node. Its width is the one with which a node carries most; of two
//! that carry the same, the narrower (`node`). Where the demand has a measured replica, all replicas are as
//! fast as that one (`copy`). Offers of one shape are predicted once. `fleet_search` chooses the offers of
//! the cheapest fleet.
//!
//! A batch of requests has no latency objective and may be interrupted. So both spot and on-demand offers are
//! used, and candidates rank by the cost of the whole batch, not of an hour.

mod copy;
mod node;

use std::cell::RefCell;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::demand::{LatencyObjective, Precision, ServeBatchDemand, ServeRealtimeDemand, Survive};
use market::gpu::GpuSpec;
use market::offer::Terms;

use crate::MatchError;
use crate::hardware::TrainingClass;
use crate::models::ModelFigures;
use crate::network::Users;
use crate::perf::calibration::Calibration;
use crate::perf::constants::{Constants, InferenceConstants};
use crate::perf::replica::{CacheFormat, CannotServe, WeightFormat};
use crate::perf::serving::{Replica, ServingWork, cache_format, weight_format};
use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key, MAX_NODES, most_nodes, node_price_units};
use crate::snapshot::Row;
use crate::train::time_for;

use self::copy::calibration;
pub(crate) use self::node::ServeFit;

/// The first planned share of throughput of a fleet for a rate of requests. The rest is the warm buffer that
/// keeps queues short.
pub(crate) const PLANNED_UTILISATION: f64 = 0.8;

/// The share of requests for which an objective holds, by default. Units: percent.
pub(crate) const DEFAULT_PERCENTILE: f64 = 95.0;

/// The resolution of loads: parts of a token per second, or of a slot in a batch.
const PARTS: f64 = 1_000.0;

/// The requirements of a serving demand on each offer.
#[derive(Clone)]
pub(crate) struct ServeQuery {
    /// The precision of the weights, as the demand has it.
    pub(crate) weights: Precision,
    pub(crate) survive: Option<Survive>,
    pub(crate) work: ServingWork,
    /// The load as the demand has it.
    pub(crate) asked: Load,
    /// The factor by which it may grow.
    pub(crate) growth: f64,
    /// The share of its replicas' capacity at which a fleet is planned.
    pub(crate) planned_share: f64,
    pub(crate) constants: &'static InferenceConstants,
    /// The measured replica, where there is one.
    pub(crate) calibration: Option<Calibration>,
    users: Option<Users>,
    /// The predictions so far; offers of one shape differ in price alone.
    nodes: RefCell<HashMap<Shape, Result<ServeFit, ReasonCode>>>,
    /// The replicas of the nodes: nodes of eight GPUs and of four share some of them.
    copies: RefCell<HashMap<Shape, Predicted>>,
    /// The same without a limit on the time to the first token.
    patient: RefCell<HashMap<(&'static str, u32), Predicted>>,
}

/// The inputs of a prediction: GPU, GPUs of a node or a replica, milliseconds of the network.
type Shape = (&'static str, u32, u32);

/// One replica of the model, or why there is none.
type Predicted = Result<Replica, CannotServe>;

/// The load at the peak.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Load {
    /// Requests that come in per second.
    RequestsPerSecond(f64),
    /// Requests in flight.
    Concurrency(f64),
    /// Requests to answer, and the hours until their deadline.
    Pile(f64, Option<f64>),
}

impl ServeQuery {
    pub(crate) fn of_realtime(demand: &ServeRealtimeDemand) -> Result<Self, MatchError> {
        let (asked, planned_share) = match (demand.requests_per_second, demand.concurrency) {
            (Some(rate), _) => (Load::RequestsPerSecond(rate), PLANNED_UTILISATION),
            // Exactly this many are in flight: no request queues for a slot.
            (None, Some(count)) => (Load::Concurrency(count.into()), 1.0),
            (None, None) => return Err(MatchError::LoadMissing),
        };
        let work = ServingWork {
            model: ModelFigures::of(&demand.model)?,
            weights: weights(demand.weights)?,
            cache: cache(demand.kv_cache)?,
            input_tokens: demand.input_tokens.into(),
            output_tokens: demand.output_tokens.into(),
            latency: demand.latency.clone().unwrap_or_default(),
        };
        let constants = &Constants::product().inference;
        let calibration = calibration(demand.calibration.as_ref(), &work, constants)?;
        Ok(Self {
            weights: demand.weights,
            survive: demand.survive,
            work,
            asked,
            growth: demand.growth.unwrap_or(1.0),
            planned_share,
            constants,
            calibration,
            users: Users::of(&demand.users),
            nodes: RefCell::default(),
            copies: RefCell::default(),
            patient: RefCell::default(),
        })
    }

    pub(crate) fn of_batch(
        demand: &ServeBatchDemand,
        now: DateTime<Utc>,
    ) -> Result<Self, MatchError> {
        let window = demand.window.as_ref();
        let start = window
            .and_then(|window| window.start_earliest)
            .map_or(now, |start| start.max(now));
        let ends = [
            window.and_then(|window| window.end_from(start)),
            demand.deadline,
        ];
        let until = ends.into_iter().flatten().min();
        let hours = until.map(|until| (until - start).num_seconds() as f64 / 3_600.0);
        let work = ServingWork {
            model: ModelFigures::of(&demand.model)?,
            weights: weights(demand.weights)?,
            cache: cache(demand.kv_cache)?,
            input_tokens: demand.input_tokens.into(),
            output_tokens: demand.output_tokens.into(),
            latency: LatencyObjective::default(),
        };
        let constants = &Constants::product().inference;
        let calibration = calibration(demand.calibration.as_ref(), &work, constants)?;
        Ok(Self {
            weights: demand.weights,
            survive: None,
            work,
            // The bounds of the schema keep it exact enough.
            asked: Load::Pile(demand.requests as f64, hours),
            growth: 1.0,
            // No user waits for an answer, so there is no queue to keep short.
            planned_share: 1.0,
            constants,
            calibration,
            users: None,
            nodes: RefCell::default(),
            copies: RefCell::default(),
            patient: RefCell::default(),
        })
    }

    /// The same with fleets planned at this share of their replicas' capacity. The replicas are the same.
    pub(crate) fn at_share(&self, planned_share: f64) -> Self {
        Self {
            planned_share,
            nodes: RefCell::default(),
            ..self.clone()
        }
    }

    /// The same with weights in another precision; `None` where serving does not support it. The calibration
    /// stays that of the requested weights.
    pub(crate) fn with_weights(&self, weights: Precision) -> Option<Self> {
        let work = ServingWork {
            weights: weight_format(weights)?,
            ..self.work.clone()
        };
        Some(Self {
            weights,
            work,
            nodes: RefCell::default(),
            copies: RefCell::default(),
            patient: RefCell::default(),
            ..self.clone()
        })
    }

    /// The load, growth included.
    pub(crate) fn load(&self) -> Load {
        match self.asked {
            Load::RequestsPerSecond(rate) => Load::RequestsPerSecond(rate * self.growth),
            Load::Concurrency(count) => Load::Concurrency(count * self.growth),
            pile @ Load::Pile(..) => pile,
        }
    }

    /// Whether it is a batch of requests.
    pub(crate) const fn is_pile(&self) -> bool {
        matches!(self.asked, Load::Pile(..))
    }

    /// Whether it accepts these terms.
    pub(crate) const fn takes(&self, terms: Terms) -> bool {
        matches!(terms, Terms::OnDemand) || (self.is_pile() && matches!(terms, Terms::Spot))
    }

    /// The hours that so many nodes take for the batch.
    pub(crate) fn pile_hours(&self, node: &ServeFit, nodes: u32) -> Option<f64> {
        let Load::Pile(requests, _) = self.asked else {
            return None;
        };
        let copies = f64::from(node.replicas_per_node) * f64::from(nodes);
        let tokens = requests * self.work.output_tokens;
        Some(tokens / (node.replica.tokens_per_second * copies) / 3_600.0)
    }

    /// The percentile of the objective. Units: percent.
    pub(crate) fn percentile(&self) -> f64 {
        self.work.latency.percentile.unwrap_or(DEFAULT_PERCENTILE)
    }

    /// The load to carry, rounded up. Units: a thousandth of a token per second where the load is a rate, of
    /// a slot in a batch where it is a number in flight.
    pub(crate) fn need(&self) -> u64 {
        self.need_of(1.0)
    }

    /// The same for a part of the load.
    pub(crate) fn need_of(&self, share: f64) -> u64 {
        self.need_of_load(self.load(), share)
    }

    fn need_of_load(&self, load: Load, share: f64) -> u64 {
        let parts = match load {
            Load::RequestsPerSecond(rate) => rate * self.work.output_tokens,
            Load::Concurrency(count) => count,
            // A batch without a time limit needs no minimum rate.
            Load::Pile(_, None) => 0.0,
            Load::Pile(requests, Some(hours)) => {
                requests * self.work.output_tokens / (hours * 3_600.0)
            }
        };
        // The schema allows a rate of half the largest integer, and more for a batch. The cast stops at the
        // largest integer, and no fleet carries so much.
        (parts * share * PARTS).ceil().max(1.0) as u64
    }

    /// Finds the load that a node carries, and the nodes of a fleet of this offer alone. A batch without any
    /// other limit must be done while the evidence of its provider lasts.
    pub(crate) fn fit(
        &self,
        row: &Row,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        evidence_hours: Option<f64>,
    ) -> Result<Fit, ReasonCode> {
        let fit = self.fit_any(row, spec, gpus_per_node, evidence_hours)?;
        if fit.nodes > MAX_NODES {
            return Err(ReasonCode::NotEnoughNodes);
        }
        Ok(fit)
    }

    /// As [`Self::fit`], also for an offer that cannot form a fleet alone. It then returns more than
    /// [`MAX_NODES`] nodes, and the offer may still be a part of a fleet.
    pub(crate) fn fit_any(
        &self,
        row: &Row,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        evidence_hours: Option<f64>,
    ) -> Result<Fit, ReasonCode> {
        let node = self.node(&row.offer, spec, gpus_per_node)?;
        if matches!(self.asked, Load::Pile(_, Some(hours)) if hours <= 0.0) {
            return Err(ReasonCode::Deadline);
        }
        let nodes_of = |load| self.need_of_load(load, 1.0).div_ceil(node.capacity);
        let nodes = match self.load() {
            Load::Pile(requests, hours) => {
                // The evidence of its provider is valid when the batch starts.
                let (within_hours, too_late) = time_for(hours, evidence_hours);
                let nodes = nodes_of(Load::Pile(requests, Some(within_hours)));
                if hours.is_none() && nodes > u64::from(MAX_NODES) {
                    return Err(too_late);
                }
                nodes
            }
            load => nodes_of(load),
        };
        let nodes = most_nodes(nodes as f64).unwrap_or(MAX_NODES + 1);
        let price = node_price_units(row).ok_or(ReasonCode::NoPrice)?;
        Ok(Fit {
            nodes,
            key: Key {
                cost: self.cost(&node, nodes, price),
                // Of fleets with the same cost the nearer one, then the one with more spare capacity.
                then: (
                    node.network_ms.map_or(0, |ms| (ms * 1e3) as u64),
                    u64::MAX - node.capacity.saturating_mul(nodes.into()),
                ),
            },
            class: TrainingClass::default(),
            figures: Figures::Serve(node),
        })
    }

    /// The amount that ranks: the cost of an hour of so many nodes, or of the whole batch. It never decreases
    /// with the price of a node. Units: 1e-8 US dollars.
    pub(crate) fn cost(&self, node: &ServeFit, nodes: u32, node_price_units: i64) -> i128 {
        let hour = i128::from(node_price_units) * i128::from(nodes);
        (self.pile_hours(node, nodes)).map_or(hour, |hours| (hour as f64 * hours) as i128)
    }
}

fn weights(precision: Precision) -> Result<WeightFormat, MatchError> {
    weight_format(precision).ok_or(not_served(precision))
}

fn cache(precision: Precision) -> Result<CacheFormat, MatchError> {
    cache_format(precision).ok_or(not_served(precision))
}

const fn not_served(precision: Precision) -> MatchError {
    MatchError::PrecisionNotSupported {
        work: "serving",
        precision,
    }
}

#[cfg(test)]
mod tests;
