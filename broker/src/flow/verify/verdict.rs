//! The state of a lease's verification so far.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::attestation::{Finding, Verdict};
use market::ids::AttestationId;
use store::StoreError;
use store::leases::Lease;
use store::verifications::Outcome;

use super::document::read_document;
use super::gang::Orders;
use crate::platform::app::Broker;

/// The state of a lease's verification so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// Not every node has reported, or they are still measured together.
    Open {
        /// The deadline for its nodes; `None` where it waits for other orders of its gang.
        until: Option<DateTime<Utc>>,
    },
    /// Every node passed.
    Passed,
    /// A node failed; why, in words.
    Failed(String),
    /// None failed and not all passed; why, in words.
    Inconclusive(String),
}

/// The state of a lease's verification so far.
///
/// A worker asks this of every lease of a gang in turn. So it reads one verdict or a few counts of the other
/// orders, and never the answers of their nodes. Errors: the database's.
/// Errors: the database's.
pub async fn verdict_of(broker: &Broker, lease: &Lease) -> Result<LeaseVerdict, StoreError> {
    let all = broker.store().verifications().across_tenants();
    let own = all.outcomes_of(lease.id).await?;
    // A failed check is more informative than one that could not be decided.
    let failed = own.iter().filter(|outcome| !outcome.verdict.is_pass());
    if let Some(bad) = failed.min_by_key(|bad| bad.verdict != Verdict::Fail) {
        let why = format!("node {} of the lease: {}", bad.node_index, bad.verdict);
        let unmet = unmet(broker, lease, bad.attestation_id).await?;
        let why = format!("{why}{unmet} (attestation {})", bad.attestation_id);
        return Ok(unproved(bad.verdict, why));
    }
    if !have_all_passed(lease, &own) {
        return Ok(LeaseVerdict::Open {
            until: lease.verify_deadline,
        });
    }
    let orders = Orders::read(broker, lease).await?;
    if !orders.are_measured() {
        return Ok(LeaseVerdict::Passed);
    }
    // Nodes are measured together only once each has passed alone.
    Ok(match all.gang_verdict(orders.first().id).await? {
        None => {
            let passed = all.alone(&orders.ids()).await?.passed;
            // The orders that it waits for have deadlines of their own.
            let is_whole = passed == u64::from(orders.nodes());
            LeaseVerdict::Open {
                until: orders.until().filter(|_| is_whole),
            }
        }
        Some(verdict) if verdict.is_pass() => LeaseVerdict::Passed,
        // Nodes of another order are to blame: this order fails with it, and not on its own account.
        Some(_) if all.any_failed(&orders.ids()).await? => LeaseVerdict::Open { until: None },
        Some(verdict) => unproved(verdict, format!("its nodes together: {verdict}")),
    })
}

/// The checks that a node of a lease did not pass, in the words that follow its verdict.
async fn unmet(broker: &Broker, lease: &Lease, id: AttestationId) -> Result<String, StoreError> {
    let all = broker.store().verifications().across_tenants();
    let kept = all.attestations_of(lease.id).await?;
    let Some(kept) = kept.into_iter().find(|kept| kept.id == id) else {
        return Ok(String::new());
    };
    let document = read_document(&kept.jws)?;
    let decides = |found: &&Finding| match document.verdict {
        Verdict::Fail => found.counts_against(),
        _ => found.leaves_open(),
    };
    let codes = document.findings.iter().filter(decides);
    let codes: Vec<&str> = codes.map(|found| found.code.as_str()).collect();
    Ok(match codes.is_empty() {
        true => String::new(),
        false => format!(", {}", codes.join(", ")),
    })
}

/// Whether each node of a lease has passed, alone at least; none has failed.
fn have_all_passed(lease: &Lease, own: &[Outcome]) -> bool {
    let passed: BTreeSet<u32> = own.iter().map(|outcome| outcome.node_index).collect();
    (0..lease.nodes).all(|node| passed.contains(&node))
}

/// The lease verdict for a verdict other than a pass.
fn unproved(verdict: Verdict, why: String) -> LeaseVerdict {
    match verdict {
        Verdict::Fail => LeaseVerdict::Failed(why),
        _ => LeaseVerdict::Inconclusive(why),
    }
}
