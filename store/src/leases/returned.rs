//! Machines that run though their leases are gone: they were given up in their tenants' hands, and came back.

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{LeaseId, ProviderId};
use market::lease::LeaseState;
use market::ledger::Transaction;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, Condition, DatabaseTransaction, EntityTrait, QueryFilter, QuerySelect};

use super::{AllLeases, Lease, find_all};
use crate::entity::column::{Moment, Text, Word};
use crate::entity::leases::{Column, Entity};
use crate::tx::transaction;
use crate::{StoreError, ledger};

/// What a list of a provider says of the machines that returned there.
#[derive(Debug, Clone, Copy)]
pub struct ReturnedList<'a> {
    /// Leases that are gone and whose machines run.
    pub shown: &'a [LeaseId],
    /// A time before the list was asked for.
    pub asked_at: DateTime<Utc>,
    /// Whether it may be cut: by itself it proves nothing of what it lacks.
    pub doubtful: bool,
    /// How long lists may lag behind.
    pub lag: TimeDelta,
}

impl AllLeases<'_> {
    /// Every lease whose machine runs though the lease is gone, in the order of their making.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn returned(&self) -> Result<Vec<Lease>, StoreError> {
        let wanted = Condition::all().add(Column::ReturnedAt.is_not_null());
        find_all(&self.store.read, wanted).await
    }

    /// Notes which of the leases at a provider that are gone have a machine that runs; gives those of which
    /// that was not known. One that the list lacks counts as gone again after two lists a listing lag apart,
    /// the last of which is not doubtful.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn note_returned(
        &self,
        provider: &ProviderId,
        list: &ReturnedList<'_>,
    ) -> Result<Vec<LeaseId>, StoreError> {
        transaction!(self.store, |tx| {
            let known: Vec<(Text<LeaseId>, Option<Moment>)> = Entity::find()
                .select_only()
                .column(Column::Id)
                .column(Column::LackedSince)
                .filter(Column::ProviderId.eq(Text(provider.clone())))
                .filter(Column::ReturnedAt.is_not_null())
                .into_tuple()
                .all(tx)
                .await?;
            let is_known = |id: &LeaseId| known.iter().any(|(known, _)| known.0 == *id);
            let came = list.shown.iter().filter(|id| !is_known(id));
            let came: Vec<LeaseId> = came.copied().collect();
            let now = Moment::from(list.asked_at);
            for id in &came {
                mark(tx, *id, Some(now), None).await?;
            }
            for (id, lacked_since) in &known {
                let is_shown = list.shown.contains(&id.0);
                let lacked_for = lacked_since.map(|since| list.asked_at - since.at());
                match lacked_for {
                    None if is_shown => {}
                    Some(_) if is_shown => lack(tx, id.0, None).await?,
                    None => lack(tx, id.0, Some(now)).await?,
                    Some(time) if time >= list.lag && !list.doubtful => {
                        mark(tx, id.0, None, None).await?;
                    }
                    Some(_) => {}
                }
            }
            Ok(came)
        })
    }

    /// Notes that the provider took the word that a machine ends which had returned, and posts what it cost.
    ///
    /// Errors: [`StoreError::Database`];
    /// [`Conflict::LedgerKey`](crate::Conflict::LedgerKey) when another cost was posted for it.
    pub async fn end_returned(
        &self,
        lease: LeaseId,
        cost: Option<&Transaction>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| {
            Entity::update_many()
                .col_expr(Column::ReleaseAcceptedAt, Expr::value(Moment::from(now)))
                .filter(Column::Id.eq(Text(lease)))
                .filter(Column::State.eq(Word(LeaseState::Gone)))
                .exec(tx)
                .await?;
            mark(tx, lease, None, None).await?;
            ledger::post(tx, cost.map_or(&[], std::slice::from_ref), now).await
        })
    }
}

/// Since when a lease that is gone has a machine that runs, and since when lists lack that.
async fn mark(
    tx: &DatabaseTransaction,
    lease: LeaseId,
    returned_at: Option<Moment>,
    lacked_since: Option<Moment>,
) -> Result<(), StoreError> {
    Entity::update_many()
        .col_expr(Column::ReturnedAt, Expr::value(returned_at))
        .col_expr(Column::LackedSince, Expr::value(lacked_since))
        .filter(Column::Id.eq(Text(lease)))
        .filter(Column::State.eq(Word(LeaseState::Gone)))
        .exec(tx)
        .await?;
    Ok(())
}

async fn lack(
    tx: &DatabaseTransaction,
    lease: LeaseId,
    since: Option<Moment>,
) -> Result<(), StoreError> {
    Entity::update_many()
        .col_expr(Column::LackedSince, Expr::value(since))
        .filter(Column::Id.eq(Text(lease)))
        .exec(tx)
        .await?;
    Ok(())
}
