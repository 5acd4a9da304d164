//! `GET /v1/offers…`: the offers on sale now, and earlier ones.

mod history;
mod list;
mod pages;

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::OfferId;
use market::money::MoneyError;
use market::offer::{Offer, OfferView};
use matcher::Snapshot;
use serde::Serialize;

pub(crate) use history::offer_history;
pub(crate) use list::list_offers;
pub(crate) use pages::OfferPages;

use super::error::ApiError;
use crate::platform::app::Broker;

/// An offer, and how far it can be relied on.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct OfferItem {
    /// The offer, for one node.
    #[serde(flatten)]
    offer: OfferView,
    /// How long ago its provider, or its price list, stated this. Units: seconds.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    age_seconds: u64,
    /// Whether it is older than its provider's freshness limit; then it is not matched. Offers of
    /// price lists have no limit.
    stale: bool,
    /// Why its provider could not be read the last time; `null` while readings come in well.
    stale_reason: Option<String>,
    /// Whether it is still on sale. An offer that was withdrawn is only found by its id.
    withdrawn: bool,
}

fn item(
    snapshot: &Snapshot,
    offer: &Offer,
    withdrawn: bool,
    now: DateTime<Utc>,
) -> Result<OfferItem, ApiError> {
    Ok(OfferItem {
        offer: offer.view(1).map_err(too_large)?,
        age_seconds: offer.age_seconds(now),
        stale: snapshot.is_stale(offer, now),
        stale_reason: snapshot
            .provider(&offer.provider)
            .and_then(|provider| provider.stale.clone()),
        withdrawn,
    })
}

fn too_large(error: MoneyError) -> ApiError {
    ApiError::broken(&error)
}

/// One offer, also when it is sold out or was withdrawn.
#[utoipa::path(
    tag = "offers",
    params(("id" = OfferId, Path, description = "The offer")),
    responses((status = 200, description = "The offer", body = OfferItem)),
    security(())
)]
#[get("/v1/offers/{id}")]
pub(crate) async fn show_offer(
    broker: web::Data<Broker>,
    id: web::Path<OfferId>,
) -> Result<web::Json<OfferItem>, ApiError> {
    let (snapshot, now) = (broker.snapshot(), broker.now());
    if let Some(offer) = snapshot.offer(&id) {
        return item(&snapshot, &offer.to_offer(), false, now).map(web::Json);
    }
    let known = broker.store().catalog().offer(*id).await?.ok_or_else(|| {
        ApiError::not_found(format!(
            "there is no offer {id}; GET /v1/offers lists what is sold"
        ))
    })?;
    item(&snapshot, &known.offer, known.withdrawn, now).map(web::Json)
}
