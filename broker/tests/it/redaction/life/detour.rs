//! A provider that repeats to everybody what it received: the test leads adapters to it on demand, with a
//! credential of their own.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use adapters::{Adapter, AdapterError, Http, HttpConfig, Profile, Release};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::CatalogReading;
use market::order::{LeaseOrder, LeaseRef, ProviderLease};
use secrecy::SecretString;
use serde_json::json;
use tokio::sync::Notify;

use super::PANIC;

/// How a provider answers badly. All but the last repeat the whole request, its head and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Unauthorized,
    BadRequest,
    Broken,
    Redirect,
    Garbage,
    WrongType,
    Hang,
}

impl Reply {
    pub(super) const ALL: [Self; 7] = [
        Self::Unauthorized,
        Self::BadRequest,
        Self::Broken,
        Self::Redirect,
        Self::Garbage,
        Self::WrongType,
        Self::Hang,
    ];
}

struct State {
    reply: Mutex<Reply>,
    heard: AtomicUsize,
}

/// The provider. It ends when it is dropped.
pub(super) struct Echo {
    url: String,
    state: Arc<State>,
    server: ServerHandle,
}

impl Drop for Echo {
    fn drop(&mut self) {
        // The message is sent at once; the test need not wait for the end.
        drop(self.server.stop(false));
    }
}

impl Echo {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State {
            reply: Mutex::new(Reply::Unauthorized),
            heard: AtomicUsize::new(0),
        });
        let shared = web::Data::from(Arc::clone(&state));
        let server = HttpServer::new(move || {
            App::new()
                .app_data(shared.clone())
                .default_service(web::to(repeat))
        })
        .workers(1)
        .disable_signals()
        .listen(listener)
        .expect("listens")
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        Self {
            url,
            state,
            server: handle,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// From now on it answers so.
    pub(super) fn answer(&self, reply: Reply) {
        *self.state.reply.lock().expect("sound") = reply;
    }

    /// How many calls came.
    pub(super) fn heard(&self) -> usize {
        self.state.heard.load(Ordering::Relaxed)
    }
}

async fn repeat(request: HttpRequest, body: web::Bytes, state: web::Data<State>) -> HttpResponse {
    state.heard.fetch_add(1, Ordering::Relaxed);
    let reply = *state.reply.lock().expect("sound");
    let heads = request
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap_or_default()));
    let said = heads.collect::<String>() + &String::from_utf8_lossy(&body);
    let refusal = json!({ "error": { "code": "no", "message": said }, "message": said });
    match reply {
        Reply::Unauthorized => HttpResponse::Unauthorized().json(refusal),
        Reply::BadRequest => {
            HttpResponse::BadRequest().json(json!({ "detail": [{ "msg": said }] }))
        }
        Reply::Broken => HttpResponse::InternalServerError().body(said),
        Reply::Redirect => HttpResponse::TemporaryRedirect()
            .insert_header(("location", format!("/{}", said.replace(['\n', ' '], "/"))))
            .finish(),
        Reply::Garbage => HttpResponse::Ok().body(said),
        Reply::WrongType => HttpResponse::Ok().json(json!({
            "data": said, "results": said, "errors": [{ "message": said }], "gpus": said,
            "dataCenters": said, "pods": said,
        })),
        Reply::Hang => std::future::pending().await,
    }
}

/// The destinations of the adapters' calls, and their content.
#[derive(Default)]
pub(super) struct Road {
    astray: AtomicBool,
    river: AtomicBool,
    drowned: Notify,
    scripts: Mutex<Vec<String>>,
}

impl Road {
    /// From now on calls go to the echo, or to where they should.
    pub(super) fn lead_astray(&self, astray: bool) {
        self.astray.store(astray, Ordering::Relaxed);
    }

    /// From now on readers of a catalogue panic, or do not.
    pub(super) fn end_in_a_river(&self, river: bool) {
        self.river.store(river, Ordering::Relaxed);
    }

    /// Waits until somebody panicked.
    pub(super) async fn drowned(&self) {
        self.drowned.notified().await;
    }

    /// The one-time tokens of the nodes that were ordered.
    pub(super) fn tokens(&self) -> Vec<String> {
        let part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        let scripts = self.scripts.lock().expect("sound");
        let words = scripts
            .iter()
            .flat_map(|script| script.split(|letter| !part(letter)));
        let tokens: Vec<_> = words
            .filter(|word| word.starts_with("vt_"))
            .map(str::to_owned)
            .collect();
        assert!(tokens.len() >= scripts.len(), "a script without a token");
        tokens
    }
}

/// An adapter whose calls may be led astray.
pub(super) struct Detour {
    inner: &'static dyn Adapter,
    echo: Http,
    road: Arc<Road>,
}

impl Detour {
    /// Puts a detour before an adapter; like every adapter it lives as long as the process.
    pub(super) fn before(
        inner: &'static dyn Adapter,
        echo: &str,
        credential: &str,
        road: Arc<Road>,
    ) -> &'static dyn Adapter {
        let credential = SecretString::from(credential.to_owned());
        let echo = Http::live(HttpConfig {
            base_url: echo.to_owned(),
            allow_loopback: true,
            timeout: Duration::from_millis(300),
            call_spacing: Duration::ZERO,
            order_spacing: Duration::ZERO,
            read_attempts: 2,
            first_backoff: Duration::from_millis(1),
            ..HttpConfig::of(inner.profile(), Some(credential))
        });
        let echo = echo.expect("a connection");
        Box::leak(Box::new(Self { inner, echo, road }))
    }

    fn way<'a>(&'a self, straight: &'a Http) -> &'a Http {
        if self.road.astray.load(Ordering::Relaxed) {
            return &self.echo;
        }
        straight
    }
}

#[async_trait]
impl Adapter for Detour {
    fn profile(&self) -> &'static Profile {
        self.inner.profile()
    }

    async fn read_catalog(
        &self,
        http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        if self.road.river.load(Ordering::Relaxed) {
            self.road.drowned.notify_one();
            panic!("{PANIC}");
        }
        self.inner.read_catalog(self.way(http), now).await
    }

    async fn request_lease(
        &self,
        http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError> {
        let script = order.startup_script.clone();
        self.road.scripts.lock().expect("sound").push(script);
        self.inner.request_lease(self.way(http), order).await
    }

    async fn list_leases(&self, http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
        self.inner.list_leases(self.way(http)).await
    }

    async fn read_lease(
        &self,
        http: &Http,
        lease: &LeaseRef,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        self.inner.read_lease(self.way(http), lease).await
    }

    async fn release_lease(&self, http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
        self.inner.release_lease(self.way(http), lease).await
    }
}
