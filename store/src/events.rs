//! Events: what happened to tenants' things, in the transaction of the change that they report.
//!
//! Each tenant's events are numbered without gaps, in the order in which their changes take effect. The
//! number comes from a row of the tenant that stays locked until the end of the transaction. A reader that
//! saw number n has therefore seen everything before it, also on PostgreSQL, where transactions commit in any
//! order. `append` comes last in a transaction, so that nobody waits for that row longer than needed.
//!
//! `webhooks` sends events to endpoints; `retention` deletes old events, the lowest numbers first.

mod moves;

use chrono::{DateTime, Utc};
use market::event::{Event, EventType};
use market::identity::Projects;
use market::ids::{EventId, ReservationId, TenantId};
use sea_orm::sea_query::{Expr, ExprTrait, OnConflict};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait,
};
use uuid::{NoContext, Timestamp, Uuid};

use crate::entity::column::{Json, Text};
use crate::entity::{event_counters, events, reservations};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{StoreError, webhooks};

pub(crate) use moves::{
    lease_moves, lease_sightings, leases_requested, reservation_moved, reservation_said,
};

/// Something that just happened. It gets its id and number when it is appended.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    /// The kind of event.
    pub kind: EventType,
    /// The reservation that it is about, if any.
    pub reservation_id: Option<ReservationId>,
    /// The details: a small JSON object without secrets and addresses.
    pub data: serde_json::Value,
}

/// A filter for events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only those with a higher number.
    pub after: u64,
    /// Only those up to this number.
    pub up_to: Option<u64>,
    /// Only those about this reservation.
    pub reservation: Option<ReservationId>,
    /// Only those of these kinds; all, when none is named.
    pub kinds: Vec<EventType>,
    /// Only those about reservations in these projects; with all projects, also those about no reservation.
    pub within: Projects,
}

impl TryFrom<events::Model> for Event {
    type Error = StoreError;

    fn try_from(row: events::Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            sequence: u64::try_from(row.sequence).map_err(StoreError::corrupt)?,
            kind: row.kind.0,
            timestamp: row.at.at(),
            reservation_id: row.reservation_id.map(|id| id.0),
            data: row.data.0,
        })
    }
}

tenant_scoped!(Events, events, TenantEvents, AllEvents, "events");

impl TenantEvents<'_> {
    /// Appends events that report no change in the database.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn append(
        &self,
        new: &[NewEvent],
        now: DateTime<Utc>,
    ) -> Result<Vec<Event>, StoreError> {
        transaction!(self.store, |tx| append(tx, self.tenant, new, now).await)
    }

    /// The tenant's events, the oldest first, at most `limit`.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self, filter: &EventFilter, limit: u64) -> Result<Vec<Event>, StoreError> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let kinds = filter.kinds.iter().map(|kind| Text(*kind));
        let wanted = Condition::all()
            .add(events::Column::TenantId.eq(Text(self.tenant)))
            .add(events::Column::Sequence.gt(number(filter.after)))
            .add_option(
                filter
                    .up_to
                    .map(|last| events::Column::Sequence.lte(number(last))),
            )
            .add_option(
                filter
                    .reservation
                    .map(|id| events::Column::ReservationId.eq(Text(id))),
            )
            .add_option((!filter.kinds.is_empty()).then(|| events::Column::Kind.is_in(kinds)))
            .add_option(filter.within.named().map(|projects| {
                let within = reservations::Entity::find()
                    .select_only()
                    .column(reservations::Column::Id)
                    .filter(reservations::Column::TenantId.eq(Text(self.tenant)))
                    .filter(crate::reservations::is_in(projects))
                    .into_query();
                events::Column::ReservationId.in_subquery(within)
            }));
        let rows = events::Entity::find()
            .filter(wanted)
            .order_by_asc(events::Column::Sequence)
            .limit(limit)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(Event::try_from).collect()
    }

    /// The number of the tenant's last event; 0 when it has none. All events up to it can be read.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn last_sequence(&self) -> Result<u64, StoreError> {
        let last = self.counter().await?.map_or(0, |row| row.last_sequence);
        u64::try_from(last).map_err(StoreError::corrupt)
    }

    /// The number up to which the tenant's events are deleted; 0 while none are.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn horizon(&self) -> Result<u64, StoreError> {
        let last = self.counter().await?.map_or(0, |row| row.pruned_through);
        u64::try_from(last).map_err(StoreError::corrupt)
    }

    async fn counter(&self) -> Result<Option<event_counters::Model>, StoreError> {
        let counter = event_counters::Entity::find_by_id(Text(self.tenant));
        Ok(counter.one(&self.store.read).await?)
    }
}

/// Tenants per query: the databases limit the values of a statement.
const NAMED_AT_ONCE: usize = 500;

impl AllEvents<'_> {
    /// The number of the last event of each of `tenants` that has any.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn last_sequences(
        &self,
        tenants: &[TenantId],
    ) -> Result<Vec<(TenantId, u64)>, StoreError> {
        let mut numbers = Vec::with_capacity(tenants.len());
        for some in tenants.chunks(NAMED_AT_ONCE) {
            let counters = event_counters::Entity::find()
                .filter(event_counters::Column::TenantId.is_in(some.iter().copied().map(Text)))
                .all(&self.store.read)
                .await?;
            for row in counters {
                let last = u64::try_from(row.last_sequence).map_err(StoreError::corrupt)?;
                numbers.push((row.tenant_id.0, last));
            }
        }
        Ok(numbers)
    }
}

/// Appends events to a tenant's, in this order, within the transaction of the change that they report, and
/// queues them for the webhook endpoints that want them.
///
/// Call it last: other changes of the tenant wait from here to the end of the transaction.
/// Errors: [`StoreError::Database`].
pub(crate) async fn append(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    new: &[NewEvent],
    now: DateTime<Utc>,
) -> Result<Vec<Event>, StoreError> {
    let appended = record(tx, tenant, new, now).await?;
    webhooks::send_on(tx, tenant, &appended, now).await?;
    Ok(appended)
}

/// Numbers and writes events without queueing them for webhooks.
pub(crate) async fn record(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    new: &[NewEvent],
    now: DateTime<Utc>,
) -> Result<Vec<Event>, StoreError> {
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let before = take_numbers(tx, tenant, new.len()).await?;
    let rows: Vec<_> = (before + 1..)
        .zip(new)
        .map(|(sequence, event)| events::Model {
            id: Text(EventId::from_uuid(uuid_at(now))),
            tenant_id: Text(tenant),
            sequence,
            reservation_id: event.reservation_id.map(Text),
            kind: Text(event.kind),
            at: now.into(),
            data: Json(event.data.clone()),
        })
        .collect();
    let active = rows.iter().cloned().map(IntoActiveModel::into_active_model);
    events::Entity::insert_many(active)
        .exec_without_returning(tx)
        .await?;
    rows.into_iter().map(Event::try_from).collect()
}

/// Takes the next `count` numbers of a tenant's events; returns the one before them.
async fn take_numbers(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    count: usize,
) -> Result<i64, StoreError> {
    use event_counters::{Column, Entity, Model};
    let count = i64::try_from(count).map_err(StoreError::corrupt)?;
    let first = Model {
        tenant_id: Text(tenant),
        last_sequence: count,
        pruned_through: 0,
    };
    let row = Entity::insert(first.into_active_model())
        .on_conflict(
            OnConflict::column(Column::TenantId)
                .value(
                    Column::LastSequence,
                    Expr::col((Entity, Column::LastSequence)).add(count),
                )
                .to_owned(),
        )
        .exec_with_returning(tx)
        .await?;
    Ok(row.last_sequence - count)
}

/// A fresh UUID, version 7, of the moment `now`.
///
/// Other ids come from the caller; here only the transaction knows how many are needed.
pub(crate) fn uuid_at(now: DateTime<Utc>) -> Uuid {
    let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
    Uuid::new_v7(Timestamp::from_unix(
        NoContext,
        seconds,
        now.timestamp_subsec_nanos(),
    ))
}
