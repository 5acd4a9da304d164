//! A tenant's own capacity at a provider: capacity that it has already paid for, and prices that it agreed.
//! `matcher` decides how a plan uses both.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::gpu::{Gpu, GpuIdentity};
use crate::ids::{CommitmentId, ProviderAccountId, ProviderId};
use crate::money::{Money, Rate};
use crate::offer::{Offer, Terms};
use crate::place::Country;
use crate::quantity::GpuCount;

/// The most nodes of one commitment.
pub const MAX_COMMITTED_NODES: u32 = 100_000;
/// The most node-hours of one commitment.
pub const MAX_NODE_HOURS: u32 = 1_000_000_000;
/// The most prices of one provider account.
pub const MAX_BOOK_PRICES: usize = 200;
/// The longest SKU or region. Units: characters.
const MAX_CHARS: usize = 200;

/// The on-demand offers of a provider that an entry applies to: those of a SKU or of a GPU, in all places or
/// some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OwnScope {
    /// The provider's own name for the thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub sku: Option<String>,
    /// The GPU, where no SKU is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// GPUs of one node; nodes of every size by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_024)]
    pub gpus: Option<u32>,
    /// The country; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<Country>,
    /// The region as the provider writes it; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub region: Option<String>,
}

/// The properties of an offer that a scope compares.
#[derive(Debug, Clone, Copy)]
pub struct OfferTraits<'a> {
    /// The provider's own name for the thing.
    pub sku: &'a str,
    /// The GPU as we know it.
    pub gpu: &'a GpuIdentity,
    /// GPUs of one node.
    pub gpus: GpuCount,
    /// Under which terms it is sold.
    pub terms: Terms,
    /// Its country.
    pub country: Option<Country>,
    /// Its region as the provider writes it.
    pub region: Option<&'a str>,
}

impl<'a> OfferTraits<'a> {
    /// The traits of an offer.
    #[must_use]
    pub fn of(offer: &'a Offer) -> Self {
        Self {
            sku: &offer.sku,
            gpu: &offer.gpu,
            gpus: offer.gpus,
            terms: offer.terms,
            country: offer.place.country,
            region: offer.place.region.as_deref(),
        }
    }
}

impl OwnScope {
    /// Whether this applies to an offer of the same provider. It only ever applies to whole GPUs on demand.
    #[must_use]
    pub fn means(&self, offer: &OfferTraits<'_>) -> bool {
        let Some(gpus) = offer.gpus.as_whole() else {
            return false;
        };
        let thing = match (&self.sku, self.gpu) {
            (Some(sku), _) => sku == offer.sku,
            (None, Some(gpu)) => *offer.gpu == GpuIdentity::Known(gpu),
            (None, None) => false,
        };
        let region = |own: &String| {
            offer
                .region
                .is_some_and(|region| own.eq_ignore_ascii_case(region))
        };
        thing
            && offer.terms == Terms::OnDemand
            && self.gpus.is_none_or(|own| own == gpus)
            && self.country.is_none_or(|own| Some(own) == offer.country)
            && self.region.as_ref().is_none_or(region)
    }

    /// Checks that exactly one thing is named, in text that can be a name.
    ///
    /// Errors: [`CapacityFault`].
    pub fn check(&self) -> Result<(), CapacityFault> {
        match (&self.sku, self.gpu) {
            (None, None) => return Err(CapacityFault::NothingNamed),
            (Some(_), Some(_)) => return Err(CapacityFault::BothNamed),
            _ => {}
        }
        for (field, text) in [("sku", &self.sku), ("region", &self.region)] {
            let fits = |text: &String| {
                let chars = text.chars().count();
                (1..=MAX_CHARS).contains(&chars) && !text.chars().any(char::is_control)
            };
            if !text.as_ref().is_none_or(fits) {
                return Err(CapacityFault::Text { field });
            }
        }
        match self.gpus {
            Some(gpus) if !(1..=1_024).contains(&gpus) => Err(CapacityFault::Number {
                field: "gpus",
                most: 1_024,
            }),
            _ => Ok(()),
        }
    }
}

/// Why a tenant's description of its own capacity was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapacityFault {
    /// Nothing is named.
    #[error("name the thing: give `sku` or `gpu`")]
    NothingNamed,
    /// Two things are named.
    #[error("give `sku` or `gpu`, not both: a SKU says which GPU it has")]
    BothNamed,
    /// Text that cannot be a name.
    #[error("`{field}` must be 1 to {MAX_CHARS} printable characters")]
    Text {
        /// The field.
        field: &'static str,
    },
    /// Too few or too many.
    #[error("`{field}` must be between 1 and {most}")]
    Number {
        /// The field.
        field: &'static str,
        /// The most that it may be.
        most: u32,
    },
    /// An implausible price.
    #[error("`{field}` must be {least} US dollars or more, and in US dollars")]
    Price {
        /// The field.
        field: &'static str,
        /// The minimum.
        least: &'static str,
    },
    /// It is over already, or ends before it begins.
    #[error("`{field}` must lie in the future, and after its beginning")]
    Over {
        /// The field.
        field: &'static str,
    },
    /// No price or too many.
    #[error("`prices` must have 1 to {MAX_BOOK_PRICES} entries")]
    Prices,
}

/// Capacity that a tenant has paid for at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commitment {
    /// Its id.
    pub id: CommitmentId,
    /// The tenant's name for it: a contract's number, say.
    pub name: String,
    /// Where it was paid for.
    pub provider: ProviderId,
    /// The offers that it applies to.
    pub scope: OwnScope,
    /// How many nodes it covers at a time.
    pub nodes: u32,
    /// How many node-hours it covers in all; `None`: no bound until it ends.
    pub node_hours: Option<u32>,
    /// What a node still costs per hour: usually nothing.
    pub price_per_node_hour: Money,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
}

impl Commitment {
    /// Checks the fields that the tenant gave.
    ///
    /// Errors: [`CapacityFault`].
    pub fn check(&self, now: DateTime<Utc>) -> Result<(), CapacityFault> {
        self.scope.check()?;
        let number = |field, most| CapacityFault::Number { field, most };
        if !(1..=MAX_COMMITTED_NODES).contains(&self.nodes) {
            return Err(number("nodes", MAX_COMMITTED_NODES));
        }
        let hours = self.node_hours.unwrap_or(1);
        if !(1..=MAX_NODE_HOURS).contains(&hours) {
            return Err(number("node_hours", MAX_NODE_HOURS));
        }
        if !is_usd(self.price_per_node_hour) || self.price_per_node_hour.units() < 0 {
            return Err(CapacityFault::Price {
                field: "price_usd_node_hour",
                least: "0",
            });
        }
        if self.expires_at <= now {
            let field = "expires_at";
            return Err(CapacityFault::Over { field });
        }
        Ok(())
    }
}

fn is_usd(price: Money) -> bool {
    price.currency() == crate::money::Currency::Usd
}

/// A commitment with what reservations have left of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCommitment {
    /// The commitment.
    pub commitment: Commitment,
    /// Nodes that no reservation has taken.
    pub nodes_left: u32,
    /// Node-seconds that no reservation has used or set aside; `None`: no bound until it ends.
    pub node_seconds_left: Option<i64>,
}

impl OpenCommitment {
    /// Until when so many nodes are paid for from now on; `None` where they are not.
    #[must_use]
    pub fn covers(&self, nodes: u32, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if nodes == 0 || nodes > self.nodes_left {
            return None;
        }
        let seconds = self.node_seconds_left.map(|left| left / i64::from(nodes));
        let until = seconds
            .and_then(TimeDelta::try_seconds)
            .and_then(|left| now.checked_add_signed(left))
            .map_or(self.commitment.expires_at, |end| {
                end.min(self.commitment.expires_at)
            });
        (until > now).then_some(until)
    }
}

/// A price that a tenant agreed with a provider; it replaces the list price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookPrice {
    /// Which offers it is for.
    pub scope: OwnScope,
    /// What a GPU costs per hour.
    pub rate: Rate,
    /// From when on it is valid; always by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_from: Option<DateTime<Utc>>,
    /// Until when it is valid; without end by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<DateTime<Utc>>,
}

impl BookPrice {
    /// Whether it is valid at this time.
    #[must_use]
    pub fn holds(&self, now: DateTime<Utc>) -> bool {
        self.valid_from.is_none_or(|from| from <= now)
            && self.valid_until.is_none_or(|until| now < until)
    }

    /// Checks the fields that the tenant gave.
    ///
    /// Errors: [`CapacityFault`].
    pub fn check(&self, now: DateTime<Utc>) -> Result<(), CapacityFault> {
        self.scope.check()?;
        let price = self.rate.money_per_gpu_hour();
        if !is_usd(price) || !price.is_positive() {
            return Err(CapacityFault::Price {
                field: "price_usd_gpu_hour",
                least: "0.00000001",
            });
        }
        let begins = self.valid_from.map_or(now, |from| from.max(now));
        if self.valid_until.is_some_and(|until| until <= begins) {
            let field = "valid_until";
            return Err(CapacityFault::Over { field });
        }
        Ok(())
    }
}

/// What a tenant agreed with a provider: its price book.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderAccount {
    /// Its id.
    pub id: ProviderAccountId,
    /// The tenant's name for it.
    pub name: String,
    /// The provider.
    pub provider: ProviderId,
    /// The prices; the first one that is valid and applies to an offer counts.
    pub prices: Vec<BookPrice>,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
}

impl ProviderAccount {
    /// Checks the fields that the tenant gave.
    ///
    /// Errors: [`CapacityFault`].
    pub fn check(&self, now: DateTime<Utc>) -> Result<(), CapacityFault> {
        if !(1..=MAX_BOOK_PRICES).contains(&self.prices.len()) {
            return Err(CapacityFault::Prices);
        }
        self.prices.iter().try_for_each(|price| price.check(now))
    }
}

/// All of a tenant's own capacity and prices, as they stood when a decision was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnCapacity {
    /// Commitments in the order of use: the one that ends first is used first.
    #[serde(default)]
    pub commitments: Vec<OpenCommitment>,
    /// Price books; where several apply to one offer the first counts.
    #[serde(default)]
    pub accounts: Vec<ProviderAccount>,
}

impl OwnCapacity {
    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.commitments.is_empty() && self.accounts.is_empty()
    }

    /// Sorts the commitments into the order of use.
    pub fn use_in_order(&mut self) {
        let order = |open: &OpenCommitment| (open.commitment.expires_at, open.commitment.id);
        self.commitments.sort_by_key(order);
    }

    /// The agreed price of an offer at this time, and the account that it is from.
    #[must_use]
    pub fn book_price(
        &self,
        provider: &ProviderId,
        offer: &OfferTraits<'_>,
        now: DateTime<Utc>,
    ) -> Option<(&ProviderAccount, &BookPrice)> {
        let accounts = self.accounts.iter();
        accounts
            .filter(|account| account.provider == *provider)
            .find_map(|account| {
                let mut prices = account.prices.iter();
                let price = prices.find(|price| price.holds(now) && price.scope.means(offer))?;
                Some((account, price))
            })
    }

    /// The commitments that apply to an offer.
    pub fn commitments_of<'a>(
        &'a self,
        provider: &'a ProviderId,
        offer: &'a OfferTraits<'a>,
    ) -> impl Iterator<Item = &'a OpenCommitment> {
        self.commitments.iter().filter(move |open| {
            open.commitment.provider == *provider && open.commitment.scope.means(offer)
        })
    }
}

/// The nodes of a line that a commitment has paid for, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Covered {
    /// The commitment.
    pub commitment_id: CommitmentId,
    /// US dollars per GPU-hour that they cost until then.
    pub rate_usd_gpu_hour: Rate,
    /// From then on they cost what the offer costs.
    pub until: DateTime<Utc>,
}

#[cfg(test)]
mod tests;
