//! DigitalOcean: GPU Droplets, which are virtual machines with one or several GPUs, one node a lease.
//!
//! A size names only the regions where it can be had now, and most GPU sizes name none most of the time. So
//! that a sold-out offer stays an offer, each size is listed in every region of the account, with availability
//! none where it does not name it. A pair then has the same id whether it is available or not. Where the list
//! of regions is not to be had, only the regions that sizes name are used.
//!
//! The terms are in the slug of a size alone: `-spot` may be taken back, `-contracted` is sold under a contract
//! and skipped. Sizes with `-fabric` are the only ones whose machines share a network for training, and are
//! all under contract.
//!
//! Facts and their sources: `fixtures/digitalocean/SOURCE.md`. Orders and machines are in `lease`.

mod lease;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::money::Money;
use market::offer::{Availability, Extra, ExtraBasis, Offer, Particulars, Tenancy, Tenure, Terms};
use market::order::{Attachment, LeaseOrder, LeaseRef, ProviderLease};
use market::quantity::GpuCount;
use serde::Deserialize;
use serde_json::Value;

use crate::adapter::{Adapter, Capability, MachineChoices, Profile, Release};
use crate::auth::Field;
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http, Next, Paging};
use crate::reading::{OfferDraft, Reading, parse};

const PROFILE: Profile = Profile {
    id: "digitalocean",
    name: "DigitalOcean",
    default_base_url: "https://api.digitalocean.com/v2",
    credential: &[Field {
        name: "token",
        variable: "DIGITALOCEAN_ACCESS_TOKEN",
    }],
    machines: MachineChoices {
        own_images: true,
        ..MachineChoices::NONE
    },
    unsupported: &[
        (
            Capability::Fabric,
            "only machines under contract are joined by a network for training",
        ),
        (
            Capability::FreeCount,
            "only the regions with capacity are named, never how much",
        ),
        (
            Capability::IdempotencyKey,
            "a launch takes no key; it is looked up by its tag and name",
        ),
    ],
    // 5,000 calls an hour.
    call_spacing: Duration::from_millis(750),
    ..Profile::REST
};

const SIZES: Paging = paging("/sizes");
const REGIONS: Paging = paging("/regions");

/// A list whose records are at `records`.
const fn paging(records: &'static str) -> Paging {
    Paging {
        records,
        total: "/meta/total",
        size: ("per_page", 200),
        next: Next::Number("page"),
    }
}

/// More regions than this are no account's: some sixteen were seen.
const MOST_REGIONS: usize = 200;

/// MiB of a GiB: the API writes MB for the former.
const MIB_PER_GIB: u64 = 1_024;

/// Traffic beyond what is included: 0.01 USD a GiB. Units: USD 1e-8 a GB.
const TRAFFIC_UNITS_PER_GB: i64 = 931_323;

/// Time is billed by the second, a minute at least.
const TENURE: Tenure = Tenure {
    least_seconds: 60,
    increment_seconds: 1,
    prepaid: false,
    ends_itself: false,
};

/// The adapter for DigitalOcean.
#[derive(Debug)]
pub struct DigitalOcean;

#[async_trait]
impl Adapter for DigitalOcean {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let listing = http.pages("/sizes", &SIZES, refusal_of).await?;
        let mut reading = Reading::new(&PROFILE, now);
        if let Some(trouble) = listing.trouble {
            reading.unread_part("the rest of the sizes", trouble);
        }
        let mut regions = read_regions(http).await.unwrap_or_else(|error| {
            reading.unread_part("the list of regions", error);
            Regions::new()
        });
        let sizes: Vec<_> = listing.records.iter().map(parse::<Size>).collect();
        let with_gpu = || {
            sizes
                .iter()
                .flatten()
                .filter(|size| size.gpu_info.is_some())
        };
        if regions.is_empty() {
            let named = with_gpu().flat_map(|size| size.regions.iter().flatten());
            regions = named.map(|region| (region.clone(), None)).collect();
            if regions.is_empty() && reading.is_whole() {
                reading.unread_part("the list of regions", "it is empty, and no size names one");
            }
        }
        let pairs = with_gpu().count().saturating_mul(regions.len());
        gate::count("offers", pairs, gate::MOST_OFFERS)
            .map_err(|why| why.of_listing("GET", "/sizes"))?;
        let mut slugs = BTreeSet::new();
        for (record, size) in listing.records.iter().zip(sizes) {
            let slug = record["slug"].as_str();
            if slug.is_some_and(|slug| !slugs.insert(slug)) {
                reading.unread_part("the rest of the sizes", "a size stands among them twice");
                continue;
            }
            let offers = size.and_then(|size| convert_size(&size, &regions, now));
            reading.record(slug, offers);
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
        lease::list_tags(http).await
    }

    async fn remove_attachment(
        &self,
        http: &Http,
        attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        lease::remove_tag(http, attachment).await
    }
}

/// Regions by slug, each with whether anything new can be made in it, where the API states that.
type Regions = BTreeMap<String, Option<bool>>;

/// The regions of the account; none where the interface does not list them.
async fn read_regions(http: &Http) -> Result<Regions, AdapterError> {
    let listing = match http.pages("/regions", &REGIONS, refusal_of).await {
        Err(AdapterError::BadRecording(_) | AdapterError::Refused { status: 404, .. }) => {
            return Ok(Regions::new());
        }
        listing => listing?,
    };
    let regions = listing.whole()?;
    let convert = |record: &Value| -> Result<(String, Option<bool>), Rejection> {
        let region: Region = parse(record)?;
        gate::name("the name of a region", &region.slug)?;
        Ok((region.slug, region.available))
    };
    let counted = gate::count("regions", regions.len(), MOST_REGIONS);
    let regions = counted.and_then(|()| regions.iter().map(convert).collect());
    regions.map_err(|why| why.of_listing("GET", "/regions"))
}

/// One size in every region.
fn convert_size(
    size: &Size,
    regions: &Regions,
    now: DateTime<Utc>,
) -> Result<Vec<Offer>, Rejection> {
    let info = size.gpu_info.as_ref();
    let info = info.ok_or_else(|| without_gpu(&size.slug))?;
    let terms = convert_terms(&size.slug)?;
    let gpus = convert_count(&size.slug, info.count)?;
    let (gpu, gpu_memory_mib) = convert_gpu(&size.slug, info, gpus)?;
    let node_price = gate::needed_price(&size.price_hourly, "price_hourly")?;
    let memory_gib = gate::size_gib("memory", &size.memory, MIB_PER_GIB)?;
    let disk_gib = gate::size_gib("a disk", &size.disk, 1)?;
    let named = size.regions.iter().flatten();
    let mut listed_in: BTreeSet<&str> = named.chain(regions.keys()).map(String::as_str).collect();
    if listed_in.is_empty() {
        // The place is unknown.
        listed_in.insert("");
    }
    let offer = |region| {
        let draft = OfferDraft {
            profile: &PROFILE,
            sku: &size.slug,
            region,
            terms,
            tenancy: Tenancy::Vm,
            internode: Internode::None,
            raw_gpu_name: &info.model,
            gpu: gpu.clone(),
            gpus,
            gpu_memory_mib,
            vcpus: size.vcpus.filter(|count| *count > 0),
            memory_gib,
            node_price,
            availability: size.availability_in(region, regions),
            particulars: Particulars {
                disk_gib,
                extras: vec![Extra {
                    per: ExtraBasis::GbOut,
                    price_usd: Money::usd_units(TRAFFIC_UNITS_PER_GB),
                }],
                tenure: TENURE,
                ..Particulars::default()
            },
        };
        draft.finish(now)
    };
    listed_in.into_iter().map(offer).collect()
}

/// A size without a word on its GPUs: one with none, except where its slug says that it has some.
fn without_gpu(slug: &str) -> Rejection {
    match slug.starts_with("gpu-") {
        true => Rejection::new(SkipReason::Unreadable, "gpu_info is absent or null"),
        false => Rejection::new(SkipReason::NoGpu, "it has no GPU"),
    }
}

/// The terms, by the words of the slug.
fn convert_terms(slug: &str) -> Result<Terms, Rejection> {
    let says = |word: &str| slug.split('-').any(|part| part == word);
    if says("contracted") {
        let why = "it is sold under a contract alone, and has no price on demand";
        return Err(Rejection::new(SkipReason::NoPrice, why));
    }
    Ok(if says("spot") {
        Terms::Spot
    } else {
        Terms::OnDemand
    })
}

/// The count of GPUs, which the slug repeats: `gpu-h100x8-640gb`.
fn convert_count(slug: &str, count: i64) -> Result<GpuCount, Rejection> {
    let model = slug.split('-').nth(1).unwrap_or_default();
    let in_slug = model
        .rsplit_once('x')
        .and_then(|(_, count)| count.parse::<i64>().ok());
    if in_slug.is_some_and(|in_slug| in_slug != count) {
        let why = format!("{count} GPUs contradict its slug");
        return Err(Rejection::new(SkipReason::ContradictsList, why));
    }
    gate::gpus(count)
}

/// The GPU, and the memory of one. Units: MiB.
///
/// The documentation can be read as the memory of one GPU, and the answers seen hold that of all. So both are
/// tried, and the reading that fits the card is kept. Where both fit it says nothing.
fn convert_gpu(
    slug: &str,
    info: &GpuInfo,
    gpus: GpuCount,
) -> Result<(GpuIdentity, Option<u64>), Rejection> {
    let with = |memory_mib| gate::hardware(PROFILE.id, slug, Some(&info.model), memory_mib);
    let contradicts = |what: String| {
        let why = format!("{what} contradicts `{}`", gate::shown(&info.model));
        Err(Rejection::new(SkipReason::ContradictsList, why))
    };
    let by_slug = with(None).map(|(gpu, _)| gpu.family());
    let by_model = gate::hardware(PROFILE.id, "", Some(&info.model), None);
    if by_model.is_ok_and(|(gpu, _)| by_slug.is_ok_and(|family| family != gpu.family())) {
        return contradicts("its slug".to_owned());
    }
    let Some(amount_mib) = info.vram.as_ref().and_then(Vram::mib) else {
        return with(None).map(|(gpu, _)| (gpu, None));
    };
    let count = u64::from(gpus.as_whole().unwrap_or(1));
    let readings = BTreeSet::from([amount_mib, amount_mib / count]);
    let fits = |mib: &u64| {
        let (gpu, _) = with(Some(*mib)).ok()?;
        gpu.may_have_memory(*mib).then_some((gpu, Some(*mib)))
    };
    let fitting: Vec<_> = readings.iter().filter_map(fits).collect();
    match fitting.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            with(None)?;
            contradicts(format!("{amount_mib} MiB on {gpus} GPUs"))
        }
        _ => with(None).map(|(gpu, _)| (gpu, None)),
    }
}

/// The meaning of a refusal. The codes are those of HTTP, so that only the words of 422 tell more.
fn refusal_of(answer: &Answer) -> Refusal {
    answer.refusal_by_words(&[
        ("limit", Refusal::Quota),
        ("quota", Refusal::Quota),
        ("payment", Refusal::Credential),
        ("billing", Refusal::Credential),
        ("balance", Refusal::Credential),
        ("locked", Refusal::Credential),
        ("image", Refusal::Request),
        ("not available", Refusal::Capacity),
        ("unavailable", Refusal::Capacity),
        ("capacity", Refusal::Capacity),
        ("sold out", Refusal::Capacity),
    ])
}

#[derive(Debug, Deserialize)]
struct Size {
    slug: String,
    #[serde(default)]
    memory: Value,
    vcpus: Option<u32>,
    #[serde(default)]
    disk: Value,
    #[serde(default)]
    price_hourly: Value,
    regions: Option<Vec<String>>,
    available: Option<bool>,
    gpu_info: Option<GpuInfo>,
}

impl Size {
    fn availability_in(&self, region: &str, regions: &Regions) -> Availability {
        let is_closed = regions.get(region) == Some(&Some(false));
        let Some(named) = &self.regions else {
            return Availability::UNKNOWN;
        };
        match self.available {
            _ if is_closed || !named.iter().any(|one| one == region) => Availability::NONE,
            Some(true) => Availability::PRESENT,
            Some(false) => Availability::NONE,
            None => Availability::UNKNOWN,
        }
    }
}

#[derive(Debug, Deserialize)]
struct GpuInfo {
    count: i64,
    model: String,
    vram: Option<Vram>,
}

#[derive(Debug, Deserialize)]
struct Vram {
    amount: Option<u64>,
    unit: Option<String>,
}

impl Vram {
    /// The amount; `None` where it is absent, zero, or in a unit that is not known. Units: MiB.
    fn mib(&self) -> Option<u64> {
        let amount = self.amount.filter(|amount| *amount > 0)?;
        match self.unit.as_deref() {
            // What is called GiB are the nominal GB of the card, which are GiB.
            Some("gib" | "gb") | None => Some(amount.saturating_mul(MIB_PER_GIB)),
            Some("mib" | "mb") => Some(amount),
            Some(_) => None,
        }
    }
}

#[derive(Debug, Deserialize)]
struct Region {
    slug: String,
    available: Option<bool>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_words_of_the_slug_are_the_terms() {
        let terms = |slug| convert_terms(slug).map_err(|it| it.reason);
        let under_contract = Err(SkipReason::NoPrice);
        assert_eq!(terms("gpu-h100x8-640gb"), Ok(Terms::OnDemand));
        assert_eq!(terms("gpu-mi300x1-192gb-devcloud"), Ok(Terms::OnDemand));
        assert_eq!(terms("gpu-b300x8-2304gb-lc-spot"), Ok(Terms::Spot));
        assert_eq!(terms("gpu-h200x8-1128gb-contracted"), under_contract);
        assert_eq!(
            terms("gpu-b300x8-2304gb-lc-fabric-contracted"),
            under_contract
        );
    }

    #[test]
    fn the_memory_of_one_gpu_is_the_reading_that_fits_its_card() {
        let read = |model: &str, count: u32, amount: Value, unit: &str| {
            let info =
                json!({"count": count, "model": model, "vram": {"amount": amount, "unit": unit}});
            let info: GpuInfo = serde_json::from_value(info).expect("an answer");
            let gpus = GpuCount::whole(count).expect("a count");
            let read = convert_gpu("gpu-test", &info, gpus).map_err(|it| it.reason)?;
            Ok((read.0.to_string(), read.1.map(|mib| mib / 1_024)))
        };
        let h200 = |amount: Value, unit: &str| read("nvidia_h200", 8, amount, unit);
        let card = |name: &str, gib| Ok((name.to_owned(), gib));
        assert_eq!(h200(json!(1_128), "gib"), card("H200-SXM", Some(141)));
        assert_eq!(h200(json!(141), "gib"), card("H200-SXM", Some(141)));
        assert_eq!(h200(json!(1_155_072), "mib"), card("H200-SXM", Some(141)));
        for (amount, unit) in [
            (json!(null), "gib"),
            (json!(0), "gib"),
            (json!(5), "furlongs"),
        ] {
            assert_eq!(h200(amount, unit), card("H200-SXM", None));
        }
        for odd in [json!(640), json!(80), json!(u64::MAX)] {
            assert_eq!(h200(odd, "gib"), Err(SkipReason::ContradictsList));
        }
        // Two cards of 40 GB, or two of 80: the sum and the one are both known.
        let open = read("nvidia_a100", 2, json!(80), "gib");
        assert_eq!(open, card("A100", None));
        let unknown = read("nvidia_x900", 1, json!(80), "gib");
        assert_eq!(unknown, Err(SkipReason::UnknownGpu));
    }

    #[test]
    fn a_count_is_that_of_the_slug() {
        let count = |slug, count| {
            let read = convert_count(slug, count);
            read.map(|count| count.to_string()).map_err(|it| it.reason)
        };
        assert_eq!(count("gpu-4000adax1-20gb", 1), Ok("1".into()));
        assert_eq!(count("gpu-mi300x8-1536gb", 8), Ok("8".into()));
        assert_eq!(count("gpu-special", 4), Ok("4".into()));
        let contradicts = Err(SkipReason::ContradictsList);
        assert_eq!(count("gpu-h100x8-640gb", 4), contradicts);
        assert_eq!(count("gpu-special", 0), Err(SkipReason::NoGpu));
        assert_eq!(count("gpu-special", -1), Err(SkipReason::ImpossibleCount));
    }
}
