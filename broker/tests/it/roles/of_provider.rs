//! The answers to a key that is bound to one provider, at every route.

use market::identity::Role;
use serde_json::json;

use super::sign;
use crate::routes;
use crate::service::Service;

/// The answers to a key bound to one provider, where a route names a provider: its own, and another. A route
/// without a row here that is not open to everybody names no provider but its own.
const OF_PROVIDERS: &[(&str, &str)] = &[
    ("GET /v1/providers/{id}", "+."),
    ("PATCH /v1/providers/{id}", "xx"),
    ("POST /v1/providers/{id}/check", "xx"),
    ("GET /v1/providers/{id}/quarantine", "+."),
    ("POST /v1/providers/{id}/quarantine", "xx"),
    ("DELETE /v1/providers/{id}/quarantine", "xx"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_reads_its_own_supply_and_nothing_of_another() {
    let service = Service::start().await;
    let viewer = service.key("acme", Role::Viewer).await;
    let bound = service.key_of_provider("acme", Some("lambda")).await;
    let unbound = service.key_of_provider("acme", None).await;
    let all = service.with(&viewer).get("/v1/providers").await.expect(200);
    let all: Vec<_> = all["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["id"].as_str().expect("an id").to_owned())
        .collect();
    let (own, others) = (
        "lambda",
        all.iter().filter(|id| *id != "lambda").collect::<Vec<_>>(),
    );
    assert!(others.len() > 1, "there are others to read of");
    let (mut rows, mut wrong) = (0, Vec::new());
    for route in routes::all() {
        let route = route.to_string();
        let (method, path) = route.split_once(' ').expect("method and path");
        let body = (method != "GET").then(|| ("application/json", b"{}".to_vec()));
        if path.starts_with("/v1/providers/{id}") {
            let mut found = String::new();
            for id in [own, others[0]] {
                let path = path.replace("{id}", id);
                let answer = service.with(&bound).send(method, &path, body.clone()).await;
                found.push(sign(&answer));
                let answer = service
                    .with(&unbound)
                    .send(method, &path, body.clone())
                    .await;
                let why = answer.refused(403, "access_denied");
                assert!(why.contains("--provider NAME"), "{route}: {why}");
            }
            rows += 1;
            if !OF_PROVIDERS.contains(&(&route, &found)) {
                wrong.push(format!("{route}: {found}"));
            }
            continue;
        }
        // Routes that need no credential show a provider's key the same as anybody.
        if service
            .anyone()
            .send(method, path, body.clone())
            .await
            .status
            < 400
        {
            continue;
        }
        let answer = service.with(&bound).send(method, path, body).await;
        let shown = others
            .iter()
            .filter(|id| answer.text.contains(&format!("\"{id}\"")));
        wrong.extend(shown.map(|id| format!("{route} shows {id}: {}", answer.text)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(rows, OF_PROVIDERS.len(), "the table has rows of no route");
    let seen = service.with(&bound).get("/v1/providers").await.expect(200);
    assert_eq!(
        (
            &seen["items"][0]["id"],
            seen["items"].as_array().map(Vec::len)
        ),
        (&json!(own), Some(1))
    );
    let token = service
        .with(&unbound)
        .send("POST", "/v1/tokens", None)
        .await;
    token.refused(403, "access_denied");
    service.stop().await;
}
