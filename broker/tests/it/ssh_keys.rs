//! `/v1/ssh-keys`.

use market::identity::Role;
use serde_json::json;

use crate::service::{SSH_FINGERPRINT, SSH_LINE, Service};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_added_listed_and_forgotten() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let ask = json!({ "name": "laptop", "public_key": format!("{SSH_LINE} me@laptop\n") });
    let added = service
        .with(&key)
        .post("/v1/ssh-keys", &ask)
        .await
        .expect(201);
    assert_eq!(
        (added["public_key"].as_str(), added["fingerprint"].as_str()),
        (Some(SSH_LINE), Some(SSH_FINGERPRINT))
    );
    service
        .with(&key)
        .post("/v1/ssh-keys", &ask)
        .await
        .refused(409, "already_exists");
    let listed = service.with(&key).get("/v1/ssh-keys").await.expect(200);
    assert_eq!(listed, json!({ "items": [added], "next_cursor": null }));
    let path = format!("/v1/ssh-keys/{}", added["id"].as_str().expect("an id"));
    assert_eq!(service.with(&key).delete(&path).await.status, 204);
    service
        .with(&key)
        .delete(&path)
        .await
        .refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_no_public_key_is_refused_and_not_repeated() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let private = "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----";
    let ask = json!({ "name": "laptop", "public_key": private });
    let answer = service.with(&key).post("/v1/ssh-keys", &ask).await;
    assert!(
        answer
            .refused(422, "invalid_ssh_key")
            .contains("private key")
    );
    assert!(!answer.text.contains("canary"));
    for name in ["", "two\nlines"] {
        let ask = json!({ "name": name, "public_key": SSH_LINE });
        service
            .with(&key)
            .post("/v1/ssh-keys", &ask)
            .await
            .refused(422, "invalid_body");
    }
    service.stop().await;
}
