//! Names as sellers and people spell them, taken apart: `NVIDIA H100 80GB SXM5` is the model `h100`,
//! 80 GB of memory and the form SXM.
//!
//! A spelling only narrows what its model leaves open. Where several cards fit, the result stays open; where
//! it contradicts every card of its model, it matches none.

use super::{Answer, BY_PROVIDER, Certainty, EVERY_SELLER, Resolution, Rule, memory_matches};
use crate::gpu::{Gpu, GpuFamily, GpuIdentity, GpuWanted};
use crate::table::squeeze;

/// Words that do not identify a card.
const DECORATION: [&str; 8] = [
    "nvidia", "amd", "instinct", "tesla", "geforce", "tensor", "core", "gpu",
];

/// How far off a memory size may be when it alone separates several cards. Units: fraction of the size.
const SAME_MEMORY: f64 = 0.02;

/// How a card connects to its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// An NVIDIA module; of this generation, where it is given.
    Sxm(Option<u32>),
    Pcie,
    /// Two PCIe cards with a bridge, sold under a name of their own.
    Nvl,
    /// A module of the Open Compute Project's.
    Oam,
}

impl Form {
    fn read(word: &str) -> Option<Self> {
        match word {
            "hgx" => return Some(Self::Sxm(None)),
            "pcie" => return Some(Self::Pcie),
            "nvl" => return Some(Self::Nvl),
            "oam" => return Some(Self::Oam),
            _ => {}
        }
        match word.strip_prefix("sxm")? {
            "" => Some(Self::Sxm(None)),
            generation => generation.parse().ok().map(|n| Self::Sxm(Some(n))),
        }
    }

    /// Whether the card comes in this form.
    fn is_of(self, gpu: Gpu) -> bool {
        let (name, spec) = (gpu.name(), gpu.spec());
        let is_nvl = name.contains("NVL");
        match self {
            Self::Sxm(generation) => {
                (name.contains("SXM") || spec.node_form.contains("HGX"))
                    && generation.is_none_or(|n| sxm_generations(&spec.arch).contains(&n))
            }
            Self::Pcie => spec.node_form.contains("PCIe") && !is_nvl,
            Self::Nvl => is_nvl,
            Self::Oam => spec.node_form.contains("OAM"),
        }
    }
}

/// The generations of SXM modules in which the cards of an architecture are built.
fn sxm_generations(arch: &str) -> &'static [u32] {
    match arch {
        "Pascal" | "Volta" => &[2],
        "Ampere" => &[4],
        "Hopper" => &[5],
        "Blackwell" | "Blackwell Ultra" => &[5, 6],
        _ => &[],
    }
}

/// A name taken apart.
#[derive(Debug, Default, PartialEq)]
struct Spelling {
    /// The words that are not recognised as anything else, squeezed.
    model: String,
    form: Option<Form>,
    /// Units: GB or GiB, which people do not distinguish.
    memory_gb: Option<u32>,
    /// Such as `hbm3`.
    memory_type: Option<String>,
    /// Whether it gives anything besides the model.
    says_more: bool,
}

impl Spelling {
    fn read(name: &str) -> Self {
        let lower = name.to_lowercase().replace("pci-e", "pcie");
        let mut words = lower
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .peekable();
        let mut read = Self::default();
        while let Some(word) = words.next() {
            let unit_follows = matches!(words.peek(), Some(&("gb" | "gib")));
            read.says_more |= match word {
                _ if DECORATION.contains(&word) => true,
                _ if unit_follows && word.parse::<u32>().is_ok() => {
                    read.memory_gb = word.parse().ok();
                    words.next();
                    true
                }
                _ => read.take(word),
            };
        }
        read
    }

    /// Interprets a word; returns whether it is more than a part of the model.
    fn take(&mut self, word: &str) -> bool {
        if let Some(form) = Form::read(word) {
            self.form = Some(form);
        } else if let Some(size) = memory(word) {
            self.memory_gb = Some(size);
        } else if word.starts_with("hbm") || word.starts_with("gddr") {
            self.memory_type = Some(word.to_owned());
        } else if let Some((model, form)) = glued(word) {
            self.model.push_str(model);
            self.form = Some(form);
        } else {
            self.model.push_str(word);
            return false;
        }
        true
    }

    /// The cards of these that match everything in the spelling.
    ///
    /// Where only memory separates several cards, it must match almost exactly: sellers round sizes as they
    /// like, so the usual tolerance would read too much into them.
    fn fitting(&self, cards: &[Gpu], memory_mib: Option<u64>) -> Vec<Gpu> {
        let exactly = self.form.is_none() && cards.len() > 1;
        let has = |gpu: &Gpu, mib: u64| {
            let published = gpu.spec().memory_gb;
            match exactly {
                true => (mib as f64 / 1_024.0 - published).abs() <= published * SAME_MEMORY,
                false => memory_matches(published, mib),
            }
        };
        let fits = |gpu: &&Gpu| {
            let memory_type = gpu.spec().memory_type.to_lowercase();
            self.form.is_none_or(|form| form.is_of(**gpu))
                && self.memory_mib().is_none_or(|mib| has(gpu, mib))
                && memory_mib.is_none_or(|mib| has(gpu, mib))
                && self
                    .memory_type
                    .as_ref()
                    .is_none_or(|said| *said == memory_type)
        };
        cards.iter().filter(fits).copied().collect()
    }

    /// The GPU or family that these cards are, where only their memory separates them from the others.
    fn by_memory_alone(&self, candidates: &[Gpu]) -> Option<GpuWanted> {
        let gb = self.memory_gb?;
        let family = GpuFamily::parse(candidates.first()?.family()).ok()?;
        let with_it = of_family(family).into_iter();
        let with_it = with_it.filter(|gpu| has_just(*gpu, gb));
        with_it
            .eq(candidates.iter().copied())
            .then_some(GpuWanted::FamilyWith(family, gb))
    }

    fn memory_mib(&self) -> Option<u64> {
        self.memory_gb.map(|gb| u64::from(gb) * 1_024)
    }

    /// The cards of its model, as the catalogue names models.
    fn of_model(&self) -> Vec<Gpu> {
        let of_family: Vec<Gpu> = Gpu::all()
            .filter(|gpu| squeeze(gpu.family()) == self.model)
            .collect();
        match of_family.is_empty() {
            true => Gpu::all()
                .filter(|gpu| squeeze(gpu.name()) == self.model)
                .collect(),
            false => of_family,
        }
    }
}

/// Such as `80gb`, `80g` or `80gib`.
fn memory(word: &str) -> Option<u32> {
    let digits = ["gib", "gb", "g"]
        .iter()
        .find_map(|unit| word.strip_suffix(unit));
    digits?.parse().ok()
}

/// A model and a form written as one word, such as `h100sxm5`.
fn glued(word: &str) -> Option<(&str, Form)> {
    ["sxm", "pcie", "nvl"].iter().find_map(|form| {
        let at = word.find(form).filter(|at| *at > 0)?;
        let (model, form) = word.split_at(at);
        Some((model, Form::read(form)?))
    })
}

/// A rule for every seller that covers the model, and all rules that do.
fn rules_of<'r>(
    spelling: &'r Spelling,
    memory_mib: Option<u64>,
) -> (
    Option<&'static Rule>,
    impl Iterator<Item = &'static Rule> + 'r,
) {
    let rules = BY_PROVIDER.get(EVERY_SELLER).map(|every| &every.rules);
    let speak = move || {
        let rules = rules.into_iter().flatten();
        rules.filter(|rule| rule.squeezed_name.as_deref() == Some(&spelling.model))
    };
    let fitting = speak().find(|rule| rule.fits(Some(&spelling.model), memory_mib));
    (fitting, speak())
}

/// Resolves a seller's spelling that no rule and no table has.
pub(super) fn of_seller(name: &str, memory_mib: Option<u64>) -> Option<Resolution> {
    let spelling = Spelling::read(name);
    if !spelling.says_more || spelling.model.is_empty() {
        return None;
    }
    let memory = memory_mib.or(spelling.memory_mib());
    let (rule, mut speaking) = rules_of(&spelling, memory);
    let cards = match rule.map(|rule| &rule.answer) {
        Some(Answer::Gpu(GpuIdentity::Known(gpu))) => vec![*gpu],
        Some(Answer::Gpu(GpuIdentity::FamilyOnly(family))) => of_family(*family),
        Some(Answer::NotAGpu | Answer::Other | Answer::Unknown) => return None,
        // A name of several cards, where neither memory nor form selects one.
        None if spelling.form.is_none() && speaking.next().is_some() => return None,
        None => spelling.of_model(),
    };
    let candidates = spelling.fitting(&cards, memory_mib);
    let (identity, certainty) = match candidates.as_slice() {
        [] => return None,
        [one] => {
            let certainty = rule.map_or(Certainty::High, |rule| match rule.answer {
                Answer::Gpu(GpuIdentity::Known(_)) => rule.row.certainty,
                _ => Certainty::High,
            });
            (GpuIdentity::Known(*one), certainty)
        }
        [first, ..] => {
            let family = GpuFamily::parse(first.family()).ok()?;
            (GpuIdentity::FamilyOnly(family), Certainty::Medium)
        }
    };
    Some(Resolution::Gpu {
        identity,
        certainty,
        rule: format!("`{}` read as {}", shown(name), in_words(&candidates)),
        share_of_gpu: None,
    })
}

/// Resolves a demand's spelling that the catalogue does not have; `None` where no card fits, or where several
/// do that differ in more than memory.
pub(in crate::gpu) fn of_demand(name: &str) -> Option<GpuWanted> {
    let spelling = Spelling::read(name);
    let mut cards = spelling.of_model();
    if cards.is_empty() && spelling.model.starts_with(|c: char| c.is_ascii_digit()) {
        // People who ask for a 4090 leave out the prefix of the whole series.
        let model = format!("rtx{}", spelling.model);
        cards = Spelling {
            model,
            ..Spelling::default()
        }
        .of_model();
    }
    if cards.is_empty() {
        let (rule, _) = rules_of(&spelling, spelling.memory_mib());
        let rule = rule.filter(|rule| rule.row.certainty == Certainty::High);
        if let Some(Answer::Gpu(GpuIdentity::Known(gpu))) = rule.map(|rule| &rule.answer) {
            cards.push(*gpu);
        }
    }
    let candidates = spelling.fitting(&cards, None);
    let by_its_name = || match super::by_known_name(&squeeze(name), None)? {
        Resolution::Gpu {
            identity: GpuIdentity::Known(gpu),
            ..
        } => Some(GpuWanted::Exactly(gpu)),
        _ => None,
    };
    match candidates.as_slice() {
        [one] => Some(GpuWanted::Exactly(*one)),
        [first, ..] if candidates.len() == cards.len() => {
            GpuFamily::parse(first.family()).ok().map(GpuWanted::Family)
        }
        _ => spelling.by_memory_alone(&candidates).or_else(by_its_name),
    }
}

/// Whether a card has this memory, within [`SAME_MEMORY`]. Units: GB.
pub(in crate::gpu) fn has_just(gpu: Gpu, gb: u32) -> bool {
    let published = gpu.spec().memory_gb;
    (f64::from(gb) - published).abs() <= published * SAME_MEMORY
}

/// The cards of the model that a name contains: those that match all of the name come first.
pub(in crate::gpu) fn near(name: &str) -> Vec<&'static str> {
    let spelling = Spelling::read(name);
    let mut cards = spelling.of_model();
    let fitting = spelling.fitting(&cards, None);
    cards.sort_by_key(|gpu| !fitting.contains(gpu));
    cards.into_iter().map(Gpu::name).collect()
}

fn of_family(family: GpuFamily) -> Vec<Gpu> {
    Gpu::all()
        .filter(|gpu| gpu.family() == family.name())
        .collect()
}

fn in_words(candidates: &[Gpu]) -> String {
    let names: Vec<_> = candidates.iter().map(|gpu| gpu.name()).collect();
    names.join(" or ")
}

fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::super::resolve;
    use super::*;

    fn sold(name: &str, memory_mib: Option<u64>) -> Option<String> {
        match resolve("nobody-knows", "a-sku", Some(name), memory_mib) {
            Resolution::Gpu { identity, .. } => Some(identity.to_string()),
            Resolution::NotAGpu { .. } | Resolution::Unknown { .. } => None,
        }
    }

    fn wanted(name: &str) -> Option<String> {
        GpuWanted::parse(name).ok().map(|wanted| wanted.to_string())
    }

    #[test]
    fn a_form_and_a_memory_beside_the_model_name_one_card() {
        for (spelling, card) in [
            ("H100 SXM5", "H100-SXM"),
            ("h100 sxm", "H100-SXM"),
            ("H100SXM5", "H100-SXM"),
            ("NVIDIA H100 80GB SXM", "H100-SXM"),
            ("NVIDIA H100 80GB HBM3", "H100-SXM"),
            ("NVIDIA HGX H100", "H100-SXM"),
            ("H100 PCI-E", "H100-PCIe"),
            ("H100 NVL 94 GB", "H100-NVL"),
            ("NVIDIA H200 SXM5 141GB", "H200-SXM"),
            ("A100 80GB PCIe", "A100-PCIe-80"),
            ("A100-SXM4-40GB", "A100-SXM-40"),
            ("NVIDIA A100 80G SXM4", "A100-SXM-80"),
            ("Tesla V100 SXM2 32GB", "V100-SXM2-32"),
            ("AMD Instinct MI300X OAM", "MI300X"),
            ("NVIDIA L40S 48GB", "L40S"),
            ("NVIDIA GeForce RTX 4090 24GB", "RTX-4090"),
            ("A6000 48GB", "RTX-A6000"),
            ("B200 SXM 192GB", "B200-SXM"),
        ] {
            assert_eq!(sold(spelling, None).as_deref(), Some(card), "{spelling}");
            assert_eq!(wanted(spelling).as_deref(), Some(card), "{spelling}");
        }
    }

    #[test]
    fn what_fits_several_cards_stays_open() {
        assert_eq!(sold("NVIDIA H100 80GB", None).as_deref(), Some("H100"));
        assert_eq!(sold("A100 40GB", None).as_deref(), Some("A100"));
        assert_eq!(sold("NVIDIA A100", Some(81_920)).as_deref(), Some("A100"));
        assert_eq!(sold("NVIDIA H100 94GB", None).as_deref(), Some("H100-NVL"));
        // The column gives what the name does not.
        assert_eq!(
            sold("A100 SXM4", Some(40_960)).as_deref(),
            Some("A100-SXM-40")
        );
        // The card of 94 GB does not satisfy a demand for 80 GB.
        assert_eq!(wanted("NVIDIA H100 80GB").as_deref(), Some("H100-80GB"));
        let open = GpuWanted::parse("A100 SXM").expect_err("two cards of two sizes");
        assert_eq!(open.nearest[..2], ["A100-SXM-80", "A100-SXM-40"]);
        assert_eq!(wanted("4090").as_deref(), Some("RTX-4090"));
        assert_eq!(wanted("NVIDIA H100").as_deref(), Some("H100"));
    }

    #[test]
    fn what_contradicts_every_card_of_the_model_is_none_of_them() {
        for spelling in [
            "H100 96GB",
            "H100 SXM4",
            "A100 SXM5",
            "H100 PCIe 94GB",
            "H100 SXM HBM2e",
            "L40S SXM",
            "H800 NVL",
            "NVIDIA GeForce RTX 4090 D 24GB",
            "H100 MIG 1g.10gb",
            "8x H100 SXM5",
            "SXM5 80GB",
            "NVIDIA",
            "",
        ] {
            assert_eq!(sold(spelling, None), None, "{spelling}");
            assert_eq!(wanted(spelling), None, "{spelling}");
        }
        assert_eq!(
            sold("H100 SXM5", Some(96_000)),
            None,
            "the column contradicts"
        );
        // A bare name of several cards needs its memory.
        assert_eq!(sold("L4", None).as_deref(), Some("L4"));
        assert_eq!(sold("NVIDIA RTX 3060", None), None);
    }

    #[test]
    fn whoever_misspells_is_told_the_cards_of_the_model() {
        let refused = GpuWanted::parse("NVIDIA H100 96GB SXM").expect_err("no such card");
        let said = refused.to_string();
        assert!(
            said.contains("nearest names are H100-SXM, H100-PCIe"),
            "{said}"
        );
        let Resolution::Unknown { why } = resolve("nobody", "x", Some("A100 SXM5 80GB"), None)
        else {
            panic!("no such card");
        };
        assert!(why.contains("nearest names are A100-SXM-80"), "{why}");
    }
}
