//! Our order to a provider for one lease, and the provider's reports about it.
//!
//! The lease's own states are in [`crate::lease`]; each adapter puts an order on the wire in its own way.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::LeaseId;
use crate::machine::MachineRequest;
use crate::money::Money;
use crate::offer::Offer;

/// The mark that we put on a machine before it exists, so that it can be found again.
///
/// It is derived from the lease's id and fits the name field of every provider
/// (`gpb-` and 32 hexadecimal digits).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientToken(String);

/// A name that carries none of our marks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name that this broker gives to machines")]
pub struct ForeignName(String);

impl ClientToken {
    /// The prefix of every mark.
    pub const PREFIX: &'static str = "gpb-";

    /// The mark of a lease.
    #[must_use]
    pub fn of(lease: LeaseId) -> Self {
        Self(format!("{}{}", Self::PREFIX, lease.uuid().simple()))
    }

    /// The lease that the mark belongs to.
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        // Both constructors make sure that a UUID follows the prefix.
        let digits = &self.0[Self::PREFIX.len()..];
        LeaseId::from_uuid(uuid::Uuid::try_parse(digits).unwrap_or_default())
    }

    /// The mark as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClientToken {
    type Err = ForeignName;

    fn from_str(name: &str) -> Result<Self, ForeignName> {
        name.strip_prefix(Self::PREFIX)
            .filter(|digits| digits.len() == 32 && uuid::Uuid::try_parse(digits).is_ok())
            .map(|_| Self(name.to_owned()))
            .ok_or_else(|| ForeignName(name.chars().take(80).collect()))
    }
}

impl fmt::Display for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Our order to a provider for one lease. Its debug form hides the script.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseOrder {
    /// The mark to put on the machine.
    pub client_token: ClientToken,
    /// The offer, as quoted.
    pub offer: Offer,
    /// How many nodes, in one fabric.
    pub nodes: u32,
    /// What the machines must have beyond their GPUs.
    #[serde(default)]
    pub machine: MachineRequest,
    /// Public SSH keys to install, in OpenSSH form.
    pub ssh_public_keys: Vec<String>,
    /// The script that each node runs at first boot. It carries a one-time credential and is
    /// never stored or logged.
    #[serde(skip)]
    pub startup_script: String,
}

impl fmt::Debug for LeaseOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseOrder")
            .field("client_token", &self.client_token)
            .field("offer", &self.offer)
            .field("nodes", &self.nodes)
            .field("machine", &self.machine)
            .field("ssh_public_keys", &self.ssh_public_keys)
            .field("startup_script", &"***")
            .finish()
    }
}

/// The provider's own id of a running thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProviderLeaseId(pub String);

impl fmt::Display for ProviderLeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lease at its provider, by everything that may be needed to find it and what was made beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRef {
    /// The provider's own id.
    pub id: ProviderLeaseId,
    /// The mark that it carries.
    pub client_token: ClientToken,
    /// The region in which it was ordered, as the provider writes it.
    pub region: Option<String>,
}

/// A thing of ours at a provider beside the machines: a start-up script, a key, a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The provider's word for its kind: `scripts`.
    pub kind: String,
    /// The provider's own id.
    pub id: String,
    /// The region that it is in, where it is in one.
    pub region: Option<String>,
    /// The mark of the order that it was made for.
    pub client_token: ClientToken,
}

/// Why a provider ended a machine, or never brought it up, without a fault of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// It accepted the order and then had no machine for it.
    NoCapacity,
    /// It took a spot machine back.
    Preempted,
}

/// The state of a thing as its provider reports it, in our words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderLeaseState {
    /// It is being created. Every status word that we do not know also means this.
    Pending,
    /// All its nodes run.
    Running,
    /// It was accepted and did not come up, or broke; it may still be billed.
    Failed,
    /// It is ending.
    Ending,
    /// It is gone.
    Gone,
}

/// One node as its provider reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderNode {
    /// The address to reach it at.
    pub host: String,
    /// The SSH port.
    pub port: u16,
    /// The SSH user.
    pub user: String,
    /// Its address inside the provider's network, where there is one.
    pub private_address: Option<String>,
}

/// A thing at a provider, as the provider reports it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProviderLease {
    /// The provider's own id.
    pub id: ProviderLeaseId,
    /// The name or tag on it, ours or not.
    pub name: Option<String>,
    /// Its state in our words.
    pub state: ProviderLeaseState,
    /// The provider's own status word.
    pub raw_status: String,
    /// Why it ended or failed, where the provider gives a reason that is no fault of the machine.
    #[serde(default)]
    pub end_reason: Option<EndReason>,
    /// Its SKU, if reported.
    pub sku: Option<String>,
    /// Its region, if reported.
    pub region: Option<String>,
    /// How many nodes it has, if reported.
    pub node_count: Option<u32>,
    /// GPUs of each node, if reported.
    pub gpus_per_node: Option<u32>,
    /// Its nodes; empty while it is being created.
    pub nodes: Vec<ProviderNode>,
    /// When the provider began to bill it, if reported.
    pub created_at: Option<DateTime<Utc>>,
    /// The provider's reported price of one node per hour. `None` where it reports none, or an implausible
    /// one: a price of zero or an absurd one is unknown.
    pub price_per_node_hour: Option<Money>,
}

impl ProviderLease {
    /// A lease of which the provider has reported no more than its id and status.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        state: ProviderLeaseState,
        raw_status: impl Into<String>,
    ) -> Self {
        Self {
            id: ProviderLeaseId(id.into()),
            name: None,
            state,
            raw_status: raw_status.into(),
            end_reason: None,
            sku: None,
            region: None,
            node_count: None,
            gpus_per_node: None,
            nodes: Vec::new(),
            created_at: None,
            price_per_node_hour: None,
        }
    }

    /// The mark on the thing, when it is one of ours.
    #[must_use]
    pub fn client_token(&self) -> Option<ClientToken> {
        self.name.as_deref().and_then(|name| name.parse().ok())
    }
}
