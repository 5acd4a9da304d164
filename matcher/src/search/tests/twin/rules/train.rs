//! The rules of runs: every number of nodes by itself, each layout by plain loops.

use std::cell::RefCell;

use market::demand::{Model, Precision, TrainMethod};
use market::fabric::Internode;
use market::gpu::Gpu;
use market::offer::Tenancy;

use super::super::super::*;
use super::Twin;
use crate::models::ModelFigures;
use crate::perf::memory::{TRAINING_FRACTION, TrainingMemory};
use crate::perf::run::tests::naive;
use crate::perf::run::{RunNodes, RunWork};

/// The rules of full training in bf16, each offer by itself.
pub fn train_rules(
    twin: &Twin<'_>,
    gpus: Option<u32>,
    hours: Option<f64>,
    offer: &Offer,
) -> Result<((i128, u8), u32), ReasonCode> {
    let model = ModelFigures::of(&Model::Named("Llama 3 70B".into())).expect("known");
    if !offer.price_per_node_hour.is_positive() {
        return Err(ReasonCode::NoPrice);
    }
    if let Some(code) = twin.gpu_memory_reason(offer) {
        return Err(code);
    }
    // The weakest H100 is the PCIe form: the others are better in everything.
    let open = || Gpu::parse("H100-PCIe").expect("a GPU");
    let gpu = offer.gpu.known().unwrap_or_else(open);
    let per_node = offer.gpus.as_whole().ok_or(ReasonCode::Slice)?;
    if offer.terms != Terms::OnDemand {
        return Err(ReasonCode::Terms);
    }
    if let Some(code) = twin.shared_reason(offer) {
        return Err(code);
    }
    let spec = gpu.spec();
    let board = spec.node_form.contains("HGX") || spec.node_form.contains("OAM");
    let memory = TrainingMemory::of(
        &model,
        TrainMethod::Full,
        4_096,
        if board { per_node } else { 1 },
    );
    let fits = |nodes: u32| {
        let room = spec.memory_gb * 1e9 * TRAINING_FRACTION - memory.bytes_per_gpu;
        memory.state_bytes <= room * f64::from(nodes * per_node)
    };
    let ethernet = twin.shared["policy"]["allow_ethernet"] == json!(true);
    let rdma = matches!(
        offer.internode,
        Internode::InfinibandNdr400 | Internode::Roce400
    );
    let work = RunWork {
        model: model.clone(),
        method: TrainMethod::Full,
        precision: Precision::Bf16,
        sequence_length: 4_096,
        step_sequences: None,
        tokens: 10_000_000_000,
        checkpoint_interval_seconds: None,
        checkpoint_bytes: None,
    };
    let kind = RunNodes::new(spec, per_node, offer.internode).expect("published");
    let on = |nodes: u32| predicted(&work, &kind, offer.internode, nodes);
    let gang = || match () {
        () if offer.tenancy == Tenancy::Container || offer.tenancy == Tenancy::Managed => {
            Some(ReasonCode::GangTenancy)
        }
        () if per_node < 4 || !board => Some(ReasonCode::GangNode),
        () if !(rdma || (ethernet && offer.internode == Internode::Ethernet)) => {
            Some(ReasonCode::Fabric)
        }
        () => None,
    };
    let fewest = match gpus {
        Some(gpus) if gpus % per_node != 0 => return Err(ReasonCode::GpusDoNotDivide),
        Some(gpus) if !fits(gpus / per_node) => return Err(ReasonCode::Memory),
        Some(gpus) => gpus / per_node,
        None => (1..=MAX_NODES)
            .find(|nodes| fits(*nodes))
            .ok_or(ReasonCode::Memory)?,
    };
    if fewest > 1
        && let Some(code) = gang()
    {
        return Err(code);
    }
    let most = match gpus {
        Some(_) => fewest,
        None if gang().is_some() => 1,
        // More are above the ceiling at any price of the market.
        None => MOST_NODES,
    };
    // By default the run must be done before the evidence of its provider ends.
    let (hours, late_code) = match twin.evidence_hours(offer).filter(|_| hours.is_none()) {
        Some(lasts) => (Some(lasts), ReasonCode::Certification),
        None => (hours, ReasonCode::Deadline),
    };
    let rate = offer.rate().expect("it fits").money_per_gpu_hour().units();
    // Each number of nodes by itself: its cost, or the reason for its refusal.
    let mut refusal = None;
    let mut best: Option<(i128, u32)> = None;
    for nodes in fewest..=most {
        let Some((gpu_hours, run_hours)) = on(nodes) else {
            continue;
        };
        let late = hours.is_some_and(|hours| run_hours > hours);
        if late {
            continue;
        }
        if let Some(code) = twin.stock_and_cost_reason(offer, nodes) {
            // With more nodes no other offer has enough of them, or is below the ceiling.
            refusal.get_or_insert(code);
            break;
        }
        let seconds = (gpu_hours * 3_600.0).ceil() as i64;
        let cost = i128::from(rate) * i128::from(seconds) / 3_600;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, nodes));
        }
    }
    let Some((cost, nodes)) = best else {
        let late = || match gpus {
            None => gang().unwrap_or(late_code),
            Some(_) => late_code,
        };
        return Err(refusal.unwrap_or_else(late));
    };
    let machine = match offer.tenancy {
        Tenancy::BareMetal => 0,
        Tenancy::Vm => 1,
        _ => 2,
    };
    // Over Ethernet only bare metal is distinguished from the other kinds of machine.
    let over_ethernet = nodes > 1 && !rdma;
    let machine = if over_ethernet {
        3 + machine.min(1)
    } else {
        machine
    };
    let small = u8::from(!(board && per_node == 8 && spec.memory_gb >= 80.0));
    Ok(((cost, machine * 2 + small), nodes))
}

/// The most nodes that the twin's demands may take of the cheapest node of its markets.
const MOST_NODES: u32 = 115;

/// GPU-hours and hours of the run on so many nodes, by plain loops over every layout, cached from one random
/// market to the next.
fn predicted(
    work: &RunWork,
    kind: &RunNodes,
    internode: Internode,
    nodes: u32,
) -> Option<(f64, f64)> {
    type Shape = (String, u32, Internode, u32);
    thread_local! {
        static KNOWN: RefCell<HashMap<Shape, Option<(f64, f64)>>> = RefCell::default();
    }
    let shape = (kind.chip.name.clone(), kind.gpus_per_node, internode, nodes);
    KNOWN.with_borrow_mut(|known| {
        *known.entry(shape).or_insert_with(|| {
            let gpus = f64::from(nodes * kind.gpus_per_node);
            let rate = naive(work, kind, nodes)?;
            let hours = work.tokens as f64 / (rate * useful_share(work, gpus)) / 3_600.0;
            Some((hours * gpus, hours))
        })
    })
}

/// The share of the time that remains after failures and checkpoints. Source: Daly 2006.
fn useful_share(work: &RunWork, gpus: f64) -> f64 {
    let between = 51_000.0 * 3_600.0 / gpus;
    let written = work.model.params_total * 14.0 / 10e9;
    let ratio = written / (2.0 * between);
    let first = (2.0 * written * between).sqrt();
    let interval = first * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - written;
    1.0 - (written / interval + (interval / 2.0 + 600.0) / between)
}
