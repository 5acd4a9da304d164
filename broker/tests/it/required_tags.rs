//! `/v1/required-tags`.

use market::identity::Role;
use serde_json::json;

use crate::service::{Service, hold, orderable_demand, ssh_key};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_requires_every_reservation_carries() {
    let service = Service::start().await;
    let admin = service.key("operators", Role::Admin).await;
    let acme = service.key("acme", Role::Member).await;
    let globex = service.key("globex", Role::Member).await;
    ssh_key(&service, &acme).await;
    let before = hold(&service, &acme).await;
    let path = format!("/v1/required-tags?tenant={}", acme.tenant);
    let ask = json!({ "tags": ["team", "run"], "fields": ["cost_centre"] });
    let required = service.with(&admin).patch(&path, &ask).await.expect(200);
    assert_eq!(required["tags"], json!(["run", "team"]));
    let shown = service.with(&acme).get("/v1/required-tags").await;
    assert_eq!(shown.expect(200), required);

    let mut demand = orderable_demand(&service).await;
    demand["tags"] = json!({ "team": "vision" });
    let place = async |more: serde_json::Value| {
        let mut ask = json!({ "demand": demand });
        let more = more.as_object().expect("an object").clone();
        ask.as_object_mut().expect("an object").extend(more);
        service.with(&acme).post("/v1/reservations", &ask).await
    };
    let said = place(json!({ "tags": { "run": " " } })).await;
    let said = said.refused(422, "tags_required");
    assert!(
        said.contains("the tag `run` and `attribution.cost_centre`"),
        "{said}"
    );
    let whole = json!({ "tags": { "run": "r1" }, "attribution": { "cost_centre": "4711" } });
    let placed = place(whole).await.expect(201);

    // Existing reservations live on, and a change of tags takes none away.
    let relabel = async |id: &str, tags: serde_json::Value| {
        let path = format!("/v1/reservations/{id}");
        service
            .with(&acme)
            .patch(&path, &json!({ "tags": tags }))
            .await
    };
    let id = placed["id"].as_str().expect("an id");
    let refused = relabel(id, json!({ "team": "speech" })).await;
    refused.refused(422, "tags_required");
    let tags = json!({ "team": "speech", "run": "r2" });
    relabel(id, tags.clone()).await.expect(200);
    relabel(&before, tags).await.expect(200);
    hold(&service, &globex).await;

    for odd in [
        json!({}),
        json!({ "tags": ["two words"] }),
        json!({ "fields": ["colour"] }),
    ] {
        let refused = service.with(&admin).patch(&path, &odd).await;
        refused.refused(422, "invalid_body");
    }
    let nothing = json!({ "tags": [], "fields": [] });
    service
        .with(&admin)
        .patch(&path, &nothing)
        .await
        .expect(200);
    let cancel = format!("/v1/reservations/{id}/cancel");
    let cancelled = service.with(&acme).send("POST", &cancel, None).await;
    cancelled.expect(200);
    place(json!({})).await.expect(201);
    service.stop().await;
}
