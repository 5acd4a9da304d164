//! Resolves sellers' names to GPUs: rules by provider and SKU, then names without case and punctuation
//! together with memory.
//!
//! The rules are data (`data/gpu_rules.csv`), tried in order: the provider's own, then those of `*`; the
//! first match applies. A name without a rule may still be a canonical name, a driver's product name
//! (`data/gpu_product_names.csv`) or a name that all sellers use alike (`data/gpu_seller_names.csv`). It may
//! also spell one of them with its form and its memory (`spelling`). A name that nothing matches is unknown
//! and left for a person to map; it is never guessed.

pub(super) mod spelling;

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{RegexSet, RegexSetBuilder};
use serde::Deserialize;

use super::{Certainty, Gpu, GpuIdentity, UnknownGpu};
use crate::quantity::GpuCount;
use crate::table::{self, squeeze};

const RULES: &str = include_str!("../../data/gpu_rules.csv");
const PRODUCT_NAMES: &str = include_str!("../../data/gpu_product_names.csv");
const SELLER_NAMES: &str = include_str!("../../data/gpu_seller_names.csv");

/// The provider id of rules that apply to every seller.
const EVERY_SELLER: &str = "*";

/// The result of resolving a SKU or a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// A GPU, or a family whose form stays open.
    Gpu {
        /// The GPU or the family.
        identity: GpuIdentity,
        /// How sure the rule is.
        certainty: Certainty,
        /// The rule that matched and why it is right, for a person to check.
        rule: String,
        /// GPUs in one node of this SKU, where sellers publish wrong counts: it replaces theirs.
        share_of_gpu: Option<GpuCount>,
    },
    /// A TPU, an FPGA or another accelerator that is no GPU.
    NotAGpu {
        /// The rule that matched and why it is right.
        rule: String,
    },
    /// Hardware that nobody has named yet: to be listed as unmapped and counted.
    Unknown {
        /// The reason.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleRow {
    pub(super) provider: String,
    pub(super) sku_pattern: String,
    pub(super) gpu_name_as_written: Option<String>,
    pub(super) memory_gib: Option<f64>,
    pub(super) canonical: String,
    pub(super) certainty: Certainty,
    pub(super) share_of_gpu_thousandths: Option<u32>,
    pub(super) why: String,
    pub(super) source: String,
}

/// The rows of the rules, in their order.
pub(super) fn rule_rows() -> Vec<RuleRow> {
    table::rows(RULES)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NameRow {
    pub(super) name: String,
    pub(super) canonical: String,
    pub(super) certainty: Certainty,
    pub(super) why: String,
    pub(super) source: String,
}

/// The rows of the product names, as the driver on a node writes them.
pub(super) fn product_name_rows() -> Vec<NameRow> {
    table::rows(PRODUCT_NAMES)
}

/// The rows of the names that mean one GPU for every seller.
pub(super) fn seller_name_rows() -> Vec<NameRow> {
    table::rows(SELLER_NAMES)
}

/// The answer of a rule.
#[derive(Clone)]
enum Answer {
    Gpu(GpuIdentity),
    /// A GPU that the catalogue does not have.
    Other,
    NotAGpu,
    Unknown,
}

impl Answer {
    fn read(canonical: &str) -> Self {
        match canonical {
            "NOT-A-GPU" => Self::NotAGpu,
            "OTHER" => Self::Other,
            "UNKNOWN" => Self::Unknown,
            // The tests check that every other word is a canonical name or a family left open.
            _ => GpuIdentity::parse(canonical).map_or(Self::Unknown, Self::Gpu),
        }
    }
}

struct Rule {
    row: RuleRow,
    squeezed_name: Option<String>,
    answer: Answer,
    /// Whether all of its provider's rules for its name give the same answer.
    agreed: bool,
}

impl Rule {
    fn fits(&self, squeezed_name: Option<&str>, memory_mib: Option<u64>) -> bool {
        let name_fits =
            self.squeezed_name.is_none() || self.squeezed_name.as_deref() == squeezed_name;
        let memory_fits = match (self.row.memory_gib, memory_mib) {
            (None, _) => true,
            (Some(gib), Some(mib)) => memory_matches(gib, mib),
            // A provider's SKU is enough by itself. A bare name is enough where no memory size would make it
            // another card.
            (Some(_), None) => self.row.provider != EVERY_SELLER || self.agreed,
        };
        name_fits && memory_fits
    }

    fn resolution(&self) -> Resolution {
        let RuleRow {
            provider,
            sku_pattern,
            gpu_name_as_written,
            why,
            source,
            ..
        } = &self.row;
        let name = gpu_name_as_written
            .as_ref()
            .map_or(String::new(), |name| format!(" `{name}`"));
        let rule = format!("{provider} {sku_pattern}{name}: {why} ({source})");
        match &self.answer {
            Answer::Gpu(identity) => Resolution::Gpu {
                identity: identity.clone(),
                certainty: self.row.certainty,
                rule,
                share_of_gpu: self
                    .row
                    .share_of_gpu_thousandths
                    .and_then(|n| GpuCount::from_thousandths(n).ok()),
            },
            Answer::NotAGpu => Resolution::NotAGpu { rule },
            Answer::Other | Answer::Unknown => Resolution::Unknown { why: rule },
        }
    }
}

/// Whether a published memory size matches this one, within 8 %.
pub(super) fn memory_matches(gib: f64, mib: u64) -> bool {
    // Exact: no memory size comes near 2^53 MiB.
    let published_gib = mib as f64 / 1024.0;
    (published_gib - gib).abs() <= gib * 0.08
}

/// The rules of one provider, their patterns compiled into one set.
struct ProviderRules {
    rules: Vec<Rule>,
    patterns: RegexSet,
}

impl ProviderRules {
    fn new(mut rules: Vec<Rule>) -> Self {
        let mut answers: HashMap<String, Vec<String>> = HashMap::new();
        for rule in &rules {
            let named = rule.squeezed_name.clone().unwrap_or_default();
            let canonical = rule.row.canonical.clone();
            answers.entry(named).or_default().push(canonical);
        }
        for rule in &mut rules {
            let named = rule.squeezed_name.as_deref().unwrap_or_default();
            let all = answers.get(named).into_iter().flatten();
            rule.agreed = all.into_iter().all(|answer| *answer == rule.row.canonical);
        }
        let patterns = RegexSetBuilder::new(rules.iter().map(|rule| &rule.row.sku_pattern))
            .case_insensitive(true)
            .build()
            // The patterns are part of the program and the tests build every one of these sets.
            .unwrap_or_else(|error| panic!("a compiled-in pattern cannot be read: {error}"));
        Self { rules, patterns }
    }

    fn first_match(&self, sku: &str, name: Option<&str>, memory_mib: Option<u64>) -> Option<&Rule> {
        let matching = self.patterns.matches(sku);
        matching
            .iter()
            .map(|at| &self.rules[at])
            .find(|rule| rule.fits(name, memory_mib))
    }
}

static BY_PROVIDER: LazyLock<HashMap<String, ProviderRules>> = LazyLock::new(|| {
    let mut by_provider: HashMap<String, Vec<Rule>> = HashMap::new();
    for row in rule_rows() {
        let squeezed_name = row.gpu_name_as_written.as_deref().map(squeeze);
        let answer = Answer::read(&row.canonical);
        by_provider
            .entry(row.provider.clone())
            .or_default()
            .push(Rule {
                row,
                squeezed_name,
                answer,
                agreed: false,
            });
    }
    by_provider
        .into_iter()
        .map(|(provider, rules)| (provider, ProviderRules::new(rules)))
        .collect()
});

struct KnownName {
    answer: Answer,
    certainty: Certainty,
    rule: String,
}

impl KnownName {
    fn resolution(&self) -> Resolution {
        match &self.answer {
            Answer::Gpu(identity) => Resolution::Gpu {
                identity: identity.clone(),
                certainty: self.certainty,
                rule: self.rule.clone(),
                share_of_gpu: None,
            },
            Answer::NotAGpu => Resolution::NotAGpu {
                rule: self.rule.clone(),
            },
            Answer::Other | Answer::Unknown => Resolution::Unknown {
                why: self.rule.clone(),
            },
        }
    }
}

/// Canonical names, product names and sellers' names, squeezed.
static KNOWN_NAMES: LazyLock<HashMap<String, KnownName>> = LazyLock::new(|| {
    let canonical = Gpu::all().map(|gpu| {
        let rule = format!("canonical name `{gpu}`");
        let answer = Answer::Gpu(GpuIdentity::Known(gpu));
        (
            squeeze(gpu.name()),
            KnownName {
                answer,
                certainty: Certainty::High,
                rule,
            },
        )
    });
    let rows = product_name_rows().into_iter().chain(seller_name_rows());
    let named = rows.map(|row| {
        let colon = if row.why.is_empty() { "" } else { ": " };
        let rule = format!(
            "product name `{}`{colon}{} ({})",
            row.name, row.why, row.source
        );
        let answer = Answer::read(&row.canonical);
        (
            squeeze(&row.name),
            KnownName {
                answer,
                certainty: row.certainty,
                rule,
            },
        )
    });
    canonical.chain(named).collect()
});

/// The GPU that a seller means by a SKU and, if it writes one, the name of a GPU.
///
/// `seller` is the provider's id, `sku` its own name for the thing. `memory_mib_per_gpu` is the
/// published memory of one GPU: a source that gives the sum divides it by the count first.
#[must_use]
pub fn resolve(
    seller: &str,
    sku: &str,
    gpu_name: Option<&str>,
    memory_mib_per_gpu: Option<u64>,
) -> Resolution {
    let name = gpu_name.map(squeeze).filter(|name| !name.is_empty());
    let name = name.as_deref();
    let by_rule = |provider: &str| {
        let rules = BY_PROVIDER.get(provider)?;
        rules.first_match(sku, name, memory_mib_per_gpu)
    };
    if let Some(rule) = by_rule(seller) {
        return rule.resolution();
    }
    // A name spelled as in the catalogue means that card, even where sellers use it without dashes for
    // another card as well.
    if memory_mib_per_gpu.is_none()
        && let Some(gpu) = gpu_name.and_then(|name| Gpu::parse(name.trim()).ok())
        && let Some(known) = KNOWN_NAMES.get(&squeeze(gpu.name()))
    {
        return known.resolution();
    }
    if let Some(rule) = by_rule(EVERY_SELLER) {
        return rule.resolution();
    }
    let known = name.and_then(|name| by_known_name(name, memory_mib_per_gpu));
    known
        .or_else(|| spelling::of_seller(gpu_name?, memory_mib_per_gpu))
        .unwrap_or_else(|| {
            let what = gpu_name.unwrap_or(sku).chars().take(80).collect::<String>();
            if let Some(several) = name
                .filter(|_| memory_mib_per_gpu.is_none())
                .and_then(of_several)
            {
                let why = format!("`{what}` is {several}, by its memory, and no memory is given");
                return Resolution::Unknown { why };
            }
            let memory = memory_mib_per_gpu.map_or(String::new(), |mib| format!(" with {mib} MiB"));
            let nearest = gpu_name.map_or(String::new(), |name| UnknownGpu::new(name).hint());
            Resolution::Unknown {
                why: format!(
                    "no rule of {seller} or of every seller fits `{what}`{memory}{nearest}"
                ),
            }
        })
}

/// The cards that the rules for every seller tell apart by memory under one name, in words.
fn of_several(squeezed: &str) -> Option<String> {
    let rules = BY_PROVIDER.get(EVERY_SELLER)?.rules.iter();
    let named = rules.filter(|rule| rule.squeezed_name.as_deref() == Some(squeezed));
    let cards: Vec<&str> = named.map(|rule| rule.row.canonical.as_str()).collect();
    (cards.len() > 1).then(|| cards.join(" or "))
}

/// A canonical or product name, unless a rule for every seller covers it. Such a name means several cards,
/// and the memory did not fit that rule. Where cards of several sizes share one product name, `spelling`
/// separates them by memory.
fn by_known_name(squeezed: &str, memory_mib: Option<u64>) -> Option<Resolution> {
    let spoken_of = BY_PROVIDER.get(EVERY_SELLER).is_some_and(|all| {
        all.rules
            .iter()
            .any(|rule| rule.squeezed_name.as_deref() == Some(squeezed))
    });
    let known = KNOWN_NAMES.get(squeezed).filter(|_| !spoken_of)?;
    let fits = match (&known.answer, memory_mib) {
        (Answer::Gpu(GpuIdentity::Known(gpu)), Some(mib)) => {
            memory_matches(gpu.spec().memory_gb, mib)
        }
        (Answer::Gpu(GpuIdentity::FamilyOnly(_)), _) => false,
        _ => true,
    };
    fits.then(|| known.resolution())
}

/// The result of resolving a driver's product name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProductName {
    /// It is the name of this GPU, or of all GPUs of a family, which differ in memory.
    Of(GpuIdentity),
    /// It is the name of a card that the catalogue does not have, however close it is to one that it has.
    OfAnother,
    /// Nothing: no table lists it, or it is not the name of one card.
    Unknown,
}

/// Product names, squeezed, without additions that only sellers write. The agent on a node carries no other
/// names.
static PRODUCTS: LazyLock<HashMap<String, Answer>> = LazyLock::new(|| {
    let rows = product_name_rows().into_iter();
    rows.map(|row| (squeeze(&row.name), Answer::read(&row.canonical)))
        .collect()
});

/// The GPU whose product name a driver reports on the node, such as `NVIDIA H100 80GB HBM3`.
///
/// Spaces, dashes and case do not matter, so that labels made of product names are read too; a
/// name with something added (`-SHARED`, `MIG 1g.10gb`) is no whole GPU and stays unknown.
#[must_use]
pub fn resolve_product_name(nvml_name: &str) -> ProductName {
    match PRODUCTS.get(&squeeze(nvml_name)) {
        Some(Answer::Gpu(identity)) => ProductName::Of(identity.clone()),
        Some(Answer::Other) => ProductName::OfAnother,
        _ => ProductName::Unknown,
    }
}

/// The names that drivers report for a GPU, the usual one first; none where no driver is known to report it.
#[must_use]
pub fn product_names(gpu: Gpu) -> Vec<String> {
    let is_its = |row: &NameRow| match Answer::read(&row.canonical) {
        Answer::Gpu(GpuIdentity::Known(named)) => named == gpu,
        Answer::Gpu(GpuIdentity::FamilyOnly(family)) => family.name() == gpu.family(),
        _ => false,
    };
    let rows = product_name_rows().into_iter().filter(is_its);
    rows.map(|row| row.name).collect()
}

#[cfg(test)]
mod price_lists;
#[cfg(test)]
mod tests;
