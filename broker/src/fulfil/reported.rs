//! Leases in use that their tenant reported as failing.

use market::lease::{LeaseEvent, LeaseState};
use store::leases::Lease;
use store::node_reports::NodeReport;

use super::FulfilError;
use super::learned::Learned;
use crate::app::Broker;

/// What follows from a report on a node of this lease; `None` when there is none to follow.
///
/// The tenant does not want it any more: that is no failure that the provider is held to.
pub(super) async fn given_up(
    broker: &Broker,
    lease: &Lease,
) -> Result<Option<Learned>, FulfilError> {
    if lease.state != LeaseState::HandedOff {
        return Ok(None);
    }
    let reports = broker.store().node_reports().across_tenants();
    let report = reports.repairing(lease.id).await?;
    Ok(report.map(|report| Learned::because(LeaseEvent::Unwanted, words(&report))))
}

fn words(report: &NodeReport) -> String {
    let mut what: Vec<String> = report.failed.iter().map(ToString::to_string).collect();
    if !report.missing.is_empty() {
        what.push(format!("{} GPUs are gone", report.missing.len()));
    }
    let NodeReport { node, id, .. } = report;
    format!(
        "node {node} fails by its tenant's report {id}: {}",
        what.join(", ")
    )
}
