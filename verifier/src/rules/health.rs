//! Rules on error counters and on the errors that the driver reports.

use std::collections::BTreeMap;

use market::attestation::{Finding, FindingCode, Outcome, Remedy, Unit};
use market::gpu::GpuVendor;
use market::verification::{GpuFacts, HealthCounters, TroubleKind, XidEvent};

use super::seen::{Seen, Sight};
use super::troubles::{XID_LOST, said};
use super::{finding, gpu_words, not_run, number};
use crate::kernel_log::NEEDS;
use crate::plain::plain;

/// The most corrected errors that may occur during a run. Source: the providers' own check lists.
const MOST_CORRECTED: u64 = 10;
/// The replays per minute below which a good link stays. Source: as above.
const MOST_REPLAYS_PER_MINUTE: u64 = 8;
/// Link errors during a run, as NVIDIA's own diagnostic allows (DCGM, NVLink CRC errors).
const MOST_LINK_ERRORS: u64 = 100;
/// Rows of memory that have spares. Source: Azure's health checks stop at 512 replaced rows.
const MOST_REMAPPED_ROWS: u32 = 512;
/// Pages taken out of use at which a card is returned. Source: NVIDIA's page retirement guide.
const MOST_RETIRED_PAGES: u32 = 60;

/// XIDs after which a GPU must not be handed over. 79 has a rule of its own.
const FATAL_XIDS: [u32; 9] = [48, 64, 74, 94, 95, 119, 120, 140, 143];
/// XIDs that a fault of the agent's own program causes, or the end of one of its processes during work (45).
const OWN_FAULT_XIDS: [u32; 4] = [13, 31, 43, 45];

/// A GPU's recovery action, in its driver's words (XID 154); the worst last.
///
/// Source: NVIDIA's XID catalogue, of 154: `GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot
/// Required)`, where the words are None, Drain P2P, Drain and Reset, GPU Reset Required or Node Reboot
/// Required; drivers were seen to write `OS Reboot`, too. NVML numbers them
/// (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needs {
    Nothing,
    /// Less than a reset, for example that copies between GPUs stop; or an unknown action.
    Attention,
    Reset,
    Reboot,
}

impl Needs {
    fn of(words: &str) -> Self {
        let words = words.to_lowercase();
        match words.as_str() {
            words if words.contains("reboot") => Self::Reboot,
            words if words.contains("reset") => Self::Reset,
            words if words.contains("none") => Self::Nothing,
            _ => Self::Attention,
        }
    }

    const fn remedy(self) -> Option<Remedy> {
        match self {
            Self::Nothing | Self::Attention => None,
            Self::Reset => Some(Remedy::Reset),
            Self::Reboot => Some(Remedy::Reboot),
        }
    }
}

/// Whether the GPU's configuration has memory error counting enabled.
fn counts_errors(seen: &Seen<'_>, gpu: &GpuFacts) -> bool {
    gpu.ecc_enabled
        .unwrap_or_else(|| seen.spec.ecc_default.as_deref() == Some("on"))
}

pub(super) fn ecc(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HealthEcc;
    if let Some(said) = said(seen, TroubleKind::EccUncorrectable) {
        let note = format!("An error of memory was left uncorrected (CUDA error 214). {said}.");
        return finding(code, Outcome::Failed, note);
    }
    let good = "No memory error was left uncorrected.";
    let found = seen.each_gpu(code, good, |gpu| {
        let (before, after) = (&gpu.health_before, &gpu.health_after);
        let lifetime = grown(before, after, |health| health.ecc_uncorrected_lifetime);
        match (before.ecc_uncorrected, after.ecc_uncorrected) {
            _ if !counts_errors(seen, gpu) => Sight::Good,
            (Some(0), Some(0)) if lifetime.unwrap_or(0) == 0 => Sight::Good,
            (Some(0), Some(0)) => {
                Sight::Bad("uncorrected errors came up while it was checked".to_owned())
            }
            (Some(before), _) if before > 0 => {
                Sight::Bad(format!("{before} uncorrected errors from the start"))
            }
            (_, Some(after)) if after > 0 => Sight::Bad(format!(
                "{after} uncorrected errors came up while it was checked"
            )),
            _ => Sight::Unseen,
        }
    });
    with_events(found, seen, |gpu| gpu.health_after.ecc_uncorrected)
}

/// The problem of a GPU's spare memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worn {
    /// A row could not be replaced.
    Beyond,
    /// A row waits for a reset to be replaced.
    RowWaits,
    /// A page waits for a reset to be retired.
    PageWaits,
    /// A row was replaced while it was checked.
    JustNow,
    /// Too many rows and pages are gone: hardly any spare is left.
    Out {
        /// Rows that were replaced.
        rows: u32,
        /// Pages that were retired.
        pages: u32,
    },
}

impl Worn {
    fn of(gpu: &GpuFacts) -> Option<Self> {
        let (before, health) = (&gpu.health_before, &gpu.health_after);
        let rows = health.remapped_rows.unwrap_or(0);
        let pages = health.retired_pages.unwrap_or(0);
        let either = |flag: fn(&HealthCounters) -> Option<bool>| {
            flag(before) == Some(true) || flag(health) == Some(true)
        };
        if either(|health| health.remap_failed) {
            Some(Self::Beyond)
        } else if rows >= MOST_REMAPPED_ROWS || pages >= MOST_RETIRED_PAGES {
            Some(Self::Out { rows, pages })
        } else if either(|health| health.remap_pending) {
            Some(Self::RowWaits)
        } else if either(|health| health.retirement_pending) {
            Some(Self::PageWaits)
        } else if before.remapped_rows.is_some_and(|before| rows > before) {
            Some(Self::JustNow)
        } else {
            None
        }
    }

    const fn helped_by_a_reset(self) -> bool {
        match self {
            Self::RowWaits | Self::PageWaits | Self::JustNow => true,
            Self::Beyond | Self::Out { .. } => false,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Beyond => "a row of its memory could not be replaced".to_owned(),
            Self::RowWaits => "a row of its memory waits for a reset to be replaced".to_owned(),
            Self::PageWaits => "a page of its memory waits for a reset to be retired".to_owned(),
            Self::JustNow => "a row of its memory was replaced while it was checked".to_owned(),
            Self::Out { rows, pages } => {
                format!("{rows} rows and {pages} pages of its memory are worn out")
            }
        }
    }
}

pub(super) fn remap(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HealthRemap;
    let good = "No row or page of memory waits to be replaced.";
    let found = seen.each_gpu(code, good, |gpu| {
        let health = &gpu.health_after;
        let untold = health.remap_pending.is_none() && health.retirement_pending.is_none();
        match Worn::of(gpu) {
            Some(worn) => Sight::Bad(worn.words()),
            None if counts_errors(seen, gpu) && untold => Sight::Unseen,
            None => Sight::Good,
        }
    });
    let gpus = seen
        .facts()
        .map(|facts| facts.gpus.as_slice())
        .unwrap_or_default();
    let mut worn = gpus.iter().filter_map(Worn::of);
    let only_a_reset = found.outcome == Outcome::Failed && worn.all(Worn::helped_by_a_reset);
    let remedy = if only_a_reset {
        Some(Remedy::Reset)
    } else {
        found.remedy
    };
    with_events(Finding { remedy, ..found }, seen, |gpu| {
        gpu.health_after.remapped_rows.map(u64::from)
    })
}

pub(super) fn growth(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HealthGrowth;
    seen.each_gpu(code, "No error counter grew unduly.", |gpu| {
        let (before, after) = (&gpu.health_before, &gpu.health_after);
        let growths = [
            grown(before, after, |health| health.ecc_corrected),
            grown(before, after, |health| health.pcie_replays),
            grown(before, after, |health| health.nvlink_errors),
        ];
        let [corrected, replays, links] = growths.map(|grown| grown.unwrap_or(0));
        // Short runs count as a whole minute: one packet is no trend.
        let elapsed_ms = gpu.health_elapsed_ms.unwrap_or(0).max(60_000);
        let replays_per_minute = replays.saturating_mul(60_000) / elapsed_ms;
        if growths.iter().all(Option::is_none) {
            Sight::Unseen
        } else if growths.contains(&Some(WENT_BACK)) {
            Sight::Odd("a counter went back while it was checked".to_owned())
        } else if corrected > MOST_CORRECTED {
            Sight::Odd(format!("{corrected} corrected memory errors"))
        } else if replays_per_minute > MOST_REPLAYS_PER_MINUTE {
            Sight::Odd(format!(
                "{replays_per_minute} packets a minute sent again to its host"
            ))
        } else if links > MOST_LINK_ERRORS {
            Sight::Odd(format!("{links} errors of the links to other GPUs"))
        } else {
            Sight::Good
        }
    })
}

/// Marks a counter that was reset.
const WENT_BACK: u64 = u64::MAX;

/// The growth of a counter, where both readings exist.
fn grown(
    before: &HealthCounters,
    after: &HealthCounters,
    counter: fn(&HealthCounters) -> Option<u64>,
) -> Option<u64> {
    let (before, after) = (counter(before)?, counter(after)?);
    Some(after.checked_sub(before).unwrap_or(WENT_BACK))
}

/// The finding with a counter of each GPU as its samples.
fn with_events(found: Finding, seen: &Seen<'_>, counter: fn(&GpuFacts) -> Option<u64>) -> Finding {
    let gpus = seen
        .facts()
        .map(|facts| facts.gpus.as_slice())
        .unwrap_or_default();
    let samples: Option<Vec<i64>> = gpus.iter().map(|gpu| counter(gpu).map(number)).collect();
    let samples = samples.unwrap_or_default();
    Finding {
        unit: (!samples.is_empty()).then_some(Unit::Events),
        measured: samples.iter().copied().max(),
        samples,
        ..found
    }
}

pub(super) fn xid(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HealthXid;
    let Some(facts) = seen.facts() else {
        return not_run(code);
    };
    let needs = seen.needs();
    let needs_of = |gpu| {
        let its = needs.iter().filter(move |(of, _)| Some(*of) == gpu);
        its.map(|(_, words)| Needs::of(words)).max()
    };
    let is_settled =
        |event: &XidEvent| event.xid == NEEDS && needs_of(event.gpu) == Some(Needs::Nothing);
    let others: Vec<u32> = seen
        .xids()
        .iter()
        .filter(|event| event.xid != XID_LOST && !is_settled(event))
        .map(|event| event.xid)
        .collect();
    let worst = needs.iter().max_by_key(|(_, words)| Needs::of(words));
    let words = |xids: &[u32]| {
        let words: Vec<String> = xids.iter().take(8).map(u32::to_string).collect();
        words.join(", ")
    };
    let fatal: Vec<u32> = others
        .iter()
        .copied()
        .filter(|xid| FATAL_XIDS.contains(xid))
        .collect();
    let found = if !fatal.is_empty() {
        let note = format!("The driver reported XID {}.", words(&fatal));
        finding(code, Outcome::Failed, note)
    } else if let Some((gpu, needs)) = worst
        && let remedy @ Some(_) = Needs::of(needs).remedy()
    {
        let note = format!("The driver reports that GPU {gpu} needs: {}.", plain(needs));
        Finding {
            remedy,
            ..finding(code, Outcome::Failed, note)
        }
    } else if facts.xids.is_none() {
        let note = "The driver did not let the agent listen for errors.";
        return finding(code, Outcome::NotRun, note);
    } else if !facts.xids_unheard.is_empty() {
        let gpus: Vec<String> = facts.xids_unheard.iter().map(u32::to_string).collect();
        let note = format!("The errors of GPU {} could not be heard.", gpus.join(", "));
        return finding(code, Outcome::NotRun, note);
    } else if others.iter().any(|xid| !OWN_FAULT_XIDS.contains(xid)) {
        let note = format!("The driver reported XID {}.", words(&others));
        finding(code, Outcome::Warned, note)
    } else if let Some(note) = failed_before(seen) {
        finding(code, Outcome::Warned, note)
    } else if others.is_empty() {
        finding(code, Outcome::Met, "The driver reported no error.")
    } else {
        let note = format!(
            "XID {} is a fault of the agent's own program.",
            words(&others)
        );
        finding(code, Outcome::Noted, note)
    };
    Finding {
        unit: Some(Unit::Events),
        measured: Some(number(others.len() as u64)),
        floor: Some(0),
        samples: others.iter().take(64).map(|xid| i64::from(*xid)).collect(),
        ..found
    }
}

/// The part of a GPU's past that would fail it, had it happened while the agent ran. It may have been
/// repaired since.
fn failed_before(seen: &Seen<'_>) -> Option<String> {
    let mut before = seen.xids_before().into_iter();
    let event = before.find(|event| event.xid == XID_LOST || FATAL_XIDS.contains(&event.xid));
    if let Some(event) = event {
        let (xid, who) = (event.xid, gpu_words(event.gpu));
        return Some(format!(
            "Before the agent began the driver reported XID {xid} of {who}."
        ));
    }
    // The last action that the driver reported for a GPU.
    let needed: BTreeMap<u32, &str> = seen.needed_before().into_iter().collect();
    let mut needed = needed.into_iter();
    let (gpu, words) = needed.find(|(_, words)| Needs::of(words).remedy().is_some())?;
    Some(format!(
        "Before the agent began the driver reported that GPU {gpu} needs: {}.",
        plain(words)
    ))
}

pub(super) fn visible(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HealthVisible;
    let Some(facts) = seen.facts() else {
        return not_run(code);
    };
    let counters_hidden = seen.spec.vendor == GpuVendor::Nvidia
        && facts
            .gpus
            .iter()
            .any(|gpu| counts_errors(seen, gpu) && gpu.health_after.ecc_uncorrected.is_none());
    let blind = [
        (
            facts.xids.is_none() || !facts.xids_unheard.is_empty(),
            "xid_events: not visible",
        ),
        (counters_hidden, "error_counters: not visible"),
    ];
    let hidden = [
        (
            facts.xid_history_visible != Some(true),
            "xid_history: not visible",
        ),
        (
            facts.host.counts.kernel.is_none(),
            "kernel_list: not visible",
        ),
        (facts.host.pci_ids.is_none(), "pci_tree: not visible"),
    ];
    let words = |of: &[(bool, &'static str)]| -> Vec<&'static str> {
        of.iter()
            .filter(|(is, _)| *is)
            .map(|(_, word)| *word)
            .collect()
    };
    let (blind, hidden) = (words(&blind), words(&hidden));
    let all = [blind.clone(), hidden].concat().join("; ");
    if !blind.is_empty() {
        finding(
            code,
            Outcome::Warned,
            format!("Required information is hidden: {all}."),
        )
    } else if all.is_empty() {
        finding(
            code,
            Outcome::Met,
            "The agent could see all the information it needs.",
        )
    } else {
        finding(
            code,
            Outcome::Noted,
            format!("Some information is hidden: {all}."),
        )
    }
}
