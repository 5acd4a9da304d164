//! What the columns of a price list do not say of its sellers. Sources are beside the facts.

use market::fabric::Internode;
use market::offer::Tenancy;

/// Sellers whose sheets give the memory of all GPUs of a row together.
///
/// Sources: the note on the columns of the public lists that came with `vast` (May 2026);
/// `primeintellect/vms.csv` of SkyPilot's catalogue v8 (655,360 MiB for 8 x A100-80GB).
const MEMORY_IS_A_SUM: [&str; 2] = ["vast", "primeintellect"];

/// Sellers of something else than virtual machines.
///
/// Sources: notes on each seller's documentation, collected 2026-11: vast and runpod sell
/// containers on shared hosts, voltagepark machines without a hypervisor.
const TENANCIES: [(&str, Tenancy); 3] = [
    ("vast", Tenancy::Container),
    ("runpod", Tenancy::Container),
    ("voltagepark", Tenancy::BareMetal),
];

/// SKUs whose network between nodes is published: seller, beginning and end of the SKU.
///
/// Sources: notes on each seller's documentation, collected 2026-11. azure: ND A100 v4 has 8 x
/// 200 Gb/s InfiniBand, ND H100 and H200 v5 8 x 400. gcp (medium certainty): A3 Mega has TCPXO,
/// no rate in these terms; A3 Ultra and A4 RoCE, 3,200 Gb/s a node of eight. lambda: machines on
/// demand share no fabric. vast: no product of several nodes.
const INTERNODES: [(&str, &str, &str, Internode); 9] = [
    (
        "azure",
        "Standard_ND96asr_",
        "v4",
        Internode::InfinibandHdr200,
    ),
    (
        "azure",
        "Standard_ND96amsr_",
        "v4",
        Internode::InfinibandHdr200,
    ),
    (
        "azure",
        "Standard_ND96isr_H100",
        "v5",
        Internode::InfinibandNdr400,
    ),
    (
        "azure",
        "Standard_ND96isr_H200",
        "v5",
        Internode::InfinibandNdr400,
    ),
    ("gcp", "a3-megagpu-8g", "", Internode::Proprietary),
    ("gcp", "a3-ultragpu-8g", "", Internode::Roce400),
    ("gcp", "a4-highgpu-8g", "", Internode::Roce400),
    ("lambda", "gpu_", "", Internode::None),
    ("vast", "", "", Internode::None),
];

/// Whether the memory column is the sum over the GPUs of a row.
pub(super) fn memory_is_a_sum(seller: &str) -> bool {
    MEMORY_IS_A_SUM.contains(&seller)
}

/// What kind of machine a seller sells.
pub(super) fn tenancy(seller: &str) -> Tenancy {
    TENANCIES
        .iter()
        .find(|(name, _)| *name == seller)
        .map_or(Tenancy::Vm, |(_, tenancy)| *tenancy)
}

/// What joins the nodes of a SKU, where that is published.
pub(super) fn internode(seller: &str, sku: &str) -> Internode {
    INTERNODES
        .iter()
        .find(|(name, begin, end, _)| {
            *name == seller && sku.starts_with(begin) && sku.ends_with(end)
        })
        .map_or(Internode::Unknown, |(.., internode)| *internode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_is_known_only_where_it_is_published() {
        assert_eq!(
            internode("azure", "Standard_ND96isr_H100_v5"),
            Internode::InfinibandNdr400
        );
        assert_eq!(
            internode("azure", "Standard_NC96ads_A100_v4"),
            Internode::Unknown
        );
        assert_eq!(
            internode("nebius", "gpu-h100-sxm_8gpu-128vcpu-1600gb"),
            Internode::Unknown
        );
        assert_eq!(internode("gcp", "a3-megagpu-8g"), Internode::Proprietary);
    }

    #[test]
    fn a_seller_of_whom_nothing_else_is_known_sells_virtual_machines() {
        assert_eq!(tenancy("vast"), Tenancy::Container);
        assert_eq!(tenancy("somebody-new"), Tenancy::Vm);
    }
}
