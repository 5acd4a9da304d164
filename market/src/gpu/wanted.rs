//! Which GPUs a demand takes: one name, or a list of them.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};

use super::names::spelling;
use super::{CATALOGUE, Gpu, GpuFamily, GpuIdentity, UnknownGpu};

/// The meaning of one name in a demand.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GpuWanted {
    /// Any GPU that does the work.
    Any,
    /// Any GPU with at least this much memory, as its maker states it: `40GB+`. Units: GB.
    WithMemory(u32),
    /// Any GPU of this family, including one whose form the seller leaves open.
    Family(GpuFamily),
    /// Any GPU of this family with exactly this much memory: `A100-80GB`. Units: GB.
    FamilyWith(GpuFamily, u32),
    /// This GPU and no other.
    Exactly(Gpu),
}

/// Whether an offered GPU matches the name in a demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuFit {
    /// It matches, in each form that it may have.
    Yes,
    /// The seller leaves its form open, and not every form matches.
    FormOpen,
    /// It does not match.
    No,
}

impl GpuWanted {
    /// Reads `any`, a least memory (`40GB+`), a canonical name or a family, in any case, and sellers'
    /// spellings of one of them: `NVIDIA H100 80GB SXM5`, `A100-80GB`.
    ///
    /// A name that is both, such as `L40S`, means exactly that GPU.
    /// Errors: [`UnknownGpu`] with the nearest names.
    pub fn parse(name: &str) -> Result<Self, UnknownGpu> {
        if name.eq_ignore_ascii_case("any") {
            return Ok(Self::Any);
        }
        if let Some(gb) = least_memory(name) {
            return Ok(Self::WithMemory(gb));
        }
        if let Some(position) = CATALOGUE.position(name) {
            return Ok(Self::Exactly(Gpu(position)));
        }
        let family = GpuFamily::find_beside_gpus(name).map(Self::Family);
        family
            .or_else(|| spelling::of_demand(name).filter(|_| name.len() <= LONGEST))
            .ok_or_else(|| UnknownGpu::new(name))
    }

    fn takes(&self, gpu: Gpu) -> bool {
        match self {
            Self::Any => true,
            Self::WithMemory(gb) => gpu.spec().memory_gb >= f64::from(*gb),
            Self::Family(family) => gpu.family() == family.name(),
            Self::FamilyWith(family, gb) => {
                gpu.family() == family.name() && spelling::has_just(gpu, *gb)
            }
            Self::Exactly(exactly) => gpu == *exactly,
        }
    }

    /// Whether an offer of this identity matches the name. `published_mib` is the memory of one GPU as its
    /// seller states it, which narrows an open form. Units: MiB.
    #[must_use]
    pub fn fit(&self, offered: &GpuIdentity, published_mib: Option<u64>) -> GpuFit {
        fit(std::slice::from_ref(self), offered, published_mib)
    }
}

/// The longest spelling that is read. Units: bytes.
const LONGEST: usize = 80;

/// Such as `40GB+` or `40 GiB+`. Units: GB or GiB, which people do not distinguish.
fn least_memory(name: &str) -> Option<u32> {
    let name = name.trim().to_ascii_lowercase();
    let sized = name.strip_suffix('+')?.trim_end();
    let digits = ["gib", "gb", "g"]
        .iter()
        .find_map(|unit| sized.strip_suffix(unit))?;
    let digits = digits.trim_end();
    // No sign, and no more than any GPU will ever have.
    let is_number = (1..=5).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let gb = is_number.then(|| digits.parse().ok()).flatten();
    gb.filter(|gb| *gb > 0)
}

fn fit(wanted: &[GpuWanted], offered: &GpuIdentity, published_mib: Option<u64>) -> GpuFit {
    if let Some(gpu) = offered.known() {
        return match wanted.iter().any(|one| one.takes(gpu)) {
            true => GpuFit::Yes,
            false => GpuFit::No,
        };
    }
    let of_family = |one: &GpuWanted| matches!(one, GpuWanted::Family(family) if family.name() == offered.family());
    if wanted.iter().any(of_family) {
        return GpuFit::Yes;
    }
    // A family of one card was left open for another card, which the catalogue does not have.
    let is_whole = offered.forms().nth(1).is_some();
    let by_name = |one: &GpuWanted| matches!(one, GpuWanted::Exactly(_));
    let forms = offered.forms_of(published_mib);
    let (will_do, all) = forms.fold((0, 0), |(will_do, all), gpu| {
        let takes = wanted.iter().any(|one| one.takes(gpu));
        (will_do + usize::from(takes), all + 1)
    });
    match (will_do, all) {
        // Nothing is known about hardware outside the catalogue.
        (_, 0) => {
            let takes_unnamed =
                |one: &GpuWanted| matches!(one, GpuWanted::Any | GpuWanted::WithMemory(_));
            match wanted.iter().any(takes_unnamed) {
                true => GpuFit::FormOpen,
                false => GpuFit::No,
            }
        }
        (0, _) => GpuFit::No,
        _ if will_do == all && (is_whole || !wanted.iter().all(by_name)) => GpuFit::Yes,
        _ => GpuFit::FormOpen,
    }
}

impl fmt::Display for GpuWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::WithMemory(gb) => write!(f, "{gb}GB+"),
            Self::Family(family) => family.write_beside_gpus(f),
            Self::FamilyWith(family, gb) => write!(f, "{family}-{gb}GB"),
            Self::Exactly(gpu) => gpu.fmt(f),
        }
    }
}

/// The GPUs to choose from: on the wire a name, or a list of names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GpusWanted(Vec<GpuWanted>);

impl GpusWanted {
    /// The most names that a list may have.
    pub const MOST: usize = 32;

    /// A list of names; `None` for no name, or for more than [`Self::MOST`].
    #[must_use]
    pub fn any_of(names: Vec<GpuWanted>) -> Option<Self> {
        (1..=Self::MOST)
            .contains(&names.len())
            .then_some(Self(names))
    }

    /// As [`GpuWanted::fit`]: an open form matches where the list has each form that it may be.
    #[must_use]
    pub fn fit(&self, offered: &GpuIdentity, published_mib: Option<u64>) -> GpuFit {
        fit(&self.0, offered, published_mib)
    }
}

impl From<GpuWanted> for GpusWanted {
    fn from(one: GpuWanted) -> Self {
        Self(vec![one])
    }
}

/// The names with `or` between them.
impl fmt::Display for GpusWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(" or ")?;
            }
            one.fmt(f)?;
        }
        Ok(())
    }
}

impl Serialize for GpusWanted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for GpusWanted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NameOrNames)
    }
}

struct NameOrNames;

impl<'de> Visitor<'de> for NameOrNames {
    type Value = GpusWanted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = GpusWanted::MOST;
        write!(
            f,
            "a GPU such as `H100-SXM`, or a list of 1 to {most} of them"
        )
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<GpusWanted, E> {
        let one = GpuWanted::parse(name).map_err(E::custom)?;
        Ok(one.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<GpusWanted, A::Error> {
        let mut list = Vec::new();
        while let Some(one) = names.next_element()? {
            list.push(one);
        }
        let (length, most) = (list.len(), GpusWanted::MOST);
        GpusWanted::any_of(list).ok_or_else(|| {
            serde::de::Error::custom(format!("the list has {length} names; it takes 1 to {most}"))
        })
    }
}

impl utoipa::PartialSchema for GpusWanted {
    fn schema() -> RefOr<Schema> {
        let one = || Ref::from_schema_name("GpuWanted");
        let list = ArrayBuilder::new()
            .items(one())
            .min_items(Some(1))
            .max_items(Some(Self::MOST));
        OneOfBuilder::new().item(one()).item(list).into()
    }
}

impl utoipa::ToSchema for GpusWanted {
    fn name() -> std::borrow::Cow<'static, str> {
        std::borrow::Cow::Borrowed("GpusWanted")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        use utoipa::PartialSchema as _;
        schemas.push((GpuWanted::name().into_owned(), GpuWanted::schema()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit_of(wanted: &str, offered: &str, published_gib: Option<u64>) -> GpuFit {
        let wanted: GpusWanted = serde_json::from_str(wanted).expect("names");
        let offered = offered.parse().expect("a GPU");
        wanted.fit(&offered, published_gib.map(|gib| gib * 1_024))
    }

    #[test]
    fn words_of_lists_and_lists_of_words_take_what_they_say() {
        use GpuFit::{FormOpen, No, Yes};
        for (wanted, offered, gib, fit) in [
            (r#""A100-80GB""#, "A100-SXM-80", None, Yes),
            (r#""A100-80GB""#, "A100-PCIe-80", None, Yes),
            (r#""A100-80GB""#, "A100-SXM-40", None, No),
            (r#""A100-80GB""#, "A100", Some(80), Yes),
            (r#""A100-80GB""#, "A100", Some(40), No),
            (r#""A100-80GB""#, "A100", None, FormOpen),
            (r#""H100 80GB""#, "H100-PCIe", None, Yes),
            (r#""H100 80GB""#, "H100-NVL", None, No),
            (r#""4090""#, "RTX-4090", None, Yes),
            (r#""40GB+""#, "L40S", None, Yes),
            (r#""40 GiB+""#, "A100-SXM-40", None, Yes),
            (r#""40GB+""#, "RTX-4090", None, No),
            (r#""40GB+""#, "A100", None, Yes),
            (r#""41GB+""#, "A100", None, FormOpen),
            (r#""41GB+""#, "A100", Some(80), Yes),
            (r#"["A10","A10G","A100"]"#, "A10G", None, Yes),
            (r#"["A10","A10G","A100"]"#, "A100", None, Yes),
            (r#"["A10","A10G","A100"]"#, "L4", None, No),
            // The list has both forms that it may be.
            (r#"["H100-SXM","H100-PCIe"]"#, "H100", Some(80), Yes),
            (r#"["H100-SXM","H100-PCIe"]"#, "H100", None, FormOpen),
            (r#""H100-NVL""#, "H100", Some(80), No),
            (r#""H100-NVL""#, "H100", Some(94), Yes),
            (r#""H100-SXM""#, "H100", Some(80), FormOpen),
            // A 4090 or its cut sibling: nobody knows, so it is not a 4090.
            (r#""RTX-4090""#, "RTX-4090/form-unknown", None, FormOpen),
            (r#""h100""#, "H100", None, Yes),
            (r#""any""#, "A100", None, Yes),
        ] {
            assert_eq!(
                fit_of(wanted, offered, gib),
                fit,
                "{wanted} {offered} {gib:?}"
            );
        }
    }

    #[test]
    fn one_name_is_written_as_a_word_and_several_as_a_list() {
        for json in [
            r#""H100-SXM""#,
            r#""A100-80GB""#,
            r#""40GB+""#,
            r#"["A10","A10G","A100"]"#,
        ] {
            let wanted: GpusWanted = serde_json::from_str(json).expect("names");
            assert_eq!(serde_json::to_string(&wanted).expect("json"), json);
        }
        let list: GpusWanted = serde_json::from_str(r#"["a10","40GB+"]"#).expect("names");
        assert_eq!(list.to_string(), "A10 or 40GB+");
    }

    #[test]
    fn what_is_no_name_is_refused_with_what_to_write() {
        let most = serde_json::to_string(&vec!["H100"; 33]).expect("json");
        for (bad, says) in [
            (r#""X9000""#, "no GPU of the catalogue"),
            (r#"["H100-SXM","X9000"]"#, "no GPU of the catalogue"),
            ("[]", "the list has 0 names; it takes 1 to 32"),
            (most.as_str(), "the list has 33 names; it takes 1 to 32"),
            ("8", "a GPU such as `H100-SXM`"),
            (r#""+GB+""#, "no GPU of the catalogue"),
            (r#""0GB+""#, "no GPU of the catalogue"),
            (r#""-40GB+""#, "no GPU of the catalogue"),
        ] {
            let error = serde_json::from_str::<GpusWanted>(bad).expect_err("no name");
            assert!(error.to_string().contains(says), "{bad}: {error}");
        }
    }
}
