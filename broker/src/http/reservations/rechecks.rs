//! `POST` and `DELETE /v1/reservations/{id}/nodes/{n}/recheck`: permits for re-checks of a node in use.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, post, web};
use chrono::{DateTime, Utc};
use market::ids::{LeaseId, ReservationId, VerificationId};
use serde::Serialize;
use store::rechecks::NewPermit;

use super::change::may_change;
use crate::http::access::WriteReservations;
use crate::http::auth::{InProjects, May};
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use crate::platform::app::Broker;
use crate::tenant::rechecks::{self as stage, EVERY_SECONDS, Permitted, RecheckError};

/// The permit to check a node in use again.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct PermitView {
    /// The verification that the token speaks for.
    verification_id: VerificationId,
    /// The node's number within the reservation, from 0.
    #[schema(minimum = 0, maximum = 100_000)]
    node: u32,
    /// The lease that it belongs to; the token is good for no longer.
    lease_id: LeaseId,
    /// Until when the token is good, should the lease last so long.
    expires_at: DateTime<Utc>,
    /// How long after a look began no other begins. Units: seconds.
    #[schema(minimum = 1, maximum = 86_400)]
    every_seconds: i64,
    /// The token, good for looks at this node alone. Shown this once: `null` where the same request is
    /// answered again.
    token: Option<String>,
    /// The shell script to run on the node, which carries the token. Shown this once.
    script: Option<String>,
}

impl PermitView {
    fn of(node: u32, kept: &NewPermit, secret: Option<(String, String)>) -> Self {
        let (token, script) = secret.unzip();
        Self {
            verification_id: kept.id,
            node,
            lease_id: kept.lease_id,
            expires_at: kept.until,
            every_seconds: EVERY_SECONDS,
            token,
            script,
        }
    }
}

impl From<RecheckError> for ApiError {
    fn from(error: RecheckError) -> Self {
        use RecheckError as E;
        let said = error.to_string();
        match error {
            E::Node(error) => error.into(),
            E::Impossible { .. } => Self::node_refused(said),
            E::Store(error) => error.into(),
        }
    }
}

/// Permits a re-check of a node in use: returns a token that is good for that alone, and the script that runs
/// on the node. An earlier permit for the node becomes invalid.
#[utoipa::path(
    tag = "reservations",
    params(
        ("id" = ReservationId, Path, description = "The reservation"),
        ("n" = u32, Path, description = "The node's number within the reservation, from 0", minimum = 0, maximum = 100_000),
        IdempotencyHeader
    ),
    responses((status = 201, description = "The token and the script, shown this once", body = PermitView))
)]
#[post("/v1/reservations/{id}/nodes/{n}/recheck")]
pub(crate) async fn recheck_node(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    path: web::Path<(ReservationId, u32)>,
) -> Result<HttpResponse, ApiError> {
    let (id, node) = path.into_inner();
    may_change(&broker, &who, id).await?;
    // The answer kept for a repetition must not hold the token.
    let kept_answer =
        |kept: &NewPermit| answer(StatusCode::CREATED, &PermitView::of(node, kept, None));
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let done = completion(effect, &kept_answer);
        let permitted = stage::permit(&broker, &who.reach(), (id, node), done).await?;
        let Permitted {
            kept,
            token,
            script,
        } = permitted;
        let secret = Some((token.expose().to_owned(), script));
        Ok(answer(
            StatusCode::CREATED,
            &PermitView::of(node, &kept, secret),
        ))
    })
    .await
}

/// Withdraws the permit for a re-check of a node in use: its token becomes invalid.
#[utoipa::path(
    tag = "reservations",
    params(
        ("id" = ReservationId, Path, description = "The reservation"),
        ("n" = u32, Path, description = "The node's number within the reservation, from 0", minimum = 0, maximum = 100_000),
        IdempotencyHeader
    ),
    responses((status = 204, description = "The token is good for nothing any more"))
)]
#[delete("/v1/reservations/{id}/nodes/{n}/recheck")]
pub(crate) async fn stop_rechecks(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    path: web::Path<(ReservationId, u32)>,
) -> Result<HttpResponse, ApiError> {
    let (id, node) = path.into_inner();
    may_change(&broker, &who, id).await?;
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let done = completion(effect, &gone);
        stage::revoke(&broker, &who.reach(), (id, node), done).await?;
        Ok(gone(&()))
    })
    .await
}
