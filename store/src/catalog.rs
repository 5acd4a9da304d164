//! Applying a reading of a provider's catalogue: one transaction, one generation.
//!
//! A reading writes one row of its own and the provider's row, and beyond that only changes: the offer as it
//! now is, and the change appended to its history. Offers that did not change are as old as their provider's
//! last reading, so they need no write to stay fresh. An offer that may be in the unreadable part of a
//! reading is changed to keep the date at which it was last seen.
//!
//! Generations are the order in which readings were committed, without gaps: a reader that has seen
//! generation n has seen everything before it.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use market::catalog::{CatalogReading, OfferDiff};
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ActiveValue, ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect,
};

use crate::StoreError;
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::{offer_history, offers, providers, readings};
use crate::offers::OfferChange;
use crate::scope::service_wide;
use crate::tx::{queue_writers, transaction};

/// Rows per statement; the databases limit the values of a statement.
const CHUNK: usize = 500;
/// Skipped records stored with the provider; the rest are only counted.
const KEPT_SKIPPED: usize = 500;

/// The number of a reading in the order of commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<i64> for Generation {
    type Error = StoreError;

    fn try_from(number: i64) -> Result<Self, StoreError> {
        u64::try_from(number).map(Self).map_err(StoreError::corrupt)
    }
}

impl Generation {
    pub(crate) fn number(self) -> Result<i64, StoreError> {
        i64::try_from(self.0).map_err(StoreError::corrupt)
    }
}

service_wide!(Catalog, catalog, "catalogues of all providers, as read");

/// How far the clock of a replica may be ahead of another's.
pub(crate) const MOST_AHEAD: TimeDelta = TimeDelta::seconds(60);

impl Catalog<'_> {
    /// Applies a reading. `diff` is its difference from the offers of [`Catalog::known_offers`], and `base`
    /// is the generation that came with those.
    ///
    /// An added or changed offer whose `observed_at` is the reading's time is dated by its
    /// provider's readings from then on; one with another date keeps that date until it changes.
    ///
    /// Errors: [`StoreError::Stale`] when another reading was applied since `base`, or a later one before:
    /// read again. [`StoreError::NotFound`] for an unknown provider.
    pub async fn apply_reading(
        &self,
        reading: &CatalogReading,
        diff: &OfferDiff,
        base: Option<Generation>,
        now: DateTime<Utc>,
    ) -> Result<Generation, StoreError> {
        transaction!(self.store, |tx| apply(tx, reading, diff, base, now).await)
    }
}

async fn apply(
    tx: &DatabaseTransaction,
    reading: &CatalogReading,
    diff: &OfferDiff,
    base: Option<Generation>,
    now: DateTime<Utc>,
) -> Result<Generation, StoreError> {
    queue_writers(tx, "readings").await?;
    check_base(tx, reading, base, now).await?;
    let last = readings::Entity::find()
        .order_by_desc(readings::Column::Generation)
        .one(tx)
        .await?
        .map_or(0, |row| row.generation);
    let generation = last + 1;
    insert_reading(tx, generation, reading, diff, now).await?;
    let known_at = Moment::from(now);
    let read_at = Moment::from(reading.read_at);
    upsert_offers(tx, generation, diff, read_at).await?;
    append_changes(tx, generation, OfferChange::Added, &diff.added, known_at).await?;
    append_changes(
        tx,
        generation,
        OfferChange::Changed,
        &diff.changed,
        known_at,
    )
    .await?;
    withdraw(tx, generation, &diff.withdrawn, read_at, known_at).await?;
    update_provider(tx, generation, reading, now).await?;
    Generation::try_from(generation)
}

/// Locks the provider's row, and checks that the diff was made against the present state.
async fn check_base(
    tx: &DatabaseTransaction,
    reading: &CatalogReading,
    base: Option<Generation>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let provider = providers::Entity::find_by_id(Text(reading.provider.clone()))
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound { what: "provider" })?;
    let moved_on = provider.last_generation != base.map(Generation::number).transpose()?;
    // A reading from a clock that ran ahead holds up none that follow.
    let ahead = Moment::from(now + MOST_AHEAD);
    let late = provider
        .last_read_at
        .is_some_and(|at| at >= Moment::from(reading.read_at) && at <= ahead);
    if moved_on || late {
        Err(StoreError::Stale)
    } else {
        Ok(())
    }
}

async fn insert_reading(
    tx: &DatabaseTransaction,
    generation: i64,
    reading: &CatalogReading,
    diff: &OfferDiff,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut skipped_by_reason = BTreeMap::new();
    for skipped in &reading.skipped {
        *skipped_by_reason.entry(skipped.reason).or_insert(0) += skipped.rows;
    }
    let row = readings::Model {
        generation,
        provider_id: Text(reading.provider.clone()),
        read_at: reading.read_at.into(),
        known_at: now.into(),
        offers: count(reading.offers.len()),
        added: count(diff.added.len()),
        changed: count(diff.changed.len()),
        withdrawn: count(diff.withdrawn.len()),
        skipped_by_reason: Json(skipped_by_reason),
    };
    readings::Entity::insert(row.into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

async fn upsert_offers(
    tx: &DatabaseTransaction,
    generation: i64,
    diff: &OfferDiff,
    read_at: Moment,
) -> Result<(), StoreError> {
    let mut current: Vec<&Offer> = diff.added.iter().chain(&diff.changed).collect();
    // Always in the same order, so that two writers never wait for each other in a circle.
    current.sort_by_key(|offer| offer.offer_id);
    for chunk in current.chunks(CHUNK) {
        let rows = chunk
            .iter()
            .map(|offer| row(offer, generation, read_at).into_active_model());
        let on_conflict = OnConflict::column(offers::Column::Id)
            .update_columns([
                offers::Column::PriceUnits,
                offers::Column::Currency,
                offers::Column::Gpu,
                offers::Column::Terms,
                offers::Column::Tenancy,
                offers::Column::Orderable,
                offers::Column::Level,
                offers::Column::Nodes,
                offers::Column::AtLeast,
                offers::Column::Withdrawn,
                offers::Column::DatedAt,
                offers::Column::Generation,
                offers::Column::Body,
            ])
            .to_owned();
        offers::Entity::insert_many(rows)
            .on_conflict(on_conflict)
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}

fn row(offer: &Offer, generation: i64, read_at: Moment) -> offers::Model {
    let observed_at = Moment::from(offer.observed_at);
    offers::Model {
        id: Text(offer.offer_id),
        provider_id: Text(offer.provider.clone()),
        gpu: offer.gpu.to_string(),
        price_units: offer.price_per_node_hour.units(),
        currency: offer.price_per_node_hour.currency().to_string(),
        terms: Word(offer.terms),
        tenancy: Word(offer.tenancy),
        orderable: offer.orderable,
        level: Word(offer.availability.level),
        nodes: offer
            .availability
            .nodes
            .map(|nodes| i32::try_from(nodes).unwrap_or(i32::MAX)),
        at_least: offer.availability.at_least,
        withdrawn: false,
        dated_at: (observed_at != read_at).then_some(observed_at),
        generation,
        body: Json(offer.clone()),
    }
}

async fn append_changes(
    tx: &DatabaseTransaction,
    generation: i64,
    change: OfferChange,
    changed: &[Offer],
    known_at: Moment,
) -> Result<(), StoreError> {
    for chunk in changed.chunks(CHUNK) {
        let rows = chunk.iter().map(|offer| {
            let observed_at = Moment::from(offer.observed_at);
            history(generation, change, offer.clone(), observed_at, known_at)
        });
        offer_history::Entity::insert_many(rows)
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}

async fn withdraw(
    tx: &DatabaseTransaction,
    generation: i64,
    withdrawn: &[OfferId],
    read_at: Moment,
    known_at: Moment,
) -> Result<(), StoreError> {
    for chunk in withdrawn.chunks(CHUNK) {
        let ids: Vec<_> = chunk.iter().copied().map(Text).collect();
        let gone = offers::Entity::find()
            .filter(offers::Column::Id.is_in(ids.clone()))
            .filter(offers::Column::Withdrawn.eq(false))
            .order_by_asc(offers::Column::Id)
            .lock_exclusive()
            .all(tx)
            .await?;
        if gone.is_empty() {
            continue;
        }
        offers::Entity::update_many()
            .col_expr(offers::Column::Withdrawn, Expr::value(true))
            .col_expr(offers::Column::Generation, Expr::value(generation))
            .filter(offers::Column::Id.is_in(ids))
            .filter(offers::Column::Withdrawn.eq(false))
            .exec(tx)
            .await?;
        let rows = gone.into_iter().map(|row| {
            history(
                generation,
                OfferChange::Withdrawn,
                row.body.0,
                read_at,
                known_at,
            )
        });
        offer_history::Entity::insert_many(rows)
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}

fn history(
    generation: i64,
    change: OfferChange,
    offer: Offer,
    observed_at: Moment,
    known_at: Moment,
) -> offer_history::ActiveModel {
    offer_history::ActiveModel {
        id: ActiveValue::NotSet,
        offer_id: ActiveValue::Set(Text(offer.offer_id)),
        generation: ActiveValue::Set(generation),
        change: ActiveValue::Set(Word(change)),
        observed_at: ActiveValue::Set(observed_at),
        known_at: ActiveValue::Set(known_at),
        body: ActiveValue::Set(Json(offer)),
    }
}

async fn update_provider(
    tx: &DatabaseTransaction,
    generation: i64,
    reading: &CatalogReading,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    use providers::Column;
    // Unreadable records first, because they keep offers from being refreshed.
    let readable = reading.skipped.iter().filter(|one| !one.is_unread());
    let kept = reading.unread_records().chain(readable);
    let kept: Vec<_> = kept.take(KEPT_SKIPPED).cloned().collect();
    let read_at = Moment::from(reading.read_at);
    let mut update = providers::Entity::update_many();
    if reading.is_whole() {
        update = update.col_expr(Column::LastCompleteAt, Expr::value(read_at));
    }
    update
        .col_expr(Column::LastAttemptAt, Expr::value(Moment::from(now)))
        .col_expr(Column::LastReadAt, Expr::value(read_at))
        .col_expr(Column::StaleReason, Expr::value(Option::<String>::None))
        .col_expr(Column::LastGeneration, Expr::value(generation))
        .col_expr(Column::LiveOffers, Expr::value(count(reading.offers.len())))
        .col_expr(Column::Skipped, Expr::value(Json(kept)))
        .filter(Column::Id.eq(Text(reading.provider.clone())))
        .exec(tx)
        .await?;
    Ok(())
}

fn count(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// A provider's live offers, and the reading that they are from.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownOffers {
    /// The last reading that was applied; `None` before the first.
    pub generation: Option<Generation>,
    /// When that reading was made.
    pub read_at: Option<DateTime<Utc>>,
    /// The offers that are not withdrawn, by id.
    pub offers: Vec<Offer>,
}

impl Catalog<'_> {
    /// When the newest reading was stored; `None` before the first.
    ///
    /// Errors: [`StoreError::Unavailable`], [`StoreError::Database`].
    pub async fn newest_reading(&self) -> Result<Option<DateTime<Utc>>, StoreError> {
        let newest = readings::Entity::find()
            .order_by_desc(readings::Column::Generation)
            .one(&self.store.read)
            .await?;
        Ok(newest.map(|row| row.known_at.at()))
    }

    /// A provider's offers that are not withdrawn, to compare the next reading with.
    ///
    /// Errors: [`StoreError::NotFound`] for an unknown provider.
    pub async fn known_offers(&self, provider: &ProviderId) -> Result<KnownOffers, StoreError> {
        let tx = self.store.snapshot().await?;
        let row = providers::Entity::find_by_id(Text(provider.clone()))
            .one(&tx)
            .await?
            .ok_or(StoreError::NotFound { what: "provider" })?;
        let rows = offers::Entity::find()
            .filter(offers::Column::ProviderId.eq(Text(provider.clone())))
            .filter(offers::Column::Withdrawn.eq(false))
            .order_by_asc(offers::Column::Id)
            .all(&tx)
            .await?;
        let offers = rows
            .into_iter()
            .map(|offer| offer.dated(row.last_read_at))
            .collect();
        let generation = row.last_generation.map(Generation::try_from).transpose()?;
        Ok(KnownOffers {
            generation,
            read_at: row.last_read_at.map(Moment::at),
            offers,
        })
    }
}
