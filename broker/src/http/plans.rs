//! `/v1/plans`: the candidates for a demand, with reasons. A plan costs nothing and reserves
//! nothing, so it takes no `Idempotency-Key`.

use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::ids::{OfferId, PlanId};
use matcher::{OfferVerdict, PlanView};
use serde::Serialize;

use super::access::{ReadPlans, WritePlans};
use super::audit::record;
use super::auth::{InProjects, May};
use super::body::UnreadBody;
use super::error::ApiError;
use crate::flow::decision::{ReplayError, StoredError};
use crate::flow::plan::{self, PlanError, PlanRecord};
use crate::platform::app::Broker;

/// A plan: the demand, and the result of the search.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanBody {
    /// Its id.
    id: PlanId,
    /// The demand.
    demand: Demand,
    /// The result of the search.
    #[serde(flatten)]
    found: PlanView,
    /// When.
    created_at: DateTime<Utc>,
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
            PlanError::Match(error) => Self::invalid_demand(error.to_string()),
            PlanError::Busy(_) => {
                Self::busy("too many plans are being searched for; try again in a moment")
                    .retry_after_seconds(1)
            }
            PlanError::Interrupted(error) => Self::broken(&error),
            unknown @ (PlanError::Unknown(_) | PlanError::NotOnSale(_)) => {
                Self::not_found(unknown.to_string())
            }
            PlanError::Replay(ReplayError::Models { .. } | ReplayError::Differs(_))
            | PlanError::Stored(StoredError::OtherRelease(_)) => Self::plan_outdated(
                "the plan was made by another release of the service; make a new one with \
                 POST /v1/plans",
            ),
            PlanError::Stored(StoredError::Store(error)) => error.into(),
            PlanError::Stored(unknown @ StoredError::Unknown(_)) => {
                Self::not_found(unknown.to_string())
            }
            broken @ (PlanError::Replay(_) | PlanError::Stored(_)) => Self::broken(&broken),
            PlanError::Store(error) => error.into(),
        }
    }
}

/// Plans a demand: the offers sold now that satisfy it, best first, and why the rest do not. The same demand
/// gives the same plan until the market moves.
#[utoipa::path(
    tag = "plans",
    request_body = Demand,
    responses((status = 201, description = "The plan", body = PlanBody))
)]
#[post("/v1/plans")]
pub(crate) async fn make_plan(
    broker: web::Data<Broker>,
    who: May<WritePlans, InProjects>,
    request: HttpRequest,
    body: UnreadBody,
) -> Result<HttpResponse, ApiError> {
    record::free(&request);
    let key = plan::key_of(&broker, who.reach(), body.bytes()).await?;
    if let Some(known) = plan::answered(&broker, &key) {
        return Ok(created(known));
    }
    let record = plan::make_plan(&broker, &who.reach(), body.parse()?).await?;
    let text = serde_json::to_vec(&PlanBody::try_from(&*record)?)
        .map_err(|error| ApiError::broken(&error))?;
    let text = Bytes::from(text);
    plan::keep_answer(&broker, key, &record, text.clone());
    Ok(created(text))
}

fn created(plan: Bytes) -> HttpResponse {
    HttpResponse::build(StatusCode::CREATED)
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")))
        .body(plan)
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
    who: May<ReadPlans, InProjects>,
    id: web::Path<PlanId>,
) -> Result<web::Json<PlanBody>, ApiError> {
    let record = plan::find(&broker, &who.reach(), *id).await?;
    PlanBody::try_from(&record).map(web::Json)
}

/// The outcome of an offer in a plan.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct PlanOfferBody {
    /// The plan.
    plan_id: PlanId,
    /// The offer.
    offer_id: OfferId,
    /// One verdict; of a hybrid plan one for each half.
    verdicts: Vec<OfferVerdict>,
}

/// The outcome of one offer in a plan: its candidate, or the reason for its refusal, with its own figures.
/// The answer is for the market as it was when the plan was made.
#[utoipa::path(
    tag = "plans",
    params(
        ("id" = PlanId, Path, description = "The plan"),
        ("offer" = OfferId, Path, description = "The offer"),
    ),
    responses((status = 200, description = "Its outcome", body = PlanOfferBody))
)]
#[get("/v1/plans/{id}/offers/{offer}")]
pub(crate) async fn show_plan_offer(
    broker: web::Data<Broker>,
    who: May<ReadPlans, InProjects>,
    path: web::Path<(PlanId, OfferId)>,
) -> Result<web::Json<PlanOfferBody>, ApiError> {
    let (plan_id, offer_id) = path.into_inner();
    let verdicts = plan::ask(&broker, &who.reach(), plan_id, offer_id).await?;
    Ok(web::Json(PlanOfferBody {
        plan_id,
        offer_id,
        verdicts,
    }))
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError as _;

    use super::*;
    use crate::platform::fair_queue::TooMany;

    #[test]
    fn whoever_comes_when_too_many_wait_is_told_when_to_come_again() {
        let refused = ApiError::from(PlanError::Busy(TooMany));
        assert_eq!(refused.code(), "busy");
        let refused = refused.error_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
    }
}
