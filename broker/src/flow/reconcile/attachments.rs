//! Removes what was made at a provider beside the machines of our leases (scripts, keys, disks), once those
//! leases are over.

use market::order::Attachment;
use store::StoreError;
use store::leases::Lease;
use tracing::{error, info, warn};

use super::Swept;
use crate::flow::absence;
use crate::platform::app::Broker;
use crate::platform::provider_set::ProviderLink;

/// The most that is looked at and removed in one round; the next goes on. Removals take their turn among the
/// orders of the account.
const MOST_LOOKED_AT: usize = 5_000;
const MOST_REMOVED: usize = 50;

/// Removes what leases left behind that have been gone for longer than the provider's lists lag. What carries
/// the mark of an unknown lease is reported: another broker may share the account.
///
/// Errors: the database's.
pub(super) async fn tidy(
    broker: &Broker,
    link: &ProviderLink,
    swept: &mut Swept,
) -> Result<(), StoreError> {
    let provider = link.adapter.profile().id;
    let attachments = match link.adapter.list_attachments(&link.http).await {
        Ok(attachments) => attachments,
        Err(failure) => {
            warn!(
                provider.id = provider, error = %crate::chain(&failure),
                "What stands beside the machines at {provider} could not be listed"
            );
            swept.unreadable += 1;
            return Ok(());
        }
    };
    let leases = broker.store().leases().across_tenants();
    let (mut unknown, mut tried) = (Vec::new(), 0);
    for attachment in attachments.iter().take(MOST_LOOKED_AT) {
        match leases.find(attachment.client_token.lease_id()).await? {
            Some(lease) if tried < MOST_REMOVED && is_over(broker, link, &lease) => {
                tried += 1;
                remove(link, attachment, swept).await;
            }
            Some(_) => {}
            None => unknown.push(attachment),
        }
    }
    if let Some(first) = unknown.first() {
        swept.unknown_attachments += unknown.len();
        error!(
            provider.id = provider,
            "{} things at {provider} carry a broker's mark and no lease row of this database, {} {} first; a \
             person must look",
            unknown.len(),
            first.kind,
            first.id
        );
    }
    Ok(())
}

/// Whether a lease has been gone for so long that nothing of its order can still be under way.
fn is_over(broker: &Broker, link: &ProviderLink, lease: &Lease) -> bool {
    let lag = absence::listing_lag(link);
    lease.gone_at.is_some_and(|at| broker.now() - at >= lag)
}

async fn remove(link: &ProviderLink, attachment: &Attachment, swept: &mut Swept) {
    let (provider, kind, id) = (link.adapter.profile().id, &attachment.kind, &attachment.id);
    match link.adapter.remove_attachment(&link.http, attachment).await {
        Ok(()) => {
            swept.removed_attachments += 1;
            info!(
                provider.id = provider,
                "Removed {kind} {id} at {provider}: its lease is over"
            );
        }
        Err(failure) => {
            swept.unreadable += 1;
            warn!(
                provider.id = provider, error = %crate::chain(&failure),
                "{kind} {id} at {provider} could not be removed"
            );
        }
    }
}
