//! The load: connections that are kept open, each one call after the other, on a thread of its own.
//!
//! It writes the same bytes each time and reads no more of an answer than its end: a client that did more
//! would be measured itself.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How many bytes are read at once.
const CHUNK: usize = 64 * 1024;
/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A call, and how many make it at once.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) request: Arc<[u8]>,
    pub(super) connections: NonZeroUsize,
}

/// How the calls went.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// How long each took. Units: microseconds.
    pub(super) micros: Vec<u32>,
    /// How long all took.
    pub(super) took: Duration,
}

impl Measured {
    /// Answers in a second.
    pub(super) fn rate(&self) -> f64 {
        self.micros.len() as f64 / self.took.as_secs_f64()
    }
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The headers that a server does not write by itself.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Load {
    /// Calls for so long.
    ///
    /// Errors: any answer that is not a success.
    pub(super) async fn run(
        &self,
        address: SocketAddr,
        long: Duration,
    ) -> anyhow::Result<Measured> {
        let load = self.clone();
        let (done, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let measured = runtime
                .map_err(anyhow::Error::from)
                .and_then(|runtime| runtime.block_on(load.call(address, long)));
            // Nobody listens any more when the measurement was given up.
            let _ = done.send(measured);
        });
        ended.await.context("the load broke off")?
    }

    async fn call(self, address: SocketAddr, long: Duration) -> anyhow::Result<Measured> {
        let mut callers = JoinSet::new();
        let began = Instant::now();
        for _ in 0..self.connections.get() {
            let request = Arc::clone(&self.request);
            callers.spawn(async move {
                let mut line = Line::open(address).await?;
                let mut micros = Vec::new();
                while began.elapsed() < long {
                    let asked = Instant::now();
                    line.ask(&request).await?;
                    micros.push(u32::try_from(asked.elapsed().as_micros()).unwrap_or(u32::MAX));
                }
                anyhow::Ok(micros)
            });
        }
        let mut micros = Vec::new();
        while let Some(ended) = callers.join_next().await {
            micros.extend(ended??);
        }
        Ok(Measured {
            micros,
            took: began.elapsed(),
        })
    }
}

/// Calls once, and keeps the answer.
pub(super) async fn ask(address: SocketAddr, request: &[u8]) -> anyhow::Result<Answer> {
    let mut line = Line::open(address).await?;
    let end = line.ask(request).await?;
    let head = String::from_utf8_lossy(&line.read[..end]).into_owned();
    let body = line.read[end..].to_vec();
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let by_server = |name: &str| {
        ["content-length", "date", "connection"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
    };
    Ok(Answer {
        status: status.context("an answer without a status")?,
        headers: headers
            .filter(|(name, _)| !by_server(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body,
    })
}

/// A connection that is kept open, with the answer last read.
struct Line {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Line {
    async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            read: Vec::with_capacity(CHUNK),
        })
    }

    /// Calls and reads the answer to its end; gives where its body begins.
    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<usize> {
        self.stream.write_all(request).await?;
        self.read.clear();
        tokio::time::timeout(PATIENCE, self.read_answer())
            .await
            .context("an answer took longer than 10 s")?
    }

    async fn read_answer(&mut self) -> anyhow::Result<usize> {
        let mut ends: Option<(usize, usize)> = None;
        loop {
            self.read.reserve(CHUNK);
            let more = self.stream.read_buf(&mut self.read).await?;
            ensure!(more > 0, "the connection was closed within an answer");
            if ends.is_none() {
                ends = self.ends()?;
            }
            if let Some((body, end)) = ends.filter(|(_, end)| self.read.len() >= *end) {
                ensure!(self.read.len() == end, "more came than was asked for");
                return Ok(body);
            }
        }
    }

    /// Where the body begins and ends, once the head was read.
    fn ends(&self) -> anyhow::Result<Option<(usize, usize)>> {
        let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let body = at + 4;
        let head = std::str::from_utf8(&self.read[..at]).context("a head that is not text")?;
        if !head.starts_with("HTTP/1.1 2") {
            bail!("the answer was {}", head.lines().next().unwrap_or_default());
        }
        let length = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .and_then(|(_, value)| value.parse::<usize>().ok())
            .context("an answer without a length")?;
        Ok(Some((body, body + length)))
    }
}
