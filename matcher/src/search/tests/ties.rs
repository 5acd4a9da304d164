//! Near ties: offers that come first although they cost a little more, and offers that do not.

use std::collections::HashMap;
use std::sync::Arc;

use ::market::acceptance::AcceptanceRecord;
use ::market::ids::ProviderId;
use ::market::offer::{Particulars, Tenancy};
use proptest::prelude::*;

use super::twin::{any_market, any_offer, any_shared};
use super::*;
use crate::samples::{metal, offer, provider};
use crate::snapshot::{OfferRef, ProviderView};

/// An offer of a price list that was written so many hours ago.
fn listed(offer: Offer, hours: i64) -> Offer {
    Offer {
        provider: provider("lists"),
        orderable: false,
        observed_at: now() - chrono::TimeDelta::hours(hours),
        ..offer
    }
}

/// Offers of providers that were read within a year, and of lists.
fn market(offers: Vec<Offer>) -> Snapshot {
    let views = [("lambda", Some(365 * 86_400)), ("lists", None)];
    let views = views.map(|(word, freshness_limit_seconds)| {
        let view = ProviderView {
            freshness_limit_seconds,
            ..ProviderView::default()
        };
        (provider(word), view)
    });
    Snapshot::new(7, now(), offers, views.into())
}

fn found(offers: Vec<Offer>, demand: &Demand, limit: usize) -> Plan {
    let options = SearchOptions {
        limit,
        ..SearchOptions::default()
    };
    search(&market(offers), demand, &Held::new(), now(), &options).expect("a plan")
}

fn h100() -> Demand {
    demand("gpus", json!({"gpu": "H100-SXM", "count": 8}))
}

fn told(plan: &Plan) -> Option<&str> {
    let first = plan.candidates[0].reasons[0].as_str();
    let others = plan.candidates.iter().flat_map(|one| &one.reasons);
    let all = others.filter(|reason| reason.starts_with("It costs "));
    assert_eq!(all.count(), usize::from(first.starts_with("It costs ")));
    Some(first).filter(|reason| reason.starts_with("It costs "))
}

#[test]
fn what_can_be_ordered_comes_before_a_list_that_is_a_tenth_cheaper_and_says_so() {
    let with = |price: &str| {
        let offers = vec![
            listed(offer("list", "H100-SXM", 8, "20.00"), 1),
            offer("live", "H100-SXM", 8, price),
        ];
        found(offers, &h100(), 10)
    };
    let tie = with("22.00");
    assert_eq!(skus(&tie), ["live", "list"]);
    assert_eq!(
        told(&tie),
        Some(
            "It costs 10.0 % more than the cheapest, lists list: up to 10 % is a tie, in which the \
             surer price comes first; this one can be ordered, that one cannot"
        )
    );
    let ranks: Vec<_> = tie.candidates.iter().map(|one| one.rank).collect();
    assert_eq!(ranks, [1, 2]);
    let dearer = with("22.00000008");
    assert_eq!(skus(&dearer), ["list", "live"]);
    assert_eq!(told(&dearer), None);
}

#[test]
fn of_a_tie_the_younger_price_comes_first_and_of_one_age_the_lower() {
    let hours = [24 * 30 + 1, 24 * 30, 24 * 7, 24, 1, 0];
    let prices = ["20.00", "20.10", "20.20", "20.30", "20.50", "20.40"];
    let offers = hours.into_iter().zip(prices).map(|(hours, price)| {
        let offer = offer(&format!("h{hours}"), "H100-SXM", 8, price);
        Offer {
            observed_at: now() - chrono::TimeDelta::hours(hours),
            ..offer
        }
    });
    let plan = found(offers.collect(), &h100(), 10);
    assert_eq!(skus(&plan), ["h0", "h1", "h24", "h168", "h720", "h721"]);
    let reason = told(&plan).expect("a reason");
    let words = "costs 2.0 % more than the cheapest, lambda h721: up to 10 % is a tie, in which the \
                 surer price comes first; this one was read within the hour, that one more than 30 \
                 days ago";
    assert!(reason.contains(words), "{reason}");
}

/// Providers that were read within a day, with so many orders that passed and so many that never started.
fn records(sellers: &[(&str, u64, u64)]) -> HashMap<ProviderId, ProviderView> {
    let views = sellers.iter().map(|(seller, passed, boot_failed)| {
        let view = ProviderView {
            freshness_limit_seconds: Some(86_400),
            acceptance: AcceptanceRecord {
                passed: *passed,
                boot_failed: *boot_failed,
                ..AcceptanceRecord::default()
            },
            ..ProviderView::default()
        };
        (provider(seller), view)
    });
    views.collect()
}

/// Otherwise any host of a marketplace could profit from the marketplace's record.
#[test]
fn machines_of_other_people_come_behind_those_of_the_marketplace_that_sells_them() {
    let views = records(&[("market", 95, 5)]);
    for (operator, first) in [("seller", "theirs"), ("peer:7", "own")] {
        let offers = [("theirs", operator, "20.00"), ("own", "seller", "20.30")];
        let offers = offers.map(|(sku, operator, price)| {
            let mut offer = offer(sku, "H100-SXM", 8, price);
            offer.provider = provider("market");
            offer.particulars = Arc::new(Particulars {
                operator: operator.into(),
                ..Particulars::default()
            });
            offer
        });
        let market = Snapshot::new(7, now(), offers, views.clone());
        let options = SearchOptions::default();
        let plan = search(&market, &h100(), &Held::new(), now(), &options).expect("a plan");
        assert_eq!(skus(&plan)[0], first);
    }
}

#[test]
fn of_what_is_as_sure_the_provider_whose_orders_ended_better_comes_first() {
    // So many orders of a hundred succeeded; a few orders prove nothing.
    let sellers = [
        ("poor", 79, 21),
        ("few", 0, 19),
        ("good", 95, 5),
        ("fair", 94, 6),
    ];
    let prices = ["20.00", "20.10", "20.30", "20.20"];
    let offers = sellers.into_iter().zip(prices);
    let offers = offers.map(|((seller, ..), price)| Offer {
        provider: provider(seller),
        ..offer(seller, "H100-SXM", 8, price)
    });
    let market = Snapshot::new(7, now(), offers, records(&sellers));
    let with = |ties| {
        let options = SearchOptions {
            ties,
            ..SearchOptions::default()
        };
        search(&market, &h100(), &Held::new(), now(), &options).expect("a plan")
    };
    let plan = with(true);
    assert_eq!(skus(&plan), ["good", "few", "fair", "poor"]);
    let reason = told(&plan).expect("a reason");
    let words = "costs 1.5 % more than the cheapest, poor poor: up to 10 % is a tie, in which the more \
                 reliable provider comes first; orders at its provider have nearly always succeeded \
                 recently, at that one's have often failed recently";
    assert!(reason.contains(words), "{reason}");
    assert_eq!(skus(&with(false)), ["poor", "few", "fair", "good"]);
}

#[test]
fn the_younger_price_comes_before_that_of_the_more_reliable_provider() {
    let at = |seller: &str, price: &str, hours: i64| Offer {
        provider: provider(seller),
        observed_at: now() - chrono::TimeDelta::hours(hours),
        ..offer(seller, "H100-SXM", 8, price)
    };
    let views = records(&[("poor", 79, 21), ("good", 95, 5)]);
    let offers = [at("good", "20.00", 2), at("poor", "20.10", 0)];
    let market = Snapshot::new(7, now(), offers, views);
    let options = SearchOptions::default();
    let plan = search(&market, &h100(), &Held::new(), now(), &options).expect("a plan");
    assert_eq!(skus(&plan), ["poor", "good"]);
    let reason = told(&plan).expect("a reason");
    assert!(
        reason.contains("this one was read within the hour"),
        "{reason}"
    );
}

#[test]
fn a_tie_is_with_the_cheapest_and_no_chain() {
    let day = |sku: &str, price: &str| listed(offer(sku, "H100-SXM", 8, price), 20);
    let offers = vec![
        listed(offer("cheapest", "H100-SXM", 8, "20.00"), 100),
        day("near", "21.00"),
        day("far", "22.01"),
        offer("live", "H100-SXM", 8, "22.50"),
    ];
    let plan = found(offers, &h100(), 10);
    assert_eq!(skus(&plan), ["near", "cheapest", "far", "live"]);
}

#[test]
fn what_ties_is_found_however_many_are_cheaper_and_however_few_are_shown() {
    let mut offers: Vec<_> = (0..40)
        .map(|nth| {
            let sku = format!("list{nth:02}");
            listed(offer(&sku, "H100-SXM", 8, &format!("20.{nth:02}")), nth)
        })
        .collect();
    offers.push(offer("live", "H100-SXM", 8, "21.90"));
    offers.push(offer("dear", "H100-SXM", 8, "22.10"));
    for limit in [1, 2, 3, 10] {
        let plan = found(offers.clone(), &h100(), limit);
        let mut expected = vec!["live".to_owned()];
        expected.extend((0..9).map(|nth| format!("list{nth:02}")));
        assert_eq!(skus(&plan), expected[..limit]);
        assert!(told(&plan).is_some());
        assert_eq!(plan.eligible, 42);
    }
}

#[test]
fn a_seller_of_prices_of_all_ages_is_looked_through_as_far_as_a_tie_goes() {
    let aged = |sku: &str, price: &str, hours: i64| Offer {
        observed_at: now() - chrono::TimeDelta::hours(hours),
        ..offer(sku, "H100-SXM", 8, price)
    };
    let mut offers: Vec<_> = (0..30)
        .map(|nth| aged(&format!("old{nth:02}"), &format!("20.{nth:02}"), 100))
        .collect();
    offers.push(aged("young", "21.90", 0));
    offers.push(aged("dear", "22.10", 0));
    for limit in [1, 3, 40] {
        let plan = found(offers.clone(), &h100(), limit);
        let mut expected = vec!["young".to_owned()];
        expected.extend((0..30).map(|nth| format!("old{nth:02}")));
        expected.push("dear".to_owned());
        expected.truncate(limit);
        assert_eq!(skus(&plan), expected);
    }
}

#[test]
fn of_the_runs_of_a_tie_what_can_be_ordered_comes_first_then_the_better_machine_then_the_younger_price()
 {
    let run = demand(
        "train",
        json!({"model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "gpus": 16}),
    );
    let hours_ago = |hours: i64, offer: Offer| Offer {
        observed_at: now() - chrono::TimeDelta::hours(hours),
        ..offer
    };
    let on_vms = |sku: &str, price: &str| Offer {
        tenancy: Tenancy::Vm,
        ..metal(sku, "H100-SXM", price)
    };
    let offers = vec![
        listed(metal("list", "H100-SXM", "20.00"), 1),
        hours_ago(30, metal("old", "H100-SXM", "21.00")),
        hours_ago(2, metal("young", "H100-SXM", "21.50")),
        on_vms("vms", "20.50"),
        metal("dear", "H100-SXM", "22.10"),
    ];
    let plan = found(offers.clone(), &run, 10);
    assert_eq!(skus(&plan), ["young", "old", "vms", "list", "dear"]);
    let reason = told(&plan).expect("a reason");
    assert!(reason.ends_with("that one cannot"), "{reason}");
    let ordered = offers.iter().filter(|offer| offer.orderable).cloned();
    let plan = found(ordered.collect(), &run, 10);
    // The cheapest is another one now, with which the expensive one ties too.
    assert_eq!(skus(&plan), ["dear", "young", "old", "vms"]);
    let reason = told(&plan).expect("a reason");
    assert!(
        reason.ends_with("this one runs on bare metal, that one on virtual machines"),
        "{reason}"
    );
    let metal = offers
        .into_iter()
        .filter(|offer| offer.tenancy == Tenancy::BareMetal);
    let plan = found(metal.filter(|offer| offer.orderable).collect(), &run, 10);
    assert_eq!(skus(&plan), ["dear", "young", "old"]);
    let reason = told(&plan).expect("a reason");
    assert!(
        reason.ends_with("this one was read within the hour, that one within a week"),
        "{reason}"
    );
}

/// By price alone another GPU is ahead: ties compare the cost of the run.
#[test]
fn what_a_run_costs_ties_and_not_the_price_of_an_hour() {
    let run = demand(
        "train",
        json!({"model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "gpus": 16}),
    );
    let cost = |sku: &str, gpu: &str, price: &str| {
        let plan = found(vec![metal(sku, gpu, price)], &run, 1);
        let cost = plan.candidates[0].facts.run_cost_usd;
        cost.expect("a cost").units() as f64
    };
    let ratio = cost("a", "A100-SXM-80", "10.00") / cost("b", "H100-SXM", "10.00");
    assert!(ratio > 1.5, "{ratio}");
    // The A100 is listed at a price at which its run costs as much as that on H100 at 20 USD.
    let even = 20.0 / ratio;
    let with = |part: f64| {
        let offers = vec![
            listed(
                metal("list", "A100-SXM-80", &format!("{:.2}", even * part)),
                1,
            ),
            metal("live", "H100-SXM", "20.00"),
        ];
        let plan = found(offers, &run, 10);
        plan.candidates[0].lines[0].offer.sku.clone()
    };
    assert_eq!([with(0.93), with(0.88)], ["live", "list"]);
}

#[test]
fn a_fleet_is_as_sure_as_its_least_sure_line() {
    let chat = demand(
        "serve_realtime",
        json!({
            "model": "Llama 3 8B", "requests_per_second": 400, "input_tokens": 512,
            "output_tokens": 256,
        }),
    );
    let few = |offer: Offer, nodes: u32| Offer {
        availability: ::market::offer::Availability::exactly(nodes),
        ..offer
    };
    let nodes = found(vec![offer("one", "L40S", 8, "6.00")], &chat, 1).candidates[0].nodes();
    assert!(nodes > 2, "{nodes}");
    // A fleet of both is cheapest: all nodes of the list offer, and the others from the live one.
    let offers = |price: &str| {
        vec![
            listed(few(offer("list", "L40S", 8, "5.90"), nodes - 1), 1),
            offer("live", "L40S", 8, price),
        ]
    };
    let plan = found(offers("6.00"), &chat, 10);
    let of_several: Vec<_> = plan.candidates.iter().map(|one| one.lines.len()).collect();
    assert_eq!((skus(&plan)[0], &of_several[..]), ("live", &[1, 2][..]));
    let reason = told(&plan).expect("a reason");
    assert!(
        reason.contains("lists list with lambda live")
            || reason.contains("lambda live with lists list"),
        "{reason}"
    );
    let plan = found(offers("9.00"), &chat, 10);
    assert_eq!(plan.candidates[0].lines.len(), 2);
    assert_eq!(told(&plan), None);
}

#[test]
fn a_fleet_is_as_reliable_as_the_least_reliable_of_its_sellers() {
    let chat = demand(
        "serve_realtime",
        json!({
            "model": "Llama 3 8B", "requests_per_second": 400, "input_tokens": 512,
            "output_tokens": 256,
        }),
    );
    let nodes = found(vec![offer("one", "L40S", 8, "6.00")], &chat, 1).candidates[0].nodes();
    let lines = |cheap: (u64, u64), other: (u64, u64)| {
        let of = |seller: &str, offer: Offer| Offer {
            provider: provider(seller),
            ..offer
        };
        // A fleet of both is cheapest: all nodes of the first offer, and the others from the second.
        let few = Offer {
            availability: ::market::offer::Availability::exactly(nodes - 1),
            ..offer("cheap", "L40S", 8, "5.90")
        };
        let offers = [
            of("cheap", few),
            of("other", offer("other", "L40S", 8, "6.00")),
        ];
        let views = records(&[("cheap", cheap.0, cheap.1), ("other", other.0, other.1)]);
        let market = Snapshot::new(7, now(), offers, views);
        let options = SearchOptions::default();
        let plan = search(&market, &chat, &Held::new(), now(), &options).expect("a plan");
        let lines: Vec<_> = plan.candidates.iter().map(|one| one.lines.len()).collect();
        lines
    };
    let (good, unproven, poor) = ((95, 5), (0, 0), (79, 21));
    assert_eq!(lines(poor, good), [1, 2]);
    assert_eq!(lines(unproven, good), [1, 2]);
    for alike in [good, unproven, poor] {
        assert_eq!(lines(alike, alike), [2, 1]);
    }
    assert_eq!(lines(good, poor), [2, 1]);
}

#[test]
fn the_pairs_of_a_hybrid_demand_rank_by_what_the_whole_costs_alone() {
    let both = demand(
        "hybrid",
        json!({
            "train": {"model": "Llama 3.1 8B", "tokens": 8_000_000_000_u64, "gpus": 16},
            "serve": {
                "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 2,
                "input_tokens": 512, "output_tokens": 128, "window": {"duration_hours": 200},
            },
        }),
    );
    let offers = vec![
        listed(metal("list", "H100-SXM", "20.00"), 1),
        metal("live", "H100-SXM", "21.80"),
        offer("small", "L40S", 1, "0.90"),
    ];
    // Where one of each half is shown, it is the cheapest.
    let plan = found(offers.clone(), &both, 1);
    let best = &plan.hybrid.as_ref().expect("pairs").pairs[0];
    let sku = |rank: usize| plan.candidates[rank - 1].lines[0].offer.sku.as_str();
    assert_eq!(
        [sku(best.train_candidate), sku(best.serve_candidate)],
        ["list", "small"]
    );
    // Each half by itself has a tie.
    let Demand::Hybrid(both) = both else {
        panic!("a hybrid demand")
    };
    let train = Demand::Train(both.train_half());
    assert_eq!(skus(&found(offers, &train, 10))[0], "live");
}

proptest! {
    /// With ties the first may not be the cheapest, but it costs at most a tenth more. So an added offer
    /// makes it more expensive by a tenth at most.
    #[test]
    fn an_offer_more_makes_the_first_dearer_by_a_tenth_at_most(
        (market, held) in any_market(),
        extra in any_offer(),
        shared in any_shared(),
        kind in 0..3_usize,
    ) {
        let with = |kind: &str, mut fields: Value| {
            fields.as_object_mut().expect("one").extend(shared.as_object().expect("one").clone());
            demand(kind, fields)
        };
        let demand = [
            with("gpus", json!({"gpu": "H100", "count": 8})),
            with("serve_batch", json!({"model": "Llama 3 8B", "requests": 1_000_000, "input_tokens": 512, "output_tokens": 256})),
            with("serve_realtime", json!({"model": "Llama 3 8B", "concurrency": 500, "input_tokens": 512, "output_tokens": 256})),
        ][kind].clone();
        let views = ["a", "b", "c", "d"].map(|word| {
            (provider(word), market.provider(&provider(word)).expect("known").clone())
        });
        let first = |offers: Vec<Offer>, ties| {
            let snapshot = Snapshot::new(1, now(), offers, views.clone().into());
            let options = SearchOptions { ties, ..SearchOptions::default() };
            let plan = search(&snapshot, &demand, &held, now(), &options).expect("a plan");
            let cost = |one: &Candidate| match demand {
                Demand::ServeBatch(_) => one.facts.run_cost_usd.expect("a cost").units(),
                _ => one.cost_per_hour.units(),
            };
            plan.candidates.first().map(cost)
        };
        let offers: Vec<Offer> = market.offers().map(OfferRef::to_offer).collect();
        let more: Vec<Offer> = offers.iter().cloned().chain([extra]).collect();
        let (before, least) = (first(offers.clone(), true), first(offers, false));
        let after = first(more, true);
        // The rounding error of a sum.
        let within = |cost: Option<i64>, of: Option<i64>| match (cost, of) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(cost), Some(of)) => cost <= of + of / 10 + 100,
        };
        prop_assert!(within(before, least), "{before:?} {least:?}");
        prop_assert!(before >= least, "{before:?} {least:?}");
        prop_assert!(within(after, before), "{after:?} {before:?}");
    }
}
