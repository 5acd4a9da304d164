//! The nodes of one lease begin to prove themselves at one time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use broker::flow::verify::{self, StepRefusal};
use chrono::{TimeDelta, Utc};
use market::attestation::{FindingCode, Outcome, Verdict};
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState;
use market::verification::Step;
use serde_json::{Value, json};
use simulator::{FaultKind, Provider};
use store::Store;
use store::fixture::{execute_raw, for_each_database, for_usual_database};
use store::leases::Lease;
use tokio::runtime::Handle;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;
use verifier::agent::{AgentError, AgentOutcome, converse};
use verifier::http::HttpBroker;
use verifier::jws::Signer;

use super::gang::{access, documents, good_node, outcomes};
use super::scene::{Scene, training};
use super::spoken::{Heard, Timed, commit, fresh_key, say};
use crate::eventually::{beside, eventually, in_time};

/// The extra time of a node that waited for the others, beyond the time of step 2, because it pauses before
/// it asks again.
const ASKS_AGAIN_WITHIN: Duration = Duration::from_secs(3);

/// The conversation of a node that is played.
type Talk = oneshot::Receiver<Result<AgentOutcome, AgentError>>;

/// A rental of two nodes that are up and send nothing by themselves, and its script.
struct Rental {
    scene: Scene,
    lease: Lease,
    script: String,
}

impl Rental {
    async fn up(store: &Store) -> Self {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        let id = scene.reserve(training(16)).await;
        scene.work().await;
        scene.turn(900).await;
        let lease = scene.leases(id).await.remove(0);
        assert_eq!((lease.state, lease.nodes), (LeaseState::Verifying, 2));
        let script = scene.line.scripts().remove(0);
        Self {
            scene,
            lease,
            script,
        }
    }

    async fn commit(&self, node: usize, key: &str) -> Heard {
        let host = &self.lease.provider_nodes[node].host;
        commit(&self.scene, &self.script, (host, key)).await
    }

    /// The service's answer to the result of step 2 of a node whose result it does not get to see.
    async fn answer(&self, key: &str) -> Heard {
        let roots = json!({ "agent_key": key });
        say(&self.scene, &self.script, Step::Roots, &roots).await
    }

    /// A node that proves itself over HTTP, as every agent does.
    fn proves_itself(&self, node: u32) -> Talk {
        let mut played = good_node(&self.lease, node).node();
        let url = self.scene.base_url().parse().expect("an address");
        let (id, token) = access(&self.script);
        beside(move || {
            let mut line = HttpBroker::new(url, id, token, Duration::from_secs(60));
            converse(
                &mut played,
                id,
                &Signer::from_seed(&rand::random()),
                &mut line,
            )
        })
    }

    /// A node whose messages arrive at the replica at hand at this time.
    fn proves_itself_at(
        &self,
        node: u32,
        arrives: impl FnMut(Step, &Value) -> Instant + Send + 'static,
        waits: impl FnMut() + Send + 'static,
    ) -> Talk {
        let mut played = good_node(&self.lease, node).node();
        let mut line = Timed {
            broker: self.scene.broker().clone(),
            runtime: Handle::current(),
            script: self.script.clone(),
            arrives,
            waits,
            heard: Value::Null,
        };
        let (id, _) = access(&self.script);
        beside(move || {
            converse(
                &mut played,
                id,
                &Signer::from_seed(&rand::random()),
                &mut line,
            )
        })
    }

    /// The answer to the result of step 2 by another replica than the one that nodes reach.
    async fn answer_elsewhere(&self, key: &str) -> StepRefusal {
        let (id, token) = access(&self.script);
        let roots = (json!({ "agent_key": key }), Instant::now());
        let number = Step::Roots.number();
        let taken = verify::step(self.scene.broker(), id, token.expose(), number, roots).await;
        taken.expect_err("it is no result")
    }

    /// As if nodes of which the result of step 2 is awaited had begun so long ago by the clock of the database.
    async fn set_back(&self, ago: TimeDelta) {
        let at = (Utc::now() - ago).format("%Y-%m-%dT%H:%M:%S%.6fZ");
        let set = format!("UPDATE node_sessions SET answered_at = '{at}' WHERE step = 1");
        execute_raw(self.scene.store(), &set).await.expect("set");
    }

    /// The lease once its time is over.
    async fn falls(&self) -> Lease {
        let over = self.lease.verify_deadline.expect("it is up");
        let left = over - self.scene.broker().now();
        self.scene.turn(left.num_seconds() + 1).await;
        self.scene.leases(self.lease.reservation_id).await.remove(0)
    }

    /// How the limits of the steps came out in the only document of each node.
    async fn late(&self) -> Vec<(u32, Option<Outcome>)> {
        let documents = documents(&self.scene, &self.lease).await;
        outcomes(&documents, FindingCode::StepTimedOut)
    }
}

/// The outcome of a conversation.
async fn outcome(talk: Talk) -> AgentOutcome {
    let outcome = in_time("the end of the conversation", talk).await;
    outcome.expect("no panic").expect("a conversation")
}

fn roots_limit(heard: &Value) -> Duration {
    let limit = &heard["order"]["deadlines"]["roots_ms"];
    Duration::from_millis(limit.as_u64().expect("a limit"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_node_hears_what_it_is_asked_before_all_nodes_of_its_lease_have_enrolled() {
    for_usual_database(async |store| {
        let mut rental = Rental::up(store).await;
        let (first, second) = (fresh_key(), fresh_key());
        for _ in 0..2 {
            let waits = rental.commit(0, &first).await;
            waits.assert_refused(409, "siblings_not_ready");
            assert_eq!(waits.retry_after.as_deref(), Some("1"));
            assert!(waits.body.get("nonce").is_none(), "{}", waits.body);
        }
        let early = rental.answer(&first).await;
        early.assert_refused(409, "siblings_not_ready");

        let last = rental.commit(1, &second).await;
        let heard = rental.commit(0, &first).await;
        assert_ne!(heard.nonce(), last.nonce());
        assert_eq!(rental.commit(0, &first).await, heard);
        let double = rental.commit(0, &fresh_key()).await;
        double.assert_refused(422, "node_refused");
        // On another replica too.
        rental.scene.restart().await;
        let again = rental.commit(0, &first).await;
        assert_eq!(again.nonce(), heard.nonce());
        rental.scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_nodes_that_enrol_at_once_both_begin() {
    for_each_database(async |store| {
        let rental = Rental::up(store).await;
        let keys = [fresh_key(), fresh_key()];
        let (one, two) = tokio::join!(rental.commit(0, &keys[0]), rental.commit(1, &keys[1]));
        let begun = [&one, &two].map(|heard| heard.status == 200);
        assert!(begun.contains(&true), "{one:?} {two:?}");
        for (node, key) in keys.iter().enumerate() {
            rental.commit(node, key).await.nonce();
        }
        rental.scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_started_again_while_its_node_waits_takes_its_own_place() {
    for_usual_database(async |store| {
        let rental = Rental::up(store).await;
        let (died, anew, sibling) = (fresh_key(), fresh_key(), fresh_key());
        for key in [&died, &anew] {
            let waits = rental.commit(0, key).await;
            waits.assert_refused(409, "siblings_not_ready");
        }
        for told in [rental.commit(0, &died).await, rental.answer(&died).await] {
            told.assert_refused(409, "verification_interrupted");
        }
        let early = rental.answer(&anew).await;
        early.assert_refused(409, "siblings_not_ready");
        rental.commit(1, &sibling).await.nonce();
        rental.commit(0, &anew).await.nonce();
        let gone = rental.commit(0, &died).await;
        gone.assert_refused(409, "verification_interrupted");
        rental.scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_passes_though_an_agent_of_it_died_while_it_waited() {
    for_usual_database(async |store| {
        let rental = Rental::up(store).await;
        let died = fresh_key();
        let waits = rental.commit(0, &died).await;
        waits.assert_refused(409, "siblings_not_ready");
        let one = rental.proves_itself(0);
        // Once the other node enrols all begin, so that its agent must have taken the place by then.
        eventually("another agent in its place", async || {
            rental.commit(0, &died).await.body["code"] == "verification_interrupted"
        })
        .await;
        let two = rental.proves_itself(1);
        for proved in [outcome(one).await, outcome(two).await] {
            assert!(proved.verdict.is_pass(), "{proved:?}");
        }
        rental.scene.close().await;
    })
    .await;
}

/// When the last node of a rental enrolled: after the first moment, and before the second.
type Begun = Arc<Mutex<Option<(Instant, Instant)>>>;

/// Plays a machine that poses as both nodes of a rental, and continues with the second once the first is
/// proved; returns the outcome of the second. `first` begins to prove the first.
async fn one_after_the_other(
    rental: &Rental,
    first: impl FnOnce() -> Talk,
    arrives: impl FnMut(Step, &Value) -> Instant + Send + 'static,
    between: impl AsyncFnOnce(),
) -> Verdict {
    let (enrolled, mut has_enrolled) = unbounded_channel();
    let (go_on, mut may_go_on) = unbounded_channel::<()>();
    let second = rental.proves_itself_at(1, arrives, move || {
        enrolled.send(()).expect("it is waited for");
        may_go_on.blocking_recv().expect("it may go on");
    });
    let enrolled = in_time("the enrolment of the second", has_enrolled.recv()).await;
    enrolled.expect("it enrols");
    let proved = outcome(first()).await;
    assert!(proved.verdict.is_pass(), "{proved:?}");
    between().await;
    go_on.send(()).expect("it waits");
    outcome(second).await.verdict
}

/// The outcome for a second node that fetches its order once the first is proved, and answers it at the limit
/// of step 2, or beyond it.
async fn answered_at_the_limit(store: &Store, is_beyond: bool) -> (Verdict, Option<Outcome>) {
    let rental = Rental::up(store).await;
    let begun: Begun = Arc::default();
    let (notes, knows) = (Arc::clone(&begun), begun);
    let mut asked = None;
    let first = move |step, _: &Value| {
        let now = Instant::now();
        match step {
            Step::Commit => asked = Some(now),
            Step::Roots => *notes.lock().expect("sound") = asked.map(|asked| (asked, now)),
            _ => {}
        }
        now
    };
    let second = move |step, heard: &Value| {
        let begun = *knows.lock().expect("sound");
        match (step, begun) {
            (Step::Roots, Some((_, after))) if is_beyond => {
                after + roots_limit(heard) + ASKS_AGAIN_WITHIN + Duration::from_millis(1)
            }
            (Step::Roots, Some((before, _))) => before + roots_limit(heard) + ASKS_AGAIN_WITHIN,
            _ => Instant::now(),
        }
    };
    let nobody_waits = || unreachable!("it is the last");
    let first = || rental.proves_itself_at(0, first, nobody_waits);
    let verdict = one_after_the_other(&rental, first, second, async || {}).await;
    let late = rental.late().await;
    assert_eq!(late[0], (0, Some(Outcome::Met)), "{late:?}");
    rental.scene.close().await;
    (verdict, late[1].1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_order_is_fetched_once_another_one_is_proved_is_late() {
    for_usual_database(async |store| {
        let late = answered_at_the_limit(store, true).await;
        assert_eq!(late, (Verdict::Fail, Some(Outcome::Failed)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waited_for_the_others_has_all_the_time_that_it_would_have_alone() {
    for_usual_database(async |store| {
        let (verdict, in_time) = answered_at_the_limit(store, false).await;
        assert!(verdict.is_pass(), "{verdict}");
        assert_eq!(in_time, Some(Outcome::Met));
    })
    .await;
}

/// The outcome for the node that lets all begin, whose answer arrives at the limit of step 2, or beyond it.
async fn last_to_enrol(store: &Store, is_beyond: bool) -> (Verdict, Option<Outcome>) {
    let rental = Rental::up(store).await;
    rental.commit(1, &fresh_key()).await;
    let mut asked = Instant::now();
    let arrives = move |step, heard: &Value| {
        let now = Instant::now();
        match step {
            Step::Roots if is_beyond => now + roots_limit(heard) + Duration::from_millis(1),
            Step::Roots => asked + roots_limit(heard),
            _ => {
                asked = now;
                now
            }
        }
    };
    let nobody_waits = || unreachable!("it is the last");
    let last = rental.proves_itself_at(0, arrives, nobody_waits);
    let last = outcome(last).await;
    let late = rental.late().await;
    rental.scene.close().await;
    (last.verdict, late[0].1)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_that_lets_all_begin_has_the_time_that_it_would_have_alone_and_no_more() {
    for_usual_database(async |store| {
        let (verdict, in_time) = last_to_enrol(store, false).await;
        assert!(verdict.is_pass(), "{verdict}");
        assert_eq!(in_time, Some(Outcome::Met));
    })
    .await;
    for_usual_database(async |store| {
        let late = last_to_enrol(store, true).await;
        assert_eq!(late, (Verdict::Fail, Some(Outcome::Failed)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_late_on_another_replica_once_another_one_is_proved_begins_no_more() {
    for_usual_database(async |store| {
        let mut rental = Rental::up(store).await;
        rental.scene.restart().await;
        let first = || rental.proves_itself(0);
        let now = |_, _: &Value| Instant::now();
        let later = async || rental.set_back(TimeDelta::seconds(66)).await;
        let verdict = one_after_the_other(&rental, first, now, later).await;
        assert_eq!(verdict, Verdict::Fail);
        let late = rental.late().await;
        let expected = [(0, Some(Outcome::Met)), (1, Some(Outcome::Failed))];
        assert_eq!(late, expected);
        rental.scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_late_on_another_replica_begins_anew_with_all_others_of_its_lease() {
    for_each_database(async |store| {
        let mut rental = Rental::up(store).await;
        let keys = [fresh_key(), fresh_key()];
        for (node, key) in keys.iter().enumerate() {
            rental.commit(node, key).await;
        }
        rental.scene.restart().await;
        // A minute is over, and the time to ask again is not: its message is checked.
        rental.set_back(TimeDelta::seconds(60)).await;
        let looked_at = rental.answer_elsewhere(&keys[1]).await;
        assert!(
            matches!(looked_at, StepRefusal::Body { .. }),
            "{looked_at:?}"
        );
        rental.set_back(TimeDelta::seconds(66)).await;
        let late = rental.answer_elsewhere(&keys[1]).await;
        assert!(matches!(late, StepRefusal::Interrupted), "{late:?}");
        for (node, key) in keys.iter().enumerate() {
            // The other one is in time where it began, and gets its answer in any case.
            let told = [rental.answer(key).await, rental.commit(node, key).await];
            for told in told {
                told.assert_refused(409, "verification_interrupted");
            }
        }
        let (one, two) = (rental.proves_itself(0), rental.proves_itself(1));
        for proved in [outcome(one).await, outcome(two).await] {
            assert!(proved.verdict.is_pass(), "{proved:?}");
        }
        rental.scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_falls_with_the_node_named_that_never_came_and_not_those_that_waited_for_it() {
    for_usual_database(async |store| {
        let rental = Rental::up(store).await;
        let key = fresh_key();
        let waits = rental.commit(0, &key).await;
        waits.assert_refused(409, "siblings_not_ready");
        let fallen = rental.falls().await;
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::TimedOut));
        let words = "its nodes did not prove themselves in time; node 1 of the lease never called; \
                     node 0 of the lease only waited for that";
        assert_eq!(fallen.fall_note.as_deref(), Some(words));
        assert_eq!(rental.late().await, [], "nothing was asked of it");
        let over = rental.commit(0, &key).await;
        over.assert_refused(401, "invalid_token");
        let id = fallen.reservation_id;
        rental.scene.until(id, ReservationState::Active).await;
        rental.scene.assert_sound().await;
        rental.scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_come_back_after_an_interruption_is_named() {
    for_usual_database(async |store| {
        let mut rental = Rental::up(store).await;
        let keys = [fresh_key(), fresh_key()];
        for (node, key) in keys.iter().enumerate() {
            rental.commit(node, key).await;
        }
        rental.scene.restart().await;
        rental.set_back(TimeDelta::seconds(66)).await;
        let late = rental.answer_elsewhere(&keys[0]).await;
        assert!(matches!(late, StepRefusal::Interrupted), "{late:?}");
        rental.commit(1, &fresh_key()).await;
        let note = rental.falls().await.fall_note.unwrap_or_default();
        let words = "node 0 of the lease did not begin again after an interruption; \
                     node 1 of the lease only waited for that";
        assert!(note.ends_with(words), "{note}");
        rental.scene.close().await;
    })
    .await;
}
