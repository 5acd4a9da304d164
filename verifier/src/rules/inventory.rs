//! Rules on what the node claims to have: its GPUs by every source, their set-up, driver and host. What
//! kind of GPU they are is in `identity`.
//!
//! A claim is never trusted alone: sources that one shim does not cover are held against each other.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::gpu::GpuVendor;
use market::verification::{GpuCounts, HostFacts, TroubleKind};

use super::conversation::signed_troubles;
use super::seen::{Seen, Sight, not_applicable, plain};
use super::{finding, not_run, number, troubles};

/// Memory of a tenant before that is too little to be one: drivers keep some for themselves. MiB.
const OWN_USE_MIB: u32 = 512;
/// The oldest driver that loads the agent's kernels: that of CUDA 12.0. Source: CUDA 12 release notes.
const OLDEST_DRIVER: u32 = 525;
/// CUDA 12.0 as drivers count it.
const OLDEST_CUDA: u32 = 12_000;
/// Where the driver's libraries lie: by its packages, its container, and on the images of some clouds.
const USUAL_FOLDERS: [&str; 9] = [
    "/usr/lib",
    "/lib",
    "/usr/local/nvidia/",
    "/usr/local/cuda",
    "/opt/nvidia/",
    "/run/nvidia/",
    "/run/opengl-driver/",
    "/var/lib/nvidia/",
    "/home/kubernetes/bin/nvidia/",
];
/// From here on the branches of the driver for Linux have numbers divisible by five.
const FIVES_FROM: u32 = 430;

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
    // A machine that is let in parts shows the others' GPUs to its kernel, never to its driver.
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
            "NVML or CUDA did not say how many GPUs there are.",
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
            // What is no longer visible is gone.
            let (before, after) = (before?, after.unwrap_or(0));
            (after < before).then(|| format!("{name} {after} of {before}"))
        })
        .collect();
    let found = if !fewer.is_empty() {
        let note = format!(
            "GPUs went away while the node was checked: {}.",
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

pub(super) fn software(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventorySoftware;
    let (Some(inventory), Some(facts)) = (&seen.evidence.inventory, seen.facts()) else {
        return not_run(code);
    };
    let driver = inventory.driver.as_str();
    let branch = driver
        .split('.')
        .next()
        .and_then(|branch| branch.parse::<u32>().ok());
    let kernel = facts.driver.kernel_version.as_deref();
    let stub = facts
        .driver
        .libraries
        .iter()
        .find(|library| library.path.contains("/stubs/"));
    let problem = match branch {
        _ if seen.spec.vendor != GpuVendor::Nvidia => None,
        None => Some("the driver has no version".to_owned()),
        Some(branch) if branch >= FIVES_FROM && !branch.is_multiple_of(5) => {
            Some(format!("there is no driver {} for Linux", plain(driver)))
        }
        Some(branch) if branch < OLDEST_DRIVER => Some(format!(
            "driver {} is too old, {OLDEST_DRIVER} is needed",
            plain(driver)
        )),
        Some(_)
            if facts
                .driver
                .cuda_version
                .is_some_and(|cuda| cuda < OLDEST_CUDA) =>
        {
            Some("the driver serves no CUDA 12".to_owned())
        }
        Some(_) => None,
    };
    let problem = problem
        .or_else(|| {
            let kernel = kernel.filter(|kernel| *kernel != driver)?;
            let (kernel, driver) = (plain(kernel), plain(driver));
            Some(format!(
                "the kernel's driver is {kernel}, the library's is {driver}"
            ))
        })
        .or_else(|| {
            let first = facts.host.preloaded.first()?;
            Some(format!("{} is loaded into every program", plain(first)))
        })
        .or_else(|| Some(format!("{} is a stub", plain(&stub?.path))));
    let is_usual = |path: &str| USUAL_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let mut libraries = facts.driver.libraries.iter();
    let elsewhere = libraries.find(|library| !is_usual(&library.path));
    match (problem, elsewhere) {
        (Some(problem), _) => finding(code, Outcome::Failed, format!("It cannot be: {problem}.")),
        (None, Some(library)) => {
            let path = plain(&library.path);
            let note = format!("A library of the driver is {path}, where drivers do not put them.");
            finding(code, Outcome::Warned, note)
        }
        (None, None) => finding(
            code,
            Outcome::Met,
            "The driver is a real one, and new enough.",
        ),
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

pub(super) fn host_shape(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HostShape;
    let Some(inventory) = &seen.evidence.inventory else {
        return not_run(code);
    };
    let expected = &seen.order.expected;
    let host = seen.facts().map(|facts| &facts.host);
    // The lesser of two claims: what the agent was told, and what the system's files say.
    let least = |told: u32, read: Option<u32>| read.map_or(told, |read| read.min(told));
    let vcpus = least(inventory.vcpus, host.and_then(|host| host.vcpus));
    let memory_gib = least(inventory.memory_gib, host.and_then(|host| host.memory_gib));
    let parts = [
        (Unit::Vcpus, 1, expected.vcpus, vcpus, "virtual CPUs"),
        (
            Unit::Mib,
            1 << 10,
            expected.memory_gib,
            memory_gib,
            "GiB of memory",
        ),
    ];
    let shares = parts
        .into_iter()
        .filter_map(|(unit, units, leased, has, what)| {
            let leased = leased.filter(|leased| *leased > 0)?;
            let percent = u64::from(has) * 100 / u64::from(leased);
            let figures = [has, leased].map(|figure| i64::from(figure) * units);
            Some((percent, unit, figures, format!("{has} of {leased} {what}")))
        });
    let Some((worst, unit, [has, leased], said)) = shares.min_by_key(|(percent, ..)| *percent)
    else {
        return not_applicable(code, "The lease does not say what the host has.");
    };
    let found = match worst {
        // Few GPUs that pose as many come with the host of a few.
        ..50 => finding(code, Outcome::Failed, format!("The host has only {said}.")),
        50..95 => finding(code, Outcome::Warned, format!("The host has only {said}.")),
        _ => finding(code, Outcome::Met, "The host is as large as leased."),
    };
    Finding {
        unit: Some(unit),
        measured: Some(has),
        floor: Some(leased / 2),
        expected: Some(leased),
        ..found
    }
}
