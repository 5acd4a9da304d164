//! One type of GPU as offers: each cloud, each place, each count, each kind of terms.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::catalog::{SkipReason, Skipped};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::OfferId;
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use super::places::{Places, convert_stock};
use super::price::{node_price, read_bid, read_price};
use super::{COMMUNITY, COUNTS, Cloud, PROFILE, sku};
use crate::gate::{self, Rejection};

/// The offers of one type of GPU, and the reasons for missing ones.
pub(super) fn convert_type(
    record: Value,
    places: &Places,
    now: DateTime<Utc>,
) -> (Vec<Offer>, Vec<Skipped>) {
    let id = record["id"].as_str().map(str::to_owned);
    let mut rejections: Vec<(Option<String>, Rejection)> = Vec::new();
    let mut offers = Vec::new();
    match read_type(&record) {
        Ok((kind, gpu)) => {
            let typed = Typed {
                kind: &kind,
                record: &record,
                gpu: &gpu,
                now,
            };
            for cloud in Cloud::ALL {
                let (converted, rejected) = typed.convert_cloud(cloud, places);
                offers.extend(converted);
                rejections.extend(rejected);
            }
            if offers.is_empty() && rejections.is_empty() {
                let why = "no cloud rents it at a price";
                rejections.push((id, Rejection::new(SkipReason::NoPrice, why)));
            }
        }
        Err(rejection) => rejections.push((id, rejection)),
    }
    // A record that gave nothing is counted once, with its first reason.
    let mut uncounted = u64::from(offers.is_empty());
    let skipped = rejections
        .into_iter()
        .map(|(sku, why)| why.of_record(sku.as_deref(), std::mem::take(&mut uncounted)))
        .collect();
    (offers, skipped)
}

fn read_type(record: &Value) -> Result<(GpuType, GpuIdentity), Rejection> {
    let kind = GpuType::deserialize(record).map_err(|error| {
        let what = gate::shown(&error.to_string());
        let why = format!("the record is not as published: {what}");
        Rejection::new(SkipReason::Unreadable, why)
    })?;
    gate::name("the name of the type", &kind.id)?;
    let (gpu, share) = gate::hardware(PROFILE.id, &kind.id, Some(&kind.id), kind.memory_mib())?;
    if share.is_some() {
        let why = "a slice of a GPU is sold, which is neither offered nor ordered here";
        return Err(Rejection::new(SkipReason::ImpossibleCount, why));
    }
    Ok((kind, gpu))
}

/// A parsed type.
struct Typed<'a> {
    kind: &'a GpuType,
    /// The raw record, for the fields that the query named by count.
    record: &'a Value,
    gpu: &'a GpuIdentity,
    now: DateTime<Utc>,
}

type Rejected = Vec<(Option<String>, Rejection)>;

impl Typed<'_> {
    fn convert_cloud(&self, cloud: Cloud, places: &Places) -> (Vec<Offer>, Rejected) {
        let (mut offers, mut rejected) = (Vec::new(), Vec::new());
        if !self.kind.may_be_on(cloud) {
            return (offers, rejected);
        }
        let name = format!("{} ({})", self.kind.id, cloud.prefix());
        if cloud == Cloud::Secure && places.lack(&self.kind.id) {
            let why = "no data centre lists it, so nothing says where it could be ordered";
            let rejection = Rejection::new(SkipReason::NoPlace, why);
            return (offers, vec![(Some(name), rejection)]);
        }
        let list_price = match read_price(self.kind.price(cloud)) {
            Ok(price) => price,
            Err(rejection) => return (offers, vec![(Some(name), rejection)]),
        };
        let mut reported = BTreeSet::new();
        for (at, count) in COUNTS.into_iter().enumerate() {
            if count > self.kind.most_gpus(cloud) {
                break;
            }
            let quoted = &self.record[format!("{}{count}", cloud.prefix())];
            let prices = [
                (Terms::OnDemand, Ok(list_price)),
                (
                    Terms::Spot,
                    read_bid(&quoted["minimumBidPrice"], list_price),
                ),
            ];
            for (terms, price) in prices {
                let stocked = self.stocked(cloud, at, quoted, places);
                let made = price.and_then(|price| {
                    let offer = |(region, stock)| self.offer(region, count, terms, price, stock);
                    stocked
                        .into_iter()
                        .map(offer)
                        .collect::<Result<Vec<_>, _>>()
                });
                match made {
                    Ok(made) => offers.extend(made),
                    // The same flaw of every size is reported once.
                    Err(rejection) if reported.insert((terms, rejection.why.clone())) => {
                        rejected.push((Some(format!("{name}, {terms}")), rejection));
                    }
                    Err(_) => {}
                }
            }
        }
        (offers, rejected)
    }

    /// The regions in which a cloud has the type, with the stock for one count.
    fn stocked<'a>(
        &'a self,
        cloud: Cloud,
        at: usize,
        quoted: &Value,
        places: &'a Places,
    ) -> Vec<(&'a str, Availability)> {
        match cloud {
            Cloud::Community => {
                let word = quoted["stockStatus"].as_str();
                vec![(COMMUNITY, convert_stock(word))]
            }
            Cloud::Secure => places.with_type(&self.kind.id, at).collect(),
        }
    }

    fn offer(
        &self,
        region: &str,
        count: u32,
        terms: Terms,
        price_per_gpu: Decimal,
        availability: Availability,
    ) -> Result<Offer, Rejection> {
        let impossible = |_| {
            let why = format!("no machine has {count} GPUs");
            Rejection::new(SkipReason::ImpossibleCount, why)
        };
        let gpus = GpuCount::whole(count).map_err(impossible)?;
        let sku = sku(count, &self.kind.id);
        Ok(Offer {
            offer_id: OfferId::of_identity(&[PROFILE.id, &sku, region, terms.as_str(), "0"]),
            provider: PROFILE.provider_id(),
            raw_gpu_name: self.kind.id.clone(),
            gpu: self.gpu.clone(),
            gpus,
            gpu_memory_mib: self.kind.memory_mib(),
            // Processors and memory of a pod differ by host and are not promised.
            vcpus: None,
            memory_gib: None,
            place: Place::resolve(PROFILE.id, region, ""),
            tenancy: Tenancy::Container,
            terms,
            internode: Internode::None,
            price_per_node_hour: node_price(price_per_gpu, gpus)?,
            availability,
            orderable: true,
            observed_at: self.now,
            sku,
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GpuType {
    id: String,
    /// Of one GPU. Units: GB as sold.
    memory_in_gb: Option<u64>,
    secure_cloud: Option<bool>,
    community_cloud: Option<bool>,
    #[serde(default)]
    secure_price: Value,
    #[serde(default)]
    community_price: Value,
    max_gpu_count: Option<u32>,
    max_gpu_count_secure_cloud: Option<u32>,
    max_gpu_count_community_cloud: Option<u32>,
}

impl GpuType {
    /// Whether a cloud may have it: where the record says so, or where it has only a price.
    fn may_be_on(&self, cloud: Cloud) -> bool {
        let said = match cloud {
            Cloud::Secure => self.secure_cloud,
            Cloud::Community => self.community_cloud,
        };
        said.unwrap_or_else(|| !self.price(cloud).is_null())
    }

    const fn price(&self, cloud: Cloud) -> &Value {
        match cloud {
            Cloud::Secure => &self.secure_price,
            Cloud::Community => &self.community_price,
        }
    }

    /// The most GPUs of one pod; one by default.
    fn most_gpus(&self, cloud: Cloud) -> u32 {
        let said = match cloud {
            Cloud::Secure => self.max_gpu_count_secure_cloud,
            Cloud::Community => self.max_gpu_count_community_cloud,
        };
        said.or(self.max_gpu_count).unwrap_or(1)
    }

    fn memory_mib(&self) -> Option<u64> {
        let memory = self.memory_in_gb.filter(|memory| *memory > 0)?;
        memory.checked_mul(1_024)
    }
}
