//! Checks of an adapter's readings.

use std::collections::BTreeSet;
use std::time::Duration;

use market::catalog::CatalogReading;
use market::fabric::Internode;
use market::ids::OfferId;
use market::offer::Terms;

use super::{Bench, Flaw, Verdict, broken};
use crate::adapter::Capability;

pub(super) async fn read(bench: &Bench<'_>) -> Result<CatalogReading, Flaw> {
    Ok(bench
        .adapter
        .read_catalog(bench.http, bench.world.now())
        .await?)
}

pub(super) async fn is_read_whole(bench: &Bench<'_>) -> Verdict {
    let now = bench.world.now();
    let reading = read(bench).await?;
    if reading.provider.as_str() != bench.adapter.profile().id {
        return broken(format!("the reading is of {}", reading.provider));
    }
    if reading.offers.is_empty() {
        return broken("the reading holds no offer");
    }
    if !reading.is_whole() {
        return broken("the reading is not whole");
    }
    if reading.read_at != now {
        return broken("the reading is not stamped with the time it was given");
    }
    match reading
        .skipped
        .iter()
        .find(|skipped| skipped.why.is_empty())
    {
        Some(skipped) => broken(format!(
            "a record was skipped for {} without a reason",
            skipped.reason
        )),
        None => Ok(()),
    }
}

pub(super) async fn offers_are_sound(bench: &Bench<'_>) -> Verdict {
    let reading = read(bench).await?;
    let mut ids = BTreeSet::new();
    for offer in &reading.offers {
        let (id, sku) = (offer.offer_id, &offer.sku);
        if !ids.insert(id) {
            return broken(format!("{id} stands twice"));
        }
        if offer.provider != reading.provider {
            return broken(format!("{id} ({sku}) is of {}", offer.provider));
        }
        if sku.is_empty() || offer.raw_gpu_name.is_empty() {
            return broken(format!("{id} ({sku}) lacks the provider's own words"));
        }
        if !offer
            .rate()
            .is_ok_and(|rate| rate.money_per_gpu_hour().is_positive())
        {
            return broken(format!("{id} ({sku}) has no positive rate"));
        }
        if offer.orderable && offer.place.region.is_none() && !offer.availability.is_sold_out() {
            return broken(format!("{id} ({sku}) can be had, but nobody knows where"));
        }
        if offer.observed_at != reading.read_at {
            return broken(format!("{id} ({sku}) was not observed when it was read"));
        }
    }
    Ok(())
}

pub(super) async fn offers_keep_to_the_profile(bench: &Bench<'_>) -> Verdict {
    let profile = bench.adapter.profile();
    let lacks = |capability| profile.lack(capability).is_some();
    let offers = read(bench).await?.offers;
    for offer in &offers {
        let (id, sku) = (offer.offer_id, &offer.sku);
        if lacks(Capability::Spot) && offer.terms == Terms::Spot {
            return broken(format!(
                "{id} ({sku}) is spot, which the profile says there is not"
            ));
        }
        if lacks(Capability::Fabric) && offer.internode != Internode::None {
            return broken(format!(
                "{id} ({sku}) has {} between nodes, which the profile denies",
                offer.internode
            ));
        }
        let counted = offer.availability.nodes.is_some() && !offer.availability.is_sold_out();
        if lacks(Capability::FreeCount) && counted {
            return broken(format!(
                "{id} ({sku}) counts free nodes, which the profile denies"
            ));
        }
    }
    Ok(())
}

pub(super) async fn ids_are_stable(bench: &Bench<'_>) -> Verdict {
    let ids = |reading: CatalogReading| {
        reading
            .offers
            .iter()
            .map(|offer| offer.offer_id)
            .collect::<BTreeSet<OfferId>>()
    };
    let first = ids(read(bench).await?);
    bench.world.advance(Duration::from_secs(60)).await;
    let second = ids(read(bench).await?);
    match first.symmetric_difference(&second).next() {
        Some(id) => broken(format!("{id} is in one reading and not in the other")),
        None => Ok(()),
    }
}
