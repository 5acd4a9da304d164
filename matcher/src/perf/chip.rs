//! The figures of a chip in the models: rates, memory and links, from `data/gpus.csv`, or from the catalogue
//! where that table has no row.

use std::sync::LazyLock;

use market::gpu::{Gpu, GpuSpec};
use serde::Deserialize;

use crate::hardware::{joined_all_to_all, nvlink_domain_gpus};

/// A family of chips that behave alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// NVIDIA Volta and older.
    Volta,
    /// NVIDIA Turing.
    Turing,
    /// NVIDIA Ampere.
    Ampere,
    /// NVIDIA Ada.
    Ada,
    /// NVIDIA Hopper.
    Hopper,
    /// NVIDIA Blackwell.
    Blackwell,
    /// AMD CDNA 3.
    Cdna3,
    /// AMD CDNA 4.
    Cdna4,
    /// AMD RDNA 3.
    Rdna3,
}

/// The links between the GPUs of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleUp {
    /// NVLink, by switch or by bridge.
    Nvlink,
    /// AMD's mesh.
    Xgmi,
    /// PCI Express 3.
    Pcie3,
    /// PCI Express 4.
    Pcie4,
    /// PCI Express 5.
    Pcie5,
    /// One GPU with a fast link to its host alone.
    HostOnly,
}

/// A factor that was fitted for one chip only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FittedFactor {
    /// The GB300.
    Gb300,
    /// The B300.
    B300,
    /// The GH200, in serving.
    Gh200,
    /// The H100 built for 500 W.
    PowerLimited,
}

/// The classes of memory that the constants for llama.cpp know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryClass {
    /// GDDR.
    Gddr,
    /// The high-bandwidth memory of the A100. The reference takes it for GDDR.
    HbmA100,
    /// High-bandwidth memory.
    Hbm,
}

/// The basis of a prediction for a chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Measurements of this chip were among those that the constants were fitted to.
    Measured,
    /// None were: its published rates, at the shares of its family.
    Family,
}

/// The figures of a chip.
#[derive(Debug, Clone, PartialEq)]
pub struct Chip {
    /// The canonical GPU, or the name in measured rows where the catalogue has none.
    pub name: String,
    /// Its family.
    pub architecture: Architecture,
    /// Dense 16-bit peak. Units: FLOP/s.
    pub bf16_flops: f64,
    /// Dense 8-bit peak. Units: FLOP/s.
    pub fp8_flops: Option<f64>,
    /// Dense 4-bit peak. Units: FLOP/s.
    pub fp4_flops: Option<f64>,
    /// Share of the 16-bit peak that a plain product reaches.
    pub matmul_share_bf16: f64,
    /// The same of the 8-bit peak.
    pub matmul_share_fp8: f64,
    /// As it is sold. Units: bytes.
    pub memory_bytes: f64,
    /// As its driver reports it. Units: bytes.
    pub reported_memory_bytes: f64,
    /// Units: bytes per second.
    pub memory_bytes_per_second: f64,
    /// Its links to the other GPUs of a node.
    pub scale_up: ScaleUp,
    /// That link, one direction. Units: bytes per second.
    pub link_bytes_per_second: f64,
    /// GPUs with these links.
    pub domain_gpus: u32,
    /// Whether bridges connect them, and PCI Express connects different bridges.
    pub bridged: bool,
    /// A factor of its own in training.
    pub fitted_factor: Option<FittedFactor>,
    /// Its class of memory in llama.cpp.
    pub llama_cpp_memory: MemoryClass,
    /// Whether llama.cpp reaches twice the listed 16-bit peak, which consumer cards have with
    /// 16-bit accumulators.
    pub doubled_in_llama_cpp: bool,
    /// The basis of a training prediction.
    pub training_basis: Basis,
    /// The basis of a serving prediction.
    pub inference_basis: Basis,
}

/// The number format of a matrix product, as the hardware sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// 16 bits.
    Bf16,
    /// 8 bits, or 16 where the chip lacks them.
    Fp8,
    /// 4 bits, or 8, or 16.
    Fp4,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChipRow {
    gpu: Option<String>,
    row_name: String,
    architecture: Architecture,
    bf16_tflops: f64,
    fp8_tflops: Option<f64>,
    fp4_tflops: Option<f64>,
    memory_gb: f64,
    memory_gb_s: f64,
    scale_up: ScaleUp,
    link_gb_s: f64,
    domain_gpus: u32,
    matmul_share_bf16: Option<f64>,
    matmul_share_fp8: Option<f64>,
    fitted_factor: Option<FittedFactor>,
    llama_cpp_memory: MemoryClass,
    doubled_in_llama_cpp: u8,
    ecc_in_memory: u8,
    training_rows: u32,
    inference_rows: u32,
    // Read so that a row without a source is refused; never shown.
    #[serde(rename = "source")]
    _source: String,
    #[serde(rename = "note")]
    _note: Option<String>,
}

static CHIPS: LazyLock<Vec<(ChipRow, Chip)>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("../../data/gpus.csv").as_bytes())
        .into_deserialize()
        .map(|row| row.map(|row: ChipRow| (Chip::of_row(&row), row)))
        .map(|row| row.map(|(chip, row)| (row, chip)))
        .collect::<Result<_, _>>()
        // The bytes are part of the program, and a test below reads all rows.
        .unwrap_or_else(|error| panic!("the table of chips cannot be read: {error}"))
});

/// All chips of the table.
pub fn chips() -> impl Iterator<Item = &'static Chip> {
    CHIPS.iter().map(|(_, chip)| chip)
}

impl Chip {
    /// The chip of a measured row, by the name that the row gives it or by its canonical name.
    #[must_use]
    pub fn of_row_name(name: &str) -> Option<&'static Self> {
        let found = CHIPS
            .iter()
            .find(|(row, _)| row.row_name == name || row.gpu.as_deref() == Some(name));
        found.map(|(_, chip)| chip)
    }

    /// The chip of the catalogue: from the table, else from its published figures and its family.
    ///
    /// `None` where no 16-bit matrix rate is published, or its family is none that was measured.
    #[must_use]
    pub fn of_spec(spec: &GpuSpec) -> Option<Self> {
        let listed = CHIPS
            .iter()
            .find(|(row, _)| row.gpu.as_ref() == Some(&spec.canonical));
        match listed {
            Some((_, chip)) => Some(chip.clone()),
            None => Self::of_family(spec),
        }
    }

    fn of_family(spec: &GpuSpec) -> Option<Self> {
        let architecture = Architecture::of_spec(spec)?;
        let matmul_share_bf16 = architecture.matmul_share_bf16();
        let (scale_up, link_gb_s, domain_gpus) = links(spec);
        let flops = |tera: f64| tera * 1e12;
        Some(Self {
            name: spec.canonical.clone(),
            architecture,
            bf16_flops: spec
                .bf16_tflops_dense
                .or(spec.fp16_tflops_dense)
                .map(flops)?,
            fp8_flops: spec.fp8_tflops_dense.map(flops),
            fp4_flops: spec.fp4_tflops_dense.map(flops),
            matmul_share_bf16,
            matmul_share_fp8: architecture.matmul_share_fp8(matmul_share_bf16),
            memory_bytes: spec.memory_gb * 1e9,
            reported_memory_bytes: reported_memory_bytes(
                spec.memory_gb,
                !spec.memory_type.contains("HBM") && !spec.node_form.contains("consumer"),
            ),
            memory_bytes_per_second: spec.memory_bandwidth_gbps * 1e9,
            scale_up,
            link_bytes_per_second: link_gb_s * 1e9,
            domain_gpus,
            bridged: false,
            fitted_factor: None,
            llama_cpp_memory: if spec.memory_type.contains("HBM") {
                MemoryClass::Hbm
            } else {
                MemoryClass::Gddr
            },
            doubled_in_llama_cpp: spec.node_form.contains("consumer"),
            training_basis: Basis::Family,
            inference_basis: Basis::Family,
        })
    }

    fn of_row(row: &ChipRow) -> Self {
        let matmul_share_bf16 = row
            .matmul_share_bf16
            .unwrap_or_else(|| row.architecture.matmul_share_bf16());
        let basis = |rows: u32| match rows {
            0 => Basis::Family,
            _ => Basis::Measured,
        };
        Self {
            name: row.gpu.clone().unwrap_or_else(|| row.row_name.clone()),
            architecture: row.architecture,
            bf16_flops: row.bf16_tflops * 1e12,
            fp8_flops: row.fp8_tflops.map(|tera| tera * 1e12),
            fp4_flops: row.fp4_tflops.map(|tera| tera * 1e12),
            matmul_share_bf16,
            matmul_share_fp8: row
                .matmul_share_fp8
                .unwrap_or_else(|| row.architecture.matmul_share_fp8(matmul_share_bf16)),
            memory_bytes: row.memory_gb * 1e9,
            reported_memory_bytes: reported_memory_bytes(row.memory_gb, row.ecc_in_memory == 1),
            memory_bytes_per_second: row.memory_gb_s * 1e9,
            scale_up: row.scale_up,
            link_bytes_per_second: row.link_gb_s * 1e9,
            domain_gpus: row.domain_gpus,
            bridged: row.is_bridged(),
            fitted_factor: row.fitted_factor,
            llama_cpp_memory: row.llama_cpp_memory,
            doubled_in_llama_cpp: row.doubled_in_llama_cpp == 1,
            training_basis: basis(row.training_rows),
            inference_basis: basis(row.inference_rows),
        }
    }

    /// The rate of a plain product. Units: FLOP/s.
    ///
    /// A format that the chip lacks is computed in the next wider one that it has.
    #[must_use]
    pub fn matmul_flops(&self, product: Product, fp4_share: f64) -> f64 {
        match (product, self.fp4_flops, self.fp8_flops) {
            (Product::Fp4, Some(peak), _) => peak * fp4_share,
            (Product::Fp4 | Product::Fp8, _, Some(peak)) => peak * self.matmul_share_fp8,
            _ => self.bf16_flops * self.matmul_share_bf16,
        }
    }

    /// The peak that a utilisation is stated against. Units: FLOP/s.
    #[must_use]
    pub fn peak_flops(&self, product: Product) -> f64 {
        match (product, self.fp4_flops, self.fp8_flops) {
            (Product::Fp4, Some(peak), _) | (Product::Fp4 | Product::Fp8, _, Some(peak)) => peak,
            _ => self.bf16_flops,
        }
    }

    /// Whether only PCI Express connects its GPUs, or a node has one GPU.
    #[must_use]
    pub fn is_pcie_only(&self) -> bool {
        let pcie = [ScaleUp::Pcie3, ScaleUp::Pcie4, ScaleUp::Pcie5];
        self.domain_gpus == 1 || pcie.contains(&self.scale_up)
    }

    /// Whether a ring over so many neighbouring GPUs of a node crosses PCI Express.
    #[must_use]
    pub fn passes_pcie(&self, gpus: f64) -> bool {
        self.is_pcie_only() || (self.bridged && gpus > f64::from(self.domain_gpus))
    }
}

impl ChipRow {
    /// A chip that the catalogue does not have is none with bridges.
    fn is_bridged(&self) -> bool {
        let canonical = self.gpu.as_deref().unwrap_or_default();
        let spec = Gpu::parse(canonical).ok().map(|gpu| gpu.spec());
        self.scale_up == ScaleUp::Nvlink && spec.is_some_and(|spec| !joined_all_to_all(spec))
    }
}

impl Architecture {
    /// The family of a GPU of the catalogue; `None` for one without measurements.
    fn of_spec(spec: &GpuSpec) -> Option<Self> {
        match spec.arch.as_str() {
            "Volta" => Some(Self::Volta),
            "Turing" => Some(Self::Turing),
            "Ampere" => Some(Self::Ampere),
            "Ada" => Some(Self::Ada),
            "Hopper" => Some(Self::Hopper),
            "Blackwell" | "Blackwell Ultra" => Some(Self::Blackwell),
            "CDNA3" => Some(Self::Cdna3),
            "CDNA4" => Some(Self::Cdna4),
            "RDNA3" => Some(Self::Rdna3),
            _ => None,
        }
    }

    /// The share that plain products of the family reach, where the chip itself was not measured.
    const fn matmul_share_bf16(self) -> f64 {
        match self {
            Self::Volta | Self::Turing => 0.75,
            Self::Ampere => 0.85,
            Self::Ada | Self::Hopper => 0.80,
            Self::Blackwell => 0.74,
            Self::Cdna3 => 0.55,
            Self::Cdna4 => 0.68,
            Self::Rdna3 => 0.60,
        }
    }

    fn matmul_share_fp8(self, of_bf16: f64) -> f64 {
        match self {
            Self::Cdna3 => of_bf16,
            _ => of_bf16 * 0.9,
        }
    }
}

/// The memory that a driver reports for a GPU sold with so many GB, which are binary. In-memory check bits
/// take a sixteenth, and firmware half a percent.
fn reported_memory_bytes(memory_gb: f64, ecc_in_memory: bool) -> f64 {
    let checked = if ecc_in_memory { 15.0 / 16.0 } else { 1.0 };
    memory_gb * 1_073_741_824.0 * 0.995 * checked
}

/// The links between the GPUs of a node, their rate in one direction (GB/s), and the GPUs that they connect.
fn links(spec: &GpuSpec) -> (ScaleUp, f64, u32) {
    if let (true, Some(both_ways)) = (joined_all_to_all(spec), spec.nvlink_gbps_bidirectional) {
        let kind = if spec.nvlink_gen.as_deref() == Some("xGMI") {
            ScaleUp::Xgmi
        } else {
            ScaleUp::Nvlink
        };
        return (kind, both_ways / 2.0, nvlink_domain_gpus(spec));
    }
    // The rate of a card with sixteen lanes of each generation, in one direction.
    match spec.pcie_gen.as_deref() {
        Some("5" | "6") => (ScaleUp::Pcie5, 50.0, 1),
        Some("4") => (ScaleUp::Pcie4, 25.0, 1),
        Some("C2C") => (ScaleUp::HostOnly, 50.0, 1),
        _ => (ScaleUp::Pcie3, 12.0, 1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn chip(name: &str) -> Chip {
        Chip::of_spec(Gpu::parse(name).expect("a GPU").spec()).expect("a chip")
    }

    #[test]
    fn every_row_of_the_table_names_a_gpu_of_the_catalogue_once_or_says_that_it_has_none() {
        let mut seen = HashSet::new();
        for (row, chip) in CHIPS.iter() {
            assert!(seen.insert(row.row_name.as_str()), "{} twice", row.row_name);
            if let Some(gpu) = &row.gpu {
                assert!(Gpu::parse(gpu).is_ok(), "{gpu} is in no catalogue");
                assert!(seen.insert(gpu) || *gpu == row.row_name, "{gpu} twice");
            }
            let shares = [chip.matmul_share_bf16, chip.matmul_share_fp8];
            assert!(shares.iter().all(|share| (0.3..1.0).contains(share)));
            assert!(chip.fp8_flops.is_none_or(|peak| peak > chip.bf16_flops));
            assert!(chip.memory_bytes > 0.0 && chip.link_bytes_per_second > 0.0);
            assert!(!row._source.is_empty(), "{} has no source", row.row_name);
        }
    }

    #[test]
    fn the_table_and_the_catalogue_agree_within_a_few_percent_on_what_both_state() {
        for (row, chip) in CHIPS.iter() {
            let Some(gpu) = &row.gpu else { continue };
            let spec = Gpu::parse(gpu).expect("a GPU").spec();
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.045;
            assert!(near(chip.memory_bytes, spec.memory_gb * 1e9), "{gpu}");
            let bandwidth = spec.memory_bandwidth_gbps * 1e9;
            assert!(near(chip.memory_bytes_per_second, bandwidth), "{gpu}");
            if let Some(peak) = spec.bf16_tflops_dense {
                assert!(near(chip.bf16_flops, peak * 1e12), "{gpu}");
            }
        }
    }

    #[test]
    fn rings_pass_pci_express_where_bridges_join_fewer() {
        for (name, gpus, passes) in [
            ("H100-SXM", 8.0, false),
            ("V100-SXM2-32", 8.0, false),
            ("GB200", 4.0, false),
            ("H100-NVL", 2.0, false),
            ("H100-NVL", 4.0, true),
            ("H200-NVL", 4.0, false),
            ("H200-NVL", 8.0, true),
            ("L40S", 2.0, true),
        ] {
            assert_eq!(chip(name).passes_pcie(gpus), passes, "{gpus} x {name}");
        }
    }

    #[test]
    fn a_chip_without_measured_rows_is_taken_from_its_family_and_says_so() {
        let h800 = chip("H800-SXM");
        assert_eq!(h800.training_basis, Basis::Family);
        assert_eq!(h800.matmul_share_bf16, 0.80);
        assert_eq!((h800.link_bytes_per_second, h800.domain_gpus), (200e9, 8));
        assert_eq!(chip("H100-SXM").training_basis, Basis::Measured);
        // The L40S was measured when serving, never when training.
        assert_eq!(chip("L40S").inference_basis, Basis::Measured);
        assert_eq!(chip("L40S").training_basis, Basis::Family);
        // Volta has no bf16, so its fp16 rate is used; there are no measurements of Pascal.
        assert_eq!(chip("V100-PCIe-32").bf16_flops, 112e12);
        assert_eq!(
            Chip::of_spec(Gpu::parse("P40").expect("a GPU").spec()),
            None
        );
    }

    #[test]
    fn a_format_that_a_chip_lacks_is_computed_in_a_wider_one() {
        let ampere = chip("A100-SXM-80");
        assert_eq!(ampere.matmul_flops(Product::Fp4, 0.4), 312e12 * 0.869);
        let hopper = chip("H100-SXM");
        assert_eq!(hopper.matmul_flops(Product::Fp4, 0.4), 1979e12 * 0.709);
        assert_eq!(hopper.peak_flops(Product::Fp4), 1979e12);
        assert_eq!(
            chip("B200-SXM").matmul_flops(Product::Fp4, 0.4),
            9000e12 * 0.4
        );
    }
}
