//! `GET /v1/gpus` and `GET /v1/gpus/{gpu}/index`: the catalogue of GPUs, and their prices today.

use std::collections::BTreeSet;

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::gpu::{Gpu, GpuFit, GpuSpec, GpuWanted};
use market::ids::ProviderId;
use market::money::{Money, Rate, divide_half_even};
use market::offer::Terms;
use matcher::{OfferRef, Snapshot};
use serde::Serialize;

use super::error::ApiError;
use super::page::{Cursors, Page, WhichPage, limit};
use crate::platform::app::Broker;

/// Lists the GPUs that the broker knows, with the published facts of each.
#[utoipa::path(
    tag = "gpus",
    params(WhichPage),
    responses((status = 200, description = "A page of the catalogue, by name", body = Page<GpuSpec>)),
    security(())
)]
#[get("/v1/gpus")]
pub(crate) async fn list_gpus(
    broker: web::Data<Broker>,
    query: web::Query<WhichPage>,
) -> Result<web::Json<Page<GpuSpec>>, ApiError> {
    let limit = limit(query.limit)?;
    let cursors = Cursors::of(broker.keys(), "gpus", &());
    let after: Option<String> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let mut specs: Vec<&GpuSpec> = Gpu::all().map(Gpu::spec).collect();
    specs.sort_unstable_by(|a, b| a.canonical.cmp(&b.canonical));
    let page = specs
        .into_iter()
        .filter(|spec| after.as_ref().is_none_or(|after| spec.canonical > *after))
        .take(limit + 1)
        .cloned()
        .collect();
    Ok(web::Json(
        cursors.page(page, limit, |spec| spec.canonical.clone()),
    ))
}

/// The price of a GPU today.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct PriceIndex {
    /// The GPU or family that was asked for.
    gpu: String,
    /// The generation of the market that the figures are of.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    generation: u64,
    /// When that was.
    taken_at: DateTime<Utc>,
    /// One entry for each kind of terms on sale.
    terms: Vec<TermsIndex>,
}

/// The price of a GPU under some terms.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct TermsIndex {
    /// The terms.
    terms: Terms,
    /// Offers counted: fresh and not sold out.
    #[schema(minimum = 1, maximum = 10_000_000)]
    offers: usize,
    /// Providers that make them.
    #[schema(minimum = 1, maximum = 100_000)]
    providers: usize,
    /// The lowest price: US dollars per GPU-hour.
    lowest_usd_gpu_hour: Rate,
    /// The median price: US dollars per GPU-hour; between two, their mean.
    median_usd_gpu_hour: Rate,
}

/// The lowest and the median price per GPU-hour of a GPU or of a family, over live offers.
///
/// Offers that are stale, sold out or only a floor for bids are left out.
#[utoipa::path(
    tag = "gpus",
    params(("gpu" = GpuWanted, Path, description = "A GPU (`H100-SXM`) or a family (`H100`), in any case")),
    responses((status = 200, description = "The price index", body = PriceIndex)),
    security(())
)]
#[get("/v1/gpus/{gpu}/index")]
pub(crate) async fn gpu_index(
    broker: web::Data<Broker>,
    gpu: web::Path<String>,
) -> Result<web::Json<PriceIndex>, ApiError> {
    let wanted = GpuWanted::parse(&gpu).map_err(|error| ApiError::not_found(error.to_string()))?;
    Ok(web::Json(price_index(
        &broker.snapshot(),
        &wanted,
        broker.now(),
    )))
}

fn price_index(snapshot: &Snapshot, wanted: &GpuWanted, now: DateTime<Utc>) -> PriceIndex {
    let is_it = |offer: OfferRef<'_>| {
        let fit = wanted.fit(offer.gpu(), offer.gpu_memory_mib());
        *wanted == GpuWanted::Any || fit == GpuFit::Yes
    };
    let mut live: Vec<(Terms, Rate, &ProviderId)> = snapshot
        .offers()
        .filter(|offer| counts(*offer, now) && is_it(*offer))
        .filter_map(|offer| Some((offer.terms(), offer.rate().ok()?, offer.provider())))
        .collect();
    live.sort_unstable();
    let terms = live
        .chunk_by(|a, b| a.0 == b.0)
        .map(|rows| TermsIndex {
            terms: rows[0].0,
            offers: rows.len(),
            providers: rows.iter().map(|row| row.2).collect::<BTreeSet<_>>().len(),
            lowest_usd_gpu_hour: rows[0].1,
            median_usd_gpu_hour: median(rows[(rows.len() - 1) / 2].1, rows[rows.len() / 2].1),
        })
        .collect();
    PriceIndex {
        gpu: wanted.to_string(),
        generation: snapshot.generation(),
        taken_at: snapshot.taken_at(),
        terms,
    }
}

fn counts(offer: OfferRef<'_>, now: DateTime<Utc>) -> bool {
    offer.terms() != Terms::Floor && !offer.availability().is_sold_out() && !offer.is_stale(now)
}

/// The mean of the two middle prices, rounded half to even; they are the same one of an odd count.
fn median(low: Rate, high: Rate) -> Rate {
    let (low, high) = (low.money_per_gpu_hour(), high.money_per_gpu_hour());
    let sum = i128::from(low.units()) + i128::from(high.units());
    // A mean of two 64-bit numbers is one.
    let units = divide_half_even(sum, 2) as i64;
    Rate::per_gpu_hour(Money::from_units(units, low.currency()))
}
