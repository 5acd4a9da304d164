//! Rules on what the node claims to have: count and identity of its GPUs.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::gpu::{Gpu, GpuIdentity, Resolution, resolve_product_name};
use market::verification::{ExpectedNode, GpuClaim, VerificationOrder};

use super::{finding, not_run, number, per_gpu};
use crate::evidence::Evidence;

/// Share of the expected memory that a driver must report. Units: percent.
const REPORTED_MEMORY_PERCENT: u64 = 98;

pub(super) fn gpu_count(evidence: &Evidence, order: &VerificationOrder) -> Finding {
    let code = FindingCode::InventoryCount;
    if evidence.inventory.is_none() {
        return not_run(code);
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

/// The GPU that a driver's product name, or a reference device's canonical name, stands for.
#[must_use]
pub fn named_gpu(name: &str) -> Option<Gpu> {
    if let Ok(gpu) = Gpu::parse(name) {
        return Some(gpu);
    }
    match resolve_product_name(name) {
        Resolution::Gpu {
            identity: GpuIdentity::Known(gpu),
            ..
        } => Some(gpu),
        _ => None,
    }
}

pub(super) fn gpu_identity(evidence: &Evidence, expected: &ExpectedNode) -> Finding {
    let code = FindingCode::InventoryIdentity;
    let Some(gpus) = evidence
        .inventory
        .as_ref()
        .map(|i| &i.gpus)
        .filter(|g| !g.is_empty())
    else {
        return not_run(code);
    };
    let problems: Vec<Option<String>> = gpus
        .iter()
        .map(|claim| identity_problem(claim, gpus, expected))
        .collect();
    let good = format!("Every GPU says that it is a {}.", expected.gpu);
    Finding {
        unit: Some(Unit::Mib),
        measured: gpus.iter().map(|gpu| i64::from(gpu.memory_mib)).min(),
        floor: Some(number(
            u64::from(expected.memory_mib) * REPORTED_MEMORY_PERCENT / 100,
        )),
        expected: Some(i64::from(expected.memory_mib)),
        samples: gpus.iter().map(|gpu| i64::from(gpu.memory_mib)).collect(),
        ..per_gpu(code, &good, problems.iter().map(Option::as_ref))
    }
}

fn identity_problem(claim: &GpuClaim, all: &[GpuClaim], expected: &ExpectedNode) -> Option<String> {
    let name = &claim.name;
    match named_gpu(name) {
        None => return Some(format!("`{name}` is no GPU that we know")),
        Some(gpu) if gpu != expected.gpu => {
            return Some(format!("it is a {gpu} where a {} is leased", expected.gpu));
        }
        Some(_) => {}
    }
    let least = u64::from(expected.memory_mib) * REPORTED_MEMORY_PERCENT / 100;
    if u64::from(claim.memory_mib) < least {
        return Some(format!(
            "it reports {} MiB, at least {least} belong to it",
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
    if claim.uuid.is_empty() || all.iter().filter(|other| other.uuid == claim.uuid).count() > 1 {
        return Some("its id is missing or shared with another GPU".to_owned());
    }
    None
}
