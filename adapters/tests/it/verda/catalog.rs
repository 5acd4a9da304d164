//! The catalogue of Verda.

use std::path::{Path, PathBuf};

use adapters::providers::verda::Verda;
use adapters::{Adapter, AdapterError};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::offer::{AvailabilityLevel, Offer, Terms};
use serde_json::{Value, json};

use crate::recorded::{assert_golden, fixtures, made_up, now, recorded};

const TYPES: &str = "/instance-types?currency=usd";
const LOCATIONS: &str = "/locations";
const ON_DEMAND: &str = "/instance-availability?is_spot=false";
const SPOT: &str = "/instance-availability?is_spot=true";

fn kind() -> Value {
    json!({ "instance_type": "8H100.80S.176V", "name": "H100 SXM5 80GB", "gpu": { "number_of_gpus": 8 },
        "gpu_memory": { "size_in_gigabytes": 640 }, "cpu": { "number_of_cores": 176 },
        "memory": { "size_in_gigabytes": 1480 }, "price_per_hour": "18.32", "spot_price": "6.41",
        "currency": "usd", "supported_os": ["24.04.cuda12.9"] })
}

/// The good record with this at a place of it.
fn but(pointer: &str, value: Value) -> Value {
    let mut record = kind();
    match record.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => record[&pointer[1..]] = value,
    }
    record
}

fn at(location: &str, types: &[&str]) -> Value {
    json!({ "location_code": location, "availabilities": types })
}

async fn try_read(answers: &[(&str, u16, Value)]) -> Result<CatalogReading, AdapterError> {
    let answers = answers.iter();
    let exchanges: Vec<_> = answers
        .map(|(path, status, body)| ("GET", *path, *status, body.clone()))
        .collect();
    Verda.read_catalog(&made_up(&exchanges), now()).await
}

/// Reads these types at one location, where the good record is to be had on demand.
async fn read(types: Value) -> CatalogReading {
    let answers = [
        (TYPES, 200, types),
        (LOCATIONS, 200, json!([{ "code": "FIN-03" }])),
        (ON_DEMAND, 200, json!([at("FIN-03", &["8H100.80S.176V"])])),
        (SPOT, 200, json!([])),
    ];
    try_read(&answers).await.expect("a reading")
}

fn price_of_gpu(offer: &Offer) -> String {
    offer.rate().expect("a rate").to_string()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = Verda
        .read_catalog(&recorded("verda", "catalog"), now())
        .await;
    let reading = reading.expect("a reading");
    assert!(reading.is_whole());
    assert_golden("verda", &reading);
}

#[tokio::test]
async fn every_type_stands_at_every_location_under_both_terms() {
    let reading = Verda
        .read_catalog(&recorded("verda", "catalog"), now())
        .await;
    let reading = reading.expect("a reading");
    let offered = |sku: &str, terms: Terms| {
        let offers = reading
            .offers
            .iter()
            .filter(|it| it.sku == sku && it.terms == terms);
        let present = offers.filter(|it| it.availability.level == AvailabilityLevel::Present);
        present
            .map(|it| it.place.region.clone().expect("a region"))
            .collect::<Vec<_>>()
    };
    let all = reading
        .offers
        .iter()
        .filter(|it| it.sku == "8H100.80S.176V");
    // Three locations of the list and one that only the availability names.
    assert_eq!(all.count(), 4 * 2);
    assert_eq!(offered("8H100.80S.176V", Terms::OnDemand), ["FIN-03"]);
    assert_eq!(offered("8B200.240V", Terms::OnDemand), Vec::<String>::new());
    assert_eq!(offered("8B200.240V", Terms::Spot), ["FIN-03"]);
    let not_orderable = reading.offers.iter().filter(|it| !it.orderable);
    assert!(not_orderable.clone().all(|it| it.sku == "1GB300.36V") && not_orderable.count() == 8);
}

#[tokio::test]
async fn an_offer_keeps_its_id_when_it_sells_out() {
    let ids = async |types: &[&str]| {
        let answers = [
            (TYPES, 200, json!([kind()])),
            (LOCATIONS, 200, json!([{ "code": "FIN-03" }])),
            (ON_DEMAND, 200, json!([at("FIN-03", types)])),
            (SPOT, 200, json!([])),
        ];
        let reading = try_read(&answers).await.expect("a reading");
        let of = |offer: &Offer| {
            (
                offer.offer_id,
                offer.terms,
                offer.availability.is_sold_out(),
            )
        };
        reading.offers.iter().map(of).collect::<Vec<_>>()
    };
    let (stocked, sold_out) = (ids(&["8H100.80S.176V"]).await, ids(&[]).await);
    assert_eq!(
        (stocked.len(), stocked[0].2, sold_out[0].2),
        (2, false, true)
    );
    assert_eq!((stocked[0].0, stocked[1].0), (sold_out[0].0, sold_out[1].0));
    assert!(stocked[0].0 != stocked[1].0 && stocked[1].1 == Terms::Spot);
}

#[tokio::test]
async fn an_odd_record_gives_a_reason_and_takes_no_other_off_the_market() {
    let good = json!({ "instance_type": "1A100.22V", "name": "A100 SXM4 80GB", "gpu": { "number_of_gpus": 1 },
        "price_per_hour": 1.29, "spot_price": 0.4515, "currency": "USD", "supported_os": ["24.04.cuda12.9"] });
    use SkipReason as Why;
    for (record, why, offers_left) in [
        (json!("garbage"), Why::Unreadable, 0),
        (
            json!({ "instance_type": "8H100.80S.176V" }),
            Why::Unreadable,
            0,
        ),
        (
            but("/gpu/number_of_gpus", json!(u64::MAX)),
            Why::Unreadable,
            0,
        ),
        (
            but("/gpu/number_of_gpus", json!("eight")),
            Why::Unreadable,
            0,
        ),
        (
            but("/instance_type", json!("x".repeat(300))),
            Why::Unreadable,
            0,
        ),
        (
            but("/gpu/number_of_gpus", json!(-8)),
            Why::ContradictsList,
            0,
        ),
        (
            but("/gpu/number_of_gpus", json!(4)),
            Why::ContradictsList,
            0,
        ),
        (
            but("/gpu_memory/size_in_gigabytes", json!(80)),
            Why::ContradictsList,
            0,
        ),
        (
            but("/gpu_memory/size_in_gigabytes", json!(9_000)),
            Why::ContradictsList,
            0,
        ),
        (
            but("/instance_type", json!("8R200.400V")),
            Why::UnknownGpu,
            0,
        ),
        (but("/currency", json!("eur")), Why::NoPrice, 0),
        (but("/currency", json!(null)), Why::NoPrice, 0),
        (but("/price_per_hour", json!(null)), Why::NoPrice, 1),
        (but("/price_per_hour", json!("0.00")), Why::NoPrice, 1),
        (
            but("/price_per_hour", json!("-18.32")),
            Why::ImplausiblePrice,
            1,
        ),
        (
            but("/price_per_hour", json!("1832000")),
            Why::ImplausiblePrice,
            1,
        ),
        (but("/price_per_hour", json!("soon")), Why::Unreadable, 1),
        (but("/spot_price", json!(0)), Why::NoPrice, 1),
        (
            but("/spot_price", json!("18.33")),
            Why::SpotAboveOnDemand,
            1,
        ),
    ] {
        let mut record = record;
        if record["instance_type"] == "8R200.400V" {
            record["name"] = json!("R200 SXM 288GB");
        }
        let reading = read(json!([record, good])).await;
        let others = reading.offers.iter().filter(|it| it.sku == "1A100.22V");
        assert_eq!(others.count(), 2, "{record}");
        assert_eq!(reading.offers.len(), 2 + offers_left, "{record}");
        assert_eq!(
            reading.skipped[0].reason, why,
            "{record}: {}",
            reading.skipped[0].why
        );
        assert_eq!(reading.is_whole(), why != Why::Unreadable, "{record}");
        let named = record["instance_type"]
            .as_str()
            .map(|sku| [sku.to_owned()].into());
        let unread = named.map_or(Unread::Rest, Unread::Skus);
        assert_eq!(reading.unread == unread, why == Why::Unreadable, "{record}");
    }
    let euro = read(json!([but("/currency", json!("eur"))])).await;
    assert!(
        euro.skipped[0].why.contains("eur"),
        "{}",
        euro.skipped[0].why
    );
    let twice = read(json!([kind(), kind()])).await;
    assert_eq!(
        (twice.offers.len(), twice.skipped[0].reason),
        (2, Why::ContradictsList)
    );
}

#[tokio::test]
async fn a_size_that_is_not_known_is_left_open() {
    for (pointer, value) in [
        ("/memory/size_in_gigabytes", json!(0)),
        ("/memory/size_in_gigabytes", json!(u64::MAX)),
        ("/memory", json!(null)),
    ] {
        let reading = read(json!([but(pointer, value)])).await;
        let offer = &reading.offers[0];
        assert_eq!(
            (offer.memory_gib, offer.vcpus),
            (None, Some(176)),
            "{pointer}"
        );
    }
    let reading = read(json!([but("/gpu_memory", json!(null))])).await;
    assert_eq!(reading.offers[0].gpu_memory_mib, None);
    assert!(reading.is_whole() && reading.offers[0].particulars.disk_gib.is_none());
}

#[tokio::test]
async fn a_listing_that_is_empty_cut_short_or_without_a_part_is_not_complete() {
    let whole = read(json!([kind()])).await;
    assert_eq!((whole.is_whole(), whole.offers.len()), (true, 2));
    assert!(!read(json!([])).await.is_whole());
    for broken in [json!("[{\"instance_ty"), json!({ "data": [] })] {
        let error = try_read(&[(TYPES, 200, broken)])
            .await
            .expect_err("no list");
        assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
    }
    let all = [
        (TYPES, 200, json!([kind()])),
        (LOCATIONS, 200, json!([{ "code": "FIN-03" }])),
        (ON_DEMAND, 200, json!([at("FIN-03", &["8H100.80S.176V"])])),
        (SPOT, 200, json!([at("FIN-03", &["8H100.80S.176V"])])),
    ];
    for broken in 1..all.len() {
        let mut answers = all.clone();
        answers[broken].2 = json!("[{");
        let reading = try_read(&answers).await.expect("a reading");
        assert_eq!((reading.offers.len(), &reading.unread), (2, &Unread::Rest));
        let levels = reading.offers.iter().map(|it| it.availability.level);
        let unknown: Vec<bool> = levels.map(|it| it == AvailabilityLevel::Unknown).collect();
        assert_eq!(unknown, [broken == 2, broken == 3], "{}", all[broken].0);
    }
    // The price answer alone is enough to show offers.
    let file = fixtures("verda").join("catalog/01-get-instance-types.json");
    let http = adapters::Http::replay(file).expect("a recording");
    let reading = Verda.read_catalog(&http, now()).await.expect("a reading");
    let h100 = reading
        .offers
        .iter()
        .filter(|it| it.sku == "8H100.80S.176V");
    assert!(h100.clone().all(|it| it.place.is_unknown()) && h100.count() == 2);
    assert_eq!(reading.unread, Unread::Rest);
}

#[tokio::test]
async fn a_small_answer_cannot_multiply_into_more_offers_than_are_believed() {
    let listed = |types: usize, locations: usize| {
        let sku = |at: usize| but("/instance_type", json!(format!("8H100.80S.{at}V")));
        let types: Vec<Value> = (0..types).map(sku).collect();
        let locations: Vec<Value> = (0..locations)
            .map(|at| json!({ "code": format!("FIN-{at}") }))
            .collect();
        [
            (TYPES, 200, json!(types)),
            (LOCATIONS, 200, json!(locations)),
            (ON_DEMAND, 200, json!([])),
            (SPOT, 200, json!([])),
        ]
    };
    for (why, types, locations) in [("types", 2_001, 1), ("offers", 501, 50)] {
        let error = try_read(&listed(types, locations)).await.expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
    let most = try_read(&listed(500, 50)).await.expect("a reading");
    assert_eq!((most.offers.len(), most.is_whole()), (50_000, true));
}

/// The answers that public sources recorded, where they lie beside this repository.
fn public_recordings() -> Option<PathBuf> {
    let beside =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/providers/recorded/verda");
    if beside.is_dir() {
        return Some(beside);
    }
    println!("skipped: no public recordings at {}", beside.display());
    None
}

#[tokio::test]
async fn public_recordings_read_as_worked_out_by_hand() {
    let Some(folder) = public_recordings() else {
        return;
    };
    let file = |name: &str| -> Value {
        let text = std::fs::read_to_string(folder.join(name)).expect("a recording");
        serde_json::from_str(&text).expect("JSON")
    };
    let answers = [
        (TYPES, 200, file("instance-types.json")),
        (LOCATIONS, 200, json!([])),
        (ON_DEMAND, 200, json!([])),
        (SPOT, 200, file("instance-availability-spot.json")),
    ];
    let reading = try_read(&answers).await.expect("a reading");
    assert!(reading.is_whole());
    let mut read = Vec::new();
    for offer in &reading.offers {
        assert_eq!(offer.internode, Internode::None);
        let country = offer.place.country.as_ref().map(ToString::to_string);
        let of_place = match offer.place.region.as_deref() {
            Some("FIN-01") => "FI",
            _ => "IS",
        };
        assert_eq!(country.as_deref(), Some(of_place), "{:?}", offer.place);
        let is_there = !offer.availability.is_sold_out();
        let gpu = format!("{} {}", offer.gpus, offer.gpu);
        read.push((gpu, offer.terms, price_of_gpu(offer), of_place, is_there));
    }
    let by_hand = |gpu: &str, prices: [&str; 2], is_spot_in_finland: bool| {
        let row = |terms, price: &str, place, is_there| {
            (gpu.to_owned(), terms, price.to_owned(), place, is_there)
        };
        [
            row(Terms::OnDemand, prices[0], "FI", false),
            row(Terms::OnDemand, prices[0], "IS", false),
            row(Terms::Spot, prices[1], "FI", is_spot_in_finland),
            row(Terms::Spot, prices[1], "IS", false),
        ]
    };
    let expected = [
        by_hand("1 H100-SXM", ["3.95", "1.70"], false),
        // 1.98 and 0.70 for two.
        by_hand("2 RTX-A6000", ["0.99", "0.35"], true),
        by_hand("1 V100", ["0.89", "0.25"], true),
    ];
    assert_eq!(read, expected.concat());
    assert_eq!(reading.skipped.len(), 1);
    assert_eq!(reading.skipped[0].reason, SkipReason::NoGpu);
}
