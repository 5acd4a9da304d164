//! Machines that run though their leases are gone: given up in their tenants' hands, then back again.

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

/// A provider's list, as evidence about returned machines.
#[derive(Debug, Clone, Copy)]
pub struct ReturnedList<'a> {
    /// Gone leases whose machines are running.
    pub shown: &'a [LeaseId],
    /// A time before the list was requested.
    pub asked_at: DateTime<Utc>,
    /// Whether it may be incomplete: by itself it does not prove that a machine is missing.
    pub doubtful: bool,
    /// How long lists may lag behind.
    pub lag: TimeDelta,
}

impl AllLeases<'_> {
    /// Every gone lease whose machine is running, in the order of their creation.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn returned(&self) -> Result<Vec<Lease>, StoreError> {
        let wanted = Condition::all().add(Column::ReturnedAt.is_not_null());
        find_all(&self.store.read, wanted).await
    }

    /// Records which of the gone leases at a provider have a running machine; returns those that are new. A
    /// machine that the list lacks counts as gone again after two lists a listing lag apart, the second of
    /// which is not doubtful.
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

    /// Records that the provider accepted the end of a returned machine, and posts its cost.
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

/// Since when a gone lease has a running machine, and since when lists lack that machine.
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
