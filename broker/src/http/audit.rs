//! `GET /v1/audit`: the audit log, for the operator of the service.

pub(super) mod record;
pub(super) mod refused;

use actix_web::dev::ServiceResponse;
use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::ids::{PrincipalId, TenantId};
use serde::{Deserialize, Serialize};
use store::audit::{AuditEntry, AuditFilter, AuditOutcome, AuditPosition};

use super::access::ReadAudit;
use super::auth::May;
use super::error::ApiError;
use super::page::{Cursors, Page, limit};
use crate::platform::app::Broker;

/// Checks an answer for an event that belongs into the log and is not there yet.
pub(super) async fn watch<B>(response: &ServiceResponse<B>) {
    record::record_rest(response).await;
    refused::note(response).await;
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct AuditItem {
    /// Its chain: the id of the tenant it is about, or `service`.
    chain: String,
    /// Its number in its chain, from 1.
    #[schema(minimum = 1)]
    seq: i64,
    /// When.
    at: DateTime<Utc>,
    /// The principal of the credential; `null` on the command line.
    principal_id: Option<String>,
    /// The tenant that they belonged to.
    own_tenant_id: Option<String>,
    /// The caller's role.
    role: Option<String>,
    /// How they showed it: `api_key`, `token`, `oidc`, `command_line`.
    credential: String,
    /// The beginning of the API key.
    key_prefix: Option<String>,
    /// The outside issuer.
    issuer: Option<String>,
    /// Their subject at that issuer.
    subject: Option<String>,
    /// The request: the operation's id in this document, or the command.
    operation: String,
    /// The id of the target.
    target: Option<String>,
    /// The outcome: `done`, `refused`, `failed`.
    outcome: String,
    /// The HTTP status of the answer.
    #[schema(minimum = 100, maximum = 599)]
    status: Option<i32>,
    /// The code of a refusal.
    code: Option<String>,
    /// The address that the call came from.
    peer: Option<String>,
    /// The id under which the log knows the request.
    request_id: Option<String>,
    /// The hash of the entry before; zeros for the first.
    previous: String,
    /// Its own hash: BLAKE3 over everything in it and the hash before.
    hash: String,
}

impl From<AuditEntry> for AuditItem {
    fn from(entry: AuditEntry) -> Self {
        Self {
            chain: entry.chain,
            seq: entry.seq,
            at: entry.at,
            principal_id: entry.principal,
            own_tenant_id: entry.own_tenant,
            role: entry.role,
            credential: entry.credential,
            key_prefix: entry.key_prefix,
            issuer: entry.issuer,
            subject: entry.subject,
            operation: entry.operation,
            target: entry.target,
            outcome: entry.outcome,
            status: entry.status,
            code: entry.code,
            peer: entry.peer,
            request_id: entry.request_id,
            previous: entry.previous,
            hash: entry.hash,
        }
    }
}

/// The longest operation or target that is asked for. Units: characters.
const MAX_CHARS: usize = 100;

/// Which entries.
#[derive(Debug, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListAudit {
    /// Only those about this tenant; by default those of all tenants and of the service itself.
    #[param(inline)]
    tenant: Option<TenantId>,
    /// Only those of this principal.
    #[param(inline)]
    principal: Option<PrincipalId>,
    /// Only those of this operation, such as `cancel_reservation`.
    #[param(max_length = 100)]
    operation: Option<String>,
    /// Only those done to this.
    #[param(max_length = 100)]
    target: Option<String>,
    /// Only those with this outcome.
    #[param(inline)]
    outcome: Option<AuditOutcome>,
    /// Only those of this time or later.
    from: Option<DateTime<Utc>>,
    /// Only those before this time.
    to: Option<DateTime<Utc>>,
    /// The cursor of the page before.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    cursor: Option<String>,
    /// Items of a page.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Lists the actions, their callers and their origins, the newest first.
#[utoipa::path(
    tag = "audit",
    params(ListAudit),
    responses((status = 200, description = "A page of entries", body = Page<AuditItem>))
)]
#[get("/v1/audit")]
pub(crate) async fn list_audit(
    broker: web::Data<Broker>,
    _who: May<ReadAudit>,
    query: web::Query<ListAudit>,
) -> Result<web::Json<Page<AuditItem>>, ApiError> {
    let limit = limit(query.limit)?;
    for (field, word) in [("operation", &query.operation), ("target", &query.target)] {
        let is_word = |word: &String| {
            word.chars().count() <= MAX_CHARS && !word.chars().any(char::is_control)
        };
        if !word.as_ref().is_none_or(is_word) {
            return Err(ApiError::invalid_parameter(format!(
                "`{field}` must be at most {MAX_CHARS} characters, none of them a control character"
            )));
        }
    }
    let cursors = Cursors::of(broker.keys(), "audit", &*query);
    let after: Option<AuditPosition> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let filter = AuditFilter {
        tenant: query.tenant,
        principal: query.principal,
        operation: query.operation.clone(),
        target: query.target.clone(),
        outcome: query.outcome,
        from: query.from,
        to: query.to,
    };
    let audit = broker.store().audit();
    let found = audit
        .list(&filter, after.as_ref(), limit as u64 + 1)
        .await?;
    let page = cursors.page(found, limit, |entry| {
        AuditPosition(entry.at, entry.chain.clone(), entry.seq)
    });
    Ok(web::Json(page.map(AuditItem::from)))
}
