//! `POST /v1/verifications/{id}/steps/{n}` and `…/gang`: a node proves itself, alone and then with the
//! others of its lease or gang, under the one-time token that its start-up script carries.
//!
//! The route is open to the world, so the token is checked before any byte of the body is read, and only so
//! many large messages are in memory at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use actix_web::{HttpRequest, post, web};
use market::ids::{ProviderId, VerificationId};
use market::verification::{AgentKey, Digest, GangAnswer, GangCall, Step};
use serde_json::Value;
use store::verifications::RefusedMessage;
use tokio::sync::Semaphore;
use verifier::challenge::StepError;
use verifier::gang::CallRefused;
use verifier::http::{DIGEST_HEADER, KEY_HEADER, digest_of};

use super::auth::Bearer;
use super::body::{self, LateBody};
use super::error::ApiError;
use crate::flow::verify::{self, StepRefusal};
use crate::platform::app::Broker;

/// The largest message of the first steps: the self-description of a node with 64 GPUs. Units: bytes.
const SMALL_BYTES: usize = 64 << 10;
/// The largest message of the last steps: openings of a large order. Units: bytes.
const LARGE_BYTES: usize = 8 << 20;

/// Large messages that arrive or wait at once.
const MOST_LARGE_STEPS: usize = 16;
/// Those of one verification: nodes that send slowly keep no place from another's.
const MOST_OF_ONE: usize = 4;
/// Those of one provider, however many of its leases are verified.
const MOST_OF_PROVIDER: usize = 12;
/// Those of re-checks of nodes in use, for which no machine waits.
const MOST_OF_RECHECKS: usize = 4;
/// Large messages that are judged at once. A parsed one takes some ten times its length.
const MOST_JUDGED: usize = 4;

const fn is_large(step: Step) -> bool {
    matches!(step, Step::Openings | Step::Report)
}

/// The places for large messages.
pub(crate) struct LargeSteps {
    taken: Mutex<Vec<MessageSender>>,
    judging: Semaphore,
}

/// The sender of a large message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MessageSender {
    provider: ProviderId,
    verification: VerificationId,
    /// Whether that is of a node in use.
    is_recheck: bool,
    /// As the agent states before its message is read.
    agent: AgentKey,
}

/// A place that is taken until this is dropped.
struct Place {
    of: Arc<LargeSteps>,
    whose: MessageSender,
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
                "too many nodes are sending large messages; send it again in a moment"
            }
            NoPlace::AtIt => {
                "another message of this node is being checked; send it again in a moment"
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
    fn place(self: &Arc<Self>, whose: MessageSender) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&whose) {
            return Err(NoPlace::AtIt);
        }
        let of_provider = taken
            .iter()
            .filter(|other| other.provider == whose.provider);
        let own = taken
            .iter()
            .filter(|other| other.verification == whose.verification);
        let rechecks = taken.iter().filter(|other| other.is_recheck);
        let of_rechecks = whose.is_recheck && rechecks.count() >= MOST_OF_RECHECKS;
        if taken.len() >= MOST_LARGE_STEPS
            || of_rechecks
            || of_provider.count() >= MOST_OF_PROVIDER
            || own.count() >= MOST_OF_ONE
        {
            return Err(NoPlace::Crowded);
        }
        taken.push(whose.clone());
        let of = Arc::clone(self);
        Ok(Place { of, whose })
    }
}

impl Drop for Place {
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
        match refusal {
            R::Token => Self::invalid_token(said),
            R::NoSuchStep => Self::not_found(said),
            R::NotReady => Self::lease_not_ready(said),
            R::SiblingsNotReady => Self::siblings_not_ready(said).retry_after_seconds(1),
            R::Lately(seconds) => Self::too_many_rechecks(said).retry_after_seconds(seconds),
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
            R::Step(ref error) => match error {
                StepError::Protocol(_) | StepError::SimulatedDevice => Self::node_refused(said),
                StepError::Malformed(_) | StepError::Canonical(_) => Self::invalid_body(said),
                StepError::OutOfOrder { .. }
                | StepError::Changed(_)
                | StepError::Over
                | StepError::WrongKey => Self::step_out_of_order(said),
                StepError::Order(_) | StepError::Stored(_) => Self::broken(&refusal),
            },
            R::Signing(_) => Self::broken(&refusal),
            R::Store(error) => error.into(),
        }
    }
}

/// The sender of a large message, as the request's head names it before the body is read.
struct Sender {
    key: AgentKey,
    /// The digest of the message; none where the agent sends none.
    digest: Option<Digest>,
    /// The message of the step that was refused before, when many came at once.
    refused: Option<RefusedMessage>,
}

impl Sender {
    /// The sender of a step that its conversation waits for.
    ///
    /// Errors: [`StepRefusal`], also where the head does not name the sender.
    async fn of(
        broker: &Broker,
        id: VerificationId,
        step: Step,
        request: &HttpRequest,
    ) -> Result<Self, StepRefusal> {
        let said = |name: &str| request.headers().get(name)?.to_str().ok();
        let key = said(KEY_HEADER).and_then(|key| key.parse().ok());
        let key = key.ok_or(StepRefusal::UnknownAgent)?;
        let refused = verify::is_waited_for(broker, id, &key, step).await?;
        let digest = said(DIGEST_HEADER).and_then(|digest| digest.parse().ok());
        Ok(Self {
            key,
            digest,
            refused,
        })
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
    responses((status = 200, description = "The node's next order", body = Value)),
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
    let provider = verify::lease_of(&broker, &verification)
        .await?
        .offer
        .provider;
    let sender = Sender::of(&broker, id, step, &request).await?;
    let whose = MessageSender {
        provider,
        verification: id,
        is_recheck: verification.recheck_node.is_some(),
        agent: sender.key.clone(),
    };
    let speaker = (id, &sender.key);
    let place = large_steps.place(whose);
    if let (Err(NoPlace::Crowded), Some(digest)) = (&place, sender.digest) {
        verify::was_refused(&broker, speaker, (step, digest)).await?;
    }
    let place = place?;
    let bytes = body.read(LARGE_BYTES).await?;
    let what = (step, digest_of(&bytes));
    let arrived = verify::came_at(&broker, speaker, what, sender.refused).await?;
    let judged = to_its_end(async move {
        // Held until the answer is made: the message is in memory as long.
        let _place = place;
        // It is never closed. Judging takes no longer than our own arithmetic, so this is no long wait.
        let judging = large_steps.judging.acquire().await;
        let _judging = judging.map_err(|error| ApiError::broken(&error))?;
        let message = web::block(move || body::parse(&bytes))
            .await
            .map_err(|error| ApiError::broken(&error))??;
        if verify::agent_key(&message) != Some(sender.key) {
            return Err(StepRefusal::UnknownAgent.into());
        }
        Ok(verify::step(&broker, id, &token.0, number, (message, arrived)).await?)
    });
    judged.await.map(web::Json)
}

/// Finishes some work even if the caller hangs up meanwhile. A message's computation runs beside this thread
/// and would continue in any case, while its place already belonged to another and its result was lost.
async fn to_its_end<T: 'static>(
    work: impl Future<Output = Result<T, ApiError>> + 'static,
) -> Result<T, ApiError> {
    let done = actix_web::rt::spawn(work).await;
    done.map_err(|error| ApiError::broken(&error))?
}

/// The call of a node that passed alone and is now measured together with the others of its lease or gang.
///
/// The node sends its listening address and the result of the last round. The answer is its next action:
/// wait, measure a round, or stop.
#[utoipa::path(
    tag = "verifications",
    params(("id" = VerificationId, Path, description = "The verification")),
    request_body(content = GangCall, description = "The agent's call"),
    responses((status = 200, description = "The node's next action", body = GangAnswer)),
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
    use std::task::Poll;

    use actix_web::ResponseError as _;
    use market::verification::{
        ChosenRow, GpuOpenings, Level, LinkBefore, OpenedRow, Openings, Word64,
    };
    use verifier::canonical::canonical;
    use verifier::order::{MOST_GPUS, Mode, expected_node, order_for};

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
    fn what_a_node_opens_at_most_fits_into_a_message() {
        let gpu = "H100-SXM".parse().expect("a GPU");
        for gpus in [8, 16, MOST_GPUS] {
            let gemm = order_for(expected_node(gpu, gpus), 0, Level::Standard, Mode::Real).gemm;
            // Trees over the rows of a product, and over so many products.
            let digests = |leaves: u32| vec![Digest([0xff; 32]); leaves.ilog2() as usize + 1];
            let row = OpenedRow {
                at: ChosenRow {
                    link: gemm.links,
                    row: gemm.n,
                },
                values: vec![-64 * gemm.k.cast_signed(); gemm.n as usize],
                path: digests(gemm.n),
                link_path: digests(gemm.links),
                before: Some(LinkBefore {
                    root: Digest([0xff; 32]),
                    path: digests(gemm.links),
                }),
            };
            let of_one = GpuOpenings {
                rows: vec![row; gemm.opened_rows as usize],
                product: vec![Word64(u64::MAX); gemm.n as usize],
                bad_words: u64::MAX,
                lowest_bad_offset: Some(u64::MAX),
            };
            let openings = Openings {
                agent_key: key(1),
                gpus: vec![of_one; gpus as usize],
            };
            let bytes = serde_json::to_vec(&openings).expect("json").len();
            assert!(bytes <= LARGE_BYTES, "{gpus} GPUs: {bytes}");
        }
    }

    fn whose(provider: &str, number: usize) -> MessageSender {
        MessageSender {
            provider: ProviderId::parse(provider).expect("a provider"),
            verification: VerificationId::from_uuid(uuid::Uuid::from_u128(number as u128)),
            is_recheck: false,
            agent: key(number),
        }
    }

    /// Another key for each number.
    fn key(number: usize) -> AgentKey {
        format!("{number:A>43}").parse().expect("a key")
    }

    #[test]
    fn one_node_sends_one_large_message_at_a_time() {
        let places = Arc::new(LargeSteps::default());
        let taken = places.place(of_node(1, 1)).expect("a place");
        assert_eq!(places.place(of_node(1, 1)).err(), Some(NoPlace::AtIt));
        let _other = places.place(of_node(1, 2)).expect("for another node");
        drop(taken);
        assert!(places.place(of_node(1, 1)).is_ok());
    }

    #[actix_web::test]
    async fn what_was_begun_for_a_message_is_done_though_its_sender_hangs_up() {
        let places = Arc::new(LargeSteps::default());
        let place = places.place(of_node(1, 1)).expect("a place");
        let (computed, computes) = tokio::sync::oneshot::channel::<()>();
        let (kept, is_kept) = tokio::sync::oneshot::channel();
        let mut call = Box::pin(to_its_end(async move {
            let _place = place;
            let _ = computes.await;
            let _ = kept.send(());
            Ok(())
        }));
        let begun = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending()));
        assert!(begun.await);
        drop(call);
        assert_eq!(places.place(of_node(1, 1)).err(), Some(NoPlace::AtIt));
        computed.send(()).expect("it goes on");
        is_kept.await.expect("it was done");
        tokio::task::yield_now().await;
        assert!(places.place(of_node(1, 1)).is_ok());
    }

    /// A node of a verification at one provider.
    fn of_node(verification: usize, node: usize) -> MessageSender {
        MessageSender {
            agent: key(node),
            ..whose("acme", verification)
        }
    }

    #[test]
    fn nodes_in_use_leave_places_to_those_that_are_waited_for() {
        let places = Arc::new(LargeSteps::default());
        let in_use = |number| MessageSender {
            is_recheck: true,
            ..whose("acme", number)
        };
        let _taken: Vec<_> = (0..MOST_OF_RECHECKS)
            .map(|number| places.place(in_use(number)).expect("a place"))
            .collect();
        assert_eq!(places.place(in_use(99)).err(), Some(NoPlace::Crowded));
        assert!(places.place(whose("acme", 99)).is_ok());
    }

    #[test]
    fn one_verification_takes_few_of_the_places_and_all_are_given_back() {
        let places = Arc::new(LargeSteps::default());
        let mut taken: Vec<_> = (0..MOST_OF_ONE)
            .map(|node| places.place(of_node(1, node)).expect("a place"))
            .collect();
        let refused = places.place(of_node(1, 99)).err().expect("no more of one");
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
        let places = Arc::new(LargeSteps::default());
        let _taken: Vec<_> = (0..MOST_OF_PROVIDER)
            .map(|number| places.place(whose("acme", number)).expect("a place"))
            .collect();
        assert!(places.place(whose("acme", 99)).is_err());
        assert!(places.place(whose("other", 99)).is_ok());
    }
}
