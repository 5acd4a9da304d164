//! A tenant reports a node that it has in use. The report is compared with the handed-over node and kept, and
//! where it shows a failure the node's lease is replaced.
//!
//! A tenant's measurement is not countersigned, so it stays a claim: it does not count against the provider,
//! and only so many leases are replaced because of it (`store::node_reports`). [`crate::flow::fulfil`] acts
//! on it at the provider.

use market::attestation::{Attestation, FindingCode};
use market::counted::counted;
use market::identity::TenantScope;
use market::ids::{NodeReportId, PrincipalId, ReservationId};
use market::lease::LeaseState;
use market::offer::Offer;
use market::reservation::ReservationState;
use market::verification::PROTOCOL;
use store::StoreError;
use store::idempotency::Completion;
use store::leases::Lease;
use store::node_reports::{Follows, NewNodeReport, NodeReport};
use store::reservations::Reservation;
use store::settings::DatabaseMode;
use tracing::{info, warn};
use verifier::rules;

use crate::flow::reach::known_nodes;
use crate::flow::reserve::{self, ReserveError};
use crate::platform::app::Broker;

/// Why a report was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The reservation is not there.
    #[error(transparent)]
    Reservation(#[from] ReserveError),
    /// The reservation has no node of this number.
    #[error("the reservation has {nodes} nodes, numbered from 0, and none is number {node}")]
    UnknownNode {
        /// The number that was named.
        node: u32,
        /// How many there are.
        nodes: u32,
    },
    /// The node is not in the tenant's hands.
    #[error(
        "node {node} is not in use: the reservation is {state}; a node can be reported or re-checked from its hand-off on, until it is released or being replaced"
    )]
    NotInUse {
        /// The node.
        node: u32,
        /// Where the reservation stands.
        state: ReservationState,
    },
    /// The result is not one about this node, or not one to go by.
    #[error("the result is refused: {0}")]
    Result(String),
    /// The database did not answer, or does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A tenant's report.
#[derive(Debug, Clone)]
pub struct Reported {
    /// The principal who reports it.
    pub by: PrincipalId,
    /// The trouble, in words.
    pub reason: Option<String>,
    /// The output of `verifier run --json` on the node.
    pub result: Option<Attestation>,
}

/// Takes a report on a node of a reservation: checks it, keeps it, reports it as an event, and acts on it.
///
/// Errors: [`ReportError`]; nothing is kept then.
pub async fn report(
    broker: &Broker,
    whose: &TenantScope,
    id: ReservationId,
    node: u32,
    reported: Reported,
    completion: Option<Completion<'_, NodeReport>>,
) -> Result<NodeReport, ReportError> {
    let lease = lease_in_use(broker, whose, id, node).await?;
    let mut new = NewNodeReport {
        id: NodeReportId::from_uuid(broker.new_uuid()),
        reservation_id: id,
        lease_id: lease.id,
        node,
        reported_by: reported.by,
        reason: reported.reason,
        verdict: None,
        failed: Vec::new(),
        missing: Vec::new(),
        foreign: Vec::new(),
        result: None,
    };
    if let Some(result) = reported.result {
        let index = (node - lease.node_base) as usize;
        let known = known_nodes(broker, &lease).await?.into_iter().nth(index);
        let handed_over = known.map(|known| known.gpu_order).unwrap_or_default();
        let may_be_simulated = broker.mode() == DatabaseMode::Simulation;
        check_result(&result, may_be_simulated)?;
        let Differs { missing, foreign } = compare(&result, &lease.offer, &handed_over)?;
        (new.missing, new.foreign) = (missing, foreign);
        new.failed = failed(&result);
        new.verdict = Some(result.verdict);
        new.result =
            Some(serde_json::to_value(&result).map_err(|error| {
                ReportError::Result(format!("it cannot be kept as JSON: {error}"))
            })?);
    }
    let kept = broker
        .store()
        .node_reports()
        .of(whose.tenant)
        .add(&new, broker.now(), completion)
        .await?;
    tell(&kept, &lease);
    broker.ring_events();
    if kept.follows == Follows::Repair {
        broker.nudge();
    }
    Ok(kept)
}

/// Checks that a reservation has a node of this number, in use or not.
///
/// Errors: [`ReportError::UnknownNode`].
pub fn check_node(reservation: &Reservation, node: u32) -> Result<(), ReportError> {
    let nodes = reservation.lines.iter().map(|line| line.nodes).sum();
    match node < nodes {
        true => Ok(()),
        false => Err(ReportError::UnknownNode { node, nodes }),
    }
}

/// The lease to which a node belongs that is in the tenant's hands.
pub(crate) async fn lease_in_use(
    broker: &Broker,
    whose: &TenantScope,
    id: ReservationId,
    node: u32,
) -> Result<Lease, ReportError> {
    let reservation = reserve::find(broker, whose, id).await?;
    check_node(&reservation, node)?;
    let leases = broker.store().leases().of(whose.tenant);
    let leases = leases.of_reservation(id).await?;
    let has = |lease: &Lease| {
        (lease.node_base..lease.node_base.saturating_add(lease.nodes)).contains(&node)
    };
    // The last one replaces those before.
    let last = leases.into_iter().rfind(has);
    last.filter(|lease| lease.state == LeaseState::HandedOff)
        .ok_or(ReportError::NotInUse {
            node,
            state: reservation.state,
        })
}

fn refuse<T>(why: impl Into<String>) -> Result<T, ReportError> {
    Err(ReportError::Result(why.into()))
}

/// Refuses a result that no agent of ours prints, or that was measured while the GPUs did other work.
fn check_result(result: &Attestation, may_be_simulated: bool) -> Result<(), ReportError> {
    if result.protocol != PROTOCOL {
        return refuse(format!(
            "it is of version {} of the conversation, and this service speaks {PROTOCOL}; use the \
             agent of this service",
            result.protocol
        ));
    }
    if result.simulated && !may_be_simulated {
        return refuse("it was measured on a pretended device");
    }
    let follows = rules::verdict(&result.findings);
    if follows != result.verdict {
        return refuse(format!(
            "it says `{}`, and its findings amount to `{follows}`",
            result.verdict
        ));
    }
    if failed(result).contains(&FindingCode::InventoryResidue) {
        return refuse(
            "other processes were using the GPUs, which fails good ones too; end them, run the \
             check again and report that",
        );
    }
    Ok(())
}

/// The checks that failed, but for those that are only tried out.
fn failed(result: &Attestation) -> Vec<FindingCode> {
    let failed = result
        .findings
        .iter()
        .filter(|found| found.counts_against());
    failed.map(|found| found.code).collect()
}

/// The differences between the GPUs of a result and those that were handed over, by their ids.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differs {
    /// Those that are gone.
    missing: Vec<String>,
    /// Those that stand among them and were not handed over.
    foreign: Vec<String>,
}

/// Compares a result with the node that was handed over.
///
/// A node may show fewer GPUs than it did, and others among those that it did, which are failures. One
/// that shows none of those that were handed over is another node.
fn compare(
    result: &Attestation,
    sold: &Offer,
    handed_over: &[String],
) -> Result<Differs, ReportError> {
    let measured = &result.expected;
    if let Some(gpu) = sold.gpu.known().filter(|gpu| *gpu != measured.gpu) {
        return refuse(format!(
            "it is about {}, and the node was handed over with {gpu}",
            measured.gpu
        ));
    }
    if let Some(gpus) = sold.gpus.as_whole().filter(|gpus| measured.gpus > *gpus) {
        return refuse(format!(
            "it is about {}, and the node was handed over with {gpus}",
            counted(measured.gpus, "GPU")
        ));
    }
    let Some(inventory) = &result.inventory else {
        // The driver showed nothing: there is nothing to compare, and no GPU can be missed by its id.
        return Ok(Differs::default());
    };
    let is = |one: &str, other: &str| one.trim().eq_ignore_ascii_case(other.trim());
    let shown = || inventory.gpus.iter().map(|gpu| gpu.uuid.as_str());
    let was_handed_over = |uuid: &&str| handed_over.iter().any(|known| is(known, uuid));
    let foreign: Vec<&str> = shown().filter(|uuid| !was_handed_over(uuid)).collect();
    if !foreign.is_empty() && !shown().any(|uuid| was_handed_over(&uuid)) {
        return refuse(format!(
            "the GPU {} was not handed over with this node, which has {}; it may be another node's",
            foreign.join(", "),
            handed_over.join(", ")
        ));
    }
    let is_missing = |known: &&String| !shown().any(|uuid| is(known, uuid));
    Ok(Differs {
        missing: handed_over.iter().filter(is_missing).cloned().collect(),
        foreign: foreign.into_iter().map(str::to_owned).collect(),
    })
}

fn tell(report: &NodeReport, lease: &Lease) {
    let (id, node, provider) = (report.reservation_id, report.node, &lease.offer.provider);
    let failed: Vec<&str> = report.failed.iter().map(|code| code.as_str()).collect();
    let failed = failed.join(",");
    match report.follows {
        // A person looks at a provider that many tenants report.
        Follows::Repair | Follows::Already | Follows::Gang | Follows::TooOften => warn!(
            report.id = %report.id, reservation.id = %id, lease.id = %lease.id, node,
            provider.id = %provider, failed,
            "Node {node} of {id} at {provider} fails by its tenant's report"
        ),
        Follows::NothingFailed => info!(
            report.id = %report.id, reservation.id = %id, lease.id = %lease.id, node,
            provider.id = %provider,
            "Node {node} of {id} at {provider} was reported without a failure"
        ),
    }
}

#[cfg(test)]
mod tests;
