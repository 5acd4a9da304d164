//! A tenant's own capacity: nodes that are paid for come first, and only as long as their commitment lasts.

use std::sync::Arc;

use ::market::capacity::{
    BookPrice, Commitment, OpenCommitment, OwnCapacity, OwnScope, ProviderAccount,
};
use ::market::ids::{CommitmentId, ProviderAccountId};
use proptest::prelude::*;

use super::twin::{any_market, any_shared};
use super::*;
use crate::samples::{metal, offer, provider, usd};

fn scope(sku: &str) -> OwnScope {
    OwnScope {
        sku: Some(sku.to_owned()),
        gpu: None,
        gpus: None,
        country: None,
        region: None,
    }
}

/// A commitment of so many nodes at this price for so many hours from now.
pub fn paid(sku: &str, nodes: u32, price: &str, hours: i64) -> OpenCommitment {
    let id = format!("cmt_{nodes:016x}{hours:016x}");
    OpenCommitment {
        commitment: Commitment {
            id: id.parse::<CommitmentId>().expect("an id"),
            name: "contract 7".into(),
            provider: provider("lambda"),
            scope: scope(sku),
            nodes,
            node_hours: None,
            price_per_node_hour: usd(price),
            expires_at: now() + chrono::TimeDelta::hours(hours),
            created_at: now(),
        },
        nodes_left: nodes,
        node_seconds_left: None,
    }
}

fn options(commitments: Vec<OpenCommitment>) -> SearchOptions {
    SearchOptions {
        own: Arc::new(OwnCapacity {
            commitments,
            accounts: Vec::new(),
        }),
        ..SearchOptions::default()
    }
}

fn find_with(offers: Vec<Offer>, demand: &Demand, own: Vec<OpenCommitment>) -> Plan {
    let snapshot = snapshot(offers);
    search(&snapshot, demand, &Held::new(), now(), &options(own)).expect("a plan")
}

fn h100(nodes: u32) -> Demand {
    demand(
        "gpus",
        json!({"gpu": "H100-SXM", "count": 8, "nodes": nodes}),
    )
}

#[test]
fn what_is_paid_for_comes_before_what_is_cheaper_on_the_list() {
    let market = || {
        vec![
            offer("cheap", "H100-SXM", 8, "8.00"),
            offer("own", "H100-SXM", 8, "24.00"),
        ]
    };
    assert_eq!(
        skus(&find_with(market(), &h100(2), vec![])),
        ["cheap", "own"]
    );
    let plan = find_with(market(), &h100(2), vec![paid("own", 2, "0", 100)]);
    assert_eq!(skus(&plan), ["own", "cheap"]);
    let best = &plan.candidates[0];
    assert_eq!(
        (best.rate.money_per_gpu_hour(), best.cost_per_hour),
        (usd("0"), usd("0"))
    );
    let [line] = &best.lines[..] else {
        panic!("one line")
    };
    let covered = line.covered.expect("paid for");
    assert_eq!(covered.until, now() + chrono::TimeDelta::hours(100));
    for part in [
        "2 of 2 nodes",
        "contract 7",
        "100.0 h from now",
        "3.00 after that",
        "expires at 2026-03-05",
    ] {
        assert!(
            best.reasons[0].contains(part),
            "{part}: {:?}",
            best.reasons[0]
        );
    }
    // A commitment that costs more than the list price has no use.
    let plan = find_with(market(), &h100(2), vec![paid("own", 2, "24.00", 100)]);
    assert!(plan.candidates.iter().all(|one| one.covered().is_empty()));
}

#[test]
fn never_more_nodes_or_hours_are_covered_than_are_left() {
    let market = vec![offer("own", "H100-SXM", 8, "24.00")];
    let both = vec![paid("own", 2, "0", 10), paid("own", 1, "8.00", 100)];
    let plan = find_with(market.clone(), &h100(4), both);
    let best = &plan.candidates[0];
    let lines: Vec<_> = (best.lines.iter())
        .map(|line| {
            (
                line.nodes,
                line.covered
                    .map(|covered| covered.rate_usd_gpu_hour.money_per_gpu_hour()),
            )
        })
        .collect();
    assert_eq!(
        lines,
        [(2, Some(usd("0"))), (1, Some(usd("1.00"))), (1, None)]
    );
    assert_eq!(
        best.cost_per_hour,
        usd("32.00"),
        "8 and 24 in the first hour"
    );

    let mut few_hours = paid("own", 4, "0", 1_000);
    few_hours.node_seconds_left = Some(40 * 3_600);
    let plan = find_with(market, &h100(4), vec![few_hours]);
    let until = plan.candidates[0].lines[0].covered.expect("paid for").until;
    assert_eq!(
        until,
        now() + chrono::TimeDelta::hours(10),
        "40 node-hours for 4 nodes"
    );
}

#[test]
fn hours_that_pass_what_is_left_count_at_the_price_of_the_offer() {
    let market = || {
        vec![
            offer("cheap", "H100-SXM", 8, "8.00"),
            offer("own", "H100-SXM", 8, "24.00"),
        ]
    };
    let wanted = |hours: u32| {
        demand(
            "gpus",
            json!({"gpu": "H100-SXM", "count": 8, "window": {"duration_hours": hours}}),
        )
    };
    // For 10 of 14 hours nothing is paid: 96 over 14 are less than 8 an hour, 120 over 15 as much.
    let own = || vec![paid("own", 1, "0", 10)];
    assert_eq!(
        skus(&find_with(market(), &wanted(14), own())),
        ["own", "cheap"]
    );
    assert_eq!(
        skus(&find_with(market(), &wanted(16), own())),
        ["cheap", "own"]
    );
}

#[test]
fn a_run_is_ranked_by_what_is_left_to_pay_of_it() {
    let run = demand(
        "train",
        json!({"model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "gpus": 16}),
    );
    let market = || {
        vec![
            metal("cheap", "H100-SXM", "16.00"),
            metal("own", "H100-SXM", "40.00"),
        ]
    };
    assert_eq!(skus(&find_with(market(), &run, vec![])), ["cheap", "own"]);
    let plan = find_with(market(), &run, vec![paid("own", 2, "0", 10_000)]);
    assert_eq!(skus(&plan), ["own", "cheap"]);
    assert_eq!(plan.candidates[0].facts.run_cost_usd, Some(usd("0")));
    // Half of it paid for makes it cost half.
    let whole = find_with(market(), &run, vec![]).candidates[1]
        .facts
        .run_cost_usd;
    let half = find_with(market(), &run, vec![paid("own", 1, "0", 10_000)]);
    let own = half
        .candidates
        .iter()
        .find(|one| one.lines[0].offer.sku == "own")
        .expect("there");
    let units = |money: Option<Money>| money.expect("a cost").units();
    assert!((units(own.facts.run_cost_usd) * 2 - units(whole)).abs() <= 2);
}

#[test]
fn a_fleet_takes_what_is_paid_for_and_buys_the_rest() {
    let chat = demand(
        "serve_realtime",
        json!({
            "model": "Llama 3 8B", "requests_per_second": 400, "input_tokens": 512, "output_tokens": 256
        }),
    );
    let market = || {
        vec![
            offer("cheap", "L40S", 8, "4.00"),
            offer("own", "L40S", 8, "6.00"),
        ]
    };
    let before = find_with(market(), &chat, vec![]);
    let nodes = before.candidates[0].nodes();
    assert!(nodes > 2, "{nodes}");
    let plan = find_with(market(), &chat, vec![paid("own", 1, "0", 10_000)]);
    let best = &plan.candidates[0];
    let lines: Vec<_> = (best.lines.iter())
        .map(|line| (line.offer.sku.as_str(), line.nodes, line.covered.is_some()))
        .collect();
    assert_eq!(lines, [("cheap", nodes - 1, false), ("own", 1, true)]);
    assert_eq!(
        best.cost_per_hour.units(),
        usd("4.00").units() * i64::from(nodes - 1)
    );
    assert_eq!(
        plan.eligible + plan.rejected.total,
        2,
        "an offer counts once"
    );
}

#[test]
fn an_agreed_price_replaces_the_list_price_where_it_holds() {
    let market = snapshot(vec![
        offer("cheap", "H100-SXM", 8, "8.00"),
        offer("own", "H100-SXM", 8, "24.00"),
    ]);
    let book = |valid_until| OwnCapacity {
        commitments: Vec::new(),
        accounts: vec![ProviderAccount {
            id: "pac_00000000000000000000000000000001"
                .parse::<ProviderAccountId>()
                .expect("an id"),
            name: "frame contract".into(),
            provider: provider("lambda"),
            prices: vec![BookPrice {
                scope: scope("own"),
                rate: Rate::per_gpu_hour(usd("0.50")),
                valid_from: None,
                valid_until,
            }],
            created_at: now(),
        }],
    };
    let own = book(None);
    let priced = crate::at_own_prices(&market, &own, now()).expect("another market");
    let options = SearchOptions {
        own: Arc::new(own),
        ..SearchOptions::default()
    };
    let plan = search(&priced, &h100(1), &Held::new(), now(), &options).expect("a plan");
    assert_eq!(skus(&plan), ["own", "cheap"]);
    assert_eq!(plan.candidates[0].cost_per_hour, usd("4.00"));
    let told = |at: usize| {
        plan.candidates[at]
            .reasons
            .iter()
            .any(|one| one.contains("frame contract"))
    };
    assert!(told(0) && !told(1));
    assert!(crate::at_own_prices(&market, &book(Some(now())), now()).is_none());
}

proptest! {
    /// Commitments change neither which offers satisfy a demand nor the cost of the others. Each candidate's
    /// cost follows from its lines. No commitment covers more than is left of it. The shown offers are in the
    /// order that brute force gives.
    #[test]
    fn what_is_paid_for_moves_offers_up_and_is_never_taken_twice(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        nodes in 1_u32..6,
        paid_nodes in prop::collection::vec((0_u32..4, 0_u32..3, 1_i64..50), 0..4),
        hours in prop::option::of(1_u32..60),
    ) {
        let mut fields = json!({"gpu": "H100-SXM", "count": 8, "nodes": nodes});
        if let Some(hours) = hours {
            fields["window"] = json!({"duration_hours": hours});
        }
        fields.as_object_mut().expect("an object").extend(shared.as_object().expect("one").clone());
        let demand = demand("gpus", fields);
        let own: Vec<_> = paid_nodes.iter().map(|(some, price, ends)| OpenCommitment {
            nodes_left: *some,
            commitment: Commitment {
                provider: provider("a"),
                scope: scope("x"),
                ..paid("x", 9, &format!("{price}.00"), *ends).commitment
            },
            node_seconds_left: None,
        }).collect();
        let all = |own| SearchOptions { limit: 1_000, ties: false, ..options(own) };
        let without = search(&snapshot, &demand, &held, now(), &all(vec![])).expect("a plan");
        let with = search(&snapshot, &demand, &held, now(), &all(own.clone())).expect("a plan");
        prop_assert_eq!(&with.rejected, &without.rejected);
        prop_assert_eq!(with.eligible, without.eligible);
        let mut last = 0.0;
        for candidate in &with.candidates {
            let offer = &candidate.lines[0].offer;
            let price = offer.price_per_node_hour.units() as f64;
            let (mut mean, mut first, mut left) = (0.0, 0.0, nodes);
            let mut taken: HashMap<CommitmentId, u32> = HashMap::new();
            for line in &candidate.lines {
                prop_assert_eq!(&line.offer, offer);
                left -= line.nodes;
                let own_price = line.covered.map_or(price, |covered| {
                    *taken.entry(covered.commitment_id).or_default() += line.nodes;
                    covered.rate_usd_gpu_hour.money_per_gpu_hour().units() as f64 * 8.0
                });
                let lasts = line.covered.map_or(0.0, |covered| {
                    (covered.until - now()).num_seconds() as f64 / 3_600.0
                });
                let share = hours.map_or(1.0, |hours| (lasts / f64::from(hours)).min(1.0));
                let each = if line.covered.is_some() { own_price * share + price * (1.0 - share) } else { price };
                mean += each * f64::from(line.nodes);
                first += own_price * f64::from(line.nodes);
            }
            prop_assert_eq!(left, 0);
            prop_assert!((candidate.cost_per_hour.units() as f64 - first).abs() < 1.0);
            for (id, some) in taken {
                let open: u32 = own.iter().filter(|open| open.commitment.id == id).map(|open| open.nodes_left).sum();
                prop_assert!(some <= open, "{some} of {open}");
                prop_assert!(offer.sku == "x" && offer.provider.as_str() == "a" && offer.terms == Terms::OnDemand);
            }
            // Rounding may leave one unit per GPU.
            prop_assert!(mean + 8.0 * f64::from(nodes) + 1.0 >= last, "{mean} after {last}");
            last = mean;
        }
    }
}
