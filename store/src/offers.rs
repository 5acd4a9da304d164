//! Current offers and their history.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::catalog::{Catalog, Generation};
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{offer_history, offers, providers, readings};

/// Rows per statement; the databases limit the values of a statement.
const CHUNK: usize = 500;

/// The kind of an offer's change by a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferChange {
    /// It was unknown, or was withdrawn.
    Added,
    /// Its price, availability or description changed, or the source of its date did.
    Changed,
    /// A reading no longer had it.
    Withdrawn,
}

/// Everything on sale at one generation.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveOffers {
    /// The last reading in it; `None` before the first.
    pub generation: Option<Generation>,
    /// Offers of enabled providers that are not withdrawn, by id; each has the date at which it was last
    /// seen.
    pub offers: Vec<Offer>,
}

/// An offer that is or was on sale.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownOffer {
    /// The offer, with the date at which it was last seen.
    pub offer: Offer,
    /// Whether a reading no longer had it.
    pub withdrawn: bool,
}

/// One change of an offer.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferHistoryEntry {
    /// The entry's number, which grows.
    pub id: i64,
    /// The reading of this change.
    pub generation: Generation,
    /// The kind of the change.
    pub change: OfferChange,
    /// The provider's time of the change.
    pub observed_at: DateTime<Utc>,
    /// When the service learned of it.
    pub known_at: DateTime<Utc>,
    /// The offer as it was from then on; for a withdrawal, as it was last.
    pub offer: Offer,
}

/// A part of an offer's history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// The provider's state at this time.
    pub as_of: Option<DateTime<Utc>>,
    /// The service's knowledge at this time.
    pub known_at: Option<DateTime<Utc>>,
    /// Only entries before this one, for the next page.
    pub before: Option<i64>,
}

impl offers::Model {
    /// The offer, with the date at which it was last seen.
    pub(crate) fn dated(self, last_read_at: Option<Moment>) -> Offer {
        let mut offer = self.body.0;
        if let Some(seen_at) = self.dated_at.or(last_read_at) {
            offer.observed_at = seen_at.at();
        }
        offer
    }
}

impl Catalog<'_> {
    /// Everything on sale, read at one moment.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn live_offers(&self) -> Result<LiveOffers, StoreError> {
        let tx = self.store.snapshot().await?;
        let last = readings::Entity::find()
            .order_by_desc(readings::Column::Generation)
            .one(&tx)
            .await?;
        let seen: HashMap<_, _> = providers::Entity::find()
            .filter(providers::Column::Enabled.eq(true))
            .all(&tx)
            .await?
            .into_iter()
            .map(|provider| (provider.id.0, provider.last_read_at))
            .collect();
        let rows = offers::Entity::find()
            .filter(offers::Column::Withdrawn.eq(false))
            .order_by_asc(offers::Column::Id)
            .all(&tx)
            .await?;
        let offers = rows
            .into_iter()
            .filter_map(|row| {
                seen.get(&row.provider_id.0)
                    .map(|seen_at| row.dated(*seen_at))
            })
            .collect();
        let generation = last
            .map(|row| Generation::try_from(row.generation))
            .transpose()?;
        Ok(LiveOffers { generation, offers })
    }

    /// The offers that these providers had on sale at a generation, by id. Each has the date at which it had
    /// last been seen, as [`Catalog::live_offers`] gave it at that generation.
    ///
    /// Offers that did not change since are read as they are, and the rest from the history. So the cost
    /// depends on the offers on sale and the changes since, not on the length of the history.
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn offers_at(
        &self,
        generation: Generation,
        providers: &BTreeSet<ProviderId>,
    ) -> Result<Vec<Offer>, StoreError> {
        let tx = self.store.snapshot().await?;
        let number = generation.number()?;
        let of_these = || providers.iter().cloned().map(Text);
        let last_read = last_read_at(&tx, number, providers).await?;
        let unchanged = offers::Entity::find()
            .filter(offers::Column::ProviderId.is_in(of_these()))
            .filter(offers::Column::Generation.lte(number))
            .filter(offers::Column::Withdrawn.eq(false))
            .all(&tx)
            .await?;
        let mut found: Vec<Offer> = unchanged
            .into_iter()
            .map(|row| {
                let read_at = last_read.get(&row.provider_id.0).copied();
                row.dated(read_at)
            })
            .collect();
        let changed: Vec<Text<OfferId>> = offers::Entity::find()
            .select_only()
            .column(offers::Column::Id)
            .filter(offers::Column::ProviderId.is_in(of_these()))
            .filter(offers::Column::Generation.gt(number))
            .into_tuple()
            .all(&tx)
            .await?;
        for chunk in changed.chunks(CHUNK) {
            found.extend(before(&tx, number, chunk, &last_read).await?);
        }
        found.sort_by_key(|offer| offer.offer_id);
        Ok(found)
    }

    /// The last reading applied; `None` before the first.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn latest_generation(&self) -> Result<Option<Generation>, StoreError> {
        let last = readings::Entity::find()
            .order_by_desc(readings::Column::Generation)
            .one(&self.store.read)
            .await?;
        last.map(|row| Generation::try_from(row.generation))
            .transpose()
    }

    /// The offer with this id, withdrawn or not.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn offer(&self, id: OfferId) -> Result<Option<KnownOffer>, StoreError> {
        let tx = self.store.snapshot().await?;
        let Some(row) = offers::Entity::find_by_id(Text(id)).one(&tx).await? else {
            return Ok(None);
        };
        let provider = providers::Entity::find_by_id(row.provider_id.clone())
            .one(&tx)
            .await?;
        let withdrawn = row.withdrawn;
        let last_read_at = provider.and_then(|provider| provider.last_read_at);
        Ok(Some(KnownOffer {
            offer: row.dated(last_read_at),
            withdrawn,
        }))
    }

    /// The changes of an offer, the latest first, at most `limit`.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn offer_history(
        &self,
        id: OfferId,
        filter: HistoryFilter,
        limit: u64,
    ) -> Result<Vec<OfferHistoryEntry>, StoreError> {
        use offer_history::Column;
        let mut query = offer_history::Entity::find().filter(Column::OfferId.eq(Text(id)));
        if let Some(as_of) = filter.as_of {
            query = query.filter(Column::ObservedAt.lte(Moment::from(as_of)));
        }
        if let Some(known_at) = filter.known_at {
            query = query.filter(Column::KnownAt.lte(Moment::from(known_at)));
        }
        if let Some(before) = filter.before {
            query = query.filter(Column::Id.lt(before));
        }
        let rows = query
            .order_by_desc(Column::Id)
            .limit(limit)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(OfferHistoryEntry::try_from).collect()
    }
}

impl TryFrom<offer_history::Model> for OfferHistoryEntry {
    type Error = StoreError;

    fn try_from(row: offer_history::Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id,
            generation: Generation::try_from(row.generation)?,
            change: row.change.0,
            observed_at: row.observed_at.at(),
            known_at: row.known_at.at(),
            offer: row.body.0,
        })
    }
}

/// When each of these providers was last read, as of a generation.
async fn last_read_at(
    tx: &DatabaseTransaction,
    generation: i64,
    providers: &BTreeSet<ProviderId>,
) -> Result<HashMap<ProviderId, Moment>, StoreError> {
    use readings::{Column, Entity};
    let last: Vec<i64> = Entity::find()
        .select_only()
        .column_as(Column::Generation.max(), "last")
        .filter(Column::Generation.lte(generation))
        .filter(Column::ProviderId.is_in(providers.iter().cloned().map(Text)))
        .group_by(Column::ProviderId)
        .into_tuple()
        .all(tx)
        .await?;
    let rows = Entity::find()
        .filter(Column::Generation.is_in(last))
        .all(tx)
        .await?;
    Ok((rows.into_iter())
        .map(|row| (row.provider_id.0, row.read_at))
        .collect())
}

/// Those of the given offers that were on sale at a generation, from the history.
async fn before(
    tx: &DatabaseTransaction,
    generation: i64,
    offers: &[Text<OfferId>],
    last_read: &HashMap<ProviderId, Moment>,
) -> Result<Vec<Offer>, StoreError> {
    use offer_history::{Column, Entity};
    let last: Vec<i64> = Entity::find()
        .select_only()
        .column_as(Column::Id.max(), "last")
        .filter(Column::OfferId.is_in(offers.iter().cloned()))
        .filter(Column::Generation.lte(generation))
        .group_by(Column::OfferId)
        .into_tuple()
        .all(tx)
        .await?;
    let rows = Entity::find()
        .filter(Column::Id.is_in(last))
        .filter(Column::Change.ne(Word(OfferChange::Withdrawn)))
        .all(tx)
        .await?;
    let generations: BTreeSet<i64> = rows.iter().map(|row| row.generation).collect();
    let readings = readings::Entity::find()
        .filter(readings::Column::Generation.is_in(generations))
        .all(tx)
        .await?;
    let read_at: HashMap<i64, Moment> = (readings.iter())
        .map(|reading| (reading.generation, reading.read_at))
        .collect();
    let dated = rows.into_iter().map(|row| {
        let mut offer = row.body.0;
        // An offer with its reading's date is as old as its provider's last reading from then on.
        let of_reading = read_at.get(&row.generation) == Some(&row.observed_at);
        let seen_at = last_read.get(&offer.provider).filter(|_| of_reading);
        offer.observed_at = seen_at.unwrap_or(&row.observed_at).at();
        offer
    });
    Ok(dated.collect())
}
