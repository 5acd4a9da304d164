//! `GET /v1/offers`: filtered, sorted, page by page, from the snapshot.

use std::cmp::Ordering;

use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, get, web};
use market::fabric::Internode;
use market::gpu::{GpuFit, GpuWanted};
use market::ids::{OfferId, ProviderId};
use market::money::{Money, Rate};
use market::offer::{Tenancy, Terms};
use market::place::Country;
use market::quantity::GpuCount;
use matcher::{OfferRef, Snapshot};
use serde::{Deserialize, Serialize};

use super::{OfferItem, OfferPages, item};
use crate::http::error::ApiError;
use crate::http::page::{Cursors, Page, limit};
use crate::platform::app::Broker;

/// The sort order of a list of offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sort {
    /// The cheapest GPU-hour first.
    #[default]
    Price,
    /// By provider, then the cheapest GPU-hour.
    Provider,
}

/// Which offers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListOffers {
    /// A GPU (`H100-SXM`), a family (`H100`) or `any`.
    gpu: Option<GpuWanted>,
    /// Only of this provider.
    provider: Option<ProviderId>,
    /// Only in this country.
    country: Option<Country>,
    /// Only machines of this kind.
    tenancy: Option<Tenancy>,
    /// Only under these terms.
    terms: Option<Terms>,
    /// Only nodes that are joined like this.
    internode: Option<Internode>,
    /// At most so many US dollars per GPU-hour.
    max_usd_gpu_hour: Option<Money>,
    /// At least so many GPUs in a node.
    #[param(minimum = 1, maximum = 1_024)]
    min_gpus: Option<u32>,
    /// Show sold-out offers as well.
    #[serde(default)]
    #[param(default = false)]
    include_unavailable: bool,
    /// The order; by price by default.
    #[serde(default)]
    #[param(inline)]
    sort: Sort,
    /// The cursor of the page before.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    cursor: Option<String>,
    /// Items of a page.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// The place of an offer in the list; the id decides among equals.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Position {
    provider: Option<ProviderId>,
    rate: Rate,
    id: OfferId,
}

/// Lists the offers on sale now.
///
/// Every offer shows its age. One that is past its provider's freshness limit is shown as stale and is not
/// matched.
#[utoipa::path(
    tag = "offers",
    params(ListOffers),
    responses((status = 200, description = "A page of offers", body = Page<OfferItem>)),
    security(())
)]
#[get("/v1/offers")]
pub(crate) async fn list_offers(
    broker: web::Data<Broker>,
    pages: web::Data<OfferPages>,
    request: HttpRequest,
    query: web::Query<ListOffers>,
) -> Result<HttpResponse, ApiError> {
    let (snapshot, now) = (broker.snapshot(), broker.now());
    let asked = request.query_string();
    if let Some(body) = pages.find(asked, &snapshot, now) {
        return Ok(json(body));
    }
    let limit = limit(query.limit)?;
    query.check()?;
    let cursors = Cursors::of(broker.keys(), "offers", &*query);
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let found = query.pick(&snapshot, after.as_ref(), limit + 1);
    let page = cursors.page(found, limit, |(position, _)| position.clone());
    let items: Vec<OfferItem> = page
        .items
        .iter()
        .map(|(_, offer)| item(&snapshot, &offer.to_offer(), false, now))
        .collect::<Result<_, _>>()?;
    let shown = page.items.iter().map(|(_, offer)| offer.observed_at());
    let answer = Page {
        items,
        next_cursor: page.next_cursor,
    };
    let body = serde_json::to_vec(&answer).map_err(|error| ApiError::broken(&error))?;
    let body = Bytes::from(body);
    pages.keep(asked, &snapshot, now, shown, body.clone());
    Ok(json(body))
}

fn json(body: Bytes) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")))
        .body(body)
}

impl ListOffers {
    fn check(&self) -> Result<(), ApiError> {
        if self
            .min_gpus
            .is_some_and(|gpus| GpuCount::whole(gpus).is_err())
        {
            return Err(ApiError::invalid_parameter(
                "`min_gpus` must be between 1 and 1024",
            ));
        }
        if self
            .max_usd_gpu_hour
            .is_some_and(|price| !price.is_positive())
        {
            return Err(ApiError::invalid_parameter(
                "`max_usd_gpu_hour` must be above zero",
            ));
        }
        Ok(())
    }

    /// The first `count` offers after a position, in order.
    fn pick<'a>(
        &self,
        snapshot: &'a Snapshot,
        after: Option<&Position>,
        count: usize,
    ) -> Vec<(Position, OfferRef<'a>)> {
        let mut found: Vec<_> = snapshot
            .offers()
            .filter(|offer| self.accepts(*offer))
            .filter_map(|offer| Some((self.position(offer)?, offer)))
            .filter(|(position, _)| {
                self.max_usd_gpu_hour
                    .is_none_or(|max| position.rate.money_per_gpu_hour() <= max)
                    && after.is_none_or(|after| position.cmp(after) == Ordering::Greater)
            })
            .collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        found.truncate(count);
        found
    }

    fn accepts(&self, offer: OfferRef<'_>) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, actual: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == actual)
        }
        self.gpu.as_ref().is_none_or(|gpu| {
            *gpu == GpuWanted::Any || gpu.fit(offer.gpu(), offer.gpu_memory_mib()) == GpuFit::Yes
        }) && is(self.provider.as_ref(), offer.provider())
            && self
                .country
                .is_none_or(|country| offer.country() == Some(country))
            && is(self.tenancy.as_ref(), &offer.tenancy())
            && is(self.terms.as_ref(), &offer.terms())
            && is(self.internode.as_ref(), &offer.internode())
            && self
                .min_gpus
                .is_none_or(|gpus| offer.gpus().thousandths() >= gpus.saturating_mul(1_000))
            && (self.include_unavailable || !offer.availability().is_sold_out())
    }

    fn position(&self, offer: OfferRef<'_>) -> Option<Position> {
        let provider = (self.sort == Sort::Provider).then(|| offer.provider().clone());
        Some(Position {
            provider,
            rate: offer.rate().ok()?,
            id: offer.offer_id(),
        })
    }
}
