//! The client's behaviour when the service is busy, breaks off or is not there: a service of a few lines
//! plays that. The requests are kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::Shell;
use crate::eventually::in_time;

/// The service's answer to one request.
enum Does {
    /// Answers with a status, further headers and a body.
    Answer(u16, &'static str, Value),
    /// Streams this text of events, and ends.
    Stream(&'static str),
    /// Breaks off.
    Break,
}

/// A service that takes one request after the other and ends with its script; gives the requests.
async fn play(script: Vec<Does>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let played = tokio::spawn(async move {
        let mut asked = Vec::new();
        for does in script {
            let called = async {
                let (mut stream, _) = listener.accept().await.expect("a caller");
                let request = read_request(&mut stream).await;
                (stream, request)
            };
            let (mut stream, request) = in_time("the next request", called).await;
            asked.push(request);
            stream
                .write_all(does.as_http().as_bytes())
                .await
                .expect("written");
        }
        asked
    });
    (url, played)
}

impl Does {
    fn as_http(&self) -> String {
        match self {
            Self::Answer(status, headers, body) => {
                let body = body.to_string();
                let length = body.len();
                format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                )
            }
            Self::Stream(events) => format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n{events}"
            ),
            Self::Break => String::new(),
        }
    }
}

/// One request with its body, the names of its headers in small letters.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut piece = [0; 4_096];
    loop {
        let read = stream.read(&mut piece).await.expect("a request");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
        if read == 0 {
            return text;
        }
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = header(head, "content-length")
                .map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                return text;
            }
        }
    }
}

fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    request
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once(": "))
        .find(|(field, _)| field.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

fn problem(code: &str) -> Value {
    json!({ "code": code, "detail": "not just now", "request_id": "req-7" })
}

const ID: &str = "rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718";

fn reservation(state: &str) -> Value {
    json!({ "id": ID, "state": state, "history": [], "leases": [], "lines": [] })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_is_asked_for_again_under_the_same_key_until_it_is_answered() {
    let (url, played) = play(vec![
        Does::Answer(503, "retry-after: 0\r\n", problem("busy")),
        Does::Break,
        Does::Answer(429, "retry-after: 0\r\n", problem("rate_limited")),
        Does::Answer(201, "", reservation("held")),
    ])
    .await;
    let shell = Shell::new()
        .with("BROKER_URL", &url)
        .with("BROKER_KEY", "gpb_k");
    assert_eq!(shell.json("reserve --gpu A10").await["id"], ID);
    let asked = played.await.expect("played");
    let key = header(&asked[0], "idempotency-key").expect("a key");
    for request in &asked {
        assert!(
            request.starts_with("POST /v1/reservations HTTP/1.1"),
            "{request}"
        );
        assert_eq!(header(request, "idempotency-key"), Some(key));
        assert_eq!(header(request, "authorization"), Some("Bearer gpb_k"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_fate_is_unknown_says_how_to_repeat_it_safely() {
    let (url, played) = play((0..5).map(|_| Does::Break).collect()).await;
    let shell = Shell::new()
        .with("BROKER_URL", &url)
        .with("BROKER_KEY", "gpb_k");
    let ended = shell.run("reserve --gpu A10 --idempotency-key mine").await;
    assert!(
        ended.sentence(1).contains("--idempotency-key mine"),
        "{ended:?}"
    );
    played.await.expect("played");
    let away = shell.run("offers").await;
    assert!(away.sentence(1).contains("broker serve"), "{away:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_too_long_is_told_instead() {
    let refusal = Does::Answer(429, "retry-after: 3600\r\n", problem("rate_limited"));
    let (url, played) = play(vec![refusal]).await;
    let shell = Shell::new()
        .with("BROKER_URL", &url)
        .with("BROKER_KEY", "gpb_k");
    let ended = shell.run("offers").await;
    let told = ended.sentence(1);
    assert!(
        told.contains("try again in 3600 s") && told.contains("(rate_limited, req-7)"),
        "{told}"
    );
    played.await.expect("played");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_redirect_is_followed_and_the_key_of_a_profile_goes_to_its_own_service_alone() {
    let token = json!({ "access_token": "e30.e30.x" });
    let (mine, played) = play(vec![Does::Answer(201, "", token)]).await;
    let shell = Shell::new();
    let login = shell
        .run_reading("gpb_k", &format!("login --server {mine}"))
        .await;
    assert_eq!(login.status, Some(0), "{login:?}");
    played.await.expect("played");

    let (other, played) = play(vec![Does::Answer(
        307,
        "location: http://192.0.2.1/v1/offers\r\n",
        Value::Null,
    )])
    .await;
    let ended = shell.run(&format!("offers --server {other}")).await;
    assert!(ended.sentence(1).contains("status 307"), "{ended:?}");
    let asked = played.await.expect("played");
    assert_eq!(header(&asked[0], "authorization"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_looks_when_it_is_told_and_takes_the_stream_up_where_it_broke_off() {
    let (url, played) = play(vec![
        Does::Stream(": hello\n\nid: 7\nevent: lease.booting\ndata: {}\n\n"),
        Does::Answer(200, "", reservation("confirmed")),
        Does::Answer(200, "", reservation("provisioning")),
        Does::Stream("id: 8\nevent: reservation.active\ndata: {}\n\n"),
        Does::Answer(200, "", reservation("active")),
    ])
    .await;
    let shell = Shell::new()
        .with("BROKER_URL", &url)
        .with("BROKER_KEY", "gpb_k");
    let watched = shell.run(&format!("watch {ID}")).await;
    assert_eq!(watched.status, Some(0), "{watched:?}");
    assert!(watched.stdout.contains("provisioning"), "{watched:?}");
    let asked = played.await.expect("played");
    let events = format!("GET /v1/reservations/{ID}/events HTTP/1.1");
    assert!(
        asked[0].starts_with(&events) && asked[3].starts_with(&events),
        "{asked:?}"
    );
    assert_eq!(header(&asked[0], "accept"), Some("text/event-stream"));
    assert_eq!(header(&asked[0], "last-event-id"), None);
    assert_eq!(header(&asked[3], "last-event-id"), Some("7"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_a_stream_is_looked_at_each_second() {
    let (url, played) = play(vec![
        Does::Answer(404, "", problem("route_not_found")),
        Does::Answer(200, "", reservation("confirmed")),
        Does::Answer(200, "", reservation("active")),
    ])
    .await;
    let shell = Shell::new()
        .with("BROKER_URL", &url)
        .with("BROKER_KEY", "gpb_k");
    assert_eq!(shell.json(&format!("watch {ID}")).await["state"], "active");
    played.await.expect("played");
}

/// What sets the title of a terminal, rings it and clears it.
const HOSTILE: &str = "a\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}z";

/// The text that a command printed, of which nothing may steer a terminal.
#[track_caller]
fn harmless(ended: &super::Ended) -> &str {
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let is_plain = |c: char| c == '\n' || !c.is_control();
    assert!(ended.stdout.chars().all(is_plain), "{ended:?}");
    assert!(ended.stdout.contains("]0;title"), "{ended:?}");
    &ended.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_an_answer_steers_the_terminal() {
    let claims = json!({
        "tenant": HOSTILE, "role": "member", "sub": "key_1", "scopes": { HOSTILE: "read" },
    });
    let token = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let projects = json!({ "items": [{ "name": HOSTILE }] });
    let report = json!({
        "id": "nrp_1", "node": 0, "lease_id": "lse_1", "verdict": "fail", "failed": [HOSTILE],
        "follows": "repair",
    });
    let (url, played) = play(vec![
        Does::Answer(201, "", json!({ "access_token": token })),
        Does::Answer(200, "", projects),
        Does::Answer(201, "", report),
    ])
    .await;
    let shell = Shell::new()
        .with("BROKER_URL", &url)
        .with("BROKER_KEY", "gpb_k")
        .with("COLUMNS", "60");
    let who = shell.run("whoami").await;
    assert_eq!(harmless(&who).matches("]0;title").count(), 3, "{who:?}");
    let reported = shell
        .run(&format!("report node {ID} 0 --reason slow"))
        .await;
    let next = format!("\nNext: broker watch {ID}\n");
    assert!(harmless(&reported).ends_with(&next), "{reported:?}");
    played.await.expect("played");
}
