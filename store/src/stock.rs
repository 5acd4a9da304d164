//! Never oversold: the capacity left of an offer, checked under a lock on its row.
//!
//! The provider's count is the number of free nodes when it was last read. From it we subtract all live
//! holds, and the live leases that the count cannot include yet: those it has not accepted, or accepted after
//! the count. Leases accepted before are no longer in the count, so subtracting them too would sell too
//! little.
//!
//! A count that is a lower bound ("10+") refuses nothing: the provider reports that there are more. Where the
//! provider does not count, at most [`StockPolicy::sets_without_count`] reservations may have live holds or
//! leases on the offer at a time, each with [`StockPolicy::nodes_without_count`] nodes at most.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};
use market::hold_rules;
use market::ids::{OfferId, ReservationId, TenantId};
use market::lease::LeaseState;
use market::offer::AvailabilityLevel;
use market::reservation::ReservationState;
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, QueryFilter, QuerySelect, QueryTrait,
};

use crate::StoreError;
use crate::catalog::{Catalog, MOST_AHEAD};
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{holds, leases, offers, providers, reservations};

/// How much is sold where the provider does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StockPolicy {
    /// Reservations that may have live holds or leases on an offer without a count, at a time.
    pub sets_without_count: u32,
    /// Nodes that each of them may take of it.
    pub nodes_without_count: u32,
}

impl Default for StockPolicy {
    fn default() -> Self {
        Self {
            sets_without_count: 1,
            nodes_without_count: 16,
        }
    }
}

/// Locks the offers and checks that `needs` can be taken of them for a reservation.
///
/// The lock lasts until the end of the transaction, so the caller writes the holds or leases next.
/// Errors: [`StoreError::OutOfStock`], for a withdrawn offer too.
pub(crate) async fn check(
    tx: &DatabaseTransaction,
    policy: StockPolicy,
    reservation: ReservationId,
    needs: &BTreeMap<OfferId, u32>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    // In the order of ids, so that two reservations never wait for each other in a circle.
    for (&offer, &wanted) in needs {
        let refuse = |free| StoreError::OutOfStock {
            offer,
            wanted,
            free,
        };
        let row = offers::Entity::find_by_id(Text(offer))
            .lock_exclusive()
            .one(tx)
            .await?
            .filter(|row| !row.withdrawn && row.level.0 != AvailabilityLevel::None)
            .ok_or_else(|| refuse(0))?;
        let Some(counted) = row.nodes else {
            let others = other_sets(tx, reservation, offer).await?;
            if others >= usize::try_from(policy.sets_without_count).unwrap_or(usize::MAX) {
                return Err(refuse(0));
            }
            if wanted > policy.nodes_without_count {
                return Err(refuse(policy.nodes_without_count));
            }
            continue;
        };
        if row.at_least {
            continue;
        }
        let taken = held(tx, offer).await? + leased(tx, &row, now).await?;
        let free = u32::try_from(i64::from(counted) - taken).unwrap_or(0);
        if free < wanted {
            return Err(refuse(free));
        }
    }
    Ok(())
}

/// Whether a tenant's holds on one of these offers, these nodes included, are much of it: see
/// [`hold_rules::takes_much`]. A count that is a lower bound leaves enough for others.
pub(crate) async fn takes_much(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    needs: &BTreeMap<OfferId, u32>,
) -> Result<bool, StoreError> {
    for (&offer, &wanted) in needs {
        let row = offers::Entity::find_by_id(Text(offer)).one(tx).await?;
        let Some(row) = row.filter(|row| !row.at_least) else {
            continue;
        };
        let counted = row.nodes.map(u32::try_from).transpose();
        let counted = counted.map_err(StoreError::corrupt)?;
        let mine = u32::try_from(held_by(tx, tenant, offer).await?).unwrap_or(u32::MAX);
        if hold_rules::takes_much(wanted.saturating_add(mine), counted) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Nodes in live holds of a tenant that are not confirmed.
async fn held_by(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    offer: OfferId,
) -> Result<i64, StoreError> {
    let unconfirmed = reservations::Entity::find()
        .select_only()
        .column(reservations::Column::Id)
        .filter(reservations::Column::TenantId.eq(Text(tenant)))
        .filter(reservations::Column::State.eq(ReservationState::Held.as_str()));
    let sum: Option<Option<i64>> = holds::Entity::find()
        .select_only()
        .column_as(holds::Column::Nodes.sum(), "nodes")
        .filter(holds::Column::OfferId.eq(Text(offer)))
        .filter(holds::Column::Live.eq(true))
        .filter(holds::Column::ReservationId.in_subquery(unconfirmed.into_query()))
        .into_tuple()
        .one(tx)
        .await?;
    Ok(sum.flatten().unwrap_or(0))
}

/// Nodes in live holds.
async fn held(tx: &DatabaseTransaction, offer: OfferId) -> Result<i64, StoreError> {
    let sum: Option<Option<i64>> = holds::Entity::find()
        .select_only()
        .column_as(holds::Column::Nodes.sum(), "nodes")
        .filter(holds::Column::OfferId.eq(Text(offer)))
        .filter(holds::Column::Live.eq(true))
        .into_tuple()
        .one(tx)
        .await?;
    Ok(sum.flatten().unwrap_or(0))
}

/// Nodes in live leases that the provider's count does not include yet.
async fn leased(
    tx: &DatabaseTransaction,
    offer: &offers::Model,
    now: DateTime<Utc>,
) -> Result<i64, StoreError> {
    let mut uncounted = Condition::any().add(leases::Column::AcceptedAt.is_null());
    if let Some(mut counted_at) = counted_at(tx, offer).await? {
        // By a clock that ran ahead: the count may lack leases accepted shortly before.
        if counted_at.at() > now {
            counted_at = (now - MOST_AHEAD).into();
        }
        uncounted = uncounted.add(leases::Column::AcceptedAt.gte(counted_at));
    }
    let sum: Option<Option<i64>> = leases::Entity::find()
        .select_only()
        .column_as(leases::Column::Nodes.sum(), "nodes")
        .filter(leases::Column::OfferId.eq(offer.id.clone()))
        .filter(leases::Column::State.ne(Word(LeaseState::Gone)))
        .filter(uncounted)
        .into_tuple()
        .one(tx)
        .await?;
    Ok(sum.flatten().unwrap_or(0))
}

/// When the provider counted.
async fn counted_at(
    tx: &DatabaseTransaction,
    offer: &offers::Model,
) -> Result<Option<Moment>, StoreError> {
    if offer.dated_at.is_some() {
        return Ok(offer.dated_at);
    }
    let provider = providers::Entity::find_by_id(offer.provider_id.clone())
        .one(tx)
        .await?;
    Ok(provider.and_then(|provider| provider.last_read_at))
}

/// How many other reservations have a live hold or lease on the offer.
async fn other_sets(
    tx: &DatabaseTransaction,
    reservation: ReservationId,
    offer: OfferId,
) -> Result<usize, StoreError> {
    let holding: Vec<Text<ReservationId>> = holds::Entity::find()
        .select_only()
        .column(holds::Column::ReservationId)
        .filter(holds::Column::OfferId.eq(Text(offer)))
        .filter(holds::Column::Live.eq(true))
        .into_tuple()
        .all(tx)
        .await?;
    let leasing: Vec<Text<ReservationId>> = leases::Entity::find()
        .select_only()
        .column(leases::Column::ReservationId)
        .filter(leases::Column::OfferId.eq(Text(offer)))
        .filter(leases::Column::State.ne(Word(LeaseState::Gone)))
        .into_tuple()
        .all(tx)
        .await?;
    let others: HashSet<_> = holding
        .into_iter()
        .chain(leasing)
        .map(|row| row.0)
        .filter(|other| *other != reservation)
        .collect();
    Ok(others.len())
}

impl Catalog<'_> {
    /// Nodes of each offer that are taken and that its provider's count cannot include yet: live holds, and
    /// live leases accepted since the count. For an offer without a count, all of them.
    ///
    /// It is the number that placing a hold enforces, for display beforehand.
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn held_nodes(&self) -> Result<HashMap<OfferId, u32>, StoreError> {
        let tx = self.store.snapshot().await?;
        let counted: HashMap<_, _> = providers::Entity::find()
            .all(&tx)
            .await?
            .into_iter()
            .map(|provider| (provider.id.0, provider.last_read_at))
            .collect();
        let dated: HashMap<OfferId, Moment> = offers::Entity::find()
            .select_only()
            .columns([offers::Column::Id, offers::Column::DatedAt])
            .filter(offers::Column::DatedAt.is_not_null())
            .into_tuple::<(Text<OfferId>, Moment)>()
            .all(&tx)
            .await?
            .into_iter()
            .map(|(id, at)| (id.0, at))
            .collect();
        let mut nodes: HashMap<OfferId, u32> = HashMap::new();
        let mut add = |offer: OfferId, more: i32| -> Result<(), StoreError> {
            *nodes.entry(offer).or_default() += u32::try_from(more).map_err(StoreError::corrupt)?;
            Ok(())
        };
        for hold in holds::Entity::find()
            .filter(holds::Column::Live.eq(true))
            .all(&tx)
            .await?
        {
            add(hold.offer_id.0, hold.nodes)?;
        }
        let live = leases::Column::State.ne(Word(LeaseState::Gone));
        for lease in leases::Entity::find().filter(live).all(&tx).await? {
            let of_provider = || counted.get(&lease.provider_id.0).copied().flatten();
            let counted_at = dated.get(&lease.offer_id.0).copied().or_else(of_provider);
            let counts = lease.offer.0.availability.nodes.is_some();
            if !counts || lease.accepted_at.is_none() || lease.accepted_at >= counted_at {
                add(lease.offer_id.0, lease.nodes)?;
            }
        }
        Ok(nodes)
    }
}
