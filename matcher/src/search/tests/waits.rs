//! What the slow requests of fleets wait in the simulation, and what that changes.

use super::*;
use crate::samples::offer;

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
    // Just above what a lone request takes there is no room for a queue.
    let alone = facts.first_token_ms.expect("a time");
    let close = simulated(market(), &fields((alone * 1.02) as u32));
    assert_eq!(close.candidates[0].facts.meets_objective, Some(false));
    assert_eq!(simulated(market(), &fields(2_000)), plan);
}

/// The limit lies between what the slow requests of both wait.
#[test]
fn a_fleet_that_meets_the_objective_comes_before_a_cheaper_one_that_misses_it() {
    let market = || {
        vec![
            offer("near", "H100-SXM", 1, "1.99"),
            offer("far", "B200-SXM", 1, "9.99"),
        ]
    };
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
        "It meets the objective in the simulation, and so stands before 1 fleet that would come \
         first and misses it"
    );
    // Where both meet it, or one alone was looked at, nothing is moved.
    assert_eq!(skus(&both(2, true, 2_000)), ["near", "far"]);
    assert_eq!(skus(&both(1, true, close)), ["near", "far"]);
}
