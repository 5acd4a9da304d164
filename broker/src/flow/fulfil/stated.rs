//! Compares the price that a provider states for a lease with the quoted price.
//!
//! We will owe the stated price, so it is kept with the lease and booked by [`crate::flow::meter`]. The
//! tenant pays the quoted rate in every case.

use market::money::Money;
use store::leases::Lease;
use tracing::warn;

use super::learned::Learned;

/// The largest factor between the stated and the quoted price, either way. A price farther off counts as a
/// price of another unit (of one GPU, of all nodes): unknown, never booked.
const FARTHEST: i128 = 4;
/// The fraction of the quoted price that counts as no difference: the rounding of a division by nodes.
const HAIR: i128 = 1_000;

/// The price to keep with a lease: the first credible one, because providers bill a machine at its price at
/// launch. `None` when there is nothing new to keep.
pub(super) fn to_keep(lease: &Lease, learned: &Learned) -> Option<Money> {
    let quoted = lease.offer.price_per_node_hour;
    learned
        .price_per_node_hour
        .filter(|stated| lease.price_per_node_hour.is_none() && is_credible(quoted, *stated))
}

/// A remark for finance on the price of a lease; `None` when it is as quoted or not stated.
pub(super) fn remark(lease: &Lease, learned: &Learned) -> Option<String> {
    let quoted = lease.offer.price_per_node_hour;
    let stated = lease.price_per_node_hour.or(learned.price_per_node_hour)?;
    if !is_credible(quoted, stated) {
        return Some(format!(
            "the provider states {stated} USD for a node and hour that was quoted at {quoted}; the \
             broker does not trust this price: compare the provider's bill"
        ));
    }
    differs(quoted, stated).then(|| {
        format!(
            "the provider bills {stated} USD for a node and hour that was quoted at {quoted}; the \
             tenant pays as quoted"
        )
    })
}

/// Logs, once for each lease, a price that is not the quoted one.
pub(super) fn tell(lease: &Lease, learned: &Learned) {
    if lease.price_per_node_hour.is_some() {
        return;
    }
    if let Some(remark) = remark(lease, learned) {
        warn!(
            lease.id = %lease.id, provider.id = %lease.offer.provider, offer.id = %lease.offer.offer_id,
            "The price of lease {} moved: {remark}", lease.id
        );
    }
}

fn is_credible(quoted: Money, stated: Money) -> bool {
    let (quoted_units, stated_units) = (i128::from(quoted.units()), i128::from(stated.units()));
    quoted.currency() == stated.currency()
        && stated.is_positive()
        && stated_units <= quoted_units * FARTHEST
        && stated_units * FARTHEST >= quoted_units
}

/// Whether two prices differ by more than a hair.
pub(crate) fn differs(quoted: Money, stated: Money) -> bool {
    let quoted_units = i128::from(quoted.units());
    let apart = (i128::from(stated.units()) - quoted_units).abs();
    quoted.currency() != stated.currency() || apart * HAIR > quoted_units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(units: i64) -> Money {
        Money::usd_units(units)
    }

    #[test]
    fn a_price_of_another_unit_is_not_believed_and_a_dearer_one_is() {
        let quoted = usd(1_992_000_000);
        for (stated, credible) in [
            (1_992_000_000, true),
            (2_568_000_000, true),
            (996_000_000, true),
            // Of one GPU in place of eight, and of eight nodes in place of one.
            (249_000_000, false),
            (15_936_000_000, false),
            (0, false),
            (-1_992_000_000, false),
        ] {
            assert_eq!(is_credible(quoted, usd(stated)), credible, "{stated}");
        }
    }

    #[test]
    fn what_a_division_leaves_is_no_difference() {
        assert!(!differs(usd(1_992_000_000), usd(1_992_000_001)));
        assert!(differs(usd(1_992_000_000), usd(1_995_000_000)));
        assert!(differs(usd(1_992_000_000), usd(1_980_000_000)));
    }
}
