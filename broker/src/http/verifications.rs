//! `POST /v1/verifications/{id}/steps/{n}` and `…/gang`: a node proves itself, alone and then with the
//! others of its lease or gang, under the one-time token that its start-up script carries.
//!
//! The route is open to the world, so the token is looked at before a byte of the body is, and
//! only so many large messages are in memory at once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use actix_web::{HttpRequest, post, web};
use market::ids::{ProviderId, VerificationId};
use market::verification::{AgentKey, GangAnswer, GangCall, Step};
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
    taken: Mutex<Vec<Whose>>,
    judging: Semaphore,
}

/// Who sends a large message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Whose {
    provider: ProviderId,
    verification: VerificationId,
    /// As the agent says before its message is read.
    agent: Option<AgentKey>,
}

/// A place that is taken until this is dropped.
struct Place<'a> {
    of: &'a LargeSteps,
    whose: Whose,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoPlace {
    /// Others take them.
    Crowded,
    /// An earlier message of the same node is not answered yet.
    AtIt,
}

impl From<NoPlace> for ApiError {
    fn from(why: NoPlace) -> Self {
        let said = match why {
            NoPlace::Crowded => {
                "many nodes send large messages just now; send it again in a moment"
            }
            NoPlace::AtIt => {
                "a message of this node is looked at just now; send it again in a moment"
            }
        };
        Self::busy(said).retry_after_seconds(1)
    }
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
    fn place(&self, whose: Whose) -> Result<Place<'_>, NoPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if whose.agent.is_some() && taken.contains(&whose) {
            return Err(NoPlace::AtIt);
        }
        let of_provider = taken
            .iter()
            .filter(|other| other.provider == whose.provider);
        let own = taken
            .iter()
            .filter(|other| other.verification == whose.verification);
        if taken.len() >= MOST_LARGE_STEPS
            || of_provider.count() >= MOST_OF_PROVIDER
            || own.count() >= MOST_OF_ONE
        {
            return Err(NoPlace::Crowded);
        }
        taken.push(whose.clone());
        Ok(Place { of: self, whose })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.iter().position(|other| *other == self.whose) {
            taken.swap_remove(own);
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
            R::KeyCommitted => Self::agent_key_committed(said),
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

/// The header in which an agent says under which key it speaks, before its message is read.
const AGENT_KEY: &str = "agent-key";

/// The key of the node that is about to send a message; `None` where the agent does not say.
async fn sender(
    broker: &Broker,
    id: VerificationId,
    request: &HttpRequest,
) -> Result<Option<AgentKey>, StepRefusal> {
    let said = request.headers().get(AGENT_KEY);
    let Some(said) = said.and_then(|said| said.to_str().ok()) else {
        return Ok(None);
    };
    let key = said.parse().map_err(|_| StepRefusal::UnknownAgent)?;
    verify::is_enrolled(broker, id, &key).await?;
    Ok(Some(key))
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
    (request, body): (HttpRequest, LateBody),
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
    let sender = sender(&broker, id, &request).await?;
    let whose = Whose {
        provider,
        verification: id,
        agent: sender.clone(),
    };
    let _place = large_steps.place(whose).inspect_err(|why| {
        if let (NoPlace::Crowded, Some(key)) = (why, &sender) {
            verify::was_refused(&broker, id, key, step);
        }
    })?;
    let bytes = body.read(LARGE_BYTES).await?;
    let arrived = match &sender {
        Some(key) => verify::came_at(&broker, id, key, step),
        None => Instant::now(),
    };
    // It is never closed. Judging takes no longer than our own arithmetic, so this is no long wait.
    let judging = large_steps.judging.acquire().await;
    let _judging = judging.map_err(|error| ApiError::broken(&error))?;
    let message = web::block(move || body::parse(&bytes))
        .await
        .map_err(|error| ApiError::broken(&error))??;
    if sender.is_some() && verify::agent_key(&message) != sender {
        return Err(StepRefusal::UnknownAgent.into());
    }
    let reply = verify::step(&broker, id, &token.0, number, (message, arrived)).await?;
    Ok(web::Json(reply))
}

/// The call of a node that passed alone and is now measured together with the others of its lease or gang.
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

    fn whose(provider: &str, number: usize) -> Whose {
        Whose {
            provider: ProviderId::parse(provider).expect("a provider"),
            verification: VerificationId::from_uuid(uuid::Uuid::from_u128(number as u128)),
            agent: None,
        }
    }

    #[test]
    fn one_node_sends_one_large_message_at_a_time() {
        let places = LargeSteps::default();
        let of = |key: &str| Whose {
            agent: Some(key.repeat(43).parse().expect("a key")),
            ..whose("acme", 1)
        };
        let taken = places.place(of("A")).expect("a place");
        assert_eq!(places.place(of("A")).err(), Some(NoPlace::AtIt));
        let _other = places.place(of("B")).expect("for another node");
        drop(taken);
        assert!(places.place(of("A")).is_ok());
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
        let refused = ApiError::from(refused).error_response();
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
