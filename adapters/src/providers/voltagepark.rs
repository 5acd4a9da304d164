//! Voltage Park: bare metal, rented by the node in one fabric.
//!
//! A location is one record and two offers: the network between the nodes, InfiniBand or Ethernet, is chosen
//! when ordering and has a price of its own. The SKU is therefore the provider's word for the GPU and its
//! word for the network. One order rents all its nodes at once, because only the nodes of one rental share a
//! fabric. The provider does not publish whether the two counts of free GPUs are of the same machines; we use
//! them as reported.
//!
//! Facts and their sources: `fixtures/voltagepark/SOURCE.md`. Orders and rentals are in `lease`.

mod lease;

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason};
use market::fabric::Internode;
use market::offer::{Availability, Offer, Particulars, Tenancy, Terms};
use market::order::{LeaseOrder, LeaseRef, ProviderLease};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::{Adapter, Capability, Delivery, NodesPerLease, Profile, Release};
use crate::auth::Field;
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http, Next, Paging};
use crate::reading::{Made, OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "voltagepark",
    name: "Voltage Park",
    default_base_url: "https://cloud-api.voltagepark.com/api/v1",
    credential: &[Field {
        name: "token",
        variable: "VOLTAGEPARK_API_TOKEN",
    }],
    delivery: Delivery::CloudInitScript,
    // No limit is published; this is beyond every location seen.
    nodes_per_lease: NodesPerLease::Rental { max: 1_024 },
    unsupported: &[
        (Capability::Spot, "bare metal is sold on demand only"),
        (
            Capability::IdempotencyKey,
            "a rental takes no key; it is looked up by its name and tag",
        ),
    ],
    freshness_limit: Duration::from_secs(900),
    // No limit on calls is published: slow until one is known.
    ..Profile::REST
};

/// The lists of locations and of rentals.
const PAGING: Paging = Paging {
    records: "/results",
    total: "/total_result_count",
    size: ("limit", 50),
    next: Next::Offset {
        parameter: "offset",
        more: "/has_next",
    },
};

/// The adapter for Voltage Park.
#[derive(Debug)]
pub struct VoltagePark;

#[async_trait]
impl Adapter for VoltagePark {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let listing = http
            .pages("/bare-metal/locations", &PAGING, refusal_of)
            .await?;
        let mut reading = Reading::new(&PROFILE, now);
        if let Some(trouble) = listing.trouble {
            reading.unread_part("the rest of the list", trouble);
        }
        for record in listing.records {
            let model = record["specs_per_node"]["gpu_model"].as_str();
            let skus = Network::ALL.map(|network| model.map(|model| sku(model, network.word())));
            let skus = skus.each_ref().map(Option::as_deref);
            reading.parts(&skus, convert_location(&record, now));
        }
        reading.finish()
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
}

/// The network between the nodes of a rental.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    Ethernet,
    /// Eight ports of 400 Gb/s a node: one for each GPU.
    Infiniband,
}

impl Network {
    const ALL: [Self; 2] = [Self::Ethernet, Self::Infiniband];

    const fn word(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Infiniband => "infiniband",
        }
    }

    const fn internode(self) -> Internode {
        match self {
            Self::Ethernet => Internode::Ethernet,
            Self::Infiniband => Internode::InfinibandNdr400,
        }
    }
}

/// Our SKU for a node of this GPU on this network.
fn sku(gpu_model: &str, network: &str) -> String {
    format!("{gpu_model}-{network}")
}

/// The offers of one location, and the reasons for fewer than two.
fn convert_location(record: &Value, now: DateTime<Utc>) -> Made {
    let location: Location = parse(record)?;
    let model = &location.specs_per_node.gpu_model;
    let (mut offers, mut rejections) = (Vec::new(), Vec::new());
    for network in Network::ALL {
        match convert_network(&location, network, now) {
            Ok(offer) => offers.push(offer),
            Err(rejection) => rejections.push((sku(model, network.word()), rejection)),
        }
    }
    Ok((offers, rejections))
}

fn convert_network(
    location: &Location,
    network: Network,
    now: DateTime<Utc>,
) -> Result<Offer, Rejection> {
    let (price, free) = match network {
        Network::Ethernet => (&location.gpu_price_ethernet, &location.gpu_count_ethernet),
        Network::Infiniband => (
            &location.gpu_price_infiniband,
            &location.gpu_count_infiniband,
        ),
    };
    let specs = &location.specs_per_node;
    let memory_mib = memory_in(&specs.gpu_model);
    let sku = sku(&specs.gpu_model, network.word());
    let (gpu, _) = gate::hardware(PROFILE.id, &sku, Some(&specs.gpu_model), memory_mib)?;
    let gpus = gate::gpus(specs.gpu_count)?;
    let draft = OfferDraft {
        profile: &PROFILE,
        sku: &sku,
        region: &location.id,
        terms: Terms::OnDemand,
        tenancy: Tenancy::BareMetal,
        internode: network.internode(),
        raw_gpu_name: &specs.gpu_model,
        gpu,
        gpus,
        gpu_memory_mib: memory_mib,
        vcpus: specs.cpu_count,
        memory_gib: specs.ram_gb,
        node_price: convert_price(price, gpus)?,
        availability: convert_free(free, gpus)?,
        particulars: Particulars {
            disk_gib: specs.storage_gb,
            ..Particulars::default()
        },
    };
    draft.finish(now)
}

/// The price of a node from the price of a GPU. Units: USD per hour.
fn convert_price(price: &Value, gpus: GpuCount) -> Result<Decimal, Rejection> {
    let per_gpu = gate::needed_price(price, "the price of the network")?;
    let count = Decimal::new(i64::from(gpus.thousandths()), 3);
    per_gpu.checked_mul(count).ok_or_else(|| {
        let why = format!("the price `{per_gpu}` is beyond any price");
        Rejection::new(SkipReason::ImplausiblePrice, why)
    })
}

/// Free nodes from free GPUs; GPUs that make no whole node do not count.
fn convert_free(free_gpus: &Value, gpus: GpuCount) -> Result<Availability, Rejection> {
    let free = gate::free(free_gpus)?;
    let nodes = free.map(|free| free / gpus.as_whole().unwrap_or(1));
    Ok(nodes.map_or(Availability::UNKNOWN, Availability::exactly))
}

/// The memory that the provider's word for a GPU ends in: `h100-sxm5-80gb`. Units: MiB.
fn memory_in(gpu_model: &str) -> Option<u64> {
    let gib: u64 = gpu_model
        .rsplit('-')
        .next()?
        .strip_suffix("gb")?
        .parse()
        .ok()?;
    gib.checked_mul(1_024)
}

/// The meaning of a refusal: only its words give it. The words are those seen.
fn refusal_of(answer: &Answer) -> Refusal {
    answer.refusal_by_words(&[
        ("balance", Refusal::Credential),
        ("credit", Refusal::Credential),
        ("funds", Refusal::Credential),
        ("payment", Refusal::Credential),
        ("billing", Refusal::Credential),
        ("quota", Refusal::Quota),
        ("limit", Refusal::Quota),
        ("capacity", Refusal::Capacity),
        ("not enough", Refusal::Capacity),
        ("insufficient", Refusal::Capacity),
        ("available", Refusal::Capacity),
        ("sold out", Refusal::Capacity),
        ("out of stock", Refusal::Capacity),
    ])
}

#[derive(Debug, Deserialize)]
struct Location {
    id: String,
    #[serde(default)]
    gpu_price_ethernet: Value,
    #[serde(default)]
    gpu_price_infiniband: Value,
    #[serde(default)]
    gpu_count_ethernet: Value,
    #[serde(default)]
    gpu_count_infiniband: Value,
    specs_per_node: Specs,
}

#[derive(Debug, Deserialize)]
struct Specs {
    gpu_model: String,
    gpu_count: i64,
    cpu_count: Option<u32>,
    ram_gb: Option<u32>,
    storage_gb: Option<u32>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_price_of_a_gpu_becomes_that_of_a_node_once() {
        let gpus = GpuCount::whole(8).expect("a count");
        let price = |value: Value| {
            let price = convert_price(&value, gpus).and_then(|price| gate::node_price(price, gpus));
            price
                .map(|price| price.to_string())
                .map_err(|rejection| rejection.reason)
        };
        assert_eq!(price(json!("1.99")), Ok("15.92".into()));
        assert_eq!(price(json!(2.49)), Ok("19.92".into()));
        for none in [json!(null), json!(""), json!("0"), json!("0.00"), json!(0)] {
            assert_eq!(price(none.clone()), Err(SkipReason::NoPrice), "{none}");
        }
        assert_eq!(price(json!("199000")), Err(SkipReason::ImplausiblePrice));
    }

    #[test]
    fn free_gpus_are_counted_in_whole_nodes() {
        let gpus = GpuCount::whole(8).expect("a count");
        let free = |value: Value| convert_free(&value, gpus).map_err(|it| it.reason);
        assert_eq!(free(json!(17)), Ok(Availability::exactly(2)));
        assert_eq!(free(json!(7)), Ok(Availability::NONE));
        assert_eq!(free(json!(null)), Ok(Availability::UNKNOWN));
    }
}
