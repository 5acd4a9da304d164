//! Several nodes of a demand of the kind `gpus`: joined by a fabric they stand and fall together, and without
//! one another node comes from the site of the others.

use market::lease::LeaseState;
use market::reservation::ReservationState as S;
use serde_json::json;
use simulator::{FaultKind, Provider};
use store::fixture::for_usual_database;
use store::leases::Lease;

use super::gang::documents;
use super::scene::{Scene, fleet};

const A10: &str = "gpu_1x_a10";

fn sites(leases: &[Lease]) -> Vec<Option<&str>> {
    let in_use = leases
        .iter()
        .filter(|lease| lease.state == LeaseState::HandedOff);
    in_use
        .map(|lease| lease.offer.place.region.as_deref())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_a_demand_asks_to_be_joined_are_proved_and_replaced_together() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::Voltagepark, FaultKind::SlowLink);
        let demand = json!({
            "kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": 4, "fabric": "rdma",
            "policy": { "allow_providers": ["voltagepark"] },
        });
        let id = scene.reserve_until_active(demand).await;
        assert!(scene.reservation(id).await.gang);
        let leases = scene.leases(id).await;
        let (fell, stands) = (&leases[0], leases.last().expect("a lease"));
        assert_eq!((fell.nodes, fell.replaced_by), (4, Some(stands.id)));
        assert_eq!(stands.offer.internode, fell.offer.internode);
        let documents = documents(&scene, fell).await;
        assert_eq!(documents.len(), 8, "each alone, then with the others");
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_replaced_alone_comes_from_the_site_of_the_others() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let has = |place: &str, nodes: u32| {
            let market = scene.simulator();
            let set = market.set_place_capacity(Provider::Lambda, A10, place, nodes);
            set.expect("it is sold");
        };
        has("us-east-1", 0);
        scene.turn(60).await;
        let id = scene.reserve_until_active(fleet(3)).await;
        assert!(!scene.reservation(id).await.gang);
        has("us-east-1", 6);
        let lost = scene.leases(id).await.remove(0);
        scene.take_away(&lost).await;
        for _ in 0..6 {
            scene.turn(300).await;
        }
        assert_eq!(scene.state(id).await, S::Active);
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 4);
        assert_eq!(sites(&leases), [Some("us-west-1"); 3]);
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}
