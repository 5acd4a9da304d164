//! Vultr: virtual machines with GPUs or a slice of one, and bare metal, one node a lease.
//!
//! Virtual machines and bare metal are two lists of plans, whose records are read alike. A plan names only the
//! regions where it can be had now. So that a sold-out offer stays an offer, each plan is listed in every
//! region, with availability none where it does not name it. A plan is up to two offers in a region: on demand
//! and preemptible, as `deploy_ondemand` and `deploy_preemptible` allow.
//!
//! An order has no word for its terms: a plan that can only be had preemptible is had so, and any other on
//! demand. So a preemptible offer beside one on demand is only compared, as is a slice of a GPU.
//!
//! Facts and their sources: `fixtures/vultr/SOURCE.md`. The GPUs of a plan are in `plan`, orders and machines
//! in `lease`.

mod lease;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason};
use market::fabric::Internode;
use market::offer::{Particulars, Tenancy, Tenure, Terms};
use market::order::{LeaseOrder, LeaseRef, ProviderLease};
use market::place::{Country, Place};
use serde::Deserialize;
use serde_json::Value;

use self::plan::Plan;
use crate::adapter::{Adapter, Capability, MachineChoices, Profile, Release};
use crate::auth::Field;
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http, Next, Paging};
use crate::reading::{Made, OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "vultr",
    name: "Vultr",
    default_base_url: "https://api.vultr.com/v2",
    credential: &[Field {
        name: "api_key",
        variable: "VULTR_API_KEY",
    }],
    machines: MachineChoices {
        own_images: true,
        ..MachineChoices::NONE
    },
    unsupported: &[
        (
            Capability::Fabric,
            "clusters with a network for training are not sold in this interface",
        ),
        (
            Capability::FreeCount,
            "only the regions with capacity are named, never how much",
        ),
        (
            Capability::IdempotencyKey,
            "a launch takes no key; it is looked up by its label and tag",
        ),
    ],
    // 30 calls a second from one address.
    call_spacing: Duration::from_millis(250),
    ..Profile::REST
};

const REGIONS: Paging = paging("/regions");

/// A list whose records are at `records`.
const fn paging(records: &'static str) -> Paging {
    Paging {
        records,
        total: "/meta/total",
        size: ("per_page", 500),
        next: Next::Cursor {
            parameter: "cursor",
            at: "/meta/links/next",
        },
    }
}

/// More regions than this are no provider's: 32 were seen.
const MOST_REGIONS: usize = 200;

/// MB of a GiB, as the API counts them.
const MB_PER_GIB: u64 = 1_024;

/// Time is billed by the hour that has begun.
const TENURE: Tenure = Tenure {
    least_seconds: 3_600,
    increment_seconds: 3_600,
    prepaid: false,
    ends_itself: false,
};

/// The two kinds of machines, each with lists and paths of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Vm,
    Metal,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Vm, Self::Metal];

    const fn plans(self) -> (&'static str, Paging) {
        match self {
            Self::Vm => ("/plans?type=all", paging("/plans")),
            Self::Metal => ("/plans-metal", paging("/plans_metal")),
        }
    }

    const fn tenancy(self) -> Tenancy {
        match self {
            Self::Vm => Tenancy::Vm,
            Self::Metal => Tenancy::BareMetal,
        }
    }
}

/// The adapter for Vultr.
#[derive(Debug)]
pub struct Vultr;

#[async_trait]
impl Adapter for Vultr {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let mut reading = Reading::new(&PROFILE, now);
        let mut plans = Vec::new();
        for list in Kind::ALL {
            let (path, paging) = list.plans();
            let trouble = match http.pages(path, &paging, refusal_of).await {
                Ok(listing) => {
                    plans.extend(listing.records.iter().map(|record| {
                        let id = record["id"].as_str().map(str::to_owned);
                        (id, Plan::read(record, list))
                    }));
                    listing.trouble
                }
                Err(error) if list == Kind::Vm => return Err(error),
                Err(error) => Some(error),
            };
            if let Some(trouble) = trouble {
                reading.unread_part(&format!("the rest of {path}"), trouble);
            }
        }
        let mut regions = read_regions(http).await.unwrap_or_else(|error| {
            reading.unread_part("the list of regions", error);
            Regions::new()
        });
        let read = plans.iter().filter_map(|(_, plan)| plan.as_ref().ok());
        let with_gpu: Vec<&Plan> = read.filter(|plan| plan.has_gpu()).collect();
        if regions.is_empty() {
            let named = with_gpu.iter().flat_map(|plan| plan.named());
            let named = named.map(|region| (region.to_owned(), Region::default()));
            regions = named.collect();
            if regions.is_empty() && reading.is_whole() {
                reading.unread_part("the list of regions", "it is empty, and no plan names one");
            }
        }
        let pairs = with_gpu.len().saturating_mul(2 * regions.len());
        gate::count("offers", pairs, gate::MOST_OFFERS)
            .map_err(|why| why.of_listing("GET", "/plans"))?;
        for (id, plan) in plans {
            let offers = plan.and_then(|plan| convert_plan(&plan, &regions, now));
            reading.parts(&[id.as_deref()], offers);
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

/// Regions by id.
type Regions = BTreeMap<String, Region>;

#[derive(Debug, Default, Deserialize)]
struct Region {
    id: String,
    city: Option<String>,
    country: Option<String>,
}

/// The regions; none where the interface does not list them.
async fn read_regions(http: &Http) -> Result<Regions, AdapterError> {
    let listing = match http.pages("/regions", &REGIONS, refusal_of).await {
        Err(AdapterError::BadRecording(_) | AdapterError::Refused { status: 404, .. }) => {
            return Ok(Regions::new());
        }
        listing => listing?,
    };
    let regions = listing.whole()?;
    let convert = |record: &Value| -> Result<(String, Region), Rejection> {
        let region: Region = parse(record)?;
        gate::name("the name of a region", &region.id)?;
        gate::name(
            "the name of a city",
            region.city.as_deref().unwrap_or_default(),
        )?;
        Ok((region.id.clone(), region))
    };
    let counted = gate::count("regions", regions.len(), MOST_REGIONS);
    let regions = counted.and_then(|()| regions.iter().map(convert).collect());
    regions.map_err(|why| why.of_listing("GET", "/regions"))
}

/// The offers of a plan, and the reason for each of the terms that gave none.
fn convert_plan(plan: &Plan, regions: &Regions, now: DateTime<Utc>) -> Made {
    if !plan.has_gpu() {
        return Err(Rejection::new(SkipReason::NoGpu, "it has no GPU"));
    }
    let hardware = plan.hardware()?;
    let memory_gib = plan.memory_gib()?;
    let disk_gib = plan.disk_gib()?;
    let mut listed_in: BTreeSet<&str> = plan.named().collect();
    listed_in.extend(regions.keys().map(String::as_str));
    if listed_in.is_empty() {
        // The place is unknown.
        listed_in.insert("");
    }
    let offer = |terms, region: &str, node_price| {
        let draft = OfferDraft {
            profile: &PROFILE,
            sku: &plan.id,
            region,
            terms,
            tenancy: plan.list.tenancy(),
            internode: Internode::None,
            raw_gpu_name: &hardware.name,
            gpu: hardware.gpu.clone(),
            gpus: hardware.gpus,
            gpu_memory_mib: hardware.memory_mib,
            vcpus: plan.vcpus(),
            memory_gib,
            node_price,
            availability: plan.availability_in(region, terms),
            particulars: Particulars {
                disk_gib,
                tenure: TENURE,
                ..Particulars::default()
            },
        };
        let mut offer = draft.finish(now)?;
        offer.orderable &= terms == Terms::OnDemand || plan.deploy_ondemand == Some(false);
        if let Some(region) = regions.get(region) {
            locate(&mut offer.place, region);
        }
        Ok(offer)
    };
    let (mut offers, mut rejections) = (Vec::new(), Vec::new());
    for terms in [Terms::OnDemand, Terms::Spot] {
        let mut rejection = None;
        for region in &listed_in {
            let price = plan.price_in(region, terms);
            match price.and_then(|price| price.map(|it| offer(terms, region, it)).transpose()) {
                Ok(made) => offers.extend(made),
                // One reason stands for all regions.
                Err(why) => rejection = Some((plan.id.clone(), why)),
            }
        }
        rejections.extend(rejection);
    }
    Ok((offers, rejections))
}

/// Completes a place by what the provider says of its region.
fn locate(place: &mut Place, region: &Region) {
    let code = region.country.as_deref().unwrap_or_default();
    place.country = Country::parse(code).ok().or(place.country);
    let city = region.city.clone().filter(|city| !city.is_empty());
    place.metro = place.metro.take().or(city);
}

/// The meaning of a refusal: only its words give it. The words are those seen.
fn refusal_of(answer: &Answer) -> Refusal {
    answer.refusal_by_words(&[
        // A person must ask for some products first.
        ("support request", Refusal::Quota),
        ("limit", Refusal::Quota),
        ("maximum", Refusal::Quota),
        ("quota", Refusal::Quota),
        ("balance", Refusal::Credential),
        ("billing", Refusal::Credential),
        ("payment", Refusal::Credential),
        ("funds", Refusal::Credential),
        ("sold out", Refusal::Capacity),
        ("out of stock", Refusal::Capacity),
        ("not available", Refusal::Capacity),
        ("unavailable", Refusal::Capacity),
        ("capacity", Refusal::Capacity),
    ])
}
