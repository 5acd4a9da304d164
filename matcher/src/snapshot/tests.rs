use market::gpu::GpuIdentity;
use market::money::Money;
use market::offer::{Availability, AvailabilityLevel, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::samples::{now, offer, provider};

/// One of forty ids, so that later offers often are earlier ones changed.
fn any_id() -> impl Strategy<Value = OfferId> {
    (0..40_u32).prop_map(|nth| OfferId::of_identity(&[&nth.to_string()]))
}

fn any_availability() -> impl Strategy<Value = Availability> {
    let levels = [
        AvailabilityLevel::None,
        AvailabilityLevel::Low,
        AvailabilityLevel::Medium,
        AvailabilityLevel::High,
        AvailabilityLevel::Present,
        AvailabilityLevel::Unknown,
    ];
    let counts = select(vec![None, Some(0), Some(7), Some(u32::MAX)]);
    (select(levels.to_vec()), counts, any::<bool>()).prop_map(|(level, nodes, at_least)| {
        Availability {
            level,
            nodes,
            at_least,
        }
    })
}

fn any_offer() -> impl Strategy<Value = Offer> {
    let thing = (
        select(vec!["H100-SXM", "H100", "L4", "MI300X"]),
        select(vec![167_u32, 1_000, 8_000]),
        select(vec![Terms::OnDemand, Terms::Spot]),
        select(vec!["small", "large", ""]),
    );
    let seller = (
        select(vec!["gcp", "lambda"]),
        select(vec!["us-central1", "europe-west4", "nowhere", ""]),
        select(vec!["us-central1-a", ""]),
        any::<bool>(),
    );
    let price = prop_oneof![9 => 0_i64..50, 1 => select(vec![-1, i64::MAX, i64::MAX / 8])];
    (any_id(), thing, seller, price, any_availability(), 0_i64..3).prop_map(
        |(
            offer_id,
            (gpu, gpus, terms, sku),
            (seller, region, zone, orderable),
            price,
            availability,
            age,
        )| Offer {
            offer_id,
            provider: provider(seller),
            gpu: GpuIdentity::parse(gpu).expect("a GPU"),
            gpus: GpuCount::from_thousandths(gpus).expect("a count"),
            gpu_memory_mib: orderable.then_some(81_559),
            vcpus: Some(gpus),
            memory_gib: None,
            terms,
            place: Place::resolve(seller, region, zone),
            orderable,
            price_per_node_hour: Money::usd_units(price),
            availability,
            observed_at: now() - chrono::TimeDelta::milliseconds(age * 1_500),
            ..offer(sku, "L4", 1, "1.00")
        },
    )
}

/// Offers with an id of its own each.
fn any_offers() -> impl Strategy<Value = Vec<Offer>> {
    prop::collection::vec(any_offer(), 0..60).prop_map(|offers| {
        let by_id: BTreeMap<_, _> = offers
            .into_iter()
            .map(|offer| (offer.offer_id, offer))
            .collect();
        by_id.into_values().collect()
    })
}

fn whole(offers: Vec<Offer>) -> Snapshot {
    Snapshot::new(1, now(), offers, HashMap::new())
}

proptest! {
    #[test]
    fn what_is_taken_in_comes_out(offers in any_offers()) {
        let snapshot = whole(offers.clone());
        prop_assert_eq!(snapshot.len(), offers.len());
        for offer in &offers {
            let found = snapshot.offer(&offer.offer_id).map(OfferRef::to_offer);
            prop_assert_eq!(found.as_ref(), Some(offer));
        }
        let mut all: Vec<Offer> = snapshot.offers().map(OfferRef::to_offer).collect();
        all.sort_by_key(|offer| offer.offer_id);
        prop_assert_eq!(all, offers);
    }

    #[test]
    fn a_patched_snapshot_is_the_one_that_its_offers_would_make(
        before in any_offers(),
        changed in any_offers(),
        removed in prop::collection::vec(any_id(), 0..20),
    ) {
        let removed: Vec<_> = (removed.into_iter())
            .filter(|id| changed.iter().all(|offer| offer.offer_id != *id))
            .collect();
        let patched = whole(before.clone()).patched(1, now(), &changed, &removed, HashMap::new());
        let stays = |offer: &Offer| {
            let replaced = changed.iter().any(|other| other.offer_id == offer.offer_id);
            !replaced && !removed.contains(&offer.offer_id)
        };
        let after: Vec<Offer> = before.iter().filter(|offer| stays(offer)).cloned().chain(changed.clone()).collect();
        prop_assert_eq!(&patched, &whole(after.clone()));
        let advanced = whole(before).advanced(1, now(), after, HashMap::new());
        prop_assert_eq!(&patched, &advanced);
        for id in &removed {
            prop_assert!(patched.offer(id).is_none());
        }
    }

    #[test]
    fn rows_are_found_where_they_stand(offers in any_offers()) {
        let snapshot = whole(offers);
        let places: Vec<_> = (snapshot.offers()).filter_map(|offer| snapshot.find(&offer.offer_id())).collect();
        prop_assert_eq!(places.len(), snapshot.len());
        prop_assert!(places.is_sorted());
    }
}

#[test]
fn a_patch_leaves_the_partitions_alone_in_which_nothing_changed() {
    let offers: Vec<Offer> = ["H100-SXM", "L4", "MI300X"]
        .into_iter()
        .map(|gpu| offer(gpu, gpu, 8, "8.00"))
        .collect();
    let snapshot = whole(offers.clone());
    let cheaper = Offer {
        price_per_node_hour: Money::usd_units(1),
        ..offers[1].clone()
    };
    let patched = snapshot.patched(2, now(), &[cheaper], &[], HashMap::new());
    let shared = snapshot.partitions.iter().zip(&patched.partitions);
    let shared = shared.filter(|(old, new)| Arc::ptr_eq(old, new)).count();
    assert_eq!((snapshot.partitions.len(), shared), (3, 2));
}
