//! The one way an adapter talks: live to a provider, or to a recording of one.
//!
//! Retries, rate limits, timeouts, redaction and recording happen here, once. What an answer
//! means is the adapter's business; here it is only decided whether there is one, and whether an
//! order without a good answer may have made something.

mod exchange;
mod guard;
mod live;
mod pace;
mod redact;
mod replay;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::SecretString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::adapter::Profile;
use crate::error::{AdapterError, Refusal};

pub use redact::EXCERPT_CHARS;

/// The largest answer that is read. The largest catalogue seen is below 2 MiB.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// How long to wait after a 429 that does not say.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(15);

/// What a call is for. It decides what a missing answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It changes nothing and may be repeated.
    Read,
    /// It changes something that is never billed, such as a key that is registered.
    Prepare,
    /// It makes something that is billed: a missing answer leaves the outcome unknown.
    Order,
    /// It ends something; repeating it is harmless, but left to the caller.
    Release,
}

/// How to reach a provider.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// Where its API is.
    pub base_url: String,
    /// Sent as a bearer token; never shown.
    pub credential: Option<SecretString>,
    /// Whether a loopback address is accepted: in simulation only.
    pub allow_loopback: bool,
    /// From the first byte sent to the last byte read of one attempt.
    pub timeout: Duration,
    /// The least time between two calls; zero for no pace at all, as in simulation.
    pub call_spacing: Duration,
    /// The least time between two orders; zero for no pace at all.
    pub order_spacing: Duration,
    /// How often a read is tried in all.
    pub read_attempts: u32,
    /// The wait before the second attempt; it doubles each time and is jittered.
    pub first_backoff: Duration,
    /// A call that would have to wait longer than this for its turn is handed back instead.
    pub longest_wait: Duration,
    /// A directory into which each exchange is written, without secrets.
    pub record_to: Option<PathBuf>,
    /// What a call says of the trace that it is part of, as the header `traceparent` (W3C Trace
    /// Context); nothing, when nothing is said.
    pub traceparent: fn() -> Option<String>,
}

impl HttpConfig {
    /// The usual way to reach the provider of this profile.
    #[must_use]
    pub fn of(profile: &Profile, credential: Option<SecretString>) -> Self {
        Self {
            base_url: profile.default_base_url.to_owned(),
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
/// Cheap to share behind a reference: every caller of one account must share one, because it
/// holds the account's pace.
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

/// What came back, before anyone judged it.
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
    /// where that is not allowed, and plain HTTP to anywhere else.
    pub fn live(config: HttpConfig) -> Result<Self, AdapterError> {
        let live = live::Live::open(config)?;
        Ok(Self {
            transport: Transport::Live(Box::new(live)),
        })
    }

    /// A recording instead of a provider.
    ///
    /// A file is the body of the main price answer: it answers the first path that is asked
    /// for, and no other. A directory holds all calls: each `*.json` is an exchange
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

    /// Asks for what stands at `path` (below the base URL, beginning with a slash).
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
        let unwritable =
            |_| AdapterError::CannotOrder("the order cannot be written as JSON".into());
        let body = serde_json::to_value(body).map_err(unwritable)?;
        self.send(Call {
            purpose,
            method: "POST",
            path: path.to_owned(),
            body: Some(body),
        })
        .await
    }

    /// Deletes what stands at `path`.
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
            Transport::Replay(replay) => judge(&call, replay.answer(&call)?, None),
        }
    }
}

/// An answer of the provider's own: success, or a clean refusal. Its debug form hides what the
/// provider said.
pub struct Answer {
    purpose: Purpose,
    method: &'static str,
    path: String,
    status: u16,
    body: Vec<u8>,
    excerpt: String,
    /// What no error about the body may show.
    secrets: Vec<String>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// The HTTP status: 200 to 299, or 400 to 499.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Whether the status says success.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.status < 300
    }

    /// How large the body is. Units: bytes.
    #[must_use]
    pub const fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Whether the provider does not know the thing.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self.status, 404 | 410)
    }

    /// The body of a success.
    ///
    /// `refusal` says what a refusal means, from its status and body.
    /// Errors: [`AdapterError::Refused`]; a body that cannot be read is
    /// [`AdapterError::OutcomeUnknown`] after an order, else [`AdapterError::Unreadable`].
    pub fn read<T: DeserializeOwned>(
        &self,
        refusal: fn(&Self) -> Refusal,
    ) -> Result<T, AdapterError> {
        self.accepted(refusal)?;
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(error.to_string()))
    }

    /// Turns a refusal into an error and leaves a success alone, whatever its body.
    ///
    /// Errors: [`AdapterError::Refused`].
    pub fn accepted(&self, refusal: fn(&Self) -> Refusal) -> Result<(), AdapterError> {
        if self.is_success() {
            return Ok(());
        }
        Err(AdapterError::Refused {
            refusal: refusal(self),
            status: self.status,
            message: self.excerpt.clone(),
        })
    }

    /// The body as JSON of whatever shape, for telling refusals apart.
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Words of the answer as an error may show them: without what we sent, and cut short.
    #[must_use]
    pub fn without_secrets(&self, words: &str) -> String {
        redact::text(words, &self.secrets)
    }

    /// The error for an answer that is not what was promised. `how` is shown without secrets and
    /// cut short, for it may quote the answer.
    #[must_use]
    pub fn unreadable(&self, how: String) -> AdapterError {
        let how = self.without_secrets(&how);
        no_clean_answer(self.purpose, self.method, &self.path, how, None, true)
    }
}

/// The longest id of a provider's thing that is believed. Units: bytes.
const LONGEST_ID: usize = 200;

/// Whether a text can be the id of one thing: as a segment of a path, what is empty, `.` or `..`
/// names the list of all of them, escaped or not.
#[must_use]
pub fn is_id(id: &str) -> bool {
    !matches!(id, "" | "." | "..") && id.len() <= LONGEST_ID
}

/// Writes an id into a path so that it stays one segment of it.
///
/// Errors: [`AdapterError::BadId`] for what is no [id](is_id).
pub fn segment(id: &str) -> Result<String, AdapterError> {
    if !is_id(id) {
        return Err(AdapterError::BadId(id.chars().take(80).collect()));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut segment = String::with_capacity(id.len());
    for byte in id.bytes() {
        if plain(byte) {
            segment.push(char::from(byte));
        } else {
            segment.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(segment)
}

/// Tells a clean answer from everything else. The same rule for live and replayed replies.
fn judge(
    call: &Call,
    reply: Reply,
    credential: Option<&SecretString>,
) -> Result<Answer, AdapterError> {
    let secrets = redact::secrets_of(call, credential);
    let excerpt = || redact::excerpt(&reply.body, &secrets);
    let broken = |how: String, readable| {
        Err(no_clean_answer(
            call.purpose,
            call.method,
            &call.path,
            how,
            None,
            readable,
        ))
    };
    match reply.status {
        // A conflict and a timeout of the server's own may both follow an order that was taken.
        408 | 409 if call.purpose == Purpose::Order => {
            broken(format!("status {}: {}", reply.status, excerpt()), false)
        }
        429 => Err(AdapterError::RateLimited {
            after: reply.retry_after.unwrap_or(DEFAULT_RETRY_AFTER),
        }),
        200..=299 | 400..=499 => Ok(Answer {
            purpose: call.purpose,
            method: call.method,
            path: call.path.clone(),
            status: reply.status,
            excerpt: if reply.status < 300 {
                String::new()
            } else {
                excerpt()
            },
            body: reply.body,
            secrets,
        }),
        500..=599 => broken(format!("status {}: {}", reply.status, excerpt()), false),
        other => broken(
            format!("status {other}; redirects are never followed"),
            true,
        ),
    }
}

/// The error for a call without a clean answer. An order's outcome is then unknown.
fn no_clean_answer(
    purpose: Purpose,
    method: &'static str,
    path: &str,
    how: String,
    source: Option<reqwest::Error>,
    answered: bool,
) -> AdapterError {
    let path = path.to_owned();
    match purpose {
        Purpose::Order => AdapterError::OutcomeUnknown { how, source },
        _ if answered => AdapterError::Unreadable { method, path, how },
        _ => AdapterError::Unreachable {
            method,
            path,
            how,
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(purpose: Purpose, status: u16, body: &str) -> Result<Answer, AdapterError> {
        let call = Call {
            purpose,
            method: "POST",
            path: "/launch".into(),
            body: None,
        };
        judge(
            &call,
            Reply {
                status,
                retry_after: None,
                body: body.as_bytes().to_vec(),
            },
            None,
        )
    }

    #[test]
    fn after_an_order_every_status_is_a_refusal_a_success_or_unknown() {
        for status in 200..600 {
            let certain_no = (400..500).contains(&status) && !matches!(status, 408 | 409 | 429);
            match judged(Purpose::Order, status, "{}") {
                Ok(answer) => assert_eq!(answer.is_success(), !certain_no, "{status}"),
                Err(AdapterError::RateLimited { .. }) => assert_eq!(status, 429),
                Err(error) => assert!(
                    error.is_outcome_unknown() && !certain_no,
                    "{status}: {error}"
                ),
            }
        }
    }

    #[test]
    fn no_read_ever_leaves_an_outcome_unknown() {
        for status in 200..600 {
            for purpose in [Purpose::Read, Purpose::Prepare, Purpose::Release] {
                if let Err(error) = judged(purpose, status, "") {
                    assert!(!error.is_outcome_unknown(), "{status}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_success_that_cannot_be_read_leaves_an_order_unknown_and_a_read_at_fault() {
        let refusal = |answer: &Answer| Refusal::from_status(answer.status());
        let cut_short = r#"{"data": {"instance_ids": ["#;
        let order = judged(Purpose::Order, 200, cut_short).expect("an answer");
        assert!(
            order
                .read::<serde_json::Value>(refusal)
                .expect_err("cut short")
                .is_outcome_unknown()
        );
        let read = judged(Purpose::Read, 200, cut_short).expect("an answer");
        let error = read
            .read::<serde_json::Value>(refusal)
            .expect_err("cut short");
        assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_credential_in_place_of_something_else_is_not_quoted() {
        let call = Call {
            purpose: Purpose::Read,
            method: "GET",
            path: "/offers".into(),
            body: None,
        };
        let reply = Reply {
            status: 200,
            retry_after: None,
            body: br#"{"data": "hunter"}"#.to_vec(),
        };
        let credential = SecretString::from("hunter");
        let answer = judge(&call, reply, Some(&credential)).expect("an answer");
        type Promised = std::collections::BTreeMap<String, Vec<u8>>;
        let error = answer
            .read::<Promised>(|_| Refusal::Request)
            .expect_err("no list");
        for shown in [error.to_string(), format!("{answer:?}")] {
            assert!(!shown.contains("hunter"), "{shown}");
        }
        assert!(error.to_string().contains("line 1"), "{error}");
    }

    #[test]
    fn an_id_cannot_leave_its_segment_of_the_path() {
        let written = |id| segment(id).expect("an id");
        assert_eq!(written("0920582c-7ff0_A"), "0920582c-7ff0_A");
        assert_eq!(written("../keys?x=1#é"), "%2E%2E%2Fkeys%3Fx%3D1%23%C3%A9");
        // A URL takes these as steps up or as nothing, also when they are escaped.
        for none in ["", ".", "..", &"x".repeat(201)] {
            let refused = segment(none).expect_err("no id");
            assert!(matches!(refused, AdapterError::BadId(_)), "{refused}");
        }
    }
}
