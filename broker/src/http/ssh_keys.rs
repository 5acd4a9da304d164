//! `/v1/ssh-keys`: the public SSH keys that a tenant's machines get.

mod openssh;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use market::ids::SshKeyId;
use serde::{Deserialize, Serialize};
use store::ssh_keys::SshKey;

use super::access::{ReadSshKeys, WriteSshKeys};
use super::auth::{InProjects, May};
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use super::names::check_name;
use super::page::{Cursors, Page, WhichPage};
use super::query::Query;
use crate::platform::app::Broker;
use openssh::PublicKey;

/// A public SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct SshKeyView {
    /// Its id.
    id: SshKeyId,
    /// The tenant's name for it.
    name: String,
    /// The key in OpenSSH form, without its comment.
    public_key: String,
    /// Its fingerprint, as `ssh-keygen -l` shows it.
    fingerprint: String,
    /// When it was added.
    created_at: DateTime<Utc>,
}

impl From<SshKey> for SshKeyView {
    fn from(key: SshKey) -> Self {
        let SshKey {
            id,
            name,
            public_key,
            fingerprint,
            created_at,
            tenant_id: _,
        } = key;
        Self {
            id,
            name,
            public_key,
            fingerprint,
            created_at,
        }
    }
}

/// A public SSH key to add.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddSshKey {
    /// Its name.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// The key as written in a `.pub` file: Ed25519, ECDSA, RSA of 2048 bits or more, or a security key.
    #[schema(min_length = 1, max_length = 16_384)]
    public_key: String,
}

/// Lists the tenant's SSH keys, the newest first.
#[utoipa::path(
    tag = "ssh-keys",
    params(WhichPage),
    responses((status = 200, description = "A page of keys", body = Page<SshKeyView>))
)]
#[get("/v1/ssh-keys")]
pub(crate) async fn list_ssh_keys(
    broker: web::Data<Broker>,
    who: May<ReadSshKeys, InProjects>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<SshKeyView>>, ApiError> {
    let keys = broker.store().ssh_keys().of(who.tenant).list().await?;
    let cursors = Cursors::of(broker.keys(), "ssh-keys", &who.tenant);
    let page = cursors.page_of(keys, &query, |key| key.id)?;
    Ok(web::Json(page.map(SshKeyView::from)))
}

/// Adds a public SSH key.
#[utoipa::path(
    tag = "ssh-keys",
    params(IdempotencyHeader),
    request_body = AddSshKey,
    responses((status = 201, description = "The key", body = SshKeyView))
)]
#[post("/v1/ssh-keys")]
pub(crate) async fn add_ssh_key(
    broker: web::Data<Broker>,
    who: May<WriteSshKeys>,
    request: HttpRequest,
    body: Body<AddSshKey>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    check_name("name", &asked.name)?;
    let key = PublicKey::parse(&asked.public_key)
        .map_err(|error| ApiError::invalid_ssh_key(error.to_string()))?;
    let render = |key: &SshKey| answer(StatusCode::CREATED, &SshKeyView::from(key.clone()));
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let new = store::ssh_keys::NewSshKey {
            id: SshKeyId::from_uuid(broker.new_uuid()),
            name: asked.name,
            public_key: key.line(),
            fingerprint: key.fingerprint(),
        };
        let keys = broker.store().ssh_keys().of(who.tenant);
        let kept = keys
            .add(new, broker.now(), completion(mark, &render))
            .await?;
        Ok(render(&kept))
    })
    .await
}

/// Forgets a key. Machines that carry it already keep it.
#[utoipa::path(
    tag = "ssh-keys",
    params(("id" = SshKeyId, Path, description = "The key"), IdempotencyHeader),
    responses((status = 204, description = "It is forgotten"))
)]
#[delete("/v1/ssh-keys/{id}")]
pub(crate) async fn delete_ssh_key(
    broker: web::Data<Broker>,
    who: May<WriteSshKeys>,
    request: HttpRequest,
    id: web::Path<SshKeyId>,
) -> Result<HttpResponse, ApiError> {
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let keys = broker.store().ssh_keys().of(who.tenant);
        keys.delete(*id, completion(effect, &gone)).await?;
        Ok(gone(&()))
    })
    .await
}
