//! DigitalOcean, over recordings and against a scripted server.

mod orders;

use std::collections::BTreeMap;
use std::path::Path;

use adapters::providers::digitalocean::DigitalOcean;
use adapters::{Adapter, Http};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::offer::{Availability, AvailabilityLevel, Offer};
use serde_json::{Value, json};

use crate::recorded::{assert_golden, made_up, now, recorded};

const SIZES: &str = "/sizes?per_page=200&page=1";
const REGIONS: &str = "/regions?per_page=200&page=1";

async fn read(http: &Http) -> CatalogReading {
    DigitalOcean
        .read_catalog(http, now())
        .await
        .expect("a reading")
}

fn page(kind: &str, records: &[Value], total: usize) -> Value {
    json!({kind: records, "links": {}, "meta": {"total": total}})
}

/// An account with these sizes and two regions.
fn account(sizes: &[Value]) -> Http {
    let regions = ["nyc2", "tor1"].map(|slug| json!({"slug": slug, "available": true}));
    made_up(&[
        ("GET", SIZES, 200, page("sizes", sizes, sizes.len())),
        ("GET", REGIONS, 200, page("regions", &regions, 2)),
    ])
}

/// A good size with this member changed.
fn size(member: &str, value: Value) -> Value {
    let mut size = json!({
        "slug": "gpu-h100x8-640gb", "memory": 1_966_080, "vcpus": 160, "disk": 2_046, "price_hourly": 35.28,
        "regions": ["nyc2"], "available": true,
        "gpu_info": {"count": 8, "model": "nvidia_h100", "vram": {"amount": 640, "unit": "gib"}},
    });
    *size.pointer_mut(member).expect("a member") = value;
    size
}

fn good() -> Value {
    size("/vcpus", json!(160))
}

async fn an_offer(sku: &str) -> Offer {
    let offers = read(&recorded("digitalocean", "catalog")).await.offers;
    let to_be_had = |offer: &&Offer| offer.sku == sku && !offer.availability.is_sold_out();
    offers.iter().find(to_be_had).expect("an offer").clone()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = read(&recorded("digitalocean", "catalog")).await;
    assert!(reading.is_whole());
    assert_golden("digitalocean", &reading);
}

#[tokio::test]
async fn an_offer_keeps_its_id_when_it_sells_out_in_every_way() {
    let seen = async |size: Value| {
        let reading = read(&account(&[size])).await;
        assert!(reading.is_whole());
        let offers = reading.offers.into_iter();
        offers
            .map(|offer| (offer.offer_id, offer.availability))
            .collect::<BTreeMap<_, _>>()
    };
    let stocked = seen(good()).await;
    let there: Vec<_> = stocked.values().map(|it| it.level).collect();
    assert!(there.contains(&AvailabilityLevel::Present) && there.len() == 2);
    for sold_out in [
        size("/regions", json!([])),
        size("/available", json!(false)),
    ] {
        let sold_out = seen(sold_out).await;
        assert!(sold_out.keys().eq(stocked.keys()));
        assert!(sold_out.values().all(Availability::is_sold_out));
    }
    // What is not said is not known.
    for silent in [
        size("/regions", json!(null)),
        size("/available", json!(null)),
    ] {
        let silent = seen(silent).await;
        let unknown = |it: &Availability| it.level == AvailabilityLevel::Unknown;
        assert!(silent.keys().eq(stocked.keys()) && silent.values().any(unknown));
    }
    let closed = json!([{"slug": "nyc2", "available": false}, {"slug": "tor1"}]);
    let closed = read(&made_up(&[
        ("GET", SIZES, 200, page("sizes", &[good()], 1)),
        (
            "GET",
            REGIONS,
            200,
            json!({"regions": closed, "meta": {"total": 2}}),
        ),
    ]))
    .await;
    assert!(
        closed
            .offers
            .iter()
            .all(|offer| offer.availability.is_sold_out())
    );
}

#[tokio::test]
async fn an_odd_size_is_named_with_its_reason_and_hurts_no_other() {
    for (member, value, reason) in [
        ("/price_hourly", json!(null), SkipReason::NoPrice),
        ("/price_hourly", json!(0), SkipReason::NoPrice),
        ("/price_hourly", json!(-35.28), SkipReason::ImplausiblePrice),
        (
            "/price_hourly",
            json!(35_280_000),
            SkipReason::ImplausiblePrice,
        ),
        ("/price_hourly", json!("ask us"), SkipReason::Unreadable),
        ("/gpu_info", json!(null), SkipReason::Unreadable),
        ("/gpu_info", json!("eight"), SkipReason::Unreadable),
        ("/gpu_info/count", json!(u64::MAX), SkipReason::Unreadable),
        ("/gpu_info/count", json!(4), SkipReason::ContradictsList),
        (
            "/gpu_info/model",
            json!("nvidia_h200"),
            SkipReason::ContradictsList,
        ),
        (
            "/gpu_info/vram/amount",
            json!(1_128),
            SkipReason::ContradictsList,
        ),
        (
            "/gpu_info/vram/amount",
            json!(u64::MAX),
            SkipReason::ContradictsList,
        ),
        ("/memory", json!(u64::MAX), SkipReason::Unreadable),
        ("/memory", json!(160), SkipReason::Unreadable),
        ("/disk", json!(-1), SkipReason::Unreadable),
        ("/vcpus", json!(u64::MAX), SkipReason::Unreadable),
        ("/regions", json!("nyc2"), SkipReason::Unreadable),
        ("/regions", json!(["r".repeat(201)]), SkipReason::Unreadable),
    ] {
        let odd = size(member, value.clone());
        let mut other = size("/gpu_info/count", json!(1));
        other["slug"] = json!("gpu-h100x1-80gb");
        other["gpu_info"]["vram"]["amount"] = json!(80);
        let reading = read(&account(&[odd, other])).await;
        let why = format!("{member} {value}: {:?}", reading.skipped);
        let skipped: Vec<_> = reading.skipped.iter().map(|it| it.reason).collect();
        assert_eq!(skipped, [reason], "{why}");
        assert_eq!(
            reading.skipped[0].sku.as_deref(),
            Some("gpu-h100x8-640gb"),
            "{why}"
        );
        assert_eq!(reading.offers.len(), 2, "{why}");
        let unread = match reason {
            SkipReason::Unreadable => Unread::Skus(["gpu-h100x8-640gb".to_owned()].into()),
            _ => Unread::Nothing,
        };
        assert_eq!(reading.unread, unread, "{why}");
    }
    let nameless = read(&account(&[good(), size("/slug", json!(7))])).await;
    assert_eq!((nameless.offers.len(), nameless.unread), (2, Unread::Rest));
}

#[tokio::test]
async fn a_listing_that_is_cut_short_or_moving_is_not_whole() {
    let small = |at: usize| json!({"slug": format!("s-{at}")});
    let full: Vec<_> = (0..199).map(small).chain([good()]).collect();
    let second = "/sizes?per_page=200&page=2";
    let regions = || page("regions", &[json!({"slug": "nyc2"})], 1);
    let of = async |pages: &[(&str, u16, Value)]| {
        let pages = pages
            .iter()
            .map(|(path, status, body)| ("GET", *path, *status, body.clone()));
        let regions = [("GET", REGIONS, 200, regions())];
        read(&made_up(&pages.chain(regions).collect::<Vec<_>>())).await
    };
    let pages = [
        (SIZES, 200, page("sizes", &full, 201)),
        (second, 200, page("sizes", &[small(200)], 201)),
    ];
    let whole = of(&pages).await;
    assert!(whole.is_whole() && whole.offers.len() == 1);
    for (why, pages) in [
        (
            "fewer than announced",
            vec![(SIZES, 200, page("sizes", &[good()], 2))],
        ),
        ("no total", vec![(SIZES, 200, json!({"sizes": [good()]}))]),
        (
            "one twice",
            vec![(SIZES, 200, page("sizes", &[good(), good()], 2))],
        ),
        (
            "the second page fails",
            vec![
                (SIZES, 200, page("sizes", &full, 201)),
                (second, 500, json!({})),
            ],
        ),
    ] {
        let reading = of(&pages).await;
        assert_eq!(
            (reading.offers.len(), reading.unread),
            (1, Unread::Rest),
            "{why}"
        );
    }
    // Without the list of regions only what sizes name is known.
    for (status, unread) in [
        (500, Unread::Rest),
        (403, Unread::Rest),
        (404, Unread::Nothing),
    ] {
        let http = made_up(&[
            ("GET", SIZES, 200, page("sizes", &[good()], 1)),
            ("GET", REGIONS, status, json!({"id": "no"})),
        ]);
        let reading = read(&http).await;
        assert_eq!(
            (reading.offers.len(), reading.unread),
            (1, unread),
            "{status}"
        );
    }
    let many: Vec<_> = (0..201)
        .map(|at| json!({"slug": format!("r-{at}")}))
        .collect();
    let http = made_up(&[
        ("GET", SIZES, 200, page("sizes", &[good()], 1)),
        ("GET", REGIONS, 200, page("regions", &many[..200], 201)),
        (
            "GET",
            "/regions?per_page=200&page=2",
            200,
            page("regions", &many[200..], 201),
        ),
    ]);
    let reading = read(&http).await;
    assert_eq!((reading.offers.len(), reading.unread), (1, Unread::Rest));
    for refused in [(401, json!({"id": "Unauthorized"})), (200, json!([]))] {
        let http = made_up(&[("GET", SIZES, refused.0, refused.1)]);
        assert!(DigitalOcean.read_catalog(&http, now()).await.is_err());
    }
}

/// Answers that were seen, kept beside the repository where there are any.
#[tokio::test]
async fn the_answers_that_were_seen_are_read_as_worked_out_by_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/providers/recorded");
    let Ok(http) = Http::replay(folder.join("digitalocean/sizes.json")) else {
        println!("skipped: no recorded answers of DigitalOcean beside the repository");
        return;
    };
    let reading = read(&http).await;
    // Three of the 147 announced sizes were kept.
    assert_eq!(reading.unread, Unread::Rest);
    let rows: Vec<_> = reading
        .offers
        .iter()
        .map(|offer| {
            assert_eq!(
                (offer.internode, offer.gpus.as_whole()),
                (Internode::None, Some(8))
            );
            assert_eq!(
                (offer.memory_gib, offer.particulars.disk_gib),
                (Some(1_920), Some(2_046))
            );
            assert_eq!(offer.place.metro.as_deref(), Some("New York"));
            let rate = offer.rate().expect("a rate").to_string();
            (
                offer.gpu.to_string(),
                rate,
                offer.gpu_memory_mib,
                offer.place.region.clone().unwrap_or_default(),
            )
        })
        .collect();
    let row = |gpu: &str, rate: &str, gib| {
        (
            gpu.to_owned(),
            rate.to_owned(),
            Some(gib * 1_024_u64),
            "nyc1".to_owned(),
        )
    };
    assert_eq!(
        rows,
        [row("H100-SXM", "2.99", 80), row("MI300X", "1.99", 192)]
    );
}
