//! What has come out of the verification of a lease so far.

use std::collections::BTreeSet;

use market::attestation::Verdict;
use store::StoreError;
use store::leases::Lease;

use super::gang;
use crate::app::Broker;

/// What has come out of the verification of a lease so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// Not every node has reported, or they are still measured together.
    Open,
    /// Every node passed.
    Passed,
    /// A node failed; why, in words.
    Failed(String),
    /// None failed and not all passed; why, in words.
    Inconclusive(String),
}

/// What has come out of the verification of a lease so far.
///
/// Errors: the database's.
pub async fn verdict_of(broker: &Broker, lease: &Lease) -> Result<LeaseVerdict, StoreError> {
    let all = broker.store().verifications().across_tenants();
    // Only the newest verification counts: the order was sent with its token.
    let Some(newest) = all
        .of_lease(lease.id)
        .await?
        .into_iter()
        .max_by_key(|one| one.id)
    else {
        return Ok(LeaseVerdict::Open);
    };
    let mut attestations = all.attestations_of(lease.id).await?;
    attestations.retain(|attestation| attestation.verification_id == newest.id);
    let failed = attestations
        .iter()
        .filter(|attestation| !attestation.verdict.is_pass());
    // What failed says more than what could not be told.
    if let Some(bad) = failed.min_by_key(|bad| bad.verdict != Verdict::Fail) {
        let why = format!("node {} of the lease: {}", bad.node_index, bad.verdict);
        let why = format!("{why} (attestation {})", bad.id);
        return Ok(unproved(bad.verdict, why));
    }
    let passed: BTreeSet<_> = attestations
        .iter()
        .map(|attestation| attestation.node_index)
        .collect();
    if !(0..lease.nodes).all(|node| passed.contains(&node)) {
        return Ok(LeaseVerdict::Open);
    }
    if !gang::measures(lease) {
        return Ok(LeaseVerdict::Passed);
    }
    let together = all.gang_check(newest.id).await?;
    Ok(match together.and_then(|check| check.verdict) {
        None => LeaseVerdict::Open,
        Some(verdict) if verdict.is_pass() => LeaseVerdict::Passed,
        Some(verdict) => unproved(verdict, format!("its nodes together: {verdict}")),
    })
}

/// What a verdict that is no pass says of the lease.
fn unproved(verdict: Verdict, why: String) -> LeaseVerdict {
    match verdict {
        Verdict::Fail => LeaseVerdict::Failed(why),
        _ => LeaseVerdict::Inconclusive(why),
    }
}
