//! Commitments go to one half of a pair, and the pair is priced with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use market::capacity::{Commitment, OpenCommitment, OwnCapacity, OwnScope};
use market::ids::CommitmentId;
use market::money::Rate;

use super::*;
use crate::plan::CandidateLine;

/// Nodes of a SKU or a GPU that are paid for.
fn committed(at: u32, seller: &str, sku: Option<&str>, nodes: u32) -> OpenCommitment {
    let gpu = sku.is_none().then(|| "H100-SXM".parse().expect("a GPU"));
    OpenCommitment {
        commitment: Commitment {
            id: format!("cmt_{at:032x}").parse().expect("an id"),
            name: format!("contract {at}"),
            provider: provider(seller),
            scope: OwnScope {
                sku: sku.map(str::to_owned),
                gpu,
                gpus: None,
                country: None,
                region: None,
            },
            nodes,
            node_hours: None,
            price_per_node_hour: usd("0"),
            expires_at: now() + TimeDelta::hours(10_000),
            created_at: now(),
        },
        nodes_left: nodes,
        node_seconds_left: None,
    }
}

fn options(own: Vec<OpenCommitment>) -> SearchOptions {
    let mut own = OwnCapacity {
        commitments: own,
        accounts: Vec::new(),
    };
    own.use_in_order();
    SearchOptions {
        limit: 50,
        own: Arc::new(own),
        ..SearchOptions::default()
    }
}

fn plan_with(offers: &[Offer], demand: &HybridDemand, own: &[OpenCommitment]) -> Plan {
    let demand = Demand::Hybrid(Box::new(demand.clone()));
    let options = options(own.to_vec());
    let market = snapshot(offers.to_vec());
    search(&market, &demand, &Held::new(), now(), &options).expect("a plan")
}

fn pair_of<'p>(plan: &'p Plan, pair: &HybridPair) -> [&'p Candidate; 2] {
    [pair.train_candidate, pair.serve_candidate].map(|rank| &plan.candidates[rank - 1])
}

fn taken(candidate: &Candidate) -> BTreeSet<CommitmentId> {
    let covered = candidate.lines.iter().filter_map(|line| line.covered);
    covered.map(|covered| covered.commitment_id).collect()
}

fn units_of(rate: Rate) -> i128 {
    i128::from(rate.money_per_gpu_hour().units())
}

/// The cost of these lines for some seconds from a given time, by the meter's rule. Units: 1e-8 US dollars.
fn metered(lines: &[CandidateLine], from: DateTime<Utc>, seconds: i128) -> i128 {
    let of_line = |line: &CandidateLine| {
        let gpus = i128::from(line.offer.gpus.as_whole().expect("whole"));
        let own = half_even(i128::from(line.offer.price_per_node_hour.units()), gpus);
        let gpus = gpus * i128::from(line.nodes);
        let Some(covered) = line.covered else {
            return half_even(own * gpus * seconds, 3_600);
        };
        let paid = i128::from((covered.until - from).num_seconds()).clamp(0, seconds);
        half_even(units_of(covered.rate_usd_gpu_hour) * gpus * paid, 3_600)
            + half_even(own * gpus * (seconds - paid), 3_600)
    };
    lines.iter().map(of_line).sum()
}

/// A bill added up again from the lines, hours and dates of the answer. Units: 1e-8 US dollars.
fn added(run: &Candidate, fleet: &Candidate, bill: &HybridBill) -> i128 {
    let hours = run.facts.run_hours.expect("hours");
    let all = (hours * f64::from(run.gpus()) * 3_600.0).ceil() as i128;
    let lasts = (hours * 3_600.0).ceil() as i128;
    assert_eq!(bill.trained_at, now() + TimeDelta::seconds(lasts as i64));
    let (mut left, mut trained) = (all, 0);
    for line in &run.lines {
        let Some(covered) = line.covered else {
            continue;
        };
        let gpus = i128::from(line.offer.gpus.as_whole().expect("whole") * line.nodes);
        let paid = i128::from((covered.until - now()).num_seconds()).clamp(0, lasts);
        let paid = (paid * gpus).min(left);
        left -= paid;
        trained += half_even(units_of(covered.rate_usd_gpu_hour) * paid, 3_600);
    }
    let offer = &run.lines[0].offer;
    let gpus = i128::from(offer.gpus.as_whole().expect("whole"));
    let own = half_even(i128::from(offer.price_per_node_hour.units()), gpus);
    trained += half_even(own * left, 3_600);
    assert_eq!(i128::from(bill.train_usd.units()), trained);
    let waits: i64 = bill.staging.iter().map(|leg| leg.seconds).sum();
    let held = metered(&run.lines, bill.trained_at, waits.into());
    assert_eq!(i128::from(bill.staging_hold_usd.units()), held);
    let served = metered(&fleet.lines, bill.serves_from, bill.serve_seconds.into());
    assert_eq!(i128::from(bill.serve_usd.units()), served);
    let egress: i128 = (bill.staging.iter())
        .map(|leg| i128::from(leg.usd.units()))
        .sum();
    trained + held + egress + served
}

/// Each pair adds up, and its halves share no commitment.
fn check_pairs(plan: &Plan) {
    for pair in &hybrid(plan).pairs {
        let [run, fleet] = pair_of(plan, pair);
        assert_eq!(
            i128::from(pair.bill.total_usd.units()),
            added(run, fleet, &pair.bill)
        );
        assert!(taken(run).is_disjoint(&taken(fleet)), "{pair:?}");
        let nothing = taken(run).is_empty() && taken(fleet).is_empty();
        let saves = pair.bill.own_capacity_saves_usd;
        assert_eq!(saves.is_none(), nothing, "{pair:?}");
        assert!(saves.is_none_or(|saves| saves.units() >= 0), "{pair:?}");
    }
}

// S17
#[test]
fn what_is_paid_for_goes_to_the_half_that_saves_more_with_it_and_never_to_both() {
    // Both halves can use them, and no other offer trains.
    let nodes = [committed(1, "aws", Some("fabric"), 8)];
    let short = demand(json!({}), json!({"window": {"duration_hours": 1}}));
    let plan = plan_with(&supply(), &short, &nodes);
    check_pairs(&plan);
    let best = &hybrid(&plan).pairs[0];
    let [run, fleet] = pair_of(&plan, best);
    assert_eq!((taken(run).len(), taken(fleet).len()), (1, 0));
    assert_eq!(best.bill.train_usd, usd("0"));
    // Where the run has another contract the fleet may have this one.
    let two = [
        committed(1, "aws", Some("fabric"), 8),
        committed(2, "aws", Some("fabric"), 8),
    ];
    let long = demand(json!({}), json!({}));
    let plan = plan_with(&supply(), &long, &two);
    check_pairs(&plan);
    let [run, fleet] = pair_of(&plan, &hybrid(&plan).pairs[0]);
    assert_eq!((taken(run).len(), taken(fleet).len()), (1, 1));
    let without = plan_with(&supply(), &long, &[]);
    assert!(hybrid(&plan).pairs[0].bill.total_usd < hybrid(&without).pairs[0].bill.total_usd);
    // The baselines stay at public prices.
    let ways = |plan: &Plan| {
        let all = hybrid(plan).baselines.iter();
        all.map(|one| one.way.clone()).collect::<Vec<_>>()
    };
    assert_eq!(ways(&plan), ways(&without));
}

/// The fleet starts when the run is done: a commitment that ends before that is worth nothing to it.
#[test]
fn a_contract_that_ends_before_the_fleet_stands_pays_for_none_of_it() {
    let mut ends = committed(1, "lambda", Some("elsewhere"), 100);
    ends.commitment.expires_at = now() + TimeDelta::hours(1);
    let wanted = demand(json!({}), json!({}));
    let plan = plan_with(&supply(), &wanted, &[ends]);
    check_pairs(&plan);
    let without = plan_with(&supply(), &wanted, &[]);
    let total = |plan: &Plan| hybrid(plan).pairs[0].bill.total_usd;
    assert_eq!(total(&plan), total(&without));
}

/// A few contracts at the sellers of the market.
fn any_own() -> impl Strategy<Value = Vec<OpenCommitment>> {
    let one = (
        prop::sample::select(vec!["aws", "lambda", "b"]),
        prop::sample::select(vec![None, Some("s0"), Some("s1"), Some("s2")]),
        1_u32..12,
        10_i64..3_000,
        prop::option::of(10_u32..20_000),
        prop::sample::select(vec!["0", "0", "1.50"]),
    );
    prop::collection::vec(one, 1..3).prop_map(|all| {
        let each = (1..).zip(all);
        each.map(|(at, (seller, sku, nodes, hours, node_hours, price))| {
            let mut one = committed(at, seller, sku, nodes);
            one.commitment.expires_at = now() + TimeDelta::hours(hours);
            one.commitment.node_hours = node_hours;
            one.node_seconds_left = node_hours.map(|hours| i64::from(hours) * 3_600);
            one.commitment.price_per_node_hour = usd(price);
            one
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// Every run with every fleet, under every way to give each contract to one half.
    #[test]
    fn no_way_to_share_out_what_is_paid_for_is_cheaper_than_the_first_pair(
        supply in any_supply(), own in any_own(), hours in prop::sample::select(vec![20_u32, 200, 1_500]),
    ) {
        let wanted = demand(json!({}), json!({"window": {"duration_hours": hours}}));
        let plan = plan_with(&supply, &wanted, &own);
        check_pairs(&plan);
        let market = snapshot(supply);
        let half = |half, given: Vec<OpenCommitment>| {
            let options = SearchOptions { ties: false, ..options(given) };
            search(&market, &wanted.half(half), &Held::new(), now(), &options).expect("a half").candidates
        };
        let mut least: Option<i128> = None;
        for split in 0_u32..1 << own.len() {
            let given = |to_run: bool| {
                let numbered = own.iter().enumerate();
                let given = numbered.filter(|(at, _)| (split >> at & 1 == 1) == to_run);
                given.map(|(_, one)| one.clone()).collect()
            };
            let (runs, fleets) = (half(Half::Train, given(true)), half(Half::Serve, given(false)));
            let reckoning = Reckoning::new(&wanted, &market, now(), &runs).expect("a calculation");
            for run in &runs {
                for fleet in &fleets {
                    let bill = reckoning.bill(run, fleet, None).expect("a bill");
                    let total = added(run, fleet, &bill);
                    least = Some(least.map_or(total, |least| least.min(total)));
                }
            }
        }
        let best = hybrid(&plan).pairs.first().map(|pair| i128::from(pair.bill.total_usd.units()));
        // A baseline may be a fleet that is no candidate, at list prices.
        let ways = hybrid(&plan).baselines.iter().filter_map(|one| one.way.as_ref());
        let ways = ways.map(|way| i128::from(way.bill.total_usd.units()));
        prop_assert_eq!(best, least.into_iter().chain(ways).min());
    }
}
