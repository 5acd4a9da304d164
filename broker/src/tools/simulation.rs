//! A whole world in one process: simulated providers, the broker, its HTTP service, and one clock
//! that all of them share. The demo plays in it, and so do the integration tests;
//! `serve --simulate` takes the simulated providers alone, and `serve --market` those of another
//! process, which several replicas share.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use adapters::pricesheet::{self, PriceSheet};
use adapters::{Adapter, Http, HttpConfig, registry};
use chrono::{DateTime, TimeDelta, Utc};
use market::ids::ProviderId;
use market::order::ClientToken;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use simulator::{NodeRunner, Provider, Simulator};
use store::Store;
use store::settings::DatabaseMode;

use crate::flow::{fulfil, ingest};
use crate::http;
use crate::platform::app::Broker;
use crate::platform::clock::{Clock as _, FollowedClock, ManualClock};
use crate::platform::config::Config;
use crate::platform::loopback;
use crate::platform::provider_set::ProviderLink;
use crate::platform::spans;
use crate::service::start;
use crate::tenant::event_streams;

/// How long one call to a simulated provider may take, in real time.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How a world is set up.
pub struct SimulatedMarketOptions {
    /// Where the database and its key lie.
    pub data_dir: PathBuf,
    /// A database to use instead of the embedded one, open and migrated.
    pub store: Option<Store>,
    /// Where the listener of the service is bound.
    pub listen: String,
    /// Ids and addresses of the simulator follow from it.
    pub seed: u64,
    /// The clock's start time.
    pub start: DateTime<Utc>,
    /// Whether pretend nodes run their scripts.
    pub nodes: NodeRunner,
    /// The executable whose agent the nodes run; this one by default.
    pub executable: Option<PathBuf>,
    /// How long one call to a provider may take, in real time.
    pub call_timeout: Duration,
    /// Whom to simulate.
    pub providers: Vec<Provider>,
    /// Simulated providers that are not connected from the start: somebody enters them.
    pub unconnected: Vec<Provider>,
    /// Stands between the broker and each adapter; tests put their own in.
    pub wrap: Box<Wrap>,
    /// Changes the configuration before the broker is put together.
    pub configure: Box<dyn Fn(&mut Config) + Send + Sync>,
    /// Changes how the simulator is set up before it starts.
    pub configure_market: Box<dyn Fn(&mut simulator::Config) + Send + Sync>,
}

/// A wrapper between the broker and an adapter.
pub type Wrap = dyn (Fn(&'static dyn Adapter) -> &'static dyn Adapter) + Send + Sync;

impl SimulatedMarketOptions {
    /// A world on a free port, from now on, with nodes that run.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            store: None,
            listen: "127.0.0.1:0".into(),
            seed: 1,
            start: crate::platform::clock::SystemClock.now(),
            nodes: NodeRunner::Run,
            executable: None,
            call_timeout: CALL_TIMEOUT,
            providers: Provider::DEMONSTRATION.to_vec(),
            unconnected: Vec::new(),
            wrap: Box::new(|adapter| adapter),
            // A day passes here in a second: quotas in real time would be used up.
            configure: Box::new(|config| config.rate_limits.enabled = false),
            configure_market: Box::new(|_| {}),
        }
    }
}

/// A running world.
pub struct SimulatedMarket {
    broker: Broker,
    clock: Arc<ManualClock>,
    simulator: Simulator,
    server: ServerHandle,
    base_url: String,
}

impl SimulatedMarket {
    /// Starts everything; nothing has been read yet.
    ///
    /// Errors: the part that could not be started, in words.
    pub async fn open(options: SimulatedMarketOptions) -> anyhow::Result<Self> {
        let clock = Arc::new(ManualClock::at(options.start));
        let mut market = simulator::Config {
            seed: options.seed,
            node_runner: options.nodes,
            providers: options.providers,
            ..simulator::Config::new(Arc::clone(&clock) as Arc<dyn simulator::Clock>)
        };
        (options.configure_market)(&mut market);
        let simulator = Simulator::start(market).await?;
        let listener = TcpListener::bind(&options.listen)?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let mut config = Config::embedded(&options.data_dir)?;
        config.verifier.agent_path = options.executable;
        (options.configure)(&mut config);
        let mut links = simulated_links(&simulator, options.call_timeout, &*options.wrap)?;
        links.retain(|link| {
            let id = link.adapter.profile().id;
            options.unconnected.iter().all(|one| one.as_str() != id)
        });
        let (mode, shared) = (DatabaseMode::Simulation, Arc::clone(&clock) as Arc<_>);
        let broker = match options.store {
            Some(store) => {
                start::with_store(store, config, mode, shared, links, base_url.clone()).await?
            }
            None => start::start(config, mode, shared, links, base_url.clone()).await?,
        };
        let server = http::serve(broker.clone(), listener)?;
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self {
            broker,
            clock,
            simulator,
            server: handle,
            base_url,
        })
    }

    /// The broker.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The providers' side.
    #[must_use]
    pub fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// The clock's time, for a person.
    #[must_use]
    pub fn clock_time(&self) -> String {
        self.clock.now().format("%d %b %H:%M:%S").to_string()
    }

    /// The clock that everything follows.
    #[must_use]
    pub fn clock(&self) -> &Arc<ManualClock> {
        &self.clock
    }

    /// Where the service listens.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Advances the clock, lets the workers do the due work, and lets the nodes run to their end.
    ///
    /// Errors: the database's.
    pub async fn turn(&self, by: TimeDelta) -> anyhow::Result<()> {
        self.clock.advance(by);
        fulfil::work_until_idle(&self.broker).await?;
        self.simulator.settle().await;
        fulfil::work_until_idle(&self.broker).await?;
        Ok(())
    }

    /// As [`Self::turn`], but first reads the providers at the new time, as pollers would.
    ///
    /// Errors: the database's.
    pub async fn live_on(&self, by: TimeDelta) -> anyhow::Result<()> {
        self.clock.advance(by);
        self.read_providers().await;
        self.turn(TimeDelta::zero()).await
    }

    /// Advances the clock, reads the providers at the new time, because pollers follow the real one, and
    /// starts the nodes of machines that came up. The workers run on their own.
    pub async fn pass(&self, by: TimeDelta) {
        self.clock.advance(by);
        self.read_providers().await;
        self.simulator.tick();
    }

    /// Reads every provider once, as the poller would.
    pub async fn read_providers(&self) -> Vec<ingest::IngestError> {
        ingest::read_all(&self.broker).await
    }

    /// Reads the bundled price list and the given ones.
    ///
    /// Errors: a file that cannot be read, or the database's.
    pub async fn read_price_lists(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        let mut sheets = vec![pricesheet::bundled()];
        for file in files {
            sheets.push(PriceSheet::open(file)?);
        }
        let read = pricesheet::read_price_sheets(&sheets, self.broker.now());
        Ok(ingest::read_price_lists(&self.broker, &read).await?)
    }

    /// Machines at the providers without a living lease; those of others are not ours.
    ///
    /// Errors: the database's.
    pub async fn leaked_machines(&self) -> anyhow::Result<usize> {
        let leases = self.broker.store().leases().across_tenants();
        let mut leaked = 0;
        for machine in self
            .simulator
            .running_machines()
            .iter()
            .filter(|m| !m.foreign)
        {
            let lease = match machine.name.parse::<ClientToken>() {
                Ok(token) => leases.find(token.lease_id()).await?,
                Err(_) => None,
            };
            if !lease.is_some_and(|lease| lease.state.is_live()) {
                leaked += 1;
            }
        }
        Ok(leaked)
    }

    /// Stops the service and the simulator, and ends every node.
    pub async fn close(self) {
        event_streams::close(&self.broker);
        self.server.stop(true).await;
        self.simulator.stop().await;
    }
}

/// The providers of a simulator, with adapters and connections.
///
/// Errors: an address that no connection can be made to.
pub fn simulated_links(
    simulator: &Simulator,
    call_timeout: Duration,
    wrap: &Wrap,
) -> anyhow::Result<Vec<ProviderLink>> {
    let link = |provider: Provider| {
        let credential = SecretString::from(simulator.credential(provider));
        let url = simulator.url(provider);
        simulated_link(provider.as_str(), url, credential, call_timeout, wrap)
    };
    simulator.providers().map(link).collect()
}

fn simulated_link(
    provider: &str,
    base_url: String,
    credential: SecretString,
    call_timeout: Duration,
    wrap: &Wrap,
) -> anyhow::Result<ProviderLink> {
    let id = ProviderId::parse(provider)?;
    let adapter = registry::by_id(&id)
        .ok_or_else(|| anyhow::anyhow!("there is no adapter for the simulated {id}"))?;
    // The simulator keeps no rate limits of its own unless asked to: nothing is spaced out.
    let http = Http::live(HttpConfig {
        base_url,
        allow_loopback: true,
        timeout: call_timeout,
        call_spacing: Duration::ZERO,
        order_spacing: Duration::ZERO,
        first_backoff: Duration::from_millis(10),
        traceparent: spans::traceparent,
        ..HttpConfig::of(adapter.profile(), Some(entered(adapter, credential)))
    })?;
    Ok(ProviderLink {
        adapter: wrap(adapter),
        http,
    })
}

/// A credential as it is entered: the simulator writes one of two fields as `client_id:client_secret`.
fn entered(adapter: &dyn Adapter, credential: SecretString) -> SecretString {
    let parts = credential.expose_secret().split_once(':');
    match (adapter.profile().credential, parts) {
        ([id, secret], Some((client, password))) => {
            let object = json!({ id.name: client, secret.name: password });
            SecretString::from(object.to_string())
        }
        _ => credential,
    }
}

/// A simulated market that runs in another process, and that several brokers share.
pub struct SharedMarket {
    /// Its clock, which everything follows.
    pub clock: Arc<FollowedClock>,
    /// Its providers.
    pub links: Vec<ProviderLink>,
}

/// The control plane's answer about the providers.
#[derive(Deserialize)]
struct MarketAnswer {
    providers: Vec<ProviderAnswer>,
}

#[derive(Deserialize)]
struct ProviderAnswer {
    id: String,
    base_url: String,
    credential: SecretString,
}

impl SharedMarket {
    /// Joins the market whose control plane is at this address, with the credential that it made
    /// up at its start.
    ///
    /// Errors: in words, an address that is not on this machine, and a market that does not answer.
    pub async fn join(url: &str, credential: &SecretString) -> anyhow::Result<Self> {
        anyhow::ensure!(
            loopback::is_loopback(url),
            "a simulated market is on this machine; give an address such as http://127.0.0.1:PORT"
        );
        let url = url.trim_end_matches('/');
        let clock = Arc::new(FollowedClock::follow(url, credential).await?);
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(CALL_TIMEOUT)
            .build()?;
        let asked = client
            .get(format!("{url}/market"))
            .bearer_auth(credential.expose_secret());
        let market: MarketAnswer = asked.send().await?.error_for_status()?.json().await?;
        let link = |one: ProviderAnswer| {
            let (url, credential) = (one.base_url, one.credential);
            simulated_link(&one.id, url, credential, CALL_TIMEOUT, &|adapter| adapter)
        };
        let links = market.providers.into_iter().map(link);
        Ok(Self {
            clock,
            links: links.collect::<Result<_, _>>()?,
        })
    }
}
