//! Webhook endpoints: where tenants want their events sent.
//!
//! An event's deliveries are rows of the event's own transaction: every endpoint that existed then has one,
//! or the event never happened. `claims` has the workers that send them.

mod claims;
mod deliveries;

use chrono::{DateTime, Utc};
use market::event::{Event, EventType};
use market::ids::{TenantId, WebhookDeliveryId, WebhookEndpointId};
use sea_orm::sea_query::{Expr, LockType};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};

use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::{webhook_deliveries, webhook_endpoints};
use crate::events::uuid_at;
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::sealed::{SealedColumn, SealedFor};
use crate::tx::transaction;
use crate::{Conflict, StoreError, room};

pub(crate) use claims::due;
pub use claims::{ClaimedDelivery, Deliveries, NewAttempt, Outcome};
pub use deliveries::{Attempt, Delivery, DeliveryState};

/// The purpose that the secrets of endpoints are sealed for.
pub const SEALED_FOR: &str = "webhook";
pub(crate) const SEALED: [SealedColumn; 2] =
    [sealed("sealed_secret"), sealed("sealed_previous_secret")];

const fn sealed(column: &'static str) -> SealedColumn {
    SealedColumn {
        table: "webhook_endpoints",
        key: "id",
        column,
        purpose: SealedFor::Word(SEALED_FOR),
    }
}

/// How many endpoints a tenant may have: each costs a row in every change with an event.
pub const MAX_ENDPOINTS: u64 = 20;

/// Why nothing is sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledReason {
    /// The tenant asked for it.
    Asked,
    /// It answered 410.
    Gone,
    /// It only ever failed, for too long.
    Failing,
}

/// A webhook endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookEndpoint {
    /// Its id.
    pub id: WebhookEndpointId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// Where events are sent. It may hold a secret of the receiver.
    pub url: String,
    /// The tenant's description.
    pub description: String,
    /// The kinds of events that it wants; all, when none is named.
    pub event_types: Vec<EventType>,
    /// Why nothing is sent; `None` while it is enabled.
    pub disabled: Option<DisabledReason>,
    /// The secret that signs, sealed.
    pub sealed_secret: Vec<u8>,
    /// The previous secret, sealed, and until when it also signs.
    pub sealed_previous: Option<(Vec<u8>, DateTime<Utc>)>,
    /// Since when every attempt failed.
    pub failing_since: Option<DateTime<Utc>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

impl std::fmt::Debug for WebhookEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookEndpoint")
            .field("id", &self.id)
            .field("tenant_id", &self.tenant_id)
            .field("url", &"***")
            .field("event_types", &self.event_types)
            .field("disabled", &self.disabled)
            .finish_non_exhaustive()
    }
}

impl From<webhook_endpoints::Model> for WebhookEndpoint {
    fn from(row: webhook_endpoints::Model) -> Self {
        Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            url: row.url,
            description: row.description,
            event_types: row.event_types.0,
            disabled: row.disabled_reason.map(|why| why.0),
            sealed_secret: row.sealed_secret.unwrap_or_default(),
            sealed_previous: row
                .sealed_previous_secret
                .zip(row.previous_until.map(Moment::at)),
            failing_since: row.failing_since.map(Moment::at),
            created_at: row.created_at.at(),
        }
    }
}

/// An endpoint to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct NewWebhookEndpoint {
    /// Its id.
    pub id: WebhookEndpointId,
    /// Where events are sent.
    pub url: String,
    /// The tenant's description.
    pub description: String,
    /// The kinds of events that it wants; all, when none is named.
    pub event_types: Vec<EventType>,
    /// Whether anything is sent yet.
    pub enabled: bool,
    /// The secret that signs, sealed.
    pub sealed_secret: Vec<u8>,
}

/// A change of an endpoint; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointChange {
    /// Where events are sent.
    pub url: Option<String>,
    /// The tenant's description.
    pub description: Option<String>,
    /// The kinds of events that it wants; all, when none is named.
    pub event_types: Option<Vec<EventType>>,
    /// Whether anything is sent.
    pub enabled: Option<bool>,
}

tenant_scoped!(
    WebhookEndpoints,
    webhook_endpoints,
    TenantWebhookEndpoints,
    "webhook endpoints"
);

impl TenantWebhookEndpoints<'_> {
    /// Stores a new endpoint.
    ///
    /// Errors: [`Conflict::TooMany`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn add(
        &self,
        new: NewWebhookEndpoint,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, WebhookEndpoint>>,
    ) -> Result<WebhookEndpoint, StoreError> {
        let row = webhook_endpoints::Model {
            id: Text(new.id),
            tenant_id: Text(self.tenant),
            url: new.url,
            description: new.description,
            event_types: Json(new.event_types),
            enabled: new.enabled,
            disabled_reason: (!new.enabled).then_some(Word(DisabledReason::Asked)),
            sealed_secret: Some(new.sealed_secret),
            sealed_previous_secret: None,
            previous_until: None,
            failing_since: None,
            created_at: now.into(),
            deleted_at: None,
        };
        transaction!(self.store, |tx| {
            let there = webhook_endpoints::Entity::find().filter(of_tenant(self.tenant));
            if room::count_alone(tx, self.tenant, there).await? >= MAX_ENDPOINTS {
                let (what, most) = ("webhook endpoints", MAX_ENDPOINTS);
                return Err(Conflict::TooMany { what, most }.into());
            }
            webhook_endpoints::Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            let endpoint = WebhookEndpoint::from(row.clone());
            idempotency::complete(tx, self.tenant, completion.as_ref(), &endpoint).await?;
            Ok(endpoint)
        })
    }

    /// The tenant's endpoints, the newest first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(&self) -> Result<Vec<WebhookEndpoint>, StoreError> {
        let rows = webhook_endpoints::Entity::find()
            .filter(of_tenant(self.tenant))
            .order_by_desc(webhook_endpoints::Column::Id)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(WebhookEndpoint::from).collect())
    }

    /// The tenant's endpoint with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: WebhookEndpointId) -> Result<Option<WebhookEndpoint>, StoreError> {
        let row = webhook_endpoints::Entity::find_by_id(Text(id))
            .filter(of_tenant(self.tenant))
            .one(&self.store.read)
            .await?;
        Ok(row.map(WebhookEndpoint::from))
    }

    /// Changes an endpoint. One that is enabled again starts with a clean record.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn change(
        &self,
        id: WebhookEndpointId,
        change: &EndpointChange,
        completion: Option<Completion<'_, WebhookEndpoint>>,
    ) -> Result<WebhookEndpoint, StoreError> {
        transaction!(self.store, |tx| {
            let mut row = lock(tx, self.tenant, id).await?;
            if let Some(url) = &change.url {
                row.url.clone_from(url);
            }
            if let Some(description) = &change.description {
                row.description.clone_from(description);
            }
            if let Some(kinds) = &change.event_types {
                row.event_types = Json(kinds.clone());
            }
            match change.enabled {
                Some(true) if !row.enabled => {
                    row.failing_since = None;
                    row.set_disabled(None);
                }
                Some(false) if row.enabled => row.set_disabled(Some(DisabledReason::Asked)),
                _ => {}
            }
            write(tx, row.clone()).await?;
            let endpoint = WebhookEndpoint::from(row);
            idempotency::complete(tx, self.tenant, completion.as_ref(), &endpoint).await?;
            Ok(endpoint)
        })
    }

    /// Sets a new secret; the previous one also signs until `previous_until`.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn rotate(
        &self,
        id: WebhookEndpointId,
        sealed_secret: &[u8],
        previous_until: DateTime<Utc>,
        completion: Option<Completion<'_, WebhookEndpoint>>,
    ) -> Result<WebhookEndpoint, StoreError> {
        transaction!(self.store, |tx| {
            let mut row = lock(tx, self.tenant, id).await?;
            row.sealed_previous_secret = row.sealed_secret.replace(sealed_secret.to_vec());
            row.previous_until = Some(previous_until.into());
            write(tx, row.clone()).await?;
            let endpoint = WebhookEndpoint::from(row);
            idempotency::complete(tx, self.tenant, completion.as_ref(), &endpoint).await?;
            Ok(endpoint)
        })
    }

    /// Deletes an endpoint, its secrets and its queued deliveries.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn delete(
        &self,
        id: WebhookEndpointId,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, ()>>,
    ) -> Result<(), StoreError> {
        use webhook_deliveries::Column as Sent;
        transaction!(self.store, |tx| {
            let mut row = lock(tx, self.tenant, id).await?;
            row.set_disabled(Some(DisabledReason::Asked));
            row.url = String::new();
            row.sealed_secret = None;
            row.sealed_previous_secret = None;
            row.previous_until = None;
            row.deleted_at = Some(now.into());
            write(tx, row).await?;
            webhook_deliveries::Entity::update_many()
                .col_expr(Sent::State, Expr::value(Word(DeliveryState::Failed)))
                .col_expr(Sent::DueAt, Expr::value(None::<Moment>))
                .filter(Sent::EndpointId.eq(Text(id)))
                .filter(Sent::State.eq(Word(DeliveryState::Pending)))
                .exec(tx)
                .await?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &()).await
        })
    }
}

fn of_tenant(tenant: TenantId) -> Condition {
    Condition::all()
        .add(webhook_endpoints::Column::TenantId.eq(Text(tenant)))
        .add(webhook_endpoints::Column::DeletedAt.is_null())
}

impl webhook_endpoints::Model {
    fn set_disabled(&mut self, why: Option<DisabledReason>) {
        self.enabled = why.is_none();
        self.disabled_reason = why.map(Word);
    }
}

/// The tenant's endpoint, locked until the end of the transaction.
async fn lock(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    id: WebhookEndpointId,
) -> Result<webhook_endpoints::Model, StoreError> {
    webhook_endpoints::Entity::find_by_id(Text(id))
        .filter(of_tenant(tenant))
        // Not stronger: queued deliveries refer to the row and must not wait.
        .lock(LockType::NoKeyUpdate)
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound {
            what: "webhook endpoint",
        })
}

/// Writes back a locked row.
async fn write(tx: &DatabaseTransaction, row: webhook_endpoints::Model) -> Result<(), StoreError> {
    use sea_orm::ActiveValue::{Set, Unchanged};
    let changed = webhook_endpoints::ActiveModel {
        id: Unchanged(row.id),
        url: Set(row.url),
        description: Set(row.description),
        event_types: Set(row.event_types),
        enabled: Set(row.enabled),
        disabled_reason: Set(row.disabled_reason),
        sealed_secret: Set(row.sealed_secret),
        sealed_previous_secret: Set(row.sealed_previous_secret),
        previous_until: Set(row.previous_until),
        failing_since: Set(row.failing_since),
        deleted_at: Set(row.deleted_at),
        ..webhook_endpoints::ActiveModel::default()
    };
    webhook_endpoints::Entity::update(changed)
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

/// Queues events for the tenant's endpoints that want them.
pub(crate) async fn send_on(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    events: &[Event],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let endpoints: Vec<(Text<WebhookEndpointId>, Json<Vec<EventType>>)> =
        webhook_endpoints::Entity::find()
            .select_only()
            .column(webhook_endpoints::Column::Id)
            .column(webhook_endpoints::Column::EventTypes)
            .filter(of_tenant(tenant))
            .filter(webhook_endpoints::Column::Enabled.eq(true))
            .into_tuple()
            .all(tx)
            .await?;
    let mut rows = Vec::new();
    for (endpoint, Json(wanted)) in endpoints {
        let wants = |event: &&Event| wanted.is_empty() || wanted.contains(&event.kind);
        let on_their_way = events.iter().filter(wants);
        rows.extend(on_their_way.map(|event| delivery_row(tenant, endpoint.0, event, now)));
    }
    if rows.is_empty() {
        return Ok(());
    }
    let rows = rows.into_iter().map(IntoActiveModel::into_active_model);
    webhook_deliveries::Entity::insert_many(rows)
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

fn delivery_row(
    tenant: TenantId,
    endpoint: WebhookEndpointId,
    event: &Event,
    now: DateTime<Utc>,
) -> webhook_deliveries::Model {
    webhook_deliveries::Model {
        id: Text(WebhookDeliveryId::from_uuid(uuid_at(now))),
        tenant_id: Text(tenant),
        endpoint_id: Text(endpoint),
        event_id: Text(event.id),
        state: Word(DeliveryState::Pending),
        tries: 0,
        due_at: Some(now.into()),
        claim_token: None,
        claim_expires_at: None,
        created_at: now.into(),
    }
}
