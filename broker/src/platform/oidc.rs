//! Outside issuers (OpenID Connect): the trusted ones, and the principals here of their bearers.
//!
//! Deny by default: a verified token alone grants nothing. The configuration names the tenants that an issuer
//! may speak for and the roles for its words; any other word is refused. Only signatures by a key of the
//! token's own issuer count, and only RS256, ES256 and EdDSA.

mod claims;
mod jwks;

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use jsonwebtoken::{Algorithm, Validation};
use market::identity::Role;
use market::ids::{PrincipalId, ProviderId};
use serde_json::{Map, Value};
use store::settings::DatabaseMode;
use uuid::Uuid;

use crate::platform::config::{ConfigError, OidcAlgorithm, OidcConfig};
use claims::{moment, unverified_issuer, words};
use jwks::{KeyRefusal, PublicKeys};

/// How far the issuer's clock and ours may differ.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);
/// The longest `sub`. Units: bytes.
const MAX_SUBJECT: usize = 255;
/// Of several roles that a token names, the first of these counts.
const ROLE_ORDER: [Role; 5] = [
    Role::Admin,
    Role::Member,
    Role::Finance,
    Role::Provider,
    Role::Viewer,
];

/// Somebody whom an issuer vouches for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// The issuer.
    pub(crate) issuer: String,
    /// Its subject at the issuer.
    pub(crate) subject: String,
    /// The name of their tenant here.
    pub(crate) tenant: String,
    /// Its role.
    pub(crate) role: Role,
    /// The one provider of the bearer, with the role `provider`.
    pub(crate) provider: Option<ProviderId>,
}

impl Login {
    /// Its principal here: the same for every token of the same subject.
    pub(crate) fn principal(&self) -> PrincipalId {
        let mut hasher = blake3::Hasher::new_derive_key("gpu-broker 2026 principal of an issuer");
        hasher.update(&(self.issuer.len() as u64).to_le_bytes());
        hasher.update(self.issuer.as_bytes());
        hasher.update(self.subject.as_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        PrincipalId::from_uuid(Uuid::from_bytes(id))
    }
}

/// Why a login was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoginRefusal {
    /// The token is not the issuer's, not for us, or was altered.
    Invalid,
    /// Its time is over.
    Expired,
    /// It is valid, and its bearer is not a member of any tenant.
    Nobody(&'static str),
    /// The issuer does not publish its keys.
    Unavailable,
}

/// The issuers that are trusted.
#[derive(Debug, Default)]
pub struct Oidc(Vec<Issuer>);

/// One issuer.
#[derive(Debug)]
pub(crate) struct Issuer {
    config: OidcConfig,
    keys: PublicKeys,
}

impl Oidc {
    /// The issuers of a configuration. Outside simulation their addresses must be `https`.
    ///
    /// Errors: [`ConfigError::Oidc`], naming the issuer and the fault.
    pub fn new(configured: &[OidcConfig], mode: DatabaseMode) -> Result<Self, ConfigError> {
        let mut issuers: Vec<Issuer> = Vec::new();
        for config in configured {
            let refuse = |why: &str| ConfigError::Oidc {
                issuer: config.issuer.clone(),
                why: why.to_owned(),
            };
            if issuers
                .iter()
                .any(|known| known.config.issuer == config.issuer)
            {
                return Err(refuse("it stands there twice"));
            }
            check(config).map_err(refuse)?;
            let loopback = mode == DatabaseMode::Simulation;
            let keys = PublicKeys::of(config, loopback).map_err(|why| refuse(&why))?;
            issuers.push(Issuer {
                config: config.clone(),
                keys,
            });
        }
        Ok(Self(issuers))
    }

    /// The issuer that a token names. Nothing is verified yet.
    pub(crate) fn issuer_of(&self, token: &str) -> Option<&Issuer> {
        if self.0.is_empty() {
            return None;
        }
        let said = unverified_issuer(token)?;
        self.0.iter().find(|issuer| issuer.config.issuer == said)
    }
}

fn check(config: &OidcConfig) -> Result<(), &'static str> {
    if config.audience.is_empty() {
        return Err("`audience` is empty; name the audience of its tokens");
    }
    if config.role_map.is_empty() {
        return Err("`role_map` is empty, so nobody could log in; map a word to a role");
    }
    if config.role_map.values().any(|role| *role == Role::Admin) && !config.may_administer {
        return Err(
            "`role_map` makes administrators of the whole service, who reach every tenant; \
             map to `member` or `finance`, or set `may_administer = true`",
        );
    }
    let is_bound = config.provider_claim.is_some() && !config.provider_map.is_empty();
    if config.role_map.values().any(|role| *role == Role::Provider) && !is_bound {
        return Err(
            "`role_map` names the role `provider`, which is for one provider; \
             give `provider_claim` with a `provider_map`, or map to another role",
        );
    }
    if config.algorithms.is_empty() {
        return Err("`algorithms` is empty; leave it out for all of RS256, ES256 and EdDSA");
    }
    match (&config.tenant, &config.tenant_claim) {
        (Some(_), None) if config.tenant_map.is_empty() => Ok(()),
        (None, Some(_)) if !config.tenant_map.is_empty() => Ok(()),
        _ => Err("give either `tenant`, or `tenant_claim` with a `tenant_map`"),
    }
}

impl Issuer {
    /// Verifies a token of this issuer and returns its bearer.
    pub(crate) async fn log_in(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<Login, LoginRefusal> {
        let claims = self.verify(token, now).await?;
        let subject = claims.get("sub").and_then(Value::as_str);
        let subject = subject
            .filter(|subject| (1..=MAX_SUBJECT).contains(&subject.len()))
            .ok_or(LoginRefusal::Invalid)?;
        let role = self.role(&claims)?;
        Ok(Login {
            issuer: self.config.issuer.clone(),
            subject: subject.to_owned(),
            tenant: self.tenant(&claims)?,
            role,
            provider: (role == Role::Provider)
                .then(|| self.provider(&claims))
                .transpose()?,
        })
    }

    async fn verify(
        &self,
        token: &str,
        now: DateTime<Utc>,
    ) -> Result<Map<String, Value>, LoginRefusal> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| LoginRefusal::Invalid)?;
        let kid = header.kid.ok_or(LoginRefusal::Invalid)?;
        if !self.allowed(header.alg) {
            return Err(LoginRefusal::Invalid);
        }
        let key = self
            .keys
            .find(&kid, now)
            .await
            .map_err(|refusal| match refusal {
                KeyRefusal::Unknown => LoginRefusal::Invalid,
                KeyRefusal::Unavailable => LoginRefusal::Unavailable,
            })?;
        // The key's purpose decides, never the token's header.
        if key.algorithm != header.alg {
            return Err(LoginRefusal::Invalid);
        }
        let mut rules = Validation::new(key.algorithm);
        rules.set_issuer(&[&self.config.issuer]);
        rules.set_audience(&[&self.config.audience]);
        rules.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        // The broker's clock decides below; the library would ask the machine's.
        rules.validate_exp = false;
        let claims = jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &rules)
            .map_err(|_| LoginRefusal::Invalid)?
            .claims;
        check_times(&claims, now)?;
        Ok(claims)
    }

    fn allowed(&self, algorithm: Algorithm) -> bool {
        let mut allowed = self.config.algorithms.iter();
        allowed.any(|word| word.algorithm() == algorithm)
    }

    fn tenant(&self, claims: &Map<String, Value>) -> Result<String, LoginRefusal> {
        if let Some(tenant) = &self.config.tenant {
            return Ok(tenant.clone());
        }
        one_of(
            claims,
            self.config.tenant_claim.as_deref(),
            &self.config.tenant_map,
        )
        .map_err(|named| match named {
            Named::None => LoginRefusal::Nobody("no tenant here is named by the token"),
            Named::Several => LoginRefusal::Nobody("the token names several tenants"),
        })
    }

    fn provider(&self, claims: &Map<String, Value>) -> Result<ProviderId, LoginRefusal> {
        one_of(
            claims,
            self.config.provider_claim.as_deref(),
            &self.config.provider_map,
        )
        .map_err(|named| match named {
            Named::None => LoginRefusal::Nobody("no provider here is named by the token"),
            Named::Several => LoginRefusal::Nobody("the token names several providers"),
        })
    }

    fn role(&self, claims: &Map<String, Value>) -> Result<Role, LoginRefusal> {
        let named: Vec<Role> = words(claims, &self.config.role_claim)
            .into_iter()
            .filter_map(|word| self.config.role_map.get(word).copied())
            .collect();
        let first = ROLE_ORDER.into_iter().find(|role| named.contains(role));
        first.ok_or(LoginRefusal::Nobody("no role here is named by the token"))
    }
}

/// How many of the words that count a token names, where that is not one.
enum Named {
    None,
    Several,
}

/// The value of the one word of a claim that is in the map.
fn one_of<T: Clone>(
    claims: &Map<String, Value>,
    claim: Option<&str>,
    map: &BTreeMap<String, T>,
) -> Result<T, Named> {
    let mut mapped = words(claims, claim.unwrap_or_default())
        .into_iter()
        .filter_map(|word| map.get(word));
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => Ok(one.clone()),
        (None, _) => Err(Named::None),
        (Some(_), Some(_)) => Err(Named::Several),
    }
}

fn check_times(claims: &Map<String, Value>, now: DateTime<Utc>) -> Result<(), LoginRefusal> {
    let at = |claim| match claims.get(claim) {
        None => Ok(None),
        Some(value) => moment(value).map(Some).ok_or(LoginRefusal::Invalid),
    };
    let expires = at("exp")?.ok_or(LoginRefusal::Invalid)?;
    if [at("nbf")?, at("iat")?]
        .into_iter()
        .flatten()
        .any(|begins| now + LEEWAY < begins)
    {
        return Err(LoginRefusal::Invalid);
    }
    if now >= expires + LEEWAY {
        return Err(LoginRefusal::Expired);
    }
    Ok(())
}

impl OidcAlgorithm {
    /// The algorithm that the word names.
    pub(crate) const fn algorithm(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_makes_administrators_and_providers_only_where_that_is_said_of_it() {
        let config = |more: Value| {
            let mut config = serde_json::json!({
                "issuer": "https://id.acme.example", "audience": "broker", "tenant": "acme",
                "role_claim": "roles", "role_map": { "leads": "member", "chiefs": "admin" },
            });
            let more = more.as_object().expect("an object").clone();
            config.as_object_mut().expect("an object").extend(more);
            serde_json::from_value::<OidcConfig>(config).expect("a configuration")
        };
        let refused = check(&config(serde_json::json!({}))).expect_err("refused");
        assert!(refused.contains("may_administer = true"), "{refused}");
        assert_eq!(
            check(&config(serde_json::json!({ "may_administer": true }))),
            Ok(())
        );
        let member = serde_json::json!({ "role_map": { "leads": "member" } });
        assert_eq!(check(&config(member)), Ok(()));
        // A provider is one of several, and only a claim can name it.
        let bound = |more: Value| {
            let mut bound = serde_json::json!({ "role_map": { "sellers": "provider" } });
            let more = more.as_object().expect("an object").clone();
            bound.as_object_mut().expect("an object").extend(more);
            check(&config(bound))
        };
        for half in [
            serde_json::json!({}),
            serde_json::json!({ "provider_claim": "seller" }),
            serde_json::json!({ "provider_map": { "lambda-labs": "lambda" } }),
        ] {
            let refused = bound(half).expect_err("the provider is not named");
            assert!(refused.contains("provider_claim"), "{refused}");
        }
        let whole = serde_json::json!({
            "provider_claim": "seller", "provider_map": { "lambda-labs": "lambda" },
        });
        assert_eq!(bound(whole), Ok(()));
    }
}
