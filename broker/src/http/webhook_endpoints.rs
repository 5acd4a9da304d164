//! `/v1/webhook-endpoints`: where a tenant wants its events sent. A secret is shown once.
//!
//! Looking takes the right to change: the address of an endpoint may be a secret of its receiver.

mod deliveries;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, patch, post, web};
use chrono::{DateTime, Utc};
use market::event::EventType;
use market::ids::WebhookEndpointId;
use serde::{Deserialize, Serialize};
use store::settings::DatabaseMode;
use store::webhooks::{DisabledReason, EndpointChange, NewWebhookEndpoint, WebhookEndpoint};

use super::access::WriteEvents;
use super::auth::May;
use super::body::{Body, NoBody};
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use super::page::{Cursors, Page, WhichPage};
use super::query::Query;
use crate::platform::address_guard::check_url;
use crate::platform::app::Broker;
use crate::tenant::webhooks::{self, WebhookSecret};

pub(crate) use deliveries::{list_webhook_deliveries, redeliver_webhook, test_webhook_endpoint};

/// Why nothing is sent to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhyDisabled {
    /// The tenant wished it.
    Asked,
    /// It answered 410.
    Gone,
    /// It only ever failed, for five days.
    Failing,
}

/// A webhook endpoint, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct WebhookEndpointView {
    /// Its id.
    id: WebhookEndpointId,
    /// Where events are sent.
    url: String,
    /// The tenant's note on it.
    description: String,
    /// The kinds of events that it gets; all, when the list is empty.
    event_types: Vec<EventType>,
    /// Whether anything is sent.
    enabled: bool,
    /// Why nothing is sent; `null` while it is enabled.
    disabled_reason: Option<WhyDisabled>,
    /// Since when every attempt failed; `null` while all is well.
    failing_since: Option<DateTime<Utc>>,
    /// Until when the secret before the last rotation signs along.
    previous_secret_until: Option<DateTime<Utc>>,
    /// When it was made.
    created_at: DateTime<Utc>,
}

impl From<&WebhookEndpoint> for WebhookEndpointView {
    fn from(row: &WebhookEndpoint) -> Self {
        Self {
            id: row.id,
            url: row.url.clone(),
            description: row.description.clone(),
            event_types: row.event_types.clone(),
            enabled: row.disabled.is_none(),
            disabled_reason: row.disabled.map(|why| match why {
                DisabledReason::Asked => WhyDisabled::Asked,
                DisabledReason::Gone => WhyDisabled::Gone,
                DisabledReason::Failing => WhyDisabled::Failing,
            }),
            failing_since: row.failing_since,
            previous_secret_until: row.sealed_previous.as_ref().map(|(_, until)| *until),
            created_at: row.created_at,
        }
    }
}

/// A webhook endpoint with a secret that was just made.
// It holds a secret, so it has no debug form.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct MadeWebhookEndpoint {
    /// The endpoint.
    #[serde(flatten)]
    endpoint: WebhookEndpointView,
    /// The secret (`whsec_…`), shown this once; `null` when the request is answered a second time.
    secret: Option<String>,
}

/// A webhook endpoint to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddWebhookEndpoint {
    /// The destination of events: a public `https` address.
    #[schema(min_length = 1, max_length = 2_000, format = "uri")]
    url: String,
    /// A note on it.
    #[serde(default)]
    #[schema(max_length = 200)]
    description: String,
    /// The kinds of events for it; all, when none is named.
    #[serde(default)]
    #[schema(max_items = 100)]
    event_types: Vec<EventType>,
    /// Whether the broker sends to it yet; true by default.
    #[serde(default = "yes")]
    #[schema(default = true)]
    enabled: bool,
}

const fn yes() -> bool {
    true
}

/// The changes; fields that are left out stay.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeWebhookEndpoint {
    /// The destination of events.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 2_000, format = "uri")]
    url: Option<String>,
    /// A note on it.
    #[serde(default)]
    #[schema(max_length = 200)]
    description: Option<String>,
    /// The kinds of events for it; all, when the list is empty.
    #[serde(default)]
    #[schema(max_items = 100)]
    event_types: Option<Vec<EventType>>,
    /// Whether the broker sends to it.
    #[serde(default)]
    enabled: Option<bool>,
}

/// Lists the tenant's webhook endpoints, the newest first.
#[utoipa::path(
    tag = "events",
    params(WhichPage),
    responses((status = 200, description = "A page of endpoints", body = Page<WebhookEndpointView>))
)]
#[get("/v1/webhook-endpoints")]
pub(crate) async fn list_webhook_endpoints(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<WebhookEndpointView>>, ApiError> {
    let endpoints = broker.store().webhook_endpoints().of(who.tenant);
    let rows = endpoints.list().await?;
    let cursors = Cursors::of(broker.keys(), "webhook-endpoints", &who.tenant);
    let page = cursors.page_of(&rows, &query, |row| row.id)?;
    Ok(web::Json(page.map(WebhookEndpointView::from)))
}

/// Adds a webhook endpoint and shows its secret, this once.
#[utoipa::path(
    tag = "events",
    params(IdempotencyHeader),
    request_body = AddWebhookEndpoint,
    responses((status = 201, description = "The endpoint and its secret", body = MadeWebhookEndpoint))
)]
#[post("/v1/webhook-endpoints")]
pub(crate) async fn add_webhook_endpoint(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    request: HttpRequest,
    body: Body<AddWebhookEndpoint>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    check(&broker, Some(&asked.url), Some(&asked.description))?;
    let secret = WebhookSecret::generate();
    // The answer kept for a repetition must not hold the secret.
    let kept_answer = |endpoint: &WebhookEndpoint| made(StatusCode::CREATED, endpoint, None);
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let new = NewWebhookEndpoint {
            id: WebhookEndpointId::from_uuid(broker.new_uuid()),
            url: asked.url,
            description: asked.description,
            event_types: asked.event_types,
            enabled: asked.enabled,
            sealed_secret: webhooks::seal(&broker, &secret),
        };
        let endpoints = broker.store().webhook_endpoints().of(who.tenant);
        let endpoint = endpoints
            .add(new, broker.now(), completion(effect, &kept_answer))
            .await?;
        Ok(made(StatusCode::CREATED, &endpoint, Some(&secret)))
    })
    .await
}

fn made(
    status: StatusCode,
    endpoint: &WebhookEndpoint,
    secret: Option<&WebhookSecret>,
) -> store::idempotency::Answer {
    let made = MadeWebhookEndpoint {
        endpoint: endpoint.into(),
        secret: secret.map(WebhookSecret::reveal),
    };
    answer(status, &made)
}

fn check(broker: &Broker, url: Option<&str>, description: Option<&str>) -> Result<(), ApiError> {
    if let Some(url) = url {
        check_url(url, broker.mode() == DatabaseMode::Simulation)
            .map_err(|no| ApiError::invalid_webhook_url(no.to_string()))?;
    }
    let too_long = |text: &str| text.chars().count() > 200 || text.chars().any(char::is_control);
    if description.is_some_and(too_long) {
        return Err(ApiError::invalid_body(
            "`description` must be at most 200 printable characters",
        ));
    }
    Ok(())
}

fn unknown(id: WebhookEndpointId) -> ApiError {
    ApiError::not_found(format!("there is no webhook endpoint {id} here"))
}

/// Shows a webhook endpoint.
#[utoipa::path(
    tag = "events",
    params(("id" = WebhookEndpointId, Path, description = "The endpoint")),
    responses((status = 200, description = "The endpoint", body = WebhookEndpointView))
)]
#[get("/v1/webhook-endpoints/{id}")]
pub(crate) async fn show_webhook_endpoint(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    id: web::Path<WebhookEndpointId>,
) -> Result<web::Json<WebhookEndpointView>, ApiError> {
    let endpoints = broker.store().webhook_endpoints().of(who.tenant);
    let endpoint = endpoints.find(*id).await?.ok_or_else(|| unknown(*id))?;
    Ok(web::Json(WebhookEndpointView::from(&endpoint)))
}

/// Changes a webhook endpoint. Pending messages go to the new address; one that is enabled again gets the
/// messages that were still to be tried.
#[utoipa::path(
    tag = "events",
    params(("id" = WebhookEndpointId, Path, description = "The endpoint"), IdempotencyHeader),
    request_body = ChangeWebhookEndpoint,
    responses((status = 200, description = "The endpoint", body = WebhookEndpointView))
)]
#[patch("/v1/webhook-endpoints/{id}")]
pub(crate) async fn change_webhook_endpoint(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    request: HttpRequest,
    id: web::Path<WebhookEndpointId>,
    body: Body<ChangeWebhookEndpoint>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    check(&broker, asked.url.as_deref(), asked.description.as_deref())?;
    let change = EndpointChange {
        url: asked.url,
        description: asked.description,
        event_types: asked.event_types,
        enabled: asked.enabled,
    };
    if change == EndpointChange::default() {
        return Err(ApiError::invalid_body(
            "give `url`, `description`, `event_types`, `enabled`, or several",
        ));
    }
    let render = |row: &WebhookEndpoint| answer(StatusCode::OK, &WebhookEndpointView::from(row));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let endpoints = broker.store().webhook_endpoints().of(who.tenant);
        let endpoint = endpoints
            .change(*id, &change, completion(effect, &render))
            .await?;
        broker.ring_events();
        Ok(render(&endpoint))
    })
    .await
}

/// Forgets a webhook endpoint and its pending messages.
#[utoipa::path(
    tag = "events",
    params(("id" = WebhookEndpointId, Path, description = "The endpoint"), IdempotencyHeader),
    responses((status = 204, description = "It is forgotten"))
)]
#[delete("/v1/webhook-endpoints/{id}")]
pub(crate) async fn delete_webhook_endpoint(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    request: HttpRequest,
    id: web::Path<WebhookEndpointId>,
) -> Result<HttpResponse, ApiError> {
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let endpoints = broker.store().webhook_endpoints().of(who.tenant);
        endpoints
            .delete(*id, broker.now(), completion(effect, &gone))
            .await?;
        Ok(gone(&()))
    })
    .await
}

/// Makes a new secret and shows it, this once. The previous one signs along for 24 hours: then each message
/// bears two signatures, separated by a space.
#[utoipa::path(
    tag = "events",
    params(("id" = WebhookEndpointId, Path, description = "The endpoint"), IdempotencyHeader),
    responses((status = 200, description = "The endpoint and its secret", body = MadeWebhookEndpoint))
)]
#[post("/v1/webhook-endpoints/{id}/rotate")]
pub(crate) async fn rotate_webhook_secret(
    broker: web::Data<Broker>,
    who: May<WriteEvents>,
    request: HttpRequest,
    id: web::Path<WebhookEndpointId>,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    let secret = WebhookSecret::generate();
    let kept_answer = |endpoint: &WebhookEndpoint| made(StatusCode::OK, endpoint, None);
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let sealed = webhooks::seal(&broker, &secret);
        let until = broker.now() + webhooks::OVERLAP;
        let endpoints = broker.store().webhook_endpoints().of(who.tenant);
        let endpoint = endpoints
            .rotate(*id, &sealed, until, completion(effect, &kept_answer))
            .await?;
        Ok(made(StatusCode::OK, &endpoint, Some(&secret)))
    })
    .await
}
