//! The supply that may be sold: never more than there is (1), nothing without a price and nothing delisted on
//! an empty list (9), regardless of any one provider's faults (11).

use broker::flow::reserve::{self, Particulars, ReserveError};
use broker::flow::{fulfil, ingest, plan};
use broker::platform::app::Broker;
use broker::platform::background::Background;
use broker::service::tasks;
use market::identity::TenantScope;
use market::ids::ReservationId;
use market::lease::LeaseState;
use market::money::Money;
use simulator::{Fault, FaultKind, Provider};
use store::StoreError;
use store::fixture::{for_each_database, for_usual_database};

use crate::eventually::eventually;
use crate::lifecycle::scene::{Scene, fleet, training};
use crate::lifecycle::tap::Fate;

const INFINIBAND: &str = "h100-sxm5-80gb-infiniband";
const ETHERNET: &str = "h100-sxm5-80gb-ethernet";
const PLACE: &str = "3f0c7b9e-52d4-4a86-9c1e-7d2b8a6f4e10";

/// So many nodes are free at voltagepark, all of them in one place.
async fn leave_free(scene: &Scene, nodes: u32) {
    let simulator = scene.simulator();
    for sku in [INFINIBAND, ETHERNET] {
        simulator
            .set_capacity(Provider::VOLTAGEPARK, sku, 0)
            .expect("it is sold");
    }
    let free = simulator.set_place_capacity(Provider::VOLTAGEPARK, INFINIBAND, PLACE, nodes);
    free.expect("it is sold");
    scene.pass_seconds(1);
    assert_eq!(scene.read_providers().await.len(), 0);
}

/// Places holds of one node all at once; returns those that were placed. The others find their planned nodes
/// gone, or none left to plan with.
async fn race_for_holds(scene: &Scene, racers: usize) -> Vec<ReservationId> {
    let demand = serde_json::from_value(training(8)).expect("a demand");
    let mut race = tokio::task::JoinSet::new();
    for _ in 0..racers {
        let (broker, whose) = (scene.broker().clone(), TenantScope::whole(scene.tenant));
        let demand = Clone::clone(&demand);
        race.spawn(async move {
            reserve::in_one_call(&broker, &whose, demand, Particulars::default(), None).await
        });
    }
    let mut held = Vec::new();
    for placed in race.join_all().await {
        match placed {
            Ok(reservation) => held.push(reservation.id),
            Err(
                ReserveError::OutOfStock(StoreError::OutOfStock { .. })
                | ReserveError::NothingMatches { .. },
            ) => {}
            Err(other) => panic!("refused for another reason: {other}"),
        }
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_01_racing_holds_and_leases_never_pass_what_the_provider_has() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        leave_free(&scene, 3).await;
        let held = race_for_holds(&scene, 12).await;
        assert_eq!(held.len(), 3, "all that there is, and no more");
        for id in &held {
            scene.confirm(*id).await;
        }
        // Leases take the place of holds, and the provider's count has not followed yet.
        scene.work().await;
        assert_eq!(race_for_holds(&scene, 4).await.len(), 0);
        // Now it has.
        scene.turn(60).await;
        assert!(matches!(
            scene.try_hold(training(8)).await,
            Err(ReserveError::OutOfStock(_) | ReserveError::NothingMatches { .. })
        ));
        leave_free(&scene, 2).await;
        assert_eq!(
            race_for_holds(&scene, 6).await.len(),
            2,
            "what came free, and no more"
        );
        assert_eq!(scene.made_at(Provider::VOLTAGEPARK), 3);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_09_a_price_of_zero_is_unknown_and_never_the_cheapest() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let link = scene.link(Provider::VOLTAGEPARK);
        scene.pass_seconds(60);
        let mut reading = link
            .adapter
            .read_catalog(&link.http, scene.broker().now())
            .await
            .expect("a reading");
        let free = reading
            .offers
            .iter_mut()
            .find(|offer| offer.availability.may_hold(1))
            .expect("something is to be had");
        free.price_per_node_hour = Money::usd_units(0);
        let (free, of_all) = (free.offer_id, reading.offers.len());
        ingest::apply(scene.broker(), reading)
            .await
            .expect("the rest is fine");
        ingest::refresh_snapshot(scene.broker())
            .await
            .expect("a snapshot");
        let snapshot = scene.broker().snapshot();
        assert!(snapshot.offer(&free).is_none(), "no offer without a price");
        let left = snapshot
            .offers()
            .filter(|o| o.provider().as_str() == "voltagepark")
            .count();
        assert_eq!(left, of_all - 1);
        let demand = serde_json::from_value(training(8)).expect("a demand");
        let made = plan::make_plan(scene.broker(), &TenantScope::whole(scene.tenant), demand)
            .await
            .expect("a plan");
        let lines = made
            .plan
            .candidates
            .iter()
            .flat_map(|candidate| &candidate.lines);
        for line in lines {
            assert!(line.offer.offer_id != free && line.offer.price_per_node_hour.is_positive());
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_09_an_empty_list_delists_nothing_and_what_it_hides_grows_old() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let of_lambda = |broker: &Broker| {
            broker
                .snapshot()
                .offers()
                .filter(|offer| offer.provider().as_str() == "lambda")
                .count()
        };
        let before = of_lambda(scene.broker());
        let empty = Fault::new(Provider::LAMBDA, FaultKind::EmptyCatalog).times(1_000);
        scene
            .simulator()
            .break_next(empty)
            .expect("a fault that fits");
        for _ in 0..3 {
            scene.pass_seconds(100);
            assert_eq!(scene.read_providers().await.len(), 1);
            assert_eq!(of_lambda(scene.broker()), before);
        }
        // Past the provider's freshness limit they are shown, and not matched any more.
        scene.pass_seconds(600);
        scene.read_providers().await;
        assert_eq!(of_lambda(scene.broker()), before);
        let held = scene.try_hold(fleet(1)).await;
        assert!(
            matches!(held, Err(ReserveError::NothingMatches { .. })),
            "{held:?}"
        );
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_11_a_provider_that_hangs_keeps_no_other_from_being_read_or_ordered_from() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.line.hook(|call| match call.provider {
            "lambda" => Fate::HangBefore,
            _ => Fate::Forward,
        });
        scene.pass_seconds(500);
        let (hanging, fresh) = (
            scene.reserve(fleet(1)).await,
            scene.reserve(training(8)).await,
        );
        let mut work = Background::of(scene.broker());
        tasks::poll_each(&mut work);
        work.add("fulfil", fulfil::keep_working);
        let now = scene.broker().now();
        eventually("a fresh reading of voltagepark", async || {
            let snapshot = scene.broker().snapshot();
            let mut offers = snapshot
                .offers()
                .filter(|o| o.provider().as_str() == "voltagepark");
            offers.all(|offer| offer.observed_at() == now)
        })
        .await;
        eventually("an order at voltagepark", async || {
            scene
                .leases(fresh)
                .await
                .iter()
                .any(|lease| lease.state == LeaseState::Booting)
        })
        .await;
        let leases = scene.leases(hanging).await;
        assert!(
            leases.iter().all(|lease| lease.provider_lease_id.is_none()),
            "{leases:?}"
        );
        assert!(
            scene
                .line
                .calls()
                .iter()
                .any(|call| call.provider == "lambda"),
            "it was asked"
        );
        drop(work);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_11_a_provider_that_answers_garbage_affects_only_its_own_offers() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let broken = Fault::new(Provider::LAMBDA, FaultKind::TruncatedJson).times(1_000);
        scene
            .simulator()
            .break_next(broken)
            .expect("a fault that fits");
        let id = scene.reserve_until_active(training(8)).await;
        scene.turn(3_600).await;
        let held = scene.try_hold(fleet(1)).await;
        assert!(
            matches!(held, Err(ReserveError::NothingMatches { .. })),
            "{held:?}"
        );
        scene
            .try_hold(training(8))
            .await
            .expect("voltagepark is read as ever");
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}
