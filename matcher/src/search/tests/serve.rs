use market::offer::Availability;
use proptest::prelude::*;

use super::*;
use crate::samples::{metal, offer};
use crate::serve::PLANNED_UTILISATION;

pub(super) fn chat(model: &str, fields: Value) -> Demand {
    let mut all = json!({"model": model, "input_tokens": 512, "output_tokens": 256});
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("serve_realtime", all)
}

fn ten_a_second(model: &str) -> Demand {
    chat(model, json!({"requests_per_second": 10}))
}

#[test]
fn the_fleet_that_carries_the_load_for_least_comes_first() {
    let offers = vec![
        offer("h100", "H100-SXM", 1, "2.99"),
        offer("l40s", "L40S", 1, "0.70"),
        offer("l4", "L4", 1, "0.50"),
    ];
    let plan = find(offers, &ten_a_second("Llama 3 8B"));
    let costs: Vec<_> = plan.candidates.iter().map(|c| c.cost_per_hour).collect();
    assert!(costs.is_sorted(), "{costs:?}");
    let h100 = plan
        .candidates
        .iter()
        .find(|candidate| candidate.lines[0].offer.sku == "h100")
        .expect("it carries the load");
    let facts = h100.facts;
    assert_eq!(facts.bandwidth_gbps_per_usd_hour, Some(3_350.0 / 2.99));
    // The cost of an hour over the tokens written in it.
    let written = facts.tokens_per_second.expect("a rate") * 3_600.0 / 1e6;
    let price = facts.usd_per_million_tokens.expect("a price").units() as f64;
    assert!((price * written / h100.cost_per_hour.units() as f64 - 1.0).abs() < 1e-6);
}

#[test]
fn a_hundredth_of_a_cent_decides_between_equal_machines() {
    let offers = vec![
        offer("a", "H100-SXM", 1, "2.99"),
        offer("z", "H100-SXM", 1, "2.9899"),
    ];
    assert_eq!(skus(&find(offers, &ten_a_second("Llama 3 8B"))), ["z", "a"]);
}

// S01
#[test]
fn the_same_supply_gives_a_training_run_and_a_fleet_different_machines() {
    let supply = || {
        vec![
            metal("dense", "H100-SXM", "23.92"),
            offer("wide", "L40S", 4, "2.80"),
        ]
    };
    let train = demand(
        "train",
        json!({"model": "Llama 3 8B", "tokens": 1_000_000_000, "gpus": 16}),
    );
    assert_eq!(skus(&find(supply(), &train)), ["dense"]);
    assert_eq!(
        skus(&find(supply(), &ten_a_second("Llama 3 8B")))[0],
        "wide"
    );
}

// S15
#[test]
fn a_fleet_on_training_machines_is_told_what_it_pays_for_and_does_not_use() {
    let plan = find(
        vec![metal("dense", "H100-SXM", "23.92")],
        &ten_a_second("Llama 3 8B"),
    );
    let reasons = &plan.candidates[0].reasons;
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("serving does not use")),
        "{reasons:?}"
    );
}

// S56
#[test]
fn a_70b_at_16_bits_is_split_over_two_gpus_of_a_node_and_never_over_nodes() {
    let offers = vec![
        offer("one", "H100-SXM", 1, "2.99"),
        offer("two", "H100-SXM", 2, "5.98"),
        offer("amd", "MI300X", 1, "2.50"),
    ];
    let plan = find(offers, &ten_a_second("Llama 3 70B"));
    let widths: Vec<_> = plan
        .candidates
        .iter()
        .map(|c| (c.lines[0].offer.sku.as_str(), c.facts.gpus_per_replica))
        .collect();
    assert_eq!(widths, [("amd", Some(1)), ("two", Some(2))]);
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Memory, 1)])
    );
}

// S57
#[test]
fn a_405b_at_8_bits_takes_the_whole_of_a_node() {
    let offers = vec![
        offer("h100", "H100-SXM", 8, "23.92"),
        offer("h200", "H200-SXM", 8, "28.00"),
    ];
    let plan = find(
        offers,
        &chat(
            "Llama 3.1 405B",
            json!({"requests_per_second": 1, "weights": "fp8", "kv_cache": "fp8"}),
        ),
    );
    assert!(
        plan.candidates
            .iter()
            .all(|c| c.facts.gpus_per_replica <= Some(8) && c.facts.gpus_per_replica >= Some(4))
    );
    assert_eq!(plan.eligible, 2);
}

#[test]
fn integers_of_8_bits_are_served_where_only_16_bits_have_a_rate() {
    let fields = json!({"requests_per_second": 1, "weights": "int8", "kv_cache": "bf16"});
    let offers = vec![
        offer("volta", "V100-SXM2-32", 1, "0.50"),
        offer("pascal", "P40", 1, "0.20"),
    ];
    let plan = find(offers, &chat("Llama 3 8B", fields));
    assert_eq!(skus(&plan), ["volta"]);
    let wanting = BTreeMap::from([(ReasonCode::Precision, 1)]);
    assert_eq!(plan.rejected.by_reason, wanting);
}

#[test]
fn a_stock_that_the_provider_does_not_count_is_said_to_be_assumed() {
    let reasons = |availability| {
        let offer = Offer {
            availability,
            ..offer("x", "H100-SXM", 1, "2.99")
        };
        let plan = find(vec![offer], &ten_a_second("Llama 3 8B"));
        plan.candidates[0].reasons.join("\n")
    };
    let words = "up to 10000";
    let uncounted = reasons(Availability::PRESENT);
    assert!(uncounted.contains("states no count"), "{uncounted}");
    assert!(uncounted.contains(words), "{uncounted}");
    let ten = Availability::exactly(10);
    assert!(!reasons(ten).contains(words));
    let more = reasons(Availability {
        at_least: true,
        ..ten
    });
    assert!(
        more.contains("at least 10 free nodes") && more.contains(words),
        "{more}"
    );
}

#[test]
fn a_copy_is_not_squeezed_onto_so_few_gpus_that_nothing_is_left_for_its_cache() {
    // 69 GB of weights leave 6 GB of one H100, and half of what four have.
    let fields = json!({"concurrency": 200, "weights": "fp8", "kv_cache": "fp8"});
    let plan = find(
        vec![offer("eight", "H100-SXM", 8, "23.92")],
        &chat("Llama 3 70B", fields),
    );
    let best = &plan.candidates[0];
    assert_eq!((best.nodes(), best.facts.gpus_per_replica), (1, Some(4)));
}

// S43
#[test]
fn a_fleet_for_a_rate_of_requests_obeys_littles_law_with_room_to_spare() {
    let plan = find(
        vec![offer("h100", "H100-SXM", 1, "2.99")],
        &chat("Llama 3 8B", json!({"requests_per_second": 300})),
    );
    let candidate = &plan.candidates[0];
    let facts = candidate.facts;
    let copies = f64::from(facts.replicas.expect("copies"));
    // Requests in flight = those that come in times the seconds that each takes.
    let in_flight = 300.0 * 256.0 * facts.per_token_ms.expect("a time") / 1e3;
    let places =
        facts.tokens_per_second.expect("a rate") * facts.per_token_ms.expect("a time") / 1e3;
    assert!(
        in_flight <= places * PLANNED_UTILISATION * (1.0 + 1e-9),
        "{in_flight} of {places}"
    );
    assert!(
        in_flight > places * PLANNED_UTILISATION * (copies - 1.0) / copies,
        "one replica fewer is enough"
    );
}

#[test]
fn growth_is_planned_for_whichever_way_the_load_is_given() {
    for load in ["concurrency", "requests_per_second"] {
        let nodes = |growth: f64| {
            let fields = json!({load: 4_000, "growth": growth});
            let offers = vec![offer("h100", "H100-SXM", 1, "2.99")];
            find(offers, &chat("Llama 3 8B", fields)).candidates[0].nodes()
        };
        let (now, then) = (nodes(1.0), nodes(3.0));
        assert!(then > now && then <= 3 * now, "{load}: {now} to {then}");
    }
}

#[test]
fn a_fleet_larger_than_the_stock_is_refused_with_what_is_missing() {
    let two = Offer {
        availability: Availability::exactly(2),
        ..offer("two", "H100-SXM", 1, "2.99")
    };
    let plan = find(
        vec![two],
        &chat("Llama 3 8B", json!({"requests_per_second": 1_000})),
    );
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::NotEnoughNodes, 1)])
    );
    assert!(
        plan.refused[0].why.contains("the provider has 2"),
        "{}",
        plan.refused[0].why
    );
}

#[test]
fn what_a_fleet_cannot_promise_yet_is_refused_and_not_left_out() {
    let refusal = |fields| {
        let demand = chat("Llama 3 8B", fields);
        search(
            &snapshot(vec![]),
            &demand,
            &Held::new(),
            now(),
            &SearchOptions::default(),
        )
        .expect_err("a refusal")
    };
    assert_eq!(refusal(json!({})), MatchError::LoadMissing);
    assert!(matches!(
        refusal(json!({"concurrency": 1, "weights": "fp32"})),
        MatchError::PrecisionNotSupported { .. }
    ));
}

proptest! {
    // S12: for one offer, a tighter objective never takes fewer nodes.
    #[test]
    fn a_tighter_objective_never_makes_the_fleet_of_an_offer_cheaper(
        a in 5.0_f64..200.0, b in 5.0_f64..200.0, rate in 1.0_f64..500.0, gpus in 1_u32..=8,
    ) {
        let cost = |per_token_ms: f64| {
            let fields = json!({"requests_per_second": rate, "latency": {"per_token_ms": per_token_ms}});
            let plan = find(vec![offer("h100", "H100-SXM", gpus, "2.99")], &chat("Llama 3 8B", fields));
            plan.candidates.first().map_or(i64::MAX, |c| c.cost_per_hour.units())
        };
        prop_assert!(cost(a.min(b)) >= cost(a.max(b)));
    }

    #[test]
    fn more_load_never_makes_the_fleet_of_an_offer_cheaper(
        a in 1.0_f64..500.0, b in 1.0_f64..500.0, context in 1_u32..8_000,
    ) {
        let cost = |rate: f64| {
            let fields = json!({"requests_per_second": rate, "input_tokens": context});
            let plan = find(vec![offer("h100", "H100-SXM", 8, "23.92")], &chat("Llama 3 8B", fields));
            plan.candidates.first().map_or(i64::MAX, |c| c.cost_per_hour.units())
        };
        prop_assert!(cost(a.min(b)) <= cost(a.max(b)));
    }
}
