//! `/v1/required-tags`: the tags that every reservation of a tenant must carry. An administrator sets them;
//! tenants read their own.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, patch, web};
use market::tags::{AttributionField, RequiredTags};
use serde::Deserialize;

use super::access::{ReadSpending, WriteSpending};
use super::auth::May;
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::platform::app::Broker;

/// The tags required from now on; fields that are left out stay.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequireTags {
    /// All keys of free tags that are required.
    #[schema(value_type = Option<Vec<String>>, max_items = 32)]
    tags: Option<BTreeSet<String>>,
    /// All fixed fields that are required.
    #[schema(value_type = Option<Vec<AttributionField>>)]
    fields: Option<BTreeSet<AttributionField>>,
}

/// Shows which tags and fields every reservation of the tenant must carry.
#[utoipa::path(
    tag = "spending",
    responses((status = 200, description = "What is required", body = RequiredTags))
)]
#[get("/v1/required-tags")]
pub(crate) async fn show_required_tags(
    broker: web::Data<Broker>,
    who: May<ReadSpending>,
) -> Result<web::Json<RequiredTags>, ApiError> {
    let required = broker.store().tenants().required_tags(who.tenant).await?;
    Ok(web::Json(required))
}

/// Changes which tags and fields every new reservation of the tenant must carry: for an
/// administrator. Reservations that are there stay as they are until they are relabelled.
#[utoipa::path(
    tag = "spending",
    params(IdempotencyHeader),
    request_body = RequireTags,
    responses((status = 200, description = "What is required", body = RequiredTags))
)]
#[patch("/v1/required-tags")]
pub(crate) async fn require_tags(
    broker: web::Data<Broker>,
    who: May<WriteSpending>,
    request: HttpRequest,
    body: Body<RequireTags>,
) -> Result<HttpResponse, ApiError> {
    let RequireTags { tags, fields } = body.value;
    if tags.is_none() && fields.is_none() {
        return Err(ApiError::invalid_body(
            "give `tags`, `fields` or both; an empty list requires nothing",
        ));
    }
    let asked = RequiredTags {
        tags: tags.clone().unwrap_or_default(),
        fields: BTreeSet::new(),
    };
    asked
        .check()
        .map_err(|error| ApiError::invalid_body(error.to_string()))?;
    let render = |required: &RequiredTags| answer(StatusCode::OK, required);
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let required = broker
            .store()
            .tenants()
            .require_tags(who.tenant, tags, fields, completion(effect, &render))
            .await?;
        Ok(render(&required))
    })
    .await
}
