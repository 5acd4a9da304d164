//! Rules on the products: that they repeat, on one GPU and on its siblings, and are correct.

use market::attestation::{Finding, FindingCode, Outcome};
use market::verification::{GpuFacts, TroubleKind, Word64};

use super::seen::{Seen, not_applicable};
use super::troubles::said;
use super::{finding, not_run, per_gpu};
use crate::tensor::Format;

pub(super) fn repeat(seen: &Seen<'_>) -> Finding {
    let (evidence, order) = (seen.evidence, seen.order);
    let code = FindingCode::SdcRepeat;
    if let Some(said) = said(seen, TroubleKind::WrongResult) {
        let note = format!("Data moved within memory is wrong. {said}.");
        return finding(code, Outcome::Failed, note);
    }
    if evidence.checksums.is_empty() {
        return not_run(code);
    }
    let ordered = order.gemm.iterations as usize;
    let facts = seen.facts().map_or(&[][..], |facts| &facts.gpus);
    let siblings = Siblings::of(seen);
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
                let changed = facts.get(gpu).and_then(changed_on_tensor_units);
                changed.or_else(|| siblings.unlike_most(gpu))
            }
        })
        .collect();
    let found = per_gpu(
        code,
        "The same product gave the same bits.",
        problems.iter().map(Option::as_ref),
    );
    match siblings.undecided() {
        Some((outcome, note)) if found.outcome == Outcome::Met => finding(code, outcome, note),
        _ => found,
    }
}

/// Each GPU's results for the inputs that all GPUs of the node had, compared with the others of its kind.
/// Their kernels are the same, so every bit must be, however the tensor units round.
#[derive(Default)]
struct Siblings {
    /// The GPUs whose result differs from that of more than half of their kind, and the product.
    unlike: Vec<(usize, &'static str)>,
    /// The first product for which no such majority of a kind agrees.
    divided: Option<&'static str>,
    /// The first GPU that has a rate of such products and siblings, and did not report its result.
    silent: Option<(usize, &'static str)>,
}

impl Siblings {
    fn of(seen: &Seen<'_>) -> Self {
        let mut found = Self::default();
        let claims = seen.evidence.inventory.as_ref();
        let claims = claims.map_or(&[][..], |inventory| &inventory.gpus);
        let gpus = seen.facts().map_or(&[][..], |facts| &facts.gpus);
        let kind = |at: usize| {
            let name = claims.get(at).map(|claim| claim.name.as_str());
            (name, gpus[at].compute_capability.as_deref())
        };
        for (what, of) in OF_RATES {
            let rated = |at: usize| !of(&gpus[at]).0.is_empty();
            for gpu in (0..gpus.len()).filter(|gpu| rated(*gpu)) {
                let kin = (0..gpus.len()).filter(|at| rated(*at) && kind(*at) == kind(gpu));
                let made: Vec<Option<Word64>> = kin.map(|at| of(&gpus[at]).1).collect();
                let told = made.iter().flatten().count();
                let is_most = |sum: &Word64| {
                    2 * made.iter().filter(|of| of.as_ref() == Some(sum)).count() > told
                };
                match of(&gpus[gpu]).1 {
                    None if made.len() > 1 => {
                        found.silent.get_or_insert((gpu, what));
                    }
                    Some(mine) if !is_most(&mine) => match made.iter().flatten().any(is_most) {
                        true => found.unlike.push((gpu, what)),
                        false => found.divided = found.divided.or(Some(what)),
                    },
                    _ => {}
                }
            }
        }
        found
    }

    fn unlike_most(&self, gpu: usize) -> Option<String> {
        let (_, what) = self.unlike.iter().find(|(unlike, _)| *unlike == gpu)?;
        Some(format!(
            "its {what} product is not the one that most of its siblings made of the same inputs"
        ))
    }

    /// The finding on the node where no single GPU can be named.
    fn undecided(&self) -> Option<(Outcome, String)> {
        if let Some(what) = self.divided {
            let note = format!(
                "The GPUs made different {what} products of the same inputs, and none that of most."
            );
            return Some((Outcome::Failed, note));
        }
        let (gpu, what) = self.silent?;
        let note = format!("GPU {gpu} made no {what} product to compare with its siblings.");
        Some((Outcome::NotRun, note))
    }
}

/// The different checksums of a GPU's own products, and that of the product that all GPUs compute.
type Sums = fn(&GpuFacts) -> (&[Word64], Option<Word64>);

/// The products whose rates are measured, in words.
const OF_RATES: [(&str, Sums); 2] = [
    ("16-bit", |gpu| {
        (gpu.gemm_16bit_sums.as_slice(), gpu.gemm_16bit_common_sum)
    }),
    ("8-bit", |gpu| {
        (gpu.gemm_fp8_sums.as_slice(), gpu.gemm_fp8_common_sum)
    }),
];

/// Where products on the tensor units did not repeat. Products outside rates and the load are computed only
/// on the integer units.
fn changed_on_tensor_units(gpu: &GpuFacts) -> Option<String> {
    if let Some((what, _)) = OF_RATES.into_iter().find(|(_, of)| of(gpu).0.len() > 1) {
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

/// For the same inputs, with numbers so small that nothing is rounded, both units must give the same result.
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
