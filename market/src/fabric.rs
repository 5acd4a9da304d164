//! What connects GPUs between nodes. Within a node the link follows from the GPU's spec.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The network between the nodes of one rental.
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
pub enum Internode {
    /// Nothing that a job may rely on: nodes are sold one by one.
    None,
    /// Plain Ethernet, no remote direct memory access.
    Ethernet,
    /// RDMA over converged Ethernet, 200 Gb/s per GPU.
    #[serde(rename = "roce_200")]
    Roce200,
    /// RDMA over converged Ethernet, 400 Gb/s per GPU.
    #[serde(rename = "roce_400")]
    Roce400,
    /// InfiniBand HDR, 200 Gb/s per GPU.
    #[serde(rename = "infiniband_hdr200")]
    InfinibandHdr200,
    /// InfiniBand NDR, 400 Gb/s per GPU.
    #[serde(rename = "infiniband_ndr400")]
    InfinibandNdr400,
    /// InfiniBand XDR, 800 Gb/s per GPU.
    #[serde(rename = "infiniband_xdr800")]
    InfinibandXdr800,
    /// A provider's own RDMA fabric whose rate is not published in these terms.
    Proprietary,
    /// The provider does not say.
    Unknown,
}

impl Internode {
    /// Whether GPUs of different nodes read each other's memory without the CPU.
    #[must_use]
    pub const fn is_rdma(self) -> bool {
        match self {
            Self::Roce200
            | Self::Roce400
            | Self::InfinibandHdr200
            | Self::InfinibandNdr400
            | Self::InfinibandXdr800
            | Self::Proprietary => true,
            Self::None | Self::Ethernet | Self::Unknown => false,
        }
    }

    /// Whether it is InfiniBand, at any rate.
    #[must_use]
    pub const fn is_infiniband(self) -> bool {
        matches!(
            self,
            Self::InfinibandHdr200 | Self::InfinibandNdr400 | Self::InfinibandXdr800
        )
    }

    /// The wire rate per GPU where the word names one. Units: Gb/s, one direction.
    #[must_use]
    pub const fn gbps_per_gpu(self) -> Option<u32> {
        match self {
            Self::Roce200 | Self::InfinibandHdr200 => Some(200),
            Self::Roce400 | Self::InfinibandNdr400 => Some(400),
            Self::InfinibandXdr800 => Some(800),
            Self::None | Self::Ethernet | Self::Proprietary | Self::Unknown => None,
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ethernet => "ethernet",
            Self::Roce200 => "roce_200",
            Self::Roce400 => "roce_400",
            Self::InfinibandHdr200 => "infiniband_hdr200",
            Self::InfinibandNdr400 => "infiniband_ndr400",
            Self::InfinibandXdr800 => "infiniband_xdr800",
            Self::Proprietary => "proprietary",
            Self::Unknown => "unknown",
        }
    }
}

/// What must connect the nodes of one rental, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FabricWanted {
    /// Any network; for a training run RDMA or Ethernet.
    Any,
    /// RDMA: InfiniBand, RoCE or a provider's own.
    Rdma,
    /// InfiniBand.
    Infiniband,
}

impl FabricWanted {
    /// Whether a fabric satisfies this.
    #[must_use]
    pub const fn accepts(self, offered: Internode) -> bool {
        match self {
            Self::Any => true,
            Self::Rdma => offered.is_rdma(),
            Self::Infiniband => offered.is_infiniband(),
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Rdma => "rdma",
            Self::Infiniband => "infiniband",
        }
    }
}

impl fmt::Display for FabricWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Internode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_the_same_in_text_and_in_json() {
        for fabric in [
            Internode::None,
            Internode::Ethernet,
            Internode::Roce200,
            Internode::Roce400,
            Internode::InfinibandHdr200,
            Internode::InfinibandNdr400,
            Internode::InfinibandXdr800,
            Internode::Proprietary,
            Internode::Unknown,
        ] {
            let json = serde_json::to_string(&fabric).expect("json");
            assert_eq!(json, format!("\"{fabric}\""));
        }
    }

    #[test]
    fn a_named_rate_implies_rdma() {
        assert!(Internode::InfinibandNdr400.is_rdma());
        assert!(!Internode::Ethernet.is_rdma());
        assert_eq!(Internode::Unknown.gbps_per_gpu(), None);
    }
}
