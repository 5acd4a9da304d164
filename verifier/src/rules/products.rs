//! Rules on the products: that they repeat themselves, and are the true ones.

use market::attestation::{Finding, FindingCode, Outcome};
use market::verification::{GpuFacts, TroubleKind};

use super::seen::{Seen, not_applicable};
use super::troubles::said;
use super::{finding, not_run, per_gpu};
use crate::tensor::Format;

pub(super) fn repeat(seen: &Seen<'_>) -> Finding {
    let (evidence, order) = (seen.evidence, seen.order);
    let code = FindingCode::SdcRepeat;
    if let Some(said) = said(seen, TroubleKind::WrongResult) {
        let note = format!("What was moved within memory is not what it was. {said}.");
        return finding(code, Outcome::Failed, note);
    }
    if evidence.checksums.is_empty() {
        return not_run(code);
    }
    let ordered = order.gemm.iterations as usize;
    let facts = seen.facts().map_or(&[][..], |facts| &facts.gpus);
    let problems: Vec<Option<String>> = evidence
        .checksums
        .iter()
        .enumerate()
        .map(|(gpu, sums)| {
            if sums.len() != ordered {
                Some(format!(
                    "{} results came where {ordered} were ordered",
                    sums.len()
                ))
            } else if sums.windows(2).any(|pair| pair[0] != pair[1]) {
                Some("the same product gave different bits".to_owned())
            } else {
                facts.get(gpu).and_then(changed_on_tensor_units)
            }
        })
        .collect();
    per_gpu(
        code,
        "The same product gave the same bits.",
        problems.iter().map(Option::as_ref),
    )
}

/// Where products on the tensor units did not repeat themselves. What is no rate's and no load's is
/// computed on the integer units alone.
fn changed_on_tensor_units(gpu: &GpuFacts) -> Option<String> {
    let of_rates = [
        ("16-bit", &gpu.gemm_16bit_sums),
        ("8-bit", &gpu.gemm_fp8_sums),
    ];
    if let Some((what, _)) = of_rates.into_iter().find(|(_, sums)| sums.len() > 1) {
        return Some(format!("the same {what} product gave different bits"));
    }
    let burn = gpu
        .burn
        .filter(|burn| burn.changed_samples.unwrap_or(0) > 0)?;
    let changed = burn.changed_samples.unwrap_or(0);
    Some(format!(
        "the product of the load was another in {changed} of {} samples than in the first",
        burn.samples
    ))
}

/// Of the same inputs, in numbers so small that nothing is rounded, both units must make the same.
pub(super) fn exact_on_tensor_units(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::SdcTensor;
    if !Format::Bf16.is_rated_on(&seen.spec.compute_capability) {
        return not_applicable(code, "No product on its tensor units is looked at.");
    }
    let Some(facts) = seen.facts() else {
        return not_run(code);
    };
    let committed = seen.evidence.checksums.iter().map(|sums| sums.last());
    let pairs = || facts.gpus.iter().zip(committed.clone());
    if pairs().next().is_none() || pairs().any(|(gpu, _)| gpu.gemm_16bit_sums.is_empty()) {
        let note = "No product on the tensor units was looked at.";
        return finding(code, Outcome::NotRun, note);
    }
    let wrong = "the tensor units give another product than the integer units".to_owned();
    let problems = pairs().map(|(gpu, committed)| {
        let differs = gpu.gemm_16bit_sums.iter().any(|sum| Some(sum) != committed);
        differs.then_some(&wrong)
    });
    per_gpu(code, "Both units give the same product.", problems)
}

pub(super) fn exact(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::SdcExact;
    match seen
        .evidence
        .products
        .as_ref()
        .filter(|products| !products.is_empty())
    {
        None => not_run(code),
        Some(products) => per_gpu(
            code,
            "The product is the true one.",
            products.iter().map(Option::as_ref),
        ),
    }
}
