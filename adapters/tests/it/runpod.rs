//! RunPod, over recordings and against a scripted server.

mod lease;
mod published;

use std::collections::BTreeSet;

use adapters::providers::runpod::RunPod;
use adapters::{Adapter, AdapterError, Disposition, Http};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::offer::{AvailabilityLevel, MachineOperator, Offer, Tenancy, Terms};
use serde_json::{Value, json};

use crate::recorded::{assert_golden, fixtures, made_up, now, recorded};

const H100: &str = "NVIDIA H100 80GB HBM3";
const CENTRES: &str = "/v2/catalog/datacenters?include=GPU_AVAILABILITY";

fn gpus_path(count: u32, cloud: &str) -> String {
    format!("/v2/catalog/gpus?include=AVAILABILITY&product=POD&count={count}&cloud={cloud}")
}

async fn recorded_offers() -> CatalogReading {
    let http = recorded("runpod", "catalog");
    RunPod.read_catalog(&http, now()).await.expect("a reading")
}

/// A reading of one answer alone, as it is replayed from a file.
async fn read_file(body: &Value) -> Result<CatalogReading, AdapterError> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("answer.json");
    std::fs::write(&file, body.to_string()).expect("a file");
    let http = Http::replay(&file).expect("a recording");
    RunPod.read_catalog(&http, now()).await
}

/// A type on the secure cloud of one data centre.
fn listed_type(id: &str, price: Value) -> Value {
    json!({"id": id, "memory": 80, "secure": true, "community": false, "price": {"secure": price, "community": 0},
        "maxCount": {"secure": 2, "community": 0}, "availability": "HIGH",
        "dataCenters": [{"id": "US-KS-2", "availability": "HIGH"}]})
}

/// Any size of the H100.
fn every_h100() -> Unread {
    Unread::Skus([1, 2, 4, 8].map(|count| format!("{count}x {H100}")).into())
}

fn skus_of(reading: &CatalogReading) -> Vec<String> {
    let shown = |offer: &Offer| {
        let region = offer.place.region.as_deref().expect("a region");
        format!("{} in {region} at {}", offer.sku, offer.price_per_node_hour)
    };
    reading.offers.iter().map(shown).collect()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = recorded_offers().await;
    assert!(reading.is_whole());
    assert_golden("runpod", &reading);
}

#[tokio::test]
async fn each_size_and_region_is_an_offer_of_containers() {
    let reading = recorded_offers().await;
    let is_ours = |offer: &Offer| {
        offer.tenancy == Tenancy::Container
            && offer.terms == Terms::OnDemand
            && offer.internode == Internode::None
    };
    assert!(reading.offers.iter().all(is_ours));
    let of = |sku: &str| -> Vec<_> {
        let mine = reading.offers.iter().filter(|offer| offer.sku == sku);
        mine.map(|offer| {
            let region = offer.place.region.clone().expect("a region");
            let price = offer.price_per_node_hour.to_string();
            (region, price, offer.availability.level)
        })
        .collect()
    };
    use AvailabilityLevel::{High, Low, None, Unknown};
    let row = |region: &str, price: &str, level| (region.to_owned(), price.to_owned(), level);
    assert_eq!(
        of(&format!("8x {H100}")),
        [
            row("EU-RO-1", "23.92", None),
            row("US-KS-2", "23.92", Low),
            row("US-TX-4", "23.92", None),
        ]
    );
    assert_eq!(
        of("1x NVIDIA GeForce RTX 4090"),
        [
            row("EU-RO-1", "0.69", High),
            row("EUR-IS-1", "0.69", Unknown),
            row("community", "0.34", High),
        ]
    );
    let eight = of("8x NVIDIA GeForce RTX 4090");
    assert_eq!(
        eight,
        [row("community", "2.72", None)],
        "six is the most of the secure cloud"
    );
    let ids: BTreeSet<_> = reading.offers.iter().map(|offer| offer.offer_id).collect();
    assert_eq!(ids.len(), reading.offers.len());
    for offer in &reading.offers {
        let at_others = offer.place.region.as_deref() == Some("community");
        let operator = &offer.particulars.operator;
        assert_eq!(operator.is_peer(), at_others, "{}", offer.sku);
        assert_eq!(
            *operator == MachineOperator::Seller,
            !at_others,
            "{}",
            offer.sku
        );
    }
}

#[tokio::test]
async fn offers_known_before_keep_their_ids() {
    let reading = recorded_offers().await;
    for (sku, region, id) in [
        (
            format!("1x {H100}"),
            "EU-RO-1",
            "off_feb97eac9c14ac20024a23962bafd645",
        ),
        (
            format!("1x {H100}"),
            "US-KS-2",
            "off_e03ba0ddda930da3b44c087c5b34ac9a",
        ),
    ] {
        let is_it =
            |offer: &&Offer| offer.sku == sku && offer.place.region.as_deref() == Some(region);
        let offer = reading.offers.iter().find(is_it).expect("an offer");
        assert_eq!(offer.offer_id.to_string(), id);
    }
    // The id that case 71 recorded when GraphQL was read.
    let kind = json!({"id": "NVIDIA  RTX A4500", "memory": 20, "price": {"community": 0.19}});
    let body = || json!({ "gpus": [kind] });
    let http = made_up(&[
        ("GET", &gpus_path(1, "SECURE"), 200, body()),
        ("GET", &gpus_path(1, "COMMUNITY"), 200, body()),
    ]);
    let reading = RunPod.read_catalog(&http, now()).await.expect("a reading");
    let ids = reading
        .offers
        .iter()
        .map(|offer| offer.offer_id.to_string());
    assert_eq!(
        ids.collect::<Vec<_>>(),
        ["off_db90725b1ea7855cf78a542f9111e431"]
    );
}

#[tokio::test]
async fn two_spaces_in_a_name_are_kept_and_the_card_is_known() {
    let file = fixtures("runpod").join("cases/71-two-spaces.json");
    let http = Http::replay(file).expect("a recording");
    let reading = RunPod.read_catalog(&http, now()).await.expect("a reading");
    assert_eq!(
        skus_of(&reading),
        ["1x NVIDIA  RTX A4500 in US-KS-2 at 0.25"]
    );
    let offer = &reading.offers[0];
    assert_eq!(
        (offer.raw_gpu_name.as_str(), offer.gpu.to_string().as_str()),
        ("NVIDIA  RTX A4500", "RTX-A4500")
    );
    assert_eq!(reading.skipped, []);
}

#[tokio::test]
async fn a_type_that_no_data_centre_lists_is_told_to_have_no_place() {
    let file = fixtures("runpod").join("cases/72-no-centre.json");
    let http = Http::replay(file).expect("a recording");
    let reading = RunPod.read_catalog(&http, now()).await.expect("a reading");
    assert_eq!(reading.offers, []);
    let [skipped] = &reading.skipped[..] else {
        panic!("{:?}", reading.skipped)
    };
    let sku = skipped.sku.as_deref();
    assert_eq!(
        (skipped.reason, skipped.rows, sku),
        (SkipReason::NoPlace, 1, Some("NVIDIA H100 NVL (secure)"))
    );
}

#[tokio::test]
async fn an_absent_flag_is_no_no_and_an_absent_word_is_unknown() {
    let kind = json!({"id": "NVIDIA H100 NVL", "memory": 94, "price": {"secure": 3.19, "community": 2.59}});
    let body = json!({"gpus": [kind]});
    let centre =
        json!({"dataCenters": [{"id": "US-KS-2", "gpuAvailability": [{"id": "NVIDIA H100 NVL"}]}]});
    let http = made_up(&[
        ("GET", &gpus_path(1, "SECURE"), 200, body.clone()),
        ("GET", &gpus_path(1, "COMMUNITY"), 200, body),
        ("GET", CENTRES, 200, centre),
    ]);
    let reading = RunPod.read_catalog(&http, now()).await.expect("a reading");
    let sku = "1x NVIDIA H100 NVL";
    assert_eq!(
        skus_of(&reading),
        [
            format!("{sku} in US-KS-2 at 3.19"),
            format!("{sku} in community at 2.59")
        ]
    );
    let unknown = AvailabilityLevel::Unknown;
    assert!(
        reading
            .offers
            .iter()
            .all(|offer| offer.availability.level == unknown)
    );
}

#[tokio::test]
async fn a_placeholder_is_a_price_only_where_the_cloud_has_the_type_in_stock() {
    for (price, flag, word, is_offered) in [
        (json!(0), json!(true), "HIGH", false),
        (json!(null), json!(true), "HIGH", false),
        (json!(0.5), json!(true), "NONE", false),
        (json!(0.5), json!(null), "HIGH", false),
        (json!(1), json!(true), "PLENTY", false),
        (json!(0.5), json!(true), "LOW", true),
        (json!(1.0), json!(true), "HIGH", true),
        (json!(0.49), json!(null), "NONE", true),
    ] {
        let mut kind = listed_type(H100, price.clone());
        kind["secure"] = flag.clone();
        kind["availability"] = json!(word);
        let body = json!({"gpus": [kind, listed_type("NVIDIA H100 PCIe", json!(3.99))]});
        let reading = read_file(&body);
        let reading = reading.await.expect("a reading");
        let case = format!("{price} {flag} {word}");
        assert_eq!(reading.offers.len(), 1 + usize::from(is_offered), "{case}");
        assert!(reading.is_whole(), "{case}");
        if !is_offered {
            let skipped = reading.skipped.first().map(|it| (it.reason, it.rows));
            let silent = price.is_null() && flag.is_null();
            assert_eq!(
                skipped,
                (!silent).then_some((SkipReason::NoPrice, 1)),
                "{case}"
            );
        }
    }
}

#[tokio::test]
async fn an_odd_record_takes_nobody_elses_offer_off_the_market() {
    let odd = |field: &str, value: Value| {
        let mut odd = listed_type(H100, json!(2.99));
        odd[field] = value;
        odd
    };
    let price = |price: Value| json!({"secure": price, "community": 0});
    let many = (0..501).map(|n| json!({"id": format!("XX-{n}")})).collect();
    for (record, reason) in [
        (odd("price", price(json!(-1))), SkipReason::ImplausiblePrice),
        (
            odd("price", price(json!(299_000))),
            SkipReason::ImplausiblePrice,
        ),
        (
            odd("price", price(json!("7922816251426433759354395033.5"))),
            SkipReason::ImplausiblePrice,
        ),
        (odd("price", price(json!("ask us"))), SkipReason::Unreadable),
        (odd("price", json!("EUR 2.99")), SkipReason::Unreadable),
        (
            odd("maxCount", json!({"secure": u64::MAX})),
            SkipReason::Unreadable,
        ),
        (
            odd("maxCount", json!({"secure": -1})),
            SkipReason::Unreadable,
        ),
        (odd("secure", json!("yes")), SkipReason::Unreadable),
        (odd("memory", json!(24)), SkipReason::UnknownGpu),
        (odd("dataCenters", json!([7])), SkipReason::Unreadable),
        (odd("dataCenters", json!("none")), SkipReason::Unreadable),
        (
            odd("dataCenters", json!([{"id": "community"}])),
            SkipReason::NoPlace,
        ),
        (
            odd("dataCenters", Value::Array(many)),
            SkipReason::Unreadable,
        ),
        (
            odd("id", json!("NVIDIA RTX 9000 Imagined")),
            SkipReason::UnknownGpu,
        ),
        (odd("id", json!("x".repeat(300))), SkipReason::UnknownGpu),
    ] {
        let mut good = listed_type("NVIDIA H100 PCIe", json!(3.99));
        good["maxCount"] = json!({});
        let reading = read_file(&json!({"gpus": [record, good]}))
            .await
            .expect("a reading");
        assert_eq!(
            skus_of(&reading),
            ["1x NVIDIA H100 PCIe in US-KS-2 at 3.99"],
            "{record}"
        );
        let skipped = &reading.skipped[0];
        assert_eq!(
            (skipped.reason, skipped.rows),
            (reason, 1),
            "{record}: {skipped:?}"
        );
        let unread = match reason {
            SkipReason::Unreadable => every_h100(),
            _ => Unread::Nothing,
        };
        assert_eq!(reading.unread, unread, "{record}");
    }
    for nameless in [json!(7), json!({"id": 7}), json!(null)] {
        let body = json!({"gpus": [nameless, listed_type(H100, json!(2.99))]});
        let reading = read_file(&body).await.expect("a reading");
        assert_eq!((reading.offers.len(), reading.unread), (1, Unread::Rest));
    }
    let twice = json!({"gpus": [listed_type(H100, json!(2.99)), listed_type(H100, json!(2.5))]});
    let reading = read_file(&twice).await.expect("a reading");
    assert_eq!(skus_of(&reading), [format!("1x {H100} in US-KS-2 at 2.99")]);
}

#[tokio::test]
async fn an_answer_that_fails_keeps_its_offers_and_the_first_is_needed() {
    let types = || json!({"gpus": [listed_type(H100, json!(2.99))]});
    let centres = || json!({"dataCenters": [{"id": "US-KS-2", "gpuAvailability": [{"id": H100}]}]});
    let (one, two) = (gpus_path(1, "SECURE"), gpus_path(2, "SECURE"));
    let read = async |first: (u16, Value), second: (u16, Value), listed: (u16, Value)| {
        let http = made_up(&[
            ("GET", &one, first.0, first.1),
            ("GET", &two, second.0, second.1),
            ("GET", CENTRES, listed.0, listed.1),
        ]);
        RunPod.read_catalog(&http, now()).await
    };
    let whole = read((200, types()), (200, types()), (200, centres()))
        .await
        .expect("a reading");
    assert!(whole.is_whole());
    assert_eq!(whole.offers.len(), 2);
    for (why, second, listed, offers) in [
        ("a size fails", (500, json!({})), (200, centres()), 1),
        ("a size is refused", (403, json!({})), (200, centres()), 1),
        (
            "a size is no list",
            (200, json!({"gpus": "none"})),
            (200, centres()),
            1,
        ),
        (
            "no centres",
            (200, types()),
            (200, json!({"dataCenters": []})),
            2,
        ),
        (
            "centres are cut short",
            (200, types()),
            (200, json!("{\"dataCenters\": [")),
            2,
        ),
        (
            "a centre is none",
            (200, types()),
            (200, json!({"dataCenters": [7]})),
            2,
        ),
    ] {
        let reading = read((200, types()), second, listed)
            .await
            .expect("a reading");
        assert_eq!(
            (reading.unread, reading.offers.len()),
            (Unread::Rest, offers),
            "{why}"
        );
    }
    // Half of an answer is missing: the type is in the others.
    let cut = read((200, json!({"gpus": []})), (200, types()), (200, centres()));
    let cut = cut.await.expect("a reading");
    assert_eq!((cut.offers.len(), &cut.unread), (1, &every_h100()));
    let cut = read((200, types()), (200, json!({"gpus": []})), (200, centres()));
    let cut = cut.await.expect("a reading");
    assert_eq!((cut.offers.len(), &cut.unread), (1, &every_h100()));
    let empty = read(
        (200, json!({"gpus": []})),
        (200, json!({"gpus": []})),
        (200, centres()),
    );
    assert!(!empty.await.expect("a reading").is_whole());
    let refused = read((401, json!({})), (200, types()), (200, centres())).await;
    assert_eq!(
        refused.expect_err("no prices").disposition(),
        Disposition::GiveUp
    );
}

#[tokio::test]
async fn an_answer_of_graphql_is_refused_by_name() {
    let answer =
        json!({"data": {"gpuTypes": [{"id": H100, "securePrice": 2.99}], "dataCenters": []}});
    let whole = json!({"method": "POST", "path": "/graphql", "status": 200, "body": answer});
    for recording in [answer, whole] {
        let error = read_file(&recording).await.expect_err("refused");
        assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
        let words = error.to_string();
        for said in [
            "GraphQL",
            "REST v2",
            "GET /v2/catalog/gpus?include=AVAILABILITY",
        ] {
            assert!(words.contains(said), "{words}");
        }
    }
}
