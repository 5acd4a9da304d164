//! The driver's answers, and its faults.

use serde::{Deserialize, Serialize};

/// The environment variable that names the script's file.
pub const VARIABLE: &str = "FAKE_DRIVER";

/// A machine's driver.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Script {
    /// Its version.
    pub version: String,
    /// The newest CUDA version that it serves: 1000 x major + 10 x minor.
    pub cuda_version: i32,
    /// The status of initialisation; 0 is success, 802 a fabric that is not ready.
    pub init: u32,
    /// The statuses of initialisation, of the management library and then of the compute library, for the
    /// first processes, one after the other, before the driver is up.
    pub before_up: Vec<(u32, u32)>,
    /// What the vendor's library for sums does between nodes.
    pub collective: Collective,
    /// The GPUs that compute.
    pub gpus: Vec<Card>,
    /// The GPUs as the management library shows them, where they differ.
    pub managed: Option<Vec<Card>>,
}

/// The behaviour of the vendor's library for sums between nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Collective {
    /// Its version, as it numbers it.
    pub version: i32,
    /// Its behaviour when this node's GPUs join those of others.
    pub joins: Joins,
    /// How fast the network to other nodes is for each GPU. Units: 1e6 bytes per second.
    pub network_mb_per_s: f64,
    /// The name by which other nodes know this one.
    pub name: String,
    /// The other node to which the link is bad, a tenth as fast.
    pub slow_to: Option<String>,
    /// Whether the machine's set-up enables its log, which it writes to standard output.
    pub talks: bool,
}

/// The result of joining the GPUs of other nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joins {
    /// They join.
    #[default]
    Well,
    /// It never ends.
    Hangs,
    /// It is refused.
    Refused,
}

impl Default for Collective {
    fn default() -> Self {
        Self {
            version: 22_809,
            joins: Joins::Well,
            network_mb_per_s: 50_000.0,
            name: String::new(),
            slow_to: None,
            talks: false,
        }
    }
}

/// One GPU. Units as in the names; rates in 1e6 bytes per second.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Card {
    /// The product name.
    pub name: String,
    /// The unique id.
    pub uuid: String,
    /// The serial number of its board.
    pub serial: String,
    /// Memory as reported.
    pub memory_mib: u64,
    /// Memory that can really be allocated, where it is less.
    pub real_memory_mib: Option<u64>,
    /// Multiprocessors.
    pub sm_count: i32,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Its last cache before memory: as small beside a real one as a test's memory is. Units: bytes.
    pub cache_bytes: i32,
    /// Device and vendor of the PCI bus: `0x2330_10de`.
    pub pci_device: u32,
    /// Memory that others use.
    pub used_mib: u64,
    /// Processes of others.
    pub processes: u32,
    /// Whether it is set up in slices; absent where its library has no such set-up for it.
    pub mig: Option<bool>,
    /// Whether error correction is on; absent where it has none.
    pub ecc: Option<bool>,
    /// The power limit in force.
    pub power_limit_w: u32,
    /// Its temperature.
    pub temperature_c: u32,
    /// The temperature at which it slows itself.
    pub slowdown_c: u32,
    /// The reasons for its slowed clock under load, as bits of its library; 4 is the power limit. None where
    /// it does not report them.
    pub slowed_by: Option<u64>,
    /// What it draws under load.
    pub power_w: u32,
    /// How much longer products take for every second that it has worked. Units: thousandths.
    pub fades_permille: u32,
    /// PCI Express generation and lanes.
    pub host_link: (u32, u32),
    /// Which NVLink connections are up.
    pub links: Vec<bool>,
    /// The state of the fabric as its library numbers it; absent where there is none.
    pub fabric: Option<u8>,
    /// Corrected memory errors: before the first work, and how many more after it.
    pub ecc_corrected: (u64, u64),
    /// Uncorrected ones, likewise.
    pub ecc_uncorrected: (u64, u64),
    /// Rows that were replaced, likewise; absent where there is no such thing.
    pub remapped_rows: Option<(u32, u32)>,
    /// Whether a row is to be replaced.
    pub remap_pending: bool,
    /// Whether a row could not be replaced.
    pub remap_failed: bool,
    /// Packets sent again on the host link, likewise.
    pub replays: (u32, u32),
    /// Errors of the links, likewise.
    pub link_errors: (u64, u64),
    /// Errors that are reported once it has worked.
    pub xids: Vec<u64>,
    /// Whether errors are reported at all.
    pub tells_xids: bool,
    /// How fast memory is copied.
    pub copy_mb_per_s: f64,
    /// How fast memory is filled with contents that are expensive to compute, or compared with them.
    pub slow_fill_mb_per_s: f64,
    /// How many bytes of time each filled, compared or hashed byte counts for, so that little memory takes as
    /// long as all of a card.
    pub stands_for: u32,
    /// How fast another card is reached, in one direction.
    pub link_mb_per_s: f64,
    /// Which other card is reached at a tenth of that.
    pub slow_to: Option<usize>,
    /// Whether kernels reach the memory of other cards over the bus, where no link is up.
    pub over_bus: bool,
    /// How fast the tensor units are on 16-bit and on 8-bit entries. Units: 1e9 operations per second.
    pub tensor_gflops: (f64, f64),
    /// How long a product takes on the integer units, whatever its size. Units: milliseconds.
    pub product_ms: f64,
    /// How many GPUs its chip poses as: they share it by time slices, so that each product takes as many
    /// times as long.
    pub shown_as: u32,
    /// How fast the host link is, to and from the GPU.
    pub host_mb_per_s: (f64, f64),
    /// Its fault.
    pub fault: Fault,
}

/// A GPU's fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// This kernel never ends, or the call that copies to another card, or that of the vendor's library.
    HangsIn(String),
    /// The GPU falls off the bus when this kernel is started.
    LostIn(String),
    /// A memory error cannot be corrected when this kernel is started: from then on every call of the compute
    /// library returns it.
    UncorrectedIn(String),
    /// The GPU is withdrawn when this kernel is started: the process may not use it any more.
    WithdrawnIn(String),
    /// This many words lose a bit each time memory is filled.
    FlipsBits(u32),
    /// The second product has another entry than the first, as has one in seven on the tensor units.
    Unrepeatable,
    /// One in this many products on the tensor units has a wrong bit, the same each time: with 1 all products
    /// are wrong in the same way.
    FlipsTensor(u32),
    /// After a while under load, every product of the load has a wrong bit.
    FlipsUnderLoad,
    /// After a while under load, a bit in the memory that is held flips.
    ForgetsUnderLoad,
    /// Kernels whose names begin with this stream only the first half of memory, in half of the time.
    Halves(String),
    /// Its sum with another card's memory has a wrong bit in the last word.
    AddsWrongly,
    /// The result of this call of the vendor's library on this card has a wrong bit in its last word.
    ErrsIn(String),
    /// This card's contribution to a sum of the vendor's library has a wrong bit in its last word.
    BringsWrongly,
    /// Every product has the same wrong entry.
    WrongEntry,
    /// Memory is not filled, and comparing it finds nothing.
    SkipsMemory,
    /// Only the first half of memory is filled, and comparing it finds nothing.
    HalvesMemory,
    /// As that, and the missing part is recomputed when it is hashed, which takes as long as filling it.
    Regenerates,
    /// Nothing is multiplied: every product is zero.
    SkipsProducts,
    /// Only the first product of a chain is computed, and each of the others only when it is requested later.
    SkipsChain,
    /// Only the first half of the inner dimension is summed.
    HalvesProducts,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            version: "570.86.15".to_owned(),
            cuda_version: 12_080,
            init: 0,
            before_up: Vec::new(),
            collective: Collective::default(),
            gpus: (0..8).map(Card::h100).collect(),
            managed: None,
        }
    }
}

impl Default for Card {
    fn default() -> Self {
        Self::h100(0)
    }
}

impl Card {
    /// A good H100 SXM, with this number in its machine.
    #[must_use]
    pub fn h100(number: u32) -> Self {
        Self {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            uuid: format!("GPU-00000000-0000-4000-8000-{number:012x}"),
            serial: format!("16505220{number:05}"),
            memory_mib: 81_559,
            real_memory_mib: None,
            sm_count: 132,
            capability: (9, 0),
            cache_bytes: 1 << 10,
            pci_device: 0x2330_10de,
            used_mib: 0,
            processes: 0,
            mig: Some(false),
            ecc: Some(true),
            power_limit_w: 700,
            temperature_c: 34,
            slowdown_c: 87,
            slowed_by: Some(4),
            power_w: 640,
            fades_permille: 0,
            host_link: (5, 16),
            links: vec![true; 18],
            fabric: Some(3),
            ecc_corrected: (0, 0),
            ecc_uncorrected: (0, 0),
            remapped_rows: Some((0, 0)),
            remap_pending: false,
            remap_failed: false,
            replays: (0, 0),
            link_errors: (0, 0),
            xids: Vec::new(),
            tells_xids: true,
            copy_mb_per_s: 3_000_000.0,
            slow_fill_mb_per_s: 18_000.0,
            stands_for: 1,
            product_ms: 0.2,
            shown_as: 1,
            link_mb_per_s: 376_000.0,
            slow_to: None,
            over_bus: false,
            tensor_gflops: (720_000.0, 1_210_000.0),
            host_mb_per_s: (55_000.0, 55_000.0),
            fault: Fault::None,
        }
    }
}
