//! Turns one row into offers, in any dialect.

use std::sync::Arc;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::catalog::{SkipReason, spot_above_on_demand};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::{OfferId, ProviderId};
use market::money::Money;
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::place::{Country, Place};
use market::quantity::GpuCount;
use rust_decimal::prelude::ToPrimitive;
use rust_decimal::{Decimal, RoundingStrategy};

use crate::gate::{self, Rejection};

/// An offer that still lacks its ordinal among equals.
#[derive(Debug)]
pub(super) struct Draft {
    /// Everything that its id is made of, except the ordinal.
    pub(super) identity: Vec<String>,
    /// The offer, under the id of the first among equals.
    pub(super) offer: Offer,
}

impl Draft {
    /// The order among equals: by their content, then by their price.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let offer = &self.offer;
        (
            offer.gpu_memory_mib,
            offer.memory_gib,
            offer.vcpus,
            offer.tenancy,
            offer.internode,
            offer.price_per_node_hour,
        )
    }

    /// The thing and its place, without the terms.
    pub(super) fn thing(&self) -> &[String] {
        // The terms are the last part of it.
        &self.identity[..self.identity.len().saturating_sub(1)]
    }
}

/// The dates for the offers of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dates {
    /// When the list was written.
    pub(super) of_list: DateTime<Utc>,
    /// The time now: no observation is later.
    pub(super) now: DateTime<Utc>,
}

impl Dates {
    fn observed_at(self, row: &Row<'_>) -> DateTime<Utc> {
        row.as_of.unwrap_or(self.of_list).min(self.now)
    }
}

/// The result of one row.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) drafts: Vec<Draft>,
    pub(super) rejections: Vec<Rejection>,
}

/// Seller, SKU, name of the GPU, memory of one GPU in MiB.
type HardwareWords = (String, String, String, Option<u64>);

/// Turns rows into offers, and caches the resolved words for hardware.
#[derive(Debug, Default)]
pub(super) struct Reader {
    hardware: HashMap<HardwareWords, Result<(GpuIdentity, Option<GpuCount>), Rejection>>,
}

impl Reader {
    /// Makes up to two offers from a row; without an offer there is at least one rejection.
    pub(super) fn read(&mut self, row: Result<Row<'_>, Rejection>, dates: Dates) -> Found {
        let offers = row.and_then(|row| {
            let (gpu, gpus) = self.identify(&row)?;
            Ok(price(&row, &gpu, gpus, dates.observed_at(&row)))
        });
        offers.unwrap_or_else(|rejection| Found {
            rejections: vec![rejection],
            ..Found::default()
        })
    }

    fn identify(&mut self, row: &Row<'_>) -> Result<(GpuIdentity, GpuCount), Rejection> {
        if row.gpu_name.is_empty() && row.gpu_count.is_none_or(|count| count.is_zero()) {
            return Err(Rejection::new(SkipReason::NoGpu, "it names no GPU"));
        }
        let (gpu, gpus_in_fact) = self.resolve(row)?;
        if let Some(gpus) = gpus_in_fact {
            return Ok((gpu, gpus));
        }
        let Some(count) = row.gpu_count else {
            return Err(Rejection::new(
                SkipReason::Unreadable,
                "its count of GPUs is blank",
            ));
        };
        // A third of a GPU is published with varying numbers of digits.
        let gpus = GpuCount::parse(&count.round_dp(3).normalize().to_string()).map_err(|_| {
            Rejection::new(
                SkipReason::ImpossibleCount,
                format!("its count of GPUs is {count}, which no machine has"),
            )
        })?;
        Ok((gpu, gpus))
    }

    /// The identity of the first name, or of the second where it gives the form that the first leaves open.
    fn resolve(&mut self, row: &Row<'_>) -> Result<(GpuIdentity, Option<GpuCount>), Rejection> {
        let first = self.hardware(row, row.gpu_name, row.gpu_memory_mib)?;
        if let (GpuIdentity::FamilyOnly(family), Some(name)) = (&first.0, row.other_gpu_name)
            && let Ok(second) = self.hardware(row, name, row.gpu_memory_mib)
            && matches!(second.0, GpuIdentity::Known(_))
            && second.0.family() == family.name()
        {
            return Ok(second);
        }
        Ok(first)
    }

    /// Whether a row is plausible with GPUs that have this memory each. Units: MiB.
    pub(super) fn may_have(&mut self, row: &Row<'_>, memory_mib: u64) -> bool {
        let found = self.hardware(row, row.gpu_name, Some(memory_mib));
        found.is_ok_and(|(gpu, _)| gpu.may_have_memory(memory_mib))
    }

    fn hardware(
        &mut self,
        row: &Row<'_>,
        name: &str,
        memory_mib: Option<u64>,
    ) -> Result<(GpuIdentity, Option<GpuCount>), Rejection> {
        let words = (
            row.seller.to_string(),
            row.sku.to_owned(),
            name.to_owned(),
            memory_mib,
        );
        let known = self.hardware.entry(words).or_insert_with(|| {
            gate::hardware(
                row.seller.as_str(),
                row.sku,
                Some(name).filter(|name| !name.is_empty()),
                memory_mib,
            )
        });
        known.clone()
    }
}

/// An offer for each plausible price of a row.
fn price(row: &Row<'_>, gpu: &GpuIdentity, gpus: GpuCount, observed_at: DateTime<Utc>) -> Found {
    let mut found = Found::default();
    let mut on_demand: Option<Money> = None;
    for &(terms, amount) in &row.prices {
        let price = match gate::node_price(amount, gpus) {
            Ok(price) => price,
            Err(rejection) => {
                found.rejections.push(rejection);
                continue;
            }
        };
        match terms {
            Terms::OnDemand => on_demand = Some(price),
            Terms::Spot if on_demand.is_some_and(|whole| is_rounded(amount, whole)) => {
                // A spot price that exceeds the price on demand only by rounding is that price.
                let price = on_demand.unwrap_or(price);
                let draft = row.draft(gpu, gpus, terms, price, observed_at);
                found.drafts.push(draft);
                continue;
            }
            Terms::Spot => {
                let above = on_demand.and_then(|whole| spot_above_on_demand(price, whole));
                if let Some(why) = above {
                    let rejection = Rejection::new(SkipReason::SpotAboveOnDemand, why);
                    found.rejections.push(rejection);
                    continue;
                }
            }
            _ => {}
        }
        found
            .drafts
            .push(row.draft(gpu, gpus, terms, price, observed_at));
    }
    if row.prices.is_empty() {
        found
            .rejections
            .push(Rejection::new(SkipReason::NoPrice, "it names no price"));
    }
    found
}

/// The fewest decimal places of a price that was rounded and not invented: cents.
const FEWEST_DIGITS: u32 = 2;

/// Whether a spot price is the price on demand, rounded up to the digits that it has.
fn is_rounded(spot: Decimal, on_demand: Money) -> bool {
    let on_demand = on_demand.to_decimal();
    let digits = spot.scale();
    let nearest = RoundingStrategy::MidpointAwayFromZero;
    let rounded = on_demand.round_dp_with_strategy(digits, nearest);
    digits >= FEWEST_DIGITS && spot > on_demand && spot == rounded
}

/// A parsed row: `None` where it is a part of another row's offers.
pub(super) type RowRead<'r> = Result<Option<Row<'r>>, Rejection>;

/// A row whose words and numbers were parsed.
#[derive(Debug, Clone)]
pub(super) struct Row<'r> {
    pub(super) seller: ProviderId,
    pub(super) sku: &'r str,
    pub(super) gpu_name: &'r str,
    /// Another name for the same GPU, where the list has one.
    pub(super) other_gpu_name: Option<&'r str>,
    pub(super) gpu_count: Option<Decimal>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_gib: Option<u32>,
    /// For one GPU, as far as the list states that its column holds that.
    pub(super) gpu_memory_mib: Option<u64>,
    /// The same if the column holds the sum over the GPUs of a row; `None` where both are the same.
    pub(super) memory_if_sum_mib: Option<u64>,
    /// US dollars for the whole node, on demand before spot.
    pub(super) prices: Vec<(Terms, Decimal)>,
    pub(super) region: &'r str,
    pub(super) zone: &'r str,
    /// The country, if the list has it; else it is read from the words for the region.
    pub(super) country: Option<Country>,
    pub(super) tenancy: Tenancy,
    pub(super) internode: Internode,
    pub(super) availability: Availability,
    /// When its prices were written down, if the list has it.
    pub(super) as_of: Option<DateTime<Utc>>,
}

/// The memory of one GPU in MiB, if the column holds that, and if it holds the sum over those of a row.
pub(super) fn memory_of(
    column_mib: Option<Decimal>,
    gpu_count: Option<Decimal>,
) -> (Option<u64>, Option<u64>) {
    let whole = |mib: Decimal| mib.to_u64().filter(|mib| *mib > 0);
    let sharing = gpu_count.filter(|count| *count > Decimal::ONE);
    let if_sum = column_mib
        .zip(sharing)
        .and_then(|(mib, count)| whole(mib / count));
    (column_mib.and_then(whole), if_sum)
}

impl Row<'_> {
    fn draft(
        &self,
        gpu: &GpuIdentity,
        gpus: GpuCount,
        terms: Terms,
        price: Money,
        observed_at: DateTime<Utc>,
    ) -> Draft {
        let Self {
            seller,
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
            seller.as_str(),
            sku,
            gpu_name,
            &count,
            region,
            zone,
            terms.as_str(),
        ];
        let mut place = Place::resolve(seller.as_str(), region, zone);
        place.country = self.country.or(place.country);
        let offer = Offer {
            offer_id: OfferId::of_identity(&identity),
            provider: seller.clone(),
            sku: (*sku).to_owned(),
            raw_gpu_name: (*gpu_name).to_owned(),
            gpu: gpu.clone(),
            gpus,
            gpu_memory_mib: self.gpu_memory_mib,
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            place,
            tenancy: self.tenancy,
            terms,
            internode: self.internode,
            price_per_node_hour: price,
            availability: self.availability,
            orderable: false,
            particulars: Arc::default(),
            observed_at,
        };
        Draft {
            identity: identity.map(str::to_owned).to_vec(),
            offer,
        }
    }
}
