//! The rule on what was seen of a node's GPUs before: in another lease that still stands, on a node that
//! failed, or as something else.
//!
//! Ids are claims: a host may show those of another's GPUs. So what failed at one provider condemns
//! nothing at another; but one GPU cannot serve two leases of one provider, and of two it is odd. Where a
//! provider sells machines of other people, each of these people is as another provider.

use market::attestation::{Finding, FindingCode, Outcome, Remedy};

use super::seen::{Seen, Sight};
use super::unique::{has_own_board, is_same, says_something};
use super::{finding, not_run, told};
use crate::evidence::{History, ShownGpu, Sighting, Standing};

pub(super) fn known_before(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryHistory;
    let shown = shown(seen);
    let Some(history) = &seen.evidence.history else {
        let note = "Nobody kept what was seen of its GPUs before.";
        return Finding {
            // Nothing is wrong with the machine that another one would cure.
            remedy: None,
            ..finding(code, Outcome::NotRun, note)
        };
    };
    if shown.is_empty() {
        return not_run(code);
    }
    let (mut odd, mut bad) = (Vec::new(), Vec::new());
    for (gpu, shown) in shown.iter().enumerate() {
        // The worst of what was seen of it.
        let sights = history
            .seen
            .iter()
            .filter_map(|before| sight(shown, before, history));
        let mut warned = None;
        for sight in sights {
            match sight {
                Sight::Bad(what) => {
                    bad.push(format!("GPU {gpu}: {what}"));
                    break;
                }
                Sight::Odd(what) => warned = warned.or(Some(what)),
                Sight::Good | Sight::Unseen => {}
            }
        }
        odd.extend(warned.map(|what| format!("GPU {gpu}: {what}")));
    }
    match (bad.is_empty(), odd.is_empty()) {
        (false, _) => finding(code, Outcome::Failed, format!("{}.", told(&bad))),
        (true, false) => finding(code, Outcome::Warned, format!("{}.", told(&odd))),
        (true, true) => finding(
            code,
            Outcome::Met,
            "No GPU is in another lease, failed of late, or was seen as something else.",
        ),
    }
}

/// Why what would fail a node only warns.
const PEERS: &str = ", which sells machines of other people too: what these claim fails no node";

/// What the GPUs of the node show, as it claimed and signed.
fn shown(seen: &Seen<'_>) -> Vec<ShownGpu> {
    seen.evidence.shown_gpus(seen.order.expected.gpu)
}

/// What an earlier sighting means for a GPU; `None` where it is of another one.
fn sight(now: &ShownGpu, before: &Sighting, history: &History) -> Option<Sight> {
    let same_id = is_same(&now.uuid, &before.gpu.uuid);
    let serials = now.serial.as_deref().zip(before.gpu.serial.as_deref());
    let same_board = serials.is_some_and(|(one, other)| is_same(one, other));
    if !same_id && !same_board {
        return None;
    }
    let (sold, was) = (&history.listing, &before.listing);
    let listed = format!("{} of {}", was.offer, was.provider);
    // What another's node claims condemns nobody: it is told, and looked into by people.
    let (condemns, why) = match (was.provider == sold.provider, was.of_peers || sold.of_peers) {
        (true, false) => (true, ""),
        (true, true) => (false, PEERS),
        (false, _) => (false, ""),
    };
    Some(match &before.standing {
        Standing::InUse => {
            let what = format!("another lease has it just now, bought as {listed}{why}");
            match condemns {
                true => Sight::Bad(what),
                false => Sight::Odd(what),
            }
        }
        Standing::Quarantined(failed) if condemns => {
            Sight::Bad(format!("its node failed {} of late", words(failed)))
        }
        Standing::Quarantined(failed) => Sight::Odd(format!(
            "a node with it failed {} of late, bought as {listed}{why}",
            words(failed)
        )),
        Standing::Before => match difference(now, &before.gpu, same_id, serials) {
            Some(what) => Sight::Odd(what),
            None if was == sold => Sight::Good,
            None => Sight::Odd(format!(
                "it was bought before as {listed}, and now as {} of {}",
                sold.offer, sold.provider
            )),
        },
    })
}

/// In what a GPU differs from what it was.
fn difference(
    now: &ShownGpu,
    before: &ShownGpu,
    same_id: bool,
    serials: Option<(&str, &str)>,
) -> Option<String> {
    if !same_id {
        return Some("the serial number of its board was seen with another id".to_owned());
    }
    if serials.is_some_and(|(one, other)| !is_same(one, other)) {
        return Some("its id was seen on a board of another serial number".to_owned());
    }
    if !is_same(&now.name, &before.name) {
        let (was, is) = (super::plain(&before.name), super::plain(&now.name));
        return Some(format!("it was `{was}` before and is `{is}` now"));
    }
    (now.memory_mib != before.memory_mib).then(|| {
        format!(
            "it had {} MiB before and has {} now",
            before.memory_mib, now.memory_mib
        )
    })
}

fn words(failed: &[FindingCode]) -> String {
    let words: Vec<&str> = failed.iter().map(|code| code.as_str()).collect();
    words.join(", ")
}

/// The failures of a node that put its GPUs into quarantine: those that only other hardware cures, and
/// that are about this node alone.
///
/// What a reset or a reboot cures condemns nothing, and takes along what comes of it: memory that a process
/// before still holds is missing, and copies over links that did not come up are slow.
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

/// Whether a failure is about the node's own hardware: not about other nodes, nor about what was installed.
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

/// Whether a failure may come of another one that a reset or a reboot cures.
fn comes_of(failed: &Finding, curable: &Finding) -> bool {
    use FindingCode as C;
    match curable.code {
        // Slices are counted by some sources and not by others, and have a part of all that a GPU has.
        C::InventoryMig => {
            let counts_slices = matches!(
                failed.code,
                C::InventoryCount | C::InventorySources | C::MemoryCapacity
            );
            counts_slices || is_rate(failed.code)
        }
        C::InventoryResidue if failed.code == C::MemoryCapacity => is_held(failed, curable),
        // Work of others, and a GPU whose driver says that it needs a reset.
        C::InventoryResidue | C::HealthEcc | C::HealthRemap | C::HealthXid => is_rate(failed.code),
        C::FabricNotReady | C::NvlinkActive => {
            matches!(failed.code, C::PairRates | C::AllReduce)
        }
        _ => false,
    }
}

/// Whether what is missing of each GPU's memory was in use before the agent began.
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

/// Whether a check is of a rate that other work on a GPU, or a part of it, lowers.
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

impl crate::evidence::Evidence {
    /// What each GPU of the node shows of itself, as far as it has claimed and signed.
    ///
    /// Serial numbers are left out where several GPUs of a kind share a board.
    pub(crate) fn shown_gpus(&self, kind: market::gpu::Gpu) -> Vec<ShownGpu> {
        let report = self.report.as_ref().filter(|report| report.is_signed());
        let facts = report.and_then(|report| report.facts.as_deref());
        let facts = facts.map_or(&[][..], |facts| &facts.gpus);
        let claims = self.inventory.iter().flat_map(|inventory| &inventory.gpus);
        let shown = claims.enumerate().map(|(gpu, claim)| {
            let serial = facts.get(gpu).and_then(|facts| facts.serial.clone());
            ShownGpu {
                uuid: claim.uuid.clone(),
                serial: serial.filter(|serial| has_own_board(kind) && says_something(serial)),
                name: claim.name.clone(),
                memory_mib: claim.memory_mib,
            }
        });
        shown.collect()
    }
}
