//! The contract that every adapter keeps.
//!
//! An adapter holds no state and no connection: it makes every call through the [`Http`] that it is given. So
//! the same code runs live, against the simulator and over recordings.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::CatalogReading;
use market::ids::ProviderId;
use market::offer::Offer;
use market::order::{
    Attachment, ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState,
};

use crate::auth::{Auth, Field};
use crate::error::AdapterError;
use crate::http::Http;

/// How the start-up script of an order reaches its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// As cloud-init user data in the launch call, run once as root at first boot.
    UserData,
    /// As a cloud-init script in a field of its own, run once as root at first boot.
    CloudInitScript,
    /// Carried in the environment of a container and run by the command that it starts with,
    /// before the image's own start.
    StartCommand,
    /// Not at all: the nodes run none, and the agent is copied onto them over SSH, with a key that is part of
    /// the order. Where a provider installs one key alone it is that one, whose comment is the order's mark, and
    /// its holder adds the others to the nodes.
    SshPush,
}

/// How many nodes one lease holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodesPerLease {
    /// One node per lease: a gang takes as many leases as it has nodes.
    One,
    /// One rental of up to this many nodes, all in one fabric.
    Rental {
        /// The most nodes of one rental.
        max: u32,
    },
}

impl NodesPerLease {
    /// The most nodes that one lease holds.
    #[must_use]
    pub const fn max(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Rental { max } => max,
        }
    }
}

/// Capabilities that a provider may lack. [`Profile::unsupported`] gives the reason for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Selling spot capacity, which it may take back.
    Spot,
    /// Connecting several nodes by a fabric.
    Fabric,
    /// Reporting how many nodes are free.
    FreeCount,
    /// Accepting a key that makes a repeated order harmless. Without it we look the mark up.
    IdempotencyKey,
    /// Reporting when a lease began.
    StartTime,
}

/// What a machine can be asked to have beyond its GPUs ([`market::machine::MachineRequest`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineChoices {
    /// Whether one of the provider's own images can be named. Words of the catalogue are looked up in
    /// [`crate::images`].
    pub own_images: bool,
    /// Whether any container image can be named.
    pub containers: bool,
    /// The largest disk that can be ordered. Units: GiB. `None` where the disk comes with the SKU.
    pub most_disk_gib: Option<u32>,
    /// Which ports can be reached from outside.
    pub ports: Ports,
}

impl MachineChoices {
    /// A provider with its own image and disk, and with every port open.
    pub const NONE: Self = Self {
        own_images: false,
        containers: false,
        most_disk_gib: None,
        ports: Ports::AllOpen,
    };
}

/// Which ports of a machine can be reached from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// All: the provider puts no firewall in front.
    AllOpen,
    /// Those that the order names.
    AtLaunch,
    /// That of SSH alone.
    SshOnly,
}

/// The fixed properties of a provider.
#[derive(Debug)]
pub struct Profile {
    /// The provider id, a word that [`ProviderId::parse`] accepts.
    pub id: &'static str,
    /// The display name.
    pub name: &'static str,
    /// Where its API is, without a slash at the end.
    pub default_base_url: &'static str,
    /// How its calls are authenticated.
    pub auth: Auth,
    /// The fields of its credential; none where it needs none.
    pub credential: &'static [Field],
    /// How a start-up script reaches a node, where its offers do not differ in that
    /// ([`Adapter::delivery`]).
    pub delivery: Delivery,
    /// How many nodes one lease holds, where its offers do not differ in that
    /// ([`Adapter::nodes_per_lease`]).
    pub nodes_per_lease: NodesPerLease,
    /// What a machine can be asked to have beyond its GPUs.
    pub machines: MachineChoices,
    /// Capabilities that it lacks, each with the reason in words.
    pub unsupported: &'static [(Capability, &'static str)],
    /// Offers older than this are not matched.
    pub freshness_limit: Duration,
    /// How often its catalogue is read.
    pub poll_interval: Duration,
    /// The least time between two calls.
    pub call_spacing: Duration,
    /// The least time between two orders.
    pub order_spacing: Duration,
    /// How long its lists may lag behind its actions. A list proves nothing about anything younger, and a
    /// missing thing must be missing from two lists at least this far apart.
    pub listing_lag: Duration,
}

impl Profile {
    /// The default listing lag, for a provider whose lag is not known.
    pub const LISTING_LAG: Duration = Duration::from_secs(120);

    /// The usual profile of a REST interface with virtual machines: a bearer token, cloud-init user data, one
    /// node a lease, careful spacing. `id`, `name`, `default_base_url` and `credential` must be given.
    pub const REST: Self = Self {
        id: "",
        name: "",
        default_base_url: "",
        auth: Auth::Bearer,
        credential: &[],
        delivery: Delivery::UserData,
        nodes_per_lease: NodesPerLease::One,
        machines: MachineChoices::NONE,
        unsupported: &[],
        freshness_limit: Duration::from_secs(600),
        poll_interval: Duration::from_secs(120),
        call_spacing: Duration::from_millis(500),
        order_spacing: Duration::from_secs(2),
        listing_lag: Self::LISTING_LAG,
    };

    /// The provider id.
    #[must_use]
    #[allow(clippy::missing_panics_doc)] // A test reads the id of every registered profile.
    pub fn provider_id(&self) -> ProviderId {
        ProviderId::parse(self.id).expect("profiles carry valid ids")
    }

    /// Why the provider cannot do this; `None` when it can.
    #[must_use]
    pub fn lack(&self, capability: Capability) -> Option<&'static str> {
        self.unsupported
            .iter()
            .find(|(lacking, _)| *lacking == capability)
            .map(|(_, why)| *why)
    }
}

/// A provider's answer to a request to end a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It accepted the request, and bills no further.
    Accepted,
    /// It does not show the lease. That proves nothing: the lease may still be running.
    NotShown,
    /// It ends no machine in this state, such as one that is still coming up: ask again.
    NotYet,
}

/// Our code for one provider.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// The fixed properties of the provider.
    fn profile(&self) -> &'static Profile;

    /// Reads everything that the provider sells, the main price answer first.
    ///
    /// `now` is stamped on the offers. Unreadable parts are named (`unread`), and each of their records is
    /// among the skipped with its reason. The readable rest is used all the same, and no offer is withdrawn
    /// that may be among the unreadable.
    /// Errors: when not even a part could be read.
    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError>;

    /// Orders one lease, marked with the order's client token. Never repeats itself.
    ///
    /// The result holds what the provider reported in this one answer; the caller compares it with the order.
    /// Errors: [`AdapterError::is_outcome_unknown`] tells whether the provider may have created something.
    async fn request_lease(
        &self,
        http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError>;

    /// Everything in the account that the provider still shows, ours or not.
    ///
    /// A lease is proved gone when two such lists lack it, so the list must be complete.
    /// Errors: whenever the list could not be read to its end: a part is not enough.
    async fn list_leases(&self, http: &Http) -> Result<Vec<ProviderLease>, AdapterError>;

    /// The thing with this mark. A live one is preferred to one that is gone.
    async fn find_lease(
        &self,
        http: &Http,
        token: &ClientToken,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        let marked = |lease: &ProviderLease| lease.client_token().as_ref() == Some(token);
        let leases = self.list_leases(http).await?.into_iter().filter(marked);
        Ok(leases.min_by_key(|lease| lease.state == ProviderLeaseState::Gone))
    }

    /// One lease by the provider's id; `None` when the provider does not show it. That proves nothing: a
    /// broken proxy and a stale read answer the same. A record in a final state proves that the lease is
    /// gone.
    ///
    /// Errors: whenever the answer is not the provider's own ([`Answer::is_not_shown`](crate::http::Answer::is_not_shown)).
    async fn read_lease(
        &self,
        http: &Http,
        lease: &LeaseRef,
    ) -> Result<Option<ProviderLease>, AdapterError>;

    /// Asks the provider to end a lease. Releasing a lease that is not shown succeeds.
    ///
    /// Success does not mean that the lease is gone: read it until it is.
    async fn release_lease(&self, http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError>;

    /// How the start-up script of an order of this offer reaches its nodes.
    fn delivery(&self, _offer: &Offer) -> Delivery {
        self.profile().delivery
    }

    /// How many nodes one lease of this offer holds.
    fn nodes_per_lease(&self, _offer: &Offer) -> NodesPerLease {
        self.profile().nodes_per_lease
    }

    /// Everything in the account that carries a mark of ours and is no machine: scripts, keys, disks.
    ///
    /// Another installation may share the account, so the caller removes only those of its own leases.
    /// Errors: whenever the list could not be read to its end.
    async fn list_attachments(&self, _http: &Http) -> Result<Vec<Attachment>, AdapterError> {
        Ok(Vec::new())
    }

    /// Removes such a thing. Removing one that is not there succeeds.
    async fn remove_attachment(
        &self,
        _http: &Http,
        _attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        Ok(())
    }
}
