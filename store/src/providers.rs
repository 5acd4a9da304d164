//! Providers, and how far their catalogues are read.

use chrono::{DateTime, Utc};
use market::catalog::Skipped;
use market::ids::ProviderId;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder};

use crate::StoreError;
use crate::catalog::Generation;
use crate::entity::column::{Json, Moment, Text};
use crate::entity::providers::{Column, Entity, Model};
use crate::scope::service_wide;

/// A provider as the service knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// Whether its offers are sold and its catalogue is read.
    pub enabled: bool,
    /// Where its interface is, when not where its adapter says.
    pub base_url: Option<String>,
    /// When it became known.
    pub created_at: DateTime<Utc>,
    /// When its catalogue was last asked for.
    pub last_attempt_at: Option<DateTime<Utc>>,
    /// When its catalogue was last read as a whole: its offers are as old as this.
    pub last_complete_at: Option<DateTime<Utc>>,
    /// Why the last attempt gave nothing; `None` when it did.
    pub stale_reason: Option<String>,
    /// The last reading that was applied.
    pub last_generation: Option<Generation>,
    /// Offers that its last complete reading held.
    pub live_offers: u32,
    /// What the last complete reading held that is no offer (the first 500).
    pub skipped: Vec<Skipped>,
}

impl TryFrom<Model> for Provider {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            enabled: row.enabled,
            base_url: row.base_url,
            created_at: row.created_at.at(),
            last_attempt_at: row.last_attempt_at.map(Moment::at),
            last_complete_at: row.last_complete_at.map(Moment::at),
            stale_reason: row.stale_reason,
            last_generation: row.last_generation.map(Generation::try_from).transpose()?,
            live_offers: u32::try_from(row.live_offers).map_err(StoreError::corrupt)?,
            skipped: row.skipped.0,
        })
    }
}

service_wide!(Providers, providers, "providers");

impl Providers<'_> {
    /// Makes a provider known, enabled; one that is known stays as it is but for its URL.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn ensure(
        &self,
        id: &ProviderId,
        base_url: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Provider, StoreError> {
        let row = Model {
            id: Text(id.clone()),
            enabled: true,
            base_url: base_url.map(str::to_owned),
            created_at: now.into(),
            last_attempt_at: None,
            last_complete_at: None,
            stale_reason: None,
            last_generation: None,
            live_offers: 0,
            skipped: Json(Vec::new()),
        };
        Entity::insert(row.into_active_model())
            .on_conflict(
                OnConflict::column(Column::Id)
                    .update_column(Column::BaseUrl)
                    .to_owned(),
            )
            .exec_without_returning(&self.store.write)
            .await?;
        self.find(id)
            .await?
            .ok_or(StoreError::NotFound { what: "provider" })
    }

    /// The provider of this id.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn find(&self, id: &ProviderId) -> Result<Option<Provider>, StoreError> {
        let row = Entity::find_by_id(Text(id.clone()))
            .one(&self.store.read)
            .await?;
        row.map(Provider::try_from).transpose()
    }

    /// Every provider, by id.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn list(&self) -> Result<Vec<Provider>, StoreError> {
        let rows = Entity::find()
            .order_by_asc(Column::Id)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(Provider::try_from).collect()
    }

    /// Switches a provider on or off; while it is off its offers are not live.
    ///
    /// Errors: [`StoreError::NotFound`].
    pub async fn set_enabled(&self, id: &ProviderId, enabled: bool) -> Result<(), StoreError> {
        let changed = Entity::update_many()
            .col_expr(Column::Enabled, Expr::value(enabled))
            .filter(Column::Id.eq(Text(id.clone())))
            .exec(&self.store.write)
            .await?;
        found(changed.rows_affected)
    }

    /// Notes that the catalogue could not be read as a whole. Its offers stay as they were, and
    /// grow old.
    ///
    /// Errors: [`StoreError::NotFound`].
    pub async fn record_failure(
        &self,
        id: &ProviderId,
        reason: &str,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let changed = Entity::update_many()
            .col_expr(Column::LastAttemptAt, Expr::value(Moment::from(now)))
            .col_expr(Column::StaleReason, Expr::value(reason))
            .filter(Column::Id.eq(Text(id.clone())))
            .exec(&self.store.write)
            .await?;
        found(changed.rows_affected)
    }
}

fn found(rows: u64) -> Result<(), StoreError> {
    if rows == 0 {
        Err(StoreError::NotFound { what: "provider" })
    } else {
        Ok(())
    }
}
