//! Leases: things at providers that we run and pay for. Only `work` changes them.

mod returned;
mod write;

use chrono::{DateTime, Utc};
use market::ids::{LeaseId, ProviderId, ReservationId, TenantId};
use market::lease::{LeaseEvent, LeaseState};
use market::money::Money;
use market::offer::Offer;
use market::order::{ClientToken, ProviderLeaseId, ProviderNode};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, PaginatorTrait,
    QueryFilter, QueryOrder, QuerySelect,
};

use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::leases::{Column, Entity, Model};
use crate::scope::tenant_scoped;

pub use returned::ReturnedList;
pub(crate) use write::{insert, update};

/// How a provider's lists show a lease that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// When the first of the consecutive lists without it was requested.
    pub since: DateTime<Utc>,
    /// When the first of these was requested that was neither empty nor halved.
    pub lacked_since: Option<DateTime<Utc>>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// The reservation it serves.
    pub reservation_id: ReservationId,
    /// The tenant it serves.
    pub tenant_id: TenantId,
    /// The line of the quote that prices it.
    pub line: u32,
    /// The offer as ordered.
    pub offer: Offer,
    /// Nodes ordered.
    pub nodes: u32,
    /// The number of its first node within the reservation.
    pub node_base: u32,
    /// Its state.
    pub state: LeaseState,
    /// The mark on the machine.
    pub client_token: ClientToken,
    /// The provider's own id, once known.
    pub provider_lease_id: Option<ProviderLeaseId>,
    /// Its nodes as the provider reports them.
    pub provider_nodes: Vec<ProviderNode>,
    /// The provider's reported price for one node and hour; `None` when it did not report one. The offer has
    /// the quoted price.
    pub price_per_node_hour: Option<Money>,
    /// How often the order was sent.
    pub attempts: u32,
    /// When the row was saved, before the order was sent.
    pub requested_at: DateTime<Utc>,
    /// When the provider accepted the order.
    pub accepted_at: Option<DateTime<Utc>>,
    /// When the provider began to bill.
    pub started_at: Option<DateTime<Utc>>,
    /// When all its nodes ran.
    pub up_at: Option<DateTime<Utc>>,
    /// The deadline of its nodes' verification.
    pub verify_deadline: Option<DateTime<Utc>>,
    /// When the tenant got access.
    pub handed_off_at: Option<DateTime<Utc>>,
    /// Up to when its use is charged.
    pub metered_to: Option<DateTime<Utc>>,
    /// When the provider accepted the release.
    pub release_accepted_at: Option<DateTime<Utc>>,
    /// When the provider reported that it is gone.
    pub gone_at: Option<DateTime<Utc>>,
    /// When it failed.
    pub fell_at: Option<DateTime<Utc>>,
    /// The event by which it failed.
    pub fall_reason: Option<LeaseEvent>,
    /// The failure in words.
    pub fall_note: Option<String>,
    /// The failed lease that it replaces.
    pub replaces: Option<LeaseId>,
    /// The lease that replaces it.
    pub replaced_by: Option<LeaseId>,
    /// Whether its fleet continues without it.
    pub given_up: bool,
    /// How its provider's lists show it, while it is missing.
    pub missing: Option<Missing>,
    /// The mark of the credential that last listed it.
    pub seen_credential: Option<String>,
    /// Since when its machine has been running though the lease is gone: a person must look.
    pub returned_at: Option<DateTime<Utc>>,
}

impl TryFrom<Model> for Lease {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        let whole = |number: i32| u32::try_from(number).map_err(StoreError::corrupt);
        Ok(Self {
            id: row.id.0,
            reservation_id: row.reservation_id.0,
            tenant_id: row.tenant_id.0,
            line: whole(row.line)?,
            offer: row.offer.0,
            nodes: whole(row.nodes)?,
            node_base: whole(row.node_base)?,
            state: row.state.0,
            client_token: row.client_token.0,
            provider_lease_id: row.provider_lease_id.map(ProviderLeaseId),
            provider_nodes: row.provider_nodes.0,
            price_per_node_hour: row
                .price_units
                .zip(row.price_currency)
                .map(|(units, currency)| Money::from_units(units, currency.0)),
            attempts: whole(row.attempts)?,
            requested_at: row.requested_at.at(),
            accepted_at: row.accepted_at.map(Moment::at),
            started_at: row.started_at.map(Moment::at),
            up_at: row.up_at.map(Moment::at),
            verify_deadline: row.verify_deadline.map(Moment::at),
            handed_off_at: row.handed_off_at.map(Moment::at),
            metered_to: row.metered_to.map(Moment::at),
            release_accepted_at: row.release_accepted_at.map(Moment::at),
            gone_at: row.gone_at.map(Moment::at),
            fell_at: row.fell_at.map(Moment::at),
            fall_reason: row.fall_reason.map(|reason| reason.0),
            fall_note: row.fall_note,
            replaces: row.replaces.map(|lease| lease.0),
            replaced_by: row.replaced_by.map(|lease| lease.0),
            given_up: row.given_up,
            missing: row.missing_since.map(|since| Missing {
                since: since.at(),
                lacked_since: row.lacked_since.map(Moment::at),
            }),
            seen_credential: row.seen_credential,
            returned_at: row.returned_at.map(Moment::at),
        })
    }
}

tenant_scoped!(Leases, leases, TenantLeases, AllLeases, "leases");

impl TenantLeases<'_> {
    /// The leases of a reservation of the tenant, in the order of their creation.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_reservation(&self, id: ReservationId) -> Result<Vec<Lease>, StoreError> {
        let wanted = Condition::all()
            .add(Column::TenantId.eq(Text(self.tenant)))
            .add(Column::ReservationId.eq(Text(id)));
        find_all(&self.store.read, wanted).await
    }

    /// The tenant's lease with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        let row = Entity::find_by_id(Text(id))
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        row.map(Lease::try_from).transpose()
    }
}

impl AllLeases<'_> {
    /// The leases of a reservation of any tenant, in the order of their creation.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_reservation(&self, id: ReservationId) -> Result<Vec<Lease>, StoreError> {
        find_all(
            &self.store.read,
            Condition::all().add(Column::ReservationId.eq(Text(id))),
        )
        .await
    }

    /// The lease with this id, of any tenant. A machine's mark names it: [`ClientToken::lease_id`].
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: LeaseId) -> Result<Option<Lease>, StoreError> {
        let row = Entity::find_by_id(Text(id)).one(&self.store.read).await?;
        row.map(Lease::try_from).transpose()
    }

    /// Every lease whose provider reported its price, in the order of their creation.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn with_stated_price(&self) -> Result<Vec<Lease>, StoreError> {
        find_all(
            &self.store.read,
            Condition::all().add(Column::PriceUnits.is_not_null()),
        )
        .await
    }

    /// Every lease in its tenant's hands, in the order of their creation.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn handed_off(&self) -> Result<Vec<Lease>, StoreError> {
        let in_use = Column::State.eq(Word(LeaseState::HandedOff));
        find_all(&self.store.read, Condition::all().add(in_use)).await
    }

    /// Every lease at a provider that is not gone.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn live_at(&self, provider: &ProviderId) -> Result<Vec<Lease>, StoreError> {
        let wanted = Condition::all()
            .add(Column::ProviderId.eq(Text(provider.clone())))
            .add(Column::State.ne(Word(LeaseState::Gone)));
        find_all(&self.store.read, wanted).await
    }

    /// Every accepted lease that is still needed and that its provider does not list, in the order of their
    /// creation.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn missing(&self) -> Result<Vec<Lease>, StoreError> {
        let counted_on = LeaseState::ALL
            .into_iter()
            .filter(|state| state.is_accepted());
        let wanted = Condition::all()
            .add(Column::State.is_in(counted_on.map(Word)))
            .add(Column::MissingSince.is_not_null());
        find_all(&self.store.read, wanted).await
    }

    /// Whether a lease at this provider has gone since then.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn any_gone_since(
        &self,
        provider: &ProviderId,
        since: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let gone = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::ProviderId.eq(Text(provider.clone())))
            .filter(Column::GoneAt.gte(Moment::from(since)))
            .into_tuple::<Text<LeaseId>>()
            .one(&self.store.read)
            .await?;
        Ok(gone.is_some())
    }
}

async fn find_all<C: ConnectionTrait>(db: &C, wanted: Condition) -> Result<Vec<Lease>, StoreError> {
    let rows = Entity::find()
        .filter(wanted)
        .order_by_asc(Column::Id)
        .all(db)
        .await?;
    rows.into_iter().map(Lease::try_from).collect()
}

/// The leases of some reservations, in the order of their creation.
pub(crate) async fn of_reservations(
    tx: &DatabaseTransaction,
    ids: impl IntoIterator<Item = ReservationId>,
) -> Result<Vec<Lease>, StoreError> {
    let wanted = Column::ReservationId.is_in(ids.into_iter().map(Text));
    find_all(tx, Condition::all().add(wanted)).await
}

/// Whether anything may still be running for a reservation.
pub(crate) async fn any_live(
    tx: &DatabaseTransaction,
    id: ReservationId,
) -> Result<bool, StoreError> {
    let live = Entity::find()
        .filter(Column::ReservationId.eq(Text(id)))
        .filter(Column::State.ne(Word(LeaseState::Gone)))
        .count(tx)
        .await?;
    Ok(live > 0)
}
