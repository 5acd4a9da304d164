//! RunPod: containers ("pods") on hosts of its own data centres and of other people, over REST v2.
//!
//! A record, a type of GPU, becomes an offer for each size and region. The sizes are 1, 2, 4 and 8 GPUs, as far
//! as a type goes, and stand in the SKU: `8x NVIDIA H100 80GB HBM3`. The regions are the data centres of the
//! secure cloud that list the type, and `community`, in no known country, for the hosts of other people.
//!
//! Stock differs by cloud and size, and each pair is an answer of its own. A data centre that such an answer
//! leaves out has none of that size. Which data centres have a type at all is one more list, so that a type
//! that is sold out stays an offer.
//!
//! Facts and their sources: `fixtures/runpod/SOURCE.md`. Orders and pods are in `lease`.

mod lease;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::machine::MOST_DISK_GIB;
use market::money::Money;
use market::offer::{
    Availability, AvailabilityLevel, Extra, ExtraBasis, MachineOperator, Offer, Particulars, Stock,
    Tenancy, Tenure, Terms,
};
use market::order::{LeaseOrder, LeaseRef, ProviderLease};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::{Adapter, Capability, Delivery, MachineChoices, Ports, Profile, Release};
use crate::auth::Field;
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http};
use crate::reading::{OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "runpod",
    name: "RunPod",
    default_base_url: "https://api.runpod.io",
    credential: &[Field {
        name: "api_key",
        variable: "RUNPOD_API_KEY",
    }],
    delivery: Delivery::StartCommand,
    machines: MachineChoices {
        own_images: false,
        containers: true,
        // No limit is published: a host without so much disk is one without capacity.
        most_disk_gib: Some(MOST_DISK_GIB),
        ports: Ports::AtLaunch,
    },
    unsupported: &[
        (
            Capability::Spot,
            "REST v2 has no spot pods, and GraphQL, which has them, ends early in 2027",
        ),
        (
            Capability::Fabric,
            "a pod is a container of its own, and pods share no fabric",
        ),
        (
            Capability::FreeCount,
            "stock is reported in words (HIGH, MEDIUM, LOW), never counted",
        ),
        (
            Capability::IdempotencyKey,
            "a pod takes no key; it is looked up by its name",
        ),
    ],
    // The published example of a limit is 60 calls a minute.
    call_spacing: Duration::from_secs(1),
    order_spacing: Duration::from_secs(1),
    ..Profile::REST
};

/// The sizes of a pod that are offered.
const COUNTS: [u32; 4] = [1, 2, 4, 8];

/// The region of everything on the community cloud.
const COMMUNITY: &str = "community";

/// Prices per GPU-hour that stand for none, except where the cloud has the type and some of it in stock.
const PLACEHOLDERS: [Decimal; 2] = [Decimal::from_parts(5, 0, 0, false, 1), Decimal::ONE];

/// More data centres than this are not one provider's.
const MOST_CENTRES: usize = 500;

const TYPES: &str = "/v2/catalog/gpus?include=AVAILABILITY&product=POD";
const CENTRES: &str = "/v2/catalog/datacenters?include=GPU_AVAILABILITY";

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
        let mut reading = Reading::new(&PROFILE, now);
        let mut answers = Vec::new();
        let sizes = Cloud::ALL.map(|cloud| COUNTS.map(|count| (cloud, count)));
        for (cloud, count) in sizes.into_iter().flatten() {
            let path = format!("{TYPES}&count={count}&cloud={}", cloud.word());
            match read_list(http, &path, "gpus").await {
                Ok(records) => answers.push(((cloud, count), by_id(records, &mut reading))),
                // There is no price without the first answer.
                Err(error) if answers.is_empty() => return Err(error),
                // A recording may hold the first answer alone.
                Err(AdapterError::BadRecording(_)) => {}
                Err(error) => reading.unread_part(&path, error),
            }
        }
        let mut centres = read_centres(http).await.unwrap_or_else(|error| {
            if !matches!(error, AdapterError::BadRecording(_)) {
                reading.unread_part("the list of data centres", error);
            }
            Centres::new()
        });
        // Each type as the first answer has it.
        let types: BTreeMap<_, _> = answers.iter().rev().flat_map(|(_, types)| types).collect();
        for (id, first) in types {
            let (mut offers, mut rejections) = (Vec::new(), Vec::new());
            for (size, records) in &answers {
                match convert_type(records.get(id).ok_or(first), *size, &mut centres, now) {
                    Ok(made) => offers.extend(made),
                    // The same flaw of every size is reported once.
                    Err(why) if rejections.contains(&why) => {}
                    Err(why) => rejections.push(why),
                }
            }
            let skus = COUNTS.map(|count| sku(count, id));
            let named = skus.each_ref().map(|sku| Some(sku.as_str()));
            reading.parts(&named, Ok((offers, rejections)));
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

    /// The word of queries, orders and pods.
    const fn word(self) -> &'static str {
        match self {
            Self::Secure => "SECURE",
            Self::Community => "COMMUNITY",
        }
    }

    /// The cloud that an offer in this region is on.
    fn of_region(region: &str) -> Self {
        match region {
            COMMUNITY => Self::Community,
            _ => Self::Secure,
        }
    }
}

/// Our SKU for a pod with this many GPUs of a type.
fn sku(gpus: u32, type_id: &str) -> String {
    format!("{gpus}x {type_id}")
}

async fn read_list(http: &Http, path: &str, name: &str) -> Result<Vec<Value>, AdapterError> {
    let answer = http.get(path).await?;
    let mut body: Value = answer.read(refusal_of)?;
    if body.pointer("/data/gpuTypes").is_some() {
        let what = "it is an answer of RunPod's GraphQL interface, and REST v2 is read now";
        return Err(answer.unreadable(what.to_owned()));
    }
    match body.get_mut(name).map(Value::take) {
        Some(Value::Array(records)) => Ok(records),
        _ => Err(answer.unreadable(format!("it has no list `{name}`"))),
    }
}

fn refusal_of(answer: &Answer) -> Refusal {
    Refusal::from_status(answer.status())
}

/// The types of an answer by their ids.
fn by_id(records: Vec<Value>, reading: &mut Reading) -> BTreeMap<String, Value> {
    let mut types = BTreeMap::new();
    for record in records {
        if let Some(id) = record["id"].as_str().map(str::to_owned) {
            types.entry(id).or_insert(record);
        } else {
            let why = Rejection::new(SkipReason::Unreadable, "the record has no id");
            reading.record(None, Err(why));
        }
    }
    types
}

/// The data centres that list each type, by its id.
type Centres = BTreeMap<String, BTreeSet<String>>;

async fn read_centres(http: &Http) -> Result<Centres, AdapterError> {
    let odd = |why: Rejection| why.of_listing("GET", CENTRES);
    let records = read_list(http, CENTRES, "dataCenters").await?;
    if records.is_empty() {
        return Err(odd(Rejection::new(SkipReason::Unreadable, "it is empty")));
    }
    let mut centres = Centres::new();
    for record in &records {
        let centre: Centre = parse(record).map_err(odd)?;
        for offered in centre.gpu_availability.into_iter().flatten() {
            let listed = centres.entry(offered.id).or_default();
            listed.insert(centre.id.clone());
        }
    }
    Ok(centres)
}

/// The offers of one type in one size, or the reason for none, with a name for the reader. `record` is an error
/// where the answer for this size lacks the type that others have.
fn convert_type(
    record: Result<&Value, &Value>,
    (cloud, count): (Cloud, u32),
    centres: &mut Centres,
    now: DateTime<Utc>,
) -> Result<Vec<Offer>, (String, Rejection)> {
    let (Ok(known) | Err(known)) = record;
    let id = known["id"].as_str().unwrap_or_default();
    let of_type = |why| (id.to_owned(), why);
    let of_cloud = |why| (format!("{id} ({})", cloud.word().to_lowercase()), why);
    let sold: GpuType = parse(known).map_err(of_type)?;
    let memory_mib = sold.memory_mib();
    let gpu = gate::hardware(PROFILE.id, id, Some(id), memory_mib).map_err(of_type)?;
    let (gpu, None) = gpu else {
        let why = "a slice of a GPU is sold, which is neither offered nor ordered here";
        return Err(of_type(Rejection::new(SkipReason::ImpossibleCount, why)));
    };
    if !Cloud::ALL.into_iter().any(|cloud| sold.may_be_on(cloud)) {
        let why = Rejection::new(SkipReason::NoPrice, "no cloud rents it");
        return Err(of_type(why));
    }
    if !sold.may_be_on(cloud) || count > sold.max_count.of(cloud).unwrap_or(1) {
        return Ok(Vec::new());
    }
    if record.is_err() {
        let why = "it is missing from some of the answers";
        return Err(of_cloud(Rejection::new(SkipReason::Unreadable, why)));
    }
    let regions = match cloud {
        Cloud::Secure => sold.centres(centres),
        Cloud::Community => BTreeSet::from([COMMUNITY.to_owned()]),
    };
    if regions.is_empty() {
        let why = "no data centre lists it, so nothing says where it could be ordered";
        return Err(of_cloud(Rejection::new(SkipReason::NoPlace, why)));
    }
    gate::count("data centres", regions.len(), MOST_CENTRES).map_err(of_cloud)?;
    let price = sold.node_price(cloud, count).map_err(of_cloud)?;
    let offers = regions.iter();
    let offers = offers.map(|region| sold.offer(&gpu, count, region, price, now));
    offers.collect::<Result<_, _>>().map_err(of_cloud)
}

/// The availability for a stock word of the provider. A missing or new word means unknown.
fn convert_level(word: Option<&str>) -> Availability {
    let level = match word.unwrap_or_default() {
        "HIGH" => AvailabilityLevel::High,
        "MEDIUM" => AvailabilityLevel::Medium,
        "LOW" => AvailabilityLevel::Low,
        "NONE" => return Availability::NONE,
        _ => return Availability::UNKNOWN,
    };
    Availability {
        level,
        ..Availability::UNKNOWN
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Centre {
    id: String,
    gpu_availability: Option<Vec<Level>>,
}

#[derive(Debug, Deserialize)]
struct Level {
    id: String,
    availability: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GpuType {
    id: String,
    /// Of one GPU. Units: GB as sold.
    memory: Option<u64>,
    /// Whether a cloud has it.
    #[serde(flatten)]
    flags: ByCloud<Option<bool>>,
    /// Of one GPU for an hour. Units: US dollars.
    #[serde(default)]
    price: ByCloud<Value>,
    /// The most GPUs of one pod.
    #[serde(default)]
    max_count: ByCloud<Option<u32>>,
    /// The stock of the size and cloud that the answer is for.
    availability: Option<String>,
    data_centers: Option<Vec<Level>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ByCloud<T> {
    secure: T,
    community: T,
}

impl<T> ByCloud<T> {
    const fn of(&self, cloud: Cloud) -> &T {
        match cloud {
            Cloud::Secure => &self.secure,
            Cloud::Community => &self.community,
        }
    }
}

impl GpuType {
    fn memory_mib(&self) -> Option<u64> {
        self.memory.filter(|memory| *memory > 0)?.checked_mul(1_024)
    }

    /// Whether a cloud may have it: where the record says so, or where it has only a price.
    fn may_be_on(&self, cloud: Cloud) -> bool {
        let flag = *self.flags.of(cloud);
        flag.unwrap_or_else(|| !self.price.of(cloud).is_null())
    }

    /// The data centres that list it, those of this answer among them.
    fn centres(&self, centres: &mut Centres) -> BTreeSet<String> {
        let listed = centres.entry(self.id.clone()).or_default();
        let named = self.data_centers.iter().flatten();
        listed.extend(named.map(|centre| centre.id.clone()));
        listed.remove(COMMUNITY);
        listed.clone()
    }

    fn availability(&self, region: &str) -> Availability {
        let overall = self.availability.as_deref();
        let mut centres = self.data_centers.iter().flatten();
        convert_level(match centres.find(|centre| centre.id == region) {
            Some(centre) => centre.availability.as_deref(),
            None if region == COMMUNITY => overall,
            // An answer with stock names every data centre that has some.
            None => overall.map(|_| "NONE"),
        })
    }

    /// The price of a pod for an hour.
    fn node_price(&self, cloud: Cloud, count: u32) -> Result<Decimal, Rejection> {
        let price = gate::needed_price(self.price.of(cloud), "the price")?;
        let stock = convert_level(self.availability.as_deref());
        let is_stocked = stock != Availability::UNKNOWN && !stock.is_sold_out();
        if PLACEHOLDERS.contains(&price) && !(is_stocked && *self.flags.of(cloud) == Some(true)) {
            let why = format!("a price of {price} is a placeholder here");
            return Err(Rejection::new(SkipReason::NoPrice, why));
        }
        let beyond = || Rejection::new(SkipReason::ImplausiblePrice, "the price is beyond any");
        price.checked_mul(Decimal::from(count)).ok_or_else(beyond)
    }

    fn offer(
        &self,
        gpu: &GpuIdentity,
        count: u32,
        region: &str,
        node_price: Decimal,
        now: DateTime<Utc>,
    ) -> Result<Offer, Rejection> {
        let draft = OfferDraft {
            profile: &PROFILE,
            sku: &sku(count, &self.id),
            region,
            terms: Terms::OnDemand,
            tenancy: Tenancy::Container,
            internode: Internode::None,
            raw_gpu_name: &self.id,
            gpu: gpu.clone(),
            gpus: gate::gpus(i64::from(count))?,
            gpu_memory_mib: self.memory_mib(),
            // Processors and memory of a pod differ by host and are not promised.
            vcpus: None,
            memory_gib: None,
            node_price,
            availability: self.availability(region),
            particulars: Particulars {
                operator: match Cloud::of_region(region) {
                    Cloud::Secure => MachineOperator::Seller,
                    Cloud::Community => MachineOperator::Peer(None),
                },
                // The sizes of a type are cut from the same machines.
                stock: Some(Stock {
                    id: format!("{region}/{}", self.id),
                    gpus: None,
                }),
                // The price is that of the GPUs alone.
                disk_gib: Some(0),
                extras: extras(),
                tenure: Tenure {
                    increment_seconds: 1,
                    ..Tenure::default()
                },
                ..Particulars::default()
            },
        };
        draft.finish(now)
    }
}

/// Ten cents for a GB and month of disk, nothing for traffic.
fn extras() -> Vec<Extra> {
    let extra = |(per, units)| Extra {
        per,
        price_usd: Money::usd_units(units),
    };
    let prices = [
        (ExtraBasis::DiskGbMonth, 10_000_000),
        (ExtraBasis::GbOut, 0),
    ];
    prices.map(extra).to_vec()
}
