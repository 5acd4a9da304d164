//! Old rows are deleted, and every reader who misses one gets a notice.

use broker::tenant::retention::{self, Pruned};
use broker::tenant::webhooks;
use chrono::TimeDelta;
use market::event::EventType;
use market::identity::Role;
use serde_json::{Value, json};
use store::events::NewEvent;
use store::fixture::{count_rows, execute_raw};

use crate::service::{Service, hold, orderable_demand, quote};
use crate::webhooks::receiver::Receiver;

async fn prune(service: &Service) -> Pruned {
    retention::prune(service.world.broker()).await
}

/// Lets days pass, and reads the market again.
async fn pass(service: &Service, days: i64) {
    service.world.pass(TimeDelta::days(days)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_let_go_and_whoever_missed_it_is_told() {
    let service = Service::start_configured(|config| {
        config.rate_limits.enabled = false;
        config.retention.events_days = 10;
        config.retention.webhook_deliveries_days = 5;
    })
    .await;
    let member = service.key("acme", Role::Member).await;
    let caller = service.with(&member);
    let receiver = Receiver::start().await;
    let endpoint = json!({ "url": receiver.url("/") });
    let endpoint = caller.post("/v1/webhook-endpoints", &endpoint).await;
    let endpoint = endpoint.expect(201)["id"].clone();
    let key = json!({ "name": "ci", "role": "viewer" });
    let make = service.with(&member).once("make");
    make.post("/v1/api-keys", &key).await.expect(201);
    hold(&service, &member).await;
    let delivered = webhooks::deliver_due(service.world.broker()).await;
    assert_eq!(delivered.expect("the database answers"), 1);
    assert_eq!(prune(&service).await, Pruned::default());
    let store = service.world.broker().store();
    let entries = count_rows(store, "audit_entries").await;
    let events = async |query: &str| caller.get(&format!("/v1/events{query}")).await;
    assert_eq!(
        events("?since=0").await.expect(200)["items"][0]["sequence"],
        1
    );
    let first_page = events("?limit=1").await.expect(200);

    pass(&service, 6).await;
    let keys_and_deliveries = prune(&service).await;
    assert_eq!(
        (keys_and_deliveries.events, keys_and_deliveries.deliveries),
        (0, 1)
    );
    assert_eq!(keys_and_deliveries.idempotency_keys, 1);
    let deliveries = format!(
        "/v1/webhook-endpoints/{}/deliveries",
        endpoint.as_str().expect("an id")
    );
    let deliveries = caller.get(&deliveries).await.expect(200);
    assert_eq!(deliveries["items"], json!([]));
    // Under its key the same is now done again.
    make.post("/v1/api-keys", &key).await.expect(201);

    pass(&service, 5).await;
    let pruned = prune(&service).await;
    assert_eq!(pruned.events, 1);
    hold(&service, &member).await;
    for query in ["?since=0", "?since=0&limit=1"] {
        let said = events(query).await.refused(410, "events_pruned");
        assert!(said.contains("since=1"), "{said}");
    }
    let stream = service
        .with(&member)
        .header("accept", "text/event-stream")
        .header("last-event-id", "0");
    let refused = stream.get("/v1/events").await;
    refused.refused(410, "events_pruned");
    for query in ["", "?since=1"] {
        let kept = events(query).await.expect(200);
        assert_eq!(kept["items"][0]["sequence"], 2, "{kept}");
    }
    assert_eq!(first_page["next_cursor"], Value::Null);
    assert!(count_rows(store, "audit_entries").await >= entries);
    let audit = store.audit().check().await.expect("reads");
    audit.expect("the chains hold");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_let_go_of_one_tenant_keeps_nothing_else() {
    let service = Service::start_configured(|config| {
        config.rate_limits.enabled = false;
        config.retention.events_days = 10;
    })
    .await;
    for tenant in ["acme", "other"] {
        let member = service.key(tenant, Role::Member).await;
        hold(&service, &member).await;
    }
    let idle = service.key("idle", Role::Member).await;
    quote(&service, &idle).await;
    let key = json!({ "name": "ci", "role": "viewer" });
    let make = service.with(&idle).once("make");
    make.post("/v1/api-keys", &key).await.expect(201);
    let store = service.world.broker().store();
    let tenants = store.retention().tenants_with_events().await;
    let first = tenants.expect("reads")[0];
    let refuse = format!(
        "CREATE TRIGGER refused BEFORE DELETE ON events WHEN OLD.tenant_id = '{first}' \
         BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    );
    execute_raw(store, &refuse).await.expect("a trigger");
    pass(&service, 31).await;
    let all_but_the_first = Pruned {
        events: 1,
        idempotency_keys: 1,
        quotes: 1,
        plans: 1,
        failures: 1,
        ..Pruned::default()
    };
    assert_eq!(prune(&service).await, all_but_the_first);
    execute_raw(store, "DROP TRIGGER refused")
        .await
        .expect("no trigger");
    let the_first = Pruned {
        events: 1,
        ..Pruned::default()
    };
    assert_eq!(prune(&service).await, the_first);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_that_nobody_took_is_kept_for_thirty_days_with_its_plan() {
    let service = Service::start_configured(|config| config.rate_limits.enabled = false).await;
    let member = service.key("acme", Role::Member).await;
    quote(&service, &member).await;
    pass(&service, 29).await;
    let kept = prune(&service).await;
    assert_eq!((kept.quotes, kept.plans), (0, 0));
    pass(&service, 2).await;
    let pruned = prune(&service).await;
    assert_eq!((pruned.quotes, pruned.plans), (1, 1));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_batch_is_let_go_in_one_turn() {
    let service = Service::start_configured(|config| config.retention.events_days = 10).await;
    let member = service.key("acme", Role::Member).await;
    let broker = service.world.broker();
    let event = NewEvent {
        kind: EventType::WebhookTest,
        reservation_id: None,
        data: json!({}),
    };
    let events = broker.store().events().of(member.tenant);
    let new = vec![event; 1_001];
    let appended = events.append(&new, broker.now()).await;
    assert_eq!(appended.expect("appended").len(), 1_001);
    pass(&service, 11).await;
    assert_eq!(prune(&service).await.events, 1_001);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_quoted_is_kept_for_two_days() {
    let service = Service::start_configured(|config| config.rate_limits.enabled = false).await;
    let member = service.key("acme", Role::Member).await;
    let demand = orderable_demand(&service).await;
    let plan = service.with(&member).post("/v1/plans", &demand).await;
    plan.expect(201);
    pass(&service, 1).await;
    assert_eq!(prune(&service).await.plans, 0);
    pass(&service, 2).await;
    assert_eq!(prune(&service).await.plans, 1);
    service.stop().await;
}
