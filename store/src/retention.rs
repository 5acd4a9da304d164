//! Deletion of old rows: events, deliveries of webhooks, quotes that nobody took, plans, idempotency keys,
//! and re-checks of nodes in use that passed (`rechecks`). It works in batches, each its own short
//! transaction, the oldest first.
//!
//! The ledger, the charges and credits behind it, and the audit log stay for good: the database itself
//! refuses to delete them, events ahead of their tenant's horizon, and any other document of a verification.

mod rechecks;

use chrono::{DateTime, Utc};
use market::ids::{TenantId, WebhookDeliveryId};
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, Select,
};

use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{
    commit_marks, event_counters, events, idempotency_keys, plans, quotes, webhook_attempts,
    webhook_deliveries,
};
use crate::quotes::OPEN;
use crate::scope::service_wide;
use crate::tx::transaction;
use crate::webhooks::DeliveryState;

service_wide!(Retention, retention, "rows that are deleted in time");

impl Retention<'_> {
    /// Deletes up to `limit` deliveries that were created before `before`, with their attempts; returns how
    /// many. A pending delivery stays, unless its time also came before `before`, because its endpoint was
    /// disabled all the while.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_deliveries(
        &self,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use webhook_deliveries::{Column, Entity};
        let before = Moment::from(before);
        let over = Condition::any()
            .add(Column::State.ne(Word(DeliveryState::Pending)))
            .add(Column::DueAt.lt(before));
        let unclaimed = Condition::any()
            .add(Column::ClaimExpiresAt.is_null())
            .add(Column::ClaimExpiresAt.lt(before));
        let old = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::CreatedAt.lt(before))
            .filter(over)
            .filter(unclaimed)
            .order_by_asc(Column::CreatedAt)
            .limit(limit)
            .lock_exclusive();
        transaction!(self.store, |tx| {
            let ids: Vec<Text<WebhookDeliveryId>> = old.clone().into_tuple().all(tx).await?;
            if ids.is_empty() {
                return Ok(0);
            }
            webhook_attempts::Entity::delete_many()
                .filter(webhook_attempts::Column::DeliveryId.is_in(ids.clone()))
                .exec(tx)
                .await?;
            let gone = Entity::delete_many().filter(Column::Id.is_in(ids));
            Ok(gone.exec(tx).await?.rows_affected)
        })
    }

    /// Deletes up to `limit` events of a tenant that happened before `before`; returns how many. Numbers are
    /// deleted in order: an event that is kept, or that a delivery refers to, keeps all that follow.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_events(
        &self,
        tenant: TenantId,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use events::{Column, Entity};
        transaction!(self.store, |tx| {
            let rows: Vec<(i64, Moment)> = Entity::find()
                .select_only()
                .columns([Column::Sequence, Column::At])
                .filter(Column::TenantId.eq(Text(tenant)))
                .order_by_asc(Column::Sequence)
                .limit(limit)
                .into_tuple()
                .all(tx)
                .await?;
            let old = rows.iter().take_while(|(_, at)| at.at() < before);
            let Some((last, _)) = old.last() else {
                return Ok(0);
            };
            let last = match first_on_its_way(tx, tenant, *last).await? {
                Some(kept) => kept - 1,
                None => *last,
            };
            if rows.first().is_none_or(|(first, _)| *first > last) {
                return Ok(0);
            }
            // The database refuses to delete events ahead of this.
            event_counters::Entity::update_many()
                .col_expr(event_counters::Column::PrunedThrough, Expr::value(last))
                .filter(event_counters::Column::TenantId.eq(Text(tenant)))
                .filter(event_counters::Column::PrunedThrough.lt(last))
                .exec(tx)
                .await?;
            let gone = Entity::delete_many()
                .filter(Column::TenantId.eq(Text(tenant)))
                .filter(Column::Sequence.lte(last));
            Ok(gone.exec(tx).await?.rows_affected)
        })
    }

    /// Every tenant that has had events.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn tenants_with_events(&self) -> Result<Vec<TenantId>, StoreError> {
        let ids: Vec<Text<TenantId>> = event_counters::Entity::find()
            .select_only()
            .column(event_counters::Column::TenantId)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        Ok(ids.into_iter().map(|id| id.0).collect())
    }

    /// Deletes up to `limit` marks of transactions that were left before `before`; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_commit_marks(
        &self,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use commit_marks::{Column, Entity};
        let old = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::At.lt(Moment::from(before)))
            .order_by_asc(Column::At)
            .limit(limit)
            .into_query();
        let gone = Entity::delete_many()
            .filter(Column::Id.in_subquery(old))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }

    /// Deletes up to `limit` quotes that lapsed before `before`; returns how many. A quote that a reservation
    /// took stays as long as that.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_quotes(&self, before: DateTime<Utc>, limit: u64) -> Result<u64, StoreError> {
        use quotes::{Column, Entity};
        let lapsed = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::State.eq(OPEN))
            .filter(Column::ExpiresAt.lt(Moment::from(before)))
            .order_by_asc(Column::ExpiresAt)
            .limit(limit)
            .into_query();
        let gone = Entity::delete_many()
            .filter(Column::Id.in_subquery(lapsed))
            // A quote that was taken meanwhile stays.
            .filter(Column::State.eq(OPEN))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }

    /// Deletes up to `limit` plans that were made before `before` and have no stored quote; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_plans(&self, before: DateTime<Utc>, limit: u64) -> Result<u64, StoreError> {
        use plans::{Column, Entity};
        let old = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::CreatedAt.lt(Moment::from(before)))
            .filter(is_quoted().not())
            .order_by_asc(Column::CreatedAt)
            .limit(limit)
            .into_query();
        let gone = Entity::delete_many()
            .filter(Column::Id.in_subquery(old))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }

    /// Deletes up to `limit` of a tenant's quotes that lapsed before `before` and of which it has `keep`
    /// newer ones that lapsed and that no reservation took either; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_surplus_quotes(
        &self,
        tenant: TenantId,
        before: DateTime<Utc>,
        keep: u64,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use quotes::{Column, Entity};
        let lapsed = Entity::find()
            .select_only()
            .filter(Column::TenantId.eq(Text(tenant)))
            .filter(Column::State.eq(OPEN))
            .filter(Column::ExpiresAt.lt(Moment::from(before)));
        let newest = lapsed.clone().order_by_desc(Column::ExpiresAt);
        let Some(last_kept) = age_of_last(newest.column(Column::ExpiresAt), keep, self).await?
        else {
            return Ok(0);
        };
        let surplus = lapsed
            .column(Column::Id)
            .filter(Column::ExpiresAt.lt(last_kept))
            .order_by_asc(Column::ExpiresAt)
            .limit(limit)
            .into_query();
        let gone = Entity::delete_many()
            .filter(Column::Id.in_subquery(surplus))
            // A quote that was taken meanwhile stays.
            .filter(Column::State.eq(OPEN))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }

    /// Deletes up to `limit` of a tenant's plans that were made within `[since, before)`, of which it has
    /// `keep` newer ones there, and that have no quote; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_surplus_plans(
        &self,
        tenant: TenantId,
        (since, before): (DateTime<Utc>, DateTime<Utc>),
        keep: u64,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use plans::{Column, Entity};
        let old = Entity::find()
            .select_only()
            .filter(Column::TenantId.eq(Text(tenant)))
            .filter(Column::CreatedAt.gte(Moment::from(since)))
            .filter(Column::CreatedAt.lt(Moment::from(before)));
        let newest = old.clone().order_by_desc(Column::CreatedAt);
        let Some(last_kept) = age_of_last(newest.column(Column::CreatedAt), keep, self).await?
        else {
            return Ok(0);
        };
        let surplus = old
            .column(Column::Id)
            .filter(Column::CreatedAt.lt(last_kept))
            .filter(is_quoted().not())
            .order_by_asc(Column::CreatedAt)
            .limit(limit)
            .into_query();
        let gone = Entity::delete_many()
            .filter(Column::Id.in_subquery(surplus))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }

    /// Every tenant that has more than `keep` plans made since `since`, or more than that many quotes that
    /// nobody took.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn tenants_with_surplus(
        &self,
        since: DateTime<Utc>,
        keep: u64,
    ) -> Result<Vec<TenantId>, StoreError> {
        let many = Expr::cust("COUNT(*)").gt(keep);
        let of_plans = plans::Entity::find()
            .select_only()
            .column(plans::Column::TenantId)
            .filter(plans::Column::CreatedAt.gte(Moment::from(since)))
            .group_by(plans::Column::TenantId)
            .having(many.clone());
        let of_quotes = quotes::Entity::find()
            .select_only()
            .column(quotes::Column::TenantId)
            .filter(quotes::Column::State.eq(OPEN))
            .group_by(quotes::Column::TenantId)
            .having(many);
        let mut ids: Vec<Text<TenantId>> = of_plans.into_tuple().all(&self.store.read).await?;
        ids.extend(
            of_quotes
                .into_tuple::<Text<TenantId>>()
                .all(&self.store.read)
                .await?,
        );
        let mut tenants: Vec<TenantId> = ids.into_iter().map(|id| id.0).collect();
        tenants.sort();
        tenants.dedup();
        Ok(tenants)
    }

    /// Deletes up to `limit` idempotency keys that are no longer replayed; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_idempotency_keys(
        &self,
        now: DateTime<Utc>,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use idempotency_keys::{Column, Entity};
        let lapsed = Entity::find()
            .select_only()
            .columns([Column::TenantId, Column::Key])
            .filter(Column::ExpiresAt.lte(Moment::from(now)))
            .order_by_asc(Column::ExpiresAt)
            .limit(limit)
            .into_query();
        let key = Expr::tuple([Expr::col(Column::TenantId), Expr::col(Column::Key)]);
        let gone = Entity::delete_many()
            .filter(key.in_subquery(lapsed))
            // A key that was taken again meanwhile stays.
            .filter(Column::ExpiresAt.lte(Moment::from(now)))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }
}

/// Whether a quote of a plan is stored.
fn is_quoted() -> SimpleExpr {
    let plan = (plans::Entity, plans::Column::Id);
    let quotes = quotes::Entity::find()
        .select_only()
        .column(quotes::Column::Id)
        .filter(Expr::col((quotes::Entity, quotes::Column::PlanId)).equals(plan))
        .into_query();
    Expr::exists(quotes)
}

/// The age of the last of the `keep` newest rows, where there are that many. `newest` selects ages, the
/// newest first.
async fn age_of_last<E: EntityTrait>(
    newest: Select<E>,
    keep: u64,
    retention: &Retention<'_>,
) -> Result<Option<Moment>, StoreError> {
    let last = newest.offset(keep.saturating_sub(1)).limit(1);
    Ok(last.into_tuple().one(&retention.store.read).await?)
}

/// The first of a tenant's events up to `last` that a delivery refers to.
async fn first_on_its_way(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    last: i64,
) -> Result<Option<i64>, StoreError> {
    use events::{Column, Entity};
    let sent = webhook_deliveries::Entity::find()
        .select_only()
        .column(webhook_deliveries::Column::EventId)
        .filter(webhook_deliveries::Column::TenantId.eq(Text(tenant)))
        .into_query();
    let first = Entity::find()
        .select_only()
        .column(Column::Sequence)
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::Sequence.lte(last))
        .filter(Column::Id.in_subquery(sent))
        .order_by_asc(Column::Sequence)
        .limit(1)
        .into_tuple()
        .one(tx)
        .await?;
    Ok(first)
}
