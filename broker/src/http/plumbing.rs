//! `/healthz`, `/readyz`, `/openapi.json`, `/.well-known/jwks.json`: for machines that run or read
//! the service.

use actix_web::{HttpResponse, get, web};
use market::demand::check::DemandFault;
use serde::Serialize;

use super::error::ApiError;
use super::openapi::Document;
use super::providers::is_fresh;
use crate::app::Broker;

/// That the process lives.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Health {
    /// `ok`
    status: String,
}

/// Whether the process lives. It says nothing of the database.
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

/// Whether the service can do its work: the database answers and has the schema, and at least one
/// provider's supply is fresh.
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "It is ready; otherwise 503 names what is missing", body = Health)),
    security(())
)]
#[get("/readyz")]
pub(crate) async fn readyz(broker: web::Data<Broker>) -> Result<web::Json<Health>, ApiError> {
    let missing = missing(&broker).await;
    if missing.is_empty() {
        return Ok(web::Json(Health {
            status: "ready".to_owned(),
        }));
    }
    let names: Vec<&str> = missing.iter().map(|fault| fault.field.as_str()).collect();
    let detail = format!("not ready: {}; ask again in a moment", names.join(", "));
    Err(ApiError::not_ready(detail)
        .with_faults(missing)
        .retry_after_seconds(5))
}

/// What keeps the service from its work, each with what to do.
async fn missing(broker: &Broker) -> Vec<DemandFault> {
    let fault = |field: &str, detail: &str| DemandFault {
        field: field.to_owned(),
        detail: detail.to_owned(),
    };
    if broker.store().ping().await.is_err() {
        return vec![fault(
            "database",
            "it does not answer; see whether it runs and can be reached",
        )];
    }
    let mut missing = Vec::new();
    let migrated = broker.store().migration_status().await;
    if !migrated.is_ok_and(|changes| changes.iter().all(|change| change.applied)) {
        missing.push(fault(
            "migrations",
            "the schema is not up to date; run `broker migrate up`",
        ));
    }
    let (snapshot, now) = (broker.snapshot(), broker.now());
    let providers = broker.store().providers().list().await.unwrap_or_default();
    if !providers
        .iter()
        .any(|provider| is_fresh(&snapshot, provider, now))
    {
        missing.push(fault(
            "providers",
            "no provider's supply is fresh; GET /v1/providers says why",
        ));
    }
    missing
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
    web::Json(broker.keys().jwks())
}
