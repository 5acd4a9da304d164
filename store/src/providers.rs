//! Providers, how far their catalogues are read, and the sealed credentials of those that were
//! entered at run time.

use chrono::{DateTime, Utc};
use market::catalog::Skipped;
use market::ids::{ProviderId, TenantId};
use market::lease::LeaseState;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DatabaseTransaction, EntityTrait, FromQueryResult,
    IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect,
};

use crate::audit::{self, NewAuditEntry};
use crate::catalog::Generation;
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::leases;
use crate::entity::providers::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::service_wide;
use crate::sealed::{SealedColumn, SealedFor};
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// A credential is sealed for the id of its provider: in the row of another it does not open.
pub(crate) const SEALED: SealedColumn = SealedColumn {
    table: "providers",
    key: "id",
    column: "sealed_credential",
    purpose: SealedFor::WordIn("id"),
};

/// A credential as it is kept. Its debug form shows nothing that opens anything.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedCredential {
    /// The credential, sealed for the id of its provider.
    pub sealed: Vec<u8>,
    /// Its last four characters, by which a person knows it again.
    pub hint: String,
    /// When it was entered.
    pub set_at: DateTime<Utc>,
}

impl std::fmt::Debug for SealedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedCredential")
            .field("set_at", &self.set_at)
            .finish_non_exhaustive()
    }
}

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
    /// The credential that was entered at run time; `None` for one of the configuration, and for
    /// providers that only stand in price lists.
    pub credential: Option<SealedCredential>,
}

/// What is to be different about a provider; `None` leaves as is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderChange {
    /// Whether its offers are sold and its catalogue is read.
    pub enabled: Option<bool>,
    /// Where its interface is; `Some(None)` for where its adapter says.
    pub base_url: Option<Option<String>>,
    /// Its credential; `Some(None)` forgets it.
    pub credential: Option<Option<SealedCredential>>,
}

/// Who asks for a change, and what rides in its transaction.
pub enum Cause<'a> {
    /// A request of this tenant's key.
    Request(TenantId, Option<Completion<'a, Provider>>),
    /// A command on the database.
    Command(Box<NewAuditEntry>),
}

impl Cause<'_> {
    async fn complete(
        &self,
        tx: &DatabaseTransaction,
        provider: &Provider,
    ) -> Result<(), StoreError> {
        match self {
            Self::Request(tenant, completion) => {
                idempotency::complete(tx, *tenant, completion.as_ref(), provider).await
            }
            Self::Command(entry) => audit::append(tx, (**entry).clone()).await,
        }
    }
}

impl TryFrom<Model> for Provider {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        let credential = row.sealed_credential.zip(row.credential_set_at);
        let hint = row.credential_hint.unwrap_or_default();
        Ok(Self {
            credential: credential.map(|(sealed, set_at)| SealedCredential {
                sealed,
                hint,
                set_at: set_at.at(),
            }),
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

/// What about a provider changes the supply without a reading.
#[derive(Debug, Clone, PartialEq, Eq, FromQueryResult)]
pub struct ProviderStanding {
    /// Its id.
    pub id: String,
    /// Whether its offers are sold.
    pub enabled: bool,
    /// Why the last attempt to read it gave nothing; `None` when it did.
    pub stale_reason: Option<String>,
    /// Where its interface is, when not where its adapter says.
    pub base_url: Option<String>,
    /// When its credential was entered, if it was.
    pub credential_set_at: Option<DateTime<Utc>>,
}

service_wide!(Providers, providers, "providers");

impl Providers<'_> {
    /// Makes a provider known, enabled; one that is known stays as it is.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn ensure(
        &self,
        id: &ProviderId,
        now: DateTime<Utc>,
    ) -> Result<Provider, StoreError> {
        Entity::insert(unread(id, now).into_active_model())
            .on_conflict(OnConflict::column(Column::Id).do_nothing().to_owned())
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

    /// How every provider stands, by id: little enough to be read each second.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn standings(&self) -> Result<Vec<ProviderStanding>, StoreError> {
        let standings = Entity::find()
            .select_only()
            .columns([
                Column::Id,
                Column::Enabled,
                Column::StaleReason,
                Column::BaseUrl,
                Column::CredentialSetAt,
            ])
            .order_by_asc(Column::Id)
            .into_model()
            .all(&self.store.read)
            .await?;
        Ok(standings)
    }

    /// Enters a credential for a provider that has none, and makes the provider known.
    ///
    /// Errors: [`Conflict::Exists`] when it has one; [`StoreError::Stale`] when the request of
    /// `cause` was taken over.
    pub async fn enter(
        &self,
        id: &ProviderId,
        change: &ProviderChange,
        now: DateTime<Utc>,
        cause: &Cause<'_>,
    ) -> Result<Provider, StoreError> {
        transaction!(self.store, |tx| {
            Entity::insert(unread(id, now).into_active_model())
                .on_conflict(OnConflict::column(Column::Id).do_nothing().to_owned())
                .exec_without_returning(tx)
                .await?;
            let row = lock(tx, id).await?;
            if row.sealed_credential.is_some() {
                let what = "a credential of the provider";
                return Err(Conflict::Exists { what }.into());
            }
            write(tx, row, change, cause).await
        })
    }

    /// Changes a provider.
    ///
    /// Errors: [`StoreError::NotFound`]; [`Conflict::ProviderInUse`] when the credential is to be
    /// forgotten and leases there are not gone; [`StoreError::Stale`] when the request of `cause`
    /// was taken over.
    pub async fn change(
        &self,
        id: &ProviderId,
        change: &ProviderChange,
        cause: &Cause<'_>,
    ) -> Result<Provider, StoreError> {
        transaction!(self.store, |tx| {
            let row = lock(tx, id).await?;
            if change.credential == Some(None) && row.sealed_credential.is_some() {
                let live = leases::Entity::find()
                    .filter(leases::Column::ProviderId.eq(Text(id.clone())))
                    .filter(leases::Column::State.ne(Word(LeaseState::Gone)))
                    .count(tx)
                    .await?;
                if live > 0 {
                    return Err(Conflict::ProviderInUse.into());
                }
            }
            write(tx, row, change, cause).await
        })
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

/// A provider that was never read.
fn unread(id: &ProviderId, now: DateTime<Utc>) -> Model {
    Model {
        id: Text(id.clone()),
        enabled: true,
        base_url: None,
        created_at: now.into(),
        last_attempt_at: None,
        last_complete_at: None,
        stale_reason: None,
        last_generation: None,
        live_offers: 0,
        skipped: Json(Vec::new()),
        sealed_credential: None,
        credential_hint: None,
        credential_set_at: None,
    }
}

/// The provider, locked until the end of the transaction.
async fn lock(tx: &DatabaseTransaction, id: &ProviderId) -> Result<Model, StoreError> {
    Entity::find_by_id(Text(id.clone()))
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound { what: "provider" })
}

async fn write(
    tx: &DatabaseTransaction,
    mut row: Model,
    change: &ProviderChange,
    cause: &Cause<'_>,
) -> Result<Provider, StoreError> {
    if let Some(enabled) = change.enabled {
        row.enabled = enabled;
    }
    if let Some(base_url) = &change.base_url {
        row.base_url.clone_from(base_url);
    }
    if let Some(credential) = change.credential.clone() {
        row.credential_set_at = credential.as_ref().map(|new| new.set_at.into());
        row.credential_hint = credential.as_ref().map(|new| new.hint.clone());
        row.sealed_credential = credential.map(|new| new.sealed);
    }
    Entity::update(row.clone().into_active_model().reset_all())
        .validate()?
        .exec(tx)
        .await?;
    let provider = Provider::try_from(row)?;
    cause.complete(tx, &provider).await?;
    Ok(provider)
}

fn found(rows: u64) -> Result<(), StoreError> {
    if rows == 0 {
        Err(StoreError::NotFound { what: "provider" })
    } else {
        Ok(())
    }
}
