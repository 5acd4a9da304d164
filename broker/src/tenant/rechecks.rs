//! A tenant has a node in use re-checked, as often as it likes within reason, by a token that is good for
//! nothing else.
//!
//! The conversation is in [`crate::flow::verify`], the consequence at the provider in
//! [`crate::flow::fulfil`]. Unlike a tenant's own report ([`crate::tenant::node_reports`]), this one is
//! checked, timed and signed here.

use market::identity::TenantScope;
use market::ids::ReservationId;
use store::StoreError;
use store::idempotency::Completion;
use store::rechecks::{EVERY_MINUTES, NewPermit};
use verifier::address::Token;

use crate::flow::reach::known_nodes;
use crate::flow::verify::{self, Permit, PermitError};
use crate::platform::app::Broker;
use crate::tenant::node_reports::{ReportError, lease_in_use};

/// How long after a look began no other begins. Units: seconds.
pub(crate) const EVERY_SECONDS: i64 = EVERY_MINUTES * 60;

/// Why nothing was permitted or taken back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecheckError {
    /// The node is not there or not in use.
    #[error(transparent)]
    Node(#[from] ReportError),
    /// It cannot be re-checked.
    #[error("node {node} cannot be re-checked: {why}")]
    Impossible {
        /// The node.
        node: u32,
        /// Why, as in the message.
        why: PermitError,
    },
    /// The database did not answer, or does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A permit to check a node in use again.
pub(crate) struct Permitted {
    /// The row that is kept of it.
    pub(crate) kept: NewPermit,
    /// The token.
    pub(crate) token: Token,
    /// The script that carries it, to run on the node.
    pub(crate) script: String,
}

/// Permits a re-check of a node of a reservation; an earlier permit for it ends.
///
/// Errors: [`RecheckError`]; nothing is written then.
pub(crate) async fn permit(
    broker: &Broker,
    whose: &TenantScope,
    (id, node): (ReservationId, u32),
    completion: Option<Completion<'_, NewPermit>>,
) -> Result<Permitted, RecheckError> {
    let lease = lease_in_use(broker, whose, id, node).await?;
    let node_index = node - lease.node_base;
    let known = known_nodes(broker, &lease).await?;
    let known = known.into_iter().nth(node_index as usize);
    let gpus = known.map(|node| node.gpu_order).unwrap_or_default();
    let permit = verify::permit(broker, &lease, (node_index, gpus));
    let Permit {
        id: verification_id,
        token,
        token_hash,
        until,
        script,
    } = permit.map_err(|why| RecheckError::Impossible { node, why })?;
    let kept = NewPermit {
        id: verification_id,
        reservation_id: id,
        lease_id: lease.id,
        node_index,
        token_hash,
        until,
    };
    let rechecks = broker.store().rechecks().of(whose.tenant);
    rechecks.permit(&kept, broker.now(), completion).await?;
    Ok(Permitted {
        kept,
        token,
        script,
    })
}

/// Withdraws the permit for a re-check of a node.
///
/// Errors: [`RecheckError`].
pub(crate) async fn revoke(
    broker: &Broker,
    whose: &TenantScope,
    (id, node): (ReservationId, u32),
    completion: Option<Completion<'_, ()>>,
) -> Result<(), RecheckError> {
    let lease = lease_in_use(broker, whose, id, node).await?;
    let of_node = (lease.id, node - lease.node_base);
    let rechecks = broker.store().rechecks().of(whose.tenant);
    Ok(rechecks
        .revoke(id, of_node, broker.now(), completion)
        .await?)
}
