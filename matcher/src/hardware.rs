//! The uses of a node that follow from the GPU's published form.

use std::sync::LazyLock;

use market::gpu::{Gpu, GpuIdentity, GpuSpec};
use market::offer::Tenancy;
use serde::Deserialize;

use crate::perf::chip::Architecture;

/// GPUs that a node must have to be used in a multi-node job.
pub(crate) const GANG_NODE_GPUS: u32 = 4;

/// GPUs of a whole training node.
const WHOLE_NODE_GPUS: u32 = 8;

/// Memory below which full training is done on better GPUs first. Units: GB.
const TRAINING_MEMORY_GB: f64 = 80.0;

/// The link speed of a generation's boards. A training node with slower links gets a warning.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkFloor {
    architecture: Architecture,
    /// A GPU on such a board, for a reader.
    pub(crate) board: String,
    /// The links of one GPU, both directions together.
    pub(crate) gb_s_bidirectional: f64,
    // Read so that a row without a source is refused; never shown.
    #[serde(rename = "source")]
    _source: String,
}

static LINK_FLOORS: LazyLock<Vec<LinkFloor>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("../data/link_floors.csv").as_bytes())
        .into_deserialize()
        .collect::<Result<_, _>>()
        // The bytes are part of the program, and a test below reads all rows.
        .unwrap_or_else(|error| panic!("the table of link floors cannot be read: {error}"))
});

/// The floor of a generation; `None` where none of its GPUs is built on such boards.
pub(crate) fn link_floor(architecture: Architecture) -> Option<&'static LinkFloor> {
    let mut floors = LINK_FLOORS.iter();
    floors.find(|floor| floor.architecture == architecture)
}

/// Whether the GPUs of a node are connected all to all, not by PCI Express or bridges of two or four.
///
/// It follows from the form: HGX and OAM boards and NVL72 trays, and the SXM2 boards before them.
pub(crate) fn joined_all_to_all(spec: &GpuSpec) -> bool {
    ["HGX", "OAM", "NVL72"]
        .iter()
        .any(|form| spec.node_form.contains(form))
        || spec.canonical.contains("-SXM")
}

/// GPUs of one NVLink or xGMI domain, where they are connected all to all.
pub(crate) fn nvlink_domain_gpus(spec: &GpuSpec) -> u32 {
    if spec.node_form.contains("NVL72") {
        72
    } else if spec.canonical.contains("-SXM2") {
        // The boards with eight connect them in two halves.
        4
    } else {
        WHOLE_NODE_GPUS
    }
}

/// GPUs of a node of this size that may share a matrix: those of one domain, or one GPU where they are not
/// connected all to all.
pub(crate) fn tensor_domain_gpus(spec: &GpuSpec, gpus_per_node: u32) -> u32 {
    if joined_all_to_all(spec) {
        nvlink_domain_gpus(spec).min(gpus_per_node)
    } else {
        1
    }
}

/// The GPU, or for an open form with this memory the weakest GPU that it may be: the one that is better than
/// the others in nothing. `None` where there is no such GPU. Units: MiB.
pub(crate) fn least_form(gpu: &GpuIdentity, memory_mib: Option<u64>) -> Option<Gpu> {
    if let Some(known) = gpu.known() {
        return Some(known);
    }
    let may_be =
        |form: &Gpu| memory_mib.is_none_or(|mib| GpuIdentity::Known(*form).may_have_memory(mib));
    let forms: Vec<Gpu> = gpu.forms().filter(may_be).collect();
    let is_least = |one: &&Gpu| {
        forms
            .iter()
            .all(|other| is_no_better(one.spec(), other.spec()))
    };
    forms.iter().find(is_least).copied()
}

/// Whether a GPU is in nothing better than another one of its family. What is not published is none.
fn is_no_better(one: &GpuSpec, other: &GpuSpec) -> bool {
    let figures = |spec: &GpuSpec| {
        let rates = [
            spec.fp16_tflops_dense,
            spec.bf16_tflops_dense,
            spec.fp8_tflops_dense,
            spec.fp4_tflops_dense,
            spec.int8_tops_dense,
            spec.nvlink_gbps_bidirectional,
        ];
        let known = [spec.memory_gb, spec.memory_bandwidth_gbps];
        known
            .into_iter()
            .chain(rates.map(Option::unwrap_or_default))
    };
    one.arch == other.arch
        && joined_all_to_all(one) <= joined_all_to_all(other)
        && figures(one).zip(figures(other)).all(|(a, b)| a <= b)
}

/// The kind of machine of a training run; a better one compares as smaller. It decides only among runs that
/// cost nearly the same, where a prediction's error is larger than the difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TrainingClass {
    machine: Machine,
    /// Whether full training uses less than whole boards with enough memory.
    small: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Machine {
    #[default]
    BareMetal,
    Vm,
    Other,
    BareMetalOverEthernet,
    OtherOverEthernet,
}

impl TrainingClass {
    /// `joined` is true where the run exchanges nothing over plain Ethernet.
    pub(crate) const fn of(tenancy: Tenancy, joined: bool, small: bool) -> Self {
        let machine = match (joined, tenancy) {
            (true, Tenancy::BareMetal) => Machine::BareMetal,
            (true, Tenancy::Vm) => Machine::Vm,
            (true, Tenancy::Container | Tenancy::Managed) => Machine::Other,
            (false, Tenancy::BareMetal) => Machine::BareMetalOverEthernet,
            (false, _) => Machine::OtherOverEthernet,
        };
        Self { machine, small }
    }

    /// Its name, to follow `runs on`.
    pub(crate) fn words(self) -> String {
        let machine = match self.machine {
            Machine::BareMetal => "bare metal",
            Machine::Vm => "virtual machines",
            Machine::Other => "containers or a managed cluster",
            Machine::BareMetalOverEthernet => "bare metal over Ethernet",
            Machine::OtherOverEthernet => "other machines over Ethernet",
        };
        let boards = if self.small {
            ", not whole boards of 80 GB and more"
        } else {
            ""
        };
        format!("{machine}{boards}")
    }
}

/// Whether this class of node suits full training: eight GPUs connected all to all (or a tray of a larger
/// such domain), with enough memory.
pub(crate) fn is_training_class(spec: &GpuSpec, gpus: u32) -> bool {
    let whole = gpus >= WHOLE_NODE_GPUS || spec.node_form.contains("NVL72");
    whole && joined_all_to_all(spec) && spec.memory_gb >= TRAINING_MEMORY_GB
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::chip::Chip;

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

    // S24
    #[test]
    fn each_generation_has_the_floor_of_its_boards() {
        for (name, published) in [
            ("V100-SXM2-32", 300.0),
            ("A100-SXM-80", 600.0),
            ("H100-SXM", 900.0),
            ("B200-SXM", 1_800.0),
            ("MI300X", 896.0),
            ("MI355X", 1_075.0),
        ] {
            let chip = Chip::of_spec(spec(name)).expect("a chip");
            let floor = link_floor(chip.architecture).expect("a floor");
            assert_eq!(floor.board, name);
            assert_eq!(floor.gb_s_bidirectional, published);
            assert_eq!(spec(name).nvlink_gbps_bidirectional, Some(published));
            assert!(
                2.0 * chip.link_bytes_per_second >= published * 1e9,
                "{name}"
            );
        }
        let ada = Chip::of_spec(spec("L40S")).expect("a chip").architecture;
        assert_eq!(link_floor(ada), None);
    }

    #[test]
    fn an_open_form_is_the_least_that_it_may_be() {
        for (family, gib, least) in [
            ("A100", Some(80), Some("A100-PCIe-80")),
            ("A100", None, Some("A100-PCIe-40")),
            ("H100", Some(80), Some("H100-PCIe")),
            ("H100", Some(94), Some("H100-NVL")),
            ("V100", Some(32), Some("V100-PCIe-32")),
            ("H100", Some(40), None),
            ("GPU-A", None, None),
        ] {
            let open = GpuIdentity::parse(family).expect("a family");
            let found = least_form(&open, gib.map(|gib| gib * 1_024));
            assert_eq!(found.map(Gpu::name), least, "{family} {gib:?}");
        }
        let known = Gpu::parse("H100-SXM").expect("a GPU");
        assert_eq!(least_form(&GpuIdentity::Known(known), None), Some(known));
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
