//! The connection to a broker over HTTP: one call a step, retried while a retry can help.
//!
//! The broker's address and the agent's token are in [`crate::address`].

use std::time::{Duration, Instant};

use market::ids::VerificationId;
use market::verification::{AgentKey, Commit, Digest, Step};
use serde::Deserialize;

use crate::address::{BrokerUrl, Token};
use crate::agent::{Transport, TransportError};
use crate::gang::{GangError, GangLine};

/// The request header with the agent's key, which the broker reads before the message.
pub const KEY_HEADER: &str = "agent-key";
/// The header with the digest of the message ([`digest_of`]). A message that is refused because of too many
/// at once counts from its first arrival; no other does.
pub const DIGEST_HEADER: &str = "message-digest";

/// The digest of a message.
#[must_use]
pub fn digest_of(message: &[u8]) -> Digest {
    Digest(*blake3::hash(message).as_bytes())
}

/// The code of a refusal to be retried: the broker does not know the node yet.
const NOT_READY: &str = "lease_not_ready";
/// The code of a refusal to be retried: other nodes of the lease have not enrolled yet.
const SIBLINGS_NOT_READY: &str = "siblings_not_ready";
const INTERRUPTED: &str = "verification_interrupted";
/// A re-check comes too soon after the one before: the next is due later than an agent would wait.
const TOO_MANY_RECHECKS: &str = "too_many_rechecks";
/// The longest answer that is read. Units: bytes.
const LONGEST_ANSWER: u64 = 4 << 20;
/// How long one call may take; the broker computes while it answers steps 5 and 6.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long a node waits for its siblings before it asks again, by default. All begin when the last one has
/// enrolled, so it must be short.
const SIBLINGS_WAIT: Duration = Duration::from_secs(1);
/// How long such a call may take. Nothing is computed for it, and a lost call must not use up the time of the
/// work that has begun by then.
const SIBLINGS_TIMEOUT: Duration = Duration::from_secs(3);

/// A broker reached over HTTP.
pub struct HttpBroker {
    agent: ureq::Agent,
    url: BrokerUrl,
    verification_id: VerificationId,
    token: Token,
    /// The agent's key, once it has sent it: the broker gets it before each message.
    agent_key: Option<AgentKey>,
    patience: Duration,
    pause: Box<dyn FnMut(Duration)>,
}

/// How one attempt ended.
enum Attempt {
    /// The conversation must begin again.
    Interrupted,
    Answered(String),
    Refused {
        status: u16,
        detail: String,
    },
    Again {
        why: String,
        after: Option<Duration>,
    },
    /// The node has enrolled, and must ask again until the others have.
    Enrolled {
        after: Duration,
    },
}

/// Why a message got no answer.
enum NoAnswer {
    Interrupted,
    Refused { status: u16, detail: String },
    GaveUp { last: String },
}

/// The parts of a problem document that an agent reads.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Problem {
    code: String,
    detail: String,
    title: String,
}

impl HttpBroker {
    /// A broker at an address. For each step the agent retries for up to `patience` while the broker is not
    /// ready or not reachable.
    #[must_use]
    pub fn new(
        url: BrokerUrl,
        verification_id: VerificationId,
        token: Token,
        patience: Duration,
    ) -> Self {
        Self::with_pause(
            url,
            verification_id,
            token,
            patience,
            Box::new(std::thread::sleep),
        )
    }

    /// As [`Self::new`], with another function to let time pass between attempts.
    #[must_use]
    pub fn with_pause(
        url: BrokerUrl,
        verification_id: VerificationId,
        token: Token,
        patience: Duration,
        pause: Box<dyn FnMut(Duration)>,
    ) -> Self {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .https_only(url.is_encrypted())
            // A redirected request would carry the token to the redirect's target.
            .max_redirects(0)
            .user_agent(concat!("verifier/", env!("CARGO_PKG_VERSION")));
        if !url.is_encrypted() {
            config = config.proxy(None);
        }
        let agent = config.build().new_agent();
        Self {
            agent,
            url,
            verification_id,
            token,
            agent_key: None,
            patience,
            pause,
        }
    }

    fn attempt(&self, path: &str, body: &str, timeout: Duration) -> Attempt {
        let (url, id) = (self.url.as_str(), self.verification_id);
        let mut call = self
            .agent
            .post(format!("{url}/v1/verifications/{id}/{path}"))
            .header("authorization", format!("Bearer {}", self.token.expose()))
            .content_type("application/json")
            .config()
            .timeout_global(Some(timeout))
            .build();
        if let Some(key) = &self.agent_key {
            call = call
                .header(KEY_HEADER, key.as_str())
                .header(DIGEST_HEADER, digest_of(body.as_bytes()).to_string());
        }
        let sent = call.send(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => {
                return Attempt::Again {
                    why: error.to_string(),
                    after: None,
                };
            }
        };
        let status = response.status().as_u16();
        let after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(|seconds: u64| Duration::from_secs(seconds.min(60)));
        let text = match response
            .body_mut()
            .with_config()
            .limit(LONGEST_ANSWER)
            .read_to_string()
        {
            Ok(text) => text,
            Err(error) => {
                return Attempt::Again {
                    why: error.to_string(),
                    after,
                };
            }
        };
        if (200..300).contains(&status) {
            return Attempt::Answered(text);
        }
        let problem: Problem = serde_json::from_str(&text).unwrap_or_default();
        let words = if problem.detail.is_empty() {
            problem.title
        } else {
            problem.detail
        };
        let detail = format!("{} {}", problem.code, words).trim().to_owned();
        match status {
            409 if problem.code == INTERRUPTED => Attempt::Interrupted,
            409 if problem.code == SIBLINGS_NOT_READY => Attempt::Enrolled {
                after: after.unwrap_or(SIBLINGS_WAIT),
            },
            409 if problem.code == NOT_READY => Attempt::Again { why: detail, after },
            429 if problem.code == TOO_MANY_RECHECKS => Attempt::Refused { status, detail },
            408 | 425 | 429 | 500..=599 => Attempt::Again {
                why: format!("status {status} {detail}"),
                after,
            },
            _ => Attempt::Refused { status, detail },
        }
    }
}

impl HttpBroker {
    /// Sends a message until it is answered or refused, or patience ends. A node that waits for its siblings
    /// needs no patience: the broker ends that wait with the verification.
    fn insist(&mut self, path: &str, body: &str) -> Result<String, NoAnswer> {
        let (mut spent, mut wait) = (Duration::ZERO, FIRST_WAIT);
        let (mut timeout, mut longest) = (CALL_TIMEOUT, LONGEST_WAIT);
        loop {
            let began = Instant::now();
            let (last, after) = match self.attempt(path, body, timeout) {
                Attempt::Answered(text) => return Ok(text),
                Attempt::Refused { status, detail } => {
                    return Err(NoAnswer::Refused { status, detail });
                }
                Attempt::Interrupted => return Err(NoAnswer::Interrupted),
                Attempt::Again { why, after } => (why, after),
                Attempt::Enrolled { after } => {
                    wait = FIRST_WAIT;
                    (timeout, longest) = (SIBLINGS_TIMEOUT, SIBLINGS_WAIT);
                    (self.pause)(after.mul_f64(rand::random_range(1.0..1.5)));
                    continue;
                }
            };
            // Nodes of one lease start together; they should not all retry together.
            let jittered = wait.mul_f64(rand::random_range(0.5..1.0));
            let pause = after.map_or(jittered, |after| after.max(jittered));
            spent += began.elapsed() + pause;
            if spent > self.patience {
                return Err(NoAnswer::GaveUp { last });
            }
            (self.pause)(pause);
            wait = (wait * 2).min(longest);
        }
    }
}

impl GangLine for HttpBroker {
    fn call(&mut self, body: &str) -> Result<String, GangError> {
        self.insist("gang", body)
            .map_err(|no_answer| match no_answer {
                NoAnswer::Interrupted => GangError::GaveUp(INTERRUPTED.to_owned()),
                NoAnswer::Refused { status, detail } => GangError::Refused { status, detail },
                NoAnswer::GaveUp { last } => GangError::GaveUp(last),
            })
    }
}

impl Transport for HttpBroker {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        if let (Step::Commit, Ok(commit)) = (step, serde_json::from_str::<Commit>(body)) {
            self.agent_key = Some(commit.agent_key);
        }
        let path = format!("steps/{}", step.number());
        self.insist(&path, body)
            .map_err(|no_answer| match no_answer {
                NoAnswer::Interrupted => TransportError::Interrupted { step },
                NoAnswer::Refused { status, detail } => TransportError::Refused {
                    step,
                    status,
                    detail,
                },
                NoAnswer::GaveUp { last } => TransportError::GaveUp { step, last },
            })
    }

    fn is_private(&self) -> bool {
        self.url.is_encrypted()
    }
}
