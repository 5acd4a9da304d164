//! The work of a search, in counts: they show more than times, and do not vary.

use super::scan::query;
use super::*;
use crate::filter::Among;
use crate::samples::{offer, provider};
use crate::snapshot::ProviderView;

const SELLERS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// So many H100 nodes of five providers, and as many others; no two at one price.
fn market(count: usize) -> Snapshot {
    snapshot(offers(count))
}

/// The same, read at all times of a week.
fn market_of_all_ages(count: usize) -> Snapshot {
    let mut offers = offers(count);
    for (nth, offer) in offers.iter_mut().enumerate() {
        offer.observed_at = now() - chrono::TimeDelta::hours((nth as i64 * 31) % 168);
    }
    let view = ProviderView {
        freshness_limit_seconds: Some(7 * 86_400),
        ..ProviderView::default()
    };
    let providers = SELLERS.map(|seller| (provider(seller), view.clone()));
    Snapshot::new(7, now(), offers, providers.into())
}

fn offers(count: usize) -> Vec<Offer> {
    let offers = (0..count).map(|nth| {
        let gpu = if nth % 2 == 0 { "H100-SXM" } else { "L4" };
        let mut offer = offer(&nth.to_string(), gpu, 8, "1.00");
        offer.provider = provider(SELLERS[nth / 2 % SELLERS.len()]);
        // Spread over all prices, however many there are.
        let price = (nth * 7_919) % count + 1;
        offer.price_per_node_hour = Money::usd_units(price as i64 * 1_000_000);
        offer
    });
    offers.collect()
}

/// How many offers a search for the ten best looks at for their rank.
fn scored(snapshot: &Snapshot, demand: &Demand) -> usize {
    let query = query(demand);
    let (held, options) = (Held::new(), SearchOptions::default());
    let filter = Filter {
        shared: demand.shared(),
        snapshot,
        among: Among::All,
        held: &held,
        now: now(),
        ends_by: demand.ends_by(now()),
        options: &options,
        kind: demand.kind(),
        budget: &Budget::default(),
    };
    let held = HeldRows::of(&filter);
    let mut ranking = Ranking::new(options.limit);
    walk(
        &query,
        &filter,
        &held,
        &mut Tally::new(&filter),
        |group, tally| {
            let (rows, _) = group.count(&filter, tally);
            ranking.take(&query, &filter, group, rows);
        },
    );
    ranking.scored()
}

#[test]
fn a_search_scores_as_many_offers_in_a_large_market_as_in_a_small_one() {
    let demands = [
        demand("gpus", json!({"gpu": "H100-SXM", "count": 8})),
        demand("gpus", json!({"gpu": "any", "count": 8})),
        demand(
            "gpus",
            json!({"gpu": "H100-SXM", "count": 8, "nodes": 4, "ceiling": {"usd_per_hour": "40.00"}}),
        ),
        demand(
            "train",
            json!({"model": "Llama 3 8B", "tokens": 1_000_000_000, "gpus": 8}),
        ),
    ];
    for demand in demands {
        for count in [400, 4_000, 40_000] {
            let found = scored(&market(count), &demand);
            // Ten are taken of each of at most ten groups at worst, and one more is looked at.
            assert!(
                (10..=110).contains(&found),
                "{found} of {count} offers for {demand:?}"
            );
        }
    }
}

#[test]
fn prices_of_all_ages_cost_a_search_no_more_in_a_large_market() {
    let demand = demand("gpus", json!({"gpu": "H100-SXM", "count": 8}));
    for count in [400, 4_000, 40_000] {
        let found = scored(&market_of_all_ages(count), &demand);
        // Ten are better than the following offers in each of five groups, and the search looks at one more.
        assert!((10..=110).contains(&found), "{found} of {count}");
    }
}
