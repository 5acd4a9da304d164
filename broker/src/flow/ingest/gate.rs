//! The second gate: an implausible claim of a reading as a whole becomes no offer.
//!
//! The first gate, record by record, is in the adapters. This gate compares the records of a reading with
//! each other and stands between every reading and the ledger. A record that it takes out is counted with a
//! reason, never dropped unnamed.

use std::collections::HashMap;

use market::catalog::{CatalogReading, SkipReason, Skipped, spot_above_on_demand};
use market::money::Money;
use market::offer::{MAX_NODES, Offer, Terms};
use verifier::order::is_drivable;

/// Takes implausible offers out of a reading and names each among the skipped.
#[must_use]
pub fn admit(mut reading: CatalogReading) -> CatalogReading {
    let on_demand = on_demand_prices(&reading.offers);
    let mut refused = Vec::new();
    reading
        .offers
        .retain(|offer| match refusal(offer, &on_demand) {
            None => true,
            Some((reason, why)) => {
                refused.push(Skipped {
                    file: None,
                    row: None,
                    rows: 1,
                    sku: Some(offer.sku.clone()),
                    reason,
                    why,
                });
                false
            }
        });
    reading.skipped.extend(refused);
    reading
}

/// Lets nothing be ordered whose nodes no agent could ever verify: such an offer can be compared and no
/// more, like one of a price list.
pub fn order_only_what_can_be_proved(reading: &mut CatalogReading) {
    for offer in &mut reading.offers {
        offer.orderable &= offer.gpu.known().is_none_or(is_drivable);
    }
}

type Identity = (String, Option<String>, Option<String>);

fn identity(offer: &Offer) -> Identity {
    (
        offer.sku.clone(),
        offer.place.region.clone(),
        offer.place.zone.clone(),
    )
}

fn on_demand_prices(offers: &[Offer]) -> HashMap<Identity, Money> {
    let mut prices: HashMap<Identity, Money> = HashMap::new();
    for offer in offers.iter().filter(|offer| offer.terms == Terms::OnDemand) {
        let price = offer.price_per_node_hour;
        prices
            .entry(identity(offer))
            .and_modify(|known| *known = (*known).max(price))
            .or_insert(price);
    }
    prices
}

fn refusal(offer: &Offer, on_demand: &HashMap<Identity, Money>) -> Option<(SkipReason, String)> {
    let price = offer.price_per_node_hour;
    if !price.is_positive() {
        let why = format!("a price of {price} means that the price is unknown");
        return Some((SkipReason::NoPrice, why));
    }
    if let Err(error) = offer.rate() {
        return Some((SkipReason::ImplausiblePrice, error.to_string()));
    }
    if offer.terms == Terms::Spot
        && let Some(whole) = on_demand.get(&identity(offer))
        && let Some(why) = spot_above_on_demand(price, *whole)
    {
        return Some((SkipReason::SpotAboveOnDemand, why));
    }
    offer
        .availability
        .nodes
        .filter(|nodes| *nodes > MAX_NODES)
        .map(|nodes| {
            (
                SkipReason::ImpossibleCount,
                format!("{nodes} free nodes are more than anyone has"),
            )
        })
}

#[cfg(test)]
mod tests {
    use market::gpu::{Gpu, GpuIdentity};
    use market::offer::Availability;

    use super::*;
    use crate::samples;

    fn admitted(offers: Vec<Offer>) -> CatalogReading {
        admit(samples::reading(offers))
    }

    #[test]
    fn a_price_of_zero_is_unknown_and_counted() {
        let mut offer = samples::offer("a");
        offer.price_per_node_hour = Money::usd_units(0);
        let reading = admitted(vec![offer, samples::offer("b")]);
        assert_eq!(reading.offers.len(), 1);
        assert_eq!(reading.skipped[0].reason, SkipReason::NoPrice);
    }

    #[test]
    fn spot_above_on_demand_drops_the_spot_offer_only() {
        let on_demand = samples::offer("a");
        let mut spot = samples::offer("a");
        spot.terms = Terms::Spot;
        spot.price_per_node_hour = on_demand
            .price_per_node_hour
            .checked_mul(2)
            .expect("a price");
        let reading = admitted(vec![on_demand.clone(), spot]);
        assert_eq!(reading.offers, vec![on_demand]);
        assert_eq!(reading.skipped[0].reason, SkipReason::SpotAboveOnDemand);
    }

    #[test]
    fn what_no_agent_drives_can_be_compared_and_not_ordered() {
        // Another vendor's, one on an Arm host, one without kernels; and one that is driven.
        let of = |gpu: &str| {
            let mut offer = samples::offer(gpu);
            offer.gpu = GpuIdentity::Known(Gpu::parse(gpu).expect("in the catalogue"));
            offer
        };
        let offers = ["MI300X", "GH200-96", "P100-PCIe-16", "H100-SXM"].map(of);
        let mut reading = admitted(offers.to_vec());
        order_only_what_can_be_proved(&mut reading);
        let orderable = reading.offers.iter().map(|offer| offer.orderable);
        assert_eq!(orderable.collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn more_free_nodes_than_anyone_has_are_refused() {
        let mut offer = samples::offer("a");
        offer.availability = Availability::exactly(u32::MAX);
        assert_eq!(
            admitted(vec![offer]).skipped[0].reason,
            SkipReason::ImpossibleCount
        );
    }
}
