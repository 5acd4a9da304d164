//! Several nodes of a demand of the kind `gpus` that must be joined: they are proved and replaced together.

use serde_json::json;
use simulator::{FaultKind, Provider};
use store::fixture::for_usual_database;

use super::gang::documents;
use super::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_a_demand_asks_to_be_joined_are_proved_and_replaced_together() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowLink);
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
