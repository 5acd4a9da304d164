//! Rules on the node's claimed inventory: its GPUs by every source, and their set-up. The kind of GPU is in
//! `identity`, the driver in `software`, the host in `host`.
//!
//! A claim is never trusted alone: sources that one shim does not cover are compared with each other.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::{GpuCounts, HostFacts, TroubleKind};

use super::conversation::signed_troubles;
use super::seen::{Seen, Sight, not_applicable};
use super::{finding, not_run, number, troubles};
use crate::plain::plain;

/// Used memory below this is not an earlier tenant's: drivers reserve some for themselves. MiB.
const OWN_USE_MIB: u32 = 512;

pub(super) fn gpu_count(seen: &Seen<'_>) -> Finding {
    let (evidence, order) = (seen.evidence, seen.order);
    let code = FindingCode::InventoryCount;
    if evidence.inventory.is_none() {
        return not_run(code);
    }
    if let Some(said) = troubles::cannot_be_driven(seen) {
        return finding(code, Outcome::NotRun, said);
    }
    let (found, leased) = (evidence.gpu_count(), order.expected.gpus);
    let (outcome, note) = match found == leased as usize {
        true => (Outcome::Met, format!("The node shows its {leased} GPUs.")),
        false => (
            Outcome::Failed,
            format!("The node shows {found} GPUs where {leased} are leased."),
        ),
    };
    Finding {
        unit: Some(Unit::Gpus),
        measured: Some(number(found as u64)),
        floor: Some(i64::from(leased)),
        expected: Some(i64::from(leased)),
        ..finding(code, outcome, note)
    }
}

/// The sources of a count with their names.
fn named(counts: &GpuCounts) -> [(&'static str, Option<u32>); 4] {
    [
        ("the kernel", counts.kernel),
        ("NVML", counts.nvml),
        ("CUDA", counts.cuda),
        ("the device nodes", counts.device_nodes),
    ]
}

pub(super) fn sources(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventorySources;
    let Some(HostFacts {
        counts, pci_ids, ..
    }) = seen.facts().map(|facts| &facts.host)
    else {
        return not_run(code);
    };
    let leased = seen.order.expected.gpus;
    let shown = named(counts).map(|(name, count)| count.map(|count| (name, count)));
    let words: Vec<String> = shown
        .iter()
        .flatten()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let of_its_kind = pci_ids.as_ref().map(|ids| {
        let known = &seen.spec.pci_device_ids;
        ids.iter()
            .filter(|id| {
                known.is_empty() || known.iter().any(|known| known.eq_ignore_ascii_case(id))
            })
            .count()
    });
    let too_few = shown.iter().flatten().any(|(_, count)| *count < leased)
        || of_its_kind.is_some_and(|count| count < leased as usize);
    // A machine rented in parts shows the others' GPUs to its kernel, never to its driver.
    let strange = [counts.nvml, counts.cuda]
        .into_iter()
        .flatten()
        .any(|count| count != leased);
    let too_many = shown.iter().flatten().any(|(_, count)| *count > leased);
    let said = words.join(", ");
    let found = if too_few || strange {
        let tree = of_its_kind.map(|count| format!(", the PCI tree {count} of its kind"));
        let note = format!(
            "Of {leased} leased GPUs, {said}{} show.",
            tree.unwrap_or_default()
        );
        finding(code, Outcome::Failed, note)
    } else if counts.nvml.is_none() || counts.cuda.is_none() {
        finding(
            code,
            Outcome::NotRun,
            "NVML or CUDA did not report the number of GPUs.",
        )
    } else if too_many {
        finding(
            code,
            Outcome::Warned,
            format!("More than the lease: {said}."),
        )
    } else {
        finding(
            code,
            Outcome::Met,
            "Every source that is visible shows the leased GPUs.",
        )
    };
    Finding {
        unit: Some(Unit::Gpus),
        measured: shown
            .iter()
            .flatten()
            .map(|(_, count)| i64::from(*count))
            .min(),
        floor: Some(i64::from(leased)),
        expected: Some(i64::from(leased)),
        ..found
    }
}

pub(super) fn recount(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryRecount;
    let gone =
        signed_troubles(seen.evidence).find(|trouble| trouble.kind == TroubleKind::GpuWithdrawn);
    if let Some(trouble) = gone {
        let note = format!(
            "A GPU was taken from the agent: {}.",
            plain(&trouble.detail)
        );
        return finding(code, Outcome::Failed, note);
    }
    let Some((facts, again)) = seen.facts().and_then(|facts| Some((facts, facts.recount?))) else {
        return not_run(code);
    };
    let before = named(&facts.host.counts);
    let fewer: Vec<String> = before
        .into_iter()
        .zip(named(&again))
        .filter_map(|((name, before), (_, after))| {
            // A GPU that is no longer visible is gone.
            let (before, after) = (before?, after.unwrap_or(0));
            (after < before).then(|| format!("{name} {after} of {before}"))
        })
        .collect();
    let found = if !fewer.is_empty() {
        let note = format!(
            "GPUs disappeared while the node was checked: {}.",
            fewer.join(", ")
        );
        finding(code, Outcome::Failed, note)
    } else if again.nvml.is_none() && again.cuda.is_none() {
        not_run(code)
    } else {
        finding(
            code,
            Outcome::Met,
            "As many GPUs at the end as at the beginning.",
        )
    };
    Finding {
        unit: Some(Unit::Gpus),
        measured: again.cuda.or(again.nvml).map(i64::from),
        expected: Some(i64::from(seen.order.expected.gpus)),
        ..found
    }
}

pub(super) fn mig(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryMig;
    if seen.spec.mig_max_instances.unwrap_or(0) == 0 {
        return not_applicable(code, "This kind of GPU cannot be cut into slices.");
    }
    seen.each_gpu(code, "No GPU is cut into slices.", |gpu| {
        match gpu.mig_enabled {
            Some(false) => Sight::Good,
            Some(true) => Sight::Bad("it is set up to be cut into slices".to_owned()),
            None => Sight::Unseen,
        }
    })
}

pub(super) fn ecc_mode(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryEccMode;
    let default = match seen.spec.ecc_default.as_deref() {
        Some("on") => true,
        Some("off") => false,
        _ => return not_applicable(code, "This kind of GPU corrects no errors."),
    };
    seen.each_gpu(
        code,
        "Errors are corrected as on any such GPU.",
        |gpu| match (gpu.ecc_enabled, default) {
            (Some(on), default) if on == default => Sight::Good,
            (Some(_), true) => Sight::Bad("its memory errors are not corrected".to_owned()),
            (Some(_), false) => Sight::Odd("it corrects errors, which takes memory".to_owned()),
            (None, true) => Sight::Unseen,
            (None, false) => Sight::Good,
        },
    )
}

pub(super) fn residue(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryResidue;
    let most = (seen.order.expected.memory_mib / 100).max(OWN_USE_MIB);
    let found = seen.each_gpu(code, "The GPUs were empty.", |gpu| {
        match (gpu.foreign_processes, gpu.used_memory_mib) {
            (Some(others), _) if others > 0 => {
                Sight::Bad(format!("{others} processes of others hold it"))
            }
            (_, Some(used)) if used > most => {
                Sight::Bad(format!("{used} MiB were in use before the agent began"))
            }
            (_, None) => Sight::Unseen,
            _ => Sight::Good,
        }
    });
    let gpus = seen
        .facts()
        .map(|facts| facts.gpus.as_slice())
        .unwrap_or_default();
    let used: Option<Vec<i64>> = gpus
        .iter()
        .map(|gpu| gpu.used_memory_mib.map(i64::from))
        .collect();
    let samples = used.unwrap_or_default();
    Finding {
        unit: Some(Unit::Mib),
        measured: samples.iter().copied().max(),
        floor: Some(i64::from(most)),
        samples,
        ..found
    }
}
