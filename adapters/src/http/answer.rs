//! Replies of providers: an answer, or an error. After an order, the error says whether something may have
//! been created.

use std::fmt;
use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};

use super::{Call, Purpose, Reply, redact};
use crate::error::{AdapterError, Refusal};

/// How long to wait after a 429 without `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(15);

/// A reply from the provider itself: a success or a refusal. Its `Debug` output omits the body.
pub struct Answer {
    purpose: Purpose,
    method: &'static str,
    path: String,
    status: u16,
    body: Vec<u8>,
    excerpt: String,
    /// Secrets that no error about the body may show.
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
    /// The HTTP status: 200 to 299, 400 to 499, or 503 of an order for which there is no capacity.
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

    /// Status 404. Except after an order, the body is JSON.
    ///
    /// The provider does not show the thing, which is no proof that the thing is gone.
    #[must_use]
    pub const fn is_not_shown(&self) -> bool {
        self.status == 404
    }

    /// The body of a success.
    ///
    /// `refusal` interprets a refusal, from its status and body.
    /// Errors: [`AdapterError::Refused`]; a body that cannot be read is
    /// [`AdapterError::OutcomeUnknown`] after an order, else [`AdapterError::Unreadable`].
    pub fn read<T: DeserializeOwned>(
        &self,
        refusal: fn(&Self) -> Refusal,
    ) -> Result<T, AdapterError> {
        self.accepted(refusal)?;
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(error.to_string()))
    }

    /// Turns a refusal into an error and accepts a success with any body.
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

    /// The body of a success as plain text, without white space around it.
    ///
    /// Errors: as [`Answer::read`].
    pub fn text(&self, refusal: fn(&Self) -> Refusal) -> Result<&str, AdapterError> {
        self.accepted(refusal)?;
        let text = std::str::from_utf8(&self.body);
        text.map(str::trim)
            .map_err(|error| self.unreadable(error.to_string()))
    }

    /// The meaning of a refusal by the first of these words that its body has, in lower case; by its status
    /// where it has none of them.
    #[must_use]
    pub fn refusal_by_words(&self, words: &[(&str, Refusal)]) -> Refusal {
        let said = String::from_utf8_lossy(&self.body).to_lowercase();
        let known = words.iter().find(|(word, _)| said.contains(word));
        known.map_or_else(|| Refusal::from_status(self.status), |(_, means)| *means)
    }

    /// The body as any JSON, to tell refusals apart.
    #[must_use]
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Text of the answer for an error: without the secrets that we sent, and cut short.
    #[must_use]
    pub fn without_secrets(&self, words: &str) -> String {
        redact::text(words, &self.secrets)
    }

    /// The error for an answer that does not match the interface. `how` is shown without secrets and cut
    /// short, because it may quote the answer.
    #[must_use]
    pub fn unreadable(&self, how: String) -> AdapterError {
        let how = self.without_secrets(&how);
        no_clean_answer(self.purpose, self.method, &self.path, how, None, true)
    }
}

/// Turns a reply into an answer or an error, by the same rule for live and replayed replies.
pub(super) fn judge(
    call: &Call,
    reply: Reply,
    known_secrets: &[String],
) -> Result<Answer, AdapterError> {
    let secrets = redact::secrets_of(call, known_secrets);
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
        // The server may report a timeout or a conflict although it accepted the order.
        408 | 409 if call.purpose == Purpose::Order => {
            broken(format!("status {}: {}", reply.status, excerpt()), false)
        }
        429 => Err(AdapterError::RateLimited {
            after: reply.retry_after.unwrap_or(DEFAULT_RETRY_AFTER),
        }),
        // A retired interface, or an error page of a proxy. For an order both are a refusal: nobody accepted
        // it.
        404 | 410 if call.purpose != Purpose::Order && !is_own_not_found(&reply) => {
            broken(format!("status {}: {}", reply.status, excerpt()), true)
        }
        200..=299 | 400..=499 | 503 if reply.status != 503 || says_no_capacity(call, &reply) => {
            Ok(Answer {
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
            })
        }
        500..=599 => broken(format!("status {}: {}", reply.status, excerpt()), false),
        other => broken(
            format!("status {other}; redirects are never followed"),
            true,
        ),
    }
}

/// Whether the reply is a 404 with a JSON body, which comes from the provider and not from a proxy.
fn is_own_not_found(reply: &Reply) -> bool {
    reply.status == 404 && serde_json::from_slice::<IgnoredAny>(&reply.body).is_ok()
}

/// Whether the provider itself says to an order, in JSON, that it has no capacity: it made nothing.
fn says_no_capacity(call: &Call, reply: &Reply) -> bool {
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let said = body["message"].as_str().unwrap_or_default();
    // A gateway has no such code.
    call.purpose == Purpose::Order
        && body["code"] == "service_unavailable"
        && said.to_lowercase().contains("no capacity")
}

/// The error for a call without a usable answer. The outcome of an order is then unknown.
///
/// `answered`: the call got a reply that is no error of the server's own (5xx).
pub(super) fn no_clean_answer(
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
            &[],
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
    fn a_503_is_a_refusal_only_where_the_provider_says_that_it_has_no_capacity() {
        let said = r#"{"code": "service_unavailable", "message": "No capacity available"}"#;
        let refused = judged(Purpose::Order, 503, said).expect("a refusal");
        assert!(!refused.is_success());
        for (purpose, body) in [
            (Purpose::Order, r#"{"message": "try again later"}"#),
            (
                Purpose::Order,
                r#"{"message": "no capacity in the pool of servers"}"#,
            ),
            (Purpose::Order, "<html>no capacity</html>"),
            (Purpose::Read, said),
        ] {
            let error = judged(purpose, 503, body).expect_err(body);
            assert!(!error.is_refusal(), "{error}");
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
    fn only_a_404_in_json_says_that_something_is_not_shown() {
        let html = "<html><h1>404 Not Found</h1></html>";
        for purpose in [Purpose::Read, Purpose::Release] {
            for (status, body) in [(404, html), (404, ""), (410, html), (410, "{}")] {
                let error = judged(purpose, status, body).expect_err("no answer of the provider's");
                assert!(matches!(error, AdapterError::Unreadable { .. }), "{error}");
            }
            for (status, body, not_shown) in [
                (404, r#"{"detail": "not found"}"#, true),
                (403, html, false),
                (200, html, false),
            ] {
                let answer = judged(purpose, status, body).expect("an answer");
                assert_eq!(answer.is_not_shown(), not_shown, "{status} {body}");
            }
        }
        let order = judged(Purpose::Order, 404, html).expect("a refusal");
        assert!(!order.is_success());
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
        let answer = judge(&call, reply, &["hunter".to_owned()]).expect("an answer");
        type Promised = std::collections::BTreeMap<String, Vec<u8>>;
        let error = answer
            .read::<Promised>(|_| Refusal::Request)
            .expect_err("no list");
        for shown in [error.to_string(), format!("{answer:?}")] {
            assert!(!shown.contains("hunter"), "{shown}");
        }
        assert!(error.to_string().contains("line 1"), "{error}");
    }
}
