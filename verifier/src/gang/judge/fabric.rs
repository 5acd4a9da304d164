//! Whether the measured network between nodes is the fabric that was sold.

use market::attestation::{Finding, FindingCode, Outcome, Weight};

use super::pairs::{Links, is_on_fabric, links};
use super::{collective, name, undone};
use crate::gang::Gang;
use crate::rules::finding;

/// For a fabric of adapters: met when every link used them; otherwise another network was measured.
pub(super) fn fabric(gang: &Gang) -> Option<Finding> {
    if !gang.sold_as.is_rdma() {
        return None;
    }
    let code = FindingCode::NetworkFabric;
    let undone = || Finding {
        weight: Weight::May,
        ..undone(code)
    };
    let Some(Links { measured, .. }) = links(gang) else {
        return Some(undone());
    };
    let Some(first) = measured.first() else {
        return Some(undone());
    };
    let elsewhere = measured.iter().find(|link| !is_on_fabric(gang, link));
    Some(match elsewhere {
        Some(link) => {
            let ends = [link.from, link.to];
            let without = ends
                .into_iter()
                .find(|node| super::pairs::adapter(gang, *node, link.rail).is_none());
            let by_nccl = match collective::is_summed(gang) {
                true => ", and by what way NCCL went is not shown",
                false => "",
            };
            let note = format!(
                "The adapters of {} to the fabric that was sold have no address: what was measured of it \
                 by TCP is the hosts' usual network{by_nccl}.",
                name(gang, without.unwrap_or(link.from))
            );
            finding(code, Outcome::NotRun, note)
        }
        None => {
            let of_first = measured.iter().filter(|link| link.pair() == first.pair());
            // Each adapter has two directions.
            let adapters = of_first.count() / 2;
            let note = format!(
                "Every pair was measured by TCP, over adapters that the nodes name as those to the fabric \
                 that was sold: {adapters} of each."
            );
            finding(code, Outcome::Met, note)
        }
    })
}
