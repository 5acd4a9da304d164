//! A whole life with a canary in every secret that the service holds, in a process of its own whose
//! log is kept down to `trace`: logins, rotations, reservations whose nodes fail and pass,
//! providers that echo what they were sent, webhooks, bad bodies, a task that panics. Then every
//! log, answer, event, message, audit entry and column is searched.

mod bad_bodies;
mod detour;
mod planted;
mod search;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use broker::flow::{fulfil, ingest, reconcile};
use broker::platform::background::Background;
use broker::platform::keys;
use broker::tenant::{spending, webhooks};
use broker::tools::simulation::SimulatedMarketOptions;
use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};
use store::signing_keys::KeyPurpose;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Canaries, FORMS, canary};
use crate::eventually::in_time;
use crate::oidc::issuer::{Issuer, Kind, Signer};
use crate::service::{Answer, Caller, Key, SSH_LINE, Service, usual_world};
use crate::webhooks::receiver::Receiver;
use detour::{Detour, Echo, Reply, Road};

/// The directory that the process of the life writes into; its presence makes it that process.
const DIRECTORY: &str = "REDACTION_LIFE";
const NAME: &str = "redaction::life::a_whole_life_shows_no_secret";
const PANIC: &str = "the detour ends in a river";
/// The provider that is entered in the middle of the life; the others are connected from its start.
const LATER: Provider = Provider::RUNPOD;

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_life_shows_no_secret() {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        return live(&PathBuf::from(dir)).await;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| File::create(dir.path().join(name)).expect("a file");
    let status = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", NAME, "--nocapture"])
        .env(DIRECTORY, dir.path())
        .env("RUST_BACKTRACE", "full")
        .stdin(Stdio::null())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .status()
        .expect("it runs");
    let read = |name: &str| {
        let bytes = std::fs::read(dir.path().join(name)).expect("a file");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let stderr = read("stderr");
    assert!(status.success(), "{}{stderr}", read("stdout"));
    assert!(stderr.contains(PANIC), "nothing panicked: {stderr}");
    let canaries: Canaries = serde_json::from_str(&read("canaries")).expect("canaries");
    for name in ["stdout", "stderr", FORMS[0], FORMS[1]] {
        canaries.assert_absent(name, &read(name));
    }
    let (text, lines) = (read(FORMS[0]), read(FORMS[1]));
    for sign in ["TRACE", "panicked: the detour", "Disabled the webhook"] {
        assert!(text.contains(sign), "{sign} is not in the log");
    }
    assert!(lines.lines().count() > 1_000, "the log is cut short");
}

/// Keeps the log of this process in both forms, down to its smallest line.
fn keep_the_log(dir: &Path) {
    let file = |name: &str| Arc::new(File::create(dir.join(name)).expect("a file"));
    tracing_subscriber::registry()
        .with(fmt::layer().with_ansi(false).with_writer(file(FORMS[0])))
        .with(fmt::layer().json().with_writer(file(FORMS[1])))
        .init();
}

/// All texts sent to anybody, and where.
#[derive(Default)]
struct Heard(Vec<(String, String)>);

impl Heard {
    /// Calls, and keeps the answer to be searched.
    async fn ask(&mut self, caller: &Caller<'_>, call: &str, body: Option<Value>) -> Answer {
        let answer = ask(caller, call, body).await;
        let head = format!("{:?}\n", answer.headers);
        self.0.push((call.to_owned(), head + &answer.text));
        answer
    }
}

/// Calls; the answer is shown this once.
async fn ask(caller: &Caller<'_>, call: &str, body: Option<Value>) -> Answer {
    let (method, path) = call.split_once(' ').expect("a method and a path");
    let body = body.map(|body| ("application/json", body.to_string().into_bytes()));
    caller.send(method, path, body).await
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

struct Life {
    service: Service,
    road: Arc<Road>,
    echo: Echo,
    secrets: Canaries,
    heard: Heard,
    member: Key,
    admin: Key,
    scraper: String,
}

/// Lives the whole life, searches everything that this process can see, and leaves the canaries behind.
async fn live(dir: &Path) {
    keep_the_log(dir);
    let mut secrets = Canaries::default();
    let signer = Signer::new(Kind::EdDsa, "ed");
    let issuer = Issuer::start(std::slice::from_ref(&signer)).await;
    let echo = Echo::start();
    let road = Arc::<Road>::default();
    let store = planted::database(&mut secrets).await;
    let (planted, scraper) = planted::configuration(&mut secrets, issuer.config());
    let wrap = {
        let (road, url) = (Arc::clone(&road), echo.url().to_owned());
        let credential = canary("echoed");
        secrets.add("the credential of a provider that echoes it", &*credential);
        move |adapter| Detour::before(adapter, &url, &credential, Arc::clone(&road))
    };
    let service = Service::start_as(SimulatedMarketOptions {
        store,
        configure: Box::new(planted),
        wrap: Box::new(wrap),
        unconnected: vec![LATER],
        call_timeout: Duration::from_secs(5),
        ..usual_world()
    })
    .await;
    for provider in Provider::DEMONSTRATION {
        let credential = service.world.simulator().credential(provider);
        secrets.add(&format!("the credential of {provider}"), credential);
    }
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("operators", Role::Admin).await;
    for key in [&member, &admin] {
        secrets.add("an API key", &*key.secret);
    }
    let mut life = Life {
        service,
        road,
        echo,
        secrets,
        heard: Heard::default(),
        member,
        admin,
        scraper,
    };
    life.log_in(&signer, &issuer).await;
    life.rotate().await;
    let receivers = life.subscribe().await;
    let used = life.buy().await;
    life.meet_bad_providers().await;
    life.connect().await;
    life.deliver(&receivers).await;
    life.send_bad_bodies().await;
    life.panic().await;
    life.end(&used).await;
    life.read_everything(&used).await;
    planted::note_signing_keys(&mut life).await;
    planted::reseal(&mut life).await;
    life.search(&receivers).await;
    let canaries = serde_json::to_string(&life.secrets).expect("JSON");
    std::fs::write(dir.join("canaries"), canaries).expect("a file");
    life.service.stop().await;
}

impl Life {
    /// Tokens: good, forged, for nobody; of ours and of an outside issuer.
    async fn log_in(&mut self, signer: &Signer, issuer: &Issuer) {
        let caller = self.service.with(&self.member);
        let traded = ask(&caller, "POST /v1/tokens", None).await.expect(201);
        let token = text(&traded["access_token"]);
        let now = self.service.world.broker().now().timestamp();
        let mut claims = json!({
            "iss": issuer.name(), "aud": "broker", "sub": "ada", "exp": now + 86_400, "iat": now,
            "org": "acme-corp", "realm_access": { "roles": ["gpu-user"] },
        });
        let login = signer.sign(&claims);
        claims["org"] = "nobody".into();
        let nobody = signer.sign(&claims);
        let forged = format!("{}x", self.member.secret);
        for (what, bearer, status) in [
            ("a token", token, 200),
            ("a login", login, 200),
            ("a login of nobody", nobody, 403),
            ("a forged key", forged, 401),
            ("no key at all", canary("guess"), 401),
            (
                "a key of this shape",
                format!("gpb_{}", canary("guess")),
                401,
            ),
        ] {
            self.secrets.add(what, &*bearer);
            let caller = self.service.bearer(&bearer);
            let answer = self.heard.ask(&caller, "GET /v1/reservations", None).await;
            assert_eq!(answer.status, status, "{what}: {}", answer.text);
        }
    }

    /// Keys of callers and of the service itself are followed by others.
    async fn rotate(&mut self) {
        let broker = self.service.world.broker();
        let sealing = planted::sealing_key(&self.secrets);
        for purpose in [KeyPurpose::Token, KeyPurpose::Attestation] {
            let rotated = keys::rotate(broker.store(), &sealing, purpose, broker.now()).await;
            rotated.expect("another key");
        }
        let caller = self.service.with(&self.member).once("make-a-key");
        let ask_for = json!({ "name": "ci", "role": "viewer" });
        let made = ask(&caller, "POST /v1/api-keys", Some(ask_for.clone())).await;
        let made = made.expect(201);
        self.secrets
            .add("a key made by call", text(&made["secret"]));
        // The second answer shows the key no more.
        let again = self.heard.ask(&caller, "POST /v1/api-keys", Some(ask_for));
        assert_eq!(again.await.expect(201)["secret"], Value::Null);
        let rotate = format!("POST /v1/api-keys/{}/rotate", self.member.id);
        let caller = self.service.with(&self.member).once("rotate-a-key");
        // The first key serves on for longer than this life.
        let overlap = json!({ "overlap_seconds": 2_592_000 });
        let next = ask(&caller, &rotate, Some(overlap)).await.expect(201);
        self.secrets
            .add("a key that follows", text(&next["secret"]));
    }

    /// One endpoint that takes everything, one that never does, one that wants nothing more.
    async fn subscribe(&mut self) -> Vec<Receiver> {
        let mut receivers = Vec::new();
        for (status, body) in [(200, "thanks"), (500, "no"), (410, "gone")] {
            let receiver = Receiver::start().await;
            receiver.answer_always(status, body);
            let place = canary("hook");
            let url = receiver.url(&format!("/{place}?token={place}"));
            self.secrets.add_address("a place of a receiver", place);
            let once = format!("receiver-{status}");
            let caller = self.service.with(&self.member).once(&once);
            let body = json!({ "url": url });
            let made = ask(&caller, "POST /v1/webhook-endpoints", Some(body.clone())).await;
            let made = made.expect(201);
            self.secrets
                .add("the secret of a webhook", text(&made["secret"]));
            let again = self
                .heard
                .ask(&caller, "POST /v1/webhook-endpoints", Some(body));
            again.await.expect(201);
            let rotate = format!("POST /v1/webhook-endpoints/{}/rotate", text(&made["id"]));
            let caller = self.service.with(&self.member);
            let rotated = ask(&caller, &rotate, None).await.expect(200);
            self.secrets
                .add("the next secret of a webhook", text(&rotated["secret"]));
            receivers.push(receiver);
        }
        receivers
    }

    /// A machine that fails its verification and one that takes its place; gives the reservation.
    async fn buy(&mut self) -> String {
        let caller = self.service.with(&self.member);
        let key = json!({ "name": "laptop", "public_key": SSH_LINE });
        self.heard
            .ask(&caller, "POST /v1/ssh-keys", Some(key))
            .await
            .expect(201);
        let plan = self
            .heard
            .ask(&caller, "POST /v1/plans", Some(machine()))
            .await
            .expect(201);
        let quote = json!({ "plan_id": plan["id"] });
        let quote = self
            .heard
            .ask(&caller, "POST /v1/quotes", Some(quote))
            .await
            .expect(201);
        let take = json!({ "quote_id": quote["id"] });
        let once = self.service.with(&self.member).once("reserve");
        for _ in 0..2 {
            let held = self
                .heard
                .ask(&once, "POST /v1/reservations", Some(take.clone()));
            held.await.expect(201);
        }
        let held = self
            .heard
            .ask(&caller, "GET /v1/reservations", None)
            .await
            .expect(200);
        let id = text(&held["items"][0]["id"]);
        let simulator = self.service.world.simulator();
        let fault = Fault::new(Provider::LAMBDA, FaultKind::MissingGpu);
        simulator.break_next(fault).expect("a fault that fits");
        let confirm = format!("POST /v1/reservations/{id}/confirm");
        self.heard.ask(&caller, &confirm, None).await.expect(200);
        self.until(&id, "active").await;
        id
    }

    /// Advances the clock until the reservation is in this state.
    async fn until(&mut self, id: &str, state: &str) {
        let show = format!("GET /v1/reservations/{id}");
        for _ in 0..48 {
            let turned = self.service.world.live_on(TimeDelta::minutes(5)).await;
            turned.expect("the clock turns");
            let caller = self.service.with(&self.member);
            let now = self.heard.ask(&caller, &show, None).await.expect(200);
            if now["state"] == state {
                return;
            }
        }
        panic!("{id} did not become {state}: {:?}", self.heard.0.last());
    }

    /// Every provider repeats the request in its answer, in each way to answer badly, and hangs; first when
    /// its catalogue is read, then when machines are ordered of it.
    async fn meet_bad_providers(&mut self) {
        for reply in Reply::ALL {
            self.echo.answer(reply);
            self.road.lead_astray(true);
            let failures = self.service.world.read_providers().await;
            assert_eq!(
                failures.len(),
                Provider::DEMONSTRATION.len() - 1,
                "{reply:?}: {failures:?}"
            );
            let swept = reconcile::sweep(self.service.world.broker()).await;
            swept.expect("the database answers");
            self.road.lead_astray(false);
            self.service.world.read_providers().await;
            let caller = self.service.with(&self.member);
            let order = json!({ "demand": machine(), "auto_confirm": true });
            let placed = self
                .heard
                .ask(&caller, "POST /v1/reservations", Some(order))
                .await;
            let id = text(&placed.expect(201)["id"]);
            self.road.lead_astray(true);
            let worked = fulfil::work_until_idle(self.service.world.broker()).await;
            worked.expect("the database answers");
            let show = format!("GET /v1/reservations/{id}");
            for look in ["GET /v1/providers", show.as_str()] {
                self.heard.ask(&caller, look, None).await.expect(200);
            }
            self.road.lead_astray(false);
            let cancel = format!("POST /v1/reservations/{id}/cancel");
            self.heard.ask(&caller, &cancel, None).await;
            self.until(&id, "closed").await;
        }
        assert!(
            self.echo.heard() > 3 * Reply::ALL.len(),
            "nobody was led astray"
        );
        for token in self.road.tokens() {
            self.secrets.add("the one-time token of a node", token);
        }
    }

    /// A provider is entered: its credential is refused at first, then taken, tried again and nearly
    /// changed.
    async fn connect(&mut self) {
        let url = self.service.world.simulator().url(LATER);
        let good = self.service.world.simulator().credential(LATER);
        let wrong = canary("wrong");
        self.secrets
            .add("a credential that a provider refuses", &*wrong);
        let entry =
            |credential: &str| json!({ "id": LATER, "credential": credential, "base_url": url });
        let check = json!({ "credential": wrong, "base_url": url });
        let path = format!("/v1/providers/{LATER}");
        for (call, body, status) in [
            ("POST /v1/providers", entry(&wrong), 422),
            ("POST /v1/providers", entry(&good), 201),
            ("POST /v1/providers", entry(&good), 409),
            (&format!("POST {path}/check"), check, 200),
            (&format!("POST {path}/check"), json!({}), 200),
            (
                &format!("PATCH {path}"),
                json!({ "credential": wrong }),
                422,
            ),
            (&format!("PATCH {path}"), json!({ "credential": good }), 200),
            (&format!("GET {path}"), Value::Null, 200),
        ] {
            let caller = self.service.with(&self.admin);
            let body = Some(body).filter(|body| !body.is_null());
            let answer = self.heard.ask(&caller, call, body).await;
            assert_eq!(answer.status, status, "{call}: {}", answer.text);
            let caught_up = ingest::catch_up(self.service.world.broker()).await;
            caught_up.expect("the database answers");
        }
        let failures = self.service.world.read_providers().await;
        assert!(failures.is_empty(), "{failures:?}");
    }

    /// Sends the due messages until nobody is waited for any more.
    async fn deliver(&mut self, receivers: &[Receiver]) {
        for _ in 0..12 {
            let done = webhooks::deliver_due(self.service.world.broker()).await;
            done.expect("the database answers");
            self.service.world.clock().advance(TimeDelta::hours(25));
        }
        for receiver in receivers {
            assert!(!receiver.received().is_empty(), "nothing was sent");
        }
        self.service.world.read_providers().await;
    }

    /// A task of the background panics with a provider's connection in its hands.
    async fn panic(&mut self) {
        let broker = self.service.world.broker();
        self.road.end_in_a_river(true);
        let mut work = Background::of(broker);
        work.add("drowning", |broker, stop| async move {
            ingest::read_all(&broker).await;
            stop.cancelled().await;
        });
        in_time("the panic", self.road.drowned()).await;
        work.stop().await;
        self.road.end_in_a_river(false);
        self.service.world.read_providers().await;
        let watched = spending::watch(self.service.world.broker()).await;
        watched.expect("the database answers");
    }

    /// The reservations in use are released.
    async fn end(&mut self, used: &str) {
        let caller = self.service.with(&self.member);
        let access = format!("GET /v1/reservations/{used}/access");
        self.heard.ask(&caller, &access, None).await.expect(200);
        let release = format!("POST /v1/reservations/{used}/release");
        self.heard.ask(&caller, &release, None).await.expect(200);
        self.until(used, "closed").await;
    }
}

/// One small machine.
fn machine() -> Value {
    json!({
        "kind": "gpus", "gpu": "A10", "count": 1,
        "policy": { "allow_providers": ["lambda"] },
    })
}
