//! `GET /v1/providers`: whose supply is read, and how fresh it is.

use std::collections::BTreeMap;

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use matcher::Snapshot;
use serde::{Deserialize, Serialize};
use store::providers::Provider;

use super::access::ReadProviders;
use super::auth::May;
use super::error::ApiError;
use super::page::{Cursors, Page, limit};
use crate::app::Broker;

/// A provider, and how far its supply is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ProviderItem {
    /// Its id.
    id: ProviderId,
    /// Whether its offers are sold and its catalogue is read.
    enabled: bool,
    /// Whether its offers can be ordered here; those of price lists cannot.
    orderable: bool,
    /// Whether its last complete reading is within its freshness limit.
    fresh: bool,
    /// Past this age its offers are not matched; `null` for price lists, which have no limit.
    /// Units: seconds.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    freshness_limit_seconds: Option<u64>,
    /// When its catalogue was last asked for.
    last_attempt_at: Option<DateTime<Utc>>,
    /// When its catalogue was last read as a whole.
    last_complete_at: Option<DateTime<Utc>>,
    /// Why the last attempt changed nothing; `null` when it did.
    stale_reason: Option<String>,
    /// Offers that its last complete reading held.
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    live_offers: u32,
    /// Records of that reading that are no offer, by reason (of the first 500).
    #[schema(value_type = BTreeMap<String, u64>)]
    skipped_by_reason: BTreeMap<String, u64>,
}

/// Which providers.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListProviders {
    /// The cursor of the page before.
    cursor: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Lists the providers by id.
#[utoipa::path(
    tag = "providers",
    params(ListProviders),
    responses((status = 200, description = "A page of providers", body = Page<ProviderItem>))
)]
#[get("/v1/providers")]
pub(crate) async fn list_providers(
    broker: web::Data<Broker>,
    _who: May<ReadProviders>,
    query: web::Query<ListProviders>,
) -> Result<web::Json<Page<ProviderItem>>, ApiError> {
    let limit = limit(query.limit)?;
    let cursors = Cursors::of(broker.keys(), "providers", &());
    let after: Option<ProviderId> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let (snapshot, now) = (broker.snapshot(), broker.now());
    let providers = broker.store().providers().list().await?;
    let items = providers
        .into_iter()
        .filter(|provider| after.as_ref().is_none_or(|after| provider.id > *after))
        .take(limit + 1)
        .map(|provider| {
            let orderable = broker.provider(&provider.id).is_some();
            item(&snapshot, provider, orderable, now)
        })
        .collect();
    Ok(web::Json(
        cursors.page(items, limit, |provider| provider.id.clone()),
    ))
}

fn item(
    snapshot: &Snapshot,
    provider: Provider,
    orderable: bool,
    now: DateTime<Utc>,
) -> ProviderItem {
    let mut skipped_by_reason = BTreeMap::new();
    for skipped in &provider.skipped {
        *skipped_by_reason
            .entry(skipped.reason.as_str().to_owned())
            .or_default() += skipped.rows;
    }
    ProviderItem {
        fresh: is_fresh(snapshot, &provider, now),
        freshness_limit_seconds: snapshot
            .provider(&provider.id)
            .and_then(|view| view.freshness_limit_seconds),
        id: provider.id,
        enabled: provider.enabled,
        orderable,
        last_attempt_at: provider.last_attempt_at,
        last_complete_at: provider.last_complete_at,
        stale_reason: provider.stale_reason,
        live_offers: provider.live_offers,
        skipped_by_reason,
    }
}

/// Whether the last complete reading of a provider is within its freshness limit, if it has one.
pub(super) fn is_fresh(snapshot: &Snapshot, provider: &Provider, now: DateTime<Utc>) -> bool {
    let limit = snapshot
        .provider(&provider.id)
        .map(|view| view.freshness_limit_seconds);
    let age = provider
        .last_complete_at
        .and_then(|at| u64::try_from((now - at).num_seconds().max(0)).ok());
    let is_within = |(limit, age): (Option<u64>, u64)| limit.is_none_or(|limit| age <= limit);
    provider.enabled && limit.zip(age).is_some_and(is_within)
}
