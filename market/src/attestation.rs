//! What the broker found about a node, and signs.
//!
//! The rules that lead to a verdict are in the `verifier` crate; the signed form is a compact JWS
//! over the canonical JSON of [`Attestation`]. All numbers are integers, so that form is exact.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{AttestationId, LeaseId, VerificationId};
use crate::verification::{
    AgentBuild, AgentKey, DeviceKind, Digest, ExpectedNode, Inventory, Level,
};

/// The broker's verdict on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every mandatory check was done and met.
    Pass,
    /// As pass, with something to watch.
    PassWithWarnings,
    /// A check was not met.
    Fail,
    /// A mandatory check was not done, or its answer is not credible.
    Inconclusive,
}

impl Verdict {
    /// Whether the node may be handed over.
    #[must_use]
    pub const fn is_pass(self) -> bool {
        matches!(self, Self::Pass | Self::PassWithWarnings)
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::PassWithWarnings => "pass_with_warnings",
            Self::Fail => "fail",
            Self::Inconclusive => "inconclusive",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The remedy for a failed check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Another node.
    Replace,
    /// A reboot of the node.
    Reboot,
    /// A reset of the GPU.
    Reset,
    /// Nothing yet; watch it.
    Monitor,
    /// The same again.
    Retry,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done and met.
    Met,
    /// Done and met, within the band above the floor or with an anomaly.
    Warned,
    /// Done and not met.
    Failed,
    /// Not done, or its answer is not credible.
    NotRun,
    /// For the reader; it decides nothing.
    Noted,
}

macro_rules! finding_codes {
    ($($(#[$doc:meta])* $code:ident, $word:literal, $remedy:ident;)*) => {
        /// The check of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum FindingCode {
            $($(#[$doc])* #[serde(rename = $word)] $code,)*
        }

        impl FindingCode {
            /// Every code. A code is never given a second meaning.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => $word,)* }
            }

            /// The remedy when the check is not met.
            #[must_use]
            pub const fn remedy(self) -> Remedy {
                match self { $(Self::$code => Remedy::$remedy,)* }
            }
        }
    };
}

finding_codes! {
    /// The node has as many GPUs as were leased.
    InventoryCount, "inv.count", Replace;
    /// Each GPU is the leased one by name, memory and multiprocessors.
    InventoryIdentity, "inv.identity", Replace;
    /// No GPU is listed twice, by this node or by two nodes of one rental.
    InventoryUnique, "inv.unique", Replace;
    /// A node in use shows the GPUs that were handed over with it, and no others.
    InventoryPinned, "inv.pinned", Replace;
    /// No GPU is in another lease, has failed recently, or was seen before as something else.
    InventoryHistory, "inv.history", Replace;
    /// Kernel, NVML, CUDA and the lease agree on the GPUs.
    InventorySources, "inv.sources", Replace;
    /// As many GPUs are there at the end as at the beginning.
    InventoryRecount, "inv.recount", Reboot;
    /// The driver's version exists for this system and is new enough, and no file of it was replaced.
    InventorySoftware, "inv.software", Replace;
    /// No GPU is cut into slices.
    InventoryMig, "inv.mig", Reset;
    /// Error correction is set as the GPU's kind has it.
    InventoryEccMode, "inv.ecc_mode", Reset;
    /// Nothing of a previous tenant is left on the GPUs.
    InventoryResidue, "inv.residue", Reboot;
    /// The host has the cores and the memory that were leased.
    HostShape, "host.shape", Monitor;
    /// No hypervisor runs what was sold as a whole machine.
    HostVirtualised, "host.virtualised", Monitor;
    /// The host's clock is right.
    HostClock, "host.clock", Monitor;
    /// Every GPU stayed on the bus.
    GpuLost, "gpu.lost", Replace;
    /// The agent could run to the end.
    AgentTrouble, "agent.trouble", Retry;
    /// The fabric between the GPUs of the node is up.
    FabricNotReady, "fabric.not_ready", Reboot;
    /// All links between the GPUs of the node are up.
    NvlinkActive, "nvlink.active", Reboot;
    /// The memory that the agent could allocate is the memory reported.
    MemoryCapacity, "mem.capacity", Replace;
    /// Memory reads back as written, as the agent counted.
    MemoryPattern, "mem.pattern", Replace;
    /// The hash of memory under the fresh key is the one that the pattern has.
    MemoryProof, "mem.proof", Replace;
    /// Memory is copied as fast as the GPU's kind should.
    MemoryBandwidth, "hbm.bw", Replace;
    /// Memory is read as fast as the GPU's kind should.
    MemoryRead, "hbm.read", Replace;
    /// Memory is read and written in a mix as fast as the GPU's kind should.
    MemoryTriad, "hbm.triad", Replace;
    /// Memory kept what it held while the GPU was under load.
    MemoryDwell, "mem.dwell", Replace;
    /// No memory error was left uncorrected.
    HealthEcc, "health.ecc", Replace;
    /// No row or page of memory waits for replacement, or could not be replaced.
    HealthRemap, "health.remap", Replace;
    /// Error counters do not grow.
    HealthGrowth, "health.growth", Monitor;
    /// The driver reported no error (XID) of a GPU while the agent ran.
    HealthXid, "health.xid", Replace;
    /// Whether the container let the agent see the GPUs' health.
    HealthVisible, "health.visible", Monitor;
    /// The vendor's own diagnostic found nothing, where the node has it.
    HealthDiagnostic, "health.diagnostic", Replace;
    /// The host link has the lanes and the generation of the GPU's kind.
    HostLinkShape, "pcie.link", Replace;
    /// Data arrive from the host at the rate of the GPU's host link.
    HostLinkIn, "pcie.h2d", Replace;
    /// Data go to the host at the rate of the GPU's host link.
    HostLinkOut, "pcie.d2h", Replace;
    /// Data arrive from the host at all GPUs at once.
    HostLinkTogether, "pcie.together", Monitor;
    /// Every GPU reaches every other at the rate of their links.
    PairRates, "p2p.pairs", Replace;
    /// All GPUs together reduce at the rate of their links, and correctly.
    AllReduce, "coll.allreduce", Replace;
    /// The power limit is that of the GPU's kind.
    PowerLimit, "power.limit", Replace;
    /// 16-bit products are as fast as the GPU's kind should.
    Gemm16Bit, "gemm.bf16", Replace;
    /// 8-bit products are as fast as the GPU's kind should.
    GemmFp8, "gemm.fp8", Replace;
    /// No GPU is slower than its siblings.
    GemmStraggler, "gemm.straggler", Replace;
    /// The rate under load does not drop.
    BurnSustained, "burn.sustained", Replace;
    /// No heat, power supply or hardware slows the clock under load.
    BurnThrottle, "burn.throttle", Replace;
    /// The GPU draws the power of a loaded one.
    BurnPower, "burn.power", Monitor;
    /// The GPU stays clear of the temperature at which it slows itself.
    BurnTemperature, "burn.temperature", Monitor;
    /// Every port to the network between nodes is up at its rate and stays up.
    NetworkPorts, "net.local", Replace;
    /// Every pair of nodes of the gang copies as fast as the others do.
    NetworkPairs, "net.pairs", Replace;
    /// All nodes of the gang compute a sum together, correctly.
    NetworkAllReduce, "net.allreduce", Replace;
    /// The GPUs of all nodes of the gang compute a sum by NCCL, correctly and as fast as the fabric that was
    /// sold.
    NetworkCollective, "net.collective", Replace;
    /// The GPUs of every two nodes of the gang compute a sum by NCCL, correctly and as fast as those of the
    /// other pairs.
    NetworkCollectivePairs, "net.collective_pairs", Replace;
    /// The sum over the nodes takes as long every time.
    NetworkJitter, "net.jitter", Monitor;
    /// The measurements between the nodes match the fabric that was sold.
    NetworkFabric, "net.fabric", Monitor;
    /// The node was measured with all nodes of its gang, also those of other orders.
    NetworkTogether, "net.together", Monitor;
    /// Storage is read as fast as promised.
    StorageRead, "storage.read", Replace;
    /// Storage is written as fast as promised.
    StorageWrite, "storage.write", Replace;
    /// The same product gave the same bits in every iteration.
    SdcRepeat, "sdc.repeat", Replace;
    /// The committed product is the true one.
    SdcExact, "sdc.exact", Replace;
    /// The tensor units give the same product, bit for bit, as the integer units.
    SdcTensor, "sdc.tensor", Replace;
    /// Each step was answered in time by the broker's clock.
    StepTimedOut, "step.timed_out", Retry;
    /// The report is signed by the committed key and has the agreed form.
    AgentSignature, "agent.signature", Replace;
    /// The report belongs to this conversation and agrees with its steps.
    AgentReport, "agent.report", Replace;
    /// The device is simulated; nothing here is about real hardware.
    DeviceSimulated, "device.simulated", Monitor;
}

// Written out, because the derive does not read words that a macro passes on.
impl utoipa::PartialSchema for FindingCode {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some("The check of a finding."))
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

impl utoipa::ToSchema for FindingCode {
    fn name() -> std::borrow::Cow<'static, str> {
        std::borrow::Cow::Borrowed("FindingCode")
    }
}

impl fmt::Display for FindingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much a check counts for the verdict.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// It must be done and met.
    #[default]
    Must,
    /// It must be met where it was done.
    May,
    /// On trial: shown to the reader, and decides nothing.
    Shadow,
}

impl Weight {
    fn is_must(&self) -> bool {
        *self == Self::Must
    }
}

/// The unit of a finding's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// GPUs.
    Gpus,
    /// 2^20 bytes.
    Mib,
    /// 32-bit words.
    Words,
    /// 1e6 bytes per second; of a copy in memory bytes read plus bytes written.
    MbPerS,
    /// Milliseconds.
    Ms,
    /// 1e9 operations per second.
    Gflops,
    /// Watts.
    W,
    /// Degrees Celsius.
    Celsius,
    /// Thousandths.
    Permille,
    /// Links, ports or lanes.
    Links,
    /// Events or errors counted.
    Events,
    /// Virtual CPUs.
    Vcpus,
}

/// One check and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// The check.
    pub code: FindingCode,
    /// The result.
    pub outcome: Outcome,
    /// How much it counts.
    #[serde(default, skip_serializing_if = "Weight::is_must")]
    pub weight: Weight,
    /// The remedy, where it was not met.
    pub remedy: Option<Remedy>,
    /// The unit of the numbers below.
    pub unit: Option<Unit>,
    /// The worst value.
    pub measured: Option<i64>,
    /// The least (or most) that is accepted.
    pub floor: Option<i64>,
    /// The value of a good node.
    pub expected: Option<i64>,
    /// The values behind `measured`: per GPU in the order of the inventory, else per step, pair, port or
    /// repeat.
    pub samples: Vec<i64>,
    /// The explanation, in a sentence.
    pub note: String,
}

impl Finding {
    /// Whether it counts for the verdict: a check on trial does not.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.weight != Weight::Shadow
    }

    /// Whether it failed and counts, so that its node does not pass.
    #[must_use]
    pub fn counts_against(&self) -> bool {
        self.outcome == Outcome::Failed && self.counts()
    }

    /// Whether it had to be done and was not, so that the verdict is inconclusive.
    #[must_use]
    pub fn leaves_open(&self) -> bool {
        self.outcome == Outcome::NotRun && self.weight == Weight::Must
    }
}

/// Whether the maker of the GPUs vouched for them by what they sign themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attested {
    /// Nobody asked: GPUs sign where they and their machine are set up for confidential computing, which leased
    /// ones rarely are, and no agent asks them for it.
    Unavailable,
}

/// The countersigned result for one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attestation {
    /// Its id.
    pub id: AttestationId,
    /// The version of the conversation that led to it.
    pub protocol: u32,
    /// The verification.
    pub verification_id: VerificationId,
    /// The lease.
    pub lease_id: LeaseId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The node's address, as its provider gave it where it did; absent when the node never called.
    pub host: Option<String>,
    /// The node as leased.
    pub expected: ExpectedNode,
    /// The node's own claims; absent when it did not get that far.
    pub inventory: Option<Inventory>,
    /// How much was checked.
    pub level: Level,
    /// Whether this is a re-check of a node in use: it checks less than a verification before a hand-off.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recheck: bool,
    /// The result.
    pub verdict: Verdict,
    /// Whether the node, or any measurement on it, was simulated. Then this proves nothing about any real
    /// machine.
    pub simulated: bool,
    /// The device that the agent computed on, as it reported.
    pub device_kind: Option<DeviceKind>,
    /// The key that signed the agent's report.
    pub agent_key: Option<AgentKey>,
    /// The BLAKE3 hash of the agent's signed report, byte for byte.
    pub agent_report_digest: Option<Digest>,
    /// The agent that called, as it reported; absent when none did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentBuild>,
    /// The hash of the kernels that measured, as the agent reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Digest>,
    /// The version of the table of floors that was applied.
    pub floors_version: String,
    /// The version of the table of checks that was applied; absent in documents older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules_version: Option<String>,
    /// Whether the maker of the GPUs vouched for them; absent in documents older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested: Option<Attested>,
    /// The findings, in a fixed order.
    pub findings: Vec<Finding>,
    /// What a reader must not conclude from this.
    pub what_this_does_not_prove: Vec<String>,
    /// When the broker judged.
    pub measured_at: DateTime<Utc>,
}

impl Attestation {
    /// Whether this proves that a real machine passed in full. A simulated pass does not. Nor does the short
    /// re-check of a node in use, which takes no memory and measures no rate.
    #[must_use]
    pub const fn proves_real_hardware(&self) -> bool {
        self.verdict.is_pass() && !self.simulated && !self.recheck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_the_same_word_in_text_and_in_json_and_no_word_serves_twice() {
        let mut words: Vec<&str> = FindingCode::ALL.iter().map(|code| code.as_str()).collect();
        for code in FindingCode::ALL {
            assert_eq!(serde_json::to_value(code).expect("json"), code.as_str());
        }
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), FindingCode::ALL.len());
    }

    #[test]
    fn only_the_two_passes_hand_a_node_over() {
        assert!(Verdict::Pass.is_pass() && Verdict::PassWithWarnings.is_pass());
        assert!(!Verdict::Fail.is_pass() && !Verdict::Inconclusive.is_pass());
        for verdict in [
            Verdict::Pass,
            Verdict::PassWithWarnings,
            Verdict::Fail,
            Verdict::Inconclusive,
        ] {
            assert_eq!(
                serde_json::to_value(verdict).expect("json"),
                verdict.as_str()
            );
        }
    }
}
