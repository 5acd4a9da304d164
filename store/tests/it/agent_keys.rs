//! A key that an agent commits is its own: no other node commits it, in any verification.

use market::ids::VerificationId;
use store::change::Change;
use store::fixture::{execute_raw, for_each_database};
use store::verifications::NewVerification;
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{at, claim};
use crate::verifications::{Opened, node, opened};

/// Another verification of the same lease, as when its order is sent again.
async fn another(store: &Store, opened: &Opened) -> VerificationId {
    let id = VerificationId::from_uuid(Uuid::now_v7());
    let held = claim(store, opened.reservation, at(6)).await;
    let change = Change {
        verifications: vec![NewVerification {
            sealed_push: None,
            id,
            lease_id: opened.lease,
            enrol_hash: id.to_string(),
            nodes: 2,
            deadline: at(900),
        }],
        ..Change::default()
    };
    let applied = store.work().apply(&held.claim, &change, at(6)).await;
    applied.expect("opened");
    id
}

fn is_refused<T>(enrolled: &Result<T, StoreError>) -> bool {
    matches!(
        enrolled,
        Err(StoreError::Conflict(Conflict::AgentKeyCommitted))
    )
}

#[tokio::test]
async fn a_key_that_a_node_of_another_verification_has_committed_is_refused() {
    for_each_database(async |store| {
        let opened = opened(store).await;
        let (first, second) = (opened.verification, another(store, &opened).await);
        let all = store.verifications().across_tenants();
        let own = all.enrol(first, &node(0, "one"), at(10)).await;
        let own = own.expect("enrols");
        let relayed = all.enrol(second, &node(0, "one"), at(11)).await;
        assert!(is_refused(&relayed), "{relayed:?}");
        assert_eq!(all.nodes(second).await.expect("reads"), []);
        // The owner of the key gets its present session; the refused node may enrol with a key of its own.
        let again = all.enrol(first, &node(0, "one"), at(12)).await;
        let again = again.expect("its answer was lost");
        assert_eq!((again.fresh, again.node), (false, own.node));
        let honest = all.enrol(second, &node(0, "two"), at(13)).await;
        assert!(honest.expect("enrols").fresh);
        // Of two at once one gets it.
        let (here, there) = (node(1, "three"), node(1, "three"));
        let (here, there) = tokio::join!(
            all.enrol(first, &here, at(14)),
            all.enrol(second, &there, at(14))
        );
        let refused = [is_refused(&here), is_refused(&there)];
        assert!(refused[0] != refused[1], "{here:?} {there:?}");
        let rewritten = execute_raw(store, "DELETE FROM agent_keys").await;
        assert!(rewritten.expect_err("refused").contains("append-only"));
    })
    .await;
}
