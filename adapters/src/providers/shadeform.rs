//! Shadeform: machines of some twenty clouds, one a lease, and clusters of a fixed number of them.
//!
//! The SKU names the cloud and the type: `hyperstack/H100_sxm5x8`. Each region stands once for each way to
//! rent: on demand at the price of the type, in cents, and as spot at a price of its own, in dollars. A cluster
//! is ordered as one and its SKU ends in its size: `denvr/H100_sxm5x8/cluster-2`. `interconnect` is the socket
//! of the GPUs; what connects the nodes of a cluster is not published. Types that are containers are listed and
//! not ordered: whether a start-up script runs in them is not published.
//!
//! Facts and their sources: `fixtures/shadeform/SOURCE.md`. Orders and machines are in `lease`.

mod catalog;
mod lease;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason};
use market::offer::Offer;
use market::order::{Attachment, LeaseOrder, LeaseRef, ProviderLease};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::{
    Adapter, Capability, Delivery, MachineChoices, NodesPerLease, Ports, Profile, Release,
};
use crate::auth::{Auth, Field};
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http};

const PROFILE: Profile = Profile {
    id: "shadeform",
    name: "Shadeform",
    default_base_url: "https://api.shadeform.ai/v1",
    auth: Auth::Header("X-API-KEY"),
    credential: &[Field {
        name: "api_key",
        variable: "SHADEFORM_API_KEY",
    }],
    delivery: Delivery::CloudInitScript,
    machines: MachineChoices {
        own_images: true,
        // Some of the clouds map ports themselves, so no other port can be relied on.
        ports: Ports::SshOnly,
        ..MachineChoices::NONE
    },
    unsupported: &[(
        Capability::IdempotencyKey,
        "an order takes no key; it is looked up by its name and tag",
    )],
    // No limit on calls is published: slow until one is known.
    ..Profile::REST
};

/// The adapter for Shadeform.
#[derive(Debug)]
pub struct Shadeform;

#[async_trait]
impl Adapter for Shadeform {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        catalog::read(http, now).await
    }

    async fn request_lease(
        &self,
        http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError> {
        lease::request(http, order).await
    }

    async fn list_leases(&self, http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
        lease::list(http).await
    }

    async fn read_lease(
        &self,
        http: &Http,
        lease: &LeaseRef,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        lease::read(http, lease).await
    }

    async fn release_lease(&self, http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
        lease::release(http, lease).await
    }

    /// A cluster takes no script.
    fn delivery(&self, offer: &Offer) -> Delivery {
        match Sku::read(&offer.sku).cluster_of {
            None => PROFILE.delivery,
            Some(_) => Delivery::SshPush,
        }
    }

    fn nodes_per_lease(&self, offer: &Offer) -> NodesPerLease {
        match Sku::read(&offer.sku).cluster_of {
            None => NodesPerLease::One,
            Some(max) => NodesPerLease::Rental { max },
        }
    }

    async fn list_attachments(&self, http: &Http) -> Result<Vec<Attachment>, AdapterError> {
        lease::list_keys(http).await
    }

    async fn remove_attachment(
        &self,
        http: &Http,
        attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        lease::remove_key(http, attachment).await
    }
}

/// What stands between the type of a machine and the number of machines in a cluster.
const CLUSTER: &str = "/cluster-";

/// A SKU in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sku<'a> {
    /// The cloud that runs the machine, in Shadeform's word.
    cloud: &'a str,
    /// Shadeform's word for the type, the same at every cloud.
    kind: &'a str,
    /// How many machines the cluster has; `None` for a machine by itself.
    cluster_of: Option<u32>,
}

impl<'a> Sku<'a> {
    const fn new(cloud: &'a str, kind: &'a str, cluster_of: Option<u32>) -> Self {
        Self {
            cloud,
            kind,
            cluster_of,
        }
    }

    fn read(sku: &'a str) -> Self {
        let sized = sku
            .rsplit_once(CLUSTER)
            .and_then(|(machine, size)| Some((machine, size.parse().ok()?)));
        let (machine, cluster_of) =
            sized.map_or((sku, None), |(machine, size)| (machine, Some(size)));
        // What is no SKU of ours names no cloud, and is refused where it is ordered.
        let (cloud, kind) = machine.split_once('/').unwrap_or(("", machine));
        Self::new(cloud, kind, cluster_of)
    }

    fn write(self) -> String {
        let Self { cloud, kind, .. } = self;
        match self.cluster_of {
            None => format!("{cloud}/{kind}"),
            Some(size) => format!("{cloud}/{kind}{CLUSTER}{size}"),
        }
    }
}

/// US dollars from a text of dollars, or from a number of cents. Neither is taken for the other.
fn dollars(price: &Value, is_cents: bool) -> Result<Decimal, Rejection> {
    if (is_cents && price.is_string()) || (!is_cents && price.is_number()) {
        let why = format!("the hourly_price {price} may be of cents or of dollars");
        return Err(Rejection::new(SkipReason::Unreadable, gate::shown(&why)));
    }
    let amount = gate::needed_price(price, "hourly_price")?;
    let unit = Decimal::new(1, if is_cents { 2 } else { 0 });
    amount.checked_mul(unit).ok_or_else(|| {
        let why = format!("{amount} is beyond any price");
        Rejection::new(SkipReason::ImplausiblePrice, why)
    })
}

/// The wrapper of every list.
#[derive(Debug, Default, Deserialize)]
struct List<T> {
    #[serde(alias = "instance_types", alias = "cluster_types", alias = "instances")]
    #[serde(alias = "clusters", alias = "ssh_keys")]
    records: Vec<T>,
}

/// The meaning of a refusal: only its words give it, and none are published.
fn refusal_of(answer: &Answer) -> Refusal {
    answer.refusal_by_words(&[
        ("balance", Refusal::Credential),
        ("credit", Refusal::Credential),
        ("payment", Refusal::Credential),
        ("api key", Refusal::Credential),
        ("quota", Refusal::Quota),
        ("limit", Refusal::Quota),
        ("capacity", Refusal::Capacity),
        ("available", Refusal::Capacity),
        ("sold out", Refusal::Capacity),
        ("stock", Refusal::Capacity),
    ])
}

#[cfg(test)]
mod tests;
