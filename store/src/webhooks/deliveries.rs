//! Deliveries in the tenant's view: one event on its way to one endpoint, with every attempt. `claims` has
//! the workers' part.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::event::{Event, EventType};
use market::ids::{EventId, TenantId, WebhookDeliveryId, WebhookEndpointId};
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect, QueryTrait,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{TenantWebhookEndpoints, delivery_row, lock};
use crate::audit;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::webhook_deliveries::{Column, Entity, Model};
use crate::entity::{events, webhook_attempts};
use crate::events::{NewEvent, record};
use crate::idempotency::{self, Completion};
use crate::room::Room;
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// How many tests of an endpoint may be pending when another is sent: all wait for the same receiver.
const TESTS: Room = Room {
    what: "pending tests of this endpoint",
    most: 100,
    instead: "wait until they have been tried, or delete the endpoint",
};

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It will be tried, now or later.
    Pending,
    /// The endpoint accepted it.
    Delivered,
    /// It is not retried.
    Failed,
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its number, from 1 on.
    pub number: u32,
    /// When it began.
    pub at: DateTime<Utc>,
    /// How long it took. Units: milliseconds.
    pub latency_ms: u32,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The beginning of the answer.
    pub answer: Option<String>,
    /// What went wrong, in words.
    pub error: Option<String>,
}

/// A delivery, in the tenant's view.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Its id.
    pub id: WebhookDeliveryId,
    /// The endpoint.
    pub endpoint_id: WebhookEndpointId,
    /// The event to send.
    pub event: Event,
    /// Its state.
    pub state: DeliveryState,
    /// When it is tried next.
    pub due_at: Option<DateTime<Utc>>,
    /// When the event happened.
    pub created_at: DateTime<Utc>,
    /// The result of each attempt, the first one first.
    pub attempts: Vec<Attempt>,
}

impl TenantWebhookEndpoints<'_> {
    /// The deliveries to an endpoint, the newest first, at most `limit`, those after `after` in
    /// that order.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn deliveries(
        &self,
        endpoint: WebhookEndpointId,
        after: Option<WebhookDeliveryId>,
        limit: u64,
    ) -> Result<Vec<Delivery>, StoreError> {
        let rows = Entity::find()
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .filter(Column::EndpointId.eq(Text(endpoint)))
            .filter(Condition::all().add_option(after.map(|last| Column::Id.lt(Text(last)))))
            .order_by_desc(Column::Id)
            .limit(limit)
            .all(&self.store.read)
            .await?;
        with_particulars(&self.store.read, rows).await
    }

    /// Sends an event of the kind `webhook.test` to one endpoint.
    ///
    /// Errors: [`StoreError::NotFound`]; [`Conflict::EndpointDisabled`]; [`Conflict::NoRoom`] where too many
    /// are pending; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn test(
        &self,
        endpoint: WebhookEndpointId,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Delivery>>,
    ) -> Result<Delivery, StoreError> {
        transaction!(self.store, |tx| {
            lock_enabled(tx, self.tenant, endpoint).await?;
            let event = Expr::col((events::Entity, events::Column::Id));
            let of_test = events::Entity::find()
                .select_only()
                .column(events::Column::Id)
                .filter(event.equals((Entity, Column::EventId)))
                .filter(events::Column::Kind.eq(Text(EventType::WebhookTest)))
                .into_query();
            let waiting = Entity::find()
                .filter(Column::EndpointId.eq(Text(endpoint)))
                .filter(Column::State.eq(Word(DeliveryState::Pending)))
                .filter(Expr::exists(of_test));
            TESTS.for_one_more(tx, self.tenant, waiting).await?;
            let test = NewEvent {
                kind: EventType::WebhookTest,
                reservation_id: None,
                data: json!({ "endpoint_id": endpoint }),
            };
            audit::lock_chain(tx, self.tenant).await?;
            let recorded = record(tx, self.tenant, &[test], now).await?;
            let mut sent = None;
            for event in &recorded {
                let row = delivery_row(self.tenant, endpoint, event, now);
                Entity::insert(row.clone().into_active_model())
                    .exec_without_returning(tx)
                    .await?;
                sent = with_particulars(tx, vec![row]).await?.pop();
            }
            let sent = sent.ok_or_else(|| StoreError::corrupt("an event was not recorded"))?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &sent).await?;
            Ok(sent)
        })
    }

    /// Queues a delivery again, due at once, with all its earlier attempts.
    ///
    /// Errors: [`StoreError::NotFound`]; [`Conflict::EndpointDisabled`]; [`StoreError::Stale`] when
    /// `completion` was taken over.
    pub async fn redeliver(
        &self,
        endpoint: WebhookEndpointId,
        id: WebhookDeliveryId,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Delivery>>,
    ) -> Result<Delivery, StoreError> {
        let missing = StoreError::NotFound {
            what: "webhook delivery",
        };
        let found = Entity::find_by_id(Text(id))
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .filter(Column::EndpointId.eq(Text(endpoint)));
        if found.clone().one(&self.store.read).await?.is_none() {
            return Err(missing);
        }
        transaction!(self.store, |tx| {
            lock_enabled(tx, self.tenant, endpoint).await?;
            let mut row = found
                .clone()
                .lock_exclusive()
                .one(tx)
                .await?
                .ok_or(StoreError::Stale)?;
            row.state = Word(DeliveryState::Pending);
            row.tries = 0;
            row.due_at = Some(now.into());
            // A worker that has claimed it finds that its result no longer counts.
            row.claim_token = None;
            row.claim_expires_at = None;
            write(tx, row.clone()).await?;
            let again = with_particulars(tx, vec![row]).await?.pop();
            let again = again.ok_or(StoreError::Stale)?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &again).await?;
            Ok(again)
        })
    }
}

async fn lock_enabled(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    endpoint: WebhookEndpointId,
) -> Result<(), StoreError> {
    match lock(tx, tenant, endpoint).await?.enabled {
        true => Ok(()),
        false => Err(Conflict::EndpointDisabled.into()),
    }
}

/// Writes the mutable columns of a locked row.
pub(super) async fn write(tx: &DatabaseTransaction, row: Model) -> Result<(), StoreError> {
    use sea_orm::ActiveValue::{Set, Unchanged};
    let changed = crate::entity::webhook_deliveries::ActiveModel {
        id: Unchanged(row.id),
        state: Set(row.state),
        tries: Set(row.tries),
        due_at: Set(row.due_at),
        claim_token: Set(row.claim_token),
        claim_expires_at: Set(row.claim_expires_at),
        ..Default::default()
    };
    Entity::update(changed).exec_without_returning(tx).await?;
    Ok(())
}

pub(super) async fn events_of(
    db: &impl ConnectionTrait,
    rows: &[Model],
) -> Result<HashMap<EventId, Event>, StoreError> {
    let ids = rows.iter().map(|row| row.event_id.clone());
    let found = events::Entity::find()
        .filter(events::Column::Id.is_in(ids))
        .all(db)
        .await?;
    found
        .into_iter()
        .map(|row| Ok((row.id.0, Event::try_from(row)?)))
        .collect()
}

/// Adds the event and the attempts of each delivery.
async fn with_particulars(
    db: &impl ConnectionTrait,
    rows: Vec<Model>,
) -> Result<Vec<Delivery>, StoreError> {
    let mut events = events_of(db, &rows).await?;
    let ids = rows.iter().map(|row| row.id.clone());
    let tried = webhook_attempts::Entity::find()
        .filter(webhook_attempts::Column::DeliveryId.is_in(ids))
        .order_by_asc(webhook_attempts::Column::Number)
        .all(db)
        .await?;
    let mut attempts: HashMap<WebhookDeliveryId, Vec<Attempt>> = HashMap::new();
    for row in tried {
        let of_delivery = attempts.entry(row.delivery_id.0).or_default();
        of_delivery.push(Attempt::try_from(row)?);
    }
    rows.into_iter()
        .map(|row| {
            let missing = || StoreError::corrupt("a delivery refers to no event");
            Ok(Delivery {
                id: row.id.0,
                endpoint_id: row.endpoint_id.0,
                event: events.remove(&row.event_id.0).ok_or_else(missing)?,
                state: row.state.0,
                due_at: row.due_at.map(Moment::at),
                created_at: row.created_at.at(),
                attempts: attempts.remove(&row.id.0).unwrap_or_default(),
            })
        })
        .collect()
}

impl TryFrom<webhook_attempts::Model> for Attempt {
    type Error = StoreError;

    fn try_from(row: webhook_attempts::Model) -> Result<Self, StoreError> {
        let whole = |number: i32| u32::try_from(number).map_err(StoreError::corrupt);
        let status = row.status.map(u16::try_from).transpose();
        Ok(Self {
            number: whole(row.number)?,
            at: row.at.at(),
            latency_ms: whole(row.latency_ms)?,
            status: status.map_err(StoreError::corrupt)?,
            answer: row.answer,
            error: row.error,
        })
    }
}
