//! The result of one reading of a provider's catalogue, and its difference from the one before.

use std::collections::BTreeSet;
use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{OfferId, ProviderId};
use crate::money::Money;
use crate::offer::Offer;

/// Everything read from a provider at one time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogReading {
    /// The provider.
    pub provider: ProviderId,
    /// When it was read.
    pub read_at: DateTime<Utc>,
    /// All offers, sold-out ones included.
    pub offers: Vec<Offer>,
    /// Records of the answer that are no offers, each with a reason.
    pub skipped: Vec<Skipped>,
    /// Listed records that could not be read.
    pub unread: Unread,
}

impl CatalogReading {
    /// Whether everything that the provider lists was read. A list with nothing to sell is not trusted to be
    /// whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.unread == Unread::Nothing && !self.offers.is_empty()
    }

    /// The records that could not be read, each with why.
    pub fn unread_records(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(|one| one.is_unread())
    }
}

/// The unreadable part of a reading. A missing offer is gone only where it cannot be among these.
///
/// Each record behind it stands among the skipped as [`SkipReason::Unreadable`], with why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unread {
    /// Everything was read.
    #[default]
    Nothing,
    /// Records of these SKUs.
    Skus(BTreeSet<String>),
    /// Records without a readable SKU, or an unknown part of the list: any offer may be among them.
    Rest,
}

impl Unread {
    /// Notes a record that could not be read; without a SKU it may be any offer.
    pub fn note(&mut self, sku: Option<String>) {
        match (&mut *self, sku) {
            (Self::Rest, _) => {}
            (_, None) => *self = Self::Rest,
            (Self::Skus(skus), Some(sku)) => {
                skus.insert(sku);
            }
            (Self::Nothing, Some(sku)) => *self = Self::Skus([sku].into()),
        }
    }

    /// Whether an offer of this SKU may be among what could not be read.
    #[must_use]
    pub fn may_hold(&self, sku: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Skus(skus) => skus.contains(sku),
            Self::Rest => true,
        }
    }
}

/// Why a record became no offer: codes to count by.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Hardware that the catalogue does not know: unmapped until a person names it.
    UnknownGpu,
    /// A TPU or another accelerator that is no GPU.
    NotAGpu,
    /// No price, or a price of zero: unknown, never free.
    NoPrice,
    /// An implausible price.
    ImplausiblePrice,
    /// A spot price above the on-demand price of the same thing.
    SpotAboveOnDemand,
    /// A count of GPUs or nodes that no machine has.
    ImpossibleCount,
    /// The record cannot be read.
    Unreadable,
    /// No place lists it, so it is unknown where it could be ordered.
    NoPlace,
    /// A count or a price that the rest of its own list, or its SKU, contradicts.
    ContradictsList,
    /// A file whose columns are not those of a known price list.
    UnknownHeader,
    /// A machine without a GPU.
    NoGpu,
}

impl SkipReason {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownGpu => "unknown_gpu",
            Self::NotAGpu => "not_a_gpu",
            Self::NoPrice => "no_price",
            Self::ImplausiblePrice => "implausible_price",
            Self::SpotAboveOnDemand => "spot_above_on_demand",
            Self::ImpossibleCount => "impossible_count",
            Self::Unreadable => "unreadable",
            Self::NoPlace => "no_place",
            Self::ContradictsList => "contradicts_list",
            Self::UnknownHeader => "unknown_header",
            Self::NoGpu => "no_gpu",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a spot price is implausible beside the on-demand price of the same thing: it is higher. Then only the
/// spot offer is dropped. `None`: it is plausible.
#[must_use]
pub fn spot_above_on_demand(spot: Money, on_demand: Money) -> Option<String> {
    (spot > on_demand)
        .then(|| format!("the spot price of {spot} is above the price on demand of {on_demand}"))
}

/// A record that became no offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Skipped {
    /// The file that it was in, for price lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The data row in the file, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// How many records this entry stands for: 0 where the record still gave another offer.
    pub rows: u64,
    /// The provider's own name for the thing, when it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// The code.
    pub reason: SkipReason,
    /// The reason in words, for the person who reads it.
    pub why: String,
}

impl Skipped {
    /// Whether it may be a known offer, because nobody could read what it is.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.reason == SkipReason::Unreadable
    }
}

/// The difference between a reading and what was known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OfferDiff {
    /// Offers not known before, or known and withdrawn.
    pub added: Vec<Offer>,
    /// Offers, as they are now, whose price, availability or description changed, or whose date no longer
    /// follows from their provider's last reading.
    pub changed: Vec<Offer>,
    /// Offers that are missing from a reading and that are not among what it could not read.
    pub withdrawn: Vec<OfferId>,
}

impl OfferDiff {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.withdrawn.is_empty()
    }
}
