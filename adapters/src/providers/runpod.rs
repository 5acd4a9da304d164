//! RunPod: containers ("pods") on hosts of its own data centres and of other people.
//!
//! Prices and stock come from one GraphQL answer, pods are in REST v2, both below the same address. One
//! record, a type of GPU, becomes many offers:
//!
//! - **Cloud.** The secure cloud is offered in each data centre that lists the type, and the region is that
//!   data centre. The community cloud names no place to order from, so it is one region of its own,
//!   `community`, in no known country.
//! - **Count.** A pod takes 1 up to as many GPUs as the type allows; we offer 1, 2, 4 and 8 of them. Stock is
//!   reported for each count separately, and these are the sizes that tensor parallelism and demands use. The
//!   count is in the SKU: `8x NVIDIA H100 80GB HBM3`.
//! - **Terms.** On demand at the list price of the cloud. Spot at the lowest bid that is accepted, which is
//!   then our bid; such a pod can be outbid and is then stopped. The published spot prices are not read: they
//!   repeat the prices on demand.
//!
//! A price of 0, null, 0.5 or 1 is a placeholder and makes no offer. Without a stock word the availability is
//! unknown. A data centre keeps a type as long as it lists it for any count, so that a size that sells out
//! stays an offer. Pods share no fabric with each other.
//!
//! Facts and their sources: `fixtures/runpod/SOURCE.md`. The GraphQL queries are in `graphql`; `places`,
//! `price` and `offers` make offers from the answers; `container` has the content of an order, `lease` places
//! it and reads the pod.

mod container;
mod graphql;
mod lease;
mod offers;
mod places;
mod price;

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, Skipped, Unread};
use market::order::{LeaseOrder, ProviderLease, ProviderLeaseId};

use self::places::Places;
use crate::adapter::{Adapter, Capability, Delivery, NodesPerLease, Profile, Release};
use crate::error::AdapterError;
use crate::gate;
use crate::http::Http;

const PROFILE: Profile = Profile {
    id: "runpod",
    name: "RunPod",
    default_base_url: "https://api.runpod.io",
    credentials: &["RUNPOD_API_KEY"],
    delivery: Delivery::StartCommand,
    nodes_per_lease: NodesPerLease::One,
    unsupported: &[
        (
            Capability::Fabric,
            "a pod is a container of its own, and pods share no fabric",
        ),
        (
            Capability::FreeCount,
            "stock is reported in words (High, Medium, Low), never counted",
        ),
        (
            Capability::IdempotencyKey,
            "a pod takes no key; it is looked up by its name",
        ),
    ],
    peer_regions: &[COMMUNITY],
    freshness_limit: Duration::from_secs(600),
    poll_interval: Duration::from_secs(120),
    // Limits are given in headers and differ by user: slow until they are known.
    call_spacing: Duration::from_millis(500),
    order_spacing: Duration::from_secs(1),
    listing_lag: Profile::LISTING_LAG,
};

/// The sizes of a pod that are offered, as far as a type allows them.
const COUNTS: [u32; 4] = [1, 2, 4, 8];

/// The region of everything on the community cloud, whose hosts belong to other people.
const COMMUNITY: &str = "community";

/// More records than this are no catalogue: some 40 types in some 40 data centres were seen.
const MOST_TYPES: usize = 1_000;
const MOST_DATA_CENTRES: usize = 500;

/// The adapter for RunPod.
#[derive(Debug)]
pub struct RunPod;

#[async_trait]
impl Adapter for RunPod {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let listing = graphql::read_listing(http).await?;
        let mut skipped: Vec<Skipped> = listing.missing.into_iter().collect();
        let places = Places::of(listing.data_centres);
        skipped.extend(places.unreadable.iter().cloned());
        let mut unread = Unread::Nothing;
        if !skipped.is_empty() {
            unread.note(None);
        }
        let mut offers = Vec::new();
        for record in listing.gpu_types {
            let id = record["id"].as_str().map(str::to_owned);
            let (converted, rejected) = offers::convert_type(record, &places, now);
            offers.extend(converted);
            if rejected.iter().any(Skipped::is_unread) {
                for count in COUNTS {
                    unread.note(id.as_deref().map(|id| sku(count, id)));
                }
            }
            skipped.extend(rejected);
            gate::count("offers", offers.len(), gate::MOST_OFFERS).map_err(graphql::unbelieved)?;
        }
        Ok(CatalogReading {
            provider: PROFILE.provider_id(),
            read_at: now,
            offers,
            skipped,
            unread,
        })
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
        id: &ProviderLeaseId,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        lease::read(http, id).await
    }

    async fn release_lease(
        &self,
        http: &Http,
        id: &ProviderLeaseId,
    ) -> Result<Release, AdapterError> {
        lease::release(http, id).await
    }
}

/// The owner of the host that a pod runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cloud {
    /// RunPod's own data centres.
    Secure,
    /// Machines of other people.
    Community,
}

impl Cloud {
    const ALL: [Self; 2] = [Self::Secure, Self::Community];

    /// The word of orders and pods.
    const fn word(self) -> &'static str {
        match self {
            Self::Secure => "SECURE",
            Self::Community => "COMMUNITY",
        }
    }

    /// The prefix of this cloud's names in the query.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::Community => "community",
        }
    }

    /// The cloud that an offer in this region is on.
    fn of_region(region: &str) -> Self {
        if region == COMMUNITY {
            Self::Community
        } else {
            Self::Secure
        }
    }
}

/// Our SKU for a pod with this many GPUs of a type.
fn sku(gpus: u32, type_id: &str) -> String {
    format!("{gpus}x {type_id}")
}
