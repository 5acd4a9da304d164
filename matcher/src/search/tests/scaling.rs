//! Only the ratio of prices matters: with all of them doubled, any number of times, the choice is the same.

use ::market::ids::ProviderId;
use ::market::money::Money;
use proptest::prelude::*;

use super::twin::any_market;
use super::*;
use crate::samples::provider;
use crate::snapshot::{OfferRef, ProviderView};

/// Prices that are multiples of this cost whole units for any number of GPU-seconds of up to eight
/// GPUs, so that no rounding hides a difference. Units: 1e-8 US dollars.
const EXACT: i64 = 8 * 3_600;

/// The plan over these offers at prices of their own, doubled so often.
fn plan(offers: &[Offer], doublings: u32, demand: &Demand) -> Plan {
    let offers = offers.iter().cloned().map(|mut offer| {
        let units = offer.price_per_node_hour.units() / EXACT * EXACT;
        offer.price_per_node_hour = Money::usd_units(units << doublings);
        offer
    });
    let view = ProviderView {
        freshness_limit_seconds: Some(600),
        ..ProviderView::default()
    };
    let sellers = ["a", "b", "c", "lambda"].map(|word| (provider(word), view.clone()));
    let snapshot = Snapshot::new(1, now(), offers, sellers.into());
    let options = SearchOptions::default();
    search(&snapshot, demand, &Held::new(), now(), &options).expect("a plan")
}

/// The offers of each candidate, their layout, and the counts of refused offers.
fn choice(plan: &Plan) -> Value {
    let candidates = plan.candidates.iter().map(|candidate| {
        let lines = candidate.lines.iter();
        let lines: Vec<_> = lines
            .map(|line| (line.offer.offer_id, line.nodes))
            .collect();
        let facts = &candidate.facts;
        json!([
            candidate.half,
            lines,
            facts.layout,
            facts.run_hours,
            facts.replicas
        ])
    });
    let hybrid = plan.hybrid.as_ref();
    let pairs = hybrid.map(|hybrid| {
        let pairs = hybrid.pairs.iter();
        let ranks = pairs.map(|pair| (pair.train_candidate, pair.serve_candidate));
        ranks.collect::<Vec<_>>()
    });
    let candidates: Vec<_> = candidates.collect();
    json!([plan.eligible, plan.rejected, candidates, pairs])
}

/// All that a plan costs: each candidate by the hour and as a run, each pair as a whole.
fn costs(plan: &Plan) -> Vec<i64> {
    let candidates = plan.candidates.iter();
    let of_candidates =
        candidates.flat_map(|one| [Some(one.cost_per_hour), one.facts.run_cost_usd]);
    let pairs = plan.hybrid.iter().flat_map(|hybrid| &hybrid.pairs);
    let of_pairs = pairs.map(|pair| Some(pair.bill.total_usd));
    let all = of_candidates.chain(of_pairs).flatten();
    all.map(Money::units).collect()
}

/// Offers of a random market, optionally all of one provider without egress costs.
fn any_offers(seller: Option<ProviderId>) -> impl Strategy<Value = Vec<Offer>> {
    any_market().prop_map(move |(market, _)| {
        let offers = market.offers().map(OfferRef::to_offer);
        let sold = offers.map(|offer| Offer {
            provider: seller.clone().unwrap_or(offer.provider.clone()),
            ..offer
        });
        sold.collect()
    })
}

fn scales(offers: &[Offer], doublings: u32, demand: &Demand) -> Result<(), TestCaseError> {
    let (before, after) = (plan(offers, 0, demand), plan(offers, doublings, demand));
    prop_assert_eq!(choice(&after), choice(&before));
    let scaled: Vec<i64> = costs(&before)
        .into_iter()
        .map(|cost| cost << doublings)
        .collect();
    prop_assert_eq!(costs(&after), scaled);
    Ok(())
}

proptest! {
    #[test]
    fn scaled_prices_scale_what_gpus_cost_and_keep_the_choice(
        offers in any_offers(None),
        doublings in 1_u32..12,
        wanted in prop::sample::select(vec!["H100-SXM", "H100", "any"]),
        nodes in 1_u32..4,
    ) {
        let wanted = demand("gpus", json!({"gpu": wanted, "count": 8, "nodes": nodes}));
        scales(&offers, doublings, &wanted)?;
    }

    #[test]
    fn scaled_prices_scale_what_a_run_costs_and_keep_the_choice(
        offers in any_offers(None),
        doublings in 1_u32..12,
        gpus in prop::option::of(prop::sample::select(vec![8_u32, 32, 64])),
    ) {
        let mut fields = json!({"model": "Llama 3 8B", "tokens": 10_000_000_000_u64});
        if let Some(gpus) = gpus {
            fields["gpus"] = json!(gpus);
        }
        scales(&offers, doublings, &demand("train", fields))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn scaled_prices_scale_what_a_run_and_its_fleet_cost_and_keep_the_choice(
        offers in any_offers(Some(provider("lambda"))),
        doublings in 1_u32..12,
    ) {
        let train = json!({"model": "Llama 3.1 8B", "tokens": 10_000_000_000_u64});
        let serve = json!({
            "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 20,
            "input_tokens": 900, "output_tokens": 300, "window": {"duration_hours": 720},
        });
        let both = demand("hybrid", json!({"train": train, "serve": serve}));
        scales(&offers, doublings, &both)?;
    }
}
