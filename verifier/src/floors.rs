//! The least rates of each GPU: `data/floors.csv`, versioned.
//!
//! Three references are kept apart: the published figure (identity, and an upper sanity bound), the rate of a
//! known-good card with a given kernel (`expected`), and the floor. A figure that others measured with other
//! kernels is `provisional`: it is shown beside the measurement, and the floor stays a loose share of the
//! published figure. Only a row that names its kernel is `calibrated`; its floor is a share of that kernel's
//! rate.

use std::fmt;
use std::sync::LazyLock;

use market::gpu::{Gpu, GpuSpec};
use market::verification::{CollectiveAlgorithm, Digest};
use serde::Deserialize;

const TABLE: &str = include_str!("../data/floors.csv");
/// How far above the best known figure a measurement is still believed. Units: percent.
const CEILING_PERCENT: u64 = 115;
/// One direction of the link between CPU and GPU of a superchip. Units: 1e6 bytes per second.
const CHIP_TO_CHIP_MB_PER_S: f64 = 450_000.0;

/// A measured rate of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Copies within memory, bytes read plus bytes written.
    HbmCopy,
    /// Reads of memory.
    HbmRead,
    /// Two arrays into a third, bytes read plus bytes written.
    HbmTriad,
    /// Copies between host and GPU, one direction.
    HostLink,
    /// Copies from GPU to GPU over the node's switch, one direction.
    GpuLink,
    /// NCCL's all-reduce with its own choice of algorithm.
    AllreduceNcclDefault,
    /// NCCL's all-reduce with a ring.
    AllreduceNcclRing,
    /// The agent's own ring.
    AllreduceOwnRing,
    /// Products of 16-bit numbers.
    #[serde(rename = "gemm_16bit")]
    Gemm16Bit,
    /// Products of 8-bit floating-point numbers.
    GemmFp8,
    /// Memory hashed in the blocks of a slow fill, with the tree over them: the basis of the limit of its
    /// proof.
    MemoryProof,
    /// Chained exact products with the trees over their rows: the basis of that step's limit.
    ExactChain,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 12] = [
        Self::HbmCopy,
        Self::HbmRead,
        Self::HbmTriad,
        Self::HostLink,
        Self::GpuLink,
        Self::AllreduceNcclDefault,
        Self::AllreduceNcclRing,
        Self::AllreduceOwnRing,
        Self::Gemm16Bit,
        Self::GemmFp8,
        Self::MemoryProof,
        Self::ExactChain,
    ];

    /// The metric of an all-reduce by this algorithm.
    #[must_use]
    pub const fn of_collective(algorithm: CollectiveAlgorithm) -> Self {
        match algorithm {
            CollectiveAlgorithm::NcclDefault => Self::AllreduceNcclDefault,
            CollectiveAlgorithm::NcclRing => Self::AllreduceNcclRing,
            CollectiveAlgorithm::OwnRing => Self::AllreduceOwnRing,
        }
    }

    /// Its published figure, if any. Links count in one direction.
    ///
    /// Units: 1e6 bytes per second, or 1e9 operations per second.
    #[must_use]
    pub fn published(self, spec: &GpuSpec) -> Option<u64> {
        let thousands = |figure: f64| (figure * 1_000.0).round() as u64;
        let figure = match self {
            Self::HbmCopy | Self::HbmRead | Self::HbmTriad => {
                Some(thousands(spec.memory_bandwidth_gbps))
            }
            Self::HostLink => host_link_mb_per_s(spec),
            Self::GpuLink
            | Self::AllreduceNcclDefault
            | Self::AllreduceNcclRing
            | Self::AllreduceOwnRing => spec
                .nvlink_gbps_bidirectional
                .map(|both| thousands(both / 2.0)),
            Self::Gemm16Bit => spec
                .bf16_tflops_dense
                .or(spec.fp16_tflops_dense)
                .map(thousands),
            Self::GemmFp8 => spec.fp8_tflops_dense.map(thousands),
            // They depend on these kernels and on the host.
            Self::MemoryProof | Self::ExactChain => None,
        };
        figure.filter(|&figure| figure > 0)
    }
}

/// The rate of one lane of PCI Express, one direction, after its line code.
///
/// Units: 1e6 bytes per second. Source: PCI Express base specification, 8, 16, 32 and 64 GT/s.
#[must_use]
pub fn lane_mb_per_s(generation: u32) -> Option<f64> {
    match generation {
        1 => Some(250.0),
        2 => Some(500.0),
        3 => Some(984.6),
        4 => Some(1_969.2),
        5 => Some(3_938.5),
        6 => Some(7_563.0),
        _ => None,
    }
}

/// The published rate of the host link, one direction. Units: 1e6 bytes per second.
fn host_link_mb_per_s(spec: &GpuSpec) -> Option<u64> {
    let generation = spec.pcie_gen.as_deref()?;
    if generation == "C2C" {
        return Some(CHIP_TO_CHIP_MB_PER_S as u64);
    }
    let lane = lane_mb_per_s(generation.parse().ok()?)?;
    Some((lane * f64::from(spec.pcie_lanes?)).round() as u64)
}

/// The basis of a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calibration {
    /// Nobody has measured such a card; the floor is a loose share of the published figure.
    None,
    /// Others published a measurement; the floor is still the loose one.
    Provisional,
    /// This kernel ran on a known-good card.
    Calibrated,
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Provisional => "provisional",
            Self::Calibrated => "calibrated",
        })
    }
}

/// The figure of which a floor is a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FloorOf {
    Spec,
    Expected,
}

/// The floor of one figure of a GPU. Units: 1e6 bytes per second, or 1e9 operations per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// Below this the GPU fails.
    pub floor: u64,
    /// The rate of a good card, if known.
    pub expected: Option<u64>,
    /// Above this the measurement is implausible.
    pub ceiling: u64,
    /// How well founded the floor is.
    pub calibration: Calibration,
}

impl Floor {
    /// The floor of a host link in a slot one PCI Express generation older than the GPU's own; none where no
    /// such generation is known.
    #[must_use]
    pub fn in_slot(self, generation: u32) -> Option<Self> {
        let share = lane_mb_per_s(generation)? / lane_mb_per_s(generation + 1)?;
        let there = |rate: u64| (rate as f64 * share) as u64;
        Some(Self {
            floor: there(self.floor),
            expected: self.expected.map(there),
            ..self
        })
    }
}

#[derive(Debug, Deserialize)]
struct Row {
    version: u32,
    gpu: String,
    metric: Metric,
    kernel: String,
    expected: Option<u64>,
    floor_permille: u64,
    floor_of: FloorOf,
    calibration: Calibration,
}

/// All floors of one version.
#[derive(Debug)]
pub struct Floors {
    rows: Vec<Row>,
    version: String,
}

impl Floors {
    /// The table in this build.
    #[must_use]
    pub fn current() -> &'static Self {
        // The table is part of the build and a test reads every row.
        static CURRENT: LazyLock<Floors> =
            LazyLock::new(|| Floors::read(TABLE).unwrap_or_else(|refusal| panic!("{refusal}")));
        &CURRENT
    }

    /// Reads a table in the form of `data/floors.csv`.
    ///
    /// Errors: an invalid table.
    pub fn read(table: &str) -> Result<Self, csv::Error> {
        let rows: Vec<Row> = csv::Reader::from_reader(table.as_bytes())
            .deserialize()
            .collect::<Result<_, _>>()?;
        let newest = rows.iter().map(|row| row.version).max().unwrap_or(0);
        let digest = blake3::hash(table.as_bytes()).to_hex();
        Ok(Self {
            rows,
            version: format!("{newest}-{}", &digest[..8]),
        })
    }

    /// The version with a hash of the table, so that every change shows.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The floor of a GPU's figure; none where no published figure exists for it to be a share of.
    ///
    /// A row for this kernel takes precedence over one for any kernel, a row for this GPU over one for any.
    #[must_use]
    pub fn of(&self, gpu: Gpu, metric: Metric, kernel: Option<&Digest>) -> Option<Floor> {
        let kernel = kernel.map(Digest::to_string);
        let row_of = |gpu: &str, kernel: &str| {
            let is_it = |row: &&Row| row.metric == metric && row.gpu == gpu && row.kernel == kernel;
            self.rows.iter().find(is_it)
        };
        let row = kernel
            .and_then(|kernel| row_of(gpu.name(), &kernel))
            .or_else(|| row_of(gpu.name(), "*"))
            .or_else(|| row_of("*", "*"))?;
        row.floor(gpu)
    }

    /// The calibrated floor of a GPU's figure, for any kernels; otherwise as [`Self::of`] for unknown
    /// kernels.
    #[must_use]
    pub fn best_of(&self, gpu: Gpu, metric: Metric) -> Option<Floor> {
        let is_calibrated = |row: &&Row| {
            let of_it = row.metric == metric && row.gpu == gpu.name();
            of_it && row.calibration == Calibration::Calibrated
        };
        let calibrated = self.rows.iter().rfind(is_calibrated);
        match calibrated {
            Some(row) => row.floor(gpu),
            None => self.of(gpu, metric, None),
        }
    }
}

impl Row {
    /// The row's floor for a GPU; none where no published figure exists for it to be a share of.
    fn floor(&self, gpu: Gpu) -> Option<Floor> {
        let published = self.metric.published(gpu.spec());
        let base = match self.floor_of {
            FloorOf::Spec => published?,
            FloorOf::Expected => self.expected?,
        };
        let best = published.unwrap_or(0).max(self.expected.unwrap_or(0));
        let floor = base * self.floor_permille / 1_000;
        // One card's rate above the published figure does not raise the floor of others.
        let most = published.map_or(u64::MAX, |published| published * CEILING_PERCENT / 100);
        Some(Floor {
            floor: floor.min(most),
            expected: self.expected,
            ceiling: best * CEILING_PERCENT / 100,
            calibration: self.calibration,
        })
    }
}

#[cfg(test)]
mod tests;
