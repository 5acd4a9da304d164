//! Who is calling: the bearer of an API key, or of a token traded for one.
//!
//! A handler names the right it needs in the type of its argument ([`May`]). What each role may do
//! is the table of [`super::access`].

use std::future::{Future, Ready, ready};
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;

use actix_web::dev::Payload;
use actix_web::http::header::AUTHORIZATION;
use actix_web::{FromRequest, HttpRequest, web};
use chrono::{DateTime, TimeDelta, Utc};
use market::identity::Role;
use market::ids::{ApiKeyId, TenantId};
use serde::Deserialize;
use store::api_keys::ApiKey;
use tracing::{info, warn};

use super::access::{Grant, Right, allow};
use super::credential::{API_KEY_PREFIX, TokenRefusal, hash_api_key, read_token};
use super::error::ApiError;
use crate::app::Broker;

/// How exactly the last use of a key is noted.
const TOUCH_EVERY: TimeDelta = TimeDelta::minutes(1);

/// What a caller showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credential {
    /// An API key.
    ApiKey,
    /// A token traded for one.
    Token,
}

/// Who is calling.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// The tenant that the call is about: the caller's own, or the one that an administrator
    /// named.
    pub(crate) tenant: TenantId,
    /// The caller's own tenant.
    pub(crate) own_tenant: TenantId,
    /// Whether a tenant was named in the address.
    pub(crate) tenant_named: bool,
    /// What the caller is allowed.
    pub(crate) grant: Grant,
    /// The key that the call is made with, at first or second hand.
    pub(crate) api_key_id: ApiKeyId,
    /// When that key stops working; `None` for never.
    pub(crate) expires_at: Option<DateTime<Utc>>,
    /// What the caller showed.
    pub(crate) credential: Credential,
}

impl Principal {
    /// Refuses a caller who showed a token: what it makes would outlive its fifteen minutes.
    ///
    /// Errors: `access_denied`.
    pub(crate) fn showed_api_key(&self) -> Result<(), ApiError> {
        match self.credential {
            Credential::ApiKey => Ok(()),
            Credential::Token => Err(ApiError::access_denied(
                "a token does not do for this; call with the API key that it was traded for",
            )),
        }
    }
}

/// A caller who has the right `R`.
#[derive(Debug)]
pub(crate) struct May<R> {
    principal: Principal,
    right: PhantomData<R>,
}

impl<R> Deref for May<R> {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

impl<R: Right> FromRequest for May<R> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let principal = identify(&request).await?;
            allow(&principal.grant, R::FAMILY, R::SCOPE)?;
            Ok(Self {
                principal,
                right: PhantomData,
            })
        })
    }
}

impl FromRequest for Principal {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move { identify(&request).await })
    }
}

/// A bearer credential, whatever it is good for.
pub(crate) struct Bearer(pub(crate) String);

impl FromRequest for Bearer {
    type Error = ApiError;
    type Future = Ready<Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(bearer(request).map(|credential| Self(credential.to_owned())))
    }
}

/// The bearer credential of a request.
///
/// Errors: `token_missing` when there is none, `invalid_token` when it is not a bearer credential.
fn bearer(request: &HttpRequest) -> Result<&str, ApiError> {
    let header = request.headers().get(AUTHORIZATION).ok_or_else(|| {
        ApiError::token_missing(
            "send `Authorization: Bearer` with an API key, or with a token traded for one",
        )
    })?;
    let (scheme, credential) = header
        .to_str()
        .ok()
        .and_then(|text| text.split_once(' '))
        .ok_or_else(invalid)?;
    let credential = credential.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || credential.is_empty() {
        return Err(invalid());
    }
    Ok(credential)
}

/// The one answer to every credential that is not good, whatever is wrong with it.
fn invalid() -> ApiError {
    ApiError::invalid_token(
        "the credential is not known here or was revoked; use another key, or trade a key for a new token",
    )
}

fn expired() -> ApiError {
    ApiError::token_expired(
        "the credential's time is over; use another key, or trade a key for a new token",
    )
}

async fn identify(request: &HttpRequest) -> Result<Principal, ApiError> {
    let shown = bearer(request)?;
    let broker: &Broker = request
        .app_data::<web::Data<Broker>>()
        .ok_or_else(|| ApiError::internal("the service was started without its broker"))?;
    let now = broker.now();
    let (key, credential) = if shown.starts_with(API_KEY_PREFIX) {
        let key = broker
            .store()
            .api_keys()
            .across_tenants()
            .find_by_hash(&hash_api_key(shown))
            .await?;
        (key, Credential::ApiKey)
    } else {
        let claims =
            read_token(broker.keys().token(), shown, now).map_err(|refusal| match refusal {
                TokenRefusal::Invalid => invalid(),
                TokenRefusal::Expired => expired(),
            })?;
        let key = broker
            .store()
            .api_keys()
            .across_tenants()
            .find(claims.sub)
            .await?;
        // What the key allows is read anew, so that a token never outlives what was taken from it.
        (
            key.filter(|key| key.tenant_id == claims.tenant),
            Credential::Token,
        )
    };
    let key = key
        .filter(|key| key.revoked_at.is_none())
        .ok_or_else(invalid)?;
    if !key.is_usable(now) {
        return Err(expired());
    }
    touch(broker, &key).await;
    principal(broker, request, key, credential).await
}

/// Notes the use of a key. A note that cannot be written is no reason to refuse the call.
async fn touch(broker: &Broker, key: &ApiKey) {
    let now = broker.now();
    if key.last_used_at.is_some_and(|at| now - at < TOUCH_EVERY) {
        return;
    }
    if let Err(error) = broker
        .store()
        .api_keys()
        .across_tenants()
        .touch(key.id, now)
        .await
    {
        warn!(api_key.id = %key.id, error = %error, "Could not note the use of {}", key.id);
    }
}

#[derive(Deserialize)]
struct TenantParameter {
    tenant: Option<TenantId>,
}

async fn principal(
    broker: &Broker,
    request: &HttpRequest,
    key: ApiKey,
    credential: Credential,
) -> Result<Principal, ApiError> {
    let named = web::Query::<TenantParameter>::from_query(request.query_string())
        .map_err(|error| ApiError::invalid_parameter(format!("`tenant`: {error}")))?
        .into_inner()
        .tenant;
    let grant = Grant {
        role: key.role,
        scopes: key.scopes,
    };
    let tenant = named.unwrap_or(key.tenant_id);
    if tenant != key.tenant_id {
        let known =
            grant.role == Role::Admin && broker.store().tenants().find(tenant).await?.is_some();
        if !known {
            return Err(ApiError::not_found("there is no such tenant here"));
        }
        info!(
            api_key.id = %key.id, tenant.id = %tenant, http.method = %request.method(),
            http.route = request.match_pattern().unwrap_or_default(),
            "An administrator acted for {tenant} with {}", key.id
        );
    }
    Ok(Principal {
        tenant,
        own_tenant: key.tenant_id,
        tenant_named: named.is_some(),
        grant,
        api_key_id: key.id,
        expires_at: key.expires_at,
        credential,
    })
}
