//! A key that the agent of one node commits speaks for no other node.

use market::lease::LeaseState;
use simulator::{FaultKind, Provider};
use store::fixture::for_usual_database;

use super::scene::{Scene, training};
use super::spoken::{commit, fresh_key};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_commits_the_key_of_another_order_is_refused() {
    for_usual_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        for _ in 0..2 {
            scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        }
        let id = scene.reserve(training(16)).await;
        scene.work().await;
        scene.turn(900).await;
        let leases = scene.leases(id).await;
        let hosts: Vec<&str> = leases
            .iter()
            .map(|lease| lease.provider_nodes[0].host.as_str())
            .collect();
        assert!(leases.iter().all(|one| one.state == LeaseState::Verifying));
        let scripts = scene.line.scripts();
        let key = fresh_key();

        let first = commit(&scene, &scripts[0], (hosts[0], &key)).await;
        let nonce = first.nonce();
        let refused = commit(&scene, &scripts[1], (hosts[1], &key)).await;
        refused.assert_refused(409, "agent_key_committed");
        // It may repeat its own commitment, and gets the same answer.
        let again = commit(&scene, &scripts[0], (hosts[0], &key)).await;
        assert_eq!(again, first);
        let own = commit(&scene, &scripts[1], (hosts[1], &fresh_key())).await;
        assert_ne!(own.nonce(), nonce);
        scene.close().await;
    })
    .await;
}
