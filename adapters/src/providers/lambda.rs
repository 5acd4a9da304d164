//! Lambda Cloud: virtual machines on demand, one node a lease, no fabric between them.
//!
//! The price answer names only the regions where a type is available. So that a sold-out offer stays an
//! offer, each type is listed in every region of the account, with availability none where the answer does
//! not name it. The regions are those of `GET /regions` and of the price answer itself. A type-region pair
//! then has the same id whether it is available or not, and a region that disappears from the price answer
//! withdraws nothing. Where the interface has no such list (404, or a recording of the price answer alone)
//! only the regions of the price answer are used. While no region at all is known a type is in an unknown
//! place, and any offer may be among the unread ones.
//!
//! A missing type looks the same as one that was cut out of the answer: there is no count to compare with.
//! The code that compares readings must doubt a large loss.
//!
//! Facts and their sources: `fixtures/lambda/SOURCE.md`. Orders and machines are in `lease`.

mod lease;

use std::collections::{BTreeMap, BTreeSet};
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

use crate::adapter::{Adapter, Capability, MachineChoices, Ports, Profile, Release};
use crate::auth::Field;
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http};
use crate::reading::{OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "lambda",
    name: "Lambda Cloud",
    default_base_url: "https://cloud.lambda.ai/api/v1",
    credential: &[Field {
        name: "api_key",
        variable: "LAMBDA_API_KEY",
    }],
    machines: MachineChoices {
        own_images: true,
        // A firewall of the account, set in its console, is in front of every machine.
        ports: Ports::SshOnly,
        ..MachineChoices::NONE
    },
    unsupported: &[
        (
            Capability::Spot,
            "there is no spot product in this interface",
        ),
        (
            Capability::Fabric,
            "virtual machines on demand share no fabric, and clusters cannot be ordered by API",
        ),
        (
            Capability::FreeCount,
            "only the regions with capacity are named, never how much",
        ),
        (
            Capability::IdempotencyKey,
            "a launch takes no key; it is looked up by its name and tag",
        ),
        (
            Capability::StartTime,
            "an instance does not say when it was made",
        ),
    ],
    poll_interval: Duration::from_secs(60),
    // About one request a second overall, one launch per 12 seconds.
    call_spacing: Duration::from_millis(1_100),
    order_spacing: Duration::from_secs(12),
    ..Profile::REST
};

/// More types or regions than this are no catalogue: some fifty types in some twenty regions were seen. They
/// limit how many offers a small answer can produce.
const MOST_TYPES: usize = 2_000;
const MOST_REGIONS: usize = 200;

/// The path of the list of types and prices.
const TYPES: &str = "/instance-types";

/// The adapter for Lambda Cloud.
#[derive(Debug)]
pub struct Lambda;

#[async_trait]
impl Adapter for Lambda {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let types: Data<BTreeMap<String, Value>> = http.get(TYPES).await?.read(refusal_of)?;
        gate::count("types", types.data.len(), MOST_TYPES).map_err(unbelieved)?;
        let mut reading = Reading::new(&PROFILE, now);
        let mut regions = read_regions(http).await.unwrap_or_else(|error| {
            reading.unread_part("the list of regions", error);
            BTreeSet::new()
        });
        let types: Vec<_> = types
            .data
            .into_iter()
            .map(|(sku, record)| (sku, parse::<ListedType>(&record)))
            .collect();
        for listed in types.iter().filter_map(|(_, record)| record.as_ref().ok()) {
            let named = listed.regions_with_capacity_available.iter();
            regions.extend(named.map(|region| region.name.clone()));
        }
        gate::count("regions", regions.len(), MOST_REGIONS).map_err(unbelieved)?;
        for region in &regions {
            gate::name("the name of a region", region).map_err(unbelieved)?;
        }
        let pairs = types.len() * regions.len();
        gate::count("offers", pairs, gate::MOST_OFFERS).map_err(unbelieved)?;
        if regions.is_empty() && reading.is_whole() {
            reading.unread_part("the list of regions", "it is empty, and no type names one");
        }
        for (sku, record) in types {
            let offers = record.and_then(|record| convert_type(&sku, &record, &regions, now));
            reading.record(Some(&sku), offers);
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

fn unbelieved(why: Rejection) -> AdapterError {
    why.of_listing("GET", TYPES)
}

/// The regions of the account; none where the interface does not list them.
async fn read_regions(http: &Http) -> Result<BTreeSet<String>, AdapterError> {
    let answer = match http.get("/regions").await {
        Ok(answer) if answer.is_not_shown() => return Ok(BTreeSet::new()),
        Err(AdapterError::BadRecording(_)) => return Ok(BTreeSet::new()),
        answer => answer?,
    };
    let regions: Data<Vec<Region>> = answer.read(refusal_of)?;
    Ok(regions.data.into_iter().map(|region| region.name).collect())
}

/// One type in every region.
fn convert_type(
    sku: &str,
    record: &ListedType,
    regions: &BTreeSet<String>,
    now: DateTime<Utc>,
) -> Result<Vec<Offer>, Rejection> {
    gate::name("the name of the type", sku)?;
    let kind = &record.instance_type;
    let gpus = convert_count(sku, kind.specs.gpus)?;
    let label = kind
        .gpu_description
        .as_deref()
        .or(kind.description.as_deref())
        .unwrap_or_default();
    gate::name("the description of the GPU", label)?;
    let raw_gpu_name = label
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start_matches("x ");
    let (name, memory_mib) = split_label(raw_gpu_name);
    let (gpu, share) = gate::hardware(PROFILE.id, sku, Some(name), memory_mib)?;
    let gpus = share.unwrap_or(gpus);
    let cents = kind.price_cents_per_hour.ok_or_else(|| {
        let why = "price_cents_per_hour is absent or null";
        Rejection::new(SkipReason::NoPrice, why)
    })?;
    let with_capacity = &record.regions_with_capacity_available;
    let to_be_had: BTreeSet<&str> = with_capacity.iter().map(|it| it.name.as_str()).collect();
    let unknown_place = regions.is_empty().then_some("");
    let listed_in = regions.iter().map(String::as_str).chain(unknown_place);
    let offer = |region| {
        let draft = OfferDraft {
            profile: &PROFILE,
            sku,
            region,
            terms: Terms::OnDemand,
            tenancy: Tenancy::Vm,
            internode: Internode::None,
            raw_gpu_name,
            gpu: gpu.clone(),
            gpus,
            gpu_memory_mib: memory_mib,
            vcpus: kind.specs.vcpus,
            memory_gib: kind.specs.memory_gib,
            node_price: Decimal::new(cents, 2),
            availability: if to_be_had.contains(region) {
                Availability::PRESENT
            } else {
                Availability::NONE
            },
            particulars: Particulars {
                disk_gib: kind.specs.storage_gib,
                ..Particulars::default()
            },
        };
        draft.finish(now)
    };
    listed_in.map(offer).collect()
}

/// The count of GPUs; where `specs` lacks it, as old answers do, the name has it: `gpu_8x_…`.
fn convert_count(sku: &str, gpus: Option<i64>) -> Result<GpuCount, Rejection> {
    let from_name = || sku.strip_prefix("gpu_")?.split_once('x')?.0.parse().ok();
    let Some(gpus) = gpus.or_else(from_name) else {
        return Err(Rejection::new(
            SkipReason::Unreadable,
            "neither specs nor the name say how many GPUs it has",
        ));
    };
    gate::gpus(gpus)
}

/// Splits `H100 (80 GB SXM5)` into the name and the memory of one GPU. Units: MiB.
///
/// The label's GB is the nominal size of the card, which is in GiB.
fn split_label(label: &str) -> (&str, Option<u64>) {
    let Some((name, details)) = label.split_once('(') else {
        return (label.trim(), None);
    };
    let gib = details
        .split_once("GB")
        .and_then(|(number, _)| number.trim().parse::<u64>().ok());
    (
        name.trim(),
        gib.filter(|gib| *gib < 100_000).map(|gib| gib * 1_024),
    )
}

/// The meaning of a refusal. The API asks callers to branch on `code` alone.
fn refusal_of(answer: &Answer) -> Refusal {
    match code_of(answer).as_str() {
        "instance-operations/launch/insufficient-capacity" => Refusal::Capacity,
        "global/quota-exceeded" => Refusal::Quota,
        "global/invalid-api-key" | "global/account-inactive" | "global/invalid-address" => {
            Refusal::Credential
        }
        _ => Refusal::from_status(answer.status()),
    }
}

fn code_of(answer: &Answer) -> String {
    let body = answer.json().unwrap_or_default();
    body["error"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The wrapper of every success.
#[derive(Debug, Deserialize)]
struct Data<T> {
    data: T,
}

#[derive(Debug, Deserialize)]
struct ListedType {
    instance_type: InstanceType,
    regions_with_capacity_available: Vec<Region>,
}

#[derive(Debug, Deserialize)]
struct InstanceType {
    name: String,
    description: Option<String>,
    gpu_description: Option<String>,
    price_cents_per_hour: Option<i64>,
    specs: Specs,
}

#[derive(Debug, Deserialize)]
struct Specs {
    vcpus: Option<u32>,
    memory_gib: Option<u32>,
    storage_gib: Option<u32>,
    gpus: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Region {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_gives_the_name_and_the_memory_of_one_gpu() {
        assert_eq!(split_label("H100 (80 GB SXM5)"), ("H100", Some(81_920)));
        assert_eq!(split_label("RTX 6000 (24 GB)"), ("RTX 6000", Some(24_576)));
        assert_eq!(split_label("Mystery"), ("Mystery", None));
        assert_eq!(split_label("Odd (many GB)"), ("Odd", None));
    }

    #[test]
    fn the_count_comes_from_specs_and_only_then_from_the_name() {
        let count = |sku, gpus| {
            convert_count(sku, gpus)
                .map(|count| count.to_string())
                .map_err(|r| r.reason)
        };
        assert_eq!(count("gpu_8x_a100", Some(8)), Ok("8".into()));
        assert_eq!(count("gpu_8x_a100", None), Ok("8".into()));
        assert_eq!(count("cpu_4x_general", Some(0)), Err(SkipReason::NoGpu));
        assert_eq!(
            count("gpu_8x_a100", Some(-1)),
            Err(SkipReason::ImpossibleCount)
        );
        assert_eq!(count("special", None), Err(SkipReason::Unreadable));
    }
}
