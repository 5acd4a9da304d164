//! `/v1/quotes`: a candidate's price, frozen until it lapses.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::capacity::Covered;
use market::ids::{PlanId, QuoteId};
use market::money::{Money, Rate};
use market::offer::OfferView;
use market::quote::{Quote, QuoteLine};
use serde::{Deserialize, Serialize};
use store::StoreError;
use store::quotes::KeptQuote;

use super::access::{ReadPlans, WritePlans};
use super::auth::{InProjects, May};
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::flow::quote::{self, QuoteError};
use crate::platform::app::Broker;

/// So many nodes of one offer at a frozen rate.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct LineView {
    /// The line's number, from 0; leases and charges name it.
    #[schema(minimum = 0, maximum = 100_000)]
    line: u32,
    /// The offer as it was when quoted, for all nodes.
    offer: OfferView,
    /// Nodes taken of it.
    #[schema(minimum = 1, maximum = 100_000)]
    nodes: u32,
    /// GPUs of all nodes.
    #[schema(minimum = 1, maximum = 100_000_000)]
    gpus: u32,
    /// US dollars per GPU-hour that the tenant pays, even if a replacement costs the broker more or less.
    rate_usd_gpu_hour: Rate,
    /// The commitment that pays for the nodes, at its rate, until its end; from then on they cost the rate of
    /// the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    covered: Option<Covered>,
}

impl LineView {
    /// The line as it is shown; `None` where a sum does not fit, which no kept line has.
    pub(crate) fn of(line: &QuoteLine) -> Option<Self> {
        Some(Self {
            line: line.line,
            offer: line.offer.view(line.nodes).ok()?,
            nodes: line.nodes,
            gpus: line.gpus(),
            rate_usd_gpu_hour: line.rate,
            covered: line.covered,
        })
    }
}

/// A price, frozen until it lapses.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct QuoteBody {
    /// Its id.
    id: QuoteId,
    /// The plan whose candidate it prices.
    plan_id: PlanId,
    /// The item sold.
    lines: Vec<LineView>,
    /// US dollars for the first hour of all lines.
    price_usd_hour: Option<Money>,
    /// When it was made.
    created_at: DateTime<Utc>,
    /// When it lapses.
    expires_at: DateTime<Utc>,
}

impl From<&Quote> for QuoteBody {
    fn from(quote: &Quote) -> Self {
        Self {
            id: quote.id,
            plan_id: quote.plan_id,
            lines: quote.lines.iter().filter_map(LineView::of).collect(),
            price_usd_hour: pricing::quote::first_hour(&quote.lines).ok(),
            created_at: quote.created_at,
            expires_at: quote.expires_at,
        }
    }
}

impl From<QuoteError> for ApiError {
    fn from(error: QuoteError) -> Self {
        let said = error.to_string();
        match error {
            QuoteError::Plan(error) => error.into(),
            QuoteError::NoSuchCandidate { .. } => Self::unknown_reference(said),
            QuoteError::NotOrderable(_) | QuoteError::TooManyNodes { .. } => {
                Self::offer_not_orderable(said)
            }
            QuoteError::OfferChanged(_) => Self::offer_changed(said),
            QuoteError::CoolingDown(_) => Self::offer_cooling_down(said),
            QuoteError::ProviderClosed(conflict) | QuoteError::CommitmentUsed(conflict) => {
                StoreError::from(conflict).into()
            }
            QuoteError::Price(_) => Self::offer_not_orderable(said),
            QuoteError::Unknown(_) => Self::not_found(said),
            QuoteError::Store(error) => error.into(),
        }
    }
}

/// The candidate to quote.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeQuote {
    /// The plan.
    plan_id: PlanId,
    /// The rank of the plan's candidate, from 1.
    #[serde(default = "best")]
    #[schema(minimum = 1, maximum = 1_000, default = 1)]
    candidate: u32,
}

const fn best() -> u32 {
    1
}

/// Freezes the price of a plan's candidate.
#[utoipa::path(
    tag = "quotes",
    params(IdempotencyHeader),
    request_body = MakeQuote,
    responses((status = 201, description = "The quote", body = QuoteBody))
)]
#[post("/v1/quotes")]
pub(crate) async fn make_quote(
    broker: web::Data<Broker>,
    who: May<WritePlans, InProjects>,
    request: HttpRequest,
    body: Body<MakeQuote>,
) -> Result<HttpResponse, ApiError> {
    let MakeQuote { plan_id, candidate } = body.value;
    let rank = candidate as usize;
    let render = |kept: &KeptQuote| answer(StatusCode::CREATED, &QuoteBody::from(&kept.quote));
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let quote = quote::make_quote(
            &broker,
            &who.reach(),
            plan_id,
            rank,
            completion(mark, &render),
        )
        .await?;
        Ok(answer(StatusCode::CREATED, &QuoteBody::from(&quote)))
    })
    .await
}

/// One quote.
#[utoipa::path(
    tag = "quotes",
    params(("id" = QuoteId, Path, description = "The quote")),
    responses((status = 200, description = "The quote", body = QuoteBody))
)]
#[get("/v1/quotes/{id}")]
pub(crate) async fn show_quote(
    broker: web::Data<Broker>,
    who: May<ReadPlans, InProjects>,
    id: web::Path<QuoteId>,
) -> Result<web::Json<QuoteBody>, ApiError> {
    let quote = quote::find(&broker, &who.reach(), *id).await?;
    Ok(web::Json(QuoteBody::from(&quote)))
}
