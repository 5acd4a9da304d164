//! Webhooks from end to end: real messages to a real receiver on this machine.

pub(crate) mod receiver;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use broker::platform::address_guard::Lookup;
use broker::platform::stop::Stop;
use broker::tenant::webhooks::{self, Message, WebhookSender};
use chrono::{DateTime, TimeDelta};
use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Key, Service, hold, install_tls};
use receiver::{Received, Receiver, signature};

async fn service() -> (Service, Key) {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    (service, key)
}

/// Makes an endpoint at this address; gives its path and its secret.
async fn endpoint(service: &Service, key: &Key, url: &str) -> (String, String) {
    let ask = json!({ "url": url, "description": "ours" });
    let made = service.with(key).post("/v1/webhook-endpoints", &ask).await;
    let made = made.expect(201);
    let text = |name: &str| made[name].as_str().expect("text").to_owned();
    (
        format!("/v1/webhook-endpoints/{}", text("id")),
        text("secret"),
    )
}

async fn deliver(service: &Service) -> usize {
    let done = webhooks::deliver_due(service.world.broker()).await;
    done.expect("the database answers")
}

/// Sends a test message to an endpoint.
async fn test(service: &Service, key: &Key, endpoint: &str) -> Value {
    let path = format!("{endpoint}/test");
    service
        .with(key)
        .send("POST", &path, None)
        .await
        .expect(202)
}

async fn deliveries(service: &Service, key: &Key, endpoint: &str) -> Vec<Value> {
    let path = format!("{endpoint}/deliveries");
    let page = service.with(key).get(&path).await.expect(200);
    page["items"].as_array().expect("items").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_its_receiver_signed_so_that_it_can_be_verified() {
    let (service, key) = service().await;
    let receiver = Receiver::start().await;
    let (path, secret) = endpoint(&service, &key, &receiver.url("/hooks?a=b")).await;
    let reservation = hold(&service, &key).await;
    assert_eq!(deliver(&service).await, 1);
    let received = receiver.received();
    let [message] = &received[..] else {
        panic!("one message, not {received:?}")
    };
    assert_eq!(message.target, "/hooks?a=b");
    let now = service.world.broker().now().timestamp();
    assert_eq!(message.header("webhook-timestamp"), now.to_string());
    assert_eq!(message.header("content-type"), "application/json");
    let id = message.header("webhook-id");
    assert_eq!(
        message.header("webhook-signature"),
        signature(&secret, id, now, &message.body)
    );
    let listed = service.with(&key).get("/v1/events").await.expect(200);
    let mut expected = listed["items"][0].clone();
    assert_eq!(expected["id"], id);
    assert_eq!(expected["reservation_id"], reservation.as_str());
    // Nothing simulated may pass as real.
    expected["simulated"] = json!(true);
    let body: Value = serde_json::from_slice(&message.body).expect("JSON");
    assert_eq!(body, expected);
    let sent = deliveries(&service, &key, &path).await;
    assert_eq!(sent[0]["state"], "delivered");
    assert_eq!(sent[0]["attempts"][0]["status"], 200);
    assert_eq!(deliver(&service).await, 0, "once is enough");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_tried_again_for_three_days_under_one_id_and_again_on_request() {
    let (service, key) = service().await;
    let receiver = Receiver::start().await;
    let (path, secret) = endpoint(&service, &key, &receiver.url("/")).await;
    receiver.answer_always(500, "canary: \0 no");
    test(&service, &key, &path).await;
    let hours = |hours: i64| hours * 3_600;
    let waits = [
        5,
        300,
        1_800,
        hours(2),
        hours(5),
        hours(10),
        hours(14),
        hours(20),
        hours(24),
    ];
    for wait in waits {
        assert_eq!(deliver(&service).await, 1);
        service.world.clock().advance(TimeDelta::seconds(wait - 1));
        assert_eq!(deliver(&service).await, 0, "not before {wait} seconds");
        // Up to a fifth later, so that many do not come at once.
        let late = TimeDelta::milliseconds(1_000 + wait * 200);
        service.world.clock().advance(late);
    }
    assert_eq!(deliver(&service).await, 1);
    service.world.clock().advance(TimeDelta::days(9));
    assert_eq!(deliver(&service).await, 0, "ten times is all");
    let sent = deliveries(&service, &key, &path).await.remove(0);
    assert_eq!(
        (&sent["state"], &sent["next_attempt_at"]),
        (&json!("failed"), &Value::Null)
    );
    let attempts = sent["attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 10);
    for (attempt, number) in attempts.iter().zip(1..) {
        assert_eq!(attempt["number"], number);
        assert_eq!(attempt["status"], 500);
        assert_eq!(attempt["answer"], "canary: \u{fffd} no");
    }

    receiver.answer_always(204, "");
    let again = format!(
        "{path}/deliveries/{}/redeliver",
        sent["id"].as_str().expect("an id")
    );
    let again = service
        .with(&key)
        .send("POST", &again, None)
        .await
        .expect(202);
    assert_eq!(again["state"], "pending");
    assert_eq!(deliver(&service).await, 1);
    let received = receiver.received();
    assert_eq!(received.len(), 11);
    for message in &received {
        assert_eq!(
            message.header("webhook-id"),
            received[0].header("webhook-id")
        );
        assert_eq!(message.body, received[0].body);
        let at: i64 = message
            .header("webhook-timestamp")
            .parse()
            .expect("a number");
        let expected = signature(&secret, message.header("webhook-id"), at, &message.body);
        assert_eq!(message.header("webhook-signature"), expected);
    }
    let times: std::collections::BTreeSet<_> = received
        .iter()
        .map(|message| message.header("webhook-timestamp"))
        .collect();
    assert_eq!(times.len(), 11, "each attempt bears its own time");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rotation_both_secrets_sign_for_a_day() {
    let (service, key) = service().await;
    let receiver = Receiver::start().await;
    let (path, old) = endpoint(&service, &key, &receiver.url("/")).await;
    let rotate = format!("{path}/rotate");
    let rotated = service
        .with(&key)
        .once("r1")
        .send("POST", &rotate, None)
        .await;
    let new = rotated.expect(200)["secret"]
        .as_str()
        .expect("a secret")
        .to_owned();
    assert_ne!(new, old);
    let again = service
        .with(&key)
        .once("r1")
        .send("POST", &rotate, None)
        .await;
    assert_eq!(again.expect(200)["secret"], Value::Null, "shown once");
    for _ in 0..2 {
        test(&service, &key, &path).await;
        assert_eq!(deliver(&service).await, 1);
        service.world.clock().advance(TimeDelta::hours(24));
    }
    let received = receiver.received();
    let by = |message: &Received, secret: &str| {
        let at = message
            .header("webhook-timestamp")
            .parse()
            .expect("a number");
        signature(secret, message.header("webhook-id"), at, &message.body)
    };
    let both = format!("{} {}", by(&received[0], &new), by(&received[0], &old));
    assert_eq!(received[0].header("webhook-signature"), both);
    assert_eq!(
        received[1].header("webhook-signature"),
        by(&received[1], &new)
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_gone_gets_nothing_more_and_a_redirect_is_not_followed() {
    let (service, key) = service().await;
    let (receiver, elsewhere) = (Receiver::start().await, Receiver::start().await);
    let (path, _) = endpoint(&service, &key, &receiver.url("/")).await;
    receiver.redirect_once(&elsewhere.url("/"));
    receiver.answer_always(410, "gone");
    test(&service, &key, &path).await;
    assert_eq!(deliver(&service).await, 1);
    let attempt = deliveries(&service, &key, &path).await[0]["attempts"][0].clone();
    assert_eq!(attempt["status"], 307);
    let said = attempt["error"].as_str().expect("words");
    assert!(said.contains("redirects are not followed"), "{said}");
    assert!(elsewhere.received().is_empty());
    service.world.clock().advance(TimeDelta::seconds(7));
    assert_eq!(deliver(&service).await, 1);
    let shown = service.with(&key).get(&path).await.expect(200);
    assert_eq!(
        (&shown["enabled"], &shown["disabled_reason"]),
        (&json!(false), &json!("gone"))
    );
    let told = service
        .with(&key)
        .get("/v1/events?types=webhook.disabled")
        .await
        .expect(200);
    assert_eq!(told["items"][0]["data"]["reason"], "gone");
    let test = format!("{path}/test");
    let refused = service.with(&key).send("POST", &test, None).await;
    refused.refused(409, "endpoint_disabled");
    hold(&service, &key).await;
    assert_eq!(deliver(&service).await, 0);
    let enable = json!({ "enabled": true, "event_types": ["reservation.held"] });
    let enabled = service.with(&key).patch(&path, &enable).await.expect(200);
    assert_eq!(enabled["disabled_reason"], Value::Null);
    hold(&service, &key).await;
    assert_eq!(deliver(&service).await, 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_only_fails_for_five_days_is_disabled() {
    let (service, key) = service().await;
    let receiver = Receiver::start().await;
    let (path, _) = endpoint(&service, &key, &receiver.url("/")).await;
    receiver.answer_always(503, "");
    for day in 0..6 {
        let shown = service.with(&key).get(&path).await.expect(200);
        assert_eq!(shown["enabled"], true, "day {day}");
        test(&service, &key, &path).await;
        deliver(&service).await;
        service.world.clock().advance(TimeDelta::days(1));
    }
    let shown = service.with(&key).get(&path).await.expect(200);
    assert_eq!(shown["disabled_reason"], "failing");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_public_is_refused_without_showing_what_is_secret() {
    let (service, key) = service().await;
    for url in [
        "http://example.com/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[fd00::1]/",
        "https://user:hunter2@example.com/",
        "ftp://127.0.0.1/",
        "hooks",
    ] {
        let ask = json!({ "url": url });
        let refused = service.with(&key).post("/v1/webhook-endpoints", &ask).await;
        let said = refused.refused(422, "invalid_webhook_url");
        assert!(!said.contains("hunter2"), "{said}");
    }
    service.stop().await;
}

/// Answers one address after the other, and counts.
struct TurningLookup {
    addresses: Vec<&'static str>,
    asked: AtomicUsize,
}

#[async_trait]
impl Lookup for TurningLookup {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        assert_eq!(host, "receiver.localhost");
        let turn = self.asked.fetch_add(1, Ordering::Relaxed);
        let address = self.addresses[turn % self.addresses.len()];
        Ok(vec![address.parse().expect("an address")])
    }
}

#[tokio::test]
async fn a_name_is_looked_up_anew_for_every_attempt_and_called_only_where_it_may_lead() {
    install_tls();
    let receiver = Receiver::start().await;
    let url = receiver.url("/").replace("127.0.0.1", "receiver.localhost");
    let lookup = Arc::new(TurningLookup {
        addresses: vec!["127.0.0.1", "10.0.0.1", "127.0.0.1", "::ffff:127.0.0.1"],
        asked: AtomicUsize::new(0),
    });
    let post = WebhookSender::with_lookup(true, Arc::clone(&lookup) as Arc<dyn Lookup>);
    let message = Message {
        url: &url,
        id: "evt_1".into(),
        timestamp: 1,
        signatures: "v1,x".into(),
        body: b"{}".to_vec(),
    };
    let now = DateTime::from_timestamp(1_790_000_000, 0).expect("a time");
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let attempt = post.send(&message, now).await;
        if attempt.status.is_none() {
            let said = attempt.error.expect("words");
            assert!(said.contains("only public addresses are called"), "{said}");
            assert!(
                !said.contains("10.0.0.1") && !said.contains("private"),
                "{said}"
            );
        }
        statuses.push(attempt.status);
    }
    assert_eq!(statuses, [Some(200), None, Some(200), None]);
    assert_eq!(lookup.asked.load(Ordering::Relaxed), 4);
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_their_tenants_alone_and_their_secrets_are_shown_once() {
    let (service, key) = service().await;
    let stranger = service.key("other", Role::Admin).await;
    let ask = json!({ "url": "http://127.0.0.1:9/", "event_types": ["lease.gone"] });
    let made = service
        .with(&key)
        .once("w1")
        .post("/v1/webhook-endpoints", &ask)
        .await;
    let made = made.expect(201);
    let secret = made["secret"].as_str().expect("a secret").to_owned();
    assert!(secret.starts_with("whsec_"));
    let again = service
        .with(&key)
        .once("w1")
        .post("/v1/webhook-endpoints", &ask)
        .await;
    let again = again.expect(201);
    assert_eq!(
        (&again["id"], &again["secret"]),
        (&made["id"], &Value::Null)
    );
    let path = format!(
        "/v1/webhook-endpoints/{}",
        made["id"].as_str().expect("an id")
    );
    let sent = test(&service, &key, &path).await;
    let redeliver = format!(
        "{path}/deliveries/{}/redeliver",
        sent["id"].as_str().expect("an id")
    );
    let theirs = service.with(&stranger);
    for (method, path) in [
        ("GET", path.clone()),
        ("DELETE", path.clone()),
        ("POST", format!("{path}/rotate")),
        ("POST", format!("{path}/test")),
        ("GET", format!("{path}/deliveries")),
        ("POST", redeliver),
    ] {
        theirs
            .send(method, &path, None)
            .await
            .refused(404, "not_found");
    }
    let patched = theirs.patch(&path, &json!({ "enabled": false })).await;
    patched.refused(404, "not_found");
    let listed = theirs.get("/v1/webhook-endpoints").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    let viewer = service.key("acme", Role::Viewer).await;
    let refused = service.with(&viewer).get("/v1/webhook-endpoints").await;
    refused.refused(403, "access_denied");

    let mine = service.with(&key).get("/v1/webhook-endpoints").await;
    assert!(!mine.text.contains("whsec_") && mine.text.contains("lease.gone"));
    let nothing = service.with(&key).patch(&path, &json!({})).await;
    nothing.refused(422, "invalid_body");
    assert_eq!(service.with(&key).delete(&path).await.status, 204);
    service
        .with(&key)
        .get(&path)
        .await
        .refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_delivers_at_once_and_a_receiver_that_hangs_holds_up_no_other() {
    let (service, key) = service().await;
    let (hangs, prompt) = (Receiver::start().await, Receiver::start().await);
    hangs.hang();
    endpoint(&service, &key, &hangs.url("/")).await;
    endpoint(&service, &key, &prompt.url("/")).await;
    let (broker, stop) = (service.world.broker().clone(), Stop::new());
    let worker = tokio::spawn(webhooks::keep_delivering(broker, stop.clone()));
    for count in 1..=3 {
        hold(&service, &key).await;
        prompt.wait_for(count).await;
    }
    stop.cancel();
    worker.abort();
    service.stop().await;
}
