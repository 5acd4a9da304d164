//! `/v1/plans`: the candidates for a demand, with reasons. A plan costs nothing and reserves
//! nothing, so it takes no `Idempotency-Key`.

use actix_web::http::StatusCode;
use actix_web::http::header::ContentType;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::ids::PlanId;
use matcher::{MatchError, PlanView};
use moka::sync::Cache;
use serde::Serialize;

use super::access::{ReadPlans, WritePlans};
use super::auth::May;
use super::body::Body;
use super::error::ApiError;
use crate::app::Broker;
use crate::plan::{self, PlanError, PlanRecord};

/// A plan: what was asked for, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanBody {
    /// Its id.
    id: PlanId,
    /// What was asked for.
    demand: Demand,
    /// What was found.
    #[serde(flatten)]
    found: PlanView,
    /// When.
    created_at: DateTime<Utc>,
}

/// How much is kept. Units: bytes of answers.
const KEPT_BYTES: u64 = 32 * 1024 * 1024;

/// Plans as they were sent lately, by their id: a plan never changes. Whose it is was settled by
/// whoever has the record.
pub(crate) struct PlanBodies(Cache<PlanId, Bytes>);

impl Default for PlanBodies {
    fn default() -> Self {
        let weigh = |_: &PlanId, body: &Bytes| u32::try_from(body.len()).unwrap_or(u32::MAX);
        let cache = Cache::builder().max_capacity(KEPT_BYTES).weigher(weigh);
        Self(cache.build())
    }
}

impl PlanBodies {
    fn of(&self, record: &PlanRecord) -> Result<Bytes, ApiError> {
        if let Some(body) = self.0.get(&record.id) {
            return Ok(body);
        }
        let body = PlanBody::try_from(record)?;
        let body = serde_json::to_vec(&body).map_err(|error| ApiError::broken(&error))?;
        let body = Bytes::from(body);
        self.0.insert(record.id, body.clone());
        Ok(body)
    }
}

impl TryFrom<&PlanRecord> for PlanBody {
    type Error = ApiError;

    fn try_from(record: &PlanRecord) -> Result<Self, ApiError> {
        let found = record
            .plan
            .view()
            .map_err(|error| ApiError::broken(&error))?;
        Ok(Self {
            id: record.id,
            demand: record.demand.clone(),
            found,
            created_at: record.created_at,
        })
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Faulty(faults) => {
                let said: Vec<String> = faults
                    .iter()
                    .map(|fault| format!("`{}` {}", fault.field, fault.detail))
                    .collect();
                Self::invalid_demand(said.join("; ")).with_faults(faults)
            }
            PlanError::Match(kind @ MatchError::KindNotSupported(_)) => {
                Self::kind_not_supported(kind.to_string())
            }
            PlanError::Match(error) => Self::invalid_demand(error.to_string()),
            unknown @ PlanError::Unknown(_) => Self::not_found(unknown.to_string()),
            PlanError::Store(error) => error.into(),
        }
    }
}

/// Plans a demand: what of all that is sold now satisfies it, best first, and why the rest does
/// not. The same demand gives the same plan until the market moves.
#[utoipa::path(
    tag = "plans",
    request_body = Demand,
    responses((status = 201, description = "The plan", body = PlanBody))
)]
#[post("/v1/plans")]
pub(crate) async fn make_plan(
    broker: web::Data<Broker>,
    bodies: web::Data<PlanBodies>,
    who: May<WritePlans>,
    body: Body<Demand>,
) -> Result<HttpResponse, ApiError> {
    let record = plan::make_plan(&broker, who.tenant, body.value).await?;
    Ok(HttpResponse::build(StatusCode::CREATED)
        .content_type(ContentType::json())
        .body(bodies.of(&record)?))
}

/// One plan.
#[utoipa::path(
    tag = "plans",
    params(("id" = PlanId, Path, description = "The plan")),
    responses((status = 200, description = "The plan", body = PlanBody))
)]
#[get("/v1/plans/{id}")]
pub(crate) async fn show_plan(
    broker: web::Data<Broker>,
    who: May<ReadPlans>,
    id: web::Path<PlanId>,
) -> Result<web::Json<PlanBody>, ApiError> {
    let record = plan::find(&broker, who.tenant, *id).await?;
    PlanBody::try_from(&record).map(web::Json)
}
