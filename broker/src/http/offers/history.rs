//! `GET /v1/offers/{id}/history`: how an offer's price and availability changed.

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::OfferId;
use market::offer::OfferView;
use serde::{Deserialize, Serialize};
use store::offers::{HistoryFilter, OfferHistoryEntry};

use super::too_large;
use crate::http::error::ApiError;
use crate::http::page::{Cursors, Page, limit};
use crate::platform::app::Broker;

/// Which part of the history.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct History {
    /// The provider's statement as of this time.
    as_of: Option<DateTime<Utc>>,
    /// The broker's knowledge at this time.
    known_at: Option<DateTime<Utc>>,
    /// The cursor of the page before.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    cursor: Option<String>,
    /// Items of a page.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// How an offer changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChangeKind {
    /// It came on sale, for the first time or again.
    Added,
    /// Its price, availability or description changed.
    Changed,
    /// It went off sale.
    Withdrawn,
}

impl From<store::offers::OfferChange> for ChangeKind {
    fn from(change: store::offers::OfferChange) -> Self {
        use store::offers::OfferChange as C;
        match change {
            C::Added => Self::Added,
            C::Changed => Self::Changed,
            C::Withdrawn => Self::Withdrawn,
        }
    }
}

/// One change of an offer.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct OfferChange {
    /// The event.
    change: ChangeKind,
    /// When its provider stated it.
    observed_at: DateTime<Utc>,
    /// When the broker knew.
    known_at: DateTime<Utc>,
    /// The generation of the market that it came with.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    generation: u64,
    /// The offer after the change, for one node.
    offer: OfferView,
}

/// The changes of an offer, the latest first.
#[utoipa::path(
    tag = "offers",
    params(("id" = OfferId, Path, description = "The offer"), History),
    responses((status = 200, description = "A page of changes", body = Page<OfferChange>)),
    security(())
)]
#[get("/v1/offers/{id}/history")]
pub(crate) async fn offer_history(
    broker: web::Data<Broker>,
    id: web::Path<OfferId>,
    query: web::Query<History>,
) -> Result<web::Json<Page<OfferChange>>, ApiError> {
    let limit = limit(query.limit)?;
    let catalog = broker.store().catalog();
    if catalog.offer(*id).await?.is_none() {
        return Err(ApiError::not_found(format!(
            "there is no offer {id}; GET /v1/offers lists what is sold"
        )));
    }
    let cursors = Cursors::of(broker.keys(), "offer-history", &(*id, &*query));
    let before = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let filter = HistoryFilter {
        as_of: query.as_of,
        known_at: query.known_at,
        before,
    };
    let found = catalog.offer_history(*id, filter, limit as u64 + 1).await?;
    let page = cursors.page(found, limit, |entry| entry.id);
    let items = page
        .items
        .into_iter()
        .map(change)
        .collect::<Result<_, _>>()?;
    Ok(web::Json(Page {
        items,
        next_cursor: page.next_cursor,
    }))
}

fn change(entry: OfferHistoryEntry) -> Result<OfferChange, ApiError> {
    Ok(OfferChange {
        change: entry.change.into(),
        observed_at: entry.observed_at,
        known_at: entry.known_at,
        generation: entry.generation.0,
        offer: entry.offer.view(1).map_err(too_large)?,
    })
}
