//! Leases in use of which a node fails: by its tenant's report, or by a re-check.

use market::lease::{LeaseEvent, LeaseState};
use store::leases::Lease;
use store::node_reports::NodeReport;
use store::rechecks::Recheck;

use super::FulfilError;
use super::learned::Learned;
use crate::platform::app::Broker;

/// The consequence of a report on a node of this lease, or of a re-check; `None` when there is none.
///
/// A lease that only its tenant reports is unwanted: that does not count as a failure of the provider. A
/// failed re-check by the broker does. Both were measured on the node, which was in use until then.
pub(super) async fn given_up(
    broker: &Broker,
    lease: &Lease,
) -> Result<Option<Learned>, FulfilError> {
    if lease.state != LeaseState::HandedOff {
        return Ok(None);
    }
    let store = broker.store();
    let rechecks = store.rechecks().across_tenants();
    if let Some(recheck) = rechecks.repairing(lease.id).await? {
        return Ok(Some(Learned {
            used_until: Some(recheck.checked_at),
            ..Learned::because(LeaseEvent::Failed, words_of_recheck(&recheck))
        }));
    }
    let reports = store.node_reports().across_tenants();
    let report = reports.repairing(lease.id).await?;
    Ok(report.map(|report| Learned {
        used_until: Some(report.reported_at),
        ..Learned::because(LeaseEvent::Unwanted, words(&report))
    }))
}

fn words_of_recheck(recheck: &Recheck) -> String {
    let failed: Vec<&str> = recheck.failed.iter().map(|code| code.as_str()).collect();
    let (node, failed) = (recheck.node, failed.join(", "));
    let id = recheck.attestation_id;
    format!("node {node} failed its re-check in use: {failed} (attestation {id})")
}

fn words(report: &NodeReport) -> String {
    let mut what: Vec<String> = report.failed.iter().map(ToString::to_string).collect();
    if !report.missing.is_empty() {
        what.push(format!("{} GPUs are gone", report.missing.len()));
    }
    if !report.foreign.is_empty() {
        what.push(format!(
            "{} GPUs were not handed over",
            report.foreign.len()
        ));
    }
    let NodeReport { node, id, .. } = report;
    format!(
        "node {node} fails by its tenant's report {id}: {}",
        what.join(", ")
    )
}
