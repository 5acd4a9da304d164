//! Reachability of nodes: stored for each, with its events in the same transaction, for leases in use.

use chrono::TimeDelta;
use market::event::EventType;
use market::ids::LeaseId;
use market::offer::Availability;
use store::Store;
use store::fixture::{execute_raw, for_each_database};
use store::reach::{Probe, ProbeFailure};

use crate::support::{at, offer, provisioning, sell, tenant};

const PATIENCE: TimeDelta = TimeDelta::seconds(60);

async fn look(store: &Store, lease: LeaseId, probe: &Probe, seconds: i64) -> Vec<EventType> {
    let reach = store.reach().across_tenants();
    let told = reach.record(lease, 0, probe, PATIENCE, at(seconds)).await;
    told.expect("kept")
}

#[tokio::test]
async fn a_silence_is_kept_and_told_for_a_lease_in_use_alone() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (acme, project) = tenant(store, "acme").await;
        let other = tenant(store, "other").await.0;
        let (_, lease) = provisioning(store, (acme, project), &offer).await;
        let silent = Probe::Failed(ProbeFailure::NoAnswer);
        assert_eq!(look(store, lease, &silent, 10).await, []);
        let mine = store.reach().of(acme);
        assert_eq!(mine.of_lease(lease).await.expect("reads"), []);

        let hand_off = format!("UPDATE leases SET state = 'handed_off' WHERE id = '{lease}'");
        execute_raw(store, &hand_off).await.expect("handed off");
        let first = Probe::Reached {
            first_contact_key: Some("ssh-ed25519 AAAA".into()),
        };
        assert_eq!(look(store, lease, &first, 20).await, []);
        assert_eq!(look(store, lease, &silent, 30).await, []);
        assert_eq!(
            look(store, lease, &silent, 90).await,
            [EventType::NodeUnreachable]
        );
        assert_eq!(look(store, lease, &silent, 200).await, []);
        let known = mine.of_lease(lease).await.expect("reads").remove(0);
        assert_eq!(known.last_reachable_at, Some(at(20)));
        assert_eq!(known.unreachable_since, Some(at(30)));
        assert_eq!(known.first_contact_key.as_deref(), Some("ssh-ed25519 AAAA"));
        assert_eq!(known.failure, Some(ProbeFailure::NoAnswer));
        let others = store.reach().of(other);
        assert_eq!(others.of_lease(lease).await.expect("reads"), []);

        let all = store.events().of(acme);
        let events = all.list(&Default::default(), 100).await.expect("reads");
        let told: Vec<_> = events
            .iter()
            .filter(|event| event.kind == EventType::NodeUnreachable)
            .collect();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].data["node"], 0);
        assert_eq!(told[0].data["reason"], "no_answer");
        let failures = [
            ProbeFailure::NoAnswer,
            ProbeFailure::OtherKey,
            ProbeFailure::NotPublic,
        ];
        for failure in failures {
            look(store, lease, &Probe::Failed(failure), 300).await;
            let known = mine.of_lease(lease).await.expect("reads").remove(0);
            assert_eq!(known.failure, Some(failure));
        }
        let in_use = store.leases().across_tenants().handed_off().await;
        assert_eq!(in_use.expect("reads").len(), 1);
    })
    .await;
}

#[tokio::test]
async fn the_host_key_of_the_first_contact_is_kept_also_before_the_hand_off_and_no_later_one() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        let (_, lease) = provisioning(store, whose, &offer).await;
        let reach = store.reach().across_tenants();
        for (shown, seconds) in [("ssh-ed25519 AAAA", 10), ("ssh-ed25519 BBBB", 20)] {
            let kept = reach.first_contact(lease, 1, shown, at(seconds)).await;
            assert_eq!(kept.expect("kept"), "ssh-ed25519 AAAA");
        }
        let known = reach.of_lease(lease).await.expect("reads");
        let keys: Vec<_> = known.iter().map(|node| &node.first_contact_key).collect();
        assert_eq!(keys, [&Some("ssh-ed25519 AAAA".to_owned())]);
        assert_eq!((known[0].node_index, known[0].probed_at), (1, at(10)));
    })
    .await;
}
