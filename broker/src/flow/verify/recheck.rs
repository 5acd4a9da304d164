//! Re-checks of nodes in use: the permit, the order for the node, and the result.
//!
//! One token speaks for one node until its lease is over, however often. Only the tenant uses such a node: a
//! passed check is proof, but a failed one may be the tenant's own doing. So nothing is concluded from it
//! about GPUs elsewhere (`super::history`).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use market::attestation::{Attestation, FindingCode};
use market::ids::VerificationId;
use market::lease::LeaseState;
use store::leases::Lease;
use store::rechecks::NewRecheck;
use store::verifications::Verification;
use tracing::{info, warn};
use verifier::address::Token;
use verifier::challenge::{Opening, Session};
use verifier::delivery::{DeliveryError, ScriptArgs, recheck_script};
use verifier::order::{Mode, order_for_recheck};
use verifier::reference::NodeDescription;

use super::commit::{expected, mode_of};
use super::script::{self, EnrolError};
use super::{StepRefusal, lease_of};
use crate::flow::reach::known_nodes;
use crate::platform::app::Broker;

/// How long a token is good at most.
const GOOD_FOR: TimeDelta = TimeDelta::days(365);

/// Why a node cannot be re-checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PermitError {
    /// No agent can be brought onto it.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// Its hardware cannot be verified.
    #[error(transparent)]
    Hardware(StepRefusal),
    /// Its provider names no address for it.
    #[error("the provider names no address of the node")]
    NoAddress,
}

/// A token that permits a re-check of a node, and the script that carries it.
pub(crate) struct Permit {
    /// The verification that it speaks for.
    pub(crate) id: VerificationId,
    /// The token, which is kept nowhere.
    pub(crate) token: Token,
    /// The hash that is kept.
    pub(crate) token_hash: String,
    /// Until when it is good, should the lease last so long.
    pub(crate) until: DateTime<Utc>,
    /// The command for the node.
    pub(crate) script: String,
}

/// Draws a token for one node of a lease. In a simulation its script plays the node as it was handed over,
/// with GPUs of these ids.
///
/// Errors: [`PermitError`].
pub(crate) fn permit(
    broker: &Broker,
    lease: &Lease,
    (node_index, gpus): (u32, Vec<String>),
) -> Result<Permit, PermitError> {
    let sold = expected(broker, lease).map_err(PermitError::Hardware)?;
    let node = lease.provider_nodes.get(node_index as usize);
    let host = &node.ok_or(PermitError::NoAddress)?.host;
    let pretended = match mode_of(broker) {
        Mode::Simulation => Some(NodeDescription::as_sold(&sold, host.clone(), gpus)),
        Mode::Real => None,
    };
    let url = script::url_of(broker)?;
    let delivery = script::delivery_of(broker)?;
    let secret = format!("rt_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
    let unusable = |_| EnrolError::PublicUrl(broker.public_url().to_owned());
    let token: Token = secret.parse().map_err(unusable)?;
    let id = VerificationId::from_uuid(broker.new_uuid());
    let args = ScriptArgs {
        broker: &url,
        verification_id: id,
        token: &token,
        delivery: &delivery,
    };
    let written = recheck_script(&args, host, pretended.as_ref());
    Ok(Permit {
        id,
        token_hash: script::hash(&secret),
        until: broker.now() + GOOD_FOR,
        script: written.map_err(|error: DeliveryError| EnrolError::from(error))?,
        token,
    })
}

/// The order for the node of a token, if that node is the caller; `said` is the node at the address that the
/// caller claims.
pub(super) fn opening(
    broker: &Broker,
    verification: &Verification,
    lease: &Lease,
    (node, said): (u32, Result<u32, StepRefusal>),
) -> Result<Opening, StepRefusal> {
    if lease.state != LeaseState::HandedOff || broker.now() >= verification.deadline {
        return Err(StepRefusal::Token);
    }
    if said? != node {
        return Err(StepRefusal::OtherNode(lease.node_base + node));
    }
    let mode = mode_of(broker);
    Ok(Opening {
        verification_id: verification.id,
        lease_id: lease.id,
        mode,
        order: order_for_recheck(expected(broker, lease)?, node, mode),
    })
}

/// The session, which knows which GPUs were handed over with its node.
pub(super) async fn pinned(
    broker: &Broker,
    verification: &Verification,
    session: Session,
) -> Result<Session, StepRefusal> {
    let lease = lease_of(broker, verification).await?;
    let node = session.opening().order.node_index as usize;
    let known = known_nodes(broker, &lease).await?.into_iter().nth(node);
    Ok(session.pinned_to(known.map(|known| known.gpu_order).unwrap_or_default()))
}

/// The parts of a result that are kept, beside the document.
pub(super) fn outcome(result: &Attestation, node_base: u32) -> NewRecheck {
    let failed: Vec<FindingCode> = (result.findings.iter())
        .filter(|found| found.counts_against())
        .map(|found| found.code)
        .collect();
    NewRecheck {
        node: node_base.saturating_add(result.node_index),
        pinned_set_changed: failed.contains(&FindingCode::InventoryPinned),
        failed,
    }
}

/// Reports to the operator of the service, and to the readers of events.
pub(super) fn tell(broker: &Broker, lease: &Lease, result: &Attestation) {
    let NewRecheck { node, failed, .. } = outcome(result, lease.node_base);
    let (id, provider, verdict) = (lease.id, &lease.offer.provider, result.verdict);
    if failed.is_empty() {
        info!(lease.id = %id, node, verdict = %verdict, "Re-checked a node in use: {verdict}");
    } else {
        let failed: Vec<&str> = failed.iter().map(|code| code.as_str()).collect();
        warn!(
            lease.id = %id, provider.id = %provider, node, failed = failed.join(","),
            "Node {node} of lease {id} at {provider} fails its re-check"
        );
    }
    broker.ring_events();
}
