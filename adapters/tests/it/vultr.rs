//! Vultr, over recordings and against a scripted server.

mod orders;

use std::collections::BTreeMap;
use std::path::Path;

use adapters::providers::vultr::Vultr;
use adapters::{Adapter, Http};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::offer::{AvailabilityLevel as Level, Offer, Terms};
use serde_json::{Value, json};

use crate::recorded::{assert_golden, made_up, now, recorded};

const PLANS: &str = "/plans?type=all&per_page=500";
const METAL: &str = "/plans-metal?per_page=500";
const REGIONS: &str = "/regions?per_page=500";

async fn read(http: &Http) -> CatalogReading {
    Vultr.read_catalog(http, now()).await.expect("a reading")
}

fn page(kind: &str, records: &[Value], total: usize) -> Value {
    json!({kind: records, "meta": {"total": total, "links": {"next": "", "prev": ""}}})
}

fn regions(count: usize) -> Value {
    let region = |id: &str| json!({"id": id, "city": "A town", "country": "US"});
    let known = ["ewr", "ord"].map(str::to_owned).into_iter();
    let ids = known.chain((2..count).map(|at| format!("r-{at}")));
    let all: Vec<_> = ids.map(|id| region(&id)).collect();
    page("regions", &all, count)
}

/// An account with these plans, this one for bare metal, and two regions.
fn account(plans: &[Value], metal: &[Value]) -> Http {
    made_up(&[
        ("GET", PLANS, 200, page("plans", plans, plans.len())),
        ("GET", METAL, 200, page("plans_metal", metal, metal.len())),
        ("GET", REGIONS, 200, regions(2)),
    ])
}

/// A good plan with this member changed.
fn plan(member: &str, value: Value) -> Value {
    let mut plan = json!({
        "id": "vcg-a40-24c-120g-48vram", "type": "vcg", "vcpu_count": 24, "ram": 122_880, "disk": 1_400,
        "disk_count": 1, "hourly_cost": 1.712, "hourly_cost_preemptible": 1.1, "locations": ["ewr"],
        "deploy_ondemand": true, "deploy_preemptible": true, "gpu_type": "NVIDIA_A40", "gpu_count": "1",
        "gpu_vram_gb": 48, "location_cost": {"ord": {"hourly_cost": 1.883}},
    });
    *plan.pointer_mut(member).expect("a member") = value;
    plan
}

fn good() -> Value {
    plan("/type", json!("vcg"))
}

fn metal() -> Value {
    json!({
        "id": "vbm-112c-2048gb-8-h100-gpu", "cpu_count": 112, "cpu_threads": 224, "ram": 2_097_152, "disk": 960,
        "disk_count": 2, "hourly_cost": 23.92, "hourly_cost_preemptible": 23.92, "locations": ["ewr"],
    })
}

async fn an_offer(sku: &str) -> Offer {
    let offers = read(&recorded("vultr", "catalog")).await.offers;
    let to_be_had = |offer: &&Offer| offer.sku == sku && !offer.availability.is_sold_out();
    offers.iter().find(to_be_had).expect("an offer").clone()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = read(&recorded("vultr", "catalog")).await;
    assert!(reading.is_whole());
    assert_golden("vultr", &reading);
}

#[tokio::test]
async fn an_offer_keeps_its_id_when_it_sells_out_in_every_way() {
    let seen = async |plan: Value| {
        let reading = read(&account(&[plan], &[])).await;
        assert!(reading.is_whole());
        let of = |offer: Offer| {
            let key = (offer.terms, offer.place.region.expect("a region"));
            (key, (offer.offer_id, offer.availability.level))
        };
        reading
            .offers
            .into_iter()
            .map(of)
            .collect::<BTreeMap<_, _>>()
    };
    let stocked = seen(good()).await;
    let levels = |seen: &BTreeMap<_, (_, Level)>| -> Vec<Level> {
        seen.values().map(|(_, level)| *level).collect()
    };
    let (there, none, unknown) = (Level::Present, Level::None, Level::Unknown);
    // On demand in `ewr` and `ord`, then preemptible.
    assert_eq!(levels(&stocked), [there, none, there, none]);
    for (changed, expected) in [
        (plan("/locations", json!([])), [none, none, none, none]),
        (plan("/locations", json!([""])), [none, none, none, none]),
        (
            plan("/locations", json!(null)),
            [unknown, unknown, unknown, unknown],
        ),
        (
            plan("/deploy_ondemand", json!(false)),
            [none, none, there, none],
        ),
        (
            plan("/deploy_ondemand", json!(null)),
            [there, none, there, none],
        ),
        (
            plan("/deploy_preemptible", json!(false)),
            [there, none, none, none],
        ),
        (
            plan("/deploy_preemptible", json!(null)),
            [there, none, unknown, none],
        ),
    ] {
        let seen = seen(changed.clone()).await;
        assert_eq!(levels(&seen), expected, "{changed}");
        let ids = |of: &BTreeMap<_, (_, _)>| of.values().map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!(ids(&seen), ids(&stocked), "{changed}");
    }
}

#[tokio::test]
async fn a_price_is_that_of_its_region_and_terms_and_a_repeated_one_is_none() {
    let rows = async |plan: Value| -> Vec<_> {
        let reading = read(&account(&[plan], &[])).await;
        assert!(reading.skipped.is_empty(), "{:?}", reading.skipped);
        let row = |offer: &Offer| {
            let price = offer.price_per_node_hour.to_string();
            (
                offer.terms,
                offer.place.region.clone().expect("a region"),
                price,
                offer.orderable,
            )
        };
        reading.offers.iter().map(row).collect()
    };
    let row = |terms, region: &str, price: &str, orderable| {
        (terms, region.to_owned(), price.to_owned(), orderable)
    };
    let mut dear = good();
    dear["location_cost"]["ord"]["hourly_cost_preemptible"] = json!("1.210");
    let both = [
        row(Terms::OnDemand, "ewr", "1.712", true),
        row(Terms::OnDemand, "ord", "1.883", true),
    ];
    let spot = |at_ord: &str, orderable| {
        let ewr = row(Terms::Spot, "ewr", "1.10", orderable);
        [ewr, row(Terms::Spot, "ord", at_ord, orderable)]
    };
    let all = |spot: [_; 2]| [both.clone(), spot].concat();
    assert_eq!(rows(dear).await, all(spot("1.21", false)));
    assert_eq!(rows(good()).await, all(spot("1.10", false)));
    // The only terms that an order can mean.
    let only = rows(plan("/deploy_ondemand", json!(false))).await;
    assert_eq!(only, all(spot("1.10", true)));
    // Beside terms that are not denied, a launch could be either.
    let either = rows(plan("/deploy_ondemand", json!(null))).await;
    assert_eq!(either, all(spot("1.10", false)));
    for repeated in [1.712, 0.0] {
        let mut plan = plan("/hourly_cost_preemptible", json!(repeated));
        plan["deploy_preemptible"] = json!(false);
        plan["location_cost"] = json!([]);
        let expected = ["ewr", "ord"].map(|region| row(Terms::OnDemand, region, "1.712", true));
        assert_eq!(rows(plan).await, expected);
    }
}

#[tokio::test]
async fn an_odd_plan_is_named_with_its_reason_and_hurts_no_other() {
    use SkipReason::{
        ContradictsList, ImplausiblePrice, ImpossibleCount, NoPrice, UnknownGpu, Unreadable,
    };
    for (member, value, reason) in [
        ("/hourly_cost", json!(null), NoPrice),
        ("/hourly_cost", json!(0), NoPrice),
        ("/hourly_cost", json!(-1.712), ImplausiblePrice),
        ("/hourly_cost", json!(1_712_000), ImplausiblePrice),
        ("/hourly_cost", json!("ask us"), Unreadable),
        ("/hourly_cost_preemptible", json!(-1.1), ImplausiblePrice),
        (
            "/location_cost/ord/hourly_cost",
            json!(-1),
            ImplausiblePrice,
        ),
        ("/gpu_count", json!("1/0"), ImpossibleCount),
        ("/gpu_count", json!("0"), ImpossibleCount),
        ("/gpu_count", json!(-1), ImpossibleCount),
        ("/gpu_count", json!("3/2"), ImpossibleCount),
        ("/gpu_count", json!(u64::MAX), ImpossibleCount),
        ("/gpu_count", json!({"of": 1}), ImpossibleCount),
        ("/gpu_count", json!("1/2"), ContradictsList),
        ("/gpu_count", json!(2), ContradictsList),
        ("/gpu_type", json!(40), Unreadable),
        ("/gpu_vram_gb", json!(40), ContradictsList),
        ("/gpu_vram_gb", json!(0), ContradictsList),
        ("/gpu_vram_gb", json!(u64::MAX), ContradictsList),
        ("/ram", json!(u64::MAX), Unreadable),
        // A quarter beside the id is near, and more is not.
        ("/ram", json!(89 * 1_024), ContradictsList),
        ("/ram", json!(151 * 1_024), ContradictsList),
        ("/ram", json!("much"), Unreadable),
        ("/disk", json!(-1), Unreadable),
        ("/vcpu_count", json!(u64::MAX), Unreadable),
        ("/locations", json!("ewr"), Unreadable),
        ("/locations", json!(["r".repeat(201)]), Unreadable),
    ] {
        let odd = plan(member, value.clone());
        let reading = read(&account(&[odd], &[metal()])).await;
        let why = format!(
            "{member} {value}: {:?} {:?}",
            reading.skipped, reading.offers
        );
        let skipped: Vec<_> = reading.skipped.iter().map(|it| it.reason).collect();
        assert!(skipped.contains(&reason), "{why}");
        let sku = reading.skipped[0].sku.as_deref();
        assert_eq!(sku, Some("vcg-a40-24c-120g-48vram"), "{why}");
        let of_metal = |offer: &&Offer| offer.gpu.to_string() == "H100-SXM";
        assert_eq!(reading.offers.iter().filter(of_metal).count(), 2, "{why}");
        let unread = match reason {
            Unreadable => Unread::Skus(["vcg-a40-24c-120g-48vram".to_owned()].into()),
            _ => Unread::Nothing,
        };
        assert_eq!(reading.unread, unread, "{why}");
    }
    let nameless = read(&account(&[good(), plan("/id", json!(7))], &[])).await;
    assert_eq!((nameless.offers.len(), nameless.unread), (4, Unread::Rest));
    // The values of the table are compared with the id as well, and a count of CPUs is only not shown.
    let mut unknown = metal();
    unknown["id"] = json!("vbm-112c-2048gb-4-h100-gpu");
    let unknown = read(&account(&[], &[unknown])).await;
    assert_eq!(unknown.skipped[0].reason, UnknownGpu);
    let threads = read(&account(&[plan("/vcpu_count", json!(12))], &[])).await;
    assert!(threads.offers.iter().all(|offer| offer.vcpus.is_none()));
    assert_eq!(threads.offers.len(), 4);
    for gib in [90, 150] {
        let near = plan("/ram", json!(gib * 1_024));
        assert_eq!(read(&account(&[near], &[])).await.offers.len(), 4);
    }
}

#[tokio::test]
async fn a_listing_that_is_cut_short_or_moving_is_not_whole() {
    let none = || page("plans_metal", &[], 0);
    let of = async |pages: &[(&str, u16, Value)]| {
        let pages: Vec<_> = pages
            .iter()
            .map(|(path, status, body)| ("GET", *path, *status, body.clone()))
            .collect();
        read(&made_up(&pages)).await
    };
    let with = |plans: &[Value], total, next: &str| {
        let mut page = page("plans", plans, total);
        page["meta"]["links"]["next"] = json!(next);
        (PLANS, 200, page)
    };
    let second = "/plans?type=all&per_page=500&cursor=bmV4dA==";
    let mut other = good();
    other["id"] = json!("vcg-a40-96c-480g-192vram");
    other["gpu_vram_gb"] = json!(192);
    other["gpu_count"] = json!("4");
    other["ram"] = json!(491_520);
    let rest = [(METAL, 200, none()), (REGIONS, 200, regions(2))];
    let and_rest = |pages: Vec<_>| [pages, rest.to_vec()].concat();
    let next = |status| (second, status, page("plans", &[other.clone()], 2));
    let whole = of(&and_rest(vec![with(&[good()], 2, "bmV4dA=="), next(200)])).await;
    assert!(
        whole.is_whole() && whole.offers.len() == 8,
        "{:?}",
        whole.skipped
    );
    for (why, pages) in [
        ("fewer than announced", vec![with(&[good()], 2, "")]),
        ("one twice", vec![with(&[good(), good()], 2, "")]),
        (
            "the second page fails",
            vec![with(&[good()], 2, "bmV4dA=="), next(500)],
        ),
    ] {
        let reading = of(&and_rest(pages)).await;
        assert_eq!(
            (reading.offers.len(), reading.unread),
            (4, Unread::Rest),
            "{why}"
        );
    }
    // Without the second list, what the first has still counts.
    for (status, body) in [
        (500, json!({})),
        (403, json!({})),
        (200, json!({"plans": []})),
    ] {
        let pages = [
            with(&[good()], 1, ""),
            (METAL, status, body),
            rest[1].clone(),
        ];
        let reading = of(&pages).await;
        assert_eq!(
            (reading.offers.len(), reading.unread),
            (4, Unread::Rest),
            "{status}"
        );
    }
    // Without the list of regions only what plans name is known.
    let bad = json!({"regions": [{"id": "ewr", "city": "n".repeat(201)}], "meta": {"total": 1}});
    for (status, body, unread) in [
        (500, json!({}), Unread::Rest),
        (403, json!({}), Unread::Rest),
        (200, regions(201), Unread::Rest),
        (200, bad, Unread::Rest),
        (404, json!({}), Unread::Nothing),
    ] {
        let pages = [
            with(&[good()], 1, ""),
            rest[0].clone(),
            (REGIONS, status, body),
        ];
        let reading = of(&pages).await;
        assert_eq!(
            (reading.offers.len(), reading.unread),
            (2, unread),
            "{status}"
        );
    }
    let nowhere = [
        with(&[plan("/locations", json!([]))], 1, ""),
        rest[0].clone(),
    ];
    let reading = of(&nowhere).await;
    assert_eq!((reading.offers.len(), reading.unread), (2, Unread::Rest));
    for refused in [
        (401, json!({"error": "Invalid API token."})),
        (200, json!([])),
    ] {
        let http = made_up(&[("GET", PLANS, refused.0, refused.1)]);
        assert!(Vultr.read_catalog(&http, now()).await.is_err());
    }
}

/// Answers that were seen, kept beside the repository where there are any.
#[tokio::test]
async fn the_answers_that_were_seen_are_read_as_worked_out_by_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/providers/recorded");
    let Ok(http) = Http::replay(folder.join("vultr")) else {
        println!("skipped: no recorded answers of Vultr beside the repository");
        return;
    };
    let reading = read(&http).await;
    assert!(reading.is_whole() && reading.skipped.is_empty());
    let offers = reading.offers.iter();
    let rows: Vec<_> = offers
        .filter(|offer| !offer.availability.is_sold_out())
        .map(|offer| {
            assert_eq!(offer.internode, Internode::None);
            let rate = offer.rate().expect("a rate").to_string();
            let count = offer.gpus.to_string();
            let place = offer.place.metro.clone().unwrap_or_default();
            format!(
                "{} x{count} {} {rate} {place} {}",
                offer.gpu, offer.terms, offer.orderable
            )
        })
        .collect();
    // 0.123 / 0.05, 2.397 / 1, 1.397 / 0.5, then 17.52, 14.72, 23.92 and 18.40 for eight.
    let expected = [
        "A100 x0.05 on_demand 2.46 New Jersey false",
        "A100 x1 on_demand 2.397 New Jersey true",
        "A100 x0.5 on_demand 2.794 New Jersey false",
        "MI300X x8 on_demand 2.19 Chicago true",
        "MI300X x8 spot 1.84 Chicago false",
        "H100-SXM x8 on_demand 2.99 Seattle true",
        "H100-SXM x8 spot 2.30 Seattle false",
    ];
    assert_eq!(rows, expected);
}
