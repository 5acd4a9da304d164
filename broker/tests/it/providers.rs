//! Providers as rows: entered, changed, disabled, checked and suspended while the service runs.

mod credentials;
mod production;
mod quarantine;
mod returned;

use std::sync::Arc;
use std::time::Duration;

use broker::flow::ingest;
use broker::platform::app::Broker;
use broker::platform::background::Background;
use broker::service::start;
use broker::service::tasks::poll_each;
use broker::tools::simulation::{SimulatedMarketOptions, simulated_links};
use market::identity::Role;
use market::ids::ProviderId;
use serde_json::{Value, json};
use simulator::{NodeRunner, Provider};
use store::settings::DatabaseMode;

use crate::eventually::eventually;
use crate::lifecycle::scene::anything_at;
use crate::service::{Key, Service, ssh_key, usual_world};

/// A service to which this provider is not connected yet.
async fn without(provider: Provider) -> Service {
    Service::start_as(SimulatedMarketOptions {
        nodes: NodeRunner::Off,
        unconnected: vec![provider],
        ..usual_world()
    })
    .await
}

/// Another replica on the database of a service, to which this provider is not connected either.
async fn replica(service: &Service, provider: Provider) -> Broker {
    let (world, broker) = (&service.world, service.world.broker());
    let links = simulated_links(world.simulator(), Duration::from_secs(10), &|adapter| {
        adapter
    });
    let mut links = links.expect("links");
    links.retain(|link| link.adapter.profile().id != provider.as_str());
    start::with_store(
        broker.store().clone(),
        broker.config().clone(),
        DatabaseMode::Simulation,
        Arc::clone(world.clock()) as Arc<_>,
        links,
        world.base_url().to_owned(),
    )
    .await
    .expect("a second broker")
}

fn id_of(provider: Provider) -> ProviderId {
    ProviderId::parse(provider.as_str()).expect("an id")
}

/// The body that enters a simulated provider.
fn entry(service: &Service, provider: Provider) -> Value {
    let simulator = service.world.simulator();
    json!({
        "id": provider.as_str(),
        "credential": simulator.credential(provider),
        "base_url": simulator.url(provider),
    })
}

/// How many offers of the provider are on sale.
async fn on_sale(service: &Service, provider: Provider) -> usize {
    let path = format!("/v1/offers?limit=200&provider={provider}");
    let offers = service.anyone().get(&path).await.expect(200);
    let items = offers["items"].as_array().expect("items");
    items
        .iter()
        .filter(|offer| offer["orderable"] == true)
        .count()
}

/// Plans something of the provider and quotes it so many times.
async fn quotes(service: &Service, key: &Key, provider: Provider, number: usize) -> Vec<String> {
    let caller = service.with(key);
    let plan = caller.post("/v1/plans", &anything_at(provider)).await;
    let plan = plan.expect(201);
    let mut quotes = Vec::new();
    for _ in 0..number {
        let quote = caller.post("/v1/quotes", &json!({ "plan_id": plan["id"] }));
        let quote = quote.await.expect(201);
        quotes.push(quote["id"].as_str().expect("an id").to_owned());
    }
    quotes
}

/// Holds and confirms; returns the reservation. No worker has looked at it.
async fn confirmed(service: &Service, key: &Key, quote: &str) -> String {
    let caller = service.with(key);
    ssh_key(service, key).await;
    let held = caller.post("/v1/reservations", &json!({ "quote_id": quote }));
    let held = held.await.expect(201);
    let id = held["id"].as_str().expect("an id").to_owned();
    let confirm = format!("/v1/reservations/{id}/confirm");
    caller.send("POST", &confirm, None).await.expect(200);
    id
}

/// Holds and confirms, and has the order placed; gives the reservation.
async fn ordered(service: &Service, key: &Key, quote: &str) -> String {
    let id = confirmed(service, key, quote).await;
    turn(service).await;
    assert_eq!(service.world.simulator().running_machines().len(), 1);
    id
}

/// Orders the confirmed leases where the only provider takes no orders any more: nothing is made there, and
/// the reservation ends for lack of another.
async fn is_ordered_nowhere(service: &Service, key: &Key, id: &str, why: &str) {
    turn(service).await;
    let made = service.world.simulator().running_machines();
    assert!(made.is_empty(), "{made:?}");
    let path = format!("/v1/reservations/{id}");
    let closed = service.with(key).get(&path).await.expect(200);
    assert_eq!(closed["reason"], "no_capacity", "{closed}");
    assert_eq!(closed["leases"][0]["fall_reason"], "refused", "{closed}");
    let id = id.parse().expect("an id");
    let leases = service.world.broker().store().leases();
    let leases = leases.across_tenants().of_reservation(id).await;
    assert_eq!(leases.expect("reads")[0].fall_note.as_deref(), Some(why));
}

async fn turn(service: &Service) {
    let turned = service.world.turn(chrono::TimeDelta::zero()).await;
    turned.expect("a turn");
}

/// Cancels, and has it ended at the provider.
async fn cancelled(service: &Service, key: &Key, id: &str) {
    let cancel = format!("/v1/reservations/{id}/cancel");
    let asked = service.with(key).send("POST", &cancel, None).await;
    asked.expect(200);
    for _ in 0..5 {
        let turned = service.world.turn(chrono::TimeDelta::minutes(1)).await;
        turned.expect("a turn");
    }
    assert!(service.world.simulator().running_machines().is_empty());
    let path = format!("/v1/reservations/{id}");
    let closed = service.with(key).get(&path).await.expect(200);
    assert_eq!(closed["state"], "closed", "{closed}");
}

/// When the provider was last read.
async fn read_at(service: &Service, key: &Key, provider: Provider) -> Value {
    let path = format!("/v1/providers/{}", provider.as_str());
    let shown = service.with(key).get(&path).await.expect(200);
    shown["last_complete_at"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_read_again_long_before_its_time_once_a_lease_there_is_gone() {
    let (provider, other) = (Provider::LAMBDA, Provider::RUNPOD);
    let service = without(other).await;
    let mut work = Background::of(service.world.broker());
    poll_each(&mut work);
    eventually("its offers", async || on_sale(&service, provider).await > 0).await;
    let key = service.key("acme", Role::Member).await;
    let quote = &quotes(&service, &key, provider, 1).await[0];
    let id = ordered(&service, &key, quote).await;
    let before = read_at(&service, &key, provider).await;

    cancelled(&service, &key, &id).await;
    // Without it the next reading comes after 48 seconds at the soonest, longer than is waited here.
    eventually("another reading", async || {
        read_at(&service, &key, provider).await != before
    })
    .await;
    work.stop().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_added_provider_is_read_and_sold_without_a_restart_on_every_replica() {
    let provider = Provider::RUNPOD;
    let service = without(provider).await;
    let admin = service.key("operators", Role::Admin).await;
    let (broker, other) = (service.world.broker(), replica(&service, provider).await);
    let mut work = Background::of(broker);
    work.add("tail", ingest::keep_tailing);
    poll_each(&mut work);
    assert_eq!(on_sale(&service, provider).await, 0);

    let caller = service.with(&admin).once("add-1");
    let added = caller
        .post("/v1/providers", &entry(&service, provider))
        .await;
    let made = added.expect(201);
    assert_eq!(
        (&made["connected_by"], &made["orderable"], &made["enabled"]),
        (&json!("entry"), &json!(true), &json!(true))
    );
    eventually("its offers", async || on_sale(&service, provider).await > 0).await;
    assert!(
        ingest::catch_up(&other)
            .await
            .expect("the database answers")
    );
    assert!(other.provider(&id_of(provider)).is_some());
    let sold = |broker: &Broker| {
        let snapshot = broker.snapshot();
        snapshot
            .offers()
            .any(|offer| *offer.provider() == id_of(provider))
    };
    assert!(sold(&other), "the other replica sells it too");

    let again = caller
        .post("/v1/providers", &entry(&service, provider))
        .await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.expect(201), made);
    let twice = service
        .with(&admin)
        .post("/v1/providers", &entry(&service, provider));
    let detail = twice.await.refused(409, "already_exists");
    assert!(detail.contains("PATCH /v1/providers/runpod"), "{detail}");
    let audit = service
        .with(&admin)
        .get("/v1/audit?operation=add_provider")
        .await
        .expect(200);
    let entries = audit["items"].as_array().expect("items");
    assert_eq!(entries.len(), 1, "{audit}");
    assert_eq!(
        (&entries[0]["target"], &entries[0]["outcome"]),
        (&json!("runpod"), &json!("done"))
    );
    work.stop().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disabled_provider_sells_nothing_new_and_its_leases_are_looked_after() {
    let (service, provider) = (Service::start().await, Provider::LAMBDA);
    let admin = service.key("operators", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let quotes = quotes(&service, &member, provider, 2).await;
    let id = ordered(&service, &member, &quotes[0]).await;

    let path = "/v1/providers/lambda";
    let switch = async |enabled: bool| {
        let body = json!({ "enabled": enabled });
        let switched = service.with(&admin).patch(path, &body).await.expect(200);
        assert_eq!(switched["enabled"], enabled);
    };
    switch(false).await;
    // Before any replica has looked: the database itself refuses.
    let take = json!({ "quote_id": quotes[1] });
    let refused = service.with(&member).post("/v1/reservations", &take).await;
    let detail = refused.refused(409, "provider_disabled");
    assert!(detail.contains("lambda"), "{detail}");
    let broker = service.world.broker();
    assert!(
        ingest::catch_up(broker)
            .await
            .expect("the database answers")
    );
    assert_eq!(on_sale(&service, provider).await, 0);
    let plan = service
        .with(&member)
        .post("/v1/plans", &anything_at(provider));
    assert_eq!(plan.await.expect(201)["eligible"], 0);

    cancelled(&service, &member, &id).await;
    switch(true).await;
    assert!(
        ingest::catch_up(broker)
            .await
            .expect("the database answers")
    );
    assert!(on_sale(&service, provider).await > 0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_not_forgotten_while_something_runs_there() {
    let provider = Provider::RUNPOD;
    let service = without(provider).await;
    let admin = service.key("operators", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let broker = service.world.broker();
    let add = async || {
        let add = entry(&service, provider);
        let added = service.with(&admin).post("/v1/providers", &add).await;
        added.expect(201);
        assert!(
            ingest::catch_up(broker)
                .await
                .expect("the database answers")
        );
        let failures = service.world.read_providers().await;
        assert!(failures.is_empty(), "{failures:?}");
    };
    add().await;
    let quotes = quotes(&service, &member, provider, 1).await;
    let id = ordered(&service, &member, &quotes[0]).await;

    let (path, forget) = ("/v1/providers/runpod", json!({ "credential": null }));
    let refused = service.with(&admin).patch(path, &forget).await;
    let detail = refused.refused(409, "provider_in_use");
    assert!(detail.contains("disable"), "{detail}");
    cancelled(&service, &member, &id).await;
    // It is still sold: the next order may be on its way.
    let refused = service.with(&admin).patch(path, &forget).await;
    refused.refused(409, "provider_in_use");
    let part = json!({ "credential": null, "enabled": false });
    let forgotten = service.with(&admin).patch(path, &part).await.expect(200);
    assert_eq!(
        (&forgotten["connected_by"], &forgotten["credential"]),
        (&json!("nothing"), &Value::Null)
    );
    let enabled = json!({ "enabled": true });
    service.with(&admin).patch(path, &enabled).await.expect(200);
    assert!(
        ingest::catch_up(broker)
            .await
            .expect("the database answers")
    );
    assert!(broker.provider(&id_of(provider)).is_none());
    // Its offers were read to be ordered, and nobody reads them any more.
    let shown = service.with(&admin).get(path).await.expect(200);
    assert_eq!(
        (&shown["enabled"], &shown["fresh"]),
        (&json!(true), &json!(false))
    );
    let check = service
        .with(&admin)
        .post("/v1/providers/runpod/check", &json!({}));
    check.await.refused(409, "provider_not_connected");
    add().await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_not_ordered_at_a_provider_that_was_disabled_meanwhile() {
    let (service, provider) = (Service::start().await, Provider::LAMBDA);
    let admin = service.key("operators", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let quotes = quotes(&service, &member, provider, 1).await;
    let id = confirmed(&service, &member, &quotes[0]).await;
    // No replica has looked since: its memory would let the order out.
    let disable = json!({ "enabled": false });
    let disabled = service.with(&admin).patch("/v1/providers/lambda", &disable);
    disabled.await.expect(200);
    assert!(!service.world.broker().is_disabled(&id_of(provider)));
    is_ordered_nowhere(&service, &member, &id, "the provider is disabled").await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_goes_out_with_a_credential_that_was_forgotten_a_moment_ago() {
    let provider = Provider::RUNPOD;
    let service = without(provider).await;
    let admin = service.key("operators", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let broker = service.world.broker();
    let (caller, path) = (service.with(&admin), "/v1/providers/runpod");
    let add = entry(&service, provider);
    caller.post("/v1/providers", &add).await.expect(201);
    let caught_up = ingest::catch_up(broker).await;
    assert!(caught_up.expect("the database answers"));
    assert!(service.world.read_providers().await.is_empty());
    let quotes = quotes(&service, &member, provider, 1).await;
    for change in [
        json!({ "enabled": false, "credential": null }),
        json!({ "enabled": true }),
    ] {
        caller.patch(path, &change).await.expect(200);
    }
    // No replica has looked since: it still has the connection of before.
    assert!(broker.provider(&id_of(provider)).is_some());
    let id = confirmed(&service, &member, &quotes[0]).await;
    let why = "the credential of the provider was forgotten";
    is_ordered_nowhere(&service, &member, &id, why).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_configuration_connects_is_changed_there() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let (caller, path) = (service.with(&admin), "/v1/providers/lambda");
    let shown = caller.get(path).await.expect(200);
    assert_eq!(shown["connected_by"], "configuration");
    let add = caller.post("/v1/providers", &entry(&service, Provider::LAMBDA));
    add.await.refused(409, "provider_configured");
    for change in [
        json!({ "credential": "another" }),
        json!({ "credential": null }),
    ] {
        let changed = caller.patch(path, &change).await;
        changed.refused(409, "provider_configured");
    }
    caller
        .patch(path, &json!({}))
        .await
        .refused(422, "invalid_body");
    assert_eq!(caller.get(path).await.expect(200), shown);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_orders_ended_is_an_administrators_to_see_and_what_it_says_of_the_next_everyones() {
    let service = Service::start().await;
    let path = "/v1/providers/lambda";
    let member = service.key("acme", Role::Member).await;
    let shown = service.with(&member).get(path).await.expect(200);
    assert_eq!(
        (&shown["reliability"], &shown["acceptance"]),
        (&json!("unproven"), &Value::Null)
    );
    let admin = service.key("operators", Role::Admin).await;
    let shown = service.with(&admin).get(path).await.expect(200);
    assert_eq!(shown["reliability"], "unproven");
    let ended = shown["acceptance"].as_object().expect("each end");
    assert!(ended.len() > 5 && ended.values().all(|orders| orders == 0));
    service.stop().await;
}
