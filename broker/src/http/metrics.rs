//! `GET /metrics`, and the labels under which every request is counted.
//!
//! It shows how much is sold and from whom it is bought, so it is closed by default: it opens to an
//! administrator's key, and to the token of `server.metrics_token` where one is set, which a scraper can hold
//! without being an administrator. A listener of its own was the alternative: it would be open to anybody who
//! reaches its port, and one more address to configure.

mod sampled;

use std::sync::Arc;
use std::time::Duration;

use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse, get, web};
use market::identity::{ResourceFamily, Scope};
use secrecy::ExposeSecret as _;

use super::access::allow;
use super::auth::{self, bearer};
use super::error::ApiError;
use crate::platform::app::Broker;
use crate::platform::metrics;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The label for requests that no route serves.
const UNMATCHED: &str = "unmatched";

/// The metrics of this replica, in the text format of Prometheus.
///
/// For an administrator's key, or for the token of `server.metrics_token`.
#[utoipa::path(
    tag = "plumbing",
    responses((status = 200, description = "Metrics; docs/metrics.md lists them", body = String, content_type = "text/plain"))
)]
#[get("/metrics")]
pub(crate) async fn show_metrics(
    broker: web::Data<Broker>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    if !has_token(&broker, &request) {
        let caller = auth::identify(&request).await?;
        allow(&caller.grant, ResourceFamily::Audit, Scope::Read)?;
    }
    let text = metrics::recorded() + &sampled::render(&broker).await;
    Ok(HttpResponse::Ok().content_type(TEXT).body(text))
}

/// Whether the configured token was shown.
fn has_token(broker: &Broker, request: &HttpRequest) -> bool {
    let token = broker.config().server.metrics_token.as_ref();
    let (Some(token), Ok(shown)) = (token, bearer(request)) else {
        return false;
    };
    // Hashes are compared in constant time.
    blake3::hash(token.expose_secret().as_bytes()) == blake3::hash(shown.as_bytes())
}

/// Counts and times a request that was answered.
pub(super) fn answered(method: &'static str, route: &Arc<str>, status: StatusCode, took: Duration) {
    let route = match &**route {
        "" => Arc::from(UNMATCHED),
        _ => Arc::clone(route),
    };
    metrics::request_ended(method, route, status.as_u16(), took);
}

/// A caller can write any method: those that we do not serve are counted as one.
pub(super) fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
