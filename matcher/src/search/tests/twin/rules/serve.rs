//! The rules of fleets: each offer predicted separately, its nodes found by counting up.

use market::demand::{LatencyObjective, Model};
use market::gpu::Gpu;

use super::super::super::*;
use super::Twin;
use crate::models::ModelFigures;
use crate::perf::chip::Chip;
use crate::perf::constants::Constants;
use crate::perf::replica::{CacheFormat, CannotServe, WeightFormat};
use crate::perf::serving::ServingWork;

/// The rules of a fleet of one offer for so many requests in flight, with the nodes found by
/// counting up.
pub fn serve_rules(
    twin: &Twin<'_>,
    concurrency: u32,
    offer: &Offer,
) -> Result<((i128, u64), u32), ReasonCode> {
    let work = ServingWork {
        model: ModelFigures::of(&Model::Named("Llama 3 70B".into())).expect("known"),
        weights: WeightFormat::Bf16,
        cache: CacheFormat::Bf16,
        input_tokens: 512.0,
        output_tokens: 256.0,
        latency: LatencyObjective {
            per_token_ms: Some(60.0),
            ..LatencyObjective::default()
        },
    };
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
    // Each offer is predicted separately: no shape is cached.
    let chip = Chip::of_spec(gpu.spec()).expect("published");
    let copies = |width: u32| work.replica(&Constants::product().inference, &chip, width, 0.0);
    let widths: Vec<u32> = [1, 2, 4, 8]
        .into_iter()
        .filter(|width| *width <= per_node)
        .collect();
    let places = |width: &u32| {
        copies(*width).map_or(0, |copy| copy.batch.floor() as u32 * (per_node / width))
    };
    let most = widths.iter().map(places).max().unwrap_or(0);
    let slow = widths
        .iter()
        .any(|width| copies(*width) == Err(CannotServe::TooSlow));
    if most == 0 {
        return Err(if slow {
            ReasonCode::Latency
        } else {
            ReasonCode::Memory
        });
    }
    let nodes = (1..=MAX_NODES)
        .find(|nodes| most * nodes >= concurrency)
        .ok_or(ReasonCode::NotEnoughNodes)?;
    if let Some(code) = twin.stock_and_cost_reason(offer, nodes) {
        return Err(code);
    }
    let rate = offer.rate().expect("it fits").money_per_gpu_hour().units();
    let cost = i128::from(rate) * i128::from(per_node * nodes);
    // Of two at one price the roomier comes first.
    Ok(((cost, u64::MAX - u64::from(most * nodes)), nodes))
}
