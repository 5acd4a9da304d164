//! The one-time token of a lease's verification, and how it gets to the nodes: in a start-up script
//! or, where they run none, over SSH.

use adapters::Adapter;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::TimeDelta;
use market::ids::VerificationId;
use market::verification::Level;
use store::leases::Lease;
use store::verifications::{NewVerification, Verification};
use verifier::address::{BrokerUrl, Token};
use verifier::delivery::{Delivery, DeliveryError, ScriptArgs, startup_script};

use super::push::{PushSecret, is_pushed};
use super::verify_seconds;
use crate::platform::app::{AgentDelivery, Broker};

/// Why no script could be made: the lease is not ordered then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrolError {
    /// No agent is configured.
    #[error("no agent is configured (verifier.agent_path), so no node can be verified")]
    NoAgent,
    /// Our own address cannot be written in a script.
    #[error("the public address `{0}` cannot be given to a node; set server.public_url")]
    PublicUrl(String),
    /// The script cannot be written.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

/// A verification to be, and the script that lets its nodes speak.
pub(crate) struct Enrolment {
    /// The row to save before the order is sent.
    pub(crate) verification: NewVerification,
    /// The script for the order, which carries the token; empty where the nodes run none. It is
    /// stored nowhere.
    pub(crate) script: String,
    /// The key to authorise beside those of the tenant, by which the agent is pushed.
    pub(crate) ssh_public_key: Option<String>,
}

/// How nodes come by the agent.
///
/// Errors: [`EnrolError::NoAgent`].
pub(super) fn delivery_of(broker: &Broker) -> Result<Delivery, EnrolError> {
    Ok(match broker.agent() {
        AgentDelivery::Missing => return Err(EnrolError::NoAgent),
        AgentDelivery::File { sha256, .. } => {
            // Our own hexadecimal digits of a SHA-256: always a digest.
            let sha256 = sha256.parse().map_err(|_| EnrolError::NoAgent)?;
            Delivery::Fetched { sha256 }
        }
        AgentDelivery::Simulated { executable } => Delivery::Installed {
            executable: executable.clone(),
        },
    })
}

/// Our own address, as given to a node.
///
/// Errors: [`EnrolError::PublicUrl`].
pub(super) fn url_of(broker: &Broker) -> Result<BrokerUrl, EnrolError> {
    let unusable = |_| EnrolError::PublicUrl(broker.public_url().to_owned());
    broker.public_url().parse().map_err(unusable)
}

/// Draws the one-time token of a lease's verification and writes the script that carries it, or
/// seals it with a key for SSH until it is pushed.
///
/// Errors: [`EnrolError`].
pub(crate) fn enrol(
    broker: &Broker,
    lease: &Lease,
    level: Level,
    adapter: &dyn Adapter,
) -> Result<Enrolment, EnrolError> {
    let delivery = delivery_of(broker)?;
    let unusable = || EnrolError::PublicUrl(broker.public_url().to_owned());
    let url = url_of(broker)?;
    let secret = format!("vt_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
    let token: Token = secret.parse().map_err(|_| unusable())?;
    let id = VerificationId::from_uuid(broker.new_uuid());
    // Checked even where no script is run: an order that cannot be delivered is not placed.
    let script = startup_script(&ScriptArgs {
        broker: &url,
        verification_id: id,
        token: &token,
        delivery: &delivery,
    })?;
    let push = is_pushed(adapter, &lease.offer).then(|| PushSecret::draw(token));
    let boot_seconds = broker.config().verifier.boot_seconds;
    let deadline = i64::from(boot_seconds) + i64::from(verify_seconds(broker, level));
    let verification = NewVerification {
        id,
        lease_id: lease.id,
        enrol_hash: hash(&secret),
        nodes: lease.nodes,
        deadline: broker.now() + TimeDelta::seconds(deadline),
        sealed_push: push.as_ref().map(|push| push.seal(broker, id)),
    };
    Ok(Enrolment {
        verification,
        script: if push.is_some() {
            String::new()
        } else {
            script
        },
        ssh_public_key: push.map(|push| push.public_key(&lease.client_token)),
    })
}

/// Whether a presented token is the one of this verification.
pub(super) fn is_token_of(presented: &str, verification: &Verification) -> bool {
    // Hashes are compared, so the time taken reveals nothing about the token.
    hash(presented) == verification.enrol_hash
}

pub(super) fn hash(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}
