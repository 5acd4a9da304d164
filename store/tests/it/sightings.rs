//! GPUs that were seen in leases, found again by id or serial number.

use std::sync::Arc;

use market::attestation::FindingCode;
use market::ids::{LeaseId, VerificationId};
use market::lease::LeaseState;
use market::offer::{Availability, MachineOperator, Offer, Particulars};
use store::Store;
use store::change::Change;
use store::fixture::{execute_raw, for_each_database};
use store::sightings::NewSighting;
use store::verifications::{NewNodeSession, NewVerification, NodeStep};
use uuid::Uuid;

use crate::support::{at, claim, offer, provisioning, sell, tenant};

fn gpu(uuid: &str, serial: Option<&str>) -> NewSighting {
    NewSighting {
        uuid: uuid.to_owned(),
        serial: serial.map(str::to_owned),
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        memory_mib: 81_559,
        failed: Vec::new(),
    }
}

/// An offer of this name, of a machine of somebody's own.
fn placed(name: &str) -> Offer {
    let mut offer = offer(name, Availability::exactly(1));
    offer.particulars = Arc::new(Particulars {
        operator: MachineOperator::Peer(Some(name.to_owned())),
        ..Particulars::default()
    });
    offer
}

/// Puts offers of these names on sale.
async fn on_sale(store: &Store, names: &[&str]) {
    let offers = names.iter().map(|name| placed(name));
    sell(store, &offers.collect::<Vec<_>>(), at(0)).await;
}

/// A node of a lease under verification.
struct Speaker {
    lease: LeaseId,
    verification: VerificationId,
    key: String,
    step: u8,
}

impl Speaker {
    /// A node of a lease that a tenant with this name bought, from an offer with this name.
    async fn enrol(store: &Store, name: &str) -> Self {
        let offer = placed(name);
        let whose = tenant(store, name).await;
        let (reservation, lease) = provisioning(store, whose, &offer).await;
        let verification = VerificationId::from_uuid(Uuid::now_v7());
        let held = claim(store, reservation.id, at(5)).await;
        let change = Change {
            verifications: vec![NewVerification {
                sealed_push: None,
                id: verification,
                lease_id: lease,
                enrol_hash: format!("enrol {name}"),
                nodes: 1,
                deadline: at(900),
            }],
            ..Change::default()
        };
        let opened = store.work().apply(&held.claim, &change, at(5)).await;
        opened.expect("opened");
        let node = NewNodeSession {
            node_index: 0,
            host: "198.51.100.7".to_owned(),
            agent_key: format!("key of {name}"),
            step: 1,
            session: serde_json::json!({}),
        };
        let all = store.verifications().across_tenants();
        all.enrol(verification, &node, at(6)).await.expect("enrols");
        Self {
            lease,
            verification,
            key: node.agent_key,
            step: 1,
        }
    }

    /// Takes a step that shows these GPUs.
    async fn show(&mut self, store: &Store, sightings: Vec<NewSighting>, seconds: i64) {
        let step = NodeStep {
            recheck: None,
            agent_key: self.key.clone(),
            from: self.step,
            to: self.step + 1,
            session: serde_json::json!({}),
            attestation: None,
            sightings,
        };
        let all = store.verifications().across_tenants();
        let taken = all.advance(self.verification, 0, &step, at(seconds)).await;
        taken.expect("taken");
        self.step += 1;
    }
}

#[tokio::test]
async fn a_gpu_is_known_again_by_its_id_or_its_board_in_other_leases_alone() {
    for_each_database(async |store| {
        on_sale(store, &["a", "b"]).await;
        let mut first = Speaker::enrol(store, "a").await;
        let mut second = Speaker::enrol(store, "b").await;
        let shown = vec![gpu(" GPU-Aa ", None), gpu("GPU-b", None)];
        first.show(store, shown, 10).await;
        let with_board = vec![gpu("GPU-aA", Some("S-1")), gpu("GPU-b", Some("S-2"))];
        first.show(store, with_board, 20).await;
        second.show(store, vec![gpu("gpu-B", None)], 15).await;

        let known = async |shown: &[NewSighting], but: LeaseId| {
            let known = store.sightings().of(shown, but).await;
            known.expect("reads")
        };
        let found = known(&[gpu("gpu-aa", None)], second.lease).await;
        assert_eq!(found.len(), 1, "{found:?}");
        let seen = &found[0];
        assert_eq!(
            (seen.lease_id, seen.state),
            (first.lease, LeaseState::Requested)
        );
        assert_eq!((seen.first_seen_at, seen.last_seen_at), (at(10), at(20)));
        assert_eq!(seen.gpu, gpu("gpu-aa", Some("s-1")));
        let offer_a = placed("a");
        assert_eq!(
            (&seen.provider, seen.offer),
            (&offer_a.provider, offer_a.offer_id)
        );
        assert!(seen.of_peers);

        let by_board = known(&[gpu("GPU-other", Some("s-2"))], second.lease).await;
        assert_eq!(by_board.len(), 1);
        assert_eq!(by_board[0].gpu.uuid, "gpu-b");
        // The latest first, without one's own.
        let both = known(
            &[gpu("GPU-B", Some("S-1"))],
            LeaseId::from_uuid(Uuid::now_v7()),
        )
        .await;
        let seen: Vec<_> = both
            .iter()
            .map(|one| (one.lease_id, &*one.gpu.uuid))
            .collect();
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert_eq!(seen[2], (second.lease, "gpu-b"));
        let others = known(&[gpu("GPU-b", None)], first.lease).await;
        assert_eq!(others.len(), 1);
        assert_eq!(others[0].lease_id, second.lease);
        assert_eq!(known(&[gpu("GPU-c", Some("S-9"))], first.lease).await, []);
        assert_eq!(known(&[], first.lease).await, []);
    })
    .await;
}

#[tokio::test]
async fn what_failed_and_where_the_lease_stands_are_read_with_it() {
    for_each_database(async |store| {
        on_sale(store, &["a"]).await;
        let mut node = Speaker::enrol(store, "a").await;
        node.show(store, vec![gpu("GPU-a", None)], 10).await;
        let failed = NewSighting {
            failed: vec![FindingCode::MemoryBandwidth],
            ..gpu("GPU-a", None)
        };
        node.show(store, vec![failed], 20).await;
        let gone = format!(
            "UPDATE leases SET state = 'gone' WHERE id = '{}'",
            node.lease
        );
        execute_raw(store, &gone).await.expect("changed");
        let other = LeaseId::from_uuid(Uuid::now_v7());
        let seen = store.sightings().of(&[gpu("GPU-a", None)], other).await;
        let seen = seen.expect("reads").remove(0);
        assert_eq!(seen.state, LeaseState::Gone);
        assert_eq!(seen.gpu.failed, [FindingCode::MemoryBandwidth]);
        assert_eq!(seen.first_seen_at, at(10));
    })
    .await;
}
