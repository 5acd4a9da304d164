//! The one-time token of a lease's verification, and the start-up script that carries it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::TimeDelta;
use market::ids::{LeaseId, VerificationId};
use store::verifications::{NewVerification, Verification};
use verifier::address::{BrokerUrl, Token};
use verifier::delivery::{Delivery, DeliveryError, ScriptArgs, startup_script};

use crate::app::{AgentDelivery, Broker};

/// Why no script could be made: the lease is not ordered then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnrolError {
    /// No agent is configured.
    #[error("no agent is configured (verifier.agent_path), so no node can be verified")]
    NoAgent,
    /// Our own address cannot stand in a script.
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
    /// The script for the order. It carries the token, which is stored nowhere.
    pub(crate) script: String,
}

/// Draws the one-time token of a lease's verification and writes the script that carries it.
///
/// Errors: [`EnrolError`].
pub(crate) fn enrol(broker: &Broker, lease: LeaseId, nodes: u32) -> Result<Enrolment, EnrolError> {
    let delivery = match broker.agent() {
        AgentDelivery::Missing => return Err(EnrolError::NoAgent),
        AgentDelivery::File { sha256, .. } => {
            // Our own hexadecimal digits of a SHA-256: always a digest.
            let sha256 = sha256.parse().map_err(|_| EnrolError::NoAgent)?;
            Delivery::Fetched { sha256 }
        }
        AgentDelivery::Simulated { executable } => Delivery::Installed {
            executable: executable.clone(),
        },
    };
    let unusable = || EnrolError::PublicUrl(broker.public_url().to_owned());
    let url: BrokerUrl = broker.public_url().parse().map_err(|_| unusable())?;
    let secret = format!("vt_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
    let token: Token = secret.parse().map_err(|_| unusable())?;
    let id = VerificationId::from_uuid(broker.new_uuid());
    let script = startup_script(&ScriptArgs {
        broker: &url,
        verification_id: id,
        token: &token,
        delivery: &delivery,
    })?;
    let config = &broker.config().verifier;
    let deadline = i64::from(config.boot_seconds) + i64::from(config.verify_seconds);
    let verification = NewVerification {
        id,
        lease_id: lease,
        enrol_hash: hash(&secret),
        nodes,
        deadline: broker.now() + TimeDelta::seconds(deadline),
    };
    Ok(Enrolment {
        verification,
        script,
    })
}

/// Whether a presented token is the one of this verification.
pub(super) fn is_token_of(presented: &str, verification: &Verification) -> bool {
    // Hashes are compared, so the time that it takes says nothing about the token.
    hash(presented) == verification.enrol_hash
}

fn hash(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}
