//! The failures for which the GPUs of a node are quarantined.

use market::attestation::{Finding, FindingCode, Remedy};

/// The failures of a node for which its GPUs are quarantined: those that only other hardware cures, and that
/// concern this node alone.
///
/// A failure that a reset or a reboot cures condemns nothing, nor do its consequences: memory that an earlier
/// process still holds is missing, and copies over links that did not come up are slow.
#[must_use]
pub(crate) fn condemned(findings: &[Finding]) -> Vec<FindingCode> {
    let against: Vec<&Finding> = findings.iter().filter(|it| it.counts_against()).collect();
    let is_curable =
        |found: &&&Finding| matches!(found.remedy, Some(Remedy::Reset | Remedy::Reboot));
    let failed = against.iter().filter(|found| {
        let mut curable = against.iter().filter(is_curable);
        found.remedy == Some(Remedy::Replace)
            && is_its_own(found.code)
            && !curable.any(|cause| comes_of(found, cause))
    });
    failed.map(|found| found.code).collect()
}

/// Whether a failure concerns the node's own hardware: not other nodes, nor the installed software.
const fn is_its_own(code: FindingCode) -> bool {
    use FindingCode as C;
    !matches!(
        code,
        C::InventoryHistory
            | C::InventoryUnique
            | C::NetworkPorts
            | C::NetworkPairs
            | C::NetworkAllReduce
            | C::NetworkCollective
            | C::NetworkCollectivePairs
            | C::InventorySoftware
            | C::AgentSignature
            | C::AgentReport
    )
}

/// Whether a failure may be a consequence of another one that a reset or a reboot cures.
fn comes_of(failed: &Finding, curable: &Finding) -> bool {
    use FindingCode as C;
    match curable.code {
        // Slices are counted by some sources and not by others, and have a part of a GPU's resources.
        C::InventoryMig => {
            let counts_slices = matches!(
                failed.code,
                C::InventoryCount | C::InventorySources | C::MemoryCapacity
            );
            counts_slices || is_rate(failed.code)
        }
        C::InventoryResidue if failed.code == C::MemoryCapacity => is_held(failed, curable),
        // Work of others, and a GPU whose driver reports that it needs a reset.
        C::InventoryResidue | C::HealthRemap | C::HealthXid => is_rate(failed.code),
        C::FabricNotReady | C::NvlinkActive => {
            matches!(failed.code, C::PairRates | C::AllReduce)
        }
        _ => false,
    }
}

/// Whether the missing memory of each GPU was in use before the agent began.
fn is_held(missing: &Finding, residue: &Finding) -> bool {
    let Some(floor) = missing.floor else {
        return false;
    };
    let (can_be_had, used) = (&missing.samples, &residue.samples);
    can_be_had.len() == used.len()
        && can_be_had.iter().any(|mib| *mib < floor)
        && can_be_had
            .iter()
            .zip(used)
            .all(|(mib, used)| mib.saturating_add(*used) >= floor)
}

/// Whether a check compares a rate that other work on a GPU, or on a slice of it, lowers.
const fn is_rate(code: FindingCode) -> bool {
    use FindingCode as C;
    matches!(
        code,
        C::MemoryBandwidth
            | C::MemoryRead
            | C::MemoryTriad
            | C::HostLinkIn
            | C::HostLinkOut
            | C::PairRates
            | C::AllReduce
            | C::Gemm16Bit
            | C::GemmFp8
            | C::GemmStraggler
            | C::BurnSustained
    )
}
