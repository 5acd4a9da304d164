//! Calls a provider: spacing, retries of reads, limits on time and size, recording.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use rand::Rng;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use secrecy::ExposeSecret as _;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, debug_span, warn};

use super::exchange::Exchange;
use super::pace::Pace;
use super::token::TokenKeeper;
use super::{
    Answer, Call, HttpConfig, MAX_BODY_BYTES, Purpose, Reply, guard, judge, no_clean_answer, redact,
};
use crate::auth::{Auth, Credential, Unsigned};
use crate::error::AdapterError;

/// The longest `Retry-After` of a provider that we accept.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// How long we extrapolate the provider's last clock reading.
const LONGEST_SHOWN: Duration = Duration::from_secs(900);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A live connection.
#[derive(Debug)]
pub(super) struct Live {
    config: HttpConfig,
    client: reqwest::Client,
    base: String,
    /// `None` where calls are made without one.
    credential: Option<Credential>,
    tokens: TokenKeeper,
    calls: Pace,
    orders: Pace,
    recorded: AtomicU64,
    /// The provider's clock in its last answer, and when that was.
    shown: Mutex<Option<(DateTime<Utc>, Instant)>>,
}

impl Live {
    pub(super) fn open(config: HttpConfig) -> Result<Self, AdapterError> {
        let base = guard::check_base_url(&config.base_url, config.allow_loopback)?;
        let credential = config.credential.as_ref();
        let credential = credential.map(|text| Credential::read(config.fields, text));
        // Fails when another provider of cryptography is already installed, which works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT.min(config.timeout))
            .timeout(config.timeout)
            .user_agent(concat!("gpu-broker/", env!("CARGO_PKG_VERSION")));
        if base.host_str().is_some_and(guard::is_loopback_name) {
            // A simulation needs neither a proxy nor the roots of this machine, which may be absent.
            builder = builder.no_proxy().tls_certs_only([]);
        }
        if !config.allow_loopback {
            builder = builder.dns_resolver(Arc::new(guard::RemoteOnly));
        }
        let client = builder
            .build()
            .map_err(|error| AdapterError::BadConnection(error.without_url().to_string()))?;
        Ok(Self {
            client,
            base: base.as_str().trim_end_matches('/').to_owned(),
            credential: credential.transpose()?,
            tokens: TokenKeeper::default(),
            calls: Pace::new(config.call_spacing),
            orders: Pace::new(config.order_spacing),
            recorded: AtomicU64::new(1),
            shown: Mutex::default(),
            config,
        })
    }

    /// The provider's current time, by its last answer; `None` if that is too old.
    pub(super) fn shown_time(&self) -> Option<DateTime<Utc>> {
        let shown = *self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, seen) = shown?;
        let since = seen.elapsed();
        (since <= LONGEST_SHOWN).then_some(at + since)
    }

    /// As [`Http::credential_mark`](super::Http::credential_mark).
    pub(super) fn credential_mark(&self) -> String {
        let Some(credential) = &self.config.credential else {
            return String::new();
        };
        let purpose = "gpu-broker 2026-11-28 mark of a provider's credential";
        let key = blake3::derive_key(purpose, credential.expose_secret().as_bytes());
        let head = key.iter().take(8).map(|byte| format!("{byte:02x}"));
        head.collect()
    }

    /// Sends a call; a read is retried while that may help.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, AdapterError> {
        let attempts = if call.purpose == Purpose::Read {
            self.config.read_attempts.max(1)
        } else {
            1
        };
        let mut backoff = self.config.first_backoff;
        let mut attempt = 1;
        loop {
            let error = match self.send_once(call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let wait = match &error {
                AdapterError::RateLimited { after } if *after <= self.config.longest_wait => *after,
                AdapterError::Unreachable { .. } => jittered(backoff),
                _ => return Err(error),
            };
            if attempt >= attempts {
                return Err(error);
            }
            debug!(
                path = call.path,
                attempt,
                wait_ms = wait.as_millis(),
                "Will retry: {error}"
            );
            tokio::time::sleep(wait).await;
            backoff *= 2;
            attempt += 1;
        }
    }

    async fn send_once(&self, call: &Call) -> Result<Answer, AdapterError> {
        let too_far = |after| AdapterError::RateLimited { after };
        if call.purpose == Purpose::Order {
            self.orders
                .turn(self.config.longest_wait)
                .await
                .map_err(too_far)?;
        }
        self.calls
            .turn(self.config.longest_wait)
            .await
            .map_err(too_far)?;
        let Some(credential) = &self.credential else {
            return self.exchange_with(call, Vec::new()).await;
        };
        if let Auth::ClientCredentials(path) = self.config.auth {
            let token = self.tokens.token(self, path, credential).await?;
            let bearer = vec![(AUTHORIZATION.as_str(), format!("Bearer {}", token.text))];
            let answer = self.exchange_with(call, bearer).await;
            let is_refused = matches!(&answer, Ok(answer) if answer.status() == 401);
            if !is_refused || token.is_fresh {
                return answer;
            }
            // A kept token may have been revoked. A refused call did nothing, so it may be sent again.
            self.tokens.forget(&token);
            let token = self.tokens.token(self, path, credential).await?;
            let bearer = vec![(AUTHORIZATION.as_str(), format!("Bearer {}", token.text))];
            return self.exchange_with(call, bearer).await;
        }
        let headers = self.headers_of(call, credential);
        self.exchange_with(call, headers).await
    }

    /// The headers that authenticate a call.
    fn headers_of(&self, call: &Call, credential: &Credential) -> Vec<(&'static str, String)> {
        match self.config.auth {
            Auth::None | Auth::ClientCredentials(_) => Vec::new(),
            Auth::Bearer => vec![(
                AUTHORIZATION.as_str(),
                format!("Bearer {}", credential.only()),
            )],
            Auth::Header(name) => vec![(name, credential.only().to_owned())],
            Auth::Signed(sign) => {
                let call = Unsigned {
                    method: call.method,
                    path: &call.path,
                    body: &call.bytes(),
                    unix_seconds: Utc::now().timestamp(),
                };
                sign(&call, credential)
            }
        }
    }

    /// Sends a call once with these headers.
    async fn exchange_with(
        &self,
        call: &Call,
        headers: Vec<(&'static str, String)>,
    ) -> Result<Answer, AdapterError> {
        // Paths contain ids of a provider's things, and add nothing to the purpose.
        let span = debug_span!(
            "provider_call",
            otel.kind = "client",
            provider.url = %self.base,
            http.method = call.method,
            purpose = ?call.purpose,
            http.status = Empty,
        );
        let secrets = self.secrets(&headers);
        let reply = self.exchange(call, headers).instrument(span).await?;
        if reply.status == 429 {
            self.calls.hold(
                reply
                    .retry_after
                    .unwrap_or_default()
                    .min(self.config.longest_wait),
            );
        }
        self.record(call, &reply, &secrets);
        judge(call, reply, &secrets)
    }

    /// What no error and no recording may show: the credential, and the headers made of it.
    fn secrets(&self, headers: &[(&'static str, String)]) -> Vec<String> {
        let fields = self.credential.iter().flat_map(Credential::values);
        let bare = |(_, value): &(&'static str, String)| {
            value.strip_prefix("Bearer ").unwrap_or(value).to_owned()
        };
        fields
            .map(str::to_owned)
            .chain(headers.iter().map(bare))
            .collect()
    }

    pub(super) async fn exchange(
        &self,
        call: &Call,
        headers: Vec<(&'static str, String)>,
    ) -> Result<Reply, AdapterError> {
        let url = format!("{}{}", self.base, call.path);
        let method = match call.method {
            "POST" => reqwest::Method::POST,
            "PUT" => reqwest::Method::PUT,
            "DELETE" => reqwest::Method::DELETE,
            _ => reqwest::Method::GET,
        };
        let mut request = self
            .client
            .request(method, url)
            .header(ACCEPT, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(parent) = (self.config.traceparent)() {
            request = request.header("traceparent", parent);
        }
        if call.body.is_some() {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(call.bytes());
        }
        let mut response = request.send().await.map_err(|error| lost(call, error))?;
        let status = response.status().as_u16();
        Span::current().record("http.status", status);
        let retry_after = retry_after(response.headers());
        if let Some(at) = date(response.headers()) {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            *shown = Some((at, Instant::now()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| lost(call, error))? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                let how =
                    format!("status {status}; the body is larger than {MAX_BODY_BYTES} bytes");
                return Err(no_clean_answer(
                    call.purpose,
                    call.method,
                    &call.path,
                    how,
                    None,
                    true,
                ));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply {
            status,
            retry_after,
            body,
        })
    }

    fn record(&self, call: &Call, reply: &Reply, secrets: &[String]) {
        let Some(directory) = &self.config.record_to else {
            return;
        };
        let secrets = redact::secrets_of(call, secrets);
        let body = redact::recordable(&reply.body, &secrets);
        let Ok(body) = serde_json::value::to_raw_value(&body) else {
            return;
        };
        let exchange = Exchange {
            method: call.method.to_owned(),
            path: call.path.clone(),
            status: reply.status,
            retry_after_seconds: reply.retry_after.map(|after| after.as_secs()),
            note: None,
            body,
        };
        let number = self.recorded.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = exchange.write_to(directory, number) {
            warn!(path = call.path, "Could not record an exchange: {error}");
        }
    }
}

/// The error for a call that was cut off. A call that never connected created nothing, order or not.
fn lost(call: &Call, error: reqwest::Error) -> AdapterError {
    let never_sent = error.is_connect() || error.is_builder();
    let how = if never_sent {
        "the connection failed"
    } else if error.is_timeout() {
        "it timed out"
    } else {
        "the connection was lost"
    };
    let purpose = if never_sent && call.purpose == Purpose::Order {
        Purpose::Prepare
    } else {
        call.purpose
    };
    let source = Some(error.without_url());
    no_clean_answer(
        purpose,
        call.method,
        &call.path,
        how.to_owned(),
        source,
        false,
    )
}

/// Reads `Retry-After` in both of its forms; the date is taken relative to the answer's own.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = if let Ok(seconds) = text.parse::<u64>() {
        seconds
    } else {
        let until = DateTime::parse_from_rfc2822(text).ok()?;
        let from = date(headers)?;
        u64::try_from((until.to_utc() - from).num_seconds()).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds).min(LONGEST_RETRY_AFTER))
}

/// When the answer was sent, by the provider's clock.
fn date(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let text = headers.get(DATE)?.to_str().ok()?;
    DateTime::parse_from_rfc2822(text)
        .ok()
        .map(|at| at.to_utc())
}

/// Between half and all of a wait, so that many callers do not retry at once.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(reqwest::header::HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().expect("a header")))
            .collect()
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        assert_eq!(
            retry_after(&headers(&[(RETRY_AFTER, "7")])),
            Some(Duration::from_secs(7))
        );
        let dated = headers(&[
            (RETRY_AFTER, "Sat, 21 Nov 2026 10:00:30 GMT"),
            (DATE, "Sat, 21 Nov 2026 10:00:00 GMT"),
        ]);
        assert_eq!(retry_after(&dated), Some(Duration::from_secs(30)));
        assert_eq!(retry_after(&headers(&[(RETRY_AFTER, "soon")])), None);
        assert_eq!(
            retry_after(&headers(&[(RETRY_AFTER, "99999999999")])),
            Some(LONGEST_RETRY_AFTER)
        );
    }

    #[test]
    fn the_debug_form_of_a_connection_hides_its_credential() {
        let config = HttpConfig {
            base_url: "https://cloud.example.com/api/v1".into(),
            auth: Auth::Bearer,
            fields: &[crate::auth::Field {
                name: "key",
                variable: "ACME_KEY",
            }],
            credential: Some("hunter2hunter2".to_owned().into()),
            allow_loopback: false,
            timeout: Duration::from_secs(1),
            call_spacing: Duration::ZERO,
            order_spacing: Duration::ZERO,
            read_attempts: 1,
            first_backoff: Duration::ZERO,
            longest_wait: Duration::ZERO,
            record_to: None,
            traceparent: || None,
        };
        let live = Live::open(config).expect("a connection");
        assert!(!format!("{live:?}").contains("hunter2"));
    }
}
