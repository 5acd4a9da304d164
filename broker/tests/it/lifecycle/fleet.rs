//! Fleets: replaced lease by lease, made whole again in use, continued smaller when they cannot be; and the
//! end of a reservation for which nothing is left.

use chrono::{DateTime, Utc};
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use simulator::{Fault, FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;

use super::scene::{Scene, fleet, training};
use super::tap::{Call, Fate, Op};

const A10: &str = "gpu_1x_a10";

fn in_use(leases: &[Lease]) -> Vec<&Lease> {
    leases
        .iter()
        .filter(|lease| lease.state == LeaseState::HandedOff)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_fleet_is_replaced_lease_by_lease() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let bad = Fault::new(Provider::LAMBDA, FaultKind::SlowMemory).times(3);
        scene
            .simulator()
            .break_next(bad)
            .expect("a fault that fits");
        let id = scene.reserve_until_active(fleet(3)).await;
        let leases = scene.leases(id).await;
        assert_eq!((leases.len(), in_use(&leases).len()), (6, 3));
        for fallen in leases
            .iter()
            .filter(|lease| lease.state != LeaseState::HandedOff)
        {
            assert_eq!(fallen.fall_reason, Some(LeaseEvent::Failed));
            let stands_in = leases
                .iter()
                .find(|lease| fallen.replaced_by == Some(lease.id));
            let stands_in = stands_in.expect("each has another in its place");
            assert_eq!(
                stands_in.node_base, fallen.node_base,
                "under the same number"
            );
        }
        let from = scene.broker().now();
        scene.turn(3_600).await;
        let used = (scene.broker().now() - from).num_seconds();
        scene.release_and_close(id).await;
        assert_eq!(scene.charged(id).await.0, 3 * used);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_machine_of_a_fleet_leaves_its_siblings_as_they_are() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::LAMBDA, FaultKind::AcceptedThenFailed);
        let id = scene.reserve_until_active(fleet(3)).await;
        let leases = scene.leases(id).await;
        assert_eq!((leases.len(), scene.made_at(Provider::LAMBDA)), (4, 4));
        assert_eq!(
            leases
                .iter()
                .filter(|lease| lease.fall_reason.is_some())
                .count(),
            1
        );
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_for_which_nothing_is_left_closes_and_charges_nothing() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for (provider, demand) in [
            (Provider::VOLTAGEPARK, training(8)),
            (Provider::LAMBDA, fleet(2)),
        ] {
            let all = Fault::new(provider, FaultKind::AcceptedThenFailed).times(100);
            scene
                .simulator()
                .break_next(all)
                .expect("a fault that fits");
            let id = scene.reserve(demand).await;
            scene.work().await;
            scene.until(id, S::Closed(CloseReason::NoCapacity)).await;
            assert!(
                scene.leases(id).await.len() > 1,
                "the next candidates were tried"
            );
            assert!(scene.leases(id).await.len() < 12, "each not for ever");
            assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_does_not_answer_is_asked_for_two_leases_of_a_round() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(4)).await;
        let unanswered = |call: &Call| match call.op {
            Op::Read => Fate::Fail,
            _ => Fate::Forward,
        };
        scene.line.hook(unanswered);
        let reads = || {
            let calls = scene.line.calls();
            calls.iter().filter(|call| call.op == Op::Read).count()
        };
        scene.turn(300).await;
        assert_eq!(reads(), 2);
        scene.turn(20).await;
        assert_eq!(reads(), 4, "soon again");

        scene.line.unhook();
        scene.turn(20).await;
        assert_eq!(reads(), 4, "each lease");
        assert_eq!(in_use(&scene.leases(id).await).len(), 4);
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_in_use_is_made_whole_again_and_pays_for_what_it_had() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(2)).await;
        let from = scene.broker().now();
        scene.turn(600).await;
        let lost = scene.leases(id).await.remove(0);
        scene.take_away(&lost).await;
        scene.pass_seconds(250);
        scene.turn(50).await;
        assert_eq!(scene.state(id).await, S::Repairing);
        let fallen = scene.leases(id).await.remove(0);
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::Lost));
        let last_seen = (fallen.metered_to.expect("metered") - from).num_seconds();
        assert_eq!(last_seen, 600, "metered up to the last proof of life");
        scene.until(id, S::Active).await;
        let repaired_at = scene.broker().now();
        let leases = scene.leases(id).await;
        assert_eq!((leases.len(), in_use(&leases).len()), (3, 2));
        scene.turn(1_000).await;
        let now = scene.broker().now();
        scene.release_and_close(id).await;
        let seconds = |since: DateTime<Utc>| (now - since).num_seconds();
        assert_eq!(
            scene.charged(id).await.0,
            last_seen + seconds(from) + seconds(repaired_at)
        );
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_in_use_that_cannot_be_repaired_goes_on_smaller_and_is_left_in_peace() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(2)).await;
        let lost = scene.leases(id).await.remove(0);
        scene.take_away(&lost).await;
        scene
            .simulator()
            .set_capacity(Provider::LAMBDA, A10, 0)
            .expect("it is sold");
        scene.turn(600).await;
        scene.turn(60).await;
        assert_eq!(scene.state(id).await, S::Active);
        let leases = scene.leases(id).await;
        assert!(leases.iter().any(|lease| lease.given_up));
        let ordered = scene.made_at(Provider::LAMBDA);
        for _ in 0..5 {
            scene.turn(600).await;
            assert_eq!(scene.state(id).await, S::Active);
        }
        assert_eq!(
            scene.leases(id).await.len(),
            leases.len(),
            "nothing more is tried"
        );
        assert_eq!(scene.made_at(Provider::LAMBDA), ordered);
        let now = scene.broker().now();
        let survivor = in_use(&leases)[0].handed_off_at.expect("handed off");
        scene.release_and_close(id).await;
        let of_lost = scene.leases(id).await.remove(0);
        let of_lost = of_lost
            .metered_to
            .zip(of_lost.handed_off_at)
            .map(|(to, from)| to - from);
        let expected = (now - survivor) + of_lost.expect("it was metered");
        assert_eq!(scene.charged(id).await.0, expected.num_seconds());
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_is_repaired_in_part_gets_the_part() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(3)).await;
        let leases = scene.leases(id).await;
        for lost in &leases[..2] {
            scene.take_away(lost).await;
        }
        scene
            .simulator()
            .set_capacity(Provider::LAMBDA, A10, 0)
            .expect("it is sold");
        scene
            .simulator()
            .set_place_capacity(Provider::LAMBDA, A10, "us-west-1", 1)
            .expect("it is sold");
        scene.turn(300).await;
        for _ in 0..6 {
            scene.turn(300).await;
        }
        assert_eq!(scene.state(id).await, S::Active);
        let leases = scene.leases(id).await;
        assert_eq!(in_use(&leases).len(), 2, "{leases:?}");
        assert_eq!(leases.iter().filter(|lease| lease.given_up).count(), 1);
        assert!(
            leases
                .iter()
                .all(|l| matches!(l.state, LeaseState::HandedOff | LeaseState::Gone))
        );
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_which_nothing_is_left_gets_what_can_be_had() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(fleet(2)).await;
        for lost in &scene.leases(id).await {
            scene.take_away(lost).await;
        }
        scene
            .simulator()
            .set_capacity(Provider::LAMBDA, A10, 0)
            .expect("it is sold");
        scene
            .simulator()
            .set_place_capacity(Provider::LAMBDA, A10, "us-west-1", 1)
            .expect("it is sold");
        scene.turn(300).await;
        for _ in 0..6 {
            scene.turn(300).await;
        }
        assert_eq!(scene.state(id).await, S::Active);
        assert_eq!(in_use(&scene.leases(id).await).len(), 1);
        let left = scene.leases(id).await;
        scene.take_away(in_use(&left)[0]).await;
        scene
            .simulator()
            .set_capacity(Provider::LAMBDA, A10, 0)
            .expect("it is sold");
        scene
            .until(id, S::Closed(CloseReason::RepairImpossible))
            .await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_loses_its_machine_in_use_ends_and_pays_up_to_the_last_proof_of_life() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        let from = scene.broker().now();
        scene.turn(700).await;
        let lease = scene.leases(id).await.remove(0);
        scene.take_away(&lease).await;
        scene.turn(300).await;
        scene
            .until(id, S::Closed(CloseReason::RepairImpossible))
            .await;
        assert_eq!(scene.charged(id).await.0, 8 * 700);
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(
            (lease.metered_to.expect("metered") - from).num_seconds(),
            700
        );
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_dearer_than_the_ceiling_is_taken_in_place_of_what_fell() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let mut demand = training(8);
        demand["ceiling"] = serde_json::json!({ "usd_per_gpu_hour": "2.00" });
        let all = Fault::new(Provider::VOLTAGEPARK, FaultKind::AcceptedThenFailed).times(100);
        scene
            .simulator()
            .break_next(all)
            .expect("a fault that fits");
        let id = scene.reserve(demand).await;
        scene.work().await;
        scene.until(id, S::Closed(CloseReason::NoCapacity)).await;
        let ceiling = Decimal::from(2 * 8);
        for lease in scene.leases(id).await {
            assert!(
                lease.offer.price_per_node_hour.to_decimal() <= ceiling,
                "{lease:?}"
            );
        }
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_does_not_wait_for_ever_for_a_provider_that_went_silent() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::LAMBDA, FaultKind::SlowMemory);
        let id = scene.reserve(fleet(2)).await;
        scene.work().await;
        scene
            .simulator()
            .set_capacity(Provider::LAMBDA, A10, 0)
            .expect("it is sold");
        scene.turn(30).await;
        // From here on it still shows its machines, but lists, sells and ends nothing.
        scene.line.hook(|call| match call.op {
            Op::Read => Fate::Forward,
            _ if call.provider == "lambda" => Fate::Fail,
            _ => Fate::Forward,
        });
        scene.pass_seconds(600);
        for _ in 0..40 {
            scene.turn(30).await;
        }
        assert_eq!(scene.state(id).await, S::Replacing, "it may hear more");
        let leases = scene.leases(id).await;
        let fallen = leases.iter().find(|lease| lease.fell_at.is_some());
        let fallen = fallen.expect("one is slow");
        assert_eq!((fallen.gone_at, fallen.replaced_by), (None, None));
        for _ in 0..5 {
            scene.turn(300).await;
        }
        assert_eq!(scene.state(id).await, S::Releasing(CloseReason::NoCapacity));
        scene.line.unhook();
        scene.until(id, S::Closed(CloseReason::NoCapacity)).await;
        assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}
