//! `/v1/spending-limits`: how much may be in use at once. An administrator sets it; tenants read their own.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, patch, web};
use chrono::{DateTime, Utc};
use market::ids::ProjectId;
use market::money::Money;
use market::spending::{InUse, SpendingLimits, money};
use serde::{Deserialize, Serialize};
use store::limits::{LimitsChange, ScopeLimits};

use super::access::{ReadSpending, WriteSpending};
use super::auth::May;
use super::body::{Body, given};
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion};
use super::query::Query;
use crate::platform::app::Broker;

/// The highest count that a limit names.
const MOST: u32 = 1_000_000_000;

/// Limits of a tenant or a project; `null` is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct LimitsView {
    /// The project; `null`: the tenant as a whole.
    project_id: Option<ProjectId>,
    /// GPUs that may be held or leased at once.
    gpus: Option<u32>,
    /// US dollars that all that is held or leased may cost for an hour.
    usd_per_hour: Option<Money>,
    /// Holds that may wait to be confirmed.
    open_holds: Option<u32>,
    /// Nodes of holds that may wait to be confirmed.
    held_nodes: Option<u32>,
    /// Reservations that may be open.
    reservations: Option<u32>,
    /// Orders that may be cancelled before their hand-off within 24 hours; beyond it nothing more is
    /// confirmed. Of a tenant as a whole.
    cancelled_orders: Option<u32>,
    /// When they were set; `null` while they are those that every tenant begins with.
    changed_at: Option<DateTime<Utc>>,
}

impl From<&ScopeLimits> for LimitsView {
    fn from(row: &ScopeLimits) -> Self {
        Self {
            project_id: row.project_id,
            gpus: row.limits.gpus,
            usd_per_hour: row.limits.usd_per_hour,
            open_holds: row.limits.open_holds,
            held_nodes: row.limits.held_nodes,
            reservations: row.limits.reservations,
            cancelled_orders: row.limits.cancelled_orders,
            changed_at: row.changed_at,
        }
    }
}

/// The current use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct InUseView {
    /// GPUs that are held or leased.
    gpus: u64,
    /// US dollars that they cost for an hour.
    usd_per_hour: Money,
    /// Holds that wait to be confirmed.
    open_holds: u64,
    /// Their nodes.
    held_nodes: u64,
    /// Reservations that are open.
    reservations: u64,
}

impl From<InUse> for InUseView {
    fn from(in_use: InUse) -> Self {
        Self {
            gpus: in_use.gpus,
            usd_per_hour: money(in_use.units_per_hour),
            open_holds: in_use.open_holds,
            held_nodes: in_use.held_nodes,
            reservations: in_use.reservations,
        }
    }
}

/// Limits, and the part of them in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct LimitsInUse {
    #[serde(flatten)]
    limits: LimitsView,
    /// The current use.
    in_use: InUseView,
}

/// The changes; fields that are left out stay, and `null` takes a limit away.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeLimits {
    /// GPUs that may be held or leased at once.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 1_000_000_000)]
    gpus: Option<Option<u32>>,
    /// US dollars that all that is held or leased may cost for an hour.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<Money>)]
    usd_per_hour: Option<Option<Money>>,
    /// Holds that may wait to be confirmed.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 1_000_000_000)]
    open_holds: Option<Option<u32>>,
    /// Nodes of holds that may wait to be confirmed.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 1_000_000_000)]
    held_nodes: Option<Option<u32>>,
    /// Reservations that may be open.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 1_000_000_000)]
    reservations: Option<Option<u32>>,
    /// Orders that may be cancelled before their hand-off within 24 hours; of a tenant as a whole.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<u32>, maximum = 1_000_000_000)]
    cancelled_orders: Option<Option<u32>>,
}

/// The subject of the limits.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhoseLimits {
    /// Those of this project; of the tenant as a whole by default.
    #[param(inline)]
    project_id: Option<ProjectId>,
}

/// Shows the limits of the tenant or of one project, and the part of them in use. A project is bound by its
/// own limits and by its tenant's.
#[utoipa::path(
    tag = "spending",
    params(WhoseLimits),
    responses((status = 200, description = "The limits", body = LimitsInUse))
)]
#[get("/v1/spending-limits")]
pub(crate) async fn show_spending_limits(
    broker: web::Data<Broker>,
    who: May<ReadSpending>,
    query: Query<WhoseLimits>,
) -> Result<web::Json<LimitsInUse>, ApiError> {
    let (store, project) = (broker.store(), query.project_id);
    if let Some(project) = project {
        let projects = store.tenants().projects(who.tenant).await?;
        if projects.iter().all(|own| own.id != project) {
            return Err(ApiError::not_found(format!(
                "there is no project {project} here"
            )));
        }
    }
    let rows = store.limits().of(who.tenant).list().await?;
    let unlimited = ScopeLimits {
        project_id: project,
        limits: SpendingLimits::default(),
        changed_at: None,
    };
    let limits = rows.into_iter().find(|row| row.project_id == project);
    let spending = store.spending().of(who.tenant);
    Ok(web::Json(LimitsInUse {
        limits: LimitsView::from(&limits.unwrap_or(unlimited)),
        in_use: spending.in_use(project, broker.now()).await?.into(),
    }))
}

/// Changes the limits of the tenant or of one project: for an administrator. Current use stays.
#[utoipa::path(
    tag = "spending",
    params(WhoseLimits, IdempotencyHeader),
    request_body = ChangeLimits,
    responses((status = 200, description = "The limits", body = LimitsView))
)]
#[patch("/v1/spending-limits")]
pub(crate) async fn change_spending_limits(
    broker: web::Data<Broker>,
    who: May<WriteSpending>,
    request: HttpRequest,
    query: Query<WhoseLimits>,
    body: Body<ChangeLimits>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    let change = LimitsChange {
        gpus: asked.gpus,
        usd_per_hour: asked.usd_per_hour,
        open_holds: asked.open_holds,
        held_nodes: asked.held_nodes,
        reservations: asked.reservations,
        cancelled_orders: asked.cancelled_orders,
    };
    if change == LimitsChange::default() {
        return Err(ApiError::invalid_body(
            "give `gpus`, `usd_per_hour`, `open_holds`, `held_nodes`, `reservations`, `cancelled_orders`, or several; `null` takes a limit away",
        ));
    }
    if query.project_id.is_some() && change.cancelled_orders.is_some() {
        return Err(ApiError::invalid_body(
            "`cancelled_orders` is a limit of the tenant as a whole; leave `project_id` out",
        ));
    }
    let limits = change.of(SpendingLimits::default());
    limits
        .check()
        .map_err(|refusal| ApiError::invalid_body(refusal.to_string()))?;
    let counts = [
        limits.gpus,
        limits.open_holds,
        limits.held_nodes,
        limits.reservations,
        limits.cancelled_orders,
    ];
    if counts.into_iter().flatten().any(|count| count > MOST) {
        return Err(ApiError::invalid_body(format!(
            "a limit is at most {MOST}; `null` is no limit"
        )));
    }
    let render = |row: &ScopeLimits| answer(StatusCode::OK, &LimitsView::from(row));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let limits = broker.store().limits().of(who.tenant);
        let changed = limits
            .change(
                query.project_id,
                change,
                broker.now(),
                completion(effect, &render),
            )
            .await?;
        Ok(render(&changed))
    })
    .await
}
