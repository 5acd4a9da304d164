//! The verification level of a reservation's nodes: the one that its demand names, and never less than the
//! least for all.

use broker::flow::plan::PlanError;
use broker::flow::reserve::ReserveError;
use chrono::TimeDelta;
use market::identity::Role;
use market::reservation::{CloseReason, ReservationState};
use market::verification::Level;
use serde_json::json;
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};

use super::gang::documents;
use super::scene::{Scene, fleet, training};
use crate::service::{Service, orderable_demand};

/// Longer than the cool-down of an offer that failed.
const COOL_DOWN_SECONDS: i64 = 8_000;

/// How deeply the node of this demand proves itself, and how long it has for that.
async fn proved_at(scene: &Scene, wanted: Option<&str>) -> (Level, TimeDelta) {
    let mut demand = fleet(1);
    if let Some(wanted) = wanted {
        demand["verification"] = json!(wanted);
    }
    let id = scene.reserve_until_active(demand).await;
    let level = scene.reservation(id).await.verification;
    let lease = scene.leases(id).await.remove(0);
    let document = documents(scene, &lease).await.remove(0);
    assert_eq!(document.level, level, "{wanted:?}");
    let has = lease.verify_deadline.zip(lease.up_at);
    let (deadline, up_at) = has.expect("its nodes came up");
    scene.release_and_close(id).await;
    (level, deadline - up_at)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demand_says_how_deeply_its_nodes_prove_themselves() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        let (usual, long) = (TimeDelta::seconds(600), TimeDelta::seconds(600 + 5_910));
        for (wanted, proved, has) in [
            (None, Level::Standard, usual),
            (Some("quick"), Level::Quick, usual),
            (Some("standard"), Level::Standard, usual),
            (Some("deep"), Level::Deep, long),
        ] {
            assert_eq!(proved_at(&scene, wanted).await, (proved, has), "{wanted:?}");
        }

        // The operator of the service sets a least level for all, and a higher default for demands that name
        // none.
        let stricter = |config: &mut broker::platform::config::Config| {
            config.verifier.level = Level::Deep;
            config.verifier.least_level = Level::Standard;
            config.verifier.most_level = Level::Standard;
        };
        scene.restart_as(stricter, |_| true).await;
        for (wanted, proved) in [(None, Level::Deep), (Some("quick"), Level::Standard)] {
            assert_eq!(proved_at(&scene, wanted).await.0, proved, "{wanted:?}");
        }
        // Nor may anybody have it dig as deep as they like at the service's cost.
        let mut demand = fleet(1);
        demand["verification"] = json!("deep");
        let refused = scene.try_hold(demand).await.expect_err("too deep");
        let ReserveError::Plan(PlanError::Faulty(faults)) = refused else {
            panic!("{refused}");
        };
        let words = "`deep` is not done here (`verifier.most_level`); ask for `standard` at most";
        assert_eq!(
            (faults.len(), faults[0].field.as_str()),
            (1, "verification")
        );
        assert!(faults[0].detail.contains(words), "{faults:?}");

        // An unknown seller has to prove more, even if a demand asks for less.
        let wary = |config: &mut broker::platform::config::Config| {
            config.verifier.unproven_level = Some(Level::Deep);
        };
        scene.restart_as(wary, |_| true).await;
        for wanted in [None, Some("quick")] {
            assert_eq!(proved_at(&scene, wanted).await, (Level::Deep, long));
        }
        scene.close().await;
    })
    .await;
}

/// Otherwise a seller without a record would escape its deeper verification once another's machine failed.
#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_for_a_machine_is_of_sellers_of_whom_no_more_is_demanded() {
    for_usual_database(async |store| {
        let mut scene = Scene::open(store).await;
        let id = scene.reserve(training(8)).await;
        assert_eq!(scene.reservation(id).await.verification, Level::Standard);
        let wary = |config: &mut broker::platform::config::Config| {
            config.verifier.unproven_level = Some(Level::Deep);
        };
        scene.restart_as(wary, |_| true).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowMemory);
        let no_capacity = ReservationState::Closed(CloseReason::NoCapacity);
        scene.until(id, no_capacity).await;
        assert_eq!(scene.leases(id).await.len(), 1);
        scene.assert_settled().await;

        // A seller of whom this level is proved anyway passes.
        let mut deep = training(8);
        deep["verification"] = json!("deep");
        scene.turn(COOL_DOWN_SECONDS).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowMemory);
        let id = scene.reserve_until_active(deep).await;
        assert_eq!(scene.leases(id).await.len(), 2);
        scene.release_and_close(id).await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_depth_that_is_not_known_is_refused_by_its_name_and_a_known_one_is_shown() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    crate::service::ssh_key(&service, &key).await;
    let mut demand = orderable_demand(&service).await;
    demand["verification"] = json!("thorough");
    let ask = json!({ "demand": demand });
    let answer = service.with(&key).post("/v1/reservations", &ask).await;
    answer.refused(422, "invalid_body");
    for word in ["thorough", "quick", "standard", "deep"] {
        assert!(answer.text.contains(word), "{}", answer.text);
    }
    demand["verification"] = json!("deep");
    let ask = json!({ "demand": demand });
    let answer = service.with(&key).post("/v1/reservations", &ask).await;
    let placed = answer.expect(201);
    let path = format!("/v1/reservations/{}", placed["id"].as_str().expect("an id"));
    let shown = service.with(&key).get(&path).await.expect(200);
    assert_eq!(shown["verification"], "deep");
    assert_eq!(shown["demand"]["verification"], "deep");
    service.stop().await;
}
