//! Adding a provider, and changing how it is connected.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, patch, post, web};
use market::ids::ProviderId;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use store::providers::{Cause, Provider, ProviderChange};

use super::{ProviderItem, Shown, find, is_configured};
use crate::flow::providers::{
    self, adapter_of, check, check_base_url, connect_entered, connect_row,
};
use crate::http::access::WriteProviders;
use crate::http::auth::May;
use crate::http::body::{Body, given};
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::platform::app::Broker;
use crate::platform::coordination::Topic;
use crate::platform::provider_set::ProviderLink;

/// A credential as it is sent. It has no debug form, and its content is in no error.
pub(super) struct GivenCredential(pub(super) SecretString);

impl<'de> Deserialize<'de> for GivenCredential {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text.into())),
            // A number may be a credential whose quotes were forgotten: it is not repeated.
            _ => Err(serde::de::Error::custom("`credential` must be a string")),
        }
    }
}

/// A provider to connect.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddProvider {
    /// Which one: the id that an adapter speaks for, such as `lambda`.
    id: ProviderId,
    /// The credential of our account there. It is kept sealed and never shown again.
    #[schema(value_type = String, min_length = 1, max_length = 4_096, write_only)]
    credential: GivenCredential,
    /// Whether the broker reads and sells its catalogue yet; true by default.
    #[serde(default = "yes")]
    #[schema(default = true)]
    enabled: bool,
    /// In a simulation alone: where on this machine its interface is.
    #[serde(default)]
    #[schema(max_length = 2_000)]
    base_url: Option<String>,
}

const fn yes() -> bool {
    true
}

/// The changes; fields that are left out stay.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeProvider {
    /// Whether its catalogue is read and its offers are sold. Existing leases are followed in any case.
    #[serde(default)]
    enabled: Option<bool>,
    /// Another credential, which takes over at once; `null` forgets the one there is, once the
    /// provider is disabled and nothing is held or runs there any more.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 4_096, write_only)]
    credential: Option<Option<GivenCredential>>,
    /// In a simulation alone: where on this machine its interface is.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, max_length = 2_000)]
    base_url: Option<Option<String>>,
}

/// Connects a provider with a credential, at once and on every replica.
///
/// It is read once with the credential: one that the provider refuses is not kept. A provider that does not
/// answer at present is added in spite of that.
#[utoipa::path(
    tag = "providers",
    params(IdempotencyHeader),
    request_body = AddProvider,
    responses((status = 201, description = "The provider", body = ProviderItem))
)]
#[post("/v1/providers")]
pub(crate) async fn add_provider(
    broker: web::Data<Broker>,
    who: May<WriteProviders>,
    request: HttpRequest,
    body: Body<AddProvider>,
) -> Result<HttpResponse, ApiError> {
    let (asked, id) = (&body.value, &body.value.id);
    let (credential, base_url) = (&asked.credential.0, asked.base_url.as_deref());
    let link = connect_entered(
        adapter_of(id.as_str())?,
        credential,
        base_url,
        broker.mode(),
    )?;
    let shown = Shown::to(&broker, &who).await?;
    let render = |row: &Provider| answer(StatusCode::CREATED, &shown.item(row.clone()));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        not_configured(&broker, id)?;
        let known = broker.store().providers().find(id).await?;
        if known.is_some_and(|row| row.credential.is_some()) {
            return Err(ApiError::already_exists(format!(
                "{id} has a credential already; change it with PATCH /v1/providers/{id}"
            )));
        }
        let sealing = broker.keys().sealing();
        accepted(&broker, &link).await?;
        let sealed = providers::seal(sealing, id, credential, broker.now());
        let change = ProviderChange {
            enabled: Some(asked.enabled),
            base_url: Some(asked.base_url.clone()),
            credential: Some(Some(sealed)),
            quarantine: None,
        };
        let cause = Cause::Request(who.tenant, completion(effect, &render));
        let providers = broker.store().providers();
        let provider = providers.enter(id, &change, broker.now(), &cause).await?;
        broker.hot().publish(Topic::Supply);
        Ok(render(&provider))
    })
    .await
}

/// Enables or disables a provider, or changes its credential.
///
/// A disabled provider is not read and sells nothing new; its leases are followed until they are gone.
/// Another credential is tried once, as when a provider is added, and takes over on every replica without a
/// restart.
#[utoipa::path(
    tag = "providers",
    params(("id" = ProviderId, Path, description = "The provider"), IdempotencyHeader),
    request_body = ChangeProvider,
    responses((status = 200, description = "The provider", body = ProviderItem))
)]
#[patch("/v1/providers/{id}")]
pub(crate) async fn change_provider(
    broker: web::Data<Broker>,
    who: May<WriteProviders>,
    request: HttpRequest,
    id: web::Path<ProviderId>,
    body: Body<ChangeProvider>,
) -> Result<HttpResponse, ApiError> {
    let asked = &body.value;
    let reconnects = asked.credential.is_some() || asked.base_url.is_some();
    if !reconnects && asked.enabled.is_none() {
        return Err(ApiError::invalid_body(
            "give `enabled`, `credential`, `base_url`, or several",
        ));
    }
    // Before the credential that is kept goes anywhere.
    let base_url = asked.base_url.as_ref().and_then(Option::as_deref);
    check_base_url(base_url, broker.mode())?;
    let shown = Shown::to(&broker, &who).await?;
    let render = |row: &Provider| answer(StatusCode::OK, &shown.item(row.clone()));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let row = find(&broker, &who, &id).await?;
        if reconnects {
            not_configured(&broker, &id)?;
            if let Some(link) = reconnected(&broker, row, asked)? {
                accepted(&broker, &link).await?;
            }
        }
        let sealing = broker.keys().sealing();
        let sealed = |one: &GivenCredential| providers::seal(sealing, &id, &one.0, broker.now());
        let credential = asked.credential.as_ref();
        let change = ProviderChange {
            enabled: asked.enabled,
            base_url: asked.base_url.clone(),
            credential: credential.map(|one| one.as_ref().map(sealed)),
            quarantine: None,
        };
        let cause = Cause::Request(who.tenant, completion(effect, &render));
        let providers = broker.store().providers();
        let provider = providers.change(&id, &change, &cause).await?;
        broker.hot().publish(Topic::Supply);
        Ok(render(&provider))
    })
    .await
}

/// The connection that a change leads to; `None` where it leads to none.
fn reconnected(
    broker: &Broker,
    row: Provider,
    asked: &ChangeProvider,
) -> Result<Option<ProviderLink>, ApiError> {
    let base_url = asked.base_url.clone().unwrap_or(row.base_url.clone());
    let link = match &asked.credential {
        Some(None) => None,
        Some(Some(GivenCredential(credential))) => {
            let adapter = adapter_of(row.id.as_str())?;
            let base_url = base_url.as_deref();
            Some(connect_entered(
                adapter,
                credential,
                base_url,
                broker.mode(),
            )?)
        }
        None => {
            let row = Provider { base_url, ..row };
            connect_row(broker.keys().sealing(), &row, broker.mode())?
        }
    };
    Ok(link)
}

/// A provider connected by the configuration is changed there.
fn not_configured(broker: &Broker, id: &ProviderId) -> Result<(), ApiError> {
    if is_configured(broker, id) {
        return Err(ApiError::provider_configured(format!(
            "{id} is connected by the configuration; change it there, or take it out there and restart before you enter it here"
        )));
    }
    Ok(())
}

/// Asks the provider once whether it accepts the credential. A provider that does not answer does not reject
/// it.
async fn accepted(broker: &Broker, link: &ProviderLink) -> Result<(), ApiError> {
    let checked = check(link, broker.now()).await;
    match checked.refused_credential() {
        None => Ok(()),
        Some(why) => Err(ApiError::credential_refused(format!(
            "nothing was kept, because {} does not take the credential: {why}; look it up there and send it again",
            link.adapter.profile().name
        ))),
    }
}
