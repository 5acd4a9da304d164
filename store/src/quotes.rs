//! Quotes: prices frozen until they lapse, each taken at most once.

use chrono::{DateTime, Utc};
use market::ids::{QuoteId, ReservationId, TenantId};
use market::quote::{Follows, Quote};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter};

use crate::entity::column::{Json, Moment, Text};
use crate::entity::quotes::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// The state of a quote that no reservation took.
pub(crate) const OPEN: &str = "open";
const TAKEN: &str = "taken";

/// A stored quote.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptQuote {
    /// The quote.
    pub quote: Quote,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The reservation that took it; `None` while it is open.
    pub taken_by: Option<ReservationId>,
}

impl From<Model> for KeptQuote {
    fn from(row: Model) -> Self {
        Self {
            quote: Quote {
                id: row.id.0,
                plan_id: row.plan_id.0,
                lines: row.lines.0,
                starts_at: row.starts_at.map(Moment::at),
                follows: row.follows.map(|run| Follows {
                    run: run.0,
                    staging_seconds: row.staging_seconds.unwrap_or(0),
                }),
                created_at: row.created_at.at(),
                expires_at: row.expires_at.at(),
            },
            tenant_id: row.tenant_id.0,
            taken_by: row.taken_by.map(|taken| taken.0),
        }
    }
}

fn row(tenant: TenantId, quote: &Quote) -> Model {
    Model {
        id: Text(quote.id),
        tenant_id: Text(tenant),
        plan_id: Text(quote.plan_id),
        lines: Json(quote.lines.clone()),
        state: OPEN.to_owned(),
        taken_by: None,
        created_at: quote.created_at.into(),
        expires_at: quote.expires_at.into(),
        starts_at: quote.starts_at.map(Moment::from),
        follows: quote.follows.map(|follows| Text(follows.run)),
        staging_seconds: quote.follows.map(|follows| follows.staging_seconds),
    }
}

tenant_scoped!(Quotes, quotes, TenantQuotes, "quotes");

impl TenantQuotes<'_> {
    /// Stores a quote, open.
    ///
    /// Errors: [`StoreError::Stale`] when `completion` was taken over; [`StoreError::Database`], also when
    /// its plan is not stored.
    pub async fn insert(
        &self,
        quote: &Quote,
        completion: Option<Completion<'_, KeptQuote>>,
    ) -> Result<KeptQuote, StoreError> {
        let row = row(self.tenant, quote);
        transaction!(self.store, |tx| {
            Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            let kept = KeptQuote::from(row.clone());
            idempotency::complete(tx, self.tenant, completion.as_ref(), &kept).await?;
            Ok(kept)
        })
    }

    /// Stores the quotes of a run and its fleet, open: both or neither.
    ///
    /// Errors: as [`TenantQuotes::insert`].
    pub async fn insert_pair(
        &self,
        pair: &[Quote; 2],
        completion: Option<Completion<'_, [Quote; 2]>>,
    ) -> Result<(), StoreError> {
        let rows = pair.each_ref().map(|quote| row(self.tenant, quote));
        transaction!(self.store, |tx| {
            let rows = rows.clone().map(IntoActiveModel::into_active_model);
            Entity::insert_many(rows).exec_without_returning(tx).await?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), pair).await
        })
    }

    /// The tenant's quote with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: QuoteId) -> Result<Option<KeptQuote>, StoreError> {
        let row = Entity::find_by_id(Text(id))
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        Ok(row.map(KeptQuote::from))
    }
}

/// Takes an open quote for a reservation, within the transaction that creates the reservation.
///
/// Errors: [`StoreError::NotFound`], [`Conflict::QuoteTaken`], [`Conflict::QuoteLapsed`].
pub(crate) async fn take(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    id: QuoteId,
    reservation: ReservationId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let taken = Entity::update_many()
        .col_expr(Column::State, Expr::value(TAKEN))
        .col_expr(Column::TakenBy, Expr::value(Text(reservation)))
        .filter(Column::Id.eq(Text(id)))
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::State.eq(OPEN))
        .filter(Column::ExpiresAt.gt(Moment::from(now)))
        .exec(tx)
        .await?;
    if taken.rows_affected == 1 {
        return Ok(());
    }
    let found = Entity::find_by_id(Text(id))
        .filter(Column::TenantId.eq(Text(tenant)))
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound { what: "quote" })?;
    if found.taken_by.is_some() {
        return Err(Conflict::QuoteTaken.into());
    }
    Err(Conflict::QuoteLapsed.into())
}
