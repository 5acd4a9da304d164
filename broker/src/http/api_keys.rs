//! `/v1/api-keys`: the keys of a tenant. A key is shown once; later it is rotated or revoked.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, TimeDelta, Utc};
use market::identity::{Projects, ResourceFamily, Role, Scope, Scopes};
use market::ids::{ApiKeyId, PrincipalId, ProjectId, ProviderId, TenantId};
use serde::{Deserialize, Serialize};
use store::api_keys::{ApiKey, NewApiKey, SuccessorKey};

use super::access::{Grant, ReadIdentity, WriteIdentity};
use super::auth::{self, InProjects, May, Principal};
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use super::names::check_name;
use super::page::{Cursors, Page, WhichPage};
use super::query::Query;
use crate::flow::providers;
use crate::platform::app::Broker;

pub use super::access::default_scopes;
pub use super::credential::NewSecret;

/// An API key, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ApiKeyView {
    /// Its id.
    id: ApiKeyId,
    /// Its principal: the same for all keys that followed one another.
    principal_id: PrincipalId,
    /// The tenant's name for it.
    name: String,
    /// The beginning of the key, to recognise it by.
    prefix: String,
    /// The bearer's role.
    role: Role,
    /// How far it reaches into each family of resources, within its role; a family that is not
    /// named is out of reach.
    #[schema(value_type = std::collections::BTreeMap<ResourceFamily, Scope>)]
    scopes: Scopes,
    /// The projects in which it works; `null` for all, and for the resources of the tenant as a whole.
    projects: Option<BTreeSet<ProjectId>>,
    /// The one provider that it reads, for the role `provider`; else `null`.
    provider_id: Option<ProviderId>,
    /// When it was made.
    created_at: DateTime<Utc>,
    /// When it stops working; `null` for never.
    expires_at: Option<DateTime<Utc>>,
    /// When it was last used, to the minute.
    last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    revoked_at: Option<DateTime<Utc>>,
    /// The key that follows it; it lives on until `expires_at`.
    replaced_by: Option<ApiKeyId>,
}

impl From<ApiKey> for ApiKeyView {
    fn from(key: ApiKey) -> Self {
        Self {
            id: key.id,
            principal_id: key.principal,
            name: key.name,
            prefix: key.prefix,
            role: key.role,
            scopes: key.scopes,
            projects: key.projects.named().cloned(),
            provider_id: key.provider,
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
            revoked_at: key.revoked_at,
            replaced_by: key.replaced_by,
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
    /// Its name.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// The bearer's role.
    role: Role,
    /// The key's scopes; those of its role by default.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::BTreeMap<ResourceFamily, Scope>>)]
    scopes: Option<Scopes>,
    /// The projects in which it works; it sees everything outside them as another tenant's. Only for members,
    /// finance and viewers; by default the projects of the key that makes it.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 100)]
    projects: Option<BTreeSet<ProjectId>>,
    /// For the role `provider`, which needs it: the one provider that it reads.
    #[serde(default)]
    provider_id: Option<ProviderId>,
    /// When it stops working; never by default.
    #[serde(default)]
    expires_at: Option<DateTime<Utc>>,
}

/// Lists the tenant's API keys, the newest first, revoked ones too.
#[utoipa::path(
    tag = "identity",
    params(WhichPage),
    responses((status = 200, description = "A page of keys", body = Page<ApiKeyView>))
)]
#[get("/v1/api-keys")]
pub(crate) async fn list_api_keys(
    broker: web::Data<Broker>,
    who: May<ReadIdentity, InProjects>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<ApiKeyView>>, ApiError> {
    let mut keys = broker.store().api_keys().of(who.tenant).list().await?;
    keys.retain(|key| who.grant.projects.covers(&key.projects));
    let cursors = Cursors::of(broker.keys(), "api-keys", &who.tenant);
    let page = cursors.page_of(keys, &query, |key| key.id)?;
    Ok(web::Json(page.map(ApiKeyView::from)))
}

/// Makes an API key. It cannot be let at more, nor for longer, than the key it is made with.
///
/// A token is not enough: a thief of the token would otherwise have a key for good.
#[utoipa::path(
    tag = "identity",
    params(IdempotencyHeader),
    request_body = MakeApiKey,
    responses((status = 201, description = "The key, shown this once", body = MadeApiKey))
)]
#[post("/v1/api-keys")]
pub(crate) async fn make_api_key(
    broker: web::Data<Broker>,
    who: May<WriteIdentity, InProjects>,
    request: HttpRequest,
    body: Body<MakeApiKey>,
) -> Result<HttpResponse, ApiError> {
    who.shown_api_key()?;
    let asked = body.value;
    check_name("name", &asked.name)?;
    let scopes = asked.scopes.unwrap_or_else(|| default_scopes(asked.role));
    let named = asked
        .projects
        .or_else(|| who.grant.projects.named().cloned());
    let projects = match named {
        Some(named) => known_projects(&broker, who.tenant, asked.role, named).await?,
        None => Projects::All,
    };
    let provider = bound_to(&broker, asked.role, asked.provider_id).await?;
    let grant = Grant {
        role: asked.role,
        scopes,
        projects,
        provider,
    };
    check_grant(&who, &grant, asked.expires_at, broker.now())?;
    let secret = NewSecret::generate();
    // The answer kept for a repetition must not hold the key.
    let kept_answer = |key: &ApiKey| made(key, None);
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let new = NewApiKey {
            id: ApiKeyId::from_uuid(broker.new_uuid()),
            name: asked.name,
            role: grant.role,
            scopes: grant.scopes,
            projects: grant.projects,
            provider: grant.provider,
            prefix: secret.prefix(),
            hash: secret.hash(),
            expires_at: asked.expires_at,
            created_at: broker.now(),
            made_by: Some(who.id),
        };
        let keys = broker.store().api_keys().of(who.tenant);
        let key = keys.insert(new, completion(mark, &kept_answer)).await?;
        Ok(made(&key, Some(&secret)))
    })
    .await
}

/// The most projects that a key may name.
const MOST_PROJECTS: usize = 100;

/// The projects for a key of this role.
///
/// Errors: `invalid_body` for none, for too many, and for a role that is not limited to projects;
/// `unknown_reference` for a project that the tenant does not have.
async fn known_projects(
    broker: &Broker,
    tenant: TenantId,
    role: Role,
    named: BTreeSet<ProjectId>,
) -> Result<Projects, ApiError> {
    if matches!(role, Role::Admin | Role::Provider) {
        return Err(ApiError::invalid_body(format!(
            "`projects` is for members, finance and viewers; the resources of the role `{}` \
             belong to no project",
            role.as_str()
        )));
    }
    if !(1..=MOST_PROJECTS).contains(&named.len()) {
        return Err(ApiError::invalid_body(format!(
            "`projects` must name 1 to {MOST_PROJECTS} projects; leave it out for all"
        )));
    }
    let known = broker.store().tenants().projects(tenant).await?;
    let known: BTreeSet<ProjectId> = known.iter().map(|project| project.id).collect();
    match named.difference(&known).next() {
        Some(unknown) => Err(ApiError::unknown_reference(format!(
            "there is no project {unknown}"
        ))),
        None => Ok(Projects::Only(named)),
    }
}

/// The provider for a key of this role.
///
/// Errors: `invalid_body` for one that another role names, or the role `provider` does not;
/// `unknown_reference` for one that is not there.
async fn bound_to(
    broker: &Broker,
    role: Role,
    named: Option<ProviderId>,
) -> Result<Option<ProviderId>, ApiError> {
    match (role == Role::Provider, &named) {
        (true, None) => Err(ApiError::invalid_body(
            "`provider_id` is missing: a key of the role `provider` is for one provider; name it",
        )),
        (false, Some(_)) => Err(ApiError::invalid_body(
            "`provider_id` is for the role `provider` alone; leave it out",
        )),
        (true, Some(id)) if !providers::is_known(broker.store(), id).await? => Err(
            ApiError::unknown_reference(format!("there is no provider {id} here")),
        ),
        _ => Ok(named),
    }
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
            "the role, scopes, projects or provider of the new key reach further than those of the key it is made with; narrow them",
        ));
    }
    if maker
        .expires_at()
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
/// The maker and the holder of a key can revoke it; another's key only an administrator can. The key must
/// reach no further than the caller's own, and a token cannot revoke.
#[utoipa::path(
    tag = "identity",
    params(("id" = ApiKeyId, Path, description = "The key"), IdempotencyHeader),
    responses((status = 204, description = "It is revoked"))
)]
#[delete("/v1/api-keys/{id}")]
pub(crate) async fn revoke_api_key(
    broker: web::Data<Broker>,
    who: May<WriteIdentity, InProjects>,
    request: HttpRequest,
    id: web::Path<ApiKeyId>,
) -> Result<HttpResponse, ApiError> {
    who.shown_api_key()?;
    let key = find_covered(&broker, &who, *id).await?;
    // The maker and the holder of the key.
    let maker = key.made_by.filter(|maker| *maker == who.id);
    who.may_change(maker.or(Some(key.principal)))?;
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let keys = broker.store().api_keys().of(who.tenant);
        keys.revoke(key.id, broker.now(), completion(effect, &gone))
            .await?;
        auth::forget_keys(&request);
        Ok(gone(&()))
    })
    .await
}

/// A key of the tenant that reaches no further than the caller's own.
///
/// Errors: `not_found`, `access_denied`.
async fn find_covered(broker: &Broker, who: &Principal, id: ApiKeyId) -> Result<ApiKey, ApiError> {
    let keys = broker.store().api_keys().across_tenants();
    let key = keys
        .find(id)
        .await?
        .filter(|key| key.tenant_id == who.tenant && who.grant.projects.covers(&key.projects))
        .ok_or_else(|| ApiError::not_found(format!("there is no API key {id} here")))?;
    if who.grant.covers(&Grant::from(&key)) {
        Ok(key)
    } else {
        Err(ApiError::access_denied(
            "that key reaches further than the one you call with; use a key that reaches as far",
        ))
    }
}

/// The settings of the key that follows another.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RotateApiKey {
    /// For how long the old key lives on beside the new one. Units: seconds.
    #[serde(default = "usual_overlap")]
    #[schema(minimum = 0, maximum = 2_592_000, default = 86_400)]
    overlap_seconds: u32,
    /// When the new key stops working; by default when the old one would have.
    #[serde(default)]
    expires_at: Option<DateTime<Utc>>,
}

/// 24 hours.
const fn usual_overlap() -> u32 {
    86_400
}

/// 30 days.
const MOST_OVERLAP_SECONDS: u32 = 2_592_000;

/// Makes the key that follows another: of the same principal, name, role and scopes. The old one
/// lives on for a while, so that nothing stops while the new one is put in place.
///
/// The holder of a key can rotate it; another principal's key only an administrator can. A token cannot
/// rotate.
#[utoipa::path(
    tag = "identity",
    params(("id" = ApiKeyId, Path, description = "The key"), IdempotencyHeader),
    request_body = RotateApiKey,
    responses((status = 201, description = "The new key, shown this once", body = MadeApiKey))
)]
#[post("/v1/api-keys/{id}/rotate")]
pub(crate) async fn rotate_api_key(
    broker: web::Data<Broker>,
    who: May<WriteIdentity, InProjects>,
    request: HttpRequest,
    id: web::Path<ApiKeyId>,
    body: Body<RotateApiKey>,
) -> Result<HttpResponse, ApiError> {
    who.shown_api_key()?;
    let RotateApiKey {
        overlap_seconds,
        expires_at,
    } = body.value;
    if overlap_seconds > MOST_OVERLAP_SECONDS {
        return Err(ApiError::invalid_body(
            "`overlap_seconds` may be at most 2592000, which is 30 days",
        ));
    }
    let old = find_covered(&broker, &who, *id).await?;
    // The new key is the same principal, so its holder could end everything that principal made.
    who.may_change(Some(old.principal))?;
    let now = broker.now();
    let expires_at = expires_at.or(old.expires_at);
    let grant = Grant::from(&old);
    let usable = old.revoked_at.is_none() && old.expires_at.is_none_or(|end| now < end);
    if usable {
        check_grant(&who, &grant, expires_at, now)?;
    }
    let secret = NewSecret::generate();
    let kept_answer = |key: &ApiKey| made(key, None);
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let new = SuccessorKey {
            id: ApiKeyId::from_uuid(broker.new_uuid()),
            prefix: secret.prefix(),
            hash: secret.hash(),
            expires_at,
            old_until: now + TimeDelta::seconds(overlap_seconds.into()),
        };
        let keys = broker.store().api_keys().of(who.tenant);
        let key = keys
            .rotate(old.id, new, now, completion(effect, &kept_answer))
            .await?;
        auth::forget_keys(&request);
        Ok(made(&key, Some(&secret)))
    })
    .await
}
