//! Identifies the caller: the bearer of an API key, of a token traded for one, or of a token of an outside
//! issuer.
//!
//! A handler names the right it needs in the type of its argument ([`May`]). The table of [`super::access`]
//! holds the rights of each role.

mod may;

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::header::AUTHORIZATION;
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, web};
use chrono::{DateTime, TimeDelta, Utc};
use market::identity::{Projects, Role, TenantScope};
use market::ids::{ApiKeyId, PrincipalId, TenantId};
use moka::sync::Cache;
use serde::Deserialize;
use store::api_keys::ApiKey;
use store::audit::{Actor, CredentialKind};
use tracing::{info, warn};

use super::access::{Grant, check_bound, default_scopes};
use super::credential::{API_KEY_PREFIX, TokenRefusal, hash_api_key, read_token, token_kid};
use super::error::ApiError;
use crate::platform::app::Broker;
use crate::platform::oidc::{Issuer, LoginRefusal};

pub(crate) use may::{InProjects, May, OfProviders};

/// How exactly the last use of a key is noted.
const TOUCH_EVERY: TimeDelta = TimeDelta::minutes(1);
/// For how long a key is trusted as it was read: a replica sees another one's revocation this much later.
const BELIEVED: Duration = Duration::from_secs(1);

/// The API keys that called within the last second, by their hash.
pub(super) struct KnownKeys(Cache<String, Arc<KnownKey>>);

struct KnownKey {
    key: ApiKey,
    holder: Arc<Principal>,
    read_at: DateTime<Utc>,
}

impl Default for KnownKeys {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(10_000);
        Self(cache.time_to_live(BELIEVED).build())
    }
}

impl KnownKeys {
    /// The key of this hash, unless the broker's clock has gone on as far as the machine's may.
    fn find(&self, hash: &str, now: DateTime<Utc>) -> Option<Arc<KnownKey>> {
        let known = self.0.get(hash)?;
        let age = (now - known.read_at).to_std();
        age.is_ok_and(|age| age < BELIEVED).then_some(known)
    }

    fn keep(&self, hash: String, known: KnownKey) {
        self.0.insert(hash, Arc::new(known));
    }
}

/// Makes every key be read from the database again: one of them was changed here.
pub(super) fn forget_keys(request: &HttpRequest) {
    if let Some(known) = request.app_data::<web::Data<KnownKeys>>() {
        known.0.invalidate_all();
    }
}

/// The credential that a caller showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shown {
    /// An API key, or a token traded for one.
    Key {
        /// The key.
        id: ApiKeyId,
        /// Its beginning.
        prefix: String,
        /// When it stops working; `None` for never.
        expires_at: Option<DateTime<Utc>>,
        /// Whether a token was shown in its stead.
        by_token: bool,
    },
    /// A token of an outside issuer.
    Login {
        /// The issuer.
        issuer: String,
        /// The caller's subject there.
        subject: String,
    },
}

/// The caller.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    /// The principal of the credential: the same for all keys that followed one another, and for all logins
    /// of one subject.
    pub(crate) id: PrincipalId,
    /// The tenant that the call is about: the caller's own, or the one that an administrator
    /// named.
    pub(crate) tenant: TenantId,
    /// The caller's own tenant.
    pub(crate) own_tenant: TenantId,
    /// Whether a tenant was named in the address.
    pub(crate) tenant_named: bool,
    /// The caller's rights.
    pub(crate) grant: Grant,
    /// The credential that the caller showed.
    pub(crate) shown: Shown,
}

impl Principal {
    /// The part of the tenant's things that the caller reaches.
    pub(crate) fn reach(&self) -> TenantScope {
        TenantScope {
            tenant: self.tenant,
            projects: self.grant.projects.clone(),
        }
    }

    /// The API key that the caller showed.
    ///
    /// Errors: `access_denied` for a token, ours or an outside issuer's: a key made with it would outlive it.
    pub(crate) fn shown_api_key(&self) -> Result<ApiKeyId, ApiError> {
        match self.shown {
            Shown::Key {
                id,
                by_token: false,
                ..
            } => Ok(id),
            Shown::Key { .. } => Err(ApiError::access_denied(
                "a token does not do for this; call with the API key that it was traded for",
            )),
            Shown::Login { .. } => Err(ApiError::access_denied(
                "a token of an outside issuer does not do for this; call with an API key",
            )),
        }
    }

    /// The API key behind the caller, shown or traded.
    ///
    /// Errors: `access_denied` for a token of an outside issuer.
    pub(crate) fn api_key_id(&self) -> Result<ApiKeyId, ApiError> {
        match self.shown {
            Shown::Key { id, .. } => Ok(id),
            Shown::Login { .. } => self.shown_api_key(),
        }
    }

    /// When the credential stops working; `None` for never.
    pub(crate) fn expires_at(&self) -> Option<DateTime<Utc>> {
        match self.shown {
            Shown::Key { expires_at, .. } => expires_at,
            Shown::Login { .. } => None,
        }
    }

    /// Admits the callers who may change a thing that `maker` made: the maker, and administrators. If the
    /// maker is unknown, only an administrator may change it.
    ///
    /// Errors: `not_yours`.
    pub(crate) fn may_change(&self, maker: Option<PrincipalId>) -> Result<(), ApiError> {
        if self.grant.role == Role::Admin || maker == Some(self.id) {
            return Ok(());
        }
        Err(ApiError::not_yours(
            "another principal of your tenant made it; ask them, or an administrator",
        ))
    }

    /// The caller as the audit log names them.
    pub(crate) fn actor(&self) -> Actor {
        let (credential, key_prefix, issuer, subject) = match &self.shown {
            Shown::Key {
                prefix, by_token, ..
            } => {
                let kind = if *by_token {
                    CredentialKind::Token
                } else {
                    CredentialKind::ApiKey
                };
                (kind, Some(prefix.clone()), None, None)
            }
            Shown::Login { issuer, subject } => (
                CredentialKind::Oidc,
                None,
                Some(issuer.clone()),
                Some(subject.clone()),
            ),
        };
        Actor {
            principal: Some(self.id),
            own_tenant: Some(self.own_tenant),
            role: Some(self.grant.role),
            credential,
            key_prefix,
            issuer,
            subject,
        }
    }
}

impl FromRequest for Principal {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let who = identify(&request).await?;
            check_bound(&who.grant)?;
            Ok((*who).clone())
        })
    }
}

/// A bearer credential of any kind.
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
pub(super) fn bearer(request: &HttpRequest) -> Result<&str, ApiError> {
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

/// The one answer to every invalid credential, regardless of the reason.
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

/// The caller of a request, where it was identified already.
pub(crate) fn caller_of(request: &HttpRequest) -> Option<Arc<Principal>> {
    let extensions = request.extensions();
    extensions
        .get::<Caller>()
        .map(|Caller(who)| Arc::clone(who))
}

/// Makes the caller of a request be looked up again.
pub(crate) fn forget_caller(request: &HttpRequest) {
    request.extensions_mut().remove::<Caller>();
}

/// The caller of a request, as kept with it.
struct Caller(Arc<Principal>);

/// The caller of a request; identified once for each.
///
/// Errors: the fault of the credential or of the tenant that it names.
pub(super) async fn identify(request: &HttpRequest) -> Result<Arc<Principal>, ApiError> {
    if let Some(known) = caller_of(request) {
        return Ok(known);
    }
    let shown = bearer(request)?;
    let broker: &Broker = request
        .app_data::<web::Data<Broker>>()
        .ok_or_else(|| ApiError::internal("the service was started without its broker"))?;
    let caller = if shown.starts_with(API_KEY_PREFIX) {
        of_api_key(broker, request, shown).await?
    } else if let Some(issuer) = broker.oidc().issuer_of(shown) {
        Arc::new(of_login(broker, issuer, shown).await?)
    } else {
        Arc::new(of_token(broker, shown).await?)
    };
    about(broker, request, caller).await
}

/// The caller who shows an API key.
async fn of_api_key(
    broker: &Broker,
    request: &HttpRequest,
    shown: &str,
) -> Result<Arc<Principal>, ApiError> {
    let (hash, now) = (hash_api_key(shown), broker.now());
    let known = request.app_data::<web::Data<KnownKeys>>();
    if let Some(known) = known.and_then(|known| known.find(&hash, now)) {
        check_usable(&known.key, now)?;
        return Ok(Arc::clone(&known.holder));
    }
    let keys = broker.store().api_keys().across_tenants();
    let key = keys.find_by_hash(&hash).await?.ok_or_else(invalid)?;
    let holder = Arc::new(of_key(broker, &key, false).await?);
    if let Some(known) = known {
        let holder = Arc::clone(&holder);
        known.keep(
            hash,
            KnownKey {
                key,
                holder,
                read_at: now,
            },
        );
    }
    Ok(holder)
}

/// The holder of a valid key, acting for their own tenant; records that the key was used.
async fn of_key(broker: &Broker, key: &ApiKey, by_token: bool) -> Result<Principal, ApiError> {
    check_usable(key, broker.now())?;
    touch(broker, key).await;
    Ok(Principal {
        id: key.principal,
        tenant: key.tenant_id,
        own_tenant: key.tenant_id,
        tenant_named: false,
        grant: Grant::from(key),
        shown: Shown::Key {
            id: key.id,
            prefix: key.prefix.clone(),
            expires_at: key.expires_at,
            by_token,
        },
    })
}

async fn of_token(broker: &Broker, token: &str) -> Result<Principal, ApiError> {
    let now = broker.now();
    let kid = token_kid(token).ok_or_else(invalid)?;
    let pair = broker.keys().token_key(&kid, now).await;
    let pair = pair.ok_or_else(invalid)?;
    let claims = read_token(&pair, token, now).map_err(|refusal| match refusal {
        TokenRefusal::Invalid => invalid(),
        TokenRefusal::Expired => expired(),
    })?;
    // The key's rights are read again, so that a token never outlives a right that its key lost.
    let keys = broker.store().api_keys().across_tenants();
    let key = keys.find(claims.sub).await?;
    let key = key.filter(|key| key.tenant_id == claims.tenant);
    of_key(broker, &key.ok_or_else(invalid)?, true).await
}

/// Lets a key pass that is good at this time.
fn check_usable(key: &ApiKey, now: DateTime<Utc>) -> Result<(), ApiError> {
    if key.revoked_at.is_some() {
        return Err(invalid());
    }
    if !key.is_usable(now) {
        return Err(expired());
    }
    Ok(())
}

async fn of_login(broker: &Broker, issuer: &Issuer, token: &str) -> Result<Principal, ApiError> {
    let login = issuer.log_in(token, broker.now()).await;
    let login = login.map_err(|refusal| match refusal {
        LoginRefusal::Invalid => invalid(),
        LoginRefusal::Expired => expired(),
        LoginRefusal::Nobody(why) => nobody(why),
        LoginRefusal::Unavailable => ApiError::issuer_unavailable(
            "the issuer of this token does not answer with its keys; try again in a moment",
        )
        .retry_after_seconds(5),
    })?;
    let tenant = broker.store().tenants().find_named(&login.tenant).await?;
    let tenant = tenant.ok_or_else(|| nobody("the tenant that it names is not there"))?;
    Ok(Principal {
        id: login.principal(),
        tenant: tenant.id,
        own_tenant: tenant.id,
        tenant_named: false,
        grant: Grant {
            role: login.role,
            scopes: default_scopes(login.role),
            projects: Projects::All,
            provider: login.provider,
        },
        shown: Shown::Login {
            issuer: login.issuer,
            subject: login.subject,
        },
    })
}

fn nobody(why: &str) -> ApiError {
    ApiError::not_a_member(format!(
        "{why}; ask the operator of the service for access, or use an API key"
    ))
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

/// The tenant that a call is about.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct WhoseTenant {
    /// For an administrator: the tenant that the call is about; their own, when none is named.
    #[param(inline)]
    tenant: Option<TenantId>,
}

/// The caller about the tenant that the call is about.
async fn about(
    broker: &Broker,
    request: &HttpRequest,
    mut caller: Arc<Principal>,
) -> Result<Arc<Principal>, ApiError> {
    let named = web::Query::<WhoseTenant>::from_query(request.query_string())
        .map_err(|error| ApiError::invalid_parameter(format!("`tenant`: {error}")))?
        .into_inner()
        .tenant;
    if let Some(tenant) = named.filter(|tenant| *tenant != caller.own_tenant) {
        let admin = caller.grant.role == Role::Admin;
        if !admin || broker.store().tenants().find(tenant).await?.is_none() {
            return Err(ApiError::not_found("there is no such tenant here"));
        }
        info!(
            principal.id = %caller.id, tenant.id = %tenant, http.method = %request.method(),
            http.route = request.match_pattern().unwrap_or_default(),
            "An administrator acted for {tenant}"
        );
        Arc::make_mut(&mut caller).tenant = tenant;
    }
    if named.is_some() {
        Arc::make_mut(&mut caller).tenant_named = true;
    }
    request.extensions_mut().insert(Caller(Arc::clone(&caller)));
    Ok(caller)
}
