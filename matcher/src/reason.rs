//! The reasons why an offer does not satisfy a demand: the codes that are counted, and their meanings.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an offer is not eligible. An offer is counted under the first code that applies, in the
/// order of [`ReasonCode::ALL`].
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
pub enum ReasonCode {
    /// An implausible price: zero, negative, or too large to charge.
    NoPrice,
    /// Another GPU than the demand names.
    Gpu,
    /// The provider does not say which GPU of the family it is.
    GpuFormUnknown,
    /// Less memory of each GPU than the demand asks for.
    GpuMemory,
    /// A slice of a GPU.
    Slice,
    /// Another number of GPUs in one node.
    GpusPerNode,
    /// Sold on other terms.
    Terms,
    /// It cannot be ordered: a price-list offer, or one whose GPUs no agent can verify.
    NotOrderable,
    /// The demand's policy excludes the provider.
    ProviderPolicy,
    /// The provider's operator is not known to be under a law that the policy names.
    Operator,
    /// The provider is not known to have a certification that the policy asks for, for long enough.
    Certification,
    /// The provider is suspended.
    Quarantined,
    /// Somewhere else than the demand allows.
    Place,
    /// The demand names places, and the provider does not state the place.
    PlaceUnknown,
    /// Another kind of machine than the demand allows.
    Tenancy,
    /// Less main memory or fewer virtual CPUs than the demand asks for, or not stated.
    Host,
    /// Last read longer ago than its provider's freshness limit.
    Stale,
    /// Sold out.
    SoldOut,
    /// The GPU has no published rate at the requested precision.
    Precision,
    /// The requested number of GPUs is not a whole number of these nodes.
    GpusDoNotDivide,
    /// The model does not fit into the memory.
    Memory,
    /// The model's heads cannot be split evenly over as many GPUs as would hold it.
    HeadsDoNotDivide,
    /// Multi-node training needs bare metal or virtual machines.
    GangTenancy,
    /// Multi-node training needs nodes with four or more GPUs, connected all to all.
    GangNode,
    /// The fabric between several nodes is not what the demand asks for.
    Fabric,
    /// The run would not finish in time.
    Deadline,
    /// It cannot answer fast enough.
    Latency,
    /// No fleet carries the load after the loss that it must survive.
    Spread,
    /// Fewer nodes than needed.
    NotEnoughNodes,
    /// Others hold or lease all nodes that the provider counts.
    Held,
    /// It failed several times recently and is in cool-down.
    CoolingDown,
    /// It costs more than the ceiling.
    Ceiling,
    /// The search found no fleet under the ceiling, and did not prove that none exists.
    CeilingUnproved,
}

impl ReasonCode {
    /// Every code, in the order in which offers are tested.
    pub const ALL: [Self; 33] = [
        Self::NoPrice,
        Self::Gpu,
        Self::GpuFormUnknown,
        Self::GpuMemory,
        Self::Slice,
        Self::GpusPerNode,
        Self::Terms,
        Self::NotOrderable,
        Self::ProviderPolicy,
        Self::Operator,
        Self::Certification,
        Self::Quarantined,
        Self::Place,
        Self::PlaceUnknown,
        Self::Tenancy,
        Self::Host,
        Self::Stale,
        Self::SoldOut,
        Self::Precision,
        Self::GpusDoNotDivide,
        Self::Memory,
        Self::HeadsDoNotDivide,
        Self::GangTenancy,
        Self::GangNode,
        Self::Fabric,
        Self::Deadline,
        Self::Latency,
        Self::Spread,
        Self::NotEnoughNodes,
        Self::Held,
        Self::CoolingDown,
        Self::Ceiling,
        Self::CeilingUnproved,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoPrice => "no_price",
            Self::Gpu => "gpu",
            Self::GpuFormUnknown => "gpu_form_unknown",
            Self::GpuMemory => "gpu_memory",
            Self::Slice => "slice",
            Self::GpusPerNode => "gpus_per_node",
            Self::Terms => "terms",
            Self::NotOrderable => "not_orderable",
            Self::ProviderPolicy => "provider_policy",
            Self::Operator => "operator",
            Self::Certification => "certification",
            Self::Quarantined => "quarantined",
            Self::Place => "place",
            Self::PlaceUnknown => "place_unknown",
            Self::Tenancy => "tenancy",
            Self::Host => "host",
            Self::Stale => "stale",
            Self::SoldOut => "sold_out",
            Self::Precision => "precision",
            Self::Memory => "memory",
            Self::GpusDoNotDivide => "gpus_do_not_divide",
            Self::HeadsDoNotDivide => "heads_do_not_divide",
            Self::GangTenancy => "gang_tenancy",
            Self::GangNode => "gang_node",
            Self::Fabric => "fabric",
            Self::Deadline => "deadline",
            Self::Latency => "latency",
            Self::Spread => "spread",
            Self::NotEnoughNodes => "not_enough_nodes",
            Self::Held => "held",
            Self::CoolingDown => "cooling_down",
            Self::Ceiling => "ceiling",
            Self::CeilingUnproved => "ceiling_unproved",
        }
    }

    /// The meaning, in one sentence for a reader of a plan.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::NoPrice => {
                "The price is zero, missing or implausible: unknown, never the cheapest."
            }
            Self::Gpu => "It is another GPU than the demand names.",
            Self::GpuFormUnknown => {
                "The provider does not say which GPU of the family it is, and not all satisfy the demand."
            }
            Self::GpuMemory => "Its GPU has less memory than the demand asks for.",
            Self::Slice => "It is a slice of a GPU; only whole GPUs are matched.",
            Self::GpusPerNode => "Its nodes have another number of GPUs than the demand asks for.",
            Self::Terms => "It is sold on other terms (spot, reserved, a window, a bid floor).",
            Self::NotOrderable => {
                "It cannot be ordered: it comes from a price list, or its GPUs cannot be verified."
            }
            Self::ProviderPolicy => "The demand's policy excludes its provider.",
            Self::Operator => {
                "Its provider's operator is not known to be under a law that the policy names."
            }
            Self::Certification => {
                "No recorded certification of its provider meets the policy for long enough."
            }
            Self::Quarantined => "Its provider is suspended: nothing new is ordered there.",
            Self::Place => "It is in a place that the demand does not allow.",
            Self::PlaceUnknown => {
                "The demand names places, and the place of this offer is unknown."
            }
            Self::Tenancy => "It is another kind of machine than the demand allows.",
            Self::Host => {
                "Its nodes have less main memory or fewer virtual CPUs than the demand asks for, or its \
                 provider does not state them."
            }
            Self::Stale => "It was last read longer ago than its provider's freshness limit.",
            Self::SoldOut => "It is sold out.",
            Self::Precision => "Its GPU has no published rate at the requested precision.",
            Self::Memory => "The model does not fit into its memory.",
            Self::GpusDoNotDivide => {
                "The requested number of GPUs is not a whole number of its nodes."
            }
            Self::HeadsDoNotDivide => {
                "The model's heads cannot be split evenly over as many of its GPUs as would hold it."
            }
            Self::GangTenancy => "Multi-node training needs bare metal or virtual machines.",
            Self::GangNode => {
                "Multi-node training needs nodes with four or more GPUs, connected all to all."
            }
            Self::Fabric => {
                "The fabric between its nodes is not what the demand asks for; multi-node training needs \
                 RDMA, or Ethernet where `fabric` is `any`."
            }
            Self::Deadline => "The run would not finish in time.",
            Self::Latency => "It cannot answer fast enough.",
            Self::Spread => {
                "Together with all others it cannot carry the load after the loss that the fleet must \
                 survive."
            }
            Self::NotEnoughNodes => "The provider has fewer nodes of it than the demand needs.",
            Self::Held => "The provider's nodes of it are held or leased already.",
            Self::CoolingDown => "It failed several times recently and is in cool-down.",
            Self::Ceiling => "It costs more than the ceiling.",
            Self::CeilingUnproved => {
                "The cheapest fleet found costs more than the ceiling; it is not proved that no cheaper \
                 one exists."
            }
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_holds_every_code_once_in_the_order_of_the_enum() {
        assert!(ReasonCode::ALL.is_sorted_by(|a, b| a < b));
        for code in ReasonCode::ALL {
            let json = serde_json::to_string(&code).expect("json");
            assert_eq!(json, format!("\"{code}\""));
        }
        // The enum's last code is the last of the table, so none is missing.
        assert_eq!(
            ReasonCode::CeilingUnproved as usize + 1,
            ReasonCode::ALL.len()
        );
    }
}
