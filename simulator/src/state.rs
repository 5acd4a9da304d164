//! State that the servers and the [`crate::Simulator`] share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use chrono::{DateTime, Utc};
use rand::Rng;
use tokio::sync::Notify;

use crate::node::Nodes;
use crate::world::SimulatedMarket;
use crate::{Clock, NodeRunner, Provider};

pub(crate) struct State {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) nodes: Nodes,
    pub(crate) node_runner: NodeRunner,
    /// Wakes every hanging call.
    pub(crate) let_go: Notify,
    world: Mutex<SimulatedMarket>,
    credentials: Mutex<Credentials>,
    /// Base URL of each provider, once every port is open.
    addresses: OnceLock<Vec<(Provider, String)>>,
}

#[derive(Default)]
struct Credentials {
    own: Vec<(Provider, String)>,
    foreign: Vec<(Provider, String)>,
    control: String,
}

/// The caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// An unknown caller.
    Stranger,
    /// The holder of the credential generated at start.
    Own,
    /// Someone else with the same account.
    Foreign,
}

impl State {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        nodes: Nodes,
        node_runner: NodeRunner,
        world: SimulatedMarket,
    ) -> Self {
        let credentials = Credentials {
            own: Provider::ALL
                .into_iter()
                .map(|provider| (provider, made_up(provider.as_str())))
                .collect(),
            foreign: Vec::new(),
            control: made_up("control"),
        };
        Self {
            clock,
            nodes,
            node_runner,
            let_go: Notify::new(),
            world: Mutex::new(world),
            credentials: Mutex::new(credentials),
            addresses: OnceLock::new(),
        }
    }

    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The lock on everything that changes. The nodes' lock may be taken inside it, never the
    /// other way round.
    pub(crate) fn world(&self) -> MutexGuard<'_, SimulatedMarket> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn credentials(&self) -> MutexGuard<'_, Credentials> {
        self.credentials
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the nodes that have become due; returns how many machines had any.
    pub(crate) fn advance(&self) -> usize {
        let mut world = self.world();
        let due = world.take_due(self.now());
        if self.node_runner == NodeRunner::Off {
            return 0;
        }
        for record in &due {
            self.nodes.start(record);
        }
        due.len()
    }

    pub(crate) fn credential(&self, provider: Provider) -> String {
        let credentials = self.credentials();
        credentials
            .own
            .iter()
            .find(|(of, _)| *of == provider)
            .map(|(_, token)| token.clone())
            .unwrap_or_default()
    }

    /// Sets the providers' addresses; later calls change nothing.
    pub(crate) fn opened_at(&self, addresses: Vec<(Provider, String)>) {
        let _ = self.addresses.set(addresses);
    }

    /// The providers and their base URLs, once every port is open.
    pub(crate) fn providers(&self) -> impl Iterator<Item = (Provider, &str)> {
        let addresses = self.addresses.get().into_iter().flatten();
        addresses.map(|(provider, url)| (*provider, url.as_str()))
    }

    pub(crate) fn control_credential(&self) -> String {
        self.credentials().control.clone()
    }

    pub(crate) fn admit(&self, provider: Provider, token: String) {
        self.credentials().foreign.push((provider, token));
    }

    pub(crate) fn caller(&self, provider: Provider, headers: &HeaderMap) -> Caller {
        let Some(token) = bearer(headers) else {
            return Caller::Stranger;
        };
        let credentials = self.credentials();
        let holds = |list: &[(Provider, String)]| {
            list.iter()
                .any(|(of, known)| *of == provider && known == token)
        };
        if holds(&credentials.own) {
            Caller::Own
        } else if holds(&credentials.foreign) {
            Caller::Foreign
        } else {
            Caller::Stranger
        }
    }

    pub(crate) fn may_control(&self, headers: &HeaderMap) -> bool {
        bearer(headers).is_some_and(|token| token == self.credentials().control)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(AUTHORIZATION)?
        .to_str()
        .ok()?
        .strip_prefix("Bearer ")
}

/// A credential that nobody can guess from the seed: it lets its holder run scripts here.
fn made_up(of: &str) -> String {
    let secret: u128 = rand::rng().random();
    format!("simulated_{of}_{secret:032x}")
}
