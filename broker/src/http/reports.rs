//! `GET /v1/reports/costs`: charges, as JSON or as CSV.

use actix_web::http::header::ACCEPT;
use actix_web::{HttpRequest, HttpResponse, get, web};
use chrono::{DateTime, Utc};
use market::identity::{Projects, Role};
use market::money::Money;
use pricing::report::CostReport;
use serde::{Deserialize, Serialize};

use super::access::ReadSpending;
use super::auth::{InProjects, May};
use super::error::ApiError;
use super::query::Query;
use crate::flow::report::{self, CostQuery, ReportError};
use crate::platform::app::Broker;

/// In which form a report is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// As JSON.
    Json,
    /// As CSV, one column for each dimension.
    Csv,
}

/// The report's query.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskCosts {
    /// The grouping, separated by commas: `project`, `provider`, `gpu`, `workload`, `day`, `reservation`,
    /// `tag:KEY`. One row for everything by default.
    #[param(example = "project,provider,tag:team")]
    group_by: Option<String>,
    /// Only use that began at this time or later.
    from: Option<DateTime<Utc>>,
    /// Only use that began before this time.
    to: Option<DateTime<Utc>>,
    /// The form; by default as `Accept` asks.
    #[param(inline)]
    format: Option<Form>,
}

/// The charges, and beside them the part that need not be paid.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CostAnswer {
    #[serde(flatten)]
    report: CostReport,
    /// US dollars of the credits given in this time. No row and no total is less for them; the CSV
    /// does not have them. `null` for a key that works in some projects only: credits are the
    /// tenant's as a whole.
    credited_usd: Option<Money>,
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        let said = error.to_string();
        match error {
            ReportError::Price(pricing::PriceError::UnknownDimension(_))
            | ReportError::EmptyTime => Self::invalid_parameter(said),
            ReportError::Price(_) => Self::broken(&error),
            ReportError::Busy(_) => Self::busy(said).retry_after_seconds(1),
            ReportError::Store(error) => error.into(),
        }
    }
}

/// Sums up charges, at the frozen rates, by finance's groupings. For an administrator who names no tenant,
/// everybody's.
#[utoipa::path(
    tag = "reports",
    params(AskCosts),
    responses((
        status = 200, description = "The report",
        content((CostAnswer = "application/json"), (String = "text/csv"))
    ))
)]
#[get("/v1/reports/costs")]
pub(crate) async fn cost_report(
    broker: web::Data<Broker>,
    who: May<ReadSpending, InProjects>,
    request: HttpRequest,
    query: Query<AskCosts>,
) -> Result<HttpResponse, ApiError> {
    let group_by = CostQuery::dimensions(query.group_by.as_deref().unwrap_or_default())
        .map_err(ReportError::from)?;
    let asked = CostQuery {
        group_by,
        from: query.from,
        to: query.to,
    };
    let everybody = who.grant.role == Role::Admin && !who.tenant_named;
    let reach = who.reach();
    let whose = (!everybody).then_some(&reach);
    let report = report::costs(&broker, whose, &asked).await?;
    match query.format.unwrap_or_else(|| accepted(&request)) {
        Form::Json => {
            let credited_usd = match reach.projects {
                Projects::All => {
                    let tenant = whose.map(|whose| whose.tenant);
                    Some(report::credited(&broker, tenant, &asked).await?)
                }
                Projects::Only(_) => None,
            };
            Ok(HttpResponse::Ok().json(CostAnswer {
                report,
                credited_usd,
            }))
        }
        Form::Csv => {
            let text = report::as_csv(&report, &asked).map_err(ReportError::from)?;
            Ok(HttpResponse::Ok()
                .content_type("text/csv; charset=utf-8")
                .body(text))
        }
    }
}

/// CSV when it is asked for by name, JSON otherwise.
fn accepted(request: &HttpRequest) -> Form {
    let accept = request
        .headers()
        .get(ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let asks_for = |kind: &str| {
        accept.split(',').any(|range| {
            range
                .split(';')
                .next()
                .is_some_and(|name| name.trim() == kind)
        })
    };
    if asks_for("text/csv") && !asks_for("application/json") {
        Form::Csv
    } else {
        Form::Json
    }
}
