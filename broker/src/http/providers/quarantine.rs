//! The parts of a provider that are not sold, and why: the provider as a whole while an administrator has
//! suspended it (its quarantine), and at all times its unmapped SKUs, the catalogue records that could not
//! become offers.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use market::catalog::Skipped;
use market::ids::ProviderId;
use serde::{Deserialize, Serialize};
use store::providers::{Cause, Provider, ProviderChange};

use super::{ProviderItem, QuarantineView, Shown, find};
use crate::flow::providers::quarantine;
use crate::http::access::{ReadProviders, WriteProviders};
use crate::http::auth::{May, OfProviders, Principal};
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::platform::app::Broker;
use crate::platform::coordination::Topic;

/// The parts of a provider that are not sold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ProviderQuarantine {
    /// Why nothing new is sold there at all; `null` while it is.
    whole: Option<QuarantineView>,
    /// Records of its last reading that are no offer, each with why (the first 500).
    #[schema(max_items = 500)]
    records: Vec<Skipped>,
}

/// A suspension to begin, or to change.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BeginQuarantine {
    /// Why, in words that tenants read.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
    /// When it ends by itself: within a year.
    until: DateTime<Utc>,
}

/// Shows the parts of a provider that are not sold, and why. Unmapped hardware is listed here until it has a
/// name.
#[utoipa::path(
    tag = "providers",
    params(("id" = ProviderId, Path, description = "The provider")),
    responses((status = 200, description = "Its suspension and unmapped SKUs", body = ProviderQuarantine))
)]
#[get("/v1/providers/{id}/quarantine")]
pub(crate) async fn show_quarantine(
    broker: web::Data<Broker>,
    who: May<ReadProviders, OfProviders>,
    id: web::Path<ProviderId>,
) -> Result<web::Json<ProviderQuarantine>, ApiError> {
    let provider = find(&broker, &who, &id).await?;
    Ok(web::Json(ProviderQuarantine {
        whole: provider
            .quarantine_at(broker.now())
            .map(QuarantineView::from),
        records: provider.skipped,
    }))
}

/// Suspends a provider: nothing new is planned, quoted or held there until the suspension ends.
///
/// Plans name the reason. Existing holds and leases there continue; a lease that fails is replaced elsewhere.
/// A second call changes reason and end.
#[utoipa::path(
    tag = "providers",
    params(("id" = ProviderId, Path, description = "The provider"), IdempotencyHeader),
    request_body = BeginQuarantine,
    responses((status = 200, description = "The provider", body = ProviderItem))
)]
#[post("/v1/providers/{id}/quarantine")]
pub(crate) async fn quarantine_provider(
    broker: web::Data<Broker>,
    who: May<WriteProviders>,
    request: HttpRequest,
    id: web::Path<ProviderId>,
    body: Body<BeginQuarantine>,
) -> Result<HttpResponse, ApiError> {
    change(&broker, &who, &request, &id, &body.bytes, Some(&body.value)).await
}

/// Ends the suspension of a provider before its time.
#[utoipa::path(
    tag = "providers",
    params(("id" = ProviderId, Path, description = "The provider"), IdempotencyHeader),
    responses((status = 200, description = "The provider", body = ProviderItem))
)]
#[delete("/v1/providers/{id}/quarantine")]
pub(crate) async fn end_quarantine(
    broker: web::Data<Broker>,
    who: May<WriteProviders>,
    request: HttpRequest,
    id: web::Path<ProviderId>,
) -> Result<HttpResponse, ApiError> {
    change(&broker, &who, &request, &id, b"", None).await
}

async fn change(
    broker: &Broker,
    who: &Principal,
    request: &HttpRequest,
    id: &ProviderId,
    body: &[u8],
    asked: Option<&BeginQuarantine>,
) -> Result<HttpResponse, ApiError> {
    let shown = Shown::to(broker, who).await?;
    let render = |row: &Provider| answer(StatusCode::OK, &shown.item(row.clone()));
    idempotency::once(broker, who, request, body, async |effect| {
        let row = find(broker, who, id).await?;
        let begun = asked
            .map(|asked| quarantine(&row, &asked.reason, asked.until, broker.now()))
            .transpose()
            .map_err(|refused| ApiError::invalid_body(refused.to_string()))?;
        let change = ProviderChange {
            quarantine: Some(begun),
            ..ProviderChange::default()
        };
        let cause = Cause::Request(who.tenant, completion(effect, &render));
        let providers = broker.store().providers();
        let provider = providers.change(id, &change, &cause).await?;
        broker.hot().publish(Topic::Supply);
        Ok(render(&provider))
    })
    .await
}
