//! `/v1/budgets`: caps on the cost of a day or a month. An administrator sets them; tenants read their own.
//! `GET /v1/balance` shows the state of each.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, patch, post, web};
use chrono::{DateTime, Utc};
use market::ids::{BudgetId, ProjectId, TenantId};
use market::money::Money;
use market::spending::{Budget, BudgetMode, BudgetPeriod, BudgetTerms, SpendingRefusal};
use serde::{Deserialize, Serialize};
use store::budgets::BudgetChange;

use super::access::{ReadSpending, WriteSpending};
use super::auth::May;
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use super::page::{Cursors, Page, WhichPage};
use super::query::{NoParameters, Query};
use crate::platform::app::Broker;

/// A budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct BudgetView {
    /// Its id.
    id: BudgetId,
    /// The project it is for; `null`: all of the tenant's together.
    project_id: Option<ProjectId>,
    /// How long the cap runs: a calendar day or month, UTC.
    period: BudgetPeriod,
    /// US dollars that may be spent in one period.
    cap_usd: Money,
    /// The action when it is reached.
    mode: BudgetMode,
    /// The percentages of the cap at which an event is sent.
    thresholds_percent: Vec<u16>,
    /// How many seconds running machines continue once the cap is spent.
    grace_seconds: u32,
    /// When it was made.
    created_at: DateTime<Utc>,
}

impl From<&Budget> for BudgetView {
    fn from(budget: &Budget) -> Self {
        Self {
            id: budget.id,
            project_id: budget.project_id,
            period: budget.terms.period,
            cap_usd: budget.terms.cap,
            mode: budget.terms.mode,
            thresholds_percent: budget.terms.thresholds_percent.clone(),
            grace_seconds: budget.terms.grace_seconds,
            created_at: budget.created_at,
        }
    }
}

/// A budget to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddBudget {
    /// The project that it limits; all of the tenant's together by default.
    #[serde(default)]
    project_id: Option<ProjectId>,
    /// How long the cap runs: a calendar day or month, UTC.
    period: BudgetPeriod,
    /// US dollars that may be spent in one period, above 0.
    cap_usd: Money,
    /// The action when it is reached.
    mode: BudgetMode,
    /// The percentages of the cap at which an event is sent: up to ten different ones.
    #[serde(default = "usual_thresholds")]
    #[schema(max_items = 10, minimum = 1, maximum = 1_000, default = json!([50, 80, 100]))]
    thresholds_percent: Vec<u16>,
    /// How many seconds running machines continue once the cap is spent, in the mode that ends them.
    #[serde(default = "usual_grace")]
    #[schema(maximum = 604_800, default = 3_600)]
    grace_seconds: u32,
}

fn usual_thresholds() -> Vec<u16> {
    vec![50, 80, 100]
}

const fn usual_grace() -> u32 {
    3_600
}

/// The changes; fields that are left out stay.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeBudget {
    /// US dollars that may be spent in one period, above 0.
    #[serde(default)]
    cap_usd: Option<Money>,
    /// The action when it is reached.
    #[serde(default)]
    mode: Option<BudgetMode>,
    /// The percentages of the cap at which an event is sent.
    #[serde(default)]
    #[schema(max_items = 10, minimum = 1, maximum = 1_000)]
    thresholds_percent: Option<Vec<u16>>,
    /// How many seconds running machines continue once the cap is spent.
    #[serde(default)]
    #[schema(maximum = 604_800)]
    grace_seconds: Option<u32>,
}

impl From<SpendingRefusal> for ApiError {
    fn from(refusal: SpendingRefusal) -> Self {
        Self::invalid_body(refusal.to_string())
    }
}

fn unknown(id: BudgetId) -> ApiError {
    ApiError::not_found(format!("there is no budget {id} here"))
}

async fn find(broker: &Broker, tenant: TenantId, id: BudgetId) -> Result<Budget, ApiError> {
    let budgets = broker.store().budgets().of(tenant);
    budgets.find(id).await?.ok_or_else(|| unknown(id))
}

/// Lists the tenant's budgets, the newest first.
#[utoipa::path(
    tag = "spending",
    params(WhichPage),
    responses((status = 200, description = "A page of budgets", body = Page<BudgetView>))
)]
#[get("/v1/budgets")]
pub(crate) async fn list_budgets(
    broker: web::Data<Broker>,
    who: May<ReadSpending>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<BudgetView>>, ApiError> {
    let budgets = broker.store().budgets().of(who.tenant).list().await?;
    let newest_first = budgets.iter().rev();
    let cursors = Cursors::of(broker.keys(), "budgets", &who.tenant);
    let page = cursors.page_of(newest_first, &query, |row| row.id)?;
    Ok(web::Json(page.map(BudgetView::from)))
}

/// Makes a budget: for an administrator. Existing commitments count against it and stay.
#[utoipa::path(
    tag = "spending",
    params(IdempotencyHeader),
    request_body = AddBudget,
    responses((status = 201, description = "The budget", body = BudgetView))
)]
#[post("/v1/budgets")]
pub(crate) async fn add_budget(
    broker: web::Data<Broker>,
    who: May<WriteSpending>,
    request: HttpRequest,
    _: Query<NoParameters>,
    body: Body<AddBudget>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    let terms = BudgetTerms {
        period: asked.period,
        cap: asked.cap_usd,
        mode: asked.mode,
        thresholds_percent: asked.thresholds_percent,
        grace_seconds: asked.grace_seconds,
    }
    .check()?;
    let render = |budget: &Budget| answer(StatusCode::CREATED, &BudgetView::from(budget));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let id = BudgetId::from_uuid(broker.new_uuid());
        let budgets = broker.store().budgets().of(who.tenant);
        let made = budgets
            .add(
                id,
                asked.project_id,
                terms,
                broker.now(),
                completion(effect, &render),
            )
            .await?;
        Ok(render(&made))
    })
    .await
}

/// Shows a budget.
#[utoipa::path(
    tag = "spending",
    params(("id" = BudgetId, Path, description = "The budget")),
    responses((status = 200, description = "The budget", body = BudgetView))
)]
#[get("/v1/budgets/{id}")]
pub(crate) async fn show_budget(
    broker: web::Data<Broker>,
    who: May<ReadSpending>,
    id: web::Path<BudgetId>,
    _: Query<NoParameters>,
) -> Result<web::Json<BudgetView>, ApiError> {
    let budget = find(&broker, who.tenant, *id).await?;
    Ok(web::Json(BudgetView::from(&budget)))
}

/// Changes a budget: for an administrator. Notices sent in this period are not sent again, and an announced
/// stop is withdrawn when the new cap is not spent.
#[utoipa::path(
    tag = "spending",
    params(("id" = BudgetId, Path, description = "The budget"), IdempotencyHeader),
    request_body = ChangeBudget,
    responses((status = 200, description = "The budget", body = BudgetView))
)]
#[patch("/v1/budgets/{id}")]
pub(crate) async fn change_budget(
    broker: web::Data<Broker>,
    who: May<WriteSpending>,
    request: HttpRequest,
    id: web::Path<BudgetId>,
    _: Query<NoParameters>,
    body: Body<ChangeBudget>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    let change = BudgetChange {
        cap: asked.cap_usd,
        mode: asked.mode,
        thresholds_percent: asked.thresholds_percent,
        grace_seconds: asked.grace_seconds,
    };
    if change == BudgetChange::default() {
        return Err(ApiError::invalid_body(
            "give `cap_usd`, `mode`, `thresholds_percent`, `grace_seconds`, or several",
        ));
    }
    let render = |budget: &Budget| answer(StatusCode::OK, &BudgetView::from(budget));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let old = find(&broker, who.tenant, *id).await?.terms;
        let new = change.of(&old).check()?;
        let budgets = broker.store().budgets().of(who.tenant);
        let changed = budgets
            .change(*id, &old, new, completion(effect, &render))
            .await?;
        Ok(render(&changed))
    })
    .await
}

/// Forgets a budget: for an administrator.
#[utoipa::path(
    tag = "spending",
    params(("id" = BudgetId, Path, description = "The budget"), IdempotencyHeader),
    responses((status = 204, description = "It is forgotten"))
)]
#[delete("/v1/budgets/{id}")]
pub(crate) async fn delete_budget(
    broker: web::Data<Broker>,
    who: May<WriteSpending>,
    request: HttpRequest,
    id: web::Path<BudgetId>,
    _: Query<NoParameters>,
) -> Result<HttpResponse, ApiError> {
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let budgets = broker.store().budgets().of(who.tenant);
        budgets.delete(*id, completion(effect, &gone)).await?;
        Ok(gone(&()))
    })
    .await
}
