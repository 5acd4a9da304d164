//! Voltage Park: bare metal, rented by the node in one fabric.
//!
//! A location is one record and two offers: the network between the nodes, InfiniBand or Ethernet, is chosen
//! when ordering and has a price of its own. The SKU is therefore the provider's word for the GPU and its
//! word for the network. One order rents all its nodes at once, because only the nodes of one rental share a
//! fabric. The provider does not publish whether the two counts of free GPUs are of the same machines; we use
//! them as reported.
//!
//! Facts and their sources: `fixtures/voltagepark/SOURCE.md`. Orders and rentals are in `lease`,
//! the walk over pages in `pages`.

mod lease;
mod pages;

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason, Skipped, Unread};
use market::fabric::Internode;
use market::ids::OfferId;
use market::money::Money;
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::order::{LeaseOrder, ProviderLease, ProviderLeaseId};
use market::place::Place;
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::{Adapter, Capability, Delivery, NodesPerLease, Profile, Release};
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http};

const PROFILE: Profile = Profile {
    id: "voltagepark",
    name: "Voltage Park",
    default_base_url: "https://cloud-api.voltagepark.com/api/v1",
    credentials: &["VOLTAGEPARK_API_TOKEN"],
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
    peer_regions: &[],
    freshness_limit: Duration::from_secs(900),
    poll_interval: Duration::from_secs(120),
    // No limit is published: slow until one is known.
    call_spacing: Duration::from_millis(500),
    order_spacing: Duration::from_secs(2),
    listing_lag: Profile::LISTING_LAG,
};

/// More free GPUs than this at one location is an error, such as minus one without its sign.
const MOST_FREE_GPUS: i64 = 1_000_000;

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
        let listing = pages::read(http, "/bare-metal/locations").await?;
        let mut offers = Vec::new();
        let mut skipped: Vec<Skipped> = Vec::new();
        let mut unread = Unread::Nothing;
        if let Some(trouble) = listing.trouble {
            unread.note(None);
            skipped.push(Rejection::of_part("the rest of the list", trouble));
        }
        for record in listing.records {
            let (converted, rejected) = convert_location(&record, now);
            offers.extend(converted);
            if rejected.iter().any(Skipped::is_unread) {
                note_skus(&record, &mut unread);
            }
            skipped.extend(rejected);
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

/// Notes the SKUs of a location that could not be read, if it names its GPU.
fn note_skus(record: &Value, unread: &mut Unread) {
    let model = record["specs_per_node"]["gpu_model"].as_str();
    for network in Network::ALL {
        unread.note(model.map(|model| sku(model, network.word())));
    }
}

/// The offers of one location, and the reasons for fewer than two.
fn convert_location(record: &Value, now: DateTime<Utc>) -> (Vec<Offer>, Vec<Skipped>) {
    let location = match Location::deserialize(record) {
        Ok(location) => location,
        Err(error) => {
            let why = format!(
                "the record is not as published: {}",
                gate::shown(&error.to_string())
            );
            return (
                Vec::new(),
                vec![
                    Rejection::new(SkipReason::Unreadable, why).of_record(record["id"].as_str(), 1),
                ],
            );
        }
    };
    let model = &location.specs_per_node.gpu_model;
    let (mut offers, mut rejections) = (Vec::new(), Vec::new());
    for network in Network::ALL {
        match convert_network(&location, network, now) {
            Ok(offer) => offers.push(offer),
            Err(rejection) => rejections.push((sku(model, network.word()), rejection)),
        }
    }
    // A record that gave nothing is counted once, with its first reason.
    let mut uncounted = u64::from(offers.is_empty());
    let skipped = rejections
        .into_iter()
        .map(|(sku, rejection)| rejection.of_record(Some(&sku), std::mem::take(&mut uncounted)))
        .collect();
    (offers, skipped)
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
    gate::name("the id of the location", &location.id)?;
    gate::name("the name of the GPU", &specs.gpu_model)?;
    let memory_mib = memory_in(&specs.gpu_model);
    let sku = sku(&specs.gpu_model, network.word());
    let (gpu, _) = gate::hardware(PROFILE.id, &sku, Some(&specs.gpu_model), memory_mib)?;
    let impossible = || {
        Rejection::new(
            SkipReason::ImpossibleCount,
            format!("no machine has {} GPUs", specs.gpu_count),
        )
    };
    let gpus_per_node = u32::try_from(specs.gpu_count).map_err(|_| impossible())?;
    let gpus = GpuCount::whole(gpus_per_node).map_err(|_| impossible())?;
    let id = &location.id;
    Ok(Offer {
        offer_id: OfferId::of_identity(&[PROFILE.id, &sku, id, Terms::OnDemand.as_str(), "0"]),
        provider: PROFILE.provider_id(),
        raw_gpu_name: specs.gpu_model.clone(),
        gpu,
        gpus,
        gpu_memory_mib: memory_mib,
        vcpus: specs.cpu_count,
        memory_gib: specs.ram_gb,
        place: Place::resolve(PROFILE.id, id, ""),
        tenancy: Tenancy::BareMetal,
        terms: Terms::OnDemand,
        internode: network.internode(),
        price_per_node_hour: convert_price(price, gpus)?,
        availability: convert_free(free, gpus_per_node)?,
        orderable: true,
        observed_at: now,
        sku,
    })
}

/// The price of a node from the price of a GPU, a decimal text. Units: USD per hour.
fn convert_price(price: &Value, gpus: GpuCount) -> Result<Money, Rejection> {
    let text = digits_of(price);
    if text.is_empty() {
        return Err(Rejection::new(
            SkipReason::NoPrice,
            "the network has no price",
        ));
    }
    let unreadable = || {
        Rejection::new(
            SkipReason::Unreadable,
            format!("the price `{}` is no number", gate::shown(&text)),
        )
    };
    let per_gpu = Decimal::from_str_exact(&text).map_err(|_| unreadable())?;
    let count = Decimal::new(i64::from(gpus.thousandths()), 3);
    gate::node_price(per_gpu.checked_mul(count).ok_or_else(unreadable)?, gpus)
}

/// A price as it stands on the wire, a text or a number; empty when it is neither.
fn digits_of(price: &Value) -> String {
    match price {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Free nodes from free GPUs; GPUs that make no whole node do not count.
fn convert_free(free_gpus: &Value, gpus_per_node: u32) -> Result<Availability, Rejection> {
    if free_gpus.is_null() {
        return Ok(Availability::UNKNOWN);
    }
    let possible = free_gpus
        .as_i64()
        .filter(|free| (0..=MOST_FREE_GPUS).contains(free));
    let nodes = possible.and_then(|free| u32::try_from(free / i64::from(gpus_per_node)).ok());
    nodes.map(Availability::exactly).ok_or_else(|| {
        let why = format!(
            "{} free GPUs is no possible count",
            gate::shown(&free_gpus.to_string())
        );
        Rejection::new(SkipReason::ImpossibleCount, why)
    })
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

/// The meaning of a refusal. Only a text in `detail` gives it; the words are those seen.
fn refusal_of(answer: &Answer) -> Refusal {
    let body = answer.json().unwrap_or_default();
    let detail = body["detail"].as_str().unwrap_or_default().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| detail.contains(word));
    if says(&["balance", "credit", "funds", "payment", "billing"]) {
        Refusal::Credential
    } else if says(&["quota", "limit"]) {
        Refusal::Quota
    } else if says(&[
        "capacity",
        "not enough",
        "insufficient",
        "available",
        "sold out",
        "out of stock",
    ]) {
        Refusal::Capacity
    } else {
        Refusal::from_status(answer.status())
    }
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn price(value: Value) -> Result<String, SkipReason> {
        let gpus = GpuCount::whole(8).expect("a count");
        convert_price(&value, gpus)
            .map(|price| price.to_string())
            .map_err(|rejection| rejection.reason)
    }

    #[test]
    fn the_price_of_a_gpu_becomes_that_of_a_node_once() {
        assert_eq!(price(json!("1.99")), Ok("15.92".into()));
        assert_eq!(price(json!(2.49)), Ok("19.92".into()));
        for none in [json!(null), json!(""), json!("0"), json!("0.00"), json!(0)] {
            assert_eq!(price(none.clone()), Err(SkipReason::NoPrice), "{none}");
        }
        assert_eq!(price(json!("contact us")), Err(SkipReason::Unreadable));
        assert_eq!(price(json!("199000")), Err(SkipReason::ImplausiblePrice));
    }

    #[test]
    fn free_gpus_are_counted_in_whole_nodes() {
        let nodes = |value: Value| {
            convert_free(&value, 8)
                .map(|free| free.nodes)
                .map_err(|rejection| rejection.reason)
        };
        assert_eq!(nodes(json!(17)), Ok(Some(2)));
        assert_eq!(nodes(json!(7)), Ok(Some(0)));
        assert_eq!(nodes(json!(null)), Ok(None));
        for impossible in [
            json!(-1),
            json!(18_446_744_073_709_551_615_u64),
            json!("many"),
            json!(1.5),
        ] {
            assert_eq!(
                nodes(impossible.clone()),
                Err(SkipReason::ImpossibleCount),
                "{impossible}"
            );
        }
        assert!(convert_free(&json!(7), 8).is_ok_and(|free| free.is_sold_out()));
    }
}
