//! `broker serve` as a process: it prints its address, answers, and ends when it is asked to.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Ended, Place};
use crate::eventually::PATIENCE;
use crate::service::install_tls;

/// A child process whose stderr is read as it comes; it does not outlive its test.
pub(super) struct Running {
    child: Child,
    stderr: Arc<Mutex<String>>,
    lines: mpsc::Receiver<String>,
}

impl Running {
    pub(super) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let (sender, lines) = mpsc::channel();
        let stderr = Arc::new(Mutex::new(String::new()));
        let reader = BufReader::new(child.stderr.take().expect("stderr"));
        let kept = Arc::clone(&stderr);
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                let mut kept = kept.lock().expect("nobody panics with it");
                kept.push_str(&line);
                kept.push('\n');
                drop(kept);
                // Nobody waits for lines any more once the test has found its line.
                let _ = sender.send(line);
            }
        });
        Self {
            child,
            stderr,
            lines,
        }
    }

    /// Waits for a line that contains this, and returns the text after it up to white space.
    pub(super) fn told(&self, before: &str) -> String {
        let started = Instant::now();
        while let Some(left) = PATIENCE.checked_sub(started.elapsed()) {
            let line = self
                .lines
                .recv_timeout(left)
                .expect("it tells before it ends");
            if let Some((_, after)) = line.split_once(before) {
                return after
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
            }
        }
        panic!("it did not tell {before:?} in time: {}", self.stderr());
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stderr(&self) -> String {
        self.stderr.lock().expect("nobody panics with it").clone()
    }

    /// Asks it to end by a signal, as a terminal or a service manager does, and waits for the end.
    pub(super) fn end_by(mut self, signal: &str) -> Ended {
        let kill = format!("kill -{signal} {}", self.child.id());
        let sent = Command::new("sh")
            .args(["-c", &kill])
            .status()
            .expect("a shell");
        assert!(sent.success());
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait().expect("a child") {
                Some(status) => break status,
                None => assert!(
                    started.elapsed() < PATIENCE,
                    "it did not end: {}",
                    self.stderr()
                ),
            }
            std::thread::yield_now();
            std::thread::park_timeout(Duration::from_millis(20));
        };
        let mut stdout = String::new();
        let mut printed = self.child.stdout.take().expect("stdout");
        printed.read_to_string(&mut stdout).expect("UTF-8");
        Ended {
            status: status.code(),
            stdout,
            stderr: self.stderr(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until the answer is as wanted.
pub(super) async fn ask_until(
    url: &str,
    key: Option<&str>,
    wanted: impl Fn(u16, &Value) -> bool,
) -> Value {
    install_tls();
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(PATIENCE)
        .build()
        .expect("a client");
    let started = Instant::now();
    loop {
        let mut request = client.get(url);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.expect("JSON");
        if wanted(status, &body) {
            return body;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{url} still answers {status}: {body}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(super) fn simulated(place: &Place) -> Running {
    let args = [
        "serve",
        "--simulate",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        "db",
    ];
    Running::start(place.command(args))
}

#[tokio::test(flavor = "multi_thread")]
async fn serve_answers_a_key_of_token_create_and_ends_with_status_0() {
    let place = Place::new();
    let key = place
        .broker(["token", "create", "--tenant", "acme", "--data-dir", "db"])
        .stdout;
    let key = key.trim_end();
    let serving = simulated(&place);
    let url = serving.told("Serving at ");
    ask_until(&format!("{url}/healthz"), None, |status, _| status == 200).await;
    let offers = ask_until(&format!("{url}/v1/offers?limit=5"), None, |status, body| {
        status == 200
            && body["items"]
                .as_array()
                .is_some_and(|items| !items.is_empty())
    })
    .await;
    assert_eq!(offers["items"][0]["orderable"], true);
    let mine = ask_until(&format!("{url}/v1/reservations"), Some(key), |status, _| {
        status == 200
    })
    .await;
    assert_eq!(mine["items"], serde_json::json!([]));
    let forged = format!("{}x", &key[..key.len() - 1]);
    ask_until(
        &format!("{url}/v1/reservations"),
        Some(&forged),
        |status, _| status == 401,
    )
    .await;

    let ended = serving.end_by("INT");
    assert_eq!(
        (ended.status, ended.stdout.as_str()),
        (Some(0), ""),
        "{}",
        ended.stderr
    );
    assert!(
        !ended.stderr.contains(key) && !ended.stderr.contains(&forged),
        "{}",
        ended.stderr
    );

    // The mode of a database is settled for good.
    let production = place.broker(["serve", "--listen", "127.0.0.1:0", "--data-dir", "db"]);
    assert_eq!(production.status, Some(2), "{production:?}");
    let why = production.stderr.lines().last().expect("a sentence");
    assert!(
        why.contains("made for simulation") && why.contains("use another database"),
        "{why}"
    );
}

#[test]
fn serve_ends_with_status_0_when_a_service_manager_asks_it_to() {
    let place = Place::new();
    let serving = simulated(&place);
    serving.told("Serving at ");
    assert_eq!(serving.end_by("TERM").status, Some(0));
}

#[test]
fn an_address_that_is_taken_or_none_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken
        .local_addr()
        .map(|at| (taken, at.to_string()))
        .expect("an address");
    let place = Place::new();
    for command in [&["serve", "--listen"], &["demo", "--listen"]] {
        for address in [taken.1.as_str(), "nonsense", "127.0.0.1:99999"] {
            let ended = place.broker(command.iter().copied().chain([address]));
            let sentence = ended.refused();
            assert!(
                sentence.contains(address) && sentence.contains("--listen"),
                "{sentence}"
            );
        }
    }
    assert_eq!(
        std::fs::read_dir(place.path())
            .expect("the directory")
            .count(),
        0,
        "nothing is written"
    );
}
