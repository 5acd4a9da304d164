//! Everything goes well: the sold machines are delivered, metered, released, and every cent adds up.

use chrono::TimeDelta;
use market::lease::LeaseState;
use market::ledger::Account;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use store::fixture::{for_each_database, for_usual_database};

use super::gang::documents;
use super::scene::{Scene, container, training};

/// Several replicas at lambda.
fn serving() -> Value {
    json!({
        "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 40,
        "input_tokens": 1024, "output_tokens": 256, "tags": { "team": "product" },
        "policy": { "allow_providers": ["lambda"] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_gang_goes_through_its_states_and_every_cent_adds_up() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.hold(training(16)).await;
        assert_eq!(scene.state(id).await, S::Held);
        scene.confirm(id).await;
        assert_eq!(scene.state(id).await, S::Confirmed);
        scene.work().await;
        assert_eq!(scene.state(id).await, S::Provisioning);
        let leases = scene.leases(id).await;
        assert_eq!(
            (leases.len(), leases[0].nodes, leases[0].state),
            (1, 2, LeaseState::Booting)
        );
        assert_eq!(leases[0].offer.provider.as_str(), "voltagepark");
        scene.turn(899).await;
        assert_eq!(scene.state(id).await, S::Provisioning, "it is not up yet");
        scene.turn(31).await;
        assert_eq!(scene.state(id).await, S::Active);
        assert_eq!(scene.leases(id).await[0].state, LeaseState::HandedOff);
        assert_eq!(
            scene.charged(id).await,
            (0, Decimal::ZERO),
            "nothing before the hand-off"
        );

        for _ in 0..3 {
            scene.turn(1_237).await;
        }
        scene.pass_seconds(11);
        scene.release(id).await;
        scene.work().await;
        scene.until(id, S::Closed(CloseReason::Released)).await;
        scene.turn(3_600).await;
        let (seconds, usd) = scene.charged(id).await;
        assert_eq!(
            seconds,
            16 * (3 * 1_237 + 11),
            "from the hand-off to the release and no longer"
        );
        assert_eq!(scene.balance(&Account::Receivable(scene.tenant)).await, usd);
        assert_eq!(scene.balance(&Account::RevenueUsage).await, -usd);
        scene.assert_settled().await;
        assert!(scene.payable(Provider::VOLTAGEPARK).await > Decimal::ZERO);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_knows_only_its_inner_address_is_verified_all_the_same() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(container()).await;
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(lease.offer.provider.as_str(), "runpod");
        let said = documents(&scene, &lease).await.remove(0).host;
        assert_eq!(said.as_deref(), Some(lease.provider_nodes[0].host.as_str()));
        let all = store.verifications().across_tenants();
        let verification = all
            .of_lease(lease.id)
            .await
            .expect("verifications")
            .remove(0);
        let claimed = all
            .nodes(verification.id)
            .await
            .expect("its node")
            .remove(0)
            .host;
        assert!(claimed.starts_with("10."), "{claimed}");
        let is_known = |address: &str| address == claimed;
        let mut nodes = lease.provider_nodes.iter();
        let known = nodes.any(|node| {
            is_known(&node.host) || node.private_address.as_deref().is_some_and(is_known)
        });
        assert!(!known, "its provider does not tell that address");
        scene.release_and_close(id).await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serving_fleet_of_several_replicas_is_delivered_and_every_cent_adds_up() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve(serving()).await;
        scene.work().await;
        let leases = scene.leases(id).await;
        assert!(leases.len() >= 2, "several replicas: {}", leases.len());
        assert!(
            leases
                .iter()
                .all(|lease| lease.nodes == 1 && lease.state == LeaseState::Booting)
        );
        scene.turn(330).await;
        assert_eq!(scene.state(id).await, S::Active);
        let handed_off_at = scene.broker().now();

        scene.turn(86_399).await;
        scene.pass_seconds(5);
        scene.release(id).await;
        let used = (scene.broker().now() - handed_off_at).num_seconds();
        scene.work().await;
        assert_eq!(
            scene.state(id).await,
            S::Releasing(CloseReason::Released),
            "lambda takes a while"
        );
        scene.turn(60).await;
        assert_eq!(scene.state(id).await, S::Closed(CloseReason::Released));
        let (seconds, usd) = scene.charged(id).await;
        let gpus: u32 = leases
            .iter()
            .map(|l| l.offer.gpus.as_whole().expect("whole GPUs"))
            .sum();
        assert_eq!((seconds, used), (i64::from(gpus) * used, 86_404));
        assert_eq!(scene.balance(&Account::Receivable(scene.tenant)).await, usd);
        scene.assert_settled().await;
        assert!(scene.payable(Provider::LAMBDA).await > Decimal::ZERO);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn use_that_is_metered_in_slices_costs_what_it_costs_as_a_whole() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let (slices, whole) = (scene.hold(training(8)).await, scene.hold(training(8)).await);
        for id in [slices, whole] {
            scene.confirm(id).await;
        }
        scene.work().await;
        scene.turn(900).await;
        for _ in 0..40 {
            // Not a whole number of seconds, so that a slicing could lose fractions.
            scene.pass_milliseconds(7_300);
            store
                .work()
                .nudge(slices, scene.broker().now())
                .await
                .expect("a nudge");
            scene.work().await;
        }
        for id in [slices, whole] {
            scene.release(id).await;
        }
        scene.turn(60).await;
        assert!(scene.charges(slices).await.len() > 5 * scene.charges(whole).await.len());
        assert_eq!(scene.charged(slices).await, scene.charged(whole).await);
        assert_eq!(scene.charged(whole).await.0, 8 * 292);
        for id in [slices, whole] {
            scene.until(id, S::Closed(CloseReason::Released)).await;
        }
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cost_before_the_hand_off_is_booked_and_is_not_the_tenants() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve_until_active(training(8)).await;
        let lease = scene.leases(id).await.remove(0);
        let (started_at, handed_off_at) = (
            lease.started_at.expect("started"),
            lease.handed_off_at.expect("handed off"),
        );
        assert!(handed_off_at - started_at >= TimeDelta::seconds(900));
        scene.turn(3_600).await;
        scene.release_and_close(id).await;
        let rate = scene.reservation(id).await.lines[0]
            .rate
            .money_per_gpu_hour()
            .to_decimal();
        let before = Decimal::from((handed_off_at - started_at).num_seconds());
        let expected = rate * Decimal::from(8) * before / Decimal::from(3_600);
        let provider = lease.offer.provider.clone();
        assert_eq!(
            scene
                .balance(&Account::CogsPreHandoff(provider.clone()))
                .await,
            expected
        );
        let (_, usd) = scene.charged(id).await;
        assert_eq!(
            scene.balance(&Account::CogsUsage(provider)).await,
            usd,
            "sold at list price"
        );
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}
