//! Offers in cool-down, which failed several times recently: no kind of plan uses any of them.

use std::sync::Arc;

use chrono::TimeDelta;
use proptest::prelude::*;

use super::twin::{any_market, any_shared, mostly};
use super::waits::close_to;
use super::*;
use crate::samples::{offer, provider};
use crate::snapshot::OfferRef;

/// The same market without the offers in cool-down.
fn without(snapshot: &Snapshot, cooling: &Cooling) -> Snapshot {
    let left = snapshot.offers().map(OfferRef::to_offer);
    let left = left.filter(|offer| !cooling.contains_key(&offer.offer_id));
    let views = ["a", "b", "c", "d"].map(provider);
    let views = views.into_iter().filter_map(|id| {
        let view = snapshot.provider(&id)?.clone();
        Some((id, view))
    });
    let (generation, taken_at) = (snapshot.generation(), snapshot.taken_at());
    Snapshot::new(generation, taken_at, left, views.collect())
}

/// A demand of each kind, including kinds with fleets of several parts.
fn any_demand(kind: usize, shared: &Value) -> Demand {
    let chat = json!({
        "model": "Llama 3 8B", "requests_per_second": 40, "input_tokens": 512,
        "output_tokens": 256, "window": {"duration_hours": 24},
    });
    let surviving = json!({
        "model": "Llama 3 8B", "requests_per_second": 4, "input_tokens": 512,
        "output_tokens": 256, "survive": "provider",
    });
    let pile = json!({
        "model": "Llama 3 8B", "requests": 1_000_000, "input_tokens": 512, "output_tokens": 256,
    });
    let run = json!({
        "model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "window": {"duration_hours": 200},
    });
    let both = |one: &Value, other: &Value| {
        let (mut all, other) = (one.clone(), other.as_object().expect("an object").clone());
        all.as_object_mut().expect("an object").extend(other);
        all
    };
    match kind {
        0 => demand(
            "gpus",
            both(&json!({"gpu": "H100", "count": 8, "nodes": 2}), shared),
        ),
        1 => demand("train", both(&run, shared)),
        2 => demand("serve_batch", both(&pile, shared)),
        3 => demand("serve_realtime", both(&chat, shared)),
        4 => demand("serve_realtime", both(&surviving, shared)),
        _ => {
            let serve = both(&chat, &json!({"kind": "serve_realtime"}));
            demand("hybrid", json!({"train": run, "serve": serve}))
        }
    }
}

/// Both are looked for once the plan is there.
#[test]
fn what_rests_is_in_no_fleet_with_more_room_and_in_none_with_weights_of_another_precision() {
    let cheap = offer("cheap", "H100-SXM", 1, "1.00");
    let market = [cheap.clone(), offer("near", "H100-SXM", 1, "1.99")];
    let demand = close_to(&market[1..]);
    let with = |offers: &[Offer], cooling: Cooling| {
        let options = SearchOptions {
            simulated: 1,
            alternatives: true,
            cooling: Arc::new(cooling),
            ..SearchOptions::default()
        };
        let market = snapshot(offers.to_vec());
        search(&market, &demand, &Held::new(), now(), &options).expect("a plan")
    };
    let left = with(&market[1..], Cooling::new());
    let reason = &left.candidates[0].reasons[0];
    assert!(reason.starts_with("It is planned at "), "{reason}");
    assert!(!left.alternatives.is_empty());
    let until = now() + TimeDelta::hours(1);
    let resting = with(&market, [(cheap.offer_id, until)].into());
    assert_eq!(resting.candidates, left.candidates);
    assert_eq!(resting.alternatives, left.alternatives);
    assert_eq!(skus(&with(&market, Cooling::new()))[0], "cheap");
}

proptest! {
    #[test]
    fn what_rests_might_as_well_not_be_on_sale(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        kind in 0..6_usize,
        // Seconds that are left of its cool-down; at zero it is over.
        rests in prop::collection::vec(prop::option::weighted(0.4, mostly(vec![1_i64, 3600], vec![0])), 64),
    ) {
        let ids = snapshot.offers().map(OfferRef::offer_id).zip(rests);
        let known = ids.filter_map(|(id, left)| Some((id, now() + TimeDelta::seconds(left?))));
        let known: Cooling = known.collect();
        let cooling = known.iter().filter(|(_, until)| **until > now());
        let cooling: Cooling = cooling.map(|(id, until)| (*id, *until)).collect();
        let options = SearchOptions {
            cooling: Arc::new(known),
            ..SearchOptions::default()
        };
        let demand = any_demand(kind, &shared);
        let resting = search(&snapshot, &demand, &held, now(), &options).expect("a plan");
        let market = without(&snapshot, &cooling);
        let plain = search(&market, &demand, &held, now(), &SearchOptions::default());
        let plain = plain.expect("a plan");
        prop_assert_eq!(resting.eligible, plain.eligible);
        // Of fleets with the same cost, the one that was found first comes first.
        if kind < 3 {
            prop_assert_eq!(&resting.candidates, &plain.candidates);
        }
        let costs = |plan: &Plan| {
            let of = |one: &Candidate| (one.half, one.cost_per_hour);
            let candidates: Vec<_> = plan.candidates.iter().map(of).collect();
            let hybrid = plan.hybrid.as_ref();
            let pairs = hybrid.map(|hybrid| {
                let pairs = hybrid.pairs.iter().map(|pair| pair.bill.total_usd);
                let saved = hybrid.baselines.iter().map(|one| one.saves_usd);
                (pairs.collect::<Vec<_>>(), saved.collect::<Vec<_>>())
            });
            (candidates, pairs)
        };
        prop_assert_eq!(costs(&resting), costs(&plain));
        let lines = resting.candidates.iter().flat_map(|one| &one.lines);
        for line in lines {
            prop_assert!(!cooling.contains_key(&line.offer.offer_id));
        }
        // Each offer in cool-down is counted, under that or under an earlier reason.
        let of_halves = if kind == 5 { 2 } else { 1 };
        let gone = cooling.len() * of_halves;
        prop_assert_eq!(resting.rejected.total, plain.rejected.total + gone);
    }
}
