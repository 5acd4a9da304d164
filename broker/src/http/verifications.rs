//! `POST /v1/verifications/{id}/steps/{n}`: a node proves itself, under the one-time token that
//! its start-up script carries.
//!
//! The route is open to the world, so the token is looked at before a byte of the body is, and
//! only so many large messages are in memory at once.

use std::time::Duration;

use actix_web::{post, web};
use market::ids::VerificationId;
use market::verification::Step;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};
use verifier::challenge::StepError;

use super::auth::Bearer;
use super::body::{self, LateBody};
use super::error::ApiError;
use crate::app::Broker;
use crate::verify::{self, StepRefusal};

/// The largest message of the first steps: what a node with 64 GPUs says of itself. Units: bytes.
const SMALL_BYTES: usize = 64 << 10;
/// The largest message of the last steps: openings of a large order. Units: bytes.
const LARGE_BYTES: usize = 8 << 20;

/// Large messages that are read and judged at once. A parsed one takes some ten times its length.
const MOST_LARGE_STEPS: usize = 8;

/// How long a message may take to arrive, so that a slow one does not hold a place.
const PATIENCE: Duration = Duration::from_secs(30);

const fn is_large(step: Step) -> bool {
    matches!(step, Step::Openings | Step::Report)
}

/// The places for large messages.
pub(crate) struct LargeSteps(Semaphore);

impl Default for LargeSteps {
    fn default() -> Self {
        Self(Semaphore::new(MOST_LARGE_STEPS))
    }
}

impl LargeSteps {
    /// A place for the message of a step; a small one needs none.
    fn place(&self, step: Step) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        if !is_large(step) {
            return Ok(None);
        }
        let full = |_| {
            ApiError::busy("many nodes send large messages just now; send it again in a moment")
                .retry_after_seconds(1)
        };
        self.0.try_acquire().map(Some).map_err(full)
    }
}

impl From<StepRefusal> for ApiError {
    fn from(refusal: StepRefusal) -> Self {
        use StepRefusal as R;
        let said = refusal.to_string();
        match &refusal {
            R::Token => Self::invalid_token(said),
            R::NoSuchStep => Self::not_found(said),
            R::NotReady => Self::lease_not_ready(said),
            R::UnknownHost(_) | R::Unverifiable(_) | R::InterruptedTooOften => {
                Self::node_refused(said)
            }
            R::UnknownAgent => Self::step_out_of_order(said),
            R::Interrupted => Self::verification_interrupted(said),
            R::Body { .. } => Self::invalid_body(said),
            R::Raced => Self::step_raced(said),
            R::Step(error) => match error {
                StepError::Protocol(_) | StepError::SimulatedDevice => Self::node_refused(said),
                StepError::Malformed(_) | StepError::Canonical(_) => Self::invalid_body(said),
                StepError::OutOfOrder { .. }
                | StepError::Changed(_)
                | StepError::Over
                | StepError::WrongKey => Self::step_out_of_order(said),
                StepError::Order(_) | StepError::Stored(_) => Self::broken(&refusal),
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
    large_steps: web::Data<LargeSteps>,
    body: LateBody,
) -> Result<web::Json<Value>, ApiError> {
    let (id, number) = path.into_inner();
    verify::may_speak(&broker, id, &token.0).await?;
    let step = Step::from_number(number).ok_or(StepRefusal::NoSuchStep)?;
    // Held until the answer is made: the message is in memory as long.
    let _place = large_steps.place(step)?;
    let message = if is_large(step) {
        let bytes = body.read(LARGE_BYTES, PATIENCE).await?;
        web::block(move || body::parse(&bytes))
            .await
            .map_err(|error| ApiError::broken(&error))??
    } else {
        body::parse(&body.read(SMALL_BYTES, PATIENCE).await?)?
    };
    let reply = verify::step(&broker, id, &token.0, number, message).await?;
    Ok(web::Json(reply))
}

#[cfg(test)]
mod tests {
    use actix_web::ResponseError as _;
    use verifier::canonical::canonical;

    use super::*;

    #[test]
    fn a_number_that_cannot_be_signed_is_the_fault_of_its_sender() {
        let unsignable = canonical(&u64::MAX).expect_err("beyond 2^53");
        let refused = ApiError::from(StepRefusal::from(StepError::from(unsignable)));
        assert_eq!(
            (refused.code(), refused.status_code().as_u16()),
            ("invalid_body", 422)
        );
    }

    #[test]
    fn only_so_many_large_messages_are_taken_at_once_and_the_next_is_told_when_to_come() {
        let places = LargeSteps::default();
        let taken: Vec<_> = (0..MOST_LARGE_STEPS)
            .map(|at| {
                places
                    .place([Step::Openings, Step::Report][at % 2])
                    .expect("a place")
            })
            .collect();
        let refused = places
            .place(Step::Report)
            .expect_err("no place")
            .error_response();
        assert_eq!(refused.status(), 503);
        assert!(refused.headers().contains_key("retry-after"));
        for small in [Step::Commit, Step::Roots, Step::Fill] {
            assert!(places.place(small).expect("needs none").is_none());
        }
        drop(taken);
        assert!(places.place(Step::Report).is_ok());
    }
}
