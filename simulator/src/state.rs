//! State that the servers and the [`crate::Simulator`] share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use chrono::{DateTime, Utc};
use rand::Rng;
use tokio::sync::Notify;

use crate::node::Nodes;
use crate::request::Request;
use crate::token::Token;
use crate::twin::Auth;
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

pub(crate) struct Credentials {
    own: Vec<(Provider, String)>,
    foreign: Vec<(Provider, String)>,
    control: String,
}

impl Credentials {
    /// New ones of these providers' accounts.
    pub(crate) fn of(providers: &[Provider]) -> Self {
        let own = |provider: &Provider| (*provider, credential_of(*provider));
        Self {
            own: providers.iter().map(own).collect(),
            foreign: Vec::new(),
            control: made_up("control"),
        }
    }
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
        credentials: Credentials,
    ) -> Self {
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

    /// The caller by the credential of a request, or by one of these tokens where it was exchanged for one.
    pub(crate) fn caller(&self, provider: Provider, request: &Request, tokens: &[Token]) -> Caller {
        let sent = |name: &str, prefix: &str| request.header(name)?.strip_prefix(prefix);
        match provider.twin().auth {
            Auth::Header { name, prefix } => match sent(name, prefix) {
                Some(credential) => self.holder(provider, credential),
                None => Caller::Stranger,
            },
            Auth::ClientCredentials { .. } => {
                let (sent, now) = (sent("authorization", "Bearer "), self.now());
                let is_it = |token: &&Token| {
                    token.provider == provider
                        && token.until > now
                        && sent == Some(token.text.as_str())
                };
                let known = tokens.iter().find(is_it);
                known.map_or(Caller::Stranger, |token| token.caller)
            }
        }
    }

    /// The holder of a credential.
    pub(crate) fn holder(&self, provider: Provider, credential: &str) -> Caller {
        let credentials = self.credentials();
        let holds = |list: &[(Provider, String)]| {
            list.iter()
                .any(|(of, known)| *of == provider && known == credential)
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

/// A credential of a provider: a token, or a client id and its secret with a colon between.
fn credential_of(provider: Provider) -> String {
    let secret = made_up(provider.as_str());
    match provider.twin().auth {
        Auth::Header { .. } => secret,
        Auth::ClientCredentials { .. } => format!("{}:{secret}", made_up("client")),
    }
}

/// A credential that nobody can guess from the seed: it lets its holder run scripts here.
pub(crate) fn made_up(of: &str) -> String {
    let secret: u128 = rand::rng().random();
    format!("simulated_{of}_{secret:032x}")
}
