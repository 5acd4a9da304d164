//! The agent's description of itself, and the report that it signs at the end.

use serde::{Deserialize, Serialize};

use super::{Digest, Inventory, NodeFacts, Step, Trouble, Word64};
use crate::ids::VerificationId;

/// The device that the agent computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The CPU reference device, which simulates the node of a description file.
    Reference,
    /// GPUs through the CUDA driver.
    Cuda,
}

/// The agent that calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentBuild {
    /// Its version.
    #[schema(max_length = 64)]
    pub version: String,
    /// The SHA-256 of its own file, as it reports.
    pub sha256: Digest,
}

/// One GPU in the signed report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuReport {
    /// As in step 2.
    pub checksums: Vec<Word64>,
    /// As in step 3, MiB.
    pub allocatable_mib: u32,
    /// As in step 5.
    pub bad_words: u64,
    /// Samples of the copy rate, bytes read plus bytes written, 1e6 bytes per second.
    pub copy_mb_per_s: Vec<u64>,
}

/// How long the agent took for a step by its own clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepDuration {
    /// The step.
    pub step: Step,
    /// The time, ms.
    pub elapsed_ms: u64,
}

/// The report that the agent signs. Integers only, so that its canonical form is exact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentReport {
    /// The version of the conversation.
    pub protocol: u32,
    /// The verification.
    pub verification_id: VerificationId,
    /// The nonce of this conversation.
    pub nonce: Digest,
    /// The hash over all messages of the steps before, in both directions.
    pub transcript: Digest,
    /// The agent.
    pub agent: AgentBuild,
    /// The device that it computed on.
    pub device_kind: DeviceKind,
    /// Whether anything in it was simulated rather than measured.
    pub simulated: bool,
    /// As in step 1.
    pub host: String,
    /// As in step 2.
    pub inventory: Inventory,
    /// Per GPU of the inventory.
    pub gpus: Vec<GpuReport>,
    /// Per step before this one.
    pub durations: Vec<StepDuration>,
    /// Observations beyond the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Box<NodeFacts>>,
    /// What kept the agent from continuing; then the report may come before its step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub troubles: Vec<Trouble>,
}
