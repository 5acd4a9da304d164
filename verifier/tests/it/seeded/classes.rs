//! The classes of failure of leased nodes, and the nodes that each can affect.

use market::gpu::Gpu;
use verifier::board;
use verifier::pretend::{Kind, SeededRng};

use super::broken::*;
use super::fraud::fraud;
use super::node::Seeded;

/// One class.
pub struct Class {
    /// Its name in `docs/verification-checks.md`.
    pub name: &'static str,
    /// The fault.
    pub what: &'static str,
    /// Whether it can affect such a node.
    pub befalls: fn(&Kind) -> bool,
    /// Breaks a good node and says how.
    pub befall: fn(&mut Seeded, &mut SeededRng) -> String,
}

pub const CLASSES: &[Class] = &[
    Class {
        name: "F1",
        what: "GPU gone from the bus",
        befalls: any,
        befall: lost,
    },
    Class {
        name: "F2",
        what: "container loses its GPUs",
        befalls: any,
        befall: withdrawn,
    },
    Class {
        name: "F3",
        what: "fabric manager missing or not ready",
        befalls: switched,
        befall: fabric,
    },
    Class {
        name: "F4",
        what: "links between GPUs absent or partly up",
        befalls: linked,
        befall: links,
    },
    Class {
        name: "F5",
        what: "memory dying",
        befalls: corrects,
        befall: memory,
    },
    Class {
        name: "F6",
        what: "slow or capped GPU",
        befalls: any,
        befall: slow,
    },
    Class {
        name: "F7",
        what: "slowed by heat or power supply",
        befalls: any,
        befall: hot,
    },
    Class {
        name: "F8",
        what: "host link narrow or slow",
        befalls: on_pcie,
        befall: host_link,
    },
    Class {
        name: "F9",
        what: "port to other nodes down, slow or flapping",
        befalls: on_network,
        befall: port,
    },
    Class {
        name: "F10",
        what: "GPU left in slices",
        befalls: slices,
        befall: sliced,
    },
    Class {
        name: "F11",
        what: "tenant before still there",
        befalls: any,
        befall: residue,
    },
    Class {
        name: "F12",
        what: "silent data corruption",
        befalls: any,
        befall: corruption,
    },
    Class {
        name: "F13",
        what: "fewer or other GPUs than sold",
        befalls: passed_off,
        befall: fraud,
    },
    Class {
        name: "F14",
        what: "tools blind in a container",
        befalls: corrects,
        befall: blind,
    },
];

fn any(_: &Kind) -> bool {
    true
}

fn switched(kind: &Kind) -> bool {
    let tells = ["Hopper", "Blackwell", "Blackwell Ultra"];
    board::is_switched(kind.gpu.spec(), kind.gpus) && tells.contains(&kind.gpu.spec().arch.as_str())
}

fn linked(kind: &Kind) -> bool {
    board::has_gpu_links(kind.gpu.spec(), kind.gpus)
}

fn corrects(kind: &Kind) -> bool {
    kind.gpu.spec().ecc_default.as_deref() == Some("on")
}

fn on_pcie(kind: &Kind) -> bool {
    kind.gpu.spec().pcie_gen.as_deref() != Some("C2C")
}

fn on_network(kind: &Kind) -> bool {
    kind.internode.gbps_per_gpu().is_some()
}

fn slices(kind: &Kind) -> bool {
    kind.gpu.spec().mig_max_instances.unwrap_or(0) > 0
}

fn passed_off(kind: &Kind) -> bool {
    lookalike(kind).is_some()
}

/// A GPU that could be passed off as this one.
pub fn lookalike(kind: &Kind) -> Option<Gpu> {
    let other = match kind.gpu.name() {
        "H100-SXM" => ["H100-PCIe", "H800-SXM"][kind.gpus as usize / 8],
        "H200-SXM" => ["H20-3e", "H20"][kind.gpus as usize / 8],
        "A100-SXM-80" => "A100-PCIe-40",
        "A100-PCIe-80" => "A100-PCIe-40",
        "L40S" => "L40",
        "A10" => "A10G",
        "RTX-A6000" => "A40",
        "RTX-4090" => "RTX-3090",
        "RTX-5090" => "RTX-4090",
        _ => return None,
    };
    Some(Gpu::parse(other).expect("known"))
}
