//! Reservations past their end are ended by `work_on_ends`, beside the service or in its place.

use broker::flow::fulfil::{self, EndsReport};
use market::ids::ReservationId;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::json;
use simulator::Provider;
use store::fixture::{for_each_database, for_usual_database};

use super::scene::{Scene, container, fleet};
use super::tap::{Fate, Op};

const HOUR: i64 = 3_600;

async fn for_an_hour(scene: &Scene) -> ReservationId {
    let mut demand = fleet(1);
    demand["window"] = json!({ "duration_hours": 1 });
    scene.reserve_until_active(demand).await
}

async fn work_on_ends(scene: &Scene) -> EndsReport {
    let ended = fulfil::work_on_ends(scene.broker()).await;
    ended.expect("the database answers")
}

// S19
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_while_the_service_is_down_is_ended_and_charged_to_its_end_and_nothing_is_ordered()
 {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        let id = for_an_hour(&scene).await;
        let from = scene.leases(id).await[0].handed_off_at.expect("in use");
        // Confirmed and due, but nobody works on it.
        let waiting = scene.reserve(container()).await;
        // The service is killed, and the end passes.
        scene.restart().await;
        scene.pass_seconds(HOUR + 600);
        let ended = work_on_ends(&scene).await;
        assert_eq!((ended.worked_on, ended.in_trouble), (1, Vec::new()));
        let over = S::Closed(CloseReason::WindowEnded);
        for _ in 0..10 {
            if scene.state(id).await == over {
                break;
            }
            scene.pass_seconds(60);
            work_on_ends(&scene).await;
        }
        assert_eq!(scene.state(id).await, over);
        let end = scene.reservation(id).await.window_end.expect("an end");
        assert_eq!((end - from).num_seconds(), HOUR);
        assert_eq!(
            scene.charged(id).await.0,
            HOUR,
            "up to the end and no further"
        );
        assert_eq!(scene.state(waiting).await, S::Confirmed);
        assert_eq!(scene.made_at(Provider::RUNPOD), 0, "nothing is ordered");
        assert_eq!(work_on_ends(&scene).await, EndsReport::default());
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_service_was_ending_is_ended_once_its_claim_has_run_out() {
    for_usual_database(async |store| {
        let mut scene = Scene::open(store).await;
        let id = for_an_hour(&scene).await;
        scene.pass_seconds(HOUR);
        scene.line.hook(|call| match call.op {
            Op::Release => Fate::HangBefore,
            _ => Fate::Forward,
        });
        tokio::select! {
            biased;
            () = scene.line.hangs() => {}
            _ = fulfil::work_until_idle(scene.broker()) => panic!("it waits for the provider"),
        }
        scene.line.unhook();
        scene.restart().await;
        assert_eq!(
            work_on_ends(&scene).await,
            EndsReport::default(),
            "it is claimed"
        );
        scene.pass_seconds(i64::from(fulfil::CLAIM_SECONDS) + 1);
        assert_eq!(work_on_ends(&scene).await.worked_on, 1);
        for _ in 0..10 {
            scene.pass_seconds(60);
            work_on_ends(&scene).await;
        }
        assert_eq!(scene.state(id).await, S::Closed(CloseReason::WindowEnded));
        assert_eq!(scene.charged(id).await.0, HOUR);
        assert!(scene.charged(id).await.1 > Decimal::ZERO);
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}
