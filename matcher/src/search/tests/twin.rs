//! A naive twin: the rules written down once more, offer by offer, with full sorts and loops in
//! place of closed forms, and compared on random offers.

mod explained;
mod market;
mod policy;
mod rules;
mod told;

use std::sync::Arc;

use chrono::TimeDelta;
use proptest::prelude::*;

pub(super) use self::market::{
    any_commitments, any_market, any_offer, any_shared, facts_of, mostly,
};
use self::market::{any_gpus, any_rules};
pub(super) use self::policy::audit_own;
use self::rules::{Twin, gpus_rules, serve_rules, train_rules};
use super::scan::{scan, test};
use super::*;
use crate::filter::Among;
use crate::samples::provider;
use crate::snapshot::{OfferRef, ProviderView};

fn with(mut fields: Value, shared: Value) -> Value {
    fields
        .as_object_mut()
        .expect("an object")
        .extend(shared.as_object().expect("an object").clone());
    fields
}

/// The offers of a snapshot in full.
fn offers_of(snapshot: &Snapshot) -> impl Iterator<Item = Row> {
    let places = snapshot
        .offers()
        .filter_map(|offer| snapshot.find(&offer.offer_id()));
    places.map(|at| snapshot.row(at))
}

proptest! {
    // The search must pass a thousand markets for each property.
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn gpus_are_ranked_and_refused_as_the_naive_twin_does(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        fields in any_gpus(),
        orderable_only in any::<bool>(),
    ) {
        let options = SearchOptions { orderable_only, ..SearchOptions::default() };
        let plan = search(&snapshot, &demand("gpus", with(fields.clone(), shared.clone())), &held, now(), &options).expect("a plan");
        let twin = Twin { shared, snapshot: &snapshot, held: &held, orderable_only };
        twin.check(&plan, |offer| gpus_rules(&twin, &fields, offer));
    }

    // S16
    #[test]
    fn training_is_ranked_and_refused_as_the_naive_twin_does(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        gpus in prop::option::of(prop::sample::select(vec![8_u32, 16, 24, 32, 64])),
        hours in prop::option::of(48_u32..600),
    ) {
        let mut fields = json!({"model": "Llama 3 70B", "tokens": 10_000_000_000_u64});
        if let Some(gpus) = gpus {
            fields["gpus"] = json!(gpus);
        }
        if let Some(hours) = hours {
            fields["window"] = json!({"duration_hours": hours});
        }
        let mut shared = with(json!({"window": fields["window"].clone()}), shared);
        // So that the naive twin terminates: this many dollars buy 114 of the cheapest nodes.
        if shared["ceiling"]["usd_per_hour"].is_null() {
            shared["ceiling"]["usd_per_hour"] = json!("400.00");
        }
        let options = SearchOptions::default();
        let plan = search(&snapshot, &demand("train", with(fields, shared.clone())), &held, now(), &options).expect("a plan");
        let twin = Twin { shared, snapshot: &snapshot, held: &held, orderable_only: false };
        twin.check(&plan, |offer| train_rules(&twin, gpus, hours.map(f64::from), offer));
    }

    #[test]
    fn fleets_are_ranked_and_refused_as_the_naive_twin_does(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        concurrency in 1_u32..5_000,
    ) {
        let fields = json!({
            "model": "Llama 3 70B", "concurrency": concurrency, "input_tokens": 512, "output_tokens": 256,
            "latency": {"per_token_ms": 60},
        });
        let demand = demand("serve_realtime", with(fields, shared.clone()));
        let plan = search(&snapshot, &demand, &held, now(), &SearchOptions::default()).expect("a plan");
        let twin = Twin { shared, snapshot: &snapshot, held: &held, orderable_only: false };
        twin.check_fleets(&plan, |offer| serve_rules(&twin, concurrency, offer));
    }

    #[test]
    fn the_columns_answer_as_a_scan_of_all_offers_does(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        fields in any_gpus(),
        kind in 0..4_usize,
        orderable_only in prop::bool::weighted(0.2),
        limit in prop::sample::select(vec![0_usize, 1, 3, 10, 1_000]),
        ask in any::<bool>(),
        rests in prop::collection::vec(prop::option::weighted(0.3, -1_i64..2), 64),
    ) {
        let demand = [
            demand("gpus", with(fields, shared.clone())),
            demand("train", with(json!({"model": "Llama 3 8B", "tokens": 1_000_000_000_u64}), shared.clone())),
            demand("train", with(json!({"model": "Llama 3 70B", "tokens": 10_000_000_000_u64, "window": {"duration_hours": 200}}), shared.clone())),
            demand("serve_batch", with(json!({"model": "Llama 3 8B", "requests": 1_000_000, "input_tokens": 512, "output_tokens": 256}), shared)),
        ][kind].clone();
        // Of each offer by name, or of one for each reason.
        let asked = snapshot.offers().map(OfferRef::offer_id).filter(|_| ask).collect();
        // The last second before the end of a cool-down no longer belongs to it.
        let ids = snapshot.offers().map(OfferRef::offer_id).zip(rests);
        let cooling = ids.filter_map(|(id, left)| Some((id, now() + TimeDelta::seconds(left?))));
        let cooling = Arc::new(cooling.collect());
        let options = SearchOptions { limit, orderable_only, asked, cooling, ..SearchOptions::default() };
        let plan = search(&snapshot, &demand, &held, now(), &options).expect("a plan");
        if ask {
            prop_assert_eq!(plan.refused.len(), plan.rejected.total);
        }
        prop_assert_eq!(plan, scan(&snapshot, &demand, &held, &options));
    }
}

proptest! {
    #[test]
    fn an_offer_more_or_a_lower_price_never_makes_the_best_worse(
        (market, held) in any_market(),
        extra in any_offer(),
        kind in 0..3_usize,
        cut in 1_i64..50_000_000,
    ) {
        let demand = [
            demand("gpus", json!({"gpu": "H100", "count": 8})),
            demand("train", json!({"model": "Llama 3 70B", "tokens": 10_000_000_000_u64})),
            demand("serve_realtime", json!({"model": "Llama 3 8B", "concurrency": 10, "input_tokens": 512, "output_tokens": 256})),
        ][kind].clone();
        let providers = || ["a", "b", "c"].map(|word| (provider(word), ProviderView { freshness_limit_seconds: Some(600), ..ProviderView::default() })).into();
        let best = |offers: Vec<Offer>| {
            let snapshot = Snapshot::new(1, now(), offers, providers());
            let Ok(Wanted::Query(query)) = Wanted::new(&demand, now()) else { panic!("a demand of one kind") };
            let options = SearchOptions::default();
            let filter = Filter { shared: demand.shared(), snapshot: &snapshot, among: Among::All, held: &held, now: now(), ends_by: demand.ends_by(now()), options: &options, kind: demand.kind(), budget: &Budget::default() };
            offers_of(&snapshot).filter_map(|row| test(&query, &filter, &row).ok()).map(|fit| fit.key).min()
        };
        let worse = |after: Option<Key>, before: Option<Key>| match (after, before) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(after), Some(before)) => after > before,
        };
        let offers: Vec<Offer> = market.offers().map(OfferRef::to_offer).collect();
        let before = best(offers.clone());
        let more = offers.iter().cloned().chain([extra]).collect();
        prop_assert!(!worse(best(more), before));
        let cheaper = offers.iter().cloned().map(|mut offer| {
            // A price of zero counts as unknown, so the price stops above zero.
            let units = offer.price_per_node_hour.units();
            offer.price_per_node_hour = Money::usd_units(if units > cut { units - cut } else { units });
            offer
        });
        prop_assert!(!worse(best(cheaper.collect()), before));
    }

    // S91
    #[test]
    fn the_order_in_which_offers_are_given_changes_nothing((market, held) in any_market(), by in 1_usize..50) {
        let demand = demand("gpus", json!({"gpu": "any", "count": 8}));
        let view = ProviderView { freshness_limit_seconds: Some(600), ..ProviderView::default() };
        let providers: HashMap<_, _> = ["a", "b", "c"].map(|word| (provider(word), view.clone())).into();
        let mut offers: Vec<Offer> = market.offers().map(OfferRef::to_offer).collect();
        let plan = |offers: &[Offer]| {
            let snapshot = Snapshot::new(1, now(), offers.to_vec(), providers.clone());
            search(&snapshot, &demand, &held, now(), &SearchOptions::default()).expect("a plan")
        };
        let before = plan(&offers);
        if !offers.is_empty() {
            let by = by % offers.len();
            offers.rotate_left(by);
        }
        let after = plan(&offers);
        prop_assert_eq!(before, after);
    }
}
