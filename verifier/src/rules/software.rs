//! The rule on the driver: whether there is such a one, and whether its libraries are its own.

use market::attestation::{Finding, FindingCode, Outcome};
use market::gpu::GpuVendor;

use super::seen::{Seen, plain};
use super::{finding, not_run};

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
