//! A simulated provider with the adapter that speaks to it, in the other side's words.

use std::sync::Arc;
use std::time::Duration;

use adapters::{Adapter, Http, HttpConfig, registry};
use market::catalog::CatalogReading;
use market::ids::{LeaseId, ProviderId};
use market::machine::MachineRequest;
use market::order::{ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseId};
use secrecy::SecretString;
use simulator::{Clock as _, Fault, FaultKind, Provider, Simulator};

use crate::stage::{KEY, Stage, TurnedClock};

pub struct Bench {
    pub provider: Provider,
    pub simulator: Simulator,
    pub clock: Arc<TurnedClock>,
    pub adapter: &'static dyn Adapter,
    pub http: Http,
}

/// The credential as the adapter reads it: one field as it is, several as a JSON object.
fn credential(adapter: &dyn Adapter, given: &str) -> SecretString {
    let fields = adapter.profile().credential;
    let Some((id, secret)) = given.split_once(':').filter(|_| fields.len() == 2) else {
        return given.to_owned().into();
    };
    let named = serde_json::json!({ fields[0].name: id, fields[1].name: secret });
    named.to_string().into()
}

/// The mark of every order.
fn mark() -> ClientToken {
    ClientToken::of(LeaseId::from_uuid(uuid::Uuid::from_u128(7)))
}

fn lease(id: &ProviderLeaseId) -> LeaseRef {
    LeaseRef {
        id: id.clone(),
        client_token: mark(),
        region: None,
    }
}

impl Bench {
    /// One for each simulated provider that has an adapter.
    pub async fn all() -> Vec<Self> {
        let mut benches = Vec::new();
        for provider in Provider::ALL {
            let id = ProviderId::parse(provider.as_str()).unwrap();
            if let Some(adapter) = registry::by_id(&id) {
                benches.push(Self::of(provider, adapter).await);
            }
        }
        benches
    }

    pub async fn of(provider: Provider, adapter: &'static dyn Adapter) -> Self {
        let Stage {
            simulator, clock, ..
        } = Stage::new().await;
        let credential = credential(adapter, &simulator.credential(provider));
        let http = Http::live(HttpConfig {
            base_url: simulator.url(provider),
            allow_loopback: true,
            call_spacing: Duration::ZERO,
            order_spacing: Duration::ZERO,
            read_attempts: 1,
            ..HttpConfig::of(adapter.profile(), Some(credential))
        });
        Self {
            provider,
            simulator,
            clock,
            adapter,
            http: http.unwrap(),
        }
    }

    /// Breaks the next calls; not where the twin declares that it cannot happen.
    pub fn breaks(&self, kind: FaultKind, times: u32) -> bool {
        let fault = Fault::new(self.provider, kind).times(times);
        let broken = self.simulator.break_next(fault);
        if let Err(why) = &broken {
            println!("{why}");
        }
        broken.is_ok()
    }

    pub async fn read_catalog(&self) -> CatalogReading {
        let reading = self
            .adapter
            .read_catalog(&self.http, self.clock.now())
            .await;
        reading.unwrap()
    }

    /// Orders one node of something that is free.
    pub async fn order(&self) -> ProviderLease {
        let offers = self.read_catalog().await.offers.into_iter();
        let mut free = offers.filter(|offer| offer.orderable && offer.availability.may_hold(1));
        let order = LeaseOrder {
            client_token: mark(),
            offer: free.next().unwrap(),
            nodes: 1,
            machine: MachineRequest::default(),
            ssh_public_keys: vec![KEY.to_owned()],
            startup_script: "#!/bin/sh\n:\n".to_owned(),
        };
        let lease = self.adapter.request_lease(&self.http, &order).await;
        lease.unwrap_or_else(|error| panic!("{}: {error}", self.provider))
    }

    /// The provider's own word for the status of a lease.
    pub async fn status(&self, id: &ProviderLeaseId) -> Option<String> {
        let read = self.adapter.read_lease(&self.http, &lease(id)).await;
        let read = read.unwrap_or_else(|error| panic!("{}: {error}", self.provider));
        read.map(|lease| lease.raw_status)
    }

    /// Whether the adapter takes the end of a lease for accepted, or for needless.
    pub async fn release(&self, id: &ProviderLeaseId) -> bool {
        let released = self.adapter.release_lease(&self.http, &lease(id)).await;
        released.is_ok()
    }

    /// Lets time pass until a machine that was just ordered is up.
    pub fn boot(&self) {
        self.clock.turn(self.provider.timing().boot_seconds.into());
    }
}
