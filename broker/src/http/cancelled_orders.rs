//! `GET /v1/reports/cancelled-orders`: the orders that tenants cancelled before the hand-off, for the
//! operator who pays for them.

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::TenantId;
use market::money::Money;
use market::spending::{BudgetPeriod, money};
use serde::{Deserialize, Serialize};

use super::access::ReadAudit;
use super::auth::May;
use super::error::ApiError;
use super::query::Query;
use crate::platform::app::Broker;

/// Which time.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhenCancelled {
    /// Only orders cancelled after this time; by default from the first of this month on.
    from: Option<DateTime<Utc>>,
    /// Only orders cancelled before this time.
    to: Option<DateTime<Utc>>,
}

/// The orders that one tenant cancelled before the hand-off.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CancelledOrdersView {
    /// The tenant.
    tenant_id: TenantId,
    /// Its name.
    tenant: String,
    /// How many orders its providers had accepted.
    orders: u64,
    /// US dollars that providers billed for them; of machines that are gone.
    cost_usd: Money,
}

/// Orders that were cancelled before their hand-off, a row for each tenant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CancelledOrdersReport {
    /// The dearest first.
    items: Vec<CancelledOrdersView>,
}

/// Lists the operator's cost of each tenant's cancels before the hand-off. For an administrator.
#[utoipa::path(
    tag = "reports",
    params(WhenCancelled),
    responses((status = 200, description = "A row for each tenant", body = CancelledOrdersReport))
)]
#[get("/v1/reports/cancelled-orders")]
pub(crate) async fn cancelled_orders(
    broker: web::Data<Broker>,
    _who: May<ReadAudit>,
    query: Query<WhenCancelled>,
) -> Result<web::Json<CancelledOrdersReport>, ApiError> {
    let now = broker.now();
    let from = query.from;
    let from = from.unwrap_or_else(|| BudgetPeriod::Month.around(now).start);
    let cancelled = broker.store().cancelled_orders();
    let rows = cancelled.by_tenant(from, query.to).await?;
    let items = rows.into_iter().map(|row| CancelledOrdersView {
        tenant_id: row.tenant,
        tenant: row.name,
        orders: row.orders,
        cost_usd: money(row.cost_units),
    });
    Ok(web::Json(CancelledOrdersReport {
        items: items.collect(),
    }))
}
