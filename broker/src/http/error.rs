//! Problem documents (RFC 9457): every refusal has a stable code, and the table of codes is here.
//!
//! The handler that calls a stage maps the stage's errors to codes. `request`, which knows the request id,
//! puts it in.

use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use market::demand::check::DemandFault;
use serde::Serialize;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

use super::masked::masked;

/// When to call again after the database could not do it.
const DATABASE_RETRY_SECONDS: u64 = 5;

/// The media type of a problem document.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// One line of the table of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    name: &'static str,
    status: u16,
    title: &'static str,
}

/// A refusal as the caller sees it.
///
/// `detail` names the fault and the remedy; it carries nothing of the database. Words in it that look like
/// keys are hidden when it is shown.
#[derive(Debug)]
pub struct ApiError {
    code: &'static Code,
    detail: String,
    faults: Vec<DemandFault>,
    retry_after_seconds: Option<u64>,
    allow: Option<String>,
}

macro_rules! codes {
    ($($name:ident, $status:literal, $title:literal;)+) => {
        /// Every code. A code is never used for anything else, also after it is gone.
        const CODES: &[Code] = &[
            $(Code { name: stringify!($name), status: $status, title: $title },)+
        ];

        impl ApiError {
            $(
                #[doc = concat!($title, ".")]
                pub(crate) fn $name(detail: impl Into<String>) -> Self {
                    const CODE: &Code =
                        &Code { name: stringify!($name), status: $status, title: $title };
                    Self::new(CODE, detail.into())
                }
            )+
        }
    };
}

codes! {
    invalid_json, 400, "The body is not JSON";
    token_missing, 401, "A credential is needed";
    invalid_token, 401, "The credential is not valid";
    token_expired, 401, "The credential has expired";
    not_a_member, 403, "Authenticated, but not a member of any tenant";
    not_yours, 403, "Made by another principal of the tenant";
    access_denied, 403, "The credential does not allow this";
    grant_exceeds_own, 403, "A key cannot grant more than its maker has";
    route_not_found, 404, "There is no such route";
    not_found, 404, "Not found";
    method_not_allowed, 405, "The route does not take this method";
    body_too_slow, 408, "The body arrived too slowly";
    above_ceiling, 409, "The quote exceeds the ceiling";
    agent_key_committed, 409, "The key of the agent was committed before";
    already_exists, 409, "Already exists";
    budget_exceeded, 409, "Budget exceeded";
    capacity_taken, 409, "The capacity was taken meanwhile";
    commitment_used, 409, "Less is left of the commitment than was quoted";
    changed_meanwhile, 409, "Changed concurrently";
    hold_lapsed, 409, "The hold has lapsed";
    key_not_active, 409, "The key is revoked, has expired or was rotated";
    endpoint_disabled, 409, "The webhook endpoint is disabled";
    fleet_follows, 409, "A fleet follows the reservation and cannot start so late";
    idempotency_in_progress, 409, "The first request with this key is still running";
    lease_not_ready, 409, "The lease is not ready to be verified";
    not_handed_off, 409, "Nothing has been handed off";
    no_ssh_key, 409, "There is no SSH key to install";
    nothing_matches, 409, "Nothing that can be ordered satisfies the demand";
    offer_changed, 409, "The offer changed since the plan was made";
    offer_cooling_down, 409, "The offer failed several times recently and is in cool-down";
    offer_not_orderable, 409, "The offer cannot be ordered here";
    plan_outdated, 409, "The plan is of another release";
    outside_policy, 409, "A provider does not meet the policy";
    own_capacity_full, 409, "Limit of registered own capacity reached";
    provider_configured, 409, "The provider is connected by the configuration";
    provider_disabled, 409, "The provider is disabled";
    provider_in_use, 409, "Something may still run at the provider";
    provider_not_connected, 409, "The provider has no credential here";
    provider_quarantined, 409, "The provider is suspended";
    quota_exceeded, 409, "Quota exceeded";
    quote_lapsed, 409, "The quote has lapsed";
    quote_taken, 409, "The quote was taken already";
    run_over, 409, "The reservation to follow is over or ending";
    siblings_not_ready, 409, "Other nodes of the lease have not enrolled yet";
    step_out_of_order, 409, "The step does not fit the conversation";
    too_many_budgets, 409, "Limit of budgets reached";
    tags_required, 422, "Tags that the tenant requires are missing";
    no_room, 409, "Resource limit reached";
    too_many_endpoints, 409, "Limit of webhook endpoints reached";
    verification_interrupted, 409, "The conversation cannot go on";
    wrong_state, 409, "The reservation is in another state";
    attestation_let_go, 410, "The result of a re-check is no longer kept";
    events_pruned, 410, "The events are no longer kept";
    payload_too_large, 413, "The body is too large";
    unsupported_media_type, 415, "The body is not sent as JSON";
    invalid_parameter, 422, "A parameter of the address or a header cannot be read";
    invalid_cursor, 422, "The cursor does not belong to this list";
    invalid_body, 422, "The body does not fit its schema";
    invalid_demand, 422, "The demand asks for something impossible";
    idempotency_key_reused, 422, "The key was used for another request";
    credential_refused, 422, "The provider does not take the credential";
    invalid_webhook_url, 422, "The URL is not allowed for webhooks";
    invalid_ssh_key, 422, "Not an accepted SSH public key";
    node_refused, 422, "The node cannot be verified";
    result_refused, 422, "The result is not about the node";
    too_many_leases, 422, "The reservation takes too many orders";
    unknown_reference, 422, "The body names something that is not there";
    rate_limited, 429, "Too many requests";
    too_many_cancelled, 429, "Too many orders were cancelled before their hand-off";
    too_many_unused_holds, 429, "Too many holds went unused";
    too_many_reports, 429, "Limit of node reports reached";
    too_many_rechecks, 429, "The node was checked recently";
    too_many_streams, 429, "Limit of open event streams reached";
    internal, 500, "Internal error";
    busy, 503, "The service is overloaded";
    database_unavailable, 503, "The database is temporarily unavailable";
    issuer_unavailable, 503, "The issuer of the login does not answer";
    not_ready, 503, "The service is not ready";
    outcome_unknown, 503, "The outcome is unknown";
    step_raced, 503, "Another message for this step was faster";
}

impl ApiError {
    fn new(code: &'static Code, detail: String) -> Self {
        Self {
            code,
            detail,
            faults: Vec::new(),
            retry_after_seconds: None,
            allow: None,
        }
    }

    /// Says more about the same refusal.
    pub(crate) fn with_detail(mut self, detail: String) -> Self {
        self.detail = detail;
        self
    }

    /// Names the fields that are at fault.
    pub(crate) fn with_faults(mut self, faults: Vec<DemandFault>) -> Self {
        self.faults = faults;
        self
    }

    /// Adds when to try again.
    pub(crate) fn retry_after_seconds(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Adds the methods that the route takes.
    pub(crate) fn with_allow(mut self, methods: String) -> Self {
        self.allow = Some(methods);
        self
    }

    /// A failure of ours: the causes go to the log, once, and not to the caller.
    pub(crate) fn broken(error: &(dyn std::error::Error + 'static)) -> Self {
        log(error);
        Self::internal(
            "the request could not be done; try again, and name the request id when you report it",
        )
    }

    /// The stable code.
    pub(crate) fn code(&self) -> &'static str {
        self.code.name
    }

    /// The problem document.
    pub(crate) fn problem(&self, request_id: Option<&str>) -> Problem {
        Problem {
            r#type: format!("urn:gpu-broker:problem:{}", self.code.name),
            title: self.code.title.to_owned(),
            status: self.code.status,
            detail: masked(&self.detail).into_owned(),
            code: self.code.name.to_owned(),
            request_id: request_id.map(str::to_owned),
            faults: self.faults.iter().map(without_keys).collect(),
        }
    }
}

/// The fault, without words that look like keys.
fn without_keys(fault: &DemandFault) -> DemandFault {
    DemandFault {
        field: masked(&fault.field).into_owned(),
        detail: masked(&fault.detail).into_owned(),
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.name, self.detail)
    }
}

impl std::error::Error for ApiError {}

impl actix_web::ResponseError for ApiError {
    fn status_code(&self) -> StatusCode {
        // Every status of the table is a valid one; a test walks it.
        StatusCode::from_u16(self.code.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        let mut response = HttpResponse::build(self.status_code());
        response.content_type(PROBLEM_JSON);
        if self.code.status == 401 {
            response.insert_header((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
        }
        if let Some(seconds) = self.retry_after_seconds {
            response.insert_header((RETRY_AFTER, seconds.to_string()));
        }
        if let Some(allow) = &self.allow {
            response.insert_header((ALLOW, allow.as_str()));
        }
        response.body(self.problem(None).to_json())
    }
}

impl From<store::StoreError> for ApiError {
    fn from(error: store::StoreError) -> Self {
        use store::StoreError as E;
        match &error {
            E::NotFound { what } => Self::not_found(format!("there is no such {what} here")),
            E::Stale => Self::changed_meanwhile(
                "someone else changed it at the same moment; read it again, then decide again",
            ),
            E::Conflict(conflict @ store::Conflict::OwnCapacityFull { .. }) => {
                Self::own_capacity_full(conflict.to_string())
            }
            E::Conflict(conflict @ store::Conflict::CommitmentUsed { .. }) => {
                Self::commitment_used(format!("{conflict}; plan again"))
            }
            E::Conflict(conflict @ store::Conflict::RunOver { .. }) => {
                Self::run_over(conflict.to_string())
            }
            E::Conflict(
                conflict @ (store::Conflict::FleetFollows { .. }
                | store::Conflict::RunTooLate { .. }),
            ) => Self::fleet_follows(conflict.to_string()),
            E::Conflict(conflict @ store::Conflict::TooManyFollowers { .. }) => {
                Self::no_room(conflict.to_string())
            }
            E::Conflict(conflict @ store::Conflict::TooMany { .. }) => {
                Self::too_many_endpoints(conflict.to_string())
            }
            E::Conflict(conflict @ store::Conflict::NoRoom { .. }) => {
                Self::no_room(conflict.to_string())
            }
            E::Conflict(
                conflict @ store::Conflict::TooManyReports {
                    again_in_seconds, ..
                },
            ) => {
                Self::too_many_reports(conflict.to_string()).retry_after_seconds(*again_in_seconds)
            }
            E::Conflict(
                conflict @ store::Conflict::TooManyUnused {
                    again_in_seconds, ..
                },
            ) => Self::too_many_unused_holds(conflict.to_string())
                .retry_after_seconds(*again_in_seconds),
            E::Conflict(
                conflict @ store::Conflict::TooManyCancelled {
                    again_in_seconds, ..
                },
            ) => Self::too_many_cancelled(conflict.to_string())
                .retry_after_seconds(*again_in_seconds),
            E::Conflict(conflict @ store::Conflict::EndpointDisabled) => {
                Self::endpoint_disabled(conflict.to_string())
            }
            E::Conflict(conflict @ store::Conflict::TooManyBudgets { .. }) => {
                Self::too_many_budgets(conflict.to_string())
            }
            E::LimitExceeded(refusal) => Self::quota_exceeded(refusal.to_string()),
            E::BudgetExceeded(refusal) => Self::budget_exceeded(refusal.to_string()),
            E::Conflict(store::Conflict::ProviderInUse) => Self::provider_in_use(
                "it is enabled, or has open holds or leases, which need this credential; disable the provider, wait until nothing is open there, then try again",
            ),
            E::Conflict(conflict @ store::Conflict::ProviderDisabled { .. }) => {
                Self::provider_disabled(format!("{conflict}; plan again"))
            }
            E::Conflict(conflict @ store::Conflict::ProviderQuarantined { .. }) => {
                Self::provider_quarantined(format!("{conflict}; plan again"))
            }
            E::Conflict(store::Conflict::Exists { what }) => {
                Self::already_exists(format!("{what} exists already"))
            }
            E::Conflict(store::Conflict::KeyNotActive) => Self::key_not_active(
                "the key was revoked, has expired or was rotated already; rotate the one that follows it, or make another",
            ),
            E::Unavailable { .. } => {
                log(&error);
                Self::database_unavailable(
                    "the database cannot be reached, is full or is too busy, and the request was not carried out; try again in a moment",
                )
                .retry_after_seconds(DATABASE_RETRY_SECONDS)
            }
            E::OutcomeUnknown { .. } => {
                log(&error);
                Self::outcome_unknown(
                    "the connection to the database was lost at the last moment, so the request was carried out either completely or not at all; send it again with the same `Idempotency-Key`, or, without one, check first whether it took effect",
                )
                .retry_after_seconds(DATABASE_RETRY_SECONDS)
            }
            _ => Self::broken(&error),
        }
    }
}

/// Logs, once, the causes that the caller does not see.
fn log(error: &(dyn std::error::Error + 'static)) {
    let causes = crate::chain(error);
    tracing::error!(error = %causes, "A request failed: {causes}");
}

/// A problem document (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// Names the kind of problem; made of the code.
    #[serde(rename = "type")]
    r#type: String,
    /// The kind of problem in words.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The fault in this case, and the remedy.
    detail: String,
    /// The stable code to act on.
    #[schema(schema_with = code_schema)]
    code: String,
    /// The id under which the log knows this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// The fields that are at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    faults: Vec<DemandFault>,
}

impl Problem {
    /// The document as text.
    pub(crate) fn to_json(&self) -> String {
        // Strings and integers alone always serialise.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn code_schema() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("The stable code to act on"))
        .enum_values(Some(CODES.iter().map(|code| code.name)))
        .into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use actix_web::ResponseError as _;

    use super::*;

    #[test]
    fn every_code_stands_once_and_has_an_error_status() {
        let names: BTreeSet<_> = CODES.iter().map(|code| code.name).collect();
        assert_eq!(names.len(), CODES.len());
        for code in CODES {
            let status = StatusCode::from_u16(code.status).expect("a status");
            assert!(
                status.is_client_error() || status.is_server_error(),
                "{code:?}"
            );
        }
    }

    #[test]
    fn a_problem_says_what_is_wrong_and_names_the_request() {
        let fault = DemandFault {
            field: "count".into(),
            detail: "must be 1 or more".into(),
        };
        let error = ApiError::invalid_demand("count is 0").with_faults(vec![fault]);
        let json = serde_json::to_value(error.problem(Some("req-1"))).expect("json");
        assert_eq!(
            json,
            serde_json::json!({
                "type": "urn:gpu-broker:problem:invalid_demand",
                "title": "The demand asks for something impossible",
                "status": 422,
                "detail": "count is 0",
                "code": "invalid_demand",
                "request_id": "req-1",
                "faults": [{ "field": "count", "detail": "must be 1 or more" }],
            })
        );
    }

    #[test]
    fn a_broken_database_is_not_described_to_the_caller() {
        let secret = store::StoreError::Corrupt {
            detail: "canary".into(),
        };
        let error = ApiError::from(secret);
        assert_eq!(error.status_code(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!error.problem(None).to_json().contains("canary"));
    }

    #[test]
    fn a_refused_credential_says_which_kind_is_taken() {
        let response = ApiError::invalid_token("no").error_response();
        assert_eq!(
            response.headers().get(WWW_AUTHENTICATE),
            Some(&HeaderValue::from_static("Bearer"))
        );
    }
}
