//! The real command: its errors about a configuration, and its output while it serves.

use std::fs::{File, read_to_string};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Canaries, FORMS, canary};
use crate::echo::Echo;
use crate::eventually::{PATIENCE, output_of};
use crate::service::install_tls;

/// The command in a directory, with only these variables in its environment.
fn command(dir: &Path, form: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
    command
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .env("BROKER_LOG", form)
        .stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// A configuration that cannot work: its name, `broker.toml`, and the environment.
type Mistake = (&'static str, String, Vec<(&'static str, String)>);

fn mistakes(secret: &str) -> Vec<Mistake> {
    let toml = |name, text: String| (name, text, Vec::new());
    let env = |name, key, value: String| (name, String::new(), vec![(key, value)]);
    let provider = "[providers.lambda]\nenabled = true\n";
    vec![
        toml("an open quote", format!("[secrets]\nkey = \"{secret}")),
        toml("no quotes", format!("[secrets]\nkey = {secret}")),
        toml("a misspelt key", format!("[secrets]\nkee = \"{secret}\"")),
        toml("a list", format!("[secrets]\nkey = [\"{secret}\"]")),
        toml(
            "a table in place of a word",
            format!("[database.url]\nis = \"{secret}\""),
        ),
        toml("no sealing key", format!("[secrets]\nkey = \"{secret}\"")),
        toml("no such file", "[secrets]\nkey_file = \"nowhere\"".into()),
        toml(
            "a file that holds no key",
            "[secrets]\nkey_file = \"not-a-key\"".into(),
        ),
        toml(
            "nobody's adapter",
            format!("[providers.nobody]\nenabled = true\ncredential = \"{secret}\""),
        ),
        toml(
            "a credential for a list",
            format!("[providers]\nlambda = \"{secret}\""),
        ),
        toml(
            "a password in the address",
            format!(
                "{provider}credential = \"x\"\nbase_url = \"https://me:{secret}@lambda.example\""
            ),
        ),
        toml(
            "a key in the address",
            format!(
                "{provider}credential = \"x\"\nbase_url = \"https://lambda.example/?api_key={secret}\""
            ),
        ),
        toml(
            "an address on this machine",
            format!("{provider}credential = \"{secret}\"\nbase_url = \"http://127.0.0.1:1\""),
        ),
        env(
            "nobody at the database",
            "DATABASE_URL",
            format!("postgres://me:{secret}@127.0.0.1:1/broker"),
        ),
        env(
            "a port that is none",
            "DATABASE_URL",
            format!("postgres://me:{secret}@127.0.0.1:port/broker"),
        ),
        env(
            "an option that is none",
            "DATABASE_URL",
            format!("postgres://me:{secret}@127.0.0.1/b?sslmode={secret}"),
        ),
        env(
            "another database",
            "DATABASE_URL",
            format!("mysql://me:{secret}@127.0.0.1/broker"),
        ),
        env(
            "no address of a database",
            "DATABASE_URL",
            secret.to_owned(),
        ),
        env(
            "another Redis",
            "REDIS_URL",
            format!("memcached://me:{secret}@127.0.0.1"),
        ),
        env(
            "no address of Redis",
            "REDIS_URL",
            format!("redis://me:{secret}@127.0.0.1:port"),
        ),
        env(
            "half a sealing key",
            "BROKER__SECRETS__KEY",
            secret.to_owned(),
        ),
        env("an unknown word", "BROKER__SECRETS__KEE", secret.to_owned()),
        env(
            "an unknown section",
            "BROKER__SEKRETS__KEY",
            secret.to_owned(),
        ),
    ]
}

#[test]
fn a_configuration_that_is_refused_is_not_shown() {
    let mut canaries = Canaries::default();
    let secret = canary("config");
    canaries.add("a secret of the configuration", &secret);
    for (name, toml, environment) in mistakes(&secret) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("broker.toml"), toml).expect("a file");
        std::fs::write(dir.path().join("not-a-key"), &secret).expect("a file");
        for args in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["keys", "rotate"],
        ] {
            let mut command = command(dir.path(), "text", args);
            command.envs(environment.iter().map(|(key, value)| (key, value)));
            if args[0] == "serve" {
                let done = output_of(&mut command);
                let said = String::from_utf8_lossy(&done.stderr).into_owned();
                canaries.assert_absent(&format!("`serve` with {name}"), &said);
                assert_eq!(done.status.code(), Some(2), "{name}: {said}");
                assert!(said.contains("error: "), "{name}: {said}");
                continue;
            }
            // It may succeed: the mistake may be in a part that it does not use.
            let done = output_of(&mut command);
            for printed in [done.stdout, done.stderr] {
                let printed = String::from_utf8_lossy(&printed).into_owned();
                canaries.assert_absent(&format!("`keys` with {name}"), &printed);
            }
        }
    }
}

/// A service as a process that prints into files; it does not outlive its test.
struct Serving {
    child: Child,
    dir: TempDir,
}

impl Serving {
    fn start(dir: TempDir, mut command: Command) -> Self {
        let file = |name| File::create(dir.path().join(name)).expect("a file");
        let child = command
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .expect("it starts");
        Self { child, dir }
    }

    fn printed(&self) -> String {
        let text = |name| read_to_string(self.dir.path().join(name)).expect("text");
        text("stdout") + &text("stderr")
    }

    /// Waits until it has printed this, and returns the word that follows.
    fn told(&self, before: &str) -> String {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            let printed = self.printed();
            if let Some((_, after)) = printed.split_once(before)
                && let Some((word, _)) = after.split_once(' ')
            {
                return word.to_owned();
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("it did not print {before:?}: {}", self.printed());
    }

    fn end(&mut self) -> Option<i32> {
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("a shell").success());
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code();
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        panic!("it did not end: {}", self.printed());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It has ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_prints_no_secret_in_either_form_of_its_log() {
    install_tls();
    for form in FORMS {
        let dir = tempfile::tempdir().expect("a directory");
        let create = ["token", "create", "--tenant", "acme", "--role", "admin"];
        let made = output_of(&mut command(dir.path(), form, &create));
        let key = String::from_utf8(made.stdout)
            .expect("text")
            .trim_end()
            .to_owned();
        let mut canaries = Canaries::default();
        let (sealing, redis) = (hex::encode(rand::random::<[u8; 32]>()), canary("redis"));
        canaries.add("the sealing key", &sealing);
        canaries.add("the password of Redis", &redis);
        canaries.add("an API key", &key);
        canaries.assert_absent("`token create`", &String::from_utf8_lossy(&made.stderr));
        let args = ["serve", "--simulate", "--listen", "127.0.0.1:0"];
        let mut serve = command(dir.path(), form, &args);
        serve
            .env("BROKER__SECRETS__KEY", &sealing)
            .env("REDIS_URL", format!("redis://me:{redis}@127.0.0.1:1"));
        let mut serving = Serving::start(dir, serve);
        call(&serving.told("Serving at "), &key, &mut canaries).await;
        serving.told("Read the catalogue of ");
        assert_eq!(serving.end(), Some(0));
        let printed = serving.printed();
        for sign in ["TRACE", "DEBUG"] {
            assert!(printed.contains(sign), "{form}: {sign} was not captured");
        }
        canaries.assert_absent(&format!("the log in {form}"), &printed);
    }
}

/// Calls with keys and tokens, good and bad.
async fn call(url: &str, key: &str, canaries: &mut Canaries) {
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE);
    let client = client.build();
    let client = client.expect("a client");
    let post = async |path: &str, body: Value| -> Value {
        let asked = client
            .post(format!("{url}{path}"))
            .bearer_auth(key)
            .json(&body);
        let answer = asked.send().await.expect("an answer");
        answer.json().await.expect("JSON")
    };
    let token = client
        .post(format!("{url}/v1/tokens"))
        .bearer_auth(key)
        .send();
    let token: Value = token.await.expect("an answer").json().await.expect("JSON");
    let token = token["access_token"].as_str().expect("a token");
    canaries.add("a token", token);
    let hook = canary("hook");
    canaries.add("the address of a receiver", &hook);
    let endpoint = json!({ "url": format!("http://127.0.0.1:1/{hook}") });
    let made = post("/v1/webhook-endpoints", endpoint).await;
    canaries.add(
        "the secret of a webhook",
        made["secret"].as_str().expect("a secret"),
    );
    let test = format!(
        "/v1/webhook-endpoints/{}/test",
        made["id"].as_str().expect("an id")
    );
    let test = client
        .post(format!("{url}{test}"))
        .bearer_auth(token)
        .send();
    assert_eq!(test.await.expect("an answer").status(), 202);
    let echo = Echo::start(401).await;
    let credential = canary("credential");
    canaries.add("the credential of a provider", &credential);
    let entry = json!({ "id": "lambda", "credential": credential, "base_url": echo.url() });
    post("/v1/providers", entry).await;
    for status in [401, 404, 500] {
        echo.answer(status);
        let check = json!({ "credential": credential, "base_url": echo.url() });
        let checked = post("/v1/providers/lambda/check", check).await;
        assert_eq!(checked["ok"], false, "{checked}");
        canaries.assert_absent("a check", &checked.to_string());
    }
    assert!(echo.credentials().contains(&credential), "it was sent");
    let forged = format!("{key}x");
    let refused = client
        .get(format!("{url}/v1/reservations"))
        .bearer_auth(forged);
    assert_eq!(refused.send().await.expect("an answer").status(), 401);
}
