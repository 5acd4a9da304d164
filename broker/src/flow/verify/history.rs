//! Earlier sightings of a node's GPUs in other leases, of any tenant.
//!
//! A tenant reads in its node's document under which name a GPU was bought before, and nothing of its earlier
//! tenant. The log names the earlier leases, for the operator of the service.

use chrono::TimeDelta;
use market::attestation::{Attestation, FindingCode, Outcome};
use market::ids::LeaseId;
use store::StoreError;
use store::sightings::{NewSighting, Sighting};
use store::verifications::Verification;
use tracing::warn;
use verifier::challenge::Session;
use verifier::evidence::{self, History, Listing, ShownGpu, Standing};
use verifier::plain::shortened;

use crate::platform::app::Broker;
use crate::platform::metrics;

/// For how long a node that failed fails again wherever its provider offers it: long enough that it is not
/// sold on to the next tenant unrepaired, short enough that a repaired one comes back.
const QUARANTINE: TimeDelta = TimeDelta::days(30);
/// The longest text by which a GPU is known. Units: characters.
const LONGEST: usize = 128;

/// The known facts about the GPUs of a node.
pub(super) struct GpuHistory {
    lease: LeaseId,
    listing: Listing,
    seen: Vec<(LeaseId, evidence::Sighting)>,
}

/// The known facts about the GPUs that a node shows.
///
/// Errors: the database's.
pub(super) async fn of(
    broker: &Broker,
    verification: &Verification,
    session: &Session,
) -> Result<GpuHistory, StoreError> {
    let store = broker.store();
    let leases = store.leases().across_tenants();
    let lease = leases.find(verification.lease_id).await?;
    let lease = lease.ok_or(StoreError::NotFound { what: "lease" })?;
    let shown = shown_by(session);
    let seen = store.sightings().of(&shown, lease.id).await?;
    let since = broker.now() - QUARANTINE;
    let read = |sighting: Sighting| {
        let standing = match sighting.gpu.failed {
            _ if sighting.state.is_standing() => Standing::InUse,
            failed if !failed.is_empty() && sighting.last_seen_at >= since => {
                Standing::Quarantined(failed)
            }
            _ => Standing::Before,
        };
        let seen = evidence::Sighting {
            gpu: ShownGpu {
                uuid: sighting.gpu.uuid,
                serial: sighting.gpu.serial,
                name: sighting.gpu.name,
                memory_mib: sighting.gpu.memory_mib,
            },
            listing: Listing {
                of_peers: sighting.of_peers,
                provider: sighting.provider,
                offer: sighting.offer,
            },
            standing,
        };
        (sighting.lease_id, seen)
    };
    let offer = lease.offer;
    Ok(GpuHistory {
        lease: lease.id,
        listing: Listing {
            of_peers: offer.particulars.operator.is_peer(),
            provider: offer.provider,
            offer: offer.offer_id,
        },
        seen: seen.into_iter().map(read).collect(),
    })
}

impl GpuHistory {
    /// As the rules look at it.
    pub(super) fn history(&self) -> History {
        History {
            listing: self.listing.clone(),
            seen: self.seen.iter().map(|(_, seen)| seen.clone()).collect(),
        }
    }

    /// Logs the rule's outcome, with the leases concerned, for the operator of the service.
    pub(super) fn tell(&self, result: Option<&Attestation>) {
        let code = FindingCode::InventoryHistory;
        let found = result.and_then(|it| it.findings.iter().find(|found| found.code == code));
        let told = |outcome| matches!(outcome, Outcome::Failed | Outcome::Warned);
        let Some(found) = found.filter(|found| told(found.outcome)) else {
            return;
        };
        let mut leases: Vec<String> = self.seen.iter().map(|(id, _)| id.to_string()).collect();
        leases.dedup();
        let (lease, provider) = (self.lease, &self.listing.provider);
        metrics::gpu_seen_before(provider, found.outcome == Outcome::Failed);
        warn!(
            lease.id = %lease, provider.id = %provider, seen_in = leases.join(","),
            "A node of lease {lease} at {provider} shows GPUs that were seen before: {}", found.note
        );
    }
}

/// A claimed text in the form that is kept. The conversation takes only names, and drops invalid serial
/// numbers. Texts from before it did so may hold anything, and PostgreSQL takes no NUL in a text.
fn short(text: &str) -> String {
    shortened(text, LONGEST)
}

/// The sightings of a node, as kept: of no more GPUs than were leased, or a node could pose as any number of
/// others.
pub(super) fn shown_by(session: &Session) -> Vec<NewSighting> {
    let failed = session.condemned();
    let shown = session.shown_gpus().into_iter();
    let kept = shown.map(|gpu| NewSighting {
        uuid: short(&gpu.uuid),
        serial: gpu.serial.as_deref().map(short).filter(|it| !it.is_empty()),
        name: short(&gpu.name),
        memory_mib: gpu.memory_mib,
        failed: failed.clone(),
    });
    let kept = kept.filter(|gpu| !gpu.uuid.is_empty());
    kept.take(session.opening().order.expected.gpus as usize)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_claim_is_plain() {
        for (claimed, kept) in [
            ("16513\u{0}22", "1651322"),
            ("\u{0} GPU-1\r\n", "GPU-1"),
            ("\u{1b}[31mH100\u{9b}", "[31mH100"),
            ("GPU\u{200b}-1\u{202e}", "GPU-1"),
            ("\u{0}\u{7f}", ""),
        ] {
            assert_eq!(short(claimed), kept, "{claimed:?}");
        }
        let long = "\u{0}".repeat(LONGEST) + &"é".repeat(LONGEST + 1);
        assert_eq!(short(&long), "é".repeat(LONGEST));
    }
}
