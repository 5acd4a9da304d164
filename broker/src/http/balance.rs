//! `GET /v1/balance`: spending, commitments, and how long the caps last.

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::{BudgetId, ProjectId};
use market::money::Money;
use market::spending::BudgetPeriod;
use serde::Serialize;

use super::access::ReadSpending;
use super::auth::May;
use super::error::ApiError;
use super::query::{NoParameters, Query};
use crate::platform::app::Broker;
use crate::tenant::spending::{self, Balance, BalanceError, BudgetStanding, HoursLeft, Standing};

/// The balance of a tenant or a project.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct StandingView {
    /// US dollars charged for use that began today, UTC.
    charged_today_usd: Money,
    /// US dollars charged for use that began this month, UTC.
    charged_this_month_usd: Money,
    /// US dollars that open reservations may still cost until the month ends.
    open_this_month_usd: Money,
    /// The current charge rate. Units: US dollars per hour.
    burn_usd_per_hour: Money,
    /// Hours until the tightest cap is spent at this rate, rounded down to hundredths; `null` when
    /// none is spent before its period ends.
    #[schema(minimum = 0)]
    hours_left: Option<f64>,
    /// The budget with this cap.
    tightest_budget_id: Option<BudgetId>,
}

/// The balance of a project.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct ProjectStandingView {
    /// The project.
    project_id: ProjectId,
    /// Its name.
    name: String,
    #[serde(flatten)]
    standing: StandingView,
}

/// The state of a budget in its present period.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct BudgetStandingView {
    /// The budget.
    budget_id: BudgetId,
    /// The project it is for; `null`: all of the tenant's together.
    project_id: Option<ProjectId>,
    /// How long its cap runs.
    period: BudgetPeriod,
    /// When this period began.
    period_start: DateTime<Utc>,
    /// When it ends.
    period_end: DateTime<Utc>,
    /// US dollars that may be spent in it.
    cap_usd: Money,
    /// US dollars charged for use that began in it.
    charged_usd: Money,
    /// US dollars that open reservations may still cost in it.
    open_usd: Money,
    /// Hours until its cap is spent at the present rate, rounded down to hundredths; `null` when
    /// it is not spent before the period ends.
    #[schema(minimum = 0)]
    hours_left: Option<f64>,
}

/// The balance of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct BalanceView {
    /// As of when.
    as_of: DateTime<Utc>,
    #[serde(flatten)]
    total: StandingView,
    /// US dollars that the tenant was credited since it began: it need not pay this part of its charges.
    credited_usd: Money,
    /// Each budget, the oldest first.
    budgets: Vec<BudgetStandingView>,
    /// Each project, by name.
    projects: Vec<ProjectStandingView>,
}

fn hours(left: HoursLeft) -> f64 {
    f64::from(left.0) / 100.0
}

impl From<&Standing> for StandingView {
    fn from(standing: &Standing) -> Self {
        Self {
            charged_today_usd: standing.charged_today,
            charged_this_month_usd: standing.charged_this_month,
            open_this_month_usd: standing.open_this_month,
            burn_usd_per_hour: standing.burn_per_hour,
            hours_left: standing.tightest.map(|(_, left)| hours(left)),
            tightest_budget_id: standing.tightest.map(|(budget, _)| budget),
        }
    }
}

impl From<&BudgetStanding> for BudgetStandingView {
    fn from(standing: &BudgetStanding) -> Self {
        Self {
            budget_id: standing.budget.id,
            project_id: standing.budget.project_id,
            period: standing.budget.terms.period,
            period_start: standing.span.start,
            period_end: standing.span.end,
            cap_usd: standing.budget.terms.cap,
            charged_usd: standing.charged,
            open_usd: standing.open,
            hours_left: standing.hours_left.map(hours),
        }
    }
}

impl From<&Balance> for BalanceView {
    fn from(balance: &Balance) -> Self {
        let projects = balance.projects.iter();
        Self {
            as_of: balance.as_of,
            total: StandingView::from(&balance.total),
            credited_usd: balance.credited,
            budgets: balance.budgets.iter().map(Into::into).collect(),
            projects: projects
                .map(|(project, standing)| ProjectStandingView {
                    project_id: project.id,
                    name: project.name.clone(),
                    standing: standing.into(),
                })
                .collect(),
        }
    }
}

impl From<BalanceError> for ApiError {
    fn from(error: BalanceError) -> Self {
        match error {
            BalanceError::Store(error) => error.into(),
            BalanceError::Sum(_) => Self::broken(&error),
        }
    }
}

/// Shows the spending of today and this month, commitments, the current charge rate and how long the tightest
/// cap lasts, for the tenant, each budget and each project.
#[utoipa::path(
    tag = "spending",
    responses((status = 200, description = "The balance", body = BalanceView))
)]
#[get("/v1/balance")]
pub(crate) async fn show_balance(
    broker: web::Data<Broker>,
    who: May<ReadSpending>,
    _: Query<NoParameters>,
) -> Result<web::Json<BalanceView>, ApiError> {
    let balance = spending::balance(&broker, who.tenant).await?;
    Ok(web::Json(BalanceView::from(&balance)))
}
