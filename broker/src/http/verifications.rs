//! `POST /v1/verifications/{id}/steps/{n}` and `…/gang`: a node proves itself, alone and then with the
//! others of its lease, under the one-time token that its start-up script carries.
//!
//! The route is open to the world, so the token is looked at before a byte of the body is, and
//! only so many large messages are in memory at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use actix_web::{post, web};
use market::ids::{ProviderId, VerificationId};
use market::verification::{GangAnswer, GangCall, Step};
use serde_json::Value;
use tokio::sync::Semaphore;
use verifier::challenge::StepError;
use verifier::gang::CallRefused;

use super::auth::Bearer;
use super::body::{self, LateBody};
use super::error::ApiError;
use crate::app::Broker;
use crate::verify::{self, StepRefusal};

/// The largest message of the first steps: what a node with 64 GPUs says of itself. Units: bytes.
const SMALL_BYTES: usize = 64 << 10;
/// The largest message of the last steps: openings of a large order. Units: bytes.
const LARGE_BYTES: usize = 8 << 20;

/// Large messages that arrive or wait at once.
const MOST_LARGE_STEPS: usize = 16;
/// Those of one verification: nodes that send slowly keep no place from another's.
const MOST_OF_ONE: usize = 4;
/// Those of one provider, however many of its leases are verified.
const MOST_OF_PROVIDER: usize = 12;
/// Large messages that are judged at once. A parsed one takes some ten times its length.
const MOST_JUDGED: usize = 4;

const fn is_large(step: Step) -> bool {
    matches!(step, Step::Openings | Step::Report)
}

/// The places for large messages.
pub(crate) struct LargeSteps {
    taken: Mutex<HashMap<(ProviderId, VerificationId), usize>>,
    judging: Semaphore,
}

/// A place that is taken until this is dropped.
struct Place<'a> {
    of: &'a LargeSteps,
    whose: (ProviderId, VerificationId),
}

impl Default for LargeSteps {
    fn default() -> Self {
        Self {
            taken: Mutex::default(),
            judging: Semaphore::new(MOST_JUDGED),
        }
    }
}

impl LargeSteps {
    /// A place for a large message of a verification at a provider.
    fn place(&self, whose: (ProviderId, VerificationId)) -> Result<Place<'_>, ApiError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let of_provider = taken
            .iter()
            .filter(|((provider, _), _)| *provider == whose.0);
        let of_provider: usize = of_provider.map(|(_, places)| places).sum();
        let own = taken.get(&whose).copied().unwrap_or_default();
        if all >= MOST_LARGE_STEPS || of_provider >= MOST_OF_PROVIDER || own >= MOST_OF_ONE {
            let said = "many nodes send large messages just now; send it again in a moment";
            return Err(ApiError::busy(said).retry_after_seconds(1));
        }
        taken.insert(whose.clone(), own + 1);
        Ok(Place { of: self, whose })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.whose) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.whose);
            }
        }
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
            R::Lately(seconds) => Self::too_many_rechecks(said).retry_after_seconds(*seconds),
            R::UnknownHost(_) | R::OtherNode(_) | R::Unverifiable(_) | R::InterruptedTooOften => {
                Self::node_refused(said)
            }
            R::UnknownAgent | R::NoGang => Self::step_out_of_order(said),
            R::Crowded => Self::busy(said).retry_after_seconds(1),
            R::Gang(CallRefused::Stranger) => Self::step_out_of_order(said),
            R::Gang(CallRefused::Malformed(_)) => Self::invalid_body(said),
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

/// One step of the conversation with a node: 1 commit, 2 roots, 3 fill, 4 memory, 5 openings,
/// 6 report.
///
/// The messages are those of the agent; see `verifier run`.
#[utoipa::path(
    tag = "verifications",
    params(
        ("id" = VerificationId, Path, description = "The verification"),
        ("n" = u8, Path, description = "The step", minimum = 1, maximum = 6),
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
    let verification = verify::may_speak(&broker, id, &token.0).await?;
    let step = Step::from_number(number).ok_or(StepRefusal::NoSuchStep)?;
    if !is_large(step) {
        let bytes = body.read(SMALL_BYTES).await?;
        let arrived = Instant::now();
        let message = (body::parse(&bytes)?, arrived);
        let reply = verify::step(&broker, id, &token.0, number, message).await?;
        return Ok(web::Json(reply));
    }
    // Held until the answer is made: the message is in memory as long.
    let provider = verify::lease_of(&broker, &verification)
        .await?
        .offer
        .provider;
    let _place = large_steps.place((provider, id))?;
    let bytes = body.read(LARGE_BYTES).await?;
    let arrived = Instant::now();
    // It is never closed. Judging takes no longer than our own arithmetic, so this is no long wait.
    let judging = large_steps.judging.acquire().await;
    let _judging = judging.map_err(|error| ApiError::broken(&error))?;
    let message = web::block(move || body::parse(&bytes))
        .await
        .map_err(|error| ApiError::broken(&error))??;
    let reply = verify::step(&broker, id, &token.0, number, (message, arrived)).await?;
    Ok(web::Json(reply))
}

/// The call of a node that passed alone and is now measured together with the others of its lease.
///
/// It says where it listens and what the round before showed, and is told what to do next: wait,
/// measure a round, or that it is over.
#[utoipa::path(
    tag = "verifications",
    params(("id" = VerificationId, Path, description = "The verification")),
    request_body(content = GangCall, description = "The agent's call"),
    responses((status = 200, description = "What the node does next", body = GangAnswer)),
    security(("verification_token" = []))
)]
#[post("/v1/verifications/{id}/gang")]
pub(crate) async fn measure_together(
    broker: web::Data<Broker>,
    token: Bearer,
    id: web::Path<VerificationId>,
    body: LateBody,
) -> Result<web::Json<GangAnswer>, ApiError> {
    verify::knows(&broker, *id, &token.0).await?;
    let call: GangCall = body::parse(&body.read(SMALL_BYTES).await?)?;
    let answer = verify::measure_together(&broker, *id, &token.0, &call).await?;
    Ok(web::Json(answer))
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

    fn whose(provider: &str, number: usize) -> (ProviderId, VerificationId) {
        let id = VerificationId::from_uuid(uuid::Uuid::from_u128(number as u128));
        (ProviderId::parse(provider).expect("a provider"), id)
    }

    #[test]
    fn one_verification_takes_few_of_the_places_and_all_are_given_back() {
        let places = LargeSteps::default();
        let mut taken: Vec<_> = (0..MOST_OF_ONE)
            .map(|_| places.place(whose("acme", 1)).expect("a place"))
            .collect();
        let refused = places
            .place(whose("acme", 1))
            .err()
            .expect("no more of one");
        let refused = refused.error_response();
        assert_eq!(refused.status(), 503);
        assert!(refused.headers().contains_key("retry-after"));
        for number in MOST_OF_ONE..MOST_LARGE_STEPS {
            let provider = if number % 2 == 0 { "acme" } else { "other" };
            taken.push(places.place(whose(provider, number)).expect("for another"));
        }
        assert!(places.place(whose("third", 99)).is_err(), "so many at once");
        drop(taken);
        assert!(places.taken.lock().expect("sound").is_empty());
        assert!(places.place(whose("acme", 1)).is_ok());
    }

    #[test]
    fn one_provider_leaves_places_to_the_others() {
        let places = LargeSteps::default();
        let _taken: Vec<_> = (0..MOST_OF_PROVIDER)
            .map(|number| places.place(whose("acme", number)).expect("a place"))
            .collect();
        assert!(places.place(whose("acme", 99)).is_err());
        assert!(places.place(whose("other", 99)).is_ok());
    }
}
