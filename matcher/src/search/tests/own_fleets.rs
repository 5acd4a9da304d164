//! Commitments in fleets of several offers: ceilings apply to the offers' own prices, and the number of nodes
//! that use a commitment determines how long it lasts.

use std::sync::Arc;

use ::market::capacity::{OpenCommitment, OwnCapacity};
use ::market::demand::Ceiling;
use ::pricing::quote::{check_ceiling, quote_lines};
use proptest::prelude::*;

use super::fleets::{chat, few};
use super::own::paid;
use super::twin::{any_commitments, any_market, any_shared, audit_own};
use super::*;
use crate::samples::{offer, provider, usd};

/// A chat that needs several offers.
fn busy_chat(fields: Value) -> Demand {
    let mut all = json!({"requests_per_second": 400});
    all.as_object_mut()
        .expect("an object")
        .extend(fields.as_object().expect("an object").clone());
    chat(all)
}

fn find_with(offers: Vec<Offer>, demand: &Demand, commitments: Vec<OpenCommitment>) -> Plan {
    let options = SearchOptions {
        own: Arc::new(OwnCapacity {
            commitments,
            accounts: Vec::new(),
        }),
        ties: false,
        ..SearchOptions::default()
    };
    search(&snapshot(offers), demand, &Held::new(), now(), &options).expect("a plan")
}

/// SKU, nodes, and hours that they are paid for.
fn lines_of(candidate: &Candidate) -> Vec<(&str, u32, Option<i64>)> {
    let lines = candidate.lines.iter();
    lines
        .map(|line| {
            let hours = line.covered.map(|one| (one.until - now()).num_hours());
            (line.offer.sku.as_str(), line.nodes, hours)
        })
        .collect()
}

/// Nodes of eight L40S that carry the load.
fn nodes_needed() -> u32 {
    let plan = find(vec![offer("one", "L40S", 8, "4.00")], &busy_chat(json!({})));
    plan.candidates[0].nodes()
}

fn dollars(amount: u32) -> String {
    format!("{amount}.00")
}

#[test]
fn a_fleet_that_is_paid_for_in_part_is_held_to_the_price_that_follows() {
    let nodes = nodes_needed();
    let market = || vec![offer("own", "L40S", 8, "6.00")];
    let within = |limit: u32| {
        let demand = busy_chat(json!({"ceiling": {"usd_per_hour": dollars(limit)}}));
        find_with(market(), &demand, vec![paid("own", 1, "0", 10_000)])
    };
    let plan = within(6 * nodes);
    assert_eq!(
        lines_of(&plan.candidates[0]),
        [("own", 1, Some(10_000)), ("own", nodes - 1, None)]
    );
    assert_eq!((plan.candidates.len(), plan.eligible), (1, 1));
    let plan = within(6 * nodes - 1);
    assert!(plan.candidates.is_empty(), "{:?}", plan.candidates);
    let refused = BTreeMap::from([(ReasonCode::Ceiling, 1)]);
    assert_eq!((plan.eligible, plan.rejected.by_reason), (0, refused));
}

#[test]
fn where_the_cheapest_fleet_is_too_dear_once_its_commitment_ends_another_is_found() {
    let nodes = nodes_needed();
    let market = || {
        vec![
            few(offer("cheap", "L40S", 8, "4.00"), nodes - 1),
            offer("middle", "L40S", 8, "5.00"),
            offer("own", "L40S", 8, "20.00"),
        ]
    };
    let own = || vec![paid("own", 1, "0", 10_000)];
    let free = find_with(market(), &busy_chat(json!({})), own());
    assert_eq!(
        lines_of(&free.candidates[0]),
        [("cheap", nodes - 1, None), ("own", 1, Some(10_000))]
    );
    let least = 4 * (nodes - 1) + 5;
    let within = |limit: u32| busy_chat(json!({"ceiling": {"usd_per_hour": dollars(limit)}}));
    let plan = find_with(market(), &within(least), own());
    let best = &plan.candidates[0];
    assert_eq!(
        lines_of(best),
        [("cheap", nodes - 1, None), ("middle", 1, None)]
    );
    assert_eq!(best.cost_per_hour, usd(&dollars(least)));
    // It is not proved to be the cheapest of all that are under the ceiling.
    assert!(best.reasons[1].contains("% cheaper: proved"), "{best:?}");
    assert_eq!((plan.candidates.len(), plan.eligible), (1, 2));
    assert!(
        find_with(market(), &within(least - 1), own())
            .candidates
            .is_empty()
    );
}

/// 400 node-hours: for the 2 nodes that are taken of 16 in stock they last for 200 hours.
#[test]
fn node_hours_are_shared_by_the_nodes_that_are_taken_and_not_by_those_in_stock() {
    let market = || {
        let other = Offer {
            provider: provider("other"),
            ..offer("bought", "L40S", 8, "4.00")
        };
        vec![few(offer("own", "L40S", 8, "24.00"), 16), other]
    };
    let nodes = 2;
    // The load of two nodes, so that two nodes of either provider are enough.
    let load = 400 * nodes / nodes_needed();
    let all = |window: Value| {
        busy_chat(json!({"requests_per_second": load, "survive": "provider", "window": window}))
    };
    let own = || {
        let mut own = paid("own", 16, "0", 10_000);
        own.node_seconds_left = Some(400 * 3_600);
        vec![own]
    };
    for (window, mean) in [
        (Value::Null, "0.00"),
        (json!({"duration_hours": 200}), "0.00"),
        // A third of the time at 24 dollars for each of them.
        (json!({"duration_hours": 300}), "16.00"),
    ] {
        let plan = find_with(market(), &all(window.clone()), own());
        let best = &plan.candidates[0];
        assert_eq!(
            lines_of(best),
            [("own", nodes, Some(200)), ("bought", nodes, None)],
            "{window}"
        );
        assert_eq!(best.cost_per_hour, usd("8.00"));
        let tokens = best.facts.tokens_per_second.expect("a rate") * 3_600.0 / 1e6;
        let told = best.facts.usd_per_million_tokens.expect("a price").units() as f64 * tokens;
        let expected = (usd("8.00").units() + usd(mean).units()) as f64;
        assert!((told / expected - 1.0).abs() < 1e-4, "{window}: {told}");
    }
}

/// The mean cost of a candidate per hour over so many hours, in dollars.
fn mean_cost(candidate: &Candidate, hours: Option<u32>) -> f64 {
    let lines = candidate.lines.iter().map(|line| {
        let own = line.offer.price_per_node_hour.units() as f64 / 1e8;
        let gpus = line.offer.gpus.to_f64();
        let each = line.covered.map_or(own, |covered| {
            let paid = covered.rate_usd_gpu_hour.money_per_gpu_hour().units() as f64 / 1e8 * gpus;
            let lasts = (covered.until - now()).num_seconds() as f64 / 3_600.0;
            let share = hours.map_or(1.0, |hours| (lasts / f64::from(hours)).min(1.0));
            paid * share + own * (1.0 - share)
        });
        each * f64::from(line.nodes)
    });
    lines.sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Every shown fleet can be held: it is under the ceiling at the offers' own prices, and says how long it
    /// is paid for. The cheapest comes first. Commitments neither hide a fleet nor make one.
    #[test]
    fn fleets_with_commitments_can_be_held_as_they_are_shown(
        (snapshot, held) in any_market(),
        own in any_commitments(),
        shared in any_shared(),
        limit in prop::option::of(5_u32..120),
        concurrency in 1_u32..2_500,
        hours in prop::option::of(1_u32..900),
        survive in prop::bool::weighted(0.3),
    ) {
        let mut fields = json!({
            "model": "Llama 3 70B", "concurrency": concurrency, "input_tokens": 512, "output_tokens": 256,
            "latency": {"per_token_ms": 60},
        });
        fields.as_object_mut().expect("an object").extend(shared.as_object().expect("one").clone());
        if let Some(hours) = hours {
            fields["window"] = json!({"duration_hours": hours});
        }
        if let Some(limit) = limit {
            fields["ceiling"] = json!({"usd_per_hour": dollars(limit)});
        }
        if survive {
            fields["survive"] = json!("provider");
        }
        let ceiling: Ceiling = serde_json::from_value(fields["ceiling"].clone()).unwrap_or_default();
        let demand = demand("serve_realtime", fields);
        let with = |own: &OwnCapacity| {
            let own = Arc::new(own.clone());
            let options = SearchOptions { limit: 100, ties: false, own, ..SearchOptions::default() };
            search(&snapshot, &demand, &held, now(), &options).expect("a plan")
        };
        let (plan, without) = (with(&own), with(&OwnCapacity::default()));
        prop_assert_eq!(plan.eligible + plan.rejected.total, snapshot.len());
        prop_assert_eq!(plan.candidates.is_empty(), without.candidates.is_empty());
        let mut last = 0.0;
        for candidate in &plan.candidates {
            audit_own(&own, candidate);
            let lines = quote_lines(candidate.placement()).expect("a quote");
            let held = check_ceiling(&lines, &ceiling);
            prop_assert!(held.is_ok(), "{held:?}: {candidate:?}");
            let mean = mean_cost(candidate, hours);
            // Rounding may leave a unit for each GPU.
            prop_assert!(mean + 1e-4 >= last, "{mean} after {last}");
            last = mean;
        }
    }
}

/// Nodes of one GPU, so many of each offer, with a commitment for each.
#[derive(Debug, Clone)]
struct Small {
    price: u32,
    stock: u32,
    paid_nodes: u32,
    paid_price: u32,
    expires_hours: i64,
    node_hours: Option<i64>,
}

fn any_small() -> impl Strategy<Value = Small> {
    let of = (1_u32..9, 0_u32..5, 0_u32..5, 0_u32..3, 1_i64..60);
    (of, prop::option::of(1_i64..100)).prop_map(
        |((price, stock, paid_nodes, paid_price, expires_hours), node_hours)| Small {
            price,
            stock,
            paid_nodes,
            paid_price,
            expires_hours,
            node_hours,
        },
    )
}

impl Small {
    /// The mean cost of so many nodes per hour, in dollars.
    fn cost(&self, nodes: u32, hours: Option<i64>) -> f64 {
        let own = f64::from(self.price);
        let covered = nodes.min(self.paid_nodes);
        if covered == 0 || self.paid_price >= self.price {
            return own * f64::from(nodes);
        }
        let shared = self
            .node_hours
            .map(|left| left * 3_600 / i64::from(covered));
        let lasts = shared.unwrap_or(i64::MAX).min(self.expires_hours * 3_600);
        let share = hours.map_or(1.0, |hours| {
            (lasts as f64 / (hours * 3_600) as f64).min(1.0)
        });
        let each = f64::from(self.paid_price) * share + own * (1.0 - share);
        each * f64::from(covered) + own * f64::from(nodes - covered)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Every fleet of up to four offers of four nodes, each with a commitment of its own.
    #[test]
    fn the_cheapest_fleet_with_commitments_is_what_trying_all_finds(
        offers in prop::collection::vec(any_small(), 1..5),
        hours in prop::option::of(1_i64..60),
        limit in prop::option::of(3_u32..40),
    ) {
        let of_each = offers.iter().enumerate();
        let (market, own): (Vec<_>, Vec<_>) = of_each.map(|(at, small)| {
            let sku = format!("s{at}");
            let listed = few(offer(&sku, "H100-SXM", 1, &dollars(small.price)), small.stock);
            let mut open = paid(&sku, 9, &dollars(small.paid_price), small.expires_hours);
            open.commitment.id = format!("cmt_{at:032x}").parse().expect("an id");
            open.nodes_left = small.paid_nodes;
            open.node_seconds_left = small.node_hours.map(|left| left * 3_600);
            (listed, open)
        }).unzip();
        let mut fields = json!({});
        if let Some(hours) = hours {
            fields["window"] = json!({"duration_hours": hours});
        }
        fields["requests_per_second"] = json!(150);
        let plenty = find(vec![offer("one", "H100-SXM", 1, "1.00")], &busy_chat(fields.clone()));
        let needed = plenty.candidates[0].nodes();
        prop_assert!((3..=12).contains(&needed), "{needed}");
        if let Some(limit) = limit {
            fields["ceiling"] = json!({"usd_per_hour": dollars(limit)});
        }
        let plan = find_with(market, &busy_chat(fields), own);
        let mut best: Option<f64> = None;
        let mut counts = vec![0; offers.len()];
        loop {
            if counts.iter().sum::<u32>() == needed {
                let of = || offers.iter().zip(&counts);
                let own: u32 = of().map(|(small, nodes)| small.price * nodes).sum();
                let mean: f64 = of().map(|(small, nodes)| small.cost(*nodes, hours)).sum();
                if limit.is_none_or(|limit| own <= limit) {
                    best = Some(best.map_or(mean, |known| known.min(mean)));
                }
            }
            let Some(at) = (0..counts.len()).find(|at| counts[*at] < offers[*at].stock) else {
                break;
            };
            counts[at] += 1;
            counts[..at].fill(0);
        }
        let first = plan.candidates.first();
        prop_assert_eq!(first.is_some(), best.is_some());
        let (Some(first), Some(best)) = (first, best) else { return Ok(()) };
        let cost = mean_cost(first, hours.map(|hours| hours as u32));
        // Rounding to whole seconds may leave a second of each node.
        let near = 0.01;
        prop_assert!(cost >= best - near, "{cost} is below {best}");
        let told = &first.reasons[1];
        let gap = told.split_once("none is more than ").map_or(0.0, |(_, rest)| {
            rest.split(' ').next().expect("a share").parse::<f64>().expect("a share") / 100.0
        });
        if limit.is_none() {
            prop_assert!(cost <= best + near, "{cost} is above {best}: {told}");
        } else if first.lines.iter().any(|line| line.offer.sku != first.lines[0].offer.sku) {
            prop_assert!(cost * (1.0 - gap - 1e-4) <= best + near, "{cost} is above {best}: {told}");
        }
    }
}
