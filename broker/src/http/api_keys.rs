//! `/v1/api-keys`: the keys of a tenant. A key is shown once and can then only be revoked.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use market::identity::{ResourceFamily, Role, Scope, Scopes};
use market::ids::{ApiKeyId, TenantId};
use serde::{Deserialize, Serialize};
use store::api_keys::{ApiKey, NewApiKey};

use super::access::{Grant, ReadIdentity, WriteIdentity};
use super::auth::{May, Principal};
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion};
use super::names::check_name;
use super::page::{Cursors, Page, limit};
use crate::app::Broker;

pub use super::access::default_scopes;
pub use super::credential::NewSecret;

/// An API key, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ApiKeyView {
    /// Its id.
    id: ApiKeyId,
    /// What the tenant calls it.
    name: String,
    /// The beginning of the key, to recognise it by.
    prefix: String,
    /// What its bearer is there to do.
    role: Role,
    /// How far it reaches into each family of resources, within its role; a family that is not
    /// named is out of reach.
    #[schema(value_type = std::collections::BTreeMap<ResourceFamily, Scope>)]
    scopes: Scopes,
    /// When it was made.
    created_at: DateTime<Utc>,
    /// When it stops working; `null` for never.
    expires_at: Option<DateTime<Utc>>,
    /// When it was last used, to the minute.
    last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    revoked_at: Option<DateTime<Utc>>,
}

impl From<ApiKey> for ApiKeyView {
    fn from(key: ApiKey) -> Self {
        Self {
            id: key.id,
            name: key.name,
            prefix: key.prefix,
            role: key.role,
            scopes: key.scopes,
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A key that was just made.
// It holds a secret, so it has no debug form.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct MadeApiKey {
    /// The key's particulars.
    #[serde(flatten)]
    key: ApiKeyView,
    /// The key itself, shown this once; `null` when the request is answered a second time.
    secret: Option<String>,
}

/// A key to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeApiKey {
    /// What to call it.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// What its bearer is there to do.
    role: Role,
    /// How far it reaches; as far as its role does, when nothing is said.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::BTreeMap<ResourceFamily, Scope>>)]
    scopes: Option<Scopes>,
    /// When it stops working; never, when nothing is said.
    #[serde(default)]
    expires_at: Option<DateTime<Utc>>,
}

/// Which API keys.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListApiKeys {
    /// For an administrator: whose.
    #[param(inline)]
    #[expect(
        dead_code,
        reason = "the caller's identity is settled with it before the handler runs"
    )]
    tenant: Option<TenantId>,
    /// The cursor of the page before.
    cursor: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Lists the tenant's API keys, the newest first, revoked ones too.
#[utoipa::path(
    tag = "identity",
    params(ListApiKeys),
    responses((status = 200, description = "A page of keys", body = Page<ApiKeyView>))
)]
#[get("/v1/api-keys")]
pub(crate) async fn list_api_keys(
    broker: web::Data<Broker>,
    who: May<ReadIdentity>,
    query: web::Query<ListApiKeys>,
) -> Result<web::Json<Page<ApiKeyView>>, ApiError> {
    let limit = limit(query.limit)?;
    let cursors = Cursors::of(broker.keys(), "api-keys", &who.tenant);
    let after: Option<ApiKeyId> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let keys = broker.store().api_keys().of(who.tenant).list().await?;
    let items = keys
        .into_iter()
        .filter(|key| after.is_none_or(|after| key.id < after))
        .take(limit + 1)
        .map(ApiKeyView::from)
        .collect();
    Ok(web::Json(cursors.page(items, limit, |key| key.id)))
}

/// Makes an API key. It cannot be let at more, nor for longer, than the key it is made with.
///
/// A token does not do: whoever finds one would have a key for good.
#[utoipa::path(
    tag = "identity",
    params(IdempotencyHeader),
    request_body = MakeApiKey,
    responses((status = 201, description = "The key, shown this once", body = MadeApiKey))
)]
#[post("/v1/api-keys")]
pub(crate) async fn make_api_key(
    broker: web::Data<Broker>,
    who: May<WriteIdentity>,
    request: HttpRequest,
    body: Body<MakeApiKey>,
) -> Result<HttpResponse, ApiError> {
    who.showed_api_key()?;
    let asked = body.value;
    check_name("name", &asked.name)?;
    let scopes = asked.scopes.unwrap_or_else(|| default_scopes(asked.role));
    let grant = Grant {
        role: asked.role,
        scopes,
    };
    check_grant(&who, &grant, asked.expires_at, broker.now())?;
    let secret = NewSecret::generate();
    // What is kept to answer a repetition with must not hold the key.
    let kept_answer = |key: &ApiKey| made(key, None);
    idempotency::once(&broker, who.tenant, &request, &body.bytes, async |mark| {
        let new = NewApiKey {
            id: ApiKeyId::from_uuid(broker.new_uuid()),
            name: asked.name,
            role: grant.role,
            scopes: grant.scopes,
            prefix: secret.prefix(),
            hash: secret.hash(),
            expires_at: asked.expires_at,
            created_at: broker.now(),
        };
        let keys = broker.store().api_keys().of(who.tenant);
        let key = keys.insert(new, completion(mark, &kept_answer)).await?;
        Ok(made(&key, Some(&secret)))
    })
    .await
}

fn made(key: &ApiKey, secret: Option<&NewSecret>) -> store::idempotency::Answer {
    let secret = secret.map(|secret| secret.reveal().to_owned());
    answer(
        StatusCode::CREATED,
        &MadeApiKey {
            key: key.clone().into(),
            secret,
        },
    )
}

fn check_grant(
    maker: &Principal,
    grant: &Grant,
    expires_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<(), ApiError> {
    if expires_at.is_some_and(|end| end <= now) {
        return Err(ApiError::invalid_body(
            "`expires_at` lies in the past; the key would never work",
        ));
    }
    if !maker.grant.covers(grant) {
        return Err(ApiError::grant_exceeds_own(
            "the role and scopes of the new key reach further than those of the key it is made with; narrow them",
        ));
    }
    if maker
        .expires_at
        .is_some_and(|own| expires_at.is_none_or(|end| end > own))
    {
        return Err(ApiError::grant_exceeds_own(
            "the new key would outlive the key it is made with; give an earlier `expires_at`",
        ));
    }
    Ok(())
}

/// Revokes an API key, and with it every token traded for it.
///
/// Only a key that reaches no further than the caller's own can be revoked, and not with a token.
#[utoipa::path(
    tag = "identity",
    params(("id" = ApiKeyId, Path, description = "The key")),
    responses((status = 204, description = "It is revoked"))
)]
#[delete("/v1/api-keys/{id}")]
pub(crate) async fn revoke_api_key(
    broker: web::Data<Broker>,
    who: May<WriteIdentity>,
    id: web::Path<ApiKeyId>,
) -> Result<HttpResponse, ApiError> {
    who.showed_api_key()?;
    let keys = broker.store().api_keys();
    let key = keys
        .across_tenants()
        .find(*id)
        .await?
        .filter(|key| key.tenant_id == who.tenant)
        .ok_or_else(|| ApiError::not_found(format!("there is no API key {id} here")))?;
    if !who.grant.covers(&Grant {
        role: key.role,
        scopes: key.scopes,
    }) {
        return Err(ApiError::access_denied(
            "that key reaches further than the one you call with; let a key that reaches as far revoke it",
        ));
    }
    keys.of(who.tenant).revoke(*id, broker.now()).await?;
    Ok(HttpResponse::NoContent().finish())
}
