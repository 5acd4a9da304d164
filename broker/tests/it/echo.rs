//! A provider that refuses every request, and repeats the request in its answer.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// It listens until it is dropped.
pub(crate) struct Echo {
    url: String,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    status: AtomicU16,
    credentials: Mutex<Vec<String>>,
}

impl Echo {
    /// Answers with this status.
    pub(crate) async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            status: AtomicU16::new(status),
            credentials: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        Self {
            url: format!("http://{address}"),
            state,
            task,
        }
    }

    /// From now on answers with this status.
    pub(crate) fn answer(&self, status: u16) {
        self.state.status.store(status, Ordering::Relaxed);
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The credentials that were shown since the last look.
    pub(crate) fn credentials(&self) -> Vec<String> {
        std::mem::take(&mut self.state.credentials.lock().expect("not poisoned"))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the one request of a connection. Ignores a client that hangs up.
async fn answer(mut stream: TcpStream, state: Arc<State>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let credential = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let shown = name.eq_ignore_ascii_case("authorization");
        shown.then(|| value.trim_start_matches("Bearer ").to_owned())
    });
    let body = serde_json::json!({ "error": { "code": "no", "message": head } }).to_string();
    let answer = format!(
        "HTTP/1.1 {} No\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        state.status.load(Ordering::Relaxed),
        body.len()
    );
    let credentials = &state.credentials;
    credentials.lock().expect("not poisoned").extend(credential);
    let _ = stream.write_all(answer.as_bytes()).await;
}
