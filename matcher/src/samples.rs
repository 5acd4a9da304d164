//! Small whole offers and snapshots for the tests of this crate.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::{OfferId, ProviderId};
use market::money::{Currency, Money};
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::place::Place;
use market::quantity::GpuCount;

use crate::snapshot::{ProviderView, Snapshot};

pub fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

pub fn provider(word: &str) -> ProviderId {
    ProviderId::parse(word).expect("a provider")
}

pub fn usd(text: &str) -> Money {
    Money::parse(text, Currency::Usd).expect("a decimal amount")
}

/// An on-demand VM of this many GPUs at this price per node and hour, one of plenty.
pub fn offer(sku: &str, gpu: &str, gpus: u32, price: &str) -> Offer {
    Offer {
        offer_id: OfferId::of_identity(&[sku]),
        provider: provider("lambda"),
        sku: sku.into(),
        raw_gpu_name: gpu.into(),
        gpu: GpuIdentity::parse(gpu).expect("a GPU"),
        gpus: GpuCount::whole(gpus).expect("a count"),
        gpu_memory_mib: None,
        vcpus: None,
        memory_gib: None,
        place: Place::unknown(),
        tenancy: Tenancy::Vm,
        terms: Terms::OnDemand,
        internode: Internode::None,
        price_per_node_hour: usd(price),
        availability: Availability::PRESENT,
        orderable: true,
        particulars: Default::default(),
        observed_at: now(),
    }
}

/// Eight of these GPUs on bare metal with InfiniBand between the nodes.
pub fn metal(sku: &str, gpu: &str, price: &str) -> Offer {
    Offer {
        tenancy: Tenancy::BareMetal,
        internode: Internode::InfinibandNdr400,
        ..offer(sku, gpu, 8, price)
    }
}

/// A snapshot in which every provider's offers may be ten minutes old.
pub fn snapshot(offers: Vec<Offer>) -> Snapshot {
    let view = ProviderView {
        freshness_limit_seconds: Some(600),
        ..ProviderView::default()
    };
    let providers: HashMap<_, _> = offers
        .iter()
        .map(|offer| (offer.provider.clone(), view.clone()))
        .collect();
    Snapshot::new(7, now(), offers, providers)
}
