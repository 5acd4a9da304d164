//! The ceiling that a tenant set beforehand, and the possible replacements of a machine that failed.

use market::ids::ReservationId;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};

use super::scene::Scene;

/// Nodes of eight at voltagepark (15.92 an hour joined by Ethernet, 19.92 by InfiniBand) or lambda
/// (23.92).
fn nodes(nodes: u32, ceiling: Value) -> Value {
    json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": nodes,
        "policy": { "allow_providers": ["voltagepark", "lambda"] }, "ceiling": ceiling,
    })
}

fn break_all(scene: &Scene, provider: Provider, times: u32) {
    let fault = Fault::new(provider, FaultKind::AcceptedThenFailed).times(times);
    scene
        .simulator()
        .break_next(fault)
        .expect("a fault that fits");
}

/// The hourly cost at the providers of a reservation's leases in use, and the dearest of all that were ever
/// ordered. Units: US dollars an hour for one node.
async fn costs(scene: &Scene, id: ReservationId) -> (Decimal, Decimal) {
    let leases = scene.leases(id).await;
    let price = |lease: &store::leases::Lease| {
        lease.offer.price_per_node_hour.to_decimal() * Decimal::from(lease.nodes)
    };
    let standing = leases.iter().filter(|lease| lease.state.is_standing());
    let dearest = leases
        .iter()
        .map(|l| l.offer.price_per_node_hour.to_decimal());
    (standing.map(price).sum(), dearest.max().unwrap_or_default())
}

async fn ends_without_capacity(scene: &Scene, demand: Value, dearest: &str) {
    let id = scene.reserve(demand).await;
    scene.work().await;
    scene.until(id, S::Closed(CloseReason::NoCapacity)).await;
    let dearest: Decimal = dearest.parse().expect("a number");
    assert_eq!(costs(scene, id).await.1, dearest);
    assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
    scene.assert_settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_on_everything_binds_a_replacement() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        break_all(&scene, Provider::VOLTAGEPARK, 100);
        let under = json!({ "usd_per_hour": "19.91" });
        ends_without_capacity(&scene, nodes(1, under), "15.92").await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limb_of_a_ceiling_binds_and_what_lies_under_all_is_taken_at_the_quoted_rate() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        break_all(&scene, Provider::VOLTAGEPARK, 100);
        let dear_gpus = json!({ "usd_per_gpu_hour": "3", "usd_per_hour": "23.91" });
        ends_without_capacity(&scene, nodes(1, dear_gpus), "19.92").await;
        // Offers that failed everywhere are in cool-down for a while.
        scene.turn(4_000).await;
        let under_both = json!({ "usd_per_gpu_hour": "2.99", "usd_per_hour": "23.92" });
        let id = scene.reserve_until_active(nodes(1, under_both)).await;
        assert_eq!(costs(&scene, id).await.0, Decimal::new(2392, 2));
        scene.turn(3_600).await;
        scene.release_and_close(id).await;
        let charges = scene.charges(id).await;
        assert!(!charges.is_empty());
        for charge in charges {
            assert_eq!(charge.rate.to_string(), "1.99", "what was quoted");
        }
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

/// Two nodes, ordered one by one. Both places that join by Ethernet fail them twice and are left
/// alone: InfiniBand is next, for 19.92 a node.
async fn two_nodes_that_fail_under(scene: &Scene, usd_per_hour: &str) -> ReservationId {
    break_all(scene, Provider::VOLTAGEPARK, 4);
    let demand = nodes(2, json!({ "usd_per_hour": usd_per_hour }));
    let id = scene.reserve(demand).await;
    scene.work().await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_on_everything_counts_the_siblings_of_what_is_replaced() {
    for_each_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        let id = two_nodes_that_fail_under(&scene, "39.83").await;
        scene.until(id, S::Closed(CloseReason::NoCapacity)).await;
        assert_eq!(costs(&scene, id).await.1, Decimal::new(1992, 2), "one was");
        assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn siblings_are_replaced_up_to_the_ceiling_on_everything() {
    for_usual_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        let id = two_nodes_that_fail_under(&scene, "39.84").await;
        scene.until(id, S::Active).await;
        assert_eq!(costs(&scene, id).await.0, Decimal::new(3984, 2));
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}
