//! The GPUs that the market sells, with the published data of each: `data/gpus.csv`.
//!
//! A row is a fact with its source. How sellers write the names is in `names`.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize};

use crate::table;

/// The maker of a GPU.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
pub enum GpuVendor {
    /// NVIDIA.
    #[serde(rename = "NVIDIA")]
    Nvidia,
    /// AMD.
    #[serde(rename = "AMD")]
    Amd,
    /// Intel.
    Intel,
}

/// How sure a fact is.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// From memory or from one weak source.
    Low,
    /// Likely; one source, or an inference that a reader can follow.
    Medium,
    /// Stated by the seller or maker, or by several sources that agree.
    High,
}

impl Certainty {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl fmt::Display for Certainty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The published data of one GPU: a row of the catalogue.
///
/// Units: GB and GB/s are decimal (1e9), MiB are 2^20 bytes; rates are dense (no sparsity), in 1e12
/// operations per second. `None` is "not published", which is not zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// The canonical name, such as `H100-SXM`.
    pub canonical: String,
    /// The model without form and memory size, such as `H100`.
    pub family: String,
    /// The maker.
    pub vendor: GpuVendor,
    /// The architecture, such as `Hopper`.
    pub arch: String,
    /// CUDA compute capability (`9.0`), or the `gfx` word of AMD, or `not-CUDA`.
    pub compute_capability: String,
    /// Streaming multiprocessors, or compute units.
    pub sm_count: Option<u32>,
    /// Memory as marketed. Units: GB.
    pub memory_gb: f64,
    /// The kind of memory, such as `HBM3`.
    pub memory_type: String,
    /// Memory as the driver reports it. Units: MiB.
    pub reported_memory_mib: Option<u64>,
    /// Memory bandwidth. Units: GB/s.
    pub memory_bandwidth_gbps: f64,
    /// FP16 matrix rate. Units: TFLOPS.
    pub fp16_tflops_dense: Option<f64>,
    /// BF16 matrix rate. Units: TFLOPS.
    pub bf16_tflops_dense: Option<f64>,
    /// FP8 matrix rate. Units: TFLOPS.
    pub fp8_tflops_dense: Option<f64>,
    /// FP4 matrix rate. Units: TFLOPS.
    pub fp4_tflops_dense: Option<f64>,
    /// INT8 matrix rate. Units: TOPS.
    pub int8_tops_dense: Option<f64>,
    /// FP64 vector rate. Units: TFLOPS.
    pub fp64_tflops_vector: Option<f64>,
    /// FP64 matrix rate. Units: TFLOPS.
    pub fp64_tflops_tensor: Option<f64>,
    /// NVLink generation, or `xGMI`.
    pub nvlink_gen: Option<String>,
    /// Link bandwidth to the other GPUs of the node, both directions together. Units: GB/s.
    pub nvlink_gbps_bidirectional: Option<f64>,
    /// Links to the other GPUs of the node.
    pub nvlink_links: Option<u32>,
    /// PCI Express generation of the host link, or `C2C`.
    pub pcie_gen: Option<String>,
    /// PCI Express lanes of the host link.
    pub pcie_lanes: Option<u32>,
    /// Power limit. Units: W.
    pub tdp_w: Option<u32>,
    /// The most slices that the hardware cuts itself into.
    pub mig_max_instances: Option<u32>,
    /// Whether error correction of the memory is on by default: `on`, `off`, `none`.
    pub ecc_default: Option<String>,
    /// PCI ids, vendor and device. Several GPUs may share an id: memory or subsystem decides.
    #[serde(deserialize_with = "split_at_bars")]
    pub pci_device_ids: Vec<String>,
    /// The form of the nodes that it is sold in.
    pub node_form: String,
    /// How sure the row is.
    pub certainty: Certainty,
    /// The source that the row was checked against.
    pub source: String,
    /// What a reader of the figures must know.
    pub note: Option<String>,
}

/// Reads a list as JSON, or as a table writes it: separated by bars.
fn split_at_bars<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        InJson(Vec<String>),
        InTable(String),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::InJson(ids) => ids,
        Written::InTable(text) => text
            .split('|')
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

/// The catalogue in memory, with its names indexed by lower case.
pub(super) struct Catalogue {
    pub(super) specs: Vec<GpuSpec>,
    pub(super) families: Vec<String>,
    by_name: HashMap<String, u16>,
    by_family: HashMap<String, u16>,
}

impl Catalogue {
    /// Position in `specs` of a canonical name in any case.
    pub(super) fn position(&self, canonical: &str) -> Option<u16> {
        self.by_name.get(&canonical.to_ascii_lowercase()).copied()
    }

    /// Position in `families` of a family's name in any case.
    pub(super) fn family_position(&self, family: &str) -> Option<u16> {
        self.by_family.get(&family.to_ascii_lowercase()).copied()
    }
}

/// Families that the name rules leave open and of which the table has no GPU. They are listed here rather
/// than read from the rules, so that a program that only names GPUs, such as the agent on a node, carries no
/// rules.
const FAMILIES_OF_RULES: [&str; 6] = ["H100T", "GA107", "G49E", "L20N", "GPU-A", "RTX6000"];

/// The table of published data of each GPU.
pub const GPU_TABLE: &str = include_str!("../../data/gpus.csv");

/// The catalogue, read at first use.
pub(super) static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    let specs: Vec<GpuSpec> = table::rows(GPU_TABLE);
    let mut families: Vec<String> = Vec::new();
    let of_rules = FAMILIES_OF_RULES.iter().map(|family| (*family).to_owned());
    for family in specs.iter().map(|spec| spec.family.clone()).chain(of_rules) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    let by_name = (0..)
        .zip(&specs)
        .map(|(at, spec)| (spec.canonical.to_ascii_lowercase(), at))
        .collect();
    let by_family = (0..)
        .zip(&families)
        .map(|(at, family)| (family.to_ascii_lowercase(), at))
        .collect();
    Catalogue {
        specs,
        families,
        by_name,
        by_family,
    }
});

#[cfg(test)]
mod tests;
