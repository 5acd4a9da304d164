//! An offer: a SKU at a place, under terms, at a price, with availability, as last read.

mod particulars;

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::fabric::Internode;
use crate::gpu::GpuIdentity;
use crate::ids::{OfferId, ProviderId};
use crate::money::{Money, MoneyError, Rate, divide_half_even};
use crate::place::Place;
use crate::quantity::GpuCount;

pub use particulars::{Extra, ExtraBasis, MachineOperator, Particulars, Stock, Tenure};

/// The kind of machine that a tenant gets.
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
pub enum Tenancy {
    /// The whole machine, no hypervisor.
    BareMetal,
    /// A virtual machine.
    Vm,
    /// A container on a shared host: no cloud-init, no kernel modules.
    Container,
    /// A managed cluster: no plain access to the machines.
    Managed,
}

impl Tenancy {
    /// Every kind of machine.
    pub const ALL: [Self; 4] = [Self::BareMetal, Self::Vm, Self::Container, Self::Managed];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BareMetal => "bare_metal",
            Self::Vm => "vm",
            Self::Container => "container",
            Self::Managed => "managed",
        }
    }
}

impl fmt::Display for Tenancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The terms of sale.
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
pub enum Terms {
    /// Open-ended, ended by us.
    OnDemand,
    /// The provider may take it back.
    Spot,
    /// For a length agreed beforehand.
    Reserved,
    /// For a dated window, paid as a whole.
    Window,
    /// The least bid that a provider considers: a floor, no price to buy at.
    Floor,
}

impl Terms {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnDemand => "on_demand",
            Self::Spot => "spot",
            Self::Reserved => "reserved",
            Self::Window => "window",
            Self::Floor => "floor",
        }
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The most free nodes of one offer that anyone can have.
pub const MAX_NODES: u32 = 100_000;

/// How much there is, in the provider's own degree of precision.
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
pub enum AvailabilityLevel {
    /// Sold out; the offer stays known.
    None,
    /// Little is left.
    Low,
    /// Some is left.
    Medium,
    /// Plenty is left.
    High,
    /// There is some; the provider says no more.
    Present,
    /// The provider does not say.
    Unknown,
}

/// A provider's reported stock of one offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Availability {
    /// The level.
    pub level: AvailabilityLevel,
    /// Free nodes, when the provider counts them.
    pub nodes: Option<u32>,
    /// Whether `nodes` is a lower bound ("10+").
    pub at_least: bool,
}

impl Availability {
    /// Sold out.
    pub const NONE: Self = Self {
        level: AvailabilityLevel::None,
        nodes: Some(0),
        at_least: false,
    };
    /// There is some; the provider does not say how much.
    pub const PRESENT: Self = Self {
        level: AvailabilityLevel::Present,
        nodes: None,
        at_least: false,
    };
    /// The provider does not say.
    pub const UNKNOWN: Self = Self {
        level: AvailabilityLevel::Unknown,
        nodes: None,
        at_least: false,
    };

    /// Exactly this many free nodes; zero means sold out.
    #[must_use]
    pub const fn exactly(nodes: u32) -> Self {
        if nodes == 0 {
            return Self::NONE;
        }
        Self {
            level: AvailabilityLevel::Present,
            nodes: Some(nodes),
            at_least: false,
        }
    }

    /// Whether the offer is sold out.
    #[must_use]
    pub const fn is_sold_out(&self) -> bool {
        matches!(self.level, AvailabilityLevel::None)
    }

    /// Whether this many nodes may be available at all, as far as the provider says.
    #[must_use]
    pub fn may_hold(&self, nodes: u32) -> bool {
        !self.is_sold_out() && (self.at_least || self.nodes.is_none_or(|free| free >= nodes))
    }
}

/// A SKU at a place, under terms, at a price, with availability, as last read.
///
/// Shape: describes one node. A gang takes several nodes of one offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// It survives stock-out, re-listing and repricing.
    pub offer_id: OfferId,
    /// The provider that sells it.
    pub provider: ProviderId,
    /// The provider's own name for the thing.
    pub sku: String,
    /// The GPU as the provider writes it.
    pub raw_gpu_name: String,
    /// The GPU as we know it.
    pub gpu: GpuIdentity,
    /// GPUs of one node.
    pub gpus: GpuCount,
    /// Memory of one GPU as published. Units: MiB.
    pub gpu_memory_mib: Option<u64>,
    /// Virtual CPUs of one node.
    pub vcpus: Option<u32>,
    /// Main memory of one node. Units: GiB, rounded down.
    pub memory_gib: Option<u32>,
    /// Where it stands.
    pub place: Place,
    /// The kind of machine.
    pub tenancy: Tenancy,
    /// Under which terms it is sold.
    pub terms: Terms,
    /// The network between its nodes.
    pub internode: Internode,
    /// The price of one node for one hour, above zero.
    pub price_per_node_hour: Money,
    /// The provider's reported stock. Units of the count: nodes.
    pub availability: Availability,
    /// Whether we can order it. Offers of price lists, and of GPUs that no agent can verify, are only
    /// compared and planned with.
    pub orderable: bool,
    /// Whose machine it is, what is included, what is charged beside it.
    #[serde(default)]
    pub particulars: Arc<Particulars>,
    /// When the provider published this.
    pub observed_at: DateTime<Utc>,
}

impl Offer {
    /// The rate per GPU-hour of the node's price, rounded half to even.
    ///
    /// For a slice of a GPU it is the price of a whole GPU's worth of such slices.
    /// Errors: [`MoneyError::Overflow`].
    pub fn rate(&self) -> Result<Rate, MoneyError> {
        node_rate(self.price_per_node_hour, self.gpus)
    }

    /// How old the offer is at `now`. Units: seconds, never negative.
    #[must_use]
    pub fn age_seconds(&self, now: DateTime<Utc>) -> u64 {
        age_seconds(self.observed_at, now)
    }

    /// The offer in its JSON form, for this many nodes.
    ///
    /// Errors: [`MoneyError::Overflow`] when the sum exceeds 64 bits of units.
    pub fn view(&self, nodes: u32) -> Result<OfferView, MoneyError> {
        Ok(OfferView {
            offer_id: self.offer_id,
            provider: self.provider.clone(),
            sku: self.sku.clone(),
            raw_gpu_name: self.raw_gpu_name.clone(),
            gpu: self.gpu.clone(),
            gpus: self.gpus,
            nodes,
            place: self.place.clone(),
            tenancy: self.tenancy,
            terms: self.terms,
            internode: self.internode,
            price_usd_hour: self.price_per_node_hour.checked_mul(i64::from(nodes))?,
            price_usd_gpu_hour: self.rate()?,
            availability: self.availability,
            orderable: self.orderable,
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            disk_gib: self.particulars.disk_gib,
            operator: self.particulars.operator.word(),
            stock: self.particulars.stock.clone(),
            extras: self.particulars.extras.clone(),
            tenure: self.particulars.tenure,
            observed_at: self.observed_at,
        })
    }
}

/// The rate per GPU-hour of a node's price; see [`Offer::rate`].
///
/// Errors: [`MoneyError::Overflow`].
pub fn node_rate(price_per_node_hour: Money, gpus: GpuCount) -> Result<Rate, MoneyError> {
    let numerator = i128::from(price_per_node_hour.units()) * 1_000;
    let units = divide_half_even(numerator, i128::from(gpus.thousandths()));
    let units = i64::try_from(units).map_err(|_| MoneyError::Overflow)?;
    Ok(Rate::per_gpu_hour(Money::from_units(
        units,
        price_per_node_hour.currency(),
    )))
}

/// The age, at `now`, of an observation. Units: seconds, never negative.
#[must_use]
pub fn age_seconds(observed_at: DateTime<Utc>, now: DateTime<Utc>) -> u64 {
    u64::try_from((now - observed_at).num_seconds()).unwrap_or(0)
}

/// The one JSON form of an offer, everywhere in the API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferView {
    /// The offer's id.
    pub offer_id: OfferId,
    /// The provider that sells it.
    pub provider: ProviderId,
    /// The provider's own name for the thing.
    pub sku: String,
    /// The GPU as the provider writes it.
    pub raw_gpu_name: String,
    /// The canonical GPU, or its family where the form is unknown.
    pub gpu: GpuIdentity,
    /// GPUs of one node.
    pub gpus: GpuCount,
    /// The number of nodes that `price_usd_hour` is for.
    #[schema(minimum = 1, maximum = 100_000)]
    pub nodes: u32,
    /// Where it stands.
    pub place: Place,
    /// The kind of machine.
    pub tenancy: Tenancy,
    /// Under which terms it is sold.
    pub terms: Terms,
    /// The network between its nodes.
    pub internode: Internode,
    /// US dollars per hour for all `nodes`.
    pub price_usd_hour: Money,
    /// US dollars per GPU-hour.
    pub price_usd_gpu_hour: Rate,
    /// The provider's reported stock, in nodes.
    pub availability: Availability,
    /// Whether it can be ordered here; offers of price lists cannot, nor GPUs that no agent can verify.
    pub orderable: bool,
    /// Virtual CPUs of one node; `null` where the provider does not promise any.
    #[serde(default)]
    pub vcpus: Option<u32>,
    /// Main memory of one node, in GiB, rounded down; `null` where the provider does not promise any.
    #[serde(default)]
    pub memory_gib: Option<u32>,
    /// Disk of one node that the price includes, in GiB; `null` where it is not known.
    #[serde(default)]
    pub disk_gib: Option<u32>,
    /// Who runs the machine where that is not the provider: the name of another cloud, or `peer`, perhaps
    /// with a host (`peer:17`), for a machine of somebody's own.
    #[serde(default)]
    pub operator: Option<String>,
    /// The stock that it shares with other offers; `null` for one of its own.
    #[serde(default)]
    pub stock: Option<Stock>,
    /// Prices beside the machine's own. They are shown and never charged.
    #[serde(default)]
    pub extras: Vec<Extra>,
    /// For how long one is bound, and by what steps one pays.
    #[serde(default)]
    pub tenure: Tenure,
    /// When the provider published this.
    pub observed_at: DateTime<Utc>,
}
