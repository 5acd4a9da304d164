use market::offer::Availability;

use super::*;
use crate::samples::{offer, usd};

fn h100(fields: Value) -> Demand {
    let mut all = json!({"gpu": "H100-SXM", "count": 8});
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("gpus", all)
}

#[test]
fn the_cheapest_comes_first_and_every_offer_is_accounted_for() {
    let offers = vec![
        offer("b", "H100-SXM", 8, "24.00"),
        offer("a", "H100-SXM", 8, "23.92"),
        offer("c", "H100-SXM", 1, "2.00"),
        offer("d", "H100-PCIe", 8, "16.00"),
    ];
    let plan = find(offers, &h100(json!({"nodes": 2})));
    assert_eq!(skus(&plan), ["a", "b"]);
    let best = &plan.candidates[0];
    assert_eq!((best.rank, best.nodes(), best.gpus()), (1, 2, 16));
    assert_eq!(
        (best.rate.money_per_gpu_hour(), best.cost_per_hour),
        (usd("2.99"), usd("47.84"))
    );
    assert_eq!(plan.eligible + plan.rejected.total, 4);
    assert_eq!(plan.generation, 7);
}

#[test]
fn a_family_takes_every_form_and_also_an_open_one() {
    let offers = vec![
        offer("sxm", "H100-SXM", 8, "24.00"),
        offer("pcie", "H100-PCIe", 8, "16.00"),
        offer("open", "H100", 8, "20.00"),
        offer("h200", "H200-SXM", 8, "10.00"),
    ];
    let plan = find(offers, &demand("gpus", json!({"gpu": "H100", "count": 8})));
    assert_eq!(skus(&plan), ["pcie", "open", "sxm"]);
}

#[test]
fn a_blank_place_is_taken_where_the_demand_names_none() {
    let plan = find(vec![offer("a", "H100-SXM", 8, "24.00")], &h100(json!({})));
    assert_eq!(plan.eligible, 1);
}

#[test]
fn a_lower_bound_holds_more_than_it_says_and_an_exact_count_holds_what_is_left() {
    let mut many = offer("many", "H100-SXM", 8, "24.00");
    many.availability = Availability {
        at_least: true,
        ..Availability::exactly(10)
    };
    let mut five = offer("five", "H100-SXM", 8, "25.00");
    five.availability = Availability::exactly(5);
    let held = Held::from([(many.offer_id, 9), (five.offer_id, 3)]);
    let snapshot = snapshot(vec![many, five]);
    let nodes = |nodes: u32| {
        let demand = h100(json!({"nodes": nodes}));
        let plan =
            search(&snapshot, &demand, &held, now(), &SearchOptions::default()).expect("a plan");
        skus(&plan)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(nodes(2), ["many", "five"]);
    assert_eq!(nodes(3), ["many"]);
}

#[test]
fn what_equals_the_ceiling_is_under_it() {
    let ceiling = json!({"ceiling": {"usd_per_gpu_hour": "2.99", "usd_per_hour": "23.92"}});
    let plan = find(vec![offer("a", "H100-SXM", 8, "23.92")], &h100(ceiling));
    assert_eq!(plan.eligible, 1);
}

#[test]
fn equal_prices_are_ordered_by_provider_sku_place_and_id_however_they_are_given() {
    let mut offers = Vec::new();
    for (provider, sku, region) in [
        ("b", "x", "1"),
        ("a", "y", "1"),
        ("a", "x", "2"),
        ("a", "x", "1"),
    ] {
        let mut offer = offer(sku, "H100-SXM", 8, "24.00");
        offer.offer_id = OfferId::of_identity(&[provider, sku, region]);
        offer.provider = crate::samples::provider(provider);
        offer.place.region = Some(region.into());
        offers.push(offer);
    }
    let place = |plan: &Plan| -> Vec<String> {
        let word = |c: &Candidate| {
            let offer = &c.lines[0].offer;
            format!(
                "{}{}{}",
                offer.provider,
                offer.sku,
                offer.place.region.as_deref().unwrap_or("")
            )
        };
        plan.candidates.iter().map(word).collect()
    };
    let plan = find(offers.clone(), &h100(json!({})));
    offers.reverse();
    assert_eq!(place(&plan), ["ax1", "ax2", "ay1", "bx1"]);
    assert_eq!(find(offers, &h100(json!({}))), plan);
}

#[test]
fn a_limit_shows_the_best_and_counts_the_rest() {
    let offers = (0..30)
        .map(|n| {
            offer(
                &format!("s{n:02}"),
                "H100-SXM",
                8,
                &format!("{}.00", 50 - n),
            )
        })
        .collect();
    let snapshot = snapshot(offers);
    for limit in [0, 1, 3, 30, 40] {
        let options = SearchOptions {
            limit,
            ..SearchOptions::default()
        };
        let plan =
            search(&snapshot, &h100(json!({})), &Held::new(), now(), &options).expect("a plan");
        let best: Vec<_> = (0..30)
            .rev()
            .take(limit)
            .map(|n| format!("s{n:02}"))
            .collect();
        assert_eq!(skus(&plan), best);
        assert_eq!(plan.eligible, 30);
    }
}

#[test]
fn a_price_whose_sum_no_amount_can_hold_is_above_any_ceiling() {
    let plan = find(
        vec![offer("a", "H100-SXM", 8, "90000000000.00")],
        &h100(json!({"nodes": 2})),
    );
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Ceiling, 1)])
    );
}

#[test]
fn a_candidate_is_shown_as_the_one_offer_json_with_its_reasons() {
    let plan = find(
        vec![offer("a", "H100-SXM", 8, "23.92")],
        &h100(json!({"nodes": 2})),
    );
    let shown = plan.candidates[0].offers_with_reasons().expect("it fits");
    let json = serde_json::to_value(&shown[0]).expect("json");
    for field in [
        "offer_id",
        "provider",
        "sku",
        "raw_gpu_name",
        "gpu",
        "gpus",
        "nodes",
        "place",
        "tenancy",
        "terms",
        "internode",
        "price_usd_hour",
        "price_usd_gpu_hour",
        "availability",
        "observed_at",
        "reasons",
    ] {
        assert!(json.get(field).is_some(), "{field} in {json}");
    }
    assert_eq!(json["price_usd_hour"], "47.84");
    assert_eq!(json["price_usd_gpu_hour"], "2.99");
    let back: Plan =
        serde_json::from_value(serde_json::to_value(&plan).expect("json")).expect("a plan");
    assert_eq!(back, plan);
    let view = serde_json::to_value(plan.view().expect("it fits")).expect("json");
    assert_eq!(view["candidates"][0]["lines"][0]["nodes"], 2);
}
