//! What a node is good for, as far as it follows from the GPU's published form.

use market::gpu::GpuSpec;

/// GPUs that a node must have to work in a gang with others.
pub(crate) const GANG_NODE_GPUS: u32 = 4;

/// GPUs of a whole training node.
const WHOLE_NODE_GPUS: u32 = 8;

/// Memory below which full training is done on better GPUs first. Units: GB.
const TRAINING_MEMORY_GB: f64 = 80.0;

/// Whether the GPUs of a node are joined all to all, not by PCI Express or bridges of two or four.
///
/// It follows from the form: HGX and OAM boards and NVL72 trays, and the SXM2 boards before them.
pub(crate) fn joined_all_to_all(spec: &GpuSpec) -> bool {
    ["HGX", "OAM", "NVL72"]
        .iter()
        .any(|form| spec.node_form.contains(form))
        || spec.canonical.contains("-SXM")
}

/// GPUs that one NVLink or xGMI domain joins, where they are joined all to all.
pub(crate) fn nvlink_domain_gpus(spec: &GpuSpec) -> u32 {
    if spec.node_form.contains("NVL72") {
        72
    } else if spec.canonical.contains("-SXM2") {
        // The boards with eight join them by halves.
        4
    } else {
        WHOLE_NODE_GPUS
    }
}

/// Whether this is the class of node that full training is done on: eight GPUs joined all to all
/// (or a tray of a larger such domain), with memory enough.
pub(crate) fn is_training_class(spec: &GpuSpec, gpus: u32) -> bool {
    let whole = gpus >= WHOLE_NODE_GPUS || spec.node_form.contains("NVL72");
    whole && joined_all_to_all(spec) && spec.memory_gb >= TRAINING_MEMORY_GB
}

#[cfg(test)]
mod tests {
    use market::gpu::Gpu;

    use super::*;

    fn spec(name: &str) -> &'static GpuSpec {
        Gpu::parse(name).expect("a GPU").spec()
    }

    #[test]
    fn bridges_and_pci_express_do_not_join_all_to_all() {
        for name in [
            "H100-SXM",
            "B200-SXM",
            "GB200",
            "MI300X",
            "A100-SXM-40",
            "V100-SXM2-16",
        ] {
            assert!(joined_all_to_all(spec(name)), "{name}");
        }
        for name in [
            "H100-PCIe",
            "H100-NVL",
            "H200-NVL",
            "A100-PCIe-80",
            "L40S",
            "RTX-4090",
            "GH200-96",
        ] {
            assert!(!joined_all_to_all(spec(name)), "{name}");
        }
    }

    #[test]
    fn the_training_class_is_whole_boards_with_memory_enough() {
        assert!(is_training_class(spec("H100-SXM"), 8));
        assert!(is_training_class(spec("GB200"), 4));
        assert!(!is_training_class(spec("H100-SXM"), 4));
        assert!(!is_training_class(spec("A100-SXM-40"), 8));
        assert!(!is_training_class(spec("H100-PCIe"), 8));
    }
}
