//! The contract that every adapter keeps.
//!
//! An adapter holds no state and no connection: everything it says goes through the [`Http`] it
//! is given, so that the same code runs live, against the simulator and over recordings.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::CatalogReading;
use market::ids::ProviderId;
use market::order::{ClientToken, LeaseOrder, ProviderLease, ProviderLeaseId, ProviderLeaseState};

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
    /// Not at all: the nodes run none, and the agent is copied onto them over SSH, by a key that goes
    /// with the order.
    SshPush,
}

/// How many nodes one lease holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodesPerLease {
    /// One node a lease: a gang takes as many leases as it has nodes.
    One,
    /// One rental of up to so many nodes, all in one fabric.
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

/// What a provider may lack. Each lack is declared in words in [`Profile::unsupported`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Capability {
    /// Selling capacity that it may take back.
    Spot,
    /// Joining several nodes by a fabric.
    Fabric,
    /// Saying how many nodes are free.
    FreeCount,
    /// Taking a key that makes a repeated order harmless. Without it the mark is looked up.
    IdempotencyKey,
    /// Saying when a lease began.
    StartTime,
}

/// What is fixed about a provider.
#[derive(Debug)]
pub struct Profile {
    /// The provider id, a word that [`ProviderId::parse`] accepts.
    pub id: &'static str,
    /// The name for people.
    pub name: &'static str,
    /// Where its API is, without a slash at the end.
    pub default_base_url: &'static str,
    /// The names under which its credential is configured, the usual one first.
    pub credentials: &'static [&'static str],
    /// How a start-up script reaches a node.
    pub delivery: Delivery,
    /// How many nodes one lease holds.
    pub nodes_per_lease: NodesPerLease,
    /// What it cannot do, each with the reason in words.
    pub unsupported: &'static [(Capability, &'static str)],
    /// The regions whose machines are other people's, each of whom may say of his own what he likes.
    /// Offers there carry them as the region of their place.
    pub peer_regions: &'static [&'static str],
    /// Beyond this age its offers are not matched.
    pub freshness_limit: Duration,
    /// How often its catalogue is read.
    pub poll_interval: Duration,
    /// The least time between two calls.
    pub call_spacing: Duration,
    /// The least time between two orders.
    pub order_spacing: Duration,
    /// How long its lists may lag behind what it did: a list proves nothing about what is younger, and
    /// what is missing must be so on two lists that are at least so far apart.
    pub listing_lag: Duration,
}

impl Profile {
    /// The listing lag of a provider about which nothing better is known.
    pub const LISTING_LAG: Duration = Duration::from_secs(120);

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

    /// Whether machines in this region are other people's.
    #[must_use]
    pub fn is_of_peers(&self, region: Option<&str>) -> bool {
        region.is_some_and(|region| self.peer_regions.contains(&region))
    }
}

/// What a provider said when it was told to end a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It took the word, and bills no further.
    Accepted,
    /// It does not show the lease. That proves nothing: the lease may run all the same.
    NotShown,
}

/// Our code for one provider.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// What is fixed about the provider.
    fn profile(&self) -> &'static Profile;

    /// Reads everything that the provider sells. The main price answer is asked for first.
    ///
    /// `now` is stamped on the offers. What could not be read is named (`unread`), and each record of it
    /// stands among the skipped with why: what was read is used all the same, and nothing is withdrawn
    /// that may be among it.
    /// Errors: when not even a part could be read.
    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError>;

    /// Orders one lease, marked with the order's client token. Never repeats itself.
    ///
    /// The result holds as much as the provider said in this one answer; the caller compares it
    /// with the order. Errors: [`AdapterError::is_outcome_unknown`] tells whether something may
    /// have been made.
    async fn request_lease(
        &self,
        http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError>;

    /// Everything in the account that the provider still shows, ours or not.
    ///
    /// Two such lists that lack a lease are what proves that it is gone, so this must be all of it.
    /// Errors: whenever the list could not be read to its end: part of it is no list.
    async fn list_leases(&self, http: &Http) -> Result<Vec<ProviderLease>, AdapterError>;

    /// The thing that carries this mark. One that lives is preferred to one that is gone.
    async fn find_lease(
        &self,
        http: &Http,
        token: &ClientToken,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        let marked = |lease: &ProviderLease| lease.client_token().as_ref() == Some(token);
        let leases = self.list_leases(http).await?.into_iter().filter(marked);
        Ok(leases.min_by_key(|lease| lease.state == ProviderLeaseState::Gone))
    }

    /// One lease by the provider's id; `None` when the provider does not show it, which proves
    /// nothing: a broken front and a read that lags behind say the same. A record in a final state
    /// proves that the lease is gone.
    ///
    /// Errors: whenever the answer is not the provider's own ([`Answer::is_not_shown`](crate::http::Answer::is_not_shown)).
    async fn read_lease(
        &self,
        http: &Http,
        id: &ProviderLeaseId,
    ) -> Result<Option<ProviderLease>, AdapterError>;

    /// Tells the provider to end a lease. Releasing what is not shown succeeds.
    ///
    /// Success does not mean that the lease is gone: read it until it is.
    async fn release_lease(
        &self,
        http: &Http,
        id: &ProviderLeaseId,
    ) -> Result<Release, AdapterError>;
}
