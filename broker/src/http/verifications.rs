//! `POST /v1/verifications/{id}/steps/{n}`: a node proves itself, under the one-time token that
//! its start-up script carries.

use actix_web::{post, web};
use market::ids::VerificationId;
use serde_json::Value;
use verifier::challenge::StepError;

use super::auth::Bearer;
use super::body::Body;
use super::error::ApiError;
use crate::app::Broker;
use crate::verify::{self, StepRefusal};

/// The largest message of a node: openings of a large order. Units: bytes.
const LIMIT_BYTES: usize = 8 << 20;

impl From<StepRefusal> for ApiError {
    fn from(refusal: StepRefusal) -> Self {
        use StepRefusal as R;
        let said = refusal.to_string();
        match &refusal {
            R::Token => Self::invalid_token(said),
            R::NoSuchStep => Self::not_found(said),
            R::NotReady => Self::lease_not_ready(said),
            R::UnknownHost(_) | R::Unverifiable(_) => Self::node_refused(said),
            R::UnknownAgent => Self::step_out_of_order(said),
            R::Interrupted => Self::verification_interrupted(said),
            R::Body { .. } => Self::invalid_body(said),
            R::Raced => Self::step_raced(said),
            R::Step(error) => match error {
                StepError::Protocol(_) | StepError::SimulatedDevice => Self::node_refused(said),
                StepError::Malformed(_) => Self::invalid_body(said),
                StepError::OutOfOrder { .. }
                | StepError::Changed(_)
                | StepError::Over
                | StepError::WrongKey => Self::step_out_of_order(said),
                StepError::Order(_) | StepError::Canonical(_) | StepError::Stored(_) => {
                    Self::broken(&refusal)
                }
            },
            R::Signing(_) | R::Store(_) => Self::broken(&refusal),
        }
    }
}

/// One step of the conversation with a node: 1 commit, 2 roots, 3 fill, 4 openings, 5 report.
///
/// The messages are those of the agent; see `verifier run`.
#[utoipa::path(
    tag = "verifications",
    params(
        ("id" = VerificationId, Path, description = "The verification"),
        ("n" = u8, Path, description = "The step", minimum = 1, maximum = 5),
    ),
    request_body(content = Value, description = "The agent's message"),
    responses((status = 200, description = "What the node is asked to do next", body = Value)),
    security(("verification_token" = []))
)]
#[post("/v1/verifications/{id}/steps/{n}")]
pub(crate) async fn take_step(
    broker: web::Data<Broker>,
    token: Bearer,
    path: web::Path<(VerificationId, u8)>,
    body: Body<Value, LIMIT_BYTES>,
) -> Result<web::Json<Value>, ApiError> {
    let (id, step) = path.into_inner();
    let reply = verify::step(&broker, id, &token.0, step, body.value).await?;
    Ok(web::Json(reply))
}
