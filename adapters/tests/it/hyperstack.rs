//! Hyperstack, over recordings and against a scripted server.

mod lease;

use adapters::providers::hyperstack::Hyperstack;
use adapters::{Adapter, AdapterError, Http};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::money::Money;
use market::offer::{AvailabilityLevel as Level, ExtraBasis, Offer, Terms};
use serde_json::{Value, json};

use crate::recorded::{assert_golden, made_up, now, recorded};

async fn read(http: &Http) -> CatalogReading {
    Hyperstack
        .read_catalog(http, now())
        .await
        .expect("a reading")
}

/// The catalogue of these answers.
fn answers(book: Value, flavors: Value, stocks: Value) -> Http {
    made_up(&[
        ("GET", "/pricebook", 200, book),
        ("GET", "/core/flavors", 200, flavors),
        ("GET", "/core/stocks", 200, stocks),
    ])
}

fn price(name: &str, value: impl Into<Value>) -> Value {
    json!({"name": name, "value": value.into(), "start_time": null, "end_time": null})
}

fn flavor(name: &str) -> Value {
    json!({"name": name, "gpu": "L40", "gpu_count": 2, "region_name": "CANADA-1", "cpu": 60, "ram": 116.5,
        "disk": 100, "ephemeral": 1450, "stock_available": true})
}

fn flavors(flavors: &[Value]) -> Value {
    json!({"status": true, "data": [{"gpu": "L40", "region_name": "CANADA-1", "flavors": flavors}]})
}

fn stock(configurations: Value) -> Value {
    let l40 = json!({"model": "L40", "available": "10+", "configurations": configurations});
    json!({"stocks": [{"region": "CANADA-1", "stock-type": "GPU", "models": [l40]}]})
}

async fn an_offer(sku: &str) -> Offer {
    let offers = read(&recorded("hyperstack", "catalog")).await.offers;
    let found = offers.into_iter().find(|offer| offer.sku == sku);
    found.expect("an offer")
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = read(&recorded("hyperstack", "catalog")).await;
    assert!(reading.is_whole());
    assert_golden("hyperstack", &reading);
}

/// Worked out by hand from the three answers: GPU, USD a GPU and hour, machines that can be made.
#[tokio::test]
async fn flavor_price_and_stock_are_joined_by_the_word_for_the_gpu() {
    let none = Some(0);
    let expected = [
        ("n3-H100x1", "CANADA-1", "H100-PCIe", "2.50", Some(42)),
        (
            "n3-H100x1-bigroot",
            "CANADA-1",
            "H100-PCIe",
            "2.50",
            Some(42),
        ),
        // Its flag says that none is left.
        ("n3-H100x8", "CANADA-1", "H100-PCIe", "2.50", Some(3)),
        ("n3-H100x1-spot", "CANADA-1", "H100-PCIe", "2.00", Some(232)),
        ("n3-H100x8-NVLink", "CANADA-1", "H100-PCIe", "2.60", none),
        // With the discount of the account.
        ("n3-H100-SXM5x8", "CANADA-1", "H100-SXM", "2.88", Some(2)),
        ("n3-H100-SXM5x8", "US-1", "H100-SXM", "2.88", None),
        ("n3-H200-SXM5x8", "CANADA-1", "H200-SXM", "3.99", none),
        // The price of this month.
        ("n3-A100-SXM4x8", "US-1", "A100-SXM-80", "1.60", Some(5)),
        (
            "n3-A100x2-spot",
            "CANADA-1",
            "A100-PCIe-80",
            "1.08",
            Some(3),
        ),
        ("n3-B300x8", "CANADA-1", "B300-SXM", "7.40", none),
        ("n3-L40x1", "CANADA-1", "L40", "1.00", Some(9)),
        ("n3-L40x2", "CANADA-1", "L40", "1.00", none),
        ("n3-L40x1", "NORWAY-1", "L40", "1.00", None),
        ("n3-RTX-A6000x1", "CANADA-1", "RTX-A6000", "0.50", Some(100)),
        ("n3-RTX-A4000x1", "NORWAY-1", "RTX-A4000", "0.15", Some(310)),
        (
            "n3-RTX-PRO6000-SEx8",
            "CANADA-2",
            "RTX-PRO-6000-SE",
            "1.85",
            None,
        ),
    ];
    let reading = read(&recorded("hyperstack", "catalog")).await;
    assert_eq!(reading.offers.len(), expected.len());
    for (offer, (sku, region, gpu, per_gpu, nodes)) in reading.offers.iter().zip(expected) {
        assert_eq!(
            (offer.sku.as_str(), offer.place.region.as_deref()),
            (sku, Some(region))
        );
        assert_eq!(offer.gpu.to_string(), gpu, "{sku}");
        let rate = offer.rate().expect("a rate").money_per_gpu_hour();
        assert_eq!(rate.to_string(), per_gpu, "{sku}");
        assert_eq!(offer.availability.nodes, nodes, "{sku} in {region}");
        assert_eq!(
            offer.availability.at_least,
            sku == "n3-RTX-A6000x1",
            "{sku}"
        );
        let unknown = nodes.is_none();
        assert_eq!(offer.availability.level == Level::Unknown, unknown, "{sku}");
        let terms = if sku.ends_with("-spot") {
            Terms::Spot
        } else {
            Terms::OnDemand
        };
        assert_eq!(
            (offer.terms, offer.internode),
            (terms, Internode::None),
            "{sku}"
        );
        let country = offer.place.country.expect("a country");
        assert_eq!(
            country.code(),
            match region {
                "NORWAY-1" => "NO",
                "US-1" => "US",
                _ => "CA",
            }
        );
    }
    let skipped: Vec<_> = reading
        .skipped
        .iter()
        .map(|it| (it.sku.as_deref(), it.reason))
        .collect();
    assert_eq!(
        skipped,
        [
            (Some("n3-A100x1"), SkipReason::NoPrice),
            (Some("n3-L40x1-spot"), SkipReason::SpotAboveOnDemand),
            (Some("n4-X900x8"), SkipReason::UnknownGpu),
            (Some("n1-cpu-small"), SkipReason::NoGpu),
        ]
    );
}

#[tokio::test]
async fn the_sizes_of_a_gpu_in_a_region_draw_on_one_stock() {
    let offers = read(&recorded("hyperstack", "catalog")).await.offers;
    let stock = |sku: &str, region: &str| {
        let of = |offer: &&Offer| offer.sku == sku && offer.place.region.as_deref() == Some(region);
        let offer = offers.iter().find(of).expect("an offer");
        let stock = offer.particulars.stock.as_ref().expect("a stock");
        (stock.id.as_str(), stock.gpus)
    };
    for sku in ["n3-H100x1", "n3-H100x1-bigroot", "n3-H100x8"] {
        assert_eq!(stock(sku, "CANADA-1"), ("CANADA-1/H100-80G-PCIe", Some(42)));
    }
    assert_eq!(
        stock("n3-H100x1-spot", "CANADA-1"),
        ("CANADA-1/H100-80G-PCIe-spot", Some(232))
    );
    assert_eq!(stock("n3-L40x1", "NORWAY-1"), ("NORWAY-1/L40", None));
    let offer = an_offer("n3-H100x1-bigroot").await;
    assert_eq!((offer.vcpus, offer.memory_gib), (Some(28), Some(180)));
    assert_eq!(
        (offer.particulars.disk_gib, offer.gpu_memory_mib),
        (Some(850), Some(81_920))
    );
    assert_eq!(offer.particulars.tenure.increment_seconds, 60);
    let extras: Vec<_> = offer
        .particulars
        .extras
        .iter()
        .map(|it| (it.per, it.price_usd))
        .collect();
    assert_eq!(
        extras,
        [
            (ExtraBasis::DiskGbMonth, Money::usd_units(7_064_502)),
            (ExtraBasis::GbOut, Money::usd_units(0)),
            (ExtraBasis::AddressHour, Money::usd_units(672_043)),
        ]
    );
}

#[tokio::test]
async fn an_offer_keeps_its_id_whatever_its_stock() {
    let mut ids = Vec::new();
    let none = json!({"status": true, "stocks": []});
    for stocks in [
        stock(json!({"2x": 4})),
        stock(json!({"2x": 0})),
        stock(json!(null)),
        none,
    ] {
        let book = json!([price("L40", "1.00")]);
        let reading = read(&answers(book, flavors(&[flavor("n3-L40x2")]), stocks)).await;
        assert!(reading.is_whole());
        ids.push((
            reading.offers[0].offer_id,
            reading.offers[0].availability.level,
        ));
    }
    assert!(ids.iter().all(|(id, _)| *id == ids[0].0), "{ids:?}");
    let levels: Vec<_> = ids.iter().map(|(_, level)| *level).collect();
    assert_eq!(
        levels,
        [Level::Present, Level::None, Level::Unknown, Level::Unknown]
    );
}

/// A flavor with these fields beside a good one.
async fn beside_a_good_one(book: Value, change: Value) -> CatalogReading {
    let mut odd = flavor("n3-L40x2-odd");
    odd.as_object_mut()
        .expect("a flavor")
        .extend(change.as_object().expect("fields").clone());
    let listed = flavors(&[flavor("n3-L40x2"), odd]);
    read(&answers(
        book,
        listed,
        stock(json!({"2x": 4, "4x": u64::MAX})),
    ))
    .await
}

#[tokio::test]
async fn an_odd_flavor_is_named_and_takes_nothing_else_off_the_market() {
    let book = json!([
        price("L40", "1.00"),
        price("L40-spot", "1.50"),
        price("L40-EUR", "1.00")
    ]);
    for (change, reason) in [
        (json!({"gpu_count": "two"}), SkipReason::Unreadable),
        (json!({"gpu_count": u64::MAX}), SkipReason::Unreadable),
        (json!({"gpu_count": null}), SkipReason::Unreadable),
        (json!({"gpu_count": -2}), SkipReason::ImpossibleCount),
        (json!({"gpu_count": 0, "gpu": ""}), SkipReason::NoGpu),
        // The count of its stock.
        (json!({"gpu_count": 4}), SkipReason::ImpossibleCount),
        (
            json!({"gpu": "GH300-400G", "name": "n4-GH300x2"}),
            SkipReason::UnknownGpu,
        ),
        (
            json!({"gpu": "H100-141G-SXM5", "name": "n3-H100-SXM5x2"}),
            SkipReason::UnknownGpu,
        ),
        (json!({"gpu": "RTX-A6000"}), SkipReason::NoPrice),
        (json!({"gpu": "L40-spot"}), SkipReason::SpotAboveOnDemand),
        (json!({"name": "n3-L40x2"}), SkipReason::ContradictsList),
        (json!({"name": "n".repeat(201)}), SkipReason::Unreadable),
    ] {
        let reading = beside_a_good_one(book.clone(), change.clone()).await;
        assert_eq!(
            (reading.offers.len(), reading.skipped.len()),
            (1, 1),
            "{change}"
        );
        assert_eq!(
            reading.skipped[0].reason, reason,
            "{change}: {}",
            reading.skipped[0].why
        );
        let sku = change["name"].as_str().unwrap_or("n3-L40x2-odd").to_owned();
        let unread = match reason {
            SkipReason::Unreadable => Unread::Skus([sku].into()),
            _ => Unread::Nothing,
        };
        assert_eq!(reading.unread, unread, "{change}");
    }
    for (change, memory_gib) in [
        (json!({"ram": "58"}), Some(58)),
        (json!({"ram": -58}), None),
        (json!({"ram": u64::MAX}), None),
        (
            json!({"ram": {"odd": true}, "cpu": "many", "disk": 0}),
            None,
        ),
    ] {
        let reading = beside_a_good_one(book.clone(), change.clone()).await;
        assert_eq!(reading.offers[1].memory_gib, memory_gib, "{change}");
    }
    let nowhere = json!({"status": true, "data": [{"flavors": [{"name": "n", "gpu_count": 1}]}]});
    let reading = read(&answers(book, nowhere, stock(json!({})))).await;
    assert_eq!(reading.skipped[0].reason, SkipReason::NoPlace);
}

#[tokio::test]
async fn a_price_that_is_none_makes_no_offer() {
    let dated = |value: &str, start: &str, end: Value| json!({"name": "L40", "value": value, "start_time": start, "end_time": end});
    let past = dated("1.10", "2026-01-01T00:00:00", json!("2026-11-21T10:00:00"));
    let here = dated("1.00", "2026-11-21 10:00:00+00:00", json!(null));
    let next = dated("0.90", "2026-11-22T00:00:00Z", json!(null));
    let euro = json!({"name": "L40", "value": "1.00", "currency": "EUR"});
    for (book, of_two) in [
        (json!([price("L40", "1.000000000")]), Ok("2.00")),
        (json!([price("L40", 1.05)]), Ok("2.10")),
        (json!([price("L40", "0E-9")]), Err(SkipReason::NoPrice)),
        (json!([price("L40", 0)]), Err(SkipReason::NoPrice)),
        (json!([price("L40", Value::Null)]), Err(SkipReason::NoPrice)),
        (json!([price("L40-sm", "1.00")]), Err(SkipReason::NoPrice)),
        (json!([euro]), Err(SkipReason::NoPrice)),
        (
            json!([price("L40", "-1.00")]),
            Err(SkipReason::ImplausiblePrice),
        ),
        (
            json!([price("L40", "100000")]),
            Err(SkipReason::ImplausiblePrice),
        ),
        (
            json!([price("L40", "79228162514264337593543950335")]),
            Err(SkipReason::ImplausiblePrice),
        ),
        (
            json!([price("L40", "call us")]),
            Err(SkipReason::Unreadable),
        ),
        (
            json!([price("L40", json!({"odd": true}))]),
            Err(SkipReason::Unreadable),
        ),
        (json!([past, here, next]), Ok("2.00")),
        (json!([here, here]), Ok("2.00")),
        (json!([past, next]), Err(SkipReason::NoPrice)),
        (
            json!([here, price("L40", "1.20")]),
            Err(SkipReason::ContradictsList),
        ),
    ] {
        let listed = flavors(&[flavor("n3-L40x2")]);
        let reading = read(&answers(book.clone(), listed, stock(json!({"2x": 4})))).await;
        let price = reading
            .offers
            .first()
            .map(|offer| offer.price_per_node_hour.to_string());
        let price = price.ok_or_else(|| reading.skipped[0].reason);
        assert_eq!(price.as_deref(), of_two.as_ref().map(|it| *it), "{book}");
        if book[0]["currency"].is_string() {
            assert!(
                reading.skipped[0].why.contains("EUR"),
                "{:?}",
                reading.skipped
            );
        }
    }
}

#[tokio::test]
async fn a_listing_that_is_broken_or_cut_short_is_not_complete() {
    let book = || json!([price("L40", "1.00")]);
    let good = || flavors(&[flavor("n3-L40x2")]);
    let counts = || stock(json!({"2x": 4}));
    assert!(read(&answers(book(), good(), counts())).await.is_whole());
    let half = || json!(r#"{"status": true, "data": [{"gpu": "L40", "fla"#);
    let denied = || json!({"status": false, "message": "Internal"});
    for (book, flavors) in [
        (half(), good()),
        (book(), half()),
        (denied(), good()),
        (book(), denied()),
        (book(), json!({"status": true})),
    ] {
        let error = Hyperstack
            .read_catalog(&answers(book, flavors, counts()), now())
            .await;
        assert!(
            matches!(error, Err(AdapterError::Unreadable { .. })),
            "{error:?}"
        );
    }
    // The price of any GPU, or any flavor, may be in what cannot be read.
    let odd = json!({"gpu": "L40", "region_name": "NORWAY-1", "flavors": {"odd": true}});
    let mut grouped = good();
    grouped["data"].as_array_mut().expect("a list").push(odd);
    let nameless = json!([price("L40", "1.00"), {"value": "1.00"}]);
    for http in [
        answers(book(), grouped, counts()),
        answers(nameless, good(), counts()),
        answers(book(), good(), half()),
        answers(book(), good(), denied()),
    ] {
        let reading = read(&http).await;
        assert_eq!((reading.offers.len(), &reading.unread), (1, &Unread::Rest));
        assert_eq!(reading.skipped[0].reason, SkipReason::Unreadable);
    }
    let refused = made_up(&[(
        "GET",
        "/pricebook",
        401,
        json!({"status": false, "message": "No API key"}),
    )]);
    let error = Hyperstack
        .read_catalog(&refused, now())
        .await
        .expect_err("refused");
    assert!(error.is_refusal(), "{error}");
}
