//! What has come out of the verification of a lease so far.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::attestation::Verdict;
use market::ids::VerificationId;
use store::StoreError;
use store::leases::Lease;
use store::verifications::KeptAttestation;

use super::gang::Orders;
use crate::app::Broker;

/// What has come out of the verification of a lease so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// Not every node has reported, or they are still measured together.
    Open {
        /// Until when its nodes have for it; no end of its own where it waits for other orders of its gang.
        until: Option<DateTime<Utc>>,
    },
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
    let open = LeaseVerdict::Open {
        until: lease.verify_deadline,
    };
    let Some(own) = Results::read(broker, lease).await? else {
        return Ok(open);
    };
    // What failed says more than what could not be told.
    let failed = own.failed();
    if let Some(bad) = failed.min_by_key(|bad| bad.verdict != Verdict::Fail) {
        let why = format!("node {} of the lease: {}", bad.node_index, bad.verdict);
        let why = format!("{why} (attestation {})", bad.id);
        return Ok(unproved(bad.verdict, why));
    }
    if !own.has_passed(lease) {
        return Ok(open);
    }
    let orders = Orders::read(broker, lease).await?;
    if !orders.are_measured() {
        return Ok(LeaseVerdict::Passed);
    }
    let mut lead = None;
    let mut any_failed = false;
    for one in orders.leases() {
        let results = Results::read(broker, one).await?;
        let Some(results) = results.filter(|results| results.has_passed(one)) else {
            // Whatever it waits for has a time of its own.
            return Ok(LeaseVerdict::Open { until: None });
        };
        any_failed |= results.failed().next().is_some();
        lead = lead.or(Some(results.verification));
    }
    let all = broker.store().verifications().across_tenants();
    let together = match lead {
        Some(lead) => all.gang_check(lead).await?,
        None => None,
    };
    Ok(match together.and_then(|check| check.verdict) {
        None => LeaseVerdict::Open {
            until: orders.until(),
        },
        Some(verdict) if verdict.is_pass() => LeaseVerdict::Passed,
        // Nodes of another order are to blame: this one falls with it, and not for anything of its own.
        Some(_) if any_failed => LeaseVerdict::Open { until: None },
        Some(verdict) => unproved(verdict, format!("its nodes together: {verdict}")),
    })
}

/// The signed results of a lease's newest verification.
struct Results {
    verification: VerificationId,
    attestations: Vec<KeptAttestation>,
}

impl Results {
    /// None where the order was never sent.
    async fn read(broker: &Broker, lease: &Lease) -> Result<Option<Self>, StoreError> {
        let all = broker.store().verifications().across_tenants();
        let Some(newest) = all.newest_of(lease.id).await? else {
            return Ok(None);
        };
        let mut attestations = all.attestations_of(lease.id).await?;
        attestations.retain(|attestation| attestation.verification_id == newest.id);
        Ok(Some(Self {
            verification: newest.id,
            attestations,
        }))
    }

    fn failed(&self) -> impl Iterator<Item = &KeptAttestation> {
        let all = self.attestations.iter();
        all.filter(|attestation| !attestation.verdict.is_pass())
    }

    /// Whether each node has passed, alone at least.
    fn has_passed(&self, lease: &Lease) -> bool {
        let passed = self.attestations.iter().filter(|one| one.verdict.is_pass());
        let passed: BTreeSet<_> = passed.map(|one| one.node_index).collect();
        (0..lease.nodes).all(|node| passed.contains(&node))
    }
}

/// What a verdict that is no pass says of the lease.
fn unproved(verdict: Verdict, why: String) -> LeaseVerdict {
    match verdict {
        Verdict::Fail => LeaseVerdict::Failed(why),
        _ => LeaseVerdict::Inconclusive(why),
    }
}
