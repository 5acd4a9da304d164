//! Fleets that were found already, and which the search for more room finds again.

use super::*;
use crate::samples::offer;

fn plan(market: &[Offer], first_token_ms: u32, simulated: usize) -> Plan {
    let demand = demand(
        "serve_realtime",
        json!({
            "model": "Llama 3 8B", "requests_per_second": 200, "input_tokens": 512,
            "output_tokens": 256,
            "latency": {"first_token_ms": first_token_ms, "per_token_ms": 60, "percentile": 99},
        }),
    );
    let options = SearchOptions {
        simulated,
        ..SearchOptions::default()
    };
    let market = snapshot(market.to_vec());
    search(&market, &demand, &Held::new(), now(), &options).expect("a plan")
}

/// One node carries everything at any share. It costs some cents more than the fleet that misses the
/// objective, and less than that fleet with more spare capacity.
#[test]
fn a_fleet_that_was_found_already_is_moved_up_and_not_shown_twice() {
    let near = || offer("near", "H100-SXM", 1, "1.99");
    let alone = plan(&[near()], 2_000, 1);
    let cents = alone.candidates[0].cost_per_hour.units() / 1_000_000 + 4;
    let far_price = format!("{}.{:02}", cents / 100, cents % 100);
    let market = [near(), offer("far", "B200-SXM", 8, &far_price)];
    let plenty = plan(&market, 2_000, 2);
    let tails = [0, 1].map(|at| plenty.candidates[at].facts.first_token_tail_ms);
    let [Some(slow), Some(quick)] = tails else {
        panic!("both are simulated")
    };
    let close = ((quick + slow) / 2.0) as u32;
    let plan = plan(&market, close, 1);
    assert_eq!(skus(&plan), ["far", "near"], "{plan:?}");
    let [first, second] = plan.candidates.as_slice() else {
        panic!("two fleets")
    };
    assert_eq!((first.rank, second.rank), (1, 2));
    assert_eq!(first.facts.meets_objective, Some(true));
    assert_eq!(first.facts.first_token_tail_ms, tails[1]);
    // It is the fleet that is planned like all others.
    assert_eq!(first.facts.planned_share, second.facts.planned_share);
    let simulated = |line: &&String| line.starts_with("Simulated, ");
    assert_eq!(first.reasons.iter().filter(simulated).count(), 1);
    assert_eq!(
        first.reasons[0],
        format!(
            "It meets the objective in the simulation: the fleet that was simulated first misses the \
             objective, at {} USD per hour where this one costs {}",
            second.cost_per_hour, first.cost_per_hour
        )
    );
    assert_eq!((plan.eligible, plan.rejected.total), (2, 0));
}
