//! The messages sent to an endpoint, the result of each attempt, and sending on request.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::event::Event;
use market::ids::{WebhookDeliveryId, WebhookEndpointId};
use serde::Serialize;
use store::webhooks::{Attempt, Delivery, DeliveryState};

use super::unknown;
use crate::http::access::WriteEvents;
use crate::http::auth::May;
use crate::http::body::NoBody;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::http::page::{Cursors, Page, WhichPage, limit};
use crate::http::query::Query;
use crate::platform::app::Broker;

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeliveryStateWord {
    /// It is tried, now or later.
    Pending,
    /// The endpoint took it.
    Delivered,
    /// It is tried no more.
    Failed,
}

/// How one attempt went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct AttemptView {
    /// Its number, from 1 on.
    #[schema(minimum = 1)]
    number: u32,
    /// When it began.
    at: DateTime<Utc>,
    /// How long it took, in milliseconds.
    latency_ms: u32,
    /// The status of the answer; `null` when there was none.
    #[schema(minimum = 100, maximum = 999)]
    status: Option<u16>,
    /// The first KiB of the answer.
    answer: Option<String>,
    /// The error.
    error: Option<String>,
}

impl From<&Attempt> for AttemptView {
    fn from(attempt: &Attempt) -> Self {
        Self {
            number: attempt.number,
            at: attempt.at,
            latency_ms: attempt.latency_ms,
            status: attempt.status,
            answer: attempt.answer.clone(),
            error: attempt.error.clone(),
        }
    }
}

/// An event on its way to an endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct DeliveryView {
    /// Its id.
    id: WebhookDeliveryId,
    /// Where it goes.
    endpoint_id: WebhookEndpointId,
    /// The message. Its id is the `webhook-id` of every attempt.
    event: Event,
    /// Where it stands.
    state: DeliveryStateWord,
    /// When it is tried next; `null` when it is tried no more.
    next_attempt_at: Option<DateTime<Utc>>,
    /// When the event happened.
    created_at: DateTime<Utc>,
    /// How each attempt went, the first one first.
    attempts: Vec<AttemptView>,
}

impl From<&Delivery> for DeliveryView {
    fn from(row: &Delivery) -> Self {
        Self {
            id: row.id,
            endpoint_id: row.endpoint_id,
            event: row.event.clone(),
            state: match row.state {
                DeliveryState::Pending => DeliveryStateWord::Pending,
                DeliveryState::Delivered => DeliveryStateWord::Delivered,
                DeliveryState::Failed => DeliveryStateWord::Failed,
            },
            next_attempt_at: row.due_at,
            created_at: row.created_at,
            attempts: row.attempts.iter().map(AttemptView::from).collect(),
        }
    }
}

fn render(row: &Delivery) -> store::idempotency::Answer {
    answer(StatusCode::ACCEPTED, &DeliveryView::from(row))
}

/// Lists the messages sent and pending to an endpoint, the newest first, with the result of each attempt.
#[utoipa::path(
    tag = "events",
    params(("id" = WebhookEndpointId, Path, description = "The endpoint"), WhichPage),
    responses((status = 200, description = "A page of deliveries", body = Page<DeliveryView>))
)]
#[get("/v1/webhook-endpoints/{id}/deliveries")]
pub(crate) async fn list_webhook_deliveries(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    id: web::Path<WebhookEndpointId>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<DeliveryView>>, ApiError> {
    let limit = limit(query.limit)?;
    let endpoints = broker.store().webhook_endpoints().of(who.tenant);
    if endpoints.find(*id).await?.is_none() {
        return Err(unknown(*id));
    }
    let cursors = Cursors::of(broker.keys(), "webhook-deliveries", &(who.tenant, *id));
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let found = endpoints.deliveries(*id, after, limit as u64 + 1).await?;
    let page = cursors.page(found, limit, |row| row.id);
    Ok(web::Json(page.map(|row| DeliveryView::from(&row))))
}

/// Sends an event of the type `webhook.test` to the endpoint, regardless of the types it asks for.
#[utoipa::path(
    tag = "events",
    params(("id" = WebhookEndpointId, Path, description = "The endpoint"), IdempotencyHeader),
    responses((status = 202, description = "The message is on its way", body = DeliveryView))
)]
#[post("/v1/webhook-endpoints/{id}/test")]
pub(crate) async fn test_webhook_endpoint(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    request: HttpRequest,
    id: web::Path<WebhookEndpointId>,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let endpoints = broker.store().webhook_endpoints().of(who.tenant);
        let sent = endpoints
            .test(*id, broker.now(), completion(effect, &render))
            .await?;
        broker.ring_events();
        Ok(render(&sent))
    })
    .await
}

/// Sends a message again, at once, under the same `webhook-id`.
#[utoipa::path(
    tag = "events",
    params(
        ("id" = WebhookEndpointId, Path, description = "The endpoint"),
        ("delivery" = WebhookDeliveryId, Path, description = "What was sent"),
        IdempotencyHeader,
    ),
    responses((status = 202, description = "The message is on its way", body = DeliveryView))
)]
#[post("/v1/webhook-endpoints/{id}/deliveries/{delivery}/redeliver")]
pub(crate) async fn redeliver_webhook(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    request: HttpRequest,
    path: web::Path<(WebhookEndpointId, WebhookDeliveryId)>,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    let (id, delivery) = path.into_inner();
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let endpoints = broker.store().webhook_endpoints().of(who.tenant);
        let sent = endpoints
            .redeliver(id, delivery, broker.now(), completion(effect, &render))
            .await?;
        broker.ring_events();
        Ok(render(&sent))
    })
    .await
}
