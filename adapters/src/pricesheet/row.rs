//! Reads one row of a price list.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use csv::ByteRecord;
use market::catalog::SkipReason;
use market::gpu::GpuIdentity;
use market::ids::{OfferId, ProviderId};
use market::money::Money;
use market::offer::{Availability, Offer, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::facts;
use crate::gate::{self, Rejection, shown};

/// The columns of a price list, in the order of the fields below.
const NAMES: [&str; 11] = [
    "provider",
    "instance_type",
    "gpu_name",
    "gpu_count",
    "vcpus",
    "memory_gib",
    "gpu_memory_mib",
    "price_usd_hour",
    "spot_usd_hour",
    "region",
    "zone",
];

const SKU: usize = 1;

/// Where in a record each column of [`NAMES`] stands.
#[derive(Debug)]
pub(super) struct Columns {
    at: [usize; NAMES.len()],
}

impl Columns {
    /// Recognises a header by its set of columns, in any order.
    ///
    /// Errors: what is missing and what is too much, in words.
    pub(super) fn recognise(header: Option<&ByteRecord>) -> Result<Self, String> {
        let Some(header) = header else {
            return Err("the file is empty".to_owned());
        };
        let written: Vec<String> = header
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim().to_owned())
            .collect();
        let missing: Vec<&str> = NAMES
            .into_iter()
            .filter(|name| !written.iter().any(|w| w == name))
            .collect();
        let surplus: Vec<String> = written
            .iter()
            .filter(|name| !NAMES.contains(&name.as_str()))
            .map(|name| shown(name))
            .collect();
        if missing.is_empty() && written.len() == NAMES.len() {
            let place = |name: &str| written.iter().position(|w| w == name).unwrap_or_default();
            return Ok(Self {
                at: NAMES.map(place),
            });
        }
        let mut why = "its columns are not those of a price list".to_owned();
        for (what, names) in [
            ("missing", missing.join(", ")),
            ("not known", surplus.join(", ")),
        ] {
            if !names.is_empty() {
                why.push_str(&format!(
                    "; {what}: {}",
                    names.chars().take(200).collect::<String>()
                ));
            }
        }
        Err(why)
    }

    /// The SKU of a record, whatever else is wrong with it.
    pub(super) fn sku<'r>(&self, record: &'r ByteRecord) -> Option<&'r [u8]> {
        record.get(self.at[SKU])
    }

    fn texts<'r>(&self, record: &'r ByteRecord) -> Result<[&'r str; NAMES.len()], Rejection> {
        let unreadable = |why: String| Rejection::new(SkipReason::Unreadable, why);
        if record.len() != NAMES.len() {
            return Err(unreadable(format!(
                "it has {} fields instead of {}",
                record.len(),
                NAMES.len()
            )));
        }
        let mut texts = [""; NAMES.len()];
        for ((text, at), name) in texts.iter_mut().zip(self.at).zip(NAMES) {
            let bytes = record.get(at).unwrap_or_default();
            *text = std::str::from_utf8(bytes)
                .map_err(|_| unreadable(format!("`{name}` is not UTF-8")))?
                .trim();
        }
        Ok(texts)
    }
}

/// An offer that still lacks its ordinal among equals.
#[derive(Debug)]
pub(super) struct Draft {
    /// Everything its id is made of but the ordinal.
    pub(super) identity: Vec<String>,
    /// The offer, under the id of the first among equals.
    pub(super) offer: Offer,
}

impl Draft {
    /// The order among equals: by what they are, then by what they cost.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let offer = &self.offer;
        (
            offer.gpu_memory_mib,
            offer.memory_gib,
            offer.vcpus,
            offer.price_per_node_hour,
        )
    }
}

/// What one row gave.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) drafts: Vec<Draft>,
    pub(super) rejections: Vec<Rejection>,
}

/// Seller, SKU, name of the GPU, memory of one GPU in MiB.
type HardwareWords = (String, String, String, Option<u64>);

/// Reads rows, and remembers what the words for hardware turned out to mean.
#[derive(Debug)]
pub(super) struct Reader {
    now: DateTime<Utc>,
    hardware: HashMap<HardwareWords, Result<(GpuIdentity, Option<GpuCount>), Rejection>>,
}

impl Reader {
    pub(super) fn new(now: DateTime<Utc>) -> Self {
        Self {
            now,
            hardware: HashMap::new(),
        }
    }

    /// Reads a row into up to two offers; with none there is at least one rejection.
    pub(super) fn read(&mut self, columns: &Columns, record: &ByteRecord) -> Found {
        let row = match columns.texts(record).and_then(Row::parse) {
            Ok(row) => row,
            Err(rejection) => {
                return Found {
                    rejections: vec![rejection],
                    ..Found::default()
                };
            }
        };
        match self.identify(&row) {
            Ok((gpu, gpus)) => self.price(&row, &gpu, gpus),
            Err(rejection) => Found {
                rejections: vec![rejection],
                ..Found::default()
            },
        }
    }

    fn identify(&mut self, row: &Row<'_>) -> Result<(GpuIdentity, GpuCount), Rejection> {
        let seller = row.provider.as_str();
        if row.gpu_name.is_empty() && row.gpu_count.is_none_or(|count| count.is_zero()) {
            return Err(Rejection::new(SkipReason::NoGpu, "it names no GPU"));
        }
        let words = (
            seller.to_owned(),
            row.sku.to_owned(),
            row.gpu_name.to_owned(),
            row.gpu_memory_mib,
        );
        let known = self.hardware.entry(words).or_insert_with(|| {
            gate::hardware(
                seller,
                row.sku,
                Some(row.gpu_name).filter(|name| !name.is_empty()),
                row.gpu_memory_mib,
            )
        });
        let (gpu, gpus_in_fact) = known.clone()?;
        if let Some(gpus) = gpus_in_fact {
            return Ok((gpu, gpus));
        }
        let Some(count) = row.gpu_count else {
            return Err(Rejection::new(
                SkipReason::Unreadable,
                "`gpu_count` is blank",
            ));
        };
        // A third of a GPU is published with however many digits.
        let gpus = GpuCount::parse(&count.round_dp(3).normalize().to_string()).map_err(|_| {
            Rejection::new(
                SkipReason::ImpossibleCount,
                format!("`gpu_count` is {count}, which no machine has"),
            )
        })?;
        Ok((gpu, gpus))
    }

    fn price(&self, row: &Row<'_>, gpu: &GpuIdentity, gpus: GpuCount) -> Found {
        let mut found = Found::default();
        let mut on_demand: Option<Money> = None;
        for (terms, amount) in [(Terms::OnDemand, row.price), (Terms::Spot, row.spot_price)] {
            let Some(amount) = amount else { continue };
            match gate::node_price(amount, gpus) {
                Ok(spot) if terms == Terms::Spot && on_demand.is_some_and(|price| spot > price) => {
                    let why = format!(
                        "the spot price of {amount} is above the price on demand of {}",
                        row.price.unwrap_or_default()
                    );
                    found
                        .rejections
                        .push(Rejection::new(SkipReason::SpotAboveOnDemand, why));
                }
                Ok(price) => {
                    on_demand = Some(price);
                    found
                        .drafts
                        .push(row.draft(gpu, gpus, terms, price, self.now));
                }
                Err(rejection) => found.rejections.push(rejection),
            }
        }
        if found.drafts.is_empty() && found.rejections.is_empty() {
            found
                .rejections
                .push(Rejection::new(SkipReason::NoPrice, "both prices are blank"));
        }
        found
    }
}

/// A row whose words and numbers could be read. Amounts are US dollars for the whole node.
#[derive(Debug)]
struct Row<'r> {
    provider: ProviderId,
    sku: &'r str,
    gpu_name: &'r str,
    gpu_count: Option<Decimal>,
    vcpus: Option<u32>,
    memory_gib: Option<u32>,
    /// Of one GPU.
    gpu_memory_mib: Option<u64>,
    price: Option<Decimal>,
    spot_price: Option<Decimal>,
    region: &'r str,
    zone: &'r str,
}

impl<'r> Row<'r> {
    fn parse(texts: [&'r str; NAMES.len()]) -> Result<Self, Rejection> {
        let [
            provider,
            sku,
            gpu_name,
            gpu_count,
            vcpus,
            memory_gib,
            gpu_memory_mib,
            price,
            spot_price,
            region,
            zone,
        ] = texts;
        let unreadable = |why: String| Rejection::new(SkipReason::Unreadable, why);
        let seller = ProviderId::parse(provider).map_err(|error| unreadable(error.to_string()))?;
        if sku.is_empty() {
            return Err(unreadable("`instance_type` is blank".to_owned()));
        }
        let gpu_count = number("gpu_count", gpu_count)?;
        let gpu_memory = number("gpu_memory_mib", gpu_memory_mib)?;
        let divisor =
            gpu_count.filter(|count| facts::memory_is_a_sum(provider) && *count > Decimal::ONE);
        let of_one_gpu = gpu_memory.map(|memory| memory / divisor.unwrap_or(Decimal::ONE));
        Ok(Self {
            provider: seller,
            sku,
            gpu_name,
            gpu_count,
            vcpus: whole("vcpus", vcpus)?,
            memory_gib: whole("memory_gib", memory_gib)?,
            gpu_memory_mib: of_one_gpu
                .and_then(|memory| memory.to_u64())
                .filter(|memory| *memory > 0),
            price: number("price_usd_hour", price)?,
            spot_price: number("spot_usd_hour", spot_price)?,
            region,
            zone,
        })
    }

    fn draft(
        &self,
        gpu: &GpuIdentity,
        gpus: GpuCount,
        terms: Terms,
        price: Money,
        now: DateTime<Utc>,
    ) -> Draft {
        let Self {
            provider,
            sku,
            gpu_name,
            region,
            zone,
            ..
        } = self;
        let count = self.gpu_count.unwrap_or_default().normalize().to_string();
        // The source comes first: an offer that we can order never shares the id of one that is
        // only listed. The GPU is part of the SKU, because some sellers attach it to a machine
        // type that is named without it (`n1-standard-8` with a T4 or a V100).
        let identity = [
            "pricesheet",
            provider.as_str(),
            sku,
            gpu_name,
            &count,
            region,
            zone,
            terms.as_str(),
        ];
        let offer = Offer {
            offer_id: OfferId::of_identity(&identity),
            provider: provider.clone(),
            sku: (*sku).to_owned(),
            raw_gpu_name: (*gpu_name).to_owned(),
            gpu: gpu.clone(),
            gpus,
            gpu_memory_mib: self.gpu_memory_mib,
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            place: Place::resolve(provider.as_str(), region, zone),
            tenancy: facts::tenancy(provider.as_str()),
            terms,
            internode: facts::internode(provider.as_str(), sku),
            price_per_node_hour: price,
            availability: Availability::UNKNOWN,
            orderable: false,
            observed_at: now,
        };
        Draft {
            identity: identity.map(str::to_owned).to_vec(),
            offer,
        }
    }
}

/// Reads a number; blank is none.
fn number(column: &str, text: &str) -> Result<Option<Decimal>, Rejection> {
    if text.is_empty() {
        return Ok(None);
    }
    // Digits beyond the 28th carry nothing and are rounded away, unlike any other slip.
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+'));
    let parsed = text.parse::<Decimal>().ok().filter(|_| is_plain);
    let unreadable = || {
        Rejection::new(
            SkipReason::Unreadable,
            format!("`{column}` is `{}`, which is no number", shown(text)),
        )
    };
    parsed.map(Some).ok_or_else(unreadable)
}

/// Reads a size that is kept as a whole number, rounded down; blank is none.
fn whole(column: &str, text: &str) -> Result<Option<u32>, Rejection> {
    let Some(size) = number(column, text)? else {
        return Ok(None);
    };
    let impossible = || {
        Rejection::new(
            SkipReason::Unreadable,
            format!("`{column}` is {size}, which is no size"),
        )
    };
    size.trunc().to_u32().map(Some).ok_or_else(impossible)
}
