//! `GET /v1/agents/{sha256}`: the agent file that real nodes fetch before they are verified.

use actix_web::{HttpResponse, get, web};

use super::error::ApiError;
use crate::app::{AgentDelivery, Broker};

/// The agent, by the hash of its file. It is the same for everybody and holds no secret.
#[utoipa::path(
    tag = "verifications",
    params(("sha256" = String, Path, description = "SHA-256 of the file in hexadecimal digits", pattern = "^[0-9a-f]{64}$")),
    responses((
        status = 200, description = "The file", body = Vec<u8>, content_type = "application/octet-stream"
    )),
    security(())
)]
#[get("/v1/agents/{sha256}")]
pub(crate) async fn agent_file(
    broker: web::Data<Broker>,
    asked: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    match broker.agent() {
        AgentDelivery::File { path, sha256 } if *sha256 == *asked => {
            let file = tokio::fs::read(path)
                .await
                .map_err(|error| ApiError::broken(&error))?;
            Ok(HttpResponse::Ok()
                .content_type("application/octet-stream")
                .body(file))
        }
        _ => Err(ApiError::not_found(
            "there is no agent file of this hash; the order of work names the right one",
        )),
    }
}
