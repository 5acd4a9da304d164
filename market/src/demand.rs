//! The demand: what a tenant asks for. One closed JSON schema, with `kind` as its tag.
//!
//! Shapes and units are here. [`check`] checks that the numbers make sense; the matcher finds what satisfies
//! a demand.

mod calibration;
pub mod check;
mod counts;
mod hybrid;
mod model;
mod service;
mod terms;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use calibration::{ServeCalibration, TrainCalibration};
pub use counts::Counts;
pub use hybrid::Half;
pub use model::{Checkpointing, Model, ModelShape, Precision, TrainMethod};
pub use service::{LatencyObjective, Survive, UserShare};
pub use terms::{Ceiling, OnUnreachable, Places, Policy, Window};

use crate::fabric::FabricWanted;
use crate::gpu::GpusWanted;
use crate::offer::Tenancy;
use crate::tags::Tags;
use crate::verification::Level;

/// What a tenant asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Demand {
    /// So many GPUs of one kind.
    Gpus(GpusDemand),
    /// A training run.
    Train(TrainDemand),
    /// A fleet that answers requests as they come.
    ServeRealtime(ServeRealtimeDemand),
    /// A batch of requests without a latency limit.
    ServeBatch(ServeBatchDemand),
    /// A training run and the serving fleet that follows it.
    Hybrid(Box<HybridDemand>),
}

/// The kind of a demand, as a word.
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
pub enum DemandKind {
    /// `gpus`
    Gpus,
    /// `train`
    Train,
    /// `serve_realtime`
    ServeRealtime,
    /// `serve_batch`
    ServeBatch,
    /// `hybrid`
    Hybrid,
}

impl DemandKind {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gpus => "gpus",
            Self::Train => "train",
            Self::ServeRealtime => "serve_realtime",
            Self::ServeBatch => "serve_batch",
            Self::Hybrid => "hybrid",
        }
    }
}

macro_rules! demand {
    (
        $(#[$doc:meta])*
        $name:ident of $gpu:expr => { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            /// Memory of each GPU, at least, as its maker states it: 80 takes an H100. Units: GB.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 1, maximum = 10_000)]
            pub gpu_memory_gib: Option<u32>,
            /// Main memory of each node, at least; a seller that does not state it does not qualify.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 1, maximum = 1_000_000)]
            pub host_memory_gib: Option<u32>,
            /// Virtual CPUs of each node, at least; a seller that does not state them does not qualify.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(minimum = 1, maximum = 100_000)]
            pub vcpus: Option<u32>,
            /// When it is wanted.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub window: Option<Window>,
            /// The highest price to accept.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub ceiling: Option<Ceiling>,
            /// Where it may stand.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub places: Option<Places>,
            /// The kinds of machine to accept; any by default.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schema(min_items = 1, max_items = 4)]
            pub tenancy: Option<Vec<Tenancy>>,
            /// Rules that apply at any price.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub policy: Option<Policy>,
            /// The verification level that its nodes must pass before the hand-off; by default the service's
            /// own, and never below the service's minimum.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub verification: Option<Level>,
            /// Free tags.
            #[serde(default, skip_serializing_if = "Tags::is_empty")]
            #[schema(value_type = std::collections::BTreeMap<String, String>)]
            pub tags: Tags,
        }

        impl $name {
            /// The fields that every kind has.
            #[must_use]
            pub fn shared(&self) -> Shared<'_> {
                let of: fn(&Self) -> Option<&GpusWanted> = $gpu;
                Shared {
                    gpu: of(self),
                    gpu_memory_gib: self.gpu_memory_gib,
                    host_memory_gib: self.host_memory_gib,
                    vcpus: self.vcpus,
                    window: self.window.as_ref(),
                    ceiling: self.ceiling.as_ref(),
                    places: self.places.as_ref(),
                    tenancy: self.tenancy.as_deref(),
                    policy: self.policy.as_ref(),
                    verification: self.verification,
                    tags: &self.tags,
                }
            }
        }
    };
}

/// The fields that every kind of demand has.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    /// The GPUs to choose from; all of them, where none is named.
    pub gpu: Option<&'a GpusWanted>,
    /// Memory of each GPU, at least, as its maker states it. Units: GB.
    pub gpu_memory_gib: Option<u32>,
    /// Main memory of each node, at least. Units: GiB.
    pub host_memory_gib: Option<u32>,
    /// Virtual CPUs of each node, at least.
    pub vcpus: Option<u32>,
    /// When it is wanted.
    pub window: Option<&'a Window>,
    /// The highest price to accept.
    pub ceiling: Option<&'a Ceiling>,
    /// Where it may stand.
    pub places: Option<&'a Places>,
    /// The kinds of machine to accept.
    pub tenancy: Option<&'a [Tenancy]>,
    /// Rules that apply at any price.
    pub policy: Option<&'a Policy>,
    /// The verification level of its nodes.
    pub verification: Option<Level>,
    /// Free tags.
    pub tags: &'a Tags,
}

demand! {
    /// So many GPUs of one kind.
    GpusDemand of |demand| Some(&demand.gpu) => {
        /// A canonical GPU (`H100-SXM`), a family (`H100`), what price lists write (`A100-80GB`), a least
        /// memory (`40GB+`) or `any`; or a list of them, of which any will do.
        gpu: GpusWanted,
        /// GPUs in each node: a number, or the fewest and the most.
        count: Counts,
        /// Nodes.
        #[serde(default = "one")]
        #[schema(minimum = 1, maximum = 10_000, default = 1)]
        nodes: u32,
        /// What must connect several nodes. With `rdma` and `infiniband` they are verified together and
        /// replaced together before the hand-off. They also end together when one of them is lost in use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fabric: Option<FabricWanted>,
        /// Spot instead of on demand.
        #[serde(default)]
        spot: bool,
    }
}

demand! {
    /// A training run.
    TrainDemand of |demand| demand.gpu.as_ref() => {
        /// The model to train.
        model: Model,
        /// Only on these GPUs, as in a demand of the kind `gpus`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<GpusWanted>,
        /// What must connect several nodes; `rdma` by default. `any` also accepts plain Ethernet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fabric: Option<FabricWanted>,
        /// Tokens to train on.
        #[schema(minimum = 1, maximum = 1_000_000_000_000_000_i64)]
        tokens: u64,
        /// Tokens in one sequence.
        #[serde(default = "default_sequence_length")]
        #[schema(minimum = 1, maximum = 10_000_000, default = 4096)]
        sequence_length: u32,
        /// Sequences in one optimiser step, over all GPUs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 10_000_000)]
        global_batch_sequences: Option<u32>,
        /// The precision of the matrix products.
        #[serde(default = "default_precision")]
        precision: Precision,
        /// Which parameters are trained.
        #[serde(default)]
        method: TrainMethod,
        /// GPUs in all, if the tenant has decided; else the number on which the run costs least.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 100_000)]
        gpus: Option<u32>,
        /// When the run must be done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<DateTime<Utc>>,
        /// How checkpoints are written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpointing: Option<Checkpointing>,
        /// A measured step of this run, by which its predictions are corrected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        calibration: Option<TrainCalibration>,
    }
}

demand! {
    /// A fleet that answers requests as they come.
    ServeRealtimeDemand of |demand| demand.gpu.as_ref() => {
        /// The model to serve.
        model: Model,
        /// Only on these GPUs, as in a demand of the kind `gpus`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<GpusWanted>,
        /// The precision of the weights.
        #[serde(default = "default_precision")]
        weights: Precision,
        /// The precision of the key-value cache.
        #[serde(default = "default_precision")]
        kv_cache: Precision,
        /// Requests per second at the peak; this or `concurrency`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 0.001, maximum = 1_000_000)]
        requests_per_second: Option<f64>,
        /// Requests in flight at the peak; this or `requests_per_second`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 10_000_000)]
        concurrency: Option<u32>,
        /// Tokens of a prompt.
        #[schema(minimum = 1, maximum = 10_000_000)]
        input_tokens: u32,
        /// Tokens of an answer.
        #[schema(minimum = 1, maximum = 10_000_000)]
        output_tokens: u32,
        /// Where the users are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[schema(max_items = 250)]
        users: Vec<UserShare>,
        /// How fast answers must come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        latency: Option<LatencyObjective>,
        /// The failures that the fleet must survive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        survive: Option<Survive>,
        /// By which factor the load grows over the window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(minimum = 1, maximum = 1_000)]
        growth: Option<f64>,
        /// A measurement of one replica of this model, by which its predictions are corrected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        calibration: Option<ServeCalibration>,
    }
}

demand! {
    /// A batch of requests without a latency limit.
    ServeBatchDemand of |demand| demand.gpu.as_ref() => {
        /// The model to serve.
        model: Model,
        /// Only on these GPUs, as in a demand of the kind `gpus`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<GpusWanted>,
        /// The precision of the weights.
        #[serde(default = "default_precision")]
        weights: Precision,
        /// The precision of the key-value cache.
        #[serde(default = "default_precision")]
        kv_cache: Precision,
        /// Requests in the batch.
        #[schema(minimum = 1, maximum = 1_000_000_000_000_i64)]
        requests: u64,
        /// Tokens of a prompt.
        #[schema(minimum = 1, maximum = 10_000_000)]
        input_tokens: u32,
        /// Tokens of an answer.
        #[schema(minimum = 1, maximum = 10_000_000)]
        output_tokens: u32,
        /// When the batch must be done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<DateTime<Utc>>,
        /// A measurement of one replica of this model, by which its predictions are corrected.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        calibration: Option<ServeCalibration>,
    }
}

/// The serving half of a hybrid demand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ServeHalf {
    /// Requests as they come.
    ServeRealtime(ServeRealtimeDemand),
    /// A batch of requests.
    ServeBatch(ServeBatchDemand),
}

demand! {
    /// A training run and the serving fleet that follows it. The fields beside its halves apply to both, and
    /// a half may only narrow them.
    HybridDemand of |_| None => {
        /// The training run.
        train: TrainDemand,
        /// The fleet.
        serve: ServeHalf,
    }
}

impl GpusDemand {
    /// What must connect its nodes; nothing for one node.
    #[must_use]
    pub fn joined_by(&self) -> FabricWanted {
        let forbids = self
            .policy
            .as_ref()
            .and_then(|policy| policy.allow_ethernet)
            == Some(false);
        match self.fabric {
            _ if self.nodes <= 1 => FabricWanted::Any,
            Some(fabric) => fabric,
            None if forbids => FabricWanted::Rdma,
            None => FabricWanted::Any,
        }
    }

    /// Whether the demand leaves open what must connect its several nodes.
    #[must_use]
    pub fn leaves_fabric_open(&self) -> bool {
        let policy = self.policy.as_ref();
        self.nodes > 1
            && self.fabric.is_none()
            && policy.and_then(|policy| policy.allow_ethernet).is_none()
    }
}

impl TrainDemand {
    /// What must connect its nodes, where there are several.
    #[must_use]
    pub fn joined_by(&self) -> FabricWanted {
        let allows = self
            .policy
            .as_ref()
            .and_then(|policy| policy.allow_ethernet)
            == Some(true);
        self.fabric.unwrap_or(match allows {
            true => FabricWanted::Any,
            false => FabricWanted::Rdma,
        })
    }
}

const fn one() -> u32 {
    1
}

const fn default_sequence_length() -> u32 {
    4_096
}

const fn default_precision() -> Precision {
    Precision::Bf16
}

impl Demand {
    /// The kind as a word.
    #[must_use]
    pub const fn kind(&self) -> DemandKind {
        match self {
            Self::Gpus(_) => DemandKind::Gpus,
            Self::Train(_) => DemandKind::Train,
            Self::ServeRealtime(_) => DemandKind::ServeRealtime,
            Self::ServeBatch(_) => DemandKind::ServeBatch,
            Self::Hybrid(_) => DemandKind::Hybrid,
        }
    }

    /// The fields that every kind has.
    #[must_use]
    pub fn shared(&self) -> Shared<'_> {
        match self {
            Self::Gpus(demand) => demand.shared(),
            Self::Train(demand) => demand.shared(),
            Self::ServeRealtime(demand) => demand.shared(),
            Self::ServeBatch(demand) => demand.shared(),
            Self::Hybrid(demand) => demand.shared(),
        }
    }

    /// The demand of a half where it is a hybrid one, and the whole where it is not.
    #[must_use]
    pub fn of_half(self, half: Option<Half>) -> Self {
        match (self, half) {
            (Self::Hybrid(hybrid), Some(half)) => hybrid.half(half),
            (demand, _) => demand,
        }
    }

    /// Where its window is kept.
    pub fn window_mut(&mut self) -> &mut Option<Window> {
        match self {
            Self::Gpus(demand) => &mut demand.window,
            Self::Train(demand) => &mut demand.window,
            Self::ServeRealtime(demand) => &mut demand.window,
            Self::ServeBatch(demand) => &mut demand.window,
            Self::Hybrid(demand) => &mut demand.window,
        }
    }

    /// Where its ceiling is kept.
    pub fn ceiling_mut(&mut self) -> &mut Option<Ceiling> {
        match self {
            Self::Gpus(demand) => &mut demand.ceiling,
            Self::Train(demand) => &mut demand.ceiling,
            Self::ServeRealtime(demand) => &mut demand.ceiling,
            Self::ServeBatch(demand) => &mut demand.ceiling,
            Self::Hybrid(demand) => &mut demand.ceiling,
        }
    }

    /// By when its work must be done, if the demand has a deadline.
    #[must_use]
    pub const fn deadline(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Train(demand) => demand.deadline,
            Self::ServeBatch(demand) => demand.deadline,
            Self::Gpus(_) | Self::ServeRealtime(_) | Self::Hybrid(_) => None,
        }
    }

    /// The latest that capacity set aside at `held_at` is handed off, as far as the demand limits it.
    #[must_use]
    pub fn handed_off_by(&self, held_at: DateTime<Utc>) -> DateTime<Utc> {
        let window = self.shared().window;
        window.map_or(held_at, |window| window.handed_off_by(held_at))
    }

    /// The latest that capacity set aside at `held_at` can end: with its window, and where that is
    /// open when its work must be done; `None`: the end is open.
    #[must_use]
    pub fn ends_by(&self, held_at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let window = self.shared().window;
        let by_window = window.and_then(|window| window.ends_by(held_at));
        by_window.or_else(|| self.deadline())
    }
}
