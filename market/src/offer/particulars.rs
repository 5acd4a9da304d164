//! The particulars of an offer: whose machine it is, which stock it draws on, what is included, what is charged
//! beside it, and how long one is bound.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ProviderId;
use crate::money::Money;

/// Who runs the machine of an offer.
///
/// Facts of law and certification belong to its operator, not to its seller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MachineOperator {
    /// The provider that sells it.
    #[default]
    Seller,
    /// Another cloud, by the id that it has as a provider. Made by [`MachineOperator::cloud`].
    Cloud(ProviderId),
    /// Somebody who offers a machine of their own, by the provider's id of the host where it gives one. Such
    /// people may claim anything of their machines.
    Peer(Option<String>),
}

/// The words for the seller itself, and for the machines of peers.
const SELLER: &str = "seller";
const PEER: &str = "peer";

impl MachineOperator {
    /// The cloud that an aggregator names so. What cannot be a provider's id, or would read as another kind of
    /// operator, is somebody of whom nothing is known.
    #[must_use]
    pub fn cloud(name: &str) -> Self {
        let id = ProviderId::parse(&name.to_ascii_lowercase());
        match id {
            Ok(id) if ![SELLER, PEER].contains(&id.as_str()) => Self::Cloud(id),
            _ => Self::Peer(None),
        }
    }

    /// Whether the machine belongs to somebody other than a company that runs a cloud.
    #[must_use]
    pub const fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_))
    }

    /// The same without the host: what matters to every rule.
    #[must_use]
    pub fn without_host(&self) -> Self {
        match self {
            Self::Peer(_) => Self::Peer(None),
            other => other.clone(),
        }
    }

    /// The word on the wire; `None` for the seller itself.
    #[must_use]
    pub fn word(&self) -> Option<String> {
        match self {
            Self::Seller => None,
            Self::Cloud(id) => Some(id.to_string()),
            Self::Peer(None) => Some(PEER.to_owned()),
            Self::Peer(Some(host)) => Some(format!("{PEER}:{host}")),
        }
    }
}

impl fmt::Display for MachineOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word().as_deref().unwrap_or(SELLER))
    }
}

impl From<&str> for MachineOperator {
    /// The operator that is written so. A text that names nobody is somebody of whom nothing is known: it must
    /// never keep an offer from being read, nor pass for a company.
    fn from(word: &str) -> Self {
        match word {
            SELLER => Self::Seller,
            PEER => Self::Peer(None),
            word => match word.strip_prefix("peer:") {
                Some(host) => Self::Peer(Some(host.to_owned()).filter(|host| !host.is_empty())),
                None => Self::cloud(word),
            },
        }
    }
}

impl Serialize for MachineOperator {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MachineOperator {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?.as_str()))
    }
}

/// What a price beside the machine's own is for.
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
pub enum ExtraBasis {
    /// A GB of disk beyond the included one, for a month of 730 hours.
    DiskGbMonth,
    /// A GB of traffic out of the provider's network.
    GbOut,
    /// A public address, for an hour.
    AddressHour,
}

/// A price beside the machine's own.
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
pub struct Extra {
    /// What it is for.
    pub per: ExtraBasis,
    /// The price. Units: US dollars.
    pub price_usd: Money,
}

/// For how long one is bound, and by what steps one pays.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
pub struct Tenure {
    /// The least time that is paid for. Units: seconds; 0 where there is none, or none is known.
    #[serde(default)]
    pub least_seconds: u32,
    /// The step by which time is billed. Units: seconds; 0 where it is not known.
    #[serde(default)]
    pub increment_seconds: u32,
    /// Whether it is paid beforehand.
    #[serde(default)]
    pub prepaid: bool,
    /// Whether the provider can end it by itself at a time given beforehand.
    #[serde(default)]
    pub ends_itself: bool,
}

/// The stock that several offers may draw on: they are sizes or listings of the same machines.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
pub struct Stock {
    /// Its id, the same in every offer that draws on it.
    pub id: String,
    /// Free GPUs in it, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// The particulars of an offer. The default is a machine of the seller's own of which no more is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Particulars {
    /// Who runs the machine.
    #[serde(default)]
    pub operator: MachineOperator,
    /// The stock that it shares with other offers; `None` for one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock: Option<Stock>,
    /// What the provider's launch call needs beside the SKU and the region. Only the adapter reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_ref: Option<String>,
    /// Disk of one node that the price includes. Units: GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<u32>,
    /// Prices beside the machine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<Extra>,
    /// For how long one is bound.
    #[serde(default)]
    pub tenure: Tenure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_read_as_it_is_written() {
        for operator in [
            MachineOperator::Seller,
            MachineOperator::cloud("hyperstack"),
            MachineOperator::Peer(None),
            MachineOperator::Peer(Some("host-17".into())),
        ] {
            let written = serde_json::to_value(&operator).expect("JSON");
            let read = serde_json::from_value::<MachineOperator>(written).expect("an operator");
            assert_eq!(read, operator);
        }
    }

    #[test]
    fn a_word_that_an_aggregator_makes_up_is_nobody_and_keeps_nothing_from_being_read() {
        for word in [
            "",
            "peer:",
            "seller",
            "peer",
            "Seller",
            "a b",
            "\u{202e}x",
            "../etc",
        ] {
            let named = MachineOperator::cloud(word);
            assert_eq!(named, MachineOperator::Peer(None), "{word}");
            let read = serde_json::from_value::<MachineOperator>(word.into());
            assert!(read.is_ok(), "{word}");
        }
        let [one, two] = ["Hyperstack", "hyperstack"].map(MachineOperator::cloud);
        assert_eq!(one, two);
    }

    #[test]
    fn particulars_of_before_they_were_written_are_the_default() {
        let read: Particulars = serde_json::from_str("{}").expect("particulars");
        assert_eq!(read, Particulars::default());
    }
}
