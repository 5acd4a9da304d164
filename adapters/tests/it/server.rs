//! A server on loopback that answers one connection after the other by its script.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapters::providers::lambda::Lambda;
use adapters::{Adapter, Http, HttpConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does with one request.
pub enum Turn {
    /// Answers with this status, these header lines and this body.
    Answer(u16, &'static str, String),
    /// Promises a longer body than it sends, then closes.
    CutShort,
    /// Reads the whole request and closes without an answer.
    Close,
    /// Reads the whole request and never answers.
    Hang,
}

/// A running script, and the requests that it received.
pub struct Server {
    /// Where it listens.
    pub url: String,
    hangs: bool,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server that plays these turns, then refuses everything with 404.
    pub async fn start(turns: Vec<Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!(
            "http://{}/api/v1",
            listener.local_addr().expect("an address")
        );
        let hangs = turns.iter().any(|turn| matches!(turn, Turn::Hang));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            let mut turns = turns.into_iter();
            let mut hanging = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                seen.lock().expect("no panic").push(request);
                match turns.next().unwrap_or(Turn::Answer(404, "", "{}".into())) {
                    Turn::Answer(status, headers, body) => {
                        answer(&mut stream, status, headers, &body, body.len()).await
                    }
                    Turn::CutShort => answer(&mut stream, 200, "", r#"{"data": {"inst"#, 400).await,
                    Turn::Close => {}
                    Turn::Hang => hanging.push(stream),
                }
            }
        });
        Self {
            url,
            hangs,
            requests,
        }
    }

    /// The requests so far: head and body.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }

    /// A connection to it.
    pub fn http(&self) -> Http {
        Http::live(self.config()).expect("a connection")
    }

    /// How to reach it. The timeout is short only where it never answers: a busy machine is slow to answer,
    /// too.
    pub fn config(&self) -> HttpConfig {
        let profile = Lambda.profile();
        HttpConfig {
            base_url: self.url.clone(),
            allow_loopback: true,
            timeout: Duration::from_secs(if self.hangs { 2 } else { 60 }),
            call_spacing: Duration::ZERO,
            order_spacing: Duration::ZERO,
            first_backoff: Duration::from_millis(1),
            ..HttpConfig::of(profile, Some("a-credential-4711".to_owned().into()))
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&read);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0_usize) {
                return text.into_owned();
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&read).into_owned(),
            Ok(count) => read.extend_from_slice(&chunk[..count]),
        }
    }
}

async fn answer(stream: &mut TcpStream, status: u16, headers: &str, body: &str, length: usize) {
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n"
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}
