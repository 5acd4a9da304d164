//! The audit log's entry for a request.
//!
//! An effect writes its entry in its own transaction (see [`super::super::idempotency`]). [`record_rest`]
//! appends the entries without such a transaction: refusals for lack of a right, all actions of an
//! administrator in another tenant, and changes that write nothing.

use std::sync::Arc;

use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::{HttpMessage as _, HttpRequest, web};
use store::audit::{AuditNote, AuditOutcome, NewAuditEntry};
use tracing::error;

use super::refused::Refused;
use crate::http::auth::{Principal, caller_of};
use crate::http::document::Document;
use crate::http::error::ApiError;
use crate::http::{limits, request};
use crate::platform::app::Broker;

/// The longest target that is noted. Units: bytes.
const MAX_TARGET: usize = 100;

/// Marks a request whose entry is written, or that had no effect of its own.
#[derive(Debug, Clone, Copy)]
struct Settled;

/// Marks a request that changes nothing although it is sent as `POST`.
#[derive(Debug, Clone, Copy)]
struct Free;

/// Marks a request as changing nothing: it is recorded as a read.
pub(crate) fn free(request: &HttpRequest) {
    request.extensions_mut().insert(Free);
}

/// Marks a request as recorded: nothing more is written for it.
pub(crate) fn settle(request: &HttpRequest) {
    request.extensions_mut().insert(Settled);
}

/// The note of a request's coming effect; `None` where no caller is known.
pub(crate) fn note(broker: &Broker, request: &HttpRequest) -> Option<AuditNote> {
    let who = caller_of(request)?;
    Some(AuditNote::new(entry(broker, request, &who)))
}

fn entry(broker: &Broker, request: &HttpRequest, who: &Principal) -> NewAuditEntry {
    NewAuditEntry {
        tenant: Some(who.tenant),
        at: broker.now(),
        actor: who.actor(),
        operation: operation(request).to_owned(),
        target: request.match_info().get("id").and_then(plain),
        outcome: AuditOutcome::Done,
        status: None,
        code: None,
        peer: limits::address(request, &broker.config().server.trusted_proxies)
            .map(|address| address.to_string()),
        request_id: request::id_of(request),
    }
}

/// The named target, where it can be an id: a refused caller may write anything there.
fn plain(named: &str) -> Option<String> {
    let is_plain = named.len() <= MAX_TARGET && named.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| named.to_owned())
}

/// The id of the operation in the OpenAPI document; empty for a route that is not in it.
pub(super) fn operation(request: &HttpRequest) -> &str {
    let document = request.app_data::<web::Data<Document>>();
    request
        .match_pattern()
        .zip(document)
        .and_then(|(pattern, document)| document.operation(request.method().as_str(), &pattern))
        .unwrap_or_default()
}

/// Appends an entry that was not written in an effect's transaction.
pub(super) async fn record_rest<B>(response: &ServiceResponse<B>) {
    let request = response.request();
    let broker = request.app_data::<web::Data<Broker>>();
    let (Some(broker), Some((outcome, who))) = (broker, unsettled(response)) else {
        return;
    };
    let denied = response.status() == StatusCode::FORBIDDEN && who.tenant == who.own_tenant;
    let noted = request.app_data::<web::Data<Refused>>();
    if denied
        && noted
            .is_some_and(|noted| !noted.is_first_denial(who.id, operation(request), broker.now()))
    {
        return;
    }
    let mut entry = entry(broker, request, &who);
    entry.outcome = outcome;
    entry.status = Some(response.status().as_u16());
    entry.code = code_of(response);
    // The answer's effect has happened; a person must look at the missing entry.
    if let Err(failure) = broker.store().audit().append(entry).await {
        let causes = crate::chain(&failure);
        error!(error = %causes, "An audit entry could not be written: {causes}");
    }
}

/// The outcome to record for an answer, and the caller; `None` for nothing.
fn unsettled<B>(response: &ServiceResponse<B>) -> Option<(AuditOutcome, Arc<Principal>)> {
    let request = response.request();
    let who = caller_of(request)?;
    let extensions = request.extensions();
    if extensions.contains::<Settled>() {
        return None;
    }
    let foreign = who.tenant != who.own_tenant;
    let changes = !request.method().is_safe() && !extensions.contains::<Free>();
    let outcome = outcome(response.status(), changes, foreign)?;
    Some((outcome, who))
}

fn code_of<B>(response: &ServiceResponse<B>) -> Option<String> {
    let said = response.response().error()?;
    Some(said.as_error::<ApiError>()?.code().to_owned())
}

/// The outcome to record for an answer; `None` for nothing.
fn outcome(status: StatusCode, changes: bool, foreign: bool) -> Option<AuditOutcome> {
    if status == StatusCode::FORBIDDEN {
        return Some(AuditOutcome::Refused);
    }
    if status.is_server_error() {
        return (changes || foreign).then_some(AuditOutcome::Failed);
    }
    if status.is_client_error() {
        return foreign.then_some(AuditOutcome::Refused);
    }
    (changes || foreign).then_some(AuditOutcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_for_want_of_a_right_and_all_of_an_administrator_elsewhere_are_recorded() {
        use AuditOutcome as O;
        for (status, changes, foreign, recorded) in [
            (200, false, false, None),
            (200, true, false, Some(O::Done)),
            (200, false, true, Some(O::Done)),
            (403, false, false, Some(O::Refused)),
            (404, true, false, None),
            (404, false, true, Some(O::Refused)),
            (500, false, false, None),
            (500, true, false, Some(O::Failed)),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(
                outcome(status, changes, foreign),
                recorded,
                "{status} {changes} {foreign}"
            );
        }
    }
}
