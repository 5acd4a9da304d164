//! The one way in which an adapter makes calls: live to a provider, or to a recording of one.
//!
//! Retries, rate limits, timeouts, redaction and recording happen here, once. The adapter interprets an
//! answer; `answer.rs` only decides whether there is one.

mod answer;
mod exchange;
mod guard;
mod live;
mod pace;
mod pages;
mod redact;
mod replay;
mod segment;
mod token;

use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde::Serialize;

use crate::adapter::Profile;
use crate::auth::{Auth, Field};
use crate::error::AdapterError;

pub use answer::Answer;
use answer::{judge, no_clean_answer};
pub use pages::{Listing, Next, Paging};
pub use redact::EXCERPT_CHARS;
pub use segment::{is_id, segment};

/// The largest answer that is read. The largest catalogue seen is below 2 MiB.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// The purpose of a call. It decides what a missing answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It changes nothing and may be repeated.
    Read,
    /// It changes something that is never billed, such as registering a key.
    Prepare,
    /// It creates something that is billed: a missing answer leaves the outcome unknown.
    Order,
    /// It ends something; repeating it is harmless, but left to the caller.
    Release,
}

/// How to reach a provider.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where its API is.
    pub base_url: String,
    /// How calls are authenticated.
    pub auth: Auth,
    /// The fields of the credential.
    pub fields: &'static [Field],
    /// The credential as it is entered ([`Credential::read`](crate::auth::Credential::read)); never shown.
    pub credential: Option<SecretString>,
    /// Whether a loopback address is accepted: in simulation only.
    pub allow_loopback: bool,
    /// From the first byte sent to the last byte read of one attempt.
    pub timeout: Duration,
    /// The least time between two calls; zero for no spacing at all, as in simulation.
    pub call_spacing: Duration,
    /// The least time between two orders; zero for no spacing at all.
    pub order_spacing: Duration,
    /// How often a read is attempted in all.
    pub read_attempts: u32,
    /// The wait before the second attempt; it doubles each time and is jittered.
    pub first_backoff: Duration,
    /// A call that would have to wait longer than this fails instead.
    pub longest_wait: Duration,
    /// A directory into which each exchange is written, without secrets.
    pub record_to: Option<PathBuf>,
    /// The `traceparent` header of a call (W3C Trace Context), which names the trace that it is part of; none
    /// by default.
    pub traceparent: fn() -> Option<String>,
}

impl HttpConfig {
    /// The usual way to reach the provider of this profile.
    #[must_use]
    pub fn of(profile: &Profile, credential: Option<SecretString>) -> Self {
        Self {
            base_url: profile.default_base_url.to_owned(),
            auth: profile.auth,
            fields: profile.credential,
            credential,
            allow_loopback: false,
            timeout: Duration::from_secs(30),
            call_spacing: profile.call_spacing,
            order_spacing: profile.order_spacing,
            read_attempts: 3,
            first_backoff: Duration::from_millis(500),
            longest_wait: Duration::from_secs(60),
            record_to: None,
            traceparent: || None,
        }
    }
}

/// A connection to one provider under one credential, or a recording of one.
///
/// Cheap to share behind a reference: every caller of one account must share one, because it keeps the
/// account's spacing of calls.
#[derive(Debug)]
pub struct Http {
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Live(Box<live::Live>),
    Replay(replay::Replay),
}

/// One call as it goes out.
// Its body may hold a secret, so it has no debug form.
struct Call {
    purpose: Purpose,
    method: &'static str,
    path: String,
    body: Option<serde_json::Value>,
}

impl Call {
    /// The body as it goes out; empty where there is none.
    fn bytes(&self) -> Vec<u8> {
        let body = self.body.as_ref();
        body.map_or_else(Vec::new, |body| body.to_string().into_bytes())
    }
}

/// A reply, before it is judged.
// Its body may hold a secret, so it has no debug form.
struct Reply {
    status: u16,
    retry_after: Option<Duration>,
    body: Vec<u8>,
}

impl Http {
    /// A connection to a provider.
    ///
    /// Errors: [`AdapterError::BadConnection`] for a base URL that is none, a loopback address
    /// where that is not allowed, plain HTTP to anywhere else, and a credential without its fields.
    pub fn live(config: HttpConfig) -> Result<Self, AdapterError> {
        let live = live::Live::open(config)?;
        Ok(Self {
            transport: Transport::Live(Box::new(live)),
        })
    }

    /// A recording instead of a provider.
    ///
    /// A file is the body of the main price answer: it answers the first path that is requested, and no
    /// other. A directory holds all calls: each `*.json` is an exchange
    /// (`{"method", "path", "status", "body"}`, as recording writes them) or the bare body of a
    /// read, named after its path with `-` for `/` (`bare-metal-locations.json`). Several
    /// exchanges of one call are answered in the order of their file names, the last for ever.
    /// Errors: [`AdapterError::BadRecording`].
    pub fn replay(path: impl AsRef<Path>) -> Result<Self, AdapterError> {
        let replay = replay::Replay::open(path.as_ref())?;
        Ok(Self {
            transport: Transport::Replay(replay),
        })
    }

    /// The provider's current time, by the header `Date` of its last answer; `None` where there was none
    /// within a quarter of an hour, and for a recording.
    #[must_use]
    pub fn shown_time(&self) -> Option<DateTime<Utc>> {
        match &self.transport {
            Transport::Live(live) => live.shown_time(),
            Transport::Replay(_) => None,
        }
    }

    /// A word that identifies the credential and gives no access; empty where there is none. Lists that were
    /// read with different credentials may be of different accounts.
    #[must_use]
    pub fn credential_mark(&self) -> String {
        match &self.transport {
            Transport::Live(live) => live.credential_mark(),
            Transport::Replay(_) => String::new(),
        }
    }

    /// Gets the resource at `path` (below the base URL, beginning with a slash).
    ///
    /// Errors: as [`Http::post`], but no outcome is ever unknown.
    pub async fn get(&self, path: &str) -> Result<Answer, AdapterError> {
        self.send(Call {
            purpose: Purpose::Read,
            method: "GET",
            path: path.to_owned(),
            body: None,
        })
        .await
    }

    /// Posts a body. The answer is one of the provider's own: success, or a refusal below 500.
    ///
    /// Errors: [`AdapterError::RateLimited`] for 429; for everything else that is no clean
    /// answer [`AdapterError::OutcomeUnknown`] when the purpose is an order, else
    /// [`AdapterError::Unreachable`] or [`AdapterError::Unreadable`].
    pub async fn post(
        &self,
        purpose: Purpose,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, AdapterError> {
        self.send_body(purpose, "POST", path, body).await
    }

    /// Puts a body, as [`Http::post`] posts one.
    ///
    /// Errors: as [`Http::post`].
    pub async fn put(
        &self,
        purpose: Purpose,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, AdapterError> {
        self.send_body(purpose, "PUT", path, body).await
    }

    async fn send_body(
        &self,
        purpose: Purpose,
        method: &'static str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, AdapterError> {
        let unwritable =
            |_| AdapterError::CannotOrder("the order cannot be written as JSON".into());
        let body = serde_json::to_value(body).map_err(unwritable)?;
        self.send(Call {
            purpose,
            method,
            path: path.to_owned(),
            body: Some(body),
        })
        .await
    }

    /// Deletes the resource at `path`.
    ///
    /// Errors: as [`Http::post`].
    pub async fn delete(&self, path: &str) -> Result<Answer, AdapterError> {
        self.send(Call {
            purpose: Purpose::Release,
            method: "DELETE",
            path: path.to_owned(),
            body: None,
        })
        .await
    }

    async fn send(&self, call: Call) -> Result<Answer, AdapterError> {
        match &self.transport {
            Transport::Live(live) => live.send(&call).await,
            Transport::Replay(replay) => judge(&call, replay.answer(&call)?, &[]),
        }
    }
}
