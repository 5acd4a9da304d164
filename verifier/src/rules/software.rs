//! The rule on the driver: whether this driver exists, and whether its libraries are its own.

use market::attestation::{Finding, FindingCode, Outcome};
use market::gpu::GpuVendor;
use market::verification::{LibraryFacts, NodeFacts};

use super::drivers::{Published, published};
use super::seen::Seen;
use super::{finding, not_run};
use crate::plain::plain;

/// The oldest driver that loads the agent's kernels: that of CUDA 12.0. Source: CUDA 12 release notes.
const OLDEST_DRIVER: u32 = 525;
/// CUDA 12.0 in a driver's numbering.
const OLDEST_CUDA: u32 = 12_000;
/// The folders of the driver's libraries: by its packages, its container, and on the images of some clouds.
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
/// From here on the driver's branches for Linux have numbers divisible by five.
const FIVES_FROM: u32 = 430;

/// Why this driver does not exist, or cannot run the agent's kernels; none where it can.
pub(super) fn driver_problem(driver: &str) -> Option<String> {
    let branch = driver
        .split('.')
        .next()
        .and_then(|branch| branch.parse::<u32>().ok());
    match branch {
        None => Some("the driver has no version".to_owned()),
        Some(branch) if branch >= FIVES_FROM && !branch.is_multiple_of(5) => {
            Some(format!("there is no driver {} for Linux", plain(driver)))
        }
        Some(branch) if branch < OLDEST_DRIVER => Some(format!(
            "driver {} is too old, {OLDEST_DRIVER} is needed",
            plain(driver)
        )),
        Some(_) => None,
    }
}

/// The impossible parts of a driver and of how it was loaded; none where all is possible.
fn problem(seen: &Seen<'_>, driver: &str, facts: &NodeFacts) -> Option<String> {
    let host = &facts.host;
    let told = &facts.driver;
    let of_vendor = || {
        let serves_too_little = told.cuda_version.is_some_and(|cuda| cuda < OLDEST_CUDA);
        driver_problem(driver)
            .or_else(|| serves_too_little.then(|| "the driver serves no CUDA 12".to_owned()))
    };
    let of_kernel = || {
        let kernel = told.kernel_version.as_deref();
        let kernel = kernel.filter(|kernel| *kernel != driver)?;
        let (kernel, driver) = (plain(kernel), plain(driver));
        Some(format!(
            "the kernel's driver is {kernel}, the library's is {driver}"
        ))
    };
    let of_preloaded = || {
        let first = host.preloaded.first()?;
        Some(format!("{} is loaded into every program", plain(first)))
    };
    let of_stub = || {
        let mut libraries = told.libraries.iter();
        let stub = libraries.find(|library| library.path.contains("/stubs/"))?;
        Some(format!("{} is a stub", plain(&stub.path)))
    };
    let is_nvidia = seen.spec.vendor == GpuVendor::Nvidia;
    is_nvidia
        .then(of_vendor)
        .flatten()
        .or_else(of_kernel)
        .or_else(of_preloaded)
        .or_else(of_stub)
}

/// The oddities of the driver's libraries; none where there are none.
fn oddity(driver: &str, libraries: &[LibraryFacts]) -> Option<String> {
    let is_usual = |path: &str| USUAL_FOLDERS.iter().any(|folder| path.starts_with(folder));
    let elsewhere = libraries.iter().find(|library| !is_usual(&library.path));
    if let Some(library) = elsewhere {
        let path = plain(&library.path);
        return Some(format!(
            "A library of the driver is {path}, where drivers do not put them."
        ));
    }
    let is_another = |library: &&LibraryFacts| published(library, driver) == Published::Another;
    let another = libraries.iter().find(is_another)?;
    let path = plain(&another.path);
    Some(format!(
        "{path} is another file than was published of its version."
    ))
}

pub(super) fn software(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventorySoftware;
    let (Some(inventory), Some(facts)) = (&seen.evidence.inventory, seen.facts()) else {
        return not_run(code);
    };
    let driver = inventory.driver.as_str();
    let libraries = facts.driver.libraries.as_slice();
    if let Some(problem) = problem(seen, driver, facts) {
        return finding(code, Outcome::Failed, format!("It cannot be: {problem}."));
    }
    if let Some(oddity) = oddity(driver, libraries) {
        return finding(code, Outcome::Warned, oddity);
    }
    let is_same = |library: &LibraryFacts| published(library, driver) == Published::Same;
    let of_libraries = match !libraries.is_empty() && libraries.iter().all(is_same) {
        true => "Its libraries are the files that were published.",
        false => "Its libraries were not compared with published ones.",
    };
    let note = format!("The driver is a real one, and new enough. {of_libraries}");
    finding(code, Outcome::Met, note)
}
