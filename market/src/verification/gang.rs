//! The nodes of a gang together: the messages while the network between them is measured.
//!
//! A node that passed alone calls `POST /v1/verifications/{id}/gang` repeatedly. It reports its addresses and
//! its measurements, and the broker answers with the next step. The broker leads all nodes through the same
//! rounds: every pair once, each node in one pair at a time, then one sum over all of them. Where every node
//! has the same NCCL, more rounds use it, for pairs and for all. Nodes are numbered through the whole gang,
//! from 0.

use serde::{Deserialize, Serialize};

use super::{AgentKey, CollectiveAlgorithm, Digest, NcclId};
use crate::attestation::Verdict;

/// The most addresses at which one node listens.
pub const MOST_RAILS: usize = 16;
/// The most connections that carry one copy together.
pub const MOST_CONNECTIONS: u32 = 16;

/// The line that an agent writes to its standard error when it begins to wait for nodes of other orders.
pub const GATHERS: &str = "this node passed; it waits for nodes of its gang's other orders";
/// The line that it writes when it no longer waits for them.
pub const GOES_ON: &str = "all nodes of the gang have come";

/// The default for orders from before this field: one connection.
const fn one_connection() -> u32 {
    1
}

/// One path of a node to the others: an adapter of the fabric, or the host's usual address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rail {
    /// The adapter, such as `mlx5_0`; `host` for the host's usual address.
    #[schema(max_length = 64)]
    pub name: String,
    /// Where it listens: an IP address and a port.
    #[schema(max_length = 64)]
    pub address: String,
}

/// Agent to broker: the node, its addresses, and its results of the round before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GangCall {
    /// The agent that calls: the key that it committed in step 1.
    pub agent_key: AgentKey,
    /// Where it listens, in the order of its adapters.
    #[schema(min_items = 1, max_items = 16)]
    pub rails: Vec<Rail>,
    /// What it contributes to a sum by NCCL; absent where it has no NCCL, and from older agents. The first
    /// call sets it for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl: Option<NcclPart>,
    /// The results of a round, once it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<RoundDone>,
}

/// What a node contributes to a sum by NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NcclPart {
    /// The library's version, as it numbers it: 10000 x major + 100 x minor + patch.
    #[schema(minimum = 1, maximum = 999_999)]
    pub version: u32,
    /// How many GPUs.
    #[schema(minimum = 1, maximum = 64)]
    pub gpus: u32,
}

/// One node's results of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RoundDone {
    /// The round.
    #[schema(minimum = 0, maximum = 1_000)]
    pub round: u32,
    /// Its results.
    pub shown: Shown,
}

/// The results of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Shown {
    /// Copies to the other node of the pair and from it. Per rail; 1e6 bytes per second.
    Pair {
        /// As this node sent, until the other had received all of it.
        #[schema(max_items = 16)]
        sent_mb_per_s: Vec<u64>,
        /// As this node received.
        #[schema(max_items = 16)]
        received_mb_per_s: Vec<u64>,
    },
    /// The sum over all nodes.
    Ring {
        /// How long each repeat took, microseconds.
        #[schema(max_items = 1_000)]
        repeats_us: Vec<u64>,
        /// Words that were wrong, in all repeats.
        wrong_words: u64,
    },
    /// The id by which the GPUs of several nodes find each other. This node waits for them there.
    NcclId {
        /// The id.
        id: NcclId,
    },
    /// The sum over the GPUs of several nodes by NCCL.
    NcclSum {
        /// The algorithm.
        algorithm: CollectiveAlgorithm,
        /// How many GPUs of this node took part.
        #[schema(minimum = 1, maximum = 64)]
        gpus: u32,
        /// How long each repeat took, microseconds.
        #[schema(max_items = 1_000)]
        repeats_us: Vec<u64>,
        /// Words that were wrong, in all repeats: at least this many.
        wrong_words: u64,
    },
    /// The round could not be done.
    Failed {
        /// Why, in words.
        #[schema(max_length = 512)]
        why: String,
    },
}

/// Broker to agent: what to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum GangAnswer {
    /// Others are not there yet, or still busy: call again.
    Wait {
        /// After so long, ms.
        after_ms: u64,
    },
    /// Nodes that are orders of their own have not been verified yet: call again, however long that takes.
    Gather {
        /// After so long, ms.
        after_ms: u64,
    },
    /// Measure this round, then call.
    Measure {
        /// The round.
        round: Round,
    },
    /// It is over.
    Over {
        /// The broker's verdict on the gang.
        verdict: Verdict,
    },
}

/// One round as one node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// Its number.
    #[schema(minimum = 0, maximum = 1_000)]
    pub number: u32,
    /// A secret of this round. Connections of a pair begin with it; the words of a sum over all nodes are
    /// derived from it.
    pub secret: Digest,
    /// This node's number.
    #[schema(minimum = 0, maximum = 1_000)]
    pub node: u32,
    /// How long the round may take, ms.
    #[schema(minimum = 1, maximum = 3_600_000)]
    pub within_ms: u64,
    /// The measurement.
    pub measure: Measure,
}

/// Another node, as one can connect to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sibling {
    /// Its number.
    #[schema(minimum = 0, maximum = 1_000)]
    pub node: u32,
    /// Where it listens.
    #[schema(max_items = 16)]
    pub rails: Vec<Rail>,
}

/// The measurement of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Measure {
    /// Copies between this node and one other, on one rail after the other.
    Pair {
        /// The other node.
        sibling: Sibling,
        /// Whether this node connects and sends first; the other accepts.
        connects: bool,
        /// How many connections carry a copy together, so that no single one of them limits it.
        #[serde(default = "one_connection")]
        #[schema(minimum = 1, maximum = 16)]
        connections: u32,
        /// Bytes in each direction on each rail.
        #[schema(minimum = 1, maximum = 1_099_511_627_776_u64)]
        bytes: u64,
        /// How often it is repeated; the best counts.
        #[schema(minimum = 1, maximum = 1_000)]
        repeats: u32,
    },
    /// A sum over all nodes, passed around in a ring.
    Ring {
        /// The next node of the ring.
        next: Sibling,
        /// The secret that connections to the next node begin with; only these two nodes know it.
        to_next: Digest,
        /// The secret that connections from the previous node begin with.
        from_before: Digest,
        /// How many nodes there are.
        #[schema(minimum = 2, maximum = 1_000)]
        nodes: u32,
        /// The rails that every node has.
        #[schema(minimum = 1, maximum = 16)]
        rails: u32,
        /// The payload of each rail, bytes: a multiple of 8.
        #[schema(minimum = 8, maximum = 1_099_511_627_776_u64)]
        bytes: u64,
        /// How often it is repeated.
        #[schema(minimum = 1, maximum = 1_000)]
        repeats: u32,
    },
    /// The id by which the GPUs of several nodes will find each other in NCCL: the first of them makes it.
    NcclId,
    /// A sum over the GPUs of several nodes by NCCL, with its own choice of algorithm.
    NcclSum(Box<NcclSum>),
}

/// One node's part in a sum over the GPUs of several nodes, all or two of them, by NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NcclSum {
    /// The id by which the GPUs find each other.
    pub id: NcclId,
    /// How many GPUs these nodes have together.
    #[schema(minimum = 2, maximum = 8_192)]
    pub ranks: u32,
    /// The number of this node's first GPU among them; the others follow.
    #[schema(minimum = 0, maximum = 8_191)]
    pub first_rank: u32,
    /// How many GPUs of this node take part.
    #[schema(minimum = 1, maximum = 64)]
    pub gpus: u32,
    /// The payload of each GPU, bytes: a multiple of 16.
    #[schema(minimum = 16, maximum = 1_099_511_627_776_u64)]
    pub bytes: u64,
    /// How often it is done before it is timed.
    #[schema(minimum = 1, maximum = 1_000)]
    pub warm_ups: u32,
    /// How often it is timed.
    #[schema(minimum = 1, maximum = 1_000)]
    pub repeats: u32,
}

/// How much is measured between the nodes of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangWork {
    /// How many connections carry a pair's copy together.
    #[serde(default = "one_connection")]
    pub pair_connections: u32,
    /// Bytes of a pair in each direction on each rail.
    pub pair_bytes: u64,
    /// How often a pair is repeated.
    pub pair_repeats: u32,
    /// The payload of the sum on each rail, bytes: a multiple of 8.
    pub ring_bytes: u64,
    /// How often the sum is repeated.
    pub ring_repeats: u32,
    /// How long a round may take, ms.
    pub round_ms: u64,
    /// The payload of each GPU in the sum by NCCL, bytes, at most. A row from before this field has 0, and
    /// runs no such sum.
    #[serde(default)]
    pub nccl_bytes: u64,
    /// How often that sum is done before it is timed.
    #[serde(default)]
    pub nccl_warm_ups: u32,
    /// How often that sum is timed.
    #[serde(default)]
    pub nccl_repeats: u32,
    /// As `nccl_bytes`, in the sums of two nodes alone.
    #[serde(default)]
    pub nccl_pair_bytes: u64,
    /// How often those are timed.
    #[serde(default)]
    pub nccl_pair_repeats: u32,
}
