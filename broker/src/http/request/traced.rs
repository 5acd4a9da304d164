//! The span of a request, as a collector receives it.

use std::net::SocketAddr;

use actix_web::test::TestRequest;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{debug_span, info, subscriber, trace_span};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry;

use super::*;
use crate::platform::spans;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
/// A text of the caller's request that no collector may see.
const CANARY: &str = "gpb_canary7f3a";

/// A collector that takes one batch, and the bytes that it received.
async fn collector() -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let taken = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a caller");
        let mut read = Vec::new();
        while !is_whole(&read) {
            let more = stream.read_buf(&mut read).await.expect("bytes");
            assert!(more > 0, "a request that broke off");
        }
        let answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("sent");
        read
    });
    (address, taken)
}

fn is_whole(read: &[u8]) -> bool {
    let Some(at) = find(read, b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&read[..at]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    read.len() - (at + 4) >= length.unwrap_or(0_usize)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_a_span_of_its_callers_trace_and_so_are_the_calls_it_leads_to() {
    // Fails when it is in place already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (address, taken) = collector().await;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("http://{address}/v1/traces"))
        .build()
        .expect("an exporter");
    let provider = spans::provider(exporter);
    let told = subscriber::with_default(registry().with(spans::exported(&provider)), || {
        let request = TestRequest::post()
            .uri(&format!("/v1/plans?key={CANARY}"))
            .insert_header(("traceparent", format!("00-{TRACE}-{PARENT}-01")))
            .insert_header(("authorization", format!("Bearer {CANARY}")))
            .insert_header(("user-agent", CANARY))
            .insert_header(("x-forwarded-for", "198.51.100.7"))
            .to_srv_request();
        let known = RequestFacts {
            id: Arc::from("req-1"),
            route: Arc::default(),
        };
        span(&request, &known).in_scope(|| {
            let credential = secrecy::SecretString::from(CANARY);
            info!(?credential, "logged on the way");
            let of_a_library = trace_span!(target: "hyper", "of_a_library");
            of_a_library.in_scope(|| debug_span!("provider_call").in_scope(spans::traceparent))
        })
    });
    assert_eq!(spans::traceparent(), None, "outside of any span");
    let told = told.expect("a trace header");
    let parts: Vec<_> = told.split('-').collect();
    assert_eq!(
        (parts[0], parts[1], parts[3]),
        ("00", TRACE, "01"),
        "{told}"
    );
    assert_ne!(parts[2], PARENT, "the call has a span of its own");

    let handed_over = tokio::task::spawn_blocking(move || provider.shutdown());
    handed_over.await.expect("no panic").expect("handed over");
    let sent = taken.await.expect("a batch");
    assert!(sent.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
    let raw = |digits: &str| hex::decode(digits).expect("hexadecimal digits");
    for (wanted, what) in [
        (raw(TRACE), "the caller's trace"),
        (raw(PARENT), "the caller's span, as the parent"),
        (raw(parts[2]), "the span of the call"),
        (b"provider_call".to_vec(), "its name"),
        (b"POST".to_vec(), "the name of the request's span"),
        (b"logged on the way".to_vec(), "what was logged on it"),
        (b"gpu-broker".to_vec(), "who sends it"),
    ] {
        assert!(find(&sent, &wanted).is_some(), "{what} is not in the batch");
    }
    for (unwanted, what) in [
        ("of_a_library", "a library's span"),
        (
            CANARY,
            "a credential, a query or what a caller calls itself",
        ),
        ("198.51.100.7", "a caller's address"),
    ] {
        let found = find(&sent, unwanted.as_bytes());
        assert!(found.is_none(), "{what} is in the batch");
    }
}
