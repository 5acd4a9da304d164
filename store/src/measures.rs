//! Figures for the operator: queues, the lag of a replica, the use of connections. Each is a read that uses
//! an index or a short list.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use market::catalog::SkipReason;
use market::ids::ProviderId;
use sea_orm::{
    ColumnTrait, Condition, DatabaseConnection, DbBackend, EntityTrait, PaginatorTrait,
    QueryFilter, QueryOrder, QuerySelect,
};

use crate::catalog::Generation;
use crate::entity::column::{Moment, Word};
use crate::entity::{providers, readings, reservations, webhook_deliveries};
use crate::scope::service_wide;
use crate::webhooks::DeliveryState;
use crate::{Store, StoreError};

/// The depth of a queue of claimed work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueDepth {
    /// Rows that a worker will process, now or later.
    pub waiting: u64,
    /// Those that are due and that no worker has claimed.
    pub due: u64,
    /// Those that a worker has claimed.
    pub claimed: u64,
    /// Since when the oldest of [`QueueDepth::due`] is due.
    pub oldest_due_at: Option<DateTime<Utc>>,
}

/// How far a snapshot is behind the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behind {
    /// Readings that were applied since.
    pub generations: u64,
    /// When the first of them was applied.
    pub since: Option<DateTime<Utc>>,
}

/// The use of one pool's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// `read` or `write`; on PostgreSQL one pool serves both and is called `all`.
    pub pool: &'static str,
    /// Connections in use.
    pub busy: u32,
    /// Open connections that are idle.
    pub idle: u32,
    /// The size of the pool.
    pub most: u32,
}

service_wide!(Measures, measures, "figures that the operator watches");

impl Measures<'_> {
    /// How many reservations wait for a worker.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn work(&self, now: DateTime<Utc>) -> Result<QueueDepth, StoreError> {
        use reservations::{Column, Entity};
        let claimed = Column::ClaimExpiresAt.gt(Moment::from(now));
        let free = Condition::any()
            .add(Column::ClaimExpiresAt.is_null())
            .add(Column::ClaimExpiresAt.lte(Moment::from(now)));
        let all = Entity::find().filter(Column::DueAt.is_not_null());
        let due = Entity::find()
            .filter(Column::DueAt.lte(Moment::from(now)))
            .filter(free);
        let read = &self.store.read;
        let oldest: Option<Option<Moment>> = due
            .clone()
            .select_only()
            .column_as(Column::DueAt.min(), "oldest")
            .into_tuple()
            .one(read)
            .await?;
        Ok(QueueDepth {
            waiting: all.clone().count(read).await?,
            due: due.count(read).await?,
            claimed: all.filter(claimed).count(read).await?,
            oldest_due_at: oldest.flatten().map(Moment::at),
        })
    }

    /// How many events are queued for webhook endpoints; those of disabled ones wait too.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn webhooks(&self, now: DateTime<Utc>) -> Result<QueueDepth, StoreError> {
        use webhook_deliveries::{Column, Entity};
        let pending = Entity::find().filter(Column::State.eq(Word(DeliveryState::Pending)));
        let claimed = Column::ClaimExpiresAt.gt(Moment::from(now));
        let due = Entity::find().filter(crate::webhooks::due(now));
        let read = &self.store.read;
        let oldest: Option<Option<Moment>> = due
            .clone()
            .select_only()
            .column_as(Column::DueAt.min(), "oldest")
            .into_tuple()
            .one(read)
            .await?;
        Ok(QueueDepth {
            waiting: pending.clone().count(read).await?,
            due: due.count(read).await?,
            claimed: pending.filter(claimed).count(read).await?,
            oldest_due_at: oldest.flatten().map(Moment::at),
        })
    }

    /// How many reservations are in each state that is not `closed`; an empty state is left out.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn open_reservations(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        use reservations::{Column, Entity};
        let counted: Vec<(String, i64)> = Entity::find()
            .select_only()
            .column(Column::State)
            .column_as(Column::Id.count(), "reservations")
            // A reservation with a due time is not closed, and there is an index on it.
            .filter(Column::DueAt.is_not_null())
            .group_by(Column::State)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let count = |number: i64| u64::try_from(number).map_err(StoreError::corrupt);
        let counted = counted.into_iter();
        counted
            .map(|(state, number)| Ok((state, count(number)?)))
            .collect()
    }

    /// How far a snapshot of this generation is behind the database.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn behind(&self, generation: Generation) -> Result<Behind, StoreError> {
        use readings::{Column, Entity};
        let later = Entity::find().filter(Column::Generation.gt(generation.number()?));
        let read = &self.store.read;
        let first = later.clone().order_by_asc(Column::Generation);
        Ok(Behind {
            generations: later.count(read).await?,
            since: first.one(read).await?.map(|row| row.known_at.at()),
        })
    }

    /// The records of each provider's last complete reading that are no offer, by reason.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn skipped(
        &self,
    ) -> Result<Vec<(ProviderId, BTreeMap<SkipReason, u64>)>, StoreError> {
        let last: Vec<Option<i64>> = providers::Entity::find()
            .select_only()
            .column(providers::Column::LastGeneration)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let rows = readings::Entity::find()
            .filter(readings::Column::Generation.is_in(last.into_iter().flatten()))
            .all(&self.store.read)
            .await?;
        let counted = |row: readings::Model| (row.provider_id.0, row.skipped_by_reason.0);
        Ok(rows.into_iter().map(counted).collect())
    }
}

impl Store {
    /// The use of the connections to the database.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolUse> {
        match self.read.get_database_backend() {
            DbBackend::Postgres => vec![pool("all", &self.read)],
            _ => vec![pool("read", &self.read), pool("write", &self.write)],
        }
    }
}

fn pool(name: &'static str, connection: &DatabaseConnection) -> PoolUse {
    let (open, idle, most) = match connection.get_database_backend() {
        DbBackend::Postgres => {
            let pool = connection.get_postgres_connection_pool();
            let most = pool.options().get_max_connections();
            (pool.size(), pool.num_idle(), most)
        }
        _ => {
            let pool = connection.get_sqlite_connection_pool();
            let most = pool.options().get_max_connections();
            (pool.size(), pool.num_idle(), most)
        }
    };
    // The two are read one after the other, so that more may be idle than were open.
    let idle = u32::try_from(idle).unwrap_or(u32::MAX).min(open);
    PoolUse {
        pool: name,
        busy: open - idle,
        idle,
        most,
    }
}
