//! The agent's observations beyond the conversation: identity, health, links and rates.
//!
//! An observation is a claim of software on the node. Rules compare claims from different sources with each
//! other and with published data, and trust none alone. A driver may hide any of them, so each is an
//! `Option`: absent means "not visible", never zero. Rates are integers, so that the report's canonical form
//! is exact.

use serde::{Deserialize, Serialize};

use super::{CollectiveRate, Digest, PairRate, Step, Word64};

/// All observations of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeFacts {
    /// The hash of the kernels that measured; floors are kept per kernel.
    pub kernels: Option<Digest>,
    /// What the system reports.
    pub host: HostFacts,
    /// What the driver reports about itself.
    pub driver: DriverFacts,
    /// Per GPU of the inventory.
    #[schema(max_items = 64)]
    pub gpus: Vec<GpuFacts>,
    /// The GPU errors (XID) that were reported while the agent ran; absent where the driver did not let it
    /// listen to any GPU.
    #[schema(max_items = 256)]
    pub xids: Option<Vec<XidEvent>>,
    /// The GPUs of the inventory whose errors the agent could not listen to, though it could listen to
    /// others'.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub xids_unheard: Vec<u32>,
    /// Whether the agent could read errors from before its start in the kernel's log.
    pub xid_history_visible: Option<bool>,
    /// Those errors, each once, of all GPUs that the kernel has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub xid_history: Vec<LoggedXid>,
    /// Errors that were added to that log while the agent ran, likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub xids_logged: Vec<LoggedXid>,
    /// The GPUs counted once more at the end.
    pub recount: Option<GpuCounts>,
    /// Copies from GPU to GPU, for every ordered pair that was measured.
    #[schema(max_items = 4_032)]
    pub pairs: Option<Vec<PairRate>>,
    /// Collective operations over all GPUs.
    #[schema(max_items = 24)]
    pub collectives: Vec<CollectiveRate>,
    /// The result of the vendor's own diagnostic; absent where the node has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<DiagnosticFacts>,
    /// Storage speed; absent where none was promised, or it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageFacts>,
}

/// How many GPUs each source shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuCounts {
    /// The kernel's list.
    pub kernel: Option<u32>,
    /// NVML.
    pub nvml: Option<u32>,
    /// CUDA.
    pub cuda: Option<u32>,
    /// Device nodes under `/dev`.
    pub device_nodes: Option<u32>,
}

/// What a node's system reports, read without the driver's libraries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HostFacts {
    /// The GPUs by each source at the beginning.
    pub counts: GpuCounts,
    /// The PCI ids of display and compute devices in the system's tree, such as `10de:2330`; absent
    /// where the tree is hidden.
    #[schema(max_items = 64)]
    pub pci_ids: Option<Vec<String>>,
    /// Virtual CPUs that may be used.
    pub vcpus: Option<u32>,
    /// Host memory, GiB.
    pub memory_gib: Option<u32>,
    /// Libraries that were loaded before the program's own (`LD_PRELOAD`, `LD_AUDIT`, `/etc/ld.so.preload`).
    #[schema(max_items = 64)]
    pub preloaded: Vec<String>,
    /// Whether the processors report that a hypervisor runs them; absent where they cannot, or it is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<bool>,
    /// Maker and name of the machine as its firmware reports it; absent where that is hidden.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub machine: Option<String>,
    /// The time by the host's clock when the report was made. Units: ms since 1970 (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<u64>,
    /// The ports to the network between nodes; absent where the system lists none or hides them.
    #[schema(max_items = 128)]
    pub ports: Option<Vec<PortFacts>>,
}

/// One port to the network between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PortFacts {
    /// The adapter and its port, such as `mlx5_0/1`.
    #[schema(max_length = 64)]
    pub name: String,
    /// Whether the port was active, and still was at the end.
    pub active: bool,
    /// Its rate, Gb/s: the lower one where it changed while the agent ran.
    pub rate_gbps: Option<u32>,
    /// How often the link went down since the system started.
    pub downs: Option<u64>,
    /// How often it went down while the agent ran.
    pub downs_grown: Option<u64>,
}

/// What the driver reports about itself. Its version is in the inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DriverFacts {
    /// The driver's version as the kernel reports it.
    #[schema(max_length = 64)]
    pub kernel_version: Option<String>,
    /// The newest CUDA version that it supports: 1000 x major + 10 x minor.
    pub cuda_version: Option<u32>,
    /// The libraries of the driver as mapped into the agent.
    #[schema(max_items = 16)]
    pub libraries: Vec<LibraryFacts>,
    /// How long the agent waited for it, or for the fabric, to come up; absent where it did not. Units: s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_s: Option<u64>,
}

/// A library as mapped into the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LibraryFacts {
    /// Its path.
    #[schema(max_length = 512)]
    pub path: String,
    /// The SHA-256 of the file.
    pub sha256: Option<Digest>,
}

/// An error that the driver reported for a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct XidEvent {
    /// The GPU's number in the inventory, where the event names it.
    pub gpu: Option<u32>,
    /// The number of the error.
    pub xid: u32,
}

/// An error that the driver wrote into the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoggedXid {
    /// Where the GPU is on the PCI bus, such as `0000:01:00`.
    #[schema(max_length = 16)]
    pub bus_id: String,
    /// The number of the error.
    pub xid: u32,
    /// For error 154: what the GPU needs from now on, in the driver's words: `0x1 (GPU Reset Required)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub action: Option<String>,
}

/// The observations of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuFacts {
    /// Vendor and device, such as `10de:2330`.
    #[schema(max_length = 16)]
    pub pci_id: Option<String>,
    /// Where it is on the PCI bus, such as `00000000:01:00.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 24)]
    pub bus_id: Option<String>,
    /// The serial number of its board, if the driver reports it.
    #[schema(max_length = 64)]
    pub serial: Option<String>,
    /// CUDA compute capability, such as `9.0`.
    #[schema(max_length = 16)]
    pub compute_capability: Option<String>,
    /// Whether the GPU is set up to be cut into slices; false also where the driver has no such mode for it.
    /// `None` where it could not be read.
    pub mig_enabled: Option<bool>,
    /// Whether error correction is on.
    pub ecc_enabled: Option<bool>,
    /// The power limit in force, W.
    pub power_limit_w: Option<u32>,
    /// Its temperature when idle, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Its host link under load.
    pub host_link: Option<HostLink>,
    /// NVLink connections that are up.
    pub nvlinks_active: Option<u32>,
    /// Whether the GPU has joined the fabric of the node.
    pub fabric: Option<FabricState>,
    /// Memory that was in use before the agent began, MiB.
    pub used_memory_mib: Option<u32>,
    /// Processes of others that use it.
    pub foreign_processes: Option<u32>,
    /// Its counters before the first work.
    pub health_before: HealthCounters,
    /// Its counters after the last work.
    pub health_after: HealthCounters,
    /// The time between the two readings, ms.
    pub health_elapsed_ms: Option<u64>,
    /// Rates of this GPU alone, or with all others at once.
    pub rates: GpuRates,
    /// The distinct checksums of the 16-bit products that were checked, with the inputs of the exact product:
    /// one where all were alike.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub gemm_16bit_sums: Vec<Word64>,
    /// The same of the 8-bit products, whose entries are smaller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub gemm_fp8_sums: Vec<Word64>,
    /// The checksum of a 16-bit product whose inputs are the same on all GPUs of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemm_16bit_common_sum: Option<Word64>,
    /// The same for an 8-bit product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemm_fp8_common_sum: Option<Word64>,
    /// The results of a sustained load.
    pub burn: Option<BurnFacts>,
    /// 32-bit words that changed while memory was held under load.
    pub dwell_bad_words: Option<u64>,
}

/// The link between a GPU and its host, read while it carries data: idle links slow down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HostLink {
    /// PCI Express generation.
    pub generation: u32,
    /// Lanes.
    pub width: u32,
}

/// How far a GPU has got in joining the fabric of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FabricState {
    /// The node has no such fabric.
    NotSupported,
    /// The fabric manager has not started, or does not exist.
    NotStarted,
    /// The GPU is joining.
    InProgress,
    /// It is part of the fabric.
    Completed,
    /// The GPU was refused.
    Failed,
}

/// Error counters of one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthCounters {
    /// Memory errors that were corrected since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that could not be corrected since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Uncorrected errors over the life of the card.
    pub ecc_uncorrected_lifetime: Option<u64>,
    /// Rows that were replaced by spare ones over the life of the card.
    pub remapped_rows: Option<u32>,
    /// Whether a row is to be replaced at the next reset.
    pub remap_pending: Option<bool>,
    /// Whether a row could not be replaced.
    pub remap_failed: Option<bool>,
    /// Pages taken out of use over the life of the card.
    pub retired_pages: Option<u32>,
    /// Whether a page is to be taken out of use at the next reset.
    pub retirement_pending: Option<bool>,
    /// Packets sent again on the host link.
    pub pcie_replays: Option<u64>,
    /// Errors of the links between GPUs.
    pub nvlink_errors: Option<u64>,
}

/// The rates of one GPU. Units: 1e6 bytes per second, or 1e9 operations per second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuRates {
    /// Reading memory: bytes read.
    #[schema(max_items = 1_000)]
    pub read_mb_per_s: Vec<u64>,
    /// Two arrays into a third: bytes read plus bytes written.
    #[schema(max_items = 1_000)]
    pub triad_mb_per_s: Vec<u64>,
    /// From pinned host memory, this GPU alone.
    #[schema(max_items = 1_000)]
    pub from_host_mb_per_s: Vec<u64>,
    /// To pinned host memory, this GPU alone.
    #[schema(max_items = 1_000)]
    pub to_host_mb_per_s: Vec<u64>,
    /// From pinned host memory, all GPUs at once.
    #[schema(max_items = 1_000)]
    pub from_host_together_mb_per_s: Vec<u64>,
    /// The 16-bit matrix product on random data, all GPUs at once, once warm.
    #[schema(max_items = 1_000)]
    pub gemm_16bit_gflops: Vec<u64>,
    /// The 8-bit matrix product on random data, all GPUs at once, once warm.
    #[schema(max_items = 1_000)]
    pub gemm_fp8_gflops: Vec<u64>,
}

/// The results of a sustained load on all GPUs for one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BurnFacts {
    /// How long it lasted, ms.
    pub elapsed_ms: u64,
    /// How often clocks, power and temperature were read.
    pub samples: u32,
    /// The mean rate over the first third, 1e9 operations per second.
    pub first_third_gflops: u64,
    /// The mean rate over the last third, 1e9 operations per second.
    pub last_third_gflops: u64,
    /// Share of the samples in which the hardware slowed the clock; absent where the driver does not report
    /// it. Units: thousandths.
    pub hw_slowdown_permille: Option<u32>,
    /// Share of the samples in which heat slowed the clock; absent where the driver does not report it.
    /// Units: thousandths.
    pub thermal_permille: Option<u32>,
    /// Share of the samples in which the power supply slowed the clock; absent where the driver does not
    /// report it. Units: thousandths.
    pub power_brake_permille: Option<u32>,
    /// The mean power, W.
    pub mean_power_w: Option<u32>,
    /// The highest temperature, degrees Celsius.
    pub highest_temperature_c: Option<u32>,
    /// The temperature at which the card slows itself, degrees Celsius.
    pub slowdown_temperature_c: Option<u32>,
    /// The lowest clock of the multiprocessors, MHz.
    pub lowest_sm_mhz: Option<u32>,
    /// In how many samples the product, of the same inputs throughout, differed from the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_samples: Option<u32>,
}

/// The measured speed of storage, one block after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageFacts {
    /// Whether the page cache was bypassed; else it was flushed and emptied in between.
    pub direct: bool,
    /// How much was written, bytes.
    pub bytes: u64,
    /// Reading, 1e6 bytes per second.
    pub read_mb_per_s: u64,
    /// Writing until it had reached the device, 1e6 bytes per second.
    pub write_mb_per_s: u64,
}

/// The most tests of a diagnostic that are reported.
pub const MOST_DIAGNOSTIC_TESTS: usize = 64;

/// The result of the vendor's own diagnostic (`dcgmi diag`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiagnosticFacts {
    /// How it ended.
    pub ended: DiagnosticEnd,
    /// Why it did not end as it should.
    #[schema(max_length = 512)]
    pub why: Option<String>,
    /// Its tests, those that failed first.
    #[schema(max_items = 64)]
    pub tests: Vec<DiagnosticTest>,
}

/// How a diagnostic ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticEnd {
    /// It reported its findings.
    Done,
    /// It did not end within its time.
    TimedOut,
    /// Its output could not be read.
    Unreadable,
}

/// One test of a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiagnosticTest {
    /// Its name in the diagnostic.
    #[schema(max_length = 64)]
    pub name: String,
    /// The worst of its results.
    pub result: DiagnosticResult,
    /// The GPU that this is about, by the diagnostic's number, if it is about one GPU.
    pub gpu: Option<u32>,
    /// The diagnostic's detail.
    #[schema(max_length = 512)]
    pub detail: Option<String>,
}

/// The result of a test, the worst first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticResult {
    /// Something is wrong.
    Failed,
    /// Something needs watching.
    Warned,
    /// It ran and found nothing.
    Passed,
    /// It did not run.
    Skipped,
}

/// What kept an agent from continuing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// The GPU's number in the inventory, if it is about one GPU.
    pub gpu: Option<u32>,
    /// The step that was in progress.
    pub step: Step,
    /// Its kind.
    pub kind: TroubleKind,
    /// The driver's words.
    #[schema(max_length = 512)]
    pub detail: String,
}

/// What kept an agent from continuing, in a form that a rule can judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// The GPU dropped off the bus or does not answer.
    GpuLost,
    /// The GPU is no longer among those that the agent may use.
    GpuWithdrawn,
    /// CUDA error 802: the fabric of the node is not ready.
    FabricNotReady,
    /// The work did not end within its time.
    TimedOut,
    /// CUDA error 214: an error of its memory could not be corrected.
    EccUncorrectable,
    /// Memory that should be free could not be allocated.
    OutOfMemory,
    /// A result that was written or added up is wrong.
    WrongResult,
    /// Another error of the driver.
    Driver,
    /// GPUs of a vendor that this agent cannot drive.
    UnsupportedVendor,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_read_whether_it_shows_reasons_or_none() {
        let mut load = serde_json::json!({
            "elapsed_ms": 25_000, "samples": 125, "first_third_gflops": 1, "last_third_gflops": 1,
            "hw_slowdown_permille": 0, "thermal_permille": 16, "power_brake_permille": 0,
            "mean_power_w": 600, "highest_temperature_c": 70, "slowdown_temperature_c": 87,
            "lowest_sm_mhz": 1_700,
        });
        let read = |load: &serde_json::Value| -> BurnFacts {
            serde_json::from_value(load.clone()).expect("read")
        };
        assert_eq!(read(&load).thermal_permille, Some(16));
        load["thermal_permille"] = serde_json::Value::Null;
        assert_eq!(read(&load).thermal_permille, None);
    }
}
