//! The client's message when a call fails: one sentence, the next step, and the exit status.

use std::time::Duration;

use serde_json::Value;

use crate::terminal::ending::Ending;
use crate::terminal::text::clean;

/// A refusal, read from the service's problem document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// The HTTP status.
    pub(super) status: u16,
    /// The stable code; empty if the reply is no problem document of ours.
    pub(super) code: String,
    detail: String,
    request_id: Option<String>,
    /// When the service asks to be called again.
    pub(super) retry_after: Option<Duration>,
}

impl Problem {
    /// Reads a refusal. A body that is no problem document is reported by its status alone.
    pub(super) fn read(status: u16, retry_after: Option<Duration>, body: &str) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        let text = |field: &str| body[field].as_str().map(clean);
        Self {
            status,
            code: text("code").unwrap_or_default(),
            detail: text("detail").unwrap_or_else(|| {
                format!("the reply has status {status} and is not from a broker")
            }),
            request_id: text("request_id"),
            retry_after,
        }
    }
}

/// Why a call has no reply to show.
///
/// It is no `std::error::Error`, so that it becomes an [`Ending`] only with the messages below.
#[derive(Debug)]
pub(super) enum CallError {
    /// No connection was made, so nothing can have happened.
    Unreachable {
        /// The service.
        server: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The call was sent and no complete reply came back: it may have been done.
    Broken {
        /// The service.
        server: String,
        /// The key under which the call can be repeated safely.
        repeat: Option<String>,
        /// Why.
        source: reqwest::Error,
    },
    /// The service refused.
    Refused(Problem),
    /// The reply is not what the API returns.
    NotJson {
        /// The service.
        server: String,
    },
}

impl From<CallError> for Ending {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(problem) => refusal(&problem),
            CallError::Unreachable { server, source } => Self::No(format!(
                "{server} cannot be reached: {}; check the address (--server), and that `broker \
                 serve` runs there",
                crate::chain(&source)
            )),
            CallError::Broken {
                server,
                repeat,
                source,
            } => {
                let next = repeat.map_or_else(
                    || "try again".to_owned(),
                    |key| {
                        format!(
                            "it may have been done: repeat the command with --idempotency-key \
                             {key}, which does it at most once"
                        )
                    },
                );
                let why = crate::chain(&source);
                Self::No(format!(
                    "{server} did not send a complete reply: {why}; {next}"
                ))
            }
            CallError::NotJson { server } => Self::No(format!(
                "the reply is not JSON; is there a broker at {server}?"
            )),
        }
    }
}

fn refusal(problem: &Problem) -> Ending {
    let mut said = problem.detail.clone();
    if let Some(next) = next_step(problem) {
        said = format!("{}; {next}", said.trim_end_matches('.'));
    }
    let known = [Some(problem.code.clone()), problem.request_id.clone()];
    let known: Vec<_> = known
        .into_iter()
        .flatten()
        .filter(|word| !word.is_empty())
        .collect();
    if !known.is_empty() {
        said = format!("{said} ({})", known.join(", "));
    }
    match problem.status {
        400 | 401 | 413 | 415 | 422 => Ending::WrongInput(said),
        _ => Ending::No(said),
    }
}

/// The command that helps, if there is one.
fn next_step(problem: &Problem) -> Option<String> {
    let words = match problem.code.as_str() {
        "token_missing" | "invalid_token" | "token_expired" => {
            "`broker login --server URL` saves a valid key"
        }
        "access_denied" => "`broker whoami` shows what your key allows",
        "no_ssh_key" => "`broker ssh-keys add ~/.ssh/id_ed25519.pub` adds one",
        "nothing_matches" => "`broker plan` shows why each offer does not match",
        "offer_cooling_down" => "`broker plan` looks for others",
        "quote_lapsed" | "quote_taken" | "offer_changed" | "capacity_taken" => {
            "`broker quote` makes a new one"
        }
        "commitment_used" | "own_capacity_full" => {
            "`broker commitments list` shows what is left of each"
        }
        "hold_lapsed" => "`broker reserve` places a new one",
        "not_handed_off" => "`broker show ID` shows its state",
        "idempotency_key_reused" => "leave --idempotency-key out to get a new one",
        "route_not_found" | "method_not_allowed" => {
            "the service is of another version than this command"
        }
        _ => return retry_words(problem),
    };
    Some(words.to_owned())
}

fn retry_words(problem: &Problem) -> Option<String> {
    match (problem.retry_after, problem.status) {
        (Some(after), _) => Some(format!("try again in {} s", after.as_secs().max(1))),
        (None, 429 | 503) => Some("try again in a moment".to_owned()),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ending(status: u16, code: &str, detail: &str) -> Ending {
        let body = json!({ "code": code, "detail": detail, "request_id": "req-1" }).to_string();
        CallError::Refused(Problem::read(status, None, &body)).into()
    }

    #[test]
    fn a_refusal_is_one_sentence_with_the_next_step_the_code_and_the_request() {
        let Ending::No(said) = ending(409, "no_ssh_key", "there is no SSH key to install") else {
            panic!("the answer is no");
        };
        assert_eq!(
            said,
            "there is no SSH key to install; `broker ssh-keys add ~/.ssh/id_ed25519.pub` adds one \
             (no_ssh_key, req-1)"
        );
    }

    #[test]
    fn wrong_input_is_told_from_an_answer_of_no() {
        for status in [400, 401, 413, 415, 422] {
            let ended = ending(status, "x", "y");
            assert!(
                matches!(ended, Ending::WrongInput(_)),
                "{status}: {ended:?}"
            );
        }
        for status in [403, 404, 405, 409, 429, 500, 503] {
            let ended = ending(status, "x", "y");
            assert!(matches!(ended, Ending::No(_)), "{status}: {ended:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_problem_document_is_told_by_its_status_and_cannot_steer_a_terminal() {
        let page = Problem::read(502, None, "<html>\u{1b}[2J</html>");
        assert_eq!((page.status, page.code.as_str()), (502, ""));
        let hostile = json!({ "detail": "a\u{1b}[2Jb\nc" }).to_string();
        let said = Problem::read(409, None, &hostile).detail;
        assert!(!said.contains(char::is_control), "{said:?}");
    }
}
