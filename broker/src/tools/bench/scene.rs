//! The measured service: a service of its own, with one worker, over a database and offers of its own.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use adapters::pricesheet::{self, PriceSheets};
use market::identity::{Projects, Role};
use market::ids::{ApiKeyId, OfferId, ProjectId, TenantId};
use store::api_keys::NewApiKey;
use store::settings::DatabaseMode;

use crate::flow::ingest;
use crate::http;
use crate::http::api_keys::{NewSecret, default_scopes};
use crate::platform::app::Broker;
use crate::platform::clock::SystemClock;
use crate::platform::config::Config;
use crate::service::start;

/// The demand of the plan.
const DEMAND: &str = r#"{"kind":"gpus","gpu":"H100","count":8}"#;

/// A running service to be measured.
pub struct Scene {
    address: SocketAddr,
    broker: Broker,
    server: ServerHandle,
    secret: NewSecret,
    offers: usize,
    _dir: tempfile::TempDir,
}

impl Scene {
    /// Starts a service with one worker and so many synthetic offers; no call is refused for being
    /// one too many.
    ///
    /// Errors: the part that could not be started, in words.
    pub async fn open(offers: NonZeroUsize) -> anyhow::Result<Self> {
        Self::with(offers, NonZeroUsize::MIN, false).await
    }

    /// The same with a worker for each core, and with the limits that a service has.
    ///
    /// Errors: the part that could not be started, in words.
    pub async fn as_served(offers: NonZeroUsize) -> anyhow::Result<Self> {
        let cores = std::thread::available_parallelism()?;
        Self::with(offers, cores, true).await
    }

    async fn with(
        offers: NonZeroUsize,
        workers: NonZeroUsize,
        limited: bool,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut config = Config::embedded(dir.path())?;
        config.rate_limits.enabled = limited;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (mode, clock) = (DatabaseMode::Simulation, Arc::new(SystemClock));
        let url = format!("http://{address}");
        let broker = start::start(config, mode, clock, Vec::new(), url).await?;
        ingest::read_price_lists(&broker, &synthetic(offers, &broker)).await?;
        let secret = key(&broker, "bench").await?;
        let offers = broker.snapshot().len();
        let server = http::serve_with_workers(broker.clone(), listener, workers)?;
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self {
            address,
            broker,
            server: handle,
            secret,
            offers,
            _dir: dir,
        })
    }

    /// How many offers it sells.
    #[must_use]
    pub fn offers(&self) -> usize {
        self.offers
    }

    /// So many keys of a tenant more.
    pub(super) async fn keys(&self, name: &str, count: usize) -> anyhow::Result<Vec<String>> {
        let mut keys = Vec::new();
        for _ in 0..count {
            keys.push(key(&self.broker, name).await?.reveal().to_owned());
        }
        Ok(keys)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A call for the first page of offers, as anyone makes it.
    pub(super) fn offers_request(&self) -> Vec<u8> {
        format!("GET /v1/offers HTTP/1.1\r\nhost: {}\r\n\r\n", self.address).into_bytes()
    }

    /// A call for a plan, with an API key.
    pub(super) fn plan_request(&self) -> Vec<u8> {
        format!(
            "POST /v1/plans HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{DEMAND}",
            self.address, self.secret.reveal(), DEMAND.len()
        )
        .into_bytes()
    }

    /// Stops the service; its database goes with it.
    pub async fn close(self) {
        self.server.stop(false).await;
    }
}

/// The bundled price list over and over, each time as other offers.
fn synthetic(count: NonZeroUsize, broker: &Broker) -> PriceSheets {
    let mut sheets = pricesheet::read_price_sheets(&[pricesheet::bundled()], broker.now());
    let listed = std::mem::take(&mut sheets.offers);
    let copies = listed.iter().cycle().take(count.get()).enumerate();
    sheets.offers = copies
        .map(|(nth, offer)| {
            let mut offer = offer.clone();
            offer.offer_id = OfferId::of_identity(&[&offer.offer_id.to_string(), &nth.to_string()]);
            offer
        })
        .collect();
    sheets
}

/// A key of a tenant, which is there from then on.
async fn key(broker: &Broker, name: &str) -> anyhow::Result<NewSecret> {
    let ids = (
        TenantId::from_uuid(broker.new_uuid()),
        ProjectId::from_uuid(broker.new_uuid()),
    );
    let tenants = broker.store().tenants();
    let tenant = tenants.ensure(name, ids.0, ids.1, broker.now()).await?;
    let secret = NewSecret::generate();
    let key = NewApiKey {
        id: ApiKeyId::from_uuid(broker.new_uuid()),
        name: "bench".into(),
        role: Role::Member,
        scopes: default_scopes(Role::Member),
        projects: Projects::All,
        provider: None,
        prefix: secret.prefix(),
        hash: secret.hash(),
        expires_at: None,
        created_at: broker.now(),
        made_by: None,
    };
    broker
        .store()
        .api_keys()
        .of(tenant.id)
        .insert(key, None)
        .await?;
    Ok(secret)
}
