//! The committed OpenAPI document is the one that the routes make, and each of its routes is there.

use std::fs;
use std::path::Path;

use broker::http::document;

use crate::routes;
use crate::service::Service;

#[test]
fn the_committed_document_is_the_one_that_the_routes_make() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../openapi/broker.json");
    let made = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, made.text()).expect("the document is written");
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == made.text(),
        "openapi/broker.json is out of date; run `cargo xtask generate` and review it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_route_is_served_and_only_public_ones_without_login() {
    let service = Service::start().await;
    let served = service.anyone().get("/openapi.json").await.expect(200);
    assert_eq!(served, *document().value());
    for route in routes::all() {
        let answer = service
            .anyone()
            .send(&route.method, &route.filled(), None)
            .await;
        if route.is_public {
            assert_ne!(answer.status, 401, "{route}");
            assert_ne!(answer.body["code"], "route_not_found", "{route}");
        } else {
            answer.refused(401, "token_missing");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{route}");
        }
    }
    service.stop().await;
}
