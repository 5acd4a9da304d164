//! Credentials of callers: keys and tokens, and the keys that sign them.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::json;

use crate::service::{Key, Service, hold};

#[tokio::test(flavor = "multi_thread")]
async fn every_credential_that_is_not_good_gets_the_same_answer() {
    let service = Service::start().await;
    let good = service.key("acme", Role::Member).await;
    let mut altered = good.secret.clone();
    altered.replace_range(
        10..11,
        if &good.secret[10..11] == "A" {
            "B"
        } else {
            "A"
        },
    );
    let mut details = Vec::new();
    for credential in [
        altered.as_str(),
        "gpb_",
        "gpb_0000000000000000000000000000000000000000000",
        "nonsense",
        "a.b.c",
        "eyJhbGciOiJub25lIn0.e30.",
    ] {
        let answer = service.bearer(credential).get("/v1/reservations").await;
        details.push(answer.refused(401, "invalid_token"));
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        assert!(!answer.text.contains(credential), "{}", answer.text);
    }
    details.dedup();
    assert_eq!(
        details.len(),
        1,
        "nothing tells one wrong credential from another: {details:?}"
    );
    let basic = service
        .anyone()
        .header("authorization", "Basic YTpi")
        .get("/v1/reservations")
        .await;
    basic.refused(401, "invalid_token");
    service
        .with(&good)
        .get("/v1/reservations")
        .await
        .expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_good_for_fifteen_minutes_and_dies_with_its_key() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let trade = async || {
        let made = service
            .with(&key)
            .send("POST", "/v1/tokens", None)
            .await
            .expect(201);
        assert_eq!(
            (made["token_type"].as_str(), made["expires_in"].as_i64()),
            (Some("Bearer"), Some(900))
        );
        made["access_token"].as_str().expect("a token").to_owned()
    };
    let token = trade().await;
    service
        .bearer(&token)
        .get("/v1/reservations")
        .await
        .expect(200);
    service
        .bearer(&token)
        .send("POST", "/v1/tokens", None)
        .await
        .refused(403, "access_denied");

    service.world.clock().advance(TimeDelta::minutes(16));
    service
        .bearer(&token)
        .get("/v1/reservations")
        .await
        .refused(401, "token_expired");

    let token = trade().await;
    service
        .bearer(&token)
        .get("/v1/reservations")
        .await
        .expect(200);
    let revoked = service
        .with(&admin)
        .delete(&format!("/v1/api-keys/{}", key.id))
        .await;
    assert_eq!((revoked.status, revoked.text.as_str()), (204, ""));
    for credential in [&token, &key.secret] {
        service
            .bearer(credential)
            .get("/v1/reservations")
            .await
            .refused(401, "invalid_token");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_makes_and_revokes_no_key() {
    let service = Service::start().await;
    let (admin, other) = (
        service.key("acme", Role::Admin).await,
        service.key("acme", Role::Viewer).await,
    );
    let traded = service
        .with(&admin)
        .send("POST", "/v1/tokens", None)
        .await
        .expect(201);
    let token = traded["access_token"].as_str().expect("a token");
    let ask = json!({ "name": "for good", "role": "viewer" });
    let answer = service.bearer(token).post("/v1/api-keys", &ask).await;
    answer.refused(403, "access_denied");
    let path = format!("/v1/api-keys/{}", other.id);
    let answer = service.bearer(token).delete(&path).await;
    answer.refused(403, "access_denied");
    let listed = service.bearer(token).get("/v1/api-keys").await.expect(200);
    let keys = listed["items"].as_array().expect("items");
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| key["revoked_at"].is_null()));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_and_stops_when_its_time_is_over() {
    let service = Service::start().await;
    let admin = service.key("acme", Role::Admin).await;
    let end = service.world.clock().advance(TimeDelta::seconds(1)) + TimeDelta::hours(1);
    let ask = json!({ "name": "ci", "role": "viewer", "expires_at": end });
    let made = service
        .with(&admin)
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    let secret = made["secret"].as_str().expect("the key").to_owned();
    let listed = service.with(&admin).get("/v1/api-keys").await;
    assert!(
        !listed.text.contains(&secret) && !listed.text.contains("hash"),
        "{}",
        listed.text
    );
    assert_eq!(listed.body["items"][0]["id"], made["id"]);
    service
        .bearer(&secret)
        .get("/v1/reservations")
        .await
        .expect(200);
    let used = service.with(&admin).get("/v1/api-keys").await.expect(200);
    assert!(used["items"][0]["last_used_at"].is_string());
    service.world.clock().advance(TimeDelta::hours(2));
    service
        .bearer(&secret)
        .get("/v1/reservations")
        .await
        .refused(401, "token_expired");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_made_twice_under_one_idempotency_key_is_one_key_and_shown_once() {
    let service = Service::start().await;
    let admin = service.key("acme", Role::Admin).await;
    let ask = json!({ "name": "ci", "role": "viewer" });
    let first = service
        .with(&admin)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    let again = service
        .with(&admin)
        .once("k1")
        .post("/v1/api-keys", &ask)
        .await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let again = again.expect(201);
    assert_eq!(
        (&again["id"], &again["secret"]),
        (&first["id"], &json!(null))
    );
    assert!(first["secret"].is_string());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_a_provider_is_made_by_an_administrator_and_names_the_provider() {
    let service = Service::start().await;
    let admin = service.key("acme", Role::Admin).await;
    let make = async |key: &Key, role: &str, provider: Option<&str>| {
        let mut ask = json!({ "name": "supply", "role": role });
        if let Some(provider) = provider {
            ask["provider_id"] = json!(provider);
        }
        service.with(key).post("/v1/api-keys", &ask).await
    };
    let unnamed = make(&admin, "provider", None).await;
    let why = unnamed.refused(422, "invalid_body");
    assert!(why.contains("provider_id"), "{why}");
    let of_another_role = make(&admin, "viewer", Some("lambda")).await;
    of_another_role.refused(422, "invalid_body");
    let unknown = make(&admin, "provider", Some("nobody")).await;
    unknown.refused(422, "unknown_reference");
    // A member reads of every provider, and still speaks for none.
    let member = service.key("acme", Role::Member).await;
    let by_member = make(&member, "provider", Some("lambda")).await;
    by_member.refused(403, "grant_exceeds_own");
    let made = make(&admin, "provider", Some("runpod")).await.expect(201);
    assert_eq!(made["provider_id"], "runpod");
    let id = made["id"].as_str().expect("an id");
    let rotated = service
        .with(&admin)
        .post(&format!("/v1/api-keys/{id}/rotate"), &json!({}));
    let rotated = rotated.await.expect(201);
    assert_eq!(rotated["provider_id"], "runpod");
    let seller = service.bearer(rotated["secret"].as_str().expect("a key"));
    seller.get("/v1/providers/runpod").await.expect(200);
    seller
        .get("/v1/providers/lambda")
        .await
        .refused(404, "not_found");
    let members = service.with(&admin).get("/v1/members").await.expect(200);
    let members = members["items"].as_array().expect("items");
    let bound: Vec<_> = members
        .iter()
        .filter(|one| one["role"] == "provider")
        .collect();
    assert_eq!(
        (bound.len(), &bound[0]["provider_id"]),
        (1, &json!("runpod"))
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_no_key_that_reaches_further_or_lives_longer() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let make = |ask: serde_json::Value| service.with(&member).post("/v1/api-keys", &ask);
    make(json!({ "name": "x", "role": "admin" }))
        .await
        .refused(403, "grant_exceeds_own");
    make(json!({ "name": "x", "role": "admin", "scopes": {} }))
        .await
        .refused(403, "grant_exceeds_own");
    let narrow = json!({ "name": "x", "role": "member", "scopes": { "plans": "read", "identity": "write" } });
    let narrow = make(narrow).await.expect(201);
    let narrow = narrow["secret"].as_str().expect("the key");
    let ask = json!({ "name": "y", "role": "member" });
    service
        .bearer(narrow)
        .post("/v1/api-keys", &ask)
        .await
        .refused(403, "grant_exceeds_own");

    let end = service.world.broker().now() + TimeDelta::hours(1);
    let ask = json!({ "name": "short", "role": "member", "expires_at": end });
    let short = service
        .with(&member)
        .post("/v1/api-keys", &ask)
        .await
        .expect(201);
    let short = short["secret"].as_str().expect("the key");
    let ask = json!({ "name": "long", "role": "viewer" });
    service
        .bearer(short)
        .post("/v1/api-keys", &ask)
        .await
        .refused(403, "grant_exceeds_own");
    let past = json!({ "name": "past", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z" });
    make(past).await.refused(422, "invalid_body");

    let admin = service.key("acme", Role::Admin).await;
    service
        .with(&member)
        .delete(&format!("/v1/api-keys/{}", admin.id))
        .await
        .refused(403, "access_denied");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_key_is_the_same_principal_and_the_old_one_lives_on_for_a_while() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let id = hold(&service, &member).await;
    let rotate = format!("/v1/api-keys/{}/rotate", member.id);
    let made = service
        .with(&member)
        .once("r1")
        .post(&rotate, &json!({ "overlap_seconds": 600 }))
        .await
        .expect(201);
    let secret = made["secret"].as_str().expect("the key").to_owned();
    let again = service
        .with(&member)
        .once("r1")
        .post(&rotate, &json!({ "overlap_seconds": 600 }))
        .await
        .expect(201);
    assert_eq!(
        (&again["id"], &again["secret"]),
        (&made["id"], &json!(null))
    );
    assert_eq!(
        (&made["role"], &made["name"]),
        (&json!("member"), &json!("test"))
    );
    let listed = service.with(&member).get("/v1/api-keys").await.expect(200);
    let [new, old] = [&listed["items"][0], &listed["items"][1]];
    assert_eq!(old["replaced_by"], new["id"]);
    assert_eq!(old["principal_id"], new["principal_id"]);
    assert!(old["last_used_at"].is_string() && new["last_used_at"].is_null());
    service
        .with(&member)
        .post(&rotate, &json!({}))
        .await
        .refused(409, "key_not_active");
    let most = json!({ "overlap_seconds": 2_592_001 });
    let next = format!(
        "/v1/api-keys/{}/rotate",
        made["id"].as_str().expect("an id")
    );
    service
        .bearer(&secret)
        .post(&next, &most)
        .await
        .refused(422, "invalid_body");

    service.world.clock().advance(TimeDelta::seconds(601));
    service
        .with(&member)
        .get("/v1/reservations")
        .await
        .refused(401, "token_expired");
    // The holder of the new key can end the things that the old key made.
    let cancel = format!("/v1/reservations/{id}/cancel");
    service
        .bearer(&secret)
        .send("POST", &cancel, None)
        .await
        .expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_takes_the_place_of_another_principal_by_rotating_its_key() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let other = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let stranger = service.key("other", Role::Admin).await;
    let rotate = format!("/v1/api-keys/{}/rotate", member.id);
    let ask = async |key| service.with(key).post(&rotate, &json!({})).await;
    ask(&other).await.refused(403, "not_yours");
    ask(&stranger).await.refused(404, "not_found");
    let traded = service
        .with(&member)
        .send("POST", "/v1/tokens", None)
        .await
        .expect(201);
    let token = traded["access_token"].as_str().expect("a token");
    service
        .bearer(token)
        .post(&rotate, &json!({}))
        .await
        .refused(403, "access_denied");
    ask(&admin).await.expect(201);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_signing_key_verifies_on_until_its_tokens_have_lapsed() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let broker = service.world.broker();
    let trade = async || {
        let made = service.with(&key).send("POST", "/v1/tokens", None).await;
        let made = made.expect(201);
        made["access_token"].as_str().expect("a token").to_owned()
    };
    let published = async || {
        let keys = service.anyone().get("/.well-known/jwks.json").await;
        let keys = keys.expect(200);
        let keys = keys["keys"].as_array().expect("keys");
        let tokens = keys.iter().filter(|key| key["purpose"] == "token");
        tokens
            .map(|key| key["kid"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    let (old, page) = (
        trade().await,
        service.with(&key).get("/v1/api-keys?limit=1").await,
    );
    page.expect(200);
    let before = published().await;
    // Another process rotates.
    let sealing = broker::service::start::sealing_key(broker.config(), broker.store()).await;
    let sealing = sealing.expect("the sealing key");
    let purpose = store::signing_keys::KeyPurpose::Token;
    let kid = broker::platform::keys::rotate(broker.store(), &sealing, purpose, broker.now())
        .await
        .expect("rotated");
    assert_eq!(broker.keys().token().kid(), before[0], "not yet noticed");
    service.world.clock().advance(TimeDelta::seconds(61));
    assert_eq!(published().await, [before[0].clone(), kid.clone()]);
    let new = trade().await;
    assert_ne!(
        new.split('.').next(),
        old.split('.').next(),
        "another key signs"
    );
    for token in [&old, &new] {
        service
            .bearer(token)
            .get("/v1/reservations")
            .await
            .expect(200);
    }
    service.world.clock().advance(TimeDelta::minutes(17));
    assert_eq!(published().await, [kid]);
    service
        .bearer(&old)
        .get("/v1/reservations")
        .await
        .refused(401, "invalid_token");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_key_that_another_replica_made_has_the_keys_read_at_once() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let broker = service.world.broker();
    service.world.clock().advance(TimeDelta::seconds(61));
    service.with(&key).get("/v1/reservations").await.expect(200);
    let sealing = broker::service::start::sealing_key(broker.config(), broker.store()).await;
    let sealing = std::sync::Arc::new(sealing.expect("a key"));
    let purpose = store::signing_keys::KeyPurpose::Token;
    broker::platform::keys::rotate(broker.store(), &sealing, purpose, broker.now())
        .await
        .expect("rotated");
    let replica = broker::platform::keys::Keys::load(broker.store(), sealing, broker.now())
        .await
        .expect("another replica");
    let claims = json!({
        "iss": "gpu-broker", "aud": "gpu-broker-api", "sub": key.id, "tenant": key.tenant,
        "role": "member", "scopes": {}, "iat": broker.now().timestamp(),
        "exp": broker.now().timestamp() + 900,
    });
    let pair = replica.token();
    let header = jsonwebtoken::Header {
        kid: Some(pair.kid().to_owned()),
        ..jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA)
    };
    let token = jsonwebtoken::encode(&header, &claims, &pair.encoding()).expect("signed");
    service.world.clock().advance(TimeDelta::seconds(6));
    service
        .bearer(&token)
        .get("/v1/reservations")
        .await
        .expect(200);
    service.stop().await;
}
