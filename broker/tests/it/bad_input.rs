//! Every route × every way to get it wrong: a problem document that names the remedy, and nothing written.

use std::time::Duration;

use market::identity::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::routes;
use crate::service::{Key, Service, hold, orderable_demand, quote, ssh_key};

async fn service() -> (Service, Key) {
    let service = Service::start().await;
    let key = service.key("acme", Role::Admin).await;
    (service, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_path_is_a_404_for_everyone_and_every_method() {
    let (service, key) = service().await;
    for path in [
        "/",
        "/v1",
        "/v2/offers",
        "/v1/offers/",
        "/v1//offers",
        "/v1/ssh-keys/a/b",
        "/%ff",
        "/v1/offers%2F",
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            for caller in [service.anyone(), service.with(&key)] {
                caller
                    .send(method, path, None)
                    .await
                    .refused(404, "route_not_found");
            }
        }
        assert_eq!(
            service.anyone().send("HEAD", path, None).await.status,
            404,
            "{path}"
        );
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_is_a_405_that_names_the_right_ones() {
    let (service, key) = service().await;
    for (path, methods) in routes::paths() {
        let path = path.replace("{n}", "1");
        for method in [
            "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "PURGE",
        ] {
            if methods.iter().any(|taken| taken == method) {
                continue;
            }
            let answer = service
                .with(&key)
                .send(method, &path.replace(['{', '}'], ""), None)
                .await;
            assert_eq!(
                answer.header("allow"),
                Some(methods.join(", ").as_str()),
                "{method} {path}"
            );
            if method == "HEAD" {
                assert_eq!((answer.status, answer.text.as_str()), (405, ""), "{path}");
            } else {
                answer.refused(405, "method_not_allowed");
            }
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_cannot_be_read_is_a_400_with_an_example() {
    let (service, key) = service().await;
    for route in routes::all()
        .into_iter()
        .filter(|route| route.takes_parameters)
    {
        let body = route
            .takes_body
            .then(|| ("application/json", b"{}".to_vec()));
        let answer = service
            .with(&key)
            .send(&route.method, &route.filled_with_nonsense(), body)
            .await;
        if route.path.contains("{id}") {
            let detail = answer.refused(422, "invalid_parameter");
            assert!(detail.contains("looks like"), "{route}: {detail}");
        } else {
            answer.refused(404, "not_found");
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_names_nothing_is_a_404() {
    let (service, key) = service().await;
    for route in routes::all()
        .into_iter()
        .filter(|route| route.path.contains("{id}") && !route.takes_body)
    {
        if route.path.starts_with("/v1/verifications") {
            continue;
        }
        let detail = service
            .with(&key)
            .send(&route.method, &route.filled(), None)
            .await
            .refused(404, "not_found");
        assert!(detail.contains("there is no"), "{route}: {detail}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_json_or_not_sent_as_json_is_refused() {
    let (service, key) = service().await;
    // Before a node's message is read, its token is checked; no caller here has one.
    for route in routes::all()
        .into_iter()
        .filter(|route| route.takes_body && !route.path.starts_with("/v1/verifications"))
    {
        let path = route.filled();
        let send = |media_type: &'static str, text: &str| {
            service.with(&key).send(
                &route.method,
                &path,
                Some((media_type, text.as_bytes().to_vec())),
            )
        };
        for text in ["", "{", "{\"a\":}", "nonsense", "{} {}"] {
            send("application/json", text)
                .await
                .refused(400, "invalid_json");
        }
        for media_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/jsonp",
            "",
        ] {
            send(media_type, "{}")
                .await
                .refused(415, "unsupported_media_type");
        }
        service
            .with(&key)
            .send(&route.method, &path, None)
            .await
            .refused(415, "unsupported_media_type");
        // The messages of nodes may be larger.
        if !route.path.starts_with("/v1/verifications") {
            let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(300 << 10));
            send("application/json", &huge)
                .await
                .refused(413, "payload_too_large");
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_does_not_fit_is_a_422_that_names_the_field() {
    let (service, key) = service().await;
    for route in routes::all().into_iter().filter(|route| route.takes_body) {
        if route.path.starts_with("/v1/verifications") {
            continue;
        }
        let path = route.filled();
        for body in [json!([]), json!(7), json!(null), json!("text")] {
            let text = body.to_string().into_bytes();
            let answer = service
                .with(&key)
                .send(&route.method, &path, Some(("application/json", text)))
                .await;
            answer.refused(422, "invalid_body");
        }
        let surplus = json!({ "kind": "gpus", "gpu": "H100", "count": 8, "colour": "red" });
        let text = surplus.to_string().into_bytes();
        let answer = service
            .with(&key)
            .send(&route.method, &path, Some(("application/json", text)))
            .await;
        let detail = answer.refused(422, "invalid_body");
        assert!(detail.contains("unknown field"), "{route}: {detail}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_without_a_body_take_none_or_an_empty_object_and_nothing_else() {
    let (service, key) = service().await;
    let id = hold(&service, &key).await;
    for verb in ["confirm", "cancel", "release"] {
        let path = format!("/v1/reservations/{id}/{verb}");
        service
            .with(&key)
            .post(&path, &json!({ "force": true }))
            .await
            .refused(422, "invalid_body");
    }
    let held = service
        .with(&key)
        .get(&format!("/v1/reservations/{id}"))
        .await
        .expect(200);
    assert_eq!(held["state"], "held");
    service
        .with(&key)
        .send("POST", &format!("/v1/reservations/{id}/cancel"), None)
        .await
        .expect(200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_cannot_be_read_is_a_400() {
    let (service, key) = service().await;
    for path in [
        "/v1/offers?limit=0",
        "/v1/offers?limit=201",
        "/v1/offers?limit=ten",
        "/v1/offers?cursor=forged",
        "/v1/offers?gpu=H999",
        "/v1/offers?country=ZZ",
        "/v1/offers?terms=forever",
        "/v1/offers?max_usd_gpu_hour=cheap",
        "/v1/offers?max_usd_gpu_hour=-1",
        "/v1/offers?min_gpus=0",
        "/v1/offers?max_price=2",
        "/v1/gpus?limit=-1",
        "/v1/reservations?state=lost",
        "/v1/reservations?limit=1000",
        "/v1/reports/costs?group_by=colour",
        "/v1/reports/costs?from=yesterday",
        "/v1/reports/costs?from=2025-01-02T00:00:00Z&to=2025-01-01T00:00:00Z",
        "/v1/ssh-keys?tenant=acme",
    ] {
        let answer = service.with(&key).get(path).await;
        assert_eq!(answer.status, 422, "{path}: {}", answer.text);
        assert!(
            ["invalid_parameter", "invalid_cursor"]
                .contains(&answer.body["code"].as_str().unwrap_or(""))
        );
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_demands_are_refused_field_by_field_and_nothing_is_planned() {
    let (service, key) = service().await;
    let now = service.world.broker().now();
    let past = (now - chrono::TimeDelta::days(2)).to_rfc3339();
    let faulty = [
        json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 0 }),
        json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": 0 }),
        json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 8, "window": { "end": past } }),
        json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 8, "ceiling": { "usd_per_gpu_hour": "0" } }),
        json!({ "kind": "train", "model": "Llama 3 8B", "tokens": 0 }),
    ];
    for demand in &faulty {
        for (path, body) in [
            ("/v1/plans", demand.clone()),
            (
                "/v1/reservations",
                json!({ "demand": demand, "auto_confirm": true }),
            ),
        ] {
            let answer = service.with(&key).post(path, &body).await;
            answer.refused(422, "invalid_demand");
            assert!(
                answer.body["faults"]
                    .as_array()
                    .is_some_and(|faults| !faults.is_empty()),
                "{}",
                answer.text
            );
        }
    }
    let unknown = json!({ "kind": "gpus", "gpu": "H1000-SXM", "count": 8 });
    let detail = service
        .with(&key)
        .post("/v1/plans", &unknown)
        .await
        .refused(422, "invalid_body");
    assert!(
        detail.contains("H100-SXM"),
        "the nearest names are given: {detail}"
    );
    let listed = service.with(&key).get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_needs_a_quote_or_a_demand_and_only_its_own_things() {
    let (service, key) = service().await;
    ssh_key(&service, &key).await;
    let (_, quote) = quote(&service, &key).await;
    let demand = orderable_demand(&service).await;
    let post = |body: serde_json::Value| service.with(&key).post("/v1/reservations", &body);
    post(json!({})).await.refused(422, "invalid_body");
    post(json!({ "quote_id": quote, "demand": demand }))
        .await
        .refused(422, "invalid_body");
    post(json!({ "quote_id": quote, "name": "" }))
        .await
        .refused(422, "invalid_body");
    post(json!({ "quote_id": quote, "tags": { "no spaces": "x" } }))
        .await
        .refused(422, "invalid_body");
    post(json!({ "quote_id": quote, "attribution": { "owner": "x".repeat(101) } }))
        .await
        .refused(422, "invalid_body");
    post(json!({ "quote_id": quote, "ceiling": { "usd_per_hour": "-1" } }))
        .await
        .refused(422, "invalid_body");
    let foreign = format!("ssh_{}", "1".repeat(32));
    post(json!({ "quote_id": quote, "ssh_key_ids": [foreign] }))
        .await
        .refused(422, "unknown_reference");
    let foreign = format!("prj_{}", "1".repeat(32));
    post(json!({ "quote_id": quote, "project_id": foreign }))
        .await
        .refused(422, "unknown_reference");
    let low = json!({ "demand": demand, "ceiling": { "usd_per_gpu_hour": "0.01" } });
    post(low).await.refused(409, "nothing_matches");
    let listed = service.with(&key).get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"], json!([]), "nothing was written");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_id_is_taken_when_it_is_a_plain_word_and_made_otherwise() {
    let (service, _) = service().await;
    let given = service
        .anyone()
        .header("x-request-id", "build-7.3_a")
        .get("/healthz")
        .await;
    assert_eq!(given.header("x-request-id"), Some("build-7.3_a"));
    for bad in ["two words", "<script>", &"x".repeat(65)] {
        let made = service
            .anyone()
            .header("x-request-id", bad)
            .get("/nowhere")
            .await;
        made.refused(404, "route_not_found");
        assert_eq!(made.header("x-request-id").map(str::len), Some(32), "{bad}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stays_away_is_given_up_and_says_so() {
    let (service, key) = service().await;
    let address = service.world.base_url().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST /v1/projects HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{ \"name\": ",
        key.secret
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    // By real time, as the connection is: it has half a minute.
    let mut answer = Vec::new();
    let read = async {
        while !answer.ends_with(b"}") {
            if stream.read_buf(&mut answer).await.expect("an answer") == 0 {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), read)
        .await
        .expect("it is given up");
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\"body_too_slow\""), "{answer}");
    service.stop().await;
}
