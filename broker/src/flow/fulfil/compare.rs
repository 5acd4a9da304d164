//! Compares the machines a provider created with the order.

use market::order::{LeaseOrder, ProviderLease};

/// The difference between the provider's machines and the order; `None` when all its statements agree.
///
/// A missing statement is no difference here: the verification checks the rest.
#[must_use]
pub fn mismatch(order: &LeaseOrder, made: &ProviderLease) -> Option<String> {
    let offer = &order.offer;
    if let Some(sku) = made.sku.as_deref().filter(|sku| *sku != offer.sku) {
        return Some(format!("{} was ordered and {sku} was made", offer.sku));
    }
    if let (Some(region), Some(wanted)) = (made.region.as_deref(), offer.place.region.as_deref())
        && region != wanted
    {
        return Some(format!("{wanted} was ordered and it stands in {region}"));
    }
    if let Some(nodes) = made.node_count.filter(|nodes| *nodes != order.nodes) {
        return Some(format!(
            "{} nodes were ordered and {nodes} were made",
            order.nodes
        ));
    }
    if let (Some(gpus), Some(wanted)) = (made.gpus_per_node, offer.gpus.as_whole())
        && gpus != wanted
    {
        return Some(format!(
            "nodes of {wanted} GPUs were ordered and have {gpus}"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use market::order::ProviderLeaseState;

    use super::*;
    use crate::samples;

    fn made() -> ProviderLease {
        ProviderLease::new("x", ProviderLeaseState::Pending, "booting")
    }

    #[test]
    fn silence_is_no_disagreement() {
        assert_eq!(mismatch(&samples::order(2), &made()), None);
    }

    #[test]
    fn each_fact_that_disagrees_is_named() {
        let order = samples::order(2);
        let wrong = [
            ProviderLease {
                sku: Some("other".into()),
                ..made()
            },
            ProviderLease {
                region: Some("elsewhere".into()),
                ..made()
            },
            ProviderLease {
                node_count: Some(1),
                ..made()
            },
            ProviderLease {
                gpus_per_node: Some(4),
                ..made()
            },
        ];
        for (made, word) in wrong
            .iter()
            .zip(["other", "elsewhere", "1 were made", "have 4"])
        {
            let words = mismatch(&order, made).expect("a disagreement");
            assert!(words.contains(word), "{words}");
        }
    }
}
