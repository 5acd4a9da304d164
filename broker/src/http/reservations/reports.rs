//! `POST /v1/reservations/{id}/nodes/{n}/report` and `GET …/reports`: a tenant's reports on a node that it
//! has in use.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::attestation::{Attestation, FindingCode, Verdict};
use market::ids::{LeaseId, NodeReportId, PrincipalId, ReservationId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::node_reports::{Follows, NodeReport};

use super::change::may_change;
use crate::flow::reserve;
use crate::http::access::{ReadReservations, WriteReservations};
use crate::http::auth::{InProjects, May};
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::http::page::{Cursors, Page, WhichPage, limit};
use crate::http::query::Query;
use crate::platform::app::Broker;
use crate::tenant::node_reports::{self as stage, ReportError, Reported};

/// The largest report: several times the agent's output for a node with 64 GPUs. Units: bytes.
const REPORT_BYTES: usize = 128 * 1024;
/// The longest reason. Units: characters.
const REASON_CHARS: usize = 500;

/// A node's trouble: a reason, a result, or both.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReportNode {
    /// The trouble, in words.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 500)]
    reason: Option<String>,
    /// The output of `verifier run --json` on the node.
    #[serde(default)]
    result: Option<Attestation>,
}

/// A report on a node, and its consequence.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeReportView {
    /// Its id.
    id: NodeReportId,
    /// The node's number within the reservation, from 0.
    #[schema(minimum = 0, maximum = 100_000)]
    node: u32,
    /// The lease that the node belonged to.
    lease_id: LeaseId,
    /// The principal who reported it.
    reported_by: PrincipalId,
    /// When.
    reported_at: DateTime<Utc>,
    /// The trouble, in words.
    reason: Option<String>,
    /// The verdict of the result that came with it.
    verdict: Option<Verdict>,
    /// The checks that failed by that result.
    failed: Vec<FindingCode>,
    /// The ids of GPUs that were handed over and that the result does not show.
    missing_gpus: Vec<String>,
    /// The ids of GPUs that the result shows among those that were handed over, and that were not: one
    /// was swapped.
    foreign_gpus: Vec<String>,
    /// The consequence.
    follows: Follows,
    /// The result, as it came.
    #[schema(value_type = Option<Attestation>)]
    result: Option<Value>,
}

impl From<&NodeReport> for NodeReportView {
    fn from(report: &NodeReport) -> Self {
        Self {
            id: report.id,
            node: report.node,
            lease_id: report.lease_id,
            reported_by: report.reported_by,
            reported_at: report.reported_at,
            reason: report.reason.clone(),
            verdict: report.verdict,
            failed: report.failed.clone(),
            missing_gpus: report.missing.clone(),
            foreign_gpus: report.foreign.clone(),
            follows: report.follows,
            result: report.result.clone(),
        }
    }
}

impl From<ReportError> for ApiError {
    fn from(error: ReportError) -> Self {
        use ReportError as E;
        let said = error.to_string();
        match error {
            E::Reservation(error) => error.into(),
            E::UnknownNode { .. } => Self::not_found(said),
            E::NotInUse { .. } => Self::not_handed_off(said),
            E::Result(_) => Self::result_refused(said),
            E::Store(error) => error.into(),
        }
    }
}

fn render(report: &NodeReport) -> store::idempotency::Answer {
    answer(StatusCode::CREATED, &NodeReportView::from(report))
}

fn check_reason(reason: &str) -> Result<(), ApiError> {
    let is_shown = |c: char| !c.is_control() || c == '\n';
    let fits = !reason.trim().is_empty()
        && reason.chars().count() <= REASON_CHARS
        && reason.chars().all(is_shown);
    if fits {
        return Ok(());
    }
    Err(ApiError::invalid_body(format!(
        "`reason` must be 1 to {REASON_CHARS} printable characters"
    )))
}

/// Reports a node in use. A failed result makes the broker replace the node's lease, in a fleet. The report
/// is kept in any case and shows its consequence.
#[utoipa::path(
    tag = "reservations",
    params(
        ("id" = ReservationId, Path, description = "The reservation"),
        ("n" = u32, Path, description = "The node's number within the reservation, from 0", minimum = 0, maximum = 100_000),
        IdempotencyHeader
    ),
    request_body = ReportNode,
    responses((status = 201, description = "The report, and its consequence", body = NodeReportView))
)]
#[post("/v1/reservations/{id}/nodes/{n}/report")]
pub(crate) async fn report_node(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    path: web::Path<(ReservationId, u32)>,
    body: Body<ReportNode, REPORT_BYTES>,
) -> Result<HttpResponse, ApiError> {
    let (id, node) = path.into_inner();
    let ReportNode { reason, result } = body.value;
    if reason.is_none() && result.is_none() {
        return Err(ApiError::invalid_body("give `reason`, `result` or both"));
    }
    if let Some(reason) = &reason {
        check_reason(reason)?;
    }
    may_change(&broker, &who, id).await?;
    let reported = Reported {
        by: who.id,
        reason,
        result,
    };
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let done = completion(mark, &render);
        let kept = stage::report(&broker, &who.reach(), id, node, reported, done).await?;
        Ok(render(&kept))
    })
    .await
}

/// The reports on a node of a reservation, the newest first; those on the nodes that it replaced are among
/// them.
#[utoipa::path(
    tag = "reservations",
    params(
        ("id" = ReservationId, Path, description = "The reservation"),
        ("n" = u32, Path, description = "The node's number within the reservation, from 0", minimum = 0, maximum = 100_000),
        WhichPage
    ),
    responses((status = 200, description = "A page of reports", body = Page<NodeReportView>))
)]
#[get("/v1/reservations/{id}/nodes/{n}/reports")]
pub(crate) async fn node_reports(
    broker: web::Data<Broker>,
    who: May<ReadReservations, InProjects>,
    path: web::Path<(ReservationId, u32)>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<NodeReportView>>, ApiError> {
    let (id, node) = path.into_inner();
    let limit = limit(query.limit)?;
    let cursors = Cursors::of(broker.keys(), "node-reports", &(who.tenant, id, node));
    let after: Option<NodeReportId> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let reservation = reserve::find(&broker, &who.reach(), id).await?;
    stage::check_node(&reservation, node)?;
    let reports = broker.store().node_reports().of(who.tenant);
    let found = reports.of_node(id, node, after, limit as u64 + 1).await?;
    let page = cursors.page(found, limit, |report| report.id);
    Ok(web::Json(page.map(|report| NodeReportView::from(&report))))
}
