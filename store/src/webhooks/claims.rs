//! How workers deliver: claim, attempt, record.
//!
//! A worker claims the due deliveries of one endpoint with a token and an expiry, sends with no transaction
//! open, and records the result, guarded by the token. If it dies in between, its rows are claimed again: an
//! event is delivered at least once.

use chrono::{DateTime, TimeDelta, Utc};
use market::event::{Event, EventType};
use market::ids::{TenantId, WebhookDeliveryId, WebhookEndpointId};
use sea_orm::sea_query::{Expr, LockBehavior, LockType};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, Order, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait,
};
use serde_json::json;

use super::deliveries::{DeliveryState, events_of, write};
use super::{DisabledReason, WebhookEndpoint, lock};
use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::webhook_deliveries::{Column, Entity, Model};
use crate::entity::{webhook_attempts, webhook_endpoints};
use crate::events::{NewEvent, append};
use crate::scope::service_wide;
use crate::tx::transaction;
use crate::work::ClaimToken;

/// An attempt that was just made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewAttempt {
    /// When it began.
    pub at: DateTime<Utc>,
    /// How long it took. Units: milliseconds.
    pub latency_ms: u32,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The beginning of the answer.
    pub answer: Option<String>,
    /// What went wrong, in words; needed where there is no status.
    pub error: Option<String>,
}

/// The consequence of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint accepted it.
    Delivered,
    /// It is retried at this time.
    Again(DateTime<Utc>),
    /// It is not retried.
    GivenUp,
    /// It is not retried, and the endpoint wants nothing more.
    Gone,
}

/// A delivery that a worker has claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedDelivery {
    /// Its id.
    pub id: WebhookDeliveryId,
    /// The endpoint.
    pub endpoint: WebhookEndpoint,
    /// The event to send.
    pub event: Event,
    /// How often it was tried since it was last queued.
    pub tries: u32,
    token: ClaimToken,
}

service_wide!(
    Deliveries,
    deliveries,
    "events on their way to webhook endpoints"
);

/// Due deliveries that no worker has claimed, to enabled endpoints.
pub(crate) fn due(now: DateTime<Utc>) -> Condition {
    let enabled = webhook_endpoints::Entity::find()
        .select_only()
        .column(webhook_endpoints::Column::Id)
        .filter(webhook_endpoints::Column::Enabled.eq(true))
        .into_query();
    let free = Condition::any()
        .add(Column::ClaimExpiresAt.is_null())
        .add(Column::ClaimExpiresAt.lte(Moment::from(now)));
    Condition::all()
        .add(Column::State.eq(Word(DeliveryState::Pending)))
        .add(Column::DueAt.lte(Moment::from(now)))
        .add(Column::EndpointId.in_subquery(enabled))
        .add(free)
}

impl Deliveries<'_> {
    /// Up to `limit` endpoints with due deliveries, with their tenants, the longest due first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn due_endpoints(
        &self,
        now: DateTime<Utc>,
        limit: u64,
    ) -> Result<Vec<(TenantId, WebhookEndpointId)>, StoreError> {
        let ids: Vec<(Text<TenantId>, Text<WebhookEndpointId>)> = Entity::find()
            .select_only()
            .columns([Column::TenantId, Column::EndpointId])
            .filter(due(now))
            .group_by(Column::TenantId)
            .group_by(Column::EndpointId)
            .order_by(Column::DueAt.min(), Order::Asc)
            .limit(limit)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        Ok(ids.into_iter().map(|(of, id)| (of.0, id.0)).collect())
    }

    /// Claims up to `limit` due deliveries to an endpoint that no worker has claimed, the longest due first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn claim(
        &self,
        endpoint: WebhookEndpointId,
        token: ClaimToken,
        now: DateTime<Utc>,
        ttl_seconds: u32,
        limit: u64,
    ) -> Result<Vec<ClaimedDelivery>, StoreError> {
        let candidates = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(due(now))
            .filter(Column::EndpointId.eq(Text(endpoint)))
            .order_by_asc(Column::DueAt)
            .order_by_asc(Column::Id)
            .limit(limit)
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
            .into_query();
        let expiry = Moment::from(now + TimeDelta::seconds(i64::from(ttl_seconds)));
        transaction!(self.store, |tx| {
            let rows = Entity::update_many()
                .col_expr(Column::ClaimToken, Expr::value(Text(token)))
                .col_expr(Column::ClaimExpiresAt, Expr::value(expiry))
                .filter(Column::Id.in_subquery(candidates.clone()))
                .exec_with_returning(tx)
                .await?;
            claimed(tx, endpoint, token, rows).await
        })
    }

    /// Records an attempt and its consequence; returns whether it disabled the endpoint.
    ///
    /// An endpoint is disabled when it is gone, and when it has only failed for `patience`; an event reports
    /// it.
    /// Errors: [`StoreError::Stale`] when another worker has claimed the delivery meanwhile, or it was queued
    /// again.
    pub async fn record(
        &self,
        claimed: &ClaimedDelivery,
        attempt: &NewAttempt,
        outcome: Outcome,
        patience: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        transaction!(self.store, |tx| {
            let mut row = Entity::find_by_id(Text(claimed.id))
                .lock_exclusive()
                .one(tx)
                .await?
                .filter(|row| row.claim_token == Some(Text(claimed.token)))
                .ok_or(StoreError::Stale)?;
            add_attempt(tx, claimed.id, attempt).await?;
            if row.state.0 == DeliveryState::Pending {
                let (state, due_at) = match outcome {
                    Outcome::Delivered => (DeliveryState::Delivered, None),
                    Outcome::Again(at) => (DeliveryState::Pending, Some(at)),
                    Outcome::GivenUp | Outcome::Gone => (DeliveryState::Failed, None),
                };
                row.state = Word(state);
                row.due_at = due_at.map(Moment::from);
            }
            row.tries += 1;
            row.claim_token = None;
            row.claim_expires_at = None;
            write(tx, row).await?;
            judge(tx, &claimed.endpoint, outcome, patience, now).await
        })
    }
}

/// How many attempts of a delivery are kept, the newest: it may be sent again without end, and lists read
/// them whole.
const KEPT_ATTEMPTS: i32 = 20;

async fn add_attempt(
    tx: &DatabaseTransaction,
    id: WebhookDeliveryId,
    attempt: &NewAttempt,
) -> Result<(), StoreError> {
    use webhook_attempts::Column;
    let of_delivery = Column::DeliveryId.eq(Text(id));
    let last = webhook_attempts::Entity::find()
        .filter(of_delivery.clone())
        .order_by_desc(Column::Number)
        .one(tx)
        .await?;
    let number = last.map_or(0, |last| last.number).saturating_add(1);
    webhook_attempts::Entity::delete_many()
        .filter(of_delivery)
        .filter(Column::Number.lte(number.saturating_sub(KEPT_ATTEMPTS)))
        .exec(tx)
        .await?;
    let row = webhook_attempts::Model {
        delivery_id: Text(id),
        number,
        at: attempt.at.into(),
        latency_ms: i32::try_from(attempt.latency_ms).unwrap_or(i32::MAX),
        status: attempt.status.map(i32::from),
        answer: attempt.answer.clone(),
        error: attempt.error.clone(),
    };
    webhook_attempts::Entity::insert(row.into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

/// The consequence of an attempt for its endpoint.
async fn judge(
    tx: &DatabaseTransaction,
    endpoint: &WebhookEndpoint,
    outcome: Outcome,
    patience: TimeDelta,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    // Nothing to write while the endpoint works.
    if outcome == Outcome::Delivered && endpoint.failing_since.is_none() {
        return Ok(false);
    }
    let mut row = match lock(tx, endpoint.tenant_id, endpoint.id).await {
        // Deleted meanwhile.
        Err(StoreError::NotFound { .. }) => return Ok(false),
        locked => locked?,
    };
    row.failing_since = match outcome {
        Outcome::Delivered => None,
        _ => row.failing_since.or(Some(now.into())),
    };
    let failing = row
        .failing_since
        .is_some_and(|since| now - since.at() >= patience);
    let why = match outcome {
        Outcome::Gone => Some(DisabledReason::Gone),
        Outcome::Again(_) | Outcome::GivenUp if failing => Some(DisabledReason::Failing),
        _ => None,
    };
    let why = why.filter(|_| row.enabled);
    if why.is_some() {
        row.set_disabled(why);
    }
    super::write(tx, row).await?;
    let Some(why) = why else { return Ok(false) };
    let told = NewEvent {
        kind: EventType::WebhookDisabled,
        reservation_id: None,
        data: json!({ "endpoint_id": endpoint.id, "reason": why }),
    };
    append(tx, endpoint.tenant_id, &[told], now).await?;
    Ok(true)
}

async fn claimed(
    tx: &DatabaseTransaction,
    endpoint: WebhookEndpointId,
    token: ClaimToken,
    mut rows: Vec<Model>,
) -> Result<Vec<ClaimedDelivery>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    rows.sort_by_key(|row| (row.due_at, row.id.0));
    let endpoint = webhook_endpoints::Entity::find_by_id(Text(endpoint))
        .one(tx)
        .await?
        .map(WebhookEndpoint::from)
        .ok_or(StoreError::Stale)?;
    let mut events = events_of(tx, &rows).await?;
    rows.into_iter()
        .map(|row| {
            Ok(ClaimedDelivery {
                id: row.id.0,
                endpoint: endpoint.clone(),
                event: events.remove(&row.event_id.0).ok_or(StoreError::Stale)?,
                tries: u32::try_from(row.tries).map_err(StoreError::corrupt)?,
                token,
            })
        })
        .collect()
}
