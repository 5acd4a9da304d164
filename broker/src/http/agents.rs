//! `GET /v1/agents`, `GET /v1/agents/{sha256}`: the agent file that real nodes fetch before they are
//! verified, and by which a tenant checks a node in use.
//!
//! Anybody may ask for it, so a request costs neither a read of the file nor its compression.

use std::io;
use std::path::Path;

use actix_web::http::header::ContentEncoding;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, get, web};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::error::ApiError;
use crate::platform::app::{AgentDelivery, Broker};

/// The agent file in memory, once somebody has asked for it.
#[derive(Default)]
pub(crate) struct AgentFile(OnceCell<Bytes>);

impl AgentFile {
    /// The file, read at the first call alone.
    ///
    /// Errors: the file system's, and a file that has another hash than when the service started;
    /// the next call then tries again.
    async fn bytes(&self, path: &Path, sha256: &str) -> io::Result<Bytes> {
        let read = async || {
            let file = tokio::fs::read(path).await?;
            if hex::encode(Sha256::digest(&file)) != sha256 {
                let words = "the agent file was changed since the service started; restart it";
                return Err(io::Error::other(words));
            }
            Ok(Bytes::from(file))
        };
        self.0.get_or_try_init(read).await.cloned()
    }
}

/// The agents that nodes run.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct Agents {
    /// One; none where nodes are simulated, or where nothing can be verified.
    items: Vec<AgentEntry>,
}

impl Agents {
    fn of(delivery: &AgentDelivery, public_url: &str) -> Self {
        let items = match delivery {
            AgentDelivery::File { sha256, .. } => vec![AgentEntry {
                sha256: sha256.clone(),
                url: format!("{public_url}/v1/agents/{sha256}"),
            }],
            AgentDelivery::Simulated { .. } | AgentDelivery::Missing => Vec::new(),
        };
        Self { items }
    }
}

/// An agent's file.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct AgentEntry {
    /// SHA-256 of the file in hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    sha256: String,
    /// Where it is fetched from, without any credential.
    #[schema(max_length = 4096)]
    url: String,
}

/// Which agent nodes run: a program for x86-64 Linux that also checks a machine by itself (`verifier run`).
#[utoipa::path(
    tag = "verifications",
    responses((status = 200, description = "The agents", body = Agents)),
    security(())
)]
#[get("/v1/agents")]
pub(crate) async fn list_agents(broker: web::Data<Broker>) -> web::Json<Agents> {
    web::Json(Agents::of(broker.agent(), broker.public_url()))
}

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
    held: web::Data<AgentFile>,
    asked: web::Path<String>,
) -> Result<HttpResponse, ApiError> {
    match broker.agent() {
        AgentDelivery::File { path, sha256 } if *sha256 == *asked => {
            let file = held
                .bytes(path, sha256)
                .await
                .map_err(|error| ApiError::broken(&error))?;
            Ok(HttpResponse::Ok()
                .content_type("application/octet-stream")
                .insert_header(ContentEncoding::Identity)
                .body(file))
        }
        _ => Err(ApiError::not_found(
            "there is no agent file of this hash; GET /v1/agents names the one that is served",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_named_by_where_it_is_fetched_from() {
        let sha256 = "ab".repeat(32);
        let file = AgentDelivery::File {
            path: "/opt/verifier".into(),
            sha256: sha256.clone(),
        };
        let named = serde_json::to_value(Agents::of(&file, "https://broker.example"));
        let url = format!("https://broker.example/v1/agents/{sha256}");
        let expected = serde_json::json!({ "items": [{ "sha256": sha256, "url": url }] });
        assert_eq!(named.expect("JSON"), expected);
        assert!(Agents::of(&AgentDelivery::Missing, "").items.is_empty());
    }

    #[tokio::test]
    async fn the_file_is_read_once_and_only_as_it_was_when_the_service_started() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("agent");
        let sha256 = hex::encode(Sha256::digest(b"agent"));
        let held = AgentFile::default();
        std::fs::write(&path, b"another").expect("a file");
        assert!(held.bytes(&path, &sha256).await.is_err());
        std::fs::write(&path, b"agent").expect("a file");
        assert_eq!(held.bytes(&path, &sha256).await.expect("the file"), "agent");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(held.bytes(&path, &sha256).await.expect("the file"), "agent");
    }
}
