//! Fleets of several offers, and the network that they account for.

use market::offer::Availability;
use market::place::{Country, Place};

use proptest::prelude::*;

use super::*;
use crate::samples::{offer, provider, usd};

pub(super) fn chat(fields: Value) -> Demand {
    let mut all = json!({
        "model": "Llama 3 8B", "requests_per_second": 200, "input_tokens": 512, "output_tokens": 256,
    });
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("serve_realtime", all)
}

pub(super) fn few(offer: Offer, nodes: u32) -> Offer {
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
fn a_mix_says_which_of_its_gpus_was_never_measured() {
    let offers = vec![
        few(offer("cheap", "H800-SXM", 1, "1.99"), 3),
        offer("dear", "H100-SXM", 1, "2.99"),
    ];
    let plan = find(offers, &chat(json!({})));
    assert_eq!(plan.candidates[0].lines.len(), 2);
    let told = plan.candidates[0].reasons.iter();
    let told: Vec<_> = told.filter(|line| line.contains("No serving on")).collect();
    let [line] = told.as_slice() else {
        panic!("one of both: {told:?}")
    };
    assert!(
        line.starts_with("lambda cheap: No serving on H800-SXM was measured"),
        "{line}"
    );
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
    // A fleet that survives the loss of a zone need not survive that of the provider.
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

#[test]
fn a_fleet_that_survives_above_the_ceiling_is_refused_at_what_it_costs() {
    let boards = || {
        vec![
            of("a", offer("x", "H100-SXM", 8, "23.92")),
            of("b", offer("y", "H100-SXM", 8, "23.92")),
        ]
    };
    let within = |rate: u32, ceiling: Value| {
        let fields =
            json!({"survive": "provider", "requests_per_second": rate, "ceiling": ceiling});
        find(boards(), &chat(fields))
    };
    let why = |rate: u32, ceiling: Value| {
        let plan = within(rate, ceiling);
        assert_eq!(
            plan.rejected.by_reason,
            BTreeMap::from([(ReasonCode::Ceiling, 2)])
        );
        plan.refused[0].why.clone()
    };
    assert!(within(1, json!({"usd_per_hour": "47.84"})).is_met());
    assert_eq!(
        why(1, json!({"usd_per_hour": "30.00"})),
        "The cheapest fleet found costs 47.84 USD per hour, and none less: proved; the ceiling is \
         30.00 USD per hour"
    );
    assert_eq!(
        why(1, json!({"usd_per_hour": "20.00"})),
        "1 node at 2.99 USD per GPU-hour costs 23.92 USD per hour; the ceiling is 20.00 USD per hour"
    );
    assert_eq!(
        why(
            1,
            json!({"usd_per_gpu_hour": "2.00", "usd_per_hour": "20.00"})
        ),
        "It costs 2.99 USD per GPU-hour; the ceiling is 2.00 USD per GPU-hour"
    );
    // If one provider's part alone is above the ceiling, the reason still names the whole fleet.
    let cost = within(600, json!({})).candidates[0].cost_per_hour;
    assert!(cost > usd("47.84"), "{cost}");
    let told = why(600, json!({"usd_per_hour": "30.00"}));
    assert!(
        told.contains(&format!("costs {cost} USD per hour, and none less")),
        "{told}"
    );
}

/// Of two nodes and a half that are needed the bound pays for the half alone.
#[test]
fn a_ceiling_between_the_bound_and_the_best_found_refuses_nothing_as_proved() {
    let sellers = |stock: u32| {
        vec![
            of("a", few(offer("x", "H100-SXM", 1, "1.99"), stock)),
            of("b", few(offer("y", "H100-SXM", 1, "2.49"), stock)),
            of("c", few(offer("z", "H100-SXM", 1, "2.99"), stock)),
        ]
    };
    let nodes = find(sellers(1_000), &chat(json!({}))).candidates[0].nodes();
    let cases = [
        (sellers(1_000), json!({"survive": "provider"})),
        // No one of them carries it alone.
        (sellers(nodes - 1), json!({})),
    ];
    for (offers, fields) in cases {
        let cut_short = |ceiling: Option<&str>, budget: &Budget| {
            let mut fields = fields.clone();
            if let Some(limit) = ceiling {
                fields["ceiling"] = json!({"usd_per_hour": limit});
            }
            let (market, held) = (snapshot(offers.clone()), Held::new());
            let options = SearchOptions::default();
            search_within(&market, &chat(fields), &held, now(), &options, budget).expect("a plan")
        };
        let found = cut_short(None, &Budget::spent());
        let cost = found.candidates[0].cost_per_hour;
        assert!(found.candidates[0].reasons[1].contains("% cheaper: proved"));
        let just_under = Money::usd_units(cost.units() - 1_000_000).to_string();
        let plan = cut_short(Some(&just_under), &Budget::spent());
        assert_eq!(
            plan.rejected.by_reason,
            BTreeMap::from([(ReasonCode::CeilingUnproved, 3)])
        );
        let [refused] = plan.refused.as_slice() else {
            panic!("one reason, one example")
        };
        for words in [
            format!("found costs {cost} USD per hour, but one of "),
            format!("is not ruled out: the search was cut short; the ceiling is {just_under} USD"),
        ] {
            assert!(refused.why.contains(&words), "{}", refused.why);
        }
        // A bound above the ceiling proves it, however little is searched.
        let plan = cut_short(Some("1.00"), &Budget::spent());
        let told = &plan.rejected.by_reason;
        assert!(!told.contains_key(&ReasonCode::CeilingUnproved), "{told:?}");
    }
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
    // The engine does not get the network's part of the limit.
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

// S41
#[test]
fn a_pile_of_requests_is_answered_where_it_costs_least_and_spot_will_do() {
    let pile = |fields: Value| {
        let mut all = json!({
            "model": "Llama 3 8B", "requests": 1_000_000, "input_tokens": 512, "output_tokens": 16,
        });
        all.as_object_mut()
            .expect("an object")
            .extend(fields.as_object().expect("an object").clone());
        demand("serve_batch", all)
    };
    let spot = Offer {
        terms: Terms::Spot,
        ..offer("spot", "H100-SXM", 1, "1.20")
    };
    let market = vec![
        offer("firm", "H100-SXM", 1, "2.99"),
        offer("slow", "L4", 1, "0.80"),
        spot,
    ];
    let plan = find(market.clone(), &pile(json!({})));
    // The cheapest hour is the slow one's; the cheapest batch is not.
    assert_eq!(skus(&plan), ["spot", "firm", "slow"]);
    let (first, last) = (&plan.candidates[0], &plan.candidates[2]);
    assert_eq!((first.nodes(), last.nodes()), (1, 1));
    let (hours, cost) = (first.facts.run_hours, first.facts.run_cost_usd);
    let expected = hours.expect("hours") * 1.2 * 1e8;
    assert!((cost.expect("a cost").units() as f64 / expected - 1.0).abs() < 1e-6);
    assert!(last.facts.run_cost_usd > cost && last.facts.run_hours > hours);
    assert!(first.reasons[0].contains("spot"), "{:?}", first.reasons);
    // In half the time twice the nodes, for the same.
    let half = (hours.expect("hours") * 1_800.0) as i64;
    let deadline = (now() + chrono::TimeDelta::seconds(half)).to_rfc3339();
    let plan = find(market.clone(), &pile(json!({"deadline": deadline})));
    let hurried = &plan.candidates[0];
    assert!((2..=3).contains(&hurried.nodes()), "{}", hurried.nodes());
    let ratio = hurried.facts.run_cost_usd.expect("a cost").units() as f64 / expected;
    assert!((ratio - 1.0).abs() < 1e-6);
    // Requests that are answered as they come are not put on spot, and answering the same batch as
    // it comes costs no less.
    let rate = 200.0;
    let served = chat(json!({ "requests_per_second": rate, "output_tokens": 16 }));
    let plan = find(market.clone(), &served);
    assert!(!skus(&plan).contains(&"spot"));
    let firm = market
        .into_iter()
        .filter(|offer| offer.terms != Terms::Spot);
    let firm = find(firm.collect(), &pile(json!({})));
    let hours = 1_000_000.0 / rate / 3_600.0;
    let as_it_comes = plan.candidates[0].cost_per_hour.units() as f64 * hours;
    let on_spot = cost.expect("a cost").units() as f64;
    let at_leisure = firm.candidates[0].facts.run_cost_usd.expect("a cost");
    assert!(
        on_spot < as_it_comes && at_leisure.units() as f64 <= as_it_comes,
        "{on_spot}, {at_leisure} without spot, {as_it_comes} as it comes"
    );
}

// S38
#[test]
fn other_precisions_are_priced_and_never_taken() {
    let options = SearchOptions {
        alternatives: true,
        ..SearchOptions::default()
    };
    let market = snapshot(vec![offer("x", "H100-SXM", 1, "2.99")]);
    let demand = chat(json!({"requests_per_second": 400}));
    let plan = search(&market, &demand, &Held::new(), now(), &options).expect("a plan");
    let best = plan.candidates[0].cost_per_hour;
    let of = |weights| {
        let mut all = plan.alternatives.iter();
        all.find(|other| other.weights == weights)
    };
    use market::demand::Precision;
    assert_eq!(of(Precision::Bf16), None);
    // An H100 has no 4-bit rate of its own.
    assert_eq!(of(Precision::Fp4), None);
    let narrow = of(Precision::Fp8).expect("a price");
    assert!(narrow.price_usd_hour < best);
    let saved = best.units() - narrow.price_usd_hour.units();
    assert_eq!(narrow.saves_usd_hour.units(), saved);
    // The plan uses the requested precision.
    let plain = find(vec![offer("x", "H100-SXM", 1, "2.99")], &demand);
    assert_eq!(plain.candidates, plan.candidates);
    assert!(plain.alternatives.is_empty());
}

// S38, S58
#[test]
fn only_what_saves_is_an_alternative_and_says_what_a_million_tokens_cost_before_and_after() {
    use market::demand::Precision;
    let options = SearchOptions {
        alternatives: true,
        ..SearchOptions::default()
    };
    let plan = |weights: &str| {
        let market = snapshot(vec![offer("x", "H100-SXM", 1, "2.99")]);
        let demand = chat(json!({"weights": weights, "requests_per_second": 600}));
        search(&market, &demand, &Held::new(), now(), &options).expect("a plan")
    };
    let (wide, narrow) = (plan("bf16"), plan("fp8"));
    let [first, second] = [&wide, &narrow].map(|plan| &plan.candidates[0]);
    assert!(second.cost_per_hour < first.cost_per_hour);
    // With 16 bits it would cost more, so the plan does not list them.
    let mut weights = narrow.alternatives.iter().map(|other| other.weights);
    assert!(weights.all(|one| one != Precision::Bf16));
    for other in wide.alternatives.iter().chain(&narrow.alternatives) {
        assert!(other.saves_usd_hour.is_positive(), "{other:?}");
    }
    let mut saving = wide.alternatives.iter();
    let told = saving.find(|other| other.weights == Precision::Fp8);
    let told = told.expect("it saves");
    let [before, after] = [first, second].map(|one| one.facts.usd_per_million_tokens);
    assert_eq!(told.asked_usd_per_million_tokens, before);
    assert_eq!(told.usd_per_million_tokens, after);
    assert!(after < before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Of one machine every node carries the same, so the cheapest fleet is that of the cheapest nodes: as
    /// many offers as a market has of it, of which most are of no use.
    #[test]
    fn of_one_machine_the_cheapest_nodes_are_taken_whoever_sells_them(
        offers in prop::collection::vec((100_u32..400, 0_u32..7, 0_usize..3), 1..80),
        rate in 50_u32..4_000,
    ) {
        let sold = offers.iter().enumerate().map(|(at, (cents, stock, seller))| {
            let price = format!("{}.{:02}", cents / 100, cents % 100);
            let one = few(offer("one", "H100-SXM", 1, &price), *stock);
            Offer {
                offer_id: OfferId::of_identity(&[&at.to_string()]),
                ..of(["a", "b", "c"][*seller], one)
            }
        });
        let busy = chat(json!({"requests_per_second": rate}));
        let plenty = plan_of(vec![offer("one", "H100-SXM", 1, "1.00")], &busy);
        let needed = plenty.candidates[0].nodes() as usize;
        let mut nodes: Vec<u32> = offers.iter().flat_map(|(cents, stock, _)| vec![*cents; *stock as usize]).collect();
        nodes.sort_unstable();
        let cheapest: Option<u32> = nodes.get(..needed).map(|taken| taken.iter().sum());
        let plan = plan_of(sold.collect(), &busy);
        let found = plan.candidates.first().map(|first| first.cost_per_hour.units());
        prop_assert_eq!(found, cheapest.map(|cents| i64::from(cents) * 1_000_000));
    }
}

/// The plan in which the cost alone decides.
fn plan_of(offers: Vec<Offer>, demand: &Demand) -> Plan {
    let options = SearchOptions {
        ties: false,
        ..SearchOptions::default()
    };
    search(&snapshot(offers), demand, &Held::new(), now(), &options).expect("a plan")
}
