//! The HTTP client of our own API: one call, retried where that is safe, and its reply.

use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use market::ids::TenantId;
use reqwest::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::connection::Connection;
use super::problem::{CallError, Problem};
use super::route::{Route, Target};
use crate::terminal::ending::Ending;

/// The most attempts of one call.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt; each later pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// A longer pause is reported to the user instead.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The timeout of one reply.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call takes before the terminal shows progress.
const QUIET: Duration = Duration::from_millis(400);
/// How often the progress line moves.
const TICK: Duration = Duration::from_millis(120);
/// The largest page of a list.
const PAGE: &str = "200";

/// Makes a write idempotent.
#[derive(Debug, Clone, Args)]
pub(super) struct OnceArgs {
    /// Repeats an earlier command under its key instead of doing it a second time; by default, a new
    /// key is generated.
    #[arg(long, value_name = "KEY", value_parser = parse_once_key)]
    idempotency_key: Option<String>,
}

impl OnceArgs {
    /// The key of this invocation.
    pub(super) fn key(&self) -> String {
        self.idempotency_key
            .clone()
            .unwrap_or_else(|| uuid::Uuid::now_v7().to_string())
    }
}

fn parse_once_key(text: &str) -> Result<String, String> {
    if (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err("must be 1 to 255 characters of plain ASCII without spaces".to_owned())
}

/// A reply: the document as text, and as a value.
#[derive(Debug, Clone, Default)]
pub(super) struct Document {
    /// The text that the service sent.
    pub(super) text: String,
    /// The parsed JSON; `null` if the text is not JSON.
    pub(super) value: Value,
}

/// One call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    target: Target,
    query: Vec<(String, String)>,
    body: Option<Value>,
    once: Option<String>,
}

impl From<Target> for Call {
    fn from(target: Target) -> Self {
        Self {
            target,
            query: Vec::new(),
            body: None,
            once: None,
        }
    }
}

impl Call {
    /// With query parameters; empty ones are left out.
    pub(super) fn query<'a>(
        mut self,
        query: impl IntoIterator<Item = (&'a str, Option<String>)>,
    ) -> Self {
        let said = query.into_iter();
        self.query
            .extend(said.filter_map(|(name, value)| Some((name.to_owned(), value?))));
        self
    }

    /// With a body.
    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Sends this idempotency key, so that the service does the call once.
    pub(super) fn once(mut self, key: String) -> Self {
        self.once = Some(key);
        self
    }

    /// Whether a second call changes nothing. A plan or a token is created again each time, at no
    /// cost.
    fn is_repeatable(&self) -> bool {
        let route = self.target.route;
        self.once.is_some()
            || route.method() == "GET"
            || matches!(route, Route::MakePlan | Route::TradeToken)
    }
}

/// A service, called with a key.
pub(super) struct Api {
    http: reqwest::Client,
    server: String,
    key: Option<SecretString>,
    tenant: Option<TenantId>,
    is_hushed: bool,
}

impl Api {
    /// A client of the service. It follows no redirect: the key is for this service alone.
    pub(super) fn new(connection: &Connection, tenant: Option<TenantId>) -> Result<Self, Ending> {
        let mut http = reqwest::Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("gpu-broker/", env!("CARGO_PKG_VERSION")));
        if connection.server.is_loopback() {
            http = http.no_proxy();
        }
        Ok(Self {
            http: http.build()?,
            server: connection.server.to_string(),
            key: connection.key.clone(),
            tenant,
            is_hushed: false,
        })
    }

    /// Shows no progress from here on: the caller shows its own.
    pub(super) fn hush(&mut self) {
        self.is_hushed = true;
    }

    /// Makes the call and parses its JSON.
    pub(super) async fn send(&self, call: impl Into<Call>) -> Result<Document, CallError> {
        let text = self.text(call).await?;
        match serde_json::from_str(&text) {
            Ok(value) => Ok(Document { text, value }),
            Err(_) => Err(CallError::NotJson {
                server: self.server.clone(),
            }),
        }
    }

    /// Makes the call and returns the raw body.
    pub(super) async fn text(&self, call: impl Into<Call>) -> Result<String, CallError> {
        let call = call.into();
        let mut tried = 0;
        loop {
            tried += 1;
            let outcome = self
                .wait("waiting for the service", self.attempt(&call))
                .await;
            let Some(pause) = outcome
                .as_ref()
                .err()
                .and_then(|error| pause_before_retry(error, &call, tried))
            else {
                return outcome;
            };
            let told = format!(
                "the service is busy or unavailable; trying again in {:.1} s",
                pause.as_secs_f32()
            );
            self.wait(&told, tokio::time::sleep(pause)).await;
        }
    }

    /// A list: one page, or all of them joined.
    pub(super) async fn list(&self, call: Call, all: bool) -> Result<Document, CallError> {
        if !all {
            return self.send(call).await;
        }
        let mut call = call.query([("limit", Some(PAGE.to_owned()))]);
        let first = call.query.len();
        let mut items = Vec::new();
        loop {
            let mut page = self.send(call.clone()).await?.value;
            if let Some(more) = page["items"].as_array_mut() {
                items.append(more);
            }
            let Some(cursor) = page["next_cursor"].as_str() else {
                break;
            };
            call.query.truncate(first);
            call = call.query([("cursor", Some(cursor.to_owned()))]);
        }
        let value = json!({ "items": items, "next_cursor": null });
        Ok(Document {
            text: value.to_string(),
            value,
        })
    }

    /// Opens a stream of events after the last one read; `None` if the service has none.
    pub(super) async fn stream(
        &self,
        target: Target,
        last_event_id: Option<&str>,
    ) -> Result<Option<Response>, CallError> {
        let mut request = self
            .request(&target.into())
            .header(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = request
            .send()
            .await
            .map_err(|source| self.failed(source, None))?;
        let kind = response.headers().get(CONTENT_TYPE);
        let streams = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        Ok(Some(response).filter(|response| response.status() == 200 && streams))
    }

    /// Waits, and shows progress on a terminal once it takes long.
    async fn wait<T>(&self, told: &str, work: impl Future<Output = T>) -> T {
        if self.is_hushed {
            return work.await;
        }
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => done,
            () = tokio::time::sleep(QUIET) => {
                let bar = spinner(told);
                let done = work.await;
                bar.finish_and_clear();
                done
            }
        }
    }

    async fn attempt(&self, call: &Call) -> Result<String, CallError> {
        let failed = |source| self.failed(source, call.once.clone());
        let request = self.request(call).timeout(ANSWER_TIMEOUT);
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let text = response.text().await.map_err(failed)?;
        if status.is_success() {
            return Ok(text);
        }
        let problem = Problem::read(status.as_u16(), retry_after, &text);
        Err(CallError::Refused(problem))
    }

    fn request(&self, call: &Call) -> reqwest::RequestBuilder {
        let route = call.target.route;
        // The table holds only valid methods.
        let method = Method::from_bytes(route.method().as_bytes()).unwrap_or(Method::GET);
        let url = format!("{}{}", self.server, call.target.path);
        let mut request = self.http.request(method, url);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key.expose_secret());
        }
        if let Some(once) = &call.once {
            request = request.header("Idempotency-Key", once);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let tenant = self.tenant.map(|tenant| ("tenant", tenant.to_string()));
        request.query(&call.query).query(tenant.as_slice())
    }

    fn failed(&self, source: reqwest::Error, repeat: Option<String>) -> CallError {
        // The error already names the address, and a query may hold too much for a log.
        let source = source.without_url();
        let server = self.server.clone();
        if source.is_connect() {
            CallError::Unreachable { server, source }
        } else {
            CallError::Broken {
                server,
                repeat,
                source,
            }
        }
    }
}

/// The pause before the next attempt; `None` if there is none.
fn pause_before_retry(error: &CallError, call: &Call, tried: u32) -> Option<Duration> {
    let usual = FIRST_PAUSE * 2_u32.pow(tried.saturating_sub(1));
    let pause = match error {
        CallError::Unreachable { .. } => usual,
        CallError::Broken { .. } if call.is_repeatable() => usual,
        CallError::Refused(problem)
            if matches!(problem.status, 429 | 503) || problem.code == "idempotency_in_progress" =>
        {
            problem.retry_after.unwrap_or(usual)
        }
        _ => return None,
    };
    (tried < ATTEMPTS && pause <= LONGEST_PAUSE).then_some(pause)
}

/// A spinner on stderr; hidden if stderr is no terminal.
fn spinner(told: &str) -> ProgressBar {
    let bar = ProgressBar::new_spinner()
        .with_style(style("{spinner} {wide_msg}"))
        .with_message(told.to_owned());
    bar.enable_steady_tick(TICK);
    bar
}

/// A bar on stderr with progress and elapsed time; hidden if stderr is no terminal.
pub(super) fn progress_bar() -> ProgressBar {
    let style = style("{spinner} [{bar:20}] {elapsed_precise} {wide_msg}").progress_chars("=> ");
    let bar = ProgressBar::new(1).with_style(style);
    bar.enable_steady_tick(TICK);
    bar
}

fn style(template: &str) -> ProgressStyle {
    // Templates are valid constants.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, code: &str, after: Option<u64>) -> CallError {
        let body = json!({ "code": code, "detail": "x" }).to_string();
        CallError::Refused(Problem::read(status, after.map(Duration::from_secs), &body))
    }

    fn call(route: Route) -> Call {
        route.all().into()
    }

    #[test]
    fn a_busy_service_is_asked_again_when_it_says_and_an_answer_of_no_is_taken() {
        let place = call(Route::PlaceReservation).once("k".into());
        let pause = |error: &CallError, tried| pause_before_retry(error, &place, tried);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(pause(&refused(429, "rate_limited", Some(7)), 1), seconds(7));
        assert_eq!(pause(&refused(503, "busy", None), 2), Some(FIRST_PAUSE * 2));
        assert_eq!(
            pause(&refused(409, "idempotency_in_progress", Some(1)), 1),
            seconds(1)
        );
        assert_eq!(pause(&refused(409, "capacity_taken", None), 1), None);
        assert_eq!(pause(&refused(500, "internal", None), 1), None);
        assert_eq!(
            pause(&refused(429, "rate_limited", Some(3_600)), 1),
            None,
            "too long to wait"
        );
        assert_eq!(
            pause(&refused(503, "busy", Some(1)), ATTEMPTS),
            None,
            "often enough"
        );
    }

    #[test]
    fn what_could_spend_twice_is_not_repeatable_without_a_key() {
        assert!(call(Route::ListOffers).is_repeatable());
        assert!(call(Route::MakePlan).is_repeatable());
        assert!(!call(Route::PlaceReservation).is_repeatable());
        assert!(!call(Route::DeleteSshKey).is_repeatable());
        assert!(
            call(Route::PlaceReservation)
                .once("k".into())
                .is_repeatable()
        );
    }

    #[test]
    fn each_invocation_has_a_key_of_its_own_unless_it_repeats_one() {
        let made = OnceArgs {
            idempotency_key: None,
        };
        assert_ne!(made.key(), made.key());
        let told = OnceArgs {
            idempotency_key: Some("again".into()),
        };
        assert_eq!(told.key(), "again");
        for bad in ["", "a b", "\u{e9}", &"x".repeat(256)] {
            assert!(parse_once_key(bad).is_err(), "{bad:?}");
        }
    }
}
