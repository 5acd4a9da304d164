//! Demands of the kind `train`: a gang in one fabric, or one node, that holds the model and is
//! done in time.
//!
//! Candidates rank by the predicted cost of the run, including failures (`perf::run`). The kind of machine
//! decides only among candidates that cost nearly the same ([`crate::ties`]). The order is: bare metal with
//! RDMA between its nodes (or one node), virtual machines with the same, one node of another kind, bare metal
//! over plain Ethernet, and other machines over it. Within each kind, for full training, whole boards of
//! eight GPUs with 80 GB or more come before smaller nodes. For adapters over weights that fit on a node,
//! Ethernet is as good as RDMA.
//!
//! Where the demand leaves the number of GPUs open, every number of nodes is tried (`perf::run::counts`). Of
//! the numbers that an offer has and the ceiling allows, the search uses the one on which the run costs
//! least. Offers of one shape are predicted once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use chrono::{DateTime, Utc};
use market::demand::check::LONGEST_HOURS;
use market::demand::{Precision, TrainDemand, TrainMethod};
use market::fabric::{FabricWanted, Internode};
use market::gpu::GpuSpec;
use market::money::{Rate, SECONDS_PER_HOUR};
use market::offer::{Offer, Tenancy};

use crate::MatchError;
use crate::hardware::{
    GANG_NODE_GPUS, TrainingClass, is_training_class, joined_all_to_all, tensor_domain_gpus,
};
use crate::models::ModelFigures;
use crate::perf::calibration::Calibration;
use crate::perf::constants::Constants;
use crate::perf::memory::{TRAINING_FRACTION, TrainingMemory};
use crate::perf::run::{Counts, Run, RunNodes, RunWork, net_bytes_per_second, peak_tflops};
use crate::perf::step_time::Strategy;
use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key, MAX_NODES, most_nodes};
use crate::snapshot::Row;

/// The requirements of a `train` demand on each offer.
pub(crate) struct TrainQuery<'a> {
    pub(crate) demand: &'a TrainDemand,
    pub(crate) work: RunWork,
    /// The time limit of the run: the deadline or the window's end, whichever is earlier.
    /// Units: hours from the start.
    pub(crate) hours_available: Option<f64>,
    /// The measured step, where there is one.
    pub(crate) calibration: Option<Calibration>,
    joined_by: FabricWanted,
    /// The predictions so far; offers of one shape differ in price alone.
    runs: RefCell<HashMap<Shape, Option<Run>>>,
    /// The runs that get cheaper with more nodes.
    curves: RefCell<HashMap<Curve, Rc<[Run]>>>,
}

/// The inputs of a prediction: GPU, GPUs of a node, nodes, whether the fabric is RDMA, and its rate. A single
/// node does not use the fabric. Several names are one fabric.
type Shape = (&'static str, u32, u32, bool, Option<u64>);

/// The inputs of a curve: the shape with the most nodes, and the bits of its hours.
type Curve = (Shape, u64);

fn shape(spec: &'static GpuSpec, gpus_per_node: u32, nodes: u32, internode: Internode) -> Shape {
    let rate = net_bytes_per_second(internode, gpus_per_node).to_bits();
    let name = spec.canonical.as_str();
    let rate = (nodes > 1).then_some(rate);
    (name, gpus_per_node, nodes, internode.is_rdma(), rate)
}

/// The result of a run on one offer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TrainFit {
    /// The run in its best layout.
    pub(crate) run: Run,
    /// The peak of one GPU. Units: TFLOPS.
    pub(crate) peak_tflops: f64,
    /// The nodes that the memory alone needs.
    pub(crate) nodes_for_memory: u32,
    /// The fewest sufficient nodes: they hold the model and finish in time.
    pub(crate) fewest_nodes: u32,
    memory: TrainingMemory,
    machine: Machine,
    /// The most nodes that were tried; `None` where the tenant fixed their number.
    at_most: Option<u32>,
    /// The hours within which the run must be done.
    within_hours: f64,
}

/// The machine of a run, independent of its price and stock.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Machine {
    spec: &'static GpuSpec,
    gpus_per_node: u32,
    internode: Internode,
    tenancy: Tenancy,
}

impl TrainFit {
    /// The least memory that the run needs over all GPUs. Units: bytes.
    pub(crate) fn needed_bytes(&self) -> f64 {
        self.memory.total_bytes(self.run.gpus)
    }

    /// Memory that may be filled over all GPUs. Units: bytes.
    pub(crate) fn available_bytes(&self) -> f64 {
        let each = self.machine.spec.memory_gb * 1e9 * TRAINING_FRACTION;
        each * f64::from(self.run.gpus)
    }

    fn nodes(&self) -> u32 {
        self.run.gpus / self.machine.gpus_per_node
    }

    /// The class of machine of the run.
    fn class(&self, method: TrainMethod) -> TrainingClass {
        let Machine {
            spec,
            gpus_per_node,
            internode,
            tenancy,
        } = self.machine;
        // Adapters exchange next to nothing where each node holds the weights.
        let exchanges = !matches!(
            self.run.layout.strategy,
            Strategy::Adapters | Strategy::FrozenInNode
        );
        let joined = self.nodes() == 1 || internode.is_rdma() || !exchanges;
        let small = method == TrainMethod::Full && !is_training_class(spec, gpus_per_node);
        TrainingClass::of(tenancy, joined, small)
    }
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
        let checkpointing = demand.checkpointing.as_ref();
        let interval = checkpointing.and_then(|c| c.interval_minutes);
        let size_gb = checkpointing.and_then(|c| c.size_gb);
        let work = RunWork {
            model: ModelFigures::of(&demand.model)?,
            method,
            precision,
            sequence_length: demand.sequence_length,
            step_sequences: demand.global_batch_sequences,
            tokens: demand.tokens,
            checkpoint_interval_seconds: interval.map(|minutes| f64::from(minutes) * 60.0),
            checkpoint_bytes: size_gb.map(|gb| gb * 1e9),
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
            joined_by: demand.joined_by(),
            runs: RefCell::default(),
            curves: RefCell::default(),
        })
    }

    /// How the demand uses the offer with as many nodes as the tenant fixed, else with the fewest that hold
    /// the model and finish in time ([`time_for`]). [`TrainQuery::larger`] has the results with more nodes.
    pub(crate) fn fit(
        &self,
        row: &Row,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        evidence_hours: Option<f64>,
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
        let at_least = match settled {
            Some(nodes) if nodes < nodes_for_memory => return Err(ReasonCode::Memory),
            settled => settled.unwrap_or(nodes_for_memory),
        };
        let gang = self.check_gang(offer, spec, gpus_per_node);
        if at_least > 1 {
            gang?;
        }
        let (within_hours, too_late) = time_for(self.hours_available, evidence_hours);
        if within_hours <= 0.0 {
            return Err(too_late);
        }
        let machine = Machine {
            spec,
            gpus_per_node,
            internode: offer.internode,
            tenancy: offer.tenancy,
        };
        let run_at_least = || {
            let run = self.run_on(spec, gpus_per_node, offer.internode, at_least);
            run.ok_or(ReasonCode::Memory)
        };
        let (run, at_most) = if settled.is_some() {
            let run = run_at_least()?;
            if !run.hours.is_finite() || run.hours > within_hours {
                return Err(too_late);
            }
            (run, None)
        } else {
            let at_most = if gang.is_ok() { MAX_NODES } else { 1 };
            let curve = self.curve(&machine, at_least, at_most, within_hours);
            let Some(run) = curve.first() else {
                run_at_least()?;
                gang?;
                return Err(too_late);
            };
            (*run, Some(at_most))
        };
        let train = TrainFit {
            run,
            peak_tflops: peak,
            nodes_for_memory,
            fewest_nodes: run.gpus / gpus_per_node,
            memory,
            machine,
            at_most,
            within_hours,
        };
        Ok(self.fit_of(train, run_cost_units(row.rate, run.gpu_hours())))
    }

    /// The next larger number of nodes on which the run costs less; `None` where none does.
    pub(crate) fn larger(&self, train: &TrainFit) -> Option<Fit> {
        let (at_least, at_most) = (train.nodes_for_memory, train.at_most?);
        let curve = self.curve(&train.machine, at_least, at_most, train.within_hours);
        let run = curve.iter().find(|run| run.gpus > train.run.gpus)?;
        let train = TrainFit {
            run: *run,
            ..*train
        };
        // Its cost depends on the price of each offer.
        Some(self.fit_of(train, 0))
    }

    fn fit_of(&self, train: TrainFit, cost: i128) -> Fit {
        Fit {
            nodes: train.nodes(),
            key: Key { cost, then: (0, 0) },
            class: train.class(self.demand.method),
            figures: Figures::Train(train),
        }
    }

    /// The runs that finish in time and get cheaper with more nodes of this kind.
    fn curve(
        &self,
        machine: &Machine,
        at_least: u32,
        at_most: u32,
        within_hours: f64,
    ) -> Rc<[Run]> {
        let Machine {
            spec,
            gpus_per_node,
            internode,
            ..
        } = *machine;
        let shape = shape(spec, gpus_per_node, at_most, internode);
        let shape = (shape, within_hours.to_bits());
        if let Some(known) = self.curves.borrow().get(&shape) {
            return Rc::clone(known);
        }
        let counts = Counts {
            at_least,
            at_most,
            within_hours,
            speed: self.calibration.as_ref().map_or(1.0, Calibration::factor),
        };
        let kind = RunNodes::new(spec, gpus_per_node, internode);
        let runs = kind.map(|kind| self.work.ever_cheaper(Constants::product(), &kind, &counts));
        let runs: Rc<[Run]> = runs.unwrap_or_default().into();
        let mut curves = self.curves.borrow_mut();
        Rc::clone(curves.entry(shape).or_insert(runs))
    }

    /// The memory of a run on nodes of this kind; only GPUs of one domain split one sequence.
    pub(crate) fn memory(&self, spec: &GpuSpec, gpus_per_node: u32) -> TrainingMemory {
        let domain_gpus = tensor_domain_gpus(spec, gpus_per_node);
        self.work.least_memory(gpus_per_node, domain_gpus)
    }

    /// The run in its best layout on so many nodes; `None` where none fits.
    pub(crate) fn run_on(
        &self,
        spec: &'static GpuSpec,
        gpus_per_node: u32,
        internode: Internode,
        nodes: u32,
    ) -> Option<Run> {
        let shape = shape(spec, gpus_per_node, nodes, internode);
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

    /// Whether several nodes of this offer may be used in one gang.
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
        // Without a known fabric the offer cannot run a gang.
        let carries = offer.internode.is_rdma() || offer.internode == Internode::Ethernet;
        let joined = carries && self.joined_by.accepts(offer.internode);
        if joined {
            Ok(())
        } else {
            Err(ReasonCode::Fabric)
        }
    }
}

/// The hours that work may take, and the reason for a refusal where it takes more. The limit is the tenant's
/// own, else the time for which the evidence of its provider lasts, and never more than the longest
/// reservation.
pub(crate) fn time_for(own: Option<f64>, evidence: Option<f64>) -> (f64, ReasonCode) {
    let longest = f64::from(LONGEST_HOURS);
    match (own, evidence) {
        (None, Some(hours)) if hours < longest => (hours, ReasonCode::Certification),
        _ => (
            own.map_or(longest, |own| own.min(longest)),
            ReasonCode::Deadline,
        ),
    }
}

/// The cost of so many GPU-hours at an offer's rate. Units: 1e-8 US dollars.
pub(crate) fn run_cost_units(rate: Option<Rate>, gpu_hours: f64) -> i128 {
    let rate = rate.map_or(0, |rate| rate.money_per_gpu_hour().units());
    // The cast stops at the largest integer; so long a run is the most expensive one anyway.
    let gpu_seconds = (gpu_hours * SECONDS_PER_HOUR as f64).ceil() as i64;
    i128::from(rate) * i128::from(gpu_seconds) / i128::from(SECONDS_PER_HOUR)
}
