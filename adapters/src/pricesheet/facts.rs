//! Facts about sellers that the columns of a price list lack. Sources are beside the facts.

use market::fabric::Internode;
use market::offer::Tenancy;

/// Sellers whose rows are machines of other people, each at a price of its own.
///
/// Source: notes on each seller's documentation, collected 2026-11.
const MARKETPLACES: [&str; 1] = ["vast"];

/// Machine types whose GPUs are published with them: seller, SKU, accelerator, count.
///
/// Sources: cloud.google.com/compute/docs/gpus and aws.amazon.com/ec2/instance-types, collected 2026-11;
/// names of accelerators as in SkyPilot's catalogue.
const MACHINES: [(&str, &str, &str, u32); 36] = [
    ("gcp", "a2-highgpu-1g", "A100", 1),
    ("gcp", "a2-highgpu-2g", "A100", 2),
    ("gcp", "a2-highgpu-4g", "A100", 4),
    ("gcp", "a2-highgpu-8g", "A100", 8),
    ("gcp", "a2-megagpu-16g", "A100", 16),
    ("gcp", "a2-ultragpu-1g", "A100-80GB", 1),
    ("gcp", "a2-ultragpu-2g", "A100-80GB", 2),
    ("gcp", "a2-ultragpu-4g", "A100-80GB", 4),
    ("gcp", "a2-ultragpu-8g", "A100-80GB", 8),
    ("gcp", "a3-highgpu-1g", "H100", 1),
    ("gcp", "a3-highgpu-2g", "H100", 2),
    ("gcp", "a3-highgpu-4g", "H100", 4),
    ("gcp", "a3-highgpu-8g", "H100", 8),
    ("gcp", "a3-megagpu-8g", "H100-MEGA", 8),
    ("gcp", "a3-ultragpu-8g", "H200", 8),
    ("gcp", "a4-highgpu-8g", "B200", 8),
    ("gcp", "g2-standard-4", "L4", 1),
    ("gcp", "g2-standard-8", "L4", 1),
    ("gcp", "g2-standard-12", "L4", 1),
    ("gcp", "g2-standard-16", "L4", 1),
    ("gcp", "g2-standard-24", "L4", 2),
    ("gcp", "g2-standard-32", "L4", 1),
    ("gcp", "g2-standard-48", "L4", 4),
    ("gcp", "g2-standard-96", "L4", 8),
    ("aws", "p3.2xlarge", "V100", 1),
    ("aws", "p3.8xlarge", "V100", 4),
    ("aws", "p3.16xlarge", "V100", 8),
    ("aws", "p3dn.24xlarge", "V100-32GB", 8),
    ("aws", "p4d.24xlarge", "A100", 8),
    ("aws", "p4de.24xlarge", "A100-80GB", 8),
    ("aws", "p5.48xlarge", "H100", 8),
    ("aws", "g4dn.12xlarge", "T4", 4),
    ("aws", "g4dn.metal", "T4", 8),
    ("aws", "g5.48xlarge", "A10G", 8),
    ("aws", "g6.48xlarge", "L4", 8),
    ("aws", "g6e.48xlarge", "L40S", 8),
];

/// Machine types with any number of attached GPUs: seller, beginning of the SKU.
///
/// Source: cloud.google.com/compute/docs/gpus, collected 2026-11.
const HOSTS: [(&str, &str); 1] = [("gcp", "n1-")];

/// Sellers of other things than virtual machines.
///
/// Sources: notes on each seller's documentation, collected 2026-11: vast and runpod sell
/// containers on shared hosts, voltagepark machines without a hypervisor.
const TENANCIES: [(&str, Tenancy); 3] = [
    ("vast", Tenancy::Container),
    ("runpod", Tenancy::Container),
    ("voltagepark", Tenancy::BareMetal),
];

/// SKUs with a published network between nodes: seller, beginning and end of the SKU.
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

/// Whether the rows of a seller are machines of other people.
pub(super) fn is_marketplace(seller: &str) -> bool {
    MARKETPLACES.contains(&seller)
}

/// The accelerator of a machine type and how many of it there are, where that is published.
pub(super) fn accelerator_of(seller: &str, sku: &str) -> Option<(&'static str, u32)> {
    let mut machines = MACHINES.iter();
    let found = machines.find(|(of, machine, ..)| *of == seller && *machine == sku);
    found.map(|(.., accelerator, count)| (*accelerator, *count))
}

/// How many GPUs a SKU has, where that is published or part of the SKU: `gpu_8x_a100`, `8x_L4_SECURE`.
pub(super) fn gpus_of(seller: &str, sku: &str) -> Option<u32> {
    let published = accelerator_of(seller, sku).map(|(_, count)| count);
    let written = || {
        let (count, _) = sku.strip_prefix("gpu_").unwrap_or(sku).split_once('x')?;
        let rest = &sku[sku.find('x')? + 1..];
        rest.starts_with(['_', '-', ' '])
            .then(|| count.parse().ok())?
    };
    published.or_else(written)
}

/// Whether this machine type takes any number of GPUs.
pub(super) fn is_host(seller: &str, sku: &str) -> bool {
    HOSTS
        .iter()
        .any(|(of, begin)| *of == seller && sku.starts_with(begin))
}

/// The kind of machine that a seller sells.
pub(super) fn tenancy(seller: &str) -> Tenancy {
    TENANCIES
        .iter()
        .find(|(name, _)| *name == seller)
        .map_or(Tenancy::Vm, |(_, tenancy)| *tenancy)
}

/// The network between the nodes of a SKU, where that is published.
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
    fn the_count_of_a_sku_is_the_published_one_or_the_one_that_stands_in_it() {
        for (seller, sku, gpus) in [
            ("gcp", "a2-megagpu-16g", Some(16)),
            ("aws", "p4d.24xlarge", Some(8)),
            ("lambda", "gpu_8x_a100_80gb_sxm4", Some(8)),
            ("runpod", "2x_A100-80GB-SXM4_SECURE", Some(2)),
            ("vast", "1x-RTX_5090-32-65536", Some(1)),
            ("aws", "g5.xlarge", None),
            ("gcp", "n1-standard-8", None),
            ("acme", "box", None),
        ] {
            assert_eq!(gpus_of(seller, sku), gpus, "{sku}");
        }
    }

    #[test]
    fn a_seller_of_whom_nothing_else_is_known_sells_virtual_machines() {
        assert_eq!(tenancy("vast"), Tenancy::Container);
        assert_eq!(tenancy("somebody-new"), Tenancy::Vm);
    }
}
