//! How the GPUs of a node are joined, as far as their kind and number show.

use market::gpu::{GpuSpec, GpuVendor};

/// Whether NVLink joins all of this many GPUs. False for single GPUs and for cards with optional bridges.
#[must_use]
pub fn has_gpu_links(spec: &GpuSpec, gpus: u32) -> bool {
    let form = &spec.node_form;
    spec.vendor == GpuVendor::Nvidia
        && spec.nvlink_links.is_some_and(|links| links > 0)
        && gpus > 1
        && !form.contains("PCIe")
        && !form.contains("consumer")
}

/// Whether a switch joins them at the full rate of their links: whole boards of eight, and trays of a rack.
/// Smaller boards join each pair by some of their links.
#[must_use]
pub fn is_switched(spec: &GpuSpec, gpus: u32) -> bool {
    let form = &spec.node_form;
    has_gpu_links(spec, gpus) && (form.contains("HGX") && gpus == 8 || form.contains("NVL72"))
}

/// Whether every pair of its GPUs is joined alike, by a switch or by equally many links: boards of four and
/// eight from Ampere on, and trays. On older boards some pairs have two links, some one and some none.
#[must_use]
pub fn pairs_are_alike(spec: &GpuSpec, gpus: u32) -> bool {
    let form = &spec.node_form;
    has_gpu_links(spec, gpus) && (form.contains("HGX") || form.contains("NVL72"))
}

#[cfg(test)]
mod tests {
    use market::gpu::Gpu;

    use super::*;

    #[test]
    fn boards_of_eight_and_racks_are_switched_and_cards_with_bridges_are_not() {
        let joined = |gpu: &str, gpus| {
            let spec = Gpu::parse(gpu).expect("known").spec();
            (has_gpu_links(spec, gpus), is_switched(spec, gpus))
        };
        assert_eq!(joined("H100-SXM", 8), (true, true));
        assert_eq!(joined("H100-SXM", 4), (true, false));
        assert_eq!(joined("H100-SXM", 1), (false, false));
        assert_eq!(joined("GB200", 4), (true, true));
        assert_eq!(joined("H100-PCIe", 8), (false, false));
        assert_eq!(joined("RTX-4090", 8), (false, false));
        assert_eq!(joined("MI300X", 8), (false, false));
        let alike = |gpu: &str, gpus| {
            let spec = Gpu::parse(gpu).expect("known").spec();
            pairs_are_alike(spec, gpus)
        };
        assert!(alike("A100-SXM-80", 4) && alike("H100-SXM", 2) && alike("GB200", 4));
        assert!(!alike("V100-SXM2-32", 8) && !alike("H100-NVL", 2));
    }
}
