//! Another tenant's id answers 404 to every request, and nothing of it changes.

use market::identity::Role;
use serde_json::json;

use crate::service::{Service, hold, quote, ssh_key};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_another_tenant_is_seen_or_touched() {
    let service = Service::start().await;
    let (owner, stranger) = (
        service.key("acme", Role::Admin).await,
        service.key("other", Role::Admin).await,
    );
    let (plan, quoted) = quote(&service, &owner).await;
    let reservation = hold(&service, &owner).await;
    let ssh_key = ssh_key(&service, &owner).await;
    let before = service
        .with(&owner)
        .get(&format!("/v1/reservations/{reservation}"))
        .await
        .expect(200);

    let theirs = service.with(&stranger);
    let one = format!("/v1/reservations/{reservation}");
    for path in [
        format!("/v1/plans/{plan}"),
        format!("/v1/quotes/{quoted}"),
        one.clone(),
        format!("{one}/nodes"),
        format!("{one}/access"),
    ] {
        theirs.get(&path).await.refused(404, "not_found");
    }
    for verb in ["confirm", "cancel", "release"] {
        theirs
            .send("POST", &format!("{one}/{verb}"), None)
            .await
            .refused(404, "not_found");
    }
    theirs
        .post(
            &format!("{one}/extend"),
            &json!({ "end": "2030-01-01T00:00:00Z" }),
        )
        .await
        .refused(404, "not_found");
    theirs
        .patch(&one, &json!({ "name": "mine" }))
        .await
        .refused(404, "not_found");
    theirs
        .delete(&format!("/v1/ssh-keys/{ssh_key}"))
        .await
        .refused(404, "not_found");
    theirs
        .delete(&format!("/v1/api-keys/{}", owner.id))
        .await
        .refused(404, "not_found");
    theirs
        .post("/v1/quotes", &json!({ "plan_id": plan }))
        .await
        .refused(404, "not_found");
    theirs
        .post("/v1/reservations", &json!({ "quote_id": quoted }))
        .await
        .refused(404, "not_found");
    let (_, own_quote) = quote(&service, &stranger).await;
    let with_key = json!({ "quote_id": own_quote, "ssh_key_ids": [ssh_key] });
    theirs
        .post("/v1/reservations", &with_key)
        .await
        .refused(422, "unknown_reference");
    for list in ["/v1/reservations", "/v1/ssh-keys"] {
        assert_eq!(
            theirs.get(list).await.expect(200)["items"],
            json!([]),
            "{list}"
        );
    }
    let keys = theirs.get("/v1/api-keys").await.expect(200);
    assert_eq!(
        keys["items"].as_array().map(Vec::len),
        Some(1),
        "the stranger's own"
    );

    let after = service.with(&owner).get(&one).await.expect(200);
    assert_eq!(after, before);
    let keys = service.with(&owner).get("/v1/ssh-keys").await.expect(200);
    assert_eq!(keys["items"][0]["id"], ssh_key.as_str());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_one_tenant_opens_no_list_of_another() {
    let service = Service::start().await;
    let (owner, stranger) = (
        service.key("acme", Role::Admin).await,
        service.key("other", Role::Admin).await,
    );
    for _ in 0..2 {
        service.key("acme", Role::Viewer).await;
    }
    let page = service
        .with(&owner)
        .get("/v1/api-keys?limit=1")
        .await
        .expect(200);
    let cursor = page["next_cursor"].as_str().expect("another page");
    let next = format!("/v1/api-keys?limit=1&cursor={cursor}");
    service.with(&owner).get(&next).await.expect(200);
    service
        .with(&stranger)
        .get(&next)
        .await
        .refused(422, "invalid_cursor");
    service.stop().await;
}
