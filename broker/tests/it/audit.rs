//! The audit log: an entry with each effect, with each refusal for lack of a right, and with every action of
//! an administrator outside the own tenant.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::service::{Key, SSH_LINE, Service, hold};

async fn entries(service: &Service, admin: &Key, query: &str) -> Vec<Value> {
    let page = service.with(admin).get(&format!("/v1/audit{query}")).await;
    page.expect(200)["items"].as_array().expect("items").clone()
}

// S91
#[tokio::test(flavor = "multi_thread")]
async fn each_change_stands_in_the_log_once_with_who_what_and_from_where() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("operators", Role::Admin).await;
    let id = hold(&service, &member).await;
    let cancel = format!("/v1/reservations/{id}/cancel");
    let caller = service.with(&member).header("x-request-id", "the-cancel");
    caller.send("POST", &cancel, None).await.expect(200);
    // Repeated under one idempotency key, it is one effect and one entry.
    let key = json!({ "name": "ci", "role": "viewer" });
    for _ in 0..2 {
        let made = service.with(&member).once("k").post("/v1/api-keys", &key);
        made.await.expect(201);
    }
    // A request refused because of the state of things had no effect.
    service
        .with(&member)
        .send("POST", &cancel, None)
        .await
        .refused(409, "wrong_state");
    service
        .with(&member)
        .send("POST", "/v1/tokens", None)
        .await
        .expect(201);

    let all = entries(&service, &admin, "").await;
    let operations: Vec<_> = all
        .iter()
        .map(|entry| entry["operation"].as_str().expect("a word"))
        .collect();
    assert_eq!(
        operations,
        [
            "trade_token",
            "make_api_key",
            "cancel_reservation",
            "place_reservation",
            "make_quote",
            "add_ssh_key",
        ]
    );
    let cancelled = &all[2];
    let (prefix, tenant) = (&member.secret[..12], member.tenant.to_string());
    for (field, expected) in [
        ("chain", json!(tenant)),
        ("own_tenant_id", json!(tenant)),
        ("role", json!("member")),
        ("credential", json!("api_key")),
        ("key_prefix", json!(prefix)),
        ("target", json!(id)),
        ("outcome", json!("done")),
        ("status", json!(200)),
        ("peer", json!("127.0.0.1")),
        ("request_id", json!("the-cancel")),
        ("issuer", json!(null)),
        ("code", json!(null)),
    ] {
        assert_eq!(cancelled[field], expected, "{field}");
    }
    assert_eq!(all[3]["target"], id.as_str(), "the id of what was made");
    let held = service.with(&member).get(&format!("/v1/reservations/{id}"));
    assert_eq!(
        held.await.expect(200)["created_by"],
        cancelled["principal_id"]
    );
    assert!(
        !all.iter()
            .any(|entry| entry.to_string().contains(&member.secret))
    );
    let broker = service.world.broker();
    broker
        .store()
        .audit()
        .check()
        .await
        .expect("reads")
        .expect("holds");

    let found = entries(&service, &admin, &format!("?target={id}&outcome=done")).await;
    assert_eq!(found.len(), 2);
    let found = entries(&service, &admin, "?operation=make_quote").await;
    assert_eq!(found.len(), 1);
    let first = service
        .with(&admin)
        .get("/v1/audit?limit=2")
        .await
        .expect(200);
    let cursor = first["next_cursor"].as_str().expect("another page");
    let second = entries(&service, &admin, &format!("?limit=2&cursor={cursor}")).await;
    assert_eq!(second[0], all[2]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_an_administrator_elsewhere_stand_in_the_log() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let viewer = service.key("acme", Role::Viewer).await;
    let admin = service.key("operators", Role::Admin).await;
    let id = hold(&service, &member).await;
    let cancel = format!("/v1/reservations/{id}/cancel");
    service
        .with(&viewer)
        .send("POST", &cancel, None)
        .await
        .refused(403, "access_denied");
    let other = service.key("acme", Role::Member).await;
    service
        .with(&other)
        .send("POST", &cancel, None)
        .await
        .refused(403, "not_yours");
    service
        .with(&viewer)
        .get("/v1/audit")
        .await
        .refused(403, "access_denied");
    // Once an hour is enough, and a target that is not an id is not recorded.
    for path in ["/v1/audit", "/v1/audit"] {
        let again = service.with(&viewer).get(path).await;
        again.refused(403, "access_denied");
    }
    let odd = format!("/v1/api-keys/{}", "x".repeat(200));
    let odd = service.with(&viewer).send("DELETE", &odd, None).await;
    odd.refused(403, "access_denied");
    let elsewhere = format!("/v1/reservations?tenant={}", member.tenant);
    service.with(&admin).get(&elsewhere).await.expect(200);
    service
        .with(&admin)
        .get("/v1/reservations")
        .await
        .expect(200);
    let key = json!({ "name": "laptop-2", "public_key": SSH_LINE });
    let there = format!("/v1/ssh-keys?tenant={}", member.tenant);
    service
        .with(&admin)
        .post(&there, &key)
        .await
        .refused(409, "already_exists");

    let of_acme = format!("?tenant={}&limit=6", member.tenant);
    let seen = entries(&service, &admin, &of_acme).await;
    assert!(seen.iter().all(|entry| {
        let target = entry["target"].as_str().unwrap_or_default();
        target.len() <= 100
    }));
    let seen: Vec<_> = seen
        .iter()
        .map(|entry| {
            ["operation", "role", "outcome", "code"]
                .map(|field| entry[field].as_str().unwrap_or_default().to_owned())
                .join(" ")
        })
        .collect();
    assert_eq!(
        seen,
        [
            "add_ssh_key admin refused already_exists",
            "list_reservations admin done ",
            "revoke_api_key viewer refused access_denied",
            "list_audit viewer refused access_denied",
            "cancel_reservation member refused not_yours",
            "cancel_reservation viewer refused access_denied",
        ]
    );
    for odd in ["x".repeat(101), "%00".to_owned()] {
        let path = format!("/v1/audit?target={odd}");
        let refused = service.with(&admin).get(&path).await;
        refused.refused(422, "invalid_parameter");
    }
    // The look at the log of another tenant is in it too.
    let again = entries(&service, &admin, &of_acme).await;
    assert_eq!(again[0]["operation"], "list_audit");
    assert_eq!(again[0]["own_tenant_id"], admin.tenant.to_string());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_credentials_leave_one_entry_an_hour_whatever_is_tried() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let viewer = service.key("acme", Role::Viewer).await;
    let traded = service.with(&viewer).send("POST", "/v1/tokens", None).await;
    let token = traded.expect(201)["access_token"].clone();
    let token = token.as_str().expect("a token");
    let revoke = format!("/v1/api-keys/{}?tenant={}", viewer.id, viewer.tenant);
    service.with(&admin).delete(&revoke).await.expect(204);
    let refused = async || entries(&service, &admin, "?outcome=refused").await;

    // A caller without a credential has nothing to hide, and a good key is never refused.
    service
        .anyone()
        .get("/v1/events")
        .await
        .refused(401, "token_missing");
    service.with(&admin).get("/v1/events").await.expect(200);
    assert_eq!(refused().await, [] as [Value; 0]);
    for number in 0..30 {
        let guess = format!("gpb_{number:0>43}");
        for shown in [&*guess, "not a key", &viewer.secret, token] {
            let answer = service.bearer(shown).get("/v1/events").await;
            answer.refused(401, "invalid_token");
        }
    }
    let of_the_hour = refused().await;
    let [known, unknown] = &of_the_hour[..] else {
        panic!("two callers, not {of_the_hour:?}")
    };
    for (entry, field, expected) in [
        (unknown, "chain", json!("service")),
        (unknown, "principal_id", json!(null)),
        (unknown, "key_prefix", json!("gpb_00000000")),
        (known, "chain", json!(viewer.tenant.to_string())),
        (known, "key_prefix", json!(viewer.secret[..12])),
        (known, "role", json!("viewer")),
        (known, "operation", json!("list_events")),
        (known, "status", json!(401)),
        (known, "code", json!("invalid_token")),
        (known, "peer", json!("127.0.0.1")),
    ] {
        assert_eq!(entry[field], expected, "{field}");
    }
    service.world.clock().advance(TimeDelta::hours(1));
    let again = service.with(&viewer).get("/v1/events").await;
    again.refused(401, "invalid_token");
    assert_eq!(refused().await.len(), 3);
    let metrics = service.with(&admin).get("/metrics").await.text;
    for code in ["token_missing", "invalid_token"] {
        let counted = format!("broker_http_refused_credentials_total{{code=\"{code}\"}}");
        assert!(metrics.contains(&counted), "{metrics}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_lapsed_is_ordinary_and_a_key_that_lapsed_is_not() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let traded = service.with(&admin).send("POST", "/v1/tokens", None).await;
    let token = traded.expect(201)["access_token"].clone();
    let until = service.world.broker().now() + TimeDelta::hours(1);
    let ask = json!({ "name": "short", "role": "viewer", "expires_at": until });
    let made = service.with(&admin).post("/v1/api-keys", &ask).await;
    let secret = made.expect(201)["secret"].clone();
    service.world.clock().advance(TimeDelta::hours(2));
    let ask = async |shown: &Value| {
        let caller = service.bearer(shown.as_str().expect("a credential"));
        caller.get("/v1/events").await.refused(401, "token_expired");
        entries(&service, &admin, "?outcome=refused").await.len()
    };
    assert_eq!(ask(&token).await, 0);
    assert_eq!(ask(&secret).await, 1);
    service.stop().await;
}
