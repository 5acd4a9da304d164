//! When a reservation's machines end, and until when the broker waits for them.

use broker::flow::fulfil;
use chrono::TimeDelta;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use store::fixture::{for_each_database, for_usual_database};

use super::scene::Scene;
use crate::eventually::in_time;

/// One node at voltagepark, which takes a quarter of an hour to come up.
fn one_node(window: Value) -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8,
        "policy": { "allow_providers": ["voltagepark"] }, "window": window,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duration_is_had_in_full_whatever_it_took_to_boot_and_to_verify() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.hold(one_node(json!({ "duration_hours": 1 }))).await;
        let held_at = scene.broker().now();
        let waits_until = scene.reservation(id).await.window_end;
        assert_eq!(waits_until, Some(held_at + TimeDelta::hours(24)));
        // Confirmed late, and up after the quarter of an hour that such a machine takes.
        scene.pass_seconds(600);
        scene.confirm(id).await;
        scene.work().await;
        scene.until(id, S::Active).await;
        let from = scene.leases(id).await[0].handed_off_at.expect("handed off");
        assert!(from - held_at >= TimeDelta::minutes(25));
        let end = scene.reservation(id).await.window_end;
        assert_eq!(end, Some(from + TimeDelta::hours(1)));
        scene.turn(3_500).await;
        assert_eq!(scene.state(id).await, S::Active);
        scene.turn(3_600).await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert_eq!(scene.charged(id).await.0, 8 * 3_600);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_handed_off_by_its_latest_start_is_given_up_for_nothing() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let soon = scene.broker().now() + TimeDelta::minutes(10);
        let mut ids = Vec::new();
        for window in [
            json!({ "start_latest": soon }),
            json!({ "start_latest": soon, "duration_hours": 30 }),
        ] {
            let id = scene.reserve(one_node(window)).await;
            assert_eq!(scene.reservation(id).await.window_end, Some(soon));
            scene.work().await;
            assert_eq!(scene.state(id).await, S::Provisioning);
            ids.push(id);
        }
        scene.turn(600).await;
        for id in ids {
            scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
            assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
        }
        scene.assert_settled().await;
        assert_eq!(
            scene.made_at(Provider::VOLTAGEPARK),
            2,
            "they were on their way"
        );
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latest_start_that_was_met_bounds_nothing_any_more() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let latest = scene.broker().now() + TimeDelta::hours(1);
        let window = json!({ "start_latest": latest });
        let id = scene.reserve_until_active(one_node(window)).await;
        assert_eq!(scene.reservation(id).await.window_end, None);
        scene.turn(2 * 3_600).await;
        assert_eq!(scene.state(id).await, S::Active);
        scene.release_and_close(id).await;

        let end = scene.broker().now() + TimeDelta::hours(1);
        let window = json!({ "end": end });
        let id = scene.reserve_until_active(one_node(window)).await;
        assert_eq!(scene.reservation(id).await.window_end, Some(end));
        scene.turn(3_600).await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_after_its_latest_start_is_not_handed_off_any_more() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let latest = scene.broker().now() + TimeDelta::minutes(20);
        let id = scene
            .reserve(one_node(json!({ "start_latest": latest })))
            .await;
        scene.work().await;
        scene.pass_seconds(20 * 60 - 10);
        let work = || fulfil::work_until_idle(scene.broker());
        work().await.expect("the database answers");
        scene.simulator().settle().await;
        // It has passed; while that is saved, the latest start goes by.
        store.gate().close_after(0);
        let (worked, ()) = tokio::join!(work(), async {
            in_time("a save that waits", store.gate().hangs()).await;
            scene.pass_seconds(30);
            store.gate().go_on();
        });
        worked.expect("the database answers");
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert_eq!(scene.leases(id).await[0].handed_off_at, None);
        assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}
