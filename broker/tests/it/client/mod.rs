//! The client, from outside: the real binary as a child process against the real server, with a
//! home of its own and a clean environment.

mod bad_input;
mod fabric;
mod faults;
mod json;
mod login;
mod recheck;
mod report;
mod ssh;
mod walk;
pub(crate) mod width;

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::eventually::in_time;
use crate::service::{Key, Service};

/// A user at a shell: a home, and their environment.
struct Shell {
    home: TempDir,
    environment: Vec<(&'static str, String)>,
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Shell {
    fn new() -> Self {
        Self {
            home: tempfile::tempdir().expect("a directory"),
            environment: Vec::new(),
        }
    }

    /// A user who has set a service and a key in the environment.
    fn of(service: &Service, key: &Key) -> Self {
        Self::new()
            .with("BROKER_URL", service.world.base_url())
            .with("BROKER_KEY", &key.secret)
    }

    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Writes a file into the home and gives its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    fn profiles(&self) -> PathBuf {
        self.home.path().join(".config/gpu-broker/profiles.toml")
    }

    /// Starts a command given as one line; words are separated by white space.
    fn start(&self, line: &str) -> Child {
        Command::new(env!("CARGO_BIN_EXE_broker"))
            .args(line.split_whitespace())
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the command starts")
    }

    /// Starts a command on a terminal of its own, which shows its standard output; `None` where no terminal
    /// can be made, unless one is required.
    fn start_on_a_terminal(&self, line: &str) -> Option<Child> {
        let command = format!("{} {line}", env!("CARGO_BIN_EXE_broker"));
        let child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .current_dir(self.home.path())
            .env_clear()
            .env("HOME", self.home.path())
            .env("TERM", "xterm")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        if let Err(error) = &child {
            let required = std::env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
            assert!(
                !required,
                "REQUIRE_SERVICES=1, but `script` does not start: {error}"
            );
            eprintln!("skipped: needs `script` for what a terminal shows: {error}");
        }
        child.ok()
    }

    /// Runs a command to its end.
    async fn run(&self, line: &str) -> Ended {
        self.run_reading("", line).await
    }

    /// Runs a command to its end with a text on its standard input.
    async fn run_reading(&self, text: &str, line: &str) -> Ended {
        let mut child = self.start(line);
        let mut stdin = child.stdin.take().expect("standard input");
        // A command that wants no input may be gone already.
        let _ = stdin.write_all(text.as_bytes()).await;
        drop(stdin);
        ended(child).await
    }

    /// Runs a command that must succeed, and returns its output.
    async fn told(&self, line: &str) -> String {
        let ended = self.run(line).await;
        assert_eq!(ended.status, Some(0), "{line}: {ended:?}");
        ended.stdout
    }

    /// Runs a command with `--json` that must succeed, and gives its one document.
    async fn json(&self, line: &str) -> Value {
        self.run(&format!("{line} --json")).await.json(0)
    }
}

/// Waits for a command to end.
async fn ended(child: Child) -> Ended {
    let output = in_time("the end of the command", child.wait_with_output()).await;
    let output = output.expect("the command ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Ended {
        status: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

impl Ended {
    /// The one document on stdout of a command that ended like this.
    #[track_caller]
    fn json(&self, status: i32) -> Value {
        assert_eq!(self.status, Some(status), "{self:?}");
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).expect("JSON")
    }

    /// The one sentence on stderr of a command that ended like this.
    #[track_caller]
    fn sentence(&self, status: i32) -> &str {
        assert_eq!(self.status, Some(status), "{self:?}");
        let sentence = self.stderr.trim_end();
        assert!(
            sentence.starts_with("error: ") && !sentence.contains('\n'),
            "{sentence}"
        );
        sentence
    }
}
