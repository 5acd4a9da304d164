//! How the connection behaves when a provider misbehaves.

use std::time::{Duration, Instant};

use adapters::http::{Answer, MAX_BODY_BYTES, Purpose};
use adapters::{AdapterError, Http, HttpConfig, Refusal};
use serde_json::{Value, json};

use crate::server::{Server, Turn};

fn ok(body: &str) -> Turn {
    Turn::Answer(200, "", body.into())
}

fn status(status: u16) -> Turn {
    Turn::Answer(
        status,
        "",
        r#"{"error": {"code": "global/internal-error"}}"#.into(),
    )
}

fn refusal(answer: &Answer) -> Refusal {
    Refusal::from_status(answer.status())
}

async fn read(http: &Http) -> Result<Value, AdapterError> {
    http.get("/things").await?.read(refusal)
}

async fn order(http: &Http) -> Result<Value, AdapterError> {
    http.post(Purpose::Order, "/launch", &json!({"name": "gpb"}))
        .await?
        .read(refusal)
}

#[tokio::test]
async fn a_read_is_tried_again_until_it_succeeds() {
    for trouble in [
        Turn::Close,
        Turn::CutShort,
        Turn::Hang,
        status(503),
        Turn::Answer(429, "retry-after: 0\r\n", String::new()),
    ] {
        let server = Server::start(vec![trouble, ok("[1]")]).await;
        assert_eq!(
            read(&server.http()).await.expect("the second answer"),
            json!([1])
        );
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_call_says_of_which_trace_it_is_part_where_there_is_one() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let server = Server::start(vec![ok("[1]"), ok("[1]")]).await;
    read(&server.http()).await.expect("an answer");
    let traced = HttpConfig {
        traceparent: || Some(TRACE.to_owned()),
        ..server.config()
    };
    let http = Http::live(traced).expect("a connection");
    read(&http).await.expect("an answer");
    let requests = server.requests();
    assert!(!requests[0].contains("traceparent"), "{}", requests[0]);
    let line = format!("traceparent: {TRACE}\r\n");
    assert!(requests[1].contains(&line), "{}", requests[1]);
}

#[tokio::test]
async fn a_read_gives_up_after_three_attempts_and_names_the_call() {
    let server = Server::start(vec![status(500), status(502), status(503), ok("[1]")]).await;
    let error = read(&server.http()).await.expect_err("no answer");
    assert!(matches!(error, AdapterError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("GET /things"), "{error}");
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn an_order_is_never_repeated_and_without_a_clean_answer_its_outcome_is_unknown() {
    for trouble in [
        Turn::Close,
        Turn::CutShort,
        Turn::Hang,
        status(500),
        status(409),
        ok(r#"{"data": "#),
    ] {
        let server = Server::start(vec![trouble, ok("{}")]).await;
        let error = order(&server.http()).await.expect_err("no clean answer");
        assert!(error.is_outcome_unknown(), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_order_that_never_left_is_no_open_order() {
    let server = Server::start(vec![]).await;
    let mut config = server.config();
    // Nothing listens on port 1.
    config.base_url = "http://127.0.0.1:1".into();
    let error = order(&Http::live(config).expect("a connection"))
        .await
        .expect_err("nobody there");
    assert!(!error.is_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_refused_order_is_certain() {
    let server = Server::start(vec![status(400)]).await;
    let error = order(&server.http()).await.expect_err("a refusal");
    assert!(error.is_refusal() && !error.is_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(vec![ok("[1]")]).await;
    let location = format!("location: {}/things\r\n", elsewhere.url);
    let server = Server::start(vec![Turn::Answer(307, location.leak(), String::new())]).await;
    let error = order(&server.http()).await.expect_err("a redirect");
    assert!(error.is_outcome_unknown(), "{error}");
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn the_providers_own_waiting_time_is_handed_on_to_whoever_orders() {
    let server = Server::start(vec![Turn::Answer(
        429,
        "retry-after: 12\r\n",
        String::new(),
    )])
    .await;
    let error = order(&server.http()).await.expect_err("too many calls");
    assert!(
        matches!(error, AdapterError::RateLimited { after } if after == Duration::from_secs(12)),
        "{error}"
    );
}

#[tokio::test]
async fn a_call_far_beyond_the_pace_is_handed_back_at_once() {
    let server = Server::start(vec![ok("{}"), ok("{}")]).await;
    let mut config = server.config();
    config.order_spacing = Duration::from_secs(12);
    let longest_wait = Duration::from_secs(5);
    config.longest_wait = longest_wait;
    let http = Http::live(config).expect("a connection");
    order(&http).await.expect("the first order");
    let start = Instant::now();
    let error = order(&http).await.expect_err("too early");
    assert!(matches!(error, AdapterError::RateLimited { .. }), "{error}");
    assert!(start.elapsed() < longest_wait, "it was waited for");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_body_without_end_is_cut_off() {
    let server = Server::start(vec![ok(&" ".repeat(MAX_BODY_BYTES + 1))]).await;
    let config = server.config();
    let error = read(&Http::live(config).expect("a connection"))
        .await
        .expect_err("too large");
    assert!(error.to_string().contains("larger"), "{error}");
}

#[tokio::test]
async fn the_credential_goes_to_the_provider_and_nowhere_else() {
    let echo = r#"{"detail": "bad key a-credential-4711", "input": {"user_data": "x"}}"#;
    let server = Server::start(vec![Turn::Answer(401, "", echo.into())]).await;
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = server.config();
    config.record_to = Some(directory.path().to_owned());
    let http = Http::live(config).expect("a connection");
    let error = read(&http).await.expect_err("a refusal");
    assert!(
        server.requests()[0]
            .to_ascii_lowercase()
            .contains("authorization: bearer a-credential-4711")
    );
    let recorded = std::fs::read_to_string(directory.path().join("0001-get-things.json"))
        .expect("a recording");
    for shown in [format!("{error} {error:?} {http:?}"), recorded] {
        assert!(!shown.contains("4711"), "{shown}");
        assert!(shown.contains("bad key"), "{shown}");
    }
}

#[tokio::test]
async fn what_was_recorded_can_be_replayed() {
    let server = Server::start(vec![
        ok(r#"{"price": 1.10, "count": 18446744073709551615}"#),
        ok("no json"),
    ])
    .await;
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = server.config();
    config.record_to = Some(directory.path().to_owned());
    let live = Http::live(config).expect("a connection");
    let first = read(&live).await.expect("an answer");
    read(&live).await.expect_err("no JSON");
    let replayed = Http::replay(directory.path()).expect("a recording");
    assert_eq!(read(&replayed).await.expect("an answer"), first);
    assert!(matches!(
        read(&replayed).await.expect_err("no JSON"),
        AdapterError::Unreadable { .. }
    ));
}

#[test]
fn production_never_talks_to_this_machine() {
    let profile = adapters::registry::all()[0].profile();
    let mut config = adapters::HttpConfig::of(profile, None);
    config.base_url = "http://127.0.0.1:8081".into();
    let error = Http::live(config).expect_err("loopback").to_string();
    assert!(error.contains("simulation"), "{error}");
}
