//! The catalogue of Shadeform: machines by themselves, then clusters.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason, spot_above_on_demand};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::OfferId;
use market::offer::{
    Availability, MachineOperator, Offer, Particulars, Stock, Tenancy, Tenure, Terms,
};
use market::place::{Country, Place};
use serde::Deserialize;
use serde_json::Value;

use super::{List, PROFILE, Sku, dollars, refusal_of};
use crate::error::AdapterError;
use crate::gate::{self, Rejection};
use crate::http::Http;
use crate::reading::{OfferDraft, Reading, parse};

/// The clouds that go by another name as providers.
const OPERATORS: [(&str, &str); 2] = [("datacrunch", "verda"), ("lambdalabs", "lambda")];

/// A type in more regions than this is an error.
const MOST_REGIONS: usize = 500;

/// A cluster of more machines than this is an error. Units: nodes.
const MOST_NODES: u32 = 1_024;

/// The offers of one record, and the reasons for those that are missing.
type Made = (Vec<Offer>, Vec<(String, Rejection)>);

pub(super) async fn read(http: &Http, now: DateTime<Utc>) -> Result<CatalogReading, AdapterError> {
    let types: List<Value> = http.get("/instances/types").await?.read(refusal_of)?;
    let mut reading = Reading::new(&PROFILE, now);
    let clusters = http.get("/clusters/types").await;
    let clusters = clusters.and_then(|answer| answer.read(refusal_of));
    let clusters: List<Value> = clusters.unwrap_or_else(|error| {
        reading.unread_part("the list of clusters", error);
        List::default()
    });
    let mut seen = BTreeSet::new();
    for record in types.records {
        let sku = sku_in(&record, &record, None);
        let made = convert_type(&record, now).map(|made| once(&mut seen, made));
        reading.parts(&[sku.as_deref()], made);
    }
    for record in clusters.records {
        let size = record["num_instances"].as_u64();
        let size = size.and_then(|size| u32::try_from(size).ok());
        let sku = size.and_then(|_| sku_in(&record, &record["cluster_type"], size));
        let made = convert_cluster(&record, now);
        let made = made.map(|offer| once(&mut seen, (vec![offer], Vec::new())));
        reading.parts(&[sku.as_deref()], made);
    }
    reading.finish()
}

/// The SKU of a record, as far as one can be read.
fn sku_in(record: &Value, machine: &Value, cluster_of: Option<u32>) -> Option<String> {
    let (cloud, kind) = (&record["cloud"], &machine["shade_instance_type"]);
    Some(Sku::new(cloud.as_str()?, kind.as_str()?, cluster_of).write())
}

/// Takes out what another record offers already.
fn once(seen: &mut BTreeSet<OfferId>, (mut offers, mut rejections): Made) -> Made {
    for offer in offers.extract_if(.., |offer| !seen.insert(offer.offer_id)) {
        let region = offer.place.region.unwrap_or_default();
        let why = format!("it stands twice, {} in `{region}`", offer.terms);
        rejections.push((offer.sku, Rejection::new(SkipReason::ContradictsList, why)));
    }
    (offers, rejections)
}

/// One type: an offer for each region and way to rent.
fn convert_type(record: &Value, now: DateTime<Utc>) -> Result<Made, Rejection> {
    let listed: InstanceType = parse(record)?;
    let sku = Sku::new(&listed.cloud, &listed.shade_instance_type, None);
    let gpu = convert_gpu(sku, &listed.configuration)?;
    gate::count("regions", listed.availability.len(), MOST_REGIONS)?;
    if listed.availability.is_empty() {
        return Err(Rejection::new(SkipReason::NoPlace, "it names no region"));
    }
    let (mut offers, mut rejections) = (Vec::new(), Vec::new());
    for place in &listed.availability {
        match listed.offer(sku, &gpu, place, now) {
            Ok(offer) => offers.push(offer),
            Err(rejection) => rejections.push((sku.write(), rejection)),
        }
    }
    Ok((offers, rejections))
}

/// One cluster: an offer whose nodes are all of it.
fn convert_cluster(record: &Value, now: DateTime<Utc>) -> Result<Offer, Rejection> {
    let cluster: ClusterType = parse(record)?;
    let size = u32::try_from(cluster.num_instances).unwrap_or_default();
    if !(1..=MOST_NODES).contains(&size) {
        let why = format!("no cluster has {} nodes", cluster.num_instances);
        return Err(Rejection::new(SkipReason::ImpossibleCount, why));
    }
    let listed = &cluster.cluster_type;
    let sku = Sku::new(&cluster.cloud, &listed.shade_instance_type, Some(size));
    let gpu = convert_gpu(sku, &listed.configuration)?;
    listed.offer(sku, &gpu, &cluster.availability, now)
}

impl InstanceType {
    fn offer(
        &self,
        sku: Sku<'_>,
        gpu: &GpuIdentity,
        place: &Listed,
        now: DateTime<Utc>,
    ) -> Result<Offer, Rejection> {
        let has = &self.configuration;
        let gpus = gate::gpus(has.num_gpus)?;
        let (terms, on_demand) = (place.terms()?, dollars(&self.hourly_price, true));
        let node_price = match terms {
            Terms::Spot => dollars(&place.hourly_price, false)?,
            _ => on_demand.clone()?,
        };
        let is_nameless = [sku.cloud, sku.kind, &place.region].contains(&"");
        if is_nameless || Sku::read(&sku.write()) != sku {
            let why = "its cloud, its type or its region has no proper name";
            return Err(Rejection::new(SkipReason::Unreadable, why));
        }
        let tenancy = match self.deployment_type.as_str() {
            "vm" => Tenancy::Vm,
            "container" => Tenancy::Container,
            "baremetal" => Tenancy::BareMetal,
            other => return Err(unknown(other, "kind of machine")),
        };
        let draft = OfferDraft {
            profile: &PROFILE,
            sku: &sku.write(),
            region: &place.region,
            terms,
            tenancy,
            internode: sku
                .cluster_of
                .map_or(Internode::None, |_| Internode::Unknown),
            raw_gpu_name: &has.gpu_type,
            gpu: gpu.clone(),
            gpus,
            gpu_memory_mib: has.memory_mib(),
            vcpus: known(has.vcpus),
            memory_gib: known(has.memory_in_gb),
            node_price,
            availability: match (place.available, sku.cluster_of) {
                // A cluster is there as a whole or not at all.
                (Some(true), Some(size)) => Availability::exactly(size),
                (Some(true), None) => Availability::PRESENT,
                (Some(false), _) => Availability::NONE,
                (None, _) => Availability::UNKNOWN,
            },
            particulars: particulars(sku, has, &place.region),
        };
        let mut offer = draft.finish(now)?;
        // No offer can say yet that its nodes are sold only together, and a plan would take some of them.
        offer.orderable &= tenancy != Tenancy::Container && sku.cluster_of.is_none();
        locate(&mut offer.place, place.display_name.as_deref());
        let dearer = on_demand.ok().filter(|_| terms == Terms::Spot);
        let dearer = dearer.and_then(|price| gate::node_price(price, gpus).ok());
        match dearer.and_then(|price| spot_above_on_demand(offer.price_per_node_hour, price)) {
            Some(why) => Err(Rejection::new(SkipReason::SpotAboveOnDemand, why)),
            None => Ok(offer),
        }
    }
}

fn particulars(sku: Sku<'_>, has: &Configuration, region: &str) -> Particulars {
    let Sku { cloud, kind, .. } = sku;
    let alias = OPERATORS.iter().find(|(word, _)| *word == cloud);
    let operator = alias.map_or(cloud, |(_, provider)| provider);
    let images = has.os_options.join(" ");
    Particulars {
        operator: MachineOperator::cloud(operator),
        // On demand, as spot and in clusters the same machines are sold.
        stock: Some(Stock {
            id: format!("{cloud}/{kind}/{region}"),
            gpus: None,
        }),
        order_ref: Some(images).filter(|images| !images.is_empty()),
        disk_gib: known(has.storage_in_gb),
        tenure: Tenure {
            // A date can be given with the order of a machine, but not with that of a cluster.
            ends_itself: sku.cluster_of.is_none(),
            ..Tenure::default()
        },
        ..Particulars::default()
    }
}

fn unknown(word: &str, what: &str) -> Rejection {
    let why = format!("`{}` is no known {what}", gate::shown(word));
    Rejection::new(SkipReason::Unreadable, why)
}

/// Zero stands for nothing known.
fn known(count: Option<u32>) -> Option<u32> {
    count.filter(|count| *count > 0)
}

/// The GPU by cloud and type; the socket tells the forms of one model apart.
fn convert_gpu(sku: Sku<'_>, has: &Configuration) -> Result<GpuIdentity, Rejection> {
    gate::gpus(has.num_gpus)?;
    let (kind, gpu) = (
        sku.kind.to_ascii_lowercase(),
        has.gpu_type.to_ascii_lowercase(),
    );
    let socket = has.interconnect.as_deref().unwrap_or_default();
    let (model, _) = gpu.split_once('_').unwrap_or((&gpu, ""));
    if !kind.starts_with(model) || (kind.contains("sxm") && socket == "pcie") {
        let why = format!("its type is no {} in the socket `{socket}`", has.gpu_type);
        return Err(Rejection::new(
            SkipReason::ContradictsList,
            gate::shown(&why),
        ));
    }
    // As price lists write it: `crusoe_A100-80Gx8`.
    let listed = format!("{}_{}", sku.cloud, sku.kind.replace('_', "-"));
    let by_name = |name: &str| {
        let found = gate::hardware(PROFILE.id, &listed, Some(name), has.memory_mib());
        found.map(|(gpu, _)| gpu)
    };
    by_name(&format!("{} {socket}", has.gpu_type)).or_else(|_| by_name(&has.gpu_type))
}

/// Adds the country and the city of a name such as `US, Houston, TX` to a place of which none is known.
fn locate(place: &mut Place, display_name: Option<&str>) {
    let mut words = display_name.unwrap_or_default().split(',').map(str::trim);
    let is_code = |word: &&str| word.bytes().all(|letter| letter.is_ascii_uppercase());
    let code = words.next().filter(is_code);
    let country = code.and_then(|code| Country::parse(code).ok());
    if place.country.is_none() && country.is_some() {
        place.country = country;
        let metro = words
            .next()
            .filter(|metro| gate::name("a city", metro).is_ok());
        place.metro = metro.map(str::to_owned);
    }
}

#[derive(Debug, Deserialize)]
struct InstanceType {
    /// That of a cluster stands beside its type, too.
    #[serde(default)]
    cloud: String,
    shade_instance_type: String,
    configuration: Configuration,
    #[serde(default)]
    hourly_price: Value,
    deployment_type: String,
    #[serde(default)]
    availability: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct ClusterType {
    cloud: String,
    num_instances: i64,
    availability: Listed,
    cluster_type: InstanceType,
}

#[derive(Debug, Deserialize)]
struct Configuration {
    memory_in_gb: Option<u32>,
    storage_in_gb: Option<u32>,
    vcpus: Option<u32>,
    num_gpus: i64,
    gpu_type: String,
    /// The socket: `pcie`, `sxm4`, `sxm5`, `sxm6`.
    interconnect: Option<String>,
    /// The nominal size of the card, which is in GiB.
    vram_per_gpu_in_gb: Option<u32>,
    #[serde(default)]
    os_options: Vec<String>,
}

impl Configuration {
    /// The memory of one GPU. Units: MiB.
    fn memory_mib(&self) -> Option<u64> {
        known(self.vram_per_gpu_in_gb).map(|gib| u64::from(gib) * 1_024)
    }
}

/// A region, for one way to rent.
#[derive(Debug, Deserialize)]
struct Listed {
    region: String,
    available: Option<bool>,
    display_name: Option<String>,
    rental_type: Option<String>,
    /// Of spot alone.
    #[serde(default)]
    hourly_price: Value,
}

impl Listed {
    fn terms(&self) -> Result<Terms, Rejection> {
        match self.rental_type.as_deref() {
            // Before there was spot, no entry said how.
            None | Some("on_demand") => Ok(Terms::OnDemand),
            Some("spot") => Ok(Terms::Spot),
            Some(other) => Err(unknown(other, "way to rent")),
        }
    }
}
