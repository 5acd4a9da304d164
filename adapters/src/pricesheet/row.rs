//! Makes offers of one row, whatever dialect it was written in.

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
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

use super::facts;
use crate::gate::{self, Rejection};

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
            offer.tenancy,
            offer.internode,
            offer.price_per_node_hour,
        )
    }

    /// What it sells and where, whatever the terms.
    pub(super) fn thing(&self) -> &[String] {
        // The terms are the last part of it.
        &self.identity[..self.identity.len().saturating_sub(1)]
    }
}

/// By what the offers of a list are dated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dates {
    /// When the list was written.
    pub(super) of_list: DateTime<Utc>,
    /// The time now: nothing was seen later.
    pub(super) now: DateTime<Utc>,
}

impl Dates {
    fn observed_at(self, row: &Row<'_>) -> DateTime<Utc> {
        row.as_of.unwrap_or(self.of_list).min(self.now)
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

/// Makes offers of rows, and remembers what the words for hardware turned out to mean.
#[derive(Debug, Default)]
pub(super) struct Reader {
    hardware: HashMap<HardwareWords, Result<(GpuIdentity, Option<GpuCount>), Rejection>>,
}

impl Reader {
    /// Makes up to two offers of a row; with none there is at least one rejection.
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
        // A third of a GPU is published with however many digits.
        let gpus = GpuCount::parse(&count.round_dp(3).normalize().to_string()).map_err(|_| {
            Rejection::new(
                SkipReason::ImpossibleCount,
                format!("its count of GPUs is {count}, which no machine has"),
            )
        })?;
        Ok((gpu, gpus))
    }

    /// What the first name means, or the second where it tells the form that the first leaves open.
    fn resolve(&mut self, row: &Row<'_>) -> Result<(GpuIdentity, Option<GpuCount>), Rejection> {
        let first = self.hardware(row, row.gpu_name)?;
        if let (GpuIdentity::FamilyOnly(family), Some(name)) = (&first.0, row.other_gpu_name)
            && let Ok(second) = self.hardware(row, name)
            && matches!(second.0, GpuIdentity::Known(_))
            && second.0.family() == family.name()
        {
            return Ok(second);
        }
        Ok(first)
    }

    fn hardware(
        &mut self,
        row: &Row<'_>,
        name: &str,
    ) -> Result<(GpuIdentity, Option<GpuCount>), Rejection> {
        let words = (
            row.seller.to_string(),
            row.sku.to_owned(),
            name.to_owned(),
            row.gpu_memory_mib,
        );
        let known = self.hardware.entry(words).or_insert_with(|| {
            gate::hardware(
                row.seller.as_str(),
                row.sku,
                Some(name).filter(|name| !name.is_empty()),
                row.gpu_memory_mib,
            )
        });
        known.clone()
    }
}

/// An offer for each price of a row that can be meant.
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

/// A row whose words and numbers could be read.
#[derive(Debug)]
pub(super) struct Row<'r> {
    pub(super) seller: ProviderId,
    pub(super) sku: &'r str,
    pub(super) gpu_name: &'r str,
    /// Another name for the same GPU, where the list has one.
    pub(super) other_gpu_name: Option<&'r str>,
    pub(super) gpu_count: Option<Decimal>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_gib: Option<u32>,
    /// Of one GPU.
    pub(super) gpu_memory_mib: Option<u64>,
    /// US dollars for the whole node, on demand before spot.
    pub(super) prices: Vec<(Terms, Decimal)>,
    pub(super) region: &'r str,
    pub(super) zone: &'r str,
    /// The country, where the list says it; else it is read from the words for the region.
    pub(super) country: Option<Country>,
    pub(super) tenancy: Tenancy,
    pub(super) internode: Internode,
    pub(super) availability: Availability,
    /// When its prices were written down, where the list says it.
    pub(super) as_of: Option<DateTime<Utc>>,
}

/// The memory of one GPU in MiB, where the column holds that or the sum over those of a row.
pub(super) fn of_one_gpu(
    seller: &ProviderId,
    memory_mib: Option<Decimal>,
    gpu_count: Option<Decimal>,
) -> Option<u64> {
    let is_sum = facts::memory_is_a_sum(seller.as_str());
    let sharing = gpu_count.filter(|count| is_sum && *count > Decimal::ONE);
    let of_one = memory_mib? / sharing.unwrap_or(Decimal::ONE);
    of_one.to_u64().filter(|memory| *memory > 0)
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
            observed_at,
        };
        Draft {
            identity: identity.map(str::to_owned).to_vec(),
            offer,
        }
    }
}
