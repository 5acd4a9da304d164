//! Counts the allocations of a search: it allocates for the candidates that it shows, and not for other
//! offers.

use std::collections::HashMap;

use allocation_counter::measure;
use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::{OfferId, ProviderId};
use market::money::Money;
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use matcher::{Held, ProviderView, SearchOptions, Snapshot, search};

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH
}

/// So many offers of one provider, every other one an H100 board.
fn market(count: usize) -> Snapshot {
    let seller = ProviderId::parse("lambda").expect("a provider");
    let offers = (0..count).map(|nth| Offer {
        offer_id: OfferId::of_identity(&[&nth.to_string()]),
        provider: seller.clone(),
        sku: "board".into(),
        raw_gpu_name: "GPU".into(),
        gpu: GpuIdentity::parse(["H100-SXM", "L4"][nth % 2]).expect("a GPU"),
        gpus: GpuCount::whole(8).expect("a count"),
        gpu_memory_mib: None,
        vcpus: None,
        memory_gib: None,
        place: Place::resolve("lambda", "us-west-1", ""),
        tenancy: Tenancy::Vm,
        terms: Terms::OnDemand,
        internode: Internode::None,
        price_per_node_hour: Money::usd_units((nth % 977 + 1) as i64 * 100_000_000),
        availability: Availability::PRESENT,
        orderable: true,
        particulars: Default::default(),
        observed_at: now(),
    });
    let view = ProviderView {
        freshness_limit_seconds: Some(600),
        ..ProviderView::default()
    };
    Snapshot::new(1, now(), offers, HashMap::from([(seller.clone(), view)]))
}

#[test]
fn a_search_allocates_for_what_it_shows_however_large_the_market_is() {
    let demand: Demand =
        serde_json::from_str(r#"{"kind":"gpus","gpu":"H100-SXM","count":8}"#).expect("a demand");
    let (held, options) = (Held::new(), SearchOptions::default());
    let of = |count: usize| {
        let snapshot = market(count);
        let find = || search(&snapshot, &demand, &held, now(), &options).expect("a plan");
        // Data that is read only once, such as the catalogue, is loaded by then.
        assert_eq!(find().candidates.len(), 10);
        measure(|| drop(find())).count_total
    };
    let small = of(1_000);
    assert_eq!(small, of(50_000));
    // Ten candidates, each with an offer's texts and three reasons, and one refused example.
    assert!(small <= 200, "{small} allocations");
}
