//! `Idempotency-Key`: a write asked for twice happens once, and is answered alike.
//!
//! The key is taken before the work; the store completes it in the transaction of the effect, so
//! there is never one without the other. A refused request gives its key back. The entry of the
//! audit log rides in the same transaction.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderName;
use actix_web::{HttpRequest, HttpResponse};
use market::identity::Projects;
use serde::{Deserialize, Serialize};
use store::audit::AuditNote;
use store::idempotency::{Answer, Begun, Completion, IdempotencyMark};
use tracing::warn;

use super::audit::record;
use super::auth::Principal;
use super::error::ApiError;
use crate::platform::app::Broker;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The longest key.
const MAX_KEY: usize = 255;

/// The rows that an effect writes in its transaction as well.
#[derive(Debug)]
pub(crate) struct Effect {
    mark: Option<IdempotencyMark>,
    note: Option<AuditNote>,
}

impl Effect {
    /// Does the work and returns whether its entry is written.
    async fn done(
        &self,
        request: &HttpRequest,
        work: impl AsyncFnOnce(&Self) -> Result<Answer, ApiError>,
    ) -> Result<Answer, ApiError> {
        let done = work(self).await;
        if done.is_ok() && self.note.as_ref().is_some_and(AuditNote::was_taken) {
            record::settle(request);
        }
        done
    }
}

/// The header as the document shows it.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(
    dead_code,
    reason = "it is read by `key`; the struct is its description"
)]
pub(crate) struct IdempotencyHeader {
    /// Any text of the caller's, once for each thing to be done. For 24 hours the same request
    /// under it is answered alike without being done again.
    #[serde(rename = "Idempotency-Key")]
    #[param(value_type = String, required = false, min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

/// The key of a request.
///
/// Errors: `invalid_parameter` for one that is empty, too long or no plain text.
fn key(request: &HttpRequest) -> Result<Option<&str>, ApiError> {
    let Some(value) = request.headers().get(KEY) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) => Ok(Some(key)),
        _ => Err(ApiError::invalid_parameter(format!(
            "`Idempotency-Key` must be 1 to {MAX_KEY} characters of plain ASCII"
        ))),
    }
}

/// The key as it is kept. A caller who works in some projects only must not get the answers of others of the
/// tenant, so such a caller's keys are separate by projects.
fn within_reach<'a>(key: &'a str, who: &Principal) -> Cow<'a, str> {
    match who.grant.projects {
        Projects::All => Cow::Borrowed(key),
        Projects::Only(_) => {
            let within = blake3::hash(format!("{} {key}", who.reach()).as_bytes());
            Cow::Owned(within.to_hex().to_string())
        }
    }
}

/// The request beyond method and path: in some calls the query names the tenant.
fn digest(query: &str, body: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(body);
    if !query.is_empty() {
        // A body is JSON, which has no such byte.
        hasher.update(&[0xff]);
        hasher.update(query.as_bytes());
    }
    hasher.finalize()
}

/// Does `work` once for the key of the request, or answers as it was answered then.
///
/// Two requests are the same if `body`, method, path and query are. The work must complete the effect in its
/// own transaction (see [`completion`]).
/// Errors: those of the work; `idempotency_key_reused`, `idempotency_in_progress`.
pub(crate) async fn once(
    broker: &Broker,
    who: &Principal,
    request: &HttpRequest,
    body: &[u8],
    work: impl AsyncFnOnce(&Effect) -> Result<Answer, ApiError>,
) -> Result<HttpResponse, ApiError> {
    let note = record::note(broker, request);
    let Some(key) = key(request)?.map(|key| within_reach(key, who)) else {
        let effect = Effect { mark: None, note };
        return effect.done(request, work).await.map(respond);
    };
    let keys = broker.store().idempotency().of(who.tenant);
    let asked = format!("{} {}", request.method(), request.path());
    let hash = digest(request.query_string(), body).to_hex();
    match keys.begin(&key, &asked, hash.as_str(), broker.now()).await? {
        Begun::Fresh(mark) => {
            let effect = Effect {
                mark: Some(mark.clone()),
                note,
            };
            let done = effect.done(request, work).await;
            if done.is_err()
                && let Err(error) = keys.abandon(&mark).await
            {
                warn!(error = %error, "Could not release an idempotency key; it lapses by itself");
            }
            done.map(respond)
        }
        Begun::Replay(answer) => {
            // It was recorded when it was done.
            record::settle(request);
            let mut response = respond(answer);
            response.headers_mut().insert(REPLAYED, actix_web::http::header::HeaderValue::from_static("true"));
            Ok(response)
        }
        Begun::InProgress => Err(ApiError::idempotency_in_progress(
            "the first request with this `Idempotency-Key` has not been answered yet; send the same again in a moment",
        )
        .retry_after_seconds(1)),
        Begun::Mismatch => Err(ApiError::idempotency_key_reused(
            "this `Idempotency-Key` was used for another request; use a new key for a new request",
        )),
    }
}

/// The answer of this status that shows `body`.
pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    // The bodies are plain structs with text keys, which always serialise.
    let body = serde_json::to_string(body).unwrap_or_default();
    Answer {
        status: status.as_u16(),
        body,
    }
}

/// The completion of the write behind an effect. `render` shows the resulting row.
pub(crate) fn completion<'a, T>(
    effect: &'a Effect,
    render: &'a (dyn Fn(&T) -> Answer + Send + Sync),
) -> Option<Completion<'a, T>> {
    Some(Completion {
        mark: effect.mark.as_ref(),
        audit: effect.note.as_ref(),
        render,
    })
}

/// The answer of an effect that leaves nothing to show.
pub(crate) fn gone(_: &()) -> Answer {
    Answer {
        status: StatusCode::NO_CONTENT.as_u16(),
        body: String::new(),
    }
}

fn respond(answer: Answer) -> HttpResponse {
    // Only statuses of ours are kept.
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    if status == StatusCode::NO_CONTENT {
        return HttpResponse::NoContent().finish();
    }
    HttpResponse::build(status)
        .content_type("application/json")
        .body(answer.body)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn with_key(value: &str) -> HttpRequest {
        TestRequest::post()
            .insert_header((KEY, value))
            .to_http_request()
    }

    #[test]
    fn a_key_is_one_to_255_plain_characters() {
        assert_eq!(
            key(&TestRequest::post().to_http_request()).expect("none is fine"),
            None
        );
        let longest = "k".repeat(255);
        assert_eq!(
            key(&with_key(&longest)).expect("fits"),
            Some(longest.as_str())
        );
        for bad in [String::new(), "k".repeat(256), "schlüssel".to_owned()] {
            assert_eq!(
                key(&with_key(&bad)).expect_err("refused").code(),
                "invalid_parameter"
            );
        }
    }
}
