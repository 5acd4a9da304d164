//! Rows that the rest of their own list contradicts: they are set aside and reported, never the cheapest.

use std::collections::{BTreeMap, HashMap};

use market::catalog::SkipReason;
use market::gpu::GpuIdentity;
use market::ids::ProviderId;
use market::offer::{Offer, Terms};

use super::facts;
use super::row::Draft;
use crate::gate::Rejection;

/// How many rows of a SKU must agree to contradict a single one that differs.
const FEWEST_TO_AGREE: usize = 3;

/// A price of several GPUs below this part of the price of one GPU for each is not plausible: no seller's
/// discount for a whole node is near it. Units: per cent.
const LEAST_PART_PER_CENT: i128 = 60;

/// The contradicted rows, each with the reason.
pub(super) fn find(drafts: &[(u64, Draft)]) -> BTreeMap<u64, Rejection> {
    let counts = Counts::of(drafts);
    let prices = one_gpu_prices(drafts);
    let mut found = BTreeMap::new();
    for (row, draft) in drafts {
        let offer = &draft.offer;
        let why = counts
            .contradict(offer)
            .or_else(|| too_cheap(offer, &prices));
        if let Some(why) = why {
            let rejection = Rejection::new(SkipReason::ContradictsList, why);
            found.entry(*row).or_insert(rejection);
        }
    }
    found
}

/// How many rows of each SKU give it each count of GPUs of a kind.
struct Counts<'d>(HashMap<(&'d ProviderId, &'d str, &'d GpuIdentity), BTreeMap<u32, usize>>);

impl<'d> Counts<'d> {
    fn of(drafts: &'d [(u64, Draft)]) -> Self {
        let mut counts: HashMap<_, BTreeMap<u32, usize>> = HashMap::new();
        let mut counted = None;
        for (row, Draft { offer, .. }) in drafts {
            // Both prices of a row are next to each other.
            if counted.replace(row) != Some(row)
                && let Some(gpus) = offer.gpus.as_whole()
            {
                let sku = (&offer.provider, offer.sku.as_str(), &offer.gpu);
                *counts.entry(sku).or_default().entry(gpus).or_default() += 1;
            }
        }
        Self(counts)
    }

    fn contradict(&self, offer: &Offer) -> Option<String> {
        let gpus = offer.gpus.as_whole()?;
        let (seller, sku) = (offer.provider.as_str(), offer.sku.as_str());
        if let Some(published) = facts::gpus_of(seller, sku) {
            return (published != gpus)
                .then(|| format!("it says {gpus} GPUs, and the SKU has {published}"));
        }
        if facts::is_host(seller, sku) {
            return None;
        }
        let said = self.0.get(&(&offer.provider, sku, &offer.gpu))?;
        let (usual, rows) = said.iter().max_by_key(|(_, rows)| **rows)?;
        let others: usize = said.values().sum::<usize>() - rows;
        let contradicts = *usual != gpus && *rows >= FEWEST_TO_AGREE.max(others * 3);
        contradicts.then(|| format!("it says {gpus} GPUs, and {rows} rows of the SKU say {usual}"))
    }
}

/// The seller, GPU, place and terms of a sale. A GPU under another name is of other machines (`H100-MEGA`),
/// which have a price of their own.
type Sold<'d> = (
    &'d ProviderId,
    &'d GpuIdentity,
    &'d str,
    Option<&'d str>,
    Terms,
);

fn sold(offer: &Offer) -> Sold<'_> {
    let region = offer.place.region.as_deref();
    let name = offer.raw_gpu_name.as_str();
    (&offer.provider, &offer.gpu, name, region, offer.terms)
}

/// Whether the price is mainly that of the GPUs. It is not for a host that costs as much without any, for a
/// price from a provider's auction, or for machines of many owners.
fn grows_with_gpus(offer: &Offer) -> bool {
    let seller = offer.provider.as_str();
    offer.terms != Terms::Spot
        && !facts::is_marketplace(seller)
        && !facts::is_host(seller, &offer.sku)
}

/// The lowest price of one GPU. Units: USD 1e-8 an hour.
fn one_gpu_prices(drafts: &[(u64, Draft)]) -> HashMap<Sold<'_>, i64> {
    let mut prices: HashMap<Sold<'_>, i64> = HashMap::new();
    for (_, Draft { offer, .. }) in drafts {
        if offer.gpus.as_whole() == Some(1) && grows_with_gpus(offer) {
            let price = offer.price_per_node_hour.units();
            let least = prices.entry(sold(offer)).or_insert(price);
            *least = price.min(*least);
        }
    }
    prices
}

/// Why a price is too low for its count of GPUs, in words.
fn too_cheap(offer: &Offer, one_gpu_prices: &HashMap<Sold<'_>, i64>) -> Option<String> {
    let whole = offer.gpus.as_whole().filter(|_| grows_with_gpus(offer));
    let gpus = whole.filter(|gpus| *gpus > 1)?;
    let of_one = one_gpu_prices.get(&sold(offer))?;
    let price = i128::from(offer.price_per_node_hour.units()) * 100;
    let least = i128::from(*of_one) * i128::from(gpus) * LEAST_PART_PER_CENT;
    (price < least).then(|| {
        format!(
            "{gpus} GPUs for {} USD an hour is less than {LEAST_PART_PER_CENT} % of what the list asks \
             for one, {gpus} times",
            offer.price_per_node_hour
        )
    })
}
