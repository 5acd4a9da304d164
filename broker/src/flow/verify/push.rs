//! The agent pushed over SSH onto nodes that run no start-up script, and everything of ours taken
//! off them again before the tenant gets them.
//!
//! Each order carries the public half of a key that was made for it. The private half and the token are kept
//! sealed beside the verification until it is over; then both are gone. A node is pushed to again until it
//! has enrolled; an agent that already runs there stays.

use std::sync::Arc;
use std::time::Duration;

use adapters::{Adapter, Delivery};
use futures_util::{StreamExt as _, stream};
use market::ids::{LeaseId, VerificationId};
use market::offer::Offer;
use market::order::{ClientToken, ProviderNode};
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use store::StoreError;
use store::leases::Lease;
use store::settings::DatabaseMode;
use store::verifications::VerificationState;
use tracing::info;
use verifier::address::Token;
use verifier::push::{CLEAR, CLEARED, PushArgs, START, STARTED, clear_input, start_input};

use super::gang::Orders;
use super::script::{EnrolError, delivery_of, url_of};
use crate::flow::reach::{LoginFailure, Session, line_of};
use crate::platform::app::{AgentDelivery, Broker};
use crate::platform::secrets::CannotOpen;

/// Nodes of one lease that are handled in parallel.
const AT_ONCE: usize = 32;
/// How long a node may take to take the agent's file, or a command, in real time.
const PATIENCE: Duration = Duration::from_secs(45);

/// Why a lease's nodes were not all handled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// A node cannot be logged in to or does not carry out its command.
    #[error("node {node} of lease {lease}: {failure}")]
    Node {
        /// Its number within the lease.
        node: u32,
        /// The lease: a gang may have several, each with a node of this number.
        lease: LeaseId,
        /// Why.
        failure: LoginFailure,
    },
    /// The agent cannot be delivered.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// The agent's file cannot be read.
    #[error("the agent's file cannot be read")]
    File(#[source] std::io::Error),
    /// The secrets for the nodes cannot be unsealed.
    #[error(transparent)]
    Sealed(#[from] CannotOpen),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PushError {
    /// Whether somebody else answers in the place of a node.
    pub(crate) const fn is_other_key(&self) -> bool {
        matches!(
            self,
            Self::Node {
                failure: LoginFailure::OtherKey,
                ..
            }
        )
    }
}

/// Whether the nodes of this offer get their agent over SSH.
pub(crate) fn is_pushed(adapter: &dyn Adapter, offer: &Offer) -> bool {
    adapter.delivery(offer) == Delivery::SshPush
}

/// The secrets for the nodes of one order: the token, and a key for SSH.
pub(super) struct PushSecret {
    token: Token,
    seed: [u8; 32],
}

impl PushSecret {
    /// A fresh key beside this token.
    pub(super) fn draw(token: Token) -> Self {
        let seed = rand::random();
        Self { token, seed }
    }

    fn key(&self) -> PrivateKey {
        PrivateKey::from(Ed25519Keypair::from_seed(&self.seed))
    }

    /// The public half in OpenSSH form, with the lease's mark, by which it is taken out again.
    pub(super) fn public_key(&self, mark: &ClientToken) -> String {
        format!("{} {mark}", line_of(self.key().public_key()))
    }

    pub(super) fn seal(&self, broker: &Broker, id: VerificationId) -> Vec<u8> {
        let secret = [&self.seed, self.token.expose().as_bytes()].concat();
        broker.keys().sealing().seal(&id.to_string(), &secret)
    }

    fn open(broker: &Broker, id: VerificationId, sealed: &[u8]) -> Result<Self, CannotOpen> {
        let secret = broker.keys().sealing().open(&id.to_string(), sealed)?;
        let (seed, token) = secret.split_first_chunk().ok_or(CannotOpen)?;
        let token = std::str::from_utf8(token).map_err(|_| CannotOpen)?;
        Ok(Self {
            seed: *seed,
            token: token.parse().map_err(|_| CannotOpen)?,
        })
    }
}

/// The nodes of a lease, and the secrets for them.
pub(crate) struct Push<'a> {
    broker: &'a Broker,
    lease: &'a Lease,
    id: VerificationId,
    token: Token,
    key: Arc<PrivateKey>,
    /// The host keys of the first contact, by node.
    known: Vec<Option<PublicKey>>,
}

impl<'a> Push<'a> {
    /// The secrets for the nodes of a lease that proves itself; `None` when they are no longer valid.
    ///
    /// Errors: [`PushError`].
    pub(crate) async fn of(
        broker: &'a Broker,
        lease: &'a Lease,
    ) -> Result<Option<Self>, PushError> {
        let store = broker.store();
        let verifications = store.verifications().across_tenants();
        let newest = verifications.newest_of(lease.id).await?;
        let open = newest.filter(|one| one.state == VerificationState::Open);
        let Some((id, sealed)) = open.and_then(|one| Some((one.id, one.sealed_push?))) else {
            return Ok(None);
        };
        let secret = PushSecret::open(broker, id, &sealed)?;
        let rows = store.reach().across_tenants().of_lease(lease.id).await?;
        let known = |node: usize| {
            let row = rows.iter().find(|row| row.node_index as usize == node)?;
            PublicKey::from_openssh(row.first_contact_key.as_deref()?).ok()
        };
        Ok(Some(Self {
            broker,
            lease,
            id,
            key: Arc::new(secret.key()),
            token: secret.token,
            known: (0..lease.provider_nodes.len()).map(known).collect(),
        }))
    }

    /// Starts the agent on every node that has not enrolled yet.
    ///
    /// Errors: [`PushError`], of the first node that failed; the others were handled as well.
    pub(crate) async fn start(&self) -> Result<(), PushError> {
        let verifications = self.broker.store().verifications().across_tenants();
        let enrolled = verifications.nodes(self.id).await?;
        let has_enrolled = |node: u32| enrolled.iter().any(|one| one.node_index == node);
        let silent: Vec<(u32, &ProviderNode)> = (0..)
            .zip(&self.lease.provider_nodes)
            .filter(|(node, _)| !has_enrolled(*node))
            .collect();
        if silent.is_empty() {
            return Ok(());
        }
        let (url, delivery) = (url_of(self.broker)?, delivery_of(self.broker)?);
        let file = match self.broker.agent() {
            AgentDelivery::File { path, .. } => {
                tokio::fs::read(path).await.map_err(PushError::File)?
            }
            _ => Vec::new(),
        };
        let seconds = self.seconds_left().await?;
        let file = &file;
        let input = |node: &ProviderNode| {
            start_input(&PushArgs {
                broker: &url,
                verification_id: self.id,
                token: &self.token,
                host: &node.host,
                seconds,
                delivery: &delivery,
            })
            .map_err(|error| PushError::Enrol(error.into()))
        };
        let starts = silent.into_iter().map(|(number, node)| async move {
            let input = input(node)?;
            // The file is the same for all: however many are pushed to, it is held once.
            self.tell(number, node, START, &[&input, file], STARTED)
                .await?;
            info!(
                lease.id = %self.lease.id, node = number,
                "Pushed the agent to node {number} of lease {}", self.lease.id
            );
            Ok(())
        });
        first_failure(starts.collect()).await
    }

    /// The time until the lease must have proved itself, at least a second. If it then waits for other orders
    /// of its gang, their machines may take as long as any to boot.
    async fn seconds_left(&self) -> Result<u32, StoreError> {
        let deadline = self.lease.verify_deadline.unwrap_or(self.broker.now());
        let left = (deadline - self.broker.now()).num_seconds().max(1);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let orders = Orders::read(self.broker, self.lease).await?;
        if !orders.are_several() {
            return Ok(left);
        }
        // Another order may have to be sent, to come up and to prove itself after that.
        let own = self.lease.verify_deadline.zip(self.lease.up_at);
        let own = own.map_or(0, |(deadline, up)| (deadline - up).num_seconds());
        let boot = self.broker.config().verifier.boot_seconds;
        let own = u32::try_from(own).unwrap_or(0);
        Ok(left
            .saturating_add(boot.saturating_mul(2))
            .saturating_add(own))
    }

    /// Takes everything of ours off every node. One that lets our key in no more is done already.
    ///
    /// Errors: [`PushError`], of the first node that failed; the others were handled as well.
    pub(crate) async fn clear(&self) -> Result<(), PushError> {
        let reservations = self.broker.store().reservations().across_tenants();
        let reservation = reservations.find(self.lease.reservation_id).await?;
        let keys = reservation.map_or_else(Vec::new, |one| one.ssh_public_keys);
        let input = clear_input(self.id, self.lease.client_token.as_str(), &keys);
        let input = &input;
        let clears = (0..).zip(&self.lease.provider_nodes);
        let clears = clears.map(|(number, node)| async move {
            match self.tell(number, node, CLEAR, &[input], CLEARED).await {
                Err(PushError::Node {
                    failure: LoginFailure::KeyRefused,
                    ..
                }) => Ok(()),
                told => told,
            }
        });
        first_failure(clears.collect()).await
    }

    /// Has a node carry out a command. Its host key is kept before it hears anything.
    async fn tell(
        &self,
        number: u32,
        node: &ProviderNode,
        command: &str,
        input: &[&[u8]],
        word: &str,
    ) -> Result<(), PushError> {
        let failed = |failure| PushError::Node {
            node: number,
            lease: self.lease.id,
            failure,
        };
        let simulation = self.broker.mode() == DatabaseMode::Simulation;
        let seconds = self.broker.config().reach.timeout_seconds.max(1);
        let patience = Duration::from_secs(seconds.into());
        let known = self.known.get(number as usize).and_then(Option::as_ref);
        let session = Session::open(node, known, simulation, patience)
            .await
            .map_err(failed)?;
        if known.is_none() {
            let shown = line_of(session.host_key());
            let all = self.broker.store().reach().across_tenants();
            let now = self.broker.now();
            let lease = self.lease.id;
            let kept = all.first_contact(lease, number, &shown, now).await?;
            if kept != shown {
                return Err(failed(LoginFailure::OtherKey));
            }
        }
        let key = Arc::clone(&self.key);
        session
            .run(&node.user, key, command, input, word, PATIENCE)
            .await
            .map_err(failed)
    }
}

/// Handles all nodes and returns the first failure, or the worst.
async fn first_failure(
    all: Vec<impl Future<Output = Result<(), PushError>>>,
) -> Result<(), PushError> {
    let done: Vec<_> = stream::iter(all).buffered(AT_ONCE).collect().await;
    let failures = done.into_iter().filter_map(Result::err);
    // An impostor in a node's place is more informative than a silent node.
    let worst = failures.min_by_key(|failure| !failure.is_other_key());
    worst.map_or(Ok(()), Err)
}
