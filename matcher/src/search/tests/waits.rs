//! The simulated tail latencies of fleets, and their effects.

use ::market::place::{Country, Place};
use proptest::prelude::*;

use super::*;
use crate::samples::offer;
use crate::serve::PLANNED_UTILISATION;

fn chat(fields: Value) -> Demand {
    let mut all = json!({
        "model": "Llama 3 8B", "requests_per_second": 200, "input_tokens": 512, "output_tokens": 256,
    });
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    demand("serve_realtime", all)
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
    // The facts always contain the 95th and the 99th percentile.
    let tails = [facts.first_token_p95_ms, facts.first_token_p99_ms];
    assert_eq!(tails[1], facts.first_token_tail_ms);
    assert_eq!(facts.per_token_p99_ms, facts.per_token_tail_ms);
    let of_95 = chat(json!({
        "latency": {"first_token_ms": 2_000, "per_token_ms": 60, "percentile": 95}
    }));
    let other = simulated(market(), &of_95).candidates[0].facts;
    assert_eq!(other.first_token_tail_ms, tails[0]);
    assert_eq!([other.first_token_p95_ms, other.first_token_p99_ms], tails);
    assert!(tails[0] < tails[1], "{tails:?}");
    assert_eq!(simulated(market(), &fields(2_000)), plan);
}

/// The network is that of each percentile's own users: half of them are far away.
#[test]
fn each_percentile_has_the_network_of_its_own_users() {
    let here = Offer {
        place: Place {
            country: Country::parse("DE").ok(),
            ..Place::unknown()
        },
        ..offer("x", "H100-SXM", 1, "1.99")
    };
    let tails = |far: f64| {
        let users = json!([{"country": "DE", "share": 1.0 - far}, {"country": "AU", "share": far}]);
        let plan = simulated(vec![here.clone()], &chat(json!({"users": users})));
        let facts = plan.candidates[0].facts;
        [facts.first_token_p95_ms, facts.first_token_p99_ms].map(|ms| ms.expect("simulated"))
    };
    let (near, some) = (tails(0.0), tails(0.03));
    // Three in a hundred are beyond the 95th percentile, and within the 99th.
    assert!((near[0] - some[0]).abs() < 1.0, "{near:?} {some:?}");
    assert!(some[1] > near[1] + 150.0, "{near:?} {some:?}");
}

/// The limit lies between the tail latencies of both fleets. The one that meets it costs some cents more, so
/// that no fleet with more spare capacity is cheaper.
#[test]
fn a_fleet_that_meets_the_objective_comes_before_a_cheaper_one_that_misses_it() {
    let near = || offer("near", "H100-SXM", 1, "1.99");
    let alone = simulated(
        vec![near()],
        &chat(json!({"latency": {"first_token_ms": 2_000, "per_token_ms": 60, "percentile": 99}})),
    );
    let cents = alone.candidates[0].cost_per_hour.units() / 1_000_000 + 4;
    let far_price = format!("{}.{:02}", cents / 100, cents % 100);
    // One node of it carries all.
    let market = || vec![near(), offer("far", "B200-SXM", 8, &far_price)];
    let latency = |first: u32| {
        chat(json!({
            "latency": {"first_token_ms": first, "per_token_ms": 60, "percentile": 99}
        }))
    };
    let both = |simulated: usize, ties: bool, first: u32| {
        let options = SearchOptions {
            simulated,
            ties,
            ..SearchOptions::default()
        };
        let (market, held) = (snapshot(market()), Held::new());
        search(&market, &latency(first), &held, now(), &options).expect("a plan")
    };
    let plenty = both(2, true, 2_000);
    let tails = [0, 1].map(|at| plenty.candidates[at].facts.first_token_tail_ms);
    let [Some(slow), Some(quick)] = tails else {
        panic!("both are simulated")
    };
    assert!(quick + 2.0 < slow, "{quick} and {slow}");
    let close = ((quick + slow) / 2.0) as u32;
    // As it is without a simulation, and where the cost alone decides.
    assert_eq!(skus(&both(0, true, close)), ["near", "far"]);
    assert_eq!(skus(&both(2, false, close)), ["near", "far"]);
    let plan = both(2, true, close);
    assert_eq!(skus(&plan), ["far", "near"], "{plan:?}");
    let [first, second] = plan.candidates.as_slice() else {
        panic!("both carry it")
    };
    assert_eq!((first.rank, second.rank), (1, 2));
    assert_eq!(
        (first.facts.meets_objective, second.facts.meets_objective),
        (Some(true), Some(false))
    );
    assert!(first.cost_per_hour > second.cost_per_hour);
    assert_eq!(
        first.reasons[0],
        "It meets the objective in the simulation, and so ranks before 1 fleet that would come \
         first and misses it"
    );
    // Where both meet it, or one alone was looked at, nothing is moved.
    assert_eq!(skus(&both(2, true, 2_000)), ["near", "far"]);
    assert_eq!(skus(&both(1, false, close)), ["near", "far"]);
}

/// A demand with a limit for the first token of four fifths of the tail latency without a limit.
pub(super) fn close_to(market: &[Offer]) -> Demand {
    let with = |first: f64| {
        chat(json!({
            "latency": {"first_token_ms": first, "per_token_ms": 60, "percentile": 99}
        }))
    };
    let plenty = simulated(market.to_vec(), &with(5_000.0)).candidates[0].facts;
    with(plenty.first_token_tail_ms.expect("simulated") * 0.8)
}

// S12
#[test]
fn where_all_miss_a_fleet_with_more_room_is_planned_and_says_so() {
    let market = [offer("near", "H100-SXM", 1, "1.99")];
    let demand = close_to(&market);
    let plan = simulated(market.to_vec(), &demand);
    let [wider, first] = plan.candidates.as_slice() else {
        panic!("two fleets: {plan:?}")
    };
    let met = [wider, first].map(|one| one.facts.meets_objective);
    assert_eq!(met, [Some(true), Some(false)]);
    assert_eq!([wider.rank, first.rank], [1, 2]);
    assert!(wider.nodes() > first.nodes());
    assert!(wider.facts.planned_share < first.facts.planned_share);
    assert_eq!(first.facts.planned_share, Some(PLANNED_UTILISATION));
    // Priced like every other, and no smaller than the share asks for.
    let price = first.cost_per_hour.units() / i64::from(first.nodes());
    let nodes = i64::from(wider.nodes());
    assert_eq!(wider.cost_per_hour.units(), price * nodes);
    let rate = first.facts.tokens_per_second.expect("a rate") / f64::from(first.nodes());
    let share = wider.facts.planned_share.expect("a share");
    let needed = 200.0 * 256.0 / (rate * share);
    assert!(
        needed <= nodes as f64 && needed > nodes as f64 - 1.0,
        "{needed}"
    );
    assert!(
        wider.reasons[0].starts_with(&format!("It is planned at {:.0} %", share * 100.0)),
        "{:?}",
        wider.reasons
    );
    assert_eq!((plan.eligible, plan.rejected.total), (1, 0));
    assert_eq!(simulated(market.to_vec(), &demand), plan);
}

#[test]
fn where_no_more_nodes_are_to_be_had_it_is_said_that_more_room_was_looked_for() {
    let market = vec![offer("near", "H100-SXM", 1, "1.99")];
    let demand = close_to(&market);
    let nodes = simulated(market, &demand).candidates[1].nodes();
    let all = vec![super::fleets::few(
        offer("near", "H100-SXM", 1, "1.99"),
        nodes,
    )];
    let plan = simulated(all, &demand);
    let [only] = plan.candidates.as_slice() else {
        panic!("one fleet: {plan:?}")
    };
    assert_eq!(only.facts.meets_objective, Some(false));
    let last = only.reasons.last().expect("a reason");
    assert!(last.starts_with("Planned at less, "), "{last}");
}

/// Offers that carry a part of a fleet with more room satisfy the demand.
#[test]
fn what_a_fleet_with_more_room_stands_on_is_counted_as_eligible() {
    let alone = || super::fleets::few(offer("alone", "H100-SXM", 1, "1.50"), 100);
    let demand = close_to(&[alone()]);
    let plenty = simulated(vec![alone()], &demand);
    let [wider, nodes] = [0, 1].map(|at| plenty.candidates[at].nodes());
    let all = super::fleets::few(offer("alone", "H100-SXM", 1, "1.50"), nodes);
    let rest = super::fleets::few(offer("rest", "H100-SXM", 1, "1.99"), wider - nodes);
    let plan = simulated(vec![all, rest], &demand);
    let wider = &plan.candidates[0];
    assert_eq!(wider.facts.meets_objective, Some(true), "{plan:?}");
    assert_eq!(wider.lines.len(), 2);
    assert_eq!((plan.eligible, plan.rejected.total), (2, 0));
}

#[test]
fn what_a_tighter_objective_takes_is_found_for_a_looser_one_too() {
    let market = snapshot(vec![
        offer("h100", "H100-SXM", 1, "2.50"),
        offer("l40s", "L40S", 1, "0.90"),
        offer("h200", "H200-SXM", 1, "3.50"),
    ]);
    let cost = |first: u32| {
        let fields = json!({
            "requests_per_second": 40, "input_tokens": 2_000, "output_tokens": 200,
            "latency": {"first_token_ms": first, "per_token_ms": 40, "percentile": 99},
        });
        let plan = of_three(&market, &chat(fields), true);
        let best = plan.candidates.first().filter(|one| meets(one));
        best.map(|one| one.cost_per_hour)
            .expect("a fleet that meets it")
    };
    let costs: Vec<_> = (160..=300).step_by(10).map(cost).collect();
    assert!(
        costs.is_sorted_by(|tighter, looser| looser <= tighter),
        "{costs:?}"
    );
    assert!(costs[0] > costs[14]);
}

/// How many nodes there are of each, at these prices in cents.
fn priced(prices: &[u32], stock: u32) -> Snapshot {
    let gpus = ["H100-SXM", "L40S", "B200-SXM"];
    let all = prices.iter().zip(gpus).map(|(cents, gpu)| {
        let price = format!("{}.{:02}", cents / 100, cents % 100);
        super::fleets::few(offer(gpu, gpu, 1, &price), stock)
    });
    snapshot(all.collect())
}

fn any_load() -> impl Strategy<Value = Value> {
    prop_oneof![
        (20_u32..300).prop_map(|rate| json!({"requests_per_second": rate})),
        (20_u32..900).prop_map(|count| json!({"requests_per_second": null, "concurrency": count})),
    ]
}

fn of_three(market: &Snapshot, demand: &Demand, ties: bool) -> Plan {
    let options = SearchOptions {
        simulated: 3,
        ties,
        ..SearchOptions::default()
    };
    search(market, demand, &Held::new(), now(), &options).expect("a plan")
}

fn meets(one: &Candidate) -> bool {
    one.facts.meets_objective == Some(true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Compared with the same plan without more room, as the halves of a hybrid are planned.
    #[test]
    fn more_room_never_makes_a_plan_worse_against_its_objective(
        prices in prop::collection::vec(100_u32..400, 1..4),
        stock in 1_u32..40,
        load in any_load(),
        first in 40.0_f64..400.0,
        further in 8.0_f64..60.0,
    ) {
        let market = priced(&prices, stock);
        let mut fields = load;
        fields["latency"] = json!({"first_token_ms": first, "per_token_ms": further, "percentile": 99});
        let demand = chat(fields);
        let (plain, plan) = (of_three(&market, &demand, false), of_three(&market, &demand, true));
        let wide = |one: &&Candidate| one.reasons[0].starts_with("It is planned at ");
        let wider: Vec<_> = plan.candidates.iter().filter(wide).collect();
        let simulated = plain.candidates.iter().take(3);
        let met = simulated.filter(|one| meets(one)).map(|one| one.cost_per_hour).min();
        if let Some(met) = met {
            prop_assert!(meets(&plan.candidates[0]));
            // Only where it costs less than a fleet that meets the objective anyway.
            prop_assert!(wider.iter().all(|one| one.cost_per_hour < met));
        }
        if plain.candidates.first().is_some_and(meets) {
            prop_assert!(wider.is_empty());
        }
        prop_assert!(wider.len() <= 1 && wider.iter().all(|one| one.rank == 1 && meets(one)));
        let lines = |plan: &Plan| {
            let mut all: Vec<_> = plan.candidates.iter().filter(|one| !wide(one)).map(|one| one.lines.clone()).collect();
            all.sort_by_key(|lines| (lines[0].offer.offer_id, lines.len()));
            all
        };
        prop_assert_eq!(lines(&plan), lines(&plain));
        if let [wider] = wider.as_slice() {
            let least = plain.candidates.iter().map(|one| one.cost_per_hour).min();
            prop_assert!(Some(wider.cost_per_hour) >= least);
        }
    }

    /// Where the replicas are the same: with larger batches the same share needs fewer nodes.
    #[test]
    fn a_looser_objective_is_met_for_no_more(
        prices in prop::collection::vec(100_u32..400, 1..4),
        stock in 1_u32..60,
        load in any_load(),
        first in 40.0_f64..400.0,
        further in 8.0_f64..60.0,
        by in 1.01_f64..1.5,
        of_first in prop::bool::weighted(0.8),
    ) {
        let market = priced(&prices, stock);
        let asked = |first: f64, further: f64| {
            let mut fields = load.clone();
            fields["latency"] = json!({"first_token_ms": first, "per_token_ms": further, "percentile": 99});
            chat(fields)
        };
        let tight = asked(first, further);
        let loose = match of_first {
            true => asked(first * by, further),
            false => asked(first, further * by),
        };
        if copies(&market, &tight) == copies(&market, &loose) {
            let cost = |demand: &Demand| {
                let plan = of_three(&market, demand, true);
                let best = plan.candidates.first().filter(|one| meets(one));
                best.map(|one| one.cost_per_hour)
            };
            if let Some(tight) = cost(&tight) {
                let loose = cost(&loose);
                prop_assert!(loose.is_some_and(|loose| loose <= tight), "{loose:?} for {tight}");
            }
        }
    }
}

/// The load that a node of each offer carries, or the reason why none does.
fn copies(market: &Snapshot, demand: &Demand) -> Vec<Result<crate::serve::ServeFit, ReasonCode>> {
    let Query::Serve(serve) = super::scan::query(demand) else {
        panic!("a fleet")
    };
    let rows = market
        .offers()
        .filter_map(|offer| market.find(&offer.offer_id()));
    let rows = rows.map(|at| {
        let row = market.row(at);
        let (spec, gpus) = known_node(&row)?;
        serve.node(&row.offer, spec, gpus)
    });
    rows.collect()
}
