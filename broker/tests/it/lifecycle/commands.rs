//! The tenant's requests while workers are at it: cancel, release, confirm, extend; and the effects of time
//! alone: a hold lapses, a window ends.

use broker::flow::fulfil;
use broker::flow::reserve::{self, ReserveError};
use chrono::TimeDelta;
use market::ids::ReservationId;
use market::lease::LeaseState;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};

use super::scene::{Scene, anything_at, fleet, training};
use super::tap::{Call, Fate, Op};
use crate::eventually::in_time;

async fn cancel(scene: &Scene, id: ReservationId) -> Result<(), ReserveError> {
    reserve::cancel(scene.broker(), scene.tenant, id, None)
        .await
        .map(|_| ())
}

async fn assert_cancelled_for_nothing(scene: &Scene, id: ReservationId) {
    scene.until(id, S::Closed(CloseReason::Cancelled)).await;
    assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
    scene.assert_settled().await;
}

/// One node at voltagepark, with an end so many hours after the hold.
fn for_hours(hours: u32) -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8,
        "policy": { "allow_providers": ["voltagepark"] }, "window": { "duration_hours": hours },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_anything_was_ordered_ends_it_on_the_spot() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for confirmed in [false, true] {
            let id = scene.hold(training(8)).await;
            if confirmed {
                scene.confirm(id).await;
            }
            cancel(&scene, id).await.expect("cancelled");
            assert_eq!(scene.state(id).await, S::Closed(CloseReason::Cancelled));
            scene.work().await;
            assert_eq!(scene.made_at(Provider::VOLTAGEPARK), 0);
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_machines_come_up_ends_them_and_charges_nothing() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for demand in [training(16), fleet(3)] {
            let id = scene.reserve(demand).await;
            scene.work().await;
            scene.turn(100).await;
            cancel(&scene, id).await.expect("a wish");
            cancel(&scene, id).await.expect("the same wish again");
            scene.work().await;
            assert_cancelled_for_nothing(&scene, id).await;
            assert!(matches!(
                cancel(&scene, id).await,
                Err(ReserveError::Illegal { .. })
            ));
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_an_answer_is_open_ends_what_the_order_made() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for provider in Provider::DEMONSTRATION {
            scene.break_next(provider, FaultKind::ReplyLostAfterCreate);
            let id = scene.reserve(anything_at(provider)).await;
            scene.work().await;
            cancel(&scene, id).await.expect("a wish");
            scene.work().await;
            let lease = scene.leases(id).await.remove(0);
            assert!(lease.provider_lease_id.is_some(), "it was found: {lease:?}");
            assert_cancelled_for_nothing(&scene, id).await;
            assert_eq!(scene.made_at(provider), 1);

            scene.break_next(provider, FaultKind::ReplyLostBeforeCreate);
            let id = scene.reserve(anything_at(provider)).await;
            scene.work().await;
            cancel(&scene, id).await.expect("a wish");
            scene.work().await;
            assert_eq!(scene.leases(id).await[0].state, LeaseState::Withdrawn);
            assert_cancelled_for_nothing(&scene, id).await;
            assert_eq!(scene.made_at(provider), 1, "nothing was made of the second");
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_arrives_while_the_order_is_on_its_way_is_not_lost() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve(training(8)).await;
        scene.line.hook(|call| {
            if call.op == Op::Request {
                Fate::Wait
            } else {
                Fate::Forward
            }
        });
        let (worked, ()) = tokio::join!(fulfil::work_until_idle(scene.broker()), async {
            in_time("a call that waits", scene.line.hangs()).await;
            cancel(&scene, id).await.expect("a wish");
            scene.line.go_on();
        });
        worked.expect("the database answers");
        scene.line.unhook();
        assert_cancelled_for_nothing(&scene, id).await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_charged_to_the_moment_it_was_asked_for_and_not_to_when_we_come_to_it() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        scene.pass_seconds(500);
        scene.release(id).await;
        scene.pass_seconds(40);
        // Asked for again: the first word counts.
        scene.release(id).await;
        scene.pass_seconds(60);
        scene.work().await;
        scene.until(id, S::Closed(CloseReason::Released)).await;
        assert_eq!(scene.charged(id).await.0, 8 * 500);
        let again = reserve::release(scene.broker(), scene.tenant, id, None).await;
        assert!(matches!(again, Err(ReserveError::Illegal { .. })));
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_arrives_in_the_middle_of_a_look_is_charged_to_its_moment() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        scene.pass_seconds(600);
        scene.line.hook(|call| {
            if call == &LOOK {
                Fate::Wait
            } else {
                Fate::Forward
            }
        });
        let (worked, ()) = tokio::join!(fulfil::work_until_idle(scene.broker()), async {
            in_time("a call that waits", scene.line.hangs()).await;
            scene.release(id).await;
            scene.pass_seconds(100);
            scene.line.go_on();
        });
        worked.expect("the database answers");
        scene.line.unhook();
        scene.until(id, S::Closed(CloseReason::Released)).await;
        assert_eq!(scene.charged(id).await.0, 8 * 600);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

/// The first look at a machine at voltagepark.
const LOOK: Call = Call {
    provider: "voltagepark",
    op: Op::Read,
    number: 0,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_confirmed_once_and_a_release_waits_for_the_hand_off() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve(training(8)).await;
        let confirm = || reserve::confirm(scene.broker(), scene.tenant, id, None);
        assert!(matches!(confirm().await, Err(ReserveError::Illegal { .. })));
        scene.work().await;
        assert!(matches!(confirm().await, Err(ReserveError::Illegal { .. })));
        let release = reserve::release(scene.broker(), scene.tenant, id, None).await;
        assert!(matches!(release, Err(ReserveError::Illegal { .. })));
        scene.until(id, S::Active).await;
        assert!(matches!(
            cancel(&scene, id).await,
            Err(ReserveError::Illegal { .. })
        ));
        assert_eq!(scene.made_at(Provider::VOLTAGEPARK), 1);
        scene.release_and_close(id).await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_lapses_frees_its_offer() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        // Where the provider does not count, one reservation at a time: two places, two holds.
        let held = [scene.hold(fleet(1)).await, scene.hold(fleet(1)).await];
        let refused = scene.try_hold(fleet(1)).await;
        assert!(
            matches!(refused, Err(ReserveError::NothingMatches { .. })),
            "{refused:?}"
        );
        // Such a hold is short as well.
        scene.turn(119).await;
        assert_eq!(scene.state(held[0]).await, S::Held);
        scene.turn(1).await;
        for id in held {
            assert_eq!(scene.state(id).await, S::Closed(CloseReason::Expired));
            let late = reserve::confirm(scene.broker(), scene.tenant, id, None).await;
            assert!(
                matches!(late, Err(ReserveError::Illegal { .. })),
                "{late:?}"
            );
        }
        scene.hold(fleet(1)).await;
        assert_eq!(scene.made_at(Provider::LAMBDA), 0);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_window_releases_by_itself_and_is_charged_to_exactly_then() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(for_hours(2)).await;
        let end = scene.reservation(id).await.window_end.expect("an end");
        let from = scene.leases(id).await[0].handed_off_at.expect("handed off");
        scene.turn(1_800).await;
        let left = (end - scene.broker().now()).num_seconds();
        scene.turn(left - 1).await;
        assert_eq!(scene.state(id).await, S::Active);
        // The round handles it late.
        scene.turn(500).await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert_eq!(scene.charged(id).await.0, 8 * (end - from).num_seconds());
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_ends_in_the_middle_of_a_look_is_charged_to_exactly_then() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(for_hours(1)).await;
        let end = scene.reservation(id).await.window_end.expect("an end");
        let from = scene.leases(id).await[0].handed_off_at.expect("handed off");
        scene.pass_seconds((end - scene.broker().now()).num_seconds() - 10);
        scene.line.hook(|call| {
            if call == &LOOK {
                Fate::Wait
            } else {
                Fate::Forward
            }
        });
        let (worked, ()) = tokio::join!(fulfil::work_until_idle(scene.broker()), async {
            in_time("a call that waits", scene.line.hangs()).await;
            scene.pass_seconds(30);
            scene.line.go_on();
        });
        worked.expect("the database answers");
        scene.line.unhook();
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert_eq!(scene.charged(id).await.0, 8 * (end - from).num_seconds());
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extended_window_ends_at_its_new_end() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(for_hours(1)).await;
        let end = scene.reservation(id).await.window_end.expect("an end");
        let from = scene.leases(id).await[0].handed_off_at.expect("handed off");
        let extend = |end| reserve::extend(scene.broker(), scene.tenant, id, end, None);
        assert!(matches!(
            extend(end).await,
            Err(ReserveError::EndTooEarly(_))
        ));
        let new_end = end + TimeDelta::minutes(90);
        extend(new_end).await.expect("extended");
        scene
            .turn((end - scene.broker().now()).num_seconds() + 60)
            .await;
        assert_eq!(scene.state(id).await, S::Active);
        scene
            .turn((new_end - scene.broker().now()).num_seconds())
            .await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert!(matches!(
            extend(new_end + TimeDelta::hours(1)).await,
            Err(ReserveError::Illegal { .. })
        ));
        assert_eq!(
            scene.charged(id).await.0,
            8 * (new_end - from).num_seconds()
        );
        scene.assert_settled().await;

        let open = scene.reserve_until_active(training(8)).await;
        let extend = reserve::extend(scene.broker(), scene.tenant, open, new_end, None).await;
        assert!(matches!(extend, Err(ReserveError::OpenEnd)));
        scene.close().await;
    })
    .await;
}
