//! Puts a broker together: database, mode, keys, providers, agent.
//!
//! Outside simulation this is where everything simulated is refused (invariant 14): the mode lies
//! in the database, and loopback providers do not get a connection.

use std::collections::BTreeSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use store::settings::DatabaseMode;
use store::{Database, StockPolicy, Store};
use tracing::warn;
use uuid::Uuid;
use verifier::address::BrokerUrl;

use crate::flow::providers;
use crate::platform::app::{AgentDelivery, Broker, Parts};
use crate::platform::clock::Clock;
use crate::platform::config::{Config, ConfigError, ProviderConfig};
use crate::platform::coordination::{HotState, InProcess, Redis};
use crate::platform::data_dir;
use crate::platform::keys::Keys;
use crate::platform::loopback::is_loopback;
use crate::platform::oidc::Oidc;
use crate::platform::provider_set::ProviderLink;
use crate::platform::secrets::SealingKey;
use crate::platform::start_error::StartError;
use crate::platform::time_check;

/// Opens the configured database and brings its schema up.
///
/// Errors: [`StartError::Store`], [`StartError::File`], [`StartError::Damaged`], [`StartError::Config`].
pub async fn open_store(config: &Config) -> Result<Store, StartError> {
    let database = match &config.database.url {
        Some(url) => Database::Url(url.expose_secret().to_owned()),
        None => {
            data_dir::make(&config.data_dir)?;
            data_dir::check(&config.data_dir)?;
            Database::Sqlite {
                path: data_dir::database(&config.data_dir),
            }
        }
    };
    Ok(Store::connect(database).await?)
}

/// The key under which this database's secrets are sealed. For an embedded database in which nothing
/// is sealed yet one is made beside it.
///
/// Errors: [`ConfigError::SealingKey`]; on a database of its own server a missing key is one.
pub async fn sealing_key(config: &Config, store: &Store) -> Result<SealingKey, StartError> {
    if let Some(key) = SealingKey::configured(&config.secrets)? {
        return Ok(key);
    }
    if config.database.url.is_some() {
        return Err(ConfigError::SealingKey("none is configured".into()).into());
    }
    let file = data_dir::sealing_key(&config.data_dir);
    if !file.exists() {
        // Another key in its place would open nothing, and look as if it were the right one.
        if store.sealed().any().await? {
            let why = format!(
                "{} is missing, and secrets in the database are sealed with it: put it back from \
                 where you keep it",
                file.display()
            );
            return Err(ConfigError::SealingKey(why).into());
        }
        SealingKey::make(&file)?;
    }
    Ok(SealingKey::of_file(&file)?)
}

/// Puts a broker together for the given mode.
///
/// `simulated` are the providers of a simulator; in production it must be empty.
/// Errors: [`StartError`]; a database made in the other mode is refused.
pub async fn start(
    config: Config,
    mode: DatabaseMode,
    clock: Arc<dyn Clock>,
    simulated: Vec<ProviderLink>,
    public_url: String,
) -> Result<Broker, StartError> {
    check_public_url(&config, mode, &public_url)?;
    let store = open_store(&config).await?;
    store.migrate_up().await?;
    with_store(store, config, mode, clock, simulated, public_url).await
}

/// Puts a broker together over a database that is open and migrated.
///
/// Errors: as [`start`].
pub async fn with_store(
    store: Store,
    config: Config,
    mode: DatabaseMode,
    clock: Arc<dyn Clock>,
    simulated: Vec<ProviderLink>,
    public_url: String,
) -> Result<Broker, StartError> {
    let store = store.with_stock_policy(StockPolicy {
        sets_without_count: config.sales.soft_holds_per_offer,
        nodes_without_count: config.sales.soft_nodes_per_hold,
    });
    let store = store.with_default_limits(config.spending.limits());
    let was_stopped = time_check::begin(&*clock, &store).await?;
    store.settings().settle_mode(mode, clock.now()).await?;
    let oidc = Oidc::new(&config.oidc, mode)?;
    let sealing = Arc::new(sealing_key(&config, &store).await?);
    let keys = Keys::load(&store, sealing, clock.now()).await?;
    let hot = hot_state(&config, &store, clock.now()).await?;
    if mode == DatabaseMode::Production && !simulated.is_empty() {
        return Err(StartError::SimulatedInProduction);
    }
    let mut providers = configured_providers(&config, mode)?;
    providers.extend(simulated);
    let mut known = BTreeSet::new();
    for link in &providers {
        let provider = link.adapter.profile().provider_id();
        if !known.insert(provider.clone()) {
            let why = "it is simulated and configured at once; disable it in the configuration";
            return Err(StartError::Provider {
                provider: provider.to_string(),
                why: why.into(),
            });
        }
        store.providers().ensure(&provider, clock.now()).await?;
    }
    let agent = agent(&config, mode)?;
    let broker = Broker::new(Parts {
        config,
        store,
        mode,
        clock,
        hot,
        keys,
        oidc,
        providers,
        agent,
        public_url,
    });
    let standings = broker.store().providers().standings().await?;
    providers::take_up(&broker, &standings).await?;
    if was_stopped {
        time_check::ask_providers(&broker).await;
    }
    Ok(broker)
}

/// The coordination state that this replica shares with others: on Redis where one is configured, which need
/// not answer yet; else in process.
async fn hot_state(
    config: &Config,
    store: &Store,
    now: DateTime<Utc>,
) -> Result<Arc<dyn HotState>, StartError> {
    let Some(url) = &config.redis.url else {
        return Ok(Arc::new(InProcess::default()));
    };
    let deployment = store
        .settings()
        .settle_deployment(Uuid::now_v7(), now)
        .await?;
    Ok(Arc::new(Redis::open(url, &deployment)?))
}

fn configured_providers(
    config: &Config,
    mode: DatabaseMode,
) -> Result<Vec<ProviderLink>, StartError> {
    let enabled = config
        .providers
        .iter()
        .filter(|(_, settings)| settings.enabled);
    enabled
        .map(|(id, settings)| configured_link(id, settings, mode))
        .collect()
}

/// Connects a provider as the configuration states.
///
/// Errors: [`StartError::UnknownProvider`], [`StartError::Provider`].
pub(crate) fn configured_link(
    id: &ProviderId,
    settings: &ProviderConfig,
    mode: DatabaseMode,
) -> Result<ProviderLink, StartError> {
    let adapter = providers::adapter_of(id.as_str())
        .map_err(|_| StartError::UnknownProvider(id.to_string()))?;
    let refuse = |why: String| StartError::Provider {
        provider: id.to_string(),
        why,
    };
    let credential = settings.credential.clone().ok_or_else(|| {
        refuse(format!(
            "no credential; set BROKER__PROVIDERS__{}__CREDENTIAL",
            id.as_str().to_uppercase()
        ))
    })?;
    let base_url = settings.base_url.as_deref();
    providers::connect(adapter, credential, base_url, mode)
        .map_err(|error| refuse(error.to_string()))
}

/// Makes sure that machines can call us where an agent runs on them. Otherwise each would call itself, and
/// cost money until it is given up.
fn check_public_url(
    config: &Config,
    mode: DatabaseMode,
    public_url: &str,
) -> Result<(), StartError> {
    let none_calls = mode == DatabaseMode::Simulation || config.verifier.agent_path.is_none();
    if none_calls || (!is_loopback(public_url) && public_url.parse::<BrokerUrl>().is_ok()) {
        return Ok(());
    }
    Err(StartError::PublicUrl(public_url.to_owned()))
}

fn agent(config: &Config, mode: DatabaseMode) -> Result<AgentDelivery, StartError> {
    if mode == DatabaseMode::Simulation {
        let executable = match config.verifier.agent_path.clone() {
            Some(executable) => executable,
            None => std::env::current_exe().map_err(|source| StartError::File {
                what: "this executable".into(),
                source,
            })?,
        };
        return Ok(AgentDelivery::Simulated { executable });
    }
    let Some(path) = config.verifier.agent_path.clone() else {
        warn!(
            "No agent is configured (verifier.agent_path): nothing can be verified or handed off"
        );
        return Ok(AgentDelivery::Missing);
    };
    let bytes = std::fs::read(&path).map_err(|source| StartError::File {
        what: format!("the agent {}", path.display()),
        source,
    })?;
    Ok(AgentDelivery::File {
        sha256: hex::encode(Sha256::digest(&bytes)),
        path,
    })
}
