//! The rights of a caller: roles, scopes, things that others made, and an administrator's reach.

use market::identity::{ResourceFamily, Role, Scope};
use serde_json::json;

use crate::service::{Service, hold, quote};

#[tokio::test(flavor = "multi_thread")]
async fn each_role_does_what_it_is_there_for_and_no_more() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let (plan, quoted) = quote(&service, &member).await;
    let id = hold(&service, &member).await;
    let [finance, viewer, provider] = [
        service.key("acme", Role::Finance).await,
        service.key("acme", Role::Viewer).await,
        service.key("acme", Role::Provider).await,
    ];
    let costs = "/v1/reports/costs?group_by=project";
    service.with(&finance).get(costs).await.expect(200);
    service
        .with(&viewer)
        .get(costs)
        .await
        .refused(403, "access_denied");
    service
        .with(&provider)
        .get(costs)
        .await
        .refused(403, "access_denied");

    let take = json!({ "quote_id": quoted });
    for reader in [&finance, &viewer] {
        service
            .with(reader)
            .get(&format!("/v1/reservations/{id}"))
            .await
            .expect(200);
        service
            .with(reader)
            .post("/v1/reservations", &take)
            .await
            .refused(403, "access_denied");
        let confirm = format!("/v1/reservations/{id}/confirm");
        service
            .with(reader)
            .send("POST", &confirm, None)
            .await
            .refused(403, "access_denied");
    }
    service
        .with(&viewer)
        .get(&format!("/v1/plans/{plan}"))
        .await
        .expect(200);
    service
        .with(&finance)
        .get(&format!("/v1/plans/{plan}"))
        .await
        .refused(403, "access_denied");
    service
        .with(&provider)
        .get("/v1/reservations")
        .await
        .refused(403, "access_denied");
    service
        .with(&provider)
        .get("/v1/providers")
        .await
        .expect(200);

    let narrow = [(ResourceFamily::Reservations, Scope::Read)].into();
    let narrow = service.key_with("acme", Role::Admin, narrow).await;
    service
        .with(&narrow)
        .get("/v1/reservations")
        .await
        .expect(200);
    service
        .with(&narrow)
        .post("/v1/reservations", &take)
        .await
        .refused(403, "access_denied");
    service
        .with(&narrow)
        .get("/v1/ssh-keys")
        .await
        .refused(403, "access_denied");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_reaches_another_tenant_only_by_name_and_nobody_else_does() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("operators", Role::Admin).await;
    let stranger = service.key("other", Role::Member).await;
    let id = hold(&service, &member).await;
    let plain = format!("/v1/reservations/{id}");
    let named = format!("{plain}?tenant={}", member.tenant);
    service
        .with(&admin)
        .get(&plain)
        .await
        .refused(404, "not_found");
    service.with(&admin).get(&named).await.expect(200);
    service.with(&member).get(&named).await.expect(200);
    service
        .with(&stranger)
        .get(&named)
        .await
        .refused(404, "not_found");
    let listed = service
        .with(&admin)
        .get(&format!("/v1/reservations?tenant={}", member.tenant))
        .await
        .expect(200);
    assert_eq!(listed["items"][0]["id"], id);
    let nobody = format!("/v1/reservations?tenant=ten_{}", "0".repeat(32));
    service
        .with(&admin)
        .get(&nobody)
        .await
        .refused(404, "not_found");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_ends_what_it_made_and_sees_what_others_made() {
    let service = Service::start().await;
    let maker = service.key("acme", Role::Member).await;
    let other = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let id = hold(&service, &maker).await;
    let one = format!("/v1/reservations/{id}");
    service.with(&other).get(&one).await.expect(200);
    for verb in ["confirm", "cancel", "release"] {
        let verb = format!("{one}/{verb}");
        let answer = service.with(&other).send("POST", &verb, None).await;
        answer.refused(403, "not_yours");
    }
    let extend = json!({ "end": "2030-01-01T00:00:00Z" });
    let answer = service.with(&other).post(&format!("{one}/extend"), &extend);
    answer.await.refused(403, "not_yours");
    let answer = service.with(&other).patch(&one, &json!({ "name": "mine" }));
    answer.await.refused(403, "not_yours");
    let token = service.with(&maker).send("POST", "/v1/tokens", None).await;
    let token = token.expect(201);
    let token = token["access_token"].as_str().expect("a token");
    let named = service
        .bearer(token)
        .patch(&one, &json!({ "name": "ours" }));
    named.await.expect(200);
    let cancel = format!("{one}/cancel");
    service
        .with(&admin)
        .send("POST", &cancel, None)
        .await
        .expect(200);
    service.stop().await;
}
