//! The providers that can be read and ordered from: those of the configuration, and those whose
//! credential an operator entered at run time, which lies sealed in the database.
//!
//! The configuration wins: a provider that it names is connected as it states. Every running replica takes up
//! entries and changes in the database when it next reads the state of the providers, each second. A disabled
//! provider keeps its connection: nothing is ordered or read there any more, and its leases are followed
//! until they are gone.

mod acceptance;
mod check;
mod quarantine;

use std::sync::Arc;

use adapters::{Adapter, Http, HttpConfig, registry};
use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use secrecy::{ExposeSecret as _, SecretString};
use store::providers::{Provider, ProviderStanding, SealedCredential};
use store::settings::DatabaseMode;
use store::{Store, StoreError};
use tracing::{info, warn};

pub use acceptance::acceptance_of_all;
pub(crate) use acceptance::counted_lately;
pub use check::{CheckTrouble, CheckedProvider, check};
pub use quarantine::{QuarantineRefused, quarantine};

use crate::platform::app::Broker;
use crate::platform::loopback::is_loopback;
use crate::platform::provider_set::ProviderLink;
use crate::platform::secrets::{CannotOpen, SealingKey};
use crate::platform::spans;

/// The longest credential. Units: bytes.
const LONGEST: usize = 4_096;
/// A credential shorter than this gets no hint: four characters would be too much of it.
const SHORTEST_HINTED: usize = 16;

/// Why a provider cannot be connected, in words that name no secret.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nobody speaks for it.
    #[error("there is no adapter for `{0}`; there are {known}", known = known())]
    UnknownProvider(String),
    /// The credential cannot be one.
    #[error("a credential is 1 to {LONGEST} visible characters on one line")]
    Credential,
    /// In a simulation only providers on this machine are spoken to.
    #[error("a simulation speaks only to providers on this machine; give a loopback `base_url`")]
    NotLoopback,
    /// The address is its adapter's.
    #[error("`base_url` is for simulations; outside them the address is the adapter's")]
    BaseUrl,
    /// It was sealed with another key.
    #[error(transparent)]
    Sealed(#[from] CannotOpen),
    /// The connection refused its configuration.
    #[error(transparent)]
    Connection(#[from] adapters::AdapterError),
}

/// The ids that adapters speak for, in words.
fn known() -> String {
    let ids: Vec<_> = registry::all().iter().map(|a| a.profile().id).collect();
    ids.join(", ")
}

/// The adapter that speaks for a provider.
///
/// Errors: [`LinkError::UnknownProvider`].
pub fn adapter_of(id: &str) -> Result<&'static dyn Adapter, LinkError> {
    let known = ProviderId::parse(id).ok();
    known
        .and_then(|id| registry::by_id(&id))
        .ok_or_else(|| LinkError::UnknownProvider(id.chars().take(80).collect()))
}

/// Whether there is such a provider: it has an adapter, or its offers were read.
///
/// Errors: those of the store.
pub async fn is_known(store: &Store, id: &ProviderId) -> Result<bool, StoreError> {
    Ok(registry::by_id(id).is_some() || store.providers().find(id).await?.is_some())
}

/// Connects a provider; nothing is sent yet.
///
/// Errors: [`LinkError::NotLoopback`], [`LinkError::Connection`].
pub fn connect(
    adapter: &'static dyn Adapter,
    credential: SecretString,
    base_url: Option<&str>,
    mode: DatabaseMode,
) -> Result<ProviderLink, LinkError> {
    // A simulation has leases that no real provider knows: it must not speak to one.
    if mode == DatabaseMode::Simulation && !base_url.is_some_and(is_loopback) {
        return Err(LinkError::NotLoopback);
    }
    let usual = HttpConfig::of(adapter.profile(), Some(credential));
    let http = Http::live(HttpConfig {
        base_url: base_url.map_or_else(|| usual.base_url.clone(), str::to_owned),
        allow_loopback: mode == DatabaseMode::Simulation,
        traceparent: spans::traceparent,
        ..usual
    })?;
    Ok(ProviderLink { adapter, http })
}

/// Connects a provider as an operator enters it; nothing is sent yet.
///
/// Errors: [`LinkError`].
pub fn connect_entered(
    adapter: &'static dyn Adapter,
    credential: &SecretString,
    base_url: Option<&str>,
    mode: DatabaseMode,
) -> Result<ProviderLink, LinkError> {
    let text = credential.expose_secret();
    // One of several fields is a JSON object, which its connection reads.
    let is_object = adapter.profile().credential.len() > 1;
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > LONGEST || !(visible || is_object) {
        return Err(LinkError::Credential);
    }
    check_base_url(base_url, mode)?;
    connect(adapter, credential.clone(), base_url, mode)
}

/// Makes sure that an entered credential is shown to its provider alone: outside a simulation nobody enters
/// the provider's address. The configuration may set it.
///
/// Errors: [`LinkError::BaseUrl`].
pub fn check_base_url(base_url: Option<&str>, mode: DatabaseMode) -> Result<(), LinkError> {
    match (mode, base_url) {
        (DatabaseMode::Production, Some(_)) => Err(LinkError::BaseUrl),
        _ => Ok(()),
    }
}

/// Seals a credential for its provider.
#[must_use]
pub fn seal(
    sealing: &SealingKey,
    provider: &ProviderId,
    credential: &SecretString,
    now: DateTime<Utc>,
) -> SealedCredential {
    let text = credential.expose_secret();
    // Where an end is shown, the text is one that was connected with, and plain ASCII.
    let hint = match text.len() >= SHORTEST_HINTED {
        true => text.get(text.len() - 4..).unwrap_or_default().to_owned(),
        false => String::new(),
    };
    SealedCredential {
        sealed: sealing.seal(provider.as_str(), text.as_bytes()),
        hint,
        set_at: now,
    }
}

/// Connects a provider with the credential of its row; `None` where it has none.
///
/// Errors: [`LinkError`].
pub fn connect_row(
    sealing: &SealingKey,
    row: &Provider,
    mode: DatabaseMode,
) -> Result<Option<ProviderLink>, LinkError> {
    let Some(credential) = &row.credential else {
        return Ok(None);
    };
    let adapter = adapter_of(row.id.as_str())?;
    let base_url = row.base_url.as_deref();
    check_base_url(base_url, mode)?;
    let opened = sealing.open(row.id.as_str(), &credential.sealed)?;
    let opened = String::from_utf8(opened).map_err(|_| LinkError::Credential)?;
    connect(adapter, SecretString::from(opened), base_url, mode).map(Some)
}

/// The connection that an order may go out over at this moment, by the database: since the last look
/// at it the provider may have been switched off, or its credential forgotten or replaced.
///
/// Inside is why no order goes there. Errors: the database's.
pub(crate) async fn open_link(
    broker: &Broker,
    id: &ProviderId,
) -> Result<Result<Arc<ProviderLink>, &'static str>, StoreError> {
    let standings = broker.store().providers().standings().await?;
    let its = |standing: &&ProviderStanding| standing.id == id.as_str();
    if standings
        .iter()
        .find(its)
        .is_some_and(|standing| !standing.enabled)
    {
        return Ok(Err("the provider is disabled"));
    }
    take_up(broker, &standings).await?;
    Ok(broker
        .provider(id)
        .ok_or("the credential of the provider was forgotten"))
}

/// Connects providers that were entered or changed in the database, and disconnects removed ones.
///
/// Errors: the database's.
pub(crate) async fn take_up(
    broker: &Broker,
    standings: &[ProviderStanding],
) -> Result<(), StoreError> {
    let changes = broker.provider_set(|set| set.out_of_date(standings));
    for (id, mark) in changes {
        let mut link = None;
        if mark.is_some()
            && let Some(row) = broker.store().providers().find(&id).await?
        {
            match connect_row(broker.keys().sealing(), &row, broker.mode()) {
                Ok(connected) => link = connected,
                Err(error) => {
                    let why = crate::chain(&error);
                    warn!(provider.id = %id, error = %why, "{id} cannot be connected: {why}");
                }
            }
        }
        match &link {
            Some(_) => {
                info!(provider.id = %id, "Connected {id} with the credential entered for it")
            }
            None => info!(provider.id = %id, "{id} has no connection any more"),
        }
        broker.provider_set(|set| set.put(id, link, mark));
    }
    Ok(())
}
