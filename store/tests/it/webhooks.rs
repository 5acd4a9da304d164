//! Webhook endpoints and the deliveries on their way to them.

use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType as T;
use market::ids::{TenantId, WebhookEndpointId};
use serde_json::json;
use store::events::{EventFilter, NewEvent};
use store::fixture::for_each_database;
use store::webhooks::{
    DeliveryState, DisabledReason, EndpointChange, MAX_ENDPOINTS, NewAttempt, NewWebhookEndpoint,
    Outcome, WebhookEndpoint,
};
use store::{Conflict, Store, StoreError};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{at, tenant, token};

const PATIENCE: TimeDelta = TimeDelta::days(5);

fn new_endpoint(event_types: Vec<T>) -> NewWebhookEndpoint {
    NewWebhookEndpoint {
        id: WebhookEndpointId::from_uuid(Uuid::now_v7()),
        url: "https://example.com/canary".to_owned(),
        description: "ours".to_owned(),
        event_types,
        enabled: true,
        sealed_secret: b"sealed one".to_vec(),
    }
}

async fn endpoint(store: &Store, tenant: TenantId, event_types: Vec<T>) -> WebhookEndpoint {
    let endpoints = store.webhook_endpoints().of(tenant);
    let added = endpoints.add(new_endpoint(event_types), at(0), None).await;
    added.expect("an endpoint")
}

async fn happen(store: &Store, tenant: TenantId, kind: T, now: DateTime<Utc>) {
    let new = NewEvent {
        kind,
        reservation_id: None,
        data: json!({}),
    };
    let events = store.events().of(tenant);
    events.append(&[new], now).await.expect("appended");
}

fn answered(status: u16, now: DateTime<Utc>) -> NewAttempt {
    NewAttempt {
        at: now,
        latency_ms: 7,
        status: Some(status),
        answer: Some("so".to_owned()),
        error: None,
    }
}

#[tokio::test]
async fn an_event_goes_to_every_enabled_endpoint_of_its_tenant_that_wants_it() {
    for_each_database(async |store| {
        let (acme, other) = (
            tenant(store, "acme").await.0,
            tenant(store, "other").await.0,
        );
        let all = endpoint(store, acme, Vec::new()).await;
        let some = endpoint(store, acme, vec![T::LeaseLost]).await;
        let off = endpoint(store, acme, Vec::new()).await;
        let theirs = endpoint(store, other, Vec::new()).await;
        let mine = store.webhook_endpoints().of(acme);
        let disable = EndpointChange {
            enabled: Some(false),
            ..EndpointChange::default()
        };
        let disabled = mine.change(off.id, &disable, None).await.expect("changed");
        assert_eq!(disabled.disabled, Some(DisabledReason::Asked));
        happen(store, acme, T::LeaseLost, at(1)).await;
        happen(store, acme, T::LeaseGone, at(2)).await;
        let sent = async |id| -> Vec<T> {
            let sent = mine.deliveries(id, None, 9).await.expect("reads");
            let mut kinds: Vec<_> = sent.iter().map(|one| one.event.kind).collect();
            kinds.sort();
            kinds
        };
        assert_eq!(sent(all.id).await, [T::LeaseGone, T::LeaseLost]);
        assert_eq!(sent(some.id).await, [T::LeaseLost]);
        assert!(sent(off.id).await.is_empty());
        assert!(sent(theirs.id).await.is_empty());
        assert!(mine.find(theirs.id).await.expect("reads").is_none());
        let foreign = mine.rotate(theirs.id, b"mine", at(9), None).await;
        assert!(matches!(foreign, Err(StoreError::NotFound { .. })));
        assert!(matches!(
            mine.delete(theirs.id, at(9), None).await,
            Err(StoreError::NotFound { .. })
        ));
        let due = store.deliveries().due_endpoints(at(2), 9).await;
        assert_eq!(due.expect("reads").len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_delivery_is_with_one_worker_until_its_claim_runs_out_and_keeps_its_event() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await.0;
        let endpoint = endpoint(store, whose, Vec::new()).await;
        happen(store, whose, T::LeaseGone, at(1)).await;
        let work = store.deliveries();
        let first = work
            .claim(endpoint.id, token(), at(1), 60, 9)
            .await
            .expect("ok");
        assert_eq!(first.len(), 1);
        assert!(
            work.claim(endpoint.id, token(), at(60), 60, 9)
                .await
                .expect("ok")
                .is_empty()
        );
        assert!(work.due_endpoints(at(60), 9).await.expect("ok").is_empty());
        // The first worker died, or is slow.
        let second = work
            .claim(endpoint.id, token(), at(61), 60, 9)
            .await
            .expect("ok");
        assert_eq!(
            second[0].event, first[0].event,
            "the id to deduplicate by stays"
        );
        let late = work
            .record(
                &first[0],
                &answered(200, at(62)),
                Outcome::Delivered,
                PATIENCE,
                at(62),
            )
            .await;
        assert!(matches!(late, Err(StoreError::Stale)), "{late:?}");
        let again = Outcome::Again(at(100));
        work.record(&second[0], &answered(500, at(62)), again, PATIENCE, at(62))
            .await
            .expect("recorded");
        assert!(
            work.claim(endpoint.id, token(), at(99), 60, 9)
                .await
                .expect("ok")
                .is_empty()
        );
        let third = work
            .claim(endpoint.id, token(), at(100), 60, 9)
            .await
            .expect("ok");
        assert_eq!(
            (third[0].tries, third[0].endpoint.failing_since),
            (1, Some(at(62)))
        );
        work.record(
            &third[0],
            &answered(204, at(100)),
            Outcome::Delivered,
            PATIENCE,
            at(100),
        )
        .await
        .expect("recorded");
        let mine = store.webhook_endpoints().of(whose);
        let sent = mine
            .deliveries(endpoint.id, None, 9)
            .await
            .expect("ok")
            .remove(0);
        assert_eq!((sent.state, sent.due_at), (DeliveryState::Delivered, None));
        let statuses: Vec<_> = sent.attempts.iter().map(|a| (a.number, a.status)).collect();
        assert_eq!(statuses, [(1, Some(500)), (2, Some(204))]);
        let now = mine.find(endpoint.id).await.expect("ok").expect("there");
        assert_eq!(now.failing_since, None, "a success clears the record");
        // Sent again on request, it is the same event, with its earlier attempts.
        let again = mine
            .redeliver(endpoint.id, sent.id, at(200), None)
            .await
            .expect("again");
        assert_eq!(
            (again.state, again.due_at),
            (DeliveryState::Pending, Some(at(200)))
        );
        let fourth = work
            .claim(endpoint.id, token(), at(200), 60, 9)
            .await
            .expect("ok");
        assert_eq!((fourth[0].tries, &fourth[0].event), (0, &first[0].event));
        // However often it is sent again, the newest attempts are kept and no more.
        for second in 201..260 {
            let sent = mine.redeliver(endpoint.id, sent.id, at(second), None).await;
            sent.expect("again");
            let mut due = work
                .claim(endpoint.id, token(), at(second), 60, 9)
                .await
                .expect("ok");
            let attempt = answered(200, at(second));
            work.record(
                &due.remove(0),
                &attempt,
                Outcome::Delivered,
                PATIENCE,
                at(second),
            )
            .await
            .expect("recorded");
        }
        let sent = mine.deliveries(endpoint.id, None, 9).await.expect("ok");
        let numbers: Vec<_> = sent[0].attempts.iter().map(|one| one.number).collect();
        assert_eq!(numbers, (42..=61).collect::<Vec<_>>());
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_that_is_gone_or_only_fails_is_disabled_and_an_event_tells_so() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await.0;
        let work = store.deliveries();
        let mine = store.webhook_endpoints().of(whose);
        let mut reasons = Vec::new();
        for outcome in [Outcome::Gone, Outcome::GivenUp] {
            let endpoint = endpoint(store, whose, vec![T::LeaseGone]).await;
            happen(store, whose, T::LeaseGone, at(1)).await;
            happen(store, whose, T::LeaseGone, at(1)).await;
            let claimed = work
                .claim(endpoint.id, token(), at(1), 60, 9)
                .await
                .expect("ok");
            let days = |days: i64| at(1 + days * 86_400);
            let first = match outcome {
                Outcome::Gone => Outcome::Gone,
                _ => Outcome::Again(days(5)),
            };
            let mut disabled = work
                .record(&claimed[0], &answered(410, at(1)), first, PATIENCE, at(1))
                .await
                .expect("recorded");
            if first != Outcome::Gone {
                assert!(!disabled, "once is not for five days");
                disabled = work
                    .record(
                        &claimed[1],
                        &answered(500, days(5)),
                        outcome,
                        PATIENCE,
                        days(5),
                    )
                    .await
                    .expect("recorded");
            }
            assert!(disabled);
            let now = mine.find(endpoint.id).await.expect("ok").expect("there");
            reasons.push(now.disabled);
            let due = work.due_endpoints(days(9), 9).await.expect("ok");
            assert!(
                due.iter().all(|(_, id)| *id != endpoint.id),
                "nothing more is sent"
            );
            let refused = mine.test(endpoint.id, days(9), None).await;
            assert!(matches!(
                refused,
                Err(StoreError::Conflict(Conflict::EndpointDisabled))
            ));
            let enable = EndpointChange {
                enabled: Some(true),
                ..EndpointChange::default()
            };
            let now = mine
                .change(endpoint.id, &enable, None)
                .await
                .expect("changed");
            assert_eq!((now.disabled, now.failing_since), (None, None));
            mine.delete(endpoint.id, days(9), None)
                .await
                .expect("deleted");
        }
        let expected = [DisabledReason::Gone, DisabledReason::Failing].map(Some);
        assert_eq!(reasons, expected);
        let filter = EventFilter {
            kinds: vec![T::WebhookDisabled],
            ..EventFilter::default()
        };
        let told = store.events().of(whose).list(&filter, 9).await.expect("ok");
        let told: Vec<_> = told
            .iter()
            .map(|event| event.data["reason"].clone())
            .collect();
        assert_eq!(told, ["gone", "failing"]);
    })
    .await;
}

#[tokio::test]
async fn a_test_goes_to_its_endpoint_alone_whatever_it_wants() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await.0;
        let one = endpoint(store, whose, vec![T::LeaseGone]).await;
        let other = endpoint(store, whose, Vec::new()).await;
        let mine = store.webhook_endpoints().of(whose);
        let sent = mine.test(one.id, at(1), None).await.expect("sent");
        assert_eq!(sent.event.kind, T::WebhookTest);
        assert_eq!(sent.event.sequence, 1);
        assert_eq!(mine.deliveries(one.id, None, 9).await.expect("ok"), [sent]);
        assert!(
            mine.deliveries(other.id, None, 9)
                .await
                .expect("ok")
                .is_empty()
        );
    })
    .await;
}

#[tokio::test]
async fn no_more_tests_are_sent_to_an_endpoint_than_wait_for_it() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await.0;
        let (one, other) = (
            endpoint(store, whose, Vec::new()).await,
            endpoint(store, whose, Vec::new()).await,
        );
        let mine = store.webhook_endpoints().of(whose);
        // Events wait as well, and do not hold up a test message.
        for _ in 0..100 {
            happen(store, whose, T::LeaseGone, at(1)).await;
        }
        for _ in 0..100 {
            mine.test(one.id, at(1), None).await.expect("sent");
        }
        let refused = mine.test(one.id, at(1), None).await;
        let no_room = matches!(
            &refused,
            Err(StoreError::Conflict(Conflict::NoRoom { most: 100, .. }))
        );
        assert!(no_room, "{refused:?}");
        mine.test(other.id, at(1), None).await.expect("another's");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_requests_do_not_pass_the_limit_of_endpoints() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await.0;
        let mut adding = JoinSet::new();
        for _ in 0..MAX_ENDPOINTS + 4 {
            let store = store.clone();
            adding.spawn(async move {
                let endpoints = store.webhook_endpoints().of(whose);
                endpoints.add(new_endpoint(Vec::new()), at(0), None).await
            });
        }
        let outcomes = adding.join_all().await;
        let refused = outcomes
            .iter()
            .filter(|outcome| {
                matches!(outcome, Err(StoreError::Conflict(Conflict::TooMany { .. })))
            })
            .count();
        assert_eq!(refused, 4);
        let endpoints = store.webhook_endpoints().of(whose);
        let kept = endpoints.list().await.expect("reads");
        assert_eq!(kept.len() as u64, MAX_ENDPOINTS);
        endpoints
            .delete(kept[0].id, at(1), None)
            .await
            .expect("deleted");
        endpoint(store, whose, Vec::new()).await;
    })
    .await;
}

#[tokio::test]
async fn a_deleted_endpoint_keeps_neither_address_nor_secret_and_gets_nothing() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await.0;
        let endpoint = endpoint(store, whose, Vec::new()).await;
        assert!(!format!("{endpoint:?}").contains("canary"));
        happen(store, whose, T::LeaseGone, at(1)).await;
        let mine = store.webhook_endpoints().of(whose);
        mine.delete(endpoint.id, at(2), None)
            .await
            .expect("deleted");
        assert!(mine.find(endpoint.id).await.expect("ok").is_none());
        happen(store, whose, T::LeaseGone, at(3)).await;
        let due = store.deliveries().due_endpoints(at(9), 9).await;
        assert!(due.expect("reads").is_empty());
        let sent = mine.deliveries(endpoint.id, None, 9).await.expect("ok");
        assert_eq!(sent.len(), 1);
        assert_eq!(sent[0].state, DeliveryState::Failed);
        assert!(matches!(
            mine.delete(endpoint.id, at(3), None).await,
            Err(StoreError::NotFound { .. })
        ));
    })
    .await;
}
