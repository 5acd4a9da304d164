//! A suspended provider: nothing new is taken there, and every refusal names the reason.

use broker::flow::ingest;
use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};
use simulator::Provider;

use super::{cancelled, ordered, quotes};
use crate::lifecycle::scene::anything_at;
use crate::service::{Service, ssh_key};

const PATH: &str = "/v1/providers/lambda/quarantine";

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_in_quarantine_takes_no_new_hold_and_says_why_until_it_ends() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let member = service.key("acme", Role::Member).await;
    let (broker, caller) = (service.world.broker(), service.with(&member));
    ssh_key(&service, &member).await;
    let open = quotes(&service, &member, Provider::LAMBDA, 2).await;
    let running = ordered(&service, &member, &open[0]).await;
    let plan = async || {
        let caught_up = ingest::catch_up(broker).await;
        caught_up.expect("the database answers");
        let plan = caller.post("/v1/plans", &anything_at(Provider::LAMBDA));
        plan.await.expect(201)
    };
    let before = plan().await;
    assert_ne!(before["eligible"], 0);

    let until = broker.now() + TimeDelta::minutes(5);
    let reason = "nodes come up without their disks";
    let body = json!({ "reason": reason, "until": until });
    let begun = service.with(&admin).post(PATH, &body).await.expect(200);
    assert_eq!(begun["quarantine"]["reason"], reason);
    // Before any replica has looked: the database itself refuses.
    let take = json!({ "quote_id": open[1] });
    let refused = caller.post("/v1/reservations", &take).await;
    let detail = refused.refused(409, "provider_quarantined");
    assert!(
        detail.contains("lambda") && detail.contains(reason),
        "{detail}"
    );

    let kept_out = plan().await;
    assert_eq!(kept_out["eligible"], 0, "{kept_out}");
    assert!(kept_out["rejected"]["by_reason"]["quarantined"].as_u64() > Some(0));
    let examples = kept_out["refused"].as_array().expect("examples");
    let named = examples.iter().find(|one| one["reason"] == "quarantined");
    let why = named.expect("an example")["why"].as_str().expect("words");
    assert!(why.contains("lambda") && why.contains(reason), "{why}");
    let quote = json!({ "plan_id": before["id"] });
    let refused = caller.post("/v1/quotes", &quote).await;
    refused.refused(409, "provider_quarantined");
    let in_one_call = json!({ "demand": anything_at(Provider::LAMBDA) });
    let refused = caller.post("/v1/reservations", &in_one_call).await;
    refused.refused(409, "nothing_matches");
    let shown = caller.get(PATH).await.expect(200);
    assert_eq!(shown["whole"]["reason"], reason);
    assert!(shown["records"].is_array());
    // Existing leases there continue, and end when their tenant releases them.
    cancelled(&service, &member, &running).await;

    service.world.clock().advance(TimeDelta::minutes(5));
    service.world.read_providers().await;
    assert_ne!(plan().await["eligible"], 0, "it ended by itself");
    assert_eq!(caller.get(PATH).await.expect(200)["whole"], Value::Null);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarantine_is_changed_by_a_second_call_and_ended_by_a_third() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let (broker, caller) = (service.world.broker(), service.with(&admin));
    let body = |reason: &str, days: i64| {
        let until = broker.now() + TimeDelta::days(days);
        json!({ "reason": reason, "until": until })
    };
    for bad in [
        body(" ", 1),
        body(&"x".repeat(201), 1),
        body("x", 0),
        body("x", 366),
    ] {
        let refused = caller.post(PATH, &bad).await;
        refused.refused(422, "invalid_body");
    }
    let first = caller
        .post(PATH, &body("a first look", 1))
        .await
        .expect(200);
    service.world.clock().advance(TimeDelta::hours(1));
    let second = caller
        .post(PATH, &body("a second look", 9))
        .await
        .expect(200);
    let [first, second] = [first, second].map(|answer| answer["quarantine"].clone());
    assert_eq!(second["since"], first["since"]);
    assert_ne!(second["until"], first["until"]);
    assert_eq!(second["reason"], "a second look");
    let ended = caller.delete(PATH).await.expect(200);
    assert_eq!(ended["quarantine"], Value::Null);
    let nobody = "/v1/providers/nobody/quarantine";
    caller.delete(nobody).await.refused(404, "not_found");
    let audit = caller.get("/v1/audit?target=lambda").await.expect(200);
    let operations: Vec<_> = audit["items"].as_array().expect("items").iter().collect();
    let named = |what: &str| {
        let of = operations.iter().filter(|entry| entry["operation"] == what);
        of.count()
    };
    assert_eq!(
        (named("quarantine_provider"), named("end_quarantine")),
        (2, 1),
        "{audit}"
    );
    service.stop().await;
}
