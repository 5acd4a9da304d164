//! Verda, formerly DataCrunch: virtual machines on demand and spot, one node a lease, no fabric between them.
//!
//! Prices and availability are separate answers. A type costs the same everywhere, and one list for each terms
//! names the types that can be had at a location now. So that a sold-out offer stays an offer, each type is
//! listed at every location, with availability none where the list does not name it. While no location is
//! known a type is in an unknown place, and any offer may be among the unread ones.
//!
//! Instant clusters are left out: a cluster type has a fixed number of nodes, its workers are reached through
//! a login node only, and neither can be expressed in an offer or a lease.
//!
//! Facts and their sources: `fixtures/verda/SOURCE.md`. Orders and machines are in `lease`,
//! what is made beside them in `beside`.

mod beside;
mod image;
mod lease;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason, spot_above_on_demand};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::money::{Currency, Money};
use market::offer::{Availability, Extra, ExtraBasis, Offer, Particulars, Tenancy, Tenure, Terms};
use market::order::{Attachment, LeaseOrder, LeaseRef, ProviderLease};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::{Adapter, Capability, Delivery, MachineChoices, Profile, Release};
use crate::auth::{Auth, Field};
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http};
use crate::reading::{Made, OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "verda",
    name: "Verda",
    default_base_url: "https://api.verda.com/v1",
    auth: Auth::ClientCredentials("/oauth2/token"),
    credential: &[
        Field {
            name: "client_id",
            variable: "VERDA_CLIENT_ID",
        },
        Field {
            name: "client_secret",
            variable: "VERDA_CLIENT_SECRET",
        },
    ],
    delivery: Delivery::CloudInitScript,
    machines: MachineChoices {
        own_images: true,
        // No limit is published.
        most_disk_gib: Some(2_048),
        ..MachineChoices::NONE
    },
    unsupported: &[
        (
            Capability::Fabric,
            "machines share none, and no order can express the fixed size of a cluster",
        ),
        (
            Capability::FreeCount,
            "a type is listed at a location or not, never how many of it are free",
        ),
        (
            Capability::IdempotencyKey,
            "a launch takes no key; it is looked up by its host name and description",
        ),
    ],
    ..Profile::REST
};

/// More types than this are no catalogue: 64 were seen.
const MOST_TYPES: usize = 2_000;

/// The path of the list of types and prices.
const TYPES: &str = "/instance-types?currency=usd";

/// The adapter for Verda.
#[derive(Debug)]
pub struct Verda;

#[async_trait]
impl Adapter for Verda {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let unbelieved = |why: Rejection| why.of_listing("GET", TYPES);
        let types: Vec<Value> = http.get(TYPES).await?.read(refusal_of)?;
        gate::count("types", types.len(), MOST_TYPES).map_err(unbelieved)?;
        let mut reading = Reading::new(&PROFILE, now);
        let supply = Supply::read(http, &mut reading).await;
        let pairs = types.len() * supply.locations.len() * 2;
        gate::count("offers", pairs, gate::MOST_OFFERS).map_err(unbelieved)?;
        let mut seen = BTreeSet::new();
        for record in &types {
            let sku = record["instance_type"].as_str();
            let made = match sku.is_none_or(|sku| seen.insert(sku)) {
                true => convert_type(record, &supply, now),
                false => Err(contradiction("the type stands on the list twice")),
            };
            reading.parts(&[sku], made);
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

    async fn list_attachments(&self, http: &Http) -> Result<Vec<Attachment>, AdapterError> {
        beside::list(http).await
    }

    async fn remove_attachment(
        &self,
        http: &Http,
        attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        beside::remove(http, attachment).await
    }
}

/// The types that can be had now, by location.
type Stock = BTreeMap<String, BTreeSet<String>>;

/// Where types can be had, and what they cost besides.
struct Supply {
    locations: BTreeSet<String>,
    /// `None` where a list could not be read.
    on_demand: Option<Stock>,
    spot: Option<Stock>,
    extras: Vec<Extra>,
}

impl Supply {
    async fn read(http: &Http, reading: &mut Reading) -> Self {
        let mut lists = [None, None];
        for (list, is_spot) in lists.iter_mut().zip([false, true]) {
            let path = format!("/instance-availability?is_spot={is_spot}");
            match read_stock(http, &path).await {
                Ok(stock) => *list = Some(stock),
                Err(error) => reading.unread_part(&path, error),
            }
        }
        let mut locations = read_locations(http).await.unwrap_or_else(|error| {
            reading.unread_part("the list of locations", error);
            BTreeSet::new()
        });
        let named = lists.iter().flatten().flat_map(BTreeMap::keys);
        locations.extend(named.cloned());
        if locations.is_empty() && reading.is_whole() {
            reading.unread_part("the list of locations", "it is empty");
        }
        let [on_demand, spot] = lists;
        Self {
            locations,
            on_demand,
            spot,
            // They are shown and never charged, so that a reading without them is whole.
            extras: read_extras(http).await.unwrap_or_default(),
        }
    }

    /// A type at every location; in an unknown place while none is known.
    fn place(&self, draft: &OfferDraft<'_>, now: DateTime<Utc>) -> Result<Vec<Offer>, Rejection> {
        let stock = match draft.terms {
            Terms::Spot => &self.spot,
            _ => &self.on_demand,
        };
        let offer = |region: &str| {
            let here = stock.as_ref().filter(|_| !region.is_empty());
            let availability = match here.map(|stock| stock.get(region)) {
                Some(Some(types)) if types.contains(draft.sku) => Availability::PRESENT,
                Some(_) => Availability::NONE,
                None => Availability::UNKNOWN,
            };
            let draft = draft.clone();
            let offer = OfferDraft {
                region,
                availability,
                ..draft
            }
            .finish(now)?;
            // Without an image nothing can be launched.
            let orderable = offer.orderable && offer.particulars.order_ref.is_some();
            Ok(Offer { orderable, ..offer })
        };
        let nowhere = self.locations.is_empty().then_some("");
        let locations = self.locations.iter().map(String::as_str);
        locations.chain(nowhere).map(offer).collect()
    }
}

async fn read_stock(http: &Http, path: &str) -> Result<Stock, AdapterError> {
    let listed: Vec<StockedLocation> = http.get(path).await?.read(refusal_of)?;
    let stock = listed.into_iter();
    Ok(stock
        .map(|it| (it.location_code, it.availabilities))
        .collect())
}

async fn read_locations(http: &Http) -> Result<BTreeSet<String>, AdapterError> {
    let listed: Vec<Location> = http.get("/locations").await?.read(refusal_of)?;
    Ok(listed.into_iter().map(|location| location.code).collect())
}

/// The price of a machine's own disk, which no machine's price includes.
async fn read_extras(http: &Http) -> Result<Vec<Extra>, AdapterError> {
    let types: Vec<Value> = http.get("/volume-types").await?.read(refusal_of)?;
    let of_disk = types.iter().find(|kind| kind["type"] == "NVMe");
    let price = of_disk
        .map(|kind| &kind["price"])
        .filter(|price| is_usd(&price["currency"]));
    let amount = price.and_then(|price| gate::price(&price["price_per_month_per_gb"]).ok()?);
    let price = amount.and_then(|amount| Money::from_decimal(amount, Currency::Usd).ok());
    let per = ExtraBasis::DiskGbMonth;
    let extra = price
        .filter(|price| price.is_positive())
        .map(|price_usd| Extra { per, price_usd });
    Ok(extra.into_iter().collect())
}

fn is_usd(currency: &Value) -> bool {
    let word = currency.as_str().unwrap_or_default();
    word.eq_ignore_ascii_case("usd")
}

/// The offers of one type under both terms, and the reasons for none under either.
fn convert_type(record: &Value, supply: &Supply, now: DateTime<Utc>) -> Made {
    let listed: InstanceType = parse(record)?;
    let (sku, raw_gpu_name) = (&listed.instance_type, &listed.name);
    let gpus = convert_count(sku, listed.gpu.number_of_gpus)?;
    let of_all = convert_size(&record["gpu_memory"]["size_in_gigabytes"], 1_000_000);
    let (gpu, gpu_memory_mib) = convert_gpu(sku, raw_gpu_name, gpus, of_all)?;
    if !is_usd(&record["currency"]) {
        let currency = gate::shown(&record["currency"].to_string());
        let why = format!("its prices are in {currency}, not in US dollars");
        return Err(Rejection::new(SkipReason::NoPrice, why));
    }
    let draft = OfferDraft {
        profile: &PROFILE,
        sku,
        region: "",
        terms: Terms::OnDemand,
        tenancy: Tenancy::Vm,
        internode: Internode::None,
        raw_gpu_name,
        gpu,
        gpus,
        gpu_memory_mib,
        vcpus: convert_size(&record["cpu"]["number_of_cores"], 10_000),
        memory_gib: convert_size(&record["memory"]["size_in_gigabytes"], 100_000),
        node_price: Decimal::ZERO,
        availability: Availability::UNKNOWN,
        particulars: Particulars {
            order_ref: image::joined(&record["supported_os"]),
            extras: supply.extras.clone(),
            tenure: Tenure {
                increment_seconds: 600,
                prepaid: true,
                ..Tenure::default()
            },
            ..Particulars::default()
        },
    };
    let (mut offers, mut rejections) = (Vec::new(), Vec::new());
    for (terms, field) in [
        (Terms::OnDemand, "price_per_hour"),
        (Terms::Spot, "spot_price"),
    ] {
        let price = gate::needed_price(&record[field], field);
        let placed = price.and_then(|node_price| {
            let draft = draft.clone();
            supply.place(
                &OfferDraft {
                    terms,
                    node_price,
                    ..draft
                },
                now,
            )
        });
        match placed.and_then(|placed| not_above(&offers, placed)) {
            Ok(placed) => offers.extend(placed),
            Err(rejection) => rejections.push((sku.clone(), rejection)),
        }
    }
    Ok((offers, rejections))
}

/// Spot offers, unless they cost more than those on demand.
fn not_above(on_demand: &[Offer], spot: Vec<Offer>) -> Result<Vec<Offer>, Rejection> {
    let prices = spot.first().zip(on_demand.first());
    let above = prices.and_then(|(spot, on_demand)| {
        spot_above_on_demand(spot.price_per_node_hour, on_demand.price_per_node_hour)
    });
    above.map_or(Ok(spot), |why| {
        Err(Rejection::new(SkipReason::SpotAboveOnDemand, why))
    })
}

/// A size that some machine has; zero means that it is not known.
fn convert_size(size: &Value, most: u32) -> Option<u32> {
    let size = u32::try_from(size.as_u64()?).ok()?;
    (1..=most).contains(&size).then_some(size)
}

fn contradiction(why: impl Into<String>) -> Rejection {
    Rejection::new(SkipReason::ContradictsList, why)
}

/// The count of GPUs, which the name of a type begins with, too: `8H100.80S.176V`.
fn convert_count(sku: &str, count: i64) -> Result<GpuCount, Rejection> {
    let digits = sku.split(|c: char| !c.is_ascii_digit()).next();
    match digits.unwrap_or_default().parse::<i64>() {
        Ok(named) if named != count => Err(contradiction(format!(
            "its name says {named} GPUs and its record says {count}"
        ))),
        _ => gate::gpus(count),
    }
}

/// The GPU and the memory of one, from the memory of all. Units: GiB of all, MiB of one.
///
/// The label's GB is the nominal size of the card, which is in GiB.
fn convert_gpu(
    sku: &str,
    name: &str,
    gpus: GpuCount,
    of_all: Option<u32>,
) -> Result<(GpuIdentity, Option<u64>), Rejection> {
    let count = u64::from(gpus.as_whole().unwrap_or(1));
    let memory_mib = of_all.map(|gib| u64::from(gib) * 1_024 / count);
    let (gpu, _) = gate::hardware(PROFILE.id, sku, Some(name), memory_mib)?;
    // Labels of one card differ by up to a tenth.
    let is_near = |card: f64, mib: u64| (0.85..=1.15).contains(&(mib as f64 / card / 1_024.0));
    match memory_mib {
        Some(mib) if !gpu.forms().any(|form| is_near(form.spec().memory_gb, mib)) => {
            Err(contradiction(format!("no {gpu} has {mib} MiB of memory")))
        }
        _ => Ok((gpu, memory_mib)),
    }
}

/// The meaning of a refusal. Codes are few and general, so that words decide.
fn refusal_of(answer: &Answer) -> Refusal {
    answer.refusal_by_words(&[
        ("insufficient_funds", Refusal::Credential),
        ("insufficient funds", Refusal::Credential),
        ("balance", Refusal::Credential),
        ("quota", Refusal::Quota),
        ("limit exceeded", Refusal::Quota),
        ("not enough resources", Refusal::Capacity),
        ("no capacity", Refusal::Capacity),
        ("out of stock", Refusal::Capacity),
    ])
}

/// The part of a record without which it is none.
#[derive(Debug, Deserialize)]
struct InstanceType {
    instance_type: String,
    name: String,
    gpu: Gpu,
}

#[derive(Debug, Deserialize)]
struct Gpu {
    number_of_gpus: i64,
}

#[derive(Debug, Deserialize)]
struct Location {
    code: String,
}

#[derive(Debug, Deserialize)]
struct StockedLocation {
    location_code: String,
    availabilities: BTreeSet<String>,
}
