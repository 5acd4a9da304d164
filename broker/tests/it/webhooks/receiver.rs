//! A receiver of webhooks on this machine, and how one computes a signature without us.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::eventually::in_time;

/// A message as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) target: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        &found.expect("the header").1
    }
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    redirect: Option<String>,
    always: Option<(u16, String)>,
    /// How many messages more are answered 500.
    failures: usize,
    hangs: bool,
}

/// The receiver. It ends when it is dropped.
pub(crate) struct Receiver {
    port: u16,
    state: Arc<Mutex<State>>,
    came: Arc<Notify>,
    server: JoinHandle<()>,
}

impl Receiver {
    /// Starts a receiver that takes everything.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (state, came) = (Arc::<Mutex<State>>::default(), Arc::<Notify>::default());
        let (shared, rings) = (Arc::clone(&state), Arc::clone(&came));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared), Arc::clone(&rings)));
            }
        });
        Self {
            port,
            state,
            came,
            server,
        }
    }

    pub(crate) fn url(&self, target: &str) -> String {
        format!("http://127.0.0.1:{}{target}", self.port)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.lock().expect("sound").received.clone()
    }

    pub(crate) fn answer_always(&self, status: u16, body: &str) {
        self.state.lock().expect("sound").always = Some((status, body.to_owned()));
    }

    /// Answers the next messages, so many, with 500.
    pub(crate) fn fail_next(&self, messages: usize) {
        self.state.lock().expect("sound").failures = messages;
    }

    pub(super) fn redirect_once(&self, to: &str) {
        self.state.lock().expect("sound").redirect = Some(to.to_owned());
    }

    pub(super) fn hang(&self) {
        self.state.lock().expect("sound").hangs = true;
    }

    /// Waits until so many messages came.
    pub(super) async fn wait_for(&self, count: usize) {
        let enough = async {
            while self.received().len() < count {
                self.came.notified().await;
            }
        };
        in_time("the next message", enough).await;
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>, came: Arc<Notify>) {
    let Some(message) = read(&mut stream).await else {
        return;
    };
    let answer = {
        let mut state = state.lock().expect("sound");
        state.received.push(message);
        if state.hangs {
            None
        } else if let Some(to) = state.redirect.take() {
            Some((307, format!("location: {to}\r\n"), String::new()))
        } else if state.failures > 0 {
            state.failures -= 1;
            Some((500, String::new(), "not now".into()))
        } else {
            let (status, body) = state.always.clone().unwrap_or((200, "ok".into()));
            Some((status, String::new(), body))
        }
    };
    came.notify_one();
    let Some((status, headers, body)) = answer else {
        std::future::pending::<()>().await;
        return;
    };
    let length = match status {
        204 => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status} So\r\n{headers}{length}connection: close\r\n\r\n");
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let (mut bytes, mut part) = (Vec::new(), [0; 4_096]);
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&part[..count]),
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).expect("ASCII");
    let mut lines = head.lines();
    let request = lines.next().expect("a request line").to_owned();
    assert!(request.starts_with("POST "), "{request}");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.expect("a length").1.parse().expect("a number");
    let mut body = bytes[head_end + 4..].to_vec();
    while body.len() < length {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => body.extend_from_slice(&part[..count]),
        }
    }
    let target = request.split(' ').nth(1).expect("a target").to_owned();
    Some(Received {
        target,
        headers,
        body,
    })
}

/// The signature of a message, computed from the specification and RFC 2104 by hand.
pub(super) fn signature(secret: &str, id: &str, timestamp: i64, body: &[u8]) -> String {
    let encoded = secret.strip_prefix("whsec_").expect("the prefix");
    let secret = STANDARD.decode(encoded).expect("Base64");
    let mut key = [0_u8; 64];
    key[..secret.len()].copy_from_slice(&secret);
    let pad = |with: u8| key.map(|byte| byte ^ with);
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    let inner = Sha256::digest([&pad(0x36)[..], &signed].concat());
    let outer = Sha256::digest([&pad(0x5c)[..], &inner].concat());
    format!("v1,{}", STANDARD.encode(outer))
}
