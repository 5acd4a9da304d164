//! Events over HTTP: the list, the stream, and how a stream is taken up again.

use broker::tenant::event_streams::STREAMS_PER_TENANT;
use chrono::TimeDelta;
use market::event::EventType;
use market::identity::Role;
use market::ids::TenantId;
use reqwest::header::{ACCEPT, AUTHORIZATION};
use serde_json::{Value, json};
use store::events::NewEvent;

use crate::eventually::in_time;
use crate::service::{Key, Service, hold};

/// A stream of events as its reader sees it.
pub(crate) struct Stream {
    response: reqwest::Response,
    text: String,
}

/// One event of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Sent {
    id: u64,
    kind: String,
    pub(crate) data: Value,
}

impl Stream {
    pub(crate) async fn open(
        service: &Service,
        bearer: &str,
        path: &str,
        last: Option<u64>,
    ) -> Self {
        let response = ask(service, bearer, path, last).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["cache-control"], "no-store");
        let text = String::new();
        Self { response, text }
    }

    /// The next event; `None` when the stream ends.
    pub(crate) async fn next(&mut self) -> Option<Sent> {
        // In all: the signs that a stream is open come for ever.
        let event = async {
            loop {
                let block = self.next_block().await?;
                if block.starts_with("id:") {
                    return Some(read(&block));
                }
            }
        };
        in_time("the next event", event).await
    }

    /// The next event, comment or advice, as it is sent; `None` when the stream ends.
    async fn next_block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let chunk = in_time("something on the stream", self.response.chunk()).await;
            let chunk = chunk.ok().flatten()?;
            self.text
                .push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }
}

impl Stream {
    /// Whether it ends as the service wants it to, and not by a connection that is cut.
    async fn ends_uncut(mut self) -> bool {
        loop {
            match in_time("the end of the stream", self.response.chunk()).await {
                Ok(Some(_)) => {}
                ended => return ended.is_ok(),
            }
        }
    }
}

fn read(block: &str) -> Sent {
    let field = |name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the field").trim().to_owned()
    };
    assert_eq!(block.lines().count(), 3, "{block}");
    Sent {
        id: field("id:").parse().expect("a number"),
        kind: field("event:"),
        data: serde_json::from_str(&field("data:")).expect("JSON"),
    }
}

async fn ask(service: &Service, bearer: &str, path: &str, last: Option<u64>) -> reqwest::Response {
    let client = reqwest::Client::builder().no_proxy().build();
    let url = format!("{}{path}", service.world.base_url());
    let mut request = client
        .expect("a client")
        .get(url)
        .header(AUTHORIZATION, format!("Bearer {bearer}"))
        .header(ACCEPT, "text/event-stream")
        // A browser offers this; events must not wait for a block to compress.
        .header("accept-encoding", "gzip");
    if let Some(last) = last {
        request = request.header("last-event-id", last.to_string());
    }
    in_time("an answer", request.send())
        .await
        .expect("an answer")
}

/// Lets something happen to a tenant.
async fn happen(service: &Service, tenant: TenantId, numbers: std::ops::Range<u64>) {
    let broker = service.world.broker();
    let new: Vec<_> = numbers
        .map(|number| NewEvent {
            kind: EventType::WebhookTest,
            reservation_id: None,
            data: json!({ "number": number, "text": "two\nlines" }),
        })
        .collect();
    let events = broker.store().events().of(tenant);
    events.append(&new, broker.now()).await.expect("appended");
    broker.ring_events();
}

async fn listed(service: &Service, key: &Key, path: &str) -> Vec<Value> {
    let page = service.with(key).get(path).await.expect(200);
    page["items"].as_array().expect("items").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_reads_what_happened_to_it_in_order_page_by_page_and_nobody_else_does() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let other = service.key("other", Role::Member).await;
    let (first, second) = (hold(&service, &key).await, hold(&service, &key).await);
    let confirm = format!("/v1/reservations/{first}/confirm");
    let confirmed = service.with(&key).send("POST", &confirm, None).await;
    confirmed.expect(200);

    let events = listed(&service, &key, "/v1/events").await;
    let told: Vec<_> = events
        .iter()
        .map(|event| (event["sequence"].as_u64(), event["type"].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Some(1), Some("reservation.held")),
            (Some(2), Some("reservation.held")),
            (Some(3), Some("reservation.confirmed")),
        ]
    );
    assert_eq!(events[2]["reservation_id"], first.as_str());
    assert_eq!(events[2]["data"]["previous_state"], "held");
    let of_second = format!("/v1/reservations/{second}/events");
    assert_eq!(
        listed(&service, &key, &of_second).await,
        [events[1].clone()]
    );
    assert_eq!(
        listed(
            &service,
            &key,
            "/v1/events?since=1&types=reservation.held,lease.gone"
        )
        .await,
        [events[1].clone()]
    );
    let mut seen = Vec::new();
    let mut path = "/v1/events?limit=1".to_owned();
    loop {
        let page = service.with(&key).get(&path).await.expect(200);
        seen.extend(page["items"].as_array().expect("items").clone());
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/v1/events?limit=1&cursor={cursor}");
    }
    assert_eq!(seen, events);

    assert!(listed(&service, &other, "/v1/events").await.is_empty());
    let theirs = service.with(&other);
    theirs.get(&of_second).await.refused(404, "not_found");
    theirs.get(&path).await.refused(422, "invalid_cursor");
    let viewer = service.key("acme", Role::Viewer).await;
    assert_eq!(listed(&service, &viewer, "/v1/events").await.len(), 3);
    let provider = service.key("acme", Role::Provider).await;
    let refused = service.with(&provider).get("/v1/events").await;
    refused.refused(403, "access_denied");
    for (path, code) in [
        ("/v1/events?types=lease.bored", "invalid_parameter"),
        ("/v1/events?since=-1", "invalid_parameter"),
        ("/v1/events?since=9007199254740992", "invalid_parameter"),
        ("/v1/events?limit=201", "invalid_parameter"),
    ] {
        service.with(&key).get(path).await.refused(422, code);
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_taken_up_again_loses_nothing_and_repeats_nothing() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Viewer).await;
    let other = service.key("other", Role::Viewer).await;
    happen(&service, key.tenant, 0..3).await;
    let mut stream = Stream::open(&service, &key.secret, "/v1/events?since=1", None).await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(stream.next().await.expect("what was there"));
    }
    happen(&service, other.tenant, 0..5).await;
    happen(&service, key.tenant, 3..5).await;
    for _ in 0..2 {
        seen.push(stream.next().await.expect("what happens meanwhile"));
    }
    drop(stream);
    // More than are read at once.
    happen(&service, key.tenant, 5..255).await;
    let last = seen.last().map(|sent| sent.id);
    let path = "/v1/events?since=0";
    let mut stream = Stream::open(&service, &key.secret, path, last).await;
    for _ in 5..255 {
        seen.push(stream.next().await.expect("what was missed"));
    }
    let ids: Vec<u64> = seen.iter().map(|sent| sent.id).collect();
    assert_eq!(ids, (2..=255).collect::<Vec<_>>());
    for sent in &seen {
        assert_eq!(sent.kind, "webhook.test");
        assert_eq!(sent.data["sequence"], sent.id);
        assert_eq!(sent.data["data"]["number"], sent.id - 1);
        assert_eq!(sent.data["data"]["text"], "two\nlines");
    }
    let first = &listed(&service, &key, "/v1/events?since=1&limit=1").await[0];
    assert_eq!(&seen[0].data, first, "the same in the list");
    let nonsense = ask(&service, &key.secret, path, None).await;
    assert_eq!(nonsense.status(), 200);
    let header = service
        .with(&key)
        .header("accept", "text/event-stream")
        .header("last-event-id", "x");
    let refused = header.get("/v1/events").await;
    refused.refused(422, "invalid_parameter");
    let list = service.with(&key).header("last-event-id", "x");
    let refused = list.get("/v1/events").await;
    refused.refused(422, "invalid_parameter");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_on_which_nothing_happens_says_that_it_still_stands() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Viewer).await;
    let mut stream = Stream::open(&service, &key.secret, "/v1/events", None).await;
    let hello = stream.next_block().await.expect("a beginning");
    assert_eq!(hello, ": events\nretry: 2000");
    // By real time, as the connection is; proxies on the way cut connections by real time too.
    let silence = stream.next_block().await.expect("a comment");
    assert_eq!(silence, ": still here");
    happen(&service, key.tenant, 0..1).await;
    assert_eq!(stream.next().await.map(|sent| sent.id), Some(1));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_reservation_tells_of_it_alone() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let (first, second) = (hold(&service, &key).await, hold(&service, &key).await);
    let path = format!("/v1/reservations/{second}/events");
    let mut stream = Stream::open(&service, &key.secret, &path, None).await;
    let held = stream.next().await.expect("its hold");
    assert_eq!(held.data["reservation_id"], second.as_str());
    for id in [&first, &second] {
        let cancel = format!("/v1/reservations/{id}/cancel");
        let cancelled = service.with(&key).send("POST", &cancel, None).await;
        cancelled.expect(200);
    }
    let closed = stream.next().await.expect("its end");
    assert_eq!(closed.kind, "reservation.closed");
    assert_eq!(closed.data["reservation_id"], second.as_str());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_the_life_of_its_credential() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Admin).await;
    let doomed = service.key("acme", Role::Viewer).await;
    let traded = service.with(&key).send("POST", "/v1/tokens", None).await;
    let token = traded.expect(201)["access_token"]
        .as_str()
        .expect("a token")
        .to_owned();
    let mut of_key = Stream::open(&service, &key.secret, "/v1/events", None).await;
    let mut of_token = Stream::open(&service, &token, "/v1/events", None).await;
    let mut of_doomed = Stream::open(&service, &doomed.secret, "/v1/events", None).await;
    let revoke = format!("/v1/api-keys/{}", doomed.id);
    assert_eq!(service.with(&key).delete(&revoke).await.status, 204);
    service.world.clock().advance(TimeDelta::minutes(20));
    happen(&service, key.tenant, 0..1).await;
    assert_eq!(of_token.next().await, None, "its fifteen minutes are over");
    assert_eq!(of_doomed.next().await, None, "its key is revoked");
    let sent = of_key.next().await.expect("the key still stands");
    assert_eq!(sent.id, 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_so_many_streams_and_a_service_that_stops_ends_them_all() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Viewer).await;
    let other = service.key("other", Role::Viewer).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS_PER_TENANT {
        streams.push(Stream::open(&service, &key.secret, "/v1/events", None).await);
    }
    let refused = service
        .with(&key)
        .header("accept", "text/event-stream")
        .get("/v1/events")
        .await;
    refused.refused(429, "too_many_streams");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(service.with(&key).get("/v1/events").await.status, 200);
    streams.push(Stream::open(&service, &other.secret, "/v1/events", None).await);
    // A stream that holds up the end is cut at last, and does not end by itself.
    in_time("the end of the service", service.stop()).await;
    for stream in streams {
        assert!(stream.ends_uncut().await, "a stream held up the end");
    }
}
