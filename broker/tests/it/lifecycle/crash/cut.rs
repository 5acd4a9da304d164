//! The worker's connection to PostgreSQL is cut in the middle of its work. Its saved work is there, its
//! unsaved work is not, and a worker after it finishes.

use store::Store;
use store::fixture::{Cut, Wire};

use super::*;

/// Cuts the connection at this statement of each step of a life, or of the requests of its nodes meanwhile.
struct AtStatement<'a> {
    wire: &'a Wire,
    trips: usize,
    cut: Cut,
}

impl Killer for AtStatement<'_> {
    async fn work(&self, scene: &Scene) -> Option<()> {
        self.wire.cut_after(self.trips, self.cut);
        // A round that failed runs again.
        let _ = fulfil::work_until_idle(scene.broker()).await;
        let was_cut = !self.wire.mend();
        (!was_cut).then_some(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_connection_is_cut_at_any_statement_leaves_one_machine_per_order() {
    let Some(test) = TestDatabase::postgres().await else {
        return;
    };
    let wire = Wire::to(&test.database);
    let store = Store::connect(wire.database()).await.expect("connects");
    let mut scene = Scene::open_node_by_node(&store).await;
    let Thoroughness { kills, one_of, .. } = thoroughness();
    let mut lives = 0;
    for number in 0.. {
        // From the first statement of a step to its last: each one, or ever fewer of them.
        let trips = match one_of {
            1 => number,
            _ if number == kills => break,
            _ => number * (number + 3) * 2,
        };
        let cut = [Cut::Before, Cut::After][number % 2];
        lives += 1;
        let killer = AtStatement {
            wire: &wire,
            trips,
            cut,
        };
        if !live(&mut scene, &small(1), &killer).await {
            eprintln!("cut at the first {trips} statements of each step");
            break;
        }
    }
    assert!(lives >= kills, "only {lives}");
    scene.close().await;
    store.close().await.expect("closes");
    drop(wire);
    test.remove().await;
}
