//! The known facts about the nodes of a lease: from their verification, and from the first contact, which is
//! that of the agent's delivery where it is installed over SSH.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use market::access::HostKeySource;
use market::attestation::Attestation;
use russh::keys::{HashAlg, PublicKey};
use store::StoreError;
use store::leases::Lease;
use store::reach::NodeReach;

use crate::platform::app::Broker;

/// The known facts about a node.
#[derive(Debug, Default)]
pub(crate) struct KnownNode {
    /// Its host keys.
    pub(crate) keys: Vec<PublicKey>,
    /// Where they came from.
    pub(crate) source: Option<HostKeySource>,
    /// The ids of its GPUs in the driver's order.
    pub(crate) gpu_order: Vec<String>,
    /// Its network adapters in the system's order.
    pub(crate) nic_order: Vec<String>,
    /// The prober's findings.
    pub(crate) reach: Option<NodeReach>,
}

/// The known facts about each node of a lease, in order.
///
/// Keys that a node reported in its verification take precedence over one that it showed at first contact.
/// Texts that are not keys are ignored. Errors: the database's.
/// Errors: the database's.
pub(crate) async fn known_nodes(
    broker: &Broker,
    lease: &Lease,
) -> Result<Vec<KnownNode>, StoreError> {
    let store = broker.store();
    let verified = store.verifications().of(lease.tenant_id);
    let attestations = verified.attestations_of(lease.id).await?;
    // Of several about one node the last counts: those before belong to orders that failed.
    let documents: HashMap<u32, Attestation> = attestations
        .iter()
        .filter_map(|kept| Some((kept.node_index, payload(&kept.jws)?)))
        .collect();
    let reach = store.reach().of(lease.tenant_id).of_lease(lease.id).await?;
    let node = |index: u32| {
        let mut known = documents.get(&index).map(said_by).unwrap_or_default();
        known.reach = reach.iter().find(|row| row.node_index == index).cloned();
        let first = known.reach.as_ref();
        let first = first.and_then(|row| row.first_contact_key.as_deref());
        if let (true, Some(key)) = (known.keys.is_empty(), first.and_then(parse)) {
            known.keys.push(key);
            known.source = Some(HostKeySource::FirstContact);
        }
        known
    };
    let nodes = u32::try_from(lease.provider_nodes.len()).unwrap_or(u32::MAX);
    Ok((0..nodes).map(node).collect())
}

/// The fingerprint as `ssh` shows it.
pub(crate) fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

fn said_by(document: &Attestation) -> KnownNode {
    let Some(inventory) = &document.inventory else {
        return KnownNode::default();
    };
    let said = inventory.ssh_host_keys.iter();
    let keys: Vec<_> = said.filter_map(|line| parse(line)).collect();
    KnownNode {
        source: (!keys.is_empty()).then_some(HostKeySource::Verification),
        keys,
        gpu_order: inventory.gpus.iter().map(|gpu| gpu.uuid.clone()).collect(),
        nic_order: inventory.nics.clone(),
        reach: None,
    }
}

fn parse(line: &str) -> Option<PublicKey> {
    PublicKey::from_openssh(line).ok()
}

/// The statements of a document of ours. Its signature was made when it was kept.
fn payload(jws: &str) -> Option<Attestation> {
    let payload = URL_SAFE_NO_PAD.decode(jws.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&payload).ok()
}
