//! `GET /metrics`, and the timing of every request.
//!
//! It says how much is sold and by whom it is bought from, so it is closed by default: it opens to
//! an administrator's key, and to the token of `server.metrics_token` where one is set, which a
//! scraper can hold without being an administrator. A listener of its own was the alternative: it
//! would be open to whoever reaches its port, and one more address to configure.

use std::time::Instant;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::middleware::Next;
use actix_web::{Error, HttpRequest, HttpResponse, get, web};
use market::identity::{ResourceFamily, Scope};
use secrecy::ExposeSecret as _;

use super::access::allow;
use super::auth::{self, bearer};
use super::error::ApiError;
use crate::app::Broker;
use crate::metrics;

/// The text format of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// What requests that no route serves are counted under.
const UNMATCHED: &str = "unmatched";

/// What this replica counts and times, and how it stands, in the text format of Prometheus.
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
    let text = metrics::render(&broker).await;
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

/// Counts and times every request.
pub(super) async fn time<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let began = Instant::now();
    let method = method(request.method());
    let answered = next.call(request).await;
    let (route, status) = match &answered {
        Ok(response) => (response.request().match_pattern(), response.status()),
        Err(error) => (None, error.as_response_error().status_code()),
    };
    let route = route.unwrap_or_else(|| UNMATCHED.to_owned());
    metrics::request_ended(method, route, status.as_u16(), began.elapsed());
    answered
}

/// Methods are whatever a caller writes: those that we do not serve are counted as one.
fn method(method: &Method) -> &'static str {
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
