//! `/v1/quotes`: a candidate's price, frozen until it lapses, or bounded for a later start.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::capacity::Covered;
use market::ids::{PlanId, QuoteId};
use market::money::{Money, Rate};
use market::offer::OfferView;
use market::quote::{Quote, QuoteLine, is_bounded};
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
    /// US dollars per GPU-hour that the tenant pays, even if a replacement costs the broker more or less. For a
    /// later start it is today's price, and the line is ordered at the price of that day.
    rate_usd_gpu_hour: Rate,
    /// The bound of this line of a later start, in US dollars per GPU-hour; absent where the rate is frozen. If
    /// the line is not sold at today's rate or less when it is due, other offers may be ordered: all of them
    /// together cost no more per hour than the bounds, and no GPU more than `ceiling.usd_per_gpu_hour`.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_at_most: Option<Rate>,
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
            rate_at_most: line.rate_at_most,
            covered: line.covered,
        })
    }
}

/// Whether a price is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PriceIs {
    /// It is paid as it stands.
    Frozen,
    /// It is today's price. A later start is ordered at the price of its day, up to the bounds of its lines and its
    /// ceiling.
    AtMost,
}

impl PriceIs {
    pub(crate) fn of(lines: &[QuoteLine]) -> Self {
        match is_bounded(lines) {
            true => Self::AtMost,
            false => Self::Frozen,
        }
    }
}

/// A price, frozen until it lapses, or bounded for a later start.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct QuoteBody {
    /// Its id.
    id: QuoteId,
    /// The plan whose candidate it prices.
    plan_id: PlanId,
    /// The item sold.
    lines: Vec<LineView>,
    /// US dollars for the first hour of all lines; of a later start at today's prices.
    price_usd_hour: Option<Money>,
    /// Whether that price is frozen.
    price_is: PriceIs,
    /// The later start; absent where it starts once it is confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    starts_at: Option<DateTime<Utc>>,
    /// The quote of the run after which the fleet starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    follows: Option<QuoteId>,
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
            price_is: PriceIs::of(&quote.lines),
            starts_at: quote.starts_at,
            follows: quote.follows.map(|follows| follows.run),
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
            QuoteError::NoSuchCandidate { .. } | QuoteError::NoSuchPair { .. } => {
                Self::unknown_reference(said)
            }
            QuoteError::NotHybrid(_)
            | QuoteError::TooFarAhead(_)
            | QuoteError::RunTooLong { .. } => Self::invalid_body(said),
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

/// The candidate to quote, or the pair.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeQuote {
    /// The plan.
    plan_id: PlanId,
    /// The rank of the plan's candidate, from 1; the first by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000, default = 1)]
    candidate: Option<u32>,
    /// The rank of a hybrid plan's pair, from 1, instead of `candidate`: makes two quotes.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000)]
    pair: Option<u32>,
}

/// The quotes of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct QuotePair {
    /// The run's, then the fleet's, which starts when the run has ended and the weights have arrived.
    #[schema(min_items = 2, max_items = 2)]
    quotes: [QuoteBody; 2],
}

/// What `POST /v1/quotes` makes.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum QuoteOrPair {
    /// Of a candidate.
    Quote(Box<QuoteBody>),
    /// Of a pair.
    Pair(Box<QuotePair>),
}

impl From<&Quote> for QuoteOrPair {
    fn from(quote: &Quote) -> Self {
        Self::Quote(Box::new(quote.into()))
    }
}

impl From<&[Quote; 2]> for QuoteOrPair {
    fn from(quotes: &[Quote; 2]) -> Self {
        Self::Pair(Box::new(QuotePair {
            quotes: quotes.each_ref().map(QuoteBody::from),
        }))
    }
}

/// Freezes the price of a plan's candidate, or of both halves of a hybrid plan's pair. The price of a later
/// start is bounded instead.
#[utoipa::path(
    tag = "quotes",
    params(IdempotencyHeader),
    request_body = MakeQuote,
    responses((status = 201, description = "The quote, or both of a pair", body = QuoteOrPair))
)]
#[post("/v1/quotes")]
pub(crate) async fn make_quote(
    broker: web::Data<Broker>,
    who: May<WritePlans, InProjects>,
    request: HttpRequest,
    body: Body<MakeQuote>,
) -> Result<HttpResponse, ApiError> {
    let MakeQuote {
        plan_id,
        candidate,
        pair,
    } = body.value;
    let reach = who.reach();
    if let Some(pair) = pair {
        if candidate.is_some() {
            return Err(ApiError::invalid_body(
                "give either `candidate` or `pair`, and not both",
            ));
        }
        let rank = pair as usize;
        let render = |quotes: &[Quote; 2]| answer(StatusCode::CREATED, &QuoteOrPair::from(quotes));
        return idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
            let completion = completion(mark, &render);
            let quotes = quote::make_pair(&broker, &reach, plan_id, rank, completion).await?;
            Ok(render(&quotes))
        })
        .await;
    }
    let rank = candidate.unwrap_or(1) as usize;
    let render = |kept: &KeptQuote| answer(StatusCode::CREATED, &QuoteOrPair::from(&kept.quote));
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let completion = completion(mark, &render);
        let quote = quote::make_quote(&broker, &reach, plan_id, rank, completion).await?;
        Ok(answer(StatusCode::CREATED, &QuoteOrPair::from(&quote)))
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
