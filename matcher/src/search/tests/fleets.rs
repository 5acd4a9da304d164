//! Fleets of several offers, and what of the network they are told.

use market::offer::Availability;
use market::place::{Country, Place};

use super::*;
use crate::samples::{offer, provider};

fn chat(fields: Value) -> Demand {
    let mut all = json!({
        "model": "Llama 3 8B", "requests_per_second": 200, "input_tokens": 512, "output_tokens": 256,
    });
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("serve_realtime", all)
}

fn few(offer: Offer, nodes: u32) -> Offer {
    Offer {
        availability: Availability::exactly(nodes),
        ..offer
    }
}

fn of(seller: &str, offer: Offer) -> Offer {
    Offer {
        offer_id: OfferId::of_identity(&[seller, &offer.sku]),
        provider: provider(seller),
        ..offer
    }
}

fn nodes_of(candidate: &Candidate) -> Vec<(&str, u32)> {
    let lines = candidate.lines.iter();
    lines
        .map(|line| (line.offer.sku.as_str(), line.nodes))
        .collect()
}

// S64
#[test]
fn a_mix_is_taken_where_it_costs_less_than_any_fleet_of_one_offer() {
    let offers = vec![
        few(offer("cheap", "H100-SXM", 1, "1.99"), 3),
        offer("dear", "H100-SXM", 1, "2.99"),
    ];
    let plan = find(offers, &chat(json!({})));
    let [mix, alone] = plan.candidates.as_slice() else {
        panic!("the mix, and the fleet of the offer that is many")
    };
    let nodes = alone.nodes();
    assert!(nodes > 3, "{nodes}");
    assert_eq!(nodes_of(mix), [("cheap", 3), ("dear", nodes - 3)]);
    assert_eq!(nodes_of(alone), [("dear", nodes)]);
    assert!(mix.cost_per_hour < alone.cost_per_hour);
    // The cheap one alone would be refused; as a part of the first candidate it is not.
    assert_eq!((plan.eligible, plan.rejected.total), (2, 0));
    assert!(
        mix.reasons[1].contains("is cheaper: proved"),
        "{:?}",
        mix.reasons
    );
    assert_eq!(mix.facts.replicas, alone.facts.replicas);
}

#[test]
fn a_fleet_that_survives_the_loss_of_a_provider_carries_the_load_without_any_one() {
    let offers = vec![
        of("a", offer("x", "H100-SXM", 1, "1.99")),
        of("b", offer("y", "H100-SXM", 1, "2.49")),
        of("c", offer("z", "H100-SXM", 1, "2.99")),
    ];
    let plan = find(offers.clone(), &chat(json!({"survive": "provider"})));
    let alone = find(offers[..1].to_vec(), &chat(json!({}))).candidates[0].nodes();
    assert_eq!((plan.eligible, plan.rejected.total), (3, 0));
    for candidate in &plan.candidates {
        for line in &candidate.lines {
            let left = candidate.nodes() - line.nodes;
            assert!(left >= alone, "{:?}", nodes_of(candidate));
        }
    }
    let costs: Vec<_> = plan.candidates.iter().map(|c| c.cost_per_hour).collect();
    assert!(costs.is_sorted() && costs.len() > 1, "{costs:?}");
    // Two providers are not enough where one has too few.
    let two = vec![offers[0].clone(), few(offers[1].clone(), 1)];
    let plan = find(two, &chat(json!({"survive": "provider"})));
    assert_eq!(
        plan.rejected.by_reason,
        BTreeMap::from([(ReasonCode::Spread, 2)])
    );
    assert!(plan.candidates.is_empty());
}

#[test]
fn a_zone_that_is_not_said_may_be_any_of_its_region() {
    let zoned = |sku: &str, zone: Option<&str>| Offer {
        place: Place {
            region: Some("r1".into()),
            zone: zone.map(str::to_owned),
            ..Place::unknown()
        },
        ..offer(sku, "H100-SXM", 1, "1.99")
    };
    let zone = chat(json!({"survive": "zone"}));
    let plan = find(vec![zoned("x", Some("a")), zoned("y", Some("b"))], &zone);
    assert_eq!(plan.candidates[0].lines.len(), 2);
    let unsaid = vec![zoned("x", Some("a")), zoned("y", None)];
    assert!(find(unsaid, &zone).candidates.is_empty());
    // What survives the loss of a zone need not survive that of the provider.
    let both = vec![zoned("x", Some("a")), zoned("y", Some("b"))];
    let provider = chat(json!({"survive": "provider"}));
    assert!(find(both, &provider).candidates.is_empty());
}

#[test]
fn a_mix_above_the_ceiling_is_none() {
    let offers = vec![
        few(offer("x", "H100-SXM", 1, "1.99"), 3),
        few(offer("y", "H100-SXM", 1, "2.99"), 9),
    ];
    let plan = find(offers.clone(), &chat(json!({})));
    let cost = plan.candidates[0].cost_per_hour.to_string();
    assert_eq!(plan.candidates[0].lines.len(), 2);
    let at = |limit: &str| {
        let demand = chat(json!({"ceiling": {"usd_per_hour": limit}}));
        let plan = find(offers.clone(), &demand);
        plan.candidates.iter().any(|c| c.lines.len() == 2)
    };
    assert!(at(&cost));
    assert!(!at("1.00"));
}

// S88
#[test]
fn of_fleets_at_one_price_the_nearest_to_the_users_comes_first() {
    let standing_in = |sku: &str, country: &str| Offer {
        place: Place {
            country: Country::parse(country).ok(),
            ..Place::unknown()
        },
        ..offer(sku, "H100-SXM", 1, "1.99")
    };
    let market = || {
        vec![
            standing_in("a", "JP"),
            standing_in("b", "DE"),
            standing_in("c", "US"),
        ]
    };
    let users = json!([{"country": "FR", "share": 1.0}]);
    let plan = find(market(), &chat(json!({"users": users})));
    assert_eq!(skus(&plan), ["b", "c", "a"]);
    let network: Vec<_> = plan.candidates.iter().map(|c| c.facts.network_ms).collect();
    assert!(network.is_sorted_by(|a, b| a < b), "{network:?}");
    let first = plan.candidates[0].facts.first_token_ms.expect("a time");
    assert!(first > network[0].expect("a time"));
    // What the network takes is not left for the engine.
    let near = chat(json!({"users": users, "latency": {"first_token_ms": 120}}));
    let plan = find(market(), &near);
    assert_eq!(skus(&plan)[0], "b");
    assert_eq!(
        plan.rejected.by_reason.get(&ReasonCode::Latency),
        Some(&1),
        "{:?}",
        plan.refused
    );
    assert!(plan.refused[0].why.contains("ms for the network"));
}

fn simulated(offers: Vec<Offer>, demand: &Demand) -> Plan {
    let options = SearchOptions {
        simulated: 1,
        ..SearchOptions::default()
    };
    search(&snapshot(offers), demand, &Held::new(), now(), &options).expect("a plan")
}

// S12
#[test]
fn the_best_fleet_says_what_its_slow_requests_wait_and_whether_that_will_do() {
    let market = || {
        vec![
            offer("x", "H100-SXM", 1, "1.99"),
            offer("y", "L40S", 1, "1.99"),
        ]
    };
    let fields = |first: u32| {
        let latency = json!({"first_token_ms": first, "per_token_ms": 60, "percentile": 99});
        chat(json!({"latency": latency}))
    };
    let plan = simulated(market(), &fields(2_000));
    let best = &plan.candidates[0];
    let (facts, tail) = (
        best.facts,
        best.facts.first_token_tail_ms.expect("simulated"),
    );
    assert_eq!(
        (facts.percentile, facts.meets_objective),
        (Some(99.0), Some(true))
    );
    assert!(tail > facts.first_token_ms.expect("a time") * 0.5);
    assert!(facts.per_token_tail_ms <= Some(60.0));
    assert!(
        best.reasons[1].contains("meets the objective"),
        "{:?}",
        best.reasons
    );
    assert_eq!(plan.candidates[1].facts.percentile, None);
    // Just above what a lone request takes there is no room for a queue.
    let alone = facts.first_token_ms.expect("a time");
    let close = simulated(market(), &fields((alone * 1.02) as u32));
    assert_eq!(close.candidates[0].facts.meets_objective, Some(false));
    assert_eq!(simulated(market(), &fields(2_000)), plan);
}
