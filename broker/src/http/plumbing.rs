//! `/healthz`, `/readyz`, `/openapi.json`, `/.well-known/jwks.json`: for machines that run or read
//! the service.

use actix_web::{HttpResponse, get, web};
use serde::Serialize;

use super::document::Document;
use super::error::ApiError;
use super::readiness::{LastLook, Readiness};
use crate::platform::app::Broker;

/// That the process lives.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`
    status: String,
}

/// Whether the process lives. It does not check the database.
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "It lives", body = Health)),
    security(())
)]
#[get("/healthz")]
pub(crate) async fn healthz() -> web::Json<Health> {
    web::Json(Health {
        status: "ok".to_owned(),
    })
}

/// Whether this replica can do its work, part by part: it is not stopping, the database answers and has the
/// schema, the snapshot follows it, and the background tasks live. A lack of fresh supply, or the loss of
/// Redis, is reported and takes nothing out of service.
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "It is ready; otherwise 503 names what is missing", body = Readiness)),
    security(())
)]
#[get("/readyz")]
pub(crate) async fn readyz(
    broker: web::Data<Broker>,
    looked: web::Data<LastLook>,
) -> Result<web::Json<Readiness>, ApiError> {
    Readiness::examine(&broker, &looked)
        .await
        .map(web::Json)
        .map_err(|missing| {
            let names: Vec<&str> = missing.iter().map(|fault| fault.field.as_str()).collect();
            let detail = format!("not ready: {}; ask again in a moment", names.join(", "));
            ApiError::not_ready(detail)
                .with_faults(missing)
                .retry_after_seconds(5)
        })
}

/// This document.
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "The OpenAPI document", body = serde_json::Value)),
    security(())
)]
#[get("/openapi.json")]
pub(crate) async fn openapi_json(document: web::Data<Document>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("application/json")
        .body(document.text().to_owned())
}

/// The public halves of the keys that sign tokens and attestations (RFC 7517).
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "A JSON Web Key Set", body = serde_json::Value)),
    security(())
)]
#[get("/.well-known/jwks.json")]
pub(crate) async fn jwks(broker: web::Data<Broker>) -> web::Json<serde_json::Value> {
    let now = broker.now();
    broker.keys().refresh(now).await;
    web::Json(broker.keys().jwks(now))
}
