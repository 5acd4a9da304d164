//! Hybrid plans: added up once more from their JSON form, compared with every pair, and held to the
//! dates that they promise.

mod baselines;
mod evidence;
mod own;

use chrono::TimeDelta;
use proptest::prelude::*;
use serde_json::{Value, json};

use market::offer::{Offer, Tenancy, Terms};
use market::place::Place;

use super::*;
use crate::samples::{metal, now, offer, provider, snapshot, usd};
use crate::search::search;

fn standing(offer: Offer, seller: &str, region: &str) -> Offer {
    Offer {
        provider: provider(seller),
        place: Place {
            region: Some(region.to_owned()),
            ..Place::unknown()
        },
        ..offer
    }
}

/// A provider with a fabric and one without.
fn supply() -> Vec<Offer> {
    vec![
        standing(metal("fabric", "H100-SXM", "23.92"), "aws", "east"),
        standing(offer("same-site", "L40S", 1, "1.10"), "aws", "east"),
        standing(offer("elsewhere", "L40S", 1, "1.05"), "lambda", "west"),
        standing(offer("large", "H100-SXM", 8, "29.92"), "lambda", "west"),
    ]
}

fn demand(whole: Value, serve: Value) -> HybridDemand {
    let with = |mut body: Value, fields: Value| {
        let fields = fields.as_object().expect("an object").clone();
        body.as_object_mut().expect("an object").extend(fields);
        body
    };
    let serve = with(
        json!({
            "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 20,
            "input_tokens": 900, "output_tokens": 300, "window": {"duration_hours": 720},
        }),
        serve,
    );
    let train = json!({
        "model": "Llama 3.1 8B", "tokens": 20_000_000_000_u64, "sequence_length": 8192, "gpus": 32,
    });
    let body = with(json!({"train": train, "serve": serve}), whole);
    serde_json::from_value(body).expect("a demand")
}

fn plan(offers: Vec<Offer>, demand: &HybridDemand) -> Plan {
    let demand = Demand::Hybrid(Box::new(demand.clone()));
    assert_eq!(demand.check(now()), Ok(()));
    let options = SearchOptions {
        limit: 50,
        ..SearchOptions::default()
    };
    search(&snapshot(offers), &demand, &Held::new(), now(), &options).expect("a plan")
}

fn hybrid(plan: &Plan) -> &HybridPlan {
    plan.hybrid.as_ref().expect("a hybrid plan")
}

fn skus(plan: &Plan, pair: &HybridPair) -> [String; 2] {
    let sku = |rank: usize| plan.candidates[rank - 1].lines[0].offer.sku.clone();
    [sku(pair.train_candidate), sku(pair.serve_candidate)]
}

/// An amount on the wire in units, by its digits alone. Units: 1e-8 US dollars.
fn units(amount: &Value) -> i128 {
    let text = amount.as_str().expect("an amount");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, part) = digits.split_once('.').expect("a decimal amount");
    let part = format!("{part:0<8}");
    sign * (whole.parse::<i128>().expect("digits") * 100_000_000
        + part.parse::<i128>().expect("digits"))
}

fn half_even(numerator: i128, denominator: i128) -> i128 {
    let (quotient, rest) = (numerator / denominator, numerator % denominator);
    match (2 * rest).cmp(&denominator) {
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + quotient % 2,
        std::cmp::Ordering::Less => quotient,
    }
}

/// The cost of these lines for so long, from the offers' prices alone.
fn lines_cost(lines: &Value, seconds: i128) -> i128 {
    let of_line = |line: &Value| {
        let gpus = i128::from(line["gpus"].as_u64().expect("GPUs"));
        let nodes = i128::from(line["nodes"].as_u64().expect("nodes"));
        let rate = half_even(units(&line["price_usd_hour"]), gpus * nodes);
        half_even(rate * gpus * nodes * seconds, 3_600)
    };
    lines.as_array().expect("lines").iter().map(of_line).sum()
}

fn seconds(value: &Value) -> i128 {
    i128::from(value.as_i64().expect("seconds"))
}

fn seconds_between(from: &Value, to: &Value) -> i128 {
    let time = |value: &Value| -> DateTime<Utc> {
        let text = value.as_str().expect("a time");
        text.parse().expect("a time")
    };
    i128::from((time(to) - time(from)).num_seconds())
}

/// Adds a bill up from its lines, seconds and prices; returns the total.
fn added_up(bill: &Value, train: &Value, serve: &Value, weights: i128) -> i128 {
    let line = &train.as_array().expect("lines")[0];
    let gpus = i128::from(line["gpus"].as_u64().expect("GPUs"));
    let nodes = i128::from(line["nodes"].as_u64().expect("nodes"));
    let rate = half_even(units(&line["price_usd_hour"]), gpus * nodes);
    let trained = half_even(rate * seconds(&bill["train_gpu_seconds"]), 3_600);
    assert_eq!(units(&bill["train_usd"]), trained);

    let legs = bill["staging"].as_array().expect("legs");
    let mut egress = 0;
    let mut waited = 0;
    for leg in legs {
        let cost = half_even(units(&leg["usd_per_gb"]) * weights, 1_000_000_000);
        assert_eq!(units(&leg["usd"]), cost);
        egress += cost;
        waited += seconds(&leg["seconds"]);
    }
    assert_eq!(units(&bill["egress_usd"]), egress);
    assert_eq!(
        seconds_between(&bill["trained_at"], &bill["released_at"]),
        waited
    );
    let held = lines_cost(train, waited);
    assert_eq!(units(&bill["staging_hold_usd"]), held);
    let served = lines_cost(serve, seconds(&bill["serve_seconds"]));
    assert_eq!(units(&bill["serve_usd"]), served);
    let total = trained + held + egress + served;
    assert_eq!(units(&bill["total_usd"]), total);
    total
}

/// Adds up all amounts of a plan, and compares the baselines with the best pair.
fn check(plan: &Plan) {
    let view = serde_json::to_value(plan.view().expect("a view")).expect("json");
    let hybrid = &view["hybrid"];
    let weights = i128::from(hybrid["weights_bytes"].as_u64().expect("bytes"));
    let lines = |rank: &Value| {
        let rank = rank.as_u64().expect("a rank") as usize;
        view["candidates"][rank - 1]["lines"].clone()
    };
    let mut totals = Vec::new();
    for pair in hybrid["pairs"].as_array().expect("pairs") {
        let (train, serve) = (
            lines(&pair["train_candidate"]),
            lines(&pair["serve_candidate"]),
        );
        totals.push(added_up(pair, &train, &serve, weights));
        assert!(seconds_between(&pair["released_at"], &pair["serves_from"]) >= 0);
    }
    for baseline in hybrid["baselines"].as_array().expect("baselines") {
        let way = &baseline["way"];
        if way.is_null() {
            assert!(baseline["saves_usd"].is_null());
            continue;
        }
        let total = added_up(way, &way["train"], &way["serve"], weights);
        assert_eq!(units(&baseline["saves_usd"]), total - totals[0]);
    }
}

fn baseline(plan: &Plan, kind: BaselineKind) -> &HybridBaseline {
    let all = &hybrid(plan).baselines;
    all.iter()
        .find(|baseline| baseline.kind == kind)
        .expect("a baseline of each kind")
}

// S01, S02, S14, S17, S22
#[test]
fn a_run_and_its_fleet_are_planned_together_and_add_up_to_the_cent() {
    let plan = plan(supply(), &demand(json!({}), json!({})));
    check(&plan);
    let best = &hybrid(&plan).pairs[0];
    assert_eq!(skus(&plan, best)[0], "fabric");
    assert!(best.bill.released_at > best.bill.trained_at);
    assert_eq!(best.bill.serves_from, best.bill.released_at);
    assert_eq!(best.bill.serve_seconds, 720 * 3_600);
    assert_eq!(
        best.bill.interconnect_premium_usd,
        Some(Money::usd_units(0))
    );
    let one_shape = baseline(&plan, BaselineKind::OneShape);
    let way = one_shape.way.as_ref().expect("a way");
    assert_eq!(way.serve[0].sku, "fabric");
    assert!(way.bill.interconnect_premium_usd > Some(Money::usd_units(0)));
    assert!(one_shape.saves_usd > Some(Money::usd_units(0)));
    let one_provider = baseline(&plan, BaselineKind::OneProvider);
    let way = one_provider.way.as_ref().expect("a way");
    assert_eq!(way.train[0].provider, way.serve[0].provider);
    assert!(one_provider.saves_usd >= Some(Money::usd_units(0)));
    let halves: Vec<_> = plan.candidates.iter().map(|one| one.half).collect();
    assert!(halves.contains(&Some(Half::Train)) && halves.contains(&Some(Half::Serve)));
    assert!(plan.is_met());
}

// S18
#[test]
fn no_class_of_machine_comes_before_what_the_whole_costs() {
    let with = |metal_price: &str| {
        let mut offers = supply();
        offers[0] = standing(metal("metal", "H100-SXM", metal_price), "aws", "east");
        let vms = Offer {
            tenancy: Tenancy::Vm,
            ..metal("vms", "H100-SXM", "23.92")
        };
        offers.push(standing(vms, "aws", "east"));
        let plan = plan(offers, &demand(json!({}), json!({})));
        check(&plan);
        skus(&plan, &hybrid(&plan).pairs[0])[0].clone()
    };
    // A cent an hour decides; each half alone would tie.
    assert_eq!([with("23.93"), with("23.91")], ["vms", "metal"]);
}

#[test]
fn what_leaves_a_provider_is_paid_for_and_decides_where_it_outweighs_the_price() {
    let long = plan(supply(), &demand(json!({}), json!({})));
    let cheaper_elsewhere = json!({"window": {"duration_hours": 1}});
    let short = plan(supply(), &demand(json!({}), cheaper_elsewhere));
    check(&short);
    // For a month the cheaper machines pay for the way there; for an hour they do not.
    let best = &hybrid(&long).pairs[0];
    assert_eq!(skus(&long, best), ["fabric", "elsewhere"]);
    assert_eq!(best.bill.staging[0].usd_per_gb.to_string(), "0.09");
    let best = &hybrid(&short).pairs[0];
    assert_eq!(skus(&short, best), ["fabric", "same-site"]);
    assert_eq!(best.bill.egress_usd, Money::usd_units(0));
}

// S17
#[test]
fn the_weights_are_there_when_the_fleet_must_stand_or_there_is_no_pair() {
    let by = |hours: i64| {
        let latest = now() + TimeDelta::hours(hours);
        json!({"window": {"start_latest": latest, "duration_hours": 720}})
    };
    let loose = demand(json!({}), by(2_000));
    let found = plan(supply(), &loose);
    let free = hybrid(&found).pairs[0].bill.trained_at;
    let hours = (free - now()).num_hours() + 1;
    for (by_hours, met) in [(hours + 1, true), (hours / 2, false)] {
        let tight = demand(json!({}), by(by_hours));
        let plan = plan(supply(), &tight);
        check_dates(&plan, now() + TimeDelta::hours(by_hours));
        assert_eq!(plan.is_met(), met, "{by_hours}");
    }
    // Where the number of GPUs is open, more of them bring the date forward.
    let mut free_count = demand(json!({}), by(hours / 2));
    free_count.train.gpus = None;
    let plan = plan(supply(), &free_count);
    check_dates(&plan, now() + TimeDelta::hours(hours / 2));
    assert!(plan.is_met());
    check(&plan);
}

fn check_dates(plan: &Plan, latest: DateTime<Utc>) {
    for pair in &hybrid(plan).pairs {
        assert!(pair.bill.serves_from <= latest);
    }
}

#[test]
fn a_fleet_that_is_wanted_later_stands_later_and_the_nodes_are_released_all_the_same() {
    let later = now() + TimeDelta::days(60);
    let window = json!({"window": {"start_earliest": later, "end": later + TimeDelta::days(10)}});
    let plan = plan(supply(), &demand(json!({}), window));
    check(&plan);
    let best = &hybrid(&plan).pairs[0].bill;
    assert_eq!(best.serves_from, later);
    assert!(best.released_at < later);
    assert_eq!(best.serve_seconds, 10 * 86_400);
}

#[test]
fn an_open_end_is_reckoned_as_a_month_and_says_so() {
    let open = plan(supply(), &demand(json!({}), json!({"window": {}})));
    let hybrid = hybrid(&open);
    assert!(hybrid.serve_span_assumed);
    assert_eq!(hybrid.serve_span_seconds, Some(730 * 3_600));
}

#[test]
fn a_pile_follows_its_run_and_its_baseline_is_on_demand() {
    let mut offers = supply();
    offers.push(Offer {
        terms: Terms::Spot,
        ..standing(offer("spot", "L40S", 1, "0.40"), "lambda", "west")
    });
    let until = now() + TimeDelta::days(40);
    let mut pile = demand(json!({}), json!({}));
    pile.serve = serde_json::from_value(json!({
        "kind": "serve_batch", "model": "Llama 3.1 8B", "requests": 2_000_000,
        "input_tokens": 900, "output_tokens": 300, "deadline": until,
    }))
    .expect("a batch");
    let plan = plan(offers, &pile);
    check(&plan);
    let best = &hybrid(&plan).pairs[0];
    assert_eq!(skus(&plan, best), ["fabric", "spot"]);
    let done = best.bill.serves_from + TimeDelta::seconds(best.bill.serve_seconds);
    assert!(done <= until);
    let way = baseline(&plan, BaselineKind::OneProvider).way.as_ref();
    assert!(way.expect("a way").serve[0].terms == Terms::OnDemand);
}

#[test]
fn where_one_half_cannot_be_had_there_is_no_pair_and_the_other_is_shown() {
    let no_fabric = supply().split_off(1);
    let plan = plan(no_fabric, &demand(json!({}), json!({})));
    assert!(!plan.is_met());
    assert!(plan.eligible > 0 && hybrid(&plan).eligible_train == 0);
    assert!(plan.refused.iter().any(|one| one.half == Some(Half::Train)));
    assert!(
        (hybrid(&plan).baselines.iter()).all(|one| one.way.is_none() && one.saves_usd.is_none())
    );
}

/// A market of a few offers at three sellers, some with a fabric.
fn any_supply() -> impl Strategy<Value = Vec<Offer>> {
    let one = (
        prop::sample::select(vec!["aws", "lambda", "b"]),
        prop::sample::select(vec!["east", "west"]),
        prop::sample::select(vec![
            ("H100-SXM", 8_u32, true),
            ("H100-SXM", 8, false),
            ("L40S", 1, false),
            ("A100-SXM-80", 8, true),
        ]),
        100_i64..4_000,
    );
    prop::collection::vec(one, 1..9).prop_map(|all| {
        let each = all.into_iter().enumerate();
        each.map(|(at, (seller, region, (gpu, gpus, fabric), cents))| {
            let price = format!("{}.{:02}", cents / 100, cents % 100);
            let sku = format!("s{at}");
            let sold = if fabric {
                metal(&sku, gpu, &price)
            } else {
                offer(&sku, gpu, gpus, &price)
            };
            standing(sold, seller, region)
        })
        .collect()
    })
}

proptest! {
    /// Offers of other providers and spot offers do not matter.
    #[test]
    fn one_provider_is_the_cheapest_of_those_that_sell_alone(supply in any_supply()) {
        let mut supply = supply;
        for (nth, offer) in supply.iter_mut().enumerate() {
            if nth % 4 == 3 {
                offer.terms = Terms::Spot;
            }
        }
        let demand = demand(json!({}), json!({}));
        let told = |offers: Vec<Offer>| {
            let plan = plan(offers, &demand);
            let way = baseline(&plan, BaselineKind::OneProvider).way.clone();
            way.map(|way| (way.bill.total_usd, way.train, way.serve))
        };
        let sold_by = |seller: &ProviderId| {
            let of = supply.iter().filter(|offer| offer.provider == *seller);
            of.filter(|offer| offer.terms == Terms::OnDemand).cloned().collect()
        };
        let mut sellers: Vec<_> = supply.iter().map(|offer| offer.provider.clone()).collect();
        sellers.sort();
        sellers.dedup();
        let alone = sellers.iter().filter_map(|seller| told(sold_by(seller)));
        let cheapest = alone.min_by_key(|(total, ..)| *total);
        prop_assert_eq!(told(supply.clone()), cheapest);
    }

    #[test]
    fn no_pair_of_what_was_found_costs_less_than_the_first(
        offers in any_supply(), hours in 1_u32..2_000,
    ) {
        let wanted = demand(json!({}), json!({"window": {"duration_hours": hours}}));
        let plan = plan(offers.clone(), &wanted);
        check_if_met(&plan);
        let options = SearchOptions { limit: 50, ..SearchOptions::default() };
        let market = snapshot(offers);
        let half = |half| {
            search(&market, &wanted.half(half), &Held::new(), now(), &options).expect("a half")
        };
        let (train, serve) = (half(Half::Train), half(Half::Serve));
        let reckoning = Reckoning::new(&wanted, &market, now(), &train.candidates).expect("a calculation");
        let mut least: Option<Money> = None;
        for run in &train.candidates {
            for fleet in &serve.candidates {
                let total = reckoning.bill(run, fleet, None).expect("a bill").total_usd;
                least = Some(least.map_or(total, |least| least.min(total)));
            }
        }
        let best = hybrid(&plan).pairs.first().map(|pair| pair.bill.total_usd);
        prop_assert_eq!(best, least);
    }
}

fn check_if_met(plan: &Plan) {
    if plan.is_met() {
        check(plan);
    }
}
