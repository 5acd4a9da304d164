//! Demands of the kind `train`: a gang in one fabric, or one node, that holds the model and is
//! done in time.
//!
//! Candidates rank by tier, then by the predicted cost of the run, which is dollars for the tokens
//! that failures leave (`perf::run`). Offers of one shape are predicted once. The tiers are, best first:
//! bare metal with RDMA between its nodes (or one node), virtual machines likewise, one node of
//! another kind, bare metal over plain Ethernet, virtual machines over it. To adapters, which exchange
//! next to nothing, Ethernet is as good as RDMA. Within each, full training takes whole boards of
//! eight GPUs with 80 GB or more before smaller nodes.

use std::cell::RefCell;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::demand::{Precision, TrainDemand, TrainMethod};
use market::fabric::Internode;
use market::gpu::{Gpu, GpuSpec};
use market::money::{Rate, SECONDS_PER_HOUR};
use market::offer::{Offer, Tenancy};

use crate::MatchError;
use crate::hardware::{GANG_NODE_GPUS, is_training_class, joined_all_to_all};
use crate::models::ModelFigures;
use crate::perf::calibration::Calibration;
use crate::perf::constants::Constants;
use crate::perf::memory::{TRAINING_FRACTION, TrainingMemory};
use crate::perf::run::{Run, RunNodes, RunWork, peak_tflops};
use crate::plan::CandidateLine;
use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key, MAX_NODES, most_nodes};
use crate::snapshot::Row;

/// What a `train` demand asks of each offer.
pub(crate) struct TrainQuery<'a> {
    pub(crate) demand: &'a TrainDemand,
    pub(crate) work: RunWork,
    /// Until when the run must be done: the deadline or the window's end, the earlier one.
    /// Units: hours from the start.
    pub(crate) hours_available: Option<f64>,
    /// The measured step, where there is one.
    pub(crate) calibration: Option<Calibration>,
    allow_ethernet: bool,
    /// What is predicted already; offers of one shape differ in price alone.
    runs: RefCell<HashMap<Shape, Option<Run>>>,
}

/// What a prediction depends on: GPU, GPUs of a node, what joins nodes, nodes.
type Shape = (&'static str, u32, Internode, u32);

/// What a run on one offer comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TrainFit {
    /// The run in its best layout.
    pub(crate) run: Run,
    /// The least memory that it needs over all GPUs. Units: bytes.
    pub(crate) needed_bytes: f64,
    /// Memory that may be filled over all GPUs. Units: bytes.
    pub(crate) available_bytes: f64,
    /// The peak of one GPU. Units: TFLOPS.
    pub(crate) peak_tflops: f64,
    /// The nodes that the memory alone needs.
    pub(crate) nodes_for_memory: u32,
}

impl<'a> TrainQuery<'a> {
    pub(crate) fn new(demand: &'a TrainDemand, now: DateTime<Utc>) -> Result<Self, MatchError> {
        let (method, precision) = (demand.method, demand.precision);
        if !matches!(
            precision,
            Precision::Bf16 | Precision::Fp16 | Precision::Fp8
        ) {
            return Err(MatchError::PrecisionNotSupported {
                work: "training",
                precision,
            });
        }
        let interval = demand
            .checkpointing
            .as_ref()
            .and_then(|c| c.interval_minutes);
        let work = RunWork {
            model: ModelFigures::of(&demand.model)?,
            method,
            precision,
            sequence_length: demand.sequence_length,
            step_sequences: demand.global_batch_sequences,
            tokens: demand.tokens,
            checkpoint_interval_seconds: interval.map(|minutes| f64::from(minutes) * 60.0),
        };
        let step = demand.calibration.as_ref();
        let calibration = step.map(|step| Calibration::of_run(&work, step));
        let window = demand.window.as_ref();
        let start = window
            .and_then(|window| window.start_earliest)
            .map_or(now, |start| start.max(now));
        let ends = [
            window.and_then(|window| window.end_from(start)),
            demand.deadline,
        ];
        let until = ends.into_iter().flatten().min();
        Ok(Self {
            demand,
            work,
            calibration: calibration.transpose()?,
            hours_available: until.map(|until| (until - start).num_seconds() as f64 / 3_600.0),
            allow_ethernet: demand
                .policy
                .as_ref()
                .is_some_and(|policy| policy.allow_ethernet),
            runs: RefCell::default(),
        })
    }

    /// Finds the nodes to take: as many as the tenant settled, else the fewest that hold the
    /// model and finish in time.
    pub(crate) fn fit(
        &self,
        row: &Row,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
    ) -> Result<Fit, ReasonCode> {
        let offer = &row.offer;
        let peak = peak_tflops(spec, self.demand.precision).ok_or(ReasonCode::Precision)?;
        let settled = match self.demand.gpus {
            Some(gpus) if gpus % gpus_per_node != 0 => return Err(ReasonCode::GpusDoNotDivide),
            settled => settled.map(|gpus| gpus / gpus_per_node),
        };
        let memory = self.memory(spec, gpus_per_node);
        let gpus_for_memory = memory
            .fewest_gpus(spec.memory_gb)
            .ok_or(ReasonCode::Memory)?;
        let nodes_for_memory = most_nodes(gpus_for_memory / f64::from(gpus_per_node));
        let nodes_for_memory = nodes_for_memory.ok_or(ReasonCode::Memory)?;
        let nodes = match settled {
            Some(nodes) if nodes < nodes_for_memory => return Err(ReasonCode::Memory),
            settled => settled.unwrap_or(nodes_for_memory),
        };
        let nodes = self.nodes_in_time(offer, spec, gpus_per_node, nodes)?;
        let run = self.run_on(spec, gpus_per_node, offer.internode, nodes);
        let run = run.ok_or(ReasonCode::Memory)?;
        let fit = TrainFit {
            run,
            needed_bytes: memory.total_bytes(run.gpus),
            available_bytes: spec.memory_gb * 1e9 * TRAINING_FRACTION * f64::from(run.gpus),
            peak_tflops: peak,
            nodes_for_memory,
        };
        let key = Key {
            tier: tier(self.demand.method, offer, spec, gpus_per_node, nodes),
            cost: run_cost_units(row.rate, run.gpu_hours()),
            then: (0, 0),
        };
        Ok(Fit {
            nodes,
            key,
            figures: Figures::Train(fit),
        })
    }

    /// The memory of a run on nodes of this kind; only GPUs joined all to all split one sequence.
    pub(crate) fn memory(&self, spec: &GpuSpec, gpus_per_node: u32) -> TrainingMemory {
        self.work
            .least_memory(gpus_per_node, joined_all_to_all(spec))
    }

    /// The run in its best layout on so many nodes; `None` where none fits.
    pub(crate) fn run_on(
        &self,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        internode: Internode,
        nodes: u32,
    ) -> Option<Run> {
        let shape = (spec.canonical.as_str(), gpus_per_node, internode, nodes);
        if let Some(known) = self.runs.borrow().get(&shape) {
            return *known;
        }
        let run = RunNodes::new(spec, gpus_per_node, internode)
            .and_then(|kind| self.work.best_on(Constants::product(), &kind, nodes));
        let run = match &self.calibration {
            Some(calibration) => run.map(|run| run.at_speed(calibration.factor())),
            None => run,
        };
        self.runs.borrow_mut().insert(shape, run);
        run
    }

    /// The nodes with which the run is done in time, `nodes` or more, and fit to work together.
    fn nodes_in_time(
        &self,
        offer: &Offer,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        nodes: u32,
    ) -> Result<u32, ReasonCode> {
        if nodes > 1 {
            self.check_gang(offer, spec, gpus_per_node)?;
        }
        let Some(available) = self.hours_available else {
            return Ok(nodes);
        };
        if available <= 0.0 {
            return Err(ReasonCode::Deadline);
        }
        let run_on = |count| self.run_on(spec, gpus_per_node, offer.internode, count);
        if run_on(nodes).is_some_and(|run| run.hours <= available) {
            return Ok(nodes);
        }
        if self.demand.gpus.is_some() {
            return Err(ReasonCode::Deadline);
        }
        self.check_gang(offer, spec, gpus_per_node)?;
        RunWork::fewest_in_time(run_on, nodes, MAX_NODES, available).ok_or(ReasonCode::Deadline)
    }

    /// Whether several nodes of this offer may work as one gang.
    fn check_gang(
        &self,
        offer: &Offer,
        spec: &GpuSpec,
        gpus_per_node: u32,
    ) -> Result<(), ReasonCode> {
        if !matches!(offer.tenancy, Tenancy::BareMetal | Tenancy::Vm) {
            return Err(ReasonCode::GangTenancy);
        }
        if gpus_per_node < GANG_NODE_GPUS || !joined_all_to_all(spec) {
            return Err(ReasonCode::GangNode);
        }
        let joined = offer.internode.is_rdma()
            || (self.allow_ethernet && offer.internode == Internode::Ethernet);
        if joined {
            Ok(())
        } else {
            Err(ReasonCode::Fabric)
        }
    }
}

/// The class of machine that a run stands on, best first.
fn tier(method: TrainMethod, offer: &Offer, spec: &GpuSpec, gpus_per_node: u32, nodes: u32) -> u8 {
    // Adapters exchange next to nothing, so no fabric is better for them than another.
    let joined = nodes == 1 || offer.internode.is_rdma() || method != TrainMethod::Full;
    let machine = match (joined, offer.tenancy) {
        (true, Tenancy::BareMetal) => 0,
        (true, Tenancy::Vm) => 1,
        (true, Tenancy::Container | Tenancy::Managed) => 2,
        (false, Tenancy::BareMetal) => 3,
        (false, _) => 4,
    };
    let small = method == TrainMethod::Full && !is_training_class(spec, gpus_per_node);
    machine * 2 + u8::from(small)
}

/// The class of machine that a candidate's line is; `None` where nothing is known of its GPU.
pub(crate) fn tier_of(method: TrainMethod, line: &CandidateLine) -> Option<u8> {
    let offer = &line.offer;
    let spec = offer.gpu.known().map(Gpu::spec)?;
    Some(tier(
        method,
        offer,
        spec,
        offer.gpus.as_whole()?,
        line.nodes,
    ))
}

/// What so many GPU-hours cost at an offer's rate. Units: 1e-8 US dollars.
pub(crate) fn run_cost_units(rate: Option<Rate>, gpu_hours: f64) -> i128 {
    let rate = rate.map_or(0, |rate| rate.money_per_gpu_hour().units());
    // The cast stops at the largest integer; a run that long is the dearest either way.
    let gpu_seconds = (gpu_hours * SECONDS_PER_HOUR as f64).ceil() as i64;
    i128::from(rate) * i128::from(gpu_seconds) / i128::from(SECONDS_PER_HOUR)
}
