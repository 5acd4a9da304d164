//! The rule on the kind of a node's GPUs: by name, memory, multiprocessors, PCI id and capability.

use market::attestation::{Finding, FindingCode, Outcome, Remedy, Unit};
use market::gpu::{Gpu, GpuIdentity, GpuSpec, ProductName, resolve_product_name};
use market::verification::{ExpectedNode, GpuClaim, GpuFacts};

use super::seen::Seen;
use super::{finding, not_run, number, per_gpu};
use crate::order::expected_node;
use crate::plain::plain;

/// Share of the expected memory that a driver must report. Units: percent.
const REPORTED_MEMORY_PERCENT: u64 = 98;

/// The meaning of a name, whether a driver's or the canonical one of a reference device.
fn said_by(name: &str) -> ProductName {
    match Gpu::parse(name) {
        Ok(gpu) => ProductName::Of(GpuIdentity::Known(gpu)),
        Err(_) => resolve_product_name(name),
    }
}

/// The GPU of this name; among several of one name the one with about this much memory.
fn of_identity(identity: &GpuIdentity, memory_mib: u32) -> Option<Gpu> {
    identity.known().or_else(|| {
        Gpu::all()
            .filter(|gpu| gpu.family() == identity.family())
            .min_by_key(|gpu| expected_node(*gpu, 1).memory_mib.abs_diff(memory_mib))
    })
}

/// The GPU that a device claims to be.
#[must_use]
pub fn named_gpu(claim: &GpuClaim) -> Option<Gpu> {
    match said_by(&claim.name) {
        ProductName::Of(identity) => of_identity(&identity, claim.memory_mib),
        ProductName::OfAnother | ProductName::Unknown => None,
    }
}

pub(super) fn gpu_identity(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryIdentity;
    let expected = &seen.order.expected;
    let Some(gpus) = seen
        .evidence
        .inventory
        .as_ref()
        .map(|i| &i.gpus)
        .filter(|g| !g.is_empty())
    else {
        return not_run(code);
    };
    let problems: Vec<Option<String>> = gpus
        .iter()
        .enumerate()
        .map(|(gpu, claim)| {
            let facts = seen.facts().and_then(|facts| facts.gpus.get(gpu));
            name_problem(claim, facts, expected.gpu)
                .or_else(|| identity_problem(claim, expected, least_reported(seen, gpu)))
                .or_else(|| facts.and_then(|facts| hardware_problem(facts, expected)))
        })
        .collect();
    let good = format!("Every GPU reports that it is a {}.", expected.gpu);
    let found = per_gpu(code, &good, problems.iter().map(Option::as_ref));
    let unnamed = gpus
        .iter()
        .find(|claim| said_by(&claim.name) == ProductName::Unknown);
    let found = match unnamed.filter(|_| found.outcome == Outcome::Met) {
        Some(claim) => {
            let name = plain(&claim.name);
            let note = format!(
                "`{name}` is no name that we know; PCI id and multiprocessors are those of a {}.",
                expected.gpu
            );
            finding(code, Outcome::Warned, note)
        }
        None => found,
    };
    let remedy = match found.outcome {
        Outcome::Failed if are_slices(seen, gpus, &problems) => Some(Remedy::Reset),
        _ => found.remedy,
    };
    Finding {
        unit: Some(Unit::Mib),
        measured: gpus.iter().map(|gpu| i64::from(gpu.memory_mib)).min(),
        floor: (0..gpus.len())
            .map(|gpu| number(least_reported(seen, gpu)))
            .min(),
        expected: Some(i64::from(expected.memory_mib)),
        samples: gpus.iter().map(|gpu| i64::from(gpu.memory_mib)).collect(),
        remedy,
        ..found
    }
}

/// Whether all GPUs that differ from the lease are slices of leased GPUs.
fn are_slices(seen: &Seen<'_>, gpus: &[GpuClaim], problems: &[Option<String>]) -> bool {
    let mut told = problems.iter().zip(gpus).enumerate();
    told.all(|(gpu, (problem, claim))| {
        let facts = seen.facts().and_then(|facts| facts.gpus.get(gpu));
        let is_slice = |facts| is_slice(claim, facts, &seen.order.expected);
        problem.is_none() || facts.is_some_and(is_slice)
    })
}

/// Whether it is the leased GPU by name, bus and chip and is set up in slices. It then reports a part of the
/// GPU's size, never more than all.
fn is_slice(claim: &GpuClaim, facts: &GpuFacts, expected: &ExpectedNode) -> bool {
    let spec = expected.gpu.spec();
    facts.mig_enabled == Some(true)
        && facts.pci_id.as_ref().is_some_and(|id| is_of(spec, id))
        && claim.sm_count <= spec.sm_count
        && name_problem(claim, Some(facts), expected.gpu).is_none()
        && hardware_problem(facts, expected).is_none()
}

/// The least memory that a GPU must report. Units: MiB.
fn least_reported(seen: &Seen<'_>, gpu: usize) -> u64 {
    seen.memory_mib(gpu) * REPORTED_MEMORY_PERCENT / 100
}

/// The part of the name that contradicts the leased GPU. An unlisted name proves nothing: makers rename
/// boards. It is accepted where chip and bus are known, and are those of the leased GPU.
fn name_problem(claim: &GpuClaim, facts: Option<&GpuFacts>, leased: Gpu) -> Option<String> {
    let name = plain(&claim.name);
    match said_by(&claim.name) {
        ProductName::Of(identity) => {
            let gpu = of_identity(&identity, claim.memory_mib).filter(|gpu| *gpu != leased)?;
            Some(format!("it is a {gpu} where a {leased} is leased"))
        }
        ProductName::OfAnother => Some(format!("`{name}` is another card than a {leased}")),
        ProductName::Unknown => {
            let spec = leased.spec();
            let id = facts.and_then(|facts| facts.pci_id.as_ref());
            let is_its = id.is_some_and(|id| is_of(spec, id))
                && claim.sm_count.is_some()
                && claim.sm_count == spec.sm_count;
            (!is_its).then(|| format!("`{name}` is no GPU that we know"))
        }
    }
}

fn identity_problem(claim: &GpuClaim, expected: &ExpectedNode, least_mib: u64) -> Option<String> {
    if u64::from(claim.memory_mib) < least_mib {
        return Some(format!(
            "it reports {} MiB, at least {least_mib} belong to it",
            claim.memory_mib
        ));
    }
    if let (Some(has), Some(published)) = (claim.sm_count, expected.gpu.spec().sm_count)
        && has != published
    {
        return Some(format!(
            "it has {has} multiprocessors, {published} belong to it"
        ));
    }
    None
}

/// Whether a PCI id belongs to this GPU.
fn is_of(spec: &GpuSpec, id: &str) -> bool {
    let mut ids = spec.pci_device_ids.iter();
    ids.any(|known| known.eq_ignore_ascii_case(id))
}

/// The properties of chip and bus that contradict the leased GPU.
fn hardware_problem(facts: &GpuFacts, expected: &ExpectedNode) -> Option<String> {
    let spec = expected.gpu.spec();
    if let Some(id) = &facts.pci_id
        && !spec.pci_device_ids.is_empty()
        && !is_of(spec, id)
    {
        let belong = spec.pci_device_ids.join(" or ");
        return Some(format!(
            "its PCI id is {}, {belong} belongs to it",
            plain(id)
        ));
    }
    match &facts.compute_capability {
        Some(has) if *has != spec.compute_capability => Some(format!(
            "its compute capability is {}, {} belongs to it",
            plain(has),
            spec.compute_capability
        )),
        _ => None,
    }
}
