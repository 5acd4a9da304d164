//! The rule on earlier sightings of a node's GPUs: in another live lease, on a node that failed, or as
//! something else.
//!
//! Ids are claims: a host may show those of another's GPUs. So a failure at one provider condemns nothing at
//! another. But one GPU cannot serve two leases of one provider, and two leases at different providers are
//! odd. At a marketplace, each seller counts as a separate provider.

use market::attestation::{Finding, FindingCode, Outcome};

use super::seen::{Seen, Sight};
use super::unique::{has_own_board, is_same, says_something};
use super::{finding, not_run, told};
use crate::evidence::{History, ShownGpu, Sighting, Standing};
use crate::plain::plain;

pub(super) fn known_before(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryHistory;
    let shown = shown(seen);
    let Some(history) = &seen.evidence.history else {
        let note = "No history of its GPUs is kept.";
        return finding(code, Outcome::NotRun, note);
    };
    if shown.is_empty() {
        return not_run(code);
    }
    let (mut odd, mut bad) = (Vec::new(), Vec::new());
    for (gpu, shown) in shown.iter().enumerate() {
        // The worst of its earlier sightings.
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
            "No GPU is in another lease, failed recently, or was seen as something else.",
        ),
    }
}

/// Why a finding that would fail a node only warns.
const PEERS: &str = ", which sells machines of other people too: their claims fail no node";

/// The GPUs of the node, as it claimed and signed them.
fn shown(seen: &Seen<'_>) -> Vec<ShownGpu> {
    seen.evidence.shown_gpus(seen.order.expected.gpu)
}

/// The meaning of an earlier sighting for a GPU; `None` where it was another GPU.
fn sight(now: &ShownGpu, before: &Sighting, history: &History) -> Option<Sight> {
    let same_id = is_same(&now.uuid, &before.gpu.uuid);
    let serials = now.serial.as_deref().zip(before.gpu.serial.as_deref());
    let same_board = serials.is_some_and(|(one, other)| is_same(one, other));
    if !same_id && !same_board {
        return None;
    }
    let (sold, was) = (&history.listing, &before.listing);
    let listed = format!("{} of {}", was.offer, was.provider);
    // Claims of another's node condemn nobody: they are reported, and people look into them.
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
            Sight::Bad(format!("its node failed {} recently", words(failed)))
        }
        Standing::Quarantined(failed) => Sight::Odd(format!(
            "a node with it failed {} recently, bought as {listed}{why}",
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

/// How a GPU differs from its earlier sighting.
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
        let (was, is) = (plain(&before.name), plain(&now.name));
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

impl crate::evidence::Evidence {
    /// Each GPU's claims about itself, as far as the node has claimed and signed them.
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
