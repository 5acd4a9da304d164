//! The conversation by which a node is verified: the messages of each step.
//!
//! The agent sends `POST /v1/verifications/{id}/steps/{n}` six times: commit (key, answered by nonce and
//! order), roots (answered by random choices), fill (answered by a fresh key), memory (its contents hashed
//! under that key, and nothing else, so that the broker can time it), openings (answered by blocks to open)
//! and the signed report. One verification covers all nodes of a lease. Each node reports for itself and is
//! identified by the key that it committed, which every later step repeats. The broker answers no node in
//! step 1 before all of them have committed.
//!
//! Only the message types are here. The `verifier` crate computes and judges the answers; the result is in
//! [`crate::attestation`].

mod facts;
mod gang;
mod links;
mod opaque;
mod order;
mod report;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use facts::{
    BurnFacts, DiagnosticEnd, DiagnosticFacts, DiagnosticResult, DiagnosticTest, DriverFacts,
    FabricState, GpuCounts, GpuFacts, GpuRates, HealthCounters, HostFacts, HostLink, LibraryFacts,
    LoggedXid, MOST_DIAGNOSTIC_TESTS, NodeFacts, PortFacts, StorageFacts, Trouble, TroubleKind,
    XidEvent,
};
pub use gang::{
    GATHERS, GOES_ON, GangAnswer, GangCall, GangWork, MOST_CONNECTIONS, MOST_RAILS, Measure,
    NcclPart, NcclSum, Rail, Round, RoundDone, Shown, Sibling,
};
pub use links::{CollectiveAlgorithm, CollectiveOperation, CollectiveRate, PairRate};
pub use opaque::{AgentKey, Digest, InvalidOpaque, NcclId, Word64};
pub use order::{
    BandwidthWork, ExpectedNode, GemmWork, Level, MemoryWork, Pattern, StepDeadlines,
    StoragePromise, VerificationOrder,
};
pub use report::{AgentBuild, AgentReport, DeviceKind, GpuReport, StepDuration};

use crate::attestation::Verdict;
use crate::fabric::Internode;
use crate::ids::AttestationId;

/// The version of the conversation that these types describe.
pub const PROTOCOL: u32 = 4;

/// A step of the conversation.
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
pub enum Step {
    /// The agent commits to its key.
    Commit,
    /// The agent commits to its products.
    Roots,
    /// The agent reports that memory is filled.
    Fill,
    /// The agent commits to its memory.
    Memory,
    /// The agent opens the chosen rows.
    Openings,
    /// The agent signs its findings.
    Report,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 6] = [
        Self::Commit,
        Self::Roots,
        Self::Fill,
        Self::Memory,
        Self::Openings,
        Self::Report,
    ];

    /// The number in the path, 1 to 6.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Commit => 1,
            Self::Roots => 2,
            Self::Fill => 3,
            Self::Memory => 4,
            Self::Openings => 5,
            Self::Report => 6,
        }
    }

    /// The step with this number in the path.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.number() == number)
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Roots => "roots",
            Self::Fill => "fill",
            Self::Memory => "memory",
            Self::Openings => "openings",
            Self::Report => "report",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Step 1, agent to broker: the key comes before any secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The version of the conversation that the agent uses.
    #[schema(minimum = 1, maximum = 1_000)]
    pub protocol: u32,
    /// The public key that will sign the report.
    pub agent_key: AgentKey,
    /// The node's own address as it reports it; the broker finds the node of the lease by it.
    #[schema(max_length = 255)]
    pub host: String,
    /// The agent.
    pub agent: AgentBuild,
    /// The device that it computes on.
    pub device_kind: DeviceKind,
}

/// Step 1, broker to agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitReply {
    /// The secret that all inputs are derived from; used once.
    pub nonce: Digest,
    /// The work to do.
    pub order: VerificationOrder,
}

/// The driver's description of one GPU. All of it is claimed, none of it proved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuClaim {
    /// The product name.
    #[schema(max_length = 128)]
    pub name: String,
    /// The unique id.
    #[schema(max_length = 128)]
    pub uuid: String,
    /// Memory, MiB.
    #[schema(minimum = 0, maximum = 16_777_216)]
    pub memory_mib: u32,
    /// Streaming multiprocessors (or compute units), if the driver reports them.
    #[schema(minimum = 1, maximum = 100_000)]
    pub sm_count: Option<u32>,
}

/// The node's description of itself. All of it is claimed, none of it proved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// The driver's version.
    #[schema(max_length = 64)]
    pub driver: String,
    /// Virtual CPUs.
    #[schema(minimum = 0, maximum = 100_000)]
    pub vcpus: u32,
    /// Host memory, GiB.
    #[schema(minimum = 0, maximum = 1_048_576)]
    pub memory_gib: u32,
    /// The network to the other nodes, as far as the node can tell.
    pub internode: Internode,
    /// The GPUs in the driver's order. All later lists of GPUs follow this order.
    #[schema(max_items = 64)]
    pub gpus: Vec<GpuClaim>,
    /// The adapters to the network between nodes, in the system's order: `mlx5_0`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub nics: Vec<String>,
    /// The public keys of its SSH server, each a kind and its key as in a `.pub` file; none where the node
    /// has not generated them yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub ssh_host_keys: Vec<String>,
}

/// One GPU's commitment to its products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GemmCommitment {
    /// The root of the tree over the roots of all products of the chain.
    pub chain: Digest,
    /// The checksum of the first product after each iteration.
    pub checksums: Vec<Word64>,
}

/// Step 2, agent to broker: the inventory and the commitments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Roots {
    /// The agent that calls.
    pub agent_key: AgentKey,
    /// The node's description of itself.
    pub inventory: Inventory,
    /// Per GPU of the inventory.
    #[schema(max_items = 64)]
    pub gpus: Vec<GemmCommitment>,
}

/// Step 2, broker to agent: choices that nobody could know before the roots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// The seed of the vector r by which the first product of every GPU is multiplied.
    pub freivalds_seed: Digest,
    /// The seed of the memory fill: none of it could be made before.
    pub fill_seed: Digest,
    /// Per GPU, the rows to open, of any products of its chain, in their order.
    pub rows: Vec<Vec<ChosenRow>>,
}

/// A row of one product of a chain.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(deny_unknown_fields)]
pub struct ChosenRow {
    /// The number of the product in its chain, from 0.
    #[schema(minimum = 0, maximum = 99_999)]
    pub link: u32,
    /// The row of that product.
    #[schema(minimum = 0, maximum = 32_767)]
    pub row: u32,
}

/// One GPU's memory, filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Filled {
    /// Memory that could be allocated, MiB.
    #[schema(minimum = 0, maximum = 16_777_216)]
    pub allocatable_mib: u32,
    /// Bytes that hold the pattern.
    #[schema(minimum = 0, maximum = 17_592_186_044_416_u64)]
    pub filled_bytes: u64,
}

/// Step 3, agent to broker: all passes but the last are done, the last fill is in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fill {
    /// The agent that calls.
    pub agent_key: AgentKey,
    /// Per GPU of the inventory.
    #[schema(max_items = 64)]
    pub gpus: Vec<Filled>,
}

/// Step 3, broker to agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FreshKey {
    /// The key under which all memory is now hashed.
    pub key: Digest,
}

/// Step 4, agent to broker: the trees over memory under the fresh key. The message carries nothing else, and
/// the agent does nothing else before it, because the proof depends on its time of arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryRoots {
    /// The agent that calls.
    pub agent_key: AgentKey,
    /// Per GPU of the inventory, the root of the tree.
    #[schema(max_items = 64)]
    pub roots: Vec<Digest>,
}

/// Step 4, broker to agent: the trees are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryTaken {}

/// One row of a product with its way to the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenedRow {
    /// The row as chosen.
    pub at: ChosenRow,
    /// Its n entries.
    pub values: Vec<i32>,
    /// The sibling hashes from the leaf to the root of its product.
    #[schema(max_items = 64)]
    pub path: Vec<Digest>,
    /// The sibling hashes from there to the root of the chain.
    #[schema(max_items = 64)]
    pub link_path: Vec<Digest>,
    /// The product before, from which its inputs are derived; absent for the first.
    pub before: Option<LinkBefore>,
}

/// The root of a product of a chain, with its way to the root of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkBefore {
    /// The root of the tree over its rows.
    pub root: Digest,
    /// The sibling hashes from there to the root of the chain.
    #[schema(max_items = 64)]
    pub path: Vec<Digest>,
}

/// One GPU's openings, and the result of its memory comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuOpenings {
    /// The chosen rows, in the order chosen.
    pub rows: Vec<OpenedRow>,
    /// C r of the first product: n elements mod 2^61 - 1.
    pub product: Vec<Word64>,
    /// 32-bit words that did not read back as written, over all passes.
    #[schema(minimum = 0, maximum = 4_398_046_511_104_u64)]
    pub bad_words: u64,
    /// The lowest byte offset of such a word.
    #[schema(minimum = 0, maximum = 17_592_186_044_416_u64)]
    pub lowest_bad_offset: Option<u64>,
}

/// Step 5, agent to broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Openings {
    /// The agent that calls.
    pub agent_key: AgentKey,
    /// Per GPU of the inventory.
    #[schema(max_items = 64)]
    pub gpus: Vec<GpuOpenings>,
}

/// Step 5, broker to agent: choices that nobody could know before the tree over memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockChoices {
    /// Per GPU, the blocks of memory to open.
    pub blocks: Vec<Vec<u64>>,
}

/// One block of memory with its way to the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenedBlock {
    /// The block as chosen.
    #[schema(minimum = 0, maximum = 1_099_511_627_776_u64)]
    pub block: u64,
    /// Its digest under the fresh key.
    pub digest: Word64,
    /// The digests of the other blocks of its leaf, in their order. Shape: a leaf has 16 blocks, the last one
    /// the remainder.
    #[schema(max_items = 15)]
    pub beside: Vec<Word64>,
    /// The sibling hashes from leaf to root.
    #[schema(max_items = 64)]
    pub path: Vec<Digest>,
}

/// Step 6, agent to broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportSubmission {
    /// The agent that calls.
    pub agent_key: AgentKey,
    /// Per GPU, the chosen blocks, in the order chosen.
    #[schema(max_items = 64)]
    pub blocks: Vec<Vec<OpenedBlock>>,
    /// The [`AgentReport`] as a compact JWS, signed by the committed key.
    #[schema(max_length = 262_144)]
    pub report: String,
}

/// Step 6, broker to agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportReply {
    /// The broker's verdict.
    pub verdict: Verdict,
    /// Where the countersigned result is found.
    pub attestation_id: AttestationId,
    /// Whether the node is now measured together with the others of its gang.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gang: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_numbered_from_one_and_found_by_number() {
        for (index, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(step.number()), index + 1);
            assert_eq!(Step::from_number(step.number()), Some(step));
            assert_eq!(serde_json::to_value(step).expect("json"), step.as_str());
        }
        assert_eq!(Step::from_number(0), None);
        assert_eq!(Step::from_number(7), None);
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let key = "A".repeat(43);
        let plain = serde_json::json!({"agent_key": key, "gpus": []});
        assert!(serde_json::from_value::<Fill>(plain).is_ok());
        let more = serde_json::json!({"agent_key": key, "gpus": [], "verdict": "pass"});
        assert!(serde_json::from_value::<Fill>(more).is_err());
    }
}
