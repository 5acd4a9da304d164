//! Shadeform, over recordings and against a scripted server.

mod leases;
mod orders;

use std::path::Path;

use adapters::providers::shadeform::Shadeform;
use adapters::{Adapter, AdapterError, Delivery, NodesPerLease};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::offer::{Availability, Offer, Tenancy, Terms};
use serde_json::{Value, json};

use crate::recorded::{assert_golden, made_up, now, recorded};

const TYPES: &str = "/instances/types";
const CLUSTER_TYPES: &str = "/clusters/types";

/// One machine of eight H100, on demand and as spot.
fn machine() -> Value {
    json!({
        "cloud": "hyperstack", "shade_instance_type": "H100_sxm5x8", "hourly_price": 1980, "deployment_type": "vm",
        "configuration": {"num_gpus": 8, "gpu_type": "H100_sxm5", "interconnect": "sxm5", "vram_per_gpu_in_gb": 80,
            "memory_in_gb": 1800, "storage_in_gb": 32000, "vcpus": 192},
        "availability": [
            {"region": "canada-1", "available": true, "display_name": "Toronto", "rental_type": "on_demand"},
            {"region": "canada-1", "available": false, "display_name": "Toronto", "rental_type": "spot", "hourly_price": "12.80"}],
    })
}

/// A cluster of two such machines.
fn cluster() -> Value {
    let mut kind = machine();
    kind["availability"] = json!([]);
    json!({"cloud": "denvr", "num_instances": 2, "cluster_type": kind,
        "availability": {"region": "houston-usa-1", "available": true, "display_name": "US, Houston, TX"}})
}

/// Changes the field at a JSON pointer, or takes it away.
fn with(mut record: Value, at: &str, value: Value) -> Value {
    let (parent, field) = at.rsplit_once('/').expect("a pointer");
    let parent = record.pointer_mut(parent).expect("a parent");
    match (parent, value) {
        (Value::Object(fields), Value::Null) => drop(fields.remove(field)),
        (parent, value) => parent[field.parse::<usize>().map_or(field, |_| field)] = value,
    }
    record
}

async fn read(types: Vec<Value>, clusters: Vec<Value>) -> CatalogReading {
    let http = made_up(&[
        ("GET", TYPES, 200, json!({"instance_types": types})),
        (
            "GET",
            CLUSTER_TYPES,
            200,
            json!({"cluster_types": clusters}),
        ),
    ]);
    Shadeform
        .read_catalog(&http, now())
        .await
        .expect("a reading")
}

fn reasons(reading: &CatalogReading) -> Vec<(SkipReason, u64)> {
    let skipped = reading.skipped.iter();
    skipped.map(|one| (one.reason, one.rows)).collect()
}

async fn golden() -> CatalogReading {
    let http = recorded("shadeform", "catalog");
    Shadeform
        .read_catalog(&http, now())
        .await
        .expect("a reading")
}

/// The offer of this SKU and these terms in the recording.
async fn an_offer(sku: &str, terms: Terms) -> Offer {
    let wanted = |offer: &Offer| offer.sku == sku && offer.terms == terms;
    let offers = golden().await.offers.into_iter();
    offers
        .clone()
        .find(wanted)
        .unwrap_or_else(|| panic!("{sku} is not among {offers:?}"))
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = golden().await;
    assert!(reading.is_whole());
    assert_golden("shadeform", &reading);
}

#[tokio::test]
async fn a_cluster_is_one_lease_of_all_its_nodes_and_gets_its_agent_over_ssh() {
    let one = an_offer("hyperstack/H100_sxm5x8", Terms::OnDemand).await;
    assert_eq!(Shadeform.nodes_per_lease(&one), NodesPerLease::One);
    assert_eq!(Shadeform.delivery(&one), Delivery::CloudInitScript);
    assert_eq!(
        (one.internode, one.availability),
        (Internode::None, Availability::PRESENT)
    );
    let two = an_offer("denvr/H100_sxm5x8/cluster-2", Terms::OnDemand).await;
    assert_eq!(
        Shadeform.nodes_per_lease(&two),
        NodesPerLease::Rental { max: 2 }
    );
    assert_eq!(Shadeform.delivery(&two), Delivery::SshPush);
    assert_eq!(
        (two.internode, two.availability),
        (Internode::Unknown, Availability::exactly(2))
    );
    assert_eq!(two.price_per_node_hour.to_string(), "14.00");
}

#[tokio::test]
async fn ids_are_the_same_whether_sold_out_or_not() {
    let ids = |reading: CatalogReading| {
        reading
            .offers
            .iter()
            .map(|offer| offer.offer_id)
            .collect::<Vec<_>>()
    };
    let free = ids(read(vec![machine()], vec![cluster()]).await);
    let sold_out = with(machine(), "/availability/0/available", json!(false));
    let gone = with(cluster(), "/availability/available", json!(false));
    let reading = read(vec![sold_out], vec![gone]).await;
    assert!(
        reading
            .offers
            .iter()
            .all(|offer| offer.availability.is_sold_out())
    );
    assert_eq!((free.len(), ids(reading)), (3, free));
}

#[tokio::test]
async fn what_is_absent_is_unknown_and_never_no() {
    let silent = with(machine(), "/availability/0/available", Value::Null);
    let silent = with(silent, "/availability/0/rental_type", Value::Null);
    let silent = with(silent, "/configuration/vcpus", json!(0));
    let silent = with(silent, "/configuration/storage_in_gb", Value::Null);
    let offer = &read(vec![silent], vec![]).await.offers[0];
    assert_eq!(
        (offer.terms, offer.availability),
        (Terms::OnDemand, Availability::UNKNOWN)
    );
    assert_eq!((offer.vcpus, offer.particulars.disk_gib), (None, None));
}

#[tokio::test]
async fn an_odd_record_gives_its_reason_and_takes_nobody_elses_offer() {
    use SkipReason::*;
    let spot = "/availability/1/hourly_price";
    for (at, value, offers, why) in [
        ("/hourly_price", json!(0), 1, NoPrice),
        ("/hourly_price", Value::Null, 1, NoPrice),
        ("/hourly_price", json!(-1980), 1, ImplausiblePrice),
        ("/hourly_price", json!(198_000_000), 1, ImplausiblePrice),
        ("/hourly_price", json!(u64::MAX), 1, ImplausiblePrice),
        ("/hourly_price", json!("19.80"), 1, Unreadable),
        (spot, Value::Null, 1, NoPrice),
        (spot, json!("0.00"), 1, NoPrice),
        (spot, json!(1280), 1, Unreadable),
        (spot, json!("12,80 EUR"), 1, Unreadable),
        (spot, json!("19.81"), 1, SpotAboveOnDemand),
        (
            "/availability/1/rental_type",
            json!("lease to own"),
            1,
            Unreadable,
        ),
        (
            "/availability/1/rental_type",
            json!("on_demand"),
            1,
            ContradictsList,
        ),
        ("/availability/1/region", json!(""), 1, Unreadable),
        ("/availability", json!([]), 0, NoPlace),
        ("/availability", json!("everywhere"), 0, Unreadable),
        ("/deployment_type", json!("mainframe"), 0, Unreadable),
        ("/cloud", json!(""), 0, Unreadable),
        ("/configuration", json!("big"), 0, Unreadable),
        ("/configuration/num_gpus", json!(0), 0, NoGpu),
        ("/configuration/num_gpus", json!(-8), 0, ImpossibleCount),
        ("/configuration/num_gpus", json!(u64::MAX), 0, Unreadable),
        (
            "/configuration/memory_in_gb",
            json!(u64::MAX),
            0,
            Unreadable,
        ),
        (
            "/configuration/vram_per_gpu_in_gb",
            json!(24),
            0,
            UnknownGpu,
        ),
        (
            "/configuration/interconnect",
            json!("pcie"),
            0,
            ContradictsList,
        ),
        (
            "/configuration/gpu_type",
            json!("A6000"),
            0,
            ContradictsList,
        ),
        ("/configuration/gpu_type", json!(8), 0, Unreadable),
        ("/shade_instance_type", json!("A6000x8"), 0, ContradictsList),
        (
            "/shade_instance_type",
            json!("H100x8/cluster-2"),
            0,
            Unreadable,
        ),
    ] {
        let odd = with(with(machine(), "/cloud", json!("acme")), at, value.clone());
        let reading = read(vec![odd, machine()], vec![]).await;
        let shown = format!("{at} {value}: {reading:?}");
        assert_eq!(reading.offers.len(), offers + 2, "{shown}");
        assert!(
            reading.skipped.iter().any(|one| one.reason == why),
            "{shown}"
        );
        let counted: u64 = reading.skipped.iter().map(|one| one.rows).sum();
        assert_eq!(counted, u64::from(offers == 0), "{shown}");
        assert!(
            !reading.unread.may_hold("hyperstack/H100_sxm5x8"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn an_odd_cluster_gives_its_reason() {
    use SkipReason::*;
    for (at, value, why) in [
        ("/num_instances", json!(0), ImpossibleCount),
        ("/num_instances", json!(-2), ImpossibleCount),
        ("/num_instances", json!(4_294_967_298_i64), ImpossibleCount),
        ("/num_instances", json!(u64::MAX), Unreadable),
        ("/cluster_type/hourly_price", Value::Null, NoPrice),
        ("/availability", json!([]), Unreadable),
        (
            "/cluster_type/configuration/gpu_type",
            Value::Null,
            Unreadable,
        ),
    ] {
        let reading = read(vec![machine()], vec![with(cluster(), at, value.clone())]).await;
        assert_eq!(reasons(&reading), [(why, 1)], "{at} {value}");
        assert_eq!(reading.offers.len(), 2, "{at} {value}");
    }
}

#[tokio::test]
async fn a_type_that_is_listed_twice_is_one_offer() {
    let reading = read(vec![machine(), machine()], vec![cluster(), cluster()]).await;
    assert_eq!(reading.offers.len(), 3);
    let twice = SkipReason::ContradictsList;
    assert_eq!(reasons(&reading), [(twice, 1), (twice, 0), (twice, 1)]);
}

#[tokio::test]
async fn a_container_is_listed_and_not_ordered() {
    let container = with(machine(), "/deployment_type", json!("container"));
    let reading = read(vec![container], vec![]).await;
    assert_eq!(reading.offers.len(), 2);
    let is_listed = |offer: &Offer| offer.tenancy == Tenancy::Container && !offer.orderable;
    assert!(reading.offers.iter().all(is_listed));
}

#[tokio::test]
async fn a_listing_that_is_cut_short_is_not_whole() {
    let named = json!({"cloud": "acme", "shade_instance_type": "H100_sxm5"});
    let unread = read(vec![machine(), named], vec![]).await.unread;
    assert_eq!(unread, Unread::Skus(["acme/H100_sxm5".to_owned()].into()));
    let nameless = read(vec![machine(), json!({"cloud": "acme"})], vec![]).await;
    assert_eq!((nameless.unread, nameless.offers.len()), (Unread::Rest, 2));
    let sized = with(cluster(), "/cluster_type/deployment_type", Value::Null);
    let unread = read(vec![machine()], vec![sized]).await.unread;
    assert_eq!(
        unread,
        Unread::Skus(["denvr/H100_sxm5x8/cluster-2".to_owned()].into())
    );
    for (status, clusters) in [
        (200, json!("{\"cluster_ty")),
        (500, json!({})),
        (200, json!({})),
        (404, json!({})),
    ] {
        let http = made_up(&[
            ("GET", TYPES, 200, json!({"instance_types": [machine()]})),
            ("GET", CLUSTER_TYPES, status, clusters),
        ]);
        let reading = Shadeform
            .read_catalog(&http, now())
            .await
            .expect("half a reading");
        assert_eq!(
            (reading.unread, reading.offers.len()),
            (Unread::Rest, 2),
            "{status}"
        );
    }
    for (status, types) in [
        (200, json!("{\"instance_ty")),
        (500, json!({})),
        (401, json!({"error": "Invalid API key"})),
    ] {
        let http = made_up(&[("GET", TYPES, status, types)]);
        assert!(
            Shadeform.read_catalog(&http, now()).await.is_err(),
            "{status}"
        );
    }
}

/// The published document beside this workspace, where somebody has put it.
fn published() -> Option<Value> {
    let file = "../../shared/providers/specs/shadeform-openapi-1.0.0.json";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let Ok(text) = std::fs::read(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    };
    Some(serde_json::from_slice(&text).expect("JSON"))
}

#[tokio::test]
async fn the_examples_of_the_published_document_are_read_as_a_person_reads_them() {
    let Some(document) = published() else { return };
    let example = |name: &str| document["components"]["schemas"][name]["example"].clone();
    let http = made_up(&[
        ("GET", TYPES, 200, example("InstanceTypesResponse")),
        ("GET", CLUSTER_TYPES, 200, example("ClusterTypesResponse")),
    ]);
    let reading = Shadeform
        .read_catalog(&http, now())
        .await
        .expect("a reading");
    let shown: Vec<_> = reading
        .offers
        .iter()
        .map(|offer| {
            let place = &offer.place;
            let country = place.country.map(|country| country.to_string());
            format!(
                "{} {} {} at {} in {} {} {} {:?} over {}",
                offer.sku,
                offer.gpus,
                offer.gpu,
                offer.rate().expect("a rate"),
                place.region.as_deref().unwrap_or_default(),
                country.unwrap_or_default(),
                place.metro.as_deref().unwrap_or_default(),
                offer.availability.nodes,
                offer.internode
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "denvr/H100_sxm5x8/cluster-2 8 H100-SXM at 1.75 in houston-usa-1 US Houston Some(2) over unknown",
        ]
    );
    // It shows an A6000 twice, each time with an A100 in it.
    assert_eq!(reasons(&reading), [(SkipReason::ContradictsList, 1); 2]);
    let http = made_up(&[
        (
            "GET",
            "/clusters",
            200,
            json!({"clusters": [example("ClusterInfoResponse")]}),
        ),
        ("GET", "/instances", 200, json!({"instances": []})),
    ]);
    let leases: Result<_, AdapterError> = Shadeform.list_leases(&http).await;
    assert_eq!(leases.expect("a list").len(), 1);
}
