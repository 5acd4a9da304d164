//! Providers, the state of their catalogues, and the sealed credentials of providers that were entered at run
//! time.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use market::catalog::Skipped;
use market::ids::{OfferId, ProviderId, TenantId};
use market::lease::LeaseState;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DatabaseTransaction, EntityTrait, FromQueryResult,
    IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait,
};

use crate::audit::{self, NewAuditEntry};
use crate::catalog::Generation;
use crate::change::NewLease;
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::providers::{Column, Entity, Model};
use crate::entity::{holds, leases, offers};
use crate::idempotency::{self, Completion};
use crate::scope::service_wide;
use crate::sealed::{SealedColumn, SealedFor};
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// A credential is sealed for the id of its provider: in the row of another one it cannot be opened.
pub(crate) const SEALED: SealedColumn = SealedColumn {
    table: "providers",
    key: "id",
    column: "sealed_credential",
    purpose: SealedFor::WordIn("id"),
};

/// A stored credential. Its debug form shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedCredential {
    /// The credential, sealed for the id of its provider.
    pub sealed: Vec<u8>,
    /// Its last four characters, by which a person recognises it.
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

/// The suspension of a provider: nothing new is sold there for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The reason, in words that tenants read.
    pub reason: String,
    /// Since when.
    pub since: DateTime<Utc>,
    /// When it ends by itself.
    pub until: DateTime<Utc>,
}

/// A stored provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// Whether its offers are sold and its catalogue is read.
    pub enabled: bool,
    /// The URL of its API, if not the adapter's default.
    pub base_url: Option<String>,
    /// When it was registered.
    pub created_at: DateTime<Utc>,
    /// When its catalogue was last requested.
    pub last_attempt_at: Option<DateTime<Utc>>,
    /// When its catalogue was last read: offers of that reading are as old as this.
    pub last_read_at: Option<DateTime<Utc>>,
    /// When its catalogue was last read completely.
    pub last_complete_at: Option<DateTime<Utc>>,
    /// Why the last attempt failed; `None` when it succeeded.
    pub stale_reason: Option<String>,
    /// The last reading that was applied.
    pub last_generation: Option<Generation>,
    /// Offers of its last reading.
    pub live_offers: u32,
    /// Records of the last reading that are no offer (500 at most, unreadable ones first).
    pub skipped: Vec<Skipped>,
    /// The credential that was entered at run time; `None` for a credential from the configuration, and for
    /// providers that are only in price lists.
    pub credential: Option<SealedCredential>,
    /// Its last suspension, unless it was ended early; it may be over.
    pub quarantine: Option<Quarantine>,
}

impl Provider {
    /// The suspension in force at this time.
    #[must_use]
    pub fn quarantine_at(&self, now: DateTime<Utc>) -> Option<&Quarantine> {
        self.quarantine.as_ref().filter(|one| now < one.until)
    }
}

/// A change of a provider; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderChange {
    /// Whether its offers are sold and its catalogue is read.
    pub enabled: Option<bool>,
    /// The URL of its API; `Some(None)` for the adapter's default.
    pub base_url: Option<Option<String>>,
    /// Its credential; `Some(None)` deletes it.
    pub credential: Option<Option<SealedCredential>>,
    /// Its suspension; `Some(None)` ends it.
    pub quarantine: Option<Option<Quarantine>>,
}

/// The cause of a change, and the additions to its transaction.
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
        let quarantine = row
            .quarantine_reason
            .zip(row.quarantined_at)
            .zip(row.quarantined_until);
        Ok(Self {
            quarantine: quarantine.map(|((reason, since), until)| Quarantine {
                reason,
                since: since.at(),
                until: until.at(),
            }),
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
            last_read_at: row.last_read_at.map(Moment::at),
            last_complete_at: row.last_complete_at.map(Moment::at),
            stale_reason: row.stale_reason,
            last_generation: row.last_generation.map(Generation::try_from).transpose()?,
            live_offers: u32::try_from(row.live_offers).map_err(StoreError::corrupt)?,
            skipped: row.skipped.0,
        })
    }
}

/// The properties of a provider that change the supply without a reading.
#[derive(Debug, Clone, PartialEq, Eq, FromQueryResult)]
pub struct ProviderStanding {
    /// Its id.
    pub id: String,
    /// Whether its offers are sold.
    pub enabled: bool,
    /// Why the last attempt to read it failed; `None` when it succeeded.
    pub stale_reason: Option<String>,
    /// The URL of its API, if not the adapter's default.
    pub base_url: Option<String>,
    /// When its credential was entered, if it was.
    pub credential_set_at: Option<DateTime<Utc>>,
    /// Why nothing new is sold there, while `quarantined_until` is in the future.
    pub quarantine_reason: Option<String>,
    /// When its suspension ends by itself.
    pub quarantined_until: Option<DateTime<Utc>>,
}

service_wide!(Providers, providers, "providers");

impl Providers<'_> {
    /// Registers a provider, enabled; one that is registered stays as it is.
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

    /// The provider with this id.
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

    /// The standing of every provider, by id: little enough to be read each second.
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
                Column::QuarantineReason,
                Column::QuarantinedUntil,
            ])
            .order_by_asc(Column::Id)
            .into_model()
            .all(&self.store.read)
            .await?;
        Ok(standings)
    }

    /// Enters a credential for a provider that has none, and registers the provider.
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
    /// Errors: [`StoreError::NotFound`]; [`Conflict::ProviderInUse`] when the credential is to be deleted
    /// while the provider is enabled, or holds or leases there are open; [`StoreError::Stale`] when the
    /// request of `cause` was taken over.
    pub async fn change(
        &self,
        id: &ProviderId,
        change: &ProviderChange,
        cause: &Cause<'_>,
    ) -> Result<Provider, StoreError> {
        transaction!(self.store, |tx| {
            let row = lock(tx, id).await?;
            if change.credential == Some(None) && row.sealed_credential.is_some() {
                let stays_enabled = change.enabled.unwrap_or(row.enabled);
                if stays_enabled || is_in_use(tx, id).await? {
                    return Err(Conflict::ProviderInUse.into());
                }
            }
            write(tx, row, change, cause).await
        })
    }

    /// Records that nothing of the catalogue could be read. Its offers stay unchanged, and age.
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
        if changed.rows_affected == 0 {
            return Err(StoreError::NotFound { what: "provider" });
        }
        Ok(())
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
        last_read_at: None,
        last_complete_at: None,
        stale_reason: None,
        last_generation: None,
        live_offers: 0,
        skipped: Json(Vec::new()),
        sealed_credential: None,
        credential_hint: None,
        credential_set_at: None,
        quarantine_reason: None,
        quarantined_at: None,
        quarantined_until: None,
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

/// Whether there are holds or orders at the provider, which is locked.
async fn is_in_use(tx: &DatabaseTransaction, id: &ProviderId) -> Result<bool, StoreError> {
    let its_offers = offers::Entity::find()
        .select_only()
        .column(offers::Column::Id)
        .filter(offers::Column::ProviderId.eq(Text(id.clone())))
        .into_query();
    let held = holds::Entity::find()
        .filter(holds::Column::Live.eq(true))
        .filter(holds::Column::OfferId.in_subquery(its_offers))
        .count(tx)
        .await?;
    let ordered = leases::Entity::find()
        .filter(leases::Column::ProviderId.eq(Text(id.clone())))
        .filter(leases::Column::State.ne(Word(LeaseState::Gone)))
        .count(tx)
        .await?;
    Ok(held > 0 || ordered > 0)
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
        let before = row.credential_set_at.map(Moment::at);
        row.credential_set_at = credential.as_ref().map(|new| later(new.set_at, before));
        row.credential_hint = credential.as_ref().map(|new| new.hint.clone());
        row.sealed_credential = credential.map(|new| new.sealed);
    }
    if let Some(quarantine) = change.quarantine.clone() {
        row.quarantined_at = quarantine.as_ref().map(|new| new.since.into());
        row.quarantined_until = quarantine.as_ref().map(|new| new.until.into());
        row.quarantine_reason = quarantine.map(|new| new.reason);
    }
    Entity::update(row.clone().into_active_model().reset_all())
        .validate()?
        .exec(tx)
        .await?;
    let provider = Provider::try_from(row)?;
    cause.complete(tx, &provider).await?;
    Ok(provider)
}

/// When a credential was entered; later than the one before, because replicas detect a new credential by this
/// time.
fn later(set_at: DateTime<Utc>, before: Option<DateTime<Utc>>) -> Moment {
    let set_at = Moment::from(set_at).at();
    let earliest = before.map(|before| before + TimeDelta::microseconds(1));
    earliest
        .map_or(set_at, |earliest| set_at.max(earliest))
        .into()
}

/// Checks that something new may be sold at each of these providers, and that this does not change before the
/// end of the transaction: disabling one, or deleting its credential, waits for it.
///
/// Errors: [`Conflict::ProviderDisabled`], [`Conflict::ProviderQuarantined`].
pub(crate) async fn check_open(
    tx: &DatabaseTransaction,
    providers: &BTreeSet<ProviderId>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for provider in pin(tx, providers).await? {
        if let Some(Quarantine { reason, until, .. }) = provider.quarantine_at(now).cloned() {
            return Err(Conflict::ProviderQuarantined {
                provider: provider.id,
                reason,
                until,
            }
            .into());
        }
        if !provider.enabled {
            return Err(Conflict::ProviderDisabled {
                provider: provider.id,
            }
            .into());
        }
    }
    Ok(())
}

/// These providers, locked in their present state until the end of the transaction.
async fn pin(
    tx: &DatabaseTransaction,
    providers: &BTreeSet<ProviderId>,
) -> Result<Vec<Provider>, StoreError> {
    if providers.is_empty() {
        return Ok(Vec::new());
    }
    let ids = providers.iter().cloned().map(Text);
    let rows = Entity::find()
        .filter(Column::Id.is_in(ids))
        .order_by_asc(Column::Id)
        .lock_shared()
        .all(tx)
        .await?;
    rows.into_iter().map(Provider::try_from).collect()
}

/// Checks that these leases may be ordered, and that nobody deletes the credential of their providers before
/// they are saved. `needs` are the nodes that they take beyond their holds.
///
/// Held nodes are ordered even at a provider that was disabled since, because its credential is not deleted
/// while there are holds there. The order is not sent, and its lease is replaced by another.
/// Errors: [`Conflict::ProviderDisabled`], [`Conflict::ProviderQuarantined`], for nodes that were not held.
pub(crate) async fn check_orders(
    tx: &DatabaseTransaction,
    orders: &[NewLease],
    needs: &BTreeMap<OfferId, u32>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (mut held, mut new) = (BTreeSet::new(), BTreeSet::new());
    for order in orders {
        let provider = order.offer.provider.clone();
        match needs.contains_key(&order.offer.offer_id) {
            true => new.insert(provider),
            false => held.insert(provider),
        };
    }
    pin(tx, &held).await?;
    check_open(tx, &new, now).await
}
