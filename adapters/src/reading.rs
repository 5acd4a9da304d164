//! Builds a reading from records: each becomes offers or a reason, and what could not be read is named.

use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, SkipReason, Skipped, Unread};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::OfferId;
use market::offer::{Availability, Offer, Particulars, Tenancy, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::adapter::Profile;
use crate::error::AdapterError;
use crate::gate::{self, Rejection};

/// What a record became: offers, and reasons by SKU; or one reason for all of it.
pub(crate) type Made = Result<(Vec<Offer>, Vec<(String, Rejection)>), Rejection>;

/// A reading in the making.
pub(crate) struct Reading {
    profile: &'static Profile,
    now: DateTime<Utc>,
    offers: Vec<Offer>,
    skipped: Vec<Skipped>,
    unread: Unread,
    /// Whether it held more offers than any provider has; no more are kept.
    is_overfull: bool,
}

impl Reading {
    pub(crate) fn new(profile: &'static Profile, now: DateTime<Utc>) -> Self {
        Self {
            profile,
            now,
            offers: Vec::new(),
            skipped: Vec::new(),
            unread: Unread::Nothing,
            is_overfull: false,
        }
    }

    /// Adds a record that became offers, or a reason. `sku` names it as its offers are named; without one, an
    /// unreadable record may be any offer.
    pub(crate) fn record(&mut self, sku: Option<&str>, made: Result<Vec<Offer>, Rejection>) {
        self.parts(&[sku], made.map(|offers| (offers, Vec::new())));
    }

    /// Adds a record that became offers and reasons: some of its prices may be bad. `skus` are the names of
    /// all offers that it may have become.
    pub(crate) fn parts(&mut self, skus: &[Option<&str>], made: Made) {
        let first = skus.first().copied().flatten();
        let (offers, rejections) = match made {
            Ok((offers, rejections)) => {
                let named = rejections.into_iter();
                (offers, named.map(|(sku, why)| (Some(sku), why)).collect())
            }
            Err(rejection) => (Vec::new(), vec![(first.map(str::to_owned), rejection)]),
        };
        // A record that gave nothing is counted once, with its first reason.
        let mut uncounted = u64::from(offers.is_empty());
        for (sku, rejection) in rejections {
            let skipped = rejection.of_record(sku.as_deref(), std::mem::take(&mut uncounted));
            if skipped.is_unread() {
                for sku in skus {
                    self.unread.note(sku.map(str::to_owned));
                }
            }
            self.skipped.push(skipped);
        }
        if self.offers.len() + offers.len() > gate::MOST_OFFERS {
            self.is_overfull = true;
            return;
        }
        self.offers.extend(offers);
    }

    /// Notes a part of the listing that could not be read and may hold any offer.
    pub(crate) fn unread_part(&mut self, what: &str, why: impl std::fmt::Display) {
        self.unread.note(None);
        self.skipped.push(Rejection::of_part(what, why));
    }

    /// Whether nothing is missing so far.
    pub(crate) fn is_whole(&self) -> bool {
        self.unread == Unread::Nothing
    }

    /// The reading.
    ///
    /// Errors: [`AdapterError::Unreadable`] where no provider has so many offers.
    pub(crate) fn finish(self) -> Result<CatalogReading, AdapterError> {
        if self.is_overfull {
            let why = Rejection::new(SkipReason::Unreadable, "no provider has so many offers");
            return Err(why.of_listing("GET", "the catalogue"));
        }
        Ok(CatalogReading {
            provider: self.profile.provider_id(),
            read_at: self.now,
            offers: self.offers,
            skipped: self.skipped,
            unread: self.unread,
        })
    }
}

/// Reads a record as its wire struct. The parser's words are shown, never the record.
pub(crate) fn parse<T: DeserializeOwned>(record: &Value) -> Result<T, Rejection> {
    T::deserialize(record).map_err(|error| {
        let what = gate::shown(&error.to_string());
        let why = format!("the record is not as published: {what}");
        Rejection::new(SkipReason::Unreadable, why)
    })
}

/// The longest launch argument. Units: bytes. Every offer repeats it.
const LONGEST_ORDER_REF: usize = 8_192;

/// What an offer is made of; the rest follows. Names are checked when it is finished.
#[derive(Clone)]
pub(crate) struct OfferDraft<'a> {
    pub(crate) profile: &'static Profile,
    pub(crate) sku: &'a str,
    /// The region as the provider writes it; empty where it is unknown.
    pub(crate) region: &'a str,
    pub(crate) terms: Terms,
    pub(crate) tenancy: Tenancy,
    pub(crate) internode: Internode,
    /// The provider's own words for the GPU.
    pub(crate) raw_gpu_name: &'a str,
    pub(crate) gpu: GpuIdentity,
    /// Of one node.
    pub(crate) gpus: GpuCount,
    /// Of one GPU, as published. Units: MiB.
    pub(crate) gpu_memory_mib: Option<u64>,
    pub(crate) vcpus: Option<u32>,
    pub(crate) memory_gib: Option<u32>,
    /// Of one node for an hour. Units: US dollars.
    pub(crate) node_price: Decimal,
    pub(crate) availability: Availability,
    pub(crate) particulars: Particulars,
}

impl OfferDraft<'_> {
    /// The offer.
    ///
    /// Its id is made of provider, SKU, region and terms.
    pub(crate) fn finish(self, now: DateTime<Utc>) -> Result<Offer, Rejection> {
        gate::name("the SKU", self.sku)?;
        gate::name("the region", self.region)?;
        gate::name("the name of the GPU", self.raw_gpu_name)?;
        let order_ref = self.particulars.order_ref.as_deref().unwrap_or_default();
        if order_ref.len() > LONGEST_ORDER_REF {
            let why = format!("what its launch needs is longer than {LONGEST_ORDER_REF} bytes");
            return Err(Rejection::new(SkipReason::Unreadable, why));
        }
        let provider = self.profile.id;
        let terms = self.terms.as_str();
        let identity = [provider, self.sku, self.region, terms, "0"];
        Ok(Offer {
            offer_id: OfferId::of_identity(&identity),
            provider: self.profile.provider_id(),
            price_per_node_hour: gate::node_price(self.node_price, self.gpus)?,
            place: Place::resolve(provider, self.region, ""),
            sku: self.sku.to_owned(),
            raw_gpu_name: self.raw_gpu_name.to_owned(),
            gpu: self.gpu,
            gpus: self.gpus,
            gpu_memory_mib: self.gpu_memory_mib,
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            tenancy: self.tenancy,
            terms: self.terms,
            internode: self.internode,
            availability: self.availability,
            // Nobody can prove what a slice of a GPU is.
            orderable: self.gpus.as_whole().is_some(),
            particulars: self.particulars.into(),
            observed_at: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: Profile = Profile {
        id: "acme",
        ..Profile::REST
    };

    fn offer(order_ref: usize) -> Result<Offer, Rejection> {
        let draft = OfferDraft {
            profile: &PROFILE,
            sku: "8x",
            region: "here",
            terms: Terms::OnDemand,
            tenancy: Tenancy::Vm,
            internode: Internode::None,
            raw_gpu_name: "H100",
            gpu: GpuIdentity::parse("H100-SXM").expect("a GPU"),
            gpus: GpuCount::whole(8).expect("a count"),
            gpu_memory_mib: None,
            vcpus: None,
            memory_gib: None,
            node_price: Decimal::new(20, 0),
            availability: Availability::PRESENT,
            particulars: Particulars {
                order_ref: Some("x".repeat(order_ref)),
                ..Particulars::default()
            },
        };
        draft.finish(DateTime::UNIX_EPOCH)
    }

    #[test]
    fn a_launch_argument_has_a_bound_because_every_offer_repeats_it() {
        assert!(offer(LONGEST_ORDER_REF).is_ok());
        let refused = offer(LONGEST_ORDER_REF + 1).expect_err("too long");
        assert_eq!(refused.reason, SkipReason::Unreadable);
    }

    #[test]
    fn more_offers_than_any_provider_has_are_not_kept_and_make_no_reading() {
        let mut reading = Reading::new(&PROFILE, DateTime::UNIX_EPOCH);
        let thousand = vec![offer(0).expect("an offer"); 1_000];
        for _ in 0..=gate::MOST_OFFERS / 1_000 {
            reading.record(Some("8x"), Ok(thousand.clone()));
        }
        assert_eq!(reading.offers.len(), gate::MOST_OFFERS);
        let error = reading.finish().expect_err("no reading");
        assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
    }
}
